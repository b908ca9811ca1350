//! Small files that wait for their verification together, so that one sync of their file system
//! serves all of them.

use super::CheckSelection;
use crate::copy::blocks::Blocks;
use crate::copy::context::CopyContext;
use crate::copy::deliver::Delivery;
use crate::copy::error::CopyError;
use crate::copy::file::{FileJob, Moved};
use crate::copy::open_copy::OpenCopy;
use haul_plan::Plan;
use haul_storage::{SinkFile, SyncWhat};
use std::io;

/// Maximum total size, in bytes, of the waiting small files, in addition to the limit on their
/// number.
const HELD_BYTES_MAX: u64 = 32 << 20;

/// A file whose bytes are written and not verified yet.
#[derive(Debug)]
struct UnverifiedFile<'j> {
    file: FileJob<'j>,
    plan: Plan,
    delivery: Delivery,
    moved: Moved,
}

impl UnverifiedFile<'_> {
    fn open<'a>(&'a self, context: &'a CopyContext<'a>) -> OpenCopy<'a> {
        OpenCopy { context, file: &self.file, plan: &self.plan, delivery: &self.delivery }
    }

    /// Ends the file with the result of its verification.
    fn end(mut self, proved: Result<(), CopyError>) {
        self.moved.level = self.delivery.level(false);
        self.moved.parts_reread = self.delivery.parts_reread();
        self.file.complete(proved.map(|()| self.moved));
    }
}

/// Files of one worker that wait for their verification.
#[derive(Debug, Default)]
pub(crate) struct HeldFiles<'j> {
    files: Vec<UnverifiedFile<'j>>,
    bytes: u64,
}

impl<'j> HeldFiles<'j> {
    /// Verifies the remaining objects of a file and ends it. A small file waits with others, unless
    /// another worker may wait for its end.
    pub(crate) fn prove(
        &mut self,
        context: &CopyContext<'_>,
        blocks: &mut Blocks,
        file: FileJob<'j>,
        plan: Plan,
        delivery: Delivery,
        moved: Moved,
    ) {
        let may_wait =
            context.proof.held_most > 0 && plan.geometry().count() <= 1 && !file.finish.is_awaited();
        let unverified = UnverifiedFile { file, plan, delivery, moved };
        if may_wait {
            self.bytes += unverified.moved.bytes;
            self.files.push(unverified);
            if self.files.len() >= context.proof.held_most || self.bytes >= HELD_BYTES_MAX {
                self.prove_all(context, blocks);
            }
            return;
        }
        let open = unverified.open(context);
        let proved = open.sync().and_then(|()| open.prove(blocks, CheckSelection::All));
        unverified.end(proved);
    }

    /// Syncs all files that wait, re-reads them and ends them.
    pub(crate) fn prove_all(&mut self, context: &CopyContext<'_>, blocks: &mut Blocks) {
        let files = std::mem::take(&mut self.files);
        self.bytes = 0;
        let synced = sync_all(context, &files);
        let begun: Vec<Result<(), CopyError>> = files
            .iter()
            .zip(synced)
            .map(|(held, synced)| synced.and_then(|()| held.open(context).ask_all()))
            .collect();
        for (held, begun) in files.into_iter().zip(begun) {
            let proved = begun.and_then(|()| held.open(context).prove(blocks, CheckSelection::All));
            held.end(proved);
        }
    }
}

/// Syncs each file. A file that shares a sync reports what it has lost when its pages are dropped.
fn sync_all(context: &CopyContext<'_>, held: &[UnverifiedFile<'_>]) -> Vec<Result<(), CopyError>> {
    let sinks: io::Result<Vec<(&dyn SinkFile, bool)>> =
        held.iter().map(|held| Ok((&**held.file.sink.file()?, true))).collect();
    match sinks {
        Ok(sinks) if !sinks.is_empty() => {
            let sync = |sink: &dyn SinkFile| sink.sync(SyncWhat::Data);
            let synced = context.proof.device_syncs.sync_files(sinks[0].0, &sinks, sync, |_| Ok(()));
            held.iter().zip(synced).map(|(held, synced)| held.open(context).synced(synced)).collect()
        }
        _ => held.iter().map(|held| held.open(context).sync()).collect(),
    }
}
