//! What can be wrong with a log.

use super::{Encoding, VERSION};
use haul_model::RelPath;
use thiserror::Error;

/// Something in the files of a log that was not taken. What a flaw takes away is sent again; no flaw makes an object
/// count that was not logged.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// A name that no log has.
    #[error("{name}: this is no file of an object log and is left alone; move it elsewhere")]
    Stranger {
        /// The file.
        name: String,
    },
    /// A later version wrote it.
    #[error(
        "{name}: byte 8: this log has version {version}, and this program reads up to version {VERSION}; \
         use a newer haul, or forget the job"
    )]
    Newer {
        /// The file.
        name: String,
        /// Its version.
        version: u16,
    },
    /// It belongs to another job.
    #[error(
        "{name}: byte 24: this log belongs to another job and is not trusted; the job's files are sent again"
    )]
    OtherJob {
        /// The file.
        name: String,
    },
    /// Its objects have another size.
    #[error(
        "{name}: byte 12: this log counts objects of 2^{found} bytes, the job has objects of 2^{asked}; \
         they are sent again, or run it with the object size from before"
    )]
    OtherObjectSize {
        /// The file.
        name: String,
        /// The exponent of its objects' size.
        found: u8,
        /// The exponent of the job's objects' size.
        asked: u8,
    },
    /// Some bytes are not as they were to be: what a crash leaves behind. Damage to a log of numbers looks the same.
    #[error(
        "{name}: it is not whole from byte {at} on, where the job was cut off or the log was damaged; what it no longer tells of is compared or sent again"
    )]
    Torn {
        /// The file.
        name: String,
        /// Where.
        at: u64,
    },
    /// A checksum differs where a crash leaves none that does.
    #[error(
        "{name}: the log is damaged at byte {at}; objects that it no longer tells of are compared or sent again. Check the device it is kept on"
    )]
    Damaged {
        /// The file.
        name: String,
        /// Where.
        at: u64,
    },
    /// Checksums are right, and what is said can't be.
    #[error("{name}: byte {at}: the log contradicts itself: {what}; what follows is sent again")]
    Contradictory {
        /// The file.
        name: String,
        /// Where.
        at: u64,
        /// What can't be.
        what: &'static str,
    },
    /// An index without its log.
    #[error(
        "{name}: byte 16: the log {log} that this index is about is not there; its objects are sent again"
    )]
    LogMissing {
        /// The index.
        name: String,
        /// The log.
        log: String,
    },
}

/// A file that the encoding can't hold.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{path}: has {objects} objects, and the encoding {encoding} holds {max} of a file; take larger objects, or the encoding int",
    max = encoding.objects_max()
)]
pub struct TooManyObjects {
    /// Which file.
    pub path: RelPath,
    /// How many objects it has.
    pub objects: u64,
    /// The encoding.
    pub encoding: Encoding,
}
