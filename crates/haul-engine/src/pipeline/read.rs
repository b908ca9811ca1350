//! The read loop: a range of a file, block by block.

use haul_model::ByteRange;
use haul_storage::SourceFile;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file that is read at offsets.
pub(crate) trait ReadAt {
    /// Fills `into` from offset `at`. Returns less than its length only at the end of the file.
    ///
    /// # Errors
    /// Returns the errors of pread(2).
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns the number of bytes of which the length of a read must be a multiple. It is 1 unless
    /// reads bypass the page cache.
    fn unit(&self) -> usize {
        1
    }
}

impl ReadAt for dyn SourceFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        SourceFile::read_at(self, at, into)
    }
}

/// Reason why a range was not read to its end.
#[derive(Debug)]
pub(crate) enum BlockFault<E> {
    /// The job is to stop.
    Stopped,
    /// The file cannot be read at this offset.
    Read(u64, io::Error),
    /// The file ends within the range: the block at this offset has only this number of bytes.
    Ended(u64, usize),
    /// The receiver of the blocks failed.
    Receiver(E),
}

/// Reads a range of a file into `block`, and passes each block with its offset to `each`. All
/// blocks but the last have the length of `block`, which must not be empty.
///
/// # Errors
/// Returns the first [`BlockFault`]. `stop` is read before each block.
pub(crate) fn read_blocks<E>(
    file: &(impl ReadAt + ?Sized),
    range: ByteRange,
    block: &mut [u8],
    stop: &AtomicBool,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), BlockFault<E>> {
    for part in range.steps(block.len() as u64) {
        if stop.load(Ordering::Relaxed) {
            return Err(BlockFault::Stopped);
        }
        let (at, len) = (part.start.0, part.len() as usize);
        let got = read_step(file, part, block).map_err(|error| BlockFault::Read(at, error))?;
        if got < len {
            return Err(BlockFault::Ended(at, got));
        }
        each(at, &block[..len]).map_err(BlockFault::Receiver)?;
    }
    Ok(())
}

/// Like [`read_blocks`], for a file that may end within the range: the last block is then shorter.
/// Returns the number of bytes read.
///
/// # Errors
/// Returns the first [`BlockFault`] but [`BlockFault::Ended`].
pub(crate) fn read_to_end<E>(
    file: &(impl ReadAt + ?Sized),
    range: ByteRange,
    block: &mut [u8],
    stop: &AtomicBool,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u64, BlockFault<E>> {
    match read_blocks(file, range, block, stop, &mut each) {
        Ok(()) => Ok(range.len()),
        Err(BlockFault::Ended(at, got)) => {
            if got > 0 {
                each(at, &block[..got]).map_err(BlockFault::Receiver)?;
            }
            Ok(at + got as u64 - range.start.0)
        }
        Err(fault) => Err(fault),
    }
}

/// Reads a range that is not longer than `block` to the start of `block`. Returns the number of
/// bytes, which is less than the length of the range only at the end of the file.
///
/// # Errors
/// Returns the errors of pread(2).
pub(crate) fn read_step(
    file: &(impl ReadAt + ?Sized),
    range: ByteRange,
    block: &mut [u8],
) -> io::Result<usize> {
    let len = range.len() as usize;
    let room = len.next_multiple_of(file.unit()).min(block.len());
    Ok(file.read_at(range.start.0, &mut block[..room])?.min(len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::memory::{Call, MemoryStorage};
    use haul_storage::{Create, Follow, Name};
    use std::sync::Arc;

    /// Number of bytes of the file.
    const LEN: u64 = 10;

    fn file(storage: &MemoryStorage) -> Arc<dyn SourceFile> {
        let (dir, name) = (storage.root(), Name::new("f").unwrap());
        let sink = dir.sink(&name, Create::New { mode: 0o600 }).unwrap();
        sink.write_at(0, b"0123456789").unwrap();
        dir.source(&name, Follow::No).unwrap()
    }

    type Blocks = Vec<(u64, Vec<u8>)>;
    type ReadResult = Result<(), BlockFault<()>>;

    /// Reads a range in blocks of four bytes. Returns the blocks and the result.
    fn read(storage: &MemoryStorage, from: u64, to: u64, stop: &AtomicBool) -> (Blocks, ReadResult) {
        let mut blocks = Vec::new();
        let range = ByteRange::between(from, to);
        let read = read_blocks(&*file(storage), range, &mut [0; 4], stop, |at, bytes| {
            blocks.push((at, bytes.to_vec()));
            if blocks.len() > 9 { Err(()) } else { Ok(()) }
        });
        (blocks, read)
    }

    #[test]
    fn blocks_cover_the_range_in_order() {
        let go = AtomicBool::new(false);
        for from in 0..=LEN {
            for to in from..=LEN {
                let (blocks, read) = read(&MemoryStorage::new(1), from, to, &go);
                read.unwrap();
                let mut at = from;
                for (start, bytes) in &blocks {
                    assert_eq!(*start, at);
                    assert_eq!(bytes, &b"0123456789"[at as usize..at as usize + bytes.len()]);
                    at += bytes.len() as u64;
                }
                assert_eq!((at, blocks.len()), (to, (to - from).div_ceil(4) as usize));
            }
        }
    }

    #[test]
    fn first_fault_ends_the_loop_and_says_where() {
        let (go, halt) = (AtomicBool::new(false), AtomicBool::new(true));
        let (blocks, short) = read(&MemoryStorage::new(1), 1, 12, &go);
        assert!(matches!(short, Err(BlockFault::Ended(9, 1))) && blocks.len() == 2, "{short:?}");
        let (blocks, stopped) = read(&MemoryStorage::new(1), 0, LEN, &halt);
        assert!(matches!(stopped, Err(BlockFault::Stopped)) && blocks.is_empty(), "{stopped:?}");
        let storage = MemoryStorage::new(1);
        storage.fail(Call::Read, 2, 5);
        let (blocks, failed) = read(&storage, 0, LEN, &go);
        assert!(matches!(failed, Err(BlockFault::Read(4, _))) && blocks.len() == 1, "{failed:?}");
        let mut seen = 0;
        let all = ByteRange::between(0, LEN);
        let refused = read_blocks(&*file(&MemoryStorage::new(1)), all, &mut [0; 4], &go, |at, _| {
            seen += 1;
            Err::<(), u64>(at)
        });
        assert!(matches!(refused, Err(BlockFault::Receiver(0))) && seen == 1, "{refused:?}");
    }
}
