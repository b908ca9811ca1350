//! Bottleneck of a direction: a queue with a limit of bytes, drained by a token bucket.

use super::codel::CoDel;
use super::conditions::{Conditions, Discipline};
use std::collections::VecDeque;
use std::time::Duration;

/// A packet in the queue.
#[derive(Clone, Debug)]
pub(super) struct Queued<T> {
    /// Time of its arrival.
    pub(super) since: Duration,
    /// Bytes on the wire.
    pub(super) bytes: u64,
    pub(super) packet: T,
}

/// Packets in the order of their arrival.
#[derive(Debug)]
pub(super) struct Fifo<T> {
    packets: VecDeque<Queued<T>>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fifo<T> {
    pub(super) fn push(&mut self, packet: Queued<T>) {
        self.bytes += packet.bytes;
        self.packets.push_back(packet);
    }

    pub(super) fn pop(&mut self) -> Option<Queued<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes;
        Some(packet)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Fate of a packet at the bottleneck.
#[derive(Debug)]
pub(super) enum Passage<T> {
    /// Its last byte leaves at this time.
    Leaves(Duration, T),
    /// CoDel dropped it.
    Dropped(T),
}

/// A queue and the transmitter behind it. The time of all calls must not decrease.
#[derive(Debug)]
pub(super) struct Bottleneck<T> {
    rate: Option<u64>,
    /// Bytes that leave at once after an idle time.
    burst: u64,
    limit: u64,
    discipline: Discipline,
    codel: Option<CoDel>,
    queue: Fifo<T>,
    /// Time at which the transmitter has sent everything at the exact rate. With a burst, packets
    /// leave earlier.
    schedule: Duration,
    /// Part of a nanosecond by which `schedule` is too early, times the rate.
    remainder: u128,
}

impl<T> Bottleneck<T> {
    pub(super) fn new(conditions: &Conditions) -> Bottleneck<T> {
        let mut made = Bottleneck {
            rate: None,
            burst: 0,
            limit: 0,
            discipline: Discipline::TailDrop,
            codel: None,
            queue: Fifo::default(),
            schedule: Duration::ZERO,
            remainder: 0,
        };
        made.change(conditions);
        made
    }

    /// Adopts other conditions. Queued packets stay.
    pub(super) fn change(&mut self, conditions: &Conditions) {
        (self.rate, self.burst, self.limit) = (conditions.rate, conditions.burst, conditions.queue);
        self.remainder = 0;
        if self.discipline != conditions.discipline {
            self.discipline = conditions.discipline;
            self.codel = match conditions.discipline {
                Discipline::TailDrop => None,
                Discipline::CoDel { target, interval } => Some(CoDel::new(target, interval)),
            };
        }
    }

    /// Returns the number of queued bytes, without the packet that is being sent.
    pub(super) fn queued(&self) -> u64 {
        self.queue.bytes()
    }

    /// Returns the time at which the first packet of the queue begins to leave.
    pub(super) fn next_start(&self) -> Option<Duration> {
        self.queue.packets.front().map(|packet| self.start(packet.since))
    }

    /// Queues a packet of `bytes` bytes on the wire, or returns it if the queue is full. Everything
    /// that leaves until `now` must have been taken.
    pub(super) fn offer(&mut self, now: Duration, bytes: u64, packet: T) -> Result<(), T> {
        let waits = self.rate.is_some() && (self.queued() > 0 || self.start(now) > now);
        if waits && self.queued() + bytes > self.limit {
            return Err(packet);
        }
        self.queue.push(Queued { since: now, bytes, packet });
        Ok(())
    }

    /// Takes all packets that begin to leave until `now`.
    pub(super) fn take(&mut self, now: Duration, mut found: impl FnMut(Passage<T>)) {
        while let Some(start) = self.next_start()
            && start <= now
        {
            let packet = match &mut self.codel {
                Some(codel) => {
                    codel.dequeue(start, &mut self.queue, |packet| found(Passage::Dropped(packet.packet)))
                }
                None => self.queue.pop(),
            };
            if let Some(Queued { bytes, packet, .. }) = packet {
                let end = self.send(start, bytes);
                found(Passage::Leaves(end, packet));
            }
        }
    }

    fn start(&self, since: Duration) -> Duration {
        since.max(self.schedule.saturating_sub(self.ahead()))
    }

    /// Occupies the transmitter with a packet and returns the time at which it has left.
    fn send(&mut self, start: Duration, bytes: u64) -> Duration {
        let Some(rate) = self.rate else { return start };
        if self.schedule < start {
            (self.schedule, self.remainder) = (start, 0);
        }
        let rate = u128::from(rate.max(1));
        let total = u128::from(bytes) * 8_000_000_000 + self.remainder;
        self.remainder = total % rate;
        self.schedule += Duration::from_nanos(u64::try_from(total / rate).unwrap_or(u64::MAX));
        start.max(self.schedule.saturating_sub(self.ahead()))
    }

    /// Returns the time by which packets may leave before the schedule.
    fn ahead(&self) -> Duration {
        let Some(rate) = self.rate else { return Duration::MAX };
        let nanos = u128::from(self.burst) * 8_000_000_000 / u128::from(rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn limited(rate: u64, queue: u64) -> Conditions {
        Conditions { rate: Some(rate), queue, ..Conditions::default() }
    }

    /// Offers packets of 1,000 bytes at each of `times`; returns the times at which they leave, in
    /// order, and the number that was refused.
    fn leave(conditions: &Conditions, times: impl IntoIterator<Item = Duration>) -> (Vec<Duration>, usize) {
        let mut bottleneck = Bottleneck::new(conditions);
        let (mut left, mut refused) = (Vec::new(), 0);
        let mut note = |passage| {
            if let Passage::Leaves(at, ()) = passage {
                left.push(at);
            }
        };
        for now in times {
            bottleneck.take(now, &mut note);
            refused += usize::from(bottleneck.offer(now, 1000, ()).is_err());
            bottleneck.take(now, &mut note);
        }
        bottleneck.take(Duration::MAX, &mut note);
        (left, refused)
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let times = [millis(1), millis(1), millis(2)];
        assert_eq!(leave(&Conditions { queue: 0, ..Conditions::default() }, times), (times.to_vec(), 0));
    }

    #[test]
    fn packets_are_paced_and_a_full_queue_drops_them() {
        // 1,000 bytes take 1 ms.
        let times = [0, 0, 0, 0, 1, 100].map(millis);
        let (left, refused) = leave(&limited(8_000_000, 2000), times);
        assert_eq!(left, [1, 2, 3, 4, 101].map(millis));
        assert_eq!(refused, 1, "one leaves, two wait, and the fourth exceeds the queue");
        assert_eq!(leave(&limited(8_000_000, 0), [0, 1, 2].map(millis)).1, 0, "an idle link needs no queue");
    }

    #[test]
    fn the_rate_is_exact() {
        // 8,000 / 7,000,003 is not a whole number of nanoseconds.
        let packets = 100_000;
        let (left, refused) = leave(&limited(7_000_003, u64::MAX), (0..packets).map(|_| Duration::ZERO));
        assert_eq!((left.len() as u64, refused), (packets, 0));
        let exact = packets * 8000 * 1_000_000_000 / 7_000_003;
        assert_eq!(left.last().map(Duration::as_nanos), Some(u128::from(exact)));
    }

    #[test]
    fn a_bucket_lets_a_burst_pass_and_refills_at_the_rate() {
        let conditions = Conditions { burst: 3000, ..limited(8_000_000, 1 << 20) };
        let times = [0, 0, 0, 0, 0, 4, 4, 4].map(millis);
        let (left, _) = leave(&conditions, times);
        // Three leave at once. At 4 ms, the bucket has been filled for 2 ms.
        assert_eq!(left, [0, 0, 0, 1, 2, 4, 4, 5].map(millis));
        let (left, _) = leave(&conditions, [millis(100); 4]);
        assert_eq!(left, [100, 100, 100, 101].map(millis), "a bucket is not more than full");
    }

    #[test]
    fn codel_holds_a_standing_queue_near_its_target_and_tail_drop_fills_it() {
        // Packets at 1.05 times the rate, for a minute. Reports the mean wait in the last second.
        let wait = |conditions: &Conditions| {
            let mut bottleneck = Bottleneck::new(conditions);
            let (mut waits, mut dropped) = (Vec::new(), 0_u64);
            let mut random = Random::from_seed(1);
            let mut now = Duration::ZERO;
            while now < Duration::from_secs(60) {
                now += Duration::from_nanos(2 * random.below(952_000));
                let mut note = |passage| match passage {
                    Passage::Leaves(at, since) if at > Duration::from_secs(59) => waits.push(at - since),
                    Passage::Leaves(..) => {}
                    Passage::Dropped(_) => dropped += 1,
                };
                bottleneck.take(now, &mut note);
                dropped += u64::from(bottleneck.offer(now, 1000, now).is_err());
            }
            (waits.iter().sum::<Duration>() / u32::try_from(waits.len()).expect("few"), dropped)
        };
        let (full, dropped) = wait(&limited(8_000_000, 200_000));
        assert!((millis(180)..millis(202)).contains(&full), "{full:?}");
        assert!(dropped > 1000, "{dropped}");
        let codel = Conditions { discipline: Discipline::CODEL, ..limited(8_000_000, 200_000) };
        let (short, dropped) = wait(&codel);
        assert!(short < millis(40), "{short:?}");
        assert!(dropped > 1000, "{dropped}");
    }
}
