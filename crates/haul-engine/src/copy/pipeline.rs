//! Pipeline of one file's bytes: read, digest and deliver, block by block, in the worker that took
//! the object.

use super::deliver::{self, Delivery, Holes};
use super::digesting::{self, DataObserver, FileHash, InOrder, ObjectHash, SharedDigest};
use super::error::CopyError;
use super::file::{FileMove, SharedFile, SinkState};
use super::job::Job;
use super::lane::Lane;
use super::report::Tally;
use super::reread::{CHECK_DIGEST, CheckSelection, Method, StreamRange, prove_objects, prove_rest};
use super::settings::Moving;
use super::{ahead, overlap, receipt, settle};
use haul_digest::{Digest, Hasher, KEPT_MAX, Missing};
use haul_model::{ByteLen, ByteOffset, ByteRange, Level, Object, ObjectIndex};
use haul_plan::{FileFacts, Plan, Requirements, Route};
use haul_sys::cache::{self, Advice};
use haul_sys::transfer::CopyRange;
use haul_sys::{FileKind, direct, transfer, wait};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of bytes per read and write. A block of this size is still in the second-level cache when
/// it is hashed and written. Larger blocks make two workers in one file wait longer for each other.
/// Smaller blocks need more calls under the file's lock.
const BLOCK_BYTES: usize = 256 << 10;

/// Returns the number of bytes per read and write: the requested number, or the one that measured
/// best.
pub(crate) fn block_bytes(job: &Job<'_>) -> usize {
    let moving = &job.settings.moving;
    let chosen = moving.block.unwrap_or(BLOCK_BYTES);
    chosen.min(usize::try_from(moving.object.bytes()).unwrap_or(usize::MAX)).next_multiple_of(4096)
}

/// Copies a file. A small file, or one that must be copied in order, is copied by this worker
/// alone; idle workers help with a large file. When this returns, the file is settled, or the
/// worker that copies its last object will settle it.
pub(crate) fn move_file(job: &Job<'_>, lane: &mut Lane, mut file: FileMove) {
    let log = job.settings.moving.log.as_ref();
    if let Err(error) = log.filter(|_| file.sink_is_regular).map_or(Ok(()), |log| log.begins(&file)) {
        return settle::finish(job, &file, Err(error));
    }
    if file.sink_state == SinkState::Complete {
        let bytes = file.source_stat.size;
        Tally::add(&job.tally.bytes_done, bytes);
        Tally::add(&job.tally.bytes_kept, bytes);
        Tally::add(&job.tally.files_same, 1);
        return settle::finish(job, &file, Ok(Moved::received(bytes)));
    }
    let plan = plan(job, &file);
    if digesting::has_too_many_leaves(&job.settings.moving, plan.geometry().len()) {
        let error = not_hashed(&file, Missing::Subtrees);
        return settle::finish(job, &file, Err(error));
    }
    let begun = Delivery::new(job, &file, &plan).and_then(|mut delivery| {
        if deliver::clone(job, lane.refusals(), &file, &plan)? {
            delivery.cloned(job, &file);
        }
        Ok(delivery)
    });
    let delivery = match begun {
        Ok(delivery) => delivery,
        Err(error) => return settle::finish(job, &file, Err(error)),
    };
    file.settle.copy_details.choose(job, &file, &delivery);
    let is_hashed = digesting::is_any(job.proof.moving(&job.settings.moving, delivery.method));
    if delivery.done_by_clone && !is_hashed && delivery.method != Method::Cache {
        let bytes = plan.source().len();
        Tally::add(&job.tally.bytes_done, bytes);
        return settle::finish(job, &file, Ok(Moved::received(bytes)));
    }
    if !delivery.done_by_clone {
        match log.map(|log| log.open(job, &file, &plan)).transpose() {
            Ok(logged) => file.settle.logged = logged.flatten(),
            Err(error) => return settle::finish(job, &file, Err(error)),
        }
        delivery.reserve(&file, &plan);
    }
    match plan.route() {
        Route::Objects if job.settings.moving.workers.count() > 1 => share(job, lane, file, plan, delivery),
        Route::Stream => {
            let moved = stream(job, lane, &file, &plan, &delivery);
            prove_rest(job, lane, (file, plan, delivery), moved);
        }
        Route::Whole | Route::InOrder | Route::Objects => {
            let moved = in_order(job, lane, &file, &plan, &delivery);
            prove_rest(job, lane, (file, plan, delivery), moved);
        }
    }
}

