//! Digests in regular files: one file with the same name for each file, in the same directories
//! under one hidden directory.
//!
//! Every file system supports regular files, of any size. They can be listed, copied and striped
//! like all other files, unlike attributes. mutil stores its sums in files for the same reason.

use haul_log::stored::STORED_BYTES_MAX;
use haul_log::waybill::RelPath;
use haul_storage::local::remove_tree;
use haul_storage::{
    Dir, Draft, Durability, Follow, Inode, Missing, Name, Node, Remove, Stat, Writers, local,
};
use haul_sys::process;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Name of the hidden directory in the root; its contents are not hashed.
pub const HIDDEN: &str = haul_proto::STORED_SUMS;

/// Name of the directory in it that mirrors the root.
const SUMS: &str = "sums";

/// Mirrored hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    /// Open from before the first write: a sync of its device reports the errors of earlier
    /// write-backs only if no other process has seen them.
    root: Arc<dyn Dir>,
    hidden: Arc<dyn Dir>,
    sums: Arc<dyn Dir>,
    /// True if one call at the end syncs everything. Otherwise each file and each directory is
    /// synced.
    syncs_at_end: bool,
}

impl Tree {
    /// Opens the hierarchy of this root; creates it if it is missing.
    pub(super) fn make(root: &OsStr) -> io::Result<Tree> {
        let root = local::open(Path::new(root), Follow::Yes)?;
        let syncs_at_end = root.device().capabilities.syncs_as_a_whole;
        let facts = || root.stat();
        let hidden = enter(&*root, &name_of(HIDDEN.as_bytes())?, Stale::Stays, &facts, !syncs_at_end)?;
        let sums = enter(&*hidden, &name_of(SUMS.as_bytes())?, Stale::Stays, &facts, !syncs_at_end)?;
        Ok(Tree { root, hidden, sums, syncs_at_end })
    }

    /// Opens the hierarchy of this root if it exists. A link with its name is ignored.
    pub(super) fn find(root: &OsStr) -> io::Result<Option<Tree>> {
        let open = |dir: &dyn Dir, name: &str| match dir.dir(
            &name_of(name.as_bytes())?,
            Follow::No,
            Missing::Fail,
        ) {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_no_directory(&error) => Ok(None),
            Err(error) => Err(error),
        };
        let root = local::open(Path::new(root), Follow::Yes)?;
        let Some(hidden) = open(&*root, HIDDEN)? else { return Ok(None) };
        let syncs_at_end = root.device().capabilities.syncs_as_a_whole;
        Ok(open(&*hidden, SUMS)?.map(|sums| Tree { root, hidden, sums, syncs_at_end }))
    }

    /// Syncs everything that was stored, if that is done at the end.
    pub(super) fn sync(&self) -> io::Result<()> {
        if !self.syncs_at_end {
            return Ok(());
        }
        match self.root.sync_device() {
            // This user may read only the own directories.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.sums.sync_device(),
            synced => synced,
        }
    }

