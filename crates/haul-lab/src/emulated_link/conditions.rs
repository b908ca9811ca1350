//! Conditions of one direction of a link: what it does to the packets that cross it.

use crate::random::Random;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// Conditions of one direction of a link. The default is a path without a limit or a fault.
///
/// A packet passes the filters at the entrance (`blocks_udp`, `drops_fragments`, `mtu`), then the
/// queue in front of the bottleneck (`rate`, `burst`, `queue`, `discipline`), which it shares with
/// `cross`, and then the line, which is down, loses, corrupts, delays, reorders and duplicates.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// One-way delay behind the bottleneck: half of the round-trip time.
    pub delay: Duration,
    /// Greatest deviation from `delay`, in both directions; the delay is never below zero.
    pub jitter: Duration,
    /// With false, the deviation changes slowly and packets keep their order. With true, each
    /// packet has its own deviation, and packets overtake each other.
    pub jitter_reorders: bool,
    /// Rate in bits per second, of Ethernet frames with preamble and gap; `None` for no limit.
    pub rate: Option<u64>,
    /// Number of bytes that leave at once after an idle time (depth of the token bucket). With 0,
    /// each packet takes its time on the wire.
    pub burst: u64,
    /// Maximum number of queued bytes, with Ethernet framing; packets beyond it are lost.
    pub queue: u64,
    /// When the queue drops a packet before it is full.
    pub discipline: Discipline,
    /// Probability that a packet is lost, independent of all others.
    pub loss: Probability,
    /// Losses in bursts, in addition to `loss`.
    pub burst_loss: Option<BurstLoss>,
    /// Probability that a bit is flipped in a packet, so that its checksum is wrong.
    pub corrupt: Probability,
    /// Probability that a bit of the payload of a TCP or UDP packet is flipped and the checksum is
    /// made valid again.
    pub corrupt_silently: Probability,
    /// Probability that a packet is late by `reorder_by`, so that later packets overtake it.
    pub reorder: Probability,
    /// Additional delay of a packet that is reordered.
    pub reorder_by: Duration,
    /// Probability that a packet arrives twice.
    pub duplicate: Probability,
    /// Maximum length of an IP packet in bytes. Longer packets are dropped without a message to the
    /// sender.
    pub mtu: Option<u32>,
    /// Drops all IP fragments.
    pub drops_fragments: bool,
    /// Drops all UDP packets.
    pub blocks_udp: bool,
    /// Drops all packets: the path is down.
    pub is_down: bool,
    /// Times since the start of the link between which the path is down.
    pub outage: Option<Range<Duration>>,
    /// Traffic of others through the same queue; takes effect only with a `rate`.
    pub cross: Option<CrossTraffic>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            jitter_reorders: false,
            rate: None,
            burst: 0,
            queue: 16 << 20,
            discipline: Discipline::TailDrop,
            loss: Probability::ZERO,
            burst_loss: None,
            corrupt: Probability::ZERO,
            corrupt_silently: Probability::ZERO,
            reorder: Probability::ZERO,
            reorder_by: Duration::from_millis(5),
            duplicate: Probability::ZERO,
            mtu: None,
            drops_fragments: false,
            blocks_udp: false,
            is_down: false,
            outage: None,
            cross: None,
        }
    }
}

impl Conditions {
    /// Returns true if the kernel's veth interfaces and its token bucket can do all of this.
    pub(super) fn are_plain(&self) -> bool {
        *self == Conditions { rate: self.rate, queue: self.queue, ..Conditions::default() }
    }

    /// Returns the shortest time that a packet spends on the line.
    pub(super) fn shortest_delay(&self) -> Duration {
        self.delay.saturating_sub(self.jitter)
    }

    /// Returns true if the path is down at a time since the start of the link.
    pub(super) fn are_down(&self, at: Duration) -> bool {
        self.is_down || self.outage.as_ref().is_some_and(|outage| outage.contains(&at))
    }
}

/// When a queue drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Only when it is full: the packet that arrives.
    TailDrop,
    /// Also when packets have waited for longer than `target` during an `interval`: the packet that
    /// is next (CoDel, RFC 8289).
    CoDel {
        /// Acceptable wait in the queue; 5 ms in the RFC.
        target: Duration,
        /// About one round-trip time; 100 ms in the RFC.
        interval: Duration,
    },
}

impl Discipline {
    /// CoDel with the parameters of RFC 8289.
    pub const CODEL: Discipline =
        Discipline::CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) };
}

/// Losses in bursts (Gilbert 1960, Elliott 1963): the line is either good or bad for each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// Share of all packets that is lost in bursts. At least one packet passes between two bursts,
    /// which limits the share.
    pub share: Probability,
    /// Mean number of packets for which the line is bad; at least 1.
    pub length: f64,
    /// Probability that a packet is lost while the line is bad. With 1, `length` is the mean number
    /// of packets lost in succession.
    pub within: Probability,
}

/// Seeded traffic of other hosts: sources that send packets of 1,500 bytes at a constant rate or
/// pause, both for exponentially distributed times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossTraffic {
    /// Average rate of all sources together, in bits per second.
    pub rate: u64,
    /// Number of sources, at least 1.
    pub sources: u32,
    /// Mean time for which a source sends; not zero.
    pub on: Duration,
    /// Mean time for which a source pauses.
    pub off: Duration,
}

impl CrossTraffic {
    /// Eight sources that send for 100 ms and pause for 100 ms on average.
    pub fn of_rate(rate: u64) -> CrossTraffic {
        let mean = Duration::from_millis(100);
        CrossTraffic { rate, sources: 8, on: mean, off: mean }
    }
}

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// Error of a probability that is not from 0 to 1 or from 0 % to 100 %.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("invalid probability; use for example 0.001 or 0.1%")]
pub struct ProbabilityError;

impl Probability {
    /// Never.
    pub const ZERO: Probability = Probability(0.0);
    /// Always.
    pub const ONE: Probability = Probability(1.0);

    /// Returns the probability `value`, from 0 to 1.
    ///
    /// # Errors
    /// Returns [`ProbabilityError`] for other values.
    pub fn new(value: f64) -> Result<Probability, ProbabilityError> {
        if (0.0..=1.0).contains(&value) { Ok(Probability(value)) } else { Err(ProbabilityError) }
    }

    /// Returns the number.
    pub fn value(self) -> f64 {
        self.0
    }

    pub(super) fn draw(self, random: &mut Random) -> bool {
        self.0 > 0.0 && random.unit() < self.0
    }
}

impl FromStr for Probability {
    type Err = ProbabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
        Probability::new(number.parse::<f64>().map_err(|_| ProbabilityError)? / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_numbers_or_percentages() {
        assert_eq!("0.1%".parse(), Probability::new(0.001));
        assert_eq!("1e-4".parse(), Probability::new(0.0001));
        assert_eq!("100%".parse(), Ok(Probability::ONE));
        assert_eq!("0".parse(), Ok(Probability::ZERO));
        for wrong in ["", "%", "1.01", "101%", "-1%", "NaN", "inf"] {
            assert_eq!(wrong.parse::<Probability>(), Err(ProbabilityError), "{wrong}");
        }
    }

    #[test]
    fn kernel_limits_only_the_rate_and_the_queue() {
        let plain = Conditions { rate: Some(1000), queue: 5, ..Conditions::default() };
        assert!(plain.are_plain());
        assert!(!Conditions { delay: Duration::from_nanos(1), ..plain.clone() }.are_plain());
        assert!(!Conditions { loss: Probability::ONE, ..plain.clone() }.are_plain());
        assert!(!Conditions { is_down: true, ..plain }.are_plain());
    }
}
