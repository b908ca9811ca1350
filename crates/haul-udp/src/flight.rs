//! Packets in flight: acknowledgement, loss detection and samples of the delivery rate.
//!
//! A packet is lost if a packet that was sent more than the reordering tolerance later has arrived
//! (RACK, RFC 8985). The tolerance adapts: if a packet that was declared lost arrives, the
//! tolerance becomes larger than its delay.

use crate::packet::Ack;
use crate::rtt::{Rtt, ack_delay};
use crate::send::{Piece, SendBuffer};
use crate::time::{MICRO, Time};
use std::collections::VecDeque;

/// Number of packets that are remembered whatever the send buffer. Beyond them, the memory of the
/// records counts against the send buffer.
pub(crate) const RECORDS_MIN: usize = 1 << 10;

/// Maximum number of additional records of packets that only acknowledge. They wait behind the
/// record of a packet that is not acknowledged yet.
pub(crate) const ACK_RECORDS_MAX: usize = 1 << 16;

/// Memory of a record in bytes. The list of records grows by a quarter.
pub(crate) const RECORD_BYTES: usize = size_of::<Sent>() * 5 / 4;

/// Content of a packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Requires no acknowledgement.
    None,
    /// Control frames that require an acknowledgement.
    Control,
    /// A probe of the datagram size.
    Probe,
    /// A part of the stream.
    Data(Piece),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Flying,
    Lost,
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    time: Time,
    bytes: u32,
    content: Content,
    status: Status,
    /// State of the delivery at the time of sending.
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    is_app_limited: bool,
}

/// A measurement of the delivery rate over about one round trip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// True if the sender had no data for a part of the time.
    pub(crate) is_app_limited: bool,
    /// Bytes delivered before the measured packet was sent.
    pub(crate) prior: u64,
}

/// Effects of an acknowledgement or of the passage of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes of datagrams newly acknowledged.
    pub(crate) acked: u64,
    /// Bytes of datagrams newly lost, without probes.
    pub(crate) lost: u64,
    /// Number of packets newly lost, without probes.
    pub(crate) lost_packets: u64,
    /// Number of packets that were declared lost before and have arrived.
    pub(crate) spurious: u64,
    /// A new sample of the round-trip time in nanoseconds.
    pub(crate) rtt: Option<u64>,
    pub(crate) sample: Option<Sample>,
    /// Size of the largest datagram newly acknowledged.
    pub(crate) largest_acked: u32,
    /// Sizes of the probes newly acknowledged and lost.
    pub(crate) probes_acked: Vec<u32>,
    pub(crate) probes_lost: Vec<u32>,
    /// Number of lost data packets by whether they were larger than the smallest datagram size.
    pub(crate) large_lost: u64,
}

/// All packets from the oldest that is unsettled.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Number of the first record.
    base: u64,
    sent: VecDeque<Sent>,
    /// Bytes of packets that are in flight and count against the window.
    pub(crate) in_flight: u64,
    /// Number of packets in flight that require an acknowledgement.
    pub(crate) waiting: u64,
    pub(crate) delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    /// Delivery count at which the app-limited period ends.
    app_limited_until: u64,
    /// Send time of the most recently sent packet that has arrived.
    newest: Option<Time>,
    /// Highest number that has arrived.
    newest_number: u64,
    /// Packets before this number are acknowledged or lost.
    scan: u64,
    tolerance: u64,
    /// Time of the last spurious loss, or of the last reduction of the tolerance.
    adapted: Time,
    pub(crate) last_sent: Time,
    /// Datagrams above this size count as large.
    pub(crate) small: u32,
}

impl Flight {
    pub(crate) fn new(now: Time, small: u32) -> Self {
        Self {
            base: 0,
            sent: VecDeque::new(),
            in_flight: 0,
            waiting: 0,
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            app_limited_until: 0,
            newest: None,
            newest_number: 0,
            scan: 0,
            tolerance: 0,
            adapted: now,
            last_sent: now,
            small,
        }
    }

