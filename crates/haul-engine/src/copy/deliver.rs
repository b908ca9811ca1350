//! The way of bytes to the sink: blocks written where they belong, holes left out, or the kernel asked to do it.

use super::digesting;
use super::error::CopyError;
use super::file::{FileMove, SinkState};
use super::job::Job;
use super::reread::{self, Method, Proving};
use super::settings::{Reflink, SparseRule, Verify};
use haul_log::waybill::Way;
use haul_model::{ByteLen, ByteOffset, ByteRange, Level};
use haul_plan::{Plan, Route};
use haul_sys::buffer::BUFFER_ALIGN;
use haul_sys::direct::Alignment;
use haul_sys::filesystem::{self, Medium};
use haul_sys::sparse::Support;
use haul_sys::{cache, direct, open, sparse, stat, transfer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Zeros shorter than this are written by `--sparse=always`: no file system keeps smaller holes.
const HOLE_BYTES_MIN: usize = 4096;

/// How the bytes of one file reach its sink.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Which zeros become holes.
    pub(crate) holes: Holes,
    /// Set where the sink is written past the page cache.
    direct_write: Option<Alignment>,
    /// Set where the source is read past the page cache.
    pub(crate) direct_read: Option<Alignment>,
    /// The sink already has the bytes (a reflink); what is left is to read them for a digest.
    pub(crate) done_by_clone: bool,
    /// The kernel copies between the two files better than blocks through memory do.
    pub(crate) kernel_copies: bool,
    /// What is left out is given back at once: the sink's file system takes room ahead of a writer, which would stay
    /// where the next bytes come further on.
    gives_back: bool,
    /// The sink's pages are dropped behind the writer.
    drop_behind: bool,
    /// How the copy is proved.
    pub(crate) method: Method,
    /// What of it waits to be read back from the device.
    pub(crate) proving: Proving,
    /// The sink once more, open for reading, where it is to be read and its own descriptor does not do.
    reader: Option<OwnedFd>,
}

/// Which zeros of a file are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// None: every byte is written.
    Dense,
    /// What the source says is a hole is neither read nor written.
    OfSource,
    /// Every block is read; runs of zeros in it are not written.
    Zeros,
}

impl Delivery {
    /// Decides the way for one file.
    ///
    /// # Errors
    /// A copy that is to be compared can't be opened for reading.
    pub(crate) fn new(job: &Job<'_>, file: &FileMove, plan: &Plan) -> Result<Delivery, CopyError> {
        let moving = &job.settings.moving;
        let is_aligned = |at: u64| at.is_multiple_of(BUFFER_ALIGN as u64);
        let aligned = is_aligned(plan.in_sink(ByteOffset(0)).0) && is_aligned(plan.source().start.0);
        let may_be_direct = aligned && plan.route() != Route::Stream;
        let direct_write = (moving.direct_write && may_be_direct && file.sink_state != SinkState::Kept)
            .then(|| direct::probe_write(&file.sink).ok().flatten())
            .flatten();
        let direct_read = (moving.direct_read && may_be_direct && !plan.source().is_empty())
            .then(|| direct::probe_read(&file.source).ok().flatten())
            .flatten();
        let method = job.proof.method(moving.verify, file, plan);
        if moving.verify == Verify::Reread && method != Method::Device {
            reread::tell_special(job, file);
        }
        // A small new file is open for both: no descriptor of its own is needed.
        let needs_reader = match method {
            _ if file.sink_state == SinkState::Resumed => true,
            Method::Nothing | Method::Journey => false,
            Method::Cache => true,
            Method::Device => {
                plan.geometry().count() > 1 || file.sink_state != SinkState::New || direct_write.is_some()
            }
        };
        // A new file may be closed to its own maker, by the umask. It is open for reading where it was made.
        let is_readable = file.sink_state == SinkState::New && direct_write.is_none();
        let reopened = match needs_reader.then(|| open::reopen_source(&file.sink, false)) {
            Some(Err(error)) if is_readable && error.kind() == io::ErrorKind::PermissionDenied => None,
            reopened => reopened,
        };
        let reader = reopened.transpose().map_err(|source| CopyError::Cannot {
            action: "read back",
            path: file.sink_path(),
            source,
        })?;
        if let (Method::Device, Some(reader)) = (method, &reader) {
            // What is read is asked for by ranges. Reading ahead of one would bring in pages of the next, and nobody could
            // say any more whether they were dropped before.
            let _ = cache::advise_all(reader, cache::Advice::Random);
        }
        let holes = holes(job, file);
        let may = direct_read.is_none() && direct_write.is_none() && holes != Holes::Zeros;
        Ok(Delivery {
            holes,
            kernel_copies: may && kernel_copies(job, file, plan),
            direct_write,
            direct_read,
            done_by_clone: false,
            gives_back: holes != Holes::Dense && filesystem::takes_room_ahead(&file.sink),
            drop_behind: moving.fadvise_write && method != Method::Device,
            method,
            proving: Proving::default(),
            reader,
        })
    }

