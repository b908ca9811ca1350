//! Deferred registration of short jobs.
//!
//! A record that survives a power failure takes several syncs. A job that usually takes a moment
//! therefore gets its directory, lock and record only after [`PATIENCE`]. Until then its resume
//! state stays in memory. If an earlier run left a resume state, the job is registered immediately.

use super::{Call, Hold, Ledger, LogError, hold, identity, prune};
use haul_log::objects::Identity;
use haul_log::record::{Progress, Status};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Name of the file in a job directory that holds the resume state; only a resumable job has one.
pub(crate) const STATE: &str = "state";

/// Delay before a job is registered. Shorter runs write nothing.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Interval between two writes of progress.
const EVERY: Duration = Duration::from_secs(2);

/// Job that is registered if it runs long enough.
#[derive(Debug)]
pub struct Listing {
    /// The state directory.
    state: PathBuf,
    id: Identity,
    call: Call,
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    /// The job has not run for [`PATIENCE`] yet.
    NotYet,
    Listed(Box<Entered>),
    /// The registration failed. Holds the error until it is reported.
    Never(Option<LogError>),
    /// The job ended after it was registered.
    Over,
}

#[derive(Debug)]
struct Entered {
    hold: Hold,
    ledger: Ledger,
}

impl Listing {
    /// Prepares a job that is about to start: this command (`words` after the program's name) in
    /// the current directory. If an earlier run left a resume state, registers the job immediately.
    pub fn open(state: &Path, kind: &'static str, words: Vec<OsString>) -> Listing {
        let cwd = std::env::current_dir().unwrap_or_default();
        let id = identity(kind, &cwd, words.iter().map(|word| word.as_bytes()));
        let call = Call { kind, words, cwd };
        let listing = Listing { state: state.to_path_buf(), id, call, place: Mutex::new(Place::NotYet) };
        if hold::jobs_folder(state).join(id.to_hex()).join(STATE).exists() {
            listing.enter();
        }
        listing
    }

    /// Returns the job directory if the job is registered. The job's own files belong there.
    pub fn folder(&self) -> Option<PathBuf> {
        match &*self.lock() {
            Place::Listed(entered) => Some(entered.hold.folder().to_path_buf()),
            Place::NotYet | Place::Never(_) | Place::Over => None,
        }
    }

    /// Returns true if the job is registered, or was until it ended.
    pub fn was_listed(&self) -> bool {
        matches!(&*self.lock(), Place::Listed(_) | Place::Over)
    }

    /// Returns true if the job has not run long enough to be registered.
    pub fn is_short(&self) -> bool {
        matches!(&*self.lock(), Place::NotYet)
    }

    /// Returns the error of a failed registration, once.
    pub fn take_trouble(&self) -> Option<LogError> {
        match &mut *self.lock() {
            Place::Never(why) => why.take(),
            Place::NotYet | Place::Listed(_) | Place::Over => None,
        }
    }

    /// Returns true if the registration failed. The job then need not keep anything for a later
    /// run.
    pub fn is_given_up(&self) -> bool {
        matches!(&*self.lock(), Place::Never(_))
    }

    /// Runs the job and registers it after [`PATIENCE`]. From then on records the progress and
    /// calls `tick` every two seconds.
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
                let mut pause = PATIENCE;
                while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    self.enter();
                    if let Place::Listed(entered) = &*self.lock() {
                        // If the write fails, the older progress stays; the end is recorded
                        // separately.
                        let _ = entered.ledger.progress(progress());
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
        let mut place = self.lock();
        let Entered { hold, ledger } = match std::mem::replace(&mut *place, Place::Over) {
            Place::Listed(entered) => *entered,
            other => {
                *place = other;
                return Ok(());
            }
        };
        drop(place);
        ledger.end(status, exit, progress)?;
        if status == Status::Finished { hold.finish() } else { hold.release() }?;
        prune(&self.state)
    }

    fn enter(&self) {
        let mut place = self.lock();
        if !matches!(*place, Place::NotYet) {
            return;
        }
        let taken = Hold::take(&self.state, self.id, false).and_then(|hold| {
            let (ledger, _) = Ledger::begin(&hold, self.call.clone())?;
            Ok(Entered { hold, ledger })
        });
        *place = taken.map_or_else(|why| Place::Never(Some(why)), |entered| Place::Listed(Box::new(entered)));
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::jobs;

    fn listing(state: &Path) -> Listing {
        Listing::open(state, "verify", vec!["verify".into(), "w".into()])
    }

    #[test]
    fn a_short_job_leaves_nothing_and_one_that_was_listed_is_taken_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let short = listing(&state);
        assert_eq!(short.during(Progress::default, || (), || 7), 7);
        assert!(short.folder().is_none());
        short.end(Status::Finished, 0, Progress::default()).unwrap();
        assert!(!state.exists());
        let long = listing(&state);
        long.enter();
        let folder = long.folder().unwrap();
        // The second run gets the holder in an error and registers nothing.
        let second = listing(&state);
        second.enter();
        assert!(second.is_given_up() && second.folder().is_none());
        assert!(matches!(second.take_trouble(), Some(LogError::Held { .. })));
        assert!(second.take_trouble().is_none());
        std::fs::write(folder.join(STATE), "half").unwrap();
        long.end(Status::Stopped, 130, Progress::default()).unwrap();
        let found = jobs(&state).unwrap();
        assert_eq!((found.len(), found[0].status()), (1, Status::Stopped));
        let again = listing(&state);
        assert_eq!(again.folder().as_ref(), Some(&folder));
        std::fs::remove_file(folder.join(STATE)).unwrap();
        again.end(Status::Finished, 0, Progress::default()).unwrap();
        let found = jobs(&state).unwrap();
        assert_eq!((found[0].status(), found[0].whole().unwrap().runs), (Status::Finished, 2));
        // A short rerun of a finished job is not registered either.
        assert!(listing(&state).folder().is_none());
    }

    #[test]
    fn a_job_without_a_place_runs_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::write(&state, "no directory").unwrap();
        let listing = listing(&state);
        listing.enter();
        assert!(listing.is_given_up() && listing.take_trouble().is_some());
        assert_eq!(listing.during(Progress::default, || (), || 7), 7);
        listing.end(Status::Finished, 0, Progress::default()).unwrap();
    }
}
