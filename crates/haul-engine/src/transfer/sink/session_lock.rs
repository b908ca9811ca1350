//! Session lock of a job: a locked file in the destination directory, present while a session runs
//! the job.
//!
//! Temporary names depend only on the job. Two concurrent sessions would therefore write to and
//! rename each other's temporary files. If two runs keep the job's log in different places, this
//! file is the only lock that they share.

use super::dirs::{EntryAt, SinkDirs};
use super::leftovers;
use super::object_log::SinkLogConfig;
use crate::log::{Holder, LogError, LogWriter};
use crate::transfer::logs::LogLocation;
use crate::transfer::source::moment;
use haul_log::objects::{Identity, Job};
use haul_model::Moment;
use haul_storage::{Create, Follow, Missing, Name, SinkFile};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum time to wait for a lock: a disconnected session needs some seconds to release it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Polling interval for locks and for the age of a group.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of attempts to create the lock file while other sessions create and remove it.
const MAX_ATTEMPTS: u32 = 100;

/// An empty, locked file. On a file system without locks the file provides no exclusion.
#[derive(Debug)]
pub(super) struct SessionLock {
    at: EntryAt,
    /// Open lock file; closing it releases the lock.
    _file: Arc<dyn SinkFile>,
}

impl SessionLock {
    /// Creates and locks the session lock of a job. Returns the lock and the current time of the
    /// sink's file system, because the clock of a file server can differ. Makes no further attempt
    /// once `stop` is true.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another session holds the lock, or if `stop`
    /// ended the attempts, and [`io::ErrorKind::AlreadyExists`] if the name belongs to something
    /// that is not a regular file. Any other error means that the lock file cannot be created.
    pub(super) fn acquire(
        dirs: &SinkDirs,
        job: Identity,
        stop: &AtomicBool,
    ) -> io::Result<(SessionLock, Moment)> {
        let name = Name::new(format!(".haul-{:016x}-begun", leftovers::tag(job, b"").session));
        let at = EntryAt { dir: dirs.open(b"")?, name: name.ok_or(io::ErrorKind::InvalidFilename)? };
        let mut others = 0;
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 && stop.load(Ordering::Relaxed) {
                break;
            }
            let file = match at.dir.sink(&at.name, Create::New { mode: 0o600 }) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    others += u32::from(!remove_stale(&at)?);
                    continue;
                }
                file => file?,
            };
            let found = file.stat()?;
            // Before the file is locked, another session can treat it as stale and remove it.
            if try_lock(&*file)? && file.stat()?.nlink > 0 {
                let time = moment(found.btime.unwrap_or(found.ctime));
                return Ok((SessionLock { at, _file: file }, time));
            }
        }
        if others == MAX_ATTEMPTS {
            let why = "the file system reports another inode number for the same file each time";
            return Err(io::Error::other(format!("cannot lock {}: {why}", at.name)));
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Returns the name of the lock file in the destination directory.
    pub(super) fn name(&self) -> &Name {
        &self.at.name
    }

    /// Removes the lock file at the end of the session.
    pub(super) fn release(self) {
        // Ignore an error: the next session of the job removes a stale lock file.
        let _ = self.at.remove();
    }
}

/// Removes the lock file of a killed run. Returns false if the name belongs to another file by now.
fn remove_stale(at: &EntryAt) -> io::Result<bool> {
    let there = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
    let stale = match at.dir.sink(&at.name, there) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        stale => stale?,
    };
    if !try_lock(&*stale)? {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // Only the lock holder removes the file. The name may be gone by now, or belong to a new file.
    let Some(found) = at.stat()? else { return Ok(false) };
    if found.identity() == stale.stat()?.identity() { at.remove().map(|()| true) } else { Ok(false) }
}

/// Tries to lock the file. Returns false if another process holds the lock, and true on a storage
/// without locks.
fn try_lock(lock: &dyn SinkFile) -> io::Result<bool> {
    match lock.lock() {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        locked => locked.map(|_| true),
    }
}

