//! Small files that wait for their verification together, so that one sync of their file system
//! serves all of them. A thread for each device verifies them while the workers copy other files.

use super::CheckSelection;
use crate::copy::blocks::Blocks;
use crate::copy::context::CopyContext;
use crate::copy::deliver::Delivery;
use crate::copy::error::CopyError;
use crate::copy::file::{FileJob, Moved};
use crate::copy::open_copy::OpenCopy;
use crate::settle::{DeviceQueues, DeviceWork, Due, NextWork};
use haul_model::limits;
use haul_plan::Plan;
use haul_storage::{SinkFile, SyncWhat};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Number of files that share a sync. More files gave no measurable gain, and each keeps two
/// descriptors open.
const GROUP_FILES: u64 = 64;

/// Maximum total size of the files that share a sync, in bytes.
const GROUP_BYTES: u64 = 32 << 20;

/// Maximum time that a file waits for others.
const GROUP_TIME: Duration = Duration::from_millis(20);

/// Maximum time that a thread waits for files before it looks again.
const PATIENCE: Duration = Duration::from_secs(1);

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

    /// Verifies the remaining objects of the file and ends it.
    fn prove(self, context: &CopyContext<'_>, blocks: &mut Blocks) {
        let open = self.open(context);
        let proved = open.sync().and_then(|()| open.prove(blocks, CheckSelection::All));
        self.end(proved);
    }

    /// Ends the file with the result of its verification.
    fn end(mut self, proved: Result<(), CopyError>) {
        self.moved.level = self.delivery.level(false);
        self.moved.parts_reread = self.delivery.parts_reread();
        self.file.complete(proved.map(|()| self.moved));
    }
}

/// Files of one device that wait for their verification.
#[derive(Debug, Default)]
struct HeldGroup<'j> {
    files: Vec<UnverifiedFile<'j>>,
    bytes: u64,
    /// Maximum number of files.
    most: usize,
    /// Time at which the first one was added.
    begin: Option<Instant>,
}

impl<'j> DeviceWork for HeldGroup<'j> {
    type Batch = Vec<UnverifiedFile<'j>>;

    fn due(&self) -> Due {
        match self.begin {
            None => Due::Never,
            Some(_) if self.is_full(false) => Due::Now,
            Some(begin) => Due::At(begin + GROUP_TIME),
        }
    }

    fn take(&mut self) -> Vec<UnverifiedFile<'j>> {
        std::mem::take(self).files
    }

    fn is_full(&self, _: bool) -> bool {
        self.files.len() >= self.most || self.bytes >= GROUP_BYTES
    }
}

/// Files of a job that wait for their verification. A thread verifies them while the workers copy.
/// If it falls behind, the workers verify files too.
#[derive(Debug)]
pub struct HeldFiles<'j> {
    groups: DeviceQueues<HeldGroup<'j>>,
    /// True if a thread verifies files. Otherwise the workers do it at the end of each turn.
    has_thread: bool,
    /// Maximum number of files in a group.
    group_files: usize,
    /// Number of files that may be held in addition.
    free: AtomicUsize,
}

