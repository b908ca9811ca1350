//! Object log of a sink: syncs received objects in groups and logs them, so that a rerun resumes.

use super::dirs::SinkDirs;
use super::incoming::IncomingFile;
use super::partial_file::{PartialFile, SYNC_FAILED};
use super::session_lock::{POLL_INTERVAL, SessionLock, lock_and_open, lock_session};
use super::{Destination, leftovers};
use crate::log::{
    self, GroupTimer, LogError, LogWriter, ResumeCheck, RunHistory, Settings, SyncPolicy, Target, command,
};
use crate::settle::{DeviceQueues, DeviceWork, Due, NextWork};
use crate::transfer::logs::LogLocation;
use crate::transfer::reason::reason;
use crate::transfer::report::Report;
use crate::transfer::resume;
use crate::transfer::source::moment;
use haul_log::objects::{FileKey, Identity, Job, ObjectSet, SourceVersion, Subject};
use haul_model::{Moment, Object, ObjectIndex, RelPath};
use haul_proto::{FileNumber, JobOptions, Reason};
use haul_storage::{Dir, Name, Remove, Stat, Tag};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of incomplete files kept: four times those in progress. Bounds memory for paths.
const KEPT_FILES_MAX: u64 = 16_384;

/// Object log of one running job, shared by all threads of the sink.
pub(in crate::transfer) struct SinkLog {
    log_writer: LogWriter,
    /// Lock file of the session, present until its work is done. `session_lock_name` is its name.
    session_lock: Mutex<Option<SessionLock>>,
    session_lock_name: Name,
    job: Job,
    begun: Mutex<RunHistory>,
    /// Start of this run: time of the sink's file system, and the local instant.
    started: (Moment, Instant),
    /// Seconds since the start of the run at the last extension of `begun`.
    last_heartbeat: AtomicI64,
    /// True if a run of the job preceded this one.
    has_earlier_run: bool,
    /// True if the job resumes within files.
    resumes_within_files: bool,
    pub(super) recheck: ResumeCheck,
    /// True if files without a log entry may be compared with the source.
    pub(super) compares: bool,
    sync: SyncPolicy,
    groups: DeviceQueues<PendingGroup>,
    /// Paths in the log of an earlier run that the source has not offered yet.
    unseen: Mutex<BTreeSet<RelPath>>,
    /// Paths in progress whose temporary file is named after the job and the path.
    in_progress: Mutex<HashSet<RelPath>>,
    /// Number of incomplete files kept under their temporary names.
    kept_files: AtomicU64,
    /// Number of files that arrived.
    received_files: AtomicU64,
    reported_errors: Mutex<BTreeSet<String>>,
}

/// Verified objects on one device that are not logged yet: the open group.
#[derive(Default)]
pub(super) struct PendingGroup {
    group_timer: GroupTimer,
    /// True if the group is committed as soon as possible.
    is_urgent: bool,
    files: HashMap<(FileNumber, u16), PendingFile>,
}

impl DeviceWork for PendingGroup {
    type Batch = Vec<PendingFile>;

    fn due(&self) -> Due {
        if self.is_urgent { Due::Now } else { self.group_timer.due() }
    }

    /// Takes all files of the group and starts a new group.
    fn take(&mut self) -> Vec<PendingFile> {
        std::mem::take(self).files.into_values().collect()
    }

    /// Returns true if the group has reached its limits while the previous group is being
    /// committed, or twice its limits because no worker is free. More would let the cost of an
    /// interruption grow with the memory that a slow device leaves dirty.
    fn is_full(&self, is_running: bool) -> bool {
        if is_running { self.group_timer.is_full() } else { self.group_timer.is_twice_full() }
    }
}

pub(super) struct PendingFile {
    attempt: u16,
    incoming: Arc<IncomingFile>,
    partial_file: Arc<PartialFile>,
    objects: Vec<(ObjectIndex, u64)>,
}

