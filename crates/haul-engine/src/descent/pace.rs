//! Time that a walk needs to examine an entry.

use std::time::Duration;

/// Average time from which on other threads examine entries. Passing a request to a thread takes
/// about 20 us. Local file systems need 2 to 10 us for an entry, network file systems 200 us and
/// more.
const SLOW: Duration = Duration::from_micros(100);

/// Maximum time that counts for one entry, so that a few slow ones are not enough.
const LONGEST: Duration = Duration::from_micros(200);

/// The last entry has one part of this number in the average.
const WEIGHT: u32 = 16;

/// Moving average of the time for one entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    average: Duration,
}

impl Pace {
    /// Returns true if the storage is slow.
    pub(super) fn is_slow(self) -> bool {
        self.average >= SLOW
    }

    /// Counts the time that an entry took.
    pub(super) fn count(&mut self, time: Duration) {
        self.average = (self.average * (WEIGHT - 1) + time.min(LONGEST)) / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_slow_entries_make_a_storage_slow_and_a_few_do_not() {
        let is_slow_after = |times: &[(u32, u64)]| {
            let mut pace = Pace::default();
            for (count, micros) in times {
                (0..*count).for_each(|_| pace.count(Duration::from_micros(*micros)));
            }
            pace.is_slow()
        };
        assert!(!is_slow_after(&[]));
        assert!(is_slow_after(&[(50, 500)]));
        assert!(is_slow_after(&[(1000, 5), (20, 500)]));
        assert!(!is_slow_after(&[(1000, 5), (5, 1_000_000)]));
        assert!(!is_slow_after(&[(1000, 50)]));
    }
}
