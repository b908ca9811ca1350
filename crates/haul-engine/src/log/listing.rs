//! A job that is listed once it was worth that: short runs leave nothing behind and cost nothing.
//!
//! A record that outlasts a loss of power takes several syncs. So a job that most often takes a moment gets its folder, its lock and its record only
//! after [`PATIENCE`]; what it keeps to be gone on with waits in memory until then. Where an earlier run left a state to go on from, all is taken at once.

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

/// The file in a job's folder that says how far it came; only a job that can be gone on with has it.
pub(crate) const STATE: &str = "state";

/// Work shorter than this is not listed.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is written down how far the job came.
const EVERY: Duration = Duration::from_secs(2);

/// A job that may be listed.
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
    /// It has not run for long.
    NotYet,
    Listed(Box<Entered>),
    /// It can't be.
    Never(Option<LogError>),
    /// It ended, and was listed until then.
    Over,
}

#[derive(Debug)]
struct Entered {
    hold: Hold,
    ledger: Ledger,
}

impl Listing {
    /// A job that is about to begin: this command (`words` behind the program's name) in this directory. What an earlier run of it left is taken at once.
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

    /// The job's folder, if it is listed: what it keeps belongs there.
    pub fn folder(&self) -> Option<PathBuf> {
        match &*self.lock() {
            Place::Listed(entered) => Some(entered.hold.folder().to_path_buf()),
            Place::NotYet | Place::Never(_) | Place::Over => None,
        }
    }

    /// Whether the job is listed, or was until it ended.
    pub fn was_listed(&self) -> bool {
        matches!(&*self.lock(), Place::Listed(_) | Place::Over)
    }

    /// Returns true if the job was not worth to be listed so far.
    pub fn is_short(&self) -> bool {
        matches!(&*self.lock(), Place::NotYet)
    }

    /// Why the job can't be listed, if so; told once.
    pub fn take_trouble(&self) -> Option<LogError> {
        match &mut *self.lock() {
            Place::Never(why) => why.take(),
            Place::NotYet | Place::Listed(_) | Place::Over => None,
        }
    }

    /// Whether the job is not, and will not be, listed: nothing need be kept for a later run.
    pub fn is_given_up(&self) -> bool {
        matches!(&*self.lock(), Place::Never(_))
    }

    /// Runs the job. Once it was worth that it is listed; then it is written down every two seconds how far it came, and each time `tick` is called.
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
                        // Best effort: an older figure stays, and the end is written down by itself.
                        let _ = entered.ledger.progress(progress());
                    }
                    tick();
                    pause = EVERY;
                }
            };
            // Where no thread can be had the job is not listed, or what is told of it stays as it was.
            let _looking = thread::Builder::new().spawn_scoped(scope, look);
            // Let go at the end even when the job panics, or the scope would wait for the next look.
            let _done = done;
            job()
        })
    }

    /// The job ended. What it kept beside its record is its own to remove, before. Records of jobs that nobody was at for long go.
    ///
    /// # Errors
    /// [`LogError`]: the end could not be written down.
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
        // Whoever comes second is told who has it, and keeps nothing.
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
        // A short run of what is finished is not worth the syncs either.
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
