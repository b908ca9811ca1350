//! Locked job: its directory and the lock on it.

use super::job_lock::{self, JobLock};
use super::{Holder, LogError, folder};
use haul_log::objects::Identity;
use haul_storage::{FileKind, Follow, Remove, local};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A job that this process holds until it releases the job or exits.
#[derive(Debug)]
pub struct LockedJob {
    home: PathBuf,
    job_lock: JobLock,
}

/// Returns the directory of all jobs below a state directory.
pub(super) fn jobs_folder(state: &Path) -> PathBuf {
    state.join("jobs")
}

impl LockedJob {
    /// Locks a job below the state directory; creates its directory if it is missing. If another
    /// process holds the job, blocks if `wait` is true, and fails otherwise.
    ///
    /// # Errors
    /// Returns [`LogError::Held`] if another process holds the job, and other errors if the
    /// directory cannot be used. The job is left unchanged in both cases.
    pub fn take(state: &Path, job: Identity, wait: bool) -> Result<LockedJob, LogError> {
        let home = jobs_folder(state).join(job.to_hex());
        let job_lock = JobLock::take(&home, wait)?;
        Ok(LockedJob { home, job_lock })
    }

    /// Returns the job directory. The object log is in `log` and the record in `record`; a command
    /// may keep its own file in the directory.
    pub fn folder(&self) -> &Path {
        &self.home
    }

    /// Returns the previous holder if it did not release the job: it was killed, or its machine
    /// stopped.
    pub fn unclean_holder(&self) -> Option<&Holder> {
        self.job_lock.unclean_holder.as_ref()
    }

    /// Restores the previous contents of the lock file, for a job that was refused before anything
    /// was changed.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the lock file cannot be written. The next run then treats the
    /// job as interrupted.
    pub(super) fn restore(&self) -> Result<(), LogError> {
        self.job_lock.restore()
    }

    /// Stops the job cleanly: the next run has no reason to check the log.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the lock file cannot be written. The job is released anyway, and
    /// the next run treats it as interrupted.
    pub fn release(self) -> Result<(), LogError> {
        self.job_lock.release()
    }

    /// Finishes the job: removes the lock file, and the directory if it is empty. A record stays.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if a part of the job remains.
    pub fn finish(self) -> Result<(), LogError> {
        let LockedJob { home, job_lock } = self;
        job_lock.remove()?;
        remove_empty(&home)
    }

    /// Deletes the job with its whole directory.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if a part of the job remains.
    pub fn forget(self) -> Result<(), LogError> {
        let LockedJob { home, job_lock } = self;
        clear(&home).map_err(LogError::io("empty directory", &home))?;
        job_lock.remove()?;
        remove_empty(&home)
    }
}

/// Removes everything in the directory of a job except the lock file. The lock file excludes other
/// processes meanwhile, so this never removes files that the next holder creates.
fn clear(home: &Path) -> io::Result<()> {
    let dir = local::open(home, Follow::Yes)?;
    for (name, kind) in folder::entries(&*dir)? {
        match kind == FileKind::Directory {
            _ if name.as_os_str() == job_lock::NAME => {}
            true => fs::remove_dir_all(home.join(name.as_os_str()))?,
            false => dir.remove(&name, Remove::File)?,
        }
    }
    Ok(())
}

/// Removes a directory if it is empty. Unknown files stay, and so does their directory.
pub(super) fn remove_empty(path: &Path) -> Result<(), LogError> {
    match fs::remove_dir(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
            Ok(())
        }
        done => done.map_err(LogError::io("remove directory", path)),
    }
}
