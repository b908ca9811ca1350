//! Layer 2, pure: the wire protocol between two hosts.
//!
//! - [`Header`] and [`Message`] encode and decode frames. Every length is checked against its limit
//!   before anything is allocated. `docs/formats/wire.md` describes every byte.
//! - [`Source`] and [`Sink`] are the two ends of a session as state machines: events go in,
//!   commands and work come out. The caller passes in the time, counted from any fixed moment.
//!   Payload never passes through the machines, only descriptors.
//! - [`check_name`] checks the names that a peer requests.
//!
//! This crate uses no clock, file, socket or thread.

mod fields;
mod frame;
pub mod limits;
mod message;
mod names;
mod reason;
pub mod sink;
pub mod source;
mod timing;

pub use frame::{Flaw, Header};
pub use haul_model::Runs;
pub use limits::{HEADER_LEN, VERSION};
pub use message::{
    Accept, Answer, BlockDigest, BlockReject, BlockSync, Bye, CONTROL, Close, Compared, Compression, Connect,
    Delete, Encoding, Entries, EntryKind, Fate, Features, FileClose, FileDone, FileId, FileKind, FileNumber,
    JobOptions, Join, Keep, LaneId, LaneTimes, List, ListedEntry, LogRequest, Message, NameRule, Named,
    Names, NewBlock, NewFile, ObjectDigests, OperandList, Operands, Outcome, Principal, Role,
    SESSION_TOKEN_BYTES, Stated, Summary, Times, Unit, Unread, Update, Verify, WalkEnd, Window, Xattr,
    check_list,
};
pub use names::{
    NAME_BYTES_MAX, NameFault, STORED_SUMS, check_accepted, check_name, check_received, is_own_name,
};
pub use reason::{PeerText, Reason, Why};
pub use sink::Sink;
pub use source::Source;
pub use timing::{End, Timing, Withheld};
