//! Packets of an attacker: forged, replayed, truncated, from another address. They change nothing.

use crate::dice::Dice;
use crate::link::{GIGABIT, MILLI, SECOND, Shape};
use crate::world::{World, all_finished, crc32c, flow, settings};
use haul_udp::packet::{Ack, Frame, HEADER_LEN, Header};
use haul_udp::{
    Association, Chunk, Config, Crc32c, Failure, PACKETS_PER_EPOCH, Rate, Read, Seal, State, Stats, Transmit,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A seal that is authentic to the crate: a CRC with a key, which also records the numbers it
/// opens.
#[derive(Debug)]
struct Keyed(u32, Arc<Mutex<Vec<u64>>>);

fn keyed(key: u32) -> Box<dyn Seal> {
    Box::new(Keyed(key, Arc::default()))
}

impl Keyed {
    fn masked(&self, number: u64, header: &[u8]) -> Vec<u8> {
        let key = self.0.to_le_bytes();
        [header, &number.to_le_bytes(), &key].concat()
    }
}

impl Seal for Keyed {
    fn overhead(&self) -> usize {
        4
    }

    fn is_authentic(&self) -> bool {
        true
    }

    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) {
        Crc32c.seal(number, &self.masked(number, header), body);
    }

    fn open(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Option<usize> {
        self.1.lock().expect("a list").push(number);
        Crc32c.open(number, &self.masked(number, header), body)
    }
}

fn pair() -> [Association<u8>; 2] {
    let [first, second] = settings(1 << 20);
    [Association::new(first, keyed(7), keyed(9), 0), Association::new(second, keyed(9), keyed(7), 0)]
}

/// Passes all datagrams of an end to `take`.
fn drain(now: u64, end: &mut Association<u8>, mut take: impl FnMut(&[u8])) {
    let mut buffer = Vec::new();
    while let Some(Transmit { segment, .. }) = end.transmit(now, &mut buffer) {
        buffer.chunks(segment).for_each(&mut take);
    }
}

/// Exchanges datagrams without delay until neither end sends, and returns those of the first end.
fn exchange(now: u64, ends: &mut [Association<u8>; 2]) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    loop {
        let mut is_quiet = true;
        for from in 0..2 {
            let mut sent: Vec<Vec<u8>> = Vec::new();
            drain(now, &mut ends[from], |datagram| sent.push(datagram.to_vec()));
            is_quiet &= sent.is_empty();
            for datagram in sent {
                if from == 0 {
                    seen.push(datagram.clone());
                }
                let from = u8::try_from(from).expect("an end");
                ends[usize::from(1 - from)].receive(now, from, &mut datagram.clone());
            }
        }
        if is_quiet {
            return seen;
        }
    }
}

/// Figures without the counters of refused packets.
fn effects(end: &Association<u8>) -> (State, Option<u8>, usize, Option<u64>, Stats) {
    let stats = Stats { packets_damaged: 0, packets_duplicate: 0, packets_foreign: 0, ..end.stats() };
    (end.state(), end.peer(), end.readable(), end.next_time(), stats)
}

fn packet(key: u32, number: u64, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Header { connection: 2, number }.encode().to_vec();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes.extend([0; 4]);
    let (header, body) = bytes.split_at_mut(HEADER_LEN);
    keyed(key).seal(number, header, body);
    bytes
}

/// Such a peer would otherwise make this end drop bytes that were never sent.
#[test]
fn completion_before_the_end_of_the_own_stream_is_a_violation() {
    for code in [0, 1] {
        for (written, finishes) in [(0, false), (10, false), (10, true)] {
            let mut ends = pair();
            ends[0].finish();
            exchange(MILLI, &mut ends);
            assert_eq!(ends[1].write(&vec![1; written]), written);
            if finishes {
                ends[1].finish();
            }
            ends[1].receive(MILLI, 0, &mut packet(7, 1000, &[Frame::Close(code)]));
            let state = ends[1].state();
            assert!(matches!(state, State::Failed(Failure::Violation(_))), "{code} {written}: {state:?}");
        }
    }
}