/// Locks the job and opens its log. Waits up to [`LOCK_TIMEOUT`] for another holder.
pub(super) fn lock_and_open(
    config: &SinkLogConfig<'_>,
    job: Job,
) -> Result<(LogWriter, crate::log::LogContents), LogError> {
    let begun = Instant::now();
    loop {
        let opened = match config.location {
            LogLocation::Own(state) => LogWriter::open(state, job, config.settings),
            LogLocation::Guest(log_store, client) => {
                LogWriter::within(log_store, client, job, config.settings)
            }
        };
        match opened {
            Err(LogError::Held { .. })
                if begun.elapsed() < LOCK_TIMEOUT && !config.stop.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(POLL_INTERVAL);
            }
            taken => return taken,
        }
    }
}

/// Creates the job's lock file at the sink. Waits up to [`LOCK_TIMEOUT`] for another session.
pub(super) fn lock_session(
    config: &SinkLogConfig<'_>,
    dirs: &SinkDirs,
    job: Identity,
) -> Result<(SessionLock, Moment), LogError> {
    let begun = Instant::now();
    loop {
        match SessionLock::acquire(dirs, job, config.stop) {
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return Err(LogError::sink(error)),
            Err(_) if begun.elapsed() < LOCK_TIMEOUT && !config.stop.load(Ordering::Relaxed) => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(_) => {
                return Err(LogError::Held { path: config.root.to_path_buf(), holder: Holder::default() });
            }
            Ok(set) => return Ok(set),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::local;

    fn dirs(dir: &tempfile::TempDir) -> SinkDirs {
        SinkDirs::new(local::open(dir.path(), Follow::Yes).unwrap())
    }

    /// Creates a lock as soon as no other thread holds it.
    fn set_in_turn(dirs: &SinkDirs, job: &[u8]) -> SessionLock {
        loop {
            match SessionLock::acquire(dirs, Identity::of(job), &AtomicBool::new(false)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                set => return set.unwrap().0,
            }
        }
    }

    /// Creates a lock that no session holds. Each of these tests runs in its own process: a child
    /// that another test forks would keep the locks open until exec.
    fn acquire(dirs: &SinkDirs, job: &[u8]) -> SessionLock {
        SessionLock::acquire(dirs, Identity::of(job), &AtomicBool::new(false)).unwrap().0
    }

    #[test]
    fn a_second_session_of_the_same_job_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(&dir);
        let first = acquire(&dirs, b"a");
        let busy = SessionLock::acquire(&dirs, Identity::of(b"a"), &AtomicBool::new(false)).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        let other = acquire(&dirs, b"b");
        assert_ne!(first.name(), other.name());
        // Like a killed run: the lock is released, and the file stays.
        drop(first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        acquire(&dirs, b"a").release();
        other.release();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_symlink_with_the_lock_name_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(&dir);
        let lock = acquire(&dirs, b"a");
        let name = dir.path().join(lock.name().as_os_str());
        lock.release();
        std::os::unix::fs::symlink("elsewhere", &name).unwrap();
        let error = SessionLock::acquire(&dirs, Identity::of(b"a"), &AtomicBool::new(false)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(std::fs::symlink_metadata(&name).unwrap().is_symlink());
    }

    #[test]
    fn only_one_session_holds_the_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(&dir);
        let is_held = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (dirs, is_held) = (&dirs, &is_held);
                scope.spawn(move || {
                    for round in 0..50 {
                        let lock = set_in_turn(dirs, b"a");
                        assert!(!is_held.swap(true, Ordering::SeqCst), "two have it");
                        std::thread::yield_now();
                        is_held.store(false, Ordering::SeqCst);
                        if (worker + round) % 2 == 0 { lock.release() } else { drop(lock) }
                    }
                });
            }
        });
    }
}
