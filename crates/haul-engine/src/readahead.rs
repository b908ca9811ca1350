//! Reading ahead where several workers read one file.
//!
//! Workers take a file's objects side by side, so that to the kernel its reads jump to and fro, and what it reads ahead
//! for one is thrown away for the next. A device that hears of an object some turns early has work while all workers are
//! busy with what they read, and large requests to answer.

use haul_model::ByteRange;
use haul_sys::cache::{self, Advice};
use haul_sys::filesystem;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file that are asked for and not taken yet, at most. Smaller than what the page cache of a small machine loses
/// without harm.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// Whether there is anything to be won with a regular file: holes would become pages of zeros, and file systems that are not on a
/// device of this machine may have their own mind about reading ahead.
pub(crate) fn suits(file: impl AsFd, is_sparse: bool) -> bool {
    !is_sparse && filesystem::is_local(file)
}

/// Has a range of a file brought into memory, unless it is there.
pub(crate) fn ask(file: impl AsFd, range: ByteRange) {
    if !is_there(&file, range) {
        // Only makes the read begin sooner.
        let _ = cache::advise(&file, range, Advice::WillNeed);
    }
}

/// Whether the last page of a range is in memory: a file that was read lately is not asked for page by page again. Not the
/// first one, which the kernel's reading ahead for the object before may have brought.
fn is_there(file: impl AsFd, range: ByteRange) -> bool {
    let last = ByteRange::between(range.start.0.max(range.end.0 - 1), range.end.0);
    matches!(cache::residency(file, last), Ok(Some(found)) if found.cached > 0)
}

/// How far a file was asked for on behalf of workers who don't know in advance which objects they will get.
#[derive(Debug, Default)]
pub(crate) struct Front(AtomicU64);

impl Front {
    /// What of a file of `len` bytes to ask for when `object` is about to be read: up to so many bytes behind it. Nothing where it
    /// lies apart from what was asked for, since then what lies between them is not read at all, and neither may be what follows.
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
    use std::fs::File;

    const OBJECT: u64 = 4 << 20;

    fn object(index: u64) -> ByteRange {
        ByteRange::between(index * OBJECT, (index + 1) * OBJECT)
    }

    fn between(from: u64, until: u64) -> Option<ByteRange> {
        Some(ByteRange::between(from * OBJECT, until * OBJECT))
    }

    #[test]
    fn each_byte_behind_the_first_object_is_asked_for_once() {
        let (front, len, bytes) = (Front::default(), 10 * OBJECT, 4 * OBJECT);
        assert_eq!(front.next(object(0), len, bytes), between(1, 5));
        assert_eq!(front.next(object(2), len, bytes), between(5, 7), "workers don't begin in order");
        assert_eq!(front.next(object(1), len, bytes), None, "that was asked for");
        assert_eq!(front.next(object(3), len, bytes), between(7, 8));
        assert_eq!(front.next(object(7), len, bytes), between(8, 10), "no byte past the end");
        assert_eq!(front.next(object(9), len, bytes), None);
        assert_eq!(front.next(object(3), len, bytes), None, "an object that is sent again");
    }

    #[test]
    fn objects_that_lie_apart_are_read_alone() {
        let (front, len, bytes) = (Front::default(), 100 * OBJECT, 2 * OBJECT);
        assert_eq!(front.next(object(20), len, bytes), None, "a job that goes on");
        assert_eq!(front.next(object(50), len, bytes), None);
        assert_eq!(
            front.next(object(51), len, bytes),
            between(52, 54),
            "from here on they follow each other"
        );
        let last = ByteRange::between(0, u64::MAX);
        assert_eq!(Front::default().next(last, u64::MAX, 1), None, "no length overflows");
    }

    #[test]
    fn what_is_in_memory_is_not_asked_for() {
        let path = std::env::temp_dir().join(format!("haul-readahead-{}", std::process::id()));
        std::fs::write(&path, [7; 1 << 16]).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(is_there(&file, ByteRange::between(0, 1 << 16)), "what was written just now");
        assert!(!is_there(&file, ByteRange::between(1 << 20, 2 << 20)), "past the end");
    }
}
