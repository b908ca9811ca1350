//! Transfers over disturbed paths: each seed gives a path, settings and sizes.

use crate::dice::Dice;
use crate::link::{MILLI, SECOND, Shape};
use crate::world::{World, all_finished, crc32c, flow, settings};
use haul_udp::{Chunk, Rate};
use std::time::Duration;

/// Virtual time after which a transfer has failed.
const LIMIT: u64 = 1200 * SECOND;

fn shape(dice: &mut Dice) -> Shape {
    let rate = dice.pick(&[125_000, 1_250_000, 12_500_000, 125_000_000]);
    let delay = dice.pick(&[10_000, MILLI, 15 * MILLI, 45 * MILLI, 300 * MILLI]);
    let mut shape = Shape::clean(rate, delay);
    shape.queue = dice.pick(&[20_000, 100_000, shape.queue, shape.queue * 4]);
    shape.jitter = dice.pick(&[0, 0, delay / 10, delay]);
    shape.loss = dice.pick(&[0.0, 0.0, 0.001, 0.01, 0.05, 0.2, 0.5]);
    shape.burst = dice.pick(&[0.0, 0.0, 0.001, 0.01]);
    shape.burst_len = 1 + dice.below(20);
    shape.reorder = dice.pick(&[0.0, 0.0, 0.01, 0.3]);
    shape.duplicate = dice.pick(&[0.0, 0.0, 0.01, 0.3]);
    shape.corrupt = dice.pick(&[0.0, 0.0, 0.01, 0.1]);
    shape.truncate = dice.pick(&[0.0, 0.0, 0.01]);
    shape.mtu = vec![(0, dice.pick(&[1200, 1372, 1472, 8972]))];
    if dice.chance(0.3) {
        shape.mtu.push((dice.below(3 * SECOND), dice.pick(&[1200, 1400, 4000])));
    }
    if dice.chance(0.2) {
        let from = dice.below(2 * SECOND);
        shape.dead = vec![(from, from + dice.pick(&[100 * MILLI, SECOND, 10 * SECOND]))];
    }
    shape
}

fn transfer(seed: u64) {
    let mut dice = Dice::new(seed);
    let shapes = [shape(&mut dice), shape(&mut dice)];
    let slowest = shapes.iter().map(|shape| shape.rate).min().expect("two links");
    let mut world = World::new(shapes, seed);
    world.lateness = dice.pick(&[0, 50_000, 2 * MILLI]);
    let buffer = dice.pick(&[16 << 10, 256 << 10, 4 << 20]);
    let ends = settings(buffer).map(|mut config| {
        config.token = dice.next();
        config.rate = match dice.below(4) {
            0 => Rate::Fixed(slowest / 2),
            1 => Rate::Found { max: Some(slowest / 2), start: None },
            2 => Rate::Found { max: None, start: Some(slowest * 2) },
            _ => Rate::Found { max: None, start: None },
        };
        config.chunk = match dice.below(4) {
            0 => Chunk::Fixed(200 + usize::try_from(dice.below(900)).expect("a size")),
            _ => Chunk::Found { max: dice.pick(&[1200, 1472, 8972, 65_507]) },
        };
        let rtt = Duration::from_millis(dice.below(200));
        config.rtt = dice.pick(&[None, Some(rtt)]);
        config.idle = Duration::from_secs(120);
        config
    });
    let mut ends = flow(0, ends, &crc32c);
    let sizes = if slowest < 1_000_000 { [300_000, 60_000] } else { [1_500_000, 600_000] };
    for (at, end) in ends.iter_mut().enumerate() {
        end.to_write = if dice.chance(0.1) { 0 } else { dice.below(sizes[at]) };
        end.pattern = Some(seed + at as u64);
        end.peer_pattern = Some(seed + 1 - at as u64);
        end.write_max = dice.pick(&[100, 5000, 200_000]);
        end.read_max = dice.pick(&[100, 5000, 200_000]);
        end.start = dice.pick(&[0, 0, SECOND]);
    }
    let wanted = [ends[1].to_write, ends[0].to_write];
    world.flows.push(ends);
    let is_done = world.run(LIMIT, all_finished);
    let ends = &world.flows[0];
    for (end, wanted) in ends.iter().zip(wanted) {
        let state = (end.association.state(), end.association.stats(), end.read, wanted);
        assert!(is_done && end.read == wanted, "seed {seed} after {} ms: {state:?}", world.now / MILLI);
        // Two buffers, free segments, and the records of packets in flight.
        let limit = 2 * (buffer + (20 << 16)) + (buffer / 200 + 20_000) * 2 * 100;
        assert!(end.memory_max < limit, "seed {seed}: {} bytes of {limit}", end.memory_max);
    }
}

#[test]
fn disturbed_paths_deliver_every_byte() {
    (0..1000).for_each(transfer);
}
