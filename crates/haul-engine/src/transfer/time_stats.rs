//! Time and traffic statistics of a transfer: worker time per side, the split across both sides,
//! and bytes.

use super::cpu_wait::CpuWaitTime;
use haul_net::{LaneStats, PacketStats};
use haul_proto::{LaneId, LaneTimes, Role, Times};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time of all workers of one side together. Time that they waited for a CPU was measured as part
/// of their activities. It is subtracted from these in proportion, which does not change their
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBreakdown {
    /// Reading, writing and syncing files, including names and metadata.
    pub storage: Duration,
    /// Computing digests.
    pub hashing: Duration,
    /// Compressing and decompressing.
    pub packing: Duration,
    /// Encrypting and decrypting.
    pub crypto: Duration,
    /// Waiting for a CPU while ready to run; zero if the kernel does not report it.
    pub processor: Duration,
    /// Passing bytes to the network, and waiting until it accepts them.
    pub sending: Duration,
    /// Receiving bytes from the network, and waiting for them.
    pub receiving: Duration,
}

/// Time of a job on both sides together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferTimeBreakdown {
    /// Workers of the side that sent.
    pub source: TimeBreakdown,
    /// Workers of the side that received.
    pub sink: TimeBreakdown,
    /// Time of the network alone: the source waited to send while the sink waited to receive on the
    /// same lane. If only one side waited, it waited for its peer. Time that either side
    /// waited for a CPU does not count.
    pub network: Duration,
}

/// Bytes that all lanes of one side carried, before encryption: messages, file data, everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent to the peer.
    pub sent: u64,
    /// Bytes received from the peer.
    pub received: u64,
    /// File bytes that were sent compressed, in either direction.
    pub plain: u64,
    /// Compressed size of these bytes.
    pub packed: u64,
}

/// Datagrams of all lanes of one side that send datagrams themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Datagrams sent.
    pub sent: u64,
    /// Intact datagrams received for the first time.
    pub received: u64,
    /// Sent datagrams that did not arrive.
    pub lost: u64,
    /// Sent datagrams that repeated lost bytes.
    pub retransmitted: u64,
    /// Received datagrams that were damaged or forged.
    pub damaged: u64,
    /// Received datagrams that had arrived before.
    pub duplicate: u64,
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of datagrams received.
    pub bytes_received: u64,
    /// Shortest round trip of any lane.
    pub round_trip: Duration,
    /// Longest delay of any lane by a queue on the path.
    pub queue: Duration,
    /// Largest datagram in bytes.
    pub size: usize,
}

impl Datagrams {
    /// Sums up the lanes. Returns `None` if no lane sends datagrams.
    pub(super) fn sum(lanes: impl Iterator<Item = PacketStats>) -> Option<Datagrams> {
        lanes.fold(None, |sum: Option<Datagrams>, lane| {
            let mut sum = sum.unwrap_or_default();
            sum.sent += lane.packets_sent;
            sum.received += lane.packets_received;
            sum.lost += lane.packets_lost.saturating_sub(lane.losses_spurious);
            sum.retransmitted += lane.packets_retransmitted;
            sum.damaged += lane.packets_damaged;
            sum.duplicate += lane.packets_duplicate;
            sum.bytes_sent += lane.bytes_sent;
            sum.bytes_received += lane.bytes_received;
            let round_trip = Duration::from_nanos(lane.rtt_min);
            let others = (!sum.round_trip.is_zero()).then_some(sum.round_trip);
            sum.round_trip = others.map_or(round_trip, |others| others.min(round_trip));
            sum.queue = sum.queue.max(Duration::from_nanos(lane.queue));
            sum.size = sum.size.max(lane.datagram);
            Some(sum)
        })
    }

    /// Returns the percentage of the sent datagrams that arrived.
    pub fn success_percent(&self) -> f64 {
        if self.sent == 0 {
            100.0
        } else {
            100.0 * (1.0 - self.lost.min(self.sent) as f64 / self.sent as f64)
        }
    }
}

impl TimeBreakdown {
    /// Sums up the lanes of a side with this role.
    pub(super) fn of(times: &Times, role: Role) -> TimeBreakdown {
        let Times { storage, hashing, packing, crypto, run_delay, ref lanes } = *times;
        let sending: Duration = lanes.iter().map(|lane| lane.sending).sum();
        let receiving: Duration = lanes.iter().map(|lane| lane.receiving).sum();
        // CPU waits are counted only for workers that move data. The opposite direction, which
        // carries answers, is not their time.
        let waits = match role {
            Role::Source => sending,
            Role::Sink => receiving,
        };
        let all = storage + hashing + packing + crypto + waits;
        let processor = run_delay.min(all);
        let kept = if all.is_zero() { 1.0 } else { 1.0 - processor.as_secs_f64() / all.as_secs_f64() };
        let [storage, hashing, packing, crypto] =
            [storage, hashing, packing, crypto].map(|part| part.mul_f64(kept));
        let (sending, receiving) = match role {
            Role::Source => (sending.mul_f64(kept), receiving),
            Role::Sink => (sending, receiving.mul_f64(kept)),
        };
        TimeBreakdown { storage, hashing, packing, crypto, processor, sending, receiving }
    }
}

