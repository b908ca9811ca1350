//! Tests of the operating system layer, on the file system of temporary files and on one of each
//! kind that this machine can mount. A test states which kinds of file systems lack its feature.

mod buffers;
mod caching;
mod contexts;
mod copying;
mod direct_io;
mod holes;
mod names;
mod permissions;
mod running;
mod waiting;

use haul_lab::mounts::{FsKind, shared_dir};
use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// Kinds of file systems on which every test runs.
const KINDS: [FsKind; 5] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::BtrfsZstd, FsKind::Tmpfs];

/// A new folder with the kind of its file system.
struct Place {
    dir: TempDir,
    /// `None` for the file system of temporary files, whatever its kind.
    kind: Option<FsKind>,
}

/// Returns a new folder among temporary files, and one on each kind of file system that can be
/// mounted.
fn places() -> Vec<Place> {
    let here = Place { dir: tempfile::tempdir().expect("a temporary folder"), kind: None };
    let others =
        KINDS.into_iter().filter_map(|kind| Some(Place { dir: shared_dir(kind)?, kind: Some(kind) }));
    [here].into_iter().chain(others).collect()
}

impl Place {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Records that this file system lacks a feature. Panics if its kind is known and not in
    /// `lacking`.
    #[track_caller]
    fn lacks(&self, what: &str, lacking: &[FsKind]) {
        if let Some(kind) = self.kind {
            assert!(lacking.contains(&kind), "{kind:?} should have {what}");
        }
    }

    /// Records that this file system has a feature. Panics if its kind is in `lacking`.
    #[track_caller]
    fn has(&self, what: &str, lacking: &[FsKind]) {
        if let Some(kind) = self.kind {
            assert!(
                !lacking.contains(&kind),
                "{kind:?} has {what} by now: the table of kinds is out of date"
            );
        }
    }
}

/// Opens a folder to resolve names in it.
fn opened(folder: &Path) -> File {
    File::open(folder).expect("the folder opens")
}

/// Returns random bytes, in which no wrong offset shows the same bytes.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Returns the kernel's error number.
fn errno(error: &std::io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}