/// Parameters for opening a log.
pub(in crate::transfer) struct SinkLogConfig<'a> {
    /// Location of the log.
    pub(in crate::transfer) location: LogLocation<'a>,
    /// Job identifier from the side that started the job.
    pub(in crate::transfer) job: [u8; 16],
    /// Destination directory of the job.
    pub(in crate::transfer) root: &'a Path,
    /// Options of the job.
    pub(in crate::transfer) options: &'a JobOptions,
    /// Log settings.
    pub(in crate::transfer) settings: Settings,
    /// Share of the logged objects to compare again.
    pub(in crate::transfer) recheck: Option<ResumeCheck>,
    /// Destination, recorded next to the log.
    pub(in crate::transfer) target: Option<Target>,
    /// Job of the command's record, if that record is in the same state directory.
    pub(in crate::transfer) command: Option<Identity>,
    /// Set to `true` to cancel the wait for a lock.
    pub(in crate::transfer) stop: &'a AtomicBool,
}

impl SinkLog {
    /// Locks and opens the object log of the job. Reports every part of the log that it rejects.
    ///
    /// # Errors
    /// Returns [`LogError::Held`] if another process or session runs the job. Any other error means
    /// that the log cannot be used.
    pub(in crate::transfer) fn open(
        config: &SinkLogConfig<'_>,
        destination: &Destination,
        report: &dyn Report,
    ) -> Result<SinkLog, LogError> {
        let root = config.root.canonicalize().unwrap_or_else(|_| config.root.to_path_buf());
        let name = [&config.job[..], root.as_os_str().as_encoded_bytes()].concat();
        let id = match config.location {
            LogLocation::Own(_) => Identity::of(&name),
            // Mix in the client identity, so that clients cannot reach each other's jobs.
            LogLocation::Guest(_, client) => Identity::of(&[&Identity::of(client).0[..], &name].concat()),
        };
        let job = Job { id, object: config.options.object };
        let (log_writer, found) = lock_and_open(config, job)?;
        found
            .flaws
            .iter()
            .for_each(|flaw| report.note(&format!("{flaw}; its objects will be compared again")));
        let mut begun = RunHistory::read(log_writer.home(), found.files > 0)?;
        if begun.is_lost() {
            let home = log_writer.home().display();
            report.note(&format!(
                "{home}: run history missing or damaged; all logged objects will be compared again"
            ));
        }
        let has_earlier_run = begun.is_some();
        let recheck = config.recheck.unwrap_or(found.default_resume_check());
        let recheck = if begun.may_have_lost() { ResumeCheck::All } else { recheck };
        let (session_lock, now) = match lock_session(config, &destination.dirs, id) {
            Err(error @ LogError::Held { .. }) => {
                log_writer.restore();
                return Err(error);
            }
            set => set?,
        };
        let written = begun.run(log_writer.home(), now, config.settings.sync);
        let written = written.and_then(|()| match &config.target {
            Some(target) => target.write(log_writer.home()),
            None => Ok(()),
        });
        if let Err(error) = written {
            session_lock.release();
            if !has_earlier_run {
                // There is nothing to resume. Ignore errors, because the first one is reported.
                let _ = RunHistory::remove(log_writer.home());
                let _ = Target::remove(log_writer.home());
                let _ = log_writer.finish();
            }
            return Err(error);
        }
        // Ignore an error: `haul jobs` then lists the log as a separate job.
        config.command.iter().for_each(|&job| _ = command::write(log_writer.home(), job));
        let unseen = log_writer.before().iter().map(|(subject, _)| subject.path.clone()).collect();
        let sync = config.settings.sync;
        Ok(SinkLog {
            log_writer,
            session_lock_name: session_lock.name().clone(),
            session_lock: Mutex::new(Some(session_lock)),
            job,
            begun: Mutex::new(begun),
            started: (now, Instant::now()),
            last_heartbeat: AtomicI64::new(0),
            has_earlier_run,
            resumes_within_files: resume::resumes_within_files(config.options),
            recheck,
            compares: config.recheck != Some(ResumeCheck::None),
            sync,
            groups: DeviceQueues::default(),
            unseen: Mutex::new(unseen),
            in_progress: Mutex::default(),
            kept_files: AtomicU64::new(0),
            received_files: AtomicU64::new(0),
            reported_errors: Mutex::default(),
        })
    }

    /// Returns true if an earlier run did not finish: it may have left temporary files.
    pub(super) fn has_earlier_run(&self) -> bool {
        self.has_earlier_run
    }

