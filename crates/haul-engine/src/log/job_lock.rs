//! Job lock: at most one process runs a job at a time.
//!
//! The lock is an advisory lock on `STATE/jobs/ID/lock`. The file holds the PID and host name of
//! the holder.

use super::holder::Holder;
use super::{LogError, folder};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Retries for a held lock, and the delay between two of them. `haul jobs` holds each lock for a
/// moment.
const TRIES: u32 = 10;
const STEP: Duration = Duration::from_millis(5);

/// Maximum number of times in a row that the lock file or its directory may be gone before it is
/// opened. It disappears each time another process finishes the job.
const ENDS_MAX: u32 = 100;

/// Maximum number of times that the path may lead to another file than the open one, although that
/// one was not removed.
const OTHERS_MAX: u32 = 100;

/// Name of the lock file in the directory of a job.
pub(super) const NAME: &str = "lock";

/// Read limit for the holder record, in bytes; well above the size of a valid record.
const HOLDER_BYTES_MAX: u64 = 1024;

/// Lock of a job, held until it is released or the process exits.
#[derive(Debug)]
pub(super) struct JobLock {
    path: PathBuf,
    file: File,
    /// Previous holder, if it did not release the lock.
    pub(super) unclean_holder: Option<Holder>,
}

impl JobLock {
    /// Locks the job in the directory `home`, which is created if it is missing. If `wait` is true,
    /// blocks until another holder releases the lock.
    pub(super) fn take(home: &Path, wait: bool) -> Result<JobLock, LogError> {
        let path = &home.join(NAME);
        let (mut tries, mut ends, mut others) = (TRIES, 0, 0);
        loop {
            let mut file = match open(home, path) {
                Err(error) if is_gone(&error) && ends < ENDS_MAX => {
                    ends += 1;
                    continue;
                }
                opened => opened?,
            };
            ends = 0;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if wait => {
                    file.lock().map_err(LogError::io("lock", path))?;
                }
                Err(TryLockError::WouldBlock) if tries > 0 => {
                    tries -= 1;
                    thread::sleep(STEP);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = read(&mut file).unwrap_or_default();
                    return Err(LogError::Held { path: path.clone(), holder });
                }
                Err(TryLockError::Error(error)) => return Err(LogError::io("lock", path)(error)),
            }
            // The previous holder may have deleted the lock file and its directory after we opened
            // it.
            if !is_same_path(path, &file).map_err(LogError::io("check lock", path))? {
                let facts = file.metadata().map_err(LogError::io("check lock", path))?;
                others += u32::from(facts.nlink() > 0);
                if others > OTHERS_MAX {
                    return Err(LogError::UnstableInode { path: path.clone() });
                }
                continue;
            }
            let unclean_holder = read(&mut file);
            let job_lock = JobLock { path: path.clone(), file, unclean_holder };
            job_lock
                .sign(&Holder::current_process().encode())
                .map_err(LogError::io("write the holder to", path))?;
            return Ok(job_lock);
        }
    }

    /// Releases the job cleanly: the next process finds no holder.
    pub(super) fn release(self) -> Result<(), LogError> {
        self.sign("").map_err(LogError::io("clear the holder in", &self.path))?;
        self.unlock()
    }

    /// Restores the previous contents of the lock file, because nothing was done.
    pub(super) fn restore(&self) -> Result<(), LogError> {
        let before = self.unclean_holder.as_ref().map(Holder::encode).unwrap_or_default();
        self.sign(&before).map_err(LogError::io("restore the holder in", &self.path))
    }

    /// Removes the lock file and releases the lock: the job is finished.
    pub(super) fn remove(self) -> Result<(), LogError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::io("remove lock", &self.path)(error))
            }
            _ => self.unlock(),
        }
    }

    /// Unlocks explicitly: a child process between fork and exec still has the file open, so
    /// closing would not release the lock.
    fn unlock(&self) -> Result<(), LogError> {
        self.file.unlock().map_err(LogError::io("unlock", &self.path))
    }

    /// Overwrites the holder record and never truncates first: an empty lock file means that the
    /// last holder released the job cleanly.
    fn sign(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_data()
    }
}

/// Opens the lock file of the job in the directory `home`; creates both if they are missing.
fn open(home: &Path, path: &Path) -> Result<File, LogError> {
    folder::make(home)?;
    let opened = folder::options().write(true).create(true).truncate(false).open(path);
    opened.map_err(LogError::io("open lock", path))
}

/// Returns true if the directory disappeared between two calls: the previous holder finished the
/// job.
fn is_gone(error: &LogError) -> bool {
    let LogError::Io { source, .. } = error else { return false };
    // The standard library returns `AlreadyExists` if an existing directory disappears before it
    // checks that directory.
    matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

/// Returns the holder of a job's lock, or `None` if no process holds the lock.
pub(super) fn holder(path: &Path) -> Result<Option<Holder>, LogError> {
    let mut file = match folder::options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(LogError::io("open lock", path))?,
    };
    // A shared lock does not exclude other queries, and closing the file releases it.
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(read(&mut file).unwrap_or_default())),
        Err(TryLockError::Error(error)) => Err(LogError::io("query lock", path)(error)),
    }
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    // A process wrote the file, even if the contents are unreadable.
    let got = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    if got.is_err() { Some(Holder::default()) } else { Holder::decode(&text) }
}

/// Returns true if `path` still refers to the open file.
fn is_same_path(path: &Path, file: &File) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_holders_round_trip_without_control_characters() {
        let holder = Holder { pid: Some(77), host: "node-3.cluster".to_owned() };
        assert_eq!(Holder::decode(&holder.encode()), Some(holder.clone()));
        assert_eq!(holder.to_string(), "process 77 on node-3.cluster");
        assert_eq!(Holder::decode(""), None);
        let strange = Holder::decode("12 a\x1b[2Jb\n").unwrap();
        assert_eq!(strange.to_string(), "process 12 on a[2Jb");
        let unknown = Holder::decode("?").unwrap();
        assert_eq!(
            (unknown.to_string(), Holder::decode(&unknown.encode())),
            ("another process".to_owned(), Some(unknown))
        );
    }
}
