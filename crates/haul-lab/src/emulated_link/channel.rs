//! One direction of a link, without packets and without a clock: packets go in with the time, and
//! come out when they are due.

use super::bottleneck::{Bottleneck, Passage};
use super::conditions::{Conditions, CrossTraffic};
use super::counters::Counters;
use super::cross::{CROSS_BYTES, Sources};
use super::line::Line;
use std::time::Duration;

/// Properties of a packet on which its fate depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Bytes of the IP packet.
    pub(super) ip_bytes: u64,
    /// Bytes on the wire, with framing.
    pub(super) wire_bytes: u64,
    pub(super) is_udp: bool,
    pub(super) is_fragment: bool,
    /// A TCP or UDP packet with a payload.
    pub(super) has_payload: bool,
}

/// Damage that a packet has to suffer before it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// The checksum is to be made valid.
    pub(super) is_silent: bool,
    /// Random number that selects the bit.
    pub(super) draw: u64,
}

/// A packet that has crossed the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivery<T> {
    pub(super) due: Duration,
    pub(super) packet: T,
    pub(super) damage: Option<Damage>,
}

/// One direction of a link. All times are since its start; those of successive calls must not
/// decrease.
#[derive(Debug)]
pub(super) struct Channel<T> {
    conditions: Conditions,
    seed: u64,
    /// `None` is a packet of cross traffic.
    bottleneck: Bottleneck<Option<(T, Form)>>,
    /// Number of packets in the bottleneck that are not cross traffic.
    waiting: u64,
    cross: Option<Sources>,
    line: Line<T>,
    counters: Counters,
}

impl<T: Clone> Channel<T> {
    pub(super) fn new(conditions: Conditions, seed: u64) -> Channel<T> {
        let mut made = Channel {
            bottleneck: Bottleneck::new(&conditions),
            seed,
            waiting: 0,
            cross: None,
            line: Line::new(seed),
            counters: Counters::default(),
            conditions: Conditions::default(),
        };
        made.change(Duration::ZERO, conditions);
        made
    }

    /// Changes the conditions for the packets that arrive from now on, and for those in the queue.
    pub(super) fn change(&mut self, now: Duration, conditions: Conditions) {
        self.advance(now);
        let cross = |of: &Conditions| -> Option<CrossTraffic> { of.cross.filter(|_| of.rate.is_some()) };
        if cross(&self.conditions) != cross(&conditions) {
            self.cross = cross(&conditions).map(|traffic| Sources::new(&traffic, !self.seed, now));
        }
        self.bottleneck.change(&conditions);
        self.conditions = conditions;
    }

