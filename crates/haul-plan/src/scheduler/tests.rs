use super::*;
use haul_model::limits::OBJECT_BYTES_MIN;
use haul_model::{ByteLen, ObjectSize};
use std::collections::BTreeMap;

mod simulation;
mod twin;

const OBJECT: u64 = OBJECT_BYTES_MIN;
const ME: WorkerId = WorkerId(0);

fn objects(count: u64) -> Geometry {
    Geometry::new(ByteLen(count * OBJECT), ObjectSize::new(OBJECT).unwrap())
}

/// Opens a file with one target on each side.
fn open<D>(scheduler: &mut Scheduler<D>, count: u64, from: TargetId, to: TargetId) -> FileId {
    scheduler.open(objects(count), Runs::default(), &Layout::one(from), &Layout::one(to), ObjectOrder::Any)
}

fn object<D: std::fmt::Debug>(assigned: Assign<D>) -> ObjectTask {
    match assigned {
        Assign::Object(task) => task,
        other => panic!("not an object: {other:?}"),
    }
}

#[test]
fn walks_come_before_objects_and_newer_walks_first() {
    let mut scheduler = Scheduler::new(2);
    let disk = scheduler.target(Depth::Workers);
    open(&mut scheduler, 1, disk, disk);
    scheduler.offer_walk("top");
    scheduler.offer_walk("below");
    assert_eq!(scheduler.next(ME), Assign::Walk("below"));
    assert_eq!(scheduler.next(ME), Assign::Walk("top"));
    let task = object(scheduler.next(ME));
    assert_eq!(scheduler.next(ME), Assign::Wait);
    assert!(scheduler.done(task.id, Done::Landed));
    (0..2).for_each(|_| scheduler.turn_done());
    assert_eq!(scheduler.next(ME), Assign::Finished);
}

#[test]
fn directories_come_before_waiting_files_until_the_walk_ahead_ends() {
    let mut scheduler = Scheduler::new(1);
    scheduler.offer_later("first files");
    scheduler.offer_walk("a");
    scheduler.offer_later("more files");
    scheduler.offer_walk("b");
    assert_eq!(scheduler.next(ME), Assign::Walk("b"));
    scheduler.end_ahead();
    for expected in ["first files", "more files", "a"] {
        assert_eq!(scheduler.next(ME), Assign::Walk(expected));
    }
    assert_eq!(scheduler.next(ME), Assign::Wait);
    (0..4).for_each(|_| scheduler.turn_done());
    assert!(scheduler.is_over());
    scheduler.offer_later("files");
    assert_eq!(scheduler.clear_walks(), ["files"]);
}

#[test]
fn walks_wait_while_as_many_files_wait_as_there_are_workers() {
    let mut scheduler = Scheduler::new(2);
    let disk = scheduler.target(Depth::Workers);
    (0..2).for_each(|_| _ = open(&mut scheduler, 1, disk, disk));
    scheduler.offer_walk("walk");
    object(scheduler.next(ME));
    assert_eq!(scheduler.next(ME), Assign::Walk("walk"));
}

#[test]
fn workers_take_turns_at_the_open_files() {
    let mut scheduler: Scheduler<()> = Scheduler::new(9);
    let disk = scheduler.target(Depth::Workers);
    let files = [0; 3].map(|_| open(&mut scheduler, 9, disk, disk));
    let mut counts = BTreeMap::new();
    (0..9).for_each(|_| *counts.entry(object(scheduler.next(ME)).file).or_insert(0) += 1);
    assert_eq!(counts, files.map(|file| (file, 3)).into());
}

#[test]
fn a_target_that_stalls_stops_half_of_the_workers() {
    let mut scheduler: Scheduler<()> = Scheduler::new(4);
    let [from, slow, fast] = [0; 3].map(|_| scheduler.target(Depth::Workers));
    let stalled = [0; 2].map(|_| open(&mut scheduler, 9, from, slow));
    let other = open(&mut scheduler, 3, from, fast);
    for file in stalled {
        assert!(scheduler.next_of(ME, file).is_some());
    }
    assert_eq!(scheduler.next_of(ME, stalled[0]), None);
    for _ in 0..3 {
        let task = object(scheduler.next(ME));
        assert_eq!(task.file, other);
        scheduler.done(task.id, Done::Landed);
    }
    // Now the slow target alone has work.
    assert!(scheduler.next_of(ME, stalled[0]).is_some());
    assert_eq!(object(scheduler.next(ME)).to, slow);
    assert_eq!(scheduler.next(ME), Assign::Wait);
}

#[test]
fn the_pair_with_more_free_capacity_is_preferred() {
    let mut scheduler: Scheduler<()> = Scheduler::new(1);
    let [from, small, large] = [100, 2, 10].map(|depth| scheduler.target(Depth::Objects(depth)));
    open(&mut scheduler, 50, from, small);
    open(&mut scheduler, 50, from, large);
    let mut counts = BTreeMap::new();
    (0..6).for_each(|_| *counts.entry(object(scheduler.next(ME)).to).or_insert(0) += 1);
    assert_eq!(counts, [(small, 1), (large, 5)].into());
}

