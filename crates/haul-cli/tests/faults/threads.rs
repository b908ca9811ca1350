//! A system that grants fewer threads than the command would use.

use super::fixture::{HAUL, Running, assert_same_file, noise, others_are_whole, tree_with_victim};
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A stack size that no address space can hold, so that each new thread is refused.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "200000000000000");

const OPTION_SETS: [&[&str]; 4] = [
    &["--threads=200"],
    &["--threads=1"],
    &["--verify", "--split-size=1M"],
    &["--double-buffer", "--print-hash", "--hash-type=md5", "--split-size=1M"],
];

#[test]
fn a_copy_succeeds_without_additional_threads() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("tree");
    tree_with_victim(&source, 5 << 20);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let sink = home.path().join(number.to_string());
        let mut command = Command::new(HAUL);
        command.args(["cp", "-a"]).args(*way).args([&source, &sink]).env(NO_THREADS.0, NO_THREADS.1);
        Running::new(&mut command).end().is_fine();
        others_are_whole(&source, &sink);
        assert_same_file(&source.join("victim"), &sink.join("victim"));
    }
}

#[test]
fn sums_are_equal_without_additional_threads() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), noise(5 << 20)).unwrap();
    let sum = |refused: bool| {
        let mut command = Command::new(HAUL);
        command.args(["sum", "-a", "sha256"]).arg(home.path().join("file"));
        if refused {
            command.env(NO_THREADS.0, NO_THREADS.1);
        }
        let ended = Running::new(&mut command).end();
        ended.is_fine();
        ended.stdout
    };
    assert_eq!(sum(true), sum(false));
}

#[test]
fn a_copy_succeeds_with_fewer_threads_than_requested() {
    if !met_or_skip(&[Need::Root, Need::Program("prlimit")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("tree");
    tree_with_victim(&source, 5 << 20);
    let sink = home.path().join("sink");
    fs::create_dir(&sink).unwrap();
    for open in [home.path(), &sink] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // A user without other processes: it may have eight processes and threads.
    let mut command = Command::new("prlimit");
    command.args(["--nproc=8", HAUL, "cp", "-r", "--threads=200", "--split-size=1M"]).args([&source, &sink]);
    command.uid(47_113).gid(47_113);
    let works =
        |tried: &mut Command| tried.uid(47_113).gid(47_113).output().is_ok_and(|out| out.status.success());
    if !works(Command::new("prlimit").args(["--nproc=8", HAUL, "--version"])) {
        shown_or_skip(false, "a build directory whose programs other users can run");
        return;
    }
    Running::new(&mut command).end().is_fine();
    assert!(fs::read(sink.join("tree/victim")).unwrap() == noise(5 << 20));
}

/// Regression: the first thread overflowed a small stack, and the program died by a signal.
#[test]
fn every_command_works_with_a_small_stack() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), noise(300_000)).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -s 64; exec \"$0\" \"$@\"", HAUL]).args(args).current_dir(home.path());
        command.output().unwrap()
    };
    for tool in [
        "cp", "mv", "install", "sum", "check", "verify", "repair", "waybill", "send", "fetch", "list",
        "serve", "gui", "jobs", "bench", "meet",
    ] {
        for word in ["--help", "--no-such-option"] {
            let ended = run(&[tool, word]);
            assert!(ended.status.code().is_some(), "{tool} {word}: {ended:?}");
        }
    }
    assert_eq!(run(&["send"]).status.code(), Some(2));
    for args in [&["cp", "--verify", "file", "copy"][..], &["sum", "-a", "blake3", "copy"]] {
        assert!(run(args).status.success(), "{args:?}");
    }
    assert!(fs::read(home.path().join("copy")).unwrap() == noise(300_000));
}
