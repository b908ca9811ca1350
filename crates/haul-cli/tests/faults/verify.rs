//! Storage that corrupts data: `--verify` detects what an ordinary copy cannot.

use super::fixture::{
    FaultFixture, Running, assert_same_tree, assert_unfinished, copy_haul, haul, others_are_whole,
    tree_with_victim,
};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Options with different paths to the comparison; objects of 1 MiB.
const VERIFYING: [&[&str]; 6] = [
    &["--verify", "--split-size=1M"],
    &["--verify", "--split-size=1M", "--threads=1"],
    &["--verify", "--split-size=1M", "--print-hash", "--hash-type=md5"],
    &["--verify", "--split-size=1M", "--print-hash", "--hash-type=crc32", "--threads=4"],
    &["--verify", "--split-size=1M", "--sparse=always"],
    &["--verify", "--split-size=1M", "--double-buffer"],
];

/// Copies a tree to storage that damages the victim, with each set of options. The message names
/// the range of the damaged object. Without the fault, `--update` then copies the file again.
fn damage_is_found(rule: &str, range: &str) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in VERIFYING.iter().enumerate() {
        let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
        fixture.rules(rule);
        let copy = |options: &[&str]| {
            haul(["cp", "-aT"].iter().chain(options).map(Path::new).chain([&*source, &*sink]))
        };
        let ended = copy(way);
        ended.failed_with(&["/victim' differs from ", &format!("in bytes {range}")]);
        assert_eq!(ended.complaints(), 1, "{way:?}: {ended:?}");
        others_are_whole(&source, &stored);
        assert_unfinished(&stored.join("victim"));
        assert!(!ended.stdout.contains("victim"), "{ended:?}");

        fixture.rules("");
        copy(&["--update", "--verify"]).is_fine();
        assert_same_tree(&source, &stored);
    }
}

/// As in many chroot environments. A file is read back by its descriptor, unless its mode forbids
/// this user to read it.
#[test]
fn a_verification_that_needs_proc_says_so() {
    if !met_or_skip(&[Need::Mount, Need::Root, Need::Program("unshare"), Need::Program("setpriv")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(home.path(), 0o777);
    let program = home.path().join("haul");
    copy_haul(&program);
    fs::write(home.path().join("source"), "bytes").unwrap();
    for verify in ["--verify", "--verify=reread"] {
        let copy = |sink: &str| {
            let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
            let script =
                format!("mount -t tmpfs tmpfs /proc && exec {user} ./haul cp {verify} source {sink}");
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).current_dir(home.path());
            Running::new(&mut command).end()
        };
        for (name, mode_bits) in [("readable", 0o600), ("unreadable", 0o200)] {
            let path = home.path().join(name);
            fs::write(&path, "old").unwrap();
            mode(&path, mode_bits);
            chown(&path, Some(65534), Some(65534)).unwrap();
        }
        assert_eq!(copy("readable").code, Some(0));
        copy("unreadable").failed_with(&["cannot read back 'unreadable': /proc is not mounted"]);
        assert_eq!(copy(&format!("new{verify}")).code, Some(0));
    }
}

#[test]
fn a_bit_flipped_on_write_is_detected() {
    damage_is_found("*victim write .. flip 2500000.3", "2097152-3145728");
}

#[test]
fn a_dropped_write_is_detected() {
    damage_is_found("*victim write 1048576..2097152 drop", "1048576-2097152");
}

#[test]
fn a_dropped_last_write_is_detected() {
    damage_is_found("*victim write 4194304.. drop", "4194304-4194311");
}

#[test]
fn a_bit_flipped_on_read_is_detected() {
    damage_is_found("*victim read .. flip 3145728.7", "3145728-4194304");
}

#[test]
fn a_copy_that_cannot_be_read_back_fails() {
    let Some(fixture) = FaultFixture::new("*victim read 1048576..1052672 errno EIO") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in VERIFYING.iter().enumerate() {
        let sink = fixture.path(&format!("view/sink{number}"));
        let ended = haul(["cp", "-aT"].iter().chain(*way).map(Path::new).chain([&*source, &*sink]));
        ended.failed_with(&[&format!("sink{number}/victim"), "Input/output error"]);
        others_are_whole(&source, &sink);
        assert_unfinished(&sink.join("victim"));
    }
}

#[test]
fn without_verify_a_flipped_bit_is_not_detected() {
    let Some(fixture) = FaultFixture::new("*victim write .. flip 2500000.3") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB);
    let sink = fixture.path("view/sink");
    haul([Path::new("cp"), "-aT".as_ref(), &source, &sink]).is_fine();
    let [source, stored] =
        [source, fixture.path("store/sink")].map(|root| fs::read(root.join("victim")).unwrap());
    let differing: Vec<usize> = (0..source.len()).filter(|&at| source[at] != stored[at]).collect();
    assert_eq!(differing, [2_500_000], "the fault is real");
}

#[test]
fn data_from_a_pipe_is_verified() {
    let Some(fixture) = FaultFixture::new("sink write .. flip 300000.1") else { return };
    let source = fixture.path("source");
    fs::write(&source, super::fixture::noise(MIB)).unwrap();
    let line = format!(
        "cat '{}' | '{}' cp --verify /dev/stdin '{}'",
        source.display(),
        super::fixture::HAUL,
        fixture.path("view/sink").display()
    );
    let ended = super::fixture::Running::new(std::process::Command::new("sh").args(["-c", &line])).end();
    ended.failed_with(&["sink' differs from ", "in bytes "]);
    assert_unfinished(&fixture.path("store/sink"));
}
