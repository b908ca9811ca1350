//! Files beneath the served directories: listings, changes and downloads.
//!
//! Threads of each root do this work, confined to the root by the kernel like the sessions of the
//! server. Paths resolve beneath the root directory, and no component is followed if it is a
//! symbolic link.

mod changes;
mod copies;
mod listing;
mod opened;

pub(crate) use changes::{create_folder, delete, rename};
pub(crate) use copies::{ancestors, name, open_for_copy};
pub(crate) use listing::{Listing, kind_name, list};
pub(crate) use opened::{OpenedFile, open_file};

use crate::limits::PATH_BYTES_MAX;
use crossbeam_channel::{Sender, TrySendError, bounded};
use haul_net::{Role, TicketId};
use haul_proto::check_received;
use haul_sys::Follow;
use haul_sys::beneath::{open_place_beneath, open_root};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::SystemTime;
use tokio::sync::oneshot;

/// Threads of each root: one can delete a large tree while another lists.
const THREADS_PER_ROOT: usize = 3;

/// Requests that wait for a thread of a root. More are refused.
const QUEUE_LEN: usize = 32;

/// Confines the calling thread to a root. The error is a message.
pub type Confine = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A directory that browsers may use.
#[derive(Clone)]
pub struct WebRoot {
    /// Name for the user.
    pub name: String,
    /// Path of the directory.
    pub path: OsString,
    /// Permitted directions.
    pub role: Role,
    /// Ticket that transfers use.
    pub ticket: TicketId,
    /// Limit of the bytes that one session may write; new directories count too.
    pub quota: Option<u64>,
    /// Time after which the directory is closed to browsers.
    pub expires: Option<SystemTime>,
    /// Confines a thread to this directory.
    pub confine: Confine,
}

impl WebRoot {
    pub(crate) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|end| SystemTime::now() >= end)
    }

    /// Returns the name for a log, without control characters.
    pub(crate) fn log_name(&self) -> String {
        self.name.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
    }
}

/// Failure of a request for files.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The name is not allowed.
    #[error("{0}")]
    Name(String),
    /// The system refused.
    #[error("cannot {doing}: {}", reason(.source))]
    Io {
        /// Action that failed.
        doing: &'static str,
        /// Reason for the failure.
        source: io::Error,
    },
    /// The entry is of another kind.
    #[error("{0}")]
    Kind(&'static str),
    /// All threads of the root are busy.
    #[error("the server is busy with other requests for this directory; try again later")]
    Busy,
    /// The threads of the root cannot work.
    #[error("{0}")]
    Unavailable(String),
}

type Work = Box<dyn FnOnce(&Result<OwnedFd, String>) + Send>;

/// Threads that work in one root. They start with the first request.
pub(crate) struct RootThreads {
    root: WebRoot,
    queue: OnceLock<Sender<Work>>,
}

impl RootThreads {
    pub(crate) fn new(root: WebRoot) -> RootThreads {
        RootThreads { root, queue: OnceLock::new() }
    }

    /// Returns the root.
    pub(crate) fn root(&self) -> &WebRoot {
        &self.root
    }

    /// Runs `work` on a thread of the root, with the open directory.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OwnedFd) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let (sender, done) = oneshot::channel();
        let work = move |root: &Result<OwnedFd, String>| {
            let result = match root {
                Ok(root) => work(root),
                Err(why) => Err(FileError::Unavailable(why.clone())),
            };
            // The browser may have left.
            let _ = sender.send(result);
        };
        let queue = self.queue.get_or_init(|| self.start());
        queue.try_send(Box::new(work)).map_err(|error| match error {
            TrySendError::Full(_) => FileError::Busy,
            TrySendError::Disconnected(_) => FileError::Unavailable("cannot start a thread".to_owned()),
        })?;
        let lost = || FileError::Unavailable("internal error: the work on the directory failed".to_owned());
        done.await.map_err(|_| lost())?
    }

    /// Starts the threads. They end when the queue is dropped and their work is done. If none can
    /// be started, the queue is disconnected.
    fn start(&self) -> Sender<Work> {
        let (queue, work) = bounded::<Work>(QUEUE_LEN);
        for _ in 0..THREADS_PER_ROOT {
            let (root, work) = (self.root.clone(), work.clone());
            let run = move || {
                let opened = (root.confine)().and_then(|()| {
                    let opened = open_root(&root.path);
                    opened.map_err(|error| format!("cannot open the directory: {}", reason(&error)))
                });
                for work in work {
                    // A panic was printed; its request gets an error, and the thread continues.
                    let _ = catch_unwind(AssertUnwindSafe(|| work(&opened)));
                }
            };
            // Without this thread the others do the work.
            let _ = thread::Builder::new().name("haul-web-files".into()).spawn(run);
        }
        queue
    }
}

/// An entry: its directory, and its name in it.
struct Entry {
    place: OwnedFd,
    name: CString,
}

/// Opens the directory of the entry `path`. No request names an entry with a reserved name: these
/// belong to running transfers.
fn entry(root: &OwnedFd, path: &[u8], doing: &'static str) -> Result<Entry, FileError> {
    let refused = |fault: &dyn std::fmt::Display| FileError::Name(format!("cannot {doing}: {fault}"));
    check_length(path)?;
    let checked = check_received(path).map_err(|fault| refused(&fault))?;
    let path = checked.as_bytes();
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    let place = open_place_beneath(root, OsStr::from_bytes(directory), Follow::No).map_err(failed(doing))?;
    let name = CString::new(name).map_err(|_| refused(&"the name has a NUL"))?;
    Ok(Entry { place, name })
}

/// Opens the directory `path`, only as a path; empty for the root.
pub(crate) fn open_directory(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, FileError> {
    directory(root, path, "open the directory")
}

/// Opens the directory `path`; empty for the root. Reserved names are refused as in [`entry`].
fn directory(root: &OwnedFd, path: &[u8], doing: &'static str) -> Result<OwnedFd, FileError> {
    check_length(path)?;
    if !path.is_empty() {
        check_received(path).map_err(|fault| FileError::Name(format!("cannot {doing}: {fault}")))?;
    }
    open_place_beneath(root, OsStr::from_bytes(path), Follow::No).map_err(failed(doing))
}

pub(crate) fn check_length(path: &[u8]) -> Result<(), FileError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(FileError::Name(format!("the path is longer than {PATH_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> FileError {
    move |source| FileError::Io { doing, source }
}

/// Returns the text of an error of the system, without its number.
fn reason(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP | Errno::XDEV) => "the path has a symbolic link, which is not followed".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
