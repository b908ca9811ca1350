//! Copy of one file's bytes: read, digest and deliver, object by object, in the worker that took
//! the object.

use super::blocks::Blocks;
use super::context::CopyContext;
use super::deliver::{self, CloneRefusals, Delivery};
use super::details::Holes;
use super::digesting::{self, DataObserver, InOrder, ObjectHash, SharedDigest};
use super::error::CopyError;
use super::file::{CopySink, FileJob, Moved, SinkState};
use super::open_copy::OpenCopy;
use super::report::Tally;
use super::reread::{CheckSelection, HeldFiles, Method, StreamRange, prove_objects};
use super::shared_file::SharedFile;
use super::{ahead, overlap};
use haul_digest::{KEPT_MAX, Missing};
use haul_model::{ByteLen, ByteOffset, ByteRange, Object, ObjectIndex, Runs};
use haul_plan::{FileId, ObjectTask, Plan, Route, TaskId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The other workers of a job, for a worker that copies a file.
pub trait Helpers<'j> {
    /// Opens a file to idle workers, and offers them the entries that this worker has not started.
    fn open(&mut self, file: &Arc<SharedFile<'j>>) -> FileId;
    /// Reports a finished object, if any, and returns another one of the same file. Returns `None`
    /// if none waits, or if its device has enough objects in progress: the worker then looks for
    /// other work.
    fn next_object(&mut self, file: FileId, finished: Option<TaskId>) -> Option<ObjectTask>;
    /// Takes all objects of a file below number `end` that no worker has taken.
    fn take_until(&mut self, file: FileId, end: u64) -> Runs;
    /// Returns true if a worker is idle.
    fn is_one_idle(&self) -> bool;
}

/// State of a worker that copies the bytes of files.
pub struct Worker<'h, 'j> {
    context: &'j CopyContext<'j>,
    blocks: Blocks,
    refusals: CloneRefusals,
    held: &'h HeldFiles<'j>,
}

impl<'h, 'j> Worker<'h, 'j> {
    /// Creates the state of a worker. Its small files wait in `held` for their verification.
    pub fn new(context: &'j CopyContext<'j>, held: &'h HeldFiles<'j>) -> Worker<'h, 'j> {
        let blocks = Blocks::new(context.moving);
        Worker { context, blocks, refusals: CloneRefusals::default(), held }
    }

    /// Copies a file. A small file, or one that must be copied in order, is copied by this worker
    /// alone; idle workers help with a large file. When this returns, the file has ended, or the
    /// worker that copies its last object will end it, or it waits for its verification.
    pub fn move_file(&mut self, helpers: &mut dyn Helpers<'j>, mut file: FileJob<'j>) {
        let (plan, delivery) = match self.prepare(&mut file) {
            Ok(Prepared::Open(plan, delivery)) => (plan, delivery),
            Ok(Prepared::Moved(moved)) => return file.complete(Ok(moved)),
            Err(error) => return file.complete(Err(error)),
        };
        let open = OpenCopy { context: self.context, file: &file, plan: &plan, delivery: &delivery };
        let moved = match plan.route() {
            Route::Objects if self.context.moving.workers.count() > 1 => {
                return self.share(helpers, file, plan, delivery);
            }
            Route::Stream => stream(&open, &mut self.blocks),
            Route::Whole | Route::InOrder | Route::Objects => {
                in_order(&open, &mut self.blocks, helpers.is_one_idle())
            }
        };
        match moved {
            Ok(moved) if delivery.method == Method::Device => {
                self.held.prove(self.context, &mut self.blocks, file, plan, delivery, moved);
            }
            moved => file.complete(moved),
        }
    }

    /// Verifies and ends the files that wait for it, if that must be in the turn of a worker.
    pub fn end_turn(&mut self) {
        self.held.prove_in_turn(self.context, &mut self.blocks);
    }

    /// Prepares both ends of a file before its first byte is copied.
    fn prepare(&mut self, file: &mut FileJob<'j>) -> Result<Prepared, CopyError> {
        let CopyContext { moving, log, observer, .. } = *self.context;
        if let Some(log) = log.filter(|_| file.sink.is_file()) {
            log.begins(file)?;
        }
        if file.sink_state == SinkState::Complete {
            let bytes = file.source_stat.size;
            Tally::add(&observer.tally.bytes_done, bytes);
            Tally::add(&observer.tally.bytes_kept, bytes);
            Tally::add(&observer.tally.files_same, 1);
            return Ok(Prepared::Moved(Moved::received(bytes)));
        }
        let plan = file.plan(moving);
        if digesting::has_too_many_leaves(moving, plan.geometry().len()) {
            return Err(not_hashed(file, Missing::Subtrees));
        }
        let mut delivery = Delivery::new(self.context, file, &plan)?;
        if deliver::clone(moving, &mut self.refusals, file, &plan)? {
            delivery.cloned(self.context, file);
        }
        file.details.choose(delivery.chosen(moving));
        let is_hashed = digesting::is_any(self.context.proof.moving(moving, delivery.method));
        if delivery.done_by_clone && !is_hashed && delivery.method != Method::Cache {
            let bytes = plan.source().len();
            Tally::add(&observer.tally.bytes_done, bytes);
            return Ok(Prepared::Moved(Moved::received(bytes)));
        }
        if !delivery.done_by_clone {
            if let Some(log) = log {
                file.logged = log.open(&observer, file, &plan)?;
            }
            delivery.reserve(file, &plan)?;
        }
        Ok(Prepared::Open(plan, delivery))
    }

    /// Shares a file with idle workers, and takes objects of it until none is left.
    fn share(&mut self, helpers: &mut dyn Helpers<'j>, file: FileJob<'j>, plan: Plan, delivery: Delivery) {
        let moving = self.context.moving;
        let digest = SharedDigest::new(self.context.proof.moving(moving, delivery.method), &plan);
        let ahead = ahead::objects_ahead(moving.workers, &file, &plan, &delivery);
        let shared = Arc::new(SharedFile::new(file, plan, digest, delivery, ahead));
        let id = helpers.open(&shared);
        if let Some(first) = helpers.next_object(id, None) {
            self.take_objects(helpers, &shared, first);
        }
    }

    /// Copies an object of a shared file, and further ones while there are any for this worker. The
    /// worker that finishes the last one ends the file.
    pub fn take_objects(
        &mut self,
        helpers: &mut dyn Helpers<'j>,
        shared: &Arc<SharedFile<'j>>,
        first: ObjectTask,
    ) {
        let open = open_copy_of(self.context, shared);
        let mut next = Some(first);
        while let Some(task) = next {
            if self.context.is_stopping() {
                shared.record_failure(shared.file.interrupted());
            }
            let finished = match shared.is_broken() {
                // Exabytes of holes are a trillion objects.
                true => 1 + helpers.take_until(task.file, shared.plan.geometry().count()).count(),
                false => self.move_object(helpers, shared, task),
            };
            finish(&open, shared, finished);
            let proved = prove_objects(&open, &mut self.blocks, shared, CheckSelection::Behind);
            finish(&open, shared, proved);
            next = helpers.next_object(task.file, Some(task.id));
        }
        let proved = prove_objects(&open, &mut self.blocks, shared, CheckSelection::All);
        finish(&open, shared, proved);
    }

    /// Copies one object of a shared file, and skips the rest of a hole that starts with it.
    /// Returns the number of finished objects: none if the object waits for its verification.
    fn move_object(
        &mut self,
        helpers: &mut dyn Helpers<'j>,
        shared: &Arc<SharedFile<'j>>,
        ObjectTask { file, object, .. }: ObjectTask,
    ) -> u64 {
        let open = open_copy_of(self.context, shared);
        ahead::ask(shared, object);
        let mut digest = shared.digest.object(object);
        match open.end_of_hole(object, digest.watches()) {
            Ok(None) => u64::from(!copy_shared_object(&open, &mut self.blocks, shared, object, digest)),
            Ok(Some(end)) => {
                let index = object.index.0;
                let others = helpers.take_until(file, end);
                for (start, end) in std::iter::once((index, index + 1)).chain(others.iter()) {
                    match open.skip(&mut self.blocks, start..end, &mut digest) {
                        Ok(bytes) => _ = shared.moved.fetch_add(bytes, Ordering::Relaxed),
                        Err(error) => shared.record_failure(error),
                    }
                }
                1 + others.count()
            }
            Err(error) => {
                shared.record_failure(error);
                1
            }
        }
    }
}

/// Work that is left for a file whose ends are open.
enum Prepared {
    /// Nothing: its bytes are at the sink.
    Moved(Moved),
    /// Its bytes are to be copied.
    Open(Plan, Delivery),
}

fn open_copy_of<'a>(context: &'a CopyContext<'a>, shared: &'a SharedFile<'_>) -> OpenCopy<'a> {
    OpenCopy { context, file: &shared.file, plan: &shared.plan, delivery: &shared.delivery }
}

/// Copies one object of a shared file. Returns true if the object waits for its verification and is
/// not finished before.
fn copy_shared_object(
    open: &OpenCopy<'_>,
    blocks: &mut Blocks,
    shared: &SharedFile<'_>,
    object: Object,
    mut digest: ObjectHash,
) -> bool {
    match open.copy_object(blocks, object, &mut digest) {
        Ok(written) if written.bytes < object.range.len() => shared.record_failure(shared.file.changed()),
        Ok(written) => {
            shared.moved.fetch_add(written.bytes, Ordering::Relaxed);
            shared.digest.add(object, digest);
            if let Some(digest) = written.to_prove {
                open.queue_reread(object.range, digest);
                return true;
            }
        }
        Err(error) => shared.record_failure(error),
    }
    false
}

/// Records that `count` objects are finished. The last one ends the file.
fn finish(open: &OpenCopy<'_>, shared: &SharedFile<'_>, count: u64) {
    if count > 0 && shared.finish(count) {
        shared.file.complete(all_objects(open, shared));
    }
}

/// Returns the result of a shared file after its last object has finished.
fn all_objects(open: &OpenCopy<'_>, shared: &SharedFile<'_>) -> Result<Moved, CopyError> {
    if let Some(error) = shared.failure() {
        return Err(error);
    }
    let len = shared.plan.geometry().len();
    shared.delivery.close_end(&shared.file, &shared.plan, len)?;
    if shared.delivery.method == Method::Device {
        open.sync()?;
    }
    let hash = shared.digest.finish(len).map_err(|missing| not_hashed(&shared.file, missing))?;
    Ok(Moved {
        bytes: shared.moved.load(Ordering::Relaxed),
        hash: hash.map(|hash| hash.delivered(shared.delivery.way())),
        level: shared.delivery.level(false),
        parts_reread: shared.delivery.parts_reread(),
    })
}

/// Copies a file in this worker, from its first byte to its last.
fn in_order(open: &OpenCopy<'_>, blocks: &mut Blocks, is_one_idle: bool) -> Result<Moved, CopyError> {
    let OpenCopy { context, file, plan, delivery } = *open;
    let mut digest = InOrder::new(open.moving());
    let mut bytes = 0;
    if plan.geometry().count() > 1
        && digest.is_asked_for()
        && delivery.holes != Holes::OfSource
        && overlap::is_wanted(context.moving, delivery.method, is_one_idle)
    {
        (bytes, digest) = overlap::move_in_order(open, digest)?;
    } else {
        let mut next = 0;
        while let Some(object) = plan.geometry().object(ObjectIndex(next)) {
            if context.is_stopping() {
                return Err(file.interrupted());
            }
            if let Some(end) = open.end_of_hole(object, digest.watches())? {
                bytes += open.skip(blocks, next..end, &mut digest)?;
                next = end;
                continue;
            }
            next += 1;
            let written = open.copy_object(blocks, object, &mut digest)?;
            bytes += written.bytes;
            if let Some(digest) = written.to_prove {
                open.queue_reread(ByteRange::from_len(object.range.start, ByteLen(written.bytes)), digest);
                open.prove(blocks, CheckSelection::Behind)?;
            }
            if written.bytes < object.range.len() {
                break;
            }
        }
    }
    delivery.close_end(file, plan, bytes)?;
    let hash = digest.finish(bytes).map_err(|missing| not_hashed(file, missing))?;
    let hash = hash.map(|hash| hash.delivered(delivery.way()));
    Ok(Moved { hash, level: delivery.level(false), ..Moved::received(bytes) })
}

/// Copies a stream until its end or its length limit.
fn stream(open: &OpenCopy<'_>, blocks: &mut Blocks) -> Result<Moved, CopyError> {
    let OpenCopy { context, file, plan, delivery } = *open;
    let (skip, limit) =
        file.part.map_or((context.moving.offset, context.moving.length), |part| (part.0, part.1));
    let limit = limit.map_or(u64::MAX, |limit| limit.0);
    let mut digest = InOrder::new(open.moving());
    let mut stream_range = StreamRange::new(delivery.method);
    let (mut skipped, mut bytes) = (0, 0);
    while bytes < limit {
        if context.is_stopping() {
            return Err(file.interrupted());
        }
        let block = blocks.one().map_err(|source| open.read_failed(bytes, source))?;
        let wanted = usize::try_from((skip.0 - skipped).saturating_add(limit - bytes)).unwrap_or(usize::MAX);
        let room = wanted.min(block.len());
        let got = file
            .source
            .read_next(skipped + bytes, &mut block[..room], || context.is_stopping())
            .map_err(|source| open.read_failed(bytes, source))?
            .ok_or_else(|| file.interrupted())?;
        if got == 0 {
            break;
        }
        let before = usize::try_from(skip.0 - skipped).unwrap_or(usize::MAX).min(got);
        skipped += before as u64;
        let fresh = &block[before..got];
        digest.update(fresh);
        stream_range.update(fresh);
        open.put_streamed(plan.in_sink(ByteOffset(bytes)), fresh)?;
        bytes += fresh.len() as u64;
        Tally::add(&context.observer.tally.bytes_done, fresh.len() as u64);
        if stream_range.bytes >= context.moving.object.bytes() {
            stream_range.close(open, bytes);
            open.prove(blocks, CheckSelection::Behind)?;
        }
    }
    stream_range.close(open, bytes);
    delivery.close_end(file, plan, bytes)?;
    let hash = digest.finish(bytes).map_err(|missing| not_hashed(file, missing))?;
    let hash = hash.map(|hash| hash.delivered(delivery.way()));
    Ok(Moved { hash, level: delivery.level(true), ..Moved::received(bytes) })
}

impl OpenCopy<'_> {
    fn put_streamed(&self, to: ByteOffset, bytes: &[u8]) -> Result<(), CopyError> {
        if let CopySink::Stream(stream) = &self.file.sink {
            let written = stream
                .write(bytes, || self.context.is_stopping())
                .map_err(|source| self.write_failed(to.0, source))?;
            return if written { Ok(()) } else { Err(self.file.interrupted()) };
        }
        self.delivery.put(self.file, to, bytes)?;
        if self.delivery.method != Method::Cache {
            return Ok(());
        }
        let mut back = vec![0; bytes.len()];
        if self.sink_has(to, bytes, &mut back, self.delivery.holes)? {
            return Ok(());
        }
        Err(self.differs(ByteRange::from_len(to, ByteLen(bytes.len() as u64))))
    }
}

/// Returns the error for a file whose digests cannot be computed.
fn not_hashed(file: &FileJob<'_>, missing: Missing) -> CopyError {
    let source = io::Error::other(match missing {
        Missing::Subtrees => format!("more than {KEPT_MAX} leaves; choose a larger --hash-leaf-size"),
        Missing::Bytes(_) | Missing::Order(_) => missing.to_string(),
    });
    CopyError::Failed { doing: "cannot hash", path: file.source_path(), source }
}