    /// Stores the bytes for a file atomically, so that there is never a part of them. Removes an
    /// existing entry of another type, which belongs to a file or directory whose type has changed.
    /// Only users who may read the file, whose metadata is `facts`, may read the bytes.
    pub(super) fn put(&self, path: &RelPath, facts: &Stat, bytes: &[u8]) -> io::Result<()> {
        let (above, name) = split(path)?;
        let place = match self.place(above.as_ref(), Follow::No) {
            Err(error) if is_no_directory(&error) => self.enter_all(path)?,
            place => place?,
        };
        let replace = || {
            // A temporary name in the mirrored directory could be that of another file.
            let mut draft = Draft::create(&*self.hidden, &name, Writers::Many, 0o600)?;
            share(&**draft.file(), facts, 0o644)?;
            draft.write_all(bytes)?;
            let durability = if self.syncs_at_end { Durability::None } else { Durability::DataAndName };
            draft.replace_in(&*place, &name, durability)
        };
        match replace() {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                remove_tree(&*place, &name)?;
                replace()
            }
            done => done,
        }
    }

    /// Opens the directory for the bytes of a file; creates the missing directories on its path.
    fn enter_all(&self, path: &RelPath) -> io::Result<Arc<dyn Dir>> {
        let mut place = Arc::clone(&self.sums);
        let parts: Vec<&[u8]> = path.parts().collect();
        for depth in 1..parts.len() {
            let beneath = RelPath::new(&parts[..depth].join(&b'/')).map_err(io::Error::other)?;
            let mirrored = || self.root.beneath(&beneath, Follow::Yes)?.stat();
            place = enter(&*place, &name_of(parts[depth - 1])?, Stale::Goes, &mirrored, !self.syncs_at_end)?;
        }
        Ok(place)
    }

    /// Removes the bytes stored for a file, if there are any.
    pub(super) fn remove(&self, path: &RelPath) -> io::Result<()> {
        let (above, name) = split(path)?;
        let removed = self.place(above.as_ref(), Follow::Yes).and_then(|place| {
            place.remove(&name, Remove::File)?;
            if self.syncs_at_end { Ok(()) } else { place.sync() }
        });
        removed.or_else(|error| if is_no_directory(&error) { Ok(()) } else { Err(error) })
    }

    /// Returns the directory with the bytes stored for the files of a directory.
    fn place(&self, above: Option<&RelPath>, links: Follow) -> io::Result<Arc<dyn Dir>> {
        above.map_or_else(|| Ok(Arc::clone(&self.sums)), |above| self.sums.beneath(above, links))
    }

    /// Returns the bytes stored for a file; `None` if there are none.
    pub(super) fn get(&self, path: &RelPath) -> io::Result<Option<Vec<u8>>> {
        let (above, name) = split(path)?;
        let place = self.place(above.as_ref(), Follow::Yes);
        let file = match place.and_then(|place| place.source(&name, Follow::No)) {
            Ok(file) => file,
            // Another entry than a regular file is an invalid input.
            Err(error) if is_no_directory(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; file.opened().size.min(STORED_BYTES_MAX as u64 + 1) as usize];
        let got = file.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        Ok(Some(bytes))
    }
}

/// Gives an own new entry, which only its owner may use, those bits of `most` that the entry
/// `facts` has, of whose digests it is a part. Bits of the group count only for the same group.
fn share(new: &(impl Inode + ?Sized), facts: &Stat, most: u32) -> io::Result<()> {
    let others = facts.mode & 0o007;
    let is_same_group = new.stat()?.gid == facts.gid;
    let group = if is_same_group { facts.mode & 0o070 } else { (others << 3) & facts.mode };
    let bits = most & (group | others) & !process::umask();
    if bits == 0 { Ok(()) } else { new.set_mode((most & 0o700) | bits) }
}

/// Handling of an existing entry that is not a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stale {
    /// Keep it: this module did not create it, and must not remove files of others.
    Stays,
    /// Remove it: it was stored for a file that is now a directory.
    Goes,
}

/// Opens a directory; creates it if it is missing, and then syncs its name if `syncs` is true.
/// `mirrored` returns the metadata of the directory that it mirrors.
fn enter(
    dir: &dyn Dir,
    name: &Name,
    stale: Stale,
    mirrored: &dyn Fn() -> io::Result<Stat>,
    syncs: bool,
) -> io::Result<Arc<dyn Dir>> {
    match dir.dir(name, Follow::No, Missing::Fail) {
        Err(error) if is_no_directory(&error) => {
            if error.kind() != io::ErrorKind::NotFound {
                if stale == Stale::Stays {
                    return Err(error);
                }
                dir.remove(name, Remove::File)?;
            }
            let is_new = match dir.make(name, &Node::Directory { mode: 0o700 }) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            let opened = dir.dir(name, Follow::No, Missing::Fail)?;
            if is_new {
                share(&*opened, &mirrored()?, 0o755)?;
                if syncs {
                    dir.sync()?;
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

/// Splits a path into its directory, if it has one, and its last component.
fn split(path: &RelPath) -> io::Result<(Option<RelPath>, Name)> {
    let path = path.as_bytes();
    match path.iter().rposition(|&byte| byte == b'/') {
        None => Ok((None, name_of(path)?)),
        Some(slash) => {
            let above = RelPath::new(&path[..slash]).map_err(io::Error::other)?;
            Ok((Some(above), name_of(&path[slash + 1..])?))
        }
    }
}

fn name_of(part: &[u8]) -> io::Result<Name> {
    Name::new(part).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}
