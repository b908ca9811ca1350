//! A file whose objects are logged, and the state of its syncs.

use super::sample;
use crate::copy::error::CopyError;
use haul_log::objects::{FileKey, ObjectSet};
use haul_model::ObjectIndex;
use haul_storage::{SinkFile, SourceFile, Stat};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A file in progress whose objects are logged.
#[derive(Debug)]
pub struct Logged {
    /// Number of the file in this run.
    pub(super) number: u64,
    pub(super) key: FileKey,
    /// The sink, kept open until all of its objects are durable.
    pub(super) sink: Arc<dyn SinkFile>,
    /// The sink, opened a second time to wait for its write-back.
    pub(super) again: Option<Arc<dyn SourceFile>>,
    /// Device number of its file system.
    pub(super) dev: u64,
    pub(super) path: OsString,
    pub(super) source_stat: Stat,
    /// Objects that an earlier run logged.
    pub(super) known: ObjectSet,
    /// Size of the existing sink. Objects behind it need no comparison.
    pub(super) existing_bytes: u64,
    /// True if the device may lack existing bytes that are not logged.
    pub(super) may_lack: bool,
    /// True if the record says that the file was finished.
    pub(super) was_claimed: bool,
    /// True if the log was trusted for an object without a check.
    pub(super) keeps_some: AtomicBool,
    pub(super) durability: Mutex<Durability>,
}

/// State of a file with regard to its syncs.
#[derive(Debug, Default)]
pub(super) struct Durability {
    /// Error that prevented an object from becoming durable; the code that reports it takes it.
    failure: Option<io::Error>,
    /// True if a sync failed. The kernel reports a lost write once, so no sync proves anything
    /// about the file from then on, not even one that runs at the same time.
    has_failed: bool,
    /// True if all objects of the finished file are durable, unless another sync still fails.
    has_ended: bool,
}

impl Logged {
    pub(super) fn is_sampled(&self, object: ObjectIndex) -> bool {
        let is_first = self.known.iter().next() == Some(object);
        is_first || sample::is_sampled(sample::number_of(&self.source_stat, object.0))
    }

    /// Records that a sync failed, and that the caller reports it.
    pub(crate) fn mark_failed(&self) {
        self.durability().has_failed = true;
    }

    /// Records that a sync failed. The file will be marked as unfinished. Returns the error if the
    /// file has ended already, so that the caller reports it.
    pub(super) fn fail(&self, source: io::Error) -> Option<CopyError> {
        self.mark_failed();
        let mut durability = self.durability();
        durability.failure.get_or_insert(source);
        let source = if durability.has_ended { durability.failure.take() } else { None };
        source.map(|source| self.sync_failed(source))
    }

    /// Returns true if a sync failed.
    pub fn has_failed(&self) -> bool {
        self.durability().has_failed
    }

    /// Calls `record` unless a sync failed, and before any failure is recorded.
    pub(super) fn unless_failed<T>(&self, record: impl FnOnce() -> T) -> Option<T> {
        let durability = self.durability();
        (!durability.has_failed).then(record)
    }

    /// Ends the file. Returns false if a sync failed.
    pub(super) fn end(&self) -> bool {
        let mut durability = self.durability();
        durability.has_ended = true;
        !durability.has_failed
    }

    /// Takes the error that prevented an object from becoming durable. Only the first call returns
    /// it.
    pub fn take_failure(&self) -> Option<CopyError> {
        let source = self.durability().failure.take()?;
        Some(self.sync_failed(source))
    }

    fn durability(&self) -> MutexGuard<'_, Durability> {
        self.durability.lock()
    }

    pub(super) fn sync_failed(&self, source: io::Error) -> CopyError {
        CopyError::Failed { doing: "error syncing", path: self.path.clone(), source }
    }
}
