//! One file's bytes on their way: read, digest, deliver; block by block, in the worker that took the object.

use super::deliver::{self, CloneRefusals, Delivery, Holes};
use super::digesting::{self, FileDigest, FileHash, InOrder, ObjectDigest};
use super::error::CopyError;
use super::file::{FileMove, SharedFile};
use super::job::Job;
use super::report::Tally;
use super::{overlap, receipt, settle};
use haul_digest::{Algorithm, Digest, Hasher};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use haul_plan::{FileFacts, Plan, Route, Wanted};
use haul_sys::buffer::AlignedBuffer;
use haul_sys::cache::{self, Advice};
use haul_sys::dir::DirEntry;
use haul_sys::sparse::DataRanges;
use haul_sys::transfer::CopyRange;
use haul_sys::uring::{self, CopyRing};
use haul_sys::{FileKind, direct, transfer, wait};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes per read and write. Larger writes make the page cache ask for large folios, which measured slower on a fresh
/// machine (each new 2 MiB page of memory is first touched), and two workers in one file wait for each other longer.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks a worker's ring keeps in flight: one being read while others are written.
const RING_DEPTH: usize = 4;

/// What a worker owns: its block of memory, and the entries it took and has not begun.
pub(crate) struct Lane {
    block: Option<AlignedBuffer>,
    /// A second block, for what is read back.
    back: Option<AlignedBuffer>,
    block_bytes: usize,
    entries: VecDeque<DirEntry>,
    refusals: CloneRefusals,
    ring: Ring,
}

/// A worker's io_uring, for `--double-buffer`.
enum Ring {
    /// Not tried yet.
    Untried,
    /// In use.
    Open(Box<CopyRing>),
    /// The kernel has none, forbids it, or lost it.
    Unavailable,
}

impl Lane {
    /// A worker's lane; its block is made when first used.
    pub(crate) fn new(job: &Job<'_>) -> Lane {
        Lane {
            block: None,
            back: None,
            block_bytes: block_bytes(job),
            entries: VecDeque::new(),
            refusals: CloneRefusals::default(),
            ring: Ring::Untried,
        }
    }

    /// Takes entries to work through.
    pub(crate) fn hold(&mut self, entries: VecDeque<DirEntry>) {
        self.entries = entries;
    }

    /// The next entry to work on.
    pub(crate) fn next_entry(&mut self) -> Option<DirEntry> {
        self.entries.pop_front()
    }

    /// Lets go of the entries not yet begun.
    pub(crate) fn give_up_entries(&mut self) -> Vec<DirEntry> {
        std::mem::take(&mut self.entries).into()
    }

    /// The ring, where the kernel gives one.
    fn ring(&mut self) -> Option<&mut CopyRing> {
        if let Ring::Untried = self.ring {
            self.ring = CopyRing::new(RING_DEPTH, self.block_bytes)
                .map_or(Ring::Unavailable, |ring| Ring::Open(Box::new(ring)));
        }
        match &mut self.ring {
            Ring::Open(ring) => Some(ring),
            Ring::Untried | Ring::Unavailable => None,
        }
    }

    fn block(&mut self) -> io::Result<&mut AlignedBuffer> {
        made(&mut self.block, self.block_bytes)
    }

    /// The block and the one for what is read back.
    pub(super) fn two_blocks(&mut self) -> io::Result<(&mut AlignedBuffer, &mut AlignedBuffer)> {
        Ok((made(&mut self.block, self.block_bytes)?, made(&mut self.back, self.block_bytes)?))
    }
}

fn made(block: &mut Option<AlignedBuffer>, bytes: usize) -> io::Result<&mut AlignedBuffer> {
    match block {
        Some(block) => Ok(block),
        empty => Ok(empty.insert(AlignedBuffer::new(bytes)?)),
    }
}

/// Bytes per read and write: as asked for, or as measured best.
pub(crate) fn block_bytes(job: &Job<'_>) -> usize {
    let moving = &job.settings.moving;
    let chosen = moving.block.unwrap_or(BLOCK_BYTES);
    chosen.min(usize::try_from(moving.object.bytes()).unwrap_or(usize::MAX)).next_multiple_of(4096)
}

