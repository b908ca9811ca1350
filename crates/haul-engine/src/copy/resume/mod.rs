//! A copy that can be gone on with: what of it is known to be durable, and what a later run makes of that.
//!
//! Workers tell what they wrote and finished; one thread makes groups of it durable and then says so, in the object log
//! and in the job's record. The law is the log's: durable first, logged second.
//!
//! A later run of the same job meets each file in one of four states.
//! - Finished: size and modification time are the source's, and its change time (ctime) lies in the range of those that the record knows
//!   to be durable. It is left alone.
//! - Under way, in the log: its logged objects are left alone, the others copied.
//! - Standing there, and nothing is known of it (the log was lost, the job ended within its last group, somebody else
//!   made it): its objects are compared with the source's, and only those that differ are written.
//! - Not there: it is copied.

mod behind;
mod file;
mod group;
mod kept;
mod sample;
mod there;

pub(crate) use file::{Fate, Logged};

use super::entry::is_same_time;
use super::error::CopyError;
use super::job::Job;
use super::report::Tally;
use crate::log::{self, Begun, Call, Found, Hold, Keeper, Ledger, LogError, Recheck, Settings, SyncPolicy};
use behind::Behind;
use group::Group;
use haul_log::objects::{Identity, Job as LoggedJob};
use haul_log::record::{JobRecord, Progress, Status};
use haul_model::{ByteLen, Geometry, Moment, ObjectSize};
use haul_sys::{FileKind, Stat};
use kept::KeptRanges;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A copy job that is to be logged.
#[derive(Clone, Debug)]
pub struct LogOrder {
    /// The state directory.
    pub state: PathBuf,
    /// What the job is told apart from others by.
    pub id: Identity,
    /// How the log is kept.
    pub settings: Settings,
    /// What is compared again of what an earlier run logged; `None`: as the end of that run suggests.
    pub recheck: Option<Recheck>,
    /// The size of objects.
    pub object: ObjectSize,
    /// The command.
    pub call: Call,
}

/// What was there of a job when it began.
#[derive(Debug)]
pub struct Earlier {
    /// The object log.
    pub found: Found,
    /// What the record said, of an earlier run that did not finish.
    pub record: Option<JobRecord>,
    /// What of it is compared again.
    pub recheck: Recheck,
    /// A run made nothing durable, and the machine was started since, as far as anything tells: all is compared.
    pub is_void: bool,
}

/// The log of a running copy.
#[derive(Debug)]
pub struct JobLog {
    ledger: Ledger,
    keeper: Keeper,
    sync: SyncPolicy,
    recheck: Recheck,
    object: ObjectSize,
    /// What the earlier run left.
    record: JobRecord,
    /// Something that was logged turned out not to hold: nothing else of the earlier run is taken at its word.
    is_distrusted: AtomicBool,
    /// The log could not be written, which was told.
    is_unwritten: AtomicBool,
    kept: Mutex<KeptRanges>,
    begun: Mutex<Begun>,
    /// The second at which `begun` was last told that the job goes on.
    heard: AtomicI64,
    group: Mutex<Group>,
    wake: Condvar,
    behind: Behind,
}

impl JobLog {
    /// Takes hold of a job and reads what is known of it.
    ///
    /// # Errors
    /// [`LogError`]: nothing was copied or changed then, at source and sink.
    pub fn begin(order: LogOrder) -> Result<(JobLog, Earlier), LogError> {
        let hold = Hold::take(&order.state, order.id, order.settings.wait)?;
        let (ledger, before) = Ledger::begin(&hold, order.call)?;
        let was_over = before.as_ref().is_some_and(|record| record.status == Status::Finished);
        // What a finished run made durable is there still.
        let durable = before.as_ref().map(|record| record.kept.clone()).unwrap_or_default();
        let record = before.filter(|_| !was_over);
        let job = LoggedJob { id: order.id, object: order.object };
        let (keeper, found) = Keeper::on(hold, job, order.settings)?;
        let was_begun = record.is_some() || found.files > 0;
        let mut begun = match was_over && !was_begun {
            true => Begun::default(),
            false => Begun::read(keeper.home(), was_begun)?,
        };
        // What was not synced is there as long as the machine lives.
        let is_void = begun.may_have_lost();
        begun.run(keeper.home(), log::now(), order.settings.sync)?;
        begun.goes_on(keeper.home(), log::now())?;
        let recheck = order.recheck.unwrap_or(if was_begun { found.unasked() } else { Recheck::None });
        let log = JobLog {
            ledger,
            keeper,
            sync: order.settings.sync,
            recheck,
            object: order.object,
            record: JobRecord { kept: durable.clone(), ..JobRecord::default() },
            is_distrusted: AtomicBool::new(is_void),
            is_unwritten: AtomicBool::new(false),
            kept: Mutex::new(KeptRanges::of(if is_void { Vec::new() } else { durable }, begun.past())),
            begun: Mutex::new(begun),
            heard: AtomicI64::new(0),
            group: Mutex::default(),
            wake: Condvar::new(),
            behind: Behind::default(),
        };
        Ok((log, Earlier { found, record, recheck, is_void }))
    }

