//! Features that GNU `mv` 9.1 lacks: later options, and haul's own options.

use super::{SecondFs, ours};
use crate::twins::Twins;

#[test]
fn update_selects_which_files_are_replaced() {
    let run = ours("mv --update=none a b; mv --update=none-fail c b; echo $?; cat b; ls a c");
    assert_eq!((run.out.as_str(), run.err.as_str()), ("1\nbravoa\nc\n", "mv: not replacing 'b'"));
    let run = ours("mv --update=all a new; cat new; touch c; mv --update=older b c; cat c; ls b");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "alphacharlie\nb\n"));
    let run = ours("mv --update=none a z; cat z; mv -b --update=none b c; mv -b --exchange b c");
    assert_eq!((run.status, run.out.as_str()), (Some(1), "alpha"));
    assert_eq!(ours("mv --debug a z").out, "renamed 'a' -> 'z'\n");
    assert_eq!(
        run.err.matches("cannot combine --backup with --exchange, -n, or --update=none-fail").count(),
        2
    );
}

/// With two names GNU 9.1 tries a rename before it strips the slashes, and treats the result as
/// final. haul strips the slashes first.
#[test]
fn slashes_are_stripped_before_the_first_rename() {
    let run = ours("mv --strip-trailing-slashes ld/ z; readlink z; mv --strip-trailing-slashes a/ y; cat y");
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "d\nalpha", ""));
}

/// GNU replaces the second of the newer files by a link to the first, without a message.
#[test]
fn update_keeps_newer_files_for_hard_linked_sources() {
    let run = ours(
        "mkdir n; ln a a2; touch -d 2001-01-01 a; echo x > n/a; echo y > n/a2; mv -u a a2 n; cat n/a n/a2; ls a a2
         echo; mv -v -f a a2 n; cat n/a n/a2",
    );
    let expected = "x\ny\na\na2\n\nrenamed 'a' -> 'n/a'\nrenamed 'a2' -> 'n/a2'\nalphaalpha";
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), expected, ""));
}

#[test]
fn exchange_swaps_two_names() {
    let run = ours("mv --exchange a b; cat a b; mv -v --exchange -T d t; ls d; mv --exchange a no");
    assert_eq!(run.out.lines().next(), Some("bravoalphaexchanged 'd' <-> 't'"));
    assert!(run.out.contains("\nh1\n") && run.out.contains("\nnone\n"), "{}", run.out);
    assert_eq!(
        (run.status, run.err.as_str()),
        (Some(1), "mv: cannot exchange 'a' and 'no': No such file or directory")
    );
    let run = ours("mv --exchange a d; cat d/a a");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "alphaold"), "{}", run.err);
}

#[test]
fn no_copy_refuses_moves_across_file_systems() {
    let Some(twins) = Twins::across(SecondFs::Memory) else { return };
    let run = twins
        .ours("printf old > x-fs/b; mv --no-copy a x-fs/z; mv --no-copy b t x-fs; ls a b t/1; cat x-fs/b");
    assert_eq!(run.out, "a\nb\nt/1\nold");
    let lines: Vec<&str> = run.err.lines().collect();
    assert_eq!(lines[0], "mv: cannot move 'a' to 'x-fs/z': Invalid cross-device link");
    assert_eq!(lines.len(), 3, "{}", run.err);
}

#[test]
fn copy_options_apply_across_file_systems() {
    let Some(twins) = Twins::across(SecondFs::Memory) else { return };
    let run = twins.ours(
        "head -c 9000001 /dev/urandom > big; md5sum < big
         mv --threads=3 --split-size=1 --buffer-size=64K big x-fs/; md5sum < x-fs/big; ls big 2>/dev/null",
    );
    let sums: Vec<&str> = run.out.lines().collect();
    assert_eq!((run.status, sums.len()), (Some(2), 2), "{run:?}");
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn events_are_json_lines() {
    let Some(twins) = Twins::across(SecondFs::Memory) else { return };
    let run = twins.ours("mv --json a no x-fs/; mv --print-stats b x-fs/");
    assert!(run.out.contains(r#"{"event":"file","source":"a","sink":"x-fs/a","bytes":5"#), "{}", run.out);
    assert!(run.out.contains(r#"{"event":"error","message":"cannot stat 'no': No such file or directory"}"#));
    assert!(run.out.contains(r#""event":"summary","files":1"#) && run.out.contains(r#""failures":1"#));
    assert!(run.err.contains("'x-fs/b': 5 bytes in "), "{}", run.err);
    assert!(run.err.contains("mv: total: 1 file, 5 bytes in "), "{}", run.err);
}

#[test]
fn haul_mv_behaves_as_mv() {
    let run = ours("haul mv -v a z; haul mv no y; mv --help | head -1; mv --version");
    assert!(
        run.out.starts_with("renamed 'a' -> 'z'\nUsage: mv [OPTION]... [-T] SOURCE DEST\nmv (Surehaul)"),
        "{}",
        run.out
    );
    assert_eq!(run.err, "haul mv: cannot stat 'no': No such file or directory");
}
