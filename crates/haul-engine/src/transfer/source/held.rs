//! A file between its announcement and its end, at the source.

use super::tree::Item;
use crate::readahead::{self, Front};
use crate::transfer::hashing::RootHash;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object};
use haul_proto::{NewFile, Reason, Why};
use haul_sys::{Contents, FileKind, Follow, Stat, Timespec, open, stat};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes behind an object under way that are asked for: several of the usual size, so that the device has work however many lanes take
/// the next ones.
const AHEAD_BYTES: u64 = readahead::BYTES_MAX / 2;

/// What is known of a file that was announced.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) item: Item,
    /// What it is told to be, where a waybill is written.
    pub(super) kind: Mutex<Option<haul_proto::FileKind>>,
    /// The directory whose end waits for this file.
    pub(super) within: Option<u64>,
    file: Mutex<Option<Arc<OwnedFd>>>,
    /// Facts of the file when it was opened first.
    opened: OnceLock<Stat>,
    front: Front,
    /// The digests of the whole, as far as the bytes went out.
    pub(super) root: Mutex<RootHash>,
    /// The digest that both sides found, where that ended it.
    pub(super) same: Mutex<Option<Digest>>,
    /// Bytes that progress has found of it.
    pub(super) found: AtomicU64,
    /// Bytes that progress has counted, and the level they were counted at.
    pub(super) counted: Mutex<(u64, Option<Level>)>,
}

impl Held {
    /// A file that nothing was read of.
    pub(super) fn new(
        item: Item,
        kind: Option<haul_proto::FileKind>,
        within: Option<u64>,
        root: RootHash,
    ) -> Held {
        Held {
            item,
            kind: Mutex::new(kind),
            within,
            file: Mutex::default(),
            opened: OnceLock::new(),
            front: Front::default(),
            root: Mutex::new(root),
            same: Mutex::default(),
            found: AtomicU64::new(0),
            counted: Mutex::default(),
        }
    }

    /// It goes as `facts` say: what was announced as a further name goes as a file if the first name failed, or the
    /// update rule left it. `root` makes the digests of a whole file of its size. Returns the bytes that progress has not found yet.
    pub(super) fn goes_as(&self, facts: &NewFile, root: impl FnOnce(u64) -> RootHash) -> u64 {
        let mut own = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if own.geometry().len() != facts.size() {
            *own = root(facts.size());
        }
        drop(own);
        let mut kind = self.kind.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = kind.as_mut().filter(|kind| **kind != facts.kind) {
            *kind = facts.kind.clone();
        }
        facts.size().saturating_sub(self.found.fetch_max(facts.size(), Ordering::Relaxed))
    }

    /// The file, open; the same descriptor for all who ask until [`Held::close`].
    ///
    /// # Errors
    /// It can't be opened, or is another file than was announced.
    pub(super) fn open(&self) -> Result<Arc<OwnedFd>, Reason> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = open::open_entry_at(&self.item.place, self.item.name.as_c_str())
            .map_err(|error| reason("cannot open", &error))?;
        let now = stat::stat_fd(&opened).map_err(|error| reason("cannot look at", &error))?;
        if now.kind != FileKind::Regular || now.identity() != self.item.facts.identity() {
            return Err(Reason::new(Why::Changed, "another file has its name by now"));
        }
        if now.contents_since(&self.item.facts) == Contents::Changed {
            return Err(Why::Changed.into());
        }
        self.opened.get_or_init(|| now);
        let opened = Arc::new(opened);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// An object is about to be read: has what follows it brought into memory.
    pub(super) fn ask_ahead(&self, file: &OwnedFd, object: Object) {
        let facts = &self.item.facts;
        if let Some(range) = self.front.next(object.range, facts.size, AHEAD_BYTES)
            && readahead::suits(file, facts.is_sparse())
        {
            readahead::ask(file, range);
        }
    }

    /// Lets go of the descriptor.
    pub(super) fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Looks at the file again. Gives the facts, unless its size or modification time is another one than was announced.
    ///
    /// # Errors
    /// The file changed, or nothing can be said of it.
    pub(super) fn look(&self, file: &OwnedFd) -> Result<Stat, Reason> {
        let now = stat::stat_fd(file).map_err(|error| reason("cannot look at", &error))?;
        match now.contents_since(&self.item.facts) {
            Contents::Changed => Err(Why::Changed.into()),
            Contents::Unchanged | Contents::Unknown => Ok(now),
        }
    }

    /// Returns true if the name of the file still leads to it.
    pub(super) fn has_its_name(&self) -> bool {
        stat::stat_at(&self.item.place, self.item.name.as_c_str(), Follow::No)
            .is_ok_and(|now| now.identity() == self.item.facts.identity())
    }

    /// The change time that the file had before the first byte was read.
    pub(super) fn ctime(&self) -> Timespec {
        self.opened.get().unwrap_or(&self.item.facts).ctime
    }
}
