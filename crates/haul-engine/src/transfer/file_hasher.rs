//! Second read of a file: hashes its current contents, independent of the digests computed during
//! the transfer.

use super::hashing::HashPlan;
use super::reason::reason;
use super::time_stats::Clocks;
use crate::copy::BLOCK_BYTES;
use haul_digest::{Digest, Hasher, KeyedDigest, ObjectSums};
use haul_model::{ByteRange, Object};
use haul_proto::{Reason, Why};
use haul_storage::SourceFile;
use haul_sys::transfer;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A file that is read at offsets.
pub(super) trait ReadAt {
    /// Fills `into` from offset `at`. Returns less than its length only at the end of the file.
    ///
    /// # Errors
    /// Returns the errors of pread(2).
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for OwnedFd {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        transfer::read_at(self, at, into)
    }
}

impl ReadAt for dyn SourceFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        SourceFile::read_at(self, at, into)
    }
}

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
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Why::Stopped.into());
            }
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            let begin = Instant::now();
            let got = file.read_at(at, &mut self.block[..len]);
            let is_read = Instant::now();
            self.spent.storage.add(is_read - begin);
            if got.map_err(|error| reason(&format!("cannot re-read at byte {at}"), &error))? < len {
                return Err(Reason::new(Why::Changed, "it became shorter"));
            }
            each(&self.block[..len]);
            self.spent.hashing.add(is_read.elapsed());
            at += len as u64;
        }
        Ok(())
    }
}
