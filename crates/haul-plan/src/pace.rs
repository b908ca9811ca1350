//! Rate limit for reads.

use std::time::Duration;

/// A limit of bytes per second, shared by all readers. The caller passes in the time, counted from
/// any fixed moment.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// Time at which the rate has covered the bytes taken so far.
    paid: Duration,
}

/// Maximum time that a reader can catch up: after a short slow phase it is not delayed for the time
/// lost.
const CREDIT: Duration = Duration::from_millis(100);

impl Pace {
    /// Creates a limit of `bytes_per_second`, at least 1.
    pub fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: bytes_per_second.max(1), paid: Duration::ZERO }
    }

    /// Returns the limit in bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// Takes bytes at the moment `now`. Returns the time to wait before taking more.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid = self.paid.max(now.saturating_sub(CREDIT)).saturating_add(cost);
        self.paid.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A reader that waits as required is never ahead of the rate by more than the credit and
        /// one read, however long its reads take.
        #[test]
        fn the_rate_is_kept(rate in 1u64..1 << 30, reads in proptest::collection::vec((1u64..1 << 20, 0u64..50_000_000), 1..60)) {
            let mut pace = Pace::new(rate);
            let (mut now, mut taken) = (Duration::ZERO, 0u64);
            for (bytes, took) in reads {
                now += Duration::from_nanos(took);
                now += pace.take(now, bytes);
                taken += bytes;
                let allowed = (now + CREDIT).as_secs_f64() * rate as f64 + 1.0 + taken as f64 * 1e-6;
                prop_assert!(taken as f64 <= allowed, "{taken} bytes after {now:?} at {rate}");
            }
        }
    }

    #[test]
    fn rate_of_zero_counts_as_one_byte_per_second() {
        assert_eq!(Pace::new(0).take(Duration::from_secs(5), 1), Duration::from_millis(900));
    }
}