    /// Takes a packet at the entrance.
    pub(super) fn accept(&mut self, now: Duration, packet: T, form: Form) {
        self.advance(now);
        let counters = &mut self.counters;
        counters.packets += 1;
        counters.bytes += form.ip_bytes;
        let conditions = &self.conditions;
        let exceeds_mtu = conditions.mtu.is_some_and(|mtu| form.ip_bytes > u64::from(mtu));
        if conditions.blocks_udp && form.is_udp {
            counters.dropped_udp += 1;
        } else if conditions.drops_fragments && form.is_fragment {
            counters.dropped_fragments += 1;
        } else if exceeds_mtu {
            counters.dropped_by_mtu += 1;
        } else if self.bottleneck.offer(now, form.wire_bytes, Some((packet, form))).is_err() {
            counters.dropped_by_queue += 1;
        } else {
            self.waiting += 1;
            self.pass(now);
            self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.bottleneck.queued());
        }
    }

    /// Returns the next packet that is due at `now`.
    pub(super) fn deliver(&mut self, now: Duration) -> Option<Delivery<T>> {
        self.advance(now);
        self.line.take(now, &mut self.counters)
    }

    /// Returns a time before which no packet is due unless another arrives; `None` if there is no
    /// packet.
    pub(super) fn next_time(&self) -> Option<Duration> {
        let queued = self.bottleneck.next_start().filter(|_| self.waiting > 0);
        let queued = queued.map(|start| start + self.conditions.shortest_delay());
        [queued, self.line.next_due()].into_iter().flatten().min()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Lets the time pass in the queue.
    fn advance(&mut self, now: Duration) {
        while let Some(at) = self.cross.as_ref().map(Sources::next)
            && at <= now
        {
            self.pass(at);
            let is_full = self.bottleneck.offer(at, CROSS_BYTES, None).is_err();
            self.counters.cross_dropped += u64::from(is_full);
            self.cross.iter_mut().for_each(Sources::take);
        }
        self.pass(now);
    }

    fn pass(&mut self, now: Duration) {
        let Channel { conditions, bottleneck, waiting, line, counters, .. } = self;
        bottleneck.take(now, |passage| match passage {
            Passage::Leaves(at, Some(packet)) => {
                *waiting -= 1;
                line.send(at, conditions, packet, counters);
            }
            Passage::Leaves(_, None) => counters.cross_passed += 1,
            Passage::Dropped(Some(_)) => {
                *waiting -= 1;
                counters.dropped_by_codel += 1;
            }
            Passage::Dropped(None) => counters.cross_dropped += 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated_link::{BurstLoss, Discipline, Probability};

    const PACKET: Form =
        Form { ip_bytes: 1462, wire_bytes: 1500, is_udp: true, is_fragment: false, has_payload: true };

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn percent(value: f64) -> Probability {
        Probability::new(value / 100.0).expect("a percentage")
    }

    /// Sends numbered packets, one each `gap`, and returns what arrives and the counters.
    fn crossing(
        conditions: Conditions,
        seed: u64,
        (packets, gap): (u64, Duration),
    ) -> (Vec<Delivery<u64>>, Counters) {
        let mut channel = Channel::new(conditions, seed);
        let mut arrived = Vec::new();
        for number in 0..packets {
            let now = gap * u32::try_from(number).expect("few");
            channel.accept(now, number, PACKET);
            arrived.extend(std::iter::from_fn(|| channel.deliver(now)));
        }
        while let Some(next) = channel.next_time() {
            arrived.extend(std::iter::from_fn(|| channel.deliver(next)));
        }
        let counters = *channel.counters();
        assert_eq!(arrived.len() as u64, counters.delivered);
        assert_eq!(counters.delivered, packets - counters.gone() + counters.duplicated, "{counters:?}");
        (arrived, counters)
    }

    /// Asserts that `found` of `packets` is within four standard deviations of the expected share.
    #[track_caller]
    fn assert_share(found: u64, packets: u64, share: f64) {
        let deviation = (share * (1.0 - share) / packets as f64).sqrt();
        let found = found as f64 / packets as f64;
        assert!((found - share).abs() <= 4.0 * deviation, "{found} instead of {share}");
    }

    #[test]
    fn a_clean_link_only_delays() {
        let conditions = Conditions { delay: millis(15), ..Conditions::default() };
        let (arrived, counters) = crossing(conditions, 1, (100, millis(1)));
        let expected = (0..100).map(|at| Delivery { due: millis(15 + at), packet: at, damage: None });
        assert_eq!(arrived, expected.collect::<Vec<_>>());
        assert_eq!((counters.packets, counters.bytes, counters.delivered_bytes), (100, 146_200, 146_200));
        assert_eq!((counters.gone(), counters.queue_bytes_max), (0, 0));
    }

    #[test]
    fn packets_arrive_at_the_rate() {
        // 1,500 bytes at 100 Mbit/s take 120 us. They are sent every 100 us.
        let gap = Duration::from_micros(100);
        let conditions =
            Conditions { rate: Some(100_000_000), queue: 30_000, delay: millis(5), ..Conditions::default() };
        let (arrived, counters) = crossing(conditions, 1, (60_000, gap));
        let lasted = arrived[arrived.len() - 1].due - arrived[0].due;
        assert_eq!(lasted, Duration::from_micros(120) * (u32::try_from(arrived.len()).expect("few") - 1));
        assert_share(counters.dropped_by_queue, 60_000, 1.0 / 6.0);
        assert_eq!(counters.queue_bytes_max, 30_000);
    }

    #[test]
    fn faults_hit_the_given_shares_of_packets() {
        let conditions = Conditions {
            loss: percent(1.0),
            corrupt: percent(2.0),
            corrupt_silently: percent(0.5),
            reorder: percent(3.0),
            duplicate: percent(0.1),
            ..Conditions::default()
        };
        const PACKETS: u64 = 400_000;
        let (arrived, counters) = crossing(conditions, 2, (PACKETS, Duration::from_micros(10)));
        assert_share(counters.lost, PACKETS, 0.01);
        let left = PACKETS - counters.lost;
        assert_share(counters.corrupted, left, 0.02);
        assert_share(counters.corrupted_silently, left - counters.corrupted, 0.005);
        assert_share(counters.reordered, left, 0.03);
        assert_share(counters.duplicated, left, 0.001);
        let damaged = |is_silent| {
            let is_so = |damage: Damage| damage.is_silent == is_silent;
            arrived.iter().filter(|delivery| delivery.damage.is_some_and(is_so)).count() as u64
        };
        // A duplicate is damaged like the original.
        assert!((counters.corrupted..counters.corrupted + 50).contains(&damaged(false)));
        assert!((counters.corrupted_silently..counters.corrupted_silently + 20).contains(&damaged(true)));
        let overtaken = arrived.windows(2).filter(|two| two[1].packet < two[0].packet).count() as u64;
        assert!(overtaken > counters.reordered / 2, "{overtaken} of {}", counters.reordered);
    }

    #[test]
    fn burst_losses_and_single_losses_are_counted_apart() {
        let burst_loss = Some(BurstLoss { share: percent(2.0), length: 8.0, within: Probability::ONE });
        let conditions = Conditions { burst_loss, loss: percent(1.0), ..Conditions::default() };
        const PACKETS: u64 = 400_000;
        let (_, counters) = crossing(conditions, 3, (PACKETS, Duration::from_micros(10)));
        assert_share(counters.lost, PACKETS, 0.01);
        let share = counters.lost_in_bursts as f64 / PACKETS as f64;
        assert!((0.017..0.023).contains(&share), "{share}");
    }

    #[test]
    fn jitter_keeps_or_changes_the_order() {
        let conditions = |jitter_reorders| Conditions {
            delay: millis(20),
            jitter: millis(8),
            jitter_reorders,
            ..Conditions::default()
        };
        let gap = Duration::from_micros(500);
        let sent = |delivery: &Delivery<u64>| gap * u32::try_from(delivery.packet).expect("few");
        for reorders in [false, true] {
            let (arrived, _) = crossing(conditions(reorders), 4, (20_000, gap));
            let delays: Vec<Duration> =
                arrived.iter().map(|delivery| delivery.due - sent(delivery)).collect();
            assert!(delays.iter().all(|delay| (millis(12)..=millis(28)).contains(delay)));
            assert!(delays.iter().any(|delay| *delay < millis(14)));
            assert!(delays.iter().any(|delay| *delay > millis(26)));
            let overtaken = arrived.windows(2).filter(|two| two[1].packet < two[0].packet).count();
            assert_eq!(overtaken > 0, reorders, "{overtaken}");
        }
    }

    #[test]
    fn filters_drop_before_the_queue() {
        let conditions = Conditions {
            rate: Some(1_000_000),
            mtu: Some(1400),
            drops_fragments: true,
            blocks_udp: true,
            ..Conditions::default()
        };
        let mut channel = Channel::new(conditions, 1);
        let form = Form { ip_bytes: 1400, is_udp: false, ..PACKET };
        channel.accept(millis(0), 'u', PACKET);
        channel.accept(millis(0), 'm', Form { ip_bytes: 1401, ..form });
        channel.accept(millis(0), 'f', Form { is_fragment: true, ..form });
        channel.accept(millis(0), 'g', form);
        let arrived = channel.deliver(millis(12)).expect("12 ms at 1 Mbit/s");
        assert_eq!((arrived.packet, channel.deliver(Duration::MAX)), ('g', None));
        let counters = channel.counters();
        assert_eq!((counters.dropped_udp, counters.dropped_by_mtu, counters.dropped_fragments), (1, 1, 1));
    }

    #[test]
    fn a_path_is_down_during_its_outage_and_by_a_change() {
        let conditions =
            Conditions { outage: Some(millis(10)..millis(20)), delay: millis(1), ..Conditions::default() };
        let mut channel = Channel::new(conditions.clone(), 1);
        for now in 0..50 {
            match now {
                30 => channel.change(millis(30), Conditions { is_down: true, ..conditions.clone() }),
                40 => channel.change(millis(40), conditions.clone()),
                _ => {}
            }
            channel.accept(millis(now), now, PACKET);
        }
        let arrived: Vec<u64> =
            std::iter::from_fn(|| channel.deliver(millis(60))).map(|delivery| delivery.packet).collect();
        assert_eq!(arrived, (0..10).chain(20..30).chain(40..50).collect::<Vec<_>>());
        assert_eq!(channel.counters().dropped_while_down, 20);
    }

    #[test]
    fn cross_traffic_takes_its_share_of_the_rate() {
        // 60 of 100 Mbit/s are taken. Packets are sent at 50 Mbit/s.
        let cross = CrossTraffic { sources: 50, ..CrossTraffic::of_rate(60_000_000) };
        let rate = Some(100_000_000);
        let conditions = Conditions { rate, queue: 60_000, cross: Some(cross), ..Conditions::default() };
        let (arrived, counters) = crossing(conditions.clone(), 5, (100_000, Duration::from_micros(240)));
        assert!(counters.dropped_by_queue > 5000 && counters.cross_dropped > 5000, "{counters:?}");
        // The link is never idle for long.
        let sent = arrived.len() as u64 * 1500 + counters.cross_passed * CROSS_BYTES;
        let share = sent as f64 * 8.0 / 24.0 / 1e8;
        assert!((0.96..=1.001).contains(&share), "{share}");
        let without = Conditions { rate: None, ..conditions };
        assert_eq!(crossing(without, 5, (1000, millis(1))).1.cross_passed, 0);
    }

    #[test]
    fn codel_drops_are_counted() {
        let conditions =
            Conditions { rate: Some(100_000_000), discipline: Discipline::CODEL, ..Conditions::default() };
        let (arrived, counters) = crossing(conditions, 6, (100_000, Duration::from_micros(115)));
        assert!(counters.dropped_by_codel > 1000, "{counters:?}");
        assert_eq!(counters.dropped_by_queue, 0);
        assert!(arrived.windows(2).all(|two| two[0].packet < two[1].packet));
    }

    #[test]
    fn everything_repeats_by_seed() {
        let conditions = Conditions {
            delay: millis(10),
            jitter: millis(5),
            rate: Some(200_000_000),
            discipline: Discipline::CODEL,
            queue: 100_000,
            loss: percent(1.0),
            burst_loss: Some(BurstLoss { share: percent(1.0), length: 4.0, within: percent(90.0) }),
            corrupt: percent(1.0),
            reorder: percent(1.0),
            duplicate: percent(1.0),
            cross: Some(CrossTraffic::of_rate(150_000_000)),
            ..Conditions::default()
        };
        let run = |seed| crossing(conditions.clone(), seed, (20_000, Duration::from_micros(100)));
        assert!(run(7) == run(7));
        assert!(run(7).0 != run(8).0);
        // Losses are the same with and without other faults.
        let lost = |conditions: Conditions| crossing(conditions, 7, (1000, millis(1))).1.lost;
        let unlimited = Conditions { rate: None, ..conditions.clone() };
        assert_eq!(lost(unlimited), lost(Conditions { loss: percent(1.0), ..Conditions::default() }));
    }
}
