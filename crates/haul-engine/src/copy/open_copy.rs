//! Steps on the bytes of one file: reads, writes, and copies by the kernel.

use super::blocks::Blocks;
use super::context::CopyContext;
use super::deliver::Delivery;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::file::FileJob;
use super::report::Tally;
use super::reread::{CHECK_DIGEST, Method};
use super::settings::Moving;
use crate::pipeline::{BlockFault, ReadAt, read_step, read_to_end};
use haul_digest::{Digest, Hasher};
use haul_model::{ByteOffset, ByteRange};
use haul_plan::Plan;
use haul_storage::{Advice, FileKind, Offload, Offloaded, SourceFile};
use std::io;

impl ReadAt for OpenCopy<'_> {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        SourceFile::read_at(self.file.source.file()?, self.plan.in_source(ByteOffset(at)).0, into)
    }

    fn unit(&self) -> usize {
        self.delivery.direct_read.map_or(1, |alignment| alignment.offset as usize)
    }
}

/// One file in progress, with the context that copying its bytes needs.
#[derive(Clone, Copy)]
pub(crate) struct OpenCopy<'a> {
    pub(crate) context: &'a CopyContext<'a>,
    pub(crate) file: &'a FileJob<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) delivery: &'a Delivery,
}

impl OpenCopy<'_> {
    /// Returns the settings that apply to this file's digests.
    pub(crate) fn moving(&self) -> &Moving {
        self.context.proof.moving(self.context.moving, self.delivery.method)
    }

    /// Maps a range of the plan to a range of the source.
    pub(crate) fn source_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_source(range.start).0, self.plan.in_source(range.end).0)
    }

    /// Maps a range of the plan to a range of the sink.
    pub(crate) fn sink_range(&self, range: ByteRange) -> ByteRange {
        ByteRange::between(self.plan.in_sink(range.start).0, self.plan.in_sink(range.end).0)
    }

    /// Lets the file system copy a range, and copies the remainder by blocks. After an error, all
    /// of the range is copied by blocks: the kernel does not report which side failed, but reads
    /// and writes do.
    pub(crate) fn in_kernel(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
    ) -> Result<u64, CopyError> {
        let (from, to) = (self.plan.in_source(range.start), self.plan.in_sink(range.start));
        let offloaded = self.file.source.file().and_then(|source| {
            let range = ByteRange::between(from.0, from.0 + range.len());
            self.file.sink.file()?.offload(source, range, to.0, Offload::Copy)
        });
        let done = match offloaded {
            Ok(Offloaded::Done(copied)) => copied,
            Ok(Offloaded::Unsupported(_) | Offloaded::NeverBetween(_)) | Err(_) => {
                self.file.details.refuse_offload();
                0
            }
        };
        Tally::add(&self.context.observer.tally.bytes_done, done);
        let rest = ByteRange::between(range.start.0 + done, range.end.0);
        Ok(done + self.blocks(blocks, rest, watch, None)?)
    }

    /// Reads, hashes and writes a range block by block. With [`Method::Cache`], compares each block
    /// with the sink right after its write: the block, the copy in the page cache and the block
    /// read back are then all in the CPU caches, and a comparison costs a fraction of two digests.
    ///
    /// Returns the number of bytes copied. It is less than the range if an unchanged source ends
    /// before its reported length, as files in sysfs do.
    ///
    /// # Errors
    /// Returns [`CopyError::DigestMismatch`] with the range if a block read back has other bytes.
    pub(crate) fn blocks(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
        mut check: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        if range.is_empty() {
            return Ok(0);
        }
        let compares = self.delivery.method == Method::Cache;
        let unread = |source| self.read_failed(range.start.0, source);
        let (block, mut back) = match compares {
            true => blocks.two().map(|(block, back)| (block, Some(back))).map_err(unread)?,
            false => (blocks.one().map_err(unread)?, None),
        };
        self.read_source(range, block, |at, bytes| {
            watch.see(bytes);
            if let Some(check) = check.as_deref_mut() {
                check.update(bytes);
            }
            let to = self.plan.in_sink(ByteOffset(at));
            self.delivery.put(self.file, to, bytes)?;
            if let Some(back) = &mut back
                && !self.sink_has(to, bytes, &mut back[..bytes.len()], self.delivery.holes)?
            {
                return Err(self.differs(self.sink_range(range)));
            }
            Tally::add(&self.context.observer.tally.bytes_done, bytes.len() as u64);
            Ok(())
        })
    }

    /// Reads a range of the plan from the source, and passes each block with its offset in the plan
    /// to `each`. Returns the number of bytes read. It is less than the range if an unchanged
    /// source ends before its reported length.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, if it ends early because it changed, or if
    /// the job is to stop; and the first error of `each`.
    pub(crate) fn read_source<E: From<CopyError>>(
        &self,
        range: ByteRange,
        block: &mut [u8],
        each: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let read = read_to_end(self, range, block, self.context.stop, each).map_err(|fault| match fault {
            BlockFault::Stopped => self.file.interrupted().into(),
            BlockFault::Read(at, source) => self.read_failed(at, source).into(),
            BlockFault::Ended(..) => self.file.changed().into(),
            BlockFault::Receiver(error) => error,
        })?;
        self.check_end(read, range.len())?;
        Ok(read)
    }

    /// Reads a range of the plan that is not longer than `block`. Returns the number of bytes, like
    /// [`OpenCopy::read_source`].
    ///
    /// # Errors
    /// Returns an error if the source cannot be read, or if it ends early because it changed.
    pub(crate) fn read_source_step(&self, range: ByteRange, block: &mut [u8]) -> Result<usize, CopyError> {
        let got = read_step(self, range, block).map_err(|source| self.read_failed(range.start.0, source))?;
        self.check_end(got as u64, range.len())?;
        Ok(got)
    }

    fn check_end(&self, read: u64, wanted: u64) -> Result<(), CopyError> {
        if read < wanted && self.file.source_was_replaced() { Err(self.file.changed()) } else { Ok(()) }
    }

    /// Reads one object of the copy back and returns its [`CHECK_DIGEST`].
    pub(crate) fn sink_digest(&self, blocks: &mut Blocks, range: ByteRange) -> Result<Digest, CopyError> {
        let written = self.sink_range(range);
        let unreadable = |at, source| CopyError::ReadFailed { path: self.file.sink_path(), at, source };
        let fault = |fault| match fault {
            BlockFault::Stopped => self.file.interrupted(),
            BlockFault::Read(at, source) => unreadable(ByteOffset(at), source),
            BlockFault::Ended(..) => self.differs(written),
            BlockFault::Receiver(error) => error,
        };
        let reader = self.delivery.reader().map_err(|source| unreadable(written.start, source))?;
        let block = blocks.one().map_err(|source| unreadable(written.start, source))?;
        let mut hasher = Hasher::new(CHECK_DIGEST);
        let read = read_to_end(reader, written, block, self.context.stop, |_, bytes| {
            hasher.update(bytes);
            Ok(())
        })
        .map_err(fault)?;
        if self.delivery.holes == Holes::Zeros {
            // The sink gets its length last. Until then, a range behind its end is a hole too.
            hasher.update_zeros(written.len() - read);
        }
        Ok(hasher.finish())
    }

    /// Reads the sink from `at` into `back` and returns true if it contains `bytes`. Both slices
    /// have the same length. If holes are zeros, bytes behind the end of the sink count as zeros,
    /// because the sink gets its length last.
    ///
    /// # Errors
    /// Returns [`CopyError::ReadFailed`] if reading the sink fails.
    pub(crate) fn sink_has(
        &self,
        at: ByteOffset,
        bytes: &[u8],
        back: &mut [u8],
        holes: Holes,
    ) -> Result<bool, CopyError> {
        let failed = |source| CopyError::ReadFailed { path: self.file.sink_path(), at, source };
        let reader = self.delivery.reader().map_err(failed)?;
        let got = SourceFile::read_at(reader, at.0, back).map_err(failed)?;
        let may_be_short = holes == Holes::Zeros;
        if may_be_short {
            back[got..].fill(0);
        }
        Ok((got == back.len() || may_be_short) && *back == *bytes)
    }

    /// Evicts the pages of a large source that the move will remove. Otherwise the removal would
    /// evict them at the end, in one thread, while no other work runs. That took a tenth of the
    /// time of a move from a disk into memory.
    pub(crate) fn forget(&self, read: ByteRange) {
        let source = &self.file.source_stat;
        let goes =
            self.context.moving.removes_source && source.kind == FileKind::Regular && source.nlink == 1;
        if !goes || self.delivery.method != Method::Cache || self.plan.geometry().count() < 2 {
            return;
        }
        if let Ok(source) = self.file.source.file() {
            drop_clean_pages(source, read);
        }
    }

    /// Starts write-back of a range of the sink if the copy will be synced in any case. The final
    /// sync then waits for the last object instead of all objects.
    pub(crate) fn push(&self, written: ByteRange) {
        let is_synced = self.context.moving.removes_source && self.plan.geometry().count() > 1;
        if let Some(sink) = self.file.sink.file().ok().filter(|_| is_synced) {
            sink.start_writeback(written);
        }
    }

    pub(crate) fn differs(&self, range: ByteRange) -> CopyError {
        CopyError::DigestMismatch { path: self.file.source_path(), sink: self.file.sink_path(), range }
    }

    pub(crate) fn read_failed(&self, at: u64, source: io::Error) -> CopyError {
        CopyError::ReadFailed {
            path: self.file.source_path(),
            at: self.plan.in_source(ByteOffset(at)),
            source,
        }
    }

    pub(crate) fn write_failed(&self, at: u64, source: io::Error) -> CopyError {
        CopyError::WriteFailed { path: self.file.sink_path(), at: ByteOffset(at), source }
    }
}

/// Drops the pages of a range of a source from the page cache, unless a page is dirty or the
/// storage does not tell that. The kernel would first write dirty pages to the device, and a copy
/// writes nothing of its source.
pub(crate) fn drop_clean_pages(source: &dyn SourceFile, range: ByteRange) {
    if source.residency(range).is_some_and(|held| held.dirty == 0 && held.writeback == 0) {
        source.advise(range, Advice::DontNeed);
    }
}
