//! Copies, moves and repairs in a directory of which one call fails: each call of each kind in
//! turn, with each error.
//!
//! Status 0 means that all bytes are there. After any other status no file with wrong bytes has the
//! size and the time of its source, and nothing is lost that was there before, except the bytes of
//! a file that the command overwrites.

use super::fixture::HAUL;
use haul_lab::faults::enumeration::{FailingStorage, FuseStorage, faults};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::traced;
use haul_sys::filesystem::FileSystem;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Number of faults of each test in a usual run.
const CASES: usize = 30;

/// A source on another file system, and a sink of which one call can fail.
struct World {
    home: TempDir,
    storage: FuseStorage,
}

type Files = BTreeMap<&'static str, Vec<u8>>;

fn new_files() -> Files {
    let large = (0..3_200_000_u32).map(|at| (at >> 9) as u8).collect();
    BTreeMap::from([
        ("empty", Vec::new()),
        ("large", large),
        ("small", vec![7; 3000]),
        ("sub/deep", vec![9; 70_000]),
    ])
}

fn old_files() -> Files {
    BTreeMap::from([("small", vec![1; 5000]), ("unrelated", vec![3; 100])])
}

fn write_all(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
}

impl World {
    /// Returns `None` if this machine cannot mount FUSE file systems.
    fn new() -> Option<World> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let view = home.path().join("view");
        fs::create_dir(&view).unwrap();
        let storage = FuseStorage::mount(&view).unwrap();
        Some(World { home, storage })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn sink(&self) -> PathBuf {
        self.storage.store().join("d")
    }

    /// Puts source and sink back into the state before the command.
    fn begin(&self, source: &Files, sink: &Files) {
        for dir in [self.path("source"), self.sink(), self.path("state")] {
            if dir.exists() {
                fs::remove_dir_all(dir).unwrap();
            }
        }
        write_all(&self.path("source"), source);
        write_all(&self.sink(), sink);
    }

    fn haul(&self, words: &[&str]) -> Output {
        let mut command = Command::new(HAUL);
        command.args(words).current_dir(self.home.path()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.path("state")).env("HOME", "").output().unwrap()
    }

    /// Runs the command with each of its faults. `check` returns what is wrong afterwards.
    fn enumerate(self, words: &[&str], begin: impl Fn(&World), check: impl Fn(&World, bool) -> Vec<String>) {
        let all = faults(&self.storage, CASES, &mut || {
            begin(&self);
            let ended = self.haul(words);
            assert!(ended.status.success(), "{words:?}: {ended:?}");
            let wrong = check(&self, true);
            assert!(wrong.is_empty(), "{words:?}: {wrong:?}");
        });
        let mut wrong: Vec<String> = Vec::new();
        for fault in all {
            begin(&self);
            let mut ended = None;
            self.storage.fail(fault, &mut || ended = Some(self.haul(words)));
            let ended = ended.unwrap();
            let status = ended.status.code();
            let reported = String::from_utf8_lossy(&ended.stderr);
            if !matches!(status, Some(0..=2)) {
                wrong.push(format!("{fault}: {:?}: {reported}", ended.status));
            }
            wrong.extend(
                check(&self, status == Some(0)).iter().map(|what| format!("{fault}: {what}: {reported}")),
            );
            if status != Some(0) && reported.is_empty() {
                wrong.push(format!("{fault}: status {status:?} without a message"));
            }
        }
        assert!(wrong.is_empty(), "{words:?}:\n{}", wrong.join("\n"));
        self.storage.close();
    }

