//! Selection of the next work for a free worker.
//!
//! Two kinds of work wait: walks (directories or lists to read, and batches of their entries), and
//! the objects of open files. Walks come first, last-in first-out, so that a walk is depth-first.
//! If a job wants to know its total early, the walk runs ahead: files that it found wait until no
//! directory is left to read, or until the caller ends this.
//!
//! Each object is read from one storage target and written to one ([`Layout`]). A target takes a
//! limited number of objects at a time ([`Depth`]), and can have a window of bytes. A target that
//! stalls therefore holds only its own objects back.
//!
//! ```text
//!  file ─> class of objects ─> pair of targets ─┬> ready    may have capacity on both sides
//!          (one cursor)        (list of classes) ├> full     waits for a free place
//!                                                └> starved  waits for a window
//! ```
//!
//! A pair waits at one target only, and a place that becomes free makes one pair ready. A ready
//! pair that still finds one of its targets full makes the next pair of the other target ready. So
//! no free place is forgotten, and no call examines all targets or all files. Memory depends on the
//! open files and their targets, and not on the number of objects.
//!
//! A pair is served in turn, with two bounded exceptions. Among the first [`CHOICES`] ready pairs,
//! the one whose smaller free share is largest is preferred, but the first of them is passed over
//! at most [`PASSED_MAX`] times. A pair that finds one of its targets full [`REFUSED_MAX`] times
//! reserves the next free place of each; one pair at a time does so.

use crate::arena::{Arena, List, NONE};
use crate::layout::{Classes, Layout, TargetId, targets_of};
use haul_model::{Geometry, Object, ObjectIndex, Runs};
use std::collections::{HashMap, VecDeque};

#[cfg(test)]
mod tests;

/// Number of ready pairs that are compared for an object.
const CHOICES: usize = 4;

/// Number of times that the first ready pair is passed over for a pair with more free capacity.
const PASSED_MAX: u32 = 8;

/// Number of times that a pair finds a target full before it reserves places.
const REFUSED_MAX: u32 = 64;

/// Worker, as the caller numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

/// Open file. The number of a file that has ended is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    slot: u32,
    generation: u32,
}

impl FileId {
    /// Returns the place of the file in a table. Files that are open at the same time have
    /// different places, and the largest place depends on the number of open files.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// Assignment of an object to a worker. Each assignment has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    slot: u32,
    generation: u32,
}

/// Object that a worker copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectTask {
    /// Number of the assignment.
    pub id: TaskId,
    /// File of the object.
    pub file: FileId,
    /// The object.
    pub object: Object,
    /// Target that contains the object.
    pub from: TargetId,
    /// Target that receives the object.
    pub to: TargetId,
}

/// Answer to a worker that requests work.
#[derive(Debug, PartialEq, Eq)]
pub enum Assign<D> {
    /// Take entries from this walk. Return it by [`Scheduler::offer_walk`] if it has more, and
    /// report the end of the turn by [`Scheduler::turn_done`].
    Walk(D),
    /// Copy this object, and report the result by [`Scheduler::done`].
    Object(ObjectTask),
    /// No work now, but the end of other work may release some.
    Wait,
    /// No work, and no other work that could release some.
    Finished,
}

/// Result of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The object arrived.
    Landed,
    /// The object did not arrive, and is assigned again.
    Again,
    /// The object failed. The objects of its file that wait are dropped.
    Failed,
}

/// Order in which the objects of a file are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOrder {
    /// Any order, by several workers at a time.
    Any,
    /// Ascending, one object at a time.
    Serial,
}

/// Maximum number of objects in progress at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// A fixed number, at least 1.
    Objects(u32),
    /// The number of workers, while all files with waiting objects use the target. Half of it,
    /// rounded up, while there is also other work: a target that stalls then stops half of the
    /// workers. Two targets with work together keep all workers busy.
    Workers,
}