/// Moves a file: alone when it is small or must go in order, with whoever is free when it is large. The file is
/// settled when this returns, or will be by the worker that moves its last object.
pub(crate) fn move_file(job: &Job<'_>, lane: &mut Lane, file: FileMove) {
    let plan = plan(job, &file);
    let begun = Delivery::new(job, &file, &plan).and_then(|mut delivery| {
        delivery.done_by_clone = deliver::clone(job, &mut lane.refusals, &file, &plan)?;
        Ok(delivery)
    });
    let delivery = match begun {
        Ok(delivery) => delivery,
        Err(error) => return settle::finish(job, &file, Err(error)),
    };
    file.settle.way.choose(job, &file, &delivery);
    let moving = &job.settings.moving;
    let is_hashed = moving.digest.is_some() || moving.receipt.is_some();
    if delivery.done_by_clone && !is_hashed && delivery.reader().is_none() {
        let bytes = plan.source().len();
        Tally::add(&job.tally.bytes_done, bytes);
        return settle::finish(job, &file, Ok(Moved { bytes, hash: None }));
    }
    if !delivery.done_by_clone {
        delivery.reserve(&file, &plan);
    }
    match plan.route() {
        Route::Objects if job.settings.moving.workers > 1 => share(job, lane, file, plan, delivery),
        Route::Stream => {
            let moved = stream(job, lane, &file, &plan, &delivery);
            settle::finish(job, &file, moved);
        }
        Route::Whole | Route::InOrder | Route::Objects => {
            let moved = in_order(job, lane, &file, &plan, &delivery);
            settle::finish(job, &file, moved);
        }
    }
}

/// What moving a file came to.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Bytes that reached the sink.
    pub(crate) bytes: u64,
    /// The file's digest, where one was asked for.
    pub(crate) hash: Option<FileHash>,
}

fn plan(job: &Job<'_>, file: &FileMove) -> Plan {
    let moving = &job.settings.moving;
    let (offset, length, sink_offset) =
        file.part.unwrap_or((moving.offset, moving.length, moving.sink_offset));
    let facts = FileFacts {
        len: ByteLen(file.source_stat.size),
        seekable: file.source_stat.kind == FileKind::Regular && file.sink_is_regular,
    };
    let wanted = Wanted {
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
    let digest = FileDigest::new(&job.settings.moving, &plan);
    let shared = Arc::new(SharedFile::new(file, plan, digest, delivery));
    job.share_entries(lane, &parent);
    job.pool.offer_file(Arc::clone(&shared));
    take_objects(job, lane, &shared);
}

/// Takes objects of a shared file until none is left. Whoever finishes the last one settles the file.
pub(crate) fn take_objects(job: &Job<'_>, lane: &mut Lane, shared: &Arc<SharedFile>) {
    while let Some(object) = shared.take_object() {
        if object.index.0 + 1 == shared.plan.geometry().count() {
            job.pool.close_file(shared);
        }
        if job.pool.stopping() {
            shared.broke(interrupted(&shared.file));
        }
        if !shared.is_broken() {
            let mut digest = shared.digest.object(object);
            let run = Run { job, file: &shared.file, plan: &shared.plan, delivery: &shared.delivery };
            match run.object(lane, object.range, &mut digest) {
                Ok(bytes) if bytes < object.range.len() => shared.broke(changed(&shared.file)),
                Ok(bytes) => {
                    shared.moved.fetch_add(bytes, Ordering::Relaxed);
                    shared.digest.add(object, digest);
                }
                Err(error) => shared.broke(error),
            }
        }
        if shared.one_is_through() {
            settle::finish(job, &shared.file, all_objects(job, shared));
        }
    }
}

/// The result of a shared file, once no object is under way any more.
fn all_objects(job: &Job<'_>, shared: &SharedFile) -> Result<Moved, CopyError> {
    if let Some(error) = shared.failure() {
        return Err(error);
    }
    let len = shared.plan.geometry().len();
    shared.delivery.close_end(&shared.file, shared.plan.in_sink(ByteOffset(len)).0)?;
    let hash = shared.digest.finish(&job.settings.moving, len);
    Ok(Moved {
        bytes: shared.moved.load(Ordering::Relaxed),
        hash: receipt::delivered(hash, &shared.delivery, false),
    })
}

/// Moves a file from its first byte to its last in this worker.
fn in_order(
    job: &Job<'_>,
    lane: &mut Lane,
    file: &FileMove,
    plan: &Plan,
    delivery: &Delivery,
) -> Result<Moved, CopyError> {
    let run = Run { job, file, plan, delivery };
    let mut digest = InOrder::new(&job.settings.moving);
    let mut bytes = 0;
    if plan.geometry().count() > 1 && digest.is_asked_for() && overlap::is_wanted(job) {
        (bytes, digest) = overlap::move_in_order(&run, digest)?;
    } else {
        for object in plan.geometry().objects() {
            if job.pool.stopping() {
                return Err(interrupted(file));
            }
            let moved = run.object(lane, object.range, &mut digest)?;
            bytes += moved;
            if moved < object.range.len() {
                break;
            }
        }
    }
    delivery.close_end(file, plan.in_sink(ByteOffset(bytes)).0)?;
    let hash = digest.finish(&job.settings.moving, bytes);
    Ok(Moved { bytes, hash: receipt::delivered(hash, delivery, false) })
}

/// Moves what comes until the end comes.
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
    let mut digest = InOrder::new(&job.settings.moving);
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
        run.put_streamed(plan.in_sink(ByteOffset(bytes)), fresh)?;
        bytes += fresh.len() as u64;
        Tally::add(&job.tally.bytes_done, fresh.len() as u64);
    }
    delivery.close_end(file, plan.in_sink(ByteOffset(bytes)).0)?;
    let hash = digest.finish(&job.settings.moving, bytes);
    Ok(Moved { bytes, hash: receipt::delivered(hash, delivery, true) })
}

