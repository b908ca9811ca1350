//! What can be wrong with a waybill.

use super::{LINE_BYTES_MAX, VERSION};
use haul_digest::Algorithm;
use haul_model::{ByteRange, ObjectIndex};
use haul_model::{PathFault, RelPath};
use std::io;
use thiserror::Error;

/// Why the next record can't be had.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes can't be read; there is no going on.
    #[error("the waybill can't be read: {0}")]
    Io(#[from] io::Error),
    /// It is none that this program reads; there is no going on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Something is wrong at one place. Reading goes on with the next line.
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

/// Why a whole waybill is not read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The first line is no waybill's.
    #[error("line 1: this is not a waybill, or its first line is damaged")]
    NotAWaybill,
    /// Written by a later version of the format.
    #[error(
        "line {line}: this waybill has version {version}, and this program reads up to version {VERSION}: \
         a newer haul is needed"
    )]
    Newer {
        /// Where it says so.
        line: u64,
        /// The version it has.
        version: u64,
    },
}

/// One thing that is wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {kind}")]
pub struct Flaw {
    /// The line it was found at, counted from 1.
    pub line: u64,
    /// What it is.
    pub kind: FlawKind,
}

/// What is wrong at a line.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlawKind {
    /// The checksum differs: the line was damaged, or lines were moved, lost or added before it.
    #[error("the line is damaged, or lines before it are missing or moved: its checksum does not match")]
    Damaged,
    /// The file ends within a line.
    #[error("the waybill ends within this line: it was cut off")]
    CutOff,
    /// The file ends before the section does.
    #[error("the waybill ends here without its closing line: it was cut off")]
    NoEnd,
    /// Longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A word that is no `key=value`.
    #[error("the line holds a word that is no field")]
    NotAField,
    /// A field stands there twice, or there are more than any line has.
    #[error("a field stands there twice, or the line has too many")]
    TwiceOrTooMany,
    /// A field that must be there is not.
    #[error("the field '{0}' is missing")]
    MissingField(&'static str),
    /// A field's value is none that it can have.
    #[error("the field '{0}' has no valid value")]
    BadField(&'static str),
    /// A path that may not be one.
    #[error("the {field} is refused: {fault}")]
    Path {
        /// Which field.
        field: &'static str,
        /// Why.
        fault: PathFault,
    },
    /// The line begins with no word that a waybill has.
    #[error("the line is of no kind that is known")]
    UnknownRecord,
    /// The line is one that belongs elsewhere.
    #[error("the line does not belong here: {0}")]
    Misplaced(&'static str),
    /// Objects of a file are missing.
    #[error("{path} has {found} of its {expected} object lines before this one")]
    MissingObjects {
        /// The file.
        path: RelPath,
        /// How many there are.
        found: u64,
        /// How many there must be.
        expected: u64,
    },
    /// Leaves of an object are missing.
    #[error("{path} has {found} of the {expected} leaves of its object {object} before this line", object = object.0)]
    MissingLeaves {
        /// The file.
        path: RelPath,
        /// Which object.
        object: ObjectIndex,
        /// How many there are.
        found: u64,
        /// How many there must be.
        expected: u64,
    },
    /// A file's digest does not follow from those of its objects.
    #[error("the {algorithm} digest of {path} does not follow from the digests of its objects")]
    RootDiffers {
        /// The file.
        path: RelPath,
        /// The algorithm whose digests contradict each other.
        algorithm: Algorithm,
    },
    /// An object's digest does not follow from those of its leaves.
    #[error("the digest of bytes {range} of {path} does not follow from the digests of its leaves")]
    ObjectDiffers {
        /// The file.
        path: RelPath,
        /// The object's bytes.
        range: ByteRange,
    },
    /// A total of the closing line is not what was counted.
    #[error("the closing line counts {stated} {what}, and there are {found}")]
    Totals {
        /// What is counted.
        what: &'static str,
        /// By the closing line.
        stated: u64,
        /// By the reader.
        found: u64,
    },
    /// The digest of the closing line differs, though each line's checksum matches.
    #[error("the section is not the one that was closed: its digest differs")]
    SectionDiffers,
    /// A section does not continue the one before it.
    #[error("the section does not continue the one before it: sections are missing, moved or exchanged")]
    NotContinued,
}
