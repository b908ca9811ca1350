//! Order of the bytes of a lane over its streams.

use super::STREAMS;

/// Bytes that are in one stream before the next one follows.
pub(super) const BLOCK_BYTES: usize = 16 << 10;

/// Place of the next byte of a lane: blocks of [`BLOCK_BYTES`] are in the streams in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    stream: u32,
    /// Bytes that are left of the block.
    left: usize,
}

impl Place {
    pub(super) const START: Self = Self { stream: 0, left: BLOCK_BYTES };

    /// Returns the index of the stream with the next byte, and the number of bytes, at most `len`,
    /// that follow in it.
    pub(super) fn next(&self, len: usize) -> (u64, usize) {
        (u64::from(self.stream), self.left.min(len))
    }

    /// Passes over `count` bytes, at most those that [`next`](Self::next) returned.
    pub(super) fn advance(&mut self, count: usize) {
        self.left -= count;
        if self.left == 0 {
            *self = Self { stream: (self.stream + 1) % STREAMS, left: BLOCK_BYTES };
        }
    }
}
