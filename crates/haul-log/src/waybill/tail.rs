//! The end of a waybill, for who appends to it.

use super::decode;
use super::facts::End;
use super::fields::{Fields, number};
use super::flaw::Refusal;
use super::line::{LINE_BYTES_MAX, MAGIC, VERSION, continued, stated};
use haul_digest::Digest;
use thiserror::Error;

/// How many of a waybill's last bytes hold its last two lines.
pub const TAIL_BYTES: usize = 2 * LINE_BYTES_MAX;

/// Where a waybill that was closed ends: what the next section goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The last section's number.
    pub section: u64,
    /// Its digest.
    pub digest: Digest,
}

/// Why a file is no waybill that can be appended to.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TailError {
    /// It does not end with a line that closes a section.
    #[error("it does not end with the closing line of a waybill: it is no waybill, or was cut off")]
    NotClosed,
    /// It does, and the line is damaged.
    #[error("its closing line is damaged")]
    Damaged,
    /// It is one of a later version.
    #[error(transparent)]
    Newer(#[from] Refusal),
}

/// Looks at the first bytes of a waybill, [`LINE_BYTES_MAX`] of them or all it has, before a section of this version is appended: who wrote a later
/// version may mean other things by the lines that this one knows.
///
/// # Errors
/// [`TailError::Newer`].
pub fn may_append(first: &[u8]) -> Result<(), TailError> {
    let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(line).ok().and_then(|text| text.strip_prefix(MAGIC));
    // All versions have the form of the first line. What is no waybill is told by its end.
    let words = text.into_iter().flat_map(|text| text.split(' '));
    let version = words.filter_map(|word| word.strip_prefix("version=")).find_map(number);
    match version.filter(|version| *version > VERSION) {
        Some(version) => Err(TailError::Newer(Refusal::Newer { line: 1, version })),
        None => Ok(()),
    }
}

impl Tail {
    /// Reads the last bytes of a waybill, [`TAIL_BYTES`] of them or all it has.
    ///
    /// # Errors
    /// [`TailError`].
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
