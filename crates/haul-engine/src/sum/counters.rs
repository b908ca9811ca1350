//! Progress counters of a job.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of a running job. Each one only grows.
#[derive(Debug, Default)]
pub struct Counters {
    files_found: AtomicU64,
    files_done: AtomicU64,
    bytes_found: AtomicU64,
    bytes_done: AtomicU64,
    walked: AtomicBool,
    /// Total work, if it is known from the start.
    files_announced: AtomicU64,
    bytes_announced: AtomicU64,
    /// Work that an earlier run did.
    files_before: AtomicU64,
    bytes_before: AtomicU64,
}

impl Counters {
    /// Creates counters that are all zero.
    pub const fn new() -> Counters {
        Counters {
            files_found: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            bytes_found: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            walked: AtomicBool::new(false),
            files_announced: AtomicU64::new(0),
            bytes_announced: AtomicU64::new(0),
            files_before: AtomicU64::new(0),
            bytes_before: AtomicU64::new(0),
        }
    }

    /// Returns the finished files and bytes, including those of an earlier run.
    pub fn through(&self) -> (u64, u64) {
        let (files, bytes) = self.before();
        (self.files_done() + files, self.bytes_done() + bytes)
    }

    /// Returns the total files and bytes, as far as known.
    pub fn known(&self) -> (u64, u64) {
        let (files, bytes) = self.before();
        let announced = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            announced(&self.files_announced).max(self.files_found() + files),
            announced(&self.bytes_announced).max(self.bytes_found() + bytes),
        )
    }

    /// Counts a file of `bytes` bytes that an earlier run processed.
    pub fn was_done_before(&self, bytes: u64) {
        self.files_before.fetch_add(1, Ordering::Relaxed);
        self.bytes_before.fetch_add(bytes, Ordering::Relaxed);
    }

    fn before(&self) -> (u64, u64) {
        (self.files_before.load(Ordering::Relaxed), self.bytes_before.load(Ordering::Relaxed))
    }

    /// Sets the total number of files and bytes.
    pub(crate) fn announce(&self, files: u64, bytes: u64) {
        self.files_announced.store(files, Ordering::Relaxed);
        self.bytes_announced.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of files that the walk has found.
    pub fn files_found(&self) -> u64 {
        self.files_found.load(Ordering::Relaxed)
    }

    /// Returns the number of files with a result, including failures.
    pub fn files_done(&self) -> u64 {
        self.files_done.load(Ordering::Relaxed)
    }

    /// Returns the bytes to hash in the files opened so far.
    pub fn bytes_found(&self) -> u64 {
        self.bytes_found.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were read and hashed.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    /// Returns true if [`Counters::known`] returns the final totals: a waybill announced them, or
    /// all files have been found.
    pub fn has_totals(&self) -> bool {
        self.walked() || self.files_announced.load(Ordering::Relaxed) > 0
    }

    /// Returns true if all files have been found.
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