/// Waiting work of one job. `D` is a walk: a directory or a list being read.
#[derive(Debug)]
pub struct Scheduler<D> {
    walks: Vec<D>,
    /// Files found by a walk that runs ahead, first-in first-out.
    later: VecDeque<D>,
    /// True while directories come before the files in `later`.
    is_ahead: bool,
    /// Number of turns in progress: walks, and other work that the caller counts.
    walking: usize,
    workers: u32,
    /// Number of files with waiting objects.
    waiting_files: u32,
    targets: Vec<Target>,
    /// Targets whose depth is [`Depth::Workers`] and that a file with waiting objects uses.
    by_workers: Vec<TargetId>,
    files: Arena<ScheduledFile>,
    cursors: Arena<Cursor>,
    pairs: Arena<TargetPair>,
    pair_of: HashMap<(TargetId, TargetId), u32>,
    ready: List,
    reserved: Option<Reserved>,
    tasks: Arena<InProgress>,
}

#[derive(Debug)]
struct Target {
    depth: Depth,
    in_progress: u32,
    /// 1 if a place is reserved.
    reserved: u32,
    /// Bytes that the target accepts; `None` for any number.
    credit: Option<u64>,
    /// Pairs that wait for a free place.
    full: List,
    /// Pairs that wait for credit.
    starved: List,
    /// Number of files with waiting objects that use the target.
    files: u32,
}

#[derive(Debug)]
struct ScheduledFile {
    geometry: Geometry,
    /// Objects that are never assigned.
    have: Runs,
    from: Layout,
    to: Layout,
    order: ObjectOrder,
    /// True if all objects have the same targets, and any order.
    is_uniform: bool,
    classes: Classes,
    cursors: Vec<u32>,
    /// All targets of the file, each once.
    targets: Vec<TargetId>,
    /// Number of objects that are neither assigned nor finished.
    waiting: u64,
    in_progress: u32,
    /// True if objects that did not arrive are dropped.
    is_closed: bool,
}

/// Waiting objects of one class of a file.
#[derive(Debug)]
struct Cursor {
    file: u32,
    class: u64,
    /// No object of the class from here on was assigned.
    next: u64,
    /// Objects that were assigned and wait again.
    again: Vec<u64>,
    /// Pair whose list contains the cursor, or [`NONE`].
    pair: u32,
}

/// Cursors whose next object has the same two targets; at least one.
#[derive(Debug)]
struct TargetPair {
    from: TargetId,
    to: TargetId,
    cursors: List,
    state: PairState,
    /// Number of times that the pair was passed over.
    passed: u32,
    /// Number of times that a target was full.
    refused: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairState {
    Ready,
    Full(TargetId),
    Starved(TargetId),
}

/// The pair that gets the next free place of each of its targets.
#[derive(Debug)]
struct Reserved {
    pair: u32,
    /// Targets with a place that is reserved for the pair.
    held: [Option<TargetId>; 2],
}

#[derive(Debug)]
struct InProgress {
    task: ObjectTask,
    cursor: u32,
    worker: WorkerId,
}

impl<D> Scheduler<D> {
    /// Creates an empty scheduler for at most `workers` workers, but at least one. A worker gets a
    /// walk only while fewer files than that have waiting objects: this bounds the open files.
    pub fn new(workers: usize) -> Scheduler<D> {
        Scheduler {
            walks: Vec::new(),
            later: VecDeque::new(),
            is_ahead: true,
            walking: 0,
            workers: u32::try_from(workers).unwrap_or(u32::MAX).max(1),
            waiting_files: 0,
            targets: Vec::new(),
            by_workers: Vec::new(),
            files: Arena::new(),
            cursors: Arena::new(),
            pairs: Arena::new(),
            pair_of: HashMap::new(),
            ready: List::EMPTY,
            reserved: None,
            tasks: Arena::new(),
        }
    }

    /// Adds a target without a window.
    ///
    /// # Panics
    /// Panics if the depth is 0.
    pub fn target(&mut self, depth: Depth) -> TargetId {
        assert!(depth != Depth::Objects(0), "a target takes at least one object");
        let id = TargetId(self.targets.len() as u32);
        let (full, starved) = (List::EMPTY, List::EMPTY);
        self.targets.push(Target {
            depth,
            in_progress: 0,
            reserved: 0,
            credit: None,
            full,
            starved,
            files: 0,
        });
        id
    }

