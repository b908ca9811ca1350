//! One pass over a range of a file: reading alone, reading and hashing in turn, or both in
//! parallel.

use super::error::BenchError;
use super::file::TestFile;
use haul_digest::{Algorithm, Digest, Hasher};
use haul_model::ByteRange;
use haul_sys::buffer::AlignedBuffer;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Maximum number of blocks in the queue between the two threads. Two suffice for even work; more
/// compensate a device that answers in bursts.
const QUEUE_BLOCKS: usize = 4;

/// One block per thread and a full queue.
const BUFFERS: usize = QUEUE_BLOCKS + 2;

/// Reads files block by block and reuses its buffers.
pub(super) struct Passes<'a> {
    file: &'a TestFile,
    /// All [`BUFFERS`] buffers, between two passes.
    buffers: Vec<AlignedBuffer>,
    block: usize,
}

/// A block that is ready to be hashed.
struct Filled {
    buffer: AlignedBuffer,
    len: usize,
}

impl<'a> Passes<'a> {
    /// Prepares passes over a file in blocks of `block` bytes.
    ///
    /// # Errors
    /// Returns [`BenchError::NoMemory`] if there is no memory for the buffers.
    pub(super) fn new(file: &'a TestFile, block: usize) -> Result<Passes<'a>, BenchError> {
        let mut buffers = (0..BUFFERS).map(|_| AlignedBuffer::new(block)).collect::<Result<Vec<_>, _>>();
        for buffer in buffers.iter_mut().flatten() {
            // The kernel allocates memory at the first write: do this before the measurement.
            buffer.fill(1);
        }
        let buffers = buffers.map_err(|_| BenchError::NoMemory { count: BUFFERS, bytes: block })?;
        Ok(Passes { file, buffers, block })
    }

    /// Reads a range without using the data.
    ///
    /// # Errors
    /// Same as [`TestFile::read`], here and in the methods below.
    pub(super) fn reading(&mut self, range: ByteRange) -> Result<(), BenchError> {
        let buffer = &mut self.buffers[0];
        for piece in blocks(range, self.block) {
            self.file.read(piece, buffer)?;
            black_box(&buffer[..piece.len() as usize]);
        }
        Ok(())
    }

    /// Reads and hashes each block in turn.
    pub(super) fn synchronous(
        &mut self,
        range: ByteRange,
        algorithm: Algorithm,
    ) -> Result<Digest, BenchError> {
        let buffer = &mut self.buffers[0];
        let mut hasher = Hasher::new(algorithm);
        for piece in blocks(range, self.block) {
            self.file.read(piece, buffer)?;
            hasher.update(&buffer[..piece.len() as usize]);
        }
        Ok(hasher.finish())
    }

    /// Reads in this thread and hashes in another one. Full blocks pass through a bounded queue,
    /// and empty buffers return.
    pub(super) fn pipelined(&mut self, range: ByteRange, algorithm: Algorithm) -> Result<Digest, BenchError> {
        let (full, to_hash) = sync_channel(QUEUE_BLOCKS);
        let (empty, to_fill) = channel();
        for buffer in self.buffers.drain(..) {
            if empty.send(buffer).is_err() {
                unreachable!("the receiver is held by this function");
            }
        }
        let (read, digest) = std::thread::scope(|scope| {
            let hashing = scope.spawn(move || hash_blocks(algorithm, &to_hash, &empty));
            let read = read_blocks(self.file, range, self.block, &to_fill, full);
            (read, hashing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        self.buffers.extend(to_fill.try_iter());
        // A failed read returns the buffer that it was to fill.
        read.map_err(|(error, buffer)| {
            self.buffers.extend(buffer);
            error
        })?;
        Ok(digest)
    }
}

/// Reading half of the pipeline; closes `full` at the end. A failed read returns its buffer.
fn read_blocks(
    file: &TestFile,
    range: ByteRange,
    block: usize,
    to_fill: &Receiver<AlignedBuffer>,
    full: SyncSender<Filled>,
) -> Result<(), (BenchError, Option<AlignedBuffer>)> {
    for piece in blocks(range, block) {
        // The hashing thread ends early only by a panic, which its join propagates.
        let Ok(mut buffer) = to_fill.recv() else { return Ok(()) };
        if let Err(error) = file.read(piece, &mut buffer) {
            return Err((error, Some(buffer)));
        }
        if full.send(Filled { buffer, len: piece.len() as usize }).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Hashing half of the pipeline, until the queue is closed.
fn hash_blocks(algorithm: Algorithm, to_hash: &Receiver<Filled>, empty: &Sender<AlignedBuffer>) -> Digest {
    let mut hasher = Hasher::new(algorithm);
    for Filled { buffer, len } in to_hash {
        hasher.update(&buffer[..len]);
        if empty.send(buffer).is_err() {
            break;
        }
    }
    hasher.finish()
}

/// Returns the blocks of a range, in order; the last one may be shorter.
fn blocks(range: ByteRange, block: usize) -> impl Iterator<Item = ByteRange> {
    let end = range.end.0;
    (range.start.0..end)
        .step_by(block)
        .map(move |start| ByteRange::between(start, end.min(start.saturating_add(block as u64))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::FileChoice;
    use haul_digest::digest;

    /// Returns a file of `len` bytes with a repeating count, and the bytes.
    fn counted(folder: &tempfile::TempDir, len: usize) -> (TestFile, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let path = folder.path().join("data");
        std::fs::write(&path, &bytes).unwrap();
        (TestFile::prepare(&FileChoice::Given { path, at_most: u64::MAX }).unwrap(), bytes)
    }

    #[test]
    fn synchronous_and_pipelined_passes_hash_exactly_the_range() {
        const BLOCK: usize = 4096;
        let folder = tempfile::tempdir().unwrap();
        let (file, bytes) = counted(&folder, 20 * BLOCK);
        let mut passes = Passes::new(&file, BLOCK).unwrap();
        for (start, end) in
            [(0, 1), (0, BLOCK), (5, BLOCK + 6), (BLOCK, 3 * BLOCK), (0, 20 * BLOCK), (7, 20 * BLOCK)]
        {
            let range = ByteRange::between(start as u64, end as u64);
            for algorithm in [Algorithm::Crc32, Algorithm::Md5, Algorithm::Blake3] {
                let expected = digest(algorithm, &bytes[start..end]);
                assert_eq!(passes.synchronous(range, algorithm).unwrap(), expected, "{start}..{end}");
                assert_eq!(passes.pipelined(range, algorithm).unwrap(), expected, "{start}..{end}");
                assert_eq!(passes.buffers.len(), BUFFERS);
            }
            passes.reading(range).unwrap();
        }
    }

    #[test]
    fn a_failed_read_stops_the_pipeline_and_loses_no_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = counted(&folder, 10_000);
        let mut passes = Passes::new(&file, 4096).unwrap();
        let beyond = ByteRange::between(0, 50_000);
        assert!(matches!(passes.pipelined(beyond, Algorithm::Sha256), Err(BenchError::Shrank(_))));
        assert_eq!(passes.buffers.len(), BUFFERS);
        assert!(passes.pipelined(ByteRange::between(0, 10_000), Algorithm::Sha256).is_ok());
    }
}
