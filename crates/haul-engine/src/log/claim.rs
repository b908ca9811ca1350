//! One process at a job at a time.

use super::{LogError, folder};
use haul_sys::process;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often and in what steps a held lock is tried again: whoever lists jobs has each for a moment.
const TRIES: u32 = 10;
const STEP: Duration = Duration::from_millis(5);

/// How often the folder of a job may go while its lock is opened: each time somebody came to the end of it.
const ENDS_MAX: u32 = 100;

/// The file in a job's folder that is locked.
pub(super) const NAME: &str = "lock";

/// Far above what a holder takes.
const HOLDER_BYTES_MAX: u64 = 1024;

/// Who has a job, or had it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process, if the lock says so.
    pub pid: Option<u32>,
    /// The machine it runs on, as that calls itself.
    pub host: String,
}

impl Holder {
    fn this() -> Holder {
        Holder { pid: Some(std::process::id()), host: process::host_name() }
    }

    fn encode(&self) -> String {
        let pid = self.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        format!("{pid} {}\n", self.host)
    }

    /// What stands in a lock; nothing stands in one that was let go.
    fn decode(text: &str) -> Option<Holder> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let (pid, host) = line.split_once(' ').unwrap_or((line, ""));
        let host = host.chars().filter(|c| c.is_ascii_graphic()).collect();
        (!text.is_empty()).then(|| Holder { pid: pid.parse().ok(), host })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder { pid: None, .. } => f.write_str("another process"),
            Holder { pid: Some(pid), host } if host.is_empty() => write!(f, "process {pid}"),
            Holder { pid: Some(pid), host } => write!(f, "process {pid} on {host}"),
        }
    }
}

/// A job that is ours until this is let go, or the process ends.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    file: File,
    /// Who had it last and did not let it go.
    pub(super) left_by: Option<Holder>,
}

impl Claim {
    /// Takes the lock of the job in the folder `home`, which is made if it is not there; waits for whoever has it, if `wait`.
    pub(super) fn take(home: &Path, wait: bool) -> Result<Claim, LogError> {
        let path = &home.join(NAME);
        let (mut tries, mut ends) = (TRIES, 0);
        loop {
            let mut file = match open(home, path) {
                Err(error) if went(&error) && ends < ENDS_MAX => {
                    ends += 1;
                    continue;
                }
                opened => opened?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if wait => {
                    file.lock().map_err(LogError::io("wait for the lock", path))?;
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
                Err(TryLockError::Error(error)) => return Err(LogError::io("lock it", path)(error)),
            }
            // Whoever had it may have removed it, and the folder, at the end of the job.
            if !is_there(path, &file).map_err(LogError::io("look at the lock", path))? {
                continue;
            }
            let left_by = read(&mut file);
            let claim = Claim { path: path.clone(), file, left_by };
            claim
                .sign(&Holder::this().encode())
                .map_err(LogError::io("write who holds the job into", path))?;
            return Ok(claim);
        }
    }

    /// Lets it go in peace: the next one finds no holder.
    pub(super) fn release(self) -> Result<(), LogError> {
        self.sign("").map_err(LogError::io("write that the job is let go into", &self.path))?;
        self.unlock()
    }

    /// Says again what it said before it was taken: nothing was done.
    pub(super) fn put_back(&self) -> Result<(), LogError> {
        let before = self.left_by.as_ref().map(Holder::encode).unwrap_or_default();
        self.sign(&before).map_err(LogError::io("write who held the job into", &self.path))
    }

    /// Lets it go and removes it: the job is over.
    pub(super) fn remove(self) -> Result<(), LogError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::io("remove the lock", &self.path)(error))
            }
            _ => self.unlock(),
        }
    }

    /// Closing would not do while a process that was just started has the file open as well.
    fn unlock(&self) -> Result<(), LogError> {
        self.file.unlock().map_err(LogError::io("unlock it", &self.path))
    }

    /// Writes over what stands there, and never leaves nothing in between: that would say that whoever had the job before let it go in peace.
    fn sign(&self, text: &str) -> io::Result<()> {
        let mut file = &self.file;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_data()
    }
}

/// Opens the lock of the job in the folder `home`; both are made if they are not there.
fn open(home: &Path, path: &Path) -> Result<File, LogError> {
    folder::make(home)?;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // A link is followed by nobody: it could lead to another file of ours.
    options.custom_flags(haul_sys::open::NO_FOLLOW);
    options.open(path).map_err(LogError::io("open the lock", path))
}

/// Whether the folder went between two looks at it: whoever had the job came to its end.
fn went(error: &LogError) -> bool {
    let LogError::Io { source, .. } = error else { return false };
    // The standard library says the second where a directory that was in the way is there no more.
    matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

/// Who holds a job's lock; nobody where there is none.
pub(super) fn holder(path: &Path) -> Result<Option<Holder>, LogError> {
    let mut file = match folder::options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(LogError::io("open the lock", path))?,
    };
    // A shared lock bothers no other look, and is let go with the file.
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(read(&mut file).unwrap_or_default())),
        Err(TryLockError::Error(error)) => Err(LogError::io("look who holds", path)(error)),
    }
}

fn read(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.rewind().ok()?;
    // What can't be read was written by somebody all the same.
    let got = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    if got.is_err() { Some(Holder::default()) } else { Holder::decode(&text) }
}

/// Whether the name still leads to the file that is open.
fn is_there(path: &Path, file: &File) -> io::Result<bool> {
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
    fn holders_are_read_as_they_are_written_and_steer_no_terminal() {
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
