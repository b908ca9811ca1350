//! The mark of a job in the directory that all of it goes to, there while a session is at the job. Temporary names are the job's, so two sessions at
//! once would write into each other's files and name them; and whoever keeps the job's log elsewhere has no other lock in common with the rest.

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

/// How often others may come and go while the mark is set.
const TRIES: u32 = 100;

/// A file of no bytes that is locked, where its file system has locks.
#[derive(Debug)]
pub(super) struct Mark {
    root: Arc<OwnedFd>,
    name: CString,
    /// The lock goes with it.
    _file: File,
}

impl Mark {
    /// Sets the mark of a job, and gives the time that the sink's file system has: a server's clock may be another.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: another session is at the job. Any other: there can be no mark.
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
            // Whoever looked at it before it was locked takes it for one that was left, and removes it.
            if is_locked(&made) && stat::stat_fd(&made)?.nlink > 0 {
                let time = moment(found.btime.unwrap_or(found.ctime));
                return Ok((Mark { root, name, _file: made }, time));
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Its name, in the directory that all goes to.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    /// The session is over.
    pub(super) fn remove(self) {
        // Best effort: the next session at the job takes what is left.
        let _ = unlink_at(&self.root, self.name.as_c_str());
    }
}

/// Removes a mark that a run left which was killed.
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
    // Only who has the lock removes it; it may be gone by now, and another one there.
    if is_named(root, name, &left)? { unlink_at(root, name.as_c_str()) } else { Ok(()) }
}

/// Takes the lock of a mark. Where there are no locks nobody has it.
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

    /// Sets a mark as soon as no other thread holds it.
    fn set_in_turn(places: &Places, job: &[u8]) -> Mark {
        loop {
            match Mark::set(places, Identity::of(job)) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
                set => return set.unwrap().0,
            }
        }
    }

    /// Sets a mark that no session holds. These tests run in a process each: a child that another test forks would have its locks open until exec.
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
        // As a run that is killed: the lock goes, and the name stays.
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