/// Result of copying a file.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Number of bytes that reached the sink.
    pub(crate) bytes: u64,
    /// Digest of the file, if one was requested.
    pub(crate) hash: Option<FileHash>,
    /// Verification level of the bytes.
    pub(crate) level: Level,
    /// Ranges that were re-read from the device, if not all bytes were.
    pub(crate) parts_reread: Vec<ByteRange>,
}

impl Moved {
    /// Creates the result for bytes that the sink accepted and that were not verified.
    pub(crate) fn received(bytes: u64) -> Moved {
        Moved { bytes, hash: None, level: Level::Received, parts_reread: Vec::new() }
    }
}

/// Returns the plan of a file: its objects and the offset of its bytes in the sink.
pub(super) fn plan(job: &Job<'_>, file: &FileMove) -> Plan {
    let moving = &job.settings.moving;
    let (offset, length, sink_offset) =
        file.part.unwrap_or((moving.offset, moving.length, moving.sink_offset));
    let facts = FileFacts {
        len: ByteLen(file.source_stat.size),
        seekable: file.source_stat.kind == FileKind::Regular && file.sink_is_regular,
    };
    let wanted = Requirements {
        object: digesting::object_size(moving),
        serial_digest: digesting::is_serial(moving),
        offset,
        length,
        sink_offset,
    };
    Plan::new(facts, &wanted)
}

/// Cuts a file into objects, lets idle workers help, and takes objects until none is left.
fn share(job: &Job<'_>, lane: &mut Lane, file: FileMove, plan: Plan, delivery: Delivery) {
    let parent = Arc::clone(&file.parent);
    let digest = SharedDigest::new(job.proof.moving(&job.settings.moving, delivery.method), &plan);
    let ahead = ahead::objects_ahead(job, &file, &plan, &delivery);
    let shared = Arc::new(SharedFile::new(file, plan, digest, delivery, ahead));
    job.share_entries(lane, &parent);
    job.pool.offer_file(Arc::clone(&shared));
    take_objects(job, lane, &shared);
}

/// Takes objects of a shared file until none is left. The worker that finishes the last one settles
/// the file.
pub(crate) fn take_objects(job: &Job<'_>, lane: &mut Lane, shared: &Arc<SharedFile>) {
    while let Some(object) = shared.take_object() {
        if object.index.0 + 1 == shared.plan.geometry().count() {
            job.pool.close_file(shared);
        }
        if job.pool.stopping() {
            shared.record_failure(interrupted(&shared.file));
        }
        let run = Run { job, file: &shared.file, plan: &shared.plan, delivery: &shared.delivery };
        let finished = match shared.is_broken() {
            // Exabytes of holes are a trillion objects.
            true => {
                let rest = take_until(job, shared, shared.plan.geometry().count());
                1 + (rest.end - rest.start)
            }
            false => move_object(&run, lane, shared, object),
        };
        finish(job, shared, finished);
        prove_objects(&run, lane, shared, CheckSelection::Behind);
    }
    let run = Run { job, file: &shared.file, plan: &shared.plan, delivery: &shared.delivery };
    prove_objects(&run, lane, shared, CheckSelection::All);
}

/// Takes all objects of a shared file below number `end`.
fn take_until(job: &Job<'_>, shared: &Arc<SharedFile>, end: u64) -> Range<u64> {
    let taken = shared.take_until(end);
    if end == shared.plan.geometry().count() {
        job.pool.close_file(shared);
    }
    taken
}

