//! The line behind the bottleneck: loses, corrupts, delays, reorders and duplicates packets.

use super::channel::{Damage, Delivery, Form};
use super::conditions::Conditions;
use super::counters::Counters;
use super::loss::Bursts;
use crate::random::Random;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

/// Time between two independent values of a slowly varying delay.
const JITTER_PERIOD: Duration = Duration::from_millis(10);

/// Packets on their way to the far end.
#[derive(Debug)]
pub(super) struct Line<T> {
    draws: Draws,
    bursts: Bursts,
    underway: BinaryHeap<Reverse<Underway<T>>>,
    /// Number of packets sent so far; packets of the same time keep this order.
    sent: u64,
    /// Time of arrival of the last packet that kept its order.
    last_due: Duration,
}

/// Generators, one for each fault: a fault that is added leaves the draws of the others as they
/// are.
#[derive(Debug)]
struct Draws {
    seed: u64,
    loss: Random,
    bursts: Random,
    damage: Random,
    reorder: Random,
    duplicate: Random,
    jitter: Random,
}

#[derive(Debug)]
struct Underway<T> {
    due: Duration,
    number: u64,
    form: Form,
    damage: Option<Damage>,
    packet: T,
}

impl<T> Underway<T> {
    fn key(&self) -> (Duration, u64) {
        (self.due, self.number)
    }
}

impl<T> PartialEq for Underway<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Underway<T> {}

impl<T> PartialOrd for Underway<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Underway<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T: Clone> Line<T> {
    pub(super) fn new(seed: u64) -> Line<T> {
        let part = |index| Random::for_part(seed, index);
        let draws = Draws {
            seed,
            loss: part(0),
            bursts: part(1),
            damage: part(2),
            reorder: part(3),
            duplicate: part(4),
            jitter: part(5),
        };
        Line {
            draws,
            bursts: Bursts::default(),
            underway: BinaryHeap::new(),
            sent: 0,
            last_due: Duration::ZERO,
        }
    }

    /// Puts a packet on the line at the time `at`.
    pub(super) fn send(
        &mut self,
        at: Duration,
        conditions: &Conditions,
        (packet, form): (T, Form),
        counters: &mut Counters,
    ) {
        let draws = &mut self.draws;
        if conditions.are_down(at) {
            counters.dropped_while_down += 1;
            return;
        }
        // The state of the line changes with each packet, lost or not.
        let in_burst =
            conditions.burst_loss.as_ref().is_some_and(|loss| self.bursts.lose(loss, &mut draws.bursts));
        if conditions.loss.draw(&mut draws.loss) {
            counters.lost += 1;
            return;
        }
        if in_burst {
            counters.lost_in_bursts += 1;
            return;
        }
        let mut damage = None;
        if conditions.corrupt.draw(&mut draws.damage) {
            counters.corrupted += 1;
            damage = Some(Damage { is_silent: false, draw: draws.damage.next_u64() });
        } else if form.has_payload && conditions.corrupt_silently.draw(&mut draws.damage) {
            counters.corrupted_silently += 1;
            damage = Some(Damage { is_silent: true, draw: draws.damage.next_u64() });
        }
        let mut due = at + draws.delay(conditions, at);
        if conditions.reorder.draw(&mut draws.reorder) {
            counters.reordered += 1;
            due += conditions.reorder_by;
        } else if !conditions.jitter_reorders {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let copies = 1 + u64::from(conditions.duplicate.draw(&mut draws.duplicate));
        counters.duplicated += copies - 1;
        for _ in 0..copies {
            let (number, packet) = (self.sent, packet.clone());
            self.underway.push(Reverse(Underway { due, number, form, damage, packet }));
            self.sent += 1;
        }
    }

    /// Returns the time at which the next packet arrives.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.underway.peek().map(|Reverse(next)| next.due)
    }

    /// Takes the next packet that has arrived until `now`.
    pub(super) fn take(&mut self, now: Duration, counters: &mut Counters) -> Option<Delivery<T>> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(Underway { due, form, damage, packet, .. }) = self.underway.pop()?;
        counters.delivered += 1;
        counters.delivered_bytes += form.ip_bytes;
        Some(Delivery { due, packet, damage })
    }
}

impl Draws {
    fn delay(&mut self, conditions: &Conditions, at: Duration) -> Duration {
        if conditions.jitter.is_zero() {
            return conditions.delay;
        }
        let deviation = if conditions.jitter_reorders {
            2.0 * self.jitter.unit() - 1.0
        } else {
            slow_deviation(self.seed, at)
        };
        let by = conditions.jitter.mul_f64(deviation.abs());
        if deviation < 0.0 { conditions.delay.saturating_sub(by) } else { conditions.delay + by }
    }
}

/// Returns a number from -1 to 1 that follows a seeded polygon: a new corner each
/// [`JITTER_PERIOD`].
fn slow_deviation(seed: u64, at: Duration) -> f64 {
    let periods = at.as_secs_f64() / JITTER_PERIOD.as_secs_f64();
    // Times are below 2^53 periods.
    let corner = |index: u64| 2.0 * Random::for_part(!seed, index).unit() - 1.0;
    let (index, part) = (periods.floor() as u64, periods.fract());
    corner(index) * (1.0 - part) + corner(index + 1) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_deviation_is_continuous_and_uses_its_range() {
        let values: Vec<f64> =
            (0..100_000).map(|step| slow_deviation(4, Duration::from_micros(100 * step))).collect();
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
        assert!(values.iter().any(|value| *value < -0.9) && values.iter().any(|value| *value > 0.9));
        // From -1 to 1 in 100 steps at most.
        assert!(values.windows(2).all(|two| (two[1] - two[0]).abs() <= 0.0201));
    }
}
