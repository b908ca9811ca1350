//! File-size threshold of hybrid verification. If a file fits into free memory, the kernel can
//! serve its re-read from the page cache. Such a re-read proves nothing about the device (papers:
//! Arslan and Alhussen, "Fast Integrity Verification for High-Speed File Transfers", section IV B).

use haul_sys::process;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Maximum age of the cached amount of free memory. A query costs several reads of /proc, and a
/// tree may have a million files.
const FREE_MEMORY_AGE: Duration = Duration::from_secs(1);

/// Cached amount of memory available to this process, in bytes.
///
/// The value respects cgroup limits. It is refreshed when it is older than [`FREE_MEMORY_AGE`].
#[derive(Debug, Default)]
pub(crate) struct HybridThreshold(Mutex<Option<(Instant, u64)>>);

impl HybridThreshold {
    /// Returns true if a file of `len` bytes fits into free memory. If the amount of free memory is
    /// unknown, no file fits, so that the stronger verification applies.
    pub(crate) fn holds(&self, len: u64) -> bool {
        let mut known = self.0.lock();
        if known.is_none_or(|(asked, _)| asked.elapsed() > FREE_MEMORY_AGE) {
            let free = process::memory().map_or(0, |memory| memory.available);
            *known = Some((Instant::now(), free));
        }
        known.is_some_and(|(_, free)| len <= free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u64_max_bytes_never_fit_in_memory() {
        let hybrid_threshold = HybridThreshold::default();
        assert!(hybrid_threshold.holds(0) && !hybrid_threshold.holds(u64::MAX));
    }

    #[test]
    fn fresh_memory_value_is_reused() {
        let hybrid_threshold = HybridThreshold::default();
        // A time in the future, so that the value is not stale at the check.
        *hybrid_threshold.0.lock() = Some((Instant::now() + Duration::from_secs(3600), 1000));
        assert!(hybrid_threshold.holds(1000) && !hybrid_threshold.holds(1001));
    }
}
