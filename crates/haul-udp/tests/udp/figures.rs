//! Figures over simulated paths. Virtual time makes them exact.

use crate::link::{GIGABIT, HEADERS, MILLI, SECOND, Shape};
use crate::world::{World, all_finished, crc32c, flow, settings};
use haul_udp::{Rate, State};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A path of 1 Gbit/s with a round-trip time, loss in the forward direction and a queue of one
/// bandwidth-delay product.
fn path(rtt: u64, loss: f64) -> [Shape; 2] {
    let mut there = Shape::clean(GIGABIT, rtt / 2);
    there.loss = loss;
    [there, Shape::clean(GIGABIT, rtt / 2)]
}

/// Share of the link for payload, at datagrams of 1,472 bytes.
fn link_goodput() -> f64 {
    GIGABIT as f64 * (1472.0 - 24.0) / (1472.0 + HEADERS as f64)
}

struct Figures {
    /// Seconds until the receiver has everything, and until both ends have finished.
    arrival: f64,
    /// Longest delay of the queue in nanoseconds.
    queue_max: u64,
    dropped: u64,
    stats: haul_udp::Stats,
}

fn send(world: &mut World, bytes: u64, buffer: usize, rtt: u64) -> Figures {
    let ends = settings(buffer).map(|mut config| {
        config.rtt = Some(Duration::from_nanos(rtt));
        config
    });
    let mut ends = flow(0, ends, &crc32c);
    ends[0].to_write = bytes;
    world.flows.push(ends);
    let mut arrival = None;
    let is_done = world.run(600 * SECOND, |world| {
        if arrival.is_none() && world.flows[0][1].read == bytes {
            arrival = Some(world.now);
        }
        all_finished(world)
    });
    assert!(is_done, "{:?}", world.flows[0][0].association.stats());
    Figures {
        arrival: arrival.expect("all bytes") as f64 / SECOND as f64,
        queue_max: world.links[0].queue_max,
        dropped: world.links[0].dropped,
        stats: world.flows[0][0].association.stats(),
    }
}

fn show(name: &str, ratio: f64, figures: &Figures) {
    let Figures { arrival, queue_max, dropped, stats } = figures;
    eprintln!(
        "{name}: {ratio:.3} of the link, {arrival:.3} s, queue {} ms, dropped {dropped}, lost {}, again {}, spurious {}",
        queue_max / MILLI,
        stats.packets_lost,
        stats.packets_retransmitted,
        stats.losses_spurious
    );
}

#[test]
fn long_transfers_fill_the_link() {
    for (rtt, loss, goal) in [
        (30, 0.0001, 0.95),
        (30, 0.001, 0.95),
        (30, 0.01, 0.92),
        (89, 0.0001, 0.95),
        (89, 0.001, 0.95),
        (89, 0.01, 0.92),
    ] {
        let mut world = World::new(path(rtt * MILLI, loss), 5);
        let bytes = 1024 * MIB;
        let figures = send(&mut world, bytes, 64 << 20, rtt * MILLI);
        let ratio = bytes as f64 / figures.arrival / link_goodput();
        show(&format!("1 GiB, {rtt} ms, loss {loss}"), ratio, &figures);
        assert!(ratio >= goal, "{rtt} ms, loss {loss}: {ratio:.3}");
    }
}

#[test]
fn short_transfers_start_fast() {
    for (loss, goal) in [(0.0, 0.84), (0.001, 0.78), (0.01, 0.75)] {
        let mut world = World::new(path(89 * MILLI, loss), 5);
        let bytes = 256 * MIB;
        let figures = send(&mut world, bytes, 64 << 20, 89 * MILLI);
        let handshake = 3.0 * 0.089;
        let ratio = bytes as f64 / (figures.arrival + handshake) / link_goodput();
        show(&format!("256 MiB, 89 ms, loss {loss}"), ratio, &figures);
        assert!(ratio >= goal, "loss {loss}: {ratio:.3}");
    }
}

