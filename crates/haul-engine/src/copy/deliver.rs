//! Delivery of bytes to the sink: writes blocks at their offsets, leaves out holes, or lets the
//! kernel copy.

use super::context::CopyContext;
use super::details::{ChosenMethod, Holes};
use super::digesting;
use super::error::CopyError;
use super::file::{FileJob, SinkState};
use super::reread::{FileVerification, Method};
use super::settings::{Moving, Reflink, SparseRule, Verify};
use haul_log::waybill::CopyMethod;
use haul_model::{ByteLen, ByteOffset, ByteRange, Level};
use haul_plan::{Plan, Route};
use haul_sys::buffer::BUFFER_ALIGN;
use haul_sys::direct::Alignment;
use haul_sys::filesystem::{self, Backing};
use haul_sys::{cache, direct, open, sparse, stat, transfer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Minimum length of a run of zeros that `--sparse=always` does not write. No file system keeps
/// smaller holes.
const HOLE_BYTES_MIN: usize = 4096;

/// Method by which the bytes of one file reach its sink.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Selects the zeros that become holes.
    pub(crate) holes: Holes,
    /// `Some` if the sink is written with direct I/O.
    direct_write: Option<Alignment>,
    /// `Some` if the source is read with direct I/O.
    pub(crate) direct_read: Option<Alignment>,
    /// True if the sink already has the bytes (a reflink). The bytes then only have to be read for
    /// a digest.
    pub(crate) done_by_clone: bool,
    /// True if the kernel copies between the two files faster than reads and writes do.
    pub(crate) kernel_copies: bool,
    /// True if each range that is left out is deallocated immediately. The file system of the sink
    /// preallocates space ahead of a writer. That space would remain if the next bytes are at a
    /// later offset.
    gives_back: bool,
    /// True if written pages of the sink are dropped from the page cache.
    drop_behind: bool,
    /// Verification method of the copy.
    pub(crate) method: Method,
    /// State of the objects that wait to be re-read from the device.
    pub(crate) verification: FileVerification,
    /// A second descriptor of the sink, open for reading. `Some` if the sink is to be read and its
    /// own descriptor is unsuitable.
    reader: Option<OwnedFd>,
}

impl Delivery {
    /// Selects the delivery method for one file.
    ///
    /// # Errors
    /// Returns an error if a copy that is to be compared cannot be opened for reading.
    pub(crate) fn new(
        context: &CopyContext<'_>,
        file: &FileJob<'_>,
        plan: &Plan,
    ) -> Result<Delivery, CopyError> {
        let moving = context.moving;
        let is_aligned = |at: u64| at.is_multiple_of(BUFFER_ALIGN as u64);
        let aligned = is_aligned(plan.in_sink(ByteOffset(0)).0) && is_aligned(plan.source().start.0);
        let may_be_direct = aligned && plan.route() != Route::Stream;
        let direct_write = (moving.direct_write && may_be_direct && file.sink_state != SinkState::Kept)
            .then(|| direct::probe_write(&file.sink).ok().flatten())
            .flatten();
        let direct_read = (moving.direct_read && may_be_direct && !plan.source().is_empty())
            .then(|| direct::probe_read(&file.source).ok().flatten())
            .flatten();
        let method = context.proof.method(moving.verify, file, plan);
        if moving.verify == Verify::Reread && method != Method::Device {
            context.proof.warn_special(&context.observer, file);
        }
        // A small new file is open for both reading and writing, so it needs no second descriptor.
        let needs_reader = match method {
            _ if file.sink_state == SinkState::Resumed => true,
            Method::Nothing | Method::Journey => false,
            Method::Cache => true,
            Method::Device => {
                plan.geometry().count() > 1 || file.sink_state != SinkState::New || direct_write.is_some()
            }
        };
        // The umask can deny read access to a new file even to its creator, and /proc may be
        // missing. The descriptor that created the file is readable.
        let is_readable = file.sink_state == SinkState::New && direct_write.is_none();
        let reopened = match needs_reader.then(|| open::reopen_source(&file.sink, false)) {
            Some(Err(error)) if is_readable && is_unreachable(&error) => None,
            reopened => reopened,
        };
        let reader = reopened.transpose().map_err(|source| CopyError::Cannot {
            action: "read back",
            path: file.sink_path(),
            source,
        })?;
        if let (Method::Device, Some(reader)) = (method, &reader) {
            // Reads are requested by ranges. Read-ahead of one range would load pages of the next,
            // and it would be unknown whether those pages were dropped before.
            let _ = cache::advise_all(reader, cache::Advice::Random);
        }
        let holes = holes(moving, file);
        let may = direct_read.is_none() && direct_write.is_none() && holes != Holes::Zeros;
        Ok(Delivery {
            holes,
            kernel_copies: may && kernel_copies(moving, file, plan),
            direct_write,
            direct_read,
            done_by_clone: false,
            gives_back: holes != Holes::Dense && filesystem::preallocates(&file.sink),
            drop_behind: moving.fadvise_write && method != Method::Device,
            method,
            verification: FileVerification::default(),
            reader,
        })
    }

