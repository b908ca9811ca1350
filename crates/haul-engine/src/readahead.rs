//! Read-ahead for a file that several workers read.
//!
//! Workers take the objects of a file in parallel, so the kernel sees jumping reads. It discards
//! the data that it read ahead for one worker when it serves the next. If the device gets the
//! request for an object some turns early, it has work while all workers process data. It also gets
//! large requests.

use haul_model::ByteRange;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of bytes of a file that are requested and not read yet. Even the page cache of a
/// small machine can spare this amount.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// End of the requested part of a file whose readers do not know in advance which objects they will
/// get.
#[derive(Debug, Default)]
pub(crate) struct ReadaheadCursor(AtomicU64);

impl ReadaheadCursor {
    /// Returns the range of a file of `len` bytes to request when `object` is about to be read: up
    /// to `bytes` bytes behind it. Returns `None` if the object does not follow the requested part.
    /// The bytes between them are then not read at all, and the same may hold for those that
    /// follow.
    pub(crate) fn next(&self, object: ByteRange, len: u64, bytes: u64) -> Option<ByteRange> {
        let until = if object.start.0 <= self.0.load(Ordering::Relaxed) {
            object.end.0.saturating_add(bytes).min(len)
        } else {
            object.end.0
        };
        let before = self.0.fetch_max(until, Ordering::Relaxed);
        let from = before.max(object.end.0);
        (object.start.0 <= before && from < until).then(|| ByteRange::between(from, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: u64 = 4 << 20;

    fn object(index: u64) -> ByteRange {
        ByteRange::between(index * OBJECT, (index + 1) * OBJECT)
    }

    fn between(from: u64, until: u64) -> Option<ByteRange> {
        Some(ByteRange::between(from * OBJECT, until * OBJECT))
    }

    #[test]
    fn each_byte_after_the_first_object_is_requested_once() {
        let (front, len, bytes) = (ReadaheadCursor::default(), 10 * OBJECT, 4 * OBJECT);
        assert_eq!(front.next(object(0), len, bytes), between(1, 5));
        assert_eq!(front.next(object(2), len, bytes), between(5, 7), "workers start out of order");
        assert_eq!(front.next(object(1), len, bytes), None, "already requested");
        assert_eq!(front.next(object(3), len, bytes), between(7, 8));
        assert_eq!(front.next(object(7), len, bytes), between(8, 10), "no byte past the end");
        assert_eq!(front.next(object(9), len, bytes), None);
        assert_eq!(front.next(object(3), len, bytes), None, "an object that is sent again");
    }

    #[test]
    fn non_adjacent_objects_get_no_readahead() {
        let (front, len, bytes) = (ReadaheadCursor::default(), 100 * OBJECT, 2 * OBJECT);
        assert_eq!(front.next(object(20), len, bytes), None, "a resumed job");
        assert_eq!(front.next(object(50), len, bytes), None);
        assert_eq!(
            front.next(object(51), len, bytes),
            between(52, 54),
            "from here on they follow each other"
        );
        let last = ByteRange::between(0, u64::MAX);
        assert_eq!(ReadaheadCursor::default().next(last, u64::MAX, 1), None, "no length overflows");
    }
}