/// The first train measures nothing if the system delivers its datagrams together; a longer one
/// does.
#[test]
fn collected_arrivals_are_measured_by_longer_trains() {
    for (collected, loss) in [(MILLI, 0.0), (5 * MILLI, 0.0), (MILLI, 0.01)] {
        let mut world = World::new(path(30 * MILLI, loss), 5);
        world.collected = collected;
        let bytes = 512 * MIB;
        let figures = send(&mut world, bytes, 64 << 20, 30 * MILLI);
        let ratio = bytes as f64 / figures.arrival / link_goodput();
        show(&format!("512 MiB, 30 ms, loss {loss}, collected {collected}"), ratio, &figures);
        assert!(ratio >= 0.91, "{ratio:.3}");
        assert!(figures.dropped < 500, "{} dropped", figures.dropped);
    }
}

/// Regression: one acknowledgement that the machine delivered late ended the start-up, as if a
/// queue had filled.
#[test]
fn pauses_of_a_busy_machine_do_not_end_the_start() {
    for (rtt, loss, goal) in [(30, 0.001, 0.96), (30, 0.01, 0.95), (89, 0.001, 0.93), (89, 0.01, 0.91)] {
        let mut world = World::new(path(rtt * MILLI, loss), 5);
        (world.collected, world.pauses) = (MILLI / 10, Some((97 * MILLI, 12 * MILLI)));
        let bytes = 512 * MIB;
        let figures = send(&mut world, bytes, 128 << 20, rtt * MILLI);
        let ratio = bytes as f64 / figures.arrival / link_goodput();
        show(&format!("512 MiB, {rtt} ms, loss {loss}, pauses"), ratio, &figures);
        assert!(ratio >= goal, "{rtt} ms, loss {loss}: {ratio:.3}");
    }
}

/// Regression: acknowledgements used up the rate that a receiver had found for its few messages,
/// which then waited for seconds while the transfer paused.
#[test]
fn messages_of_a_receiver_are_not_late() {
    let mut world = World::new(path(30 * MILLI, 0.0), 5);
    let [mut sender, receiver] = settings(64 << 20);
    sender.rate = Rate::Fixed(GIGABIT / 2);
    world.flows.push(flow(0, [sender, receiver], &crc32c));
    world.flows[0][0].to_write = u64::MAX >> 8;
    world.flows[0][1].start = u64::MAX;
    for message in 1..200 {
        assert_eq!(world.flows[0][1].association.write(&[7; 47]), 47);
        world.run(message * 64 * MILLI, |_| false);
        let arrived = world.flows[0][0].read / 47;
        assert!(arrived + 1 >= message, "{arrived} of {message} messages after {message} x 64 ms");
    }
}

/// Regression: small messages before the first large one used up the train, so that real jobs
/// began without a measured rate.
#[test]
fn messages_before_the_data_do_not_use_up_the_train() {
    let mut world = World::new(path(89 * MILLI, 0.0), 5);
    world.flows.push(flow(0, settings(64 << 20), &crc32c));
    let sender = &mut world.flows[0][0];
    (sender.start, sender.to_write) = (300 * MILLI, 256 * MIB);
    // An end acts when a packet arrives, which is soon after these times.
    for (at, len) in [(0, 100), (80, 5000), (170, 300)] {
        world.run(at * MILLI, |_| false);
        assert_eq!(world.flows[0][0].association.write(&vec![0; len]), len);
    }
    world.run(900 * MILLI, |_| false);
    let sent = world.flows[0][0].sent[5] * 80 / 1_000_000;
    assert!(sent >= 900, "{sent} Mbit/s 200 ms after the start");
}

#[test]
fn long_round_trips_with_heavy_loss_keep_the_rate() {
    let mut world = World::new(path(1000 * MILLI, 0.05), 5);
    let bytes = 4096 * MIB;
    let figures = send(&mut world, bytes, 640 << 20, 1000 * MILLI);
    let ratio = bytes as f64 / figures.arrival / link_goodput();
    show("4 GiB, 1 s, loss 0.05", ratio, &figures);
    assert!(ratio >= 0.75, "{ratio:.3}");
}

