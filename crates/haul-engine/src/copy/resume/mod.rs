//! Resumable copies: the objects known to be durable, and their use in a later run.
//!
//! Workers report the objects and files that they finished. One thread syncs them in groups and
//! then records them, in the object log and in the job's record. The invariant is that of the log:
//! durable first, logged second.
//!
//! A later run of the same job finds each file in one of four states.
//!
//! - Finished: size and modification time equal the source's, and the change time (ctime) is in a
//!   range that the record lists as durable. The file is left unchanged.
//! - In progress, in the log: its logged objects are left unchanged, and the others are copied.
//! - Existing, but unknown: the log was lost, the job ended within its last group, or another
//!   process created the file. Its objects are compared with the source's, and only those that
//!   differ are written.
//! - Missing: it is copied.
//!
//! After a failed sync, existing bytes that neither the record nor the log covers are not compared
//! but copied: the page cache may have them, and the device may not.

mod file;
mod group;
mod kept;
mod logged;
mod object;
mod sample;
mod writeback;

pub(crate) use file::ObjectAction;
pub use logged::Logged;

use super::age::is_same_time;
use super::error::CopyError;
use super::report::{JobObserver, Tally};
use crate::log::{
    self, CommandLine, LockedJob, LogContents, LogError, LogWriter, RecordWriter, ResumeCheck, RunHistory,
    Settings, SyncPolicy, unsynced,
};
use crate::settle::DeviceQueues;
use group::PendingGroup;
use haul_log::objects::{Identity, Job as LoggedJob};
use haul_log::record::{JobRecord, Progress, Status};
use haul_model::{ByteLen, Geometry, Moment, ObjectSize};
use haul_storage::{FileKind, SourceFile, Stat};
use kept::KeptRanges;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use writeback::WritebackQueue;

/// Parameters for logging a copy job.
#[derive(Clone, Debug)]
pub struct LogOrder {
    /// The state directory.
    pub state: PathBuf,
    /// Identity that distinguishes the job from others.
    pub id: Identity,
    /// Settings of the log.
    pub settings: Settings,
    /// Amount of the earlier run's log to compare again; `None` decides by how that run ended.
    pub recheck: Option<ResumeCheck>,
    /// Object size.
    pub object: ObjectSize,
    /// The command.
    pub command_line: CommandLine,
}

/// State of a job before this run.
#[derive(Debug)]
pub struct Earlier {
    /// The object log.
    pub found: LogContents,
    /// Record of an earlier run that did not finish.
    pub record: Option<JobRecord>,
    /// Amount of the earlier run's log to compare again.
    pub recheck: ResumeCheck,
    /// True if an earlier run synced nothing and the machine may have been rebooted since.
    /// Everything is compared then.
    pub is_void: bool,
}

/// The log of a running copy.
#[derive(Debug)]
pub struct JobLog {
    record_writer: RecordWriter,
    log_writer: LogWriter,
    sync: SyncPolicy,
    recheck: ResumeCheck,
    object: ObjectSize,
    /// Record of the earlier run.
    record: JobRecord,
    /// True if a sync failed in an earlier run. The page cache may then have bytes that the device
    /// lacks.
    was_unsynced: bool,
    /// True if a log entry turned out to be false. No other entry of the earlier run is trusted
    /// then.
    is_distrusted: AtomicBool,
    /// True if the log could not be written and that was reported.
    is_unwritten: AtomicBool,
    kept: Mutex<KeptRanges>,
    /// Locked while the durable ranges are recorded.
    keeping: Mutex<()>,
    run_history: Mutex<RunHistory>,
    /// Second of the last heartbeat.
    last_heartbeat: AtomicI64,
    groups: DeviceQueues<PendingGroup>,
    writeback: WritebackQueue,
}

impl JobLog {
    /// Locks a job and reads its earlier state.
    ///
    /// # Errors
    /// Returns a [`LogError`]. Nothing was copied or changed then, at source and sink.
    pub fn begin(order: LogOrder) -> Result<(JobLog, Earlier), LogError> {
        let locked_job = LockedJob::take(&order.state, order.id, order.settings.wait)?;
        let (record_writer, before) = RecordWriter::begin(&locked_job, order.command_line)?;
        let was_over = before.as_ref().is_some_and(|record| record.status == Status::Finished);
        // Files that a finished run synced still exist.
        let durable = before.as_ref().map(|record| record.kept.clone()).unwrap_or_default();
        let record = before.filter(|_| !was_over);
        let job = LoggedJob { id: order.id, object: order.object };
        let (log_writer, found) = LogWriter::on(locked_job, job, order.settings)?;
        let was_begun = record.is_some() || found.files > 0;
        let mut run_history = match was_over && !was_begun {
            true => RunHistory::default(),
            false => RunHistory::read(log_writer.home(), was_begun)?,
        };
        // Data that was not synced survives until the next reboot.
        let is_void = run_history.may_have_lost();
        let was_unsynced = unsynced::is_marked(log_writer.home())?;
        run_history.run(log_writer.home(), log::now(), order.settings.sync)?;
        run_history.heartbeat(log_writer.home(), log::now())?;
        let recheck =
            order.recheck.unwrap_or(if was_begun { found.default_resume_check() } else { ResumeCheck::None });
        let log = JobLog {
            record_writer,
            log_writer,
            sync: order.settings.sync,
            recheck,
            object: order.object,
            record: JobRecord { kept: durable.clone(), ..JobRecord::default() },
            was_unsynced,
            is_distrusted: AtomicBool::new(is_void),
            is_unwritten: AtomicBool::new(false),
            kept: Mutex::new(KeptRanges::of(if is_void { Vec::new() } else { durable }, run_history.past())),
            keeping: Mutex::default(),
            run_history: Mutex::new(run_history),
            last_heartbeat: AtomicI64::new(0),
            groups: DeviceQueues::default(),
            writeback: WritebackQueue::default(),
        };
        Ok((log, Earlier { found, record, recheck, is_void }))
    }

