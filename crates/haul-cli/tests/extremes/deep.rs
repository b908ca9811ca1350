//! Ten thousand levels, in a process that may have 256 open files.

use super::chain::{DeepTreeDir, assert_marked, haul_with_files, make, mark, read, walk, write};
use crate::faults::fixture::RunResult;
use std::path::Path;

/// Number of levels: too many for a stack with one call for each, and for one descriptor for each.
const LEVELS: usize = 10_000;

/// Number of descriptors that a process may have.
const FILES: u32 = 256;

/// Memory limit that a tree of this depth exceeds only if each directory stores its complete path.
/// Names of 20 bytes result in paths of up to 210 kB, and all of them together in 1 GB.
const PEAK_KIB_MOST: u64 = 64 << 10;

const NAME: &str = "a-name-of-20-letters";

/// Creates a chain with a file in each hundredth directory, marked if a copy should keep the marks.
fn source(place: &DeepTreeDir) -> std::path::PathBuf {
    let source = place.path("source");
    make(&source, LEVELS, NAME, |level, dir| {
        if level % 100 == 0 {
            write(dir, "file", format!("at level {level}").as_bytes());
        }
    });
    walk(&source, NAME, mark);
    source
}

#[track_caller]
fn assert_small(ended: &RunResult) {
    ended.is_fine();
    assert!(ended.peak_kib < PEAK_KIB_MOST, "{} KiB", ended.peak_kib);
}

fn assert_files(sink: &Path, mut each: impl FnMut(usize, &rustix::fd::OwnedFd)) {
    let levels = walk(sink, NAME, |level, dir| {
        let expected = (level % 100 == 0).then(|| format!("at level {level}").into_bytes());
        assert_eq!(read(dir, c"file"), expected, "level {level}");
        each(level, dir);
    });
    assert_eq!(levels, LEVELS);
}

#[test]
fn ten_thousand_levels_are_copied_with_256_descriptors() {
    let place = DeepTreeDir::new();
    let (source, sink) = (source(&place), place.path("sink"));
    assert_small(&haul_with_files(FILES, ["cp".as_ref(), "-r".as_ref(), &*source, &*sink]));
    assert_files(&sink, |_, _| {});
}

#[test]
fn ten_thousand_levels_keep_their_metadata() {
    let place = DeepTreeDir::new();
    let (source, sink) = (source(&place), place.path("sink"));
    assert_small(&haul_with_files(FILES, ["cp".as_ref(), "-a".as_ref(), &*source, &*sink]));
    assert_files(&sink, assert_marked);
    // A second copy over the existing one.
    assert_small(&haul_with_files(FILES, ["cp".as_ref(), "-aTf".as_ref(), &*source, &*sink]));
    assert_files(&sink, assert_marked);
}

#[test]
fn ten_thousand_levels_are_summed_with_256_descriptors() {
    let place = DeepTreeDir::new();
    let source = source(&place);
    let args = ["sum", "-a", "md5", "-r"].map(Path::new);
    let ended = haul_with_files(FILES, args.into_iter().chain([&*source]));
    assert_small(&ended);
    let mut lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), LEVELS / 100 + 1);
    // `file` sorts after the name of the next level: the deepest file comes first.
    lines.reverse();
    for (index, line) in lines.into_iter().enumerate() {
        let level = 100 * index;
        let (digest, path) = line.split_once("  ").unwrap();
        let below = path.strip_prefix(source.to_str().unwrap()).unwrap();
        assert_eq!(below.len(), level * (NAME.len() + 1) + "/file".len(), "level {level}");
        assert_eq!(digest, md5(&format!("at level {level}")), "level {level}");
    }
}

fn md5(text: &str) -> String {
    let digest = haul_digest::digest(haul_digest::Algorithm::Md5, text.as_bytes());
    digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