    /// Increases the window of a target, which has none before the first call. An object waits
    /// until its bytes fit. A window must grow to the size of an object at some time.
    pub fn credit(&mut self, target: TargetId, bytes: u64) {
        let credit = &mut self.targets[target.0 as usize].credit;
        *credit = Some(credit.unwrap_or(0).saturating_add(bytes));
        while let Some(pair) = self.targets[target.0 as usize].starved.first() {
            self.make_ready(pair);
        }
    }

    /// Adds a walk, or returns one that has more entries.
    pub fn offer_walk(&mut self, walk: D) {
        self.walks.push(walk);
    }

    /// Adds files that wait while a walk runs ahead.
    pub fn offer_later(&mut self, files: D) {
        self.later.push_back(files);
    }

    /// Ends the walk ahead: waiting files come before further directories from now on.
    pub fn end_ahead(&mut self) {
        self.is_ahead = false;
    }

    /// Reports the end of a turn.
    pub fn turn_done(&mut self) {
        assert!(self.walking > 0, "only a turn that began can end");
        self.walking -= 1;
    }

    /// Opens a file, except for the objects in `have`. The file ends when all other objects have
    /// ended.
    pub fn open(
        &mut self,
        geometry: Geometry,
        have: Runs,
        from: &Layout,
        to: &Layout,
        order: ObjectOrder,
    ) -> FileId {
        let count = geometry.count();
        assert!(have.end() <= count, "a file has only its own objects");
        let classes = match order {
            ObjectOrder::Any => Classes::of(geometry, from, to),
            ObjectOrder::Serial => Classes::ONE,
        };
        let is_uniform =
            order == ObjectOrder::Any && [from, to].iter().all(|layout| layout.targets().len() == 1);
        let mut targets = [from.targets(), to.targets()].concat();
        targets.sort_unstable();
        targets.dedup();
        let waiting = count - have.count();
        let (from, to) = (from.clone(), to.clone());
        let slot = self.files.insert(ScheduledFile {
            geometry,
            have,
            from,
            to,
            order,
            is_uniform,
            classes,
            cursors: Vec::new(),
            targets,
            waiting,
            in_progress: 0,
            is_closed: false,
        });
        let id = FileId { slot, generation: self.files.generation(slot) };
        if waiting == 0 {
            self.files.remove(slot);
            return id;
        }
        self.count_waiting(slot, true);
        for class in 0..classes.used(count) {
            let next = classes.first_from(class, 0);
            let cursor =
                self.cursors.insert(Cursor { file: slot, class, next, again: Vec::new(), pair: NONE });
            self.files[slot].cursors.push(cursor);
            self.place(cursor);
        }
        id
    }

    /// Returns work for an idle worker.
    pub fn next(&mut self, worker: WorkerId) -> Assign<D> {
        if self.waiting_files < self.workers {
            let walk = match self.is_ahead {
                true => self.walks.pop().or_else(|| self.later.pop_front()),
                false => self.later.pop_front().or_else(|| self.walks.pop()),
            };
            if let Some(walk) = walk {
                self.walking += 1;
                return Assign::Walk(walk);
            }
        }
        match self.choose() {
            Some(pair) => {
                let cursor = self.first_cursor(pair);
                (self.pairs[pair].passed, self.pairs[pair].refused) = (0, 0);
                self.turn_of(pair);
                Assign::Object(self.assign(worker, cursor))
            }
            None if self.is_over() => Assign::Finished,
            None => Assign::Wait,
        }
    }

    /// Returns an object of one file, if one has capacity at both its targets. Takes time in
    /// proportion to the number of targets of the file.
    pub fn next_of(&mut self, worker: WorkerId, file: FileId) -> Option<ObjectTask> {
        if !self.is_open(file) {
            return None;
        }
        let can_start = |cursor: &u32| {
            let pair = self.cursors[*cursor].pair;
            pair != NONE && self.refusal(pair, *cursor).is_none()
        };
        let cursor = self.files[file.slot].cursors.iter().copied().find(can_start)?;
        Some(self.assign(worker, cursor))
    }

