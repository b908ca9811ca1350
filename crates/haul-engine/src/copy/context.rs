//! Context of the data path of a copy: settings, observer, log, verification and stop of its job.

use super::report::JobObserver;
use super::reread::Proof;
use super::resume::JobLog;
use super::settings::Moving;
use std::sync::atomic::{AtomicBool, Ordering};

/// Context of every file whose bytes a job copies.
pub struct CopyContext<'a> {
    /// Settings for copying the bytes.
    pub moving: &'a Moving,
    /// Log of the job, if the job is resumable.
    pub log: Option<&'a JobLog>,
    /// Observer of the job, with its counters.
    pub observer: JobObserver<'a>,
    /// Verification state of the job.
    pub proof: Proof,
    /// Becomes true if the job is to stop.
    pub stop: &'a AtomicBool,
}

impl CopyContext<'_> {
    /// Returns true if the job is to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
