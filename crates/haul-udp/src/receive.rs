//! The stream that this end receives.

use crate::ranges::Ranges;
use crate::store::Store;

/// Maximum number of gaps in the received stream. A packet that would make another gap is dropped
/// without an acknowledgement.
const GAPS_MAX: usize = 1 << 16;

/// Bytes from the first that the reader has not taken to the last that arrived.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    store: Store,
    capacity: u64,
    /// Position of the next byte to read.
    read: u64,
    /// All bytes before this position have arrived.
    complete: u64,
    /// Bytes after `complete` that have arrived.
    later: Ranges,
    /// Highest position that has arrived.
    highest: u64,
    /// Length of the stream, if known.
    end: Option<u64>,
}

/// Refusal of a part of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The part exceeds the credit, or contradicts the known length of the stream.
    Violation,
    /// Too many gaps.
    Gaps,
}

impl ReceiveBuffer {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            store: Store::default(),
            capacity: capacity as u64,
            read: 0,
            complete: 0,
            later: Ranges::default(),
            highest: 0,
            end: None,
        }
    }

    /// Position up to which the peer may send, in bytes.
    pub(crate) fn credit(&self) -> u64 {
        self.read + self.capacity
    }

    /// Number of bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        usize::try_from(self.complete - self.read).unwrap_or(usize::MAX)
    }

    /// True if all bytes and the end have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.end == Some(self.complete)
    }

    /// Number of bytes that have arrived in order, from the start of the stream on.
    pub(crate) fn in_order(&self) -> u64 {
        self.complete
    }

    /// Forgets the bytes that arrived behind a gap.
    pub(crate) fn forget_later(&mut self) {
        self.later = Ranges::default();
        self.store.truncate(self.complete);
    }

    /// True if all bytes are read and the stream has ended.
    pub(crate) fn is_at_end(&self) -> bool {
        self.end == Some(self.read)
    }

    /// Returns an error if [`ReceiveBuffer::insert`] must not be called with this part.
    pub(crate) fn check(&self, offset: u64, len: usize, is_end: bool) -> Result<(), Refusal> {
        let end = offset + len as u64;
        let is_beyond = end > self.credit() || self.end.is_some_and(|known| end > known);
        let is_contradiction = is_end && (self.end.is_some_and(|known| known != end) || end < self.highest);
        if is_beyond || is_contradiction {
            return Err(Refusal::Violation);
        }
        if offset > self.complete && self.later.len() >= GAPS_MAX {
            return Err(Refusal::Gaps);
        }
        Ok(())
    }

    /// Takes a part of the stream that [`ReceiveBuffer::check`] has accepted. Returns false if the
    /// part contained nothing new.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8], is_end: bool) -> bool {
        let end = offset + data.len() as u64;
        let is_end_new = is_end && self.end.is_none();
        if is_end {
            self.end = Some(end);
        }
        self.highest = self.highest.max(end);
        if end <= self.complete {
            return is_end_new;
        }
        let start = offset.max(self.complete);
        let skip = usize::try_from(start - offset).unwrap_or_default();
        let mut is_new = false;
        self.later.gaps(start..end, |_| is_new = true);
        if !is_new {
            return is_end_new;
        }
        self.store.write(start, &data[skip..]);
        if start > self.complete {
            self.later.insert(start..end);
            return true;
        }
        self.complete = end;
        while let Some(range) = self.later.first().filter(|range| range.start <= self.complete) {
            self.complete = self.complete.max(range.end);
            self.later.pop_first();
        }
        true
    }

    /// Copies bytes to `target` and returns their number.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> usize {
        let len = target.len().min(self.readable());
        let mut at = 0;
        self.store.read(self.read, len, |part| {
            target[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        });
        self.read += len as u64;
        self.store.release(self.read);
        len
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn memory(&self) -> usize {
        self.store.memory()
    }
}