    /// Takes waiting objects below number `end` at once, without targets: they are not copied. In a
    /// file with one target on each side these are all waiting objects but those that wait again.
    /// Otherwise objects below the highest assigned one stay, because they are not consecutive.
    pub fn take_until(&mut self, file: FileId, end: u64) -> Runs {
        if !self.is_waiting(file) {
            return Runs::default();
        }
        let (slot, ScheduledFile { have, cursors, geometry, .. }) = (file.slot, &self.files[file.slot]);
        let end = end.min(geometry.count());
        let starts = cursors.iter().map(|cursor| &self.cursors[*cursor]);
        let begun = |cursor: &Cursor| cursor.next > self.files[slot].classes.first_from(cursor.class, 0);
        let next = match cursors.len() {
            1 => starts.map(|cursor| cursor.next).max(),
            // An untouched cursor starts at its first object, which another cursor may be behind.
            _ => starts.filter(|cursor| begun(cursor)).map(|cursor| cursor.next).max(),
        };
        let start = next.unwrap_or(0).min(end);
        let mut taken = Runs::of(start, end);
        taken.subtract(have);
        let cursors = cursors.clone();
        let file = &mut self.files[slot];
        if cursors.len() > 1 {
            file.have.unite(&taken);
            let lowest = cursors.iter().map(|cursor| self.cursors[*cursor].next).min().unwrap_or(0);
            file.have.subtract(&Runs::of(0, lowest));
        }
        file.waiting -= taken.count();
        let is_drained = file.waiting == 0 && !taken.is_empty();
        for cursor in cursors {
            let Cursor { class, next, .. } = self.cursors[cursor];
            if next >= start {
                self.cursors[cursor].next = self.files[slot].classes.first_from(class, next.max(end));
            }
            self.place(cursor);
        }
        if is_drained {
            self.count_waiting(slot, false);
        }
        self.end_file_if_finished(slot);
        taken
    }

    /// Reports the result of a task. Returns false if the task is not in progress: its worker was
    /// reported lost, and the object is assigned again.
    pub fn done(&mut self, task: TaskId, how: Done) -> bool {
        if !self.tasks.holds(task.slot, task.generation) {
            return false;
        }
        self.end_task(task.slot, how);
        true
    }

    /// Reports an object that arrived, and returns another one of its file as
    /// [`Scheduler::next_of`] does. If nothing else waits for the places of the object, the next
    /// object takes them over, which costs a fraction of the two calls.
    pub fn next_after(&mut self, worker: WorkerId, finished: TaskId) -> Option<ObjectTask> {
        if !self.tasks.holds(finished.slot, finished.generation) {
            return None;
        }
        let InProgress { task: ObjectTask { file, from, to, .. }, cursor, .. } = self.tasks[finished.slot];
        let ScheduledFile { is_uniform, waiting, .. } = self.files[file.slot];
        // The last object of a file changes more than its places.
        let is_simple = is_uniform && waiting > 1 && self.reserved.is_none();
        let Cursor { ref again, pair, .. } = self.cursors[cursor];
        if !is_simple || !again.is_empty() || !self.can_take_over(from, pair) || !self.can_take_over(to, pair)
        {
            self.end_task(finished.slot, Done::Landed);
            return self.next_of(worker, file);
        }
        let index = self.head(cursor).unwrap_or_else(|| unreachable!("an object of the file waits"));
        self.cursors[cursor].next = index + 1;
        let entry = &mut self.files[file.slot];
        entry.waiting -= 1;
        let object = entry.geometry.object(ObjectIndex(index));
        let generation = self.tasks.renew(finished.slot);
        let in_progress = &mut self.tasks[finished.slot];
        in_progress.worker = worker;
        in_progress.task.id.generation = generation;
        in_progress.task.object = object.unwrap_or_else(|| unreachable!("the object exists"));
        Some(in_progress.task)
    }