    /// Compares the sink with the files of the source.
    fn copied(&self, is_done: bool, is_moved: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let (new, old) = (new_files(), old_files());
        for (name, bytes) in &new {
            let found = fs::read(self.sink().join(name)).ok();
            let source = self.path("source").join(name);
            let is_there = fs::read(&source).is_ok_and(|source| source == *bytes);
            if found.as_ref() == Some(bytes) {
                continue;
            }
            let len = found.as_ref().map(Vec::len);
            if is_done {
                wrong.push(format!("status 0, {name} has wrong bytes, length {len:?}"));
            }
            if !is_there {
                wrong.push(format!("{name} is lost"));
                continue;
            }
            let facts = |path: &Path| {
                fs::metadata(path).ok().map(|facts| (facts.len(), facts.mtime(), facts.mtime_nsec()))
            };
            if found.is_some() && facts(&self.sink().join(name)) == facts(&source) {
                wrong.push(format!("{name} looks finished and has wrong bytes"));
            }
            // As mv of GNU, haul removes the file that it replaces before it copies another.
            if !is_moved && old.contains_key(name) && found.is_none() {
                wrong.push(format!("the old {name} is lost"));
            }
        }
        if fs::read(self.sink().join("unrelated")).ok().as_ref() != old.get("unrelated") {
            wrong.push("the unrelated file is lost".to_owned());
        }
        wrong
    }

    fn copy(self, options: &[&str]) {
        let words = [&["cp", "-a"], options, &["source/.", "view/d"]].concat();
        self.enumerate(
            &words,
            |world| world.begin(&new_files(), &old_files()),
            |world, is_done| world.copied(is_done, false),
        );
    }
}

#[test]
fn copy_survives_each_fault() {
    let Some(world) = World::new() else { return };
    world.copy(&[]);
}

#[test]
fn verified_copy_survives_each_fault() {
    let Some(world) = World::new() else { return };
    world.copy(&["--verify=reread"]);
}

#[test]
fn resumable_copy_survives_each_fault() {
    let Some(world) = World::new() else { return };
    world.copy(&["--resume", "--split-size=1", "--sync=object"]);
}

#[test]
fn move_to_another_file_system_survives_each_fault() {
    let Some(world) = World::new() else { return };
    let words = ["mv", "-f", "source/empty", "source/large", "source/small", "source/sub", "view/d"];
    world.enumerate(
        &words,
        |world| world.begin(&new_files(), &old_files()),
        |world, is_done| world.copied(is_done, true),
    );
}

/// Length of the range that is damaged before a repair.
const DAMAGED: std::ops::Range<usize> = 400_000..401_000;

fn repaired(options: &[&str]) {
    let Some(world) = World::new() else { return };
    world.begin(&new_files(), &Files::new());
    let mut list = Command::new(HAUL);
    list.args(["sum", "-r", "--waybill=../list", "."]).current_dir(world.path("source"));
    let listed = list.env("XDG_STATE_HOME", world.path("state")).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let damaged = || {
        let mut files = new_files();
        files.get_mut("large").unwrap()[DAMAGED].fill(255);
        files
    };
    let words = [&["repair", "list", "view/d", "--from", "source"], options].concat();
    world.enumerate(
        &words,
        |world| {
            for dir in [world.sink(), world.path("state")] {
                if dir.exists() {
                    fs::remove_dir_all(dir).unwrap();
                }
            }
            write_all(&world.sink(), &damaged());
            // The digests are those of files with these times.
            for name in new_files().keys() {
                let facts = fs::metadata(world.path("source").join(name)).unwrap();
                let file = fs::File::options().write(true).open(world.sink().join(name)).unwrap();
                file.set_modified(facts.modified().unwrap()).unwrap();
            }
        },
        |world, is_done| {
            let mut wrong = Vec::new();
            for (name, bytes) in &new_files() {
                let found = fs::read(world.sink().join(name)).unwrap_or_default();
                let is_intact = |at: usize| found.get(at) == bytes.get(at);
                let lost = (0..bytes.len()).find(|at| !DAMAGED.contains(at) && !is_intact(*at));
                if lost.is_some() || found.len() != bytes.len() {
                    wrong.push(format!("{name}: intact bytes are lost at {lost:?}"));
                }
                if is_done && found != *bytes {
                    wrong.push(format!("status 0, and {name} is still damaged"));
                }
            }
            wrong
        },
    );
}

