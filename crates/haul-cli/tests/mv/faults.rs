//! `mv` to and from storage that fails, corrupts data, or is changed meanwhile: a file without a
//! verified copy stays.

use crate::faults::bed::{
    Ended, FaultBed, HOLD, Running, assert_same_tree, haul, noise, others_are_whole, pasted, start,
    tree_with_victim, write_old,
};
use haul_lab::faults::Op;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Size of the victim in bytes: two objects, the second one short.
const LEN: u64 = 4 * MIB + 7;

fn mv(source: &Path, sink: &Path) -> Ended {
    haul([Path::new("mv"), "-T".as_ref(), source, sink])
}

/// Copies a tree before it is moved.
fn copy_of(source: &Path, like: &Path) {
    let copied = std::process::Command::new("/bin/cp").arg("-aT").args([source, like]).status().unwrap();
    assert!(copied.success());
}

/// Asserts that a move into storage with this fault fails with `words`, and that the complete tree
/// stays at its source. Without the fault and the partial copy, the same command then moves it.
fn stays(rule: &str, words: &[&str]) {
    let Some(bed) = FaultBed::new("") else { return };
    let (source, like, sink) = (bed.path("source"), bed.path("like"), bed.path("view/sink"));
    tree_with_victim(&source, LEN);
    copy_of(&source, &like);
    bed.rules(rule);
    let ended = mv(&source, &sink);
    ended.failed_with(words);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_same_tree(&like, &source);
    assert!(!bed.fired().is_empty(), "the fault never came");

    bed.rules("");
    let _ = fs::remove_dir_all(&sink);
    mv(&source, &sink).is_fine();
    assert_same_tree(&like, &bed.path("store/sink"));
    assert!(!source.exists());
}

#[test]
fn a_bit_flipped_on_its_way_keeps_the_source() {
    stays("*victim write .. flip 2500000.3", &["/victim' differs from ", "in bytes 0-4194304"]);
}

#[test]
fn a_bit_flipped_in_a_small_file_keeps_the_source() {
    stays("*b write .. flip 1000.0", &["/b' differs from "]);
}

#[test]
fn a_write_that_was_only_said_to_be_done_keeps_the_source() {
    stays("*victim write 1048576..2097152 drop", &["/victim' differs from "]);
}

#[test]
fn a_full_device_keeps_the_source() {
    stays(
        "*victim write 4194304.. errno ENOSPC\n*victim truncate 4194304.. errno ENOSPC",
        &["error writing", "/victim", "No space left on device"],
    );
}

#[test]
fn a_sync_that_fails_keeps_the_source() {
    stays("*victim fsync .. errno EIO", &["error syncing", "/victim", "Input/output error"]);
}

#[test]
fn names_that_cannot_be_made_durable_keep_the_source() {
    stays("sink/dir fsync .. errno EIO", &["error syncing", "sink/dir", "Input/output error"]);
}

#[test]
fn a_loss_told_at_close_keeps_the_source() {
    stays("*victim flush .. errno EIO", &["failed to close", "/victim", "Input/output error"]);
}

#[test]
fn a_directory_that_cannot_be_made_keeps_the_source() {
    stays("sink/dir create .. errno EACCES", &["cannot create directory", "sink/dir", "Permission denied"]);
}

#[test]
fn a_source_that_cannot_be_read_stays_and_all_else_too() {
    let Some(bed) = FaultBed::new("tree/victim read 1048576..1052672 errno EIO") else { return };
    bed.tree(LEN);
    let like = bed.path("like");
    copy_of(&bed.path("store/tree"), &like);
    let ended = mv(&bed.path("view/tree"), &bed.path("sink"));
    ended.failed_with(&["error reading", "tree/victim", "Input/output error"]);
    assert_same_tree(&like, &bed.path("store/tree"));
}

#[test]
fn of_several_operands_those_go_that_arrived() {
    let Some(bed) = FaultBed::new("*victim write .. flip 5.5") else { return };
    for name in ["one", "victim", "three"] {
        write_old(&bed.path(name), &noise(100_000));
    }
    fs::create_dir(bed.path("view/d")).unwrap();
    let names = ["one", "victim", "three"].map(|name| bed.path(name));
    let ended = start(["mv".into(), "-t".into(), bed.path("view/d")].into_iter().chain(names)).end();
    ended.failed_with(&["victim' differs from "]);
    assert!(!bed.path("one").exists() && !bed.path("three").exists());
    assert_eq!(fs::read(bed.path("victim")).unwrap(), noise(100_000));
    assert_eq!(fs::read(bed.path("store/d/three")).unwrap(), noise(100_000));
}

