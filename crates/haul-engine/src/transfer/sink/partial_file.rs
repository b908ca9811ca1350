//! A regular file being received: it has a temporary name next to its target until every byte is
//! present and verified.

use super::dirs::EntryAt;
use crate::transfer::reason::reason;
use haul_log::objects::FileKey;
use haul_proto::Reason;
use haul_storage::{Create, Dir, FileKind, Follow, Missing, Name, Replace, SinkFile, Stat, SyncWhat, Tag};
use haul_sys::process;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Mode of an incomplete file: no other user may read it.
const TEMPORARY_MODE: u32 = 0o600;

/// Minimum size, in bytes, of a file whose space is reserved before it is written. For a smaller
/// file the calls cost more than they save.
const RESERVE_BYTES_MIN: u64 = 1 << 20;

/// Text of a failed sync.
pub(super) const SYNC_FAILED: &str = "cannot sync";

/// An open file that any number of workers fill.
#[derive(Debug)]
pub(super) struct PartialFile {
    pub(super) file: Arc<dyn SinkFile>,
    /// Directory of the file.
    pub(super) dir: Arc<dyn Dir>,
    /// Name of the file until it is complete; `None` if the file is written in place.
    pub(super) temporary: Option<Name>,
    /// True once the file was abandoned, also if its temporary name could not be removed.
    is_abandoned: AtomicBool,
    /// Key of the file in the object log, once it is logged.
    pub(super) logged: OnceLock<FileKey>,
}

