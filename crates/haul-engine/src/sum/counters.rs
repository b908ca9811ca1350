//! How far a job has come, for whoever draws the progress.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts of a running job. Each only grows.
#[derive(Debug, Default)]
pub struct Counters {
    files_found: AtomicU64,
    files_done: AtomicU64,
    bytes_found: AtomicU64,
    bytes_done: AtomicU64,
    walked: AtomicBool,
}

impl Counters {
    /// All zero.
    pub const fn new() -> Counters {
        Counters {
            files_found: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            bytes_found: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            walked: AtomicBool::new(false),
        }
    }

    /// Files the walk has come by so far.
    pub fn files_found(&self) -> u64 {
        self.files_found.load(Ordering::Relaxed)
    }

    /// Files that have a result, a failure included.
    pub fn files_done(&self) -> u64 {
        self.files_done.load(Ordering::Relaxed)
    }

    /// Bytes to hash in the files opened so far.
    pub fn bytes_found(&self) -> u64 {
        self.bytes_found.load(Ordering::Relaxed)
    }

    /// Bytes read and hashed.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    /// Whether all files have been found.
    pub fn walked(&self) -> bool {
        self.walked.load(Ordering::Relaxed)
    }

    pub(super) fn end_walk(&self) {
        self.walked.store(true, Ordering::Relaxed);
    }

    pub(super) fn found_file(&self) {
        self.files_found.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn done_file(&self) {
        self.files_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn found_bytes(&self, bytes: u64) {
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn done_bytes(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}
