//! The object log records which objects of which files are durable at the sink, so that an
//! interrupted job can resume.
//!
//! [`Log`] takes changes ("object 3 of this file is durable") and returns [`Order`]s: bytes to
//! write into the files of one directory. Markers state where all earlier orders must be durable.
//! [`replay`] takes the bytes of those files and returns [`Facts`]: never an object that was not
//! logged, and everything that was synced.
//!
//! The three mechanisms and six encodings of FT-LADS (Kasu et al., "FT-LADS: Fault-Tolerant
//! Object-Logging based Big Data Transfer System using Layout-Aware Data Scheduling", sections 4.1
//! and 4.2) share one design here. `docs/formats/log.md` specifies every byte of them.

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

/// Version that is written, and the highest version that is read.
pub const VERSION: u16 = 1;

/// Maximum number of objects of a file: 2^64 bytes in the smallest objects, of 64 KiB.
pub const OBJECTS_MAX: u64 = 1 << 48;

const _: () = assert!(OBJECTS_MAX - 1 == u64::MAX / haul_model::limits::OBJECT_BYTES_MIN);

/// Objects per page of a bit vector. A group commit writes at least one page, which has 512 bytes,
/// for a file. Therefore it does not rewrite the complete bit vector of a file of millions of
/// objects each time.
pub const PAGE_OBJECTS: u64 = 4096;

/// Maximum number of objects in one appended group.
pub const GROUP_OBJECTS_MAX: usize = 1024;