#[test]
fn forged_replayed_and_truncated_packets_change_nothing() {
    let mut ends = pair();
    ends[0].write(&[5; 5000]);
    let recorded = exchange(MILLI, &mut ends);
    assert!(recorded.len() > 4 && ends[1].readable() == 5000, "{} packets", recorded.len());
    let before = effects(&ends[1]);
    let mut dice = Dice::new(1);
    let mut count = 0;
    for datagram in &recorded {
        // Replayed, at once and later, and from another address.
        for now in [MILLI, SECOND] {
            for from in [0, 3] {
                ends[1].receive(now, from, &mut datagram.clone());
                count += 1;
            }
        }
        for _ in 0..200 {
            // With a new number, a changed byte, or cut.
            let mut forged = datagram.clone();
            match dice.below(3) {
                0 => forged[5] = forged[5].wrapping_add(100),
                1 => {
                    let at = usize::try_from(dice.below(forged.len() as u64)).expect("an index");
                    forged[at] ^= 1 << dice.below(8);
                }
                _ => forged.truncate(usize::try_from(dice.below(forged.len() as u64)).expect("a length")),
            }
            ends[1].receive(MILLI, 0, &mut forged);
            count += 1;
        }
    }
    for _ in 0..2000 {
        let mut random: Vec<u8> = (0..dice.below(80)).map(|_| dice.next() as u8).collect();
        ends[1].receive(MILLI, 0, &mut random);
        count += 1;
    }
    assert_eq!(effects(&ends[1]), before);
    let stats = ends[1].stats();
    assert_eq!(stats.packets_damaged + stats.packets_duplicate + stats.packets_foreign, count);
    // The association still works.
    ends[0].write(&[6; 100]);
    exchange(2 * MILLI, &mut ends);
    assert_eq!(ends[1].readable(), 5100);
}

/// Attackers know the port of a lane, but not its keys.
#[test]
fn ten_thousand_forged_openings_leave_no_state() {
    let mut ends = pair();
    let before = effects(&ends[1]);
    for key in 1000..11_000 {
        let from = u8::try_from(key % 200).expect("an address");
        ends[1].receive(
            0,
            from,
            &mut packet(
                key,
                0,
                &[Frame::Ping(1), Frame::Stream { offset: 0, data: &[1; 100], is_end: false }],
            ),
        );
        drain(0, &mut ends[1], |_| panic!("an answer to {from}"));
    }
    assert_eq!(effects(&ends[1]), before);
    assert_eq!(ends[1].stats().packets_damaged, 10_000);
    ends[0].write(&[6; 100]);
    exchange(MILLI, &mut ends);
    assert_eq!(ends[1].readable(), 100);
}

#[test]
fn numbers_beyond_the_next_epoch_are_refused_before_they_are_opened() {
    let opened = Arc::default();
    let [_, config] = settings(1 << 20);
    let open = Box::new(Keyed(7, Arc::clone(&opened)));
    let mut end = Association::new(config, keyed(9), open, 0);
    for number in [2 * PACKETS_PER_EPOCH, (1 << 48) - 1] {
        end.receive(0, 0, &mut packet(7, number, &[Frame::Ping(1)]));
    }
    assert_eq!((end.stats().packets_damaged, opened.lock().expect("a list").len()), (2, 0));
    end.receive(0, 0, &mut packet(7, 2 * PACKETS_PER_EPOCH - 1, &[Frame::Ping(1)]));
    end.receive(0, 0, &mut packet(7, 3 * PACKETS_PER_EPOCH - 1, &[Frame::Ping(1)]));
    end.receive(0, 0, &mut packet(7, 3 * PACKETS_PER_EPOCH - 1, &[Frame::Ping(1)]));
    assert_eq!((end.stats().packets_received, end.stats().packets_duplicate), (2, 1));
}

