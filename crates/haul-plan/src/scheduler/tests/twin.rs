//! Comparison of the scheduler with a slow twin, which has a state for each object and examines all
//! of them in each step.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    /// Assigned to a worker.
    Runs,
    /// Landed, failed, dropped or taken without a task.
    Ended,
}

struct TwinFile {
    id: FileId,
    geometry: Geometry,
    from: Layout,
    to: Layout,
    order: ObjectOrder,
    objects: Vec<State>,
    /// No object from here on was assigned.
    untouched: usize,
    is_closed: bool,
}

impl TwinFile {
    fn object(&self, index: usize) -> Object {
        self.geometry.object(ObjectIndex(index as u64)).unwrap()
    }

    fn targets(&self, index: usize) -> (TargetId, TargetId) {
        let at = self.object(index).range.start;
        (self.from.target_at(at), self.to.target_at(at))
    }

    fn waits(&self) -> impl Iterator<Item = usize> {
        (0..self.objects.len()).filter(|index| self.objects[*index] == State::Waits)
    }

    /// Returns true if a serial file has an object in progress.
    fn is_busy(&self) -> bool {
        self.order == ObjectOrder::Serial && self.objects.contains(&State::Runs)
    }

    fn drop_waiting(&mut self) {
        self.is_closed = true;
        let waiting = self.objects.iter_mut().filter(|state| **state == State::Waits);
        waiting.for_each(|state| *state = State::Ended);
    }
}

struct TwinTarget {
    id: TargetId,
    depth: u32,
    in_progress: u32,
    credit: Option<u64>,
}

/// Scheduler and twin.
struct World {
    scheduler: Scheduler<()>,
    files: Vec<TwinFile>,
    targets: Vec<TwinTarget>,
    running: Vec<(ObjectTask, WorkerId)>,
    /// Assignments to other pairs while a pair could have started.
    unserved: BTreeMap<(TargetId, TargetId), u32>,
    /// Numbers of all assignments.
    given: BTreeSet<TaskId>,
    /// Assignment of the worker that was lost last.
    late: Option<TaskId>,
}

/// Maximum number of assignments between two turns of a pair. There are at most 25 pairs.
const UNSERVED_MAX: u32 = 25 * (PASSED_MAX + 1);

impl World {
    fn new(depths: &[(u32, Option<u64>)]) -> World {
        let mut scheduler = Scheduler::new(1000);
        let mut targets = Vec::new();
        for (depth, credit) in depths {
            let id = scheduler.target(Depth::Objects(*depth));
            let credit = credit.map(|objects| objects * OBJECT);
            if let Some(bytes) = credit {
                scheduler.credit(id, bytes);
            }
            targets.push(TwinTarget { id, depth: *depth, in_progress: 0, credit });
        }
        let (files, running) = (Vec::new(), Vec::new());
        World {
            scheduler,
            files,
            targets,
            running,
            unserved: BTreeMap::new(),
            given: BTreeSet::new(),
            late: None,
        }
    }

    fn open(&mut self, bytes: u64, have: (u64, u64), [from, to]: [Layout; 2], order: ObjectOrder) {
        let geometry = Geometry::new(ByteLen(bytes), ObjectSize::new(OBJECT).unwrap());
        let count = geometry.count();
        let have = Runs::of(have.0.min(count), have.1.min(count));
        let mut objects = vec![State::Waits; count as usize];
        have.numbers().for_each(|index| objects[index as usize] = State::Ended);
        let id = self.scheduler.open(geometry, have, &from, &to, order);
        self.files.push(TwinFile { id, geometry, from, to, order, objects, untouched: 0, is_closed: false });
    }

    /// Applies a change to both targets of a pair.
    fn change(&mut self, (from, to): (TargetId, TargetId), change: impl Fn(&mut TwinTarget)) {
        both(from, to).for_each(|target| change(&mut self.targets[target.0 as usize]));
    }

