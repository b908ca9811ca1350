//! One copy job: its workers, their shared state, and their walk.

use super::contexts;
use super::descriptors::{self, Descriptors, Opened, SourceEnd};
use super::directory::Directory;
use super::entry::{self, Entry, Memory};
use super::error::{CopyError, Refusal};
use super::file::{FileMove, SharedFile};
use super::lane::Lane;
use super::links::{Identity, LinkTable};
use super::operands::{self, OperandWalk};
use super::report::{CopyObserver, Tally};
use super::reread::{self, Proof};
use super::settings::CopySettings;
use super::settle;
use crate::close_checks::CloseChecks;
use crate::pool::{Pool, WorkItem};
use haul_model::limits;
use haul_sys::dir::{DirEntry, DirReader};
use haul_sys::{FileKind, Follow, process, stat};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Result of a job.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of entries that failed. If it is not 0, the exit status is a failure.
    pub failures: u64,
    /// True if the job was stopped before everything was done.
    pub interrupted: bool,
    /// Sinks that a stop interrupted, and that were removed or marked as incomplete.
    pub cut_off: Vec<OsString>,
    /// True if some metadata of a file could not be preserved; a warning reported it.
    pub is_loose: bool,
    /// True if the names in some directory could not be synced; a failure reported it.
    pub is_unsynced: bool,
    /// The file that was copied last, if its caller finishes it (`CopyRules::new_mode`).
    pub new_file: Option<OwnedFd>,
    /// Sources that hold the only copy of some metadata; a failure reported each.
    pub unstored: Unstored,
}

/// Sources with metadata that the file system of the sink supports and could not store, by device
/// and inode number. Only a move records them.
#[derive(Debug, Default)]
pub struct Unstored {
    sources: HashSet<Identity>,
    /// True if more were found than are recorded.
    is_full: bool,
}

impl Unstored {
    /// Maximum number of recorded sources, for a memory use of a few MiB.
    const SOURCES_MAX: usize = 1 << 16;

    fn add(&mut self, source: Identity) {
        self.is_full |= self.sources.len() >= Unstored::SOURCES_MAX;
        if !self.is_full {
            self.sources.insert(source);
        }
    }

    /// Returns true if this source may hold the only copy of some metadata.
    pub(crate) fn may_contain(&self, source: Identity) -> bool {
        self.is_full || self.sources.contains(&source)
    }
}

/// State shared by all workers of a job.
pub(crate) struct Job<'a> {
    pub(crate) settings: &'a CopySettings,
    pub(crate) report: &'a dyn CopyObserver,
    pub(crate) tally: &'a Tally,
    pub(crate) pool: Pool<'a, Walk, Arc<SharedFile>>,
    /// The open directories.
    pub(crate) descriptors: Descriptors,
    /// Entries found and created so far, as far as the rules need them.
    pub(crate) memory: Memory,
    /// Knowledge about how the sinks' file systems behave at close.
    pub(crate) closing: CloseChecks,
    /// Verification state of the job.
    pub(crate) proof: Proof,
    /// Effective user ID: 0 for root.
    pub(crate) user: u32,
    /// True if some metadata could not be preserved and a warning reported it.
    is_loose: AtomicBool,
    /// True if the names in some directory could not be synced.
    pub(crate) is_unsynced: AtomicBool,
    cut_off: Mutex<Vec<OsString>>,
    unstored: Mutex<Unstored>,
    new_file: Mutex<Option<OwnedFd>>,
    /// True while the walk runs ahead of the copy, to count everything early.
    is_ahead: AtomicBool,
    begun: Instant,
}

