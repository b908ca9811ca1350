//! When a lane that says nothing is given up, and how a session ended.

use crate::{Reason, Summary};
use std::time::Duration;

/// The times of a session. A moment is the time since any fixed one, the same for all calls of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A lane on which nothing was sent for so long gets a KEEPALIVE.
    pub keep_alive: Duration,
    /// A lane on which nothing was heard for so long is given up.
    pub silence: Duration,
}

impl Default for Timing {
    /// KEEPALIVE after 10 seconds, given up after 60: five may be late.
    fn default() -> Timing {
        Timing { keep_alive: Duration::from_secs(10), silence: Duration::from_secs(60) }
    }
}

/// How a session ended, as this side knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every file has been answered for; some may have failed, as the summary says.
    Finished {
        /// What was done.
        summary: Summary,
        /// Why nothing was deleted though the job asked for it: errors at the source.
        delete_withheld: bool,
    },
    /// The session broke. What the sink told by BLOCK_SYNC and FILE_DONE stays true; a new session goes on from there.
    Broken {
        /// Why.
        reason: Reason,
        /// What was done until then.
        summary: Summary,
    },
}
