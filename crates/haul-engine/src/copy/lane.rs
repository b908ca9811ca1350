//! State that each worker owns.

use super::deliver::CloneRefusals;
use super::job::{Counted, Job};
use super::pipeline::block_bytes;
use super::reread::UnverifiedFile;
use haul_sys::buffer::AlignedBuffer;
use haul_sys::dir::DirEntry;
use haul_sys::uring::CopyRing;
use std::collections::VecDeque;
use std::io;

/// Maximum number of blocks in flight in a worker's ring: one is read while others are written.
const RING_DEPTH: usize = 4;

/// The state of a worker: its memory block, and the entries that it took and has not started.
pub(crate) struct Lane {
    block: Option<AlignedBuffer>,
    /// A second block, for data that is read back.
    back: Option<AlignedBuffer>,
    block_bytes: usize,
    entries: VecDeque<DirEntry>,
    counted: Counted,
    refusals: CloneRefusals,
    ring: Ring,
    /// Small files that wait for their verification.
    pub(super) held: Vec<UnverifiedFile>,
    pub(super) held_bytes: u64,
}

/// A worker's io_uring, for `--double-buffer`.
enum Ring {
    /// Not tried yet.
    Untried,
    /// In use.
    Open(Box<CopyRing>),
    /// The kernel has none, forbids it, or it failed.
    Unavailable,
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
            ring: Ring::Untried,
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

    /// Returns the ring if the kernel provides one.
    pub(super) fn ring(&mut self) -> Option<&mut CopyRing> {
        if let Ring::Untried = self.ring {
            self.ring = CopyRing::new(RING_DEPTH, self.block_bytes)
                .map_or(Ring::Unavailable, |ring| Ring::Open(Box::new(ring)));
        }
        match &mut self.ring {
            Ring::Open(ring) => Some(ring),
            Ring::Untried | Ring::Unavailable => None,
        }
    }

    /// Discards the ring after a failure.
    pub(super) fn lose_ring(&mut self) {
        self.ring = Ring::Unavailable;
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
