//! A worker that walks a tree, and the work that workers offer one another.

use super::directory::{Directory, NewDirectory};
use super::job::Job;
use super::operand_walk::OperandWalk;
use haul_engine::Pool;
use haul_engine::copy::{FileJob, HeldFiles, Helpers, SharedFile, Worker};
use haul_model::Runs;
use haul_plan::{FileId, ObjectTask, TaskId, WorkerId};
use haul_storage::{Entry, Listing};
use std::collections::VecDeque;
use std::sync::Arc;

/// Work that yields entries.
#[derive(Debug)]
pub(crate) enum Walk {
    /// The operands of the command, in order.
    Operands(OperandWalk),
    /// A directory that was created at the sink and must still be opened.
    Enter(Box<NewDirectory>),
    /// A partly read directory.
    Read(Arc<Directory>, Box<dyn Listing>),
    /// Entries of a directory that one worker read and any other may take.
    Batch(Arc<Directory>, Vec<Entry>, Counted),
}

/// Tells if the walk counted the files of a batch ahead of their copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The copy of each file counts it.
    #[default]
    Later,
    /// The walk counted them.
    Ahead,
}

/// Work that waits for a free worker of the job.
pub(crate) type WorkPool<'j> = Pool<'j, Walk, Arc<SharedFile<'j>>>;

/// A worker of a job.
pub(crate) struct TreeWorker<'p, 'j> {
    bytes: Worker<'p, 'j>,
    entries: UnstartedEntries<'p, 'j>,
}

/// The entries that a worker took and has not started.
struct UnstartedEntries<'p, 'j> {
    worker: WorkerId,
    pool: &'p WorkPool<'j>,
    directory: Option<Arc<Directory>>,
    entries: VecDeque<Entry>,
    counted: Counted,
}

impl<'p, 'j> TreeWorker<'p, 'j> {
    /// Creates the state of a worker.
    pub(crate) fn new(
        worker: WorkerId,
        job: &'j Job<'j>,
        pool: &'p WorkPool<'j>,
        held: &'p HeldFiles<'j>,
    ) -> TreeWorker<'p, 'j> {
        let (directory, entries, counted) = (None, VecDeque::new(), Counted::default());
        let entries = UnstartedEntries { worker, pool, directory, entries, counted };
        TreeWorker { bytes: Worker::new(&job.context, held), entries }
    }

    /// Returns the pool of the job.
    pub(crate) fn pool(&self) -> &'p WorkPool<'j> {
        self.entries.pool
    }

    /// Stores entries of a directory to work on.
    pub(crate) fn hold(
        &mut self,
        directory: &Arc<Directory>,
        entries: impl Into<VecDeque<Entry>>,
        counted: Counted,
    ) {
        self.entries.directory = Some(Arc::clone(directory));
        (self.entries.entries, self.entries.counted) = (entries.into(), counted);
    }

    /// Takes the next entry to work on.
    pub(crate) fn next_entry(&mut self) -> Option<Entry> {
        let next = self.entries.entries.pop_front();
        if next.is_none() {
            self.entries.directory = None;
        }
        next
    }

    /// Offers the entries that are not started to free workers, because this worker starts long
    /// work.
    pub(crate) fn share_entries(&mut self) {
        self.entries.share();
    }

    /// Copies the bytes of a file.
    pub(crate) fn move_file(&mut self, file: FileJob<'j>) {
        self.bytes.move_file(&mut self.entries, file);
    }

    /// Ends the files of a turn.
    pub(crate) fn end_turn(&mut self) {
        self.bytes.end_turn();
    }

    /// Helps to copy the bytes of a file.
    pub(crate) fn take_objects(&mut self, file: &Arc<SharedFile<'j>>, first: ObjectTask) {
        self.bytes.take_objects(&mut self.entries, file, first);
    }
}

impl UnstartedEntries<'_, '_> {
    fn share(&mut self) {
        let entries: Vec<Entry> = std::mem::take(&mut self.entries).into();
        if let (Some(directory), false) = (&self.directory, entries.is_empty()) {
            self.pool.offer_walk(Walk::Batch(Arc::clone(directory), entries, self.counted));
        }
    }
}

impl<'j> Helpers<'j> for UnstartedEntries<'_, 'j> {
    fn open(&mut self, file: &Arc<SharedFile<'j>>) -> FileId {
        self.share();
        self.pool.open(Arc::clone(file), file.geometry(), file.devices())
    }

    fn next_object(&mut self, file: FileId, finished: Option<TaskId>) -> Option<ObjectTask> {
        self.pool.next_object(self.worker, file, finished)
    }

    fn take_until(&mut self, file: FileId, end: u64) -> Runs {
        self.pool.take_until(file, end)
    }

    fn is_one_idle(&self) -> bool {
        self.pool.someone_is_idle()
    }
}