    /// Whether an io_uring may move the bytes: every one of them goes to the sink by an ordinary buffered write, and
    /// the source answers reads in full.
    pub(crate) fn suits_ring(&self, file: &FileMove) -> bool {
        let direct = self.direct_read.is_some() || self.direct_write.is_some();
        !direct && !self.done_by_clone && self.holes != Holes::Zeros && !filesystem::is_fuse(&file.source)
    }

    /// How the bytes reach the sink. Those of a waybill are always read: a server does not copy them.
    pub(crate) fn way(&self) -> Way {
        if self.done_by_clone { Way::Reflink } else { Way::ReadWrite }
    }

    /// The sink, open for reading.
    pub(crate) fn reader<'f>(&'f self, file: &'f FileMove) -> BorrowedFd<'f> {
        self.reader.as_ref().unwrap_or(&file.sink).as_fd()
    }

    /// The sink shares its source's blocks: nothing new was written that the device could be asked for.
    pub(crate) fn cloned(&mut self, job: &Job<'_>, file: &FileMove) {
        self.done_by_clone = true;
        match self.method {
            Method::Device => {
                self.method = Method::Nothing;
                reread::tell_cloned(job, file);
            }
            // No byte passed by.
            Method::Journey => self.method = Method::Nothing,
            Method::Nothing | Method::Cache => {}
        }
    }

    /// What is proved of a file that was delivered and read back as far as its method goes. Dropping what was written makes
    /// it durable first, but not where it comes as a stream.
    pub(crate) fn level(&self, streamed: bool) -> Level {
        match self.method {
            Method::Nothing | Method::Journey => Level::Received,
            Method::Cache if self.drop_behind && !streamed && !self.done_by_clone => Level::Durable,
            Method::Cache => Level::Verified,
            Method::Device if self.proving.is_from_device() => Level::Reread,
            Method::Device => Level::Durable,
        }
    }

    /// The ranges of a file that reached [`Level::Reread`] where not all of it did.
    pub(crate) fn parts_reread(&self) -> Vec<ByteRange> {
        if self.method == Method::Device { self.proving.parts_from_device() } else { Vec::new() }
    }

    /// Asks for the room a large file takes before its bytes come. Blocks that are there already are written faster
    /// than blocks reserved one by one (measured on ext4: two workers take 0.7 of the time). The file's length stays:
    /// a file that is not complete must not look as long as its source. In memory there are no blocks to find, and what
    /// is reserved is made one page after the other, by one worker.
    pub(crate) fn reserve(&self, file: &FileMove, plan: &Plan) {
        let large = plan.geometry().count() > 1 && !self.kernel_copies;
        // An existing file may turn out to be complete: then nothing of it changes, not even a time.
        let is_new = file.sink_is_regular && !matches!(file.sink_state, SinkState::Kept | SinkState::Resumed);
        if large && is_new && self.holes == Holes::Dense && filesystem::medium(&file.sink) != Medium::Memory {
            let end = plan.in_sink(ByteOffset(plan.geometry().len()));
            // A file system that can't, or hasn't the room, says so again when the bytes are written.
            let _ = sparse::allocate(&file.sink, ByteRange::between(0, end.0), true);
        }
    }

    /// Writes one block at its place.
    ///
    /// # Errors
    /// The system's, at the byte of the sink where the block begins.
    pub(crate) fn put(&self, file: &FileMove, at: ByteOffset, block: &[u8]) -> Result<(), CopyError> {
        let written = match () {
            () if self.done_by_clone => Ok(()),
            () if self.holes == Holes::Zeros => self.put_around_zeros(file, at.0, block),
            () => self.write(file, at.0, block),
        };
        written.map_err(|source| CopyError::WriteFailed { path: file.sink_path(), at, source })
    }