#[test]
fn violations_in_authentic_packets_end_the_association() {
    let ack = Ack { largest: 1000, delay: 0, credit: 0, runs: &[0] };
    let stream = |offset, data, is_end| Frame::Stream { offset, data, is_end };
    for frames in [
        vec![Frame::Ack(ack)],
        vec![stream(1 << 20, b"x", false)],
        vec![stream(u64::MAX - 1, b"", true)],
        vec![Frame::Ack(Ack { largest: 0, runs: &[1], ..ack })],
    ] {
        let mut ends = pair();
        exchange(MILLI, &mut ends);
        ends[1].receive(MILLI, 0, &mut packet(7, 900, &frames));
        assert!(
            matches!(ends[1].state(), State::Failed(Failure::Violation(_))),
            "{frames:?}: {:?}",
            ends[1].state()
        );
        exchange(MILLI, &mut ends);
        assert_eq!(ends[0].state(), State::Failed(Failure::Closed(2)), "{frames:?}");
    }
    // The end of a stream does not move.
    let mut ends = pair();
    ends[1].receive(0, 0, &mut packet(7, 0, &[stream(0, b"abc", true)]));
    ends[1].receive(0, 0, &mut packet(7, 1, &[stream(0, b"ab", true)]));
    assert!(matches!(ends[1].state(), State::Failed(Failure::Violation(_))));
}

#[test]
fn damage_that_passes_a_crc_ends_nothing() {
    let [_, config] = settings(1 << 20);
    let mut end = Association::new(config, crc32c(), crc32c(), 0);
    let mut bytes = Header { connection: 2, number: 0 }.encode().to_vec();
    bytes.extend([99, 0, 0, 0, 0]);
    let (header, body) = bytes.split_at_mut(HEADER_LEN);
    Crc32c.seal(0, header, body);
    end.receive(0, 0, &mut bytes);
    assert_eq!((end.state(), end.stats().packets_damaged, end.peer()), (State::Open, 1, None));
}

/// The address of the initiator is forged: its answers never arrive at the acceptor.
#[test]
fn unproven_address_receives_at_most_three_times_what_it_sent() {
    for rate in [Rate::Fixed(GIGABIT), Rate::Found { max: None, start: Some(GIGABIT) }] {
        let [_, mut config] = settings(1 << 20);
        config.rate = rate;
        let mut end = Association::new(config, keyed(9), keyed(7), 0);
        end.write(&[1; 500_000]);
        let (mut received, mut sent) = (0, 0);
        for number in 0..50 {
            let now = number * 20 * MILLI;
            // An acknowledgement of all packets so far, and a wrong token, prove nothing.
            let largest = end.stats().packets_sent.saturating_sub(1);
            let mut runs = Vec::new();
            put_run(&mut runs, largest);
            let ack = Ack { largest, delay: 0, credit: 1 << 30, runs: &runs };
            let frames = [Frame::Ping(3), Frame::Pong(4), Frame::Ack(ack)];
            let frames = if end.stats().packets_sent == 0 { &frames[..2] } else { &frames[..] };
            let mut datagram = packet(7, number, frames);
            received += datagram.len();
            end.receive(now, 0, &mut datagram);
            drain(now, &mut end, |datagram| sent += datagram.len());
            assert!(sent <= 3 * received, "{sent} bytes for {received}");
        }
        assert!(sent > 0);
        // The right token proves the address.
        let mut datagram = packet(7, 1000, &[Frame::Pong(22)]);
        end.receive(SECOND, 0, &mut datagram);
        for step in 0..1000 {
            drain(SECOND + step * MILLI, &mut end, |datagram| sent += datagram.len());
        }
        assert!(sent > 10 * received, "{sent} bytes for {received}");
    }
}

/// Appends a run of `largest + 1` packets to the runs of an ACK.
fn put_run(runs: &mut Vec<u8>, mut largest: u64) {
    while largest >= 0x80 {
        runs.push(largest as u8 | 0x80);
        largest >>= 7;
    }
    runs.push(largest as u8);
}

fn silent(idle: u64, config: impl Fn(&mut Config<u8>)) -> [Config<u8>; 2] {
    settings(1 << 20).map(|mut settings| {
        settings.idle = Duration::from_nanos(idle);
        config(&mut settings);
        settings
    })
}

