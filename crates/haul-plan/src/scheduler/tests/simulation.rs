//! Many targets with random rates, in virtual time.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Pseudo-random numbers of a linear congruential generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Report {
    /// Number of objects that landed.
    objects: u64,
    /// Time of the scheduler and of the simulation, in nanoseconds for each object.
    ns: f64,
    /// Part of the time in which all places of the target with the most work are taken.
    busy: f64,
    /// Largest number of cursors, pairs and tasks.
    records: usize,
}

/// Copies files with 4 to 64 stripes from half of the targets to the other half. The times of an
/// object at two targets differ by up to 16 times.
fn simulate(targets: u32, wanted: u64, open_files: usize) -> Report {
    const DEPTH: u32 = 4;
    const FILE: u64 = 10_000;
    let mut dice = Dice(1);
    let mut scheduler: Scheduler<()> = Scheduler::new(usize::MAX);
    let ids: Vec<TargetId> = (0..targets).map(|_| scheduler.target(Depth::Objects(DEPTH))).collect();
    let times: Vec<u64> = ids.iter().map(|_| 1000 + dice.below(15_000)).collect();
    let mut work = vec![0; ids.len()];
    let half = ids.len() / 2;
    let (mut opened, mut ended, mut now, mut open_now) = (0, 0, 0, 0);
    let (mut running, mut left) = (BinaryHeap::new(), Vec::new());
    let begin = Instant::now();
    loop {
        while open_now < open_files && opened < wanted {
            let count = FILE.min(wanted - opened);
            let [from, to] = [0, half].map(|first| {
                let stripes = (4 << dice.below(5)).min(half);
                let start = dice.below(half as u64) as usize;
                let of_file: Vec<_> = (start..start + stripes).map(|at| ids[first + at % half]).collect();
                Layout::striped(ByteLen(OBJECT), &of_file)
            });
            let file = scheduler.open(objects(count), Runs::default(), &from, &to, ObjectOrder::Any);
            left.resize(left.len().max(file.slot() + 1), 0);
            left[file.slot()] = count;
            (opened, open_now) = (opened + count, open_now + 1);
        }
        while let Assign::Object(ObjectTask { id, file, from, to, .. }) = scheduler.next(ME) {
            let pair = [from.0 as usize, to.0 as usize];
            let time = times[pair[0]].max(times[pair[1]]);
            pair.into_iter().for_each(|target| work[target] += time);
            running.push(Reverse((now + time, id, file)));
        }
        let Some(Reverse((at, id, file))) = running.pop() else { break };
        now = at;
        scheduler.done(id, Done::Landed);
        ended += 1;
        left[file.slot()] -= 1;
        open_now -= usize::from(left[file.slot()] == 0);
    }
    assert!(scheduler.is_over(), "the scheduler waits for no task");
    let ns = begin.elapsed().as_nanos() as f64 / ended as f64;
    let most = work.iter().max().copied().unwrap_or(0) as f64 / f64::from(DEPTH);
    let records = scheduler.cursors.slots() + scheduler.pairs.slots() + scheduler.tasks.slots();
    Report { objects: ended, ns, busy: most / now as f64, records }
}

/// Prints the time and the memory of an object, which are meaningful in the release profile only.
/// `HAUL_PLAN_OBJECTS=N` copies N objects between 1,000 targets, for measurements.
#[test]
fn every_object_of_many_targets_lands() {
    let asked = std::env::var("HAUL_PLAN_OBJECTS").ok().map(|objects| objects.parse().unwrap());
    let (targets, wanted, records_max) =
        asked.map_or((40, 60_000, 20_000), |objects| (1000, objects, 200_000));
    for open_files in [5, 10, 100] {
        let Report { objects, ns, busy, records } = simulate(targets, wanted, open_files);
        assert_eq!(objects, wanted);
        assert!(records < records_max, "{records}");
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        let busy = 100.0 * busy;
        println!(
            "{objects} objects of {open_files} files: {ns:.0} ns, busiest target {busy:.0} %, {records} records, {peak}"
        );
    }
}
