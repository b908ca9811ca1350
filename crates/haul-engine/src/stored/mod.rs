//! Digests stored with files: in extended attributes ([`attributes`]), or in regular files with the
//! same names under one hidden directory ([`tree`]). [`haul_log::stored`] defines the format.

mod attributes;
mod tree;

pub use tree::HIDDEN;

use crate::copy::quote;
use crate::sum::reason;
use crate::waybill::{Root, differ, moment};
use attributes::SetError;
use haul_digest::{Algorithm, Digest, ObjectTable};
use haul_log::stored::{Stored, StoredObjects, eos, xrootd};
use haul_log::waybill::RelPath;
use haul_storage::local::{OpenedFiles, source_descriptor};
use haul_storage::{Follow, Inode, SourceFile, Stat};
use parking_lot::Mutex;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::Arc;
use thiserror::Error;
use tree::Tree;

/// Location and format of stored digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Extended attributes in this project's format.
    Xattr,
    /// Regular files in this project's format, under [`HIDDEN`] in the root.
    Tree,
    /// Extended attributes in the format of XRootD.
    Xrootd,
    /// Extended attributes in the format of CERN's EOS.
    Eos,
}

/// Store for the digests of a job.
#[derive(Debug)]
pub struct Store {
    form: Form,
    /// Hierarchy that is written, if the digests go into files.
    tree: Option<Tree>,
    /// Lookup of the digests that an earlier job stored, in any form.
    earlier: Finder,
    /// True if new digests replace earlier ones of a file of the same size and time.
    accepts_changes: bool,
    files: OpenedFiles,
    /// One file for each device whose file system is synced as a whole at the end.
    unsynced: Mutex<Vec<Arc<dyn SourceFile>>>,
}

/// Data about one file whose digests are stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredFileInfo<'a> {
    /// Metadata before the first byte was read.
    pub facts: &'a Stat,
    /// Digests of the whole file.
    pub digests: &'a [Digest],
    /// Digests of its objects, if it has more than one.
    pub objects: Option<&'a ObjectTable>,
    /// Current time, in seconds since 1970.
    pub now: i64,
}

