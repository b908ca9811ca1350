//! Offsets, lengths and ranges in bytes.

use std::fmt;

/// An offset in a file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

/// The bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte of the range.
    pub start: ByteOffset,
    /// One past the last byte; never less than `start`.
    pub end: ByteOffset,
}

impl ByteRange {
    /// Creates the range of `len` bytes from `start`. A range that would exceed 2^64 - 1 is
    /// truncated there.
    pub const fn from_len(start: ByteOffset, len: ByteLen) -> ByteRange {
        ByteRange { start, end: ByteOffset(start.0.saturating_add(len.0)) }
    }

    /// Creates the range between two offsets.
    ///
    /// # Panics
    /// Panics if `end` is less than `start`, which is a caller error.
    pub const fn between(start: u64, end: u64) -> ByteRange {
        assert!(start <= end, "a range ends at or after its start");
        ByteRange { start: ByteOffset(start), end: ByteOffset(end) }
    }

    /// Returns the range in consecutive pieces of `most` bytes; the last one may be shorter.
    ///
    /// # Panics
    /// Panics if `most` is 0.
    pub fn steps(self, most: u64) -> impl Iterator<Item = ByteRange> {
        assert!(most > 0, "a step has at least one byte");
        let mut at = self.start.0;
        std::iter::from_fn(move || {
            let end = self.end.0.min(at.saturating_add(most));
            let step = ByteRange::between(at, end);
            at = end;
            (!step.is_empty()).then_some(step)
        })
    }

    /// Returns the number of bytes in the range.
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Returns true if the range contains no bytes.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Returns the intersection of two ranges, or `None` if it is empty.
    pub fn intersect(self, other: ByteRange) -> Option<ByteRange> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(ByteRange { start, end })
    }
}

impl fmt::Display for ByteRange {
    /// Prints `start-end`, with an exclusive end, like the ranges of mutil.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start.0, self.end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_do_not_intersect() {
        assert_eq!(ByteRange::between(0, 4).intersect(ByteRange::between(4, 8)), None);
        assert_eq!(
            ByteRange::between(0, 5).intersect(ByteRange::between(4, 8)),
            Some(ByteRange::between(4, 5))
        );
    }

    #[test]
    fn range_is_clamped_at_the_maximum_offset() {
        assert_eq!(ByteRange::from_len(ByteOffset(u64::MAX - 1), ByteLen(9)).len(), 1);
    }
}