impl<'j> HeldFiles<'j> {
    /// Creates the state for a job with `workers` workers, in a process that may open `open_files`
    /// files. `ends_in_turns` is true if the end of a file must be in the turn of a worker, because
    /// other work waits for it, or if a worker that is alone needs the files of its last turn.
    pub fn new(workers: usize, open_files: u64, ends_in_turns: bool) -> HeldFiles<'j> {
        let workers = workers as u64;
        let threads = workers + u64::from(!ends_in_turns);
        let for_workers = open_files.saturating_sub(limits::OPEN_FILES_RESERVED) / 2;
        let spare = for_workers.saturating_sub(threads * limits::OPEN_FILES_PER_WORKER);
        // Each file needs descriptors for both its ends. On one device, each worker and the thread
        // verify one group, and one waits.
        let group_files = (spare / 2 / (threads + 1)).min(GROUP_FILES);
        HeldFiles {
            groups: DeviceQueues::default(),
            has_thread: !ends_in_turns && group_files > 0,
            group_files: group_files as usize,
            free: AtomicUsize::new((group_files * (threads + 1)) as usize),
        }
    }

    /// Runs `work`, which copies files, and verifies the files that it held meanwhile.
    pub fn beside<T>(&self, context: &CopyContext<'_>, work: impl FnOnce() -> T) -> T {
        self.groups.begin();
        let done = thread::scope(|scope| {
            if context.proof.holds_files && self.has_thread {
                // If none can be started, the workers verify full groups, and the rest at the end.
                let _ = thread::Builder::new().spawn_scoped(scope, move || self.prove_due(context, scope));
            }
            let _end = EndOfWork(&self.groups);
            work()
        });
        self.prove_all(context, &mut Blocks::new(context.moving));
        done
    }

    /// Verifies and ends the files that wait, unless a thread does. Called at the end of each turn.
    pub(crate) fn prove_in_turn(&self, context: &CopyContext<'_>, blocks: &mut Blocks) {
        if !self.has_thread {
            self.prove_all(context, blocks);
        }
    }

    fn prove_all(&self, context: &CopyContext<'_>, blocks: &mut Blocks) {
        for group in self.groups.take_all() {
            self.prove_group(context, blocks, group);
        }
    }

    /// Verifies groups as they become due, until the end. Starts another thread when none is left
    /// for further devices.
    fn prove_due<'scope>(&'scope self, context: &'scope CopyContext<'_>, scope: &'scope Scope<'scope, '_>) {
        let mut blocks = Blocks::new(context.moving);
        let another = move || self.prove_due(context, scope);
        loop {
            match self.groups.next(PATIENCE) {
                NextWork::Run(mut taken) => {
                    let group = taken.batch(|| thread::Builder::new().spawn_scoped(scope, another).is_ok());
                    group.into_iter().for_each(|group| self.prove_group(context, &mut blocks, group));
                }
                NextWork::Nothing => {}
                NextWork::Over => return,
            }
        }
    }

    /// Verifies the remaining objects of a file and ends it, or lets it wait with others, if it is
    /// small and no worker waits for its end.
    pub(crate) fn prove(
        &self,
        context: &CopyContext<'_>,
        blocks: &mut Blocks,
        file: FileJob<'j>,
        plan: Plan,
        delivery: Delivery,
        moved: Moved,
    ) {
        let is_small = plan.geometry().count() <= 1 && !file.finish.is_awaited();
        let device = file.sink.file().ok().map(|sink| sink.device().id).filter(|_| is_small);
        let unverified = UnverifiedFile { file, plan, delivery, moved };
        let Some(device) = device else { return unverified.prove(context, blocks) };
        if !self.reserve() {
            let group = self.groups.add(device, DeviceWork::take);
            self.prove_group(context, blocks, group);
            return unverified.prove(context, blocks);
        }
        let full = self.groups.add(device, |group| {
            let full = group.is_full(false).then(|| group.take());
            group.most = self.group_files;
            group.bytes += unverified.moved.bytes;
            group.files.push(unverified);
            group.begin.get_or_insert_with(Instant::now);
            full
        });
        full.into_iter().for_each(|group| self.prove_group(context, blocks, group));
    }

    /// Reserves the descriptors of a file. Returns false if there are none.
    fn reserve(&self) -> bool {
        let reserve = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_ok()
    }

    /// Syncs all files of a group, re-reads them and ends them.
    fn prove_group(&self, context: &CopyContext<'_>, blocks: &mut Blocks, files: Vec<UnverifiedFile<'j>>) {
        let synced = sync_all(context, &files);
        let begun: Vec<Result<(), CopyError>> = files
            .iter()
            .zip(synced)
            .map(|(held, synced)| synced.and_then(|()| held.open(context).ask_all()))
            .collect();
        for (held, begun) in files.into_iter().zip(begun) {
            let proved = begun.and_then(|()| held.open(context).prove(blocks, CheckSelection::All));
            held.end(proved);
            self.free.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends the threads after they have verified what is left.
struct EndOfWork<'q, 'j>(&'q DeviceQueues<HeldGroup<'j>>);

impl Drop for EndOfWork<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
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