    /// Returns the method for the caller's report.
    pub(crate) fn chosen(&self, moving: &Moving) -> ChosenMethod {
        let looks_at_bytes = moving.digest.is_some() || self.method != Method::Nothing;
        ChosenMethod {
            is_cloned: self.done_by_clone,
            is_offloaded: self.kernel_copies && !looks_at_bytes,
            holes: self.holes,
        }
    }

    /// Returns the copy method for the waybill. Bytes with a waybill are always read, so a
    /// server-side copy does not occur.
    pub(crate) fn way(&self) -> CopyMethod {
        if self.done_by_clone { CopyMethod::Reflink } else { CopyMethod::ReadWrite }
    }

    /// Returns the sink, open for reading.
    pub(crate) fn reader<'f>(&'f self, file: &'f FileJob<'_>) -> BorrowedFd<'f> {
        self.reader.as_ref().unwrap_or(&file.sink).as_fd()
    }

    /// Records that the sink shares the blocks of its source: nothing new was written that the
    /// device could be checked for.
    pub(crate) fn cloned(&mut self, context: &CopyContext<'_>, file: &FileJob<'_>) {
        self.done_by_clone = true;
        match self.method {
            Method::Device => {
                self.method = Method::Nothing;
                context.proof.warn_cloned(&context.observer, file);
            }
            // No byte passed through memory.
            Method::Journey => self.method = Method::Nothing,
            Method::Nothing | Method::Cache => {}
        }
    }

    /// Returns the verification level of a delivered file that was read back as far as its method
    /// requires. Dropping written pages makes the file durable first, except for a stream.
    pub(crate) fn level(&self, streamed: bool) -> Level {
        match self.method {
            Method::Nothing | Method::Journey => Level::Received,
            Method::Cache if self.drop_behind && !streamed && !self.done_by_clone => Level::Durable,
            Method::Cache => Level::Verified,
            Method::Device if self.verification.is_from_device() => Level::Reread,
            Method::Device => Level::Durable,
        }
    }

    /// Returns the ranges of a file that reached [`Level::Reread`] if only a part of the file did.
    pub(crate) fn parts_reread(&self) -> Vec<ByteRange> {
        if self.method == Method::Device { self.verification.parts_from_device() } else { Vec::new() }
    }

    /// Preallocates space for a large file before its bytes arrive. Writing to existing blocks is
    /// faster than reserving blocks one by one (measured on ext4: two workers take 0.7 of the
    /// time). The length of the file does not change, because an incomplete file must not look as
    /// long as its source. A file system in memory has no blocks to allocate, and one worker would
    /// create the reserved pages one by one.
    pub(crate) fn reserve(&self, file: &FileJob<'_>, plan: &Plan) {
        let large = plan.geometry().count() > 1 && !self.kernel_copies;
        // An existing file may turn out to be complete. Then nothing of the file changes, not even
        // a timestamp.
        let is_new = file.sink_is_regular && !matches!(file.sink_state, SinkState::Kept | SinkState::Resumed);
        if large && is_new && self.holes == Holes::Dense && filesystem::backing(&file.sink) != Backing::Memory
        {
            let end = plan.in_sink(ByteOffset(plan.geometry().len()));
            // If the file system cannot allocate or has no space, the later writes report it.
            let _ = sparse::allocate(&file.sink, ByteRange::between(0, end.0), true);
        }
    }

    /// Writes one block at offset `at` of the sink.
    ///
    /// # Errors
    /// Returns the system's error with the offset in the sink at which the block starts.
    pub(crate) fn put(&self, file: &FileJob<'_>, at: ByteOffset, block: &[u8]) -> Result<(), CopyError> {
        let written = match () {
            () if self.done_by_clone => Ok(()),
            () if self.holes == Holes::Zeros => self.put_around_zeros(file, at.0, block),
            () => self.write(file, at.0, block),
        };
        written.map_err(|source| CopyError::WriteFailed { path: file.sink_path(), at, source })
    }

    /// Handles a range of the sink that is not written: a hole in the source, or zeros.
    pub(crate) fn leave_out(&self, file: &FileJob<'_>, range: ByteRange) {
        if self.gives_back && !range.is_empty() {
            // An error is harmless: no byte depends on the hole, and the copy only takes more
            // space.
            let _ = sparse::punch_hole(&file.sink, range);
        }
    }

    /// Writes every byte of a block, including zeros.
    ///
    /// # Errors
    /// See [`Delivery::put`].
    pub(crate) fn put_dense(
        &self,
        file: &FileJob<'_>,
        at: ByteOffset,
        block: &[u8],
    ) -> Result<(), CopyError> {
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at, source };
        self.write(file, at.0, block).map_err(failed)
    }

    fn write(&self, file: &FileJob<'_>, at: u64, block: &[u8]) -> io::Result<()> {
        match self.direct_write {
            Some(alignment) => direct::write_all_at(&file.sink, at, block, alignment),
            None => transfer::write_all_at(&file.sink, at, block),
        }
    }

    /// Writes the non-zero runs of a block. Only files without old content get here, so unwritten
    /// ranges read as zeros.
    fn put_around_zeros(&self, file: &FileJob<'_>, at: u64, block: &[u8]) -> io::Result<()> {
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

    /// Handles a range of the sink that was just written. With `--fadvise-write`, writes the range
    /// back and drops it from the page cache.
    ///
    /// # Errors
    /// Returns a write error with the start of the range if write-back fails.
    pub(crate) fn behind(&self, file: &FileJob<'_>, range: ByteRange) -> Result<(), CopyError> {
        if !self.drop_behind || range.is_empty() || self.done_by_clone {
            return Ok(());
        }
        cache::drop_range(&file.sink, range).map_err(|source| {
            file.sync_failed();
            CopyError::WriteFailed { path: file.sink_path(), at: range.start, source }
        })
    }

    /// Makes a range of a sink with old content read as zeros, if the next writes leave out holes.
    ///
    /// # Errors
    /// See [`Delivery::put`]. Also returns an error if `is_stopping` returns true before the end.
    pub(crate) fn clear(
        &self,
        file: &FileJob<'_>,
        range: ByteRange,
        is_stopping: impl FnMut() -> bool,
    ) -> Result<(), CopyError> {
        if self.holes == Holes::Dense {
            return Ok(());
        }
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at: range.start, source };
        let is_cleared = sparse::clear(&file.sink, range, is_stopping).map_err(failed)?;
        if is_cleared { Ok(()) } else { Err(file.interrupted()) }
    }

    /// Sets the length of the sink if holes at its end were not written, or if its length differed
    /// meanwhile. If the source ends before the requested part starts, no byte is copied and the
    /// sink is not extended.
    ///
    /// # Errors
    /// Returns the error of ftruncate(2).
    pub(crate) fn close_end(&self, file: &FileJob<'_>, plan: &Plan, bytes: u64) -> Result<(), CopyError> {
        let end = if bytes == 0 { 0 } else { plan.in_sink(ByteOffset(bytes)).0 };
        let has_its_end = self.holes == Holes::Dense && file.sink_state != SinkState::Resumed;
        if has_its_end || !file.sink_is_regular || file.sink_state == SinkState::Kept {
            return Ok(());
        }
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at: ByteOffset(end), source };
        // A part never truncates the sink: data that another part wrote behind it stays.
        if file.part.is_some() && stat::stat_fd(&file.sink).map_err(failed)?.size >= end {
            return Ok(());
        }
        sparse::set_len(&file.sink, end).map_err(failed)
    }
}