#[test]
fn a_name_that_cannot_be_removed_is_told_and_stands_twice() {
    let Some(bed) = FaultBed::new("tree/dir/d remove .. errno EPERM") else { return };
    bed.tree(MIB);
    let like = bed.path("like");
    copy_of(&bed.path("store/tree"), &like);
    let ended = mv(&bed.path("view/tree"), &bed.path("sink"));
    ended.failed_with(&["cannot remove", "tree/dir/d': Operation not permitted"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_same_tree(&like, &bed.path("sink"));
    let left: Vec<_> =
        fs::read_dir(bed.path("store/tree")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["dir"]);
}

#[test]
fn what_the_storage_cannot_keep_is_told_and_moved_all_the_same() {
    let Some(bed) = FaultBed::new("*victim setattr .. errno EPERM") else { return };
    let source = bed.path("source");
    tree_with_victim(&source, MIB);
    let ended = mv(&source, &bed.path("view/sink"));
    assert_eq!(ended.code, Some(0), "as with GNU's: {ended:?}");
    assert!(ended.stderr.contains("/victim': Operation not permitted"), "{ended:?}");
    assert_eq!(fs::read(bed.path("store/sink/victim")).unwrap(), noise(MIB));
    assert!(!source.exists());
}

/// Starts a move of a tree that a rule holds. Returns the process and the path of the held
/// operation.
fn held(bed: &FaultBed) -> (Running, PathBuf) {
    tree_with_victim(&bed.path("source"), LEN);
    let running = start([Path::new("mv"), "-T".as_ref(), &bed.path("source"), &bed.path("view/sink")]);
    (running, bed.held())
}

/// Starts a move that has copied everything, and waits for the last sync: that of the directory
/// that contains the copy.
fn held_at_the_sync(bed: &FaultBed) -> Running {
    let (running, place) = held(bed);
    assert_eq!(place, Path::new(""));
    running
}

/// The copies of six files and two directories are synced before.
fn hold_the_sync() -> String {
    format!("* fsync .. delay {HOLD} after 8 times 1")
}

#[test]
fn a_source_that_is_written_after_it_was_copied_stays() {
    let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&bed);
    write_old(&bed.path("source/victim"), &noise(LEN - 1));
    bed.let_go();
    let ended = running.end();
    ended.failed_with(&["source/victim' changed after it was copied"]);
    assert_eq!(fs::read(bed.path("source/victim")).unwrap(), noise(LEN - 1));
    assert!(!bed.path("source/a").exists(), "the others went");
}

#[test]
fn a_change_that_hides_its_time_and_length_is_seen() {
    let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&bed);
    let mut other = noise(LEN);
    other[7] ^= 1;
    write_old(&bed.path("source/victim"), &other);
    bed.let_go();
    running.end().failed_with(&["source/victim' changed after it was copied"]);
    assert_eq!(fs::read(bed.path("source/victim")).unwrap(), other);
}

/// A path is removed only if it still names the copied file, however similar another file is.
#[test]
fn what_takes_the_place_of_a_moved_file_stays() {
    let Some(bed) = FaultBed::new(&format!("sink/victim fsync .. delay {HOLD} times 1")) else { return };
    for place in ["one", "other"] {
        fs::create_dir(bed.path(place)).unwrap();
        write_old(&bed.path(place).join("victim"), &noise(LEN));
    }
    fs::create_dir(bed.path("store/sink")).unwrap();
    std::os::unix::fs::symlink("one", bed.path("way")).unwrap();
    let running = start([Path::new("mv"), &bed.path("way/victim"), &bed.path("view/sink")]);
    bed.held();
    fs::remove_file(bed.path("way")).unwrap();
    std::os::unix::fs::symlink("other", bed.path("way")).unwrap();
    bed.let_go();
    running.end().failed_with(&["way/victim' changed after it was copied"]);
    for place in ["one", "other", "store/sink"] {
        assert_eq!(fs::read(bed.path(place).join("victim")).unwrap(), noise(LEN), "{place}");
    }
}

#[test]
fn a_link_that_takes_the_place_of_a_moved_file_stays() {
    let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&bed);
    let (victim, was) = (bed.path("source/victim"), bed.path("was"));
    fs::rename(&victim, &was).unwrap();
    std::os::unix::fs::symlink(&was, &victim).unwrap();
    bed.let_go();
    running.end().failed_with(&["cannot remove", "source/victim': its copy", "differs in kind"]);
    assert_eq!(fs::read(&was).unwrap(), noise(LEN));
    assert_eq!(fs::read_link(&victim).unwrap(), was);
}