    /// Returns true if the job resumes within files. Otherwise no objects are logged.
    pub(super) fn resumes_within_files(&self) -> bool {
        self.resumes_within_files
    }

    /// Returns true if this run resumes an earlier one.
    pub(in crate::transfer) fn resumes(&self) -> bool {
        self.has_earlier_run && self.resumes_within_files
    }

    /// Claims the path of a file in progress. Returns false if another file has claimed it: a
    /// source may send two files to one path.
    pub(super) fn claim(&self, path: &RelPath) -> bool {
        self.in_progress.lock().insert(path.clone())
    }

    /// Releases a claimed path. The caller has renamed or removed the path's temporary file before,
    /// unless it is kept.
    pub(super) fn release(&self, path: &RelPath) {
        self.in_progress.lock().remove(path);
    }

    /// Returns the tag of the temporary name of a file of this job.
    pub(super) fn tag(&self, path: &RelPath) -> Tag {
        leftovers::tag(self.job.id, path.as_bytes())
    }

    /// Checks if an earlier run of the job received the existing file `found`. Returns `None` if
    /// its times rule that out. `Some(true)` means that its bytes are present, and `Some(false)`
    /// that the caller must compare them.
    pub(super) fn received_by_earlier_run(
        &self,
        found: &Stat,
        in_place: bool,
        is_durable: bool,
    ) -> Option<bool> {
        // A new file is created under its temporary name, so its birth time counts. A file written
        // in place changes, so its change time counts.
        let at = moment(found.btime.filter(|_| !in_place).unwrap_or(found.ctime));
        let begun = self.begun.lock();
        if !self.resumes() || !begun.covers(at) {
            return None;
        }
        let is_there = (is_durable || begun.covers_this_boot(at)) && !begun.is_future(at);
        Some(is_there && self.recheck != ResumeCheck::All)
    }

    /// Returns the log entry of a file whose temporary file has the metadata `sink`.
    pub(super) fn entry_for(&self, incoming: &IncomingFile, sink: &Stat) -> LogEntry {
        let subject = subject(incoming, sink);
        let before = self.log_writer.before();
        if before.of(&subject).is_some()
            && let Ok((key, objects)) = self.log_writer.file(&subject)
        {
            return LogEntry::Logged(key, objects);
        }
        match before.versions(&subject.path).any(|other| other.source != subject.source) {
            true => LogEntry::OtherVersion,
            false => LogEntry::NoEntry,
        }
    }

    /// Revokes the log entries of a file. They are durably revoked on return.
    pub(super) fn revoke(&self, key: FileKey) -> Result<(), LogError> {
        self.log_writer.revoke(key)
    }

    /// Revokes all log entries of a path whose file is gone: none may count for a new file.
    pub(super) fn discard_entries(&self, path: &RelPath) -> Result<(), LogError> {
        for subject in self.log_writer.before().versions(path) {
            let (key, _) = self.log_writer.file(subject)?;
            self.log_writer.revoke(key)?;
            self.log_writer.complete(key);
        }
        Ok(())
    }

    /// Records that the source has offered the path.
    pub(super) fn mark_seen(&self, path: &RelPath) {
        self.unseen.lock().remove(path);
    }

    /// Adds a received and verified object to the group.
    pub(super) fn object_verified(
        &self,
        number: FileNumber,
        attempt: u16,
        object: Object,
        incoming: Arc<IncomingFile>,
        partial_file: Arc<PartialFile>,
    ) {
        incoming.mark_kept();
        self.groups.add(partial_file.file.device().id, |group| {
            group.group_timer.add(object.range.len());
            group.is_urgent = self.sync == SyncPolicy::Object;
            let waiting = group.files.entry((number, attempt)).or_insert_with(|| PendingFile {
                attempt,
                incoming,
                partial_file,
                objects: Vec::new(),
            });
            waiting.objects.push((object.index, object.range.len()));
        });
    }

    /// Returns true if a thread that adds objects has to wait.
    pub(super) fn is_full(&self) -> bool {
        self.groups.is_full()
    }

    /// Waits at most `within` until the group accepts more objects. Returns true if it does.
    pub(super) fn wait_for_capacity(&self, within: Duration) -> bool {
        self.groups.wait_for_capacity(within)
    }