/// Maximum file size, in bytes, for which one kernel call copies faster than a read and a write.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Returns true if copy_file_range(2) is the faster method. This holds for small files, where
/// system calls dominate the cost. It also holds for large files whose file system copies on its
/// server, or may do so. Large local files measure slower with it.
fn kernel_copies(moving: &Moving, file: &FileJob<'_>, plan: &Plan) -> bool {
    let len = plan.geometry().len();
    let small = len <= SMALL_BYTES_MAX && file.source_stat.dev == file.sink_dev;
    let large = plan.geometry().count() > 1;
    match () {
        // copy_file_range(2) may also share the blocks of the source.
        () if moving.reflink == Reflink::Never || plan.route() == Route::Stream => false,
        () if small => file.sink_is_regular && len > 0,
        () => large && filesystem::copies_by_itself(&file.sink, file.source_stat.dev == file.sink_dev),
    }
}

fn holes(moving: &Moving, file: &FileJob<'_>) -> Holes {
    if !file.sink_is_regular || file.sink_state == SinkState::Kept {
        return Holes::Dense;
    }
    // A digest covers dense bytes, whatever the source reports about its holes: SEEK_DATA has been
    // wrong before (OpenZFS issue 15526). The data that was read decides what is written if
    // SEEK_DATA is not trusted, or if a digest is not taken object by object. The same holds before
    // a move removes the source.
    let proves = moving.digest.is_some() || moving.receipt.is_some() || moving.verify != Verify::No;
    // Asks the file systems, so it is called for sparse sources only.
    let trusts = || [&file.source, &file.sink].iter().all(filesystem::reports_holes);
    let must_read = matches!(moving.verify, Verify::Reread | Verify::Hybrid) || moving.removes_source;
    let reads_all = || match proves {
        _ if must_read => true,
        true => digesting::is_serial(moving) || !trusts(),
        false => !sparse::may_skip_holes(&file.source, &file.source_stat),
    };
    match moving.sparse {
        SparseRule::Never => Holes::Dense,
        SparseRule::Always => Holes::Zeros,
        SparseRule::Auto if !file.source_stat.is_sparse() => Holes::Dense,
        SparseRule::Auto if reads_all() => Holes::Zeros,
        SparseRule::Auto => Holes::OfSource,
    }
}

