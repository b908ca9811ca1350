//! Datagrams that leave.

use super::{Association, BATCH_MAX, Closing, SEGMENTS_MAX, Transmit};
use crate::check::PACKETS_PER_EPOCH;
use crate::chunk::DATAGRAM_MIN;
use crate::config::{Failure, Role, State, nanos};
use crate::finder::WINDOW_START;
use crate::flight::{ACK_RECORDS_MAX, Content};
use crate::packet::{
    ACK_LEN, Ack, Frame, HEADER_LEN, Header, NUMBER_MAX, PING_LEN, RTT_LEN, SPREAD_LEN, STREAM_LEN,
    TRAIN_LEN, VIOLATION,
};
use crate::time::{MICRO, Time, bytes_in};
use crate::train::SHORT;

/// Packets in a row that require no acknowledgement. The next one requires one, so that this end
/// learns that its packets arrive.
const QUIET_MAX: u64 = 1 << 10;
/// Times that an unproven address may receive what it sent.
const AMPLIFICATION: u64 = 3;

impl<A: Copy + Eq> Association<A> {
    /// Writes datagrams that have to leave now to `buffer`, replacing its contents: datagrams of
    /// [`Transmit::segment`] bytes, of which the last may be shorter; at most 64 datagrams, and at
    /// most 65,000 bytes unless there is only one. Returns `None` if there are none.
    pub fn transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit<A>> {
        buffer.clear();
        self.on_time(now);
        let to = self.peer?;
        let allowed = self.allowance();
        if self.closing.is_some() {
            self.send_close(now, buffer, allowed);
        }
        let is_open = buffer.is_empty() && self.state == State::Open;
        if is_open && let Some(size) = self.due_probe() {
            self.send_probe(now, buffer, size);
            return Some(Transmit { to, segment: size });
        }
        if is_open {
            self.send_batch(now, buffer, allowed);
        }
        (!buffer.is_empty()).then(|| Transmit { to, segment: self.chunk.size.min(buffer.len()) })
    }

    /// Number of bytes that may leave to an unproven address.
    fn allowance(&self) -> usize {
        if !self.is_limited() {
            return usize::MAX;
        }
        let allowed = (AMPLIFICATION * self.stats.bytes_received).saturating_sub(self.stats.bytes_sent);
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }

    /// True if the address of the peer is known and may receive a packet.
    pub(super) fn can_send(&self) -> bool {
        self.peer.is_some() && self.allowance() >= self.room_min()
    }

    /// Space that each packet has at least, in bytes of UDP payload.
    fn room_min(&self) -> usize {
        HEADER_LEN
            + self.seal.overhead()
            + ACK_LEN
            + 2 * PING_LEN
            + RTT_LEN
            + TRAIN_LEN
            + SPREAD_LEN
            + STREAM_LEN
            + 16
    }

    fn send_close(&mut self, now: Time, buffer: &mut Vec<u8>, allowed: usize) {
        let Some(Closing { code, left, next }) = self.closing else { return };
        if now < next || allowed < self.room_min() {
            return;
        }
        let start = self.begin(buffer);
        Frame::Close(code).encode(buffer);
        self.end(now, buffer, start, Content::None);
        let wait = if self.state == State::Open { self.rtt.probe_timeout() } else { 0 };
        self.closing = (left > 1).then_some(Closing { code, left: left - 1, next: now + wait });
    }

    fn send_probe(&mut self, now: Time, buffer: &mut Vec<u8>, size: usize) {
        self.chunk.probe_sent();
        let start = self.begin(buffer);
        Frame::Ping(self.config.token).encode(buffer);
        buffer.resize(size - self.seal.overhead(), 0);
        self.end(now, buffer, start, Content::Probe);
    }