    /// Records that a file is complete under its final name.
    pub(super) fn complete(&self, partial_file: Option<&PartialFile>) {
        self.received_files.fetch_add(1, Ordering::Relaxed);
        self.heartbeat();
        self.forget(partial_file);
    }

    /// Extends the recorded time bound of the run before files with later times exist. Does so once
    /// a second at most. Skips the first second, because a short run would wait for the sync.
    fn heartbeat(&self) {
        let (at, started) = self.started;
        let passed = i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX);
        if self.last_heartbeat.load(Ordering::Relaxed) == passed {
            return;
        }
        self.last_heartbeat.store(passed, Ordering::Relaxed);
        let there = Moment { sec: at.sec.saturating_add(passed), ..at };
        // Ignore an error: the next call, a second later, tries again.
        let _ = self.begun.lock().heartbeat(self.log_writer.home(), there.max(log::now()));
    }

    /// Deletes the log entries of a file that did not arrive and of which nothing is kept.
    pub(super) fn forget(&self, partial_file: Option<&PartialFile>) {
        if let Some(key) = partial_file.and_then(|partial_file| partial_file.logged.get()) {
            self.log_writer.complete(*key);
        }
    }

    /// Reserves a slot for an incomplete file; false if [`KEPT_FILES_MAX`] are kept already.
    pub(super) fn try_keep_partial(&self) -> bool {
        let one_more = |kept: u64| (kept < KEPT_FILES_MAX).then(|| kept + 1);
        self.kept_files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Commits groups as they become due, until the session is over. Passes each file that cannot
    /// be synced to `fail`, with its attempt and one of its objects. `start` starts another thread
    /// that does the same, if none is left for other devices.
    pub(super) fn run(
        &self,
        report: &dyn Report,
        start: impl Fn() -> bool,
        fail: impl Fn((FileNumber, u16), ObjectIndex, &Reason),
    ) {
        loop {
            let next = self.groups.next(POLL_INTERVAL);
            self.heartbeat();
            match next {
                NextWork::Run(mut taken) => {
                    if let Some(Err(error)) = taken.batch(&start).map(|group| self.write(group, &fail)) {
                        self.report_once(report, &error);
                    }
                }
                NextWork::Nothing => {}
                NextWork::Over => return,
            }
        }
    }

    /// Ends [`SinkLog::run`], which first commits the remaining objects.
    pub(super) fn finish(&self) {
        self.groups.end();
    }

    /// Syncs the objects of a group, and then logs them.
    fn write(
        &self,
        group: Vec<PendingFile>,
        fail: impl Fn((FileNumber, u16), ObjectIndex, &Reason),
    ) -> Result<(), LogError> {
        let mut failed = Ok(());
        for PendingFile { attempt, incoming, partial_file, objects } in group {
            match partial_file.sync_for_log(self.sync != SyncPolicy::None) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    let file = (incoming.facts.number, attempt);
                    let reason = reason(SYNC_FAILED, &error);
                    objects.first().iter().for_each(|(object, _)| fail(file, *object, &reason));
                    continue;
                }
            }
            let logged = self.key(&incoming, &partial_file).and_then(|key| {
                let mut each = objects.iter();
                each.try_for_each(|(object, len)| self.log_writer.durable(key, *object, *len)).map(|()| key)
            });
            match logged {
                // The file was renamed to its final name meanwhile.
                Ok(key) if partial_file.has_ended() => self.log_writer.complete(key),
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
        }
        self.log_writer.commit().and(failed)
    }

    fn key(&self, incoming: &IncomingFile, partial_file: &PartialFile) -> Result<FileKey, LogError> {
        if let Some(key) = partial_file.logged.get() {
            return Ok(*key);
        }
        let stat = partial_file.file.stat().map_err(LogError::sink)?;
        let (key, _) = self.log_writer.file(&subject(incoming, &stat))?;
        Ok(*partial_file.logged.get_or_init(|| key))
    }

    /// Reports each error once.
    pub(super) fn report_once(&self, report: &dyn Report, error: &LogError) {
        let text = error.to_string();
        if self.reported_errors.lock().insert(text.clone()) {
            report.note(&format!(
                "{text}; objects that are not logged will be sent again if the job is interrupted"
            ));
        }
    }

    /// Ends the session. Keeps the log if incomplete files are kept, or if an unfinished session
    /// has something to resume. Otherwise deletes the log.
    pub(in crate::transfer) fn end(
        self,
        destination: &Destination,
        is_finished: bool,
    ) -> Result<(), LogError> {
        let kept = self.kept_files.load(Ordering::Relaxed);
        // A job that does not resume within files keeps its log only for leftovers.
        let has_arrived = self.received_files.load(Ordering::Relaxed) > 0 && self.resumes_within_files;
        let has_done = has_arrived || self.has_earlier_run;
        if is_finished {
            let unseen = std::mem::take(&mut *self.unseen.lock());
            unseen.iter().for_each(|path| self.remove(&destination.dirs, path));
            if self.has_earlier_run {
                // Ignore an error, as in `remove`.
                let _ = destination.dirs.open(b"").and_then(|root| self.sweep(&*root, b""));
            }
        }
        self.remove_session_lock();
        let log_writer = self.log_writer;
        if kept > 0 || (!is_finished && has_done) {
            return log_writer.close();
        }
        RunHistory::remove(log_writer.home())?;
        Target::remove(log_writer.home())?;
        command::remove(log_writer.home())?;
        log_writer.finish()
    }

    /// Removes the session's lock file. Call this when no file is in progress, before the end is
    /// reported.
    pub(super) fn remove_session_lock(&self) {
        if let Some(session_lock) = self.session_lock.lock().take() {
            session_lock.release();
        }
    }

    /// Removes what earlier runs left in a directory of files that the source no longer has and of
    /// which no object is logged. Requires that the source has offered all entries of the
    /// directory.
    pub(super) fn sweep(&self, dir: &dyn Dir, directory: &[u8]) -> io::Result<()> {
        let is_in = |path: &RelPath| {
            let path = path.as_bytes();
            let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path[..end] == *directory
        };
        let mut stay: HashSet<Name> = self
            .in_progress
            .lock()
            .iter()
            .filter(|path| is_in(path))
            .map(|path| self.tag(path).name())
            .collect();
        stay.insert(self.session_lock_name.clone());
        leftovers::sweep(dir, self.job.id, &stay)
    }

    /// Removes the temporary file of a file that the source no longer has.
    fn remove(&self, dirs: &SinkDirs, path: &RelPath) {
        // Ignore an error: the temporary name is unique, so it conflicts with no other file.
        let left = dirs.entry(path.as_bytes());
        let _ = left.and_then(|at| at.dir.remove(&self.tag(path).name(), Remove::File));
    }
}

