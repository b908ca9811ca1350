//! Bytes of a stream between two positions, in segments that exist only while they are needed.

use std::collections::VecDeque;

/// Length of a segment in bytes.
const SEGMENT: usize = 64 << 10;
const SEGMENT_U64: u64 = SEGMENT as u64;
/// Maximum number of free segments that are kept.
const SPARE_MAX: usize = 16;

/// Bytes of a stream from a moving start.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Number of the first segment, counted from the start of the stream.
    first: u64,
    segments: VecDeque<Option<Box<[u8]>>>,
    spare: Vec<Box<[u8]>>,
}

/// Returns the segment of a position and the place in the segment.
fn place(at: u64) -> (u64, usize) {
    (at / SEGMENT_U64, usize::try_from(at % SEGMENT_U64).unwrap_or_default())
}

impl Store {
    /// Copies `bytes` to position `at`, which [`Store::release`] has not passed.
    pub(crate) fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (segment, start) = place(at);
            let (part, rest) = bytes.split_at(bytes.len().min(SEGMENT - start));
            let index = usize::try_from(segment - self.first).expect("a segment of the buffer");
            if index >= self.segments.len() {
                self.segments.resize_with(index + 1, || None);
            }
            let slot = &mut self.segments[index];
            let spare = &mut self.spare;
            let target = slot.get_or_insert_with(|| spare.pop().unwrap_or_else(|| vec![0; SEGMENT].into()));
            target[start..start + part.len()].copy_from_slice(part);
            at += part.len() as u64;
            bytes = rest;
        }
    }

    /// Passes the `len` bytes at position `at`, which were written before, to `take` in one or more
    /// parts.
    pub(crate) fn read(&self, mut at: u64, mut len: usize, mut take: impl FnMut(&[u8])) {
        while len > 0 {
            let (segment, start) = place(at);
            let part = len.min(SEGMENT - start);
            let index = usize::try_from(segment - self.first).expect("a segment of the buffer");
            let source = self.segments[index].as_ref().expect("only written bytes are read");
            take(&source[start..start + part]);
            at += part as u64;
            len -= part;
        }
    }

    /// Frees all segments before position `at`.
    pub(crate) fn release(&mut self, at: u64) {
        while self.first < at / SEGMENT_U64 {
            let freed = self.segments.pop_front().flatten();
            if self.spare.len() < SPARE_MAX {
                self.spare.extend(freed);
            }
            self.first += 1;
        }
    }

    /// Frees all segments that begin at or behind position `at`, and the spare ones.
    pub(crate) fn truncate(&mut self, at: u64) {
        let kept = at.div_ceil(SEGMENT_U64).saturating_sub(self.first);
        self.segments.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        self.spare.clear();
    }

    /// Number of bytes of memory in segments.
    pub(crate) fn memory(&self) -> usize {
        (self.segments.iter().flatten().count() + self.spare.len()) * SEGMENT
    }
}
