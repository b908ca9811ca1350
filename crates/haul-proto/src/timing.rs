//! Timeouts of silent lanes, and the result of a session.

use crate::{Reason, Summary};
use std::time::Duration;

/// Timeouts of a session.
///
/// A moment is the time since any fixed moment, which is the same for all calls of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Idle time of sending after which a lane gets a KEEPALIVE.
    pub keep_alive: Duration,
    /// Time without received data after which a lane is closed as lost.
    pub silence: Duration,
}

impl Default for Timing {
    /// Returns 10 seconds for KEEPALIVE and 60 for silence: five KEEPALIVEs may be late.
    fn default() -> Timing {
        Timing { keep_alive: Duration::from_secs(10), silence: Duration::from_secs(60) }
    }
}

/// Reason for deletions that a job requested and that were not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Withheld {
    /// The source had errors: nothing was deleted.
    SourceErrors,
    /// The source sent nothing beneath an operand: nothing was deleted in its directory.
    NothingSent,
}

/// Result of a session, as this side knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every file has an answer; some can have failed, as the summary says.
    Finished {
        /// Totals of the session.
        summary: Summary,
        /// Reason for deletions that were requested and not made.
        withheld: Option<Withheld>,
    },
    /// The session broke. Everything that the sink reported by BLOCK_SYNC and FILE_DONE stays
    /// valid; a new session resumes from there.
    Broken {
        /// Reason for the end.
        reason: Reason,
        /// Totals until the end.
        summary: Summary,
    },
}
