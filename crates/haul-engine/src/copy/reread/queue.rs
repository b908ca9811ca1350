//! Objects of one file that wait for verification: digests in two queues, independent of the worker
//! that wrote the object.

use haul_digest::Digest;
use haul_model::ByteRange;
use haul_storage::ReadBack;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of bytes of a file in write-back before the code waits for the oldest. The value
/// keeps a device busy while the next objects are copied, and does not fill a small memory.
const BEHIND_BYTES: u64 = 32 << 20;

/// Maximum number of bytes that are requested again and not compared yet; they are read while other
/// objects are copied. With two objects of 4 MiB instead of eight, workers and device mostly waited
/// for each other.
const ASKED_BYTES: u64 = 32 << 20;

/// Minimum number of objects that may be requested, however large they are.
const ASKED_LEAST: usize = 2;

/// An object that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Range in the plan's coordinates.
    pub(crate) range: ByteRange,
    /// The [`CHECK_DIGEST`](super::CHECK_DIGEST) of the bytes read from the source.
    pub(crate) digest: Digest,
}

/// An object that is being re-read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingReread {
    pub(crate) check: Check,
    pub(crate) path: ReadBack,
}

/// The next step for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the object back, drop it from the page cache, and start reading it.
    Ask(Check),
    /// Compare the data that was read.
    Compare(PendingReread),
}

/// Selects the objects to process now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckSelection {
    /// Objects that are far enough behind, because more objects are being written.
    Behind,
    /// All objects, because no more come from this worker.
    All,
}

/// Verification progress of one file.
#[derive(Debug, Default)]
pub(crate) struct FileVerification {
    waiting: Mutex<Waiting>,
    /// Sorted and merged ranges, so that a file that is read from its start to its end needs one
    /// range.
    from_device: Mutex<Vec<ByteRange>>,
    from_cache: AtomicBool,
    /// True if an object of an earlier run was kept, which this run did not read from the device.
    has_kept: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    written: VecDeque<Check>,
    written_bytes: u64,
    asked: VecDeque<PendingReread>,
    asked_bytes: u64,
}

impl Waiting {
    /// Returns true if one more object may be requested.
    fn has_room(&self) -> bool {
        let next = self.written.front().map_or(0, |check| check.range.len());
        self.asked.len() < ASKED_LEAST || self.asked_bytes + next <= ASKED_BYTES
    }

    fn pop_asked(&mut self) -> Option<PendingReread> {
        let asked = self.asked.pop_front()?;
        self.asked_bytes -= asked.check.range.len();
        Some(asked)
    }

    fn pop_written(&mut self) -> Option<Check> {
        let check = self.written.pop_front()?;
        self.written_bytes -= check.range.len();
        Some(check)
    }
}

impl FileVerification {
    /// Adds a written object.
    pub(super) fn add(&self, check: Check) {
        self.with(|waiting| {
            waiting.written_bytes += check.range.len();
            waiting.written.push_back(check);
        });
    }

    /// Adds an object that is being read.
    pub(super) fn asked(&self, asked: PendingReread) {
        self.with(|waiting| {
            waiting.asked_bytes += asked.check.range.len();
            waiting.asked.push_back(asked);
        });
    }

    /// Takes an object to request, without the limit on requested objects.
    pub(super) fn next_written(&self) -> Option<Check> {
        self.with(Waiting::pop_written)
    }

    /// Takes the next step. Returns `None` if no step is due.
    pub(crate) fn next(&self, selection: CheckSelection) -> Option<Step> {
        self.with(|waiting| {
            let all = selection == CheckSelection::All;
            let may_ask = waiting.has_room();
            // The last object may exceed the limit for waiting objects, so one object always stays
            // in the queue.
            let lies_behind = waiting.written_bytes > BEHIND_BYTES && waiting.written.len() > 1;
            if may_ask
                && (all || lies_behind)
                && let Some(check) = waiting.pop_written()
            {
                return Some(Step::Ask(check));
            }
            let asked = if all || !may_ask { waiting.pop_asked() } else { None };
            asked.map(Step::Compare)
        })
    }

    /// Records that an object was read through this path and is correct.
    pub(super) fn proved(&self, range: ByteRange, path: ReadBack) {
        match path {
            ReadBack::FromDevice => insert(&mut self.ranges(), range),
            ReadBack::FromCache(_) => self.from_cache.store(true, Ordering::Relaxed),
        }
    }

    /// Records that an object was kept that an earlier run copied. The log does not say how that
    /// run verified it.
    pub(crate) fn keep(&self) {
        self.has_kept.store(true, Ordering::Relaxed);
    }

    /// Returns true if an object of an earlier run was kept.
    pub(crate) fn has_kept(&self) -> bool {
        self.has_kept.load(Ordering::Relaxed)
    }

    /// Returns true if this run re-read the whole file, and all of it came from the device.
    pub(crate) fn is_from_device(&self) -> bool {
        let has_other = self.from_cache.load(Ordering::Relaxed) || self.has_kept();
        !has_other && !self.ranges().is_empty()
    }

