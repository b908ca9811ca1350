//! One copy job: its workers, what they share, and how they walk.

use super::contexts;
use super::descriptors::{self, Descriptors, Opened, SourceEnd};
use super::directory::Directory;
use super::entry::{self, Entry, Memory};
use super::error::{CopyError, Refusal};
use super::file::SharedFile;
use super::lane::Lane;
use super::links::Claims;
use super::operands::{self, OperandWalk};
use super::report::{Report, Tally};
use super::reread::{self, Proof};
use super::settings::CopySettings;
use super::settle;
use crate::pool::{Pool, Turn};
use haul_model::limits;
use haul_sys::dir::{DirEntry, DirReader};
use haul_sys::process;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a job ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Entries that failed; the exit status is a failure if there is one.
    pub failures: u64,
    /// The job was told to stop before all was done.
    pub interrupted: bool,
    /// Sinks that a stop cut off, and that were removed or marked as not complete.
    pub cut_off: Vec<OsString>,
    /// Properties of some file could not be kept; that was told as a warning.
    pub is_loose: bool,
    /// The names in some directory could not be made durable; that was told as a failure.
    pub is_unsynced: bool,
}

/// What all workers of a job share.
pub(crate) struct Job<'a> {
    pub(crate) settings: &'a CopySettings,
    pub(crate) report: &'a dyn Report,
    pub(crate) tally: &'a Tally,
    pub(crate) pool: Pool<'a, Walk, Arc<SharedFile>>,
    /// Which directories are open.
    pub(crate) descriptors: Descriptors,
    /// What was met and made so far, where rules need it.
    pub(crate) memory: Memory,
    /// What is known of the sinks' file systems at close.
    pub(crate) closing: settle::Closing,
    /// What is known of proving.
    pub(crate) proof: Proof,
    /// The user in whose name all is done: 0 for root.
    pub(crate) user: u32,
    /// Something of a file's properties could not be kept, and was told without failing the file.
    is_loose: AtomicBool,
    /// The names in some directory could not be made durable.
    pub(crate) is_unsynced: AtomicBool,
    cut_off: Mutex<Vec<OsString>>,
}

/// Work that brings entries.
#[derive(Debug)]
pub(crate) enum Walk {
    /// The operands of the command, in order.
    Operands(OperandWalk),
    /// A directory that was made at the sink and is still to be opened.
    Enter(Box<entry::NewDirectory>),
    /// A directory half read.
    Read(Opened, DirReader<SourceEnd>),
    /// Entries of a directory that a worker read and somebody else may take.
    Batch(Arc<Directory>, Vec<DirEntry>),
}

/// Entries read from a directory before they are sorted and shared out. Sorting by inode makes cold reads of
/// small files sequential on file systems that hash their directories (ext4).
const ENTRIES_PER_READ: usize = 8 * limits::ENTRIES_PER_BATCH;

/// Copies what `settings` say. Everything that goes wrong is told to `report`; `tally` can be read meanwhile;
/// when `stop` turns true the job ends soon, in a state that can be gone on from.
pub fn copy(settings: &CopySettings, report: &dyn Report, tally: &Tally, stop: &AtomicBool) -> Outcome {
    copy_after(&Arc::default(), settings, report, tally, stop)
}

/// As [`copy`], with what earlier jobs of the same command know of files with several names: later names of those
/// become links to their sinks.
pub(crate) fn copy_after(
    claims: &Arc<Claims>,
    settings: &CopySettings,
    report: &dyn Report,
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
        memory: Memory::after(claims),
        closing: settle::Closing::default(),
        proof: Proof::new(&settings.moving, most_workers, open_files),
        user: process::effective_user(),
        is_loose: AtomicBool::new(false),
        is_unsynced: AtomicBool::new(false),
        cut_off: Mutex::new(Vec::new()),
    };
    let failed_before = Tally::get(&tally.failures);
    if let Some(walk) = operands::begin(&job) {
        job.pool.offer_walk(Walk::Operands(walk));
        let workers = operands::workers(&job, most_workers);
        let work = || job.pool.run(workers, || Lane::new(&job), |lane, turn| take_turn(&job, lane, turn));
        match &settings.moving.log {
            Some(log) => log.beside(&job, work),
            None => work(),
        }
        contexts::done(settings);
    }
    Outcome {
        failures: Tally::get(&tally.failures) - failed_before,
        interrupted: job.pool.stopping(),
        cut_off: job.cut_off.into_inner().unwrap_or_else(PoisonError::into_inner),
        is_loose: job.is_loose.into_inner(),
        is_unsynced: job.is_unsynced.into_inner(),
    }
}

