//! Deliberate differences between the tools. Each comment states the reason, and each condition is
//! as narrow as possible.

use super::case::{Case, Tool};
use super::compare::{contains, find};
use super::plant::{BOX, Kind, Plant};
use super::twins::{RunResult, Status};
use std::collections::BTreeSet;

/// One deliberate difference.
struct Deliberate {
    /// Checks if the difference applies. If so, equalizes both results in the affected parts, or
    /// settles the case.
    applies: fn(&Case, &mut RunResult, &mut RunResult) -> Verdict,
}

/// Effect of a deliberate difference on the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The difference does not apply.
    Absent,
    /// The results were changed: the rest must be equal.
    Compare,
    /// Nothing else of the case can be compared.
    Settled,
}

const ALL: [Deliberate; 21] = [
    Deliberate { applies: texts },
    Deliberate { applies: waiting },
    Deliberate { applies: unmade_parents },
    Deliberate { applies: into_itself },
    Deliberate { applies: too_deep },
    Deliberate { applies: backup_elsewhere },
    Deliberate { applies: backup_in_the_sources_place },
    Deliberate { applies: raw_options },
    Deliberate { applies: unfinished },
    Deliberate { applies: broken_quotes },
    Deliberate { applies: old_special_bits },
    Deliberate { applies: same_through_link },
    Deliberate { applies: named_again_through_link },
    Deliberate { applies: stripped_too_late },
    Deliberate { applies: linked_to_itself },
    Deliberate { applies: never_looked_at },
    Deliberate { applies: renamed_piece_by_piece },
    Deliberate { applies: lost_way_back },
    Deliberate { applies: permissions_by_path },
    Deliberate { applies: one_buffer },
    Deliberate { applies: replaced_link_of_a_copy },
];

