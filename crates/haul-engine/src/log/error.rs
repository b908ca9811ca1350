//! What can keep a job from having a log.

use super::{Holder, RoomLimit};
use haul_log::objects::{Flaw, TooManyObjects};
use haul_log::record::RecordFlaw;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there is no log, or it can't be written.
#[derive(Debug, Error)]
pub enum LogError {
    /// No state directory is known.
    #[error(
        "there is no place for the object log: neither XDG_STATE_HOME nor HOME is set; name one by --state-dir"
    )]
    Homeless,
    /// Another process has the job.
    #[error("{path}: {holder} is at this job; wait until it has ended, or end it")]
    Held {
        /// The lock.
        path: PathBuf,
        /// Who.
        holder: Holder,
    },
    /// Others may write into the folder.
    #[error(
        "{path}: others than its owner, you, may write here, so its log is not trusted; name a directory of your own by --state-dir"
    )]
    Exposed {
        /// The folder.
        path: PathBuf,
    },
    /// A newer program wrote the log.
    #[error("{folder}: {flaw}")]
    Newer {
        /// The folder of the log.
        folder: PathBuf,
        /// Which of its files, and its version.
        flaw: Flaw,
    },
    /// A newer program wrote the record of the job.
    #[error("{path}: {flaw}, or forget the job")]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        flaw: RecordFlaw,
    },
    /// More than any job's log.
    #[error(
        "{path}: the files of this log have more than {max} bytes; look what they are, and remove them or name another --state-dir"
    )]
    TooLarge {
        /// The folder of the log.
        path: PathBuf,
        /// The most that is read.
        max: u64,
    },
    /// The logs of many jobs take all the room that they have together.
    #[error("{path}: {limit}")]
    Full {
        /// The state directory that they share.
        path: PathBuf,
        /// Which limit was reached.
        limit: RoomLimit,
    },
    /// A file can't be logged.
    #[error(transparent)]
    TooManyObjects(#[from] TooManyObjects),
    /// Files at the sink can't be used or made durable.
    #[error("what arrives can't be logged: {source}{}", sink_step(source))]
    Sink {
        /// What the system said.
        source: io::Error,
    },
    /// A call failed.
    #[error("{path}: can't {what}: {source}{}", next_step(source))]
    Io {
        /// What was to be done.
        what: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl LogError {
    /// An error of a call at the sink.
    pub(crate) fn sink(error: io::Error) -> LogError {
        LogError::Sink { source: error }
    }

    /// Makes an error of a call that failed.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError + use<> {
        let path = path.to_path_buf();
        move |source| LogError::Io { what, path, source }
    }
}

/// What to do about a failure at the sink, where that is known.
fn sink_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        _ => "",
    }
}

/// What to do about it, where that is known.
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
