//! Ranges of one line of a batch. Each range is an operand of its own, started when the previous
//! one is settled.

use super::offer;
use crate::cp::directory::{Directory, OperandSettle};
use crate::cp::entry::{self, LaterRange};
use crate::cp::job::Job;
use crate::cp::operand_walk::{LaterParts, OperandWalk};
use crate::cp::rules::BatchItem;
use crate::cp::tree_worker::TreeWorker;
use haul_engine::copy::Part;
use haul_model::{ByteLen, ByteOffset};
use parking_lot::Mutex;
use std::sync::Arc;

/// Returns one range of a line.
pub(super) fn part(item: &BatchItem, number: usize) -> Option<Part> {
    let &(start, end) = item.ranges.get(number)?;
    Some((ByteOffset(start), Some(ByteLen(end.saturating_sub(start))), Some(ByteOffset(start))))
}

/// Copies the next range. The later ranges wait until it has finished.
pub(super) fn take<'j>(job: &'j Job<'j>, worker: &mut TreeWorker<'_, 'j>, mut parts: LaterParts) {
    let Some(part) = part(&parts.item, parts.next).filter(|_| parts.ranges.can_continue()) else {
        job.line_ended(parts.names.index);
        return offer(worker.pool(), parts.after.map(|after| *after));
    };
    parts.next += 1;
    let is_last = parts.next == parts.item.ranges.len();
    let (ranges, names) = (Arc::clone(&parts.ranges), Arc::clone(&parts.names));
    let (source, target) = (parts.item.source.clone(), parts.target.clone());
    let next =
        if is_last { parts.after.map(|after| *after) } else { Some(OperandWalk::Parts(Box::new(parts))) };
    let settle = OperandSettle { names, parents: Vec::new(), next: Mutex::new(next) };
    target.expect(1);
    job.tally().expect(1);
    let parent = Directory::operand(&target, settle);
    let range = LaterRange { ranges: &ranges, source_name: source, parent: &parent, part, is_last };
    entry::copy_range(job, worker, range);
}
