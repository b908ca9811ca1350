//! A simulated world: pairs of associations over one path, in virtual time.

use crate::cubic::Cubic;
use crate::dice::Dice;
use crate::link::{Link, SECOND, Shape};
use haul_udp::{Association, Config, Crc32c, Read, Role, Seal, State, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a stream: a function of the position and the seed.
pub(crate) fn pattern(seed: u64, at: u64) -> u8 {
    (seed.wrapping_add(at / 251).wrapping_mul(0x9e37_79b9) >> 24) as u8 ^ at as u8
}

/// One end with its application.
pub(crate) struct End {
    pub(crate) association: Association<u8>,
    /// Bytes that the application still writes, and then finishes.
    pub(crate) to_write: u64,
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) is_finished: bool,
    /// Seed of the bytes that this end writes, if the peer checks them.
    pub(crate) pattern: Option<u64>,
    pub(crate) peer_pattern: Option<u64>,
    /// Bytes that this end reads at most at a time; 0 stops the reader.
    pub(crate) read_max: usize,
    pub(crate) write_max: usize,
    pub(crate) memory_max: usize,
    /// Moment at which the application starts.
    pub(crate) start: Time,
    /// Bytes of datagrams sent in each 100 ms.
    pub(crate) sent: Vec<u64>,
    /// Bytes read in each 100 ms.
    pub(crate) arrived: Vec<u64>,
    next_call: Time,
    finished_at: Option<Time>,
}

enum Event {
    /// A datagram for an end of a flow.
    Datagram {
        flow: usize,
        end: usize,
        bytes: Vec<u8>,
    },
    /// A segment of the TCP model that reaches the receiver, or its acknowledgement.
    Segment(u64),
    Ack(u64),
}

struct Entry(Time, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) flows: Vec<[End; 2]>,
    /// From end 0 to end 1, and back.
    pub(crate) links: [Link; 2],
    pub(crate) cubic: Option<Cubic>,
    events: BinaryHeap<Reverse<Entry>>,
    count: u64,
    /// By this time at most, each timer is late.
    pub(crate) lateness: u64,
    /// Datagrams arrive together at multiples of this time, as from a system that collects them.
    pub(crate) collected: u64,
    /// Period and length of pauses in which nothing arrives, as on a machine with other work.
    pub(crate) pauses: Option<(u64, u64)>,
    dice: Dice,
    buffer: Vec<u8>,
    block: Vec<u8>,
    still: u64,
}

/// Creates a flow of two ends with the identifiers 1 and 2, whose address is the number of the end.
pub(crate) fn flow(now: Time, settings: [Config<u8>; 2], seal: &dyn Fn() -> Box<dyn Seal>) -> [End; 2] {
    settings.map(|config| End {
        association: Association::new(config, seal(), seal(), now),
        to_write: 0,
        written: 0,
        read: 0,
        is_finished: false,
        pattern: None,
        peer_pattern: None,
        read_max: usize::MAX,
        write_max: usize::MAX,
        memory_max: 0,
        start: now,
        sent: Vec::new(),
        arrived: Vec::new(),
        next_call: now,
        finished_at: None,
    })
}

/// Returns default settings of both ends.
pub(crate) fn settings(buffer: usize) -> [Config<u8>; 2] {
    let both = [Config::new(Role::Initiator(1), 1, 2, 11), Config::new(Role::Acceptor, 2, 1, 22)];
    both.map(|mut config| {
        config.send_buffer = buffer;
        config.receive_buffer = buffer;
        config.remote_buffer = buffer as u64;
        config
    })
}

pub(crate) fn crc32c() -> Box<dyn Seal> {
    Box::new(Crc32c)
}

impl World {
    pub(crate) fn new(shapes: [Shape; 2], seed: u64) -> Self {
        let [there, back] = shapes;
        Self {
            now: 0,
            flows: Vec::new(),
            links: [Link::new(there, seed ^ 0x11), Link::new(back, seed ^ 0x22)],
            cubic: None,
            events: BinaryHeap::new(),
            count: 0,
            lateness: 0,
            collected: 1,
            pauses: None,
            dice: Dice::new(seed ^ 0x33),
            buffer: Vec::new(),
            block: vec![0; 256 << 10],
            still: 0,
        }
    }

