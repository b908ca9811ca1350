//! Flaws of a waybill.

use super::{LINE_BYTES_MAX, VERSION};
use haul_digest::Algorithm;
use haul_model::{ByteRange, ObjectIndex};
use haul_model::{PathFault, RelPath};
use std::io;
use thiserror::Error;

/// Error that a reader returns instead of the next record.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes cannot be read; reading ends.
    #[error("the waybill can't be read: {0}")]
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
    #[error("line 1: this is not a waybill, or its first line is damaged")]
    NotAWaybill,
    /// A newer version of the format.
    #[error(
        "line {line}: this waybill has version {version}, and this program reads up to version {VERSION}: \
         a newer haul is needed"
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
    #[error("the line is damaged, or lines before it are missing or moved: its checksum does not match")]
    Damaged,
    /// The file ends within a line.
    #[error("the waybill ends within this line: it was cut off")]
    CutOff,
    /// The file ends before the section does.
    #[error("the waybill ends here without its closing line: it was cut off")]
    NoEnd,
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A word is not of the form `key=value`.
    #[error("the line holds a word that is no field")]
    NotAField,
    /// A field occurs twice, or there are more fields than any line has.
    #[error("a field stands there twice, or the line has too many")]
    TwiceOrTooMany,
    /// A required field is missing.
    #[error("the field '{0}' is missing")]
    MissingField(&'static str),
    /// The value of a field is invalid.
    #[error("the field '{0}' has no valid value")]
    BadField(&'static str),
    /// A path is invalid.
    #[error("the {field} is refused: {fault}")]
    Path {
        /// Name of the field.
        field: &'static str,
        /// Fault of the path.
        fault: PathFault,
    },
    /// The tag of the line is unknown.
    #[error("the line is of no kind that is known")]
    UnknownRecord,
    /// The line is not allowed at this position.
    #[error("the line does not belong here: {0}")]
    Misplaced(&'static str),
    /// Objects of a file are missing.
    #[error("{path} has {found} of its {expected} object lines before this one")]
    MissingObjects {
        /// Path of the file.
        path: RelPath,
        /// Number of objects found.
        found: u64,
        /// Number of objects expected.
        expected: u64,
    },
    /// Leaves of an object are missing.
    #[error("{path} has {found} of the {expected} leaves of its object {object} before this line", object = object.0)]
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
    #[error("the {algorithm} digest of {path} does not follow from the digests of its objects")]
    RootDiffers {
        /// Path of the file.
        path: RelPath,
        /// Algorithm of the inconsistent digests.
        algorithm: Algorithm,
    },
    /// The digest of an object does not match the digests of its leaves.
    #[error("the digest of bytes {range} of {path} does not follow from the digests of its leaves")]
    ObjectDiffers {
        /// Path of the file.
        path: RelPath,
        /// Range of the object.
        range: ByteRange,
    },
    /// A total of the closing line differs from the count of the reader.
    #[error("the closing line counts {stated} {what}, and there are {found}")]
    Totals {
        /// Name of the total.
        what: &'static str,
        /// Total in the closing line.
        stated: u64,
        /// Total that the reader counted.
        found: u64,
    },
    /// The digest of the closing line differs, although the checksum of each line matches.
    #[error("the section is not the one that was closed: its digest differs")]
    SectionDiffers,
    /// A section does not continue the previous one.
    #[error("the section does not continue the one before it: sections are missing, moved or exchanged")]
    NotContinued,
}
