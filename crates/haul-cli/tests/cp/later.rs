//! Features that releases of cp after 9.1 added, according to their manual. The tool of such a
//! release is not available for a comparison.

use super::ours;

#[test]
fn update_selects_which_files_are_replaced() {
    for (option, sink) in [
        ("--update=all", "alpha"),
        ("--update=none", "newer"),
        ("--update=older", "newer"),
        ("--update", "newer"),
        ("-n --update=all", "newer"),
        ("--update=none --update=all", "alpha"),
    ] {
        let run = ours(&format!("cp {option} a new; s=$?; cat new; exit $s"));
        assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), sink, ""), "{option}");
    }
    let run = ours("cp --update=older new a; cp --update=none a z; cat a z");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "newernewer"), "{}", run.err);
}

#[test]
fn update_none_fail_fails_for_existing_files() {
    let run = ours("cp --update=none-fail a b; s=$?; cat b; cp --update=none-fail a z; cat z; exit $s");
    assert_eq!((run.status, run.out.as_str()), (Some(1), "bravoalpha"));
    assert_eq!(run.err, "cp: not replacing 'b'");
    let run = ours(
        "cp -r --update=none-fail t full; s=$?; ls full/t | wc -l; cp -r --update=none-fail t full 2>&1 | sort | head -1; exit $s",
    );
    assert_eq!(run.status, Some(0), "directories are merged, and they were empty: {}", run.err);
    assert_eq!(run.out, "9\ncp: not replacing 'full/t/1'\n");
}

#[test]
fn backup_conflicts_with_update_none() {
    for option in ["--update=none", "--update=none-fail"] {
        let run = ours(&format!("cp -b {option} a b"));
        assert_eq!(run.status, Some(1));
        assert!(
            run.err.contains("--backup is mutually exclusive with -n or --update=none-fail"),
            "{}",
            run.err
        );
    }
    assert_eq!(ours("cp -b --update=older new a; cat a a~").out, "neweralpha");
}

#[test]
fn unambiguous_abbreviations_of_update_are_accepted() {
    assert_eq!(ours("cp --update=al a new; cat new").out, "alpha");
    let run = ours("cp --update=x a b; cp --update=non a b");
    let list = "Valid arguments are:";
    assert!(run.err.contains(list) && run.err.contains("\u{2018}none-fail\u{2019}"), "{}", run.err);
    assert!(
        run.err.contains("ambiguous argument \u{2018}non\u{2019} for \u{2018}--update\u{2019}"),
        "{}",
        run.err
    );
}

#[test]
fn debug_reports_how_each_file_was_copied() {
    let lines = |script: &str| ours(script).out.lines().map(str::to_owned).collect::<Vec<_>>();
    let told = lines("cp --debug --reflink=never --sparse=never a z");
    assert_eq!(told, ["'a' -> 'z'", "copy offload: avoided, reflink: no, sparse detection: no"]);
    let told = lines("cp --debug --reflink=never holes z");
    assert_eq!(told[1], "copy offload: avoided, reflink: no, sparse detection: SEEK_HOLE");
    let told = lines("cp --debug --reflink=never --sparse=always holes z");
    assert_eq!(told[1], "copy offload: avoided, reflink: no, sparse detection: zeros");
    let told = lines("cp --debug --backup=t a b");
    assert_eq!(told[0], "'a' -> 'b' (backup: 'b.~1~')");
    assert!(told[1].starts_with("copy offload: ") && told[1].contains(", reflink: "), "{told:?}");
    let told = lines("cp --debug --verify --reflink=never a z");
    assert_eq!(
        told[1], "copy offload: avoided, reflink: no, sparse detection: no",
        "bytes were searched for zeros"
    );
    assert_eq!(lines("cp --debug --attributes-only a z"), ["'a' -> 'z'"], "no bytes went");
    assert_eq!(lines("cp --debug -l a z"), ["'a' -> 'z'"]);
}

#[test]
fn debug_prints_a_file_and_its_explanation_together() {
    let run = ours("mkdir m; for i in $(seq 300); do echo $i > m/$i; done; cp -r --debug --threads=4 m z");
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines.len(), 601, "a line for the directory, two for each file");
    for pair in lines[1..].chunks(2) {
        assert!(pair[0].contains(" -> 'z/") && pair[1].starts_with("copy offload: "), "{pair:?}");
    }
}

#[test]
fn debug_reports_skipped_files() {
    for option in ["--update=none", "-n", "-u"] {
        assert_eq!(ours(&format!("cp --debug {option} a new")).out, "skipped 'new'\n", "{option}");
    }
    assert_eq!(ours("cp --debug -i a b").out, "skipped 'b'\n");
}

#[test]
fn debug_reports_a_file_that_fails() {
    let run = ours("cp --debug --reflink=always a /proc/z; cp --debug a /dev/full");
    assert!(run.out.contains("'a' -> '/dev/full'\ncopy offload: "), "{}", run.out);
}

#[test]
fn keep_directory_symlink_copies_into_the_target() {
    let run = ours(
        "mkdir -p z/t; ln -s ../../e z/t/s; cp -r t z; s=$?; cp -r --keep-directory-symlink t z; echo $s $?
         readlink z/t/s; ls e",
    );
    assert_eq!(run.out, "1 0\n../../e\n2\nh1\nu\n", "{}", run.err);
    assert_eq!(run.err, "cp: cannot overwrite non-directory 'z/t/s' with directory 't/s'");
    let run = ours(
        "mkdir -p z/t; ln -s ../../e z/t/s; chmod 700 e; cp -a --keep-directory-symlink t z; stat -c '%a %Y' e t/s",
    );
    assert_eq!(run.out, "750 981173106\n750 981173106\n", "the directory gets what is kept: {}", run.err);
}

#[test]
fn keep_directory_symlink_refuses_links_to_other_files() {
    let run = ours(
        "mkdir -p z/t; ln -s ../../a z/t/s; ln -s gone z/t/none; cp -r --keep-directory-symlink t z; cat a",
    );
    assert_eq!(run.out, "alpha");
    assert_eq!(
        run.err,
        "cp: cannot overwrite non-directory 'z/t/none' with directory 't/none'\n\
         cp: cannot overwrite non-directory 'z/t/s' with directory 't/s'"
    );
}
