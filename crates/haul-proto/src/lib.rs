//! Floor 2, pure: the wire between two hosts.
//!
//! - [`Header`] and [`Message`] are frames: bytes to facts and back, every length bounded before anything is allocated.
//!   `docs/formats/wire.md` draws every byte.
//! - [`Source`] and [`Sink`] are the two ends of a session as state machines: events go in, commands and work come out, time is
//!   passed in, counted from any fixed moment. Payload never passes through them, only descriptors.
//! - [`judge_name`] judges the names that a peer asks for.
//!
//! Nothing here touches a clock, a file, a socket or a thread.

mod fields;
mod frame;
pub mod limits;
mod message;
mod names;
mod reason;
mod runs;
pub mod sink;
pub mod source;
mod timing;

pub use frame::{Flaw, Header};
pub use limits::{HEADER_LEN, VERSION};
pub use message::{
    Accept, Answer, BlockDigest, BlockReject, BlockSync, Bye, CONTROL, Close, Compression, Connect, Delete,
    Encoding, Features, FileClose, FileDone, FileId, FileKind, FileNumber, JobOptions, Join, Keep, LaneId,
    LaneTimes, List, LogWish, Message, NameRule, NewBlock, NewFile, ObjectDigests, OperandList, Operands,
    Outcome, Principal, Role, SESSION_TOKEN_BYTES, Stated, Summary, Times, Unit, Unread, Update, Verify,
    WalkEnd, Window, Xattr, check_list,
};
pub use names::{NAME_BYTES_MAX, NameFault, judge_name};
pub use reason::{PeerText, Reason, Why};
pub use runs::Runs;
pub use sink::Sink;
pub use source::Source;
pub use timing::{End, Timing};