    /// A range of the sink is not written: it is a hole in the source, or zeros.
    pub(crate) fn leave_out(&self, file: &FileMove, range: ByteRange) {
        if self.gives_back && !range.is_empty() {
            // No byte depends on it: where it can't be done, the copy takes more room.
            let _ = sparse::punch_hole(&file.sink, range);
        }
    }

    /// Writes every byte of a block, zeros too.
    ///
    /// # Errors
    /// As [`Delivery::put`].
    pub(crate) fn put_dense(&self, file: &FileMove, at: ByteOffset, block: &[u8]) -> Result<(), CopyError> {
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at, source };
        self.write(file, at.0, block).map_err(failed)
    }

    fn write(&self, file: &FileMove, at: u64, block: &[u8]) -> io::Result<()> {
        match self.direct_write {
            Some(alignment) => direct::write_all_at(&file.sink, at, block, alignment),
            None => transfer::write_all_at(&file.sink, at, block),
        }
    }

    /// Writes the runs of a block that hold something. Only files without old content come here: what is not
    /// written reads as zeros.
    fn put_around_zeros(&self, file: &FileMove, at: u64, block: &[u8]) -> io::Result<()> {
        let put = |run: std::ops::Range<usize>, is_zero| {
            let place = at + run.start as u64;
            if is_zero {
                self.leave_out(file, ByteRange::from_len(ByteOffset(place), ByteLen(run.len() as u64)));
                return Ok(());
            }
            self.write(file, place, &block[run])
        };
        let (mut first, mut was_zero) = (0, false);
        for (index, page) in block.chunks(HOLE_BYTES_MIN).enumerate() {
            let (start, is_zero) = (index * HOLE_BYTES_MIN, sparse::is_zero(page));
            if is_zero != was_zero {
                if start > first {
                    put(first..start, was_zero)?;
                }
                (first, was_zero) = (start, is_zero);
            }
        }
        put(first..block.len(), was_zero)
    }

    /// A stretch of the sink is written: with `--fadvise-write` it goes to the device and out of the cache.
    ///
    /// # Errors
    /// A failed write-back is a failed write: the error names the start of the stretch.
    pub(crate) fn behind(&self, file: &FileMove, range: ByteRange) -> Result<(), CopyError> {
        if !self.drop_behind || range.is_empty() || self.done_by_clone {
            return Ok(());
        }
        cache::drop_range(&file.sink, range).map_err(|source| CopyError::WriteFailed {
            path: file.sink_path(),
            at: range.start,
            source,
        })
    }

    /// Makes a range of a sink with old content read as zeros, where holes are to be left out of what is written next.
    ///
    /// # Errors
    /// As [`Delivery::put`].
    pub(crate) fn clear(&self, file: &FileMove, range: ByteRange) -> Result<(), CopyError> {
        if self.holes == Holes::Dense || matches!(sparse::punch_hole(&file.sink, range), Ok(Support::Done)) {
            return Ok(());
        }
        let zeros = [0; HOLE_BYTES_MIN];
        let mut at = range.start.0;
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(zeros.len());
            let failed =
                |source| CopyError::WriteFailed { path: file.sink_path(), at: ByteOffset(at), source };
            transfer::write_all_at(&file.sink, at, &zeros[..len]).map_err(failed)?;
            at += len as u64;
        }
        Ok(())
    }

    /// Gives the sink its length where holes at the end were not written, or where it had another one meanwhile. Of a source that
    /// ends before its part begins, no byte is copied, and the sink gets no length for it.
    ///
    /// # Errors
    /// The error of ftruncate(2).
    pub(crate) fn close_end(&self, file: &FileMove, plan: &Plan, bytes: u64) -> Result<(), CopyError> {
        let end = if bytes == 0 { 0 } else { plan.in_sink(ByteOffset(bytes)).0 };
        let has_its_end = self.holes == Holes::Dense && file.sink_state != SinkState::Resumed;
        if has_its_end || !file.sink_is_regular || file.sink_state == SinkState::Kept {
            return Ok(());
        }
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at: ByteOffset(end), source };
        // A part ends where it ends: what another part wrote behind it stays.
        if file.part.is_some() && stat::stat_fd(&file.sink).map_err(failed)?.size >= end {
            return Ok(());
        }
        sparse::set_len(&file.sink, end).map_err(failed)
    }
}