    /// Returns the ranges that came from the device, sorted. Returns no ranges if all of them did.
    pub(crate) fn parts_from_device(&self) -> Vec<ByteRange> {
        if self.is_from_device() { Vec::new() } else { self.ranges().clone() }
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<ByteRange>> {
        self.from_device.lock()
    }

    /// Returns true if a range came from the page cache although its pages were to be dropped.
    pub(crate) fn has_hit_page_cache(&self) -> bool {
        self.from_cache.load(Ordering::Relaxed)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Waiting) -> T) -> T {
        work(&mut self.waiting.lock())
    }
}

/// Inserts a range and merges it with the ranges that it touches.
fn insert(ranges: &mut Vec<ByteRange>, mut range: ByteRange) {
    let at = ranges.partition_point(|other| other.end.0 < range.start.0);
    let touching = ranges[at..].iter().take_while(|other| other.start.0 <= range.end.0).count();
    for other in ranges.splice(at..at + touching, []) {
        range = ByteRange::between(range.start.0.min(other.start.0), range.end.0.max(other.end.0));
    }
    ranges.insert(at, range);
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::{Algorithm, digest};

    const OBJECT: u64 = 4 << 20;

    fn check(index: u64, bytes: u64) -> Check {
        let range = ByteRange::between(index * bytes, (index + 1) * bytes);
        Check { range, digest: digest(Algorithm::Xxh3_128, &index.to_le_bytes()) }
    }

    /// Takes and executes the due steps. Returns the compared objects and the maximum of the
    /// requested bytes.
    fn answer(verification: &FileVerification, selection: CheckSelection) -> (Vec<u64>, u64) {
        let (mut compared, mut most) = (Vec::new(), 0);
        while let Some(step) = verification.next(selection) {
            match step {
                Step::Ask(check) => verification.asked(PendingReread { check, path: ReadBack::FromDevice }),
                Step::Compare(asked) => compared.push(asked.check.range.start.0),
            }
            most = most.max(verification.with(|waiting| waiting.asked_bytes));
        }
        (compared, most)
    }

    #[test]
    fn objects_are_compared_once_in_write_order_with_a_bounded_queue() {
        let verification = FileVerification::default();
        let mut compared = Vec::new();
        for index in 0..1000 {
            verification.add(check(index, OBJECT));
            let (now, most) = answer(&verification, CheckSelection::Behind);
            assert!(most <= ASKED_BYTES);
            compared.extend(now);
            let (bytes, count) = verification.with(|w| (w.written_bytes, w.written.len() + w.asked.len()));
            assert!(bytes <= BEHIND_BYTES && count as u64 <= (BEHIND_BYTES + ASKED_BYTES) / OBJECT);
        }
        assert!(compared.len() > 980, "proving keeps up: {}", compared.len());
        compared.extend(answer(&verification, CheckSelection::All).0);
        assert_eq!(compared, (0..1000).map(|index| index * OBJECT).collect::<Vec<_>>());
        assert_eq!(verification.with(|w| (w.written_bytes, w.written.len(), w.asked_bytes)), (0, 0, 0));
    }

    #[test]
    fn oversized_objects_are_requested_two_at_a_time() {
        let verification = FileVerification::default();
        (0..4).for_each(|index| verification.add(check(index, 2 * ASKED_BYTES)));
        let asked = |verification: &FileVerification| match verification.next(CheckSelection::Behind) {
            Some(Step::Ask(check)) => verification.asked(PendingReread { check, path: ReadBack::FromDevice }),
            other => panic!("{other:?}"),
        };
        (0..2).for_each(|_| asked(&verification));
        assert!(matches!(verification.next(CheckSelection::Behind), Some(Step::Compare(_))));
        asked(&verification);
    }

    #[test]
    fn newest_object_is_not_requested_until_the_next_arrives() {
        let verification = FileVerification::default();
        verification.add(check(0, 1 << 30));
        assert_eq!(verification.next(CheckSelection::Behind), None);
        verification.add(check(1, 1 << 30));
        assert_eq!(verification.next(CheckSelection::Behind), Some(Step::Ask(check(0, 1 << 30))));
        assert_eq!(verification.next(CheckSelection::Behind), None);
    }

    #[test]
    fn one_cached_read_clears_the_from_device_result() {
        let verification = FileVerification::default();
        let object = |index| check(index, OBJECT).range;
        assert!(!verification.is_from_device(), "nothing was read yet");
        verification.proved(object(1), ReadBack::FromDevice);
        assert!(verification.is_from_device() && verification.parts_from_device().is_empty());
        verification.proved(object(2), ReadBack::FromCache("a test"));
        verification.proved(object(3), ReadBack::FromDevice);
        assert!(!verification.is_from_device());
        assert_eq!(verification.parts_from_device(), [object(1), object(3)]);
    }

    #[test]
    fn device_ranges_are_merged_in_any_order() {
        let verification = FileVerification::default();
        verification.proved(check(9, OBJECT).range, ReadBack::FromCache("a test"));
        for index in [4, 0, 2, 7, 1, 3] {
            verification.proved(check(index, OBJECT).range, ReadBack::FromDevice);
        }
        let joined = [ByteRange::between(0, 5 * OBJECT), check(7, OBJECT).range];
        assert_eq!(verification.parts_from_device(), joined);
    }
}
