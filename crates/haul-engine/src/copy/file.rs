//! One regular file (or stream) on its way: open at both ends, and shared by the workers that move its objects.

use super::deliver::Delivery;
use super::descriptors::Opened;
use super::digesting::FileDigest;
use super::entry::FileSettle;
use super::error::CopyError;
use haul_model::{ByteLen, ByteOffset, Object, ObjectIndex};
use haul_plan::Plan;
use haul_sys::Stat;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A range of one file: its first byte, its length, and where it goes; `None` as in [`haul_plan::Wanted`].
pub(crate) type Part = (ByteOffset, Option<ByteLen>, Option<ByteOffset>);

/// What stood at the sink when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkState {
    /// Nothing: this job made the file.
    New,
    /// A file, now truncated to no bytes.
    Truncated,
    /// A file that may hold some of its source already, which is found out object by object.
    Resumed,
    /// A file of an earlier run that was compared with its source and holds all of it. It is open for reading alone.
    Complete,
    /// Something that keeps what it has (a device, a pipe, or a file that gets a part).
    Kept,
}

/// A file whose fate is decided: both ends are open, and its bytes are to be moved.
#[derive(Debug)]
pub(crate) struct FileMove {
    /// The directory the file is an entry of; told when the file is through.
    pub(crate) parent: Opened,
    /// Name beneath the parent's source end.
    pub(crate) source_name: OsString,
    /// Name beneath the parent's sink end.
    pub(crate) sink_name: OsString,
    pub(crate) source: OwnedFd,
    /// `fstat` of the open source.
    pub(crate) source_stat: Stat,
    pub(crate) sink: OwnedFd,
    pub(crate) sink_state: SinkState,
    /// Device number of the sink's file system.
    pub(crate) sink_dev: u64,
    /// Whether the sink is a regular file.
    pub(crate) sink_is_regular: bool,
    /// What of this file is copied, where it has ranges of its own (`--read-stdin`); else the job's settings hold.
    pub(crate) part: Option<Part>,
    /// What is set on the sink at the end.
    pub(crate) settle: FileSettle,
    /// When the source was opened.
    pub(crate) begun: Instant,
}

impl FileMove {
    /// The source's path for messages.
    pub(crate) fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    /// The sink's path for messages.
    pub(crate) fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }
}

/// A file cut into objects that several workers take.
#[derive(Debug)]
pub(crate) struct SharedFile {
    pub(crate) file: FileMove,
    pub(crate) plan: Plan,
    pub(crate) digest: FileDigest,
    pub(crate) delivery: Delivery,
    /// How many objects before its turn the source is asked for one.
    pub(crate) ahead: u64,
    /// Bytes that reached the sink.
    pub(crate) moved: AtomicU64,
    next: AtomicU64,
    left: AtomicU64,
    broken: AtomicBool,
    failure: Mutex<Option<CopyError>>,
}

impl SharedFile {
    /// A file of which no object was taken yet.
    pub(crate) fn new(
        file: FileMove,
        plan: Plan,
        digest: FileDigest,
        delivery: Delivery,
        ahead: u64,
    ) -> SharedFile {
        SharedFile {
            file,
            digest,
            delivery,
            ahead,
            moved: AtomicU64::new(0),
            next: AtomicU64::new(0),
            left: AtomicU64::new(plan.geometry().count()),
            broken: AtomicBool::new(false),
            failure: Mutex::new(None),
            plan,
        }
    }

    /// The next object nobody has taken; `None` when all are.
    pub(crate) fn take_object(&self) -> Option<Object> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.plan.geometry().object(ObjectIndex(index))
    }

    /// One object is through, moved or not. Returns whether it was the last: the caller settles the file.
    #[must_use]
    pub(crate) fn one_is_through(&self) -> bool {
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether an object failed, so that moving more of the file is no use.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// An object failed. The first failure is the one that is told.
    pub(crate) fn broke(&self, error: CopyError) {
        self.broken.store(true, Ordering::Relaxed);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<CopyError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PartialEq for SharedFile {
    /// Two open files are never the same one: identity is the address.
    fn eq(&self, other: &SharedFile) -> bool {
        std::ptr::eq(self, other)
    }
}
