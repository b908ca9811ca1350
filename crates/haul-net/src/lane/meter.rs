//! Statistics of a lane: bytes and time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Statistics of a lane so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Bytes that were received, without the overhead of encryption.
    pub bytes_in: u64,
    /// Bytes that were given to the kernel, without the overhead of encryption.
    pub bytes_out: u64,
    /// Time for encrypting and decrypting, including copies within TLS.
    pub crypto: Duration,
    /// Time in and before calls that received bytes: copies of the kernel, and waits for the peer.
    pub waiting_in: Duration,
    /// Time in and before calls that sent bytes.
    pub waiting_out: Duration,
    /// Time of waits for the rate limit.
    pub paced: Duration,
}

impl LaneStats {
    /// Adds the statistics of another lane.
    pub fn add(&mut self, other: &Self) {
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.crypto += other.crypto;
        self.waiting_in += other.waiting_in;
        self.waiting_out += other.waiting_out;
        self.paced += other.paced;
    }
}

/// Counters behind [`LaneStats`]. One thread at a time writes each counter, and any thread reads
/// it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Nanoseconds by [`Part`].
    parts: [AtomicU64; 4],
}

/// Activity whose time is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Crypto,
    WaitingIn,
    WaitingOut,
    Paced,
}

impl Meter {
    pub(crate) fn count_received(&self, bytes: usize) {
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_time(&self, part: Part, time: Duration) {
        self.parts[part as usize].fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Runs `work` and counts its time.
    pub(crate) fn time<T>(&self, part: Part, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.add_time(part, begin.elapsed());
        done
    }

    /// Resets all counters: the bytes of the handshake are not payload.
    pub(crate) fn reset(&self) {
        for counter in [&self.bytes_in, &self.bytes_out].into_iter().chain(&self.parts) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> LaneStats {
        let part = |part: Part| Duration::from_nanos(self.parts[part as usize].load(Ordering::Relaxed));
        LaneStats {
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            crypto: part(Part::Crypto),
            waiting_in: part(Part::WaitingIn),
            waiting_out: part(Part::WaitingOut),
            paced: part(Part::Paced),
        }
    }
}
