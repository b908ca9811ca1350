//! Timers.

use super::Association;
use crate::config::{Failure, PROBE_INTERVAL_MAX, State, nanos};
use crate::flight::Outcome;
use crate::time::Time;

/// Probe timeouts in a row after which only probes leave.
pub(super) const SILENT: u32 = 2;

impl<A: Copy + Eq> Association<A> {
    /// Returns the moment at which [`Association::transmit`] has to be called again if nothing else
    /// happens. A moment in the past means now. `None`: never.
    pub fn next_time(&self) -> Option<Time> {
        if self.state != State::Open {
            return self.closing.filter(|_| self.can_send()).map(|closing| closing.next);
        }
        let timers = [Some(self.idle_end()), self.flight.next_loss(&self.rtt), self.next_probe_timeout()];
        let timers = timers.into_iter().flatten().min();
        if !self.can_send() {
            // An end that has used its allowance waits for packets of the peer.
            return timers;
        }
        let has_data = self.stream.has_next(self.credit);
        let is_now = self.pong.is_some()
            || self.is_ping_due
            || ((self.forced > 0 || self.trains.is_active()) && has_data)
            || self.is_credit_due()
            || self.due_probe().is_some();
        let sends = [
            self.closing.map(|closing| closing.next),
            Some(self.keepalive()),
            self.owed.due,
            self.next_credit_probe(),
            (has_data && self.window_room()).then(|| if self.unpaced > 0 { 0 } else { self.pacer.next() }),
            is_now.then_some(0),
        ];
        sends.into_iter().flatten().chain(timers).min()
    }

    fn idle_end(&self) -> Time {
        self.heard.unwrap_or(self.start) + nanos(self.config.idle)
    }

    /// Moment at which a packet leaves that asks whether the peer is there.
    fn keepalive(&self) -> Time {
        let third = nanos(self.config.idle) / 3;
        self.heard.unwrap_or(self.start).max(self.flight.last_sent) + third
    }

    fn next_probe_timeout(&self) -> Option<Time> {
        let timeout = self.rtt.probe_timeout();
        let wait = (timeout << self.timeouts.min(16)).min(PROBE_INTERVAL_MAX.max(2 * timeout));
        (self.flight.waiting > 0).then(|| self.progress + wait)
    }

    /// Moment at which a packet asks for credit, because the frame with the credit may be lost.
    fn next_credit_probe(&self) -> Option<Time> {
        let is_blocked = self.flight.waiting == 0 && self.stream.is_blocked(self.credit);
        is_blocked.then(|| self.flight.last_sent + self.rtt.probe_timeout())
    }

    pub(super) fn on_time(&mut self, now: Time) {
        if self.state != State::Open {
            return;
        }
        if now >= self.idle_end() {
            if self.is_complete() {
                self.state = State::Finished;
                self.closing = None;
                return;
            }
            let failure = if self.heard.is_some() { Failure::Died } else { Failure::NeverAnswered };
            self.fail(now, failure, None);
            return;
        }
        self.chunk.on_time(now);
        if self.flight.next_loss(&self.rtt).is_some_and(|at| at <= now) {
            let mut outcome = Outcome::default();
            self.flight.detect(now, &self.rtt, &mut self.stream, &mut outcome);
            self.take_outcome(now, &outcome, true);
        }
        if self.next_probe_timeout().is_some_and(|at| at <= now) {
            self.on_probe_timeout(now);
        }
        let asks = [Some(self.keepalive()), self.next_credit_probe()];
        if asks.into_iter().flatten().any(|at| at <= now) {
            self.is_ping_due = true;
        }
        self.owe_credit(now);
    }

    fn on_probe_timeout(&mut self, now: Time) {
        self.timeouts += 1;
        self.progress = now;
        let mut outcome = Outcome::default();
        if self.timeouts == SILENT {
            self.flight.lose_all(&mut self.stream, &mut outcome);
            self.control.on_silence();
            self.chunk.fall_back(now);
        } else {
            self.flight.resend_oldest(2, &mut self.stream, &mut outcome);
        }
        self.forced = 2;
        // A small packet passes where large ones do not.
        self.is_ping_due = true;
        self.take_outcome(now, &outcome, false);
    }

    /// Tells the peer about new credit without delay if it is a large part of the buffer.
    fn owe_credit(&mut self, now: Time) {
        if self.is_credit_due() {
            self.owed.due = Some(now);
        }
    }

    fn is_credit_due(&self) -> bool {
        self.received.credit() - self.owed.credit >= self.received.capacity() / 8 && self.arrivals.next() > 0
    }
}