/// Copies one object of a shared file, and skips the rest of a hole that starts with it. Returns
/// the number of finished objects: none if the object waits for its verification.
fn move_object(run: &Run<'_>, lane: &mut Lane, shared: &Arc<SharedFile>, object: Object) -> u64 {
    ahead::ask(shared, object);
    let mut digest = shared.digest.object(object);
    match run.end_of_hole(object, digest.watches()) {
        Ok(None) => u64::from(!copy_object(run, lane, shared, (object, digest))),
        Ok(Some(end)) => {
            let index = object.index.0;
            let others = take_until(run.job, shared, end);
            for objects in [index..index + 1, others.clone()] {
                match run.skip(lane, objects, &mut digest) {
                    Ok(bytes) => _ = shared.moved.fetch_add(bytes, Ordering::Relaxed),
                    Err(error) => shared.record_failure(error),
                }
            }
            1 + (others.end - others.start)
        }
        Err(error) => {
            shared.record_failure(error);
            1
        }
    }
}

/// Copies one object of a shared file. Returns true if the object waits for its verification and is
/// not finished before.
fn copy_object(
    run: &Run<'_>,
    lane: &mut Lane,
    shared: &SharedFile,
    (object, mut digest): (Object, ObjectHash),
) -> bool {
    match run.copy_object(lane, object, &mut digest) {
        Ok(written) if written.bytes < object.range.len() => shared.record_failure(changed(&shared.file)),
        Ok(written) => {
            shared.moved.fetch_add(written.bytes, Ordering::Relaxed);
            shared.digest.add(object, digest);
            if let Some(digest) = written.to_prove {
                run.written(object.range, digest);
                return true;
            }
        }
        Err(error) => shared.record_failure(error),
    }
    false
}

/// Records that `count` objects are finished. The last one settles the file.
pub(super) fn finish(job: &Job<'_>, shared: &SharedFile, count: u64) {
    if count > 0 && shared.finish(count) {
        settle::finish(job, &shared.file, all_objects(job, shared));
    }
}

/// Returns the result of a shared file after its last object has finished.
fn all_objects(job: &Job<'_>, shared: &SharedFile) -> Result<Moved, CopyError> {
    if let Some(error) = shared.failure() {
        return Err(error);
    }
    let len = shared.plan.geometry().len();
    let run = Run { job, file: &shared.file, plan: &shared.plan, delivery: &shared.delivery };
    shared.delivery.close_end(&shared.file, &shared.plan, len)?;
    if shared.delivery.method == Method::Device {
        run.sync()?;
    }
    let hash = shared.digest.finish(len).map_err(|missing| not_hashed(&shared.file, missing))?;
    Ok(Moved {
        bytes: shared.moved.load(Ordering::Relaxed),
        hash: receipt::delivered(hash, &shared.delivery),
        level: shared.delivery.level(false),
        parts_reread: shared.delivery.parts_reread(),
    })
}

/// Copies a file in this worker, from its first byte to its last.
fn in_order(
    job: &Job<'_>,
    lane: &mut Lane,
    file: &FileMove,
    plan: &Plan,
    delivery: &Delivery,
) -> Result<Moved, CopyError> {
    let run = Run { job, file, plan, delivery };
    let mut digest = InOrder::new(run.moving());
    let mut bytes = 0;
    if plan.geometry().count() > 1
        && digest.is_asked_for()
        && delivery.holes != Holes::OfSource
        && overlap::is_wanted(job, delivery.method)
    {
        (bytes, digest) = overlap::move_in_order(&run, digest)?;
    } else {
        let mut next = 0;
        while let Some(object) = plan.geometry().object(ObjectIndex(next)) {
            if job.pool.stopping() {
                return Err(interrupted(file));
            }
            if let Some(end) = run.end_of_hole(object, digest.watches())? {
                bytes += run.skip(lane, next..end, &mut digest)?;
                next = end;
                continue;
            }
            next += 1;
            let written = run.copy_object(lane, object, &mut digest)?;
            bytes += written.bytes;
            if let Some(digest) = written.to_prove {
                run.written(ByteRange::from_len(object.range.start, ByteLen(written.bytes)), digest);
                run.prove(lane, CheckSelection::Behind)?;
            }
            if written.bytes < object.range.len() {
                break;
            }
        }
    }
    delivery.close_end(file, plan, bytes)?;
    let hash = digest.finish(bytes).map_err(|missing| not_hashed(file, missing))?;
    let hash = receipt::delivered(hash, delivery);
    Ok(Moved { hash, level: delivery.level(false), ..Moved::received(bytes) })
}

