//! Copy with immediate comparison: each block is read back right after its write.
//!
//! At that moment the source block, the copy in the page cache and the block read back are all in
//! the CPU caches. Comparing bytes costs a fraction of computing two digests, and needs the bytes
//! in memory only this long.

use super::blocks::Blocks;
use super::details::Holes;
use super::digesting::DataObserver;
use super::error::CopyError;
use super::report::Tally;
use super::reread::Method;
use super::run::Run;
use haul_model::{ByteOffset, ByteRange};
use haul_sys::cache::{self, Advice};
use haul_sys::{FileKind, transfer};

impl Run<'_> {
    /// Copies a range block by block and compares each block with the contents of the sink. Returns
    /// the number of bytes copied, like a copy without comparison.
    ///
    /// # Errors
    /// Returns [`CopyError::DigestMismatch`] with the range if a block read back has other bytes.
    pub(super) fn blocks_compared(
        &self,
        blocks: &mut Blocks,
        range: ByteRange,
        watch: &mut impl DataObserver,
    ) -> Result<u64, CopyError> {
        if range.is_empty() {
            return Ok(0);
        }
        let (block, back) = blocks.two().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
            }
            let wanted = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = self.read(at, &mut block[..], wanted)?;
            let bytes = &block[..got];
            watch.see(bytes);
            let to = self.plan.in_sink(ByteOffset(at));
            self.delivery.put(self.file, to, bytes)?;
            if !self.sink_has(to, bytes, &mut back[..got], self.delivery.holes)? {
                return Err(self.differs(self.sink_range(range)));
            }
            Tally::add(&self.context.observer.tally.bytes_done, got as u64);
            at += got as u64;
            if got < wanted {
                break;
            }
        }
        Ok(at - range.start.0)
    }

    /// Reads the sink from `at` into `back` and returns true if it contains `bytes`. Both slices
    /// have the same length. If holes are zeros, bytes behind the end of the sink count as zeros,
    /// because the sink gets its length last.
    ///
    /// # Errors
    /// Returns [`CopyError::ReadFailed`] if reading the sink fails.
    pub(super) fn sink_has(
        &self,
        at: ByteOffset,
        bytes: &[u8],
        back: &mut [u8],
        holes: Holes,
    ) -> Result<bool, CopyError> {
        let failed = |source| CopyError::ReadFailed { path: self.file.sink_path(), at, source };
        let got = transfer::read_at(self.delivery.reader(self.file), at.0, back).map_err(failed)?;
        let may_be_short = holes == Holes::Zeros;
        if may_be_short {
            back[got..].fill(0);
        }
        Ok((got == back.len() || may_be_short) && *back == *bytes)
    }

    /// Evicts the pages of a large source that the move will remove. Otherwise the removal would
    /// evict them at the end, in one thread, while no other work runs. That took a tenth of the
    /// time of a move from a disk into memory. Dirty pages stay, because dropping them would first
    /// write data that may never need to be written.
    pub(super) fn forget(&self, read: ByteRange) {
        let source = &self.file.source_stat;
        let goes =
            self.context.moving.removes_source && source.kind == FileKind::Regular && source.nlink == 1;
        if !goes || self.delivery.method != Method::Cache || self.plan.geometry().count() < 2 {
            return;
        }
        // If the residency is unknown or the call fails, the removal only takes longer.
        let held = cache::residency(&self.file.source, read).ok().flatten();
        if held.is_some_and(|held| held.dirty == 0 && held.writeback == 0) {
            let _ = cache::advise(&self.file.source, read, Advice::DontNeed);
        }
    }

    /// Starts write-back of a range of the sink if the copy will be synced in any case. The final
    /// sync then waits for the last object instead of all objects.
    pub(super) fn push(&self, written: ByteRange) {
        if self.context.moving.removes_source && self.file.sink_is_regular && self.plan.geometry().count() > 1
        {
            // An error here is harmless: the final sync writes the range and reports failures.
            let _ = cache::start_writeback(&self.file.sink, written);
        }
    }
}