impl PartialFile {
    /// Creates a file under the temporary name of `tag`, which will become the entry `at`. Reserves
    /// `room` bytes for it.
    ///
    /// # Errors
    /// Returns the error of the failed call. For a larger file, returns `IsADirectory` before any
    /// data is transferred if a directory has the final name. For a smaller one, the commit fails
    /// instead.
    pub(super) fn create_temporary(at: &EntryAt, tag: Tag, room: u64) -> io::Result<PartialFile> {
        let is_directory = |found: Stat| found.kind == FileKind::Directory;
        if room >= RESERVE_BYTES_MIN && at.dir.stat_at(&at.name, Follow::No).is_ok_and(is_directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = at.dir.sink(&at.name, Create::Temporary(tag))?;
        let partial_file = PartialFile::new(file, at, Some(tag));
        partial_file.reserve(room).inspect_err(|_| partial_file.abandon())?;
        Ok(partial_file)
    }

    fn new(file: Arc<dyn SinkFile>, at: &EntryAt, tag: Option<Tag>) -> PartialFile {
        PartialFile {
            file,
            dir: Arc::clone(&at.dir),
            temporary: tag.map(|tag| tag.name()),
            is_abandoned: AtomicBool::new(false),
            logged: OnceLock::new(),
        }
    }

    /// Opens the file that an earlier run left under the temporary name of `tag`. Truncates it if
    /// it is longer than `len` bytes, the final length. Returns it with its metadata as found, or
    /// `None` if there is no usable file. An unusable one is removed.
    ///
    /// # Errors
    /// Returns the error of the failed call.
    pub(super) fn reopen_temporary(
        at: &EntryAt,
        tag: Tag,
        len: u64,
        room: u64,
    ) -> io::Result<Option<(PartialFile, Stat)>> {
        let file = match at.dir.sink(&at.name, Create::Resume(tag)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let found = file.stat()?;
        if found.size > len {
            file.set_len(len)?;
        }
        let partial_file = PartialFile::new(file, at, Some(tag));
        partial_file.reserve(room)?;
        Ok(Some((partial_file, found)))
    }

    /// Opens the entry `at` for overwriting, or creates it, with `room` bytes reserved. The file
    /// will be `len` bytes long.
    ///
    /// Returns `None` if the existing entry must not be overwritten: it is not a regular file, or
    /// it has several names, each of which can be another file at the source. The new file then
    /// replaces the name, as without `--inplace`.
    ///
    /// The file is locked until it is closed, so that two jobs do not mix their bytes in it. A
    /// storage without locks is used without.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another job writes the file, and the error of the
    /// failed call otherwise.
    pub(super) fn in_place(at: &EntryAt, len: u64, room: u64) -> io::Result<Option<PartialFile>> {
        let may_be_opened = |found: &Stat| found.kind == FileKind::Regular && found.nlink == 1;
        if at.dir.stat_at(&at.name, Follow::No).is_ok_and(|found| !may_be_opened(&found)) {
            return Ok(None);
        }
        let missing = Missing::Create { mode: TEMPORARY_MODE };
        let file = at.dir.sink(&at.name, Create::InPlace { missing, follow: Follow::No })?;
        file.lock()?;
        let now = file.stat()?;
        if !may_be_opened(&now) {
            return Ok(None);
        }
        if now.size > len {
            file.set_len(len)?;
        }
        let partial_file = PartialFile::new(file, at, None);
        partial_file.reserve(room)?;
        Ok(Some(partial_file))
    }

    /// Detects a full device before the data is transferred.
    fn reserve(&self, room: u64) -> io::Result<()> {
        if room < RESERVE_BYTES_MIN { Ok(()) } else { self.file.reserve(room) }
    }

    /// Returns true if only this user can have written to a file with this metadata: this user owns
    /// it, and its mode admits no other user.
    pub(super) fn is_private(found: &Stat) -> bool {
        PartialFile::is_owned(found) && found.mode & 0o777 == TEMPORARY_MODE
    }

    /// Returns true if this user owns a file with this metadata: no other user can have created it.
    pub(super) fn is_owned(found: &Stat) -> bool {
        found.uid == process::effective_user()
    }

    /// Takes back a file that had its owner and permissions already when its run was killed, or
    /// when a power failure lost its rename.
    ///
    /// # Errors
    /// Returns the errors of fchown(2) and fchmod(2).
    pub(super) fn make_private(&self) -> io::Result<()> {
        self.file.set_owner(Some(process::effective_user()), Some(process::effective_group()))?;
        self.file.set_mode(TEMPORARY_MODE)
    }

    /// Extends the file to at least `len` bytes. `len` must not exceed the final length, because
    /// nothing is written beyond that.
    ///
    /// # Errors
    /// Returns the errors of ftruncate(2).
    pub(super) fn grow_to(&self, len: u64) -> io::Result<()> {
        if self.file.stat()?.size < len { self.file.set_len(len) } else { Ok(()) }
    }

    /// Syncs the bytes of the file for the object log if `syncs` is true, after any other sync of
    /// it. Returns false if the log needs the file no longer.
    ///
    /// # Errors
    /// Returns the error of the first failed sync.
    pub(super) fn sync_for_log(&self, syncs: bool) -> io::Result<bool> {
        if self.has_ended() {
            return Ok(false);
        }
        let synced =
            if syncs { self.file.sync(SyncWhat::Data) } else { self.file.failure().map_or(Ok(()), Err) };
        match synced {
            // It got its name meanwhile: what it had to reach was reached before.
            Err(_) if self.file.is_committed() => Ok(false),
            synced => synced.map(|()| true),
        }
    }

    /// Returns true if the file has its final name or was abandoned: no later run resumes from it.
    pub(super) fn has_ended(&self) -> bool {
        self.file.is_committed() || self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Returns true if a later run can resume from the file: it has its temporary name, and its
    /// data can be trusted. If a sync failed, only objects in the log can.
    pub(super) fn may_be_kept(&self) -> bool {
        !self.has_ended() && (self.logged.get().is_some() || self.file.failure().is_none())
    }

    /// Gives the file its final name, after any sync of it. Replaces an existing file with that
    /// name.
    ///
    /// # Errors
    /// Same as [`SinkFile::commit`]. The file then keeps its temporary name.
    pub(super) fn commit(&self) -> Result<(), Reason> {
        self.file.commit(Replace::Yes).map_err(|error| match self.file.failure() {
            Some(failure) => reason(SYNC_FAILED, &failure),
            None => reason("cannot rename to the final name", &error),
        })
    }

    /// Removes the received data. A file that is written in place stays.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        // Ignore an error: the caller reports the failure that led here.
        let _ = self.file.abandon();
    }
}
