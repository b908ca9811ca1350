//! Digests in regular files: one file with the same name for each file, in the same directories
//! under one hidden directory.
//!
//! Every file system supports regular files, of any size. They can be listed, copied and striped
//! like all other files, unlike attributes. mutil stores its sums in files for the same reason.

use haul_log::stored::STORED_BYTES_MAX;
use haul_log::waybill::RelPath;
use haul_storage::{Draft, Durability, Writers, sync_names};
use haul_sys::beneath::{open_place_beneath, open_root};
use haul_sys::dir::{open_dir_at, open_place_at};
use haul_sys::filesystem::FileSystem;
use haul_sys::metadata::set_mode_fd;
use haul_sys::open::{mkdir_at, open_source_at, unlink_at};
use haul_sys::stat::stat_fd;
use haul_sys::{FileKind, Follow, Stat, cache, process};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the hidden directory in the root; its contents are not hashed.
pub const HIDDEN: &str = haul_proto::STORED_SUMS;

/// Name of the directory in it that mirrors the root.
const SUMS: &str = "sums";

/// Mirrored hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    hidden: OwnedFd,
    sums: OwnedFd,
    /// The file system, if one call at the end syncs everything. It was opened before the first
    /// write: the call reports the errors of earlier write-back only if no other process has seen
    /// them. Otherwise each file and each directory is synced.
    synced_at_end: Option<OwnedFd>,
}

impl Tree {
    /// Opens the hierarchy of this root; creates it if it is missing.
    pub(super) fn make(root: &OsStr) -> io::Result<Tree> {
        let root = open_root(root)?;
        let syncs_at_end = FileSystem::of(&root).syncs_as_a_whole();
        let opened = syncs_at_end.then(|| readable(&root));
        let facts = || stat_fd(&root);
        let hidden = enter(&root, OsStr::new(HIDDEN), Stale::Stays, &facts, !syncs_at_end)?;
        let sums = enter(&hidden, OsStr::new(SUMS), Stale::Stays, &facts, !syncs_at_end)?;
        // A user may be allowed to read only the own directories.
        let opened = opened.map(|opened| opened.or_else(|_| readable(&sums)));
        let synced_at_end = opened.transpose()?;
        Ok(Tree { root, hidden, sums, synced_at_end })
    }

    /// Opens the hierarchy of this root if it exists. A link with its name is ignored.
    pub(super) fn find(root: &OsStr) -> io::Result<Option<Tree>> {
        let open = |dir: &OwnedFd, name| match open_place_at(dir, name, Follow::No) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_no_directory(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let root = open_root(root)?;
        let Some(hidden) = open(&root, HIDDEN)? else { return Ok(None) };
        let sums = open(&hidden, SUMS)?;
        let readable_sums = sums.as_ref().filter(|_| FileSystem::of(&root).syncs_as_a_whole()).map(readable);
        let synced_at_end = readable_sums.and_then(Result::ok);
        Ok(sums.map(|sums| Tree { root, hidden, sums, synced_at_end }))
    }

    /// Syncs everything that was stored, if that is done at the end.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.synced_at_end.as_ref().map_or(Ok(()), cache::sync_filesystem)
    }