/// Copies a stream until its end or its length limit.
fn stream(
    job: &Job<'_>,
    lane: &mut Lane,
    file: &FileMove,
    plan: &Plan,
    delivery: &Delivery,
) -> Result<Moved, CopyError> {
    let run = Run { job, file, plan, delivery };
    let (skip, limit) =
        file.part.map_or((job.settings.moving.offset, job.settings.moving.length), |part| (part.0, part.1));
    let limit = limit.map_or(u64::MAX, |limit| limit.0);
    let mut digest = InOrder::new(run.moving());
    let mut stream_range = StreamRange::new(delivery.method);
    let (mut skipped, mut bytes) = (0, 0);
    while bytes < limit {
        if job.pool.stopping() {
            return Err(interrupted(file));
        }
        let block = lane.block().map_err(|source| run.read_failed(bytes, source))?;
        let wanted = usize::try_from((skip.0 - skipped).saturating_add(limit - bytes)).unwrap_or(usize::MAX);
        let room = wanted.min(block.len());
        let got = wait::read_stream(&file.source, &mut block[..room], || job.pool.stopping())
            .map_err(|source| run.read_failed(bytes, source))?
            .ok_or_else(|| interrupted(file))?;
        if got == 0 {
            break;
        }
        let before = usize::try_from(skip.0 - skipped).unwrap_or(usize::MAX).min(got);
        skipped += before as u64;
        let fresh = &block[before..got];
        digest.update(fresh);
        stream_range.update(fresh);
        run.put_streamed(plan.in_sink(ByteOffset(bytes)), fresh)?;
        bytes += fresh.len() as u64;
        Tally::add(&job.tally.bytes_done, fresh.len() as u64);
        if stream_range.bytes >= job.settings.moving.object.bytes() {
            stream_range.close(&run, bytes);
            run.prove(lane, CheckSelection::Behind)?;
        }
    }
    stream_range.close(&run, bytes);
    delivery.close_end(file, plan, bytes)?;
    let hash = digest.finish(bytes).map_err(|missing| not_hashed(file, missing))?;
    let hash = receipt::delivered(hash, delivery);
    Ok(Moved { hash, level: delivery.level(true), ..Moved::received(bytes) })
}

/// One file in progress, with the context that copying its bytes needs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) file: &'a FileMove,
    pub(crate) plan: &'a Plan,
    pub(crate) delivery: &'a Delivery,
}

/// An object that reached the sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Length of the object, in bytes.
    pub(crate) bytes: u64,
    /// The [`CHECK_DIGEST`] of the source bytes, if the object must still be verified.
    pub(crate) to_prove: Option<Digest>,
}

