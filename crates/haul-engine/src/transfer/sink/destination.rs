//! Root directory of a sink, with the limits of what may be written beneath it.

use super::dirs::SinkDirs;
use super::expected::Expected;
use super::policy::SinkPolicy;
use crate::transfer::jobs::Offer;
use crate::transfer::parts::Parts;
use crate::transfer::source::Filter;
use haul_model::RelPath;
use haul_proto::{Keep, NewFile};
use haul_storage::local::LocalStorage;
use haul_storage::{Follow, Stat, Storage};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Root directory of a sink, and the limits of what may be written beneath it.
#[derive(Debug)]
pub(in crate::transfer) struct Destination {
    pub(super) dirs: SinkDirs,
    /// Number of levels that the directory is below the root of the offer.
    pub(super) depth: usize,
    /// Entries and metadata that this side accepts.
    pub(super) policy: SinkPolicy,
    pub(super) session: u64,
    /// Maximum number of bytes that may be written; `None` for no limit.
    pub(super) quota: Option<u64>,
    pub(super) expected: Expected,
    /// True if the source may not learn what existing files contain, apart from whole objects of at
    /// least 64 KiB, and whole smaller files.
    pub(super) is_hidden: bool,
    /// Accepted parts of the accepted files; `None` to accept everything.
    pub(super) parts: Option<Arc<Parts>>,
    /// Existing files with several names that an incoming file was compared with, by device and
    /// inode.
    compared: Mutex<HashSet<(u64, u64)>>,
    /// Files of this session to which a hard link may lead.
    linkable: Mutex<HashSet<FileIdentity>>,
}

/// Maximum number of files with several names that a session remembers: 8,388,608, for which each
/// set takes less than 500 MB.
const LINKED_FILES_MAX: usize = 1 << 23;

/// Device, inode and birth time of a file: another file that gets its inode later is born later.
type FileIdentity = ((u64, u64), Option<(i64, u32)>);

fn identity(file: &Stat) -> FileIdentity {
    (file.identity(), file.btime.map(|born| (born.sec, born.nsec)))
}

impl Destination {
    /// Opens the directory `into` beneath the root of the offer. Creates it if it is missing,
    /// except in a `dry_run`.
    ///
    /// # Errors
    /// Returns an error if the root cannot be opened, or the directory can be neither opened nor
    /// created.
    pub(in crate::transfer) fn open_or_create(
        offer: &Offer,
        into: &[u8],
        dry_run: bool,
        session: u64,
    ) -> io::Result<Destination> {
        let root = readable_root(&*offer.storage, &offer.root)?;
        match Destination::beneath(root, into, !dry_run, session, offer.quota) {
            Err(error) if dry_run && error.kind() == io::ErrorKind::NotFound => {
                Ok(Destination::absent(session, offer.quota))
            }
            opened => opened,
        }
    }

    /// Returns true if no other incoming file was compared with the existing file `existing`. A
    /// file with several names can equal only one file of the source. If it matched two, it would
    /// get the metadata of the last one.
    pub(super) fn may_compare(&self, existing: &Stat) -> bool {
        let mut compared = self.compared.lock();
        existing.nlink < 2 || (compared.len() < LINKED_FILES_MAX && compared.insert(existing.identity()))
    }

    /// Allows hard links to the file of `facts`, which this session has written or found to be the
    /// same, if the source announced further names. `file` returns its metadata.
    pub(super) fn allow_links_to(&self, facts: &NewFile, file: impl FnOnce() -> Option<Stat>) {
        let Some(file) = Some(facts).filter(|facts| facts.is_linked).and_then(|_| file()) else { return };
        let mut linkable = self.linkable.lock();
        if linkable.len() < LINKED_FILES_MAX {
            linkable.insert(identity(&file));
        }
    }

    /// Returns true if a hard link may lead to this file.
    pub(super) fn may_link_to(&self, file: &Stat) -> bool {
        self.linkable.lock().contains(&identity(file))
    }

    /// Returns the destination for a directory that does not exist and is not created: it is empty.
    pub(in crate::transfer) fn absent(session: u64, quota: Option<u64>) -> Destination {
        Destination::of(SinkDirs::absent(), 0, session, quota)
    }

    /// Opens the directory `into` beneath the root `root`.
    ///
    /// # Errors
    /// Returns an error if either cannot be opened.
    pub(in crate::transfer) fn open(
        root: &OsStr,
        into: &[u8],
        session: u64,
        quota: Option<u64>,
    ) -> io::Result<Destination> {
        let root = readable_root(&LocalStorage, root)?;
        Destination::beneath(root, into, false, session, quota)
    }

    fn beneath(
        root: SinkDirs,
        into: &[u8],
        creates: bool,
        session: u64,
        quota: Option<u64>,
    ) -> io::Result<Destination> {
        let path = match RelPath::clean(into) {
            Ok(path) => path,
            Err(haul_model::PathError::Empty) => return Ok(Destination::of(root, 0, session, quota)),
            Err(fault) => return Err(io::Error::new(io::ErrorKind::InvalidInput, fault)),
        };
        // No metadata of the directories in `into` arrives.
        let root = root.with_modes_sent(false);
        let dirs = root.beneath(path.as_bytes(), creates)?;
        Ok(Destination::of(dirs, path.parts().count(), session, quota))
    }

    fn of(dirs: SinkDirs, depth: usize, session: u64, quota: Option<u64>) -> Destination {
        Destination {
            dirs,
            depth,
            policy: SinkPolicy::default(),
            session,
            quota,
            expected: Expected::anything(),
            is_hidden: false,
            parts: None,
            compared: Mutex::default(),
            linkable: Mutex::default(),
        }
    }

    /// Returns the free space, or what the quota leaves of it, in bytes. Returns `None` if neither
    /// is known.
    pub(in crate::transfer) fn space(&self) -> Option<u64> {
        let free = self.dirs.root().ok().and_then(|root| root.space().ok()?.free);
        [free, self.quota].into_iter().flatten().min()
    }

    /// Restricts the destination to the names that these requested paths create, as far as `filter`
    /// includes them.
    pub(in crate::transfer) fn restrict_to_paths(self, paths: &[Vec<u8>], filter: Filter) -> Destination {
        Destination { expected: Expected::of(paths, filter), ..self }
    }

    /// Hides the contents of existing files from a source without the right to read, if `is_hidden`
    /// is set.
    pub(in crate::transfer) fn hidden(self, is_hidden: bool) -> Destination {
        Destination { is_hidden, ..self }
    }

    /// Creates directories for a job that preserves `keep`.
    pub(in crate::transfer) fn keeping(self, keep: Keep) -> Destination {
        Destination { dirs: self.dirs.with_modes_sent(keep.has(Keep::MODE)), ..self }
    }

    /// Sets the policy of this side.
    pub(in crate::transfer) fn accepting(self, policy: SinkPolicy) -> Destination {
        Destination { policy, ..self }
    }

    /// Restricts the destination to these parts.
    pub(in crate::transfer) fn restrict_to_parts(self, parts: Option<Arc<Parts>>) -> Destination {
        Destination { parts, ..self }
    }
}

/// Opens the root of a sink. One that cannot be read could not be synced at the end.
fn readable_root(storage: &dyn Storage, root: &OsStr) -> io::Result<SinkDirs> {
    let root = storage.open(Path::new(root), Follow::Yes)?;
    root.list()?;
    Ok(SinkDirs::new(root))
}
