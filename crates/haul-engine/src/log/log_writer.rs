//! Object log of a running job.

use super::folder::LogDir;
use super::group_timer::GroupTimer;
use super::locked_job::remove_empty;
use super::log_store::{LogStore, Reservation};
use super::{Holder, LockedJob, LogError, ResumeCheck, SyncPolicy};
use haul_log::objects::{FileKey, Flaw, Job, Log, ObjectSet, Order, Style, Subject, replay};
use haul_model::ObjectIndex;
use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Settings of an object log.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Layout of the log.
    pub style: Style,
    /// Sync policy.
    pub sync: SyncPolicy,
    /// If another process holds the job, wait instead of returning an error.
    pub wait: bool,
}

/// Contents of an existing log.
#[derive(Clone, Debug, Default)]
pub struct LogContents {
    /// Rejected parts of the log, each with the reason; for messages to the user.
    pub flaws: Vec<Flaw>,
    /// Previous holder if it did not release the job: it was killed, or its machine stopped.
    pub unclean_holder: Option<Holder>,
    /// Number of files that have durable objects.
    pub files: usize,
    /// Number of durable objects in all files.
    pub objects: u64,
}

impl LogContents {
    /// Returns the default re-check level: none after a clean exit, otherwise a sample. A log with
    /// damaged parts is treated like the log of an unclean exit, even if its other parts are valid.
    pub fn default_resume_check(&self) -> ResumeCheck {
        if self.unclean_holder.is_none() && self.flaws.is_empty() {
            ResumeCheck::None
        } else {
            ResumeCheck::Sample
        }
    }
}

/// Object log of a job, locked by this process. Any worker may add entries; one worker at a time
/// writes them.
#[derive(Debug)]
pub struct LogWriter {
    locked_job: LockedJob,
    sync: SyncPolicy,
    // Lock order: `folder` before `facts`.
    folder: Mutex<LogDir>,
    facts: Mutex<Facts>,
    /// Durable objects when the log was opened.
    before: haul_log::objects::Facts,
    /// Reservation in a shared [`LogStore`]; `None` for a log without a quota.
    reservation: Option<Reservation>,
}

/// Known objects, and the size of the part that is not written yet.
#[derive(Debug)]
struct Facts {
    log: Log,
    group_timer: GroupTimer,
    /// True if the last commit exceeded the quota. The log stays valid as it is and accepts no more
    /// entries.
    is_full: bool,
}

impl LogWriter {
    /// Locks the job and reads its object log.
    ///
    /// Damaged entries are dropped and listed in [`LogContents::flaws`]. The valid entries are
    /// rewritten in the layout that `settings` asks for; the rewrite also checks that the log is
    /// writable.
    ///
    /// # Errors
    /// Returns [`LogError::Held`] if another process holds the job, and [`LogError::Newer`] if a
    /// newer version of haul wrote the log. The job is left unchanged in both cases. Other errors
    /// mean that the directory or the log cannot be used; the next run then treats the job as
    /// interrupted.
    pub fn open(state: &Path, job: Job, settings: Settings) -> Result<(LogWriter, LogContents), LogError> {
        LogWriter::on(LockedJob::take(state, job.id, settings.wait)?, job, settings)
    }

    /// Same as [`LogWriter::open`], for the job of a client in a shared log store.
    ///
    /// # Errors
    /// Same as [`LogWriter::open`], and [`LogError::Full`] if a limit of the store is reached.
    pub fn within(
        log_store: &Arc<LogStore>,
        client: &[u8],
        job: Job,
        settings: Settings,
    ) -> Result<(LogWriter, LogContents), LogError> {
        // Reserve space before creating any file.
        let reservation = log_store.enter(job.id, client)?;
        let locked_job = LockedJob::take(log_store.state(), job.id, settings.wait)?;
        LogWriter::placed(locked_job, job, settings, Some(reservation))
    }