    fn send_batch(&mut self, now: Time, buffer: &mut Vec<u8>, allowed: usize) {
        let datagram = self.chunk.size;
        let burst =
            usize::try_from(bytes_in(nanos(self.config.burst), self.control.rate())).unwrap_or(BATCH_MAX);
        let burst = burst.max(self.unpaced * datagram);
        let limit = burst.min(BATCH_MAX).min(SEGMENTS_MAX * datagram).min(allowed);
        let is_paced = now >= self.pacer.next() || self.unpaced > 0;
        self.start_train(now, is_paced, datagram);
        loop {
            let start = buffer.len();
            let room = datagram.min(allowed - start);
            if room < self.room_min() {
                break;
            }
            let may_send = (is_paced || self.trains.is_active()) && start <= limit;
            if !self.send_packet(now, buffer, room, may_send) {
                break;
            }
            // Datagrams of a train leave in calls of their own: a router delays each of them.
            if self.trains.is_active()
                || buffer.len() - start < datagram
                || (self.forced == 0 && buffer.len() + datagram > limit)
            {
                break;
            }
            if buffer.len() + datagram > BATCH_MAX || buffer.len() >= SEGMENTS_MAX * datagram {
                break;
            }
        }
        if !self.stream.has_next(self.credit) && self.window_room() {
            self.flight.set_app_limited();
            self.pacer.idle(now);
        }
    }

    /// Size of the probe that has to leave now.
    pub(super) fn due_probe(&self) -> Option<usize> {
        let is_alive = self.heard.is_some() && self.timeouts == 0;
        self.chunk.next_probe().filter(|_| is_alive && !self.is_limited())
    }

    /// True if the window permits a packet with data.
    pub(super) fn window_room(&self) -> bool {
        let window = self.control.window(self.chunk.size);
        // Nothing is known about a path on which nothing arrived.
        let window = if self.heard.is_none() { window.min(WINDOW_START) } else { window };
        let next = self.flight.next_number();
        let is_near = next / PACKETS_PER_EPOCH <= self.acked_number / PACKETS_PER_EPOCH + 1;
        let is_silent = self.timeouts >= super::timers::SILENT;
        // Without a packet in flight, no acknowledgement would free a record.
        let has_record = self.flight.waiting == 0 || self.flight.records() < self.records_max();
        !is_silent && is_near && self.flight.in_flight < window && has_record
    }

    /// Writes one packet of at most `room` bytes. Returns false if there is nothing to send.
    fn send_packet(&mut self, now: Time, buffer: &mut Vec<u8>, room: usize, may_send: bool) -> bool {
        if self.flight.records() >= self.records_max() + ACK_RECORDS_MAX {
            self.fail(now, Failure::Violation("packets without acknowledgements"), Some(VIOLATION));
            return false;
        }
        let is_forced = self.forced > 0;
        let has_next = self.stream.has_next(self.credit);
        if !has_next {
            self.forced = 0;
        }
        if !has_next {
            self.trains.stop();
        }
        let is_train = self.trains.is_active();
        let has_data = has_next && (is_forced || is_train || (may_send && self.window_room()));
        let has_ack = self.owed.due.is_some_and(|due| due <= now) && self.arrivals.next() > 0;
        let has_control = has_ack || self.pong.is_some() || self.is_ping_due;
        if !has_data && !has_control {
            return false;
        }
        // Control frames and proofs travel in datagrams that every path carries.
        let is_small = has_control || self.is_limited();
        let room = if is_small { room.min(DATAGRAM_MIN) } else { room };
        let has_data = has_data && !(has_control && self.chunk.size > DATAGRAM_MIN);
        let start = self.begin(buffer);
        let limit = start + room - self.seal.overhead();
        let mut content = Content::None;
        let mut is_padded = false;
        if let Some(token) = self.pong.take() {
            Frame::Pong(token).encode(buffer);
            is_padded = true;
        }
        let is_quiet = !has_data && self.quiet >= QUIET_MAX;
        if std::mem::take(&mut self.is_ping_due) || is_quiet || self.is_limited() {
            Frame::Ping(self.config.token).encode(buffer);
            content = Content::Control;
            is_padded = true;
        }
        if let Some(spread) = self.train.report() {
            Frame::Spread(spread).encode(buffer);
            content = Content::Control;
        }
        if has_ack {
            self.put_ack(now, buffer, limit - RTT_LEN - TRAIN_LEN - STREAM_LEN - 1);
        }
        if has_data {
            if let Some(micros) = self.rtt_to_tell(now) {
                Frame::Rtt(micros).encode(buffer);
            }
            if let Some(len) = self.trains.announce(self.flight.next_number()) {
                Frame::Train(len).encode(buffer);
            }
            if let Some(piece) = self.stream.next(limit - buffer.len() - STREAM_LEN, self.credit) {
                Frame::Stream { offset: piece.offset, data: &[], is_end: piece.is_end }.encode(buffer);
                self.stream.copy(piece, buffer);
                self.stats.packets_retransmitted += u64::from(piece.is_repeat);
                content = Content::Data(piece);
                self.forced = self.forced.saturating_sub(1);
                self.unpaced = self.unpaced.saturating_sub(1);
                self.trains.sent();
            }
        }
        if is_padded && !matches!(content, Content::Data(_)) && self.config.role != Role::Acceptor {
            // The acceptor may send three times as many bytes.
            buffer.resize(buffer.len().max(limit.min(start + DATAGRAM_MIN - self.seal.overhead())), 0);
        }
        self.end(now, buffer, start, content);
        true
    }

