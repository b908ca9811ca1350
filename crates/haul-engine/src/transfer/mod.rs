//! Transfers of files between two hosts: send, fetch and serve.
//!
//! One side starts the job ([`send`], [`fetch`]), and its peer answers ([`answer`]). Either can be
//! the source or the sink. [`hello`] agrees on the terms. Then the source walks and sends
//! ([`source`]), and the sink writes, compares and renames ([`sink`]). A state machine of
//! `haul-proto` drives each side: it decides, and the threads here only read, write and hash.

mod acl;
mod confining;
mod cpu_wait;
mod descriptors;
mod dialing;
mod error;
mod file_hasher;
mod hashing;
mod hello;
mod jobs;
mod joining;
mod listing;
mod logged;
mod logs;
mod monitor;
mod opening;
mod packing;
mod parts;
mod reason;
mod receipt;
mod report;
mod resume;
mod session;
mod simple;
mod sink;
mod source;
mod space;
mod terms;
mod time_stats;
mod wanted;

pub(crate) use acl::any_acl;
pub use confining::fetch_confined;
pub use dialing::{BoxError, Dial};
pub use error::TransferError;
pub use hello::{answer, fetch, send};
pub use jobs::{CheckSpace, FetchJob, Offer, SendJob};
pub use listing::list;
pub use logs::Logs;
pub use opening::{DEFAULT_LANES_MAX, DEFAULT_LANES_MIN};
pub use packing::{LEVELS, Unpacker};
pub use parts::Parts;
pub use receipt::{Receipt, ReceiptError};
pub use report::{Failure, Report, RunContext, Tally};
pub use resume::Resume;
pub use simple::SimpleObserver;
pub use sink::{SinkPolicy, forget};
pub(crate) use source::any_rules;
pub use source::{Filter, FilterError, Rule};
pub use time_stats::{Datagrams, TimeBreakdown, Traffic, TransferTimeBreakdown};

use haul_net::{Fallback, FrameReader, FrameWriter, Kind, Lane, LaneControl};
use haul_proto::{End, LaneId, Reason, Role, Summary, Why, Withheld};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Result of a session.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Counts of the entries that were handled.
    pub summary: Summary,
    /// Reason why the session ended before its work was done; `None` if every file has an outcome.
    pub broken: Option<Reason>,
    /// Reason for deletions that the job requested and that were not made.
    pub withheld: Option<Withheld>,
    /// Time of the workers of this side.
    pub spent: TimeBreakdown,
    /// Time of both sides; `None` if the peer did not send its statistics.
    pub split: Option<TransferTimeBreakdown>,
    /// Traffic of this side's lanes.
    pub traffic: Traffic,
    /// Datagrams of this side's lanes, if they send datagrams themselves.
    pub datagrams: Option<Datagrams>,
    /// Transport of the first lane, and the reason if it used TCP although UDP was requested, from
    /// its start or later. `None` without lanes.
    pub transport: Option<(Kind, Option<Fallback>)>,
    /// Number of bytes that an earlier run of the job transferred and that were not sent again.
    pub reused_bytes: u64,
    /// Number of names that were sent to a peer that requested a listing; `None` for a transfer.
    pub listed: Option<u64>,
}

impl Outcome {
    /// Returns true if the job is completely done.
    pub fn is_whole(&self) -> bool {
        let Summary { failed, unread, undeleted, over_limit, .. } = self.summary;
        // Some counts come from the peer, and a sum with them could overflow to 0. Compare each
        // count.
        let counts = [failed, unread, undeleted, over_limit];
        self.broken.is_none() && self.withheld.is_none() && counts == [0; 4]
    }

    /// Returns the outcome of a session that is over; `role` is the role of this side.
    fn of<M: monitor::Machine>(role: Role, session: &session::Session<'_, M>) -> Outcome {
        let (spent, split) = session.spent(role);
        let (traffic, datagrams) = (session.traffic(), session.datagrams());
        let reused_bytes = session.reused_bytes.load(Ordering::Relaxed);
        let end = session.end();
        let (summary, broken, withheld) = match end {
            Some(End::Finished { summary, withheld }) => (summary, None, withheld),
            Some(End::Broken { reason, summary }) => (summary, Some(reason), None),
            None => (Summary::default(), Some(Why::Internal.into()), None),
        };
        // A side that failed aborts its lanes, so their loss is not the reason.
        let broken = session.failure().or(broken);
        let transport = session.transport();
        Outcome {
            summary,
            broken,
            withheld,
            spent,
            split,
            traffic,
            datagrams,
            transport,
            reused_bytes,
            listed: None,
        }
    }
}

/// A lane that both sides agreed on.
struct Joined {
    id: LaneId,
    frames: Box<dyn FrameReader>,
    outbox: Box<dyn FrameWriter>,
    control: Arc<dyn LaneControl>,
}

impl Joined {
    fn new(id: LaneId, lane: Box<dyn Lane>) -> Joined {
        let control = lane.control();
        let (frames, outbox) = lane.split();
        Joined { id, frames, outbox, control }
    }
}

/// Returns the next additional lane, if one has arrived.
type More<'a> = Option<&'a mut dyn FnMut() -> Option<Joined>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A false count from the peer once overflowed the sum of failures to 0, so that the job
    /// counted as complete.
    #[test]
    fn huge_peer_counts_do_not_hide_failures() {
        let outcome = |summary| Outcome { summary, ..Outcome::default() };
        assert!(outcome(Summary::default()).is_whole());
        let failed = Summary { failed: 1, ..Summary::default() };
        assert!(!outcome(Summary { unread: u64::MAX, ..failed }).is_whole());
        assert!(!outcome(Summary { undeleted: u64::MAX, ..failed }).is_whole());
    }
}
