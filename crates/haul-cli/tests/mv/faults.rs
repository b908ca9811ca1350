//! `mv` to and from storage that fails, corrupts data, or is changed meanwhile: a file without a
//! verified copy stays.

use crate::faults::fixture::{
    FaultFixture, HOLD, RunResult, Running, assert_same_tree, haul, noise, others_are_whole, pasted, start,
    tree_with_victim, write_old,
};
use haul_lab::faults::Op;
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::metadata::{self, Place};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Size of the victim in bytes: two objects, the second one short.
const LEN: u64 = 4 * MIB + 7;

fn mv(source: &Path, sink: &Path) -> RunResult {
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
    stays_with(|_| (), rule, words);
}

/// Does the same for a tree that `prepare` completes.
fn stays_with(prepare: impl FnOnce(&Path), rule: &str, words: &[&str]) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let (source, like, sink) = (fixture.path("source"), fixture.path("like"), fixture.path("view/sink"));
    tree_with_victim(&source, LEN);
    prepare(&source);
    copy_of(&source, &like);
    fixture.rules(rule);
    let ended = mv(&source, &sink);
    ended.failed_with(words);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_same_tree(&like, &source);
    assert!(!fixture.fired().is_empty(), "the fault never came");

    fixture.rules("");
    let _ = fs::remove_dir_all(&sink);
    mv(&source, &sink).is_fine();
    assert_same_tree(&like, &fixture.path("store/sink"));
    assert!(!source.exists());
}

#[test]
fn a_flipped_bit_keeps_the_source() {
    stays("*victim write .. flip 2500000.3", &["/victim' differs from ", "in bytes 0-4194304"]);
}

#[test]
fn a_bit_flipped_in_a_small_file_keeps_the_source() {
    stays("*b write .. flip 1000.0", &["/b' differs from "]);
}

#[test]
fn a_dropped_write_keeps_the_source() {
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
fn a_failed_sync_keeps_the_source() {
    stays("*victim fsync .. errno EIO", &["error syncing", "/victim", "Input/output error"]);
}

#[test]
fn a_failed_directory_sync_keeps_the_source() {
    stays("sink/dir fsync .. errno EIO", &["error syncing", "sink/dir", "Input/output error"]);
}

#[test]
fn a_close_error_keeps_the_source() {
    stays("*victim flush .. errno EIO", &["failed to close", "/victim", "Input/output error"]);
}

#[test]
fn a_failed_mkdir_keeps_the_source() {
    stays("sink/dir create .. errno EACCES", &["cannot create directory", "sink/dir", "Permission denied"]);
}

#[test]
fn a_read_error_keeps_the_complete_source() {
    let Some(fixture) = FaultFixture::new("tree/victim read 1048576..1052672 errno EIO") else { return };
    fixture.tree(LEN);
    let like = fixture.path("like");
    copy_of(&fixture.path("store/tree"), &like);
    let ended = mv(&fixture.path("view/tree"), &fixture.path("sink"));
    ended.failed_with(&["error reading", "tree/victim", "Input/output error"]);
    assert_same_tree(&like, &fixture.path("store/tree"));
}

/// Sets an attribute of a file or directory to a value of this many bytes.
fn set_attribute(path: &Path, bytes: usize) {
    let file = fs::File::open(path).unwrap();
    metadata::set_xattr(Place::file(&file), c"user.note", &vec![b'n'; bytes]).unwrap();
}

/// Regression test: the only copy of the attribute was removed, and the exit status was 0.
#[test]
fn an_attribute_that_does_not_fit_keeps_the_source() {
    for errno in ["ENOSPC", "EDQUOT", "E2BIG", "ERANGE", "EIO"] {
        for name in ["victim", "dir", "dir/c"] {
            let rule = format!("sink/{name} setxattr 1000.. errno {errno}");
            let prepare = |source: &Path| {
                set_attribute(&source.join(name), 1500);
                set_attribute(&source.join("a"), 1500);
            };
            stays_with(prepare, &rule, &["setting attribute 'user.note' for ", &format!("sink/{name}'")]);
        }
    }
}

/// An access list of a named user has 44 bytes.
#[test]
fn an_access_control_list_that_does_not_fit_keeps_the_source() {
    if !met_or_skip(&[Need::Fuse, Need::Program("setfacl")]) {
        return;
    }
    let lists: [(&str, &[&str]); 3] =
        [("victim", &["-m", "u:7:rw"]), ("dir", &["-m", "u:7:rwx"]), ("dir", &["-d", "-m", "u:7:rwx"])];
    for errno in ["ENOSPC", "EDQUOT", "E2BIG", "ERANGE"] {
        for (name, list) in lists {
            let prepare = |source: &Path| {
                let set = std::process::Command::new("setfacl").args(list).arg(source.join(name)).status();
                assert!(set.unwrap().success());
            };
            let rule = format!("sink/{name} setxattr 40.. errno {errno}");
            stays_with(prepare, &rule, &["preserving permissions for ", &format!("sink/{name}'")]);
        }
    }
}

#[test]
fn an_owner_beyond_a_quota_keeps_the_source() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let prepare = |source: &Path| std::os::unix::fs::chown(source.join("victim"), Some(1), Some(1)).unwrap();
    let words = ["failed to preserve ownership for ", "/victim'", "quota"];
    stays_with(prepare, "*victim chown .. errno EDQUOT", &words);
}