    fn assigned(&mut self, task: ObjectTask, worker: WorkerId) {
        assert!(self.given.insert(task.id), "each assignment has a number of its own");
        let at = self.files.iter().position(|file| file.id == task.file).unwrap();
        let (file, index) = (&self.files[at], task.object.index.0 as usize);
        assert_eq!(file.objects[index], State::Waits, "an assigned object waited");
        assert_eq!(file.object(index), task.object);
        assert!(!file.is_busy() && !file.is_closed);
        if file.order == ObjectOrder::Serial {
            assert_eq!(file.waits().next(), Some(index), "objects of a serial file are in order");
        }
        let pair = file.targets(index);
        assert_eq!((task.from, task.to), pair);
        let bytes = task.object.range.len();
        self.files[at].objects[index] = State::Runs;
        self.files[at].untouched = self.files[at].untouched.max(index + 1);
        self.change(pair, |target| {
            target.in_progress += 1;
            assert!(target.in_progress <= target.depth, "the target had a free place");
            let left = |credit: u64| credit.checked_sub(bytes).expect("the window was large enough");
            target.credit = target.credit.map(left);
        });
        self.running.push((task, worker));
        let counts = |late| self.scheduler.done(late, Done::Landed);
        assert!(!self.late.is_some_and(counts), "a late result counts nothing");
    }

    /// Lets a worker request work, and checks the answer.
    fn next(&mut self, worker: WorkerId) -> bool {
        let pairs = self.eligible();
        self.unserved.retain(|pair, _| pairs.contains(pair));
        pairs.iter().for_each(|pair| *self.unserved.entry(*pair).or_insert(0) += 1);
        match self.scheduler.next(worker) {
            Assign::Object(task) => {
                self.assigned(task, worker);
                self.unserved.remove(&(task.from, task.to));
                let most = self.unserved.values().max();
                assert!(most.is_none_or(|most| *most < UNSERVED_MAX), "a pair starves");
                return true;
            }
            Assign::Wait => {
                let reserved = |target: TargetId| self.scheduler.targets[target.0 as usize].reserved > 0;
                let free = pairs.iter().find(|(from, to)| !reserved(*from) && !reserved(*to));
                assert_eq!(free, None, "an object could start");
                assert!(self.has_work(), "the end is reported");
            }
            Assign::Finished => assert!(!self.has_work(), "no work is left at the end"),
            Assign::Walk(()) => panic!("there is no walk"),
        }
        false
    }

    /// Returns the pairs with capacity on both sides for each of their objects that may start.
    fn eligible(&self) -> BTreeSet<(TargetId, TargetId)> {
        let mut most: BTreeMap<_, u64> = BTreeMap::new();
        for file in self.files.iter().filter(|file| !file.is_busy()) {
            let next = if file.order == ObjectOrder::Serial { 1 } else { usize::MAX };
            for index in file.waits().take(next) {
                let bytes = most.entry(file.targets(index)).or_default();
                *bytes = file.object(index).range.len().max(*bytes);
            }
        }
        let has_capacity = |target: TargetId, bytes: u64| {
            let TwinTarget { depth, in_progress, credit, .. } = self.targets[target.0 as usize];
            in_progress < depth && credit.is_none_or(|credit| credit >= bytes)
        };
        let pairs = most.into_iter();
        pairs
            .filter(|((from, to), bytes)| both(*from, *to).all(|target| has_capacity(target, *bytes)))
            .map(|(pair, _)| pair)
            .collect()
    }

    fn has_work(&self) -> bool {
        self.files.iter().flat_map(|file| &file.objects).any(|state| *state != State::Ended)
    }

    /// Ends a task in the twin.
    fn ended(&mut self, task: ObjectTask, how: Done) {
        let bytes = task.object.range.len();
        self.change((task.from, task.to), |target| {
            target.in_progress -= 1;
            if how != Done::Landed {
                target.credit = target.credit.map(|credit| credit + bytes);
            }
        });
        let file = self.files.iter_mut().find(|file| file.id == task.file).unwrap();
        let is_repeated = how == Done::Again && !file.is_closed;
        file.objects[task.object.index.0 as usize] = if is_repeated { State::Waits } else { State::Ended };
        if how == Done::Failed {
            file.drop_waiting();
        }
    }

