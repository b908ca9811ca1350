//! Read-ahead for a large source: requests the next objects early, while all workers wait for the
//! sink.

use super::deliver::Delivery;
use super::details::Holes;
use super::file::FileJob;
use super::settings::Workers;
use super::shared_file::SharedFile;
use crate::readahead;
use haul_model::{ByteOffset, ByteRange, Object, ObjectIndex};
use haul_plan::Plan;
use haul_storage::{Advice, SourceFile};

/// Distance between the request for an object and its read, in turns of all workers.
const TURNS: u64 = 2;

/// Returns the number of objects that read-ahead covers. Returns 0 if read-ahead cannot help, for
/// example for direct reads, which bypass the page cache.
pub(super) fn objects_ahead(workers: Workers, file: &FileJob<'_>, plan: &Plan, delivery: &Delivery) -> u64 {
    let is_read = delivery.direct_read.is_none() && !delivery.kernel_copies;
    let is_sparse = delivery.holes != Holes::Dense || file.source_stat.is_sparse();
    // A file system that is not on a local device may have its own read-ahead.
    let is_local = |source: &dyn SourceFile| source.device().capabilities.is_local;
    let is_won = is_read && !is_sparse && file.source.file().is_ok_and(is_local);
    if is_won { most_ahead(workers.count(), plan) } else { 0 }
}

fn most_ahead(workers: usize, plan: &Plan) -> u64 {
    let room = readahead::BYTES_MAX / plan.geometry().object_size().bytes();
    (TURNS * workers as u64).min(room)
}

/// Requests read-ahead for the object that is `ahead` objects after `taken`. For the first object,
/// also requests all objects in between.
pub(super) fn ask(shared: &SharedFile<'_>, taken: Object) {
    let ahead = shared.ahead;
    let geometry = shared.plan.geometry();
    let Some(last) = geometry.count().checked_sub(1).filter(|_| ahead > 0) else { return };
    let until = taken.index.0.saturating_add(ahead);
    let first = if taken.index.0 == 0 { 0 } else { until };
    let ends = (geometry.object(ObjectIndex(first)), geometry.object(ObjectIndex(until.min(last))));
    let (Some(head), Some(tail)) = ends else { return };
    let in_source = |at: ByteOffset| shared.plan.in_source(at).0;
    let range = ByteRange::between(in_source(head.range.start), in_source(tail.range.end));
    if let Ok(source) = shared.file.source.file() {
        source.advise(range, Advice::WillNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteLen, ObjectSize};
    use haul_plan::{FileFacts, Requirements};

    #[test]
    fn objects_ahead_grow_with_workers_up_to_a_bound() {
        let most = |workers, object: u64| {
            let facts = FileFacts { len: ByteLen(1 << 40), seekable: true };
            let object = ObjectSize::new(object).unwrap();
            let offset = ByteOffset(0);
            let wanted =
                Requirements { object, serial_digest: false, offset, length: None, sink_offset: None };
            most_ahead(workers, &Plan::new(facts, &wanted))
        };
        assert_eq!((most(2, 4 << 20), most(8, 4 << 20), most(1000, 4 << 20)), (4, 16, 16));
        assert_eq!((most(2, 64 << 10), most(2, 64 << 20), most(2, 128 << 20)), (4, 1, 0));
    }
}