/// Reason why digests were not stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file cannot be opened again.
    #[error("cannot store the digests: {}", reason(.0))]
    Open(#[source] io::Error),
    /// The file is no longer the one that was hashed.
    #[error("cannot store the digests: the file changed since it was read; run the command again")]
    Changed,
    /// The digests that an earlier job stored cannot be read.
    #[error("cannot read the earlier stored digests: {}; no digests were stored", reason(.0))]
    Earlier(#[source] io::Error),
    /// The earlier stored digests are those of other bytes, at the same size and time. They stay in
    /// force.
    #[error(
        "rotted: the size and the time are those of the stored digests, and the digest is not; \
         the file keeps the earlier digests; to replace them, use --accept-changes"
    )]
    Rotted,
    /// The file system does not support user attributes.
    #[error(
        "cannot store the digests: this file system has no extended attributes; use --store=tree or --waybill"
    )]
    NoAttributes,
    /// The digests are too large.
    #[error(
        "cannot store the digests: {bytes} bytes exceed the limit of the file system for the attributes of a file (ext4: 4 KiB); \
         choose a larger --object-size, --store=tree or --waybill"
    )]
    NoRoom {
        /// Size of the digests, in bytes.
        bytes: usize,
    },
    /// An attribute cannot be set.
    #[error("cannot store the digests: {}; run as an owner with write permission, or use --store=tree", reason(.0))]
    Attribute(#[source] io::Error),
    /// A file in the hidden directory cannot be written.
    #[error("cannot store the digests in {HIDDEN}: {}", reason(.0))]
    Tree(#[source] io::Error),
    /// The digests were stored, but may not be durable.
    #[error("the stored digests may not survive a crash: {}; run the command again", reason(.0))]
    Sync(#[source] io::Error),
    /// The hidden directory cannot be created.
    #[error("cannot create {HIDDEN} in {}: {}; use --store=xattr or --waybill", quote(.0), reason(.1))]
    Hidden(OsString, #[source] io::Error),
}

/// Returns true if `name` is an extended attribute with stored digests. No sender may set them
/// unless the receiver permits it, because `verify` trusts them.
pub(crate) fn is_attribute(name: &[u8]) -> bool {
    attributes::PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

impl Form {
    /// All formats, with their names on the command line.
    pub const ALL: [(Form, &'static str); 4] =
        [(Form::Xattr, "xattr"), (Form::Tree, "tree"), (Form::Xrootd, "xrootd"), (Form::Eos, "eos")];

    /// Returns true if the format stores digests of objects.
    pub fn keeps_objects(self) -> bool {
        matches!(self, Form::Xattr | Form::Tree)
    }

    /// Returns true if the format can store this digest of a whole file.
    pub fn takes(self, algorithm: Algorithm) -> bool {
        match self {
            Form::Xattr | Form::Tree => true,
            Form::Xrootd => xrootd::name_of(algorithm).is_some(),
            Form::Eos => eos::name_of(algorithm).is_some(),
        }
    }
}

impl Store {
    /// Opens a store for the digests of files below `root`. With `accepts_changes`, new digests
    /// replace earlier ones of a file of the same size and time.
    ///
    /// # Errors
    /// Returns [`StoreError::Hidden`] if the hidden directory cannot be created, and
    /// [`StoreError::Earlier`] if an existing one cannot be opened.
    pub fn open(form: Form, root: &Root, accepts_changes: bool) -> Result<Store, StoreError> {
        let failed = |source| StoreError::Hidden(root.as_os_str().to_owned(), source);
        let earlier = Finder::new(root.as_os_str()).map_err(StoreError::Earlier)?;
        let tree = (form == Form::Tree).then(|| Tree::make(root.as_os_str()).map_err(failed)).transpose()?;
        let (files, unsynced) = Default::default();
        Ok(Store { form, tree, earlier, accepts_changes, files, unsynced })
    }

    /// Stores the digests of a file; `found` is the name that was opened, `path` the path below the
    /// root.
    ///
    /// The digests are durable after [`Store::close`] returns.
    ///
    /// # Errors
    /// Returns [`StoreError::Rotted`] if the file keeps earlier digests of other bytes. After
    /// another [`StoreError`] the file has neither new digests nor old ones that could be mistaken
    /// for new.
    pub fn put(&self, found: &OsStr, path: &RelPath, known: &StoredFileInfo<'_>) -> Result<(), StoreError> {
        let file = self.files.source_at(None, found, Follow::Yes).map_err(StoreError::Open)?;
        let now = *file.opened();
        let same = now.identity() == known.facts.identity() && now.size == known.facts.size;
        if !same || now.mtime != known.facts.mtime {
            return Err(StoreError::Changed);
        }
        let names = attributes::names(&*file).map_err(StoreError::Earlier)?;
        let is_first = names.is_empty() && !self.earlier.has_tree();
        let earlier = if is_first { None } else { self.find_earlier(&*file, &now, path)? };
        if earlier.is_some_and(|earlier| known.contradicts(&earlier)) {
            if !self.accepts_changes {
                return Err(StoreError::Rotted);
            }
            self.remove(&*file, &names, path)?;
        }
        let whole = |taken: SetError| match taken {
            SetError::NoAttributes => StoreError::NoAttributes,
            SetError::NoRoom { bytes } => StoreError::NoRoom { bytes },
            SetError::Other(source) => StoreError::Attribute(source),
        };
        match (self.form, &self.tree) {
            (Form::Tree, Some(tree)) => {
                return tree.put(path, &now, &known.stored().encode()).map_err(StoreError::Tree);
            }
            (Form::Xattr | Form::Tree, _) => attributes::set(&*file, &names, &known.stored().encode()),
            (Form::Xrootd, _) => attributes::set_xrootd(&*file, known),
            (Form::Eos, _) => attributes::set_eos(&*file, known),
        }
        .map_err(whole)?;
        self.note(file)
    }

    /// Returns the digests that `verify` uses for a file. Damaged ones do not count.
    fn find_earlier(
        &self,
        file: &dyn Inode,
        facts: &Stat,
        path: &RelPath,
    ) -> Result<Option<Stored>, StoreError> {
        match self.earlier.find(file, facts, path) {
            Ok(found) => Ok(found),
            Err(FindError::Flawed(_)) => Ok(None),
            Err(FindError::Read { source, .. }) => Err(StoreError::Earlier(source)),
        }
    }

    /// Removes the earlier digests of a file in the forms that could take precedence over new ones.
    fn remove(&self, file: &dyn Inode, names: &[CString], path: &RelPath) -> Result<(), StoreError> {
        attributes::remove(file, names).map_err(StoreError::Attribute)?;
        self.earlier.tree.as_ref().map_or(Ok(()), |tree| tree.remove(path)).map_err(StoreError::Tree)
    }

    /// Records the file system of a file with new attributes. If that file system cannot be synced
    /// as a whole, syncs the file instead.
    fn note(&self, file: Arc<dyn SourceFile>) -> Result<(), StoreError> {
        let device = file.device();
        if !device.capabilities.syncs_as_a_whole {
            // No trait syncs the attributes of a file that is only read.
            let own = source_descriptor(&*file).map_or(Err(io::ErrorKind::Unsupported.into()), |file| {
                file.try_clone_to_owned().map(File::from)
            });
            return own.and_then(|file| file.sync_all()).map_err(StoreError::Sync);
        }
        let mut unsynced = self.unsynced.lock();
        if !unsynced.iter().any(|known| known.device().id == device.id) {
            unsynced.push(Arc::clone(&file));
        }
        Ok(())
    }

    /// Syncs everything that was stored, with one call for each file system instead of one for each
    /// file.
    ///
    /// # Errors
    /// Returns [`StoreError::Sync`] if a sync fails.
    pub fn close(self) -> Result<(), StoreError> {
        let removed_from = self.earlier.tree.as_ref().filter(|_| self.accepts_changes);
        if let Some(tree) = self.tree.as_ref().or(removed_from) {
            tree.sync().map_err(StoreError::Sync)?;
        }
        let unsynced = self.unsynced.into_inner();
        unsynced.iter().try_for_each(|file| file.sync_device()).map_err(StoreError::Sync)
    }
}

impl StoredFileInfo<'_> {
    /// Returns true if the earlier digests are those of other bytes, at the same size and
    /// modification time.
    fn contradicts(&self, earlier: &Stored) -> bool {
        let is_same = (earlier.size, earlier.mtime) == (self.facts.size, moment(self.facts));
        is_same && differ(&earlier.digests, self.digests)
    }

    fn stored(&self) -> Stored {
        let objects = self.objects.filter(|objects| objects.len() > 1).map(|objects| StoredObjects {
            size: objects.size(),
            digests: objects.iter().map(|(_, digest)| digest).collect(),
        });
        let (size, mtime) = (self.facts.size, moment(self.facts));
        Stored { size, mtime, digests: self.digests.to_vec(), objects }
    }
}

/// Reason why the digests stored with a file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum FindError {
    /// They cannot be read.
    #[error("cannot read the stored {what}: {}", reason(source))]
    Read {
        /// Kind of the stored values.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// They are damaged, or of an unsupported form.
    #[error("{0}")]
    Flawed(String),
}

/// Lookup of the digests stored with files below a root.
#[derive(Debug)]
pub(crate) struct Finder {
    tree: Option<Tree>,
}

impl Finder {
    /// Opens the hidden directory of `root`, if it exists.
    ///
    /// # Errors
    /// Returns an error if the hidden directory exists and cannot be opened.
    pub(crate) fn new(root: &OsStr) -> io::Result<Finder> {
        Ok(Finder { tree: Tree::find(root)? })
    }

    /// Returns the digests stored with an open file, or `None` if there are none.
    ///
    /// This project's formats take precedence. If both exist, the one with the file's current
    /// modification time counts, else the later one. A damaged one is ignored if the other has the
    /// file's current modification time.
    ///
    /// # Errors
    /// Returns a [`FindError`] if the digests cannot be used.
    pub(crate) fn find(
        &self,
        file: &dyn Inode,
        facts: &Stat,
        path: &RelPath,
    ) -> Result<Option<Stored>, FindError> {
        let unread = |source| FindError::Read { what: "digests", source };
        let mut all = Vec::new();
        all.extend(attributes::get(file).map_err(unread)?);
        if let Some(tree) = &self.tree {
            all.extend(tree.get(path).map_err(unread)?);
        }
        let is_of_now = |stored: &Stored| stored.mtime == moment(facts);
        let (mut best, mut flawed): (Option<Stored>, Option<String>) = (None, None);
        for bytes in all {
            let stored = match Stored::decode(&bytes) {
                Ok(stored) => stored,
                Err(flaw) => {
                    flawed.get_or_insert_with(|| format!("stored digests: {flaw}"));
                    continue;
                }
            };
            let is_later = |best: &Stored| !is_of_now(best) && best.mtime < stored.mtime;
            if is_of_now(&stored) || best.as_ref().is_none_or(is_later) {
                best = Some(stored);
            }
        }
        match (best, flawed) {
            (Some(best), None) => Ok(Some(best)),
            (Some(best), Some(_)) if is_of_now(&best) => Ok(Some(best)),
            (_, Some(flaw)) => Err(FindError::Flawed(flaw)),
            (None, None) => attributes::get_foreign(file, facts),
        }
    }

    /// Returns true if the root has a hidden directory with stored files.
    pub(crate) fn has_tree(&self) -> bool {
        self.tree.is_some()
    }
}