    /// Ends all tasks of a worker that is gone, with this result. A walk that the worker had is not
    /// known here: the caller offers it again.
    pub fn lost(&mut self, worker: WorkerId, how: Done) {
        let lost: Vec<u32> =
            self.tasks.iter().filter(|(_, task)| task.worker == worker).map(|(slot, _)| slot).collect();
        for slot in lost {
            self.end_task(slot, how);
        }
    }

    /// Drops the waiting objects of a file, and returns their number. The file ends with its last
    /// task in progress.
    pub fn close(&mut self, file: FileId) -> u64 {
        if !self.is_open(file) {
            return 0;
        }
        self.files[file.slot].is_closed = true;
        let dropped = std::mem::take(&mut self.files[file.slot].waiting);
        if dropped > 0 {
            self.count_waiting(file.slot, false);
        }
        for cursor in self.files[file.slot].cursors.clone() {
            self.cursors[cursor].again = Vec::new();
            self.detach(cursor);
        }
        self.end_file_if_finished(file.slot);
        dropped
    }

    /// Removes the waiting walks, because the job must stop, and returns them. Objects of open
    /// files are assigned all the same, so that a worker ends each file.
    pub fn clear_walks(&mut self) -> Vec<D> {
        let mut walks = std::mem::take(&mut self.walks);
        walks.extend(self.later.drain(..));
        walks
    }

    /// Counts a turn of other work, which can offer walks. [`Scheduler::turn_done`] reports its
    /// end.
    pub fn begin_turn(&mut self) {
        self.walking += 1;
    }

    /// Returns true if no work waits and none is in progress.
    pub fn is_over(&self) -> bool {
        self.walking == 0 && self.walks.is_empty() && self.later.is_empty() && self.files.is_empty()
    }

    /// Returns true if [`Scheduler::next`] probably has work for one more worker.
    pub fn has_work(&self) -> bool {
        let has_walk = !(self.walks.is_empty() && self.later.is_empty());
        !self.ready.is_empty() || (has_walk && self.waiting_files < self.workers)
    }

    /// Returns true if objects of the file wait.
    pub fn is_waiting(&self, file: FileId) -> bool {
        self.is_open(file) && self.files[file.slot].waiting > 0
    }

    /// Returns true until the last task of the file has ended.
    pub fn is_open(&self, file: FileId) -> bool {
        self.files.holds(file.slot, file.generation)
    }

    /// Takes the next object of a cursor.
    fn assign(&mut self, worker: WorkerId, cursor: u32) -> ObjectTask {
        let index = self.head(cursor).unwrap_or_else(|| unreachable!("a cursor in a list has an object"));
        let Cursor { file: slot, pair, .. } = self.cursors[cursor];
        let TargetPair { from, to, .. } = self.pairs[pair];
        let file = &mut self.files[slot];
        let entry = &mut self.cursors[cursor];
        if entry.again.pop().is_none() {
            entry.next = file.classes.first_from(entry.class, index + 1);
        }
        file.waiting -= 1;
        file.in_progress += 1;
        let is_drained = file.waiting == 0;
        let object =
            file.geometry.object(ObjectIndex(index)).unwrap_or_else(|| unreachable!("the object exists"));
        if self.reserved.as_ref().is_some_and(|reserved| reserved.pair == pair) {
            self.end_reservation();
        }
        for target in both(from, to) {
            let target = &mut self.targets[target.0 as usize];
            target.in_progress += 1;
            target.credit = target.credit.map(|credit| credit - object.range.len());
        }
        let file = FileId { slot, generation: self.files.generation(slot) };
        let id = TaskId { slot: NONE, generation: 0 };
        let task = ObjectTask { id, file, object, from, to };
        let id = self.tasks.insert(InProgress { task, cursor, worker });
        let task = ObjectTask { id: TaskId { slot: id, generation: self.tasks.generation(id) }, ..task };
        self.tasks[id].task = task;
        let full = both(from, to).find(|target| self.is_full(*target));
        if let (Some(target), PairState::Ready) = (full, self.pairs[pair].state) {
            self.unlink_pair(pair);
            self.link_pair(pair, PairState::Full(target));
        }
        self.place(cursor);
        if is_drained {
            self.count_waiting(slot, false);
        }
        for target in both(from, to) {
            self.wake(target);
        }
        task
    }

