//! Background tasks of the sink: work that would stall a lane.
//!
//! Invariant: a task waits for no task of its own class, and [`Settle`] for no task at all. Each
//! class of task that can wait has its own queue and worker, and [`Settle`] one of each for every
//! device of the destination, so that a device that stalls delays no other:
//!
//! | class | does | waits for |
//! |---|---|---|
//! | [`Settle`] | syncs objects, reads them back, brings files to their ends | storage |
//! | [`Compare`] | hashes existing files | the source, storage, and room for [`Settle`] |
//! | [`Sweeping`] | lists directories of the sink, deletes names | storage; not the source, whose answers are tasks |
//!
//! The queues are bounded: [`SETTLE_QUEUE_MAX`] tasks of one device make lanes and comparisons wait
//! before they bring more, the window of the session bounds comparisons, and
//! [`LISTS_AHEAD`](haul_proto::limits::LISTS_AHEAD) bounds the answers to lists. No other worker
//! waits for space in a queue.

use super::SinkContext;
use super::deleting::Sweeping;
use super::incoming::IncomingFile;
use super::settling::{PendingRename, PendingSync, SyncBatch};
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object};
use haul_proto::sink::Event;
use haul_proto::{Close, FileNumber, Reason};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::thread::{self, Scope};
use std::time::Duration;

/// Maximum number of waiting [`Settle`] tasks of a device before lanes must wait: objects of 16 GiB
/// (at 4 MiB each), or the same number of small files.
const SETTLE_QUEUE_MAX: usize = 4096;

/// Maximum number of workers that settle: that many devices, less one, may stall at the same time
/// and delay no other.
const SETTLE_WORKERS_MAX: usize = 16;

/// A task that waits only for storage.
#[derive(Debug)]
pub(super) enum Settle {
    /// Bring an object to a level.
    Object { file: FileNumber, attempt: u16, object: Object, to: Level, digest: Option<Digest> },
    /// Read an object, or the whole file, and hash it.
    Rehash { file: FileNumber, attempt: u16, object: Option<Object> },
    /// Finish a file, and hash the objects that were not transferred.
    Finish { file: FileNumber, close: Option<Close>, settle: Level },
}

/// A task that hashes the existing file with the name of an incoming one.
#[derive(Debug)]
pub(super) enum Compare {
    /// Hash the whole file.
    Whole { file: FileNumber },
    /// Hash each object, and take over those that are the same.
    Objects { file: FileNumber },
}

/// The queues of all classes.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    pub(super) settling: Settling,
    pub(super) comparing: Queue<Compare>,
    pub(super) sweeping: Queue<Sweeping>,
}

impl Tasks {
    /// Lets each worker end after it has run the tasks in its queue.
    pub(super) fn end(&self) {
        self.settling.end();
        self.comparing.end();
        self.sweeping.end();
    }
}

/// Tasks of one class in FIFO order. One worker takes them.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Notified when a task was added, or when the queue ends.
    added: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    tasks: VecDeque<T>,
    is_over: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        let state = Mutex::new(QueueState { tasks: VecDeque::new(), is_over: false });
        Queue { state, added: Condvar::new() }
    }
}

impl<T> Queue<T> {
    /// Adds a task. Never waits.
    pub(super) fn push(&self, task: T) {
        self.state().tasks.push_back(task);
        self.added.notify_one();
    }

    /// Waits for the next task. Returns `None` after [`Queue::end`] if no task is left.
    pub(super) fn next(&self) -> Option<T> {
        let is_idle = |waiting: &mut QueueState<T>| waiting.tasks.is_empty() && !waiting.is_over;
        let mut waiting = self.state();
        self.added.wait_while(&mut waiting, is_idle);
        waiting.tasks.pop_front()
    }

    /// Ends the queue: no further task is added.
    fn end(&self) {
        self.state().is_over = true;
        self.added.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock()
    }
}

impl Queue<Compare> {
    /// Removes the task of a file that has ended, so that the window bounds the queue.
    pub(super) fn remove(&self, file: FileNumber) {
        self.state().tasks.retain(|task| {
            let (Compare::Whole { file: of } | Compare::Objects { file: of }) = task;
            *of != file
        });
    }
}

/// The [`Settle`] tasks, by device. Those of one device are taken in FIFO order, by one worker at a
/// time.
#[derive(Debug, Default)]
pub(super) struct Settling {
    state: Mutex<SettlingState>,
    /// Notified when a task was added, or when the queues end.
    added: Condvar,
    /// Notified when tasks were taken.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct SettlingState {
    /// Devices with waiting tasks, or with a worker.
    devices: BTreeMap<u64, DeviceTasks>,
    /// Number of workers.
    workers: usize,
    /// Number of workers that wait for tasks.
    idle: usize,
    is_over: bool,
}

