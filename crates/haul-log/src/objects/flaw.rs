//! Flaws of a log.

use super::{Encoding, VERSION};
use haul_model::RelPath;
use thiserror::Error;

/// A part of a log that was rejected. The affected objects are sent again. No flaw makes an object
/// count that was not logged.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// A name that no log file has.
    #[error("{name}: this is no file of an object log and is left alone; move it elsewhere")]
    Stranger {
        /// Name of the file.
        name: String,
    },
    /// A newer version of the format.
    #[error(
        "{name}: byte 8: this log has version {version}, and this program reads up to version {VERSION}; \
         use a newer haul, or forget the job"
    )]
    Newer {
        /// Name of the file.
        name: String,
        /// Version of the file.
        version: u16,
    },
    /// The file belongs to another job.
    #[error(
        "{name}: byte 24: this log belongs to another job and is not trusted; the job's files are sent again"
    )]
    OtherJob {
        /// Name of the file.
        name: String,
    },
    /// The objects of the log have another size.
    #[error(
        "{name}: byte 12: this log counts objects of 2^{found} bytes, the job has objects of 2^{asked}; \
         they are sent again, or run it with the object size from before"
    )]
    OtherObjectSize {
        /// Name of the file.
        name: String,
        /// Exponent of the object size in the log.
        found: u8,
        /// Exponent of the object size of the job.
        asked: u8,
    },
    /// Incomplete or damaged bytes, as after a crash. Damage to a log of numbers looks the same.
    #[error(
        "{name}: it is not whole from byte {at} on, where the job was cut off or the log was damaged; what it no longer tells of is compared or sent again"
    )]
    Torn {
        /// Name of the file.
        name: String,
        /// Offset of the first invalid byte.
        at: u64,
    },
    /// A checksum mismatch that a crash cannot cause.
    #[error(
        "{name}: the log is damaged at byte {at}; objects that it no longer tells of are compared or sent again. Check the device it is kept on"
    )]
    Damaged {
        /// Name of the file.
        name: String,
        /// Offset of the damaged part.
        at: u64,
    },
    /// The checksums are correct, but the contents are inconsistent.
    #[error("{name}: byte {at}: the log contradicts itself: {what}; what follows is sent again")]
    Contradictory {
        /// Name of the file.
        name: String,
        /// Offset of the inconsistent part.
        at: u64,
        /// Description of the inconsistency.
        what: &'static str,
    },
    /// An index without its log.
    #[error(
        "{name}: byte 16: the log {log} that this index is about is not there; its objects are sent again"
    )]
    LogMissing {
        /// Name of the index.
        name: String,
        /// Name of the log.
        log: String,
    },
}

/// A file with more objects than the encoding supports.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{path}: has {objects} objects, and the encoding {encoding} holds {max} of a file; take larger objects, or the encoding int",
    max = encoding.objects_max()
)]
pub struct TooManyObjects {
    /// Path of the file.
    pub path: RelPath,
    /// Number of objects of the file.
    pub objects: u64,
    /// Encoding of the log.
    pub encoding: Encoding,
}
