//! One regular file (or stream) in progress: open at both ends, and shared by the workers that copy
//! its objects.

use super::deliver::Delivery;
use super::descriptors::Opened;
use super::digesting::SharedDigest;
use super::entry::FileSettle;
use super::error::CopyError;
use haul_model::{ByteLen, ByteOffset, Object, ObjectIndex};
use haul_plan::Plan;
use haul_sys::Stat;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A range of one file: its first byte, its length, and its offset in the sink; `None` as in
/// [`haul_plan::Requirements`].
pub(crate) type Part = (ByteOffset, Option<ByteLen>, Option<ByteOffset>);

/// State of the sink when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkState {
    /// No file existed; this job created it.
    New,
    /// A file existed and is now truncated to zero bytes.
    Truncated,
    /// An existing file that may already hold objects of its source; each object is checked.
    Resumed,
    /// A file of an earlier run that was compared with its source and is complete. It is open for
    /// reading only.
    Complete,
    /// A sink that keeps its contents: a device, a pipe, or a file that receives a part.
    Kept,
}

/// A file whose two ends are open and whose bytes are to be copied.
#[derive(Debug)]
pub(crate) struct FileMove {
    /// The directory that contains the file. It is notified when the file is finished.
    pub(crate) parent: Opened,
    /// Name relative to the parent's source end.
    pub(crate) source_name: OsString,
    /// Name relative to the parent's sink end.
    pub(crate) sink_name: OsString,
    pub(crate) source: OwnedFd,
    /// `fstat` of the open source.
    pub(crate) source_stat: Stat,
    pub(crate) sink: OwnedFd,
    pub(crate) sink_state: SinkState,
    /// Device number of the sink's file system.
    pub(crate) sink_dev: u64,
    /// True if the sink is a regular file.
    pub(crate) sink_is_regular: bool,
    /// Range to copy if the file has its own ranges (`--read-stdin`). Otherwise the job's settings
    /// apply.
    pub(crate) part: Option<Part>,
    /// Metadata to set on the sink at the end.
    pub(crate) settle: FileSettle,
    /// Time at which the source was opened.
    pub(crate) begun: Instant,
}

impl FileMove {
    /// Returns the path of the source for messages.
    pub(crate) fn source_path(&self) -> OsString {
        self.parent.source_path_of(&self.source_name)
    }

    /// Returns the path of the sink for messages.
    pub(crate) fn sink_path(&self) -> OsString {
        self.parent.sink_path_of(&self.sink_name)
    }
}

/// A file cut into objects that several workers take.
#[derive(Debug)]
pub(crate) struct SharedFile {
    pub(crate) file: FileMove,
    pub(crate) plan: Plan,
    pub(crate) digest: SharedDigest,
    pub(crate) delivery: Delivery,
    /// Number of objects that read-ahead requests before their turn.
    pub(crate) ahead: u64,
    /// Number of bytes that reached the sink.
    pub(crate) moved: AtomicU64,
    next: AtomicU64,
    left: AtomicU64,
    broken: AtomicBool,
    failure: Mutex<Option<CopyError>>,
}

impl SharedFile {
    /// Creates a shared file of which no object is taken yet.
    pub(crate) fn new(
        file: FileMove,
        plan: Plan,
        digest: SharedDigest,
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

    /// Takes the next object. Returns `None` if all objects are taken.
    pub(crate) fn take_object(&self) -> Option<Object> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        self.plan.geometry().object(ObjectIndex(index))
    }

    /// Takes all objects below number `end` that are not taken yet.
    pub(crate) fn take_until(&self, end: u64) -> Range<u64> {
        self.next.fetch_max(end, Ordering::Relaxed).min(end)..end
    }

    /// Records that `count` objects are finished, copied or not. Returns true if the last one is
    /// among them: the caller then settles the file.
    #[must_use]
    pub(crate) fn finish(&self, count: u64) -> bool {
        self.left.fetch_sub(count, Ordering::AcqRel) == count
    }

    /// Returns true if an object failed, so that copying more of the file is useless.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Records a failed object. Only the first failure is reported.
    pub(crate) fn record_failure(&self, error: CopyError) {
        self.broken.store(true, Ordering::Relaxed);
        self.failure.lock().get_or_insert(error);
    }

    /// Takes the first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<CopyError> {
        self.failure.lock().take()
    }
}

impl PartialEq for SharedFile {
    /// Compares addresses, because two open files are never the same.
    fn eq(&self, other: &SharedFile) -> bool {
        std::ptr::eq(self, other)
    }
}
