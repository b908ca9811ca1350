//! End of a waybill, for a writer that appends to it.

use super::decode;
use super::facts::End;
use super::fields::{Fields, number};
use super::flaw::Refusal;
use super::line::{LINE_BYTES_MAX, MAGIC, VERSION, continued, stated};
use haul_digest::Digest;
use thiserror::Error;

/// Number of bytes at the end of a waybill that always contain its last two lines.
pub const TAIL_BYTES: usize = 2 * LINE_BYTES_MAX;

/// End of a closed waybill, from which the next section continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Number of the last section.
    pub section: u64,
    /// Digest of the last section.
    pub digest: Digest,
}

/// Reason why a section cannot be appended to a file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TailError {
    /// The file does not end with the closing line of a section.
    #[error("no closing line at the end: not a waybill, or truncated")]
    NotClosed,
    /// The closing line is damaged.
    #[error("the closing line is damaged")]
    Damaged,
    /// A newer version of the format.
    #[error(transparent)]
    Newer(#[from] Refusal),
}

/// Checks the version of a waybill before a section of this version is appended. In a later
/// version, lines that this version knows may have other meanings.
///
/// `first` holds the first [`LINE_BYTES_MAX`] bytes of the waybill, or all of it.
///
/// # Errors
///
/// Returns [`TailError::Newer`] if the waybill has a newer version.
pub fn may_append(first: &[u8]) -> Result<(), TailError> {
    let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(line).ok().and_then(|text| text.strip_prefix(MAGIC));
    // The first line has the same form in all versions. A file that is not a waybill is detected by
    // its end.
    let words = text.into_iter().flat_map(|text| text.split(' '));
    let version = words.filter_map(|word| word.strip_prefix("version=")).find_map(number);
    match version.filter(|version| *version > VERSION) {
        Some(version) => Err(TailError::Newer(Refusal::Newer { line: 1, version })),
        None => Ok(()),
    }
}

impl Tail {
    /// Decodes the last [`TAIL_BYTES`] bytes of a waybill, or all of it.
    ///
    /// # Errors
    ///
    /// Returns a [`TailError`] if the bytes do not end with an intact closing line.
    pub fn of(bytes: &[u8]) -> Result<Tail, TailError> {
        let text = bytes.strip_suffix(b"\n").ok_or(TailError::NotClosed)?;
        let mut lines = text.rsplit(|&byte| byte == b'\n');
        let (Some(last), Some(before)) = (lines.next(), lines.next()) else {
            return Err(TailError::NotClosed);
        };
        let (sum, line) = stated(last).ok_or(TailError::NotClosed)?;
        let fields = line.strip_prefix("end ").ok_or(TailError::NotClosed)?;
        let (before, _) = stated(before).ok_or(TailError::Damaged)?;
        if continued(continued(before, line.as_bytes()), b" ") != sum {
            return Err(TailError::Damaged);
        }
        let end = Fields::parse(fields).and_then(|fields| decode::end(&fields));
        let End { section, digest, .. } = end.map_err(|_| TailError::Damaged)?;
        Ok(Tail { section, digest })
    }
}