#[test]
fn repair_survives_each_fault() {
    repaired(&[]);
}

#[test]
fn repair_in_place_survives_each_fault() {
    repaired(&["--in-place"]);
}

/// Calls by which a program asks the kernel to make something durable or visible. FUSE cannot let
/// syncfs and sync_file_range fail.
const SYNCS: [&str; 4] = ["syncfs", "fdatasync", "fsync", "sync_file_range"];

/// Runs a command with the Nth call of this name failing in each of its threads, for each N until
/// no call fails. `begin` prepares each run, and `check` examines it: it gets the status, the lines
/// of strace about failed calls, and the messages.
fn each_sync_fails(words: &[&str], home: &Path, begin: impl Fn(), check: impl Fn(Option<i32>, &str, &str)) {
    for call in SYNCS {
        for when in 1..100 {
            begin();
            let log = home.join("trace");
            let inject = format!("inject={call}:error=EIO:when={when}");
            let mut command = Command::new("strace");
            command.args(["-f", "-y", "-qq", "-e", &format!("trace={call}"), "-e", &inject, "-o"]).arg(&log);
            command.arg(HAUL).args(words).current_dir(home).stdin(Stdio::null());
            let ended = command.env("XDG_STATE_HOME", home.join("state")).env("HOME", "").output().unwrap();
            let traced = fs::read_to_string(&log).unwrap();
            let failed: Vec<&str> = traced.lines().filter(|line| line.contains("(INJECTED)")).collect();
            if failed.is_empty() {
                break;
            }
            check(ended.status.code(), &failed.join("\n"), &String::from_utf8_lossy(&ended.stderr));
        }
    }
}

/// A sync of a copy's data fails the command; a sync of its state need not.
#[test]
fn no_failed_sync_of_data_ends_with_success() {
    if !met_or_skip(&[Need::Program("strace")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), home.path().join("sink"));
    write_all(&source, &new_files());
    for words in [
        &["cp", "-a", "--resume", "--split-size=1", "--sync=object", "source/.", "sink"][..],
        &["cp", "-a", "--resume", "--split-size=1", "source/.", "sink"],
        &["cp", "-a", "--verify=reread", "source/.", "sink"],
    ] {
        let begin = || {
            for dir in [&sink, &home.path().join("state")] {
                if dir.exists() {
                    fs::remove_dir_all(dir).unwrap();
                }
            }
            fs::create_dir(&sink).unwrap();
        };
        each_sync_fails(words, home.path(), begin, |status, failed, reported| {
            // Write-back that is only started early is repeated by the sync that follows, and so is
            // a sync of the file system before the syncs of its files.
            let is_data = failed.lines().any(|line| {
                let is_sink = line.contains(&format!("{}", sink.display()));
                is_sink && (line.contains("fdatasync(") || line.contains("fsync("))
            });
            assert!(status == Some(1) || !is_data, "{words:?}: status {status:?}: {failed}: {reported}");
            if status == Some(0) {
                for (name, bytes) in &new_files() {
                    assert!(fs::read(sink.join(name)).unwrap() == *bytes, "{words:?}: {name}: {failed}");
                }
            }
        });
    }
}

/// Returns the lines of strace about some calls of a command.
fn calls_of(words: &[&str], home: &Path, calls: &str) -> Vec<String> {
    let log = home.join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", &format!("trace={calls}"), "-o"]).arg(&log);
    command.arg(HAUL).args(words).current_dir(home).stdin(Stdio::null());
    let ended = command.env("XDG_STATE_HOME", home.join("state")).env("HOME", "").output().unwrap();
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect()
}

