//! Where the time of one side went, and of both sides together, and what went over its lanes.

use haul_net::LaneStats;
use haul_proto::{LaneId, LaneTimes, Times};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time of all workers of one side together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reading or writing files, their names and facts, and making them durable.
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

/// Where the time of a job went, of both sides together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The workers of the side that sent.
    pub source: Spent,
    /// The workers of the side that received.
    pub sink: Spent,
    /// The network alone: the source waited until it took bytes while the sink waited until it brought some. Where only one of
    /// them waited, the other side was what it waited for.
    pub network: Duration,
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

impl From<&Times> for Spent {
    /// All lanes together.
    fn from(times: &Times) -> Spent {
        let Times { storage, hashing, packing, crypto, ref lanes } = *times;
        let sending = lanes.iter().map(|lane| lane.sending).sum();
        let receiving = lanes.iter().map(|lane| lane.receiving).sum();
        Spent { storage, hashing, packing, crypto, sending, receiving }
    }
}

impl Split {
    /// What both sides have told.
    pub(super) fn of(source: &Times, sink: &Times) -> Split {
        let received: HashMap<LaneId, Duration> =
            sink.lanes.iter().map(|lane| (lane.lane, lane.receiving)).collect();
        let waited =
            |lane: &LaneTimes| received.get(&lane.lane).map_or(Duration::ZERO, |r| lane.sending.min(*r));
        let network = source.lanes.iter().map(waited).sum();
        Split { source: source.into(), sink: sink.into(), network }
    }
}

/// [`Spent`] and [`Traffic`] while they grow.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) storage: Clock,
    pub(super) hashing: Clock,
    pub(super) packing: Clock,
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

    /// Does `work` and adds its time.
    pub(super) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.add(begin.elapsed());
        done
    }

    fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Clocks {
    /// A block travelled as fewer bytes than it has.
    pub(super) fn packed(&self, plain: usize, packed: usize) {
        for (total, bytes) in self.packed.iter().zip([plain, packed]) {
            total.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// What went over the lanes, which counted this.
    pub(super) fn traffic(&self, lanes: &[(LaneId, LaneStats)]) -> Traffic {
        let [plain, packed] = self.packed.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        let sum = |bytes: fn(&LaneStats) -> u64| lanes.iter().map(|(_, stats)| bytes(stats)).sum::<u64>();
        Traffic { sent: sum(|stats| stats.bytes_out), received: sum(|stats| stats.bytes_in), plain, packed }
    }

    /// Where the time went so far, that of the lanes, which counted this, with it.
    pub(super) fn times(&self, lanes: &[(LaneId, LaneStats)]) -> Times {
        Times {
            storage: self.storage.total(),
            hashing: self.hashing.total(),
            packing: self.packing.total(),
            crypto: lanes.iter().map(|(_, stats)| stats.crypto).sum(),
            lanes: lanes
                .iter()
                .map(|(lane, stats)| LaneTimes {
                    lane: *lane,
                    // A rate that is held is a slow network.
                    sending: stats.waiting_out + stats.paced,
                    receiving: stats.waiting_in,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn times(lanes: &[(u32, u64, u64)]) -> Times {
        let lane = |&(lane, sending, receiving): &(u32, u64, u64)| LaneTimes {
            lane: LaneId(lane),
            sending: seconds(sending),
            receiving: seconds(receiving),
        };
        Times { lanes: lanes.iter().map(lane).collect(), ..Times::default() }
    }

    /// A lane that nothing went by waits all the time at the sink, and one that was lost is known to one side alone.
    #[test]
    fn the_network_is_what_both_ends_of_a_lane_waited_for() {
        let slow_network = Split::of(&times(&[(0, 9, 1), (1, 8, 1)]), &times(&[(0, 0, 8), (1, 0, 9)]));
        assert_eq!(slow_network.network, seconds(16));
        let slow_sink =
            Split::of(&times(&[(0, 9, 1), (1, 0, 9), (2, 4, 0)]), &times(&[(0, 0, 1), (1, 0, 9)]));
        assert_eq!(slow_sink.network, seconds(1));
        assert_eq!((slow_sink.source.sending, slow_sink.sink.receiving), (seconds(13), seconds(10)));
        let slow_source = Split::of(&times(&[(0, 1, 1)]), &times(&[(0, 0, 9)]));
        assert_eq!(slow_source.network, seconds(1));
    }
}
