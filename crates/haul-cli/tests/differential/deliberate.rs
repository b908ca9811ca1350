//! Where the tools differ on purpose. Each place says why, and is matched as narrowly as it can be.

use super::case::{Case, Tool};
use super::plant::{BOX, Kind, Plant};
use super::twins::{Ending, Status};
use std::collections::BTreeSet;

/// One difference made on purpose.
struct Deliberate {
    /// Whether this is it; then both endings are made alike in what it touches, or it settles the case whole.
    applies: fn(&Case, &mut Ending, &mut Ending) -> Verdict,
}

/// What a difference on purpose leaves to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It has no part in the case.
    Absent,
    /// The endings were changed: the rest must be alike.
    Compare,
    /// Nothing more can be said of the case.
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

/// Applies all of them. True: the case is settled.
pub(super) fn settles(case: &Case, system: &mut Ending, ours: &mut Ending) -> bool {
    ALL.iter().any(|deliberate| (deliberate.applies)(case, system, ours) == Verdict::Settled)
}

/// What `--help` and `--version` print is our own.
fn texts(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let is_asked = case.has_option(0, "help") || case.has_option(0, "version");
    let is_given = |ending: &Ending| ending.status == Status::Exit(0) && !ending.out.is_empty();
    let is_gnus = system.out.starts_with(b"Usage: ") || contains(&system.out, b" (GNU coreutils) ");
    if !(is_asked && is_gnus && is_given(system) && is_given(ours)) {
        return Verdict::Absent;
    }
    system.out.clear();
    ours.out.clear();
    Verdict::Compare
}

