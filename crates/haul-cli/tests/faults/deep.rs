//! A tree as deep as open directories allow.

use super::bed::haul;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

/// Levels: a stack of 2 MiB has no room for a call of 270 bytes for each.
const LEVELS: u64 = 8000;

/// Memory that no tree of this depth takes, unless every directory keeps its whole path: names of 20 bytes make paths
/// of up to 160 kB.
const PEAK_KIB_MOST: u64 = 200 << 10;

const NAME: &str = "a-name-of-20-letters";

fn below(dir: &OwnedFd) -> Option<OwnedFd> {
    openat(dir, NAME, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn root(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

#[test]
fn a_very_deep_tree_is_copied_within_bounds_of_stack_and_memory() {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // Both ends of each level stay open.
    let levels = LEVELS.min(most.saturating_sub(100) / 2);
    let home = tempfile::tempdir().unwrap();
    let [source, sink] = ["source", "sink"].map(|name| home.path().join(name));
    std::fs::create_dir(&source).unwrap();
    let mut dir = root(&source);
    for _ in 0..levels {
        mkdirat(&dir, NAME, Mode::RWXU).unwrap();
        dir = below(&dir).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    File::from(openat(&dir, "file", flags, Mode::RUSR).unwrap()).write_all(b"at the bottom").unwrap();
    let ended = haul(["cp", "-a"].map(Path::new).into_iter().chain([&*source, &*sink]));
    let mut dir = root(&sink);
    let mut met = 0;
    while let Some(next) = below(&dir) {
        (dir, met) = (next, met + 1);
    }
    let mut text = String::new();
    let file = openat(&dir, "file", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let read = file.map(|file| File::from(file).read_to_string(&mut text));
    // The standard library removes trees with a descriptor for each level.
    Command::new("rm").arg("-rf").args([&source, &sink]).status().unwrap();
    ended.is_fine();
    assert_eq!((met, read.is_ok(), &*text), (levels, true, "at the bottom"));
    assert!(ended.peak_kib < PEAK_KIB_MOST, "{} KiB", ended.peak_kib);
}
