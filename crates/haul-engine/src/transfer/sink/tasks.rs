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
use crate::settle::{DeviceQueues, DeviceWork, Due, NextWork};
use crate::transfer::cpu_wait;
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object};
use haul_proto::sink::Event;
use haul_proto::{Close, FileNumber, Reason};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::thread::{self, Scope};
use std::time::Duration;

/// Maximum number of waiting [`Settle`] tasks of a device before lanes must wait: objects of 16 GiB
/// (at 4 MiB each), or the same number of small files.
const SETTLE_QUEUE_MAX: usize = 4096;

/// Time after which a worker without tasks looks again. It is woken for each task.
const PATIENCE: Duration = Duration::from_secs(60);

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
    pub(super) settling: DeviceQueues<SettleTasks>,
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
        cpu_wait::pause(|| self.added.wait_while(&mut waiting, is_idle));
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

/// The [`Settle`] tasks of one device, in FIFO order.
#[derive(Debug, Default)]
pub(super) struct SettleTasks(VecDeque<Settle>);

impl DeviceWork for SettleTasks {
    type Batch = VecDeque<Settle>;

    fn due(&self) -> Due {
        if self.0.is_empty() { Due::Never } else { Due::Now }
    }

    fn take(&mut self) -> VecDeque<Settle> {
        std::mem::take(&mut self.0)
    }

    fn is_full(&self, _: bool) -> bool {
        self.0.len() >= SETTLE_QUEUE_MAX
    }
}

impl SinkContext<'_> {
    /// Adds a task that settles a file or a part of it.
    pub(super) fn settle_later(&self, file: FileNumber, task: Settle) {
        let partial_file = self.incoming(file).and_then(|incoming| incoming.last());
        // A file without bytes has no device yet.
        let device = partial_file.map_or(0, |partial_file| partial_file.file.device().id);
        self.tasks.settling.add(device, |tasks| tasks.0.push_back(task));
    }

    /// Runs the tasks that wait for storage only, until the session ends. Starts another worker
    /// when none is left for further devices.
    pub(super) fn run_settling<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        self.session.spent.cpu_wait.count(|| {
            let mut file_hasher =
                FileHasher::new(self.hash_plan.clone(), &self.session.spent, &self.session.over);
            let another = move || self.session.guard(|| self.run_settling(scope));
            loop {
                match cpu_wait::pause(|| self.tasks.settling.next(PATIENCE)) {
                    NextWork::Run(mut taken) => {
                        let tasks =
                            taken.batch(|| thread::Builder::new().spawn_scoped(scope, another).is_ok());
                        tasks.into_iter().for_each(|tasks| self.settle_tasks(tasks, &mut file_hasher));
                    }
                    NextWork::Nothing => {}
                    NextWork::Over => break,
                }
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
}