/// What looks at bytes between read and write.
pub(crate) trait Watch {
    /// Whether it needs to see them at all.
    fn watches(&self) -> bool;
    /// The next bytes.
    fn see(&mut self, bytes: &[u8]);
}

impl Watch for InOrder {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

impl Watch for ObjectDigest {
    fn watches(&self) -> bool {
        self.is_asked_for()
    }
    fn see(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// One file under way, as the functions that move its bytes need it.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) file: &'a FileMove,
    pub(crate) plan: &'a Plan,
    pub(crate) delivery: &'a Delivery,
}

impl Run<'_> {
    /// Moves one object; returns its bytes.
    ///
    /// # Errors
    /// [`CopyError`] names the side, the place and the cause; a source that ends before its length has changed.
    pub(crate) fn object(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
    ) -> Result<u64, CopyError> {
        let verify = self.delivery.reader().is_some();
        let unseen = !watch.watches() && !verify;
        let moved = match () {
            () if unseen && self.delivery.holes == Holes::OfSource => {
                self.around_holes(lane, range, watch)?
            }
            () if unseen && self.delivery.kernel_copies => self.in_kernel(lane, range, watch)?,
            () => self.seen(lane, range, watch, verify)?,
        };
        let moved = ByteRange::from_len(range.start, ByteLen(moved));
        let (read, written) = (self.source_range(moved), self.sink_range(moved));
        self.delivery.behind(self.file, written)?;
        self.push(written);
        if self.job.settings.moving.fadvise_read {
            // Advice that is not taken costs nothing but cache: no reason to fail a copy.
            let _ = cache::advise(&self.file.source, read, Advice::DontNeed);
        }
        Ok(moved.len())
    }

