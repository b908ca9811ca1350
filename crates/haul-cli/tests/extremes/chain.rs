//! Chains of nested directories, created and checked step by step, because no path reaches their
//! end.

use crate::faults::fixture::{HAUL, RunResult, Running};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, fchmod, fchown, fstat,
    futimens, mkdirat, openat, readlinkat, statat,
};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A test directory for trees that the standard library cannot remove, because it uses a descriptor
/// for each level.
pub(crate) struct DeepTreeDir(TempDir);

impl DeepTreeDir {
    pub(crate) fn new() -> DeepTreeDir {
        DeepTreeDir(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for DeepTreeDir {
    fn drop(&mut self) {
        let names = std::fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        let paths: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
        // Remaining files are removed with the test directory, or stay visible.
        let _ = Command::new("rm").arg("-rf").args(paths).status();
    }
}

/// Runs `haul` with these arguments, in a process with this limit on open files.
pub(crate) fn haul_with_files<S: AsRef<OsStr>>(files: u32, args: impl IntoIterator<Item = S>) -> RunResult {
    start_with_files(files, args).end()
}

/// Starts the command of [`haul_with_files`].
pub(super) fn start_with_files<S: AsRef<OsStr>>(files: u32, args: impl IntoIterator<Item = S>) -> Running {
    let script = format!("ulimit -n {files}; exec \"$@\"");
    Running::new(Command::new("sh").args(["-c", &script, "sh", HAUL]).args(args))
}

pub(crate) fn open_dir(dir: impl AsFd, name: &str) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).ok()
}

pub(super) fn root(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).unwrap()
}

/// Creates a chain below the new directory `path`. Calls `each` for its directories, from the top
/// (level 0) to the bottom (level `levels`).
pub(crate) fn make(path: &Path, levels: usize, name: &str, mut each: impl FnMut(usize, &OwnedFd)) {
    std::fs::create_dir(path).unwrap();
    let mut dir = root(path);
    each(0, &dir);
    for level in 1..=levels {
        mkdirat(&dir, name, Mode::RWXU).unwrap();
        dir = open_dir(&dir, name).unwrap();
        each(level, &dir);
    }
}

/// Calls `each` for each directory of a chain, and returns the number of levels below the top.
pub(crate) fn walk(path: &Path, name: &str, mut each: impl FnMut(usize, &OwnedFd)) -> usize {
    let mut dir = root(path);
    for level in 0.. {
        each(level, &dir);
        match open_dir(&dir, name) {
            Some(below) => dir = below,
            None => return level,
        }
    }
    unreachable!("a chain has an end")
}

pub(crate) fn write(dir: &OwnedFd, name: &str, bytes: &[u8]) {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    File::from(openat(dir, name, flags, Mode::RUSR | Mode::WUSR).unwrap()).write_all(bytes).unwrap();
}

pub(crate) fn read(dir: &OwnedFd, name: impl AsRef<std::ffi::CStr>) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    let file = openat(dir, name.as_ref(), flags, Mode::empty()).ok()?;
    File::from(file).read_to_end(&mut bytes).ok().map(|_| bytes)
}

/// Sets metadata that differs for each level: mode, time, and as root the owner.
pub(super) fn mark(level: usize, dir: &OwnedFd) {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = owner_of(level);
        fchown(dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
    }
    fchmod(dir, Mode::from_raw_mode(mode_of(level))).unwrap();
    let (seconds, nanoseconds) = time_of(level);
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    futimens(dir, &Timestamps { last_access: time, last_modification: time }).unwrap();
}

/// Panics if a directory lacks the metadata that [`mark`] set on its source.
#[track_caller]
pub(super) fn assert_marked(level: usize, dir: &OwnedFd) {
    let found = fstat(dir).unwrap();
    assert_eq!((found.st_mtime, found.st_mtime_nsec as i64), time_of(level), "time of level {level}");
    assert_eq!(found.st_mode & 0o7777, mode_of(level), "mode of level {level}");
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.st_uid, found.st_gid), owner_of(level), "owner of level {level}");
    }
}

fn mode_of(level: usize) -> u32 {
    [0o700, 0o755, 0o500, 0o1777, 0o2711, 0o555][level % 6]
}

fn owner_of(level: usize) -> (u32, u32) {
    (20_000 + level as u32, 40_000 + level as u32)
}

fn time_of(level: usize) -> (i64, i64) {
    (1_000_000_000 + level as i64, 7 * level as i64 + 1)
}

/// Panics if two trees differ in names, kinds, contents, targets, modes or times. Descends by
/// descriptors.
pub(super) fn assert_same_trees(a: &Path, b: &Path) {
    let mut pairs = vec![(root(a), root(b), String::new())];
    while let Some((a, b, path)) = pairs.pop() {
        let names = names(&a);
        assert_eq!(names, self::names(&b), "names in {path}");
        let [facts_a, facts_b] = [&a, &b].map(|dir| fstat(dir).unwrap());
        assert_eq!(facts_a.st_mode, facts_b.st_mode, "mode of {path}");
        assert_eq!(facts_a.st_mtime, facts_b.st_mtime, "time of {path}");
        for (name, kind) in names {
            let path = format!("{path}/{}", name.to_string_lossy());
            match kind {
                FileType::Directory => {
                    let name = name.to_str().unwrap();
                    pairs.push((open_dir(&a, name).unwrap(), open_dir(&b, name).unwrap(), path));
                }
                FileType::Symlink => {
                    let [a, b] = [&a, &b].map(|dir| readlinkat(dir, &*name, Vec::new()).unwrap());
                    assert_eq!(a, b, "{path}");
                }
                _ => assert_eq!(read(&a, &name), read(&b, &name), "{path}"),
            }
        }
    }
}

/// Returns the names in a directory with their kinds, sorted.
pub(super) fn names(dir: &OwnedFd) -> Vec<(CString, FileType)> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).unwrap() {
        let name = entry.unwrap().file_name().to_owned();
        if ![c".", c".."].contains(&&*name) {
            let facts = statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            names.push((name, FileType::from_raw_mode(facts.st_mode)));
        }
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}
