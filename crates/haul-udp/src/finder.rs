//! Controller that finds the rate. A model of the path in the manner of BBR (N. Cardwell et al.,
//! "BBR: Congestion-Based Congestion Control", 2016): the maximum delivery rate and the minimum
//! round-trip time.
//!
//! Two additions. Loss that also occurs while the sender is slower than the path is not congestion:
//! the rate rises so that what arrives fills the path. A standing queue is congestion: the window
//! shrinks.

use crate::flight::{Outcome, Sample};
use crate::rtt::{Rtt, ack_delay};
use crate::time::{MILLI, SECOND, Time, bytes_in};

/// Window before the first acknowledgement, in bytes: a train.
pub(crate) const WINDOW_START: u64 = crate::train::SHORT * 1200;
/// Minimum window in datagrams.
const WINDOW_MIN: u64 = 4;
/// Minimum rate in bytes per second.
const RATE_MIN: u64 = 8 * 1200;
/// Rounds for which the maximum delivery rate is kept.
const RATE_ROUNDS: usize = 10;
/// The same beside other flows. A flow with too large a share then gives it up sooner.
const COMPETING_ROUNDS: usize = 5;
/// Rounds for which the minimum loss is kept.
const LOSS_ROUNDS: usize = 10;
/// Rounds in which a queue of this sender empties at least once.
const RTT_ROUNDS: usize = 10;
/// Loss above this fraction is never attributed to damage.
const LOSS_MAX: f64 = 0.3;
/// Minimum duration of the phase that measures the round-trip time.
const PROBE_RTT: u64 = 200 * MILLI;
/// Time after which the minimum round-trip time is measured again.
const RTT_AGE: u64 = 5 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The rate doubles each round.
    Startup,
    /// The queue of the startup empties.
    Drain,
    Cruise,
    /// A higher rate is tried.
    Up,
    /// The queue of `Up` empties.
    Down,
    /// The queue empties entirely, to measure the minimum round-trip time.
    ProbeRtt,
}

#[derive(Clone, Debug)]
pub(crate) struct Finder {
    mode: Mode,
    since: Time,
    /// Rounds in this mode.
    rounds: u64,
    max: u64,
    /// Highest delivery rate of each of the last rounds, newest first.
    rates: [u64; RATE_ROUNDS],
    /// A rate from outside, until a delivery rate confirms or refutes it.
    hint: Option<u64>,
    /// Number of rounds until the hint is dropped.
    hint_rounds: u64,
    /// Delivery count at which the round ends.
    round_end: u64,
    round: u64,
    acked: u64,
    lost: u64,
    /// Loss of each of the last rounds as a fraction, newest first.
    losses: [f64; LOSS_ROUNDS],
    /// Minimum round-trip time of this round, and of the last rounds, newest first.
    round_rtt: u64,
    rtts: [u64; RTT_ROUNDS],
    rtt_min: u64,
    /// Round-trip times of this round, and those of them that a queue prolongs.
    samples: u64,
    queued: u64,
    /// Last round in which a long train of this sender is a queue itself.
    train_round: u64,
    /// Delivery rate when the last `Up` began.
    up_from: u64,
    /// Highest rate of startup and the number of rounds without growth.
    full: u64,
    full_rounds: u64,
    cruise_rounds: u64,
    /// End of the last measurement of the round-trip time.
    probed: Time,
    random: u64,
}

impl Finder {
    pub(crate) fn new(max: Option<u64>, start: Option<u64>, now: Time, rtt: &Rtt, seed: u64) -> Self {
        Self {
            mode: Mode::Startup,
            since: now,
            rounds: 0,
            max: max.unwrap_or(u64::MAX).max(RATE_MIN),
            rates: [0; RATE_ROUNDS],
            hint: start,
            hint_rounds: 3,
            round_end: 0,
            round: 0,
            acked: 0,
            lost: 0,
            losses: [0.0; LOSS_ROUNDS],
            round_rtt: u64::MAX,
            rtts: [u64::MAX; RTT_ROUNDS],
            rtt_min: rtt.min(),
            samples: 0,
            queued: 0,
            train_round: 0,
            up_from: 0,
            full: 0,
            full_rounds: 0,
            cruise_rounds: 6,
            probed: now,
            random: seed | 1,
        }
    }

    /// Delivery rate of the path in bytes per second; 0 before the first measurement.
    pub(crate) fn delivery_rate(&self) -> u64 {
        // Where other flows lose more than the rate makes up for, a flow that gives up sooner than
        // they do ends with nothing.
        let gives_up = self.is_competing() && self.base_loss() < LOSS_MAX;
        let rounds = if gives_up { COMPETING_ROUNDS } else { RATE_ROUNDS };
        self.rates[..rounds].iter().copied().max().unwrap_or(0)
    }