/// Applies all deliberate differences. Returns true if the case is settled.
pub(super) fn settles(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> bool {
    ALL.iter().any(|deliberate| (deliberate.applies)(case, system, ours) == Verdict::Settled)
}

/// The output of `--help` and `--version` is haul's own.
fn texts(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_asked = case.has_option(0, "help") || case.has_option(0, "version");
    let is_given = |ending: &RunResult| ending.status == Status::Exit(0) && !ending.out.is_empty();
    let is_gnus = system.out.starts_with(b"Usage: ") || contains(&system.out, b" (GNU coreutils) ");
    if !(is_asked && is_gnus && is_given(system) && is_given(ours)) {
        return Verdict::Absent;
    }
    system.out.clear();
    ours.out.clear();
    Verdict::Compare
}

/// GNU stops reading a directory at the name that would be copied into itself, and skips the rest.
/// haul copies everything else. Status and all messages of GNU must still be equal, except for
/// links that cannot be created in place of removed entries: some of these were still to be copied.
fn into_itself(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_about_it =
        |line: &[u8]| contains(line, b" into itself, ") || contains(line, b"will not create hard link");
    let stopped = system.err.split(|&byte| byte == b'\n').any(is_about_it);
    if !stopped || case.tool != Tool::Cp {
        return Verdict::Absent;
    }
    if ours.status == Status::Waiting && case.has_option(0, "copy-contents") {
        // haul is blocked at a pipe that GNU did not reach.
        return Verdict::Settled;
    }
    let removes = case.has_option(0, "remove-destination");
    let is_of_removed = |line: &[u8]| {
        removes && contains(line, b": can make relative symbolic links only in current directory")
    };
    let said = |bytes: &[u8]| -> BTreeSet<Vec<u8>> {
        let lines = bytes.split(|&byte| byte == b'\n');
        let lines = lines.filter(|line| !is_about_it(line) && !is_of_removed(line) && !line.is_empty());
        lines.map(<[u8]>::to_owned).collect()
    };
    let (theirs, own) = (said(&system.err), said(&ours.err));
    let join = |lines: Vec<Vec<u8>>| lines.join(&b'\n');
    ours.err = join(own.intersection(&theirs).cloned().collect());
    system.err = join(theirs.into_iter().collect());
    for ending in [system, ours] {
        ending.out.clear();
        ending.tree.clear();
    }
    Verdict::Compare
}

/// If a followed link leads from source to sink, GNU copies its own copies until names are too
/// long. haul reports a directory that would be copied into itself.
fn too_deep(_: &Case, system: &mut RunResult, _: &mut RunResult) -> Verdict {
    if contains(&system.err, b"File name too long") { Verdict::Settled } else { Verdict::Absent }
}

/// GNU 9.1 puts the simple backup of a file in a target directory into the working directory (fixed
/// in 9.2), where it may overwrite an unrelated file. haul keeps it next to its file. If the
/// system's tree shows that, status and messages must still be equal.
fn backup_elsewhere(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let backs_up = case.has_option(b'b', "backup") || case.has_option(b'S', "suffix");
    // A rename of the backup to the working directory, or back, may be impossible.
    let is_astray = |line: &[u8]| {
        contains(line, b": cannot un-backup ")
            || (contains(line, b": cannot backup ") && line.ends_with(b": Invalid cross-device link"))
    };
    if backs_up && system.err.split(|&byte| byte == b'\n').any(is_astray) {
        return Verdict::Settled;
    }
    if !backs_up || system.tree == ours.tree {
        return Verdict::Absent;
    }
    // An entry in the working directory, or its location on another file system, may prevent a
    // backup.
    if contains(&system.err, b": cannot backup ") && !contains(&ours.err, b": cannot backup ") {
        return Verdict::Settled;
    }
    let renamed = |ending: &RunResult| -> Vec<String> {
        ending.tree.iter().filter(|line| line.contains(", was ")).cloned().collect()
    };
    let (theirs, own) = (renamed(system), renamed(ours));
    let place = |line: &String| {
        line.split(": ").next().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
    };
    let cwd = case.cwd.escape_ascii().to_string();
    let strays = theirs.iter().any(|line| {
        let is_here = path_in(line).rsplit_once('/').map_or("", |(above, _)| above) == cwd;
        is_here && own.iter().any(|other| other != line && place(other) == place(line))
    });
    if !strays {
        return Verdict::Absent;
    }
    system.tree.clear();
    ours.tree.clear();
    Verdict::Compare
}

/// If a followed link leads to the file whose name the backup takes, GNU loses that file. It then
/// refuses, links to or waits for the entry in its place. haul reports that first, as GNU does for
/// a file that is named itself. A file with other names is not lost; then haul waits for no such
/// entry, either.
fn backup_in_the_sources_place(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let refuses = |ending: &RunResult| contains(&ending.err, b" might destroy source;  ");
    let has_link = case.plants.iter().any(|plant| matches!(plant.kind, Kind::Link(_)));
    let backs_up = case.has_option(b'b', "backup") || case.has_option(b'S', "suffix");
    let is_told = refuses(ours) && !refuses(system);
    let only_waits =
        system.status == Status::Waiting && contains(&ours.err, b", as it was replaced while being copied");
    if has_link && backs_up && (is_told || only_waits) { Verdict::Settled } else { Verdict::Absent }
}

/// The C library prints a mistyped option unchanged, including line ends and terminal control
/// characters. haul quotes it. Earlier warnings must still be equal.
fn raw_options(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let starts = ["unrecognized option '", "option '"].map(|start| format!("{}: {start}", case.tool.name()));
    let begin = |ending: &RunResult| starts.iter().find_map(|start| find(&ending.err, start.as_bytes()));
    let (Some(theirs), Some(own)) = (begin(system), begin(ours)) else { return Verdict::Absent };
    let is_raw = |bytes: &[u8]| bytes.iter().any(|byte| !(0x20..0x7f).contains(byte) && *byte != b'\n');
    let lines = |ending: &RunResult| ending.err.iter().filter(|&&byte| byte == b'\n').count();
    if !is_raw(&system.err[theirs..]) && lines(system) <= lines(ours) {
        return Verdict::Absent;
    }
    system.err.truncate(theirs);
    ours.err.truncate(own);
    Verdict::Compare
}

/// In haul an incomplete file has a time before that of its source and before 1970. `-u` therefore
/// copies it again, and it does not look complete. GNU leaves it like any new file.
fn unfinished(_: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    if system.status != Status::Exit(1) || ours.status != Status::Exit(1) {
        return Verdict::Absent;
    }
    for line in &mut ours.tree {
        const MARK: &str = ", changed ";
        let Some((before, time)) = line.split_once(MARK) else { continue };
        let (time, behind) = time.split_at(time.find(", ").unwrap_or(time.len()));
        let is_early = time.ends_with(".000000000") && (time.starts_with('-') || time.starts_with("0."));
        let as_new = format!("{before}{MARK}now{behind}");
        if is_early && system.tree.contains(&as_new) {
            *line = as_new;
        }
    }
    Verdict::Compare
}

/// GNU's quoting writes two additional quotes if a name contains a single quote and ends with an
/// escaped byte, and then loses its end. The reason is that gnulib's second pass continues where
/// the first one ended. haul's output is what a shell reads as the name.
fn broken_quotes(_: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_broken = |line: &&[u8]| contains(line, b"'''");
    let count = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').filter(is_broken).count();
    if count(&system.err) + count(&system.out) == 0 {
        return Verdict::Absent;
    }
    // Both sides drop each line with a name that contains a single quote.
    let is_kept = |line: &&[u8]| !contains(line, b"'\\''");
    let without =
        |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').filter(is_kept).collect::<Vec<_>>().join(&b'\n');
    for ending in [system, ours] {
        ending.out = without(&ending.out);
        ending.err = without(&ending.err);
    }
    Verdict::Compare
}

/// A copy that keeps the mode has that of its source, with all special bits. GNU 9.1 keeps the
/// set-id bits of an existing file. It also keeps the inherited set-group bit and the initial
/// sticky bit of a new directory (fixed when GNU stopped setting modes by access lists).
fn old_special_bits(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    for at in 0..ours.tree.len() {
        let Some(theirs) = system.tree.get(at) else { break };
        let (Some(their_mode), Some(mode)) = (mode_in(theirs), mode_in(&ours.tree[at])) else { continue };
        let extra = their_mode & !mode;
        let as_theirs =
            ours.tree[at].replacen(&format!(", mode {mode:04o}"), &format!(", mode {their_mode:04o}"), 1);
        if extra == 0 || extra & 0o777 != 0 || as_theirs != *theirs {
            continue;
        }
        let path = path_in(theirs);
        let named = |name: &[u8]| case.plants.iter().find(|plant| plant.path == name);
        let standing = case.plants.iter().find(|plant| plant.path.escape_ascii().to_string() == path);
        let standing = standing.and_then(|plant| match &plant.kind {
            Kind::Hard(first) => named(first),
            _ => Some(plant),
        });
        let had_it = standing.and_then(|plant| plant.mode).is_some_and(|mode| mode & extra == extra);
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let is_inherited = extra == 0o2000
            && theirs.contains(": directory")
            && system
                .tree
                .iter()
                .any(|line| path_in(line) == above && mode_in(line).is_some_and(|m| m & extra != 0));
        let is_made_with = extra == 0o1000 && theirs.contains(": directory") && theirs.ends_with(", new");
        if had_it || is_inherited || is_made_with {
            ours.tree[at] = as_theirs;
        }
    }
    Verdict::Compare
}

fn path_in(line: &str) -> &str {
    line.split(": ").next().unwrap_or_default()
}

fn mode_in(line: &str) -> Option<u32> {
    let (_, behind) = line.split_once(", mode ")?;
    u32::from_str_radix(behind.get(..4)?, 8).ok()
}

/// GNU compares the directories of two names without following links, and does not detect that
/// `link/a` and `dir/a` are one name; it then does nothing. haul reports that they are the same
/// file, as GNU does elsewhere.
fn same_through_link(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    // The name as typed, or as combined from target and source.
    let mut names = case.words.iter().map(Vec::as_slice).chain(ours.err.split(|&byte| byte == b'\''));
    let passes_link = names.any(|name| passes_link(case, name));
    let backs_up = case.has_option(b'b', "backup") || case.has_option(b'S', "suffix");
    if !passes_link || !(backs_up || system.tree == ours.tree) {
        return Verdict::Absent;
    }
    let theirs: Vec<&[u8]> = system.err.split(|&byte| byte == b'\n').collect();
    let is_more = |line: &&[u8]| line.ends_with(b" are the same file") && !theirs.contains(line);
    let others = ours.err.split(|&byte| byte == b'\n').filter(|line| !is_more(line));
    let others = others.collect::<Vec<_>>().join(&b'\n');
    if others.is_empty() && others != ours.err {
        if system.tree == ours.tree && [system.status, ours.status] == [Status::Exit(1); 2] {
            // GNU refuses the same for its next reason.
            return Verdict::Settled;
        }
        ours.status = Status::Exit(0);
    }
    if backs_up && others != ours.err {
        // GNU renamed the source as the backup of its own copy, and lost it.
        return Verdict::Settled;
    }
    ours.err = others;
    Verdict::Compare
}

/// For the same reason GNU does not detect that `link/a` and `dir/a` are one file named twice. It
/// then refuses to put the second one over the first, or finds nothing left to do. haul warns, as
/// GNU does elsewhere.
fn named_again_through_link(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let theirs: Vec<&[u8]> = system.err.split(|&byte| byte == b'\n').collect();
    let is_warning = |line: &&[u8]| {
        line.starts_with(b"cp: warning: source file ")
            && line.ends_with(b" specified more than once")
            && !theirs.contains(line)
    };
    let own: Vec<&[u8]> = ours.err.split(|&byte| byte == b'\n').collect();
    let (warned, others): (Vec<&[u8]>, Vec<&[u8]>) = own.into_iter().partition(is_warning);
    if warned.is_empty() || !case.words.iter().any(|word| passes_link(case, word)) {
        return Verdict::Absent;
    }
    let is_refusal = |line: &&[u8]| contains(line, b": will not overwrite just-created ");
    let rest: Vec<&[u8]> = theirs.iter().copied().filter(|line| !is_refusal(line)).collect();
    if rest.len() < theirs.len() && rest == others && ours.status == Status::Exit(0) {
        system.status = Status::Exit(0);
    }
    (system.err, ours.err) = (rest.join(&b'\n'), others.join(&b'\n'));
    Verdict::Compare
}

/// Returns true if a path contains the name of a link.
fn passes_link(case: &Case, path: &[u8]) -> bool {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_owned();
    let is_dir_link = |name: &[u8]| {
        let is_link = |plant: &Plant| matches!(plant.kind, Kind::Link(_)) && last(&plant.path) == last(name);
        name == b"far" || case.plants.iter().any(is_link)
    };
    let ends = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    ends.map(|(end, _)| &path[..end]).any(is_dir_link)
}

/// GNU stops at the operand that waits for the other end of a pipe. haul copies the other operands
/// meanwhile: only the fact that both wait can be compared.
fn waiting(_: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let both = [system.status, ours.status] == [Status::Waiting; 2];
    if both { Verdict::Settled } else { Verdict::Absent }
}

/// If `--parents` cannot create all directories above an operand, GNU leaves the created ones
/// closed to others, with the time of the run. haul sets their kept metadata as if the rest had
/// been created, and reports failures.
fn unmade_parents(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let has_absolute = case.words.iter().any(|word| word.starts_with(BOX));
    let has_parents = case.has_option(0, "parents") || case.has_option(0, "path");
    if !has_parents || (system.status != Status::Exit(1) && !has_absolute) {
        return Verdict::Absent;
    }
    // GNU 9.1 also looks up the directories above an absolute name without its first slash. It
    // fails, or leaves the created ones closed.
    let is_nameless = |line: &[u8]| line.starts_with("cp: \u{2018}".as_bytes()) || line.starts_with(b"cp: '");
    if has_absolute && system.err.split(|&byte| byte == b'\n').any(is_nameless) {
        return Verdict::Settled;
    }
    // After an operand whose directories it created, or could not create, GNU 9.1 treats the sinks
    // of all other operands as new. It then cannot create existing names.
    let unmade: [&[u8]; 2] = [b"cp: failed to get attributes of ", b"cp: cannot make directory "];
    let is_told = |part: &&[u8]| contains(&system.err, part);
    let stands = |line: &[u8]| {
        (line.starts_with(b"cp: cannot create ") && line.ends_with(b": File exists"))
            || line.starts_with(b"cp: not writing through dangling symlink ")
    };
    let words = case.words.iter().filter(|word| !word.starts_with(b"-")).count();
    let operands = words + usize::from(case.has_option(b't', "target-directory"));
    let takes_for_new = system.err.split(|&byte| byte == b'\n').any(stands)
        || (unmade.iter().any(is_told) && ours.status == Status::Exit(1));
    if operands > 2 && takes_for_new {
        return Verdict::Settled;
    }
    for (theirs, own) in system.tree.iter().zip(&mut ours.tree) {
        let is_new_directory = |line: &str| line.contains(": directory, ") && line.ends_with(", new");
        let both_new = is_new_directory(theirs) && is_new_directory(own);
        if path_in(theirs) == path_in(own) && (both_new || differ_in_time(theirs, own)) {
            own.clone_from(theirs);
        }
    }
    let is_more =
        |line: &&[u8]| contains(line, b": preserving permissions for ") && !contains(&system.err, line);
    let others = ours.err.split(|&byte| byte == b'\n').filter(|line| !is_more(line));
    ours.err = others.collect::<Vec<_>>().join(&b'\n');
    Verdict::Compare
}

/// With two names GNU's mv 9.1 tries a rename before it strips the slashes after the first name,
/// and treats the result as final. It refuses a link to a directory, which is the purpose of the
/// option.
fn stripped_too_late(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let strips = case.tool == Tool::Mv && case.has_option(0, "strip-trailing-slashes");
    let has_slashes = case.words.iter().any(|word| word.ends_with(b"/"));
    let is_refused = |ending: &RunResult| {
        ending.err.starts_with(b"mv: cannot move ") && ending.err.ends_with(b": Not a directory\n")
    };
    if strips && has_slashes && is_refused(system) && !is_refused(ours) {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// If a file is named twice and a newer one exists at its sink, GNU's mv replaces the newer one,
/// the second time, by a link to itself. This changes the time of the directory, and a directory
/// cannot have such a link. haul keeps the newer file.
fn linked_to_itself(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let last = |word: &[u8]| {
        let end = word.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        word[..end].rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_owned()
    };
    let mut names: Vec<Vec<u8>> = case.words.iter().map(|word| last(word)).collect();
    names.sort_unstable();
    let is_repeated = names.windows(2).any(|pair| pair[0] == pair[1]);
    if case.tool != Tool::Mv || !case.has_option(b'u', "update") || !is_repeated {
        return Verdict::Absent;
    }
    let is_about_it = |line: &&[u8]| {
        let names = line.strip_prefix(b"mv: cannot create hard link ").unwrap_or_default();
        let ends = find(names, b" to ").map(|at| (&names[..at], &names[at + 4..]));
        ends.is_some_and(|(link, target)| target.starts_with(link))
    };
    let others: Vec<&[u8]> =
        system.err.split(|&byte| byte == b'\n').filter(|line| !is_about_it(line)).collect();
    let others = others.join(&b'\n');
    if others != system.err {
        system.err = others;
        if system.err.is_empty() && ours.err.is_empty() && ours.status == Status::Exit(0) {
            system.status = Status::Exit(0);
        }
    }
    let told: Vec<&[u8]> = ours.out.split(|&byte| byte == b'\n').collect();
    let is_link_replaced = |line: &&[u8]| line.starts_with(b"removed ") && !told.contains(line);
    let others = system.out.split(|&byte| byte == b'\n').filter(|line| !is_link_replaced(line));
    system.out = others.collect::<Vec<_>>().join(&b'\n');
    for (theirs, own) in system.tree.iter().zip(&mut ours.tree) {
        if theirs.contains(": directory, ") && theirs.contains(", changed now") && differ_in_time(theirs, own)
        {
            own.clone_from(theirs);
        }
    }
    Verdict::Compare
}

/// If a slash follows the name of a link that leads to no directory, GNU's mv 9.1 uses the kind,
/// the age and the permissions of a file that it never examined, which is uninitialized memory.
/// haul uses those of the link.
fn never_looked_at(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_such = |word: &Vec<u8>| {
        let name = word.strip_suffix(b"/").map(|name| name.strip_suffix(b"/").unwrap_or(name));
        let last = name.map(|name| name.rsplit(|&byte| byte == b'/').next().unwrap_or_default());
        let is_it = |plant: &&Plant| {
            matches!(plant.kind, Kind::Link(_)) && plant.path.rsplit(|&byte| byte == b'/').next() == last
        };
        last.is_some() && case.plants.iter().filter(is_it).any(|link| !leads_to_directory(case, &link.path))
    };
    if case.tool == Tool::Mv && case.words.iter().any(is_such) && system.tree == ours.tree {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// A link to a directory with a trailing slash is moved to another file system by its contents. GNU
/// renames the contents that are already on the other file system, and so modifies the tree that it
/// walks. haul copies all of them.
fn renamed_piece_by_piece(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_such = |word: &Vec<u8>| {
        let name = word.strip_suffix(b"/").unwrap_or_default();
        let is_link = |plant: &Plant| plant.path == name && matches!(plant.kind, Kind::Link(_));
        case.plants.iter().any(is_link) && leads_to_directory(case, name)
    };
    if case.tool != Tool::Mv || !case.words.iter().any(is_such) {
        return Verdict::Absent;
    }
    if contains(&ours.err, b" into itself, ") {
        return Verdict::Settled;
    }
    for (theirs, own) in system.tree.iter().zip(&mut ours.tree) {
        let same = |line: &str| {
            let end = [", was ", ", new"].iter().filter_map(|mark| line.find(mark)).min();
            line[..end.unwrap_or(line.len())].to_owned()
        };
        if theirs.contains(", was ") && own.contains(", new") && same(theirs) == same(own) {
            own.clone_from(theirs);
        }
    }
    Verdict::Compare
}

/// GNU's install enters each directory that it creates, and prints unexpected messages if it cannot
/// return to one that it closed itself. haul holds descriptors of directories and does not change
/// its working directory.
fn lost_way_back(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_about_it = case.tool == Tool::Install && case.has_option(b'd', "directory") && case.as_user;
    let both_failed = [system.status, ours.status] == [Status::Exit(1); 2];
    if is_about_it && !case.cwd.is_empty() && both_failed && system.tree == ours.tree {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// GNU sets the permissions of a directory by its path. The path is invalid if it passes through a
/// link that was renamed to its backup: the directory stays closed. haul sets them on the
/// descriptor of the directory.
fn permissions_by_path(_: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let is_about_it = |line: &&[u8]| {
        contains(line, b": preserving permissions for ") && line.ends_with(b": No such file or directory")
    };
    let others: Vec<&[u8]> =
        system.err.split(|&byte| byte == b'\n').filter(|line| !is_about_it(line)).collect();
    let others = others.join(&b'\n');
    if others == system.err {
        return Verdict::Absent;
    }
    system.err = others;
    for (theirs, own) in system.tree.iter().zip(&mut ours.tree) {
        let Some(mode) = mode_in(own) else { continue };
        let as_ours = theirs.replacen(", mode 0700", &format!(", mode {mode:04o}"), 1);
        if theirs.contains(": directory, ") && as_ours == *own {
            own.clone_from(theirs);
        }
    }
    Verdict::Compare
}

/// GNU quotes the name of the file and that of the attribute into one buffer, and so prints the
/// name of the attribute twice. haul prints the name of the file.
fn one_buffer(_: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    const BEGIN: &[u8] = b": setting attribute '";
    let parts = |line: &[u8]| -> Option<(Vec<u8>, Vec<u8>)> {
        let begin = find(line, BEGIN)? + BEGIN.len();
        let middle = begin + find(&line[begin..], b"' for ")?;
        let cause = line.iter().rposition(|&byte| byte == b':')?;
        Some((line[begin..middle].to_owned(), line[cause..].to_owned()))
    };
    let without_file = |ending: &mut RunResult| {
        let lines = ending.err.split(|&byte| byte == b'\n').map(|line| match parts(line) {
            Some((attribute, cause)) => [BEGIN, &attribute, b"'", &cause].concat(),
            None => line.to_owned(),
        });
        ending.err = lines.collect::<Vec<_>>().join(&b'\n');
    };
    let is_twice = |line: &[u8]| {
        parts(line)
            .is_some_and(|(attribute, _)| contains(line, &[b" for '", &attribute[..], b"': "].concat()))
    };
    if !system.err.split(|&byte| byte == b'\n').any(is_twice) {
        return Verdict::Absent;
    }
    without_file(system);
    without_file(ours);
    Verdict::Compare
}

/// Of two names of one file that are moved to another file system GNU does not record the second,
/// and lets a later operand of that name replace it. haul refuses to overwrite what the command has
/// just created, as GNU does in all other cases.
fn replaced_link_of_a_copy(case: &Case, system: &mut RunResult, ours: &mut RunResult) -> Verdict {
    let has_two_names = case.plants.iter().any(|plant| matches!(plant.kind, Kind::Hard(_)));
    let is_refusal = |line: &[u8]| line.starts_with(b"mv: will not overwrite just-created ");
    let refusals =
        |ending: &RunResult| ending.err.split(|&byte| byte == b'\n').filter(|line| is_refusal(line)).count();
    if case.tool == Tool::Mv && has_two_names && refusals(system) < refusals(ours) {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// Returns true if a link among the entries leads to a directory, directly or through other links.
fn leads_to_directory(case: &Case, link: &[u8]) -> bool {
    let mut path = link.to_owned();
    for _ in 0..8 {
        if path.is_empty() || path == b"far" {
            return true;
        }
        let Some(plant) = case.plants.iter().find(|plant| plant.path == path) else { return false };
        let Kind::Link(target) = &plant.kind else { return plant.is_dir() };
        let above = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at);
        let mut parts: Vec<&[u8]> = match target.strip_prefix(BOX) {
            Some(_) => Vec::new(),
            None => path[..above].split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect(),
        };
        for part in target.strip_prefix(BOX).unwrap_or(target).split(|&byte| byte == b'/') {
            match part {
                b".." => drop(parts.pop()),
                b"" | b"." => {}
                name => parts.push(name),
            }
        }
        path = parts.join(&b'/');
    }
    false
}

/// Returns true if two lines about one entry differ only in the change time.
fn differ_in_time(a: &str, b: &str) -> bool {
    let without = |line: &str| {
        let (before, behind) = line.split_once(", changed ")?;
        let rest = behind.split_once(", ").map_or("", |(_, rest)| rest);
        Some((before.to_owned(), rest.to_owned()))
    };
    a != b && without(a).is_some_and(|a| without(b) == Some(a))
}