    /// Moves a ready pair and its first cursor behind the others.
    fn turn_of(&mut self, pair: u32) {
        let (cursor, mut cursors) = (self.first_cursor(pair), self.pairs[pair].cursors);
        self.cursors.unlink(&mut cursors, cursor);
        self.cursors.push_back(&mut cursors, cursor);
        self.pairs[pair].cursors = cursors;
        self.make_ready(pair);
    }

    fn first_cursor(&self, pair: u32) -> u32 {
        self.pairs[pair].cursors.first().unwrap_or_else(|| unreachable!("a pair has a cursor"))
    }

    fn end_task(&mut self, slot: u32, how: Done) {
        let InProgress { task, cursor, .. } = self.tasks.remove(slot);
        let file_slot = task.file.slot;
        let file = &mut self.files[file_slot];
        file.in_progress -= 1;
        let is_repeated = how == Done::Again && !file.is_closed;
        let had_none = file.waiting == 0;
        if is_repeated {
            file.waiting += 1;
            self.cursors[cursor].again.push(task.object.index.0);
            if had_none {
                self.count_waiting(file_slot, true);
            }
        }
        for target in both(task.from, task.to) {
            self.targets[target.0 as usize].in_progress -= 1;
        }
        for target in both(task.from, task.to) {
            if how != Done::Landed && self.targets[target.0 as usize].credit.is_some() {
                self.credit(target, task.object.range.len());
            }
            self.wake(target);
        }
        if how == Done::Failed {
            self.close(task.file);
            return;
        }
        self.place(cursor);
        self.end_file_if_finished(file_slot);
    }

    fn end_file_if_finished(&mut self, slot: u32) {
        let file = &self.files[slot];
        if file.waiting == 0 && file.in_progress == 0 {
            for cursor in self.files.remove(slot).cursors {
                self.cursors.remove(cursor);
            }
        }
    }

    /// Counts a file at its targets when its first object waits, and no longer when none waits.
    fn count_waiting(&mut self, slot: u32, waits: bool) {
        let step = |count: &mut u32| if waits { *count += 1 } else { *count -= 1 };
        step(&mut self.waiting_files);
        for id in &self.files[slot].targets {
            let target = &mut self.targets[id.0 as usize];
            step(&mut target.files);
            match (target.depth, target.files) {
                (Depth::Workers, 0) => self.by_workers.retain(|other| other != id),
                (Depth::Workers, 1) if waits => self.by_workers.push(*id),
                _ => {}
            }
        }
        // Depths in workers depend on the files that wait.
        for at in 0..self.by_workers.len() {
            self.wake(self.by_workers[at]);
        }
    }

    /// Returns the next object of a cursor.
    fn head(&self, cursor: u32) -> Option<u64> {
        let Cursor { file, class, next, ref again, .. } = self.cursors[cursor];
        let file = &self.files[file];
        if file.waiting == 0 || (file.order == ObjectOrder::Serial && file.in_progress > 0) {
            return None;
        }
        if let Some(index) = again.last() {
            return Some(*index);
        }
        let (mut index, count) = (next, file.geometry.count());
        while index < count {
            let gap = file.have.first_gap(index);
            if gap == index {
                return Some(index);
            }
            index = file.classes.first_from(class, gap);
        }
        None
    }

    /// Puts a cursor into the list of the pair of its next object, or into none.
    fn place(&mut self, cursor: u32) {
        let Some(index) = self.head(cursor) else { return self.detach(cursor) };
        let file = &self.files[self.cursors[cursor].file];
        if file.is_uniform && self.cursors[cursor].pair != NONE {
            return self.retry_starved(self.cursors[cursor].pair);
        }
        let (from, to) = targets_of(file.geometry, &file.from, &file.to, index);
        let present = self.cursors[cursor].pair;
        if present != NONE {
            if (self.pairs[present].from, self.pairs[present].to) == (from, to) {
                return self.retry_starved(present);
            }
            self.detach(cursor);
        }
        let pair = match self.pair_of.get(&(from, to)) {
            Some(pair) => *pair,
            None => {
                let (cursors, state) = (List::EMPTY, PairState::Ready);
                let pair = self.pairs.insert(TargetPair { from, to, cursors, state, passed: 0, refused: 0 });
                self.pair_of.insert((from, to), pair);
                self.pairs.push_back(&mut self.ready, pair);
                pair
            }
        };
        self.cursors.push_back(&mut self.pairs[pair].cursors, cursor);
        self.cursors[cursor].pair = pair;
    }

