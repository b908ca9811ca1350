//! The controller under a sender of another protocol, which acknowledges and loses packets by their
//! numbers as QUIC does.

use crate::link::{GIGABIT, Link, MILLI, SECOND, Shape};
use haul_udp::{Controller, Time};
use std::collections::BTreeMap;

const DATAGRAM: u64 = 1472;
/// Packets of each acknowledgement.
const PER_ACK: usize = 20;
/// Packets after which a missing one is lost.
const REORDERED: u64 = 3;

/// A sender that is limited by the moments of the controller, or paces by its window alone.
struct Sender {
    controller: Controller,
    is_unpaced: bool,
    link: Link,
    back: Time,
    now: Time,
    /// Number and time of sending of the packets in flight.
    flying: BTreeMap<u64, Time>,
    next: u64,
    arrived: u64,
    /// Arrival of acknowledgements and their packets, in order.
    acks: Vec<(Time, Vec<u64>)>,
    smoothed: f64,
    paced: Time,
}

impl Sender {
    fn new(shape: Shape, is_unpaced: bool) -> Self {
        let back = shape.delay;
        Self {
            controller: Controller::new(None, 7, 0),
            is_unpaced,
            link: Link::new(shape, 3),
            back,
            now: 0,
            flying: BTreeMap::new(),
            next: 0,
            arrived: 0,
            acks: Vec::new(),
            smoothed: 100e6,
            paced: 0,
        }
    }

    fn window(&self) -> u64 {
        if self.is_unpaced {
            self.controller.unpaced_window(DATAGRAM)
        } else {
            self.controller.window(DATAGRAM)
        }
    }

    /// Sends for `time`; the receiver has seen everything that arrived before.
    fn run(&mut self, time: Time) {
        let mut waiting: Vec<(Time, u64)> = Vec::new();
        while self.now < time {
            let may_fly = self.flying.len() as u64 * DATAGRAM < self.window();
            let paced = if self.is_unpaced { self.paced } else { self.controller.next() };
            let send = if may_fly { paced.max(self.now) } else { Time::MAX };
            let ack = self.acks.first().map_or(Time::MAX, |(at, _)| *at);
            self.now = send.min(ack).max(self.now);
            if ack <= send {
                let (_, numbers) = self.acks.remove(0);
                self.acked(&numbers);
                continue;
            }
            let (number, now) = (self.next, self.now);
            self.next += 1;
            self.flying.insert(number, now);
            self.controller.on_sent(now, DATAGRAM);
            let between = self.smoothed * DATAGRAM as f64 / (1.25 * self.window() as f64);
            self.paced = self.paced.max(now.saturating_sub(MILLI)) + between as Time;
            self.link.take(now, &[0; DATAGRAM as usize], |at, _| waiting.push((at, number)));
            if waiting.len() >= PER_ACK {
                let at = waiting.iter().map(|(at, _)| *at).max().expect("packets") + self.back;
                self.acks.push((at, waiting.drain(..).map(|(_, number)| number).collect()));
            }
        }
    }

    fn acked(&mut self, numbers: &[u64]) {
        let (now, newest) = (self.now, *numbers.last().expect("packets"));
        for number in numbers {
            let Some(sent) = self.flying.remove(number) else { continue };
            self.arrived += 1;
            self.controller.on_acked(sent, DATAGRAM);
            if *number == newest {
                self.smoothed += ((now - sent) as f64 - self.smoothed) / 8.0;
            }
        }
        self.controller.on_acks_end(now, self.flying.len() as u64 * DATAGRAM, false);
        let later = self.flying.split_off(&newest.saturating_sub(REORDERED - 1));
        let lost = std::mem::replace(&mut self.flying, later);
        if !lost.is_empty() {
            self.controller.on_lost(now, lost.len() as u64 * DATAGRAM);
        }
    }
}

#[test]
fn senders_of_other_protocols_fill_the_path_and_spare_its_queue() {
    for is_unpaced in [false, true] {
        for (rtt, queue, loss) in
            [(30, 3_000_000, 0.0), (30, 12_000_000, 0.0), (89, 12_000_000, 0.001), (89, 12_000_000, 0.01)]
        {
            let mut shape = Shape::clean(GIGABIT, rtt * MILLI / 2);
            (shape.queue, shape.loss) = (queue, loss);
            let mut sender = Sender::new(shape, is_unpaced);
            sender.run(10 * SECOND);
            let share = (sender.arrived * (DATAGRAM + 28)) as f64 / (10 * GIGABIT) as f64;
            let dropped = sender.link.dropped as f64 / sender.next as f64;
            let what = format!("unpaced {is_unpaced}, {rtt} ms, queue {queue}, loss {loss}");
            eprintln!(
                "{what}: {share:.3} of the link, {dropped:.5} dropped, queue {} ms",
                sender.link.queue_max / MILLI
            );
            assert!(share > 0.86, "{what}: {share:.3} of the link");
            assert!(dropped < 0.01, "{what}: {dropped:.4} dropped");
        }
    }
}
