//! Blocks: the memory that a worker reads into.

use haul_sys::buffer::{AlignedBuffer, BUFFER_ALIGN};
use std::io;
use std::ops::{Deref, DerefMut};

/// Memory of a fixed length, aligned as reads and writes past the page cache require. Pages that
/// are never touched occupy no memory, so that a worker with small files uses only what they fill.
#[derive(Debug)]
pub(crate) struct Block(AlignedBuffer);

impl Block {
    /// Creates a block of `bytes` zero bytes.
    ///
    /// # Errors
    /// Returns `ENOMEM` if the system lacks the memory.
    pub(crate) fn new(bytes: usize) -> io::Result<Block> {
        Ok(Block(AlignedBuffer::new(bytes)?))
    }

    /// Returns true if an offset in a file can be that of a block past the page cache.
    pub(crate) fn is_aligned(at: u64) -> bool {
        at.is_multiple_of(BUFFER_ALIGN as u64)
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
