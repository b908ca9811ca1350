//! State of a file at the source, from its announcement to its end.

use super::tree::Item;
use crate::readahead::{self, ReadaheadCursor};
use crate::transfer::hashing::RootHash;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object};
use haul_proto::{NewFile, Reason, Why};
use haul_sys::{Contents, FileKind, Follow, Stat, Timespec, open, stat};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of bytes after the current object to read ahead. Covers several objects of the usual
/// size, so that the device has work for any number of lanes.
const AHEAD_BYTES: u64 = readahead::BYTES_MAX / 2;

/// State of an announced file.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) item: Item,
    /// Bytes of a file that reports no certain length: they are read before it is announced.
    held: Option<HeldBytes>,
    /// Announced kind, if a waybill is written.
    pub(super) kind: Mutex<Option<haul_proto::FileKind>>,
    /// The directory that ends after this file.
    pub(super) parent: Option<u64>,
    file: Mutex<Option<Arc<OwnedFd>>>,
    /// Metadata of the file when it was first opened.
    opened: OnceLock<Stat>,
    front: ReadaheadCursor,
    /// Search for holes, decided when the first object is sent.
    pub(super) holes: OnceLock<HoleSearch>,
    /// Digests of the whole file, over the bytes sent so far.
    pub(super) root: Mutex<RootHash>,
    /// Digest that both sides computed, if it ended the transfer of the file.
    pub(super) same: Mutex<Option<Digest>>,
    /// Number of bytes of the file added to the progress total.
    pub(super) found: AtomicU64,
    /// Number of bytes counted as done, and the level at which they were counted.
    pub(super) counted: Mutex<(u64, Option<Level>)>,
}

/// Maximum number of bytes of one file that a source holds in memory.
pub(super) const HELD_BYTES_MAX: usize = 16 << 20;

/// Bytes of a file in memory, counted in a total until they are dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    pub(super) bytes: Vec<u8>,
    total: Arc<AtomicUsize>,
}

impl HeldBytes {
    pub(super) fn new(bytes: Vec<u8>, total: &Arc<AtomicUsize>) -> HeldBytes {
        total.fetch_add(bytes.len(), Ordering::Relaxed);
        HeldBytes { bytes, total: Arc::clone(total) }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Method of finding the holes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoleSearch {
    /// None: every byte is sent.
    No,
    /// SEEK_DATA reports the holes.
    Seek,
    /// Every byte is read. In the holes that SEEK_DATA reports, blocks of zeros are sent as holes.
    Read,
}

impl SourceFile {
    /// Creates the state of a file that was not read yet, except for `held`.
    pub(super) fn new(
        item: Item,
        held: Option<HeldBytes>,
        kind: Option<haul_proto::FileKind>,
        parent: Option<u64>,
        root: RootHash,
    ) -> SourceFile {
        SourceFile {
            item,
            held,
            kind: Mutex::new(kind),
            parent,
            file: Mutex::default(),
            opened: OnceLock::new(),
            front: ReadaheadCursor::default(),
            holes: OnceLock::new(),
            root: Mutex::new(root),
            same: Mutex::default(),
            found: AtomicU64::new(0),
            counted: Mutex::default(),
        }
    }

    /// Sets how the file is sent. An additional hard link is sent as a file if the first name
    /// failed or the update rule left it. `root` creates the digests for a whole file of the new
    /// size. Returns the number of bytes not yet in the progress total.
    pub(super) fn set_sent_kind(&self, facts: &NewFile, root: impl FnOnce(u64) -> RootHash) -> u64 {
        let mut own = self.root.lock();
        if own.geometry().len() != facts.size() {
            *own = root(facts.size());
        }
        drop(own);
        let mut kind = self.kind.lock();
        if let Some(kind) = kind.as_mut().filter(|kind| **kind != facts.kind) {
            *kind = facts.kind.clone();
        }
        facts.size().saturating_sub(self.found.fetch_max(facts.size(), Ordering::Relaxed))
    }

    /// Opens the file. Returns the same descriptor to all callers until [`SourceFile::close`].
    ///
    /// # Errors
    /// Returns [`Why::Changed`] if the file changed or another file has its name, and otherwise the
    /// error of the system call.
    pub(super) fn open(&self) -> Result<Arc<OwnedFd>, Reason> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        if let Some(held) = &self.held {
            let opened =
                open::create_in_memory(&held.bytes).map_err(|error| reason("cannot open", &error))?;
            return Ok(Arc::clone(file.insert(Arc::new(opened))));
        }
        let opened = open::open_entry_at(&self.item.place, self.item.name.as_c_str())
            .map_err(|error| reason("cannot open", &error))?;
        let now = stat::stat_fd(&opened).map_err(|error| reason("cannot stat", &error))?;
        if now.kind != FileKind::Regular || now.identity() != self.item.facts.identity() {
            return Err(Reason::new(Why::Changed, "another file has this name now"));
        }
        if now.contents_since(&self.item.facts) == Contents::Changed {
            return Err(Why::Changed.into());
        }
        self.opened.get_or_init(|| now);
        let opened = Arc::new(opened);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Starts reading ahead the data after an object that is about to be read.
    pub(super) fn read_ahead(&self, file: &OwnedFd, object: Object) {
        let facts = &self.item.facts;
        if let Some(range) = self.front.next(object.range, facts.size, AHEAD_BYTES)
            && readahead::suits(file, facts.is_sparse())
        {
            readahead::ask(file, range);
        }
    }

    /// Closes the descriptor.
    pub(super) fn close(&self) {
        *self.file.lock() = None;
    }

    /// Checks the file again. Returns its metadata if size and modification time are still as
    /// announced.
    ///
    /// # Errors
    /// Returns [`Why::Changed`] if the file changed, and otherwise the error of fstat(2).
    pub(super) fn check_unchanged(&self, file: &OwnedFd) -> Result<Stat, Reason> {
        if self.held.is_some() {
            return Ok(self.item.facts);
        }
        let now = stat::stat_fd(file).map_err(|error| reason("cannot stat", &error))?;
        match now.contents_since(&self.item.facts) {
            Contents::Changed => Err(Why::Changed.into()),
            Contents::Unchanged | Contents::Unknown => Ok(now),
        }
    }

    /// Returns true if the name still refers to this file.
    pub(super) fn has_its_name(&self) -> bool {
        stat::stat_at(&self.item.place, self.item.name.as_c_str(), Follow::No)
            .is_ok_and(|now| now.identity() == self.item.facts.identity())
    }

    /// Returns the change time of the file from before its first byte was read.
    pub(super) fn ctime(&self) -> Timespec {
        self.opened.get().unwrap_or(&self.item.facts).ctime
    }
}