    /// Starts a train if the rate of the path is unknown and there are enough data.
    fn start_train(&mut self, now: Time, is_paced: bool, datagram: usize) {
        if !is_paced || self.is_limited() || !self.control.wants_train() || !self.window_room() {
            return;
        }
        let Some(len) = self.trains.next_len(now) else { return };
        if self.stream.unsent(self.credit) >= len * datagram as u64 {
            let until = now + 2 * self.rtt.smoothed() + self.rtt.probe_timeout();
            self.trains.start(len, until);
            if len > SHORT {
                self.control.on_long_train();
            }
        }
    }

    fn put_ack(&mut self, now: Time, buffer: &mut Vec<u8>, limit: usize) {
        let mut runs = std::mem::take(&mut self.runs);
        self.arrivals.report(limit - buffer.len() - ACK_LEN, &mut runs);
        let delay = u32::try_from((now - self.owed.largest_at) / MICRO).unwrap_or(u32::MAX);
        let credit = self.received.credit();
        Frame::Ack(Ack { largest: self.arrivals.next() - 1, delay, credit, runs: &runs }).encode(buffer);
        self.runs = runs;
        self.owed.due = None;
        (self.owed.packets, self.owed.bytes) = (0, 0);
        self.owed.last = now;
        self.owed.credit = credit;
    }

    /// Round-trip time in microseconds that the peer has to know, at most once in a round trip.
    fn rtt_to_tell(&mut self, now: Time) -> Option<u32> {
        let min = self.rtt.min?;
        let is_due = self.rtt_sent.is_none_or(|(at, sent)| {
            let rounds = if min.abs_diff(sent) > sent / 8 { 1 } else { 8 };
            now.saturating_sub(at) > rounds * self.rtt.smoothed()
        });
        is_due.then(|| {
            self.rtt_sent = Some((now, min));
            u32::try_from(min / MICRO).unwrap_or(u32::MAX)
        })
    }

    /// Writes the header of the next packet. Returns where the packet starts.
    fn begin(&mut self, buffer: &mut Vec<u8>) -> usize {
        let start = buffer.len();
        let header = Header { connection: self.config.remote_id, number: self.flight.next_number() };
        buffer.extend_from_slice(&header.encode());
        start
    }

    /// Seals and counts a packet.
    fn end(&mut self, now: Time, buffer: &mut Vec<u8>, start: usize, content: Content) {
        buffer.resize(buffer.len() + self.seal.overhead(), 0);
        let number = self.flight.next_number();
        let (header, body) = buffer[start..].split_at_mut(HEADER_LEN);
        self.seal.seal(number, header, body);
        let bytes = buffer.len() - start;
        if content == Content::None {
            self.quiet += 1;
        } else {
            self.quiet = 0;
            if self.flight.waiting == 0 {
                self.progress = now;
            }
        }
        self.flight.push(now, u32::try_from(bytes).unwrap_or(u32::MAX), content);
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += bytes as u64;
        // Acknowledgements leave without pacing. They must not delay the data that do not.
        let is_paced = match content {
            Content::Data(_) => true,
            Content::Probe => self.control.is_held(),
            Content::Control | Content::None => false,
        };
        if is_paced {
            self.pacer.spend(now, bytes as u64, self.control.rate());
        }
        if number >= NUMBER_MAX - 1 {
            self.fail(now, Failure::Exhausted, None);
        }
    }
}
