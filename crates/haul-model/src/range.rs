//! Places, lengths and ranges in bytes.

use std::fmt;

/// A place in a file, in bytes from its start.
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
    /// One past the last byte; never before `start`.
    pub end: ByteOffset,
}

impl ByteRange {
    /// The range of `len` bytes from `start`. A range that would pass 2^64 - 1 is cut there.
    pub const fn from_len(start: ByteOffset, len: ByteLen) -> ByteRange {
        ByteRange { start, end: ByteOffset(start.0.saturating_add(len.0)) }
    }

    /// The range between two offsets.
    ///
    /// # Panics
    /// If `end` lies before `start`: that is a mistake of the caller, not of the world.
    pub const fn between(start: u64, end: u64) -> ByteRange {
        assert!(start <= end, "a range ends at or after its start");
        ByteRange { start: ByteOffset(start), end: ByteOffset(end) }
    }

    /// How many bytes the range holds.
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the range holds no byte.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// The part that two ranges share; `None` where they share no byte.
    pub fn intersect(self, other: ByteRange) -> Option<ByteRange> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (start < end).then_some(ByteRange { start, end })
    }
}

impl fmt::Display for ByteRange {
    /// `start-end`, end exclusive, as mutil prints its ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start.0, self.end.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_share_nothing() {
        assert_eq!(ByteRange::between(0, 4).intersect(ByteRange::between(4, 8)), None);
        assert_eq!(
            ByteRange::between(0, 5).intersect(ByteRange::between(4, 8)),
            Some(ByteRange::between(4, 5))
        );
    }

    #[test]
    fn a_range_at_the_end_of_the_address_space_is_cut_there() {
        assert_eq!(ByteRange::from_len(ByteOffset(u64::MAX - 1), ByteLen(9)).len(), 1);
    }
}