    /// Delay of the queue in nanoseconds: the minimum of the last round above the minimum of all.
    pub(crate) fn queue(&self) -> u64 {
        self.above_min(self.rtts[0])
    }

    fn above_min(&self, rtt: u64) -> u64 {
        if rtt == u64::MAX { 0 } else { rtt.saturating_sub(self.rtt_min) }
    }

    /// True if a queue remains although this sender lets its own queue empty: other flows fill it.
    fn is_competing(&self) -> bool {
        let least = self.rtts.into_iter().min().unwrap_or(u64::MAX);
        self.above_min(least) > (self.rtt_min / 8).max(3 * MILLI)
    }

    /// Loss that also occurs while the queue is empty, as a fraction.
    fn base_loss(&self) -> f64 {
        self.losses.into_iter().fold(LOSS_MAX, f64::min)
    }

    /// Rate that fills the path, with what is lost on the way.
    fn full_rate(&self) -> u64 {
        let measured = self.delivery_rate();
        let filled = (measured as f64 / (1.0 - self.base_loss())) as u64;
        filled.max(self.hint.unwrap_or(0))
    }

    pub(crate) fn rate(&self) -> u64 {
        let full = self.full_rate();
        // The first window leaves within the round trip.
        let least = if self.round < 3 { WINDOW_START * SECOND / self.rtt_min.max(MILLI) } else { RATE_MIN };
        ((full as f64 * self.gain()) as u64).max(least).min(self.max)
    }

    fn gain(&self) -> f64 {
        match self.mode {
            Mode::Startup if self.hint.is_some() => 1.0,
            Mode::Startup => 2.2,
            Mode::Drain => 0.5,
            Mode::Cruise if !self.is_competing() && self.queue() > self.queue_bound() / 2 => 0.95,
            Mode::Cruise | Mode::ProbeRtt => 1.0,
            Mode::Up if self.is_competing() => 1.4,
            Mode::Up => 1.25,
            Mode::Down => 0.8,
        }
    }

    /// Bytes that fill the path without a queue.
    fn path_bytes(&self) -> u64 {
        bytes_in(self.rtt_min, self.full_rate().min(self.max))
    }

    pub(crate) fn window(&self, datagram: u64) -> u64 {
        let full = self.full_rate();
        let path = self.path_bytes();
        let batches = bytes_in(2 * ack_delay(self.rtt_min), full) + 16 * datagram;
        let window = match self.mode {
            Mode::Startup if self.hint.is_some() => path * 7 / 4 + batches,
            Mode::Startup => path * 2 + batches,
            Mode::ProbeRtt => path / 2,
            _ if self.is_competing() => path * 2 + batches,
            Mode::Cruise | Mode::Drain | Mode::Down => path * 5 / 4 + batches,
            Mode::Up => path * 3 / 2 + batches,
        };
        window.max(if self.round < 3 { WINDOW_START } else { WINDOW_MIN * datagram })
    }

    /// True if the rate of the path is unknown.
    pub(crate) fn wants_train(&self) -> bool {
        self.mode == Mode::Startup && self.hint.is_none() && self.full_rounds == 0
    }

    /// Records the start of a long train.
    pub(crate) fn on_long_train(&mut self) {
        self.train_round = self.round + 1;
    }

    /// Takes the rate of a train.
    pub(crate) fn on_train(&mut self, rate: u64) {
        if self.mode == Mode::Startup && self.hint.is_none() && rate > 2 * self.delivery_rate() {
            self.hint = Some(rate);
            self.hint_rounds = 3;
        }
    }

    pub(crate) fn on_silence(&mut self) {
        self.hint = None;
    }

    /// Queueing delay above which the queue counts as standing, in nanoseconds.
    fn queue_bound(&self) -> u64 {
        (self.rtt_min / 4).max(5 * MILLI)
    }

    pub(crate) fn on_outcome(
        &mut self,
        now: Time,
        outcome: &Outcome,
        rtt: &Rtt,
        in_flight: u64,
        delivered: u64,
    ) {
        self.acked += outcome.acked;
        self.lost += outcome.lost;
        self.rtt_min = rtt.min();
        if let Some(sample) = outcome.rtt {
            self.round_rtt = self.round_rtt.min(sample);
            self.samples += 1;
            self.queued += u64::from(sample > self.rtt_min + self.queue_bound());
        }
        if let Some(sample) = outcome.sample {
            self.take(now, sample, delivered);
        }
        if self.hint.is_some() && self.lost > self.acked && self.lost > WINDOW_START {
            // Other flows began at the same time: each found the rate of the whole path.
            self.hint = None;
            self.enter(Mode::Drain, now);
        }
        self.step(now, rtt, in_flight);
    }