#[test]
fn blocked_and_dying_paths_are_distinguished() {
    for (dead, expected) in
        [((0, u64::MAX), Failure::NeverAnswered), ((100 * MILLI, u64::MAX), Failure::Died)]
    {
        let mut shape = Shape::clean(GIGABIT, MILLI);
        shape.dead = vec![dead];
        let mut world = World::new([shape.clone(), shape], 1);
        let mut ends = flow(0, silent(3 * SECOND, |_| {}), &crc32c);
        ends[0].to_write = 1 << 40;
        world.flows.push(ends);
        let has_failed = world.run(10 * SECOND, |world| world.flows[0][0].association.state() != State::Open);
        let end = &world.flows[0][0].association;
        assert!(has_failed && end.state() == State::Failed(expected), "{:?}", end.state());
        assert!((3 * SECOND..4 * SECOND).contains(&end.silent_for(world.now)), "{}", world.now);
        assert_eq!(end.has_heard(), expected == Failure::Died);
    }
}

/// An idle association stays open.
#[test]
fn idle_ends_ask_for_each_other() {
    let mut world = World::new([Shape::clean(GIGABIT, MILLI), Shape::clean(GIGABIT, MILLI)], 1);
    let mut ends = flow(0, silent(3 * SECOND, |_| {}), &crc32c);
    ends[0].start = 60 * SECOND;
    ends[1].start = 60 * SECOND;
    world.flows.push(ends);
    assert!(world.run(61 * SECOND, all_finished));
    let stats = world.flows[0][0].association.stats();
    assert!(world.now >= 60 * SECOND && stats.packets_sent < 400, "{stats:?}");
}

#[test]
fn fixed_chunk_above_the_mtu_is_named() {
    let mut world = World::new([Shape::clean(GIGABIT, 5 * MILLI), Shape::clean(GIGABIT, 5 * MILLI)], 1);
    let mut ends = flow(0, silent(30 * SECOND, |config| config.chunk = Chunk::Fixed(4000)), &crc32c);
    ends[0].to_write = 10_000_000;
    world.flows.push(ends);
    world.run(30 * SECOND, |world| world.flows[0][0].association.state() != State::Open);
    match world.flows[0][0].association.state() {
        State::Failed(Failure::ChunkTooLarge { chunk: 4024, works }) => {
            assert!((1456..=1472).contains(&works), "{works}");
        }
        other => panic!("{other:?}: {:?}", world.flows[0][0].association),
    }
}

/// Regression: the second outage counted as proof that datagrams of the fixed size do not pass,
/// although they had arrived between the two.
#[test]
fn outages_are_no_proof_against_a_fixed_chunk() {
    for (chunk, rate) in [(1177, 15_000_000), (1400, 15_000_000), (1400, GIGABIT), (8000, GIGABIT)] {
        for length in [30, 150, 400] {
            let mut shapes = [Shape::clean(rate, 5 * MILLI), Shape::clean(rate, 5 * MILLI)];
            shapes[0].mtu = vec![(0, 65_507)];
            shapes[0].dead =
                (1..5).map(|outage| (outage * SECOND, outage * SECOND + length * MILLI)).collect();
            let mut world = World::new(shapes, 1);
            let mut ends = flow(0, silent(30 * SECOND, |config| config.chunk = Chunk::Fixed(chunk)), &crc32c);
            ends[0].to_write = 6 * rate;
            world.flows.push(ends);
            world.run(6 * SECOND, |world| world.flows[0][0].association.state() != State::Open);
            let association = &world.flows[0][0].association;
            assert_eq!(association.state(), State::Open, "{chunk}, {length} ms: {association:?}");
        }
    }
}

#[test]
fn found_chunk_follows_the_mtu() {
    let mut shapes = [Shape::clean(GIGABIT, 5 * MILLI), Shape::clean(GIGABIT, 5 * MILLI)];
    shapes[0].mtu = vec![(0, 8972), (2 * SECOND, 1300)];
    let mut world = World::new(shapes, 1);
    let mut ends = flow(0, settings(16 << 20), &crc32c);
    ends[0].to_write = 400 << 20;
    world.flows.push(ends);
    world.run(SECOND, |_| false);
    assert_eq!(world.flows[0][0].association.stats().datagram, 8972);
    assert!(world.run(60 * SECOND, all_finished));
    let datagram = world.flows[0][0].association.stats().datagram;
    assert!((1280..=1300).contains(&datagram), "{datagram}");
}