    /// Number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    /// Memory of the records in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.sent.capacity() * size_of::<Sent>()
    }

    /// Records that the peer has everything.
    pub(crate) fn settle_all(&mut self) {
        self.base = self.next_number();
        self.scan = self.base;
        self.sent = VecDeque::new();
        (self.in_flight, self.waiting) = (0, 0);
    }

    /// Number of packets that are remembered.
    pub(crate) fn records(&self) -> usize {
        self.sent.len()
    }

    /// Records the packet [`Flight::next_number`].
    pub(crate) fn push(&mut self, now: Time, bytes: u32, content: Content) {
        if self.in_flight == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let status = if content == Content::None { Status::Settled } else { Status::Flying };
        if status == Status::Flying {
            self.waiting += 1;
            self.last_sent = now;
        }
        if matches!(content, Content::Data(_)) {
            self.in_flight += u64::from(bytes);
        }
        if self.sent.len() == self.sent.capacity() {
            self.sent.reserve_exact((self.sent.len() / 4).max(RECORDS_MIN / 16));
        }
        self.sent.push_back(Sent {
            time: now,
            bytes,
            content,
            status,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            is_app_limited: self.app_limited_until > self.delivered,
        });
        self.forget(now, u64::MAX);
    }

    /// Records that the sender has no more data.
    pub(crate) fn set_app_limited(&mut self) {
        self.app_limited_until = (self.delivered + self.in_flight).max(1);
    }

    /// Removes settled records from the front. Lost packets stay for `memory` nanoseconds, in which
    /// they may still arrive.
    fn forget(&mut self, now: Time, memory: u64) {
        while let Some(first) = self.sent.front() {
            let is_old = first.status == Status::Lost && now.saturating_sub(first.time) > memory;
            if first.status != Status::Settled && !is_old {
                break;
            }
            self.sent.pop_front();
            self.base += 1;
        }
        self.scan = self.scan.max(self.base);
        if self.sent.capacity() > 4 * self.sent.len().max(RECORDS_MIN) {
            self.sent.shrink_to(2 * self.sent.len());
        }
    }

    /// Takes an ACK frame, whose numbers are below [`Flight::next_number`].
    pub(crate) fn ack(&mut self, now: Time, ack: Ack<'_>, rtt: &mut Rtt, stream: &mut SendBuffer) -> Outcome {
        let mut outcome = Outcome::default();
        let mut newest_acked: Option<Sent> = None;
        for range in ack.ranges() {
            let (low, high) = range.into_inner();
            if high < self.base {
                break;
            }
            for number in (low.max(self.base)..=high).rev() {
                let Some(index) = usize::try_from(number - self.base).ok().filter(|i| *i < self.sent.len())
                else {
                    continue;
                };
                let sent = self.sent[index];
                if sent.status == Status::Settled {
                    continue;
                }
                self.sent[index].status = Status::Settled;
                self.settle(now, sent, stream, &mut outcome);
                if newest_acked.is_none() {
                    newest_acked = Some(sent);
                    if number == ack.largest {
                        outcome.rtt = Some(rtt.take(now, now - sent.time, u64::from(ack.delay) * MICRO));
                    }
                }
            }
        }
        if let Some(sent) = newest_acked {
            self.newest = Some(self.newest.map_or(sent.time, |known| known.max(sent.time)));
            self.newest_number = self.newest_number.max(ack.largest);
            self.first_sent = self.first_sent.max(sent.time);
            self.delivered_at = now;
            let send_time = sent.time - sent.first_sent.min(sent.time);
            let time = send_time.max(now - sent.delivered_at);
            let is_data = matches!(sent.content, Content::Data(_));
            if is_data && time > 0 && self.delivered > sent.delivered && time >= rtt.min.unwrap_or(0) / 2 {
                let bytes = u128::from(self.delivered - sent.delivered);
                let rate = u64::try_from(bytes * 1_000_000_000 / u128::from(time)).unwrap_or(u64::MAX);
                let is_app_limited = sent.is_app_limited;
                outcome.sample = Some(Sample { rate, is_app_limited, prior: sent.delivered });
            }
        }
        self.detect(now, rtt, stream, &mut outcome);
        self.forget(now, 4 * rtt.smoothed() + self.tolerance);
        outcome
    }

    fn settle(&mut self, now: Time, sent: Sent, stream: &mut SendBuffer, outcome: &mut Outcome) {
        let is_spurious = sent.status == Status::Lost;
        if is_spurious {
            outcome.spurious += 1;
            // The packet arrived this much later than packets sent after it.
            let late = self.newest.map_or(0, |newest| newest.saturating_sub(sent.time));
            self.tolerance = self.tolerance.max(late + late / 4);
            self.adapted = now;
        } else {
            self.waiting -= 1;
        }
        self.delivered += u64::from(sent.bytes);
        outcome.acked += u64::from(sent.bytes);
        outcome.largest_acked = outcome.largest_acked.max(sent.bytes);
        match sent.content {
            Content::Data(piece) => {
                if !is_spurious {
                    self.in_flight -= u64::from(sent.bytes);
                }
                stream.ack(piece);
            }
            Content::Probe => outcome.probes_acked.push(sent.bytes),
            Content::Control | Content::None => {}
        }
    }

    /// Time by which a packet may arrive later than packets that were sent after it, in
    /// nanoseconds.
    fn tolerance(&self, rtt: &Rtt) -> u64 {
        let least = (rtt.min.unwrap_or(0) / 8).clamp(100 * MICRO, 50_000 * MICRO);
        self.tolerance.max(least).min(rtt.smoothed().max(least))
    }

    /// Time after which a packet is lost if a later one has arrived, in nanoseconds.
    fn patience(&self, rtt: &Rtt) -> u64 {
        let round = rtt.smoothed().max(rtt.latest);
        round + ack_delay(round) + self.tolerance(rtt)
    }

    /// Declares packets lost.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt, stream: &mut SendBuffer, outcome: &mut Outcome) {
        // The tolerance shrinks by half after 16 round trips without a spurious loss.
        if now.saturating_sub(self.adapted) > 16 * rtt.smoothed() {
            self.tolerance /= 2;
            self.adapted = now;
        }
        let tolerance = self.tolerance(rtt);
        while let Some(sent) = self.sent.get(index(self.scan, self.base)).copied() {
            if sent.status == Status::Flying {
                let Some(newest) = self.newest.filter(|_| self.newest_number > self.scan) else { break };
                let is_passed = newest.saturating_sub(sent.time) > tolerance;
                let is_late = now >= sent.time + self.patience(rtt);
                if !is_passed && !is_late {
                    break;
                }
                self.lose(self.scan, stream, outcome);
            }
            self.scan += 1;
        }
    }

    fn lose(&mut self, number: u64, stream: &mut SendBuffer, outcome: &mut Outcome) {
        let sent = &mut self.sent[index(number, self.base)];
        sent.status = Status::Lost;
        self.waiting -= 1;
        match sent.content {
            Content::Data(piece) => {
                self.in_flight -= u64::from(sent.bytes);
                outcome.lost += u64::from(sent.bytes);
                outcome.lost_packets += 1;
                outcome.large_lost += u64::from(sent.bytes > self.small);
                stream.lose(piece);
            }
            Content::Probe => outcome.probes_lost.push(sent.bytes),
            Content::Control | Content::None => outcome.lost_packets += 1,
        }
    }

    /// Returns the time at which [`Flight::detect`] finds the next loss if no packet arrives.
    pub(crate) fn next_loss(&self, rtt: &Rtt) -> Option<Time> {
        let sent = self.sent.get(index(self.scan, self.base))?;
        let is_passed = self.newest.is_some() && self.newest_number > self.scan;
        (sent.status == Status::Flying && is_passed).then(|| sent.time + self.patience(rtt))
    }

    /// Declares the oldest data packets in flight lost, at most `count`, so that their bytes are
    /// sent again. Returns the number of packets.
    pub(crate) fn resend_oldest(
        &mut self,
        count: usize,
        stream: &mut SendBuffer,
        outcome: &mut Outcome,
    ) -> usize {
        let is_data = |sent: &Sent| sent.status == Status::Flying && matches!(sent.content, Content::Data(_));
        let from = index(self.scan, self.base);
        let numbers: Vec<u64> = (self.scan..)
            .zip(self.sent.range(from.min(self.sent.len())..))
            .filter(|(_, sent)| is_data(sent))
            .map(|(number, _)| number)
            .take(count)
            .collect();
        numbers.iter().for_each(|number| self.lose(*number, stream, outcome));
        numbers.len()
    }

    /// Declares all packets in flight lost.
    pub(crate) fn lose_all(&mut self, stream: &mut SendBuffer, outcome: &mut Outcome) {
        for number in self.scan..self.next_number() {
            if self.sent[index(number, self.base)].status == Status::Flying {
                self.lose(number, stream, outcome);
            }
        }
        self.scan = self.next_number();
    }
}

fn index(number: u64, base: u64) -> usize {
    usize::try_from(number - base).unwrap_or(usize::MAX)
}
