//! Errors of a lane.

use crate::udp::UdpError;
use haul_proto::Flaw;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Error of a read or a write. After any error except for [`Ended`](Self::Ended), the lane is
/// unusable.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The peer closed the lane cleanly, but more bytes were expected.
    #[error("the peer closed the connection early")]
    Ended,
    /// The peer closed the lane cleanly within a message.
    #[error("the peer closed the connection {missing} bytes before the end of a message")]
    EndedInside {
        /// Number of missing bytes.
        missing: usize,
    },
    /// The connection ended without the closing alert of TLS: the peer died or gave the connection
    /// up, or an attacker truncated the data.
    #[error(
        "the connection ended without the closing alert of TLS: the peer ended or gave the connection up, or an attacker truncated the data"
    )]
    Truncated,
    /// Bytes arrived where the end was expected.
    #[error("the peer sent data after the expected end of the connection")]
    Unexpected,
    /// No byte moved until the timeout.
    #[error("timeout: no data for {:.1} s while {doing}", after.as_secs_f64())]
    Stalled {
        /// Direction of the wait.
        doing: Operation,
        /// Duration of the wait.
        after: Duration,
    },
    /// The association of a lane over UDP ended early.
    #[error("UDP: {0}")]
    Udp(#[source] UdpError),
    /// This end aborted the lane.
    #[error("connection aborted by this host")]
    Aborted,
    /// The received data is not TLS of this connection: damaged or forged in transit, or refused by
    /// the peer.
    #[error("TLS failed: {0}")]
    Tls(#[source] rustls::Error),
    /// A system call failed.
    #[error("{doing} failed: {source}")]
    Io {
        /// Direction of the failed call.
        doing: Operation,
        /// Error of the system.
        source: io::Error,
    },
}

/// Error that ends the reading of a lane.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The lane failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The received data is not a valid frame.
    #[error("invalid message received: {0}")]
    Flaw(#[from] Flaw),
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads bytes of the peer.
    Reading,
    /// Writes bytes for the peer.
    Writing,
}

impl Operation {
    pub(crate) fn failed(self, source: io::Error) -> LaneError {
        LaneError::Io { doing: self, source }
    }

    pub(crate) fn stalled(self, since: Instant) -> LaneError {
        LaneError::Stalled { doing: self, after: since.elapsed() }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading from the peer",
            Self::Writing => "writing to the peer",
        })
    }
}
