//! State of one stream between two updates, and the bytes that do not fill a block yet.

use super::LaneAlgorithm;
use super::compression::State;

/// Size of the longest block, that of SHA-512, in bytes.
const BLOCK_MAX: usize = 128;

/// Maximum size of the padded end of a message in bytes: two blocks.
pub(super) const TAIL_MAX: usize = 2 * BLOCK_MAX;

/// State of a running stream.
#[derive(Clone)]
pub(super) struct Slot {
    /// State after the last complete block.
    pub(super) state: State,
    buffer: [u8; BLOCK_MAX],
    buffered: usize,
    bytes: u64,
}

impl Slot {
    /// Returns a stream without input.
    pub(super) fn fresh(algorithm: LaneAlgorithm) -> Slot {
        Slot { state: algorithm.start(), buffer: [0; BLOCK_MAX], buffered: 0, bytes: 0 }
    }

    /// Adds bytes to a partial block, and returns the bytes after it.
    ///
    /// An empty buffer takes only bytes that do not fill a block: complete blocks are hashed in
    /// place.
    pub(super) fn fill<'a>(&mut self, bytes: &'a [u8], block: usize) -> &'a [u8] {
        self.bytes += bytes.len() as u64;
        if self.buffered == 0 && bytes.len() >= block {
            return bytes;
        }
        let (now, later) = bytes.split_at(bytes.len().min(block - self.buffered));
        self.buffer[self.buffered..self.buffered + now.len()].copy_from_slice(now);
        self.buffered += now.len();
        later
    }

    /// Returns true if the buffer holds a complete block, which must be hashed first.
    pub(super) fn is_full(&self, block: usize) -> bool {
        self.buffered == block
    }

    /// Returns the complete block in the buffer, or an empty slice.
    pub(super) fn full_block(&self, block: usize) -> &[u8] {
        if self.is_full(block) { &self.buffer[..block] } else { &[] }
    }

    /// Stores the state after all complete blocks, and the bytes after them, fewer than a block.
    pub(super) fn settle(&mut self, state: State, rest: &[u8], block: usize) {
        self.state = state;
        if self.is_full(block) {
            self.buffered = 0;
        }
        self.buffer[self.buffered..self.buffered + rest.len()].copy_from_slice(rest);
        self.buffered += rest.len();
    }

    /// Returns the bytes of the incomplete block.
    pub(super) fn rest(&self) -> &[u8] {
        &self.buffer[..self.buffered]
    }

    /// Returns the number of bytes fed since the start of the stream.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the padded end of a message. It consists of the bytes after the last complete block, a
/// one bit, zeros, and the length in bits in the last eighth of a block (RFC 1321 sections 3.1 and
/// 3.2; FIPS 180-4 section 5.1).
///
/// ```text
/// | rest, less than a block | 80 | 00 ... 00 | length in bits, 8 or 16 bytes |    one block, or two if it does not fit
/// ```
pub(super) fn tail<'a>(
    algorithm: LaneAlgorithm,
    rest: &[u8],
    message_bytes: u64,
    out: &'a mut [u8; TAIL_MAX],
) -> &'a [u8] {
    let block = algorithm.block_len();
    let length_field = block / 8;
    let end = if rest.len() + 1 + length_field <= block { block } else { 2 * block };
    out.fill(0);
    out[..rest.len()].copy_from_slice(rest);
    out[rest.len()] = 0x80;
    let bits = u128::from(message_bytes) * 8;
    if algorithm == LaneAlgorithm::Md5 {
        // MD5 stores the length modulo 2^64, little-endian.
        out[end - 8..end].copy_from_slice(&(bits as u64).to_le_bytes());
    } else {
        out[end - length_field..end].copy_from_slice(&bits.to_be_bytes()[16 - length_field..]);
    }
    &out[..end]
}