/// As with GNU's: nothing can preserve the attribute there.
#[test]
fn an_attribute_that_the_file_system_does_not_support_is_dropped() {
    let Some(fixture) = FaultFixture::new("* setxattr .. errno ENOTSUP") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, MIB);
    set_attribute(&source.join("victim"), 1500);
    assert_eq!(mv(&source, &fixture.path("view/sink")).code, Some(0));
    assert_eq!(fs::read(fixture.path("store/sink/victim")).unwrap(), noise(MIB));
    assert!(!source.exists());
}

/// As with GNU's: the second file replaces what is left of the first.
#[test]
fn a_later_operand_replaces_one_that_could_not_be_copied() {
    for tool in ["mv", "cp", "install"] {
        let Some(fixture) = FaultFixture::new("d/victim write .. errno ENOSPC times 1") else { return };
        for place in ["one", "two", "view/d"] {
            fs::create_dir(fixture.path(place)).unwrap();
        }
        let [one, two] = ["one/victim", "two/victim"].map(|name| fixture.path(name));
        write_old(&one, &noise(100_000));
        write_old(&two, &noise(50_000));
        let ended = haul([Path::new(tool), &one, &two, &fixture.path("view/d")]);
        ended.failed_with(&["victim", "No space left on device"]);
        assert_eq!(ended.complaints(), 1, "{tool}: {ended:?}");
        assert_eq!(fs::read(fixture.path("store/d/victim")).unwrap(), noise(50_000), "{tool}");
        assert_eq!(fs::read(&one).unwrap(), noise(100_000), "{tool}");
        assert_eq!(two.exists(), tool != "mv");
    }
}

#[test]
fn only_operands_that_were_copied_are_removed() {
    let Some(fixture) = FaultFixture::new("*victim write .. flip 5.5") else { return };
    for name in ["one", "victim", "three"] {
        write_old(&fixture.path(name), &noise(100_000));
    }
    fs::create_dir(fixture.path("view/d")).unwrap();
    let names = ["one", "victim", "three"].map(|name| fixture.path(name));
    let ended = start(["mv".into(), "-t".into(), fixture.path("view/d")].into_iter().chain(names)).end();
    ended.failed_with(&["victim' differs from "]);
    assert!(!fixture.path("one").exists() && !fixture.path("three").exists());
    assert_eq!(fs::read(fixture.path("victim")).unwrap(), noise(100_000));
    assert_eq!(fs::read(fixture.path("store/d/three")).unwrap(), noise(100_000));
}