#[derive(Debug, Default)]
struct DeviceTasks {
    waiting: VecDeque<Settle>,
    has_worker: bool,
}

/// Tasks of one device for a worker, which must call [`Settling::finished`] afterwards.
#[derive(Debug)]
struct TakenTasks {
    device: u64,
    tasks: VecDeque<Settle>,
    /// True if no worker is left for other devices, so that the caller must start one.
    needs_worker: bool,
}

impl SettlingState {
    /// Returns a device with waiting tasks and without a worker.
    fn ready(&self) -> Option<u64> {
        let is_ready = |tasks: &DeviceTasks| !tasks.has_worker && !tasks.waiting.is_empty();
        self.devices.iter().find(|(_, tasks)| is_ready(tasks)).map(|(device, _)| *device)
    }

    fn is_full(&self) -> bool {
        self.devices.values().any(|tasks| tasks.waiting.len() >= SETTLE_QUEUE_MAX)
    }
}

impl Settling {
    /// Adds a task for a device. Never waits.
    fn push(&self, device: u64, task: Settle) {
        self.state.lock().devices.entry(device).or_default().waiting.push_back(task);
        self.added.notify_one();
    }

    /// Counts a worker that begins.
    fn begin(&self) {
        self.state.lock().workers += 1;
    }

    /// Takes back [`TakenTasks::needs_worker`]: the worker could not be started.
    fn not_started(&self) {
        self.state.lock().workers -= 1;
    }

    /// Waits for a device with tasks, and takes all of them. Returns `None` after [`Settling::end`]
    /// if no task is left.
    fn take(&self) -> Option<TakenTasks> {
        let mut state = self.state.lock();
        state.idle += 1;
        self.added.wait_while(&mut state, |state| state.ready().is_none() && !state.is_over);
        state.idle -= 1;
        let device = state.ready()?;
        let of_device = state.devices.get_mut(&device)?;
        of_device.has_worker = true;
        let tasks = std::mem::take(&mut of_device.waiting);
        let needs_worker = state.idle == 0 && state.workers < SETTLE_WORKERS_MAX && !state.is_over;
        state.workers += usize::from(needs_worker);
        drop(state);
        self.taken.notify_all();
        Some(TakenTasks { device, tasks, needs_worker })
    }

    /// Lets another worker take the next tasks of a device.
    fn finished(&self, device: u64) {
        let mut state = self.state.lock();
        if let Some(of_device) = state.devices.get_mut(&device) {
            of_device.has_worker = false;
            if of_device.waiting.is_empty() {
                state.devices.remove(&device);
            }
        }
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.added.notify_all();
    }

    /// Returns true if lanes must wait.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().is_full()
    }

    /// Waits at most `within` until a lane may add more. Returns true if it may.
    pub(super) fn wait_for_capacity(&self, within: Duration) -> bool {
        let mut state = self.state.lock();
        self.taken.wait_while_for(&mut state, |state| state.is_full(), within);
        !state.is_full()
    }
}