    /// Removes a cursor from its pair. A pair without a cursor ends.
    fn detach(&mut self, cursor: u32) {
        let pair = std::mem::replace(&mut self.cursors[cursor].pair, NONE);
        if pair == NONE {
            return;
        }
        self.cursors.unlink(&mut self.pairs[pair].cursors, cursor);
        if !self.pairs[pair].cursors.is_empty() {
            return self.retry_starved(pair);
        }
        self.unlink_pair(pair);
        if self.reserved.as_ref().is_some_and(|reserved| reserved.pair == pair) {
            self.end_reservation();
        }
        let TargetPair { from, to, .. } = self.pairs.remove(pair);
        self.pair_of.remove(&(from, to));
        for target in both(from, to) {
            self.wake(target);
        }
    }

    /// Examines a pair that waits for credit again, because its first object may be another one.
    fn retry_starved(&mut self, pair: u32) {
        if matches!(self.pairs[pair].state, PairState::Starved(_)) {
            self.make_ready(pair);
        }
    }

    /// Returns the pair that gives the next object.
    fn choose(&mut self) -> Option<u32> {
        let mut best: Option<(u32, u64)> = None;
        let mut examined = 0;
        let mut last = None;
        while examined < CHOICES {
            let at = last.map_or(self.ready.first(), |last| self.pairs.after(last));
            let Some(pair) = at else { break };
            if let Some(state) = self.refusal(pair, self.first_cursor(pair)) {
                self.refuse(pair, state);
                continue;
            }
            if examined == 0 && self.pairs[pair].passed >= PASSED_MAX {
                return Some(pair);
            }
            let share =
                both(self.pairs[pair].from, self.pairs[pair].to).map(|target| self.free_share(target));
            let share = share.min().unwrap_or(0);
            if best.is_none_or(|(_, most)| share > most) {
                best = Some((pair, share));
            }
            (last, examined) = (Some(pair), examined + 1);
        }
        let (pair, _) = best?;
        if let Some(first) = self.ready.first().filter(|first| *first != pair) {
            self.pairs[first].passed += 1;
        }
        Some(pair)
    }

    /// Lets a ready pair wait for a target, and another pair try the other target.
    fn refuse(&mut self, pair: u32, state: PairState) {
        self.unlink_pair(pair);
        self.link_pair(pair, state);
        let TargetPair { from, to, .. } = self.pairs[pair];
        match state {
            PairState::Full(_) => {
                self.pairs[pair].refused = self.pairs[pair].refused.saturating_add(1);
                if self.pairs[pair].refused >= REFUSED_MAX && self.reserved.is_none() {
                    self.reserved = Some(Reserved { pair, held: [None; 2] });
                }
            }
            PairState::Starved(_) | PairState::Ready => {
                // Places do not wait for credit.
                if self.reserved.as_ref().is_some_and(|reserved| reserved.pair == pair) {
                    self.end_reservation();
                }
            }
        }
        for target in both(from, to) {
            self.wake(target);
        }
    }