    fn take(&mut self, now: Time, sample: Sample, delivered: u64) {
        if !sample.is_app_limited || sample.rate > self.delivery_rate() {
            self.rates[0] = self.rates[0].max(sample.rate);
        }
        if sample.prior < self.round_end {
            return;
        }
        self.round_end = delivered;
        self.round += 1;
        self.rounds += 1;
        if self.round_rtt != u64::MAX {
            self.rtts.rotate_right(1);
            self.rtts[0] = self.round_rtt;
        }
        self.round_rtt = u64::MAX;
        (self.samples, self.queued) = (0, 0);
        let total = self.acked + self.lost;
        if total > 0 {
            self.losses.rotate_right(1);
            self.losses[0] = self.lost as f64 / total as f64;
        }
        (self.acked, self.lost) = (0, 0);
        self.end_round(now, sample.is_app_limited);
        self.check_hint(now);
        // An idle sender keeps what it knows, and so does one that sends less on purpose.
        if !sample.is_app_limited && self.mode != Mode::ProbeRtt {
            let newest = self.rates[0];
            self.rates.rotate_right(1);
            self.rates[0] = if self.mode == Mode::Startup { newest } else { 0 };
        }
    }

    /// Drops the hint if a measurement confirms or refutes it.
    fn check_hint(&mut self, now: Time) {
        let Some(hint) = self.hint else { return };
        self.hint_rounds = self.hint_rounds.saturating_sub(1);
        let is_confirmed = self.delivery_rate() >= hint - hint / 8;
        if self.hint_rounds == 0 || is_confirmed {
            self.hint = None;
        }
        if is_confirmed && self.mode == Mode::Startup {
            self.enter_cruise(now);
            self.cruise_rounds = 1;
        }
    }

    fn end_round(&mut self, _now: Time, is_app_limited: bool) {
        if self.mode != Mode::Startup || is_app_limited || self.hint.is_some() {
            return;
        }
        let rate = self.delivery_rate();
        if rate > self.full + self.full / 4 {
            self.full = rate;
            self.full_rounds = 0;
        } else {
            self.full_rounds += 1;
        }
    }

    /// True if most round-trip times of this round show a queue. Single ones are also long because
    /// a machine was busy.
    fn has_queue(&self) -> bool {
        self.samples >= 4 && 2 * self.queued > self.samples && self.round > self.train_round
    }

    fn step(&mut self, now: Time, rtt: &Rtt, in_flight: u64) {
        let path = self.path_bytes();
        let has_queue = self.has_queue();
        match self.mode {
            Mode::Startup => {
                if self.full_rounds >= 3 || (has_queue && self.round > 2) {
                    self.hint = None;
                    self.enter(Mode::Drain, now);
                }
            }
            Mode::Drain => {
                if in_flight <= path || self.rounds > 4 {
                    self.enter_cruise(now);
                }
            }
            Mode::Cruise => {
                // Where others keep the queue full, the minimum stays old.
                if now.saturating_sub(rtt.min_at.max(self.probed)) > RTT_AGE && has_queue {
                    self.enter(Mode::ProbeRtt, now);
                } else if self.rounds >= self.cruise_rounds {
                    self.up_from = self.delivery_rate();
                    self.enter(Mode::Up, now);
                }
            }
            Mode::Up => {
                let is_long = now.saturating_sub(self.since) > self.rtt_min;
                let is_full = in_flight >= path + path / 4 || (has_queue && !self.is_competing());
                if is_long && !has_queue && self.delivery_rate() > self.up_from + self.up_from / 8 {
                    // The path has room: the start ended too early, or another flow ended.
                    (self.full, self.full_rounds) = (self.delivery_rate(), 0);
                    self.enter(Mode::Startup, now);
                } else if is_long && (is_full || self.rounds >= 3) {
                    self.enter(Mode::Down, now);
                }
            }
            Mode::Down => {
                if in_flight <= path || self.rounds > 3 {
                    self.enter_cruise(now);
                }
            }
            Mode::ProbeRtt => {
                if now.saturating_sub(self.since) > PROBE_RTT.max(2 * self.rtt_min) {
                    self.probed = now;
                    self.enter_cruise(now);
                }
            }
        }
    }

    fn enter(&mut self, mode: Mode, now: Time) {
        self.mode = mode;
        self.since = now;
        self.rounds = 0;
    }

    fn enter_cruise(&mut self, now: Time) {
        self.enter(Mode::Cruise, now);
        // Equal flows must not probe in step.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.cruise_rounds = if self.is_competing() { 2 + self.random % 3 } else { 4 + self.random % 4 };
    }
}