#[test]
fn a_fixed_rate_holds_in_each_second() {
    for (rtt, loss, lateness) in [(1, 0.0, 0), (30, 0.0, 200_000), (89, 0.1, 200_000)] {
        let mut world = World::new(path(rtt * MILLI, loss), 9);
        world.lateness = lateness;
        let rate = 62_500_000;
        let ends = settings(64 << 20).map(|mut config| {
            config.rate = Rate::Fixed(rate);
            config
        });
        let mut ends = flow(0, ends, &crc32c);
        ends[0].to_write = 500 * MIB;
        world.flows.push(ends);
        assert!(world.run(60 * SECOND, all_finished));
        let end = &world.flows[0][0];
        let seconds: Vec<u64> = end.sent.chunks(10).map(|slots| slots.iter().sum()).collect();
        let whole = if loss > 0.0 { 8 } else { 7 };
        for (second, bytes) in seconds.iter().enumerate().take(whole) {
            let ratio = *bytes as f64 / rate as f64;
            assert!(
                (0.99..=1.01).contains(&ratio),
                "{rtt} ms, loss {loss}: second {second} has {ratio:.4} of the rate"
            );
        }
        let stats = end.association.stats();
        if loss == 0.0 {
            let arrived =
                world.flows[0][1].association.stats().packets_received as f64 / stats.packets_sent as f64;
            assert!(arrived >= 0.999, "{arrived}");
        }
        assert_eq!(end.association.state(), State::Finished);
    }
}

/// Shares of two flows in bytes between two moments, in slots of 100 ms.
fn shares(world: &World, from: usize, to: usize) -> [u64; 2] {
    [0, 1].map(|flow| world.flows[flow][1].arrived[from..to].iter().sum())
}

/// Shares the link between two flows, of which the second starts at `start`. Returns the ratio of
/// their shares from 10 to 20 s later.
fn share_ratio(rtt: u64, start: u64, depth: u64, seed: u64) -> f64 {
    let mut shapes = path(rtt * MILLI, 0.0);
    shapes[0].queue *= depth;
    let mut world = World::new(shapes, 3);
    for flow_start in [0, start] {
        let ends = settings(64 << 20).map(|mut config| {
            config.rtt = Some(Duration::from_millis(rtt));
            config.token += seed * 1001 + flow_start + 77 * world.flows.len() as u64;
            config
        });
        let mut ends = flow(0, ends, &crc32c);
        ends[0].to_write = 8192 * MIB;
        ends[0].start = flow_start;
        world.flows.push(ends);
    }
    // The second flow has started.
    world.run(start + 2 * SECOND, |_| false);
    world.links[0].queue_max = 0;
    world.run(start + 20 * SECOND + 200 * MILLI, |_| false);
    let from = usize::try_from(start / SECOND * 10).expect("a slot");
    let [first, second] = shares(&world, from + 100, from + 200);
    let ratio = first.min(second) as f64 / first.max(second) as f64;
    let total = (first + second) as f64 / 10.0 / link_goodput();
    let queue = world.links[0].queue_max / MILLI;
    eprintln!(
        "two flows, {rtt} ms, start {start}, queue {depth}: ratio {ratio:.3}, total {total:.3}, queue {queue} ms"
    );
    assert!(total >= 0.9, "{rtt} ms: {total:.3}");
    assert!(queue < 2 * rtt, "{rtt} ms: a queue of {queue} ms");
    ratio
}

/// The seed decides which flow probes first, and one case says little.
#[test]
fn two_flows_share_the_link() {
    for (rtt, start, depth) in [(30, 0, 1), (30, 3 * SECOND, 1), (30, 3 * SECOND, 4), (89, 3 * SECOND, 1)] {
        let seeds: [u64; 3] = [0, 1, 2];
        let mut ratios = std::thread::scope(|scope| {
            let runs = seeds.map(|seed| scope.spawn(move || share_ratio(rtt, start, depth, seed)));
            runs.map(|run| run.join().expect("a ratio"))
        });
        ratios.sort_by(f64::total_cmp);
        let [least, median, _] = ratios;
        assert!(median >= 0.8 && least >= 0.7, "{rtt} ms, queue {depth}: {ratios:?}");
    }
}

