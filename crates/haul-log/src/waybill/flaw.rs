//! Flaws of a waybill.

use super::{LINE_BYTES_MAX, VERSION};
use haul_digest::Algorithm;
use haul_model::{ByteRange, ObjectIndex};
use haul_model::{PathError, RelPath};
use std::io;
use thiserror::Error;

/// Error that a reader returns instead of the next record.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes cannot be read; reading ends.
    #[error("cannot read the waybill: {0}")]
    Io(#[from] io::Error),
    /// The file is not a waybill that this program can read; reading ends.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A flaw at one position. Reading continues with the next line.
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

/// Reason why a complete waybill is rejected.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The first line is not that of a waybill.
    #[error("line 1: not a waybill, or the first line is damaged")]
    NotAWaybill,
    /// A newer version of the format.
    #[error(
        "line {line}: unsupported waybill version {version} (this program supports up to {VERSION}); \
         use a newer haul"
    )]
    Newer {
        /// Line that contains the version.
        line: u64,
        /// Version of the waybill.
        version: u64,
    },
}

/// A flaw with its position.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {kind}")]
pub struct Flaw {
    /// Line of the flaw, counted from 1.
    pub line: u64,
    /// Kind of the flaw.
    pub kind: FlawKind,
}

/// Kind of a flaw at a line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlawKind {
    /// The checksum differs: the line was damaged, or earlier lines were moved, lost or added.
    #[error("checksum mismatch: the line is damaged, or earlier lines are missing or moved")]
    Damaged,
    /// The file ends within a line.
    #[error("truncated: the waybill ends within this line")]
    CutOff,
    /// The file ends before the section does.
    #[error("truncated: the waybill ends without a closing line")]
    NoEnd,
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A word is not of the form `key=value`.
    #[error("the line contains a word that is not a field")]
    NotAField,
    /// A field occurs twice, or there are more fields than any line has.
    #[error("duplicate field, or too many fields")]
    TwiceOrTooMany,
    /// A required field is missing.
    #[error("missing field '{0}'")]
    MissingField(&'static str),
    /// The value of a field is invalid.
    #[error("invalid value of field '{0}'")]
    BadField(&'static str),
    /// A path is invalid.
    #[error("invalid {field}: {fault}")]
    Path {
        /// Name of the field.
        field: &'static str,
        /// Fault of the path.
        fault: PathError,
    },
    /// The tag of the line is unknown.
    #[error("unknown kind of line")]
    UnknownRecord,
    /// The line is not allowed at this position.
    #[error("misplaced line: {0}")]
    Misplaced(&'static str),
    /// Objects of a file are missing.
    #[error("only {found} of {expected} object lines of {path} before this line")]
    MissingObjects {
        /// Path of the file.
        path: RelPath,
        /// Number of objects found.
        found: u64,
        /// Number of objects expected.
        expected: u64,
    },
    /// Leaves of an object are missing.
    #[error("only {found} of {expected} leaves of object {object} of {path} before this line", object = object.0)]
    MissingLeaves {
        /// Path of the file.
        path: RelPath,
        /// Number of the object.
        object: ObjectIndex,
        /// Number of leaves found.
        found: u64,
        /// Number of leaves expected.
        expected: u64,
    },
    /// The digest of a file does not match the digests of its objects.
    #[error("the {algorithm} digest of {path} does not match the digests of its objects")]
    RootDiffers {
        /// Path of the file.
        path: RelPath,
        /// Algorithm of the inconsistent digests.
        algorithm: Algorithm,
    },
    /// The digest of an object does not match the digests of its leaves.
    #[error("the digest of bytes {range} of {path} does not match the digests of its leaves")]
    ObjectDiffers {
        /// Path of the file.
        path: RelPath,
        /// Range of the object.
        range: ByteRange,
    },
    /// A total of the closing line differs from the count of the reader.
    #[error("the closing line states {stated} {what}, but the section has {found}")]
    Totals {
        /// Name of the total.
        what: &'static str,
        /// Total in the closing line.
        stated: u64,
        /// Total that the reader counted.
        found: u64,
    },
    /// The digest of the closing line differs, although the checksum of each line matches.
    #[error("the section does not match its closing line: the digest differs")]
    SectionDiffers,
    /// A section does not continue the previous one.
    #[error("the section does not continue the previous section: sections are missing, moved or exchanged")]
    NotContinued,
}
