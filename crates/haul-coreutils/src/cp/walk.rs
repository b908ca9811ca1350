//! The walk of a copy: operands, directories, and batches of their entries.

use super::contexts;
use super::directory::Directory;
use super::entry;
use super::job::{Job, Outcome};
use super::links::{LinkTable, Memory};
use super::operand_walk::OperandWalk;
use super::operands;
use super::rules::{CopySettings, Operands};
use super::tree_entry::Entry;
use super::tree_worker::{Counted, TreeWorker, Walk, WorkPool};
use haul_engine::copy::{CopyError, CopyObserver, HeldFiles, JobObserver, SharedFile, Tally};
use haul_engine::{Pool, WorkItem, files_left};
use haul_model::limits;
use haul_storage::{Entry as Listed, FileKind, Follow, Listing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that the walk runs ahead of the copy.
const AHEAD_MAX: Duration = Duration::from_secs(10);

/// Number of entries read from a directory before they are sorted and shared. Sorting by inode
/// makes cold reads of small files sequential on file systems that hash their directories (ext4).
const ENTRIES_PER_READ: usize = 8 * limits::ENTRIES_PER_BATCH;

/// Copies according to `settings`. Reports every error to `report`. The caller can read `tally`
/// meanwhile. If `stop` becomes true, the job ends soon, in a resumable state.
pub fn copy(settings: &CopySettings, report: &dyn CopyObserver, tally: &Tally, stop: &AtomicBool) -> Outcome {
    copy_after(&Arc::default(), settings, report, tally, stop)
}

/// Like [`copy`], but takes the multi-name files that earlier jobs of the same command copied.
/// Later names of those files become links to their sinks.
pub(crate) fn copy_after(
    link_table: &Arc<LinkTable>,
    settings: &CopySettings,
    report: &dyn CopyObserver,
    tally: &Tally,
    stop: &AtomicBool,
) -> Outcome {
    let open_files = files_left();
    let most_workers = operands::most_workers(settings, open_files);
    let observer = JobObserver { report, tally };
    let memory = Memory::after(link_table);
    let job = Job::new(settings, observer, stop, memory, most_workers, open_files);
    let failed_before = Tally::get(&tally.failures);
    let first = job.begin_operands();
    let sink_is_own = matches!(&first, Some(OperandWalk::Rows(rows)) if rows.sink_is_missing);
    // The end of an operand then releases the next one, which a worker offers after its turn.
    let is_awaited = matches!(&first, Some(OperandWalk::Rows(rows)) if rows.in_order)
        || matches!(settings.operands, Operands::Batch(_));
    if let Some(first) = first {
        let workers = operands::workers(&job.memory, most_workers);
        let pool: WorkPool<'_> = Pool::new(workers, stop);
        pool.offer_walk(Walk::Operands(first));
        let ahead = WalkAhead::new(settings.moving.counts_ahead);
        let walker = Walker { job: &job, pool: &pool, ahead: &ahead };
        let held = HeldFiles::new(workers, open_files, workers == 1 || is_awaited);
        let begin = |id| TreeWorker::new(id, &job, &pool, &held);
        let work = || {
            held.beside(&job.context, || pool.run(workers, begin, |worker, turn| walker.run(worker, turn)));
        };
        match job.context.log {
            Some(log) => log.beside(&observer, work),
            None => work(),
        }
        contexts::done(settings);
        assert!(job.is_stopping() || job.take_ready().is_empty(), "operands that waited were not copied");
    }
    let failures = Tally::get(&tally.failures) - failed_before;
    job.outcome(failures, sink_is_own)
}

/// The walk ahead of the copy, which counts everything early.
struct WalkAhead {
    goes_on: AtomicBool,
    begun: Instant,
}

impl WalkAhead {
    fn new(is_wanted: bool) -> WalkAhead {
        WalkAhead { goes_on: AtomicBool::new(is_wanted), begun: Instant::now() }
    }

    /// Returns true while the walk runs ahead of the copy. It ends permanently when too many
    /// entries wait, or after some time, and where one worker must do everything in order.
    fn goes_on(&self, tally: &Tally, memory: &Memory, pool: &WorkPool<'_>) -> bool {
        if !self.goes_on.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = tally.ahead() < limits::ENTRIES_AHEAD_MAX
            && self.begun.elapsed() < AHEAD_MAX
            && !memory.one_worker.load(Ordering::Relaxed);
        if !goes_on {
            self.goes_on.store(false, Ordering::Relaxed);
            pool.end_ahead();
        }
        goes_on
    }
}

/// The walk of one job.
#[derive(Clone, Copy)]
struct Walker<'p, 'j> {
    job: &'j Job<'j>,
    pool: &'p WorkPool<'j>,
    ahead: &'p WalkAhead,
}

impl<'p, 'j> Walker<'p, 'j> {
    /// Does one piece of work.
    fn run(self, worker: &mut TreeWorker<'p, 'j>, turn: WorkItem<Walk, Arc<SharedFile<'j>>>) {
        let job = self.job;
        match turn {
            WorkItem::Object(file, first) => worker.take_objects(&file, first),
            WorkItem::Help(_) => unreachable!("the pool assigns the objects of files"),
            WorkItem::Walk(Walk::Operands(walk)) => operands::take(job, worker, walk),
            WorkItem::Walk(Walk::Enter(new)) => {
                if let Some((directory, listing)) = job.enter(*new) {
                    self.read(worker, directory, listing);
                }
            }
            WorkItem::Walk(Walk::Read(directory, listing)) => {
                job.half_read.resume();
                self.read(worker, directory, listing);
            }
            WorkItem::Walk(Walk::Batch(directory, entries, counted)) => {
                self.batch(worker, directory, entries, counted);
            }
        }
        worker.end_turn();
        for walk in job.take_ready() {
            self.pool.offer_walk(Walk::Operands(walk));
        }
    }

    /// Copies entries that another worker read.
    fn batch(
        self,
        worker: &mut TreeWorker<'p, 'j>,
        directory: Arc<Directory>,
        entries: Vec<Listed>,
        counted: Counted,
    ) {
        let job = self.job;
        match directory.reach() {
            Ok(_held) => {
                // This extra count prevents an entry from being the last beneath the directory.
                // Going up needs descriptors at each level, and an entry holds some.
                directory.expect(1);
                self.take_entries(worker, &directory, entries, counted);
                job.leave(&directory);
            }
            Err(error) => {
                job.fail(&error);
                (0..entries.len()).for_each(|_| self.count_unreachable_entry(&directory, counted));
            }
        }
    }

    /// Counts an entry whose directory can no longer be reached.
    fn count_unreachable_entry(self, directory: &Arc<Directory>, counted: Counted) {
        let tally = self.job.tally();
        if counted == Counted::Ahead {
            tally.caught_up();
            Tally::add(&tally.files_done, 1);
        }
        tally.handled();
        self.job.leave(directory);
    }

    /// Reads entries, keeps a first batch and offers the other batches and the rest of the
    /// directory to other workers. If too many directories already wait half read, reads this one
    /// to its end.
    fn read(self, worker: &mut TreeWorker<'p, 'j>, directory: Arc<Directory>, mut listing: Box<dyn Listing>) {
        let (job, pool) = (self.job, self.pool);
        loop {
            let mut entries = Vec::with_capacity(limits::ENTRIES_PER_BATCH);
            let more = listing.next(ENTRIES_PER_READ, &mut entries).unwrap_or_else(|source| {
                let path = directory.source_path();
                job.fail(&CopyError::Cannot { action: "access", path, source });
                false
            });
            directory.expect(entries.len());
            job.tally().expect(entries.len());
            // Names of one inode stay in their order, as with cp.
            entries.sort_by_key(|entry| entry.ino);
            if self.ahead.goes_on(job.tally(), &job.memory, pool) {
                entries = self.count_files(&directory, entries);
            }
            if more && !job.half_read.pause() {
                // Work offered to others waits in memory, and the number of remaining entries is
                // unbounded.
                self.take_entries(worker, &directory, entries, Counted::Later);
                if job.is_stopping() {
                    return;
                }
                continue;
            }
            if more {
                pool.offer_walk(Walk::Read(Arc::clone(&directory), listing));
            } else {
                drop(listing);
                job.tally().handled();
            }
            while entries.len() > limits::ENTRIES_PER_BATCH {
                let later = entries.split_off(entries.len() - limits::ENTRIES_PER_BATCH);
                pool.offer_walk(Walk::Batch(Arc::clone(&directory), later, Counted::Later));
            }
            self.take_entries(worker, &directory, entries, Counted::Later);
            if !more {
                job.leave(&directory);
            }
            return;
        }
    }

    /// Counts the regular files among the entries of a directory, and lets them wait until the walk
    /// ahead has ended. Returns the other entries.
    fn count_files(self, directory: &Arc<Directory>, entries: Vec<Listed>) -> Vec<Listed> {
        let job = self.job;
        let (mut counted, mut others) = (Vec::new(), Vec::new());
        for entry in entries {
            let is_file = entry.kind == Some(FileKind::Regular) && !job.is_stopping();
            let found = is_file.then(|| directory.source_at(&entry.name).stat(Follow::No));
            match found {
                Some(Ok(found)) if found.kind == FileKind::Regular && !job.is_own_waybill(&found) => {
                    job.tally().count_ahead(found.size);
                    counted.push(entry);
                }
                // Its copy reports an error.
                _ => others.push(entry),
            }
        }
        while !counted.is_empty() {
            let rest = counted.split_off(counted.len().min(limits::ENTRIES_PER_BATCH));
            self.pool.offer_later(Walk::Batch(Arc::clone(directory), counted, Counted::Ahead));
            counted = rest;
        }
        others
    }

    fn take_entries(
        self,
        worker: &mut TreeWorker<'p, 'j>,
        directory: &Arc<Directory>,
        entries: Vec<Listed>,
        counted: Counted,
    ) {
        worker.hold(directory, entries, counted);
        while let Some(next) = worker.next_entry() {
            if self.job.is_stopping() {
                return;
            }
            let entry = Entry::found(directory, next, counted);
            entry::copy(self.job, worker, entry);
        }
    }
}