impl TransferTimeBreakdown {
    /// Computes the split from the statistics of both sides.
    pub(super) fn of(source: &Times, sink: &Times) -> TransferTimeBreakdown {
        let received: HashMap<LaneId, Duration> =
            sink.lanes.iter().map(|lane| (lane.lane, lane.receiving)).collect();
        let waited =
            |lane: &LaneTimes| received.get(&lane.lane).map_or(Duration::ZERO, |r| lane.sending.min(*r));
        let both: Duration = source.lanes.iter().map(waited).sum();
        // If both sides share few CPUs, each waits long for the peer while the peer waits for a
        // CPU.
        let network = both.saturating_sub(source.run_delay.saturating_add(sink.run_delay));
        TransferTimeBreakdown {
            source: TimeBreakdown::of(source, Role::Source),
            sink: TimeBreakdown::of(sink, Role::Sink),
            network,
        }
    }
}

/// Running totals for [`TimeBreakdown`] and [`Traffic`].
#[derive(Debug, Default)]
pub(super) struct Clocks {
    pub(super) storage: Clock,
    pub(super) hashing: Clock,
    pub(super) packing: Clock,
    pub(super) cpu_wait: CpuWaitTime,
    /// Bytes before and after compression.
    packed: [AtomicU64; 2],
}

/// Total time of one activity.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// Adds the time of one worker.
    pub(super) fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Runs `work` and adds its time.
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
    /// Counts a block that was sent compressed.
    pub(super) fn packed(&self, plain: usize, packed: usize) {
        for (total, bytes) in self.packed.iter().zip([plain, packed]) {
            total.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Returns the traffic; `lanes` are the counters of the lanes.
    pub(super) fn traffic(&self, lanes: &[(LaneId, LaneStats)]) -> Traffic {
        let [plain, packed] = self.packed.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        let sum = |bytes: fn(&LaneStats) -> u64| lanes.iter().map(|(_, stats)| bytes(stats)).sum::<u64>();
        Traffic { sent: sum(|stats| stats.bytes_out), received: sum(|stats| stats.bytes_in), plain, packed }
    }

    /// Returns the time statistics so far; `lanes` are the counters of the lanes.
    pub(super) fn times(&self, lanes: &[(LaneId, LaneStats)]) -> Times {
        Times {
            storage: self.storage.total(),
            hashing: self.hashing.total(),
            packing: self.packing.total(),
            crypto: lanes.iter().map(|(_, stats)| stats.crypto).sum(),
            run_delay: self.cpu_wait.total(),
            lanes: lanes
                .iter()
                .map(|(lane, stats)| LaneTimes {
                    lane: *lane,
                    // Time spent on the rate limit counts as a slow network.
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

    /// An idle lane waits all the time at the sink, and a lost lane is known to one side only.
    #[test]
    fn network_time_is_the_wait_of_both_ends_of_a_lane() {
        let slow_network =
            TransferTimeBreakdown::of(&times(&[(0, 9, 1), (1, 8, 1)]), &times(&[(0, 0, 8), (1, 0, 9)]));
        assert_eq!(slow_network.network, seconds(16));
        let slow_sink = TransferTimeBreakdown::of(
            &times(&[(0, 9, 1), (1, 0, 9), (2, 4, 0)]),
            &times(&[(0, 0, 1), (1, 0, 9)]),
        );
        assert_eq!(slow_sink.network, seconds(1));
        assert_eq!((slow_sink.source.sending, slow_sink.sink.receiving), (seconds(13), seconds(10)));
        let slow_source = TransferTimeBreakdown::of(&times(&[(0, 1, 1)]), &times(&[(0, 0, 9)]));
        assert_eq!(slow_source.network, seconds(1));
    }

    /// Two lanes whose ends share two CPUs: a side that waited for the peer waited for a CPU.
    #[test]
    fn cpu_wait_is_not_network_time() {
        let hashing = seconds(2);
        let source = Times { hashing, run_delay: seconds(6), ..times(&[(0, 5, 0), (1, 5, 0)]) };
        let sink = Times { hashing, run_delay: seconds(5), ..times(&[(0, 0, 4), (1, 0, 4)]) };
        let split = TransferTimeBreakdown::of(&source, &sink);
        assert_eq!(split.network, Duration::ZERO);
        assert_eq!(split.source.processor, seconds(6));
        assert_eq!((split.source.hashing, split.source.sending), (seconds(1), seconds(5)));
        assert_eq!((split.sink.hashing, split.sink.processor), (seconds(1), seconds(5)));
        let unknown = |times: Times| Times { run_delay: Duration::ZERO, ..times };
        let split = TransferTimeBreakdown::of(&unknown(source), &unknown(sink));
        assert_eq!((split.network, split.source.hashing), (seconds(8), hashing));
    }

    /// False statistics of a peer cannot exceed the total that they are part of.
    #[test]
    fn false_peer_times_do_not_exceed_their_total() {
        let longest = Duration::from_micros(u64::MAX);
        let lane = |lane| LaneTimes { lane: LaneId(lane), sending: longest, receiving: longest };
        for (storage, run_delay) in [(longest, longest), (Duration::ZERO, longest), (longest, Duration::ZERO)]
        {
            for count in [0, 1, 256] {
                let lanes = (0..count).map(lane).collect();
                let theirs = Times { storage, run_delay, lanes, ..Times::default() };
                let split = TransferTimeBreakdown::of(&theirs, &theirs);
                let most = run_delay.min(storage + longest * count);
                assert_eq!((split.source.processor, split.sink.processor), (most, most));
            }
        }
    }
}
