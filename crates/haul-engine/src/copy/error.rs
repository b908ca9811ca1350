//! What can go wrong with one entry, in the words of cp.

use super::quote::quote;
use haul_model::{ByteOffset, ByteRange};
use std::ffi::OsString;
use std::io;
use thiserror::Error;

/// A failure (or warning) about one entry. `Display` gives cp's words without the tool's name.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The source could not be read at a place.
    #[error("error reading {}: {}", quote(path), cause(source))]
    ReadFailed {
        /// The source.
        path: OsString,
        /// Where.
        at: ByteOffset,
        /// Why.
        source: io::Error,
    },
    /// The sink could not be written at a place.
    #[error("error writing {}: {}", quote(path), cause(source))]
    WriteFailed {
        /// The sink.
        path: OsString,
        /// Where.
        at: ByteOffset,
        /// Why.
        source: io::Error,
    },
    /// The source's size or time moved while it was read.
    #[error("{} changed while it was copied; its copy {} is not complete: copy it again", quote(path), quote(sink))]
    SourceChanged {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// The copy, read back, differs from what was read of the source.
    #[error("{} differs from {} in bytes {range}: the copy was damaged on its way to storage; copy it again", quote(sink), quote(path))]
    DigestMismatch {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
        /// The object that differs.
        range: ByteRange,
    },
    /// `--reflink=always` and the file system can't.
    #[error("failed to clone {} from {}: {}", quote(path), quote(from), cause(source))]
    CloneFailed {
        /// The sink.
        path: OsString,
        /// The source.
        from: OsString,
        /// Why.
        source: io::Error,
    },
    /// The job was told to stop while this file was on its way.
    #[error("interrupted while copying {} to {}", quote(path), quote(sink))]
    Interrupted {
        /// The source.
        path: OsString,
        /// Its copy.
        sink: OsString,
    },
    /// A system call on one path failed: `cannot <action> '<path>': <cause>`.
    #[error("cannot {action} {}: {}", quote(path), cause(source))]
    Cannot {
        /// What was tried, in cp's words: `stat`, `open`, `create regular file`, ...
        action: &'static str,
        /// On what.
        path: OsString,
        /// Why.
        source: io::Error,
    },
}

/// An error's text as the C library words it, without Rust's `(os error N)`.
pub(crate) fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
