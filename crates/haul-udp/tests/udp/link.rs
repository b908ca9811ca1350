//! One direction of a simulated path: a queue with a rate, then a delay and disturbances.

use crate::dice::Dice;

pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Bytes of the headers of IPv4 and UDP.
pub(crate) const HEADERS: u64 = 28;
/// 1 Gbit/s in bytes per second.
pub(crate) const GIGABIT: u64 = 125_000_000;

/// Behaviour of a link. Times are in nanoseconds, sizes in bytes and probabilities from 0 to 1.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Bytes of IP packets per second.
    pub(crate) rate: u64,
    /// Bytes that wait at most; further packets are dropped.
    pub(crate) queue: u64,
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    pub(crate) loss: f64,
    /// Probability that a packet begins a burst of losses.
    pub(crate) burst: f64,
    /// Mean length of a burst in packets.
    pub(crate) burst_len: u64,
    /// Probability that a packet is late by up to a delay.
    pub(crate) reorder: f64,
    pub(crate) duplicate: f64,
    pub(crate) corrupt: f64,
    pub(crate) truncate: f64,
    /// Maximum UDP payload by the time from which it applies.
    pub(crate) mtu: Vec<(u64, usize)>,
    /// Times at which nothing passes.
    pub(crate) dead: Vec<(u64, u64)>,
}

impl Shape {
    pub(crate) fn clean(rate: u64, delay: u64) -> Self {
        // A queue of one bandwidth-delay product of both directions, at least 64 packets.
        let queue = (u128::from(rate) * u128::from(delay) * 2 / 1_000_000_000) as u64;
        Self {
            rate,
            queue: queue.max(64 * 1500),
            delay,
            jitter: 0,
            loss: 0.0,
            burst: 0.0,
            burst_len: 1,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            truncate: 0.0,
            mtu: vec![(0, 1472)],
            dead: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shape: Shape,
    dice: Dice,
    /// Moment at which the last accepted packet leaves the queue.
    free_at: u64,
    burst_left: u64,
    last_arrival: u64,
    pub(crate) dropped: u64,
    pub(crate) queue_max: u64,
}

impl Link {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { shape, dice, free_at: 0, burst_left: 0, last_arrival: 0, dropped: 0, queue_max: 0 }
    }

    /// Takes a datagram and calls `deliver` for each copy that arrives, with its time of arrival.
    pub(crate) fn take(&mut self, now: u64, datagram: &[u8], mut deliver: impl FnMut(u64, Vec<u8>)) {
        let shape = &self.shape;
        let mtu = shape.mtu.iter().rev().find(|(from, _)| *from <= now).map_or(65_507, |(_, mtu)| *mtu);
        let is_dead = shape.dead.iter().any(|(from, to)| (*from..*to).contains(&now));
        if datagram.len() > mtu || is_dead {
            return;
        }
        let wire = datagram.len() as u64 + HEADERS;
        let waiting = self.free_at.saturating_sub(now);
        if u128::from(waiting) * u128::from(shape.rate) / 1_000_000_000 + u128::from(wire)
            > u128::from(shape.queue)
        {
            self.dropped += 1;
            return;
        }
        self.queue_max = self.queue_max.max(waiting);
        self.free_at = self.free_at.max(now) + wire * SECOND / shape.rate;
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return;
        }
        if self.dice.chance(shape.burst) {
            self.burst_left = self.dice.below(2 * shape.burst_len);
            return;
        }
        if self.dice.chance(shape.loss) {
            return;
        }
        let mut at = self.free_at + shape.delay;
        if shape.jitter > 0 {
            at += self.dice.below(shape.jitter);
        }
        if self.dice.chance(shape.reorder) {
            at += self.dice.below(shape.delay + 1);
        } else if shape.reorder == 0.0 {
            // Jitter alone keeps the order.
            at = at.max(self.last_arrival);
            self.last_arrival = at;
        }
        if self.dice.chance(shape.duplicate) {
            deliver(at + self.dice.below(shape.delay + 1), datagram.to_vec());
        }
        let mut bytes = datagram.to_vec();
        if self.dice.chance(shape.corrupt) {
            let index = usize::try_from(self.dice.below(bytes.len() as u64)).expect("an index");
            bytes[index] ^= 1 << self.dice.below(8);
        }
        if self.dice.chance(shape.truncate) {
            bytes.truncate(usize::try_from(self.dice.below(bytes.len() as u64)).expect("a length"));
        }
        deliver(at, bytes);
    }
}
