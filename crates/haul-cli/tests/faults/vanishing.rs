//! Entries that have disappeared, or have another type, when haul reaches them.

use super::fixture::{FaultFixture, HOLD, noise, start, write_old};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Starts a copy of a directory with two files, which is held at the opening of one file. Returns
/// the process, the sink and the name of the other file.
fn held_at_one_of_two(fixture: &FaultFixture) -> (super::fixture::Running, PathBuf, String) {
    for name in ["one", "two"] {
        fs::create_dir_all(fixture.path("store/tree")).unwrap();
        write_old(&fixture.path("store/tree").join(name), &noise(1000));
    }
    let sink = fixture.path("sink");
    let args = [Path::new("cp"), "-aT".as_ref(), "--threads=1".as_ref(), &fixture.path("view/tree"), &sink];
    let running = start(args);
    let held = fixture.held();
    let other = if held.ends_with("one") { "two" } else { "one" };
    (running, sink, other.to_owned())
}

fn fixture() -> Option<FaultFixture> {
    FaultFixture::new(&format!("tree/* open .. delay {HOLD} times 1"))
}

/// Asserts that the held file is complete, whatever the result for the other file.
#[track_caller]
fn the_held_one_is_whole(sink: &Path, other: &str) {
    let held = if other == "one" { "two" } else { "one" };
    assert!(fs::read(sink.join(held)).unwrap() == noise(1000));
}

#[test]
fn a_vanished_file_is_reported_and_the_rest_copied() {
    let Some(fixture) = fixture() else { return };
    let (running, sink, other) = held_at_one_of_two(&fixture);
    fs::remove_file(fixture.path("store/tree").join(&other)).unwrap();
    fixture.release();
    let ended = running.end();
    ended.failed_with(&[&format!("view/tree/{other}'"), "No such file or directory"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert!(!sink.join(&other).exists());
    the_held_one_is_whole(&sink, &other);
}

#[test]
fn a_file_replaced_by_a_link_is_not_followed() {
    let Some(fixture) = fixture() else { return };
    fs::write(fixture.path("secret"), b"secret").unwrap();
    let (running, sink, other) = held_at_one_of_two(&fixture);
    let path = fixture.path("store/tree").join(&other);
    fs::remove_file(&path).unwrap();
    symlink(fixture.path("secret"), &path).unwrap();
    fixture.release();
    let ended = running.end();
    // The copy has the link as a link, or refuses it. It never copies through the link.
    let copied = fs::symlink_metadata(sink.join(&other)).ok();
    assert!(copied.as_ref().is_none_or(|meta| meta.is_symlink()), "{ended:?}");
    assert_eq!(ended.code, Some(i32::from(copied.is_none())), "{ended:?}");
    the_held_one_is_whole(&sink, &other);
}

#[test]
fn a_file_replaced_by_a_pipe_does_not_block_the_copy() {
    let Some(fixture) = fixture() else { return };
    let (running, sink, other) = held_at_one_of_two(&fixture);
    let path = fixture.path("store/tree").join(&other);
    fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    fixture.release();
    let ended = running.end();
    assert!(ended.code.is_some(), "{ended:?}");
    assert!(
        fs::symlink_metadata(sink.join(&other)).is_ok_and(|meta| !meta.is_file()) || ended.code == Some(1)
    );
    the_held_one_is_whole(&sink, &other);
}

#[test]
fn a_directory_replaced_by_a_link_is_not_entered() {
    let Some(fixture) = FaultFixture::new(&format!("tree/* list .. delay {HOLD} times 1")) else { return };
    fs::create_dir(fixture.path("outside")).unwrap();
    fs::write(fixture.path("outside/secret"), b"secret").unwrap();
    for name in ["one", "two"] {
        fs::create_dir_all(fixture.path("store/tree").join(name)).unwrap();
    }
    let sink = fixture.path("sink");
    let args = [Path::new("cp"), "-aT".as_ref(), "--threads=1".as_ref(), &fixture.path("view/tree"), &sink];
    let running = start(args);
    let held = fixture.held();
    let other = if held.ends_with("one") { "two" } else { "one" };
    let path = fixture.path("store/tree").join(other);
    fs::remove_dir(&path).unwrap();
    symlink(fixture.path("outside"), &path).unwrap();
    fixture.release();
    let ended = running.end();
    assert!(ended.code.is_some(), "{ended:?}");
    let is_dir = fs::symlink_metadata(sink.join(other)).is_ok_and(|meta| meta.is_dir());
    assert!(!(is_dir && sink.join(other).join("secret").exists()), "{ended:?}");
}

#[test]
fn missing_operands_are_reported_and_the_others_copied() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("sink")).unwrap();
    for name in ["a", "c"] {
        fs::write(at(name), name).unwrap();
    }
    let ended = super::fixture::haul([Path::new("cp"), &at("a"), &at("b"), &at("c"), &at("sink")]);
    ended.failed_with(&["cannot stat", "/b'", "No such file or directory"]);
    for name in ["a", "c"] {
        assert_eq!(fs::read_to_string(at("sink").join(name)).unwrap(), name);
    }
}
