//! Where this `cp` is different on purpose. Each place says why, and is held here to what it does instead.

use super::{compare, ours};

/// GNU stops reading a directory at the name by which it would be copied into itself, so that what else was
/// copied depends on the order of names on disk. Here everything else is copied, always.
#[test]
fn all_else_is_copied_when_a_directory_goes_into_itself() {
    compare("the message and the status", "cp -r t t/s 2>&1; echo $?; rm -rf t; :");
    let run = ours("cp -r t t/s/into; find t/s/into | sort | tr '\\n' ' '");
    assert_eq!(run.err, "cp: cannot copy a directory, 't', into itself, 't/s/into'");
    for name in ["t/s/into/1", "t/s/into/s/2", "t/s/into/s/u/3", "t/s/into/none"] {
        assert!(run.out.contains(name), "{name} is missing in {}", run.out);
    }
}

/// A name longer than the system's limit for paths can be reached step by step; GNU passes whole paths.
#[test]
fn trees_deeper_than_the_longest_path_are_copied() {
    let dig = "i=0; (mkdir n; cd n; while [ $i -lt 60 ]; do mkdir $1 && cd $1 || exit; i=$((i+1)); done; printf x > f)";
    let name = "n".repeat(100);
    let script = format!(
        "set -- {name}; {dig}; cp -r n z; s=$?; cd z; while [ -d $1 ]; do cd $1; done; cat f; cd /; exit $s"
    );
    let twins = super::sandbox::Twins::new();
    let run = twins.ours_unseen(&script);
    assert_eq!((run.0, run.1.as_str()), (Some(0), "x"), "{}", run.2);
}

/// Abbreviations of options that GNU lacks are accepted where GNU has none that begin so.
#[test]
fn own_options_may_be_cut_short() {
    assert_eq!(ours("cp --print-h a z | wc -l").out.trim(), "1");
    assert_eq!(ours("cp --thr 2 a z").status, Some(0));
}