/// Bytes of a file that the kernel copies in one call better than a read and a write do.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Whether copy_file_range(2) is the faster way: for files so small that the calls are what they cost, and for large
/// ones whose file system copies on its server, or may. Large local ones measure slower with it.
fn kernel_copies(job: &Job<'_>, file: &FileMove, plan: &Plan) -> bool {
    let len = plan.geometry().len();
    let small = len <= SMALL_BYTES_MAX && file.source_stat.dev == file.sink_dev;
    let large = plan.geometry().count() > 1;
    match () {
        // A call of its own may share the source's blocks as well.
        () if job.settings.rules.reflink == Reflink::Never || plan.route() == Route::Stream => false,
        () if small => file.sink_is_regular && len > 0,
        () => large && filesystem::copies_by_itself(&file.sink, file.source_stat.dev == file.sink_dev),
    }
}

fn holes(job: &Job<'_>, file: &FileMove) -> Holes {
    let moving = &job.settings.moving;
    if !file.sink_is_regular || file.sink_state == SinkState::Kept {
        return Holes::Dense;
    }
    // A digest is over dense bytes, whatever the source says about its holes: SEEK_DATA has lied before (OpenZFS issue 15526). Where it may,
    // where a digest is taken by another way than object by object, and before a move removes the source, what is read decides what is written.
    let proves = moving.digest.is_some() || moving.receipt.is_some() || moving.verify != Verify::No;
    let trusts = || [&file.source, &file.sink].iter().all(filesystem::tells_holes);
    let must_read = matches!(moving.verify, Verify::Reread | Verify::Hybrid) || job.settings.rules.moves;
    let by_object = !must_read && !digesting::is_serial(moving);
    let reads_all = proves && !(by_object && trusts());
    match job.settings.rules.sparse {
        SparseRule::Never => Holes::Dense,
        SparseRule::Always => Holes::Zeros,
        SparseRule::Auto if !file.source_stat.is_sparse() => Holes::Dense,
        SparseRule::Auto if reads_all => Holes::Zeros,
        SparseRule::Auto => Holes::OfSource,
    }
}

/// Pairs of file systems (device numbers) between which cloning is no use, so that it is not tried for each of a
/// million files. Different numbers may share all the same: each subvolume of btrfs has its own.
#[derive(Debug, Default)]
pub(crate) struct CloneRefusals(Vec<(u64, u64)>);

/// Lets the sink share the source's blocks, where that is wanted and can be: of the whole file, or of the part that is
/// copied, where its borders are borders of blocks. `Ok(false)` where the bytes are to be copied.
///
/// # Errors
/// With `--reflink=always`, that it can't be.
pub(crate) fn clone(
    job: &Job<'_>,
    refusals: &mut CloneRefusals,
    file: &FileMove,
    plan: &Plan,
) -> Result<bool, CopyError> {
    let always = match job.settings.rules.reflink {
        Reflink::Never => return Ok(false),
        // Bytes that are to be proved are written.
        Reflink::Auto if job.settings.moving.verify.needs_bytes() => return Ok(false),
        // What is there already need not come again.
        Reflink::Auto if file.sink_state == SinkState::Resumed => return Ok(false),
        Reflink::Auto => false,
        Reflink::Always => true,
    };
    let pair = (file.source_stat.dev, file.sink_dev);
    let is_worth_it = file.sink_is_regular && !plan.source().is_empty() && !refusals.0.contains(&pair);
    if !always && !is_worth_it {
        return Ok(false);
    }
    let (from, to) = (plan.source(), plan.in_sink(ByteOffset(0)));
    let is_whole = from.start.0 == 0
        && to.0 == 0
        && from.len() == file.source_stat.size
        && file.sink_state != SinkState::Kept;
    let cloned = if is_whole || !file.sink_is_regular {
        transfer::clone_file(&file.source, &file.sink)
    } else {
        transfer::clone_range(&file.source, from.start.0, &file.sink, to.0, from.len())
    };
    match cloned {
        Ok(()) => Ok(true),
        Err(source) if always => {
            Err(CopyError::CloneFailed { path: file.sink_path(), from: file.source_path(), source })
        }
        Err(source) => {
            // Whatever the reason: an ordinary copy meets and tells what is really wrong.
            if transfer::clone_never_works_between(&source) {
                refusals.0.push(pair);
            }
            Ok(false)
        }
    }
}
