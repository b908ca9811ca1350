//! Deferred registration of short jobs.
//!
//! A record that survives a power failure takes several syncs. A job that usually takes a moment
//! therefore gets its directory, lock and record only after [`REGISTER_AFTER`]. Until then its
//! resume state stays in memory. If an earlier run left a resume state, the job is registered
//! immediately.

use super::{CommandLine, LockedJob, LogError, RecordWriter, identity, locked_job, prune};
use haul_log::objects::Identity;
use haul_log::record::{Progress, Status};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Name of the file in a job directory that holds the resume state; only a resumable job has one.
pub(crate) const STATE: &str = "state";

/// Delay before a job is registered. Shorter runs write nothing.
pub const REGISTER_AFTER: Duration = Duration::from_secs(1);

/// Interval between two writes of progress.
const EVERY: Duration = Duration::from_secs(2);

/// Job that is registered if it runs long enough.
#[derive(Debug)]
pub struct DeferredRecord {
    /// The state directory.
    state: PathBuf,
    id: Identity,
    command_line: CommandLine,
    record_state: Mutex<RecordState>,
}

#[derive(Debug)]
enum RecordState {
    /// The job has not run for [`REGISTER_AFTER`] yet.
    NotYet,
    Registered(Box<RegisteredJob>),
    /// The registration failed. Holds the error until it is reported.
    Failed(Option<LogError>),
    /// The job ended after it was registered.
    Ended,
}

#[derive(Debug)]
struct RegisteredJob {
    locked_job: LockedJob,
    record_writer: RecordWriter,
}

impl DeferredRecord {
    /// Prepares a job that is about to start: this command (`words` after the program's name) in
    /// the current directory. If an earlier run left a resume state, registers the job immediately.
    pub fn open(state: &Path, kind: &'static str, words: Vec<OsString>) -> DeferredRecord {
        let cwd = std::env::current_dir().unwrap_or_default();
        let id = identity(kind, &cwd, words.iter().map(|word| word.as_bytes()));
        let command_line = CommandLine { kind, words, cwd };
        let deferred_record = DeferredRecord {
            state: state.to_path_buf(),
            id,
            command_line,
            record_state: Mutex::new(RecordState::NotYet),
        };
        if locked_job::jobs_folder(state).join(id.to_hex()).join(STATE).exists() {
            deferred_record.enter();
        }
        deferred_record
    }

    /// Returns the job directory if the job is registered. The job's own files belong there.
    pub fn folder(&self) -> Option<PathBuf> {
        match &*self.lock() {
            RecordState::Registered(entered) => Some(entered.locked_job.folder().to_path_buf()),
            RecordState::NotYet | RecordState::Failed(_) | RecordState::Ended => None,
        }
    }

    /// Returns true if the job is registered, or was until it ended.
    pub fn was_registered(&self) -> bool {
        matches!(&*self.lock(), RecordState::Registered(_) | RecordState::Ended)
    }

    /// Returns true if the job has not run long enough to be registered.
    pub fn is_short(&self) -> bool {
        matches!(&*self.lock(), RecordState::NotYet)
    }

    /// Returns the error of a failed registration, once.
    pub fn take_error(&self) -> Option<LogError> {
        match &mut *self.lock() {
            RecordState::Failed(why) => why.take(),
            RecordState::NotYet | RecordState::Registered(_) | RecordState::Ended => None,
        }
    }

    /// Returns true if the registration failed. The job then need not keep anything for a later
    /// run.
    pub fn is_given_up(&self) -> bool {
        matches!(&*self.lock(), RecordState::Failed(_))
    }