    /// Returns the state in which a pair must wait with this cursor, or `None` if the next object
    /// of the cursor can start.
    fn refusal(&self, pair: u32, cursor: u32) -> Option<PairState> {
        let TargetPair { from, to, .. } = self.pairs[pair];
        let held = match &self.reserved {
            Some(reserved) if reserved.pair == pair => reserved.held,
            _ => [None; 2],
        };
        if let Some(target) = both(from, to).find(|at| !held.contains(&Some(*at)) && self.is_full(*at)) {
            return Some(PairState::Full(target));
        }
        let credit = |target: TargetId| self.targets[target.0 as usize].credit;
        if credit(from).is_none() && credit(to).is_none() {
            return None;
        }
        let index = self.head(cursor)?;
        let object = self.files[self.cursors[cursor].file].geometry.object(ObjectIndex(index))?;
        let lacks = |target: &TargetId| credit(*target).is_some_and(|credit| credit < object.range.len());
        both(from, to).find(lacks).map(PairState::Starved)
    }

    /// Gives a free place of a target to the pair that reserves it, or lets the first pair that
    /// waits for it try.
    fn wake(&mut self, target: TargetId) {
        if self.is_full(target) {
            return;
        }
        if let Some(reserved) = &mut self.reserved {
            let pair = reserved.pair;
            let TargetPair { from, to, state, .. } = self.pairs[pair];
            let at = both(from, to).position(|wanted| wanted == target);
            if let Some(at) = at.filter(|at| reserved.held[*at].is_none()) {
                reserved.held[at] = Some(target);
                self.targets[target.0 as usize].reserved += 1;
                let has_all = both(from, to).all(|wanted| reserved.held.contains(&Some(wanted)));
                if has_all && state != PairState::Ready {
                    self.make_ready(pair);
                }
                if self.is_full(target) {
                    return;
                }
            }
        }
        if let Some(pair) = self.targets[target.0 as usize].full.first() {
            self.make_ready(pair);
        }
    }

    fn end_reservation(&mut self) {
        let held = self.reserved.take().map_or([None; 2], |reserved| reserved.held);
        for target in held.into_iter().flatten() {
            self.targets[target.0 as usize].reserved -= 1;
        }
    }

    fn make_ready(&mut self, pair: u32) {
        self.unlink_pair(pair);
        self.link_pair(pair, PairState::Ready);
    }

    fn unlink_pair(&mut self, pair: u32) {
        let state = self.pairs[pair].state;
        let list = list_of(&mut self.ready, &mut self.targets, state);
        self.pairs.unlink(list, pair);
    }

    fn link_pair(&mut self, pair: u32, state: PairState) {
        self.pairs[pair].state = state;
        let list = list_of(&mut self.ready, &mut self.targets, state);
        self.pairs.push_back(list, pair);
    }

    fn capacity(&self, target: &Target) -> u32 {
        match target.depth {
            Depth::Objects(objects) => objects,
            Depth::Workers if target.files == self.waiting_files => self.workers,
            Depth::Workers => self.workers.div_ceil(2),
        }
    }

    fn is_full(&self, target: TargetId) -> bool {
        let target = &self.targets[target.0 as usize];
        target.in_progress + target.reserved >= self.capacity(target)
    }

    /// Returns true if a place of the target may go from one object of a pair to the next: no other
    /// pair waits for it.
    fn can_take_over(&self, target: TargetId, pair: u32) -> bool {
        let target = &self.targets[target.0 as usize];
        let is_awaited =
            target.full.first().is_some_and(|first| first != pair || self.pairs.after(first).is_some());
        !is_awaited && target.credit.is_none() && target.in_progress <= self.capacity(target)
    }

    /// Returns the part of the places of a target that are free, in 1/1024.
    fn free_share(&self, target: TargetId) -> u64 {
        let target = &self.targets[target.0 as usize];
        let capacity = self.capacity(target);
        u64::from(capacity.saturating_sub(target.in_progress)) * 1024 / u64::from(capacity)
    }
}

/// Returns both targets of an object, or one if they are the same.
fn both(from: TargetId, to: TargetId) -> impl Iterator<Item = TargetId> {
    std::iter::once(from).chain((from != to).then_some(to))
}

fn list_of<'a>(ready: &'a mut List, targets: &'a mut [Target], state: PairState) -> &'a mut List {
    match state {
        PairState::Ready => ready,
        PairState::Full(target) => &mut targets[target.0 as usize].full,
        PairState::Starved(target) => &mut targets[target.0 as usize].starved,
    }
}
