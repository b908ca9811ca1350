//! Errors of the object log.

use super::{Holder, RoomLimit};
use haul_log::objects::{Flaw, TooManyObjects};
use haul_log::record::RecordFlaw;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reason why a job has no log, or why its log cannot be written.
#[derive(Debug, Error)]
pub enum LogError {
    /// No state directory is known.
    #[error(
        "there is no place for the object log: neither XDG_STATE_HOME nor HOME is set; name one by --state-dir"
    )]
    Homeless,
    /// Another process holds the job.
    #[error("{path}: {holder} is at this job; wait until it has ended, or end it")]
    Held {
        /// Path of the lock file.
        path: PathBuf,
        /// The process that holds the job.
        holder: Holder,
    },
    /// Other users can write to the directory.
    #[error(
        "{path}: others than its owner, you, may write here, so its log is not trusted; name a directory of your own by --state-dir"
    )]
    Exposed {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A newer version of haul wrote the log.
    #[error("{folder}: {flaw}")]
    Newer {
        /// Directory of the log.
        folder: PathBuf,
        /// The file that is newer, and its version.
        flaw: Flaw,
    },
    /// A newer version of haul wrote the record of the job.
    #[error("{path}: {flaw}, or forget the job")]
    Record {
        /// Path of the record.
        path: PathBuf,
        /// Reason why the record is rejected.
        flaw: RecordFlaw,
    },
    /// The log is larger than the log of any job.
    #[error(
        "{path}: the files of this log have more than {max} bytes; look what they are, and remove them or name another --state-dir"
    )]
    TooLarge {
        /// Directory of the log.
        path: PathBuf,
        /// Read limit, in bytes.
        max: u64,
    },
    /// The logs of all jobs use up their shared quota.
    #[error("{path}: {limit}")]
    Full {
        /// State directory that the jobs share.
        path: PathBuf,
        /// The limit that was reached.
        limit: RoomLimit,
    },
    /// A file has too many objects to be logged.
    #[error(transparent)]
    TooManyObjects(#[from] TooManyObjects),
    /// Files at the sink cannot be used or synced.
    #[error("what arrives can't be logged: {source}{}", sink_step(source))]
    Sink {
        /// Error of the system call.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{path}: can't {what}: {source}{}", next_step(source))]
    Io {
        /// Action that failed.
        what: &'static str,
        /// File or directory that the action applied to.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl LogError {
    /// Wraps an error of a system call at the sink.
    pub(crate) fn sink(error: io::Error) -> LogError {
        LogError::Sink { source: error }
    }

    /// Returns a function that wraps the error of a failed system call.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError + use<> {
        let path = path.to_path_buf();
        move |source| LogError::Io { what, path, source }
    }
}

/// Returns a hint for an error at the sink, or an empty string.
fn sink_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        _ => "",
    }
}

/// Returns a hint for an error in the state directory, or an empty string.
fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; name a directory that can be written by --state-dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or name another directory by --state-dir"
        }
        _ => "",
    }
}
