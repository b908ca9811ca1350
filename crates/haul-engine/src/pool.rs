//! Mutex around a [`Scheduler`]: worker threads request work, wait for it, and return it here.

use haul_model::{Geometry, Runs};
use haul_plan::{
    Assign, Depth, Done, FileId, Layout, ObjectOrder, ObjectTask, Scheduler, TargetId, TaskId, WorkerId,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Unit of work for a worker.
#[derive(Debug)]
pub enum WorkItem<D, F> {
    /// Take entries from this walk, and return it by [`Pool::offer_walk`] if entries are left.
    Walk(D),
    /// Copy this object of an open file, and report it by [`Pool::next_object`].
    Object(F, ObjectTask),
    /// Take parts of this file until none is left.
    Help(F),
}

/// One scheduler, shared by all workers.
#[derive(Debug)]
pub struct Pool<'a, D, F> {
    work: Mutex<Work<D, F>>,
    wake: Condvar,
    idle: AtomicUsize,
    stop: &'a AtomicBool,
}

/// Work that the mutex protects.
#[derive(Debug)]
struct Work<D, F> {
    scheduler: Scheduler<D>,
    /// Open files by [`FileId::slot`].
    files: Vec<Option<(FileId, F)>>,
    /// Files whose workers divide the parts themselves.
    helped: Vec<F>,
    /// Targets by the number of their device.
    devices: HashMap<u64, TargetId>,
    /// Target of the files for which other workers may wait.
    awaited: Option<TargetId>,
}

impl<D, F: Clone> Work<D, F> {
    /// Returns the target of a device. As many objects as there are workers can be in
    /// progress at a device, and half as many while another one has work ([`Depth::Workers`]).
    fn device(&mut self, number: u64) -> TargetId {
        *self.devices.entry(number).or_insert_with(|| self.scheduler.target(Depth::Workers))
    }

    /// Returns the target of the files for which other workers may wait. It is never full: the
    /// worker that opens such a file must not leave it before all its objects are taken.
    fn awaited(&mut self) -> TargetId {
        *self.awaited.get_or_insert_with(|| self.scheduler.target(Depth::Objects(u32::MAX)))
    }

    /// Removes a file from the table after its last task. Its place may have another file already.
    fn forget_if_ended(&mut self, file: FileId) {
        if !self.scheduler.is_open(file) {
            let place =
                self.files.get_mut(file.slot()).and_then(|place| place.take_if(|(id, _)| *id == file));
            drop(place);
        }
    }

    fn is_over(&self) -> bool {
        self.scheduler.is_over() && self.helped.is_empty()
    }
}

