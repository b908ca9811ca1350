//! A job in hand: its folder, and the lock on it.

use super::claim::{self, Claim};
use super::{Holder, LogError};
use haul_log::objects::Identity;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A job that this process has, until it lets go of it or ends.
#[derive(Debug)]
pub struct Hold {
    home: PathBuf,
    claim: Claim,
}

/// The folder of all jobs below a state directory.
pub(super) fn jobs_folder(state: &Path) -> PathBuf {
    state.join("jobs")
}

impl Hold {
    /// Takes hold of a job below the state directory; its folder is made if it is not there. While another process has it this waits, or
    /// says who has it.
    ///
    /// # Errors
    /// [`LogError`]: the job is held, or the folder can't be used. Nothing of the job was touched then.
    pub fn take(state: &Path, job: Identity, wait: bool) -> Result<Hold, LogError> {
        let home = jobs_folder(state).join(job.to_hex());
        let claim = Claim::take(&home, wait)?;
        Ok(Hold { home, claim })
    }

    /// The job's folder: its object log is in `log`, its record in `record`; a command may keep a file of its own in it.
    pub fn folder(&self) -> &Path {
        &self.home
    }

    /// Who had the job last and did not let it go: it was killed, or its machine ended.
    pub fn left_by(&self) -> Option<&Holder> {
        self.claim.left_by.as_ref()
    }

    /// The job is refused, and nothing of it was touched: the next run finds what this one found.
    ///
    /// # Errors
    /// [`LogError::Io`]; the next run takes the job for one that was cut off.
    pub(super) fn put_back(&self) -> Result<(), LogError> {
        self.claim.put_back()
    }

    /// The job stops, and the next run finds nothing to doubt.
    ///
    /// # Errors
    /// [`LogError::Io`]; the job is let go all the same, as one that was cut off.
    pub fn release(self) -> Result<(), LogError> {
        self.claim.release()
    }

    /// The job is over: the lock is removed, and the folder if nothing is in it. A record stays.
    ///
    /// # Errors
    /// [`LogError::Io`]: something is left of it.
    pub fn finish(self) -> Result<(), LogError> {
        let Hold { home, claim } = self;
        claim.remove()?;
        remove_empty(&home)
    }

    /// The job is forgotten: all of its folder is removed.
    ///
    /// # Errors
    /// [`LogError::Io`]: something is left of it.
    pub fn forget(self) -> Result<(), LogError> {
        let Hold { home, claim } = self;
        clear(&home).map_err(LogError::io("remove what is in the folder", &home))?;
        claim.remove()?;
        remove_empty(&home)
    }
}

/// Removes all that is in the folder of a job but its lock: as long as that is there nobody else comes in, and what whoever comes then makes is not
/// removed with the rest.
fn clear(home: &Path) -> io::Result<()> {
    for entry in fs::read_dir(home)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()?.is_dir() {
            _ if entry.file_name() == claim::NAME => {}
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Removes a folder that nothing is left in; strangers that were left alone stay, and the folder with them.
pub(super) fn remove_empty(path: &Path) -> Result<(), LogError> {
    match fs::remove_dir(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
            Ok(())
        }
        done => done.map_err(LogError::io("remove the folder", path)),
    }
}