    /// Ends the job. Its state is kept for the next run, unless the job is finished.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the record or the log could not be written.
    pub fn close(self, status: Status, exit: u8, tally: &Tally) -> Result<(), LogError> {
        let is_over = status == Status::Finished;
        if is_over && !self.run_history.lock().syncs() {
            // The record of durable files is cleared at the end of a job with a run that did not
            // sync.
            self.record_writer.keep(&[], self.sync.syncs())?;
        }
        self.record_writer.end(status, exit, progress(tally))?;
        if !is_over {
            return self.log_writer.close();
        }
        RunHistory::remove(self.log_writer.home())?;
        unsynced::clear(self.log_writer.home())?;
        self.log_writer.finish()
    }

    /// Returns true if an earlier run of this job finished the sink, so that the sink needs no
    /// write. If that run did not end cleanly, pieces of some files are compared with the source;
    /// `open` opens both.
    pub fn is_finished(
        &self,
        observer: &JobObserver<'_>,
        sink: &Stat,
        source: &Stat,
        open: impl FnOnce() -> io::Result<(Arc<dyn SourceFile>, Arc<dyn SourceFile>)>,
        path: impl FnOnce() -> OsString,
    ) -> bool {
        if self.recheck == ResumeCheck::All || !self.claims_finished(sink, source) || self.is_distrusted() {
            return false;
        }
        let cut = Geometry::new(ByteLen(source.size), self.object);
        let mut pieces = sample::pieces(source, cut).peekable();
        if self.recheck == ResumeCheck::None || pieces.peek().is_none() {
            return true;
        }
        // A file that cannot be read is handled like any other, which reports the reason.
        let Ok(is_same) = open().and_then(|(source, sink)| sample::have_same(&*source, &*sink, pieces))
        else {
            return false;
        };
        if !is_same {
            self.distrust(observer, path());
        }
        is_same
    }

    /// Compares a sink that looks finished with its source. Reports a false log entry.
    ///
    /// # Errors
    /// Returns an error if one of the files cannot be read.
    pub fn is_whole(
        &self,
        observer: &JobObserver<'_>,
        source: &dyn SourceFile,
        sink: &dyn SourceFile,
        path: impl FnOnce() -> OsString,
    ) -> io::Result<bool> {
        let is_same = sample::have_all(source, sink, source.opened().size)?;
        if !is_same && self.claims_finished(sink.opened(), source.opened()) {
            self.distrust(observer, path());
        }
        Ok(is_same)
    }

    /// Returns true if the record says that a sink was finished and is durable.
    fn claims_finished(&self, sink: &Stat, source: &Stat) -> bool {
        let both = source.kind == FileKind::Regular && sink.kind == FileKind::Regular;
        let changed = Moment { sec: sink.ctime.sec, nsec: sink.ctime.nsec };
        let same = both && sink.size == source.size && is_same_time(sink, source);
        same && kept::has_own_change_time(sink) && self.record.keeps(sink.dev, changed)
    }

    /// Returns true if the device may lack the present bytes of a sink, although the page cache has
    /// them.
    pub fn may_lack(&self, sink: &Stat, source: &Stat) -> bool {
        self.was_unsynced && !self.claims_finished(sink, source)
    }

    /// Records that a sync failed. Files that were finished since the last sync look like finished
    /// ones, and the next run must not trust their bytes.
    fn mark_unsynced(&self, observer: &JobObserver<'_>) {
        unsynced::mark(self.log_writer.home()).unwrap_or_else(|error| self.unwritten(observer, error));
    }

    fn is_distrusted(&self) -> bool {
        self.is_distrusted.load(Ordering::SeqCst)
    }

    /// Records that an entry of the earlier run is false, and reports it once. From here on,
    /// everything of that run is compared. If everything was compared from the start, nothing was
    /// trusted, and this is only a warning.
    fn distrust(&self, observer: &JobObserver<'_>, path: OsString) {
        if self.is_distrusted.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.recheck == ResumeCheck::All {
            observer.warn(&CopyError::LogMended { path });
        } else {
            observer.fail(&CopyError::LogFalse { path });
        }
    }

    /// Reports once that the log cannot be written. The copy continues. If it is interrupted, the
    /// next run compares everything that is not logged.
    fn unwritten(&self, observer: &JobObserver<'_>, error: LogError) {
        if !self.is_unwritten.swap(true, Ordering::Relaxed) {
            observer.warn(&CopyError::Unlogged(Box::new(error)));
        }
    }

    /// Heartbeat: records an upper bound for the times of files before the job finishes them. Runs
    /// at most once per second.
    fn heartbeat(&self, observer: &JobObserver<'_>) {
        let now = log::now();
        if self.last_heartbeat.load(Ordering::Relaxed) == now.sec {
            return;
        }
        self.last_heartbeat.store(now.sec, Ordering::Relaxed);
        let now = self.kept().latest().map_or(now, |latest| latest.max(now));
        let written = {
            let mut run_history = self.run_history.lock();
            run_history.heartbeat(self.log_writer.home(), now)
        };
        written.unwrap_or_else(|error| self.unwritten(observer, error));
    }

    fn kept(&self) -> MutexGuard<'_, KeptRanges> {
        self.kept.lock()
    }
}

fn progress(tally: &Tally) -> Progress {
    Progress {
        files_done: Tally::get(&tally.files_done),
        files_found: Tally::get(&tally.files_found),
        bytes_done: tally.bytes_through(),
        bytes_found: Tally::get(&tally.bytes_found),
        is_counting: !tally.is_walked(),
    }
}
