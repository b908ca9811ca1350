//! Where the time of one side went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time of all workers of one side together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reading or writing files, and making them durable.
    pub storage: Duration,
    /// Computing digests.
    pub hashing: Duration,
    /// Encrypting and decrypting.
    pub crypto: Duration,
    /// Giving bytes to the network, and waiting until it takes them.
    pub sending: Duration,
    /// Taking bytes from the network, and waiting for them.
    pub receiving: Duration,
}

/// [`Spent`] while it grows.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) storage: Clock,
    pub(super) hashing: Clock,
    lanes: [Clock; 3],
}

/// One kind of time.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// Adds time of one worker.
    pub(super) fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Clocks {
    /// Adds what a lane counted until its end.
    pub(super) fn add_lane(&self, stats: &haul_net::LaneStats) {
        let [crypto, sending, receiving] = &self.lanes;
        crypto.add(stats.crypto);
        sending.add(stats.waiting_out);
        receiving.add(stats.waiting_in);
    }

    /// All of it so far.
    pub(super) fn spent(&self) -> Spent {
        let [crypto, sending, receiving] = &self.lanes;
        Spent {
            storage: self.storage.total(),
            hashing: self.hashing.total(),
            crypto: crypto.total(),
            sending: sending.total(),
            receiving: receiving.total(),
        }
    }
}