    fn done(&mut self, at: usize, how: Done) {
        let (task, _) = self.running.swap_remove(at);
        assert!(self.scheduler.done(task.id, how));
        assert!(!self.scheduler.done(task.id, how), "a task ends once");
        self.ended(task, how);
    }

    fn next_after(&mut self, at: usize, worker: WorkerId) {
        let (task, _) = self.running.swap_remove(at);
        let next = self.scheduler.next_after(worker, task.id);
        assert!(!self.scheduler.done(task.id, Done::Landed), "a task ends once");
        self.ended(task, Done::Landed);
        if let Some(next) = next {
            assert_eq!(next.file, task.file);
            self.assigned(next, worker);
        }
    }

    fn lost(&mut self, worker: WorkerId) {
        self.scheduler.lost(worker, Done::Again);
        let (lost, rest): (Vec<_>, Vec<_>) = self.running.drain(..).partition(|(_, of)| *of == worker);
        self.running = rest;
        for (task, _) in lost {
            self.late = Some(task.id);
            self.ended(task, Done::Again);
        }
    }

    fn close(&mut self, at: usize) {
        let file = &mut self.files[at];
        let waited = file.waits().count() as u64;
        assert_eq!(self.scheduler.is_waiting(file.id), waited > 0);
        assert_eq!(self.scheduler.close(file.id), waited);
        file.drop_waiting();
    }

    fn take_until(&mut self, at: usize, end: u64) {
        let file = &mut self.files[at];
        let is_single = file.from.targets().len() == 1 && file.to.targets().len() == 1;
        let taken = self.scheduler.take_until(file.id, end);
        for index in taken.numbers() {
            assert!(index < end && file.objects[index as usize] == State::Waits);
            file.objects[index as usize] = State::Ended;
        }
        let is_left = |index: usize| index >= file.untouched && (index as u64) < end;
        assert!(!is_single || !file.waits().any(is_left), "all of a hole is taken");
    }

    fn next_of(&mut self, at: usize, worker: WorkerId) {
        let file = &self.files[at];
        match self.scheduler.next_of(worker, file.id) {
            Some(task) => {
                assert_eq!(task.file, file.id);
                self.assigned(task, worker);
            }
            None => {
                let has_place = |target: TargetId| {
                    let TwinTarget { depth, in_progress, credit, .. } = self.targets[target.0 as usize];
                    let reserved = self.scheduler.targets[target.0 as usize].reserved;
                    in_progress + reserved < depth && credit.is_none_or(|credit| credit >= OBJECT)
                };
                let could = |index| {
                    let (from, to) = file.targets(index);
                    both(from, to).all(has_place)
                };
                assert!(file.is_busy() || file.order == ObjectOrder::Serial || !file.waits().any(could));
            }
        }
    }

    fn credit(&mut self, at: usize, bytes: u64) {
        let target = &mut self.targets[at];
        target.credit = Some(target.credit.unwrap_or(0) + bytes);
        self.scheduler.credit(target.id, bytes);
    }

    /// Lets each object land and extends the windows, until nothing is left.
    fn drain(&mut self) {
        let limit = 10 + 2 * self.files.iter().map(|file| file.objects.len()).sum::<usize>();
        for _ in 0..limit {
            while self.next(ME) {}
            for at in 0..self.targets.len() {
                if self.targets[at].credit.is_some() {
                    self.credit(at, OBJECT);
                }
            }
            (0..self.running.len()).for_each(|_| self.done(0, Done::Landed));
        }
        assert!(!self.has_work() && self.running.is_empty(), "each object ends");
        let World { scheduler, .. } = self;
        assert_eq!(scheduler.next(ME), Assign::Finished);
        assert!(scheduler.files.is_empty() && scheduler.cursors.is_empty() && scheduler.tasks.is_empty());
        assert!(scheduler.pairs.is_empty() && scheduler.pair_of.is_empty());
        let is_unused = |target: &Target| (target.in_progress, target.reserved, target.files) == (0, 0, 0);
        assert!(scheduler.targets.iter().all(is_unused));
    }
}