/// Work that yields entries.
#[derive(Debug)]
pub(crate) enum Walk {
    /// The operands of the command, in order.
    Operands(OperandWalk),
    /// A directory that was created at the sink and must still be opened.
    Enter(Box<entry::NewDirectory>),
    /// A partly read directory.
    Read(Opened, DirReader<SourceEnd>),
    /// Entries of a directory that one worker read and any other may take.
    Batch(Arc<Directory>, Vec<DirEntry>, Counted),
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
    let open_files = descriptors::files_left();
    let most_workers = operands::most_workers(settings, open_files);
    let job = Job {
        settings,
        report,
        tally,
        pool: Pool::new(stop),
        descriptors: Descriptors::new(most_workers, open_files),
        memory: Memory::after(link_table),
        closing: CloseChecks::default(),
        proof: Proof::new(&settings.moving, most_workers, open_files),
        user: process::effective_user(),
        is_loose: AtomicBool::new(false),
        is_unsynced: AtomicBool::new(false),
        cut_off: Mutex::new(Vec::new()),
        unstored: Mutex::default(),
        new_file: Mutex::default(),
        is_ahead: AtomicBool::new(settings.moving.counts_ahead),
        begun: Instant::now(),
    };
    let failed_before = Tally::get(&tally.failures);
    if let Some(walk) = operands::begin(&job) {
        job.pool.offer_walk(Walk::Operands(walk));
        let workers = operands::workers(&job, most_workers);
        let work = || job.pool.run(workers, || Lane::new(&job), |lane, turn| run_item(&job, lane, turn));
        match &settings.moving.log {
            Some(log) => log.beside(&job, work),
            None => work(),
        }
        contexts::done(settings);
    }
    Outcome {
        failures: Tally::get(&tally.failures) - failed_before,
        interrupted: job.pool.stopping(),
        cut_off: job.cut_off.into_inner(),
        is_loose: job.is_loose.into_inner(),
        is_unsynced: job.is_unsynced.into_inner(),
        new_file: job.new_file.into_inner(),
        unstored: job.unstored.into_inner(),
    }
}

fn run_item(job: &Job<'_>, lane: &mut Lane, turn: WorkItem<Walk, Arc<SharedFile>>) {
    match turn {
        WorkItem::Help(file) => super::pipeline::take_objects(job, lane, &file),
        WorkItem::Walk(Walk::Operands(walk)) => operands::take(job, lane, walk),
        WorkItem::Walk(Walk::Enter(new)) => {
            if let Some((directory, reader)) = entry::enter(job, *new) {
                read(job, lane, directory, reader);
            }
        }
        WorkItem::Walk(Walk::Read(directory, reader)) => {
            job.descriptors.resume_reading();
            read(job, lane, directory, reader);
        }
        WorkItem::Walk(Walk::Batch(directory, entries, counted)) => match job.descriptors.open(&directory) {
            Ok(directory) => {
                // This extra count prevents an entry from being the last beneath the directory.
                // Going up needs descriptors at each level, and an entry holds some.
                directory.expect(1);
                take_entries(job, lane, &directory, (entries.into(), counted));
                settle::leave_open(job, directory);
            }
            Err(error) => {
                job.fail(&error);
                (0..entries.len()).for_each(|_| count_unreachable_entry(job, &directory, counted));
            }
        },
    }
    reread::settle_held(job, lane);
}

/// Counts an entry whose directory can no longer be reached.
fn count_unreachable_entry(job: &Job<'_>, directory: &Arc<Directory>, counted: Counted) {
    if counted == Counted::Ahead {
        job.tally.caught_up();
        Tally::add(&job.tally.files_done, 1);
    }
    entry::handled(job);
    settle::leave(job, directory);
}

/// Reads entries, keeps a first batch and offers the other batches and the rest of the directory to
/// other workers. If too many directories already wait half read, reads this one to its end.
fn read(job: &Job<'_>, lane: &mut Lane, directory: Opened, mut reader: DirReader<SourceEnd>) {
    loop {
        let mut entries = Vec::with_capacity(limits::ENTRIES_PER_BATCH);
        let more = reader.read_batch(ENTRIES_PER_READ, &mut entries).unwrap_or_else(|source| {
            let path = directory.source_path();
            job.fail(&CopyError::Cannot { action: "access", path, source });
            false
        });
        directory.expect(entries.len());
        job.tally.expect(entries.len());
        // Names of one inode stay in their order, as with cp.
        entries.sort_by_key(|entry| entry.ino);
        if job.looks_ahead() {
            entries = count_files(job, &directory, entries);
        }
        if more && !job.descriptors.pause_reading() {
            // Work offered to others waits in memory, and the number of remaining entries is
            // unbounded.
            take_entries(job, lane, &directory, (entries.into(), Counted::Later));
            if job.pool.stopping() {
                return;
            }
            continue;
        }
        if more {
            job.pool.offer_walk(Walk::Read(directory.clone(), reader));
        } else {
            drop(reader);
            entry::handled(job);
        }
        while entries.len() > limits::ENTRIES_PER_BATCH {
            let later = entries.split_off(entries.len() - limits::ENTRIES_PER_BATCH);
            job.pool.offer_walk(Walk::Batch(Arc::clone(&directory), later, Counted::Later));
        }
        take_entries(job, lane, &directory, (entries.into(), Counted::Later));
        if !more {
            settle::leave_open(job, directory);
        }
        return;
    }
}

