//! The controller of the rate for a sender of another protocol, which keeps its own packets.

use crate::finder::Finder;
use crate::flight::{Outcome, Sample};
use crate::pace::Pacer;
use crate::rtt::Rtt;
use crate::time::{MICRO, MILLI, Time, bytes_in};
use std::collections::VecDeque;

/// Maximum number of remembered moments of sending.
const MOMENTS_MAX: usize = 4096;
/// Number of moments in a round trip that are remembered.
const MOMENTS: u64 = 256;
/// Time by which a late sender may catch up.
const BURST: u64 = MILLI;
/// Bytes beyond those that fill the path, as time at the rate, and as datagrams, for a sender whose
/// window is its only limit.
const SLACK: u64 = 2 * MILLI;
const SLACK_DATAGRAMS: u64 = 16;

/// State of the delivery at a moment of sending.
#[derive(Clone, Copy, Debug)]
struct Moment {
    time: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    is_app_limited: bool,
}

/// The controller that finds the rate of an [`Association`](crate::Association), for a sender of
/// another protocol. The sender reports what it sends, and what arrives and is lost; it may send
/// while less is in flight than [`Controller::window`], at the moments of [`Controller::next`].
/// A sender that cannot wait for such moments uses [`Controller::unpaced_window`] alone.
#[derive(Clone, Debug)]
pub struct Controller {
    finder: Finder,
    rtt: Rtt,
    pacer: Pacer,
    moments: VecDeque<Moment>,
    in_flight: u64,
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    app_limited_until: u64,
    /// Latest moment of sending of a packet that arrived before this acknowledgement; and the same
    /// of this acknowledgement, with its bytes.
    newest: Option<Time>,
    newest_now: Option<Time>,
    acked: u64,
}

impl Controller {
    /// Creates a controller. `rtt` is the round-trip time in nanoseconds, if known, and `seed` a
    /// number that differs between controllers.
    pub fn new(rtt: Option<u64>, seed: u64, now: Time) -> Self {
        let rtt = Rtt::new(now, rtt);
        Self {
            finder: Finder::new(None, None, now, &rtt, seed),
            rtt,
            pacer: Pacer::new(now, false, BURST),
            moments: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            app_limited_until: 0,
            newest: None,
            newest_now: None,
            acked: 0,
        }
    }

    /// Records packets that left and require an acknowledgement, of `bytes` together.
    pub fn on_sent(&mut self, now: Time, bytes: u64) {
        if self.in_flight == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        self.in_flight += bytes;
        self.pacer.spend(now, bytes, self.finder.rate());
        let apart = (self.rtt.min() / MOMENTS).max(10 * MICRO);
        if self.moments.back().is_some_and(|last| now < last.time + apart) {
            return;
        }
        if self.moments.len() == MOMENTS_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back(Moment {
            time: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            is_app_limited: self.app_limited_until > self.delivered,
        });
    }

    /// Records the arrival of `bytes` that left at `sent`. [`Controller::on_acks_end`] follows
    /// behind all of an acknowledgement.
    pub fn on_acked(&mut self, sent: Time, bytes: u64) {
        self.delivered += bytes;
        self.acked += bytes;
        self.newest_now = self.newest_now.max(Some(sent));
    }

    /// Ends an acknowledgement, after which `in_flight` bytes are in flight, also those that it
    /// shows to be lost. `is_app_limited` is true if the sender has no data.
    pub fn on_acks_end(&mut self, now: Time, in_flight: u64, is_app_limited: bool) {
        self.in_flight = in_flight;
        let mut outcome = Outcome { acked: std::mem::take(&mut self.acked), ..Outcome::default() };
        if let Some(sent) =
            self.newest_now.take().filter(|sent| self.newest.is_none_or(|known| *sent > known))
        {
            self.newest = Some(sent);
            outcome.rtt = Some(self.rtt.take(now, now.saturating_sub(sent), 0));
            outcome.sample = self.sample(now, sent);
            self.first_sent = self.first_sent.max(sent);
            self.delivered_at = now;
        }
        if is_app_limited {
            self.app_limited_until = (self.delivered + in_flight).max(1);
            self.pacer.idle(now);
        }
        self.take(now, &outcome);
    }

    /// Measures the delivery rate over the round trip of a packet that left at `sent`.
    fn sample(&mut self, now: Time, sent: Time) -> Option<Sample> {
        let later = self.moments.partition_point(|moment| moment.time <= sent);
        let moment = *self.moments.get(later.checked_sub(1)?)?;
        self.moments.drain(..later - 1);
        let time = sent.saturating_sub(moment.first_sent).max(now.saturating_sub(moment.delivered_at));
        let bytes = self.delivered - moment.delivered;
        if bytes == 0 || time == 0 || time < self.rtt.min() / 2 {
            return None;
        }
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Some(Sample { rate, is_app_limited: moment.is_app_limited, prior: moment.delivered })
    }

    /// Records the loss of `bytes` that were in flight.
    pub fn on_lost(&mut self, now: Time, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.take(now, &Outcome { lost: bytes, ..Outcome::default() });
    }

    fn take(&mut self, now: Time, outcome: &Outcome) {
        let old = self.finder.rate();
        self.finder.on_outcome(now, outcome, &self.rtt, self.in_flight, self.delivered);
        self.pacer.change_rate(now, old, self.finder.rate());
    }

    /// Rate in bytes per second, above 0.
    pub fn rate(&self) -> u64 {
        self.finder.rate()
    }

    /// Number of bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Maximum number of bytes in flight, for datagrams of `datagram` bytes.
    pub fn window(&self, datagram: u64) -> u64 {
        self.finder.window(datagram)
    }

    /// Same as [`Controller::window`] for a sender that paces by its window alone: it fills the
    /// path with hardly a queue.
    pub fn unpaced_window(&self, datagram: u64) -> u64 {
        let rate = self.finder.rate();
        let path = bytes_in(self.rtt.min() + SLACK, rate) + SLACK_DATAGRAMS * datagram;
        path.min(self.finder.window(datagram))
    }

    /// Returns the moment from which packets may leave.
    pub fn next(&self) -> Time {
        self.pacer.next()
    }

    /// Records that there was nothing to send.
    pub fn idle(&mut self, now: Time) {
        self.pacer.idle(now);
    }

    /// Delivery rate of the path in bytes per second; 0 before the first measurement.
    pub fn delivery_rate(&self) -> u64 {
        self.finder.delivery_rate()
    }
}