/// The other directory has the names, lengths and times of the copied one, but was not copied.
/// Earlier versions removed all of it.
#[test]
fn what_takes_the_place_of_a_moved_directory_stays() {
    for is_link in [false, true] {
        let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
        let (dir, other, was) = (bed.path("source/dir"), bed.path("other"), bed.path("was"));
        fs::create_dir(&other).unwrap();
        write_old(&other.join("c"), b"");
        write_old(&other.join("d"), &[7; 5000]);
        let running = held_at_the_sync(&bed);
        fs::rename(&dir, &was).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&other, &dir).unwrap();
        } else {
            fs::rename(&other, &dir).unwrap();
        }
        bed.let_go();
        let ended = running.end();
        if is_link {
            ended.failed_with(&["cannot remove", "source/dir': its copy", "differs in kind"]);
        } else {
            ended.failed_with(&["source/dir' changed after it was copied"]);
        }
        assert_eq!(fs::read(dir.join("d")).unwrap(), [7; 5000], "{ended:?}");
        assert!(dir.join("c").exists() && was.join("c").exists(), "{ended:?}");
        assert_eq!(fs::read(was.join("d")).unwrap(), noise(5000));
        assert!(!bed.path("source/a").exists(), "the others went");
    }
}

#[test]
fn a_name_that_came_after_the_copying_stays() {
    let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&bed);
    fs::write(bed.path("source/dir/late"), "late").unwrap();
    bed.let_go();
    running.end().failed_with(&["source/dir/late': cannot access its copy"]);
    assert_eq!(fs::read(bed.path("source/dir/late")).unwrap(), b"late");
    assert!(!bed.path("source/dir/c").exists() && !bed.path("source/victim").exists());
}

#[test]
fn a_copy_that_somebody_damages_meanwhile_keeps_the_source() {
    let Some(bed) = FaultBed::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&bed);
    fs::write(bed.path("store/sink/b"), noise(69_999)).unwrap();
    bed.let_go();
    running.end().failed_with(&["cannot remove", "source/b': its copy", "differs in "]);
    assert_eq!(fs::read(bed.path("source/b")).unwrap(), noise(70_000));
}

#[test]
fn ctrl_c_removes_nothing_that_has_not_arrived() {
    let Some(bed) = FaultBed::new(&format!("sink/victim write 1048576.. delay {HOLD} times 1")) else {
        return;
    };
    let (running, _) = held(&bed);
    running.hears(Signal::INT);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("sources that were not moved are intact"), "{ended:?}");
    assert_eq!(fs::read(bed.path("source/victim")).unwrap(), noise(LEN));
    others_are_whole(&bed.path("source"), &bed.path("source"));
    // A move would not replace the partial copy.
    let (_, advice) = ended.stderr.split_once("; to move them, run: ").unwrap();
    pasted(bed.path(""), advice);
    assert!(!bed.path("source").exists());
    assert_eq!(fs::read(bed.path("store/sink/victim")).unwrap(), noise(LEN));
    others_are_whole(&bed.path("store/sink"), &bed.path("store/sink"));
}

/// A source that `-n` or a similar option keeps must not be removed.
#[test]
fn an_interrupted_move_that_may_leave_something_advises_no_command() {
    for option in ["-n", "-u", "-b", "-i"] {
        let Some(bed) = FaultBed::new(&format!("sink/victim write 1048576.. delay {HOLD} times 1")) else {
            return;
        };
        tree_with_victim(&bed.path("source"), LEN);
        let running = start([Path::new("mv"), option.as_ref(), &bed.path("source"), &bed.path("view/sink")]);
        bed.held();
        running.hears(Signal::INT);
        bed.let_go();
        let ended = running.end();
        assert!(ended.code == Some(130) && !ended.stderr.contains("run: "), "{ended:?}");
    }
}

#[test]
fn every_file_is_durable_before_the_first_is_removed() {
    // Source and sink are on one file system, which records the order of its operations and refuses
    // to rename.
    let rules = "* rename .. errno EXDEV\n* fsync .. delay 0\ntree/* remove .. delay 0";
    let Some(bed) = FaultBed::new(rules) else { return };
    bed.tree(MIB);
    let like = bed.path("like");
    copy_of(&bed.path("store/tree"), &like);
    mv(&bed.path("view/tree"), &bed.path("view/sink")).is_fine();
    assert_same_tree(&like, &bed.path("store/sink"));
    assert!(!bed.path("store/tree").exists());
    let fired = bed.fired();
    let first = fired.iter().position(|fired| fired.op == Op::Remove).expect("the source was removed");
    let synced = fired[..first].iter().filter(|fired| fired.op == Op::Fsync);
    let synced: Vec<String> = synced.map(|fired| fired.path.to_string_lossy().into_owned()).collect();
    for name in ["sink", "sink/a", "sink/b", "sink/dir", "sink/dir/c", "sink/dir/d", "sink/z", "sink/victim"]
    {
        assert!(synced.iter().any(|path| path == name), "{name} is not among {synced:?}");
    }
}
