//! A model of a TCP sender with CUBIC (RFC 9438): the competitor of our flows.

use haul_udp::Time;
use std::collections::VecDeque;

/// A CUBIC sender with data without end, whose losses are known when a later segment is
/// acknowledged.
pub(crate) struct Cubic {
    next: u64,
    /// Numbers and send times of segments in flight.
    flying: VecDeque<(u64, Time)>,
    window: f64,
    threshold: f64,
    w_max: f64,
    epoch: Option<Time>,
    /// Losses of segments below this number belong to the last reduction.
    recover: u64,
    rtt: u64,
    pub(crate) acked: u64,
    pub(crate) start: Time,
}

impl Cubic {
    pub(crate) fn new(start: Time) -> Self {
        Self {
            next: 0,
            flying: VecDeque::new(),
            window: 10.0,
            threshold: f64::MAX,
            w_max: 0.0,
            epoch: None,
            recover: 0,
            rtt: 100_000_000,
            acked: 0,
            start,
        }
    }

    /// Returns the next segment that the window permits.
    pub(crate) fn next(&mut self, now: Time) -> Option<u64> {
        if now < self.start {
            return None;
        }
        if self.flying.back().is_some_and(|(_, at)| now - at > 4 * self.rtt + 200_000_000) {
            self.flying.clear();
            self.window = 2.0;
        }
        if self.flying.len() as f64 >= self.window {
            return None;
        }
        self.flying.push_back((self.next, now));
        self.next += 1;
        Some(self.next - 1)
    }

    /// Moment at which the sender starts, or gives up waiting.
    pub(crate) fn next_time(&self) -> Option<Time> {
        match self.flying.back() {
            None if self.next == 0 => Some(self.start),
            None => Some(0),
            Some((_, at)) => Some(at + 4 * self.rtt + 200_000_001),
        }
    }

    pub(crate) fn ack(&mut self, now: Time, number: u64) {
        while let Some(&(first, at)) = self.flying.front() {
            if first > number {
                break;
            }
            self.flying.pop_front();
            if first == number {
                self.rtt = (7 * self.rtt + (now - at)) / 8;
                self.acked += 1;
                self.grow(now);
            } else if first >= self.recover {
                self.recover = self.next;
                self.w_max = self.window;
                self.window = (self.window * 0.7).max(2.0);
                self.threshold = self.window;
                self.epoch = Some(now);
            }
        }
    }

    fn grow(&mut self, now: Time) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        let t = (now - epoch) as f64 / 1e9 + self.rtt as f64 / 1e9;
        let k = (self.w_max * 0.3 / 0.4).cbrt();
        let target = 0.4 * (t - k).powi(3) + self.w_max;
        // The Reno-friendly region.
        let reno = self.w_max * 0.7 + 0.53 * t / (self.rtt as f64 / 1e9);
        let target = target.max(reno).min(self.window * 1.5);
        if target > self.window {
            self.window += (target - self.window) / self.window;
        } else {
            self.window += 0.01 / self.window;
        }
    }
}
