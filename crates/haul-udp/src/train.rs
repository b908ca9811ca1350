//! Packet trains: datagrams that leave together. Their spread at the receiver shows the rate of the
//! path (C. Dovrolis et al., "Packet-Dispersion Techniques and a Capacity-Estimation Methodology",
//! 2004).

use crate::time::{SECOND, Time};

/// Length of the first train in datagrams.
pub(crate) const SHORT: u64 = 64;
/// Factor by which a train is longer than one whose spread was too short, and the maximum length.
const GROWTH: u64 = 4;
const LONG: u64 = 1024;
/// Maximum number of trains of a sender.
const TRAINS_MAX: u32 = 4;
/// Moments of arrival from which on a spread is a measurement.
const MOMENTS_MIN: u32 = 4;
/// Number of packets that carry a report, because one may be lost.
const REPORTS: u8 = 3;
/// Maximum rate in bytes per second that a report can state: 1 Tbit/s.
const RATE_MAX: u64 = 125_000_000_000;

/// Trains that this end sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trains {
    started: u32,
    /// Length of the next train.
    len: u64,
    /// Datagrams of the present train that have not left.
    left: u64,
    /// Length of the present train, until its first datagram announces it.
    unannounced: Option<u16>,
    /// First number of the last train, and the time until which its report counts.
    waiting: Option<(u64, Time)>,
}

impl Trains {
    pub(crate) fn new() -> Self {
        Self { started: 0, len: SHORT, left: 0, unannounced: None, waiting: None }
    }

    /// Length of the next train in datagrams, if one can start.
    pub(crate) fn next_len(&self, now: Time) -> Option<u64> {
        let is_waiting = self.waiting.is_some_and(|(_, until)| now < until);
        let may_start = self.left == 0 && self.started < TRAINS_MAX && !is_waiting;
        may_start.then_some(self.len)
    }

    /// Bytes of the next train of datagrams of `datagram` bytes.
    pub(crate) fn bytes(&self, datagram: usize) -> u64 {
        self.len * datagram as u64
    }

    /// Starts a train of `len` datagrams. Its report counts until `until`.
    pub(crate) fn start(&mut self, len: u64, until: Time) {
        self.started += 1;
        self.left = len;
        self.unannounced = u16::try_from(len).ok();
        self.waiting = Some((u64::MAX, until));
    }

    /// Returns the length of a train that starts with the packet `first`.
    pub(crate) fn announce(&mut self, first: u64) -> Option<u16> {
        let len = self.unannounced.take()?;
        self.waiting = self.waiting.map(|(_, until)| (first, until));
        Some(len)
    }

    /// True while datagrams of a train leave.
    pub(crate) fn is_active(&self) -> bool {
        self.left > 0
    }

    /// Records a datagram with data.
    pub(crate) fn sent(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Ends the present train before its last datagram.
    pub(crate) fn stop(&mut self) {
        (self.left, self.unannounced) = (0, None);
    }

    /// Takes a report. Returns the rate in bytes per second, if it was measured.
    pub(crate) fn take(&mut self, report: Spread) -> Option<u64> {
        self.waiting.take_if(|(first, _)| *first == report.first)?;
        let rate = (u64::from(report.bytes) * SECOND).checked_div(u64::from(report.nanos));
        if rate.is_none() {
            self.len = (GROWTH * self.len).min(LONG);
        }
        rate.map(|rate| rate.min(RATE_MAX))
    }
}

/// Spread of a train at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Number of the first packet of the train.
    pub first: u64,
    /// Bytes of the datagrams that arrived after those of the first moment.
    pub bytes: u32,
    /// Time in which they arrived, in nanoseconds; 0 if the receiver cannot measure the spread.
    pub nanos: u32,
}

/// The last train that this end received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    first: u64,
    len: u64,
    packets: u64,
    /// Bytes after the first moment.
    bytes: u64,
    begin: Time,
    last: Time,
    /// Number of different moments of arrival, and the longest time between two.
    moments: u32,
    pause: Time,
    /// Number of times that the report is still sent.
    reports: u8,
}

impl Arrival {
    /// Takes the start of a train of `len` datagrams.
    pub(crate) fn start(&mut self, first: u64, len: u64) {
        if self.len == 0 || first > self.first {
            *self = Self { first, len, ..Self::default() };
        }
    }