impl SinkContext<'_> {
    /// Adds a task that settles a file or a part of it.
    pub(super) fn settle_later(&self, file: FileNumber, task: Settle) {
        let partial_file = self.incoming(file).and_then(|incoming| incoming.last());
        // A file without bytes has no device yet.
        let device = partial_file.map_or(0, |partial_file| partial_file.file.device().id);
        self.tasks.settling.push(device, task);
    }

    /// Starts the first worker that settles.
    pub(super) fn start_settling<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        self.tasks.settling.begin();
        self.session.spawn(scope, move || self.run_settling(scope));
    }

    /// Runs the tasks that wait for storage only, until the session ends. Starts another worker
    /// when none is left for further devices.
    fn run_settling<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        self.session.spent.cpu_wait.count(|| {
            let mut file_hasher =
                FileHasher::new(self.hash_plan.clone(), &self.session.spent, &self.session.over);
            while let Some(TakenTasks { device, tasks, needs_worker }) = self.tasks.settling.take() {
                let work = move || self.session.guard(|| self.run_settling(scope));
                if needs_worker && thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    // Without another thread, the other devices wait for this one.
                    self.tasks.settling.not_started();
                }
                self.settle_tasks(tasks, &mut file_hasher);
                self.tasks.settling.finished(device);
            }
        });
    }

    fn settle_tasks(&self, tasks: VecDeque<Settle>, file_hasher: &mut FileHasher<'_>) {
        // Syncs are grouped: tasks that came during the last sync share the next.
        let mut batch = SyncBatch::default();
        for task in tasks {
            match task {
                Settle::Object { file, attempt, object, to, digest } => {
                    batch.object((file, attempt), PendingSync { object, to, digest, from_cache: None });
                }
                Settle::Finish { file, close, settle } => {
                    batch.end(PendingRename { file, close, settle });
                }
                Settle::Rehash { file, attempt, object } => {
                    self.rehash(file, attempt, object, file_hasher);
                }
            }
        }
        self.settle(batch, file_hasher);
    }

    fn rehash(
        &self,
        file: FileNumber,
        attempt: u16,
        object: Option<Object>,
        file_hasher: &mut FileHasher<'_>,
    ) {
        let Some(incoming) = self.incoming(file) else { return };
        let digest = incoming.partial_file_for(&self.destination.dirs, attempt, &self.session.over).and_then(
            |partial_file| {
                // Nothing is received for a hole, so the file can be too short.
                partial_file
                    .grow_to(incoming.facts.size())
                    .map_err(|error| reason("cannot set the length", &error))?;
                let source =
                    partial_file.file.reader().map_err(|error| reason("cannot read back", &error))?;
                match object {
                    Some(object) => file_hasher.object(&*source, object, incoming.facts.size()),
                    None => file_hasher.whole(&*source, incoming.facts.size()),
                }
            },
        );
        self.handle(Event::Rehashed { file, attempt, object: object.map(|object| object.index), digest });
    }

    /// Hashes the objects of a file that were not transferred but count for its digests: holes, and
    /// objects that already existed here.
    pub(super) fn complete(
        &self,
        incoming: &IncomingFile,
        close: Option<&Close>,
        file_hasher: &mut FileHasher<'_>,
    ) -> Result<(), Reason> {
        if !incoming.is_incomplete(close) {
            return Ok(());
        }
        let size = incoming.facts.size();
        let partial_file = incoming.partial_file(&self.destination.dirs, &self.session.over)?;
        partial_file.grow_to(size).map_err(|error| reason("cannot set the length", &error))?;
        let source = partial_file.file.reader().map_err(|error| reason("cannot read back", &error))?;
        let mut next = 0;
        while let Some(object) = incoming.missing(next) {
            incoming.add_late(object, file_hasher.late(&*source, object, size)?);
            next = object.index.0 + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_drains_before_its_end() {
        let queue: Queue<u32> = Queue::default();
        thread::scope(|scope| {
            let all = scope.spawn(|| std::iter::from_fn(|| queue.next()).collect::<Vec<_>>());
            (0..200).for_each(|task| queue.push(task));
            queue.end();
            assert_eq!(all.join().unwrap(), (0..200).collect::<Vec<_>>());
        });
        assert!(queue.next().is_none());
    }

    fn task(file: u64) -> Settle {
        Settle::Finish { file: FileNumber(file), close: None, settle: Level::Durable }
    }

    fn files(taken: &TakenTasks) -> Vec<u64> {
        let file = |task: &Settle| match task {
            Settle::Finish { file, .. } => file.0,
            other => panic!("{other:?}"),
        };
        taken.tasks.iter().map(file).collect()
    }

    #[test]
    fn tasks_of_a_device_stay_in_order_and_other_devices_do_not_wait() {
        let settling = Settling::default();
        settling.begin();
        settling.push(1, task(10));
        settling.push(1, task(11));
        let first = settling.take().unwrap();
        assert_eq!((first.device, files(&first), first.needs_worker), (1, vec![10, 11], true));
        settling.push(1, task(12));
        settling.push(2, task(20));
        // The other worker must not take a task behind those that are being run.
        let other = settling.take().unwrap();
        assert_eq!((other.device, files(&other)), (2, vec![20]));
        settling.finished(1);
        let later = settling.take().unwrap();
        assert_eq!((later.device, files(&later)), (1, vec![12]));
        settling.finished(1);
        settling.finished(2);
        settling.push(2, task(21));
        settling.end();
        assert_eq!(files(&settling.take().unwrap()), [21], "the queues drain before their end");
        settling.finished(2);
        assert!(settling.take().is_none() && settling.state.lock().devices.is_empty());
    }

    #[test]
    fn lanes_wait_while_one_device_has_too_many_tasks() {
        let settling = Settling::default();
        (0..SETTLE_QUEUE_MAX as u64).for_each(|file| settling.push(1, task(file)));
        assert!(settling.is_full() && !settling.wait_for_capacity(Duration::ZERO));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| settling.wait_for_capacity(Duration::from_secs(600)));
            assert_eq!(settling.take().unwrap().tasks.len(), SETTLE_QUEUE_MAX);
            assert!(waiting.join().unwrap());
        });
    }
}