    /// A range of the cut, as a range of the source.
    fn source_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_source(range.start).0, self.plan.in_source(range.end).0)
    }

    /// A range of the cut, as a range of the sink.
    pub(super) fn sink_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_sink(range.start).0, self.plan.in_sink(range.end).0)
    }

    /// Moves what the source says is data, and counts its holes as moved.
    fn around_holes(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
    ) -> Result<u64, CopyError> {
        let first = self.plan.source().start.0;
        let (mut left, mut hole) = (range.len(), range.start);
        for data in DataRanges::new(&self.file.source, self.source_range(range)) {
            let data = data.map_err(|source| self.read_failed(range.start.0, source))?;
            let data = ByteRange::between(data.start.0 - first, data.end.0 - first);
            self.delivery.leave_out(self.file, self.sink_range(ByteRange::between(hole.0, data.start.0)));
            hole = data.end;
            let moved = if self.delivery.kernel_copies {
                self.in_kernel(lane, data, watch)?
            } else {
                self.blocks(lane, data, watch, None)?
            };
            if moved < data.len() {
                return Ok(data.start.0 + moved - range.start.0);
            }
            left -= data.len();
        }
        self.delivery.leave_out(self.file, self.sink_range(ByteRange::between(hole.0, range.end.0)));
        Tally::add(&self.job.tally.bytes_done, left);
        Ok(range.len())
    }

    /// Moves bytes that something looks at, and with `verify` reads the copy back.
    fn seen(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
        verify: bool,
    ) -> Result<u64, CopyError> {
        if verify && self.job.settings.moving.double_buffer != Some(true) {
            return self.blocks_compared(lane, range, watch);
        }
        let mut check = verify.then(|| Hasher::new(Algorithm::Blake3));
        let moved = match self.in_ring(lane, range, watch, check.as_mut())? {
            Some(moved) => moved,
            None => self.blocks(lane, range, watch, check.as_mut())?,
        };
        if let Some(check) = check {
            self.compare(lane, ByteRange::from_len(range.start, ByteLen(moved)), check.finish())?;
        }
        Ok(moved)
    }

    /// Lets the file system copy a range, and moves by blocks what it would not: all of it where it failed, because the
    /// kernel does not say which side did, and reading and writing tells.
    fn in_kernel(&self, lane: &mut Lane, range: ByteRange, watch: &mut impl Watch) -> Result<u64, CopyError> {
        let (from, to) = (self.plan.in_source(range.start), self.plan.in_sink(range.start));
        let done = match transfer::copy_range(&self.file.source, from.0, &self.file.sink, to.0, range.len()) {
            Ok(CopyRange::Whole) => range.len(),
            Ok(CopyRange::SourceEnded { copied }) => copied,
            Ok(CopyRange::Unsupported { copied }) => {
                self.file.settle.way.offload_refused();
                copied
            }
            Err(_) => {
                self.file.settle.way.offload_refused();
                0
            }
        };
        Tally::add(&self.job.tally.bytes_done, done);
        let rest = ByteRange::between(range.start.0 + done, range.end.0);
        Ok(done + self.blocks(lane, rest, watch, None)?)
    }

    /// `--double-buffer`: moves a range with its reads and writes overlapping. `None` where that can't be.
    fn in_ring(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
        mut check: Option<&mut Hasher>,
    ) -> Result<Option<u64>, CopyError> {
        if self.job.settings.moving.double_buffer != Some(true) || !self.delivery.suits_ring(self.file) {
            return Ok(None);
        }
        let Some(ring) = lane.ring() else { return Ok(None) };
        let (from, to) = (self.plan.in_source(range.start).0, self.plan.in_sink(range.start).0);
        let ends = (self.file.source.as_fd(), self.file.sink.as_fd());
        let copied = ring.copy(ends.0, ends.1, from, to, range.len(), &mut |_, block| {
            watch.see(block);
            if let Some(check) = check.as_deref_mut() {
                check.update(block);
            }
            Tally::add(&self.job.tally.bytes_done, block.len() as u64);
        });
        match copied {
            Ok(copied) if copied < range.len() && settle::source_moved_on(self.file) => {
                Err(changed(self.file))
            }
            Ok(copied) => Ok(Some(copied)),
            Err(uring::CopyError::Read { at, source }) => {
                Err(self.read_failed(at - self.plan.source().start.0, source))
            }
            Err(uring::CopyError::Write { at, source }) => Err(self.write_failed(at, source)),
            Err(uring::CopyError::Ring { source }) => {
                // Some blocks were seen and perhaps not written: this object can't be begun anew.
                lane.ring = Ring::Unavailable;
                Err(self.write_failed(to, source))
            }
        }
    }

    /// Reads, shows and writes a range block by block. Returns the bytes moved: fewer than the range holds where the
    /// source ends before the length it tells and has not changed, as the files of sysfs do.
    fn blocks(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
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

    /// Fills a block from one place of the cut. Fewer bytes than wanted mean that the source ends here.
    ///
    /// # Errors
    /// The source can't be read, or it ends early because it shrank.
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
        if got < wanted && settle::source_moved_on(self.file) {
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
        let Some(reader) = self.delivery.reader() else { return Ok(()) };
        let mut back = vec![0; bytes.len()];
        let got =
            transfer::read_at(reader, to.0, &mut back).map_err(|source| self.read_failed(to.0, source))?;
        let may_be_short = self.delivery.holes == Holes::Zeros;
        if (got == bytes.len() || may_be_short) && back == bytes {
            return Ok(());
        }
        Err(self.differs(ByteRange::from_len(to, ByteLen(bytes.len() as u64))))
    }

    /// Reads one object of the copy back and compares its digest with that of what was read.
    fn compare(&self, lane: &mut Lane, range: ByteRange, expected: Digest) -> Result<(), CopyError> {
        let Some(reader) = self.delivery.reader() else { return Ok(()) };
        let unreadable =
            |source| CopyError::ReadFailed { path: self.file.sink_path(), at: range.start, source };
        let written = ByteRange::between(self.plan.in_sink(range.start).0, self.plan.in_sink(range.end).0);
        let block = lane.block().map_err(unreadable)?;
        let mut hasher = Hasher::new(Algorithm::Blake3);
        let mut at = written.start.0;
        while at < written.end.0 {
            let wanted = usize::try_from(written.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let mut got = transfer::read_at(reader, at, &mut block[..wanted]).map_err(unreadable)?;
            if self.delivery.holes == Holes::Zeros {
                // The sink gets its length last: until then, what lies past its end is a hole too.
                block[got..wanted].fill(0);
                got = wanted;
            }
            hasher.update(&block[..got]);
            at += got as u64;
            if got < wanted {
                break;
            }
        }
        if hasher.finish() == expected { Ok(()) } else { Err(self.differs(written)) }
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

    fn write_failed(&self, at: u64, source: io::Error) -> CopyError {
        CopyError::WriteFailed { path: self.file.sink_path(), at: ByteOffset(at), source }
    }
}

/// The source's size or time moved while it was read.
pub(crate) fn changed(file: &FileMove) -> CopyError {
    CopyError::SourceChanged { path: file.source_path(), sink: file.sink_path() }
}

/// The job was told to stop.
pub(crate) fn interrupted(file: &FileMove) -> CopyError {
    CopyError::Interrupted { path: file.source_path(), sink: file.sink_path() }
}
