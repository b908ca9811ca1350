//! Bytes that wait to be sent: frames, and blocks of file data in reusable buffers.

use haul_proto::Message;
use std::collections::VecDeque;

/// Number of bytes that one read takes from a file, and the maximum length of a block on the lane.
/// Large enough that a request of JavaScript costs little, small enough that a small pool reads
/// several objects.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Length in bytes from which a frame no longer joins the frames before it.
const FRAMES_BYTES: usize = 64 << 10;

/// Bytes to send, in order.
#[derive(Debug)]
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    bytes: u64,
    free: Vec<Vec<u8>>,
    /// Number of buffers that may still be created.
    uncreated: usize,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    len: usize,
    /// True for a buffer of the pool.
    is_block: bool,
    /// True if the caller has seen the piece. It does not change from then on.
    is_lent: bool,
}

impl Output {
    /// Creates an output with a pool of at most `buffers` buffers of [`BLOCK_BYTES`].
    pub(crate) fn new(buffers: usize) -> Output {
        Output { pieces: VecDeque::new(), bytes: 0, free: Vec::new(), uncreated: buffers }
    }

    /// Appends the frame of a message. The payload of a NEW_BLOCK follows by
    /// [`Output::push_block`].
    pub(crate) fn push(&mut self, message: &Message) {
        let joins = |last: &&mut Piece| !last.is_block && !last.is_lent && last.len < FRAMES_BYTES;
        match self.pieces.back_mut().filter(joins) {
            Some(last) => {
                message.encode(&mut last.bytes);
                self.bytes += (last.bytes.len() - last.len) as u64;
                last.len = last.bytes.len();
            }
            None => {
                let mut bytes = Vec::new();
                message.encode(&mut bytes);
                let len = bytes.len();
                self.bytes += len as u64;
                self.pieces.push_back(Piece { bytes, len, is_block: false, is_lent: false });
            }
        }
    }

    /// Appends the first `len` bytes of a buffer of the pool.
    pub(crate) fn push_block(&mut self, bytes: Vec<u8>, len: usize) {
        self.bytes += len as u64;
        self.pieces.push_back(Piece { bytes, len, is_block: true, is_lent: false });
    }

    /// Returns the next bytes to send. They stay the same until [`Output::pop`].
    pub(crate) fn front(&mut self) -> Option<&[u8]> {
        let piece = self.pieces.front_mut()?;
        piece.is_lent = true;
        Some(&piece.bytes[..piece.len])
    }

    /// Removes the bytes that [`Output::front`] returned.
    pub(crate) fn pop(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.bytes -= piece.len as u64;
            if piece.is_block {
                self.give_back(piece.bytes);
            }
        }
    }

    /// Returns the number of bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> u64 {
        self.bytes
    }

    /// Takes a buffer of [`BLOCK_BYTES`] from the pool.
    pub(crate) fn take_buffer(&mut self) -> Option<Vec<u8>> {
        self.free.pop().or_else(|| {
            self.uncreated = self.uncreated.checked_sub(1)?;
            Some(vec![0; BLOCK_BYTES])
        })
    }

    /// Returns true if the pool has a buffer.
    pub(crate) fn has_buffer(&self) -> bool {
        !self.free.is_empty() || self.uncreated > 0
    }

    /// Returns a buffer to the pool.
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_is_bounded_and_blocks_return_to_it() {
        let mut output = Output::new(2);
        let (first, second) = (output.take_buffer().unwrap(), output.take_buffer().unwrap());
        assert!(output.take_buffer().is_none() && !output.has_buffer());
        output.push(&Message::KeepAlive);
        output.push(&Message::KeepAlive);
        output.push_block(first, 5);
        output.push(&Message::KeepAlive);
        output.give_back(second);
        assert_eq!(output.waiting(), 16 * 3 + 5);
        let lens: Vec<usize> = std::iter::from_fn(|| {
            let len = output.front()?.len();
            output.pop();
            Some(len)
        })
        .collect();
        assert_eq!((lens, output.waiting()), (vec![32, 5, 16], 0));

        output.push(&Message::KeepAlive);
        assert_eq!(output.front().map(<[u8]>::len), Some(16));
        output.push(&Message::KeepAlive);
        assert_eq!(output.front().map(<[u8]>::len), Some(16), "bytes that are being sent do not change");
        output.pop();
        assert_eq!(output.front().map(<[u8]>::len), Some(16));
        output.pop();
        assert!(output.take_buffer().is_some() && output.take_buffer().is_some());
        assert!(output.take_buffer().is_none());
    }
}
