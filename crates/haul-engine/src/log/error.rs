//! Errors of the object log.

use super::holder::Holder;
use haul_log::objects::{Flaw, TooManyObjects};
use haul_log::record::RecordFlaw;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reason why a job has no log, or why its log cannot be written.
#[derive(Debug, Error)]
pub enum LogError {
    /// No state directory is known.
    #[error("cannot locate the state directory: neither XDG_STATE_HOME nor HOME is set; use --state-dir")]
    Homeless,
    /// Another process holds the job.
    #[error("cannot lock job {path}: held by {holder}; wait for it to finish, or stop it")]
    Held {
        /// Path of the lock file.
        path: PathBuf,
        /// The process that holds the job.
        holder: Holder,
    },
    /// The inode number of the lock file changes, so that a lock would exclude no other process.
    #[error(
        "cannot lock job {path}: its file system reports another inode number for the same file each time; use --state-dir with a directory on another file system"
    )]
    UnstableInode {
        /// Path of the lock file.
        path: PathBuf,
    },
    /// Other users can write to the directory.
    #[error(
        "refusing to use the log in {path}: other users can write to it; use --state-dir with a private directory"
    )]
    Exposed {
        /// Path of the directory.
        path: PathBuf,
    },
    /// The key in the state directory is not a key that only this user can access.
    #[error(
        "refusing to use the key {path}: not 32 bytes that only this user can access; remove the file to get a new key"
    )]
    ExposedKey {
        /// Path of the key.
        path: PathBuf,
    },
    /// A newer version of haul wrote the log.
    #[error("cannot read log {folder}: {flaw}")]
    Newer {
        /// Directory of the log.
        folder: PathBuf,
        /// The file that is newer, and its version.
        flaw: Flaw,
    },
    /// A newer version of haul wrote the record of the job.
    #[error("cannot read job record {path}: {flaw}, or delete the job with 'haul jobs forget'")]
    Record {
        /// Path of the record.
        path: PathBuf,
        /// Reason why the record is rejected.
        flaw: RecordFlaw,
    },
    /// The log is larger than the log of any job.
    #[error(
        "cannot read the log in {path}: its files exceed {max} bytes; remove files that do not belong there, or use another --state-dir"
    )]
    TooLarge {
        /// Directory of the log.
        path: PathBuf,
        /// Read limit, in bytes.
        max: u64,
    },
    /// The logs of all jobs use up their shared quota.
    #[error("cannot write the log in {path}: {limit}")]
    Full {
        /// State directory that the jobs share.
        path: PathBuf,
        /// The limit that was reached.
        limit: LogStoreLimit,
    },
    /// A file has too many objects to be logged.
    #[error(transparent)]
    TooManyObjects(#[from] TooManyObjects),
    /// Files at the sink cannot be used or synced.
    #[error("cannot log received objects: {source}{}", sink_step(source))]
    Sink {
        /// Error of the system call.
        source: io::Error,
    },
    /// A system call failed.
    #[error("cannot {what} {path}: {source}{}", next_step(source))]
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space at the destination",
        _ => "",
    }
}

/// Returns a hint for an error in the state directory, or an empty string.
fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; use --state-dir with a writable directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space, or use another --state-dir"
        }
        _ => "",
    }
}

/// Limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStoreLimit {
    /// Maximum size, in bytes.
    Bytes(u64),
    /// Maximum number of jobs.
    Jobs(usize),
}

impl fmt::Display for LogStoreLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogStoreLimit::Bytes(bytes) => {
                write!(
                    f,
                    "log quota exceeded: logs of interrupted jobs use all of {bytes} bytes; raise --log-quota"
                )
            }
            LogStoreLimit::Jobs(jobs) => {
                write!(f, "job limit reached: the logs of {jobs} interrupted jobs are kept; raise --log-jobs")
            }
        }
    }
}
