//! Delivery of bytes to the sink: writes blocks at their offsets, leaves out holes, or lets the
//! kernel copy.

use super::context::CopyContext;
use super::details::{ChosenMethod, Holes};
use super::digesting;
use super::error::CopyError;
use super::file::{CopySink, FileJob, SinkState};
use super::reread::{FileVerification, Method};
use super::settings::{Moving, Reflink, SparseRule, Verify};
use crate::pipeline::Block;
use haul_log::waybill::CopyMethod;
use haul_model::{ByteLen, ByteOffset, ByteRange, Level, is_zero};
use haul_plan::{Plan, Route};
use haul_storage::{Advice, Alignment, CopiesByItself, Offload, Offloaded, SourceFile, SyncWhat};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Minimum length of a run of zeros that `--sparse=always` does not write. No file system keeps
/// smaller holes.
const HOLE_BYTES_MIN: usize = 4096;

/// `errno` of files that cannot share blocks at all.
const EINVAL: i32 = 22;

/// `errno` of files on different devices.
const EXDEV: i32 = 18;

/// Method by which the bytes of one file reach its sink.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Selects the zeros that become holes.
    pub(crate) holes: Holes,
    /// `Some` if the source is read with direct I/O.
    pub(crate) direct_read: Option<Alignment>,
    /// True if the sink already has the bytes (a reflink). The bytes then only have to be read for
    /// a digest.
    pub(crate) done_by_clone: bool,
    /// True if the kernel copies between the two files faster than reads and writes do.
    pub(crate) kernel_copies: bool,
    /// True if written pages of the sink are dropped from the page cache.
    drop_behind: bool,
    /// Verification method of the copy.
    pub(crate) method: Method,
    /// State of the objects that wait to be re-read from the device.
    pub(crate) verification: FileVerification,
    /// The sink, open for reading, if it is to be read back.
    reader: Option<Arc<dyn SourceFile>>,
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
        let aligned =
            Block::is_aligned(plan.in_sink(ByteOffset(0)).0) && Block::is_aligned(plan.source().start.0);
        let may_be_direct = aligned && plan.route() != Route::Stream;
        let sink = file.sink.file().ok();
        let is_written_directly = moving.direct_write
            && may_be_direct
            && file.sink_state != SinkState::Kept
            && sink.is_some_and(|sink| matches!(sink.set_direct(true), Ok(Some(_))));
        let is_read_directly = moving.direct_read && may_be_direct && !plan.source().is_empty();
        let source = file.source.file().ok().filter(|_| is_read_directly);
        let direct_read = source.and_then(|source| source.set_direct(true).ok().flatten());
        let method = context.proof.method(moving.verify, file, plan);
        if moving.verify == Verify::Reread && method != Method::Device {
            context.proof.warn_special(&context.observer, file);
        }
        let is_read_back =
            file.sink_state == SinkState::Resumed || matches!(method, Method::Cache | Method::Device);
        let reader = sink.filter(|_| is_read_back).map(|sink| sink.reader()).transpose();
        let reader = reader.map_err(|source| CopyError::Cannot {
            action: "read back",
            path: file.sink_path(),
            source,
        })?;
        if let Some(reader) =
            reader.as_ref().filter(|_| method == Method::Device && plan.geometry().count() > 1)
        {
            // Reads are requested by ranges. Read-ahead of one range would load pages of the next,
            // and it would be unknown whether those pages were dropped before.
            reader.advise(ByteRange::between(0, i64::MAX as u64), Advice::Random);
        }
        let holes = holes(moving, file);
        let may = direct_read.is_none() && !is_written_directly && holes != Holes::Zeros;
        Ok(Delivery {
            holes,
            kernel_copies: may && kernel_copies(moving, file, plan),
            direct_read,
            done_by_clone: false,
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
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotSeekable`] for a sink that is not read back.
    pub(crate) fn reader(&self) -> io::Result<&dyn SourceFile> {
        self.reader.as_deref().ok_or_else(|| io::ErrorKind::NotSeekable.into())
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
    /// requires. Dropping written pages makes the file durable first, except for a stream, and for
    /// an object that was found at the sink: the log makes that one durable later.
    pub(crate) fn level(&self, streamed: bool) -> Level {
        let is_all_written = !streamed && !self.done_by_clone && !self.verification.has_kept();
        match self.method {
            Method::Nothing | Method::Journey => Level::Received,
            Method::Cache if self.drop_behind && is_all_written => Level::Durable,
            Method::Cache => Level::Verified,
            Method::Device if self.verification.is_from_device() => Level::Reread,
            Method::Device => Level::Durable,
        }
    }

    /// Returns the ranges of a file that reached [`Level::Reread`] if only a part of the file did.
    pub(crate) fn parts_reread(&self) -> Vec<ByteRange> {
        if self.method == Method::Device { self.verification.parts_from_device() } else { Vec::new() }
    }

    /// Reserves the space of a large file before its bytes arrive, where that costs one call: a
    /// full device is detected first. Elsewhere the writes detect it: bytes may take less space
    /// than they have, and a truncated file may still count. Writing to existing blocks is faster
    /// than reserving blocks one by one (measured on ext4: two workers take 0.7 of the time). The
    /// length of the file does not change, because an incomplete file must not look as long as its
    /// source.
    ///
    /// # Errors
    /// Returns an error if the bytes do not fit.
    pub(crate) fn reserve(&self, file: &FileJob<'_>, plan: &Plan) -> Result<(), CopyError> {
        let large = plan.geometry().count() > 1 && !self.kernel_copies && self.holes == Holes::Dense;
        // An existing file may turn out to be complete. Then nothing of the file changes, not even
        // a timestamp.
        let is_new = !matches!(file.sink_state, SinkState::Kept | SinkState::Resumed);
        let Some(sink) = file.sink.file().ok().filter(|_| large && is_new) else { return Ok(()) };
        if !sink.device().capabilities.reserves {
            return Ok(());
        }
        let (start, end) = (plan.in_sink(ByteOffset(0)), plan.in_sink(ByteOffset(plan.geometry().len())));
        let reserved = match start.0 {
            0 => sink.reserve(end.0),
            // What is before the first byte stays a hole.
            _ => sink.reserve_range(ByteRange::between(start.0, end.0)),
        };
        reserved.map_err(|source| CopyError::WriteFailed { path: file.sink_path(), at: start, source })
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
        if let Some(sink) = file.sink.file().ok().filter(|_| self.holes != Holes::Dense) {
            sink.leave_out(range);
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
        file.sink.file()?.write_at(at, block)
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
            let (start, is_zero) = (index * HOLE_BYTES_MIN, is_zero(page));
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
        let dropped = file.sink.file().and_then(|sink| {
            sink.sync(SyncWhat::Data)?;
            sink.drop_pages(range);
            Ok(())
        });
        dropped.map_err(|source| {
            file.sync_failed();
            CopyError::WriteFailed { path: file.sink_path(), at: range.start, source }
        })
    }

    /// Makes a range of a sink with old content read as zeros, if the next writes leave out holes.
    ///
    /// # Errors
    /// See [`Delivery::put`]. Also returns an error if `stop` becomes true before the end.
    pub(crate) fn clear(
        &self,
        file: &FileJob<'_>,
        range: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), CopyError> {
        if self.holes == Holes::Dense {
            return Ok(());
        }
        let cleared = file.sink.file().and_then(|sink| sink.clear(range, stop));
        cleared.map_err(|source| match source.kind() {
            io::ErrorKind::Interrupted => file.interrupted(),
            _ => CopyError::WriteFailed { path: file.sink_path(), at: range.start, source },
        })
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
        let Some(sink) = file.sink.file().ok().filter(|_| !has_its_end && file.sink_state != SinkState::Kept)
        else {
            return Ok(());
        };
        let failed = |source| CopyError::WriteFailed { path: file.sink_path(), at: ByteOffset(end), source };
        // A part never truncates the sink: data that another part wrote behind it stays.
        if file.part.is_some() && sink.stat().map_err(failed)?.size >= end {
            return Ok(());
        }
        sink.set_len(end).map_err(failed)
    }
}

/// Maximum file size, in bytes, for which one kernel call copies faster than a read and a write.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Returns true if copy_file_range(2) is the faster method. This holds for small files, where
/// system calls dominate the cost. It also holds for large files whose file system copies on its
/// server, or may do so. Large local files measure slower with it.
fn kernel_copies(moving: &Moving, file: &FileJob<'_>, plan: &Plan) -> bool {
    let CopySink::File(sink) = &file.sink else { return false };
    let len = plan.geometry().len();
    let same_device = file.source_stat.dev == sink.device().id;
    let small = len <= SMALL_BYTES_MAX && same_device;
    let large = plan.geometry().count() > 1;
    match () {
        // copy_file_range(2) may also share the blocks of the source.
        () if moving.reflink == Reflink::Never || plan.route() == Route::Stream => false,
        () if small => len > 0,
        () => {
            large
                && match sink.device().capabilities.copies_by_itself {
                    CopiesByItself::All => true,
                    CopiesByItself::SameDevice => same_device,
                    CopiesByItself::None => false,
                }
        }
    }
}

fn holes(moving: &Moving, file: &FileJob<'_>) -> Holes {
    let (Ok(source), Ok(sink)) = (file.source.file(), file.sink.file()) else {
        let makes_holes = moving.sparse == SparseRule::Always && file.sink_state != SinkState::Kept;
        return if makes_holes && file.sink.is_file() { Holes::Zeros } else { Holes::Dense };
    };
    if file.sink_state == SinkState::Kept {
        return Holes::Dense;
    }
    // A digest covers dense bytes, whatever the source reports about its holes: SEEK_DATA has been
    // wrong before (OpenZFS issue 15526). The data that was read decides what is written if
    // SEEK_DATA is not trusted, or if a digest is not taken object by object. The same holds before
    // a move removes the source.
    let proves = moving.digest.is_some() || moving.receipt.is_some() || moving.verify != Verify::No;
    let [source_reports, sink_reports] =
        [source.device(), sink.device()].map(|device| device.capabilities.reports_holes);
    let must_read = matches!(moving.verify, Verify::Reread | Verify::Hybrid) || moving.removes_source;
    let reads_all = || match proves {
        _ if must_read => true,
        true => digesting::is_serial(moving) || !source_reports || !sink_reports,
        false => !source_reports && !source.reports_its_data(&file.source_stat),
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
    let failed = |source| CopyError::CloneFailed { path: file.sink_path(), from: file.source_path(), source };
    let (Ok(source), Ok(sink)) = (file.source.file(), file.sink.file()) else {
        let other = file.sink.stat().map_err(failed)?.dev != file.source_stat.dev;
        let refused = || failed(io::Error::from_raw_os_error(if other { EXDEV } else { EINVAL }));
        return if always { Err(refused()) } else { Ok(false) };
    };
    let pair = (file.source_stat.dev, sink.device().id);
    let is_worth_it = !plan.source().is_empty() && !refusals.0.contains(&pair);
    if !always && !is_worth_it {
        return Ok(false);
    }
    let to = plan.in_sink(ByteOffset(0)).0;
    let refused = match sink.offload(source, plan.source(), to, Offload::Share) {
        Ok(Offloaded::Done(_)) => return Ok(true),
        Ok(Offloaded::Unsupported(errno)) => io::Error::from_raw_os_error(errno),
        Ok(Offloaded::NeverBetween(errno)) => {
            refusals.0.push(pair);
            io::Error::from_raw_os_error(errno)
        }
        Err(error) => error,
    };
    // Otherwise the cause does not matter: an ordinary copy meets the real error and reports it.
    if always { Err(failed(refused)) } else { Ok(false) }
}
