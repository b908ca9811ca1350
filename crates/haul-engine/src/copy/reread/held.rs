//! Small files that wait for their verification together, so that one sync of their file system
//! serves all of them.

use super::{CheckSelection, Method};
use crate::copy::deliver::Delivery;
use crate::copy::error::CopyError;
use crate::copy::file::FileMove;
use crate::copy::job::Job;
use crate::copy::lane::Lane;
use crate::copy::pipeline::{Moved, Run};
use crate::copy::settle;
use haul_plan::Plan;
use haul_sys::{cache, filesystem};

/// Maximum total size, in bytes, of the waiting small files, in addition to the limit on their
/// number.
const HELD_BYTES_MAX: u64 = 32 << 20;

/// Minimum number of files for which one sync of the complete file system costs less than one sync
/// per file.
const FILES_FOR_ONE_SYNC: usize = 8;

/// A file whose bytes are written and not verified yet.
#[derive(Debug)]
pub(crate) struct UnverifiedFile {
    pub(crate) file: FileMove,
    pub(crate) plan: Plan,
    pub(crate) delivery: Delivery,
    pub(crate) moved: Moved,
}

impl UnverifiedFile {
    /// Returns true if a file may wait, because no other worker waits for its completion.
    pub(crate) fn may_wait(job: &Job<'_>, file: &FileMove, plan: &Plan) -> bool {
        job.proof.held_most > 0 && plan.geometry().count() <= 1 && file.settle.has_no_waiters()
    }

    fn run<'a>(&'a self, job: &'a Job<'a>) -> Run<'a> {
        Run { job, file: &self.file, plan: &self.plan, delivery: &self.delivery }
    }
}

impl Lane {
    /// Queues a file. If enough files wait, verifies and settles them.
    pub(crate) fn queue_file(&mut self, job: &Job<'_>, held: UnverifiedFile) {
        self.held_bytes += held.moved.bytes;
        self.held.push(held);
        if self.held.len() >= job.proof.held_most || self.held_bytes >= HELD_BYTES_MAX {
            settle_held(job, self);
        }
    }
}

/// Syncs all files that wait in this worker, re-reads them and settles them.
pub(crate) fn settle_held(job: &Job<'_>, lane: &mut Lane) {
    let held = std::mem::take(&mut lane.held);
    lane.held_bytes = 0;
    let synced = sync_all(job, &held);
    let begun: Vec<Result<(), CopyError>> =
        held.iter().zip(synced).map(|(held, synced)| synced.and_then(|()| held.run(job).ask_all())).collect();
    for (mut held, begun) in held.into_iter().zip(begun) {
        let proved = begun.and_then(|()| held.run(job).prove(lane, CheckSelection::All));
        held.moved.level = held.delivery.level(false);
        held.moved.parts_reread = held.delivery.parts_reread();
        let UnverifiedFile { file, moved, .. } = held;
        settle::finish(job, &file, proved.map(|()| moved));
    }
}

/// Syncs each file. For many files on one file system, a single sync of the file system is used if
/// it makes the files durable.
fn sync_all(job: &Job<'_>, held: &[UnverifiedFile]) -> Vec<Result<(), CopyError>> {
    if let [first, rest @ ..] = held
        && held.len() >= FILES_FOR_ONE_SYNC
        && rest.iter().all(|other| other.file.sink_dev == first.file.sink_dev)
        && filesystem::syncs_as_a_whole(&first.file.sink)
        // A failure belongs to some file, so each file is then synced individually.
        && cache::sync_filesystem(&first.file.sink).is_ok()
    {
        return held.iter().map(|_| Ok(())).collect();
    }
    held.iter().map(|held| held.run(job).sync()).collect()
}

/// Verifies the remaining objects of a file and settles it. A small file is queued to wait with
/// others.
pub(crate) fn prove_rest(
    job: &Job<'_>,
    lane: &mut Lane,
    (file, plan, delivery): (FileMove, Plan, Delivery),
    moved: Result<Moved, CopyError>,
) {
    let moved = match moved {
        Ok(moved) if delivery.method == Method::Device => moved,
        other => return settle::finish(job, &file, other),
    };
    if UnverifiedFile::may_wait(job, &file, &plan) {
        return lane.queue_file(job, UnverifiedFile { file, plan, delivery, moved });
    }
    let run = Run { job, file: &file, plan: &plan, delivery: &delivery };
    let proved = run.sync().and_then(|()| run.prove(lane, CheckSelection::All));
    let moved = proved.map(|()| {
        let (level, parts_reread) = (delivery.level(false), delivery.parts_reread());
        Moved { level, parts_reread, ..moved }
    });
    settle::finish(job, &file, moved);
}