impl<'a, D: Send, F: Clone + PartialEq + Send> Pool<'a, D, F> {
    /// Creates a pool without work. If `stop` becomes true, waiting walks are dropped, and each
    /// worker ends after its present turn and the objects of open files.
    pub fn new(workers: usize, stop: &'a AtomicBool) -> Pool<'a, D, F> {
        let (scheduler, files) = (Scheduler::new(workers), Vec::new());
        let work = Work { scheduler, files, helped: Vec::new(), devices: HashMap::new(), awaited: None };
        Pool { work: Mutex::new(work), wake: Condvar::new(), idle: AtomicUsize::new(0), stop }
    }

    /// Returns true if the job is to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds a walk, or returns one.
    pub fn offer_walk(&self, walk: D) {
        self.work().scheduler.offer_walk(walk);
        self.wake_one();
    }

    /// Adds files that wait until the walk ahead has ended.
    pub fn offer_later(&self, files: D) {
        self.work().scheduler.offer_later(files);
        self.wake_one();
    }

    /// Ends the walk ahead: waiting files come before further directories.
    pub fn end_ahead(&self) {
        self.work().scheduler.end_ahead();
    }

    /// Opens a file, whose objects go from the first device to the second, to all workers. It
    /// closes when all objects were reported. `devices` is `None` if a worker may wait for the end
    /// of the file: no device then keeps this worker from its objects.
    pub fn open(&self, file: F, geometry: Geometry, devices: Option<[u64; 2]>) -> FileId {
        let mut work = self.work();
        let targets = match devices {
            Some(devices) => devices.map(|device| work.device(device)),
            None => [work.awaited(); 2],
        };
        let [from, to] = targets.map(Layout::one);
        let id = work.scheduler.open(geometry, Runs::default(), &from, &to, ObjectOrder::Any);
        if work.scheduler.is_open(id) {
            let len = work.files.len().max(id.slot() + 1);
            work.files.resize(len, None);
            work.files[id.slot()] = Some((id, file));
        }
        drop(work);
        self.wake.notify_all();
        id
    }

    /// Reports an object that `worker` has finished, if any, and returns another one of the same
    /// file. Returns `None` if no object of the file waits, or if the others must wait because its
    /// device has enough objects in progress.
    pub fn next_object(
        &self,
        worker: WorkerId,
        file: FileId,
        finished: Option<TaskId>,
    ) -> Option<ObjectTask> {
        let mut work = self.work();
        let next = match finished {
            Some(task) => work.scheduler.next_after(worker, task),
            None => work.scheduler.next_of(worker, file),
        };
        if next.is_none() {
            work.forget_if_ended(file);
        }
        self.wake_for_work(&work);
        next
    }

    /// Takes the objects of a file below number `end` that no worker has taken.
    pub fn take_until(&self, file: FileId, end: u64) -> Runs {
        let mut work = self.work();
        let taken = work.scheduler.take_until(file, end);
        self.wake_for_work(&work);
        taken
    }

    /// Offers a file whose workers divide its parts themselves.
    pub fn offer_file(&self, file: F) {
        self.work().helped.push(file);
        self.wake.notify_all();
    }

    /// Withdraws a file that [`Pool::offer_file`] offered.
    pub fn close_file(&self, file: &F) {
        self.work().helped.retain(|other| other != file);
    }

    /// Returns true if a worker is idle, so that sharing work is worth its cost.
    pub fn someone_is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Runs `workers` threads, or as many as the system grants, until no work is left. If one is
    /// enough or the system grants none, the calling thread does the work. Each worker creates its
    /// state by calling `begin` and passes it to every turn; `turn` may offer more work.
    pub fn run<W>(
        &self,
        workers: usize,
        begin: impl Fn(WorkerId) -> W + Sync,
        turn: impl Fn(&mut W, WorkItem<D, F>) + Sync,
    ) {
        let begun = AtomicUsize::new(0);
        let work = || {
            let id = WorkerId(begun.fetch_add(1, Ordering::Relaxed) as u64);
            let mut worker = begin(id);
            while let Some(next) = self.take(id) {
                let _turn = WorkItemGuard { pool: self, worker: id };
                turn(&mut worker, next);
            }
        };
        if workers == 1 {
            return work();
        }
        std::thread::scope(|scope| {
            let hire = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, work).is_ok();
            // A limit that refuses one thread also refuses the next.
            if (0..workers).take_while(hire).count() == 0 {
                work();
            }
        });
    }

