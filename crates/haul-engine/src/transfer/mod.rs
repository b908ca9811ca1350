//! Files from one host to another: sent, fetched, or served.
//!
//! One side starts the job ([`send`], [`fetch`]), the other answers ([`answer`]); either may be the source of the files or their
//! sink. [`hello`] agrees on the terms, then the source walks and sends ([`source`]), the sink writes, compares and names
//! ([`sink`]), each driven by its state machine of `haul-proto`: the machine decides, the threads here only read, write and hash.

mod delays;
mod dialing;
mod frames;
mod hashing;
mod hello;
mod joining;
mod lists;
mod logged;
mod meeting;
mod packing;
mod parts;
mod plain;
mod reason;
mod receipt;
mod report;
mod rereader;
mod resume;
mod session;
mod sink;
mod source;
mod space;
mod spent;
mod terms;
mod wanted;

pub use dialing::{BoxError, Dial};
pub use hello::{
    FetchJob, LANES_UNASKED_MAX, LANES_UNASKED_MIN, Offer, SendJob, TransferError, answer, fetch, send,
};
pub use logged::Logs;
pub use packing::{LEVELS, Unpacker};
pub use parts::Parts;
pub use plain::Onlooker;
pub use receipt::{Receipt, ReceiptError};
pub use report::{Failure, Report, Tally, Watch};
pub use resume::Resume;
pub use sink::forget;
pub use source::{Filter, FilterError, Rule};
pub use space::CheckSpace;
pub use spent::{Spent, Split, Traffic};

use frames::{Frames, Outbox};
use haul_net::{Lane, LaneControl};
use haul_proto::{End, LaneId, Reason, Role, Summary, Why};
use std::sync::atomic::Ordering;

/// How a session ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was done.
    pub summary: Summary,
    /// Why it ended before its work was done; `None` where every file was answered for.
    pub broken: Option<Reason>,
    /// Nothing was deleted though the job asked for it, because something at the source could not be read.
    pub delete_withheld: bool,
    /// Where the time of this side's workers went.
    pub spent: Spent,
    /// Where that of both sides' did; `None` where the other side did not say.
    pub split: Option<Split>,
    /// What went over this side's lanes.
    pub traffic: Traffic,
    /// Bytes that an earlier run of the job had brought, and that were not sent again.
    pub spared: u64,
}

impl Outcome {
    /// Whether everything that was asked for is done.
    pub fn is_whole(&self) -> bool {
        let Summary { failed, unread, undeleted, .. } = self.summary;
        // Some of them are the other side's word: added up, they might come to nothing.
        self.broken.is_none() && !self.delete_withheld && [failed, unread, undeleted] == [0; 3]
    }

    /// Of a session that is over; `role` is this side's.
    fn of<M: meeting::Machine>(role: Role, session: &session::Session<'_, M>) -> Outcome {
        let (spent, split) = session.spent(role);
        let (traffic, spared) = (session.traffic(), session.spared.load(Ordering::Relaxed));
        let end = session.end();
        let (summary, broken, delete_withheld) = match end {
            Some(End::Finished { summary, delete_withheld }) => (summary, None, delete_withheld),
            Some(End::Broken { reason, summary }) => (summary, Some(reason), false),
            None => (Summary::default(), Some(Why::Internal.into()), false),
        };
        // A side that failed gives its lanes up: that they are lost is no reason.
        let broken = session.failure().or(broken);
        Outcome { summary, broken, delete_withheld, spent, split, traffic, spared }
    }
}

/// A lane that both sides agreed on.
struct Joined {
    id: LaneId,
    frames: Frames,
    outbox: Outbox,
    control: LaneControl,
}

impl Joined {
    fn new(id: LaneId, lane: Lane) -> Joined {
        let control = lane.control();
        let (reader, writer) = lane.split();
        Joined { id, frames: Frames::new(reader), outbox: Outbox::new(writer), control }
    }
}

/// Gives the next further lane, if one has come.
type More<'a> = Option<&'a mut dyn FnMut() -> Option<Joined>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// The other side's count of what it could not read, added to this side's failures, came to nothing: the job was called whole.
    #[test]
    fn no_count_of_the_other_side_makes_a_job_with_failures_whole() {
        let outcome = |summary| Outcome {
            summary,
            broken: None,
            delete_withheld: false,
            spent: Spent::default(),
            split: None,
            traffic: Traffic::default(),
            spared: 0,
        };
        assert!(outcome(Summary::default()).is_whole());
        let failed = Summary { failed: 1, ..Summary::default() };
        assert!(!outcome(Summary { unread: u64::MAX, ..failed }).is_whole());
        assert!(!outcome(Summary { undeleted: u64::MAX, ..failed }).is_whole());
    }
}
