//! Trees with more levels of directories than the process may have open files, moved across file
//! systems and removed.

use crate::extremes::chain::{DeepTreeDir, haul_with_files, make, open_dir, read, walk, write};
use haul_lab::mounts::Mounted;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::soak_seed;
use rustix::fs::{Mode, mkdirat};
use std::path::Path;

/// Number of descriptors that the process may have.
const FILES: u32 = 256;

#[test]
fn a_tree_with_more_levels_than_descriptors_is_moved() {
    // Each level costs two milliseconds of CPU time.
    let levels = if soak_seed().is_some() { 10_000 } else { 2_000 };
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let (place, other) = (DeepTreeDir::new(), Mounted::tmpfs(256).unwrap());
    let (source, sink) = (place.path("source"), other.path().join("sink"));
    make(&source, levels, "d", |level, dir| {
        if level % 100 == 0 {
            write(dir, "f", &level.to_le_bytes());
        }
    });
    for (from, to, threads) in [(&source, &sink, "--threads=2"), (&sink, &source, "--threads=1")] {
        haul_with_files(FILES, ["mv", threads].map(Path::new).into_iter().chain([&**from, &**to])).is_fine();
        assert!(!from.exists());
        let walked = walk(to, "d", |level, dir| {
            let expected = (level % 100 == 0).then(|| level.to_le_bytes().to_vec());
            assert_eq!(read(dir, c"f"), expected, "level {level}");
        });
        assert_eq!(walked, levels);
    }
}

/// Entries next to the path down are removed on the way back, after their directory was closed.
#[test]
fn siblings_of_a_deep_path_are_moved() {
    const LEVELS: usize = 400;
    const BESIDE: usize = 30;
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let (place, other) = (DeepTreeDir::new(), Mounted::tmpfs(256).unwrap());
    let (source, sink) = (place.path("source"), other.path().join("sink"));
    for (files, threads) in [(64, "--threads=1"), (64, "--threads=3"), (FILES, "--threads=4")] {
        make(&source, LEVELS, "m", |level, dir| {
            for beside in 0..if level % 50 == 0 { BESIDE } else { 1 } {
                // Names that sort before and after the path down.
                let name = format!("{}{beside}", if beside % 2 == 0 { "a" } else { "z" });
                mkdirat(dir, &*name, Mode::RWXU).unwrap();
                write(&open_dir(dir, &name).unwrap(), "b", &level.to_le_bytes());
            }
        });
        haul_with_files(files, ["mv", threads].map(Path::new).into_iter().chain([&*source, &*sink]))
            .is_fine();
        assert!(!source.exists());
        let levels = walk(&sink, "m", |level, dir| {
            let beside = open_dir(dir, "a0").unwrap();
            assert_eq!(read(&beside, c"b"), Some(level.to_le_bytes().to_vec()), "level {level}");
        });
        assert_eq!(levels, LEVELS);
        std::process::Command::new("rm").arg("-rf").arg(&sink).status().unwrap();
    }
}

/// With fewer descriptors, GNU mv fails as well.
#[test]
fn a_deep_tree_is_moved_with_ten_descriptors() {
    const LEVELS: usize = 60;
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let (place, other) = (DeepTreeDir::new(), Mounted::tmpfs(256).unwrap());
    let (source, sink) = (place.path("source"), other.path().join("sink"));
    for files in [10, 12, 16] {
        make(&source, LEVELS, "d", |level, dir| {
            write(dir, "f", &level.to_le_bytes());
            // More entries than a worker processes at a time, with the path down among them.
            for beside in 0..if level % 20 == 0 { 300 } else { 0 } {
                write(dir, &format!("b{beside}"), b"beside");
            }
        });
        haul_with_files(files, ["mv".as_ref(), &*source, &*sink]).is_fine();
        assert!(!source.exists());
        let levels = walk(&sink, "d", |level, dir| {
            assert_eq!(read(dir, c"f"), Some(level.to_le_bytes().to_vec()), "level {level}");
        });
        assert_eq!(levels, LEVELS);
        std::process::Command::new("rm").arg("-rf").arg(&sink).status().unwrap();
    }
}
