//! CoDel: controlled delay of a queue (RFC 8289).

use super::bottleneck::{Fifo, Queued};
use std::time::Duration;

/// State of CoDel, with the names of RFC 8289, section 5.
#[derive(Clone, Debug)]
pub(super) struct CoDel {
    target: Duration,
    interval: Duration,
    /// Time at which packets will have waited too long for a whole interval.
    first_above: Option<Duration>,
    drop_next: Duration,
    count: u32,
    last_count: u32,
    is_dropping: bool,
    /// Length of the longest packet so far. With only that many bytes, the queue is not standing.
    packet_bytes_max: u64,
}

impl CoDel {
    pub(super) fn new(target: Duration, interval: Duration) -> CoDel {
        CoDel {
            target,
            interval,
            first_above: None,
            drop_next: Duration::ZERO,
            count: 0,
            last_count: 0,
            is_dropping: false,
            packet_bytes_max: 512,
        }
    }

    /// Takes the packet that leaves the queue at `now`; passes those before it that are dropped to
    /// `drop`.
    pub(super) fn dequeue<T>(
        &mut self,
        now: Duration,
        queue: &mut Fifo<T>,
        mut drop: impl FnMut(Queued<T>),
    ) -> Option<Queued<T>> {
        let (mut packet, mut is_late) = self.next(now, queue)?;
        if self.is_dropping {
            self.is_dropping = is_late;
            while self.is_dropping && now >= self.drop_next {
                drop(packet);
                self.count += 1;
                (packet, is_late) = self.next(now, queue)?;
                self.is_dropping = is_late;
                if is_late {
                    self.drop_next = self.law(self.drop_next);
                }
            }
        } else if is_late {
            drop(packet);
            // The last rate of drops is a good start if it was in use a short time ago.
            let delta = self.count - self.last_count;
            let is_recent = now.saturating_sub(self.drop_next) < 16 * self.interval;
            self.count = if delta > 1 && is_recent { delta } else { 1 };
            self.drop_next = self.law(now);
            self.last_count = self.count;
            self.is_dropping = true;
            packet = self.next(now, queue)?.0;
        }
        Some(packet)
    }

    /// Takes the first packet, and tells whether it may be dropped. An empty queue ends the
    /// dropping.
    fn next<T>(&mut self, now: Duration, queue: &mut Fifo<T>) -> Option<(Queued<T>, bool)> {
        let Some(packet) = queue.pop() else {
            self.first_above = None;
            self.is_dropping = false;
            return None;
        };
        self.packet_bytes_max = self.packet_bytes_max.max(packet.bytes);
        let waited = now.saturating_sub(packet.since);
        if waited < self.target || queue.bytes() <= self.packet_bytes_max {
            self.first_above = None;
            return Some((packet, false));
        }
        let first_above = *self.first_above.get_or_insert(now + self.interval);
        Some((packet, now >= first_above))
    }

    /// Returns the time of the next drop: the drops become more frequent with the square root of
    /// their number, which reduces the rate of TCP linearly.
    fn law(&self, from: Duration) -> Duration {
        from + self.interval.div_f64(f64::from(self.count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(5);
    const INTERVAL: Duration = Duration::from_millis(100);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Takes one packet each millisecond out of a queue in which packets wait for `waited`. Returns
    /// the times at which packets were dropped, in milliseconds.
    fn drops(codel: &mut CoDel, times: std::ops::Range<u64>, waited: Duration) -> Vec<u64> {
        let mut dropped = Vec::new();
        for now in times {
            let mut queue = Fifo::default();
            for _ in 0..20 {
                queue.push(Queued { since: millis(now).saturating_sub(waited), bytes: 1000, packet: () });
            }
            codel.dequeue(millis(now), &mut queue, |_| dropped.push(now)).expect("20 packets");
        }
        dropped
    }

    #[test]
    fn short_waits_drop_nothing() {
        let mut codel = CoDel::new(TARGET, INTERVAL);
        assert!(drops(&mut codel, 1000..3000, millis(4)).is_empty());
    }

    #[test]
    fn a_standing_queue_drops_after_an_interval_and_then_by_the_square_root_law() {
        let mut codel = CoDel::new(TARGET, INTERVAL);
        // The first drop follows a whole interval. The next ones follow after 100, 100 / sqrt(2),
        // 100 / sqrt(3) ... milliseconds (RFC 8289, 3.2).
        let mut expected = vec![1100];
        let mut at = 1100.0;
        for count in 1..8_u32 {
            at += 100.0 / f64::from(count).sqrt();
            expected.push(f64::ceil(at) as u64);
        }
        let dropped = drops(&mut codel, 1000..2000, millis(20));
        assert_eq!(dropped[..expected.len()], expected);
        // One packet with a short wait ends the dropping.
        assert!(drops(&mut codel, 2000..2001, millis(1)).is_empty());
        let again = drops(&mut codel, 2001..2300, millis(20));
        assert_eq!(again[0], 2101, "a whole interval again");
        // The rate of drops resumes near its previous value.
        assert!(again[1] - again[0] < 40, "{again:?}");
    }

    #[test]
    fn old_rates_of_drops_are_forgotten() {
        let mut codel = CoDel::new(TARGET, INTERVAL);
        drops(&mut codel, 1000..2000, millis(20));
        assert!(drops(&mut codel, 2000..5000, millis(1)).is_empty());
        let again = drops(&mut codel, 5000..5300, millis(20));
        assert_eq!(again[..2], [5100, 5200]);
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let mut codel = CoDel::new(TARGET, INTERVAL);
        for now in 1000..2000 {
            let mut queue = Fifo::default();
            for _ in 0..2 {
                queue.push(Queued { since: millis(now - 900), bytes: 1000, packet: () });
            }
            codel.dequeue(millis(now), &mut queue, |_| panic!("one packet is no standing queue"));
        }
    }
}