impl Run<'_> {
    /// Returns the settings that apply to this file's digests.
    fn moving(&self) -> &Moving {
        self.job.proof.moving(&self.job.settings.moving, self.delivery.method)
    }

    /// Copies one object.
    ///
    /// # Errors
    /// Returns a [`CopyError`] that names the side, the offset and the cause. A source that ends
    /// before its reported length has changed.
    pub(crate) fn object(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
    ) -> Result<Written, CopyError> {
        let compares = matches!(self.delivery.method, Method::Cache | Method::Device);
        let unseen = !watch.watches() && !compares;
        let (moved, digest) = match () {
            () if self.delivery.holes == Holes::OfSource => {
                (self.around_holes(lane, range, watch, compares)?, None)
            }
            () if unseen && self.delivery.kernel_copies => (self.in_kernel(lane, range, watch)?, None),
            () => self.seen(lane, range, watch, compares)?,
        };
        let moved = ByteRange::from_len(range.start, ByteLen(moved));
        let (read, written) = (self.source_range(moved), self.sink_range(moved));
        self.delivery.behind(self.file, written)?;
        self.push(written);
        self.forget(read);
        if self.job.settings.moving.fadvise_read {
            // Ignored advice only occupies cache, so an error must not fail the copy.
            let _ = cache::advise(&self.file.source, read, Advice::DontNeed);
        }
        Ok(Written { bytes: moved.len(), to_prove: digest })
    }

    /// Maps a range of the plan to a range of the source.
    pub(super) fn source_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_source(range.start).0, self.plan.in_source(range.end).0)
    }

    /// Maps a range of the plan to a range of the sink.
    pub(super) fn sink_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_sink(range.start).0, self.plan.in_sink(range.end).0)
    }

    /// Copies bytes that a digest or a comparison needs. With `compares`, compares them with the
    /// copy in the page cache, or returns their digest for a later comparison with the device.
    pub(super) fn seen(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
        compares: bool,
    ) -> Result<(u64, Option<Digest>), CopyError> {
        if self.delivery.method == Method::Cache {
            return Ok((self.blocks_compared(lane, range, watch)?, None));
        }
        let mut check = compares.then(|| Hasher::new(CHECK_DIGEST));
        let moved = self.blocks(lane, range, watch, check.as_mut())?;
        Ok((moved, check.map(Hasher::finish)))
    }

    /// Lets the file system copy a range, and copies the remainder by blocks. After an error, all
    /// of the range is copied by blocks: the kernel does not report which side failed, but reads
    /// and writes do.
    pub(super) fn in_kernel(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
    ) -> Result<u64, CopyError> {
        let (from, to) = (self.plan.in_source(range.start), self.plan.in_sink(range.start));
        let done = match transfer::copy_range(&self.file.source, from.0, &self.file.sink, to.0, range.len()) {
            Ok(CopyRange::Whole) => range.len(),
            Ok(CopyRange::SourceEnded { copied }) => copied,
            Ok(CopyRange::Unsupported { copied }) => {
                self.file.settle.copy_details.offload_refused();
                copied
            }
            Err(_) => {
                self.file.settle.copy_details.offload_refused();
                0
            }
        };
        Tally::add(&self.job.tally.bytes_done, done);
        let rest = ByteRange::between(range.start.0 + done, range.end.0);
        Ok(done + self.blocks(lane, rest, watch, None)?)
    }

    /// Reads, hashes and writes a range block by block. Returns the number of bytes copied. It is
    /// less than the range if an unchanged source ends before its reported length, as files in
    /// sysfs do.
    pub(super) fn blocks(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl DataObserver,
        mut check: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        if range.is_empty() {
            return Ok(0);
        }
        let block = lane.block().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.job.pool.stopping() {
                return Err(interrupted(self.file));
            }
            let wanted = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = self.read(at, &mut block[..], wanted)?;
            let bytes = &block[..got];
            watch.see(bytes);
            if let Some(check) = check.as_deref_mut() {
                check.update(bytes);
            }
            self.delivery.put(self.file, self.plan.in_sink(ByteOffset(at)), bytes)?;
            Tally::add(&self.job.tally.bytes_done, got as u64);
            at += got as u64;
            if got < wanted {
                break;
            }
        }
        Ok(at - range.start.0)
    }

    /// Fills a block from one offset of the plan. Fewer bytes than wanted mean that the source ends
    /// here.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, or if it ends early because it changed.
    pub(crate) fn read(&self, at: u64, block: &mut [u8], wanted: usize) -> Result<usize, CopyError> {
        let from = self.plan.in_source(ByteOffset(at)).0;
        let got = match self.delivery.direct_read {
            Some(alignment) => {
                let room = wanted.next_multiple_of(alignment.offset as usize).min(block.len());
                direct::read_at(&self.file.source, from, &mut block[..room], alignment)
                    .map(|got| got.min(wanted))
            }
            None => transfer::read_at(&self.file.source, from, &mut block[..wanted]),
        }
        .map_err(|source| self.read_failed(at, source))?;
        if got < wanted && settle::source_was_replaced(self.file) {
            return Err(changed(self.file));
        }
        Ok(got)
    }

    fn put_streamed(&self, to: ByteOffset, bytes: &[u8]) -> Result<(), CopyError> {
        if !self.file.sink_is_regular {
            let written = wait::write_stream(&self.file.sink, bytes, || self.job.pool.stopping())
                .map_err(|source| self.write_failed(to.0, source))?;
            return if written { Ok(()) } else { Err(interrupted(self.file)) };
        }
        self.delivery.put(self.file, to, bytes)?;
        if self.delivery.method != Method::Cache {
            return Ok(());
        }
        let reader = self.delivery.reader(self.file);
        let mut back = vec![0; bytes.len()];
        let got =
            transfer::read_at(reader, to.0, &mut back).map_err(|source| self.read_failed(to.0, source))?;
        let may_be_short = self.delivery.holes == Holes::Zeros;
        if (got == bytes.len() || may_be_short) && back == bytes {
            return Ok(());
        }
        Err(self.differs(ByteRange::from_len(to, ByteLen(bytes.len() as u64))))
    }

    /// Reads one object of the copy back and returns its [`CHECK_DIGEST`].
    pub(super) fn sink_digest(&self, lane: &mut Lane, range: ByteRange) -> Result<Digest, CopyError> {
        let reader = self.delivery.reader(self.file);
        let unreadable =
            |source| CopyError::ReadFailed { path: self.file.sink_path(), at: range.start, source };
        let written = self.sink_range(range);
        let block = lane.block().map_err(unreadable)?;
        let mut hasher = Hasher::new(CHECK_DIGEST);
        let mut at = written.start.0;
        while at < written.end.0 {
            if self.job.pool.stopping() {
                return Err(interrupted(self.file));
            }
            let wanted = usize::try_from(written.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let mut got = transfer::read_at(reader, at, &mut block[..wanted]).map_err(unreadable)?;
            if self.delivery.holes == Holes::Zeros {
                // The sink gets its length last. Until then, a range behind its end is a hole too.
                block[got..wanted].fill(0);
                got = wanted;
            }
            hasher.update(&block[..got]);
            at += got as u64;
            if got < wanted {
                break;
            }
        }
        Ok(hasher.finish())
    }

    pub(super) fn differs(&self, range: ByteRange) -> CopyError {
        CopyError::DigestMismatch { path: self.file.source_path(), sink: self.file.sink_path(), range }
    }

    pub(crate) fn read_failed(&self, at: u64, source: io::Error) -> CopyError {
        CopyError::ReadFailed {
            path: self.file.source_path(),
            at: self.plan.in_source(ByteOffset(at)),
            source,
        }
    }

    pub(super) fn write_failed(&self, at: u64, source: io::Error) -> CopyError {
        CopyError::WriteFailed { path: self.file.sink_path(), at: ByteOffset(at), source }
    }
}

/// Returns the error for a source whose size or time changed during the copy.
pub(crate) fn changed(file: &FileMove) -> CopyError {
    CopyError::SourceChanged { path: file.source_path(), sink: file.sink_path() }
}

/// Returns the error for a file whose digests cannot be computed.
fn not_hashed(file: &FileMove, missing: Missing) -> CopyError {
    let source = io::Error::other(match missing {
        Missing::Subtrees => format!("more than {KEPT_MAX} leaves; choose a larger --hash-leaf-size"),
        Missing::Bytes(_) | Missing::Order(_) => missing.to_string(),
    });
    CopyError::Failed { doing: "cannot hash", path: file.source_path(), source }
}

/// Returns the error for a stopped job.
pub(crate) fn interrupted(file: &FileMove) -> CopyError {
    CopyError::Interrupted { path: file.source_path(), sink: file.sink_path() }
}
