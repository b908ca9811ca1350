//! A file that is shared by the workers that copy its objects.

use super::deliver::Delivery;
use super::digesting::SharedDigest;
use super::error::CopyError;
use super::file::FileJob;
use haul_model::Geometry;
use haul_plan::Plan;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file cut into objects that several workers take.
#[derive(Debug)]
pub struct SharedFile<'j> {
    pub(crate) file: FileJob<'j>,
    pub(crate) plan: Plan,
    pub(crate) digest: SharedDigest,
    pub(crate) delivery: Delivery,
    /// Number of objects that read-ahead requests before their turn.
    pub(crate) ahead: u64,
    /// Number of bytes that reached the sink.
    pub(crate) moved: AtomicU64,
    left: AtomicU64,
    broken: AtomicBool,
    failure: Mutex<Option<CopyError>>,
}

impl<'j> SharedFile<'j> {
    /// Creates a shared file of which no object is finished yet.
    pub(crate) fn new(
        file: FileJob<'j>,
        plan: Plan,
        digest: SharedDigest,
        delivery: Delivery,
        ahead: u64,
    ) -> SharedFile<'j> {
        SharedFile {
            file,
            digest,
            delivery,
            ahead,
            moved: AtomicU64::new(0),
            left: AtomicU64::new(plan.geometry().count()),
            broken: AtomicBool::new(false),
            failure: Mutex::new(None),
            plan,
        }
    }

    /// Returns the numbers of the devices of the source and of the sink. A sink without
    /// one counts as the device of the source. Returns `None` if a worker may wait for the end of
    /// this file.
    pub fn devices(&self) -> Option<[u64; 2]> {
        let source = self.file.source_stat.dev;
        let sink = self.file.sink.file().map_or(source, |sink| sink.device().id);
        (!self.file.finish.is_awaited()).then_some([source, sink])
    }

    /// Returns the division of the file into objects.
    pub fn geometry(&self) -> Geometry {
        self.plan.geometry()
    }

    /// Records that `count` objects are finished, copied or not. Returns true if the last one is
    /// among them: the caller then ends the file.
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

impl PartialEq for SharedFile<'_> {
    /// Compares addresses, because two open files are never the same.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
