//! Errors that prevent a session.

use super::BoxError;
use super::receipt::ReceiptError;
use crate::copy::quote;
use crate::log::LogError;
use haul_model::format_size;
use haul_net::LaneError;
use haul_proto::{Reason, limits};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Error that prevented a session.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A lane could not be opened.
    #[error("cannot connect to the remote host: {0}")]
    Dial(#[source] BoxError),
    /// The first lane failed.
    #[error("connection failed before the job started: {0}")]
    Lane(#[from] LaneError),
    /// The received message is not an answer.
    #[error("unexpected message from the remote host: {0}; install the same version on both hosts")]
    NotUnderstood(String),
    /// The peer refused the job.
    #[error("refused by the remote host: {0}")]
    Refused(Reason),
    /// The peer runs a version that does not accept long lists.
    #[error(
        "cannot request {requested} paths in one job: the haul of the remote host accepts at most {most}; update it, or use \
         several jobs",
        most = limits::OPERANDS_MAX
    )]
    TooMany {
        /// Number of paths that this job names.
        requested: usize,
    },
    /// The peer runs a version that does not list directories.
    #[error("cannot list the directory: the haul of the remote host is too old; update it")]
    NoListing,
    /// This side refused the job.
    #[error("refused: {0}")]
    Denied(Reason),
    /// The peer's answer changes the job.
    #[error(
        "job not started: the remote host changed {0} of the request; install the same version on both hosts"
    )]
    Changed(&'static str),
    /// A local file or directory cannot be opened or created.
    #[error("cannot {doing} {}: {}", quote(OsStr::from_bytes(path)), crate::sum::reason(source))]
    Local {
        /// Attempted action.
        doing: &'static str,
        /// Path of the file or directory.
        path: Vec<u8>,
        /// Cause.
        source: io::Error,
    },
    /// The waybill of this side cannot be started.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// Another process or session runs the job.
    #[error(transparent)]
    Held(LogError),
    /// The sink has less space than the job needs.
    #[error(
        "nothing sent: the job has {}, and the receiver has {} of free space; free space there, or omit --check-space=refuse",
        format_size(*announced),
        format_size(*room)
    )]
    NoRoom {
        /// Size of the job in bytes.
        announced: u64,
        /// Free space of the sink, or what the quota leaves, in bytes.
        room: u64,
    },
    /// The sessions of this process have reserved its file descriptors.
    #[error("cannot start a session: too few file descriptors are left; raise the limit of open files")]
    NoDescriptors,
    /// No random bytes for the session token are available.
    #[error("cannot read random bytes from the system")]
    NoRandomness,
}
