//! The second look at a file: what it holds now, whatever was hashed while its bytes passed.

use super::hashing::{Passed, Recipe};
use super::reason::reason;
use super::spent::Clocks;
use haul_digest::{Digest, Hasher};
use haul_model::{ByteRange, Object};
use haul_proto::{Reason, Why};
use haul_sys::transfer;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes read at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Reads files again and hashes them, for one worker.
pub(super) struct Rereader<'a> {
    recipe: Recipe,
    spent: &'a Clocks,
    /// Turns true when nobody wants to know any more: a file may have no end that anybody lives to see.
    over: &'a AtomicBool,
    /// Made when it is needed first: most lanes never are.
    block: Vec<u8>,
}

impl<'a> Rereader<'a> {
    /// Of a worker whose time is counted there, until all is `over`.
    pub(super) fn new(recipe: Recipe, spent: &'a Clocks, over: &'a AtomicBool) -> Rereader<'a> {
        Rereader { recipe, spent, over, block: Vec::new() }
    }

    /// The digest of an object of a file of `size` bytes as it is now, and what the file's own are made of.
    ///
    /// # Errors
    /// It can't be read, the file is shorter, or all is over.
    pub(super) fn object(
        &mut self,
        file: &OwnedFd,
        object: Object,
        size: u64,
    ) -> Result<(Digest, Passed), Reason> {
        let mut hash = self.recipe.object_again(object, size);
        self.each_block(file, object.range, |bytes| hash.update(bytes))?;
        let (digest, passed) = hash.finish();
        digest.map(|digest| (digest, passed)).ok_or_else(|| Why::Internal.into())
    }

    /// What the file's digests are made of, of an object that did not pass.
    ///
    /// # Errors
    /// As [`Rereader::object`].
    pub(super) fn late(&mut self, file: &OwnedFd, object: Object, size: u64) -> Result<Passed, Reason> {
        let mut hash = self.recipe.object(object, size);
        self.each_block(file, object.range, |bytes| hash.update(bytes))?;
        Ok(hash.finish().1)
    }

    /// The digest of the first `size` bytes of a file as they are now.
    ///
    /// # Errors
    /// As [`Rereader::object`].
    pub(super) fn whole(&mut self, file: &OwnedFd, size: u64) -> Result<Digest, Reason> {
        let mut hasher = Hasher::new(self.recipe.algorithm());
        self.each_block(file, ByteRange::between(0, size), |bytes| hasher.update(bytes))?;
        Ok(hasher.finish())
    }

    fn each_block(
        &mut self,
        file: &OwnedFd,
        range: ByteRange,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Reason> {
        self.block.resize(BLOCK_BYTES, 0);
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.over.load(Ordering::Relaxed) {
                return Err(Why::Stopped.into());
            }
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(BLOCK_BYTES);
            let begin = Instant::now();
            let got = transfer::read_at(file, at, &mut self.block[..len]);
            let is_read = Instant::now();
            self.spent.storage.add(is_read - begin);
            if got.map_err(|error| reason(&format!("cannot read again at byte {at}"), &error))? < len {
                return Err(Reason::new(Why::Changed, "shorter than it was"));
            }
            each(&self.block[..len]);
            self.spent.hashing.add(is_read.elapsed());
            at += len as u64;
        }
        Ok(())
    }
}