    /// The job is over. What is known is kept for the next run, unless all is done.
    ///
    /// # Errors
    /// [`LogError::Io`]: the record or the log could not be written.
    pub fn close(self, status: Status, exit: u8, tally: &Tally) -> Result<(), LogError> {
        let is_over = status == Status::Finished;
        if is_over && !self.begun.lock().unwrap_or_else(PoisonError::into_inner).syncs() {
            // What is known of such runs goes with their end.
            self.ledger.keep(&[], self.sync.syncs())?;
        }
        self.ledger.end(status, exit, progress(tally))?;
        if !is_over {
            return self.keeper.close();
        }
        Begun::remove(self.keeper.home())?;
        self.keeper.finish()
    }

    /// Whether a sink is a file that an earlier run of this job finished, and need not be written into. Where its end was not clean, pieces
    /// of some of them are compared with the source; `open` opens both.
    pub(super) fn is_finished(
        &self,
        job: &Job<'_>,
        (sink, source): (&Stat, &Stat),
        open: impl FnOnce() -> io::Result<(OwnedFd, OwnedFd)>,
        path: impl FnOnce() -> OsString,
    ) -> bool {
        if self.recheck == Recheck::All || !self.claims_finished(sink, source) || self.is_distrusted() {
            return false;
        }
        let cut = Geometry::new(ByteLen(source.size), self.object);
        let mut pieces = sample::pieces(source, cut).peekable();
        if self.recheck == Recheck::None || pieces.peek().is_none() {
            return true;
        }
        // One that can't be read is looked into like any other, and that says why.
        let Ok(is_same) = open().and_then(|(source, sink)| sample::have_same((&source, &sink), pieces))
        else {
            return false;
        };
        if !is_same {
            self.distrust(job, path());
        }
        is_same
    }

    /// Compares a sink that looks finished with its source. Reports a false claim of the log.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub(super) fn is_whole(
        &self,
        job: &Job<'_>,
        (source, source_stat): (&OwnedFd, &Stat),
        (sink, sink_stat): (&OwnedFd, &Stat),
        path: impl FnOnce() -> OsString,
    ) -> io::Result<bool> {
        let is_same = sample::have_all((source, sink), source_stat.size)?;
        if !is_same && self.claims_finished(sink_stat, source_stat) {
            self.distrust(job, path());
        }
        Ok(is_same)
    }

    /// Whether the record says that a sink was finished and is durable.
    fn claims_finished(&self, sink: &Stat, source: &Stat) -> bool {
        let both = source.kind == FileKind::Regular && sink.kind == FileKind::Regular;
        let changed = Moment { sec: sink.ctime.sec, nsec: sink.ctime.nsec };
        let same = both && sink.size == source.size && is_same_time(sink, source);
        same && kept::tells_changes(sink) && self.record.keeps(sink.dev, changed)
    }

    fn is_distrusted(&self) -> bool {
        self.is_distrusted.load(Ordering::SeqCst)
    }

    /// Something of the earlier run does not hold. Told once; all else of it is compared from here on. Where all was compared from the
    /// start nothing was believed, and this is a warning.
    fn distrust(&self, job: &Job<'_>, path: OsString) {
        if self.is_distrusted.swap(true, Ordering::SeqCst) {
            return;
        }
        if self.recheck == Recheck::All {
            job.report.warned(&CopyError::LogMended { path });
        } else {
            job.fail(&CopyError::LogFalse { path });
        }
    }

    /// The log can't be written: told once. The copy goes on, and what is not logged is compared if it is cut off.
    fn unwritten(&self, job: &Job<'_>, error: LogError) {
        if !self.is_unwritten.swap(true, Ordering::Relaxed) {
            job.report.warned(&CopyError::Unlogged(Box::new(error)));
        }
    }

    /// The job goes on: how far the times of what it finishes may come is written down before they do. Looked at once a second.
    fn goes_on(&self, job: &Job<'_>) {
        let now = log::now();
        if self.heard.load(Ordering::Relaxed) == now.sec {
            return;
        }
        self.heard.store(now.sec, Ordering::Relaxed);
        let now = self.kept().latest().map_or(now, |latest| latest.max(now));
        let written = {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            begun.goes_on(self.keeper.home(), now)
        };
        written.unwrap_or_else(|error| self.unwritten(job, error));
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        // Each step leaves the group whole.
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, KeptRanges> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn progress(tally: &Tally) -> Progress {
    Progress {
        files_done: Tally::get(&tally.files_done),
        files_found: Tally::get(&tally.files_found),
        bytes_done: tally.bytes_through(),
        bytes_found: Tally::get(&tally.bytes_found),
    }
}