#[test]
fn objects_wait_for_credit_and_a_lost_object_returns_it() {
    let mut scheduler: Scheduler<()> = Scheduler::new(1);
    let [from, to] = [0; 2].map(|_| scheduler.target(Depth::Objects(9)));
    open(&mut scheduler, 3, from, to);
    scheduler.credit(to, OBJECT - 1);
    assert_eq!(scheduler.next(ME), Assign::Wait);
    scheduler.credit(to, 1);
    let lost = object(scheduler.next(ME));
    assert_eq!(scheduler.next(ME), Assign::Wait);
    scheduler.lost(ME, Done::Again);
    assert!(!scheduler.done(lost.id, Done::Landed));
    let again = object(scheduler.next(ME));
    assert_eq!(again.object, lost.object);
    scheduler.done(again.id, Done::Landed);
    assert_eq!(scheduler.next(ME), Assign::Wait);
}

#[test]
fn a_trillion_objects_are_taken_at_once() {
    let mut scheduler: Scheduler<()> = Scheduler::new(2);
    let disk = scheduler.target(Depth::Workers);
    let last = (1 << 40) - 1;
    let file = scheduler.open(
        objects(last + 1),
        Runs::of(5, 9),
        &Layout::one(disk),
        &Layout::one(disk),
        ObjectOrder::Any,
    );
    let first = object(scheduler.next(ME));
    assert_eq!(scheduler.take_until(file, last).iter().collect::<Vec<_>>(), [(1, 5), (9, last)]);
    let task = object(scheduler.next(ME));
    assert_eq!(task.object.index.0, last);
    for id in [first.id, task.id] {
        scheduler.done(id, Done::Landed);
    }
    assert_eq!(scheduler.next(ME), Assign::Finished);
}

#[test]
fn objects_that_exist_are_never_assigned() {
    let mut scheduler: Scheduler<()> = Scheduler::new(9);
    let targets = [0; 2].map(|_| scheduler.target(Depth::Objects(9)));
    let striped = Layout::striped(ByteLen(OBJECT), &targets);
    let have: Runs = [(0, 1), (2, 3)].into_iter().collect();
    scheduler.open(objects(6), have, &striped, &striped, ObjectOrder::Any);
    let mut assigned = [0; 4].map(|_| object(scheduler.next(ME)).object.index.0);
    assigned.sort_unstable();
    assert_eq!(assigned, [1, 3, 4, 5]);
    assert_eq!(scheduler.next(ME), Assign::Wait);
}

#[test]
fn a_failed_object_drops_the_waiting_ones() {
    let mut scheduler: Scheduler<()> = Scheduler::new(1);
    let disk = scheduler.target(Depth::Objects(2));
    let file = open(&mut scheduler, 1 << 40, disk, disk);
    let tasks = [object(scheduler.next(ME)), object(scheduler.next(ME))];
    scheduler.done(tasks[0].id, Done::Failed);
    assert_eq!((scheduler.next(ME), scheduler.is_open(file)), (Assign::Wait, true));
    scheduler.done(tasks[1].id, Done::Again);
    assert_eq!(scheduler.next(ME), Assign::Finished);
}

#[test]
fn a_short_object_starts_when_no_longer_one_waits_before_it() {
    let mut scheduler: Scheduler<()> = Scheduler::new(9);
    let disk = scheduler.target(Depth::Objects(9));
    scheduler.credit(disk, OBJECT / 2);
    let long = open(&mut scheduler, 1, disk, disk);
    assert_eq!(scheduler.next(ME), Assign::Wait);
    let half = Geometry::new(ByteLen(OBJECT / 2), ObjectSize::new(OBJECT).unwrap());
    scheduler.open(half, Runs::default(), &Layout::one(disk), &Layout::one(disk), ObjectOrder::Any);
    assert_eq!(scheduler.next(ME), Assign::Wait);
    scheduler.close(long);
    assert_eq!(object(scheduler.next(ME)).object.range.len(), OBJECT / 2);
}

#[test]
fn a_target_with_less_free_capacity_is_passed_over_a_limited_number_of_times() {
    let mut scheduler: Scheduler<()> = Scheduler::new(9);
    let [from, small, large] = [100, 2, 100].map(|depth| scheduler.target(Depth::Objects(depth)));
    open(&mut scheduler, 9, from, small);
    object(scheduler.next(ME));
    open(&mut scheduler, 1000, from, large);
    let passed = (0..1000).take_while(|_| {
        let task = object(scheduler.next(ME));
        scheduler.done(task.id, Done::Landed);
        task.to == large
    });
    assert_eq!(passed.count(), PASSED_MAX as usize);
}

/// A pair whose targets are never free together at its turn reserves places.
#[test]
fn a_pair_between_two_busy_targets_gets_its_turn() {
    let mut scheduler: Scheduler<()> = Scheduler::new(9);
    let [a, b, c, d] = [0; 4].map(|_| scheduler.target(Depth::Objects(1)));
    open(&mut scheduler, 10_000, a, c);
    open(&mut scheduler, 10_000, d, b);
    let mut running = std::collections::VecDeque::from([0; 2].map(|_| object(scheduler.next(ME))));
    let between = open(&mut scheduler, 1, a, b);
    for _ in 0..10 * REFUSED_MAX {
        scheduler.done(running.pop_front().unwrap().id, Done::Landed);
        while let Assign::Object(task) = scheduler.next(ME) {
            running.push_back(task);
        }
        if running.iter().any(|task| task.file == between) {
            return;
        }
    }
    panic!("the pair starves");
}