    fn take(&self, worker: WorkerId) -> Option<WorkItem<D, F>> {
        let mut work = self.work();
        loop {
            let is_stopping = self.stopping();
            if is_stopping {
                // The walks are dropped outside the lock, because closing directories takes time.
                let forgotten = work.scheduler.clear_walks();
                work.helped.clear();
                MutexGuard::unlocked(&mut work, || drop(forgotten));
            }
            match work.scheduler.next(worker) {
                Assign::Walk(walk) if is_stopping => {
                    // Another worker has offered it meanwhile.
                    work.scheduler.turn_done();
                    MutexGuard::unlocked(&mut work, || drop(walk));
                }
                Assign::Walk(walk) => return Some(WorkItem::Walk(walk)),
                Assign::Object(task) => {
                    // The end of the file can bring more work after its last object.
                    work.scheduler.begin_turn();
                    self.wake_for_work(&work);
                    let file = work.files[task.file.slot()].clone();
                    let (_, file) = file.unwrap_or_else(|| unreachable!("an open file is in the table"));
                    return Some(WorkItem::Object(file, task));
                }
                // Workers that have objects of a file return for those that wait.
                Assign::Wait | Assign::Finished if is_stopping => {
                    self.wake.notify_all();
                    return None;
                }
                Assign::Wait | Assign::Finished if !work.helped.is_empty() => {
                    work.helped.rotate_left(1);
                    work.scheduler.begin_turn();
                    return work.helped.last().cloned().map(WorkItem::Help);
                }
                Assign::Finished => return None,
                Assign::Wait => {
                    self.idle.fetch_add(1, Ordering::Relaxed);
                    self.wake.wait(&mut work);
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Wakes an idle worker if work waits. That worker wakes the next one.
    fn wake_for_work(&self, work: &Work<D, F>) {
        if self.someone_is_idle() && work.scheduler.has_work() {
            self.wake.notify_one();
        }
    }

    fn wake_one(&self) {
        if self.someone_is_idle() {
            self.wake.notify_one();
        }
    }

    fn work(&self) -> MutexGuard<'_, Work<D, F>> {
        // The scheduler is consistent between its calls, so it stays usable after a worker's panic.
        self.work.lock()
    }
}

/// Reports the end of a turn, also on panic. Otherwise the other workers would wait for it forever.
struct WorkItemGuard<'a, 'b, D: Send, F: Clone + PartialEq + Send> {
    pool: &'a Pool<'b, D, F>,
    worker: WorkerId,
}

impl<D: Send, F: Clone + PartialEq + Send> Drop for WorkItemGuard<'_, '_, D, F> {
    fn drop(&mut self) {
        let mut work = self.pool.work();
        work.scheduler.turn_done();
        if std::thread::panicking() {
            // Objects may be counted already, so no worker completes their files.
            work.scheduler.lost(self.worker, Done::Failed);
        }
        if work.is_over() {
            self.pool.wake.notify_all();
        } else {
            self.pool.wake_for_work(&work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteLen, ObjectSize};
    use std::time::{Duration, Instant};

    #[test]
    fn workers_end_when_the_last_work_is_done() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(4, &stop);
        let seen = AtomicUsize::new(0);
        pool.offer_walk(12);
        pool.run(
            4,
            |_| (),
            |(), turn| {
                let WorkItem::Walk(depth) = turn else { panic!("no file was offered") };
                seen.fetch_add(1, Ordering::Relaxed);
                for _ in 0..2 {
                    if depth > 0 {
                        pool.offer_walk(depth - 1);
                    }
                }
            },
        );
        assert_eq!(seen.load(Ordering::Relaxed), (1 << 13) - 1);
    }

    fn three_objects() -> Geometry {
        Geometry::new(ByteLen(3 << 20), ObjectSize::new(1 << 20).unwrap())
    }

    /// Regression: a device that had enough objects in progress kept the worker from the objects of
    /// a file for whose end all other workers waited.
    #[test]
    fn no_device_keeps_a_worker_from_a_file_that_others_wait_for() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(2, &stop);
        let [one, two] = [1, 2].map(|file| pool.open(file, three_objects(), Some([u64::from(file); 2])));
        assert!(pool.next_object(WorkerId(0), one, None).is_some());
        assert!(pool.next_object(WorkerId(1), one, None).is_none(), "half of the workers are at its device");
        assert!(pool.next_object(WorkerId(1), two, None).is_some());
        let awaited = pool.open(3, three_objects(), None);
        for worker in 2..5 {
            assert!(pool.next_object(WorkerId(worker), awaited, None).is_some());
        }
    }

    /// Regression: the other workers ended while one ended a file and then offered more work.
    #[test]
    fn workers_stay_until_the_turn_of_the_last_object_is_over() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(2, &stop);
        let object = Geometry::new(ByteLen(1), ObjectSize::new(1 << 20).unwrap());
        pool.open(1, object, Some([1, 1]));
        let walked = AtomicUsize::new(0);
        pool.run(
            2,
            |id| id,
            |id, turn| match turn {
                WorkItem::Object(_, task) => {
                    assert!(pool.next_object(*id, task.file, Some(task.id)).is_none());
                    let begin = Instant::now();
                    while !pool.someone_is_idle() {
                        assert!(begin.elapsed() < Duration::from_secs(20), "the other worker has ended");
                        std::thread::yield_now();
                    }
                    pool.offer_walk(1);
                }
                WorkItem::Walk(_) => _ = walked.fetch_add(1, Ordering::Relaxed),
                WorkItem::Help(_) => panic!("no file was offered"),
            },
        );
        assert_eq!(walked.load(Ordering::Relaxed), 1);
    }

    /// Regression: the object of a worker that panicked was copied and counted again.
    #[test]
    fn the_file_of_a_worker_that_panics_is_not_completed() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(1, &stop);
        let file = pool.open(1, three_objects(), Some([1, 1]));
        let run = || pool.run(1, |_| (), |(), _| panic!("as a test demands"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert!(pool.next_object(WorkerId(1), file, None).is_none());
        assert!(pool.work().is_over());
    }

    #[test]
    fn without_a_thread_the_caller_does_the_work() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(4, &stop);
        let (seen, caller) = (AtomicUsize::new(0), std::thread::current().id());
        (0..100).for_each(|walk| pool.offer_walk(walk));
        pool.run(
            0,
            |_| (),
            |(), _| {
                assert_eq!(std::thread::current().id(), caller);
                seen.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert_eq!(seen.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn stopped_pool_drops_queued_work() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(4, &stop);
        let seen = AtomicUsize::new(0);
        (0..100).for_each(|walk| pool.offer_walk(walk));
        pool.run(
            2,
            |_| (),
            |(), _| {
                seen.fetch_add(1, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            },
        );
        assert!(seen.load(Ordering::Relaxed) <= 2);
    }
}