/// Pairs of file systems (device numbers) between which cloning never works. They save one attempt
/// for each of a million files. File systems with different numbers may still share blocks: each
/// subvolume of btrfs has its own number.
#[derive(Debug, Default)]
pub(crate) struct CloneRefusals(Vec<(u64, u64)>);

/// Makes the sink share the blocks of the source, if the settings want it and the file systems
/// support it. A part of a file is cloned only if its borders are block borders. Returns
/// `Ok(false)` if the bytes must be copied.
///
/// # Errors
/// With `--reflink=always`, returns an error if cloning fails.
pub(crate) fn clone(
    moving: &Moving,
    refusals: &mut CloneRefusals,
    file: &FileJob<'_>,
    plan: &Plan,
) -> Result<bool, CopyError> {
    let always = match moving.reflink {
        Reflink::Never => return Ok(false),
        // Bytes that are to be verified must be written.
        Reflink::Auto if moving.verify.needs_bytes() => return Ok(false),
        // Objects that already exist at the sink need no second copy.
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
            // The cause does not matter: an ordinary copy meets the real error and reports it.
            if transfer::clone_never_works_between(&source) {
                refusals.0.push(pair);
            }
            Ok(false)
        }
    }
}

/// Returns true if a file could not be opened again: its mode forbids it, or /proc is missing.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound)
}
