//! Rate limit for the data that the lanes of a job send together.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Burst that may be sent at once after an idle time, as time at the rate.
const BURST: Duration = Duration::from_millis(10);

/// Minimum number of bytes of a piece, if the rate sends them within [`PIECE_TIME_MAX`]. The waits
/// of smaller pieces would cost more than they smooth.
pub(crate) const PIECE_BYTES_MIN: usize = 4096;

/// Maximum time that a piece takes at the rate. Each of up to 64 lanes waits for the pieces of all
/// others, and must send before its peer treats it as dead.
const PIECE_TIME_MAX: Duration = Duration::from_millis(100);

/// A token bucket that any number of lanes share. A lane that takes bytes waits until the rate
/// allows them. The rate can change at any time.
#[derive(Debug)]
pub struct Pacer {
    /// Bytes per second.
    rate: AtomicU64,
    /// Time at which everything taken so far has been sent at the rate.
    drained: Mutex<Instant>,
}

impl Pacer {
    /// Creates a pacer for `bytes_per_second`, at least 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { rate: AtomicU64::new(bytes_per_second.max(1)), drained: Mutex::new(Instant::now()) }
    }

    /// Returns the rate in bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Sets another rate, from the next piece on.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.rate.store(bytes_per_second.max(1), Ordering::Relaxed);
    }

    /// Returns the number of bytes to take at once: those that the rate sends in a burst, at most
    /// `wanted`.
    pub(crate) fn piece(&self, wanted: usize) -> usize {
        let within = |time: Duration| {
            usize::try_from(u128::from(self.rate()) * time.as_micros() / 1_000_000).unwrap_or(usize::MAX)
        };
        wanted.min(within(BURST).max(within(PIECE_TIME_MAX).clamp(1, PIECE_BYTES_MIN)))
    }

    /// Reserves `bytes`, and returns the time to wait before they may be sent.
    pub(crate) fn take(&self, bytes: usize) -> Duration {
        self.reserve(bytes, Instant::now())
    }

    /// Reserves `bytes` at the time `now`, and returns the time to wait before they may be sent.
    pub(crate) fn reserve(&self, bytes: usize, now: Instant) -> Duration {
        let takes = Duration::from_secs_f64(bytes as f64 / self.rate() as f64);
        let mut drained = self.drained.lock();
        // Unused capacity of the past is lost, except for one burst.
        let start = (*drained).max(now.checked_sub(BURST).unwrap_or(now));
        *drained = start + takes;
        start.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_after_one_burst() {
        let pacer = Pacer::new(1_000_000);
        let begin = Instant::now() + Duration::from_secs(1);
        let mut now = begin;
        for _ in 0..1000 {
            now += pacer.reserve(10_000, now);
        }
        // 10 MB at 1 MB/s, less the burst at the start and the last piece, which has just been
        // sent.
        let took = now - begin;
        assert!(took <= Duration::from_secs(10) && took >= Duration::from_millis(9_970), "{took:?}");
    }

    #[test]
    fn idle_time_is_not_accumulated() {
        let pacer = Pacer::new(1_000_000);
        let later = Instant::now() + Duration::from_secs(100);
        assert_eq!(pacer.reserve(10_000, later), Duration::ZERO);
        assert_eq!(pacer.reserve(10_000, later), Duration::ZERO);
        assert_eq!(pacer.reserve(10_000, later), Duration::from_millis(10));
    }

    #[test]
    fn piece_size_depends_on_the_rate() {
        let pacer = Pacer::new(100_000);
        assert_eq!(pacer.piece(1 << 20), PIECE_BYTES_MIN);
        assert_eq!(pacer.piece(7), 7);
        pacer.set_rate(u64::MAX);
        assert_eq!(pacer.piece(1 << 20), 1 << 20);
        pacer.set_rate(1_000_000);
        assert_eq!(pacer.piece(1 << 20), 10_000);
    }

    /// Regression test: a piece of 4 KiB took minutes at such a rate, and the peer treated the lane
    /// as dead.
    #[test]
    fn every_lane_sends_within_15_seconds_at_a_low_rate() {
        for rate in [5, 1024, 20_000, 40_959] {
            let pacer = Pacer::new(rate);
            let mut now = Instant::now() + Duration::from_secs(1);
            let mut sent = 0;
            // Each of 64 lanes sends a piece, and the next one after all others have sent theirs.
            let begin = now;
            for _ in 0..10 {
                let round = now;
                for _ in 0..64 {
                    let piece = pacer.piece(256 << 10);
                    sent += piece as u64;
                    now += pacer.reserve(piece, now);
                }
                assert!(now - round < Duration::from_secs(15), "{rate}: {:?}", now - round);
            }
            let takes = Duration::from_secs_f64(sent as f64 / rate as f64);
            let slack = Duration::from_millis(250);
            assert!(
                now - begin <= takes && now - begin + slack >= takes,
                "{rate}: {:?}, {takes:?}",
                now - begin
            );
        }
    }

    #[test]
    fn lanes_share_one_rate() {
        let pacer = Pacer::new(1_000_000);
        let now = Instant::now() + Duration::from_secs(1);
        for _ in 0..3 {
            pacer.reserve(10_000, now);
        }
        assert_eq!(pacer.reserve(1, now), Duration::from_millis(20));
    }
}
