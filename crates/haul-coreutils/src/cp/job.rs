//! State of one copy job, as the rules of cp see it.

use super::descriptors::sink_descriptor;
use super::directory::Identity;
use super::links::Memory;
use super::operand_walk::OperandWalk;
use super::rules::CopySettings;
use crate::half_read::HalfRead;
use crate::location::Location;
use haul_engine::copy::{
    CopyContext, CopyError, CopyObserver, CopySource, FileJob, JobObserver, Proof, Refusal, Tally,
};
use haul_storage::local::{OpenedFiles, Stream};
use haul_storage::{Dir, FileKind, Follow, Inode, Stat};
use haul_sys::open::open_stream_at;
use haul_sys::{process, stat, wait};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// True if the job began with a sink that did not exist, so that no file of another origin is
    /// in it.
    pub sink_is_own: bool,
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
    /// Context of the data path.
    pub(crate) context: CopyContext<'a>,
    /// Directories that wait half read.
    pub(crate) half_read: HalfRead,
    /// Entries found and created so far, as far as the rules need them.
    pub(crate) memory: Memory,
    /// The files that the job opened.
    pub(crate) opened: OpenedFiles,
    /// Effective user ID: 0 for root.
    pub(crate) user: u32,
    /// True if some metadata could not be preserved and a warning reported it.
    is_loose: AtomicBool,
    /// True if the names in some directory could not be synced.
    is_unsynced: AtomicBool,
    cut_off: Mutex<Vec<OsString>>,
    unstored: Mutex<Unstored>,
    new_file: Mutex<Option<OwnedFd>>,
    /// Operands that no longer wait for another one. The worker offers them at the end of its turn.
    ready: Mutex<Vec<OperandWalk>>,
}

impl<'a> Job<'a> {
    /// Creates the state of a job with at most `workers` workers, in a process that may open
    /// `open_files` files.
    pub(crate) fn new(
        settings: &'a CopySettings,
        observer: JobObserver<'a>,
        stop: &'a AtomicBool,
        memory: Memory,
        workers: usize,
        open_files: u64,
    ) -> Job<'a> {
        let moving = &settings.moving;
        let proof = Proof::new(moving);
        Job {
            settings,
            context: CopyContext { moving, log: settings.log.as_deref(), observer, proof, stop },
            half_read: HalfRead::new(workers, open_files),
            memory,
            opened: settings.place.as_ref().map(|place| place.storage().clone()).unwrap_or_default(),
            user: process::effective_user(),
            is_loose: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
            cut_off: Mutex::new(Vec::new()),
            unstored: Mutex::default(),
            new_file: Mutex::default(),
            ready: Mutex::default(),
        }
    }

    /// Returns the result of the job. `failures` is the number of its failures. `sink_is_own` goes
    /// into the result.
    pub(crate) fn outcome(self, failures: u64, sink_is_own: bool) -> Outcome {
        Outcome {
            failures,
            interrupted: self.context.is_stopping(),
            cut_off: self.cut_off.into_inner(),
            is_loose: self.is_loose.into_inner(),
            is_unsynced: self.is_unsynced.into_inner(),
            sink_is_own,
            new_file: self.new_file.into_inner(),
            unstored: self.unstored.into_inner(),
        }
    }

    /// Returns the counters of the job.
    pub(crate) fn tally(&self) -> &'a Tally {
        self.context.observer.tally
    }

    /// Returns the observer of the job.
    pub(crate) fn report(&self) -> &'a dyn CopyObserver {
        self.context.observer.report
    }

    /// Returns true if the job is to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.context.is_stopping()
    }

    /// Returns true if the file is the waybill that this job writes.
    pub(crate) fn is_own_waybill(&self, file: &Stat) -> bool {
        self.settings.moving.receipt.as_ref().is_some_and(|receipt| receipt.is(file))
    }

    /// Records that operands no longer wait for another one.
    pub(crate) fn make_ready(&self, operands: OperandWalk) {
        self.ready.lock().push(operands);
    }

    /// Records the end of a line of a batch. Lines that waited for it are ready.
    pub(crate) fn line_ended(&self, index: usize) {
        self.memory.lines.end(index).into_iter().for_each(|walk| self.make_ready(walk));
    }

    /// Takes the operands that no longer wait.
    pub(crate) fn take_ready(&self) -> Vec<OperandWalk> {
        std::mem::take(&mut *self.ready.lock())
    }

    /// Syncs the names in a directory, unless this user may read neither the directory nor one
    /// above it. Reports a failure.
    pub(crate) fn sync_directory(&self, sink: &dyn Dir, path: impl Fn() -> OsString) {
        match sink.sync() {
            Err(source) if source.kind() != io::ErrorKind::PermissionDenied => {
                self.is_unsynced.store(true, Ordering::Relaxed);
                self.fail(&CopyError::Failed { doing: "error syncing", path: path(), source });
            }
            _ => {}
        }
    }

    /// Reports and counts a failure. An operand that is copied into itself fails only once, even if
    /// the job meets several directories that the copy created.
    pub(crate) fn fail(&self, error: &CopyError) {
        if let CopyError::Refused(Refusal::IntoItself { source_path, sink }) = error
            && !self.memory.first_into_itself(source_path, sink)
        {
            return;
        }
        self.context.observer.fail(error);
    }

    /// Reports metadata that could not be preserved. For mv this is a warning and not a failure,
    /// because the bytes arrived.
    pub(crate) fn not_kept(&self, error: &CopyError) {
        if self.settings.rules.moves {
            self.is_loose.store(true, Ordering::Relaxed);
            self.context.observer.warn(error);
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

    /// Opens a source of this kind. Returns `None` if the job stopped while a pipe had no writer.
    ///
    /// # Errors
    /// Returns the errors of openat(2), and [`io::ErrorKind::InvalidInput`] if a file of another
    /// kind replaced a regular one.
    pub(crate) fn open_source(
        &self,
        place: &Location<'_>,
        kind: FileKind,
        follow: Follow,
    ) -> io::Result<Option<(CopySource, Stat)>> {
        if kind == FileKind::Regular {
            let file = place.source(follow, &self.opened)?;
            let opened = *file.opened();
            return Ok(Some((CopySource::of(file), opened)));
        }
        let (dir, name) = (place.base()?, place.name());
        let opened = match kind {
            FileKind::Fifo => wait::open_pipe_source_at(dir, name, follow, || self.is_stopping())?,
            _ => Some(open_stream_at(dir, name, follow)?),
        };
        let with_stat = |file: OwnedFd| {
            let opened = stat::stat_fd(&file)?;
            Ok((CopySource::Stream(Stream::new(file.into())), opened))
        };
        opened.map(with_stat).transpose()
    }

    /// Opens the device `device` of a sink for its syncs: by its directory, or by the sink itself
    /// if that is on another device, or if this user may not read the directory.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(crate) fn open_device(&self, sink: &Location<'_>, device: u64) -> io::Result<Arc<dyn Inode>> {
        if let Ok(held) = sink.hold_device(&self.opened)
            && held.device().id == device
        {
            return Ok(held);
        }
        let file = sink.source(Follow::Yes, &self.opened)?;
        match file.opened().dev == device {
            true => Ok(file),
            false => Err(io::Error::other("another file has this name now")),
        }
    }

    /// Keeps a new file open for the caller, who sets its owner and its mode.
    pub(crate) fn hold_new_file(&self, file: &FileJob<'_>) {
        match sink_descriptor(&file.sink).try_clone_to_owned() {
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
}
