//! The border of hybrid verification: what fits into free memory would be read back from there, and proves nothing of the device
//! (papers: Arslan and Alhussen, "Fast Integrity Verification for High-Speed File Transfers", section IV B).

use haul_sys::process;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the figure of free memory is taken for true: it costs some reads of /proc, and a tree may have a million files.
const FREE_MEMORY_AGE: Duration = Duration::from_secs(1);

/// Free memory, as far as this process may have it: limits of control groups count. Asked for again as it grows old.
#[derive(Debug, Default)]
pub(crate) struct Border(Mutex<Option<(Instant, u64)>>);

impl Border {
    /// Whether a file of `len` bytes fits into free memory. Where nobody can say what is free, nothing fits: the stronger
    /// proof is taken.
    pub(crate) fn holds(&self, len: u64) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn nothing_fits_that_no_memory_could_hold() {
        let border = Border::default();
        assert!(border.holds(0) && !border.holds(u64::MAX));
    }

    #[test]
    fn the_figure_is_kept_for_a_while() {
        let border = Border::default();
        // Of a moment to come, so that it is not old by the time it is looked at.
        *border.0.lock().unwrap() = Some((Instant::now() + Duration::from_secs(3600), 1000));
        assert!(border.holds(1000) && !border.holds(1001));
    }
}
