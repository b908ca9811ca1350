//! Why a lane gave or took no bytes.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why a lane gave or took no bytes. But for [`Ended`](Self::Ended), the lane is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The other end finished, cleanly, where more was expected.
    #[error("the other end finished the lane where more was expected")]
    Ended,
    /// The other end finished, cleanly, with part of what was asked for.
    #[error("the other end finished the lane {missing} bytes before the end of a message")]
    EndedInside {
        /// Bytes that were still asked for.
        missing: usize,
    },
    /// The connection ended without the mark by which TLS ends: the other end died, or someone cut what was left.
    #[error("the connection was cut off: it ended without TLS's mark of the end")]
    Truncated,
    /// More came where the end was expected.
    #[error("the other end sent more where it should have finished the lane")]
    Unexpected,
    /// No byte moved for so long.
    #[error("nothing moved for {:.1} s while {doing}", after.as_secs_f64())]
    Stalled {
        /// What was waited for.
        doing: Doing,
        /// How long.
        after: Duration,
    },
    /// This end gave the lane up.
    #[error("the lane was given up by this end")]
    Aborted,
    /// What came is not TLS of this connection: damaged or forged on the way, or refused by the other end.
    #[error("TLS failed: {0}")]
    Tls(#[source] rustls::Error),
    /// The system's answer.
    #[error("{doing} failed: {source}")]
    Io {
        /// What failed.
        doing: Doing,
        /// Why.
        source: io::Error,
    },
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Bytes of the other end.
    Reading,
    /// Bytes for the other end.
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
