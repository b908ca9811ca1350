//! Where the time of one side went, and what went over its lanes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time of all workers of one side together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reading or writing files, and making them durable.
    pub storage: Duration,
    /// Computing digests.
    pub hashing: Duration,
    /// Packing and unpacking.
    pub packing: Duration,
    /// Encrypting and decrypting.
    pub crypto: Duration,
    /// Giving bytes to the network, and waiting until it takes them.
    pub sending: Duration,
    /// Taking bytes from the network, and waiting for them.
    pub receiving: Duration,
}

/// Bytes that went over all lanes of one side, before encryption: messages, file data, everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the other side.
    pub sent: u64,
    /// From the other side.
    pub received: u64,
    /// File bytes that travelled packed, in either direction.
    pub plain: u64,
    /// What they came to on the way.
    pub packed: u64,
}

/// [`Spent`] and [`Traffic`] while they grow.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) storage: Clock,
    pub(super) hashing: Clock,
    pub(super) packing: Clock,
    lanes: [Clock; 3],
    /// Out, in.
    wire: [AtomicU64; 2],
    /// Before and after packing.
    packed: [AtomicU64; 2],
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
        // A rate that is held is a slow network.
        sending.add(stats.waiting_out + stats.paced);
        receiving.add(stats.waiting_in);
        for (total, bytes) in self.wire.iter().zip([stats.bytes_out, stats.bytes_in]) {
            total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A block travelled as fewer bytes than it has.
    pub(super) fn packed(&self, plain: usize, packed: usize) {
        for (total, bytes) in self.packed.iter().zip([plain, packed]) {
            total.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// What went over the lanes so far.
    pub(super) fn traffic(&self) -> Traffic {
        let [sent, received] = self.wire.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        let [plain, packed] = self.packed.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        Traffic { sent, received, plain, packed }
    }

    /// All of it so far.
    pub(super) fn spent(&self) -> Spent {
        let [crypto, sending, receiving] = &self.lanes;
        Spent {
            storage: self.storage.total(),
            hashing: self.hashing.total(),
            packing: self.packing.total(),
            crypto: crypto.total(),
            sending: sending.total(),
            receiving: receiving.total(),
        }
    }
}