/// Sends 64 MiB by each of ten flows that start almost together. Returns the time of the last
/// divided by the median, and the datagrams that the queue dropped as a share of those needed.
fn ten_jobs(rtt: u64, depth: u64, seed: u64) -> (f64, f64) {
    let bytes = 64 * MIB;
    let mut shapes = path(rtt * MILLI, 0.0);
    shapes[0].queue *= depth;
    let mut world = World::new(shapes, 3);
    for number in 0..10 {
        let ends = settings(64 << 20).map(|mut config| {
            config.rtt = Some(Duration::from_millis(rtt));
            config.token += seed * 1001 + 77 * number;
            config
        });
        let mut ends = flow(0, ends, &crc32c);
        (ends[0].to_write, ends[0].start) = (bytes, number * 5 * MILLI);
        world.flows.push(ends);
    }
    let mut times = [None; 10];
    let is_done = world.run(60 * SECOND, |world| {
        for (time, flow) in times.iter_mut().zip(&world.flows) {
            if flow[1].read == bytes {
                time.get_or_insert(world.now);
            }
        }
        all_finished(world)
    });
    assert!(is_done);
    let mut times = times.map(|time| time.expect("all bytes") as f64 / SECOND as f64);
    times.sort_by(f64::total_cmp);
    let [first, .., last] = times;
    let spread = last / times[5];
    let dropped = world.links[0].dropped as f64 / (10 * bytes / 1448) as f64;
    eprintln!(
        "ten jobs, {rtt} ms, queue {depth}: {first:.2} to {last:.2} s, last / median {spread:.3}, dropped {dropped:.2}"
    );
    (spread, dropped)
}

/// Regression: each of ten flows sent at the rate of the whole path for several round trips, and
/// the queue dropped more than half as many datagrams as were needed.
#[test]
fn equal_jobs_start_together() {
    for (rtt, depth, share) in [(30, 1, 0.25), (30, 3, 0.12), (89, 1, 0.4)] {
        let runs = std::thread::scope(|scope| {
            let runs = [0, 1, 2].map(|seed| scope.spawn(move || ten_jobs(rtt, depth, seed)));
            runs.map(|run| run.join().expect("ten times"))
        });
        for (spread, dropped) in runs {
            assert!(spread <= 1.4 && dropped <= share, "{rtt} ms, queue {depth}: {runs:?}");
        }
    }
}

/// Regression: where CUBIC never let the queue become empty, ours measured the round-trip time
/// again and again, each time at half of its window, and had 0.15 of the link.
#[test]
fn a_cubic_flow_keeps_its_share() {
    for (rtt, depth) in [(30, 1.0), (30, 2.0), (89, 1.0)] {
        let mut shapes = path(rtt * MILLI, 0.0);
        shapes[0].queue = (shapes[0].queue as f64 * depth) as u64;
        let mut world = World::new(shapes, 3);
        world.cubic = Some(crate::cubic::Cubic::new(0));
        let ends = settings(64 << 20).map(|mut config| {
            config.rtt = Some(Duration::from_millis(rtt));
            config
        });
        let mut ends = flow(0, ends, &crc32c);
        ends[0].to_write = 8192 * MIB;
        ends[0].start = 5 * SECOND;
        world.flows.push(ends);
        world.run(15 * SECOND, |_| false);
        let before = world.cubic.as_ref().expect("a flow").acked;
        world.run(35 * SECOND, |_| false);
        let cubic =
            (world.cubic.as_ref().expect("a flow").acked - before) as f64 * 1500.0 / 20.0 / GIGABIT as f64;
        let ours = world.flows[0][1].arrived[150..350].iter().sum::<u64>() as f64 / 20.0 / link_goodput();
        eprintln!("beside CUBIC, {rtt} ms, queue {depth}: CUBIC {cubic:.3}, ours {ours:.3}");
        assert!(cubic >= 0.3, "{rtt} ms: CUBIC has {cubic:.3} of the link");
        assert!(ours >= 0.3, "{rtt} ms: we have {ours:.3} of the link");
    }
}