    fn push(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Entry(at, self.count, event)));
    }

    /// Runs until `until`, or until `done` returns true after an event. Returns whether it did.
    pub(crate) fn run(&mut self, until: Time, mut done: impl FnMut(&mut World) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let event = self.events.peek().map_or(Time::MAX, |Reverse(entry)| entry.0);
            let mut next = (event, None);
            for flow in 0..self.flows.len() {
                for end in 0..2 {
                    let at = self.flows[flow][end].next_call;
                    if at < next.0 {
                        next = (at, Some((flow, end)));
                    }
                }
            }
            let tcp = self.cubic.as_ref().and_then(Cubic::next_time).unwrap_or(Time::MAX);
            if tcp < next.0 {
                next = (tcp, None);
            }
            if next.0 > until {
                self.now = until;
                return false;
            }
            self.still = if next.0 > self.now { 0 } else { self.still + 1 };
            assert!(self.still < 100_000, "time does not pass");
            self.now = self.now.max(next.0);
            match next.1 {
                Some((flow, end)) => self.serve(flow, end),
                None if tcp <= event => self.serve_tcp(),
                None => self.take_event(),
            }
        }
    }

    fn take_event(&mut self) {
        let Some(Reverse(Entry(_, _, event))) = self.events.pop() else { return };
        match event {
            Event::Datagram { flow, end, mut bytes } => {
                let from = u8::try_from(1 - end).expect("an end");
                self.flows[flow][end].association.receive(self.now, from, &mut bytes);
                self.serve(flow, end);
            }
            Event::Segment(number) => {
                let at = self.now + self.links[1].shape.delay;
                self.push(at, Event::Ack(number));
            }
            Event::Ack(number) => {
                let now = self.now;
                if let Some(cubic) = &mut self.cubic {
                    cubic.ack(now, number);
                }
                self.serve_tcp();
            }
        }
    }

    fn serve_tcp(&mut self) {
        let now = self.now;
        while let Some(number) = self.cubic.as_mut().and_then(|cubic| cubic.next(now)) {
            let mut arrival = None;
            self.links[0].take(now, &[0; 1472], |at, _| arrival = Some(at));
            if let Some(at) = arrival {
                self.push(at, Event::Segment(number));
            }
        }
    }

    /// Lets the application and the association of an end act.
    fn serve(&mut self, flow: usize, end: usize) {
        let now = self.now;
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            self.apply(flow, end);
            let side = &mut self.flows[flow][end];
            let Some(transmit) = side.association.transmit(now, &mut buffer) else { break };
            assert_eq!(usize::from(transmit.to), 1 - end, "to the peer");
            assert!(buffer.len() <= 65_000 || buffer.len() == transmit.segment, "{} bytes", buffer.len());
            assert!(buffer.len().div_ceil(transmit.segment) <= 64, "datagrams of a batch");
            count(&mut side.sent, now, buffer.len() as u64);
            for datagram in buffer.chunks(transmit.segment) {
                let (events, count, collected) = (&mut self.events, &mut self.count, self.collected);
                let (period, length) = self.pauses.unwrap_or((SECOND, 0));
                self.links[end].take(now, datagram, |at, bytes| {
                    *count += 1;
                    let at = at.next_multiple_of(collected);
                    let at = at + length.saturating_sub(at % period);
                    events.push(Reverse(Entry(at, *count, Event::Datagram { flow, end: 1 - end, bytes })));
                });
            }
        }
        self.buffer = buffer;
        let late = if self.lateness > 0 { self.dice.below(self.lateness) } else { 0 };
        let side = &mut self.flows[flow][end];
        let next = side.association.next_time();
        let next = if side.written == 0 && !side.is_finished && now < side.start {
            Some(next.unwrap_or(Time::MAX).min(side.start))
        } else {
            next
        };
        side.next_call = next.map_or(Time::MAX, |at| at.max(now) + late);
        side.memory_max = side.memory_max.max(side.association.stats().memory);
        if side.finished_at.is_none() && side.association.state() == State::Finished {
            side.finished_at = Some(now);
        }
    }

    fn apply(&mut self, flow: usize, end: usize) {
        let now = self.now;
        let side = &mut self.flows[flow][end];
        while now >= side.start && side.to_write > 0 && side.association.writable() > 0 {
            let mut len = self.block.len().min(side.write_max);
            if side.write_max < usize::MAX {
                len = 1 + usize::try_from(self.dice.below(len as u64)).expect("a length");
            }
            let len = len.min(usize::try_from(side.to_write).unwrap_or(usize::MAX));
            if let Some(seed) = side.pattern {
                for (at, byte) in self.block[..len].iter_mut().enumerate() {
                    *byte = pattern(seed, side.written + at as u64);
                }
            }
            let count = side.association.write(&self.block[..len]) as u64;
            side.written += count;
            side.to_write -= count;
        }
        if now >= side.start && side.to_write == 0 && !side.is_finished {
            side.association.finish();
            side.is_finished = true;
        }
        while side.read_max > 0 {
            let mut len = self.block.len().min(side.read_max);
            if side.read_max < usize::MAX {
                len = 1 + usize::try_from(self.dice.below(len as u64)).expect("a length");
            }
            let Read::Bytes(len) = side.association.read(&mut self.block[..len]) else { break };
            if let Some(seed) = side.peer_pattern {
                for (at, byte) in self.block[..len].iter().enumerate() {
                    assert_eq!(*byte, pattern(seed, side.read + at as u64), "byte {}", side.read + at as u64);
                }
            }
            side.read += len as u64;
            count(&mut side.arrived, now, len as u64);
        }
    }
}

fn count(slots: &mut Vec<u64>, now: Time, bytes: u64) {
    let slot = usize::try_from(now / 100_000_000).expect("a slot");
    if slots.len() <= slot {
        slots.resize(slot + 1, 0);
    }
    slots[slot] += bytes;
}

/// True if both ends of all flows have finished.
pub(crate) fn all_finished(world: &mut World) -> bool {
    world.flows.iter().flatten().all(|end| end.association.state() == State::Finished)
}
