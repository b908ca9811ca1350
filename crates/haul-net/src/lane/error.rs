//! Errors of a lane.

use std::fmt;
use std::io;
use std::time::Duration;

/// Error of a read or a write. After any error except for [`Ended`](Self::Ended), the lane is
/// unusable.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The peer closed the lane cleanly, but more bytes were expected.
    #[error("the other end finished the lane where more was expected")]
    Ended,
    /// The peer closed the lane cleanly within a message.
    #[error("the other end finished the lane {missing} bytes before the end of a message")]
    EndedInside {
        /// Number of missing bytes.
        missing: usize,
    },
    /// The connection ended without the closing alert of TLS: the peer died, or an attacker
    /// truncated the data.
    #[error("the connection was cut off: it ended without TLS's mark of the end")]
    Truncated,
    /// Bytes arrived where the end was expected.
    #[error("the other end sent more where it should have finished the lane")]
    Unexpected,
    /// No byte moved until the timeout.
    #[error("nothing moved for {:.1} s while {doing}", after.as_secs_f64())]
    Stalled {
        /// Direction of the wait.
        doing: Doing,
        /// Duration of the wait.
        after: Duration,
    },
    /// This end aborted the lane.
    #[error("the lane was given up by this end")]
    Aborted,
    /// The received data is not TLS of this connection: damaged or forged in transit, or refused by
    /// the peer.
    #[error("TLS failed: {0}")]
    Tls(#[source] rustls::Error),
    /// A system call failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// Direction of the failed call.
        doing: Doing,
        /// Error of the system.
        source: io::Error,
    },
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reads bytes of the peer.
    Reading,
    /// Writes bytes for the peer.
    Writing,
}

impl Doing {
    pub(crate) fn failed(self, source: io::Error) -> LaneError {
        LaneError::Io { doing: self, source }
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading from the other end",
            Self::Writing => "writing to the other end",
        })
    }
}
