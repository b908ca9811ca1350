//! Datagrams that arrive.

use super::{Association, Closing};
use crate::check::PACKETS_PER_EPOCH;
use crate::config::{Failure, Role, State};
use crate::packet::{Ack, COMPLETE, FINISHED, Frame, Frames, HEADER_LEN, Header, VIOLATION};
use crate::receive::Refusal;
use crate::rtt::ack_delay;
use crate::time::{MICRO, Time};

/// Packets that are acknowledged in pairs at the start of an association.
const EARLY: u64 = 128;

/// Reason to drop a packet whose seal is intact.
enum Drop {
    Violation(&'static str),
    Full,
}

impl<A: Copy + Eq> Association<A> {
    /// Takes a datagram from an address. Opens the datagram in place. A datagram that is damaged,
    /// forged, too old, a duplicate, of another association or from another address changes nothing
    /// but a counter of [`crate::Stats`]. An end that has finished still answers a peer that does
    /// not know it yet.
    pub fn receive(&mut self, now: Time, from: A, datagram: &mut [u8]) {
        let size = datagram.len() as u64;
        let Some(header) = Header::decode(datagram) else {
            self.stats.packets_damaged += 1;
            return;
        };
        if header.connection != self.config.local_id || self.peer.is_some_and(|peer| peer != from) {
            self.stats.packets_foreign += 1;
            return;
        }
        let (head, body) = datagram.split_at_mut(HEADER_LEN);
        let known = self.arrivals.next().saturating_sub(1) / PACKETS_PER_EPOCH;
        if body.len() < self.open.overhead() || header.number / PACKETS_PER_EPOCH > known + 1 {
            self.stats.packets_damaged += 1;
            return;
        }
        if !self.arrivals.is_new(header.number) {
            self.stats.packets_duplicate += 1;
            return;
        }
        let Some(len) = self.open.open(header.number, head, body) else {
            self.stats.packets_damaged += 1;
            return;
        };
        let body = &body[..len];
        match self.check(body) {
            Ok(()) => self.apply(now, from, header.number, size, body),
            // Not acknowledged, so that the peer sends the bytes again.
            Err(Drop::Full) => {}
            Err(Drop::Violation(what)) if self.open.is_authentic() => {
                self.fail(now, Failure::Violation(what), Some(VIOLATION));
            }
            Err(Drop::Violation(_)) => self.stats.packets_damaged += 1,
        }
    }

    /// Checks all frames before any of them has an effect.
    fn check(&self, body: &[u8]) -> Result<(), Drop> {
        for frame in Frames::new(body) {
            match frame {
                Err(_) => return Err(Drop::Violation("a malformed frame")),
                Ok(Frame::Ack(ack)) if ack.largest >= self.flight.next_number() => {
                    return Err(Drop::Violation("an acknowledgement of a packet that was never sent"));
                }
                Ok(Frame::Stream { offset, data, is_end }) => {
                    match self.received.check(offset, data.len(), is_end) {
                        Ok(()) => {}
                        Err(Refusal::Violation) => {
                            return Err(Drop::Violation("bytes beyond the credit or the end of the stream"));
                        }
                        Err(Refusal::Gaps) => return Err(Drop::Full),
                    }
                }
                Ok(Frame::Close(code))
                    if code <= FINISHED && self.state == State::Open && !self.stream.is_all_sent() =>
                {
                    return Err(Drop::Violation("the end of a stream that this end has not sent"));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn apply(&mut self, now: Time, from: A, number: u64, size: u64, body: &[u8]) {
        self.peer = Some(from);
        self.heard = Some(now);
        self.stats.packets_received += 1;
        self.stats.bytes_received += size;
        let is_eliciting = Frames::new(body)
            .flatten()
            .any(|frame| !matches!(frame, Frame::Ack(_) | Frame::Pong(_) | Frame::Close(_)));
        if number >= self.arrivals.next() {
            self.owed.largest_at = now;
        }
        let is_gap = self.arrivals.mark(number, is_eliciting);
        if let State::Failed(_) = self.state {
            return;
        }
        let mut is_urgent = false;
        for frame in Frames::new(body).flatten() {
            match frame {
                Frame::Ping(token) => {
                    self.pong = Some(token);
                    is_urgent = true;
                }
                Frame::Pong(token) => self.is_proven |= token == self.config.token,
                Frame::Ack(ack) => self.take_ack(now, ack),
                Frame::Rtt(micros) => self.peer_rtt = Some(u64::from(micros) * MICRO),
                Frame::Train(len) => self.train.start(number, u64::from(len)),
                Frame::Spread(spread) => {
                    if let Some(rate) = self.trains.take(spread) {
                        let old = self.control.rate();
                        self.control.on_train(rate);
                        self.pacer.change_rate(now, old, self.control.rate());
                    }
                }
                Frame::Stream { offset, data, is_end } => {
                    self.received.insert(offset, data, is_end);
                    is_urgent |= is_end;
                }
                Frame::Close(code) => self.take_close(now, code),
            }
        }
        self.train.packet(now, number, size);
        if is_eliciting {
            self.owe(now, size, is_gap, is_urgent);
        }
        self.check_complete(now);
    }

    fn take_ack(&mut self, now: Time, ack: Ack<'_>) {
        self.credit = self.credit.max(ack.credit);
        self.acked_number = self.acked_number.max(ack.largest);
        let outcome = self.flight.ack(now, ack, &mut self.rtt, &mut self.stream);
        if outcome.acked > 0 {
            self.timeouts = 0;
            self.progress = now;
        }
        self.take_outcome(now, &outcome, true);
    }

    /// [`COMPLETE`] and [`FINISHED`] say that the peer has everything and knows that this end has
    /// too.
    fn take_close(&mut self, now: Time, code: u32) {
        if code > FINISHED {
            self.fail(now, Failure::Closed(code), None);
        } else if self.state == State::Finished || (self.state == State::Open && self.received.is_complete())
        {
            self.stream.all_acked();
            self.flight.settle_all();
            self.state = State::Finished;
            self.closing = (code == COMPLETE).then_some(Closing { code: FINISHED, left: 3, next: now });
        }
    }

    /// Tells the peer when both streams are complete.
    pub(super) fn check_complete(&mut self, now: Time) {
        if self.state != State::Open || !self.is_complete() {
            return;
        }
        match &mut self.closing {
            // The peer has missed the message.
            Some(closing) => closing.next = closing.next.min(now + self.rtt.smoothed() / 4),
            None => self.closing = Some(Closing { code: COMPLETE, left: u32::MAX, next: now }),
        }
    }

    /// Determines when the acknowledgement of a packet leaves.
    fn owe(&mut self, now: Time, size: u64, is_gap: bool, is_urgent: bool) {
        self.owed.packets += 1;
        self.owed.bytes += size;
        let rtt = self.peer_rtt.or(self.rtt.min).unwrap_or(0);
        let delay = ack_delay(rtt);
        let is_early = self.stats.packets_received < EARLY && self.owed.packets >= 2;
        let is_many = self.owed.bytes > self.received.capacity() / 8;
        let due = if is_urgent || is_early || is_many {
            now
        } else if is_gap {
            now.max(self.owed.last + delay / 4)
        } else {
            now + delay
        };
        self.owed.due = Some(self.owed.due.map_or(due, |known| known.min(due)));
    }

    /// True if this end accepted the association and the peer's address is not proven.
    pub(super) fn is_limited(&self) -> bool {
        !self.is_proven && self.config.role == Role::Acceptor
    }
}