/// GNU gives up a directory at the name by which it would go into itself, and with it what it had not come to yet.
/// Ours copies everything else. Status and all that GNU did say must still agree, but of links that can't be made in the
/// place of what was removed: some of that was to be copied in its turn.
fn into_itself(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let is_about_it =
        |line: &[u8]| contains(line, b" into itself, ") || contains(line, b"will not create hard link");
    let stopped = system.err.split(|&byte| byte == b'\n').any(is_about_it);
    if !stopped || case.tool != Tool::Cp {
        return Verdict::Absent;
    }
    if ours.status == Status::Waiting && case.has_option(0, "copy-contents") {
        // It is at a pipe that GNU did not come to.
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

/// Where a followed link leads from source to sink, GNU copies its own copies until names are too long. Ours says that
/// a directory would go into itself.
fn too_deep(_: &Case, system: &mut Ending, _: &mut Ending) -> Verdict {
    if contains(&system.err, b"File name too long") { Verdict::Settled } else { Verdict::Absent }
}

/// GNU 9.1 puts the simple backup of a file in a target directory into the working directory (mended in 9.2), where it
/// may overwrite what has nothing to do with it. Ours leaves it beside its file. Where the system's tree shows that,
/// status and messages must still agree.
fn backup_elsewhere(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let backs_up = case.has_option(b'b', "backup") || case.has_option(b'S', "suffix");
    // The backup may have no way to the working directory, or none back from there.
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
    // What stands in the working directory, or its being on another file system, may refuse a backup.
    if contains(&system.err, b": cannot backup ") && !contains(&ours.err, b": cannot backup ") {
        return Verdict::Settled;
    }
    let renamed = |ending: &Ending| -> Vec<String> {
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

/// Where a followed link leads to the file whose name the backup takes, GNU loses that file, and then refuses, links to
/// or waits for what it finds in its place. Ours says so first, as GNU does of a file that is named itself. A file that
/// has other names is not lost; then ours waits for nothing that it finds there, either.
fn backup_in_the_sources_place(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let refuses = |ending: &Ending| contains(&ending.err, b" might destroy source;  ");
    let has_link = case.plants.iter().any(|plant| matches!(plant.kind, Kind::Link(_)));
    let backs_up = case.has_option(b'b', "backup") || case.has_option(b'S', "suffix");
    let is_told = refuses(ours) && !refuses(system);
    let only_waits =
        system.status == Status::Waiting && contains(&ours.err, b", as it was replaced while being copied");
    if has_link && backs_up && (is_told || only_waits) { Verdict::Settled } else { Verdict::Absent }
}

/// The C library repeats a mistyped option as it is, line ends and what steers a terminal with it. Ours quotes it.
/// Warnings that came before must still agree.
fn raw_options(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let starts = ["unrecognized option '", "option '"].map(|start| format!("{}: {start}", case.tool.name()));
    let begin = |ending: &Ending| starts.iter().find_map(|start| find(&ending.err, start.as_bytes()));
    let (Some(theirs), Some(own)) = (begin(system), begin(ours)) else { return Verdict::Absent };
    let is_raw = |bytes: &[u8]| bytes.iter().any(|byte| !(0x20..0x7f).contains(byte) && *byte != b'\n');
    let lines = |ending: &Ending| ending.err.iter().filter(|&&byte| byte == b'\n').count();
    if !is_raw(&system.err[theirs..]) && lines(system) <= lines(ours) {
        return Verdict::Absent;
    }
    system.err.truncate(theirs);
    ours.err.truncate(own);
    Verdict::Compare
}

/// A file that did not become whole has a time before its source's and before 1970 here, so that `-u` copies it
/// again and nobody takes it for the whole. GNU leaves it looking like any new file.
fn unfinished(_: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// GNU's quoting writes two quotes too many where a name holds a single quote and ends in a byte that is escaped, and
/// then loses its end (gnulib's second pass goes on where the first one ended). Ours is what a shell reads as the name.
fn broken_quotes(_: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let is_broken = |line: &&[u8]| contains(line, b"'''");
    let count = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').filter(is_broken).count();
    if count(&system.err) + count(&system.out) == 0 {
        return Verdict::Absent;
    }
    // Both sides lose every line with a name that has a single quote in it.
    let is_kept = |line: &&[u8]| !contains(line, b"'\\''");
    let without =
        |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').filter(is_kept).collect::<Vec<_>>().join(&b'\n');
    for ending in [system, ours] {
        ending.out = without(&ending.out);
        ending.err = without(&ending.err);
    }
    Verdict::Compare
}

/// A copy that keeps the mode has its source's, special bits and all. GNU 9.1 leaves a standing file its set-id bits,
/// and a new directory the set-group bit that it has from above and the sticky bit that it was made with (mended when it
/// stopped setting modes by access lists).
fn old_special_bits(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// GNU compares the directories of two names without following links, and so does not see that `link/a` and `dir/a`
/// are one name; it then does nothing. Ours says that they are the same file, as GNU does elsewhere.
fn same_through_link(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    // As typed, or as put together from target and source.
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
            // GNU refuses the same for the next reason that it comes to.
            return Verdict::Settled;
        }
        ours.status = Status::Exit(0);
    }
    if backs_up && others != ours.err {
        // GNU moved the source aside as the backup of its own copy, and lost it.
        return Verdict::Settled;
    }
    ours.err = others;
    Verdict::Compare
}

/// For the same reason GNU does not see that `link/a` and `dir/a` are one file named twice. It then refuses to put the
/// second where it has just put the first, or finds that nothing is left to do. Ours warns, as GNU does elsewhere.
fn named_again_through_link(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// Whether a path goes through the name of a link.
fn passes_link(case: &Case, path: &[u8]) -> bool {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_owned();
    let is_dir_link = |name: &[u8]| {
        let is_link = |plant: &Plant| matches!(plant.kind, Kind::Link(_)) && last(&plant.path) == last(name);
        name == b"far" || case.plants.iter().any(is_link)
    };
    let ends = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    ends.map(|(end, _)| &path[..end]).any(is_dir_link)
}

/// GNU stops at the operand that waits for the other end of a pipe. Ours copies the others meanwhile: that both wait is
/// all that can be held against each other.
fn waiting(_: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let both = [system.status, ours.status] == [Status::Waiting; 2];
    if both { Verdict::Settled } else { Verdict::Absent }
}

/// Where `--parents` can't make all directories above an operand, GNU leaves those it made closed to others and with
/// the time of the run. Ours gives them what is kept, as if the rest had come, and says where it can't.
fn unmade_parents(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let has_absolute = case.words.iter().any(|word| word.starts_with(BOX));
    let has_parents = case.has_option(0, "parents") || case.has_option(0, "path");
    if !has_parents || (system.status != Status::Exit(1) && !has_absolute) {
        return Verdict::Absent;
    }
    // GNU 9.1 also looks for the directories above an absolute name without its first slash, and fails or leaves those it
    // made closed.
    let is_nameless = |line: &[u8]| line.starts_with("cp: \u{2018}".as_bytes()) || line.starts_with(b"cp: '");
    if has_absolute && system.err.split(|&byte| byte == b'\n').any(is_nameless) {
        return Verdict::Settled;
    }
    // After an operand whose directories it made, or could not make, GNU 9.1 takes the sinks of all others for new, and can't
    // create what stands there.
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

/// GNU's mv 9.1 tries to rename one of two names to the other before it strips the slashes behind the first, and takes
/// that for the answer: it refuses a link to a directory, which the option is for.
fn stripped_too_late(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let strips = case.tool == Tool::Mv && case.has_option(0, "strip-trailing-slashes");
    let has_slashes = case.words.iter().any(|word| word.ends_with(b"/"));
    let is_refused = |ending: &Ending| {
        ending.err.starts_with(b"mv: cannot move ") && ending.err.ends_with(b": Not a directory\n")
    };
    if strips && has_slashes && is_refused(system) && !is_refused(ours) {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// Where a file is named twice and a newer one stands at its sink, GNU's mv replaces that one, at the second time, by a
/// link to itself: the directory's time moves, and a directory can't have such a link. Ours leaves alone what is newer.
fn linked_to_itself(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// Where a slash stands behind the name of a link that leads to no directory, GNU's mv 9.1 goes by the kind, the age and
/// the permissions of a file that it never looked at: by whatever its memory holds. Ours goes by the link's.
fn never_looked_at(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// A link to a directory that is named with a slash behind it is moved to another file system by its contents. What of
/// those lies on the other one already GNU renames, and so takes apart what it walks through; ours copies all of it.
fn renamed_piece_by_piece(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// GNU's install goes into each directory that it makes, and says strange things where it can't go back to one that it
/// closed itself. Ours holds directories and goes nowhere.
fn lost_way_back(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let is_about_it = case.tool == Tool::Install && case.has_option(b'd', "directory") && case.as_user;
    let both_failed = [system.status, ours.status] == [Status::Exit(1); 2];
    if is_about_it && !case.cwd.is_empty() && both_failed && system.tree == ours.tree {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// GNU sets the permissions of a directory by its path, which leads nowhere any more when the backup of a link was made
/// that it passes through: the directory stays closed. Ours sets them on the directory.
fn permissions_by_path(_: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
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

/// GNU quotes the file's name and the attribute's into one buffer, and so tells the attribute's name twice. Ours tells
/// which file it is.
fn one_buffer(_: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    const BEGIN: &[u8] = b": setting attribute '";
    let parts = |line: &[u8]| -> Option<(Vec<u8>, Vec<u8>)> {
        let begin = find(line, BEGIN)? + BEGIN.len();
        let middle = begin + find(&line[begin..], b"' for ")?;
        let cause = line.iter().rposition(|&byte| byte == b':')?;
        Some((line[begin..middle].to_owned(), line[cause..].to_owned()))
    };
    let without_file = |ending: &mut Ending| {
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

/// Of two names of one file that are moved to another file system GNU forgets the second, and lets a later operand of that
/// name replace it. Ours refuses to overwrite what the command has just put there, as GNU does of all else.
fn replaced_link_of_a_copy(case: &Case, system: &mut Ending, ours: &mut Ending) -> Verdict {
    let has_two_names = case.plants.iter().any(|plant| matches!(plant.kind, Kind::Hard(_)));
    let is_refusal = |line: &[u8]| line.starts_with(b"mv: will not overwrite just-created ");
    let refusals =
        |ending: &Ending| ending.err.split(|&byte| byte == b'\n').filter(|line| is_refusal(line)).count();
    if case.tool == Tool::Mv && has_two_names && refusals(system) < refusals(ours) {
        Verdict::Settled
    } else {
        Verdict::Absent
    }
}

/// Whether a link among the plants leads to a directory, through others as well.
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

/// Whether two lines about one entry differ in nothing but when it was changed.
fn differ_in_time(a: &str, b: &str) -> bool {
    let without = |line: &str| {
        let (before, behind) = line.split_once(", changed ")?;
        let rest = behind.split_once(", ").map_or("", |(_, rest)| rest);
        Some((before.to_owned(), rest.to_owned()))
    };
    a != b && without(a).is_some_and(|a| without(b) == Some(a))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    find(text, part).is_some()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