#[test]
fn a_source_name_that_cannot_be_removed_is_reported() {
    let Some(fixture) = FaultFixture::new("tree/dir/d remove .. errno EPERM") else { return };
    fixture.tree(MIB);
    let like = fixture.path("like");
    copy_of(&fixture.path("store/tree"), &like);
    let ended = mv(&fixture.path("view/tree"), &fixture.path("sink"));
    ended.failed_with(&["cannot remove", "tree/dir/d': Operation not permitted"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_same_tree(&like, &fixture.path("sink"));
    let left: Vec<_> =
        fs::read_dir(fixture.path("store/tree")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["dir"]);
}

#[test]
fn a_setattr_error_is_reported_and_the_move_succeeds() {
    let Some(fixture) = FaultFixture::new("*victim setattr .. errno EPERM") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, MIB);
    let ended = mv(&source, &fixture.path("view/sink"));
    assert_eq!(ended.code, Some(0), "as with GNU's: {ended:?}");
    assert!(ended.stderr.contains("/victim': Operation not permitted"), "{ended:?}");
    assert_eq!(fs::read(fixture.path("store/sink/victim")).unwrap(), noise(MIB));
    assert!(!source.exists());
}

/// Starts a move of a tree that a rule holds. Returns the process and the path of the held
/// operation.
fn held(fixture: &FaultFixture) -> (Running, PathBuf) {
    tree_with_victim(&fixture.path("source"), LEN);
    let running =
        start([Path::new("mv"), "-T".as_ref(), &fixture.path("source"), &fixture.path("view/sink")]);
    (running, fixture.held())
}

/// Starts a move that has copied everything, and waits for the last sync: that of the directory
/// that contains the copy.
fn held_at_the_sync(fixture: &FaultFixture) -> Running {
    let (running, place) = held(fixture);
    assert_eq!(place, Path::new(""));
    running
}

/// The copies of six files and two directories are synced before.
fn hold_the_sync() -> String {
    format!("* fsync .. delay {HOLD} after 8 times 1")
}

#[test]
fn a_source_written_after_the_copy_is_kept() {
    let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&fixture);
    write_old(&fixture.path("source/victim"), &noise(LEN - 1));
    fixture.release();
    let ended = running.end();
    ended.failed_with(&["cannot remove", "source/victim': it changed after it was copied"]);
    assert_eq!(fs::read(fixture.path("source/victim")).unwrap(), noise(LEN - 1));
    assert!(!fixture.path("source/a").exists(), "the others went");
}

#[test]
fn a_change_with_equal_time_and_length_is_detected() {
    let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&fixture);
    let mut other = noise(LEN);
    other[7] ^= 1;
    write_old(&fixture.path("source/victim"), &other);
    fixture.release();
    running.end().failed_with(&["cannot remove", "source/victim': it changed after it was copied"]);
    assert_eq!(fs::read(fixture.path("source/victim")).unwrap(), other);
}

/// A path is removed only if it still names the copied file, however similar another file is.
#[test]
fn a_file_that_replaces_a_moved_file_is_kept() {
    let Some(fixture) = FaultFixture::new(&format!("sink/victim fsync .. delay {HOLD} times 1")) else {
        return;
    };
    for place in ["one", "other"] {
        fs::create_dir(fixture.path(place)).unwrap();
        write_old(&fixture.path(place).join("victim"), &noise(LEN));
    }
    fs::create_dir(fixture.path("store/sink")).unwrap();
    std::os::unix::fs::symlink("one", fixture.path("way")).unwrap();
    let running = start([Path::new("mv"), &fixture.path("way/victim"), &fixture.path("view/sink")]);
    fixture.held();
    fs::remove_file(fixture.path("way")).unwrap();
    std::os::unix::fs::symlink("other", fixture.path("way")).unwrap();
    fixture.release();
    running.end().failed_with(&["cannot remove", "way/victim': it changed after it was copied"]);
    for place in ["one", "other", "store/sink"] {
        assert_eq!(fs::read(fixture.path(place).join("victim")).unwrap(), noise(LEN), "{place}");
    }
}

#[test]
fn a_link_that_replaces_a_moved_file_is_kept() {
    let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&fixture);
    let (victim, was) = (fixture.path("source/victim"), fixture.path("was"));
    fs::rename(&victim, &was).unwrap();
    std::os::unix::fs::symlink(&was, &victim).unwrap();
    fixture.release();
    running.end().failed_with(&["cannot remove", "source/victim': its copy", "differs in kind"]);
    assert_eq!(fs::read(&was).unwrap(), noise(LEN));
    assert_eq!(fs::read_link(&victim).unwrap(), was);
}

/// The other directory has the names, lengths and times of the copied one, but was not copied.
/// Earlier versions removed all of it.
#[test]
fn a_directory_or_link_that_replaces_a_moved_directory_is_kept() {
    for is_link in [false, true] {
        let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
        let (dir, other, was) = (fixture.path("source/dir"), fixture.path("other"), fixture.path("was"));
        fs::create_dir(&other).unwrap();
        write_old(&other.join("c"), b"");
        write_old(&other.join("d"), &[7; 5000]);
        let running = held_at_the_sync(&fixture);
        fs::rename(&dir, &was).unwrap();
        if is_link {
            std::os::unix::fs::symlink(&other, &dir).unwrap();
        } else {
            fs::rename(&other, &dir).unwrap();
        }
        fixture.release();
        let ended = running.end();
        if is_link {
            ended.failed_with(&["cannot remove", "source/dir': its copy", "differs in kind"]);
        } else {
            ended.failed_with(&["cannot remove", "source/dir': it changed after it was copied"]);
        }
        assert_eq!(fs::read(dir.join("d")).unwrap(), [7; 5000], "{ended:?}");
        assert!(dir.join("c").exists() && was.join("c").exists(), "{ended:?}");
        assert_eq!(fs::read(was.join("d")).unwrap(), noise(5000));
        assert!(!fixture.path("source/a").exists(), "the others went");
    }
}

