//! Steps on the bytes of one file: reads, writes, and copies by the kernel.

use super::blocks::Blocks;
use super::context::CopyContext;
use super::deliver::Delivery;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::file::FileJob;
use super::report::Tally;
use super::reread::CHECK_DIGEST;
use super::settings::Moving;
use haul_digest::{Digest, Hasher};
use haul_model::{ByteOffset, ByteRange};
use haul_plan::Plan;
use haul_sys::transfer::CopyRange;
use haul_sys::{direct, transfer};
use std::io;

/// One file in progress, with the context that copying its bytes needs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) context: &'a CopyContext<'a>,
    pub(crate) file: &'a FileJob<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) delivery: &'a Delivery,
}

impl Run<'_> {
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
        let done = match transfer::copy_range(&self.file.source, from.0, &self.file.sink, to.0, range.len()) {
            Ok(CopyRange::Whole) => range.len(),
            Ok(CopyRange::SourceEnded { copied }) => copied,
            Ok(CopyRange::Unsupported { copied }) => {
                self.file.details.refuse_offload();
                copied
            }
            Err(_) => {
                self.file.details.refuse_offload();
                0
            }
        };
        Tally::add(&self.context.observer.tally.bytes_done, done);
        let rest = ByteRange::between(range.start.0 + done, range.end.0);
        Ok(done + self.blocks(blocks, rest, watch, None)?)
    }

    /// Reads, hashes and writes a range block by block. Returns the number of bytes copied. It is
    /// less than the range if an unchanged source ends before its reported length, as files in
    /// sysfs do.
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
        let block = blocks.one().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
            }
            let wanted = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = self.read(at, &mut block[..], wanted)?;
            let bytes = &block[..got];
            watch.see(bytes);
            if let Some(check) = check.as_deref_mut() {
                check.update(bytes);
            }
            self.delivery.put(self.file, self.plan.in_sink(ByteOffset(at)), bytes)?;
            Tally::add(&self.context.observer.tally.bytes_done, got as u64);
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
        if got < wanted && self.file.source_was_replaced() {
            return Err(self.file.changed());
        }
        Ok(got)
    }

    /// Reads one object of the copy back and returns its [`CHECK_DIGEST`].
    pub(crate) fn sink_digest(&self, blocks: &mut Blocks, range: ByteRange) -> Result<Digest, CopyError> {
        let reader = self.delivery.reader(self.file);
        let unreadable =
            |source| CopyError::ReadFailed { path: self.file.sink_path(), at: range.start, source };
        let written = self.sink_range(range);
        let block = blocks.one().map_err(unreadable)?;
        let mut hasher = Hasher::new(CHECK_DIGEST);
        let mut at = written.start.0;
        while at < written.end.0 {
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
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