    /// Runs the job and registers it after [`REGISTER_AFTER`]. From then on records the progress
    /// and calls `tick` every two seconds.
    pub fn during<T>(
        &self,
        progress: impl Fn() -> Progress + Sync,
        tick: impl Fn() + Sync,
        job: impl FnOnce() -> T,
    ) -> T {
        let (done, over) = channel::<()>();
        thread::scope(|scope| {
            let (progress, tick) = (&progress, &tick);
            let look = move || {
                let mut pause = REGISTER_AFTER;
                while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    self.enter();
                    if let RecordState::Registered(entered) = &*self.lock() {
                        // If the write fails, the older progress stays; the end is recorded
                        // separately.
                        let _ = entered.record_writer.progress(progress());
                    }
                    tick();
                    pause = EVERY;
                }
            };
            // If no thread can be created, the job is not registered, or its recorded progress
            // stays unchanged.
            let _looking = thread::Builder::new().spawn_scoped(scope, look);
            // Dropped at the end even if the job panics; otherwise the scope would wait for the
            // next interval.
            let _done = done;
            job()
        })
    }

    /// Records the end of the job and deletes old jobs. The caller must remove the job's own files
    /// first.
    ///
    /// # Errors
    /// Returns an error if the end cannot be recorded, if the job cannot be released, or if
    /// [`prune`] fails.
    pub fn end(&self, status: Status, exit: u8, progress: Progress) -> Result<(), LogError> {
        let mut record_state = self.lock();
        let RegisteredJob { locked_job, record_writer } =
            match std::mem::replace(&mut *record_state, RecordState::Ended) {
                RecordState::Registered(entered) => *entered,
                other => {
                    *record_state = other;
                    return Ok(());
                }
            };
        drop(record_state);
        record_writer.end(status, exit, progress)?;
        if status == Status::Finished { locked_job.finish() } else { locked_job.release() }?;
        prune(&self.state)
    }

    fn enter(&self) {
        let mut record_state = self.lock();
        if !matches!(*record_state, RecordState::NotYet) {
            return;
        }
        let taken = LockedJob::take(&self.state, self.id, false).and_then(|locked_job| {
            let (record_writer, _) = RecordWriter::begin(&locked_job, self.command_line.clone())?;
            Ok(RegisteredJob { locked_job, record_writer })
        });
        *record_state = taken.map_or_else(
            |why| RecordState::Failed(Some(why)),
            |entered| RecordState::Registered(Box::new(entered)),
        );
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.record_state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::jobs;

    fn deferred_record(state: &Path) -> DeferredRecord {
        DeferredRecord::open(state, "verify", vec!["verify".into(), "w".into()])
    }

    #[test]
    fn short_job_leaves_nothing_and_listed_job_is_taken_immediately() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let short = deferred_record(&state);
        assert_eq!(short.during(Progress::default, || (), || 7), 7);
        assert!(short.folder().is_none());
        short.end(Status::Finished, 0, Progress::default()).unwrap();
        assert!(!state.exists());
        let long = deferred_record(&state);
        long.enter();
        let folder = long.folder().unwrap();
        // The second run gets the holder in an error and registers nothing.
        let second = deferred_record(&state);
        second.enter();
        assert!(second.is_given_up() && second.folder().is_none());
        assert!(matches!(second.take_error(), Some(LogError::Held { .. })));
        assert!(second.take_error().is_none());
        std::fs::write(folder.join(STATE), "half").unwrap();
        long.end(Status::Stopped, 130, Progress::default()).unwrap();
        let found = jobs(&state).unwrap();
        assert_eq!((found.len(), found[0].status()), (1, Status::Stopped));
        let again = deferred_record(&state);
        assert_eq!(again.folder().as_ref(), Some(&folder));
        std::fs::remove_file(folder.join(STATE)).unwrap();
        again.end(Status::Finished, 0, Progress::default()).unwrap();
        let found = jobs(&state).unwrap();
        assert_eq!((found[0].status(), found[0].whole().unwrap().runs), (Status::Finished, 2));
        // A short rerun of a finished job is not registered either.
        assert!(deferred_record(&state).folder().is_none());
    }

    #[test]
    fn job_runs_if_the_state_directory_is_unusable() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::write(&state, "no directory").unwrap();
        let deferred_record = deferred_record(&state);
        deferred_record.enter();
        assert!(deferred_record.is_given_up() && deferred_record.take_error().is_some());
        assert_eq!(deferred_record.during(Progress::default, || (), || 7), 7);
        deferred_record.end(Status::Finished, 0, Progress::default()).unwrap();
    }
}
