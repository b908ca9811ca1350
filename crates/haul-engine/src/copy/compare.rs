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
use haul_model::{ByteOffset, ByteRange};
use haul_sys::{cache, transfer};

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
            if !self.comes_back(to, bytes, &mut back[..got])? {
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

    /// Reads a block of the sink into `back`, which is as long as what was written; whether they are the same.
    fn comes_back(&self, at: ByteOffset, written: &[u8], back: &mut [u8]) -> Result<bool, CopyError> {
        let reader = self.delivery.reader(self.file);
        let got = transfer::read_at(reader, at.0, back).map_err(|source| CopyError::ReadFailed {
            path: self.file.sink_path(),
            at,
            source,
        })?;
        let may_be_short = self.delivery.holes == Holes::Zeros;
        if got < back.len() && may_be_short {
            // The sink gets its length last: until then, what lies past its end is a hole too.
            back[got..].fill(0);
        }
        Ok((got == back.len() || may_be_short) && *back == *written)
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
