//! The stream that this end sends.

use crate::ranges::Ranges;
use crate::store::Store;
use std::ops::Range;

/// A part of the stream in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// True if the stream ends after the piece.
    pub(crate) is_end: bool,
    /// True if the bytes were sent before.
    pub(crate) is_repeat: bool,
}

impl Piece {
    fn range(self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }
}

/// Bytes from the first that the peer has not acknowledged to the last that was written.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    store: Store,
    capacity: u64,
    /// All bytes before this position are acknowledged.
    start: u64,
    /// Acknowledged bytes after `start`.
    acked: Ranges,
    /// Bytes to send again.
    lost: Ranges,
    /// Position of the first byte that was never sent.
    sent: u64,
    written: u64,
    end: End,
}

/// State of the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// To be sent, the first time or again.
    Waiting,
    Sent,
    Acked,
}

impl SendBuffer {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            store: Store::default(),
            capacity: capacity as u64,
            start: 0,
            acked: Ranges::default(),
            lost: Ranges::default(),
            sent: 0,
            written: 0,
            end: End::Open,
        }
    }

    /// Number of bytes that [`SendBuffer::write`] accepts if at most `unsent` bytes may wait to be
    /// sent for the first time.
    pub(crate) fn writable(&self, unsent: u64) -> usize {
        if self.end != End::Open {
            return 0;
        }
        let room = self.capacity - (self.written - self.start);
        let room = room.min(unsent.saturating_sub(self.written - self.sent));
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    pub(crate) fn write(&mut self, bytes: &[u8], unsent: u64) -> usize {
        let len = bytes.len().min(self.writable(unsent));
        self.store.write(self.written, &bytes[..len]);
        self.written += len as u64;
        len
    }

    /// Number of bytes that were written and not acknowledged from the start of the stream on.
    pub(crate) fn buffered(&self) -> u64 {
        self.written - self.start
    }

    /// Ends the stream after the bytes written so far.
    pub(crate) fn finish(&mut self) {
        if self.end == End::Open {
            self.end = End::Waiting;
        }
    }

    /// True if a byte, or the end, was written and is not acknowledged.
    pub(crate) fn is_pending(&self) -> bool {
        self.start < self.written || !matches!(self.end, End::Open | End::Acked)
    }

    /// True if every byte and the end are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.end == End::Acked && self.start == self.written
    }

    /// Records that the peer has everything.
    pub(crate) fn all_acked(&mut self) {
        self.acked = Ranges::default();
        self.lost = Ranges::default();
        self.sent = self.written;
        self.start = self.written;
        self.store.release(self.start);
        self.end = End::Acked;
    }

    /// Records that the peer has the bytes before `position` and none behind it. Returns false if
    /// this contradicts the acknowledgements, or if the bytes were never sent.
    pub(crate) fn resume_from(&mut self, position: u64) -> bool {
        let is_possible = (self.start..=self.sent).contains(&position);
        if is_possible {
            (self.acked, self.lost) = Default::default();
            self.start = position;
            self.store.release(position);
        }
        is_possible
    }

    /// Moves at most `len` of the bytes that the peer does not have to the end of `target`, and
    /// returns their number.
    pub(crate) fn take(&mut self, len: usize, target: &mut Vec<u8>) -> usize {
        let len = usize::try_from(self.written - self.start).map_or(len, |left| left.min(len));
        self.store.read(self.start, len, |part| target.extend_from_slice(part));
        self.start += len as u64;
        self.sent = self.sent.max(self.start);
        self.store.release(self.start);
        len
    }

    /// True if every byte and the end were sent.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.is_finished() && self.sent == self.written
    }

    /// True if [`SendBuffer::finish`] was called.
    pub(crate) fn is_finished(&self) -> bool {
        self.end != End::Open
    }

    /// Number of bytes that are acknowledged from the start of the stream on.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// True if [`SendBuffer::next`] returns a piece.
    pub(crate) fn has_next(&self, credit: u64) -> bool {
        !self.lost.is_empty()
            || self.sent < self.written.min(credit)
            || (self.end == End::Waiting && self.sent == self.written)
    }

    /// Number of bytes that can be sent for the first time.
    pub(crate) fn unsent(&self, credit: u64) -> u64 {
        self.written.min(credit).saturating_sub(self.sent)
    }

    /// True if only the peer's credit prevents sending.
    pub(crate) fn is_blocked(&self, credit: u64) -> bool {
        self.sent < self.written && self.sent >= credit && self.lost.is_empty()
    }

    /// Returns the next piece to send, lost bytes first, of at most `len` bytes, and marks the
    /// piece as sent. New bytes stay below `credit`.
    pub(crate) fn next(&mut self, len: usize, credit: u64) -> Option<Piece> {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let (range, is_repeat) = match self.lost.first() {
            Some(range) => (range.start..range.end.min(range.start + u64::from(len)), true),
            None => {
                let end = self.written.min(credit).min(self.sent + u64::from(len)).max(self.sent);
                (self.sent..end, false)
            }
        };
        let is_end = self.end == End::Waiting && range.end == self.written;
        if range.is_empty() && !is_end {
            return None;
        }
        if is_repeat {
            self.lost.remove(range.clone());
        } else {
            self.sent = range.end;
        }
        if is_end {
            self.end = End::Sent;
        }
        let len = u32::try_from(range.end - range.start).expect("at most the length asked");
        Some(Piece { offset: range.start, len, is_end, is_repeat })
    }

    /// Appends the bytes of a piece to `buffer`.
    pub(crate) fn copy(&self, piece: Piece, buffer: &mut Vec<u8>) {
        self.store.read(piece.offset, piece.len as usize, |part| buffer.extend_from_slice(part));
    }

    /// Records that the peer has a piece.
    pub(crate) fn ack(&mut self, piece: Piece) {
        let range = piece.range();
        if !self.lost.is_empty() {
            self.lost.remove(range.clone());
        }
        if range.start <= self.start {
            self.start = self.start.max(range.end);
        } else {
            self.acked.insert(range);
        }
        while let Some(range) = self.acked.first().filter(|range| range.start <= self.start) {
            self.start = self.start.max(range.end);
            self.acked.pop_first();
        }
        self.store.release(self.start);
        if piece.is_end {
            self.end = End::Acked;
        }
    }

    /// Records that a piece has to be sent again.
    pub(crate) fn lose(&mut self, piece: Piece) {
        let range = piece.range();
        let range = range.start.max(self.start)..range.end.max(self.start);
        let lost = &mut self.lost;
        self.acked.gaps(range, |gap| lost.insert(gap));
        if piece.is_end && self.end == End::Sent {
            self.end = End::Waiting;
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.store.memory()
    }
}