/// Counts the regular files among the entries of a directory, and lets them wait until the walk
/// ahead has ended. Returns the other entries.
fn count_files(job: &Job<'_>, directory: &Opened, entries: Vec<DirEntry>) -> Vec<DirEntry> {
    let (mut counted, mut others) = (Vec::new(), Vec::new());
    for entry in entries {
        let is_file = entry.kind_hint == Some(FileKind::Regular) && !job.pool.stopping();
        let found = is_file.then(|| stat::stat_at(directory.source(), entry.name.as_c_str(), Follow::No));
        match found {
            Some(Ok(found)) if found.kind == FileKind::Regular && !entry::is_own_waybill(job, &found) => {
                job.tally.count_ahead(found.size);
                counted.push(entry);
            }
            // Its copy reports an error.
            _ => others.push(entry),
        }
    }
    while !counted.is_empty() {
        let rest = counted.split_off(counted.len().min(limits::ENTRIES_PER_BATCH));
        job.pool.offer_later(Walk::Batch(Arc::clone(directory), counted, Counted::Ahead));
        counted = rest;
    }
    others
}

fn take_entries(
    job: &Job<'_>,
    lane: &mut Lane,
    directory: &Opened,
    (entries, counted): (VecDeque<DirEntry>, Counted),
) {
    lane.hold(entries, counted);
    while let Some(next) = lane.next_entry() {
        if job.pool.stopping() {
            return;
        }
        let entry = Entry::found(directory, next, counted);
        entry::copy(job, lane, entry);
    }
}

impl Job<'_> {
    /// Reports and counts a failure. An operand that is copied into itself fails only once, even if
    /// the job meets several directories that the copy created.
    pub(crate) fn fail(&self, error: &CopyError) {
        if let CopyError::Refused(Refusal::IntoItself { source_path, sink }) = error
            && !self.memory.first_into_itself(source_path, sink)
        {
            return;
        }
        Tally::add(&self.tally.failures, 1);
        self.report.failed(error);
    }

    /// Reports metadata that could not be preserved. For mv this is a warning and not a failure,
    /// because the bytes arrived.
    pub(crate) fn not_kept(&self, error: &CopyError) {
        if self.settings.rules.moves {
            self.is_loose.store(true, Ordering::Relaxed);
            self.report.warned(error);
        } else {
            self.fail(error);
        }
    }

    /// Fails for metadata that could not be stored, and records that a move must not remove its
    /// source.
    pub(crate) fn is_not_stored(&self, error: &CopyError, source: Identity) {
        self.unstored.lock().add(source);
        self.fail(error);
    }

    /// Keeps a new file open for the caller, who sets its owner and its mode.
    pub(crate) fn hold_new_file(&self, file: &FileMove) {
        match file.sink.try_clone() {
            Ok(sink) => {
                *self.new_file.lock() = Some(sink);
            }
            Err(source) => self.fail(&CopyError::Cannot { action: "open", path: file.sink_path(), source }),
        }
    }

    /// Records a sink that a stop interrupted.
    pub(crate) fn was_cut_off(&self, sink: OsString) {
        self.cut_off.lock().push(sink);
    }

    /// Offers the remaining entries of a worker to free workers, because this worker starts a large
    /// file.
    pub(crate) fn share_entries(&self, lane: &mut Lane, directory: &Arc<Directory>) {
        let (entries, counted) = lane.take_unstarted_entries();
        if !entries.is_empty() {
            self.pool.offer_walk(Walk::Batch(Arc::clone(directory), entries, counted));
        }
    }

    /// Returns true while the walk runs ahead of the copy. It ends permanently when too many
    /// entries wait, or after some time, and where one worker must do everything in order.
    fn looks_ahead(&self) -> bool {
        if !self.is_ahead.load(Ordering::Relaxed) {
            return false;
        }
        let goes_on = self.tally.ahead() < limits::ENTRIES_AHEAD_MAX
            && self.begun.elapsed() < AHEAD_MAX
            && !self.memory.one_worker.load(Ordering::Relaxed);
        if !goes_on {
            self.is_ahead.store(false, Ordering::Relaxed);
            self.pool.end_ahead();
        }
        goes_on
    }
}
