//! State that each worker owns.

use super::deliver::CloneRefusals;
use super::job::{Counted, Job};
use super::pipeline::block_bytes;
use super::reread::UnverifiedFile;
use haul_sys::buffer::AlignedBuffer;
use haul_sys::dir::DirEntry;
use std::collections::VecDeque;
use std::io;

/// The state of a worker: its memory block, and the entries that it took and has not started.
pub(crate) struct Lane {
    block: Option<AlignedBuffer>,
    /// A second block, for data that is read back.
    back: Option<AlignedBuffer>,
    block_bytes: usize,
    entries: VecDeque<DirEntry>,
    counted: Counted,
    refusals: CloneRefusals,
    /// Small files that wait for their verification.
    pub(super) held: Vec<UnverifiedFile>,
    pub(super) held_bytes: u64,
}

impl Lane {
    /// Creates the state of a worker. The block is allocated on first use.
    pub(crate) fn new(job: &Job<'_>) -> Lane {
        Lane {
            block: None,
            back: None,
            block_bytes: block_bytes(job),
            entries: VecDeque::new(),
            counted: Counted::default(),
            refusals: CloneRefusals::default(),
            held: Vec::new(),
            held_bytes: 0,
        }
    }

    /// Stores entries to work on.
    pub(crate) fn hold(&mut self, entries: VecDeque<DirEntry>, counted: Counted) {
        (self.entries, self.counted) = (entries, counted);
    }

    /// Takes the next entry to work on.
    pub(crate) fn next_entry(&mut self) -> Option<DirEntry> {
        self.entries.pop_front()
    }

    /// Takes out the entries that are not started.
    pub(crate) fn take_unstarted_entries(&mut self) -> (Vec<DirEntry>, Counted) {
        (std::mem::take(&mut self.entries).into(), self.counted)
    }

    /// Returns the pairs of file systems between which cloning never works.
    pub(super) fn refusals(&mut self) -> &mut CloneRefusals {
        &mut self.refusals
    }

    /// Returns the memory block.
    pub(super) fn block(&mut self) -> io::Result<&mut AlignedBuffer> {
        made(&mut self.block, self.block_bytes)
    }

    /// Returns the memory block and the one for data that is read back.
    pub(super) fn two_blocks(&mut self) -> io::Result<(&mut AlignedBuffer, &mut AlignedBuffer)> {
        Ok((made(&mut self.block, self.block_bytes)?, made(&mut self.back, self.block_bytes)?))
    }
}

fn made(block: &mut Option<AlignedBuffer>, bytes: usize) -> io::Result<&mut AlignedBuffer> {
    match block {
        Some(block) => Ok(block),
        empty => Ok(empty.insert(AlignedBuffer::new(bytes)?)),
    }
}
