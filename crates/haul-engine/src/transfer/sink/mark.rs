//! Session lock of a job: a locked file in the destination directory, present while a session runs
//! the job.
//!
//! Temporary names depend only on the job. Two concurrent sessions would therefore write to and
//! rename each other's temporary files. If two runs keep the job's log in different places, this
//! file is the only lock that they share.

use super::leftovers;
use super::places::{Missing, Places};
use crate::transfer::source::moment;
use haul_log::objects::Identity;
use haul_model::Moment;
use haul_sys::open::{create_new_at, open_existing_at, unlink_at};
use haul_sys::{FileKind, Follow, stat};
use std::ffi::{CStr, CString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of attempts to create the lock file while other sessions create and remove it.
const TRIES: u32 = 100;

/// An empty, locked file. On a file system without locks the file provides no exclusion.
#[derive(Debug)]
pub(super) struct Mark {
    root: Arc<OwnedFd>,
    name: CString,
    /// Open lock file; closing it releases the lock.
    _file: File,
}

impl Mark {
    /// Creates and locks the session lock of a job. Returns the lock and the current time of the
    /// sink's file system, because the clock of a file server can differ.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another session holds the lock, and
    /// [`io::ErrorKind::AlreadyExists`] if the name belongs to something that is not a regular
    /// file. Any other error means that the lock file cannot be created.
    pub(super) fn set(places: &Places, job: Identity) -> io::Result<(Mark, Moment)> {
        let root = places.open(b"", Missing::Fails)?;
        let name = CString::new(format!(".haul-{:016x}-begun", leftovers::tag(job, b"").session))?;
        for _ in 0..TRIES {
            let made = match create_new_at(&root, name.as_c_str(), 0o600) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    remove_left(&root, &name)?;
                    continue;
                }
                made => File::from(made?),
            };
            let found = stat::stat_fd(&made)?;
            // Before the file is locked, another session can treat it as stale and remove it.
            if is_locked(&made) && stat::stat_fd(&made)?.nlink > 0 {
                let time = moment(found.btime.unwrap_or(found.ctime));
                return Ok((Mark { root, name, _file: made }, time));
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Returns the name of the lock file in the destination directory.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    /// Removes the lock file at the end of the session.
    pub(super) fn remove(self) {
        // Ignore an error: the next session of the job removes a stale lock file.
        let _ = unlink_at(&self.root, self.name.as_c_str());
    }
}

/// Removes the lock file of a killed run.
fn remove_left(root: &OwnedFd, name: &CString) -> io::Result<()> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let found = match stat::stat_at(root, name.as_c_str(), Follow::No) {
        Err(error) if is_gone(&error) => return Ok(()),
        found => found?,
    };
    if found.kind != FileKind::Regular {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let left = match open_existing_at(root, name.as_c_str(), false, Follow::No) {
        Err(error) if is_gone(&error) => return Ok(()),
        left => File::from(left?),
    };
    if !is_locked(&left) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // Only the lock holder removes the file. The name may be gone by now, or belong to a new file.
    if is_named(root, name, &left)? { unlink_at(root, name.as_c_str()) } else { Ok(()) }
}

/// Tries to lock the file. Returns false if another process holds the lock, and true on a file
/// system without locks.
fn is_locked(mark: &File) -> bool {
    !matches!(mark.try_lock(), Err(TryLockError::WouldBlock))
}

fn is_named(root: &OwnedFd, name: &CString, mark: impl AsFd) -> io::Result<bool> {
    match stat::stat_at(root, name.as_c_str(), Follow::No) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.identity() == stat::stat_fd(mark)?.identity()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::CWD;
    use haul_sys::dir::open_dir_at;

    fn places(dir: &tempfile::TempDir) -> Places {
        Places::new(open_dir_at(CWD, dir.path(), Follow::Yes).unwrap())
    }

    /// Creates a lock as soon as no other thread holds it.
    fn set_in_turn(places: &Places, job: &[u8]) -> Mark {
        loop {
            match Mark::set(places, Identity::of(job)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                set => return set.unwrap().0,
            }
        }
    }

    /// Creates a lock that no session holds. Each of these tests runs in its own process: a child
    /// that another test forks would keep the locks open until exec.
    fn set(places: &Places, job: &[u8]) -> Mark {
        Mark::set(places, Identity::of(job)).unwrap().0
    }

    #[test]
    fn one_session_has_the_mark_of_a_job() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(&dir);
        let first = set(&places, b"a");
        let busy = Mark::set(&places, Identity::of(b"a")).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        let other = set(&places, b"b");
        assert_ne!(first.name(), other.name());
        // Like a killed run: the lock is released, and the file stays.
        drop(first);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        set(&places, b"a").remove();
        other.remove();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_mark_stays() {
        let dir = tempfile::tempdir().unwrap();
        let places = places(&dir);
        let mark = set(&places, b"a");
        let name = dir.path().join(mark.name().to_str().unwrap());
        mark.remove();
        std::os::unix::fs::symlink("elsewhere", &name).unwrap();
        let error = Mark::set(&places, Identity::of(b"a")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(std::fs::symlink_metadata(&name).unwrap().is_symlink());
    }

    #[test]
    fn of_many_who_come_at_once_one_has_it_at_a_time() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let places = places(&dir);
        let is_held = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (places, is_held) = (&places, &is_held);
                scope.spawn(move || {
                    for round in 0..50 {
                        let mark = set_in_turn(places, b"a");
                        assert!(!is_held.swap(true, Ordering::SeqCst), "two have it");
                        std::thread::yield_now();
                        is_held.store(false, Ordering::SeqCst);
                        if (worker + round) % 2 == 0 { mark.remove() } else { drop(mark) }
                    }
                });
            }
        });
    }
}
