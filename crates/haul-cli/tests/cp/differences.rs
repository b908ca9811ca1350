//! Deliberate differences from GNU `cp`. Each test states the reason and asserts what haul does
//! instead.

use super::{compare, ours};

/// Returns true if GNU `cp` stopped at a directory that would be copied into itself, and skipped
/// the rest. In this case only status and messages are comparable.
pub(crate) fn stopped_early(messages: &str) -> bool {
    messages.contains(" into itself, ") || messages.contains("will not create hard link")
}

/// Returns the messages without repetitions. The number of the messages, and their names, depend on
/// where GNU stopped. GNU also phrases some of them by another rule (see below).
pub(crate) fn without_repeats(messages: &str) -> String {
    let is_about_it = |line: &&str| !stopped_early(line);
    let mut lines: Vec<&str> = messages.lines().filter(is_about_it).collect();
    lines.dedup();
    lines.join("\n")
}

/// GNU stops reading a directory at the name that would be copied into itself, so that the other
/// copied names depend on their order on disk. haul always copies all other names.
#[test]
fn a_copy_of_a_directory_into_itself_copies_all_other_names() {
    compare("the message and the status", "cp -r t t/s 2>&1; echo $?; rm -rf t; :");
    let run = ours("cp -r t t/s/into; find t/s/into | sort | tr '\\n' ' '");
    assert_eq!(run.err, "cp: cannot copy a directory, 't', into itself, 't/s/into'");
    for name in ["t/s/into/1", "t/s/into/s/2", "t/s/into/s/u/3", "t/s/into/none"] {
        assert!(run.out.contains(name), "{name} is missing in {}", run.out);
    }
}

/// A path longer than the system's limit can be reached step by step; GNU passes complete paths.
#[test]
fn trees_deeper_than_the_path_limit_are_copied() {
    let name = "n".repeat(100);
    let half = format!("n/{}", [name.as_str(); 30].join("/"));
    let script = format!(
        "mkdir -p {half}; mv n z1; mkdir -p {half}; printf x > {half}/f; mv n {}; mv z1 n\n\
         cp -r n z; s=$?; find z -name f -execdir cat f ';'; exit $s",
        half.replacen('n', "z1", 1)
    );
    let run = crate::twins::Twins::new().ours_unseen(&script);
    assert_eq!((run.0, run.1.as_str()), (Some(0), "x"), "{}", run.2);
}

/// If a followed link leads from the source to the sink, GNU copies its own copies until the names
/// are too long. haul treats this as a directory that is copied into itself.
#[test]
fn a_followed_link_to_the_sink_is_refused() {
    let run = ours("ln -s ../full t/out; rm t/dead t/p; cp -rL t full; find full | wc -l");
    let message = "cp: cannot copy a directory, 't', into itself, 'full/t'";
    assert!(!run.err.is_empty() && run.err.lines().all(|line| line == message), "{}", run.err);
    assert!(run.out.trim().parse::<u32>().unwrap() < 100, "{}", run.out);
}

/// GNU treats a directory that is reached through a link as another directory, and then reports a
/// hard link to a directory. haul reports a directory that is copied into itself.
#[test]
fn a_copy_into_itself_is_detected_through_a_link() {
    let run = ours("cp -RH ld d; test -d d/ld/ld && echo twice");
    assert_eq!(run.err, "cp: cannot copy a directory, 'ld', into itself, 'd/ld'");
    assert_eq!((run.status, run.out.as_str()), (Some(1), ""));
}

/// GNU 9.1 puts the simple backup of a file in a target directory into the working directory (fixed
/// in a later release). There it may overwrite an unrelated file. haul keeps the backup next to its
/// file.
#[test]
fn simple_backups_stay_in_their_directory() {
    let run = ours("printf mine > a~; cp --backup=simple a d; cat a~ d/a~ d/a");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "mineoldalpha"));
}

/// GNU renames the backup over the target of a link, and then fails to find the target. haul
/// renames nothing if this was the only name of the target. A link to another file, or a link that
/// is created and not followed, does not prevent a backup.
#[test]
fn a_backup_does_not_replace_the_target_of_a_source_link() {
    for options in ["-b", "-bL", "-bH", "-bl -L", "-b --backup=existing"] {
        let run = ours(&format!("printf one > v~; printf two > v; ln -s v~ w; cp {options} w v; cat v~ v"));
        assert_eq!(run.err, "cp: backing up 'v' might destroy source;  'w' not copied", "{options}");
        assert_eq!((run.status, run.out.as_str()), (Some(0), "onetwo"), "{options}");
    }
    let run = ours("printf one > v~; ln v~ u; printf two > v; ln -s u w; cp -bL w v; cat u v~ v");
    assert_eq!((run.status, run.err.as_str(), run.out.as_str()), (Some(0), "", "onetwoone"));
    for options in ["-bs", "-bP", "-b --backup=numbered"] {
        compare(
            "no source is lost",
            &format!("printf one > v~; printf two > v; ln -s v~ w; cp {options} w v; cat v~ v"),
        );
    }
}

/// Abbreviations of haul's own options are accepted if no GNU option starts with them.
#[test]
fn own_options_can_be_abbreviated() {
    assert_eq!(ours("cp --print-h a z | wc -l").out.trim(), "1");
    assert_eq!(ours("cp --thr 2 a z").status, Some(0));
}