    /// Same as [`LogWriter::open`], for a job that this process holds already.
    ///
    /// # Errors
    /// Same as [`LogWriter::open`]. The job is released. If a newer version of haul wrote its log,
    /// the lock file is restored; otherwise the next run treats the job as interrupted.
    pub fn on(
        locked_job: LockedJob,
        job: Job,
        settings: Settings,
    ) -> Result<(LogWriter, LogContents), LogError> {
        LogWriter::placed(locked_job, job, settings, None)
    }

    fn placed(
        locked_job: LockedJob,
        job: Job,
        settings: Settings,
        reservation: Option<Reservation>,
    ) -> Result<(LogWriter, LogContents), LogError> {
        let mut folder = LogDir::open(locked_job.folder().join("log"), settings.sync.syncs())?;
        let found = replay(&job, &folder.read()?);
        if let Some(flaw) = found.flaws.iter().find(|flaw| matches!(flaw, Flaw::Newer { .. })) {
            // If the restore fails, the next run only treats the job as interrupted. The caller
            // reports the newer log.
            let _ = locked_job.restore();
            return Err(LogError::Newer { folder: folder.path().to_path_buf(), flaw: flaw.clone() });
        }
        let mut log = Log::resume(job, settings.style, random(), &found);
        let orders = log.commit();
        find_room(reservation.as_ref(), &folder, &orders)?;
        folder.perform(&orders)?;
        let contents = LogContents {
            unclean_holder: locked_job.unclean_holder().cloned(),
            files: found.facts.len(),
            objects: found.facts.iter().map(|(_, objects)| objects.len()).sum(),
            flaws: found.flaws,
        };
        let before = found.facts;
        let facts = Mutex::new(Facts { log, group_timer: GroupTimer::default(), is_full: false });
        let sync = settings.sync;
        Ok((LogWriter { locked_job, sync, folder: Mutex::new(folder), facts, before, reservation }, contents))
    }

    /// Returns the job directory.
    pub fn home(&self) -> &Path {
        self.locked_job.folder()
    }

    /// Returns the durable objects that the log listed when it was opened.
    pub fn before(&self) -> &haul_log::objects::Facts {
        &self.before
    }

    /// Registers a file that is in progress. Returns its key and its durable objects.
    ///
    /// When this function returns, the log entries for other versions of the file are revoked on
    /// disk, durably unless the policy is [`SyncPolicy::None`]. The caller may then overwrite the
    /// sink file.
    ///
    /// # Errors
    /// Returns [`LogError::TooManyObjects`] if the file has too many objects, and
    /// [`LogError::Full`] if the log accepts no more entries. Also returns the errors of
    /// [`LogWriter::commit`].
    pub fn file(&self, subject: &Subject) -> Result<(FileKey, ObjectSet), LogError> {
        let (key, known, revokes) = {
            let mut facts = self.facts.lock();
            let revokes = facts.log.knows_another(subject);
            if facts.is_full && (revokes || self.before.of(subject).is_none()) {
                return Err(self.full());
            }
            let key = facts.log.open(subject)?;
            (key, facts.log.known(key).cloned().unwrap_or_default(), revokes)
        };
        if revokes {
            self.commit_within_quota()?;
        }
        Ok((key, known))
    }

    /// Records that objects of a file are durable at the sink after a sync by the caller. Writes
    /// nothing before [`LogWriter::commit`].
    pub fn durable_together(&self, file: FileKey, objects: impl IntoIterator<Item = ObjectIndex>) {
        let mut facts = self.facts.lock();
        objects.into_iter().for_each(|object| facts.log.done(file, object));
    }

    /// Records that `object`, which has `bytes` bytes, is durable at the sink. Commits the group if
    /// it is due.
    ///
    /// # Errors
    /// Returns [`LogError::Full`] if the log accepts no more entries. Also returns the errors of
    /// [`LogWriter::commit`].
    pub fn durable(&self, file: FileKey, object: ObjectIndex, bytes: u64) -> Result<(), LogError> {
        let is_due = {
            let mut facts = self.facts.lock();
            if facts.is_full {
                return Err(self.full());
            }
            facts.log.done(file, object);
            facts.group_timer.add(bytes);
            self.sync == SyncPolicy::Object || facts.group_timer.due().is_by(Instant::now())
        };
        if is_due { self.commit() } else { Ok(()) }
    }

