//! Limit of the directories that wait half read, each of which stays open.

use haul_model::limits::{OPEN_DIRECTORIES_MAX, OPEN_FILES_PER_WORKER, OPEN_FILES_RESERVED};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Part of the directories that may be open at a time: one quarter may wait half read.
const SHARE: usize = 4;

/// Number of partly read directories that wait.
#[derive(Debug)]
pub(crate) struct HalfRead {
    waiting: AtomicUsize,
    most: usize,
}

impl HalfRead {
    /// Creates the limit of a job with `workers` workers, in a process that may have `open_files`
    /// files open.
    pub(crate) fn new(workers: usize, open_files: u64) -> HalfRead {
        let taken = OPEN_FILES_RESERVED + OPEN_FILES_PER_WORKER * workers as u64;
        let pairs = usize::try_from(open_files.saturating_sub(taken) / 2).unwrap_or(usize::MAX);
        HalfRead::of(pairs.clamp(1, OPEN_DIRECTORIES_MAX))
    }

    fn of(directories: usize) -> HalfRead {
        HalfRead { waiting: AtomicUsize::new(0), most: directories.div_ceil(SHARE) }
    }

    /// Reserves a slot for a directory that waits half read. Returns false if too many already
    /// wait: the caller must then read the directory to its end first.
    pub(crate) fn pause(&self) -> bool {
        let may = self.waiting.fetch_add(1, Ordering::Relaxed) < self.most;
        if !may {
            self.resume();
        }
        may
    }

    /// Reserves a slot even if too many directories already wait.
    pub(crate) fn pause_anyway(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases the slot of a directory, before reading continues.
    pub(crate) fn resume(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partially_read_directories_are_limited() {
        let half_read = HalfRead::of(8);
        assert_eq!([(); 3].map(|()| half_read.pause()), [true, true, false]);
        half_read.resume();
        assert!(half_read.pause());
    }
}