    /// Stores the bytes for a file atomically, so that there is never a part of them. Removes an
    /// existing entry of another type, which belongs to a file or directory whose type has changed.
    /// Only users who may read the file, whose metadata is `facts`, may read the bytes.
    pub(super) fn put(&self, path: &RelPath, facts: &Stat, bytes: &[u8]) -> io::Result<()> {
        let (dirs, name) = parts(path);
        let syncs_at_end = self.synced_at_end.is_some();
        let mut place = open_place_at(&self.sums, ".", Follow::No)?;
        let mut beneath = Vec::new();
        for dir in dirs {
            beneath.extend_from_slice(dir.as_bytes());
            let mirrored =
                || stat_fd(&open_place_beneath(&self.root, OsStr::from_bytes(&beneath), Follow::Yes)?);
            place = enter(&place, dir, Stale::Goes, &mirrored, !syncs_at_end)?;
            beneath.push(b'/');
        }
        let replace = || {
            // A temporary name in the mirrored directory could be that of another file.
            let mut draft = Draft::create(self.hidden.as_fd(), name, Writers::Many, 0o600)?;
            share(draft.file(), facts, 0o644)?;
            draft.write_all(bytes)?;
            let durability = if syncs_at_end { Durability::None } else { Durability::DataAndName };
            draft.replace_in(&place, name, durability)
        };
        match replace() {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                // The standard library removes the tree without following links, and the path
                // starts at an open descriptor.
                let old = Path::new("/proc/self/fd").join(place.as_raw_fd().to_string()).join(name);
                std::fs::remove_dir_all(old)?;
                replace()
            }
            done => done,
        }
    }

    /// Removes the bytes stored for a file, if there are any.
    pub(super) fn remove(&self, path: &RelPath) -> io::Result<()> {
        let (place, name) = self.place(path);
        let removed = place.and_then(|place| {
            unlink_at(&place, name)?;
            if self.synced_at_end.is_some() { Ok(()) } else { sync_names(&place) }
        });
        removed.or_else(|error| if is_no_directory(&error) { Ok(()) } else { Err(error) })
    }

    /// Returns the directory with the bytes stored for a file, and their name in it.
    fn place<'a>(&self, path: &'a RelPath) -> (io::Result<OwnedFd>, &'a OsStr) {
        let (dirs, name) = parts(path);
        let dirs: Vec<&[u8]> = dirs.iter().map(|dir| dir.as_bytes()).collect();
        (open_place_beneath(&self.sums, OsStr::from_bytes(&dirs.join(&b'/')), Follow::Yes), name)
    }

    /// Returns the bytes stored for a file; `None` if there are none.
    pub(super) fn get(&self, path: &RelPath) -> io::Result<Option<Vec<u8>>> {
        let (place, name) = self.place(path);
        let opened = place.and_then(|place| open_source_at(&place, name, Follow::No, false));
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

/// Gives an own new entry, which only its owner may use, those bits of `most` that the entry
/// `facts` has, of whose digests it is a part. Bits of the group count only for the same group.
fn share(new: impl AsFd, facts: &Stat, most: u32) -> io::Result<()> {
    let others = facts.mode & 0o007;
    let is_same_group = stat_fd(&new)?.gid == facts.gid;
    let group = if is_same_group { facts.mode & 0o070 } else { (others << 3) & facts.mode };
    let bits = most & (group | others) & !process::umask();
    if bits == 0 { Ok(()) } else { set_mode_fd(new, (most & 0o700) | bits) }
}

/// Handling of an existing entry that is not a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stale {
    /// Keep it: this module did not create it, and must not remove files of others.
    Stays,
    /// Remove it: it was stored for a file that is now a directory.
    Goes,
}

/// Opens a directory again for syncing; the original descriptor only resolves names.
fn readable(dir: &OwnedFd) -> io::Result<OwnedFd> {
    open_dir_at(dir, ".", Follow::No)
}

/// Opens a directory; creates it if it is missing, and then syncs its name if `syncs` is true.
/// `mirrored` returns the metadata of the directory that it mirrors.
fn enter(
    dir: &OwnedFd,
    name: &OsStr,
    stale: Stale,
    mirrored: &dyn Fn() -> io::Result<Stat>,
    syncs: bool,
) -> io::Result<OwnedFd> {
    match open_place_at(dir, name, Follow::No) {
        Err(error) if is_no_directory(&error) => {
            if error.kind() != io::ErrorKind::NotFound {
                if stale == Stale::Stays {
                    return Err(error);
                }
                unlink_at(dir, name)?;
            }
            let is_new = match mkdir_at(dir, name, 0o700) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            let opened = open_place_at(dir, name, Follow::No)?;
            if is_new {
                share(&opened, &mirrored()?, 0o755)?;
                if syncs {
                    sync_names(dir)?;
                }
            }
            Ok(opened)
        }
        found => found,
    }
}

/// Returns true if the name does not exist or is not a directory.
fn is_no_directory(error: &io::Error) -> bool {
    const ELOOP: i32 = 40;
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(ELOOP)
}

/// Splits a path into its directories and its last component.
fn parts(path: &RelPath) -> (Vec<&OsStr>, &OsStr) {
    let mut dirs: Vec<&OsStr> = path.parts().map(OsStr::from_bytes).collect();
    let name = dirs.pop().unwrap_or_default();
    (dirs, name)
}