/// Half objects in a stripe, and targets.
type Stripes = (u64, Vec<usize>);

#[derive(Clone, Debug)]
enum Step {
    Open { bytes: u64, have: (u64, u64), from: Stripes, to: Stripes, is_serial: bool },
    Next(u64),
    NextOf(usize, u64),
    Done(usize, u8),
    NextAfter(usize, u64),
    Lost(u64),
    Close(usize),
    TakeUntil(usize, u64),
    Credit(usize, u64),
}

fn stripes() -> impl Strategy<Value = Stripes> {
    (1u64..7, proptest::collection::vec(0usize..5, 1..5))
}

fn step() -> impl Strategy<Value = Step> {
    let have = (0u64..20, 0u64..9).prop_map(|(start, len)| (start, start + len));
    let file = (0..20 * OBJECT, have, stripes(), stripes(), prop::bool::weighted(0.2));
    let open =
        file.prop_map(|(bytes, have, from, to, is_serial)| Step::Open { bytes, have, from, to, is_serial });
    prop_oneof![
        4 => open,
        30 => (0u64..4).prop_map(Step::Next),
        6 => (any::<usize>(), 0u64..4).prop_map(|(file, worker)| Step::NextOf(file, worker)),
        20 => (any::<usize>(), 0u8..12).prop_map(|(task, how)| Step::Done(task, how)),
        6 => (any::<usize>(), 0u64..4).prop_map(|(task, worker)| Step::NextAfter(task, worker)),
        1 => (0u64..4).prop_map(Step::Lost),
        1 => any::<usize>().prop_map(Step::Close),
        1 => (any::<usize>(), 0u64..22).prop_map(|(file, end)| Step::TakeUntil(file, end)),
        4 => (0usize..5, 0..2 * OBJECT).prop_map(|(target, bytes)| Step::Credit(target, bytes)),
    ]
}

impl World {
    fn step(&mut self, step: Step) {
        let files = self.files.len();
        match step {
            Step::Open { bytes, have, from, to, is_serial } => {
                let layouts = [from, to].map(|(halves, targets)| {
                    let targets: Vec<_> = targets.iter().map(|at| self.targets[*at].id).collect();
                    Layout::striped(ByteLen(halves * OBJECT / 2), &targets)
                });
                self.open(
                    bytes,
                    have,
                    layouts,
                    if is_serial { ObjectOrder::Serial } else { ObjectOrder::Any },
                );
            }
            Step::Next(worker) => _ = self.next(WorkerId(worker)),
            Step::NextOf(file, worker) if files > 0 => self.next_of(file % files, WorkerId(worker)),
            Step::Done(task, how) if !self.running.is_empty() => {
                let how = match how {
                    0 => Done::Failed,
                    1 | 2 => Done::Again,
                    _ => Done::Landed,
                };
                self.done(task % self.running.len(), how);
            }
            Step::NextAfter(task, worker) if !self.running.is_empty() => {
                self.next_after(task % self.running.len(), WorkerId(worker));
            }
            Step::Lost(worker) => self.lost(WorkerId(worker)),
            Step::Close(file) if files > 0 => self.close(file % files),
            Step::TakeUntil(file, end) if files > 0 => self.take_until(file % files, end),
            Step::Credit(target, bytes) if self.targets[target].credit.is_some() => {
                self.credit(target, bytes);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn scheduler_matches_its_twin(
        depths in proptest::collection::vec((1u32..4, prop::option::weighted(0.2, 0u64..4)), 5),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(&depths);
        steps.into_iter().for_each(|step| world.step(step));
        world.drain();
    }
}
