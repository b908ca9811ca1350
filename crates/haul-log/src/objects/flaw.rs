//! Flaws of a log.

use super::{Encoding, VERSION};
use haul_model::RelPath;
use thiserror::Error;

/// A part of a log that was rejected. The affected objects are sent again. No flaw makes an object
/// count that was not logged.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// A name that no log file has.
    #[error("{name}: ignored: not an object log file; move the file elsewhere")]
    UnknownFile {
        /// Name of the file.
        name: String,
    },
    /// A newer version of the format.
    #[error(
        "{name}: byte 8: unsupported log version {version} (this program supports up to {VERSION}); \
         use a newer haul, or delete the job with 'haul jobs forget'"
    )]
    Newer {
        /// Name of the file.
        name: String,
        /// Version of the file.
        version: u16,
    },
    /// The file belongs to another job.
    #[error(
        "{name}: byte 24: ignored: the log belongs to another job; the files of this job will be sent again"
    )]
    OtherJob {
        /// Name of the file.
        name: String,
    },
    /// The objects of the log have another size.
    #[error(
        "{name}: byte 12: the log has objects of 2^{found} bytes, the job has objects of 2^{asked} bytes; \
         the logged objects will be sent again; to resume, use the previous object size"
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
        "{name}: truncated or damaged at byte {at}; objects without a valid log entry will be compared or sent again"
    )]
    Torn {
        /// Name of the file.
        name: String,
        /// Offset of the first invalid byte.
        at: u64,
    },
    /// A checksum mismatch that a crash cannot cause.
    #[error(
        "{name}: damaged at byte {at}; objects without a valid log entry will be compared or sent again; check the storage device of the log"
    )]
    Damaged {
        /// Name of the file.
        name: String,
        /// Offset of the damaged part.
        at: u64,
    },
    /// The checksums are correct, but the contents are inconsistent.
    #[error(
        "{name}: byte {at}: inconsistent log: {what}; objects logged after this point will be sent again"
    )]
    Contradictory {
        /// Name of the file.
        name: String,
        /// Offset of the inconsistent part.
        at: u64,
        /// Description of the inconsistency.
        what: &'static str,
    },
    /// An index without its log.
    #[error("{name}: byte 16: the log {log} of this index is missing; its objects will be sent again")]
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
    "cannot log {path}: {objects} objects, but the encoding {encoding} supports {max} per file; use larger objects, or --log-encoding=int",
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
