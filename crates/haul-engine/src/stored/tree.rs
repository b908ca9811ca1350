//! Digests in regular files: for each file one of the same name, in the same directories under one hidden directory.
//!
//! Any file system keeps regular files, of any size; they can be listed, copied and striped as all others, which
//! attributes can't (mutil keeps its stored sums as files for the same reason).

use haul_log::stored::STORED_BYTES_MAX;
use haul_log::waybill::RelPath;
use haul_sys::beneath::{open_place_beneath, open_root};
use haul_sys::dir::{open_dir_at, open_place_at};
use haul_sys::filesystem::syncs_as_a_whole;
use haul_sys::open::{RenameMode, create_new_at, mkdir_at, open_source_at, rename_at, unlink_at};
use haul_sys::stat::stat_fd;
use haul_sys::{FileKind, Follow, cache};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hidden directory in the root; what is in it is not summed itself.
pub const HIDDEN: &str = ".haul";

/// The directory in it that mirrors the root.
const SUMS: &str = "sums";

/// The mirrored hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    hidden: OwnedFd,
    sums: OwnedFd,
    /// Whether one call at the end makes all durable; else each file and each directory is synced.
    syncs_at_end: bool,
    /// Numbers the files that are being written.
    next: AtomicU64,
}

impl Tree {
    /// The hierarchy of this root, made if it is not there.
    pub(super) fn make(root: &OsStr) -> io::Result<Tree> {
        let root = open_root(root)?;
        let syncs_at_end = syncs_as_a_whole(&root);
        let hidden = enter(&root, OsStr::new(HIDDEN), Stale::Stays, !syncs_at_end)?;
        let sums = enter(&hidden, OsStr::new(SUMS), Stale::Stays, !syncs_at_end)?;
        Ok(Tree { hidden, sums, syncs_at_end, next: AtomicU64::new(0) })
    }

    /// The hierarchy of this root, if there is one. A link in its place is none.
    pub(super) fn find(root: &OsStr) -> io::Result<Option<Tree>> {
        let open = |dir: &OwnedFd, name| match open_place_at(dir, name, Follow::No) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_no_directory(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(hidden) = open(&open_root(root)?, HIDDEN)? else { return Ok(None) };
        let sums = open(&hidden, SUMS)?;
        Ok(sums.map(|sums| Tree { hidden, sums, syncs_at_end: true, next: AtomicU64::new(0) }))
    }

    /// Makes durable what was put.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.syncs_at_end { cache::sync_filesystem(readable(&self.sums)?) } else { Ok(()) }
    }

    /// Keeps the bytes for a file, in one step: there are never half of them. What stands in the way is left from a file
    /// or directory that is of another kind by now, and goes.
    pub(super) fn put(&self, path: &RelPath, bytes: &[u8]) -> io::Result<()> {
        let (dirs, name) = parts(path);
        let mut place = open_place_at(&self.sums, ".", Follow::No)?;
        for dir in dirs {
            place = enter(&place, dir, Stale::Goes, !self.syncs_at_end)?;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let new = format!("new-{}-{number}", std::process::id());
        let mut file = File::from(create_new_at(&self.hidden, new.as_str(), 0o644)?);
        let synced = |file: &File| if self.syncs_at_end { Ok(()) } else { cache::sync_all(file) };
        let written = file.write_all(bytes).and_then(|()| synced(&file)).and_then(|()| {
            match rename_at(&self.hidden, new.as_str(), &place, name, RenameMode::Replace) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    // std removes without following links; the way to it is a descriptor of ours.
                    let old = Path::new("/proc/self/fd").join(place.as_raw_fd().to_string()).join(name);
                    std::fs::remove_dir_all(old)?;
                    rename_at(&self.hidden, new.as_str(), &place, name, RenameMode::Replace)
                }
                done => done,
            }
        });
        if written.is_err() {
            // The reason is told; a file that is left has a name that says what it is.
            let _ = unlink_at(&self.hidden, new.as_str());
        }
        written.and_then(|()| if self.syncs_at_end { Ok(()) } else { sync_names(&place) })
    }

    /// The bytes kept for a file; `None` if there are none.
    pub(super) fn get(&self, path: &RelPath) -> io::Result<Option<Vec<u8>>> {
        let (dirs, name) = parts(path);
        let dirs: Vec<&[u8]> = dirs.iter().map(|dir| dir.as_bytes()).collect();
        let opened = open_place_beneath(&self.sums, OsStr::from_bytes(&dirs.join(&b'/')), Follow::Yes)
            .and_then(|place| open_source_at(&place, name, Follow::No, false));
        let file = match opened {
            Ok(file) => file,
            Err(error) if is_no_directory(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = stat_fd(&file)?;
        if facts.kind != FileKind::Regular {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(file).take(STORED_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// What becomes of something else in a directory's place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stale {
    /// It was not made here: nothing of others is removed.
    Stays,
    /// It was kept for a file that is a directory by now.
    Goes,
}

/// Makes the names in a directory durable; some file systems on networks know no such thing for directories.
fn sync_names(dir: &OwnedFd) -> io::Result<()> {
    cache::sync_all(readable(dir)?).or_else(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    })
}

/// A directory that names were only resolved in, open in a way that syncs.
fn readable(dir: &OwnedFd) -> io::Result<OwnedFd> {
    open_dir_at(dir, ".", Follow::No)
}

/// Opens a directory, made if it is not there, and then with `syncs` made durable.
fn enter(dir: &OwnedFd, name: &OsStr, stale: Stale, syncs: bool) -> io::Result<OwnedFd> {
    match open_place_at(dir, name, Follow::No) {
        Err(error) if is_no_directory(&error) => {
            if error.kind() != io::ErrorKind::NotFound {
                if stale == Stale::Stays {
                    return Err(error);
                }
                unlink_at(dir, name)?;
            }
            match mkdir_at(dir, name, 0o755) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) if syncs => sync_names(dir)?,
                _ => {}
            }
            open_place_at(dir, name, Follow::No)
        }
        found => found,
    }
}

/// Nothing, or something else than a directory, stands there.
fn is_no_directory(error: &io::Error) -> bool {
    const ELOOP: i32 = 40;
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(ELOOP)
}

/// The directories of a path, and its name in the last.
fn parts(path: &RelPath) -> (Vec<&OsStr>, &OsStr) {
    let mut dirs: Vec<&OsStr> = path.parts().map(OsStr::from_bytes).collect();
    let name = dirs.pop().unwrap_or_default();
    (dirs, name)
}
