//! Files beneath the served directories: listings, changes and downloads.
//!
//! Threads of each root do this work, confined to the root by the kernel like the sessions of the
//! server. Paths resolve beneath the root directory, and no component is followed if it is a
//! symbolic link.
//!
//! The work uses the traits of `haul-storage`. Only [`descriptors`] makes system calls: it opens
//! what the engine gets as a path.

mod changes;
mod copies;
mod descriptors;
mod listing;
mod opened;

pub(crate) use changes::{create_folder, delete, rename};
pub(crate) use copies::name;
pub(crate) use descriptors::{ancestors, open_directory, open_for_copy, open_waybill};
pub(crate) use listing::{Listing, kind_name, list};
pub(crate) use opened::{OpenedFile, open_file};

use crate::limits::PATH_BYTES_MAX;
use crossbeam_channel::{Sender, TrySendError, bounded};
use haul_model::RelPath;
use haul_net::{Role, TicketId};
use haul_proto::check_received;
use haul_storage::{Dir, Follow, Name, local};
use haul_sys::beneath::open_root;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
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

/// The open directory of a root.
pub(crate) struct OpenRoot {
    /// The directory.
    pub(crate) dir: Arc<dyn Dir>,
    /// The same directory, opened only as a path, for [`descriptors`].
    place: OwnedFd,
}

impl OpenRoot {
    /// Opens the directory `path`. Links that lead to it are followed.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    fn open(path: &OsStr) -> io::Result<OpenRoot> {
        Ok(OpenRoot { dir: local::open(Path::new(path), Follow::Yes)?, place: open_root(path)? })
    }
}

type Work = Box<dyn FnOnce(&Result<OpenRoot, String>) + Send>;

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
        work: impl FnOnce(&OpenRoot) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let (sender, done) = oneshot::channel();
        let work = move |root: &Result<OpenRoot, String>| {
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
                    let opened = OpenRoot::open(&root.path);
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
    dir: Arc<dyn Dir>,
    name: Name,
}

/// Opens the directory of the entry `path`. No request names an entry with a reserved name: these
/// belong to running transfers.
fn entry(root: &Arc<dyn Dir>, path: &[u8], doing: &'static str) -> Result<Entry, FileError> {
    checked(path, doing)?;
    let (above, name) = split(path);
    let dir = directory(root, above, doing)?;
    let name = Name::new(name).ok_or_else(|| failed(doing)(io::ErrorKind::InvalidFilename.into()))?;
    Ok(Entry { dir, name })
}

/// Splits a path into that of the directory, which is empty for the root, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Opens the directory `path`; empty for the root. Reserved names are refused as in [`entry`].
fn directory(root: &Arc<dyn Dir>, path: &[u8], doing: &'static str) -> Result<Arc<dyn Dir>, FileError> {
    if path.is_empty() {
        return Ok(Arc::clone(root));
    }
    root.beneath(&checked(path, doing)?, Follow::No).map_err(failed(doing))
}

/// Checks that a request may name `path`: a path beneath the root without reserved names.
fn checked(path: &[u8], doing: &'static str) -> Result<RelPath, FileError> {
    check_length(path)?;
    check_received(path).map_err(|fault| FileError::Name(format!("cannot {doing}: {fault}")))
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

/// Returns true if an error means that a path has a symbolic link, which is not followed.
pub(crate) fn is_of_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::CrossesDevices || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Returns the text of an error of the storage, without its number.
fn reason(error: &io::Error) -> String {
    if is_of_link(error) {
        return "the path has a symbolic link, which is not followed".to_owned();
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
