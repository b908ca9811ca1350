//! State of a file at the source, from its announcement to its end.

use super::tree::Item;
use crate::pipeline::ReadAt;
use crate::readahead::{self, ReadaheadCursor};
use crate::transfer::hashing::RootHash;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object};
use haul_proto::{NewFile, Reason, Why};
use haul_storage::{Advice, Change, Follow, Version};
use parking_lot::Mutex;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of bytes after the current object to read ahead. Covers several objects of the usual
/// size, so that the device has work for any number of lanes.
const AHEAD_BYTES: u64 = readahead::BYTES_MAX / 2;

/// State of an announced file.
#[derive(Debug)]
pub(super) struct OfferedFile {
    pub(super) item: Item,
    /// Bytes of a file that reports no certain length: they are read before it is announced.
    held: Option<Arc<HeldBytes>>,
    /// Announced kind, if a waybill is written.
    pub(super) kind: Mutex<Option<haul_proto::FileKind>>,
    /// The directory that ends after this file.
    pub(super) parent: Option<u64>,
    file: Mutex<Option<Arc<dyn haul_storage::SourceFile>>>,
    /// Version of the file when it was first opened.
    opened: OnceLock<Version>,
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

/// An open file.
#[derive(Clone, Debug)]
pub(super) enum OpenFile {
    /// A file of the storage.
    Stored(Arc<dyn haul_storage::SourceFile>),
    /// A file whose bytes were read before it was announced.
    Held(Arc<HeldBytes>),
}

impl OpenFile {
    /// Compares the file with an earlier version. Returns false if only the change time differs.
    ///
    /// # Errors
    /// Returns [`Why::Changed`] if the contents changed, and otherwise the error of
    /// [`changed_since`](haul_storage::SourceFile::changed_since).
    pub(super) fn is_unchanged(&self, version: &Version) -> Result<bool, Reason> {
        let OpenFile::Stored(file) = self else { return Ok(true) };
        match file.changed_since(version).map_err(|error| reason("cannot stat", &error))? {
            None => Ok(true),
            Some(Change::Unknown) => Ok(false),
            Some(Change::Contents | Change::Replaced) => Err(Why::Changed.into()),
        }
    }
}

impl ReadAt for OpenFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            OpenFile::Stored(file) => file.read_at(at, into),
            OpenFile::Held(held) => held.bytes.get(at as usize..).unwrap_or_default().read(into),
        }
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

impl OfferedFile {
    /// Creates the state of a file that was not read yet, except for `held`.
    pub(super) fn new(
        item: Item,
        held: Option<HeldBytes>,
        kind: Option<haul_proto::FileKind>,
        parent: Option<u64>,
        root: RootHash,
    ) -> OfferedFile {
        OfferedFile {
            item,
            held: held.map(Arc::new),
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

    /// Opens the file. Returns the same file to all callers until [`OfferedFile::close`].
    ///
    /// # Errors
    /// Returns [`Why::Changed`] if the file changed or another file has its name, and otherwise the
    /// error of [`Item::source`].
    pub(super) fn open(&self) -> Result<OpenFile, Reason> {
        if let Some(held) = &self.held {
            return Ok(OpenFile::Held(Arc::clone(held)));
        }
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(OpenFile::Stored(Arc::clone(file)));
        }
        let is_replaced = || Reason::new(Why::Changed, "another file has this name now");
        let opened = self.item.source().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => is_replaced(),
            _ => reason("cannot open", &error),
        })?;
        match Version::of(&self.item.facts).change(opened.opened()) {
            Some(Change::Replaced) => return Err(is_replaced()),
            Some(Change::Contents) => return Err(Why::Changed.into()),
            Some(Change::Unknown) | None => {}
        }
        self.opened.get_or_init(|| Version::of(opened.opened()));
        *file = Some(Arc::clone(&opened));
        Ok(OpenFile::Stored(opened))
    }

    /// Starts reading ahead the data after an object that is about to be read.
    pub(super) fn read_ahead(&self, file: &OpenFile, object: Object) {
        let facts = &self.item.facts;
        // Holes would become pages of zeros, and a file system that is not on a local device may
        // have its own read-ahead.
        if let OpenFile::Stored(file) = file
            && let Some(range) = self.front.next(object.range, facts.size, AHEAD_BYTES)
            && !facts.is_sparse()
            && file.device().capabilities.is_local
        {
            file.advise(range, Advice::WillNeed);
        }
    }

    /// Closes the file.
    pub(super) fn close(&self) {
        *self.file.lock() = None;
    }

    /// Returns true if the name still refers to this file.
    pub(super) fn has_its_name(&self) -> bool {
        let Item { place, name, facts, .. } = &self.item;
        let now = name.as_ref().map(|name| place.stat_at(name, Follow::No));
        now.is_some_and(|now| now.is_ok_and(|now| now.identity() == facts.identity()))
    }

    /// Returns the version of the file from before its first byte was read.
    pub(super) fn version(&self) -> Version {
        self.opened.get().copied().unwrap_or_else(|| Version::of(&self.item.facts))
    }
}
