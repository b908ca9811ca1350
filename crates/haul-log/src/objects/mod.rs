//! The object log: which objects of which files are durable at the sink, so that a job that was cut off goes on.
//!
//! [`Log`] takes facts ("object 3 of this file is durable") and gives [`Order`]s: bytes to be written into files of one
//! folder, with marks where all that came before must be durable. [`replay`] takes the bytes of those files and gives
//! [`Facts`]: never an object that was not logged, and all that was synced. FT-LADS's three mechanisms and six encodings
//! (Kasu et al., "FT-LADS: Fault-Tolerant Object-Logging based Big Data Transfer System using Layout-Aware Data
//! Scheduling", sections 4.1 and 4.2) are one design here; `docs/formats/log.md` draws every byte of them.

mod entry;
mod facts;
mod flaw;
mod group;
mod head;
mod log;
mod order;
mod page;
mod region;
mod replay;
mod seal;
mod set;
mod sheet;
mod style;
mod volume;

pub use facts::{Facts, Identity, Job, SourceVersion, Subject};
pub use flaw::{Flaw, TooManyObjects};
pub use head::HEAD_BYTES;
pub use log::{FileKey, Log};
pub use order::Order;
pub use replay::{Replay, newer, replay};
pub use set::ObjectSet;
pub use style::{Encoding, Mechanism, Style, UnknownStyle};

/// The version that is written, and the highest that is read.
pub const VERSION: u16 = 1;

/// Most objects of one file: what 2^64 bytes make in the smallest objects, of 64 KiB.
pub const OBJECTS_MAX: u64 = 1 << 48;

const _: () = assert!(OBJECTS_MAX - 1 == u64::MAX / haul_model::limits::OBJECT_BYTES_MIN);

/// Objects of one page of a bit vector: its 512 bytes are what a group commit writes for a file at least, so that a
/// file of millions of objects is not written anew each time.
pub const PAGE_OBJECTS: u64 = 4096;

/// Most objects of one appended group.
pub const GROUP_OBJECTS_MAX: usize = 1024;