/// Of the write-back that failed before its descriptor was opened, syncfs reports only what no
/// other process has seen.
#[test]
fn file_system_to_sync_is_opened_before_the_first_write() {
    if !met_or_skip(&[Need::Program("strace")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    if !FileSystem::of(fs::File::open(home.path()).unwrap()).syncs_as_a_whole() {
        return;
    }
    write_all(&home.path().join("source"), &new_files());
    fs::create_dir(home.path().join("dir")).unwrap();
    for (words, written) in [
        (&["cp", "-a", "--resume", "--threads=1", "source", "dir/tree"][..], "dir/tree/"),
        (&["cp", "-a", "--resume", "--threads=1", "source/small", "dir/small"], "dir/small"),
        (&["sum", "-r", "--store=tree", "source"], "source/.haul/"),
    ] {
        let lines = calls_of(words, home.path(), "openat,write,pwrite64,copy_file_range,syncfs");
        let at = |found: &dyn Fn(&str) -> bool| lines.iter().position(|line| found(line));
        let synced = at(&|line| line.contains("syncfs(")).unwrap_or_else(|| panic!("{words:?}: {lines:?}"));
        let number = lines[synced].split_once("syncfs(").unwrap().1.split('<').next().unwrap();
        let result = format!(" = {number}<");
        let opened = lines[..synced].iter().rposition(|line| line.contains(&result)).unwrap();
        let file = format!("<{}", home.path().join(written).display());
        let is_write = |line: &str| line.contains(&file) && !line.contains("openat");
        let first = at(&is_write).unwrap_or_else(|| panic!("{words:?}: {lines:?}"));
        assert!(opened < first && first < synced, "{words:?}: {opened} {first} {synced}: {lines:#?}");
    }
}

/// Regression test: the standard library panics if a directory cannot be closed.
#[test]
fn failed_close_of_a_directory_is_no_panic() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    write_all(&dir.join("bag/data"), &new_files());
    let mut manifest = String::new();
    for (name, bytes) in &new_files() {
        let sum = haul_digest::digest(haul_digest::Algorithm::Sha256, bytes);
        writeln!(manifest, "{sum}  data/{name}").unwrap();
    }
    fs::write(dir.join("bag/manifest-sha256.txt"), manifest).unwrap();
    let declaration = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
    fs::write(dir.join("bag/bagit.txt"), declaration).unwrap();
    let haul = |words: &[&str]| {
        let mut command = Command::new(HAUL);
        command.args(words).current_dir(dir).env("XDG_STATE_HOME", dir.join("state")).env("HOME", "");
        command
    };
    // Directories of the copy and of its job, whose close fails in the same job below.
    let copied = haul(&["cp", "-a", "--resume", "bag", "copy"]).stdin(Stdio::null()).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let mut places = vec![dir.to_owned()];
    for at in 0.. {
        let Some(place) = places.get(at) else { break };
        let paths = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        places.extend(paths.filter(|path| path.is_dir()).collect::<Vec<_>>());
    }
    ["copy", "state"].iter().for_each(|name| fs::remove_dir_all(dir.join(name)).unwrap());
    for words in [
        &["cp", "-a", "--resume", "bag", "copy"][..],
        &["cp", "-a", "--resume", "bag", "copy"],
        &["jobs"],
        &["cp", "-a", "--resume", "--restart", "bag", "copy"],
        &["check", "bag"],
    ] {
        let log = dir.join("trace");
        let mut command = traced::injected_at(&haul(words), &places, "close", "error=EIO", &log);
        let ended = command.stdin(Stdio::null()).output();
        let ended = ended.unwrap();
        let reported = String::from_utf8_lossy(&ended.stderr);
        assert!(matches!(ended.status.code(), Some(0..=2)), "{words:?}: {ended:?}");
        assert!(!reported.contains("panicked"), "{words:?}: {reported}");
        assert!(words[0] == "cp" || ended.status.success(), "{words:?}: {ended:?}");
        assert!(fs::read_to_string(&log).unwrap().contains("(INJECTED)"), "{words:?}");
    }
}