#[test]
fn a_name_created_after_the_copy_is_kept() {
    let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&fixture);
    fs::write(fixture.path("source/dir/late"), "late").unwrap();
    fixture.release();
    running.end().failed_with(&["source/dir/late': cannot access its copy"]);
    assert_eq!(fs::read(fixture.path("source/dir/late")).unwrap(), b"late");
    assert!(!fixture.path("source/dir/c").exists() && !fixture.path("source/victim").exists());
}

#[test]
fn a_copy_damaged_before_removal_keeps_the_source() {
    let Some(fixture) = FaultFixture::new(&hold_the_sync()) else { return };
    let running = held_at_the_sync(&fixture);
    fs::write(fixture.path("store/sink/b"), noise(69_999)).unwrap();
    fixture.release();
    running.end().failed_with(&["cannot remove", "source/b': its copy", "differs in "]);
    assert_eq!(fs::read(fixture.path("source/b")).unwrap(), noise(70_000));
}

#[test]
fn sigint_removes_no_source_that_was_not_copied() {
    let Some(fixture) = FaultFixture::new(&format!("sink/victim write 1048576.. delay {HOLD} times 1"))
    else {
        return;
    };
    let (running, _) = held(&fixture);
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("sources that were not moved are intact"), "{ended:?}");
    assert_eq!(fs::read(fixture.path("source/victim")).unwrap(), noise(LEN));
    others_are_whole(&fixture.path("source"), &fixture.path("source"));
    // A move would not replace the partial copy.
    let (_, advice) = ended.stderr.split_once("; to move them, run: ").unwrap();
    pasted(fixture.path(""), advice);
    assert!(!fixture.path("source").exists());
    assert_eq!(fs::read(fixture.path("store/sink/victim")).unwrap(), noise(LEN));
    others_are_whole(&fixture.path("store/sink"), &fixture.path("store/sink"));
}

/// A source that `-n` or a similar option keeps must not be removed.
#[test]
fn an_interrupted_move_with_n_u_b_or_i_suggests_no_command() {
    for option in ["-n", "-u", "-b", "-i"] {
        let Some(fixture) = FaultFixture::new(&format!("sink/victim write 1048576.. delay {HOLD} times 1"))
        else {
            return;
        };
        tree_with_victim(&fixture.path("source"), LEN);
        let running =
            start([Path::new("mv"), option.as_ref(), &fixture.path("source"), &fixture.path("view/sink")]);
        fixture.held();
        running.deliver(Signal::INT);
        fixture.release();
        let ended = running.end();
        assert!(ended.code == Some(130) && !ended.stderr.contains("run: "), "{ended:?}");
    }
}

#[test]
fn all_files_are_durable_before_the_first_source_is_removed() {
    // Source and sink are on one file system, which records the order of its operations and refuses
    // to rename.
    let rules = "* rename .. errno EXDEV\n* fsync .. delay 0\ntree/* remove .. delay 0";
    let Some(fixture) = FaultFixture::new(rules) else { return };
    fixture.tree(MIB);
    let like = fixture.path("like");
    copy_of(&fixture.path("store/tree"), &like);
    mv(&fixture.path("view/tree"), &fixture.path("view/sink")).is_fine();
    assert_same_tree(&like, &fixture.path("store/sink"));
    assert!(!fixture.path("store/tree").exists());
    let fired = fixture.fired();
    let first = fired.iter().position(|fired| fired.op == Op::Remove).expect("the source was removed");
    let synced = fired[..first].iter().filter(|fired| fired.op == Op::Fsync);
    let synced: Vec<String> = synced.map(|fired| fired.path.to_string_lossy().into_owned()).collect();
    for name in ["sink", "sink/a", "sink/b", "sink/dir", "sink/dir/c", "sink/dir/d", "sink/z", "sink/victim"]
    {
        assert!(synced.iter().any(|path| path == name), "{name} is not among {synced:?}");
    }
}
