//! A copy that is compared as it is made: each block is read back as soon as it was written, while all three of what was
//! read, the page cache's copy and what was read back lie in the processor's caches.
//!
//! Comparing bytes costs a fraction of what two digests of them do, and needs the bytes in memory only this long.

use super::deliver::Holes;
use super::digesting::Watch;
use super::error::CopyError;
use super::lane::Lane;
use super::pipeline::{Run, interrupted};
use super::report::Tally;
use super::reread::Method;
use haul_model::{ByteOffset, ByteRange};
use haul_sys::cache::{self, Advice};
use haul_sys::{FileKind, transfer};

impl Run<'_> {
    /// Moves a range block by block and compares each block with what the sink then has. Returns the bytes moved, as
    /// moving without a comparison does.
    ///
    /// # Errors
    /// [`CopyError::DigestMismatch`] names the range, where a block of it came back with other bytes.
    pub(super) fn blocks_compared(
        &self,
        lane: &mut Lane,
        range: ByteRange,
        watch: &mut impl Watch,
    ) -> Result<u64, CopyError> {
        if range.is_empty() {
            return Ok(0);
        }
        let (block, back) = lane.two_blocks().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.job.pool.stopping() {
                return Err(interrupted(self.file));
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
            Tally::add(&self.job.tally.bytes_done, got as u64);
            at += got as u64;
            if got < wanted {
                break;
            }
        }
        Ok(at - range.start.0)
    }

    /// Whether the sink has these bytes from `at` on. Reads them into `back`, which is as long. Where holes are zeros, so is what lies behind
    /// the sink's end: it gets its length last.
    ///
    /// # Errors
    /// [`CopyError::ReadFailed`] of the sink.
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

    /// Lets go of what the page cache holds of a large source that is to be removed. The removal would do that at last, by
    /// one thread, while nothing else happens: a tenth of the time of a move from a disk into memory. What the device lacks
    /// stays, for dropping it would first write what may never have to be written.
    pub(super) fn forget(&self, read: ByteRange) {
        let source = &self.file.source_stat;
        let goes = self.job.settings.rules.moves && source.kind == FileKind::Regular && source.nlink == 1;
        if !goes || self.delivery.method != Method::Cache || self.plan.geometry().count() < 2 {
            return;
        }
        // Where it can't be told or done, the removal takes longer.
        let held = cache::residency(&self.file.source, read).ok().flatten();
        if held.is_some_and(|held| held.dirty == 0 && held.writeback == 0) {
            let _ = cache::advise(&self.file.source, read, Advice::DontNeed);
        }
    }

    /// Lets a range of the sink go to the device while the next is moved, where the copy will be made durable in any
    /// case: the sync at the end then waits for the last object instead of all of them.
    pub(super) fn push(&self, written: ByteRange) {
        if self.job.settings.rules.moves && self.file.sink_is_regular && self.plan.geometry().count() > 1 {
            // What can't begin early is written by the sync, which also tells of failures.
            let _ = cache::start_writeback(&self.file.sink, written);
        }
    }
}
