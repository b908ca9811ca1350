//! Second read of a file: hashes its current contents, independent of the digests computed during
//! the transfer.

use super::hashing::HashPlan;
use super::reason::reason;
use super::time_stats::Clocks;
use crate::pipeline::BLOCK_BYTES;
use crate::pipeline::{BlockFault, ReadAt, read_blocks};
use haul_digest::{Digest, Hasher, KeyedDigest, ObjectSums};
use haul_model::{ByteRange, Object};
use haul_proto::{Reason, Why};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Reads files again and hashes them, for one worker.
pub(super) struct FileHasher<'a> {
    hash_plan: HashPlan,
    spent: &'a Clocks,
    /// Set to `true` when the session ends; cancels the read. A file can be too long to read to its
    /// end.
    cancelled: &'a AtomicBool,
    /// Allocated at the first use, because most lanes never need it.
    block: Vec<u8>,
}

impl<'a> FileHasher<'a> {
    /// Creates the hasher of a worker. Its time is added to `spent`, and `cancelled` cancels it.
    pub(super) fn new(hash_plan: HashPlan, spent: &'a Clocks, cancelled: &'a AtomicBool) -> FileHasher<'a> {
        FileHasher { hash_plan, spent, cancelled, block: Vec::new() }
    }

    /// Reads an object of a file of `size` bytes and returns its digest.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is shorter, and [`Why::Stopped`] if the
    /// session is over.
    pub(super) fn object(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        object: Object,
        size: u64,
    ) -> Result<Digest, Reason> {
        let mut hash = self.hash_plan.again(object, size);
        self.each_block(file, object.range, |bytes| hash.update(bytes))?;
        hash.finish().digest(0).ok_or_else(|| Why::Internal.into())
    }

    /// Reads an object that was not transferred. Returns the input to the digests of the file.
    ///
    /// # Errors
    /// Same as [`FileHasher::object`].
    pub(super) fn late(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        object: Object,
        size: u64,
    ) -> Result<ObjectSums, Reason> {
        let mut hash = self.hash_plan.late(object, size);
        self.each_block(file, object.range, |bytes| hash.update(bytes))?;
        Ok(hash.finish())
    }

    /// Returns the digest of the first `size` bytes of a file.
    ///
    /// # Errors
    /// Same as [`FileHasher::object`].
    pub(super) fn whole(&mut self, file: &(impl ReadAt + ?Sized), size: u64) -> Result<Digest, Reason> {
        let mut hasher = Hasher::new(self.hash_plan.algorithm());
        self.each_block(file, ByteRange::between(0, size), |bytes| hasher.update(bytes))?;
        Ok(hasher.finish())
    }

    /// Returns the digest of a range under the key of the session. Passes each block to `also`.
    ///
    /// # Errors
    /// Same as [`FileHasher::object`].
    pub(super) fn keyed(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        range: ByteRange,
        mut also: impl FnMut(&[u8]),
    ) -> Result<KeyedDigest, Reason> {
        let mut hasher = self.hash_plan.key().hasher();
        self.each_block(file, range, |bytes| {
            hasher.update(bytes);
            also(bytes);
        })?;
        Ok(hasher.finish())
    }

    fn each_block(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        range: ByteRange,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Reason> {
        self.block.resize(BLOCK_BYTES, 0);
        let spent = self.spent;
        let mut begin = Instant::now();
        let read = read_blocks(file, range, &mut self.block, self.cancelled, |_, bytes| {
            let is_read = Instant::now();
            spent.storage.add(is_read - begin);
            each(bytes);
            begin = Instant::now();
            spent.hashing.add(begin - is_read);
            Ok::<(), Infallible>(())
        });
        read.map_err(|fault| match fault {
            BlockFault::Stopped => Why::Stopped.into(),
            BlockFault::Read(at, error) => reason(&format!("cannot re-read at byte {at}"), &error),
            BlockFault::Ended(..) => Reason::new(Why::Changed, "it became shorter"),
            BlockFault::Receiver(never) => match never {},
        })
    }
}
