//! The floor of the operating system, tried on the file system that holds temporary files and on one of each kind that
//! can be mounted here. What a kind of file system cannot do stands in the test that needs it.

mod buffers;
mod caching;
mod contexts;
mod copying;
mod direct_io;
mod holes;
mod names;
mod permissions;
mod ring;
mod running;
mod waiting;

use haul_lab::mounts::{FsKind, shared_room};
use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// The kinds of file systems that every test goes through.
const KINDS: [FsKind; 5] = [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::BtrfsZstd, FsKind::Tmpfs];

/// A fresh folder, and on what kind of file system it lies.
struct Place {
    dir: TempDir,
    /// `None` for the one that holds temporary files on this machine, whatever that is.
    kind: Option<FsKind>,
}

/// A fresh folder where temporary files are and on each kind of file system that can be had.
fn places() -> Vec<Place> {
    let here = Place { dir: tempfile::tempdir().expect("a temporary folder"), kind: None };
    let others =
        KINDS.into_iter().filter_map(|kind| Some(Place { dir: shared_room(kind)?, kind: Some(kind) }));
    [here].into_iter().chain(others).collect()
}

impl Place {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// This file system can't do something. No kind but those in `lacking` may say so.
    #[track_caller]
    fn lacks(&self, what: &str, lacking: &[FsKind]) {
        if let Some(kind) = self.kind {
            assert!(lacking.contains(&kind), "{kind:?} should have {what}");
        }
    }

    /// This file system did something. No kind in `lacking` may.
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

/// A folder, opened to resolve names in it.
fn opened(folder: &Path) -> File {
    File::open(folder).expect("the folder opens")
}

/// Bytes without a pattern that a mistaken offset could hit upon again.
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

/// The number that the kernel gave with an error.
fn errno(error: &std::io::Error) -> Option<rustix::io::Errno> {
    rustix::io::Errno::from_io_error(error)
}
