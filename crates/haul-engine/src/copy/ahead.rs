//! A large source's next objects, asked for before their turn.
//!
//! Workers take a file's objects side by side, so that to the kernel its reads jump to and fro, and what it reads ahead
//! for one is thrown away for the next. A device that hears of an object two turns early has work while all workers
//! wait for it at the sink, and large requests to answer.

use super::deliver::{Delivery, Holes};
use super::file::{FileMove, SharedFile};
use super::job::Job;
use haul_model::{ByteOffset, ByteRange, Object, ObjectIndex};
use haul_plan::Plan;
use haul_sys::cache::{self, Advice};
use haul_sys::{FileKind, filesystem};

/// Turns of every worker that lie between the asking and the reading of an object.
const TURNS: u64 = 2;

/// Bytes of a file that are asked for and not taken yet, at most. Smaller than what the page cache of a small machine loses
/// without harm.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// How many objects before its turn one is asked for; 0 where nothing is to be won. Holes would become pages of zeros,
/// direct reads find nothing in the page cache, and file systems that are not on a device of this machine may have their
/// own mind about reading ahead.
pub(super) fn objects_ahead(job: &Job<'_>, file: &FileMove, plan: &Plan, delivery: &Delivery) -> u64 {
    let is_read = delivery.direct_read.is_none() && !delivery.kernel_copies;
    let is_dense = delivery.holes == Holes::Dense && !file.source_stat.is_sparse();
    let is_local = file.source_stat.kind == FileKind::Regular && filesystem::is_local(&file.source);
    if is_read && is_dense && is_local { most_ahead(job.settings.moving.workers.count(), plan) } else { 0 }
}

fn most_ahead(workers: usize, plan: &Plan) -> u64 {
    let room = AHEAD_BYTES_MAX / plan.geometry().object_size().bytes();
    (TURNS * workers as u64).min(room)
}

/// A worker took an object: the source is asked for the one whose turn comes `ahead` later; with the first object, for all
/// before that as well.
pub(super) fn ask(shared: &SharedFile, taken: Object) {
    let ahead = shared.ahead;
    let geometry = shared.plan.geometry();
    let Some(last) = geometry.count().checked_sub(1).filter(|_| ahead > 0) else { return };
    let until = taken.index.0.saturating_add(ahead);
    let first = if taken.index.0 == 0 { 0 } else { until };
    let ends = (geometry.object(ObjectIndex(first)), geometry.object(ObjectIndex(until.min(last))));
    let (Some(head), Some(tail)) = ends else { return };
    let in_source = |at: ByteOffset| shared.plan.in_source(at).0;
    let range = ByteRange::between(in_source(head.range.start), in_source(tail.range.end));
    if !is_there(shared, range) {
        // Only makes the read begin sooner.
        let _ = cache::advise(&shared.file.source, range, Advice::WillNeed);
    }
}

/// Whether the last page of a range is in memory: a file that was read lately is not asked for page by page again. Not the
/// first one, which the kernel's reading ahead for the object before may have brought.
fn is_there(shared: &SharedFile, range: ByteRange) -> bool {
    let last = ByteRange::between(range.start.0.max(range.end.0 - 1), range.end.0);
    matches!(cache::residency(&shared.file.source, last), Ok(Some(found)) if found.cached > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteLen, ObjectSize};
    use haul_plan::{FileFacts, Wanted};

    #[test]
    fn what_is_asked_ahead_grows_with_the_workers_and_stays_bounded() {
        let most = |workers, object: u64| {
            let facts = FileFacts { len: ByteLen(1 << 40), seekable: true };
            let object = ObjectSize::new(object).unwrap();
            let offset = ByteOffset(0);
            let wanted = Wanted { object, serial_digest: false, offset, length: None, sink_offset: None };
            most_ahead(workers, &Plan::new(facts, &wanted))
        };
        assert_eq!((most(2, 4 << 20), most(8, 4 << 20), most(1000, 4 << 20)), (4, 16, 16));
        assert_eq!((most(2, 64 << 10), most(2, 64 << 20), most(2, 128 << 20)), (4, 1, 0));
    }
}