fn take_turn(job: &Job<'_>, lane: &mut Lane, turn: Turn<Walk, Arc<SharedFile>>) {
    match turn {
        Turn::Help(file) => super::pipeline::take_objects(job, lane, &file),
        Turn::Walk(Walk::Operands(walk)) => operands::take(job, lane, walk),
        Turn::Walk(Walk::Enter(new)) => {
            if let Some((directory, reader)) = entry::enter(job, *new) {
                read(job, lane, directory, reader);
            }
        }
        Turn::Walk(Walk::Read(directory, reader)) => {
            job.descriptors.go_on_reading();
            read(job, lane, directory, reader);
        }
        Turn::Walk(Walk::Batch(directory, entries)) => match job.descriptors.open(&directory) {
            Ok(directory) => {
                // No entry is the last beneath the directory: on the way up, each level needs descriptors, and an entry holds some.
                directory.expect(1);
                take_entries(job, lane, &directory, entries.into());
                settle::leave_open(job, directory);
            }
            Err(error) => {
                job.fail(&error);
                (0..entries.len()).for_each(|_| give_up_entry(job, &directory));
            }
        },
    }
    reread::settle_held(job, lane);
}

/// An entry whose directory can't be reached any more.
fn give_up_entry(job: &Job<'_>, directory: &Arc<Directory>) {
    entry::met(job);
    settle::leave(job, directory);
}

/// Reads some entries, leaves the rest of the directory and all but a first batch to others, and takes that. Where too
/// many directories wait half read, this one is read to its end.
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
        // Names of one inode stay in their order, as they do with cp.
        entries.sort_by_key(|entry| entry.ino);
        if more && !job.descriptors.leave_half_read() {
            // What is left to others waits in memory, and there may be any number of entries still to come.
            take_entries(job, lane, &directory, entries.into());
            if job.pool.stopping() {
                return;
            }
            continue;
        }
        if more {
            job.pool.offer_walk(Walk::Read(directory.clone(), reader));
        } else {
            drop(reader);
            entry::met(job);
        }
        while entries.len() > limits::ENTRIES_PER_BATCH {
            let later = entries.split_off(entries.len() - limits::ENTRIES_PER_BATCH);
            job.pool.offer_walk(Walk::Batch(Arc::clone(&directory), later));
        }
        take_entries(job, lane, &directory, entries.into());
        if !more {
            settle::leave_open(job, directory);
        }
        return;
    }
}

fn take_entries(job: &Job<'_>, lane: &mut Lane, directory: &Opened, entries: VecDeque<DirEntry>) {
    lane.hold(entries);
    while let Some(next) = lane.next_entry() {
        if job.pool.stopping() {
            return;
        }
        let entry = Entry::found(directory, next);
        entry::copy(job, lane, entry);
    }
}

impl Job<'_> {
    /// Tells of a failure and counts it. An operand that goes into itself fails once, however many of the directories
    /// that its copy made it meets.
    pub(crate) fn fail(&self, error: &CopyError) {
        if let CopyError::Refused(Refusal::IntoItself { source_path, sink }) = error
            && !self.memory.first_into_itself(source_path, sink)
        {
            return;
        }
        Tally::add(&self.tally.failures, 1);
        self.report.failed(error);
    }

    /// Tells of a property that could not be kept. With mv that fails nothing: what counts is that the bytes arrived.
    pub(crate) fn not_kept(&self, error: &CopyError) {
        if self.settings.rules.moves {
            self.is_loose.store(true, Ordering::Relaxed);
            self.report.warned(error);
        } else {
            self.fail(error);
        }
    }

    /// Remembers a sink that a stop cut off.
    pub(crate) fn was_cut_off(&self, sink: OsString) {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).push(sink);
    }

    /// Hands the entries a worker still holds to whoever is free, because it goes into a large file.
    pub(crate) fn share_entries(&self, lane: &mut Lane, directory: &Arc<Directory>) {
        let entries = lane.give_up_entries();
        if !entries.is_empty() {
            self.pool.offer_walk(Walk::Batch(Arc::clone(directory), entries));
        }
    }
}
