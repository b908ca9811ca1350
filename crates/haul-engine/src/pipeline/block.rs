//! Blocks: the memory that a worker reads into, and the sizes of reads.

use haul_sys::buffer::{AlignedBuffer, BUFFER_ALIGN};
use std::io;
use std::ops::{Deref, DerefMut};

/// Number of bytes per read and write of a copy or a transfer. A block of this size is still in the
/// second-level cache when it is hashed and written. Larger blocks make two workers in one file
/// wait longer for each other. Smaller blocks need more calls under the file's lock.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// Maximum size of the blocks of all workers of a job, in bytes, above which each worker gets a
/// smaller block.
const ALL_BLOCKS_BYTES_MAX: usize = 16 << 20;

/// Minimum block size with many workers, in bytes.
const SHARE_BYTES_MIN: usize = 128 << 10;

/// Method of reading, which decides the size of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Through the page cache, from which the kernel reads ahead. A checksum job only reads, and
    /// takes a quarter of the calls of a copy (docs/decisions/0007).
    Cached,
    /// Past the page cache. There is no read-ahead, so the device only works on this request.
    Direct,
    /// Several files in turn, whose digests are computed in lanes. For MD5, SHA-1 and SHA-2 over 64
    /// files of 16 MiB, 128 KiB was the fastest of 32 KiB to 256 KiB: the gain of longer reads
    /// exceeds that of the first-level cache, which is too small for any such block.
    InLanes,
}

impl Reads {
    /// Returns the maximum size of a read, in bytes: a multiple of 4,096.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Reads::Cached => 4 * BLOCK_BYTES,
            Reads::Direct => 4 << 20,
            Reads::InLanes => 128 << 10,
        }
    }

    /// Returns the size of a read of each of some workers, in bytes: less than the maximum if their
    /// blocks would take more than 16 MiB together, and at least 128 KiB.
    pub(crate) fn bytes_for(self, workers: usize) -> usize {
        let share = ALL_BLOCKS_BYTES_MAX / workers.max(1) / 4096 * 4096;
        share.clamp(SHARE_BYTES_MIN, self.bytes_max())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_workers_stay_within_their_limit() {
        for reads in [Reads::Cached, Reads::Direct, Reads::InLanes] {
            for workers in [0, 1, 2, 3, 4, 16, 128] {
                let bytes = reads.bytes_for(workers);
                assert!(bytes.is_multiple_of(4096) && bytes <= reads.bytes_max());
                assert!(workers * bytes <= ALL_BLOCKS_BYTES_MAX, "{reads:?}, {workers}");
            }
            assert_eq!(reads.bytes_for(1), reads.bytes_max());
            assert_eq!(reads.bytes_for(100_000), SHARE_BYTES_MIN, "never less");
        }
    }
}