    /// Takes a packet. The train is complete with three quarters of its packets.
    pub(crate) fn packet(&mut self, now: Time, number: u64, size: u64) {
        if number < self.first || number - self.first >= self.len {
            return;
        }
        if self.packets == 0 {
            (self.begin, self.last, self.moments) = (now, now, 1);
        }
        if now > self.last {
            self.moments += 1;
            self.pause = self.pause.max(now - self.last);
            self.last = now;
        }
        self.bytes += if now > self.begin { size } else { 0 };
        self.packets += 1;
        if self.packets == (self.len * 3).div_ceil(4) {
            self.reports = REPORTS;
        }
    }

    /// Returns a report that has to leave.
    pub(crate) fn report(&mut self) -> Option<Spread> {
        self.reports = self.reports.checked_sub(1)?;
        let time = self.last - self.begin;
        // A long pause is one of the machine, and few moments say nothing about the path.
        let is_measured = self.moments >= MOMENTS_MIN && self.pause <= time / 2;
        let nanos = if is_measured { u32::try_from(time).unwrap_or(u32::MAX) } else { 0 };
        Some(Spread { first: self.first, bytes: u32::try_from(self.bytes).unwrap_or(u32::MAX), nanos })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 64;

    /// Reports a train whose datagrams arrive every `gap` nanoseconds, delivered at multiples of
    /// `collected`.
    fn arrive(gap: u64, collected: u64) -> Spread {
        let mut arrival = Arrival::default();
        arrival.start(7, LEN);
        (0..LEN).for_each(|at| arrival.packet((at * gap).next_multiple_of(collected), 7 + at, 1000));
        arrival.report().unwrap()
    }

    #[test]
    fn the_spread_of_a_train_is_its_rate() {
        assert_eq!(arrive(8_000, 1), Spread { first: 7, bytes: 63_000, nanos: 63 * 8_000 });
        for collected in [20_000, 50_000, 100_000] {
            let Spread { bytes, nanos, .. } = arrive(8_000, collected);
            let rate = f64::from(bytes) / f64::from(nanos);
            assert!((0.1..=0.14).contains(&rate), "{rate} bytes/ns");
        }
    }

    #[test]
    fn a_train_that_arrives_in_few_moments_or_with_a_pause_measures_nothing() {
        assert_eq!(arrive(8_000, 1_000_000).nanos, 0);
        let mut arrival = Arrival::default();
        arrival.start(0, LEN);
        (0..LEN).for_each(|at| arrival.packet(at * 1000 + u64::from(at > 20) * 900_000, at, 1000));
        assert_eq!(arrival.report().map(|report| report.nanos), Some(0));
    }

    #[test]
    fn a_report_leaves_three_times_and_counts_once() {
        let mut arrival = Arrival::default();
        arrival.start(0, LEN);
        (0..LEN * 3 / 4 - 1).for_each(|at| arrival.packet(at, at, 1000));
        assert_eq!(arrival.report(), None);
        (LEN - 1..LEN * 3).for_each(|at| arrival.packet(at, at, 1000));
        let reports: Vec<_> = std::iter::from_fn(|| arrival.report()).collect();
        assert_eq!(reports.len(), 3);
        let mut trains = Trains::new();
        assert_eq!(trains.next_len(0), Some(SHORT));
        trains.start(LEN, 100);
        assert_eq!((trains.announce(0), trains.announce(1)), (Some(64), None));
        (0..LEN).for_each(|_| trains.sent());
        assert_eq!((trains.is_active(), trains.next_len(99)), (false, None));
        assert!(trains.take(Spread { first: 9, ..reports[0] }).is_none(), "of another train");
        assert!(trains.take(reports[0]).is_some());
        assert!(trains.take(reports[1]).is_none());
        assert_eq!(trains.next_len(99), Some(SHORT));
        trains.start(SHORT, 200);
        trains.announce(LEN);
        trains.stop();
        assert!(trains.take(Spread { first: LEN, bytes: 0, nanos: 0 }).is_none());
        assert_eq!(trains.next_len(99), Some(GROWTH * SHORT), "the spread was too short");
    }
}