/// Log entry of a file.
pub(super) enum LogEntry {
    /// These objects of this version are durable in this file.
    Logged(FileKey, ObjectSet),
    /// The log has entries of another version of the file only.
    OtherVersion,
    /// The log has no usable entry.
    NoEntry,
}

/// Returns the log's subject for a file in progress.
fn subject(incoming: &IncomingFile, sink: &Stat) -> Subject {
    let facts = &incoming.facts;
    let identity = facts.version.map(Identity).unwrap_or_default();
    let source = SourceVersion { size: facts.size(), mtime: facts.mtime, identity };
    let birth = sink.btime.unwrap_or_default();
    let mut bytes = Vec::new();
    for part in [sink.dev, sink.ino, birth.sec.cast_unsigned(), u64::from(birth.nsec)] {
        bytes.extend_from_slice(&part.to_le_bytes());
    }
    Subject { path: incoming.path.clone(), source, sink: Identity::of(&bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::GROUP_BYTES;

    /// A group once held all objects received during a slow sync, and a kill sent all of them
    /// again.
    #[test]
    fn full_group_accepts_no_more_while_another_commits() {
        let mut group = PendingGroup::default();
        group.group_timer.add(2 * GROUP_BYTES - 1);
        assert!(!group.is_full(false), "it is taken at once");
        group.group_timer.add(1);
        assert!(group.is_full(false), "no worker takes it");
        assert!(group.is_full(true));
        assert!(group.take().is_empty() && !group.is_full(true) && group.due() == Due::Never);
        group.group_timer.add(GROUP_BYTES - 1);
        assert!(!group.is_full(true));
        group.group_timer.add(1);
        assert!(group.is_full(true) && !group.is_full(false));
    }
}