    /// Records that a file is complete: its content is durable and it has its final name.
    pub fn complete(&self, file: FileKey) {
        self.facts.lock().log.complete(file);
    }

    /// Revokes the log entries of a file. When this function returns, they are revoked on disk,
    /// durably unless the policy is [`SyncPolicy::None`]. Only then may the caller overwrite the
    /// sink file.
    ///
    /// # Errors
    /// Returns [`LogError::Full`] if the log accepts no more entries. Also returns the errors of
    /// [`LogWriter::commit`].
    pub fn revoke(&self, file: FileKey) -> Result<(), LogError> {
        {
            let mut facts = self.facts.lock();
            if facts.is_full {
                return Err(self.full());
            }
            facts.log.revoke(file);
        }
        self.commit_within_quota()
    }

    /// Commits and checks that the log is not full: a concurrent commit may have exceeded the
    /// quota.
    fn commit_within_quota(&self) -> Result<(), LogError> {
        self.commit()?;
        if self.facts.lock().is_full { Err(self.full()) } else { Ok(()) }
    }

    /// Writes the pending entries and syncs them according to the settings.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if a write fails; the next commit rewrites the whole log, so no
    /// data is lost. Returns [`LogError::Full`] once when the quota is used up; from then on the
    /// log accepts no more entries.
    pub fn commit(&self) -> Result<(), LogError> {
        let mut folder = self.folder.lock();
        if folder.is_interrupted() {
            self.facts.lock().log.start_over();
        }
        let orders = {
            let mut facts = self.facts.lock();
            facts.group_timer = GroupTimer::default();
            if facts.is_full {
                return Ok(());
            }
            let orders = facts.log.commit();
            find_room(self.reservation.as_ref(), &folder, &orders).inspect_err(|_| facts.is_full = true)?;
            orders
        };
        folder.perform(&orders).inspect_err(|_| {
            let mut facts = self.facts.lock();
            facts.log.start_over();
            facts.log.keep_names(|name| folder.may_have(name));
        })
    }

    fn full(&self) -> LogError {
        let Some(reservation) = &self.reservation else {
            unreachable!("only what has its place among others can be full")
        };
        reservation.full()
    }

    /// Stops the job before its end: writes and syncs all entries, so the next run has no reason to
    /// check the log.
    ///
    /// # Errors
    /// Same as [`LogWriter::commit`]. The job is released anyway, and the next run treats it as
    /// interrupted.
    pub fn close(self) -> Result<(), LogError> {
        self.commit()?;
        self.folder.lock().sync()?;
        self.locked_job.release()
    }

    /// Cancels the job before it starts: restores the lock file to its previous contents.
    pub fn restore(self) {
        // If the write fails, the next run only treats the job as interrupted.
        let _ = self.locked_job.restore();
    }

    /// Finishes the job: removes its log, and its directory unless a record is in it.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if a part of the job remains.
    pub fn finish(self) -> Result<(), LogError> {
        let LogWriter { locked_job, folder, facts, reservation, .. } = self;
        let mut folder = folder.into_inner();
        folder.perform(&facts.into_inner().log.finish())?;
        // Unknown files stay, and so does their directory.
        remove_empty(folder.path())?;
        if let Some(reservation) = &reservation {
            reservation.over();
        }
        locked_job.finish()
    }
}

/// Reserves space for the result of `orders` in a shared log store; without a store, always
/// succeeds.
fn find_room(reservation: Option<&Reservation>, folder: &LogDir, orders: &[Order]) -> Result<(), LogError> {
    reservation.map_or(Ok(()), |reservation| reservation.reserve(folder.lengths_after(orders)))
}

/// Returns a number for a new log, unlike that of any earlier log. The randomness is the seed of
/// the standard library's hash maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