/// A reader that stops limits the memory of both ends, and a lost credit does not end the transfer.
#[test]
fn stopped_reader_holds_the_sender_within_the_credit() {
    let mut shape = Shape::clean(GIGABIT, MILLI);
    shape.loss = 0.3;
    let mut world = World::new([shape.clone(), shape], 1);
    let mut ends = flow(0, settings(1 << 20), &crc32c);
    ends[0].to_write = 8 << 20;
    ends[1].read_max = 0;
    world.flows.push(ends);
    world.run(20 * SECOND, |_| false);
    let end = &world.flows[0][1];
    assert_eq!(end.association.readable(), 1 << 20);
    assert!(end.memory_max < 4 << 20, "{}", end.memory_max);
    world.flows[0][1].read_max = usize::MAX;
    let mut target = vec![0; 1 << 20];
    let Read::Bytes(count) = world.flows[0][1].association.read(&mut target) else { panic!("bytes") };
    world.flows[0][1].read = count as u64;
    assert!(world.run(200 * SECOND, all_finished), "{:?}", world.flows[0][0].association);
    assert_eq!(world.flows[0][1].read, 8 << 20);
}

#[test]
fn closed_association_informs_the_peer() {
    let mut ends = pair();
    exchange(MILLI, &mut ends);
    ends[0].close(MILLI, 77);
    exchange(MILLI, &mut ends);
    let states = ends.each_ref().map(Association::state);
    assert_eq!(states, [State::Failed(Failure::Aborted(77)), State::Failed(Failure::Closed(77))]);
    assert!(ends.iter().all(|end| end.next_time().is_none()));
}

/// Regression: the end of each job waited one more round trip, for the answer to CLOSE 0.
#[test]
fn a_complete_association_closes_without_waiting_for_the_peer() {
    let mut ends = pair();
    exchange(MILLI, &mut ends);
    ends.iter_mut().for_each(Association::finish);
    for from in [0, 1, 0, 1] {
        let mut sent: Vec<Vec<u8>> = Vec::new();
        drain(MILLI, &mut ends[from], |datagram| sent.push(datagram.to_vec()));
        let peer = u8::try_from(from).expect("an end");
        sent.iter_mut().for_each(|datagram| ends[1 - from].receive(MILLI, peer, datagram));
        if ends[0].is_complete() {
            break;
        }
    }
    assert!(ends[0].is_complete() && ends[0].state() == State::Open);
    ends[0].close(MILLI, 77);
    assert_eq!(ends[0].state(), State::Finished);
    exchange(MILLI, &mut ends);
    assert_eq!(ends[1].state(), State::Finished);
}

/// Regression: an interrupted job at a low rate sent megabytes of its buffer before its last
/// message.
#[test]
fn a_writer_is_at_most_a_fraction_of_a_second_ahead_of_the_rate() {
    let [first, _] = settings(8 << 20);
    let config = Config { rate: Rate::Fixed(1_000_000), ..first };
    let mut end = Association::new(config, keyed(7), keyed(9), 0);
    let written = end.write(&vec![0; 8 << 20]);
    assert!((200_000..400_000).contains(&written), "{written}");
    assert_eq!(end.writable(), 0);
}

/// The records of unacknowledged packets took as much memory again as small datagrams carried.
#[test]
fn records_of_packets_count_against_the_send_buffer() {
    for chunk in [200, 1400] {
        let mut world =
            World::new([Shape::clean(GIGABIT, 200 * MILLI), Shape::clean(GIGABIT, 200 * MILLI)], 1);
        let buffer = 4 << 20;
        let mut ends =
            flow(0, settings(buffer).map(|config| Config { chunk: Chunk::Fixed(chunk), ..config }), &crc32c);
        ends[0].to_write = 48 << 20;
        world.flows.push(ends);
        assert!(world.run(600 * SECOND, all_finished), "{:?}", world.flows[0][0].association);
        // Besides: free segments, two that are partly used, and the records of 1,024 packets.
        let most = buffer + 18 * (64 << 10) + 1024 * 70;
        let end = &world.flows[0][0];
        assert!(end.memory_max <= most, "{chunk}: {} bytes of {most}", end.memory_max);
        assert!(end.memory_max > buffer * 3 / 4, "{chunk}: {} bytes are used", end.memory_max);
    }
}
