//! Relay: several workers read one file whose digests need their input in order.
//!
//! Each worker reads a block into its own buffer and waits until the previous blocks are hashed. It
//! then hashes the block while its cache still holds it, and passes the hasher state on. Workers
//! read in parallel and hash in turn, and no block moves between threads.

use super::counters::Counters;
use super::order::{SumError, Sums};
use super::serial::{RunningDigests, conclude};
use super::source::{Opened, SourceRange};
use haul_model::ByteRange;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(test)]
mod tests;

/// Minimum number of blocks: a shorter file is finished before a helper wakes up.
const BLOCKS_MIN: u64 = 4;

/// Minimum block size, in bytes: shorter blocks are hashed faster than the hasher state passes
/// between threads.
const BLOCK_BYTES_MIN: usize = 64 << 10;

/// Maximum number of workers on one file. The digests take one block at a time. Reading a block
/// takes less than three times as long as the fastest digest needs for it, so that more workers
/// would only wait.
const RUNNERS_MAX: usize = 4;

/// Open file that several workers share.
#[derive(Debug)]
pub(super) struct Relay {
    opened: Opened,
    range: ByteRange,
    /// Size of every block except the last, in bytes.
    block: u64,
    /// Number of the next block to take.
    next: AtomicU64,
    /// Number of workers on the file.
    runners: AtomicUsize,
    /// True if the file is offered in the schedule for another worker to join.
    called: AtomicBool,
    hasher_state: Mutex<HasherState>,
    passed: Condvar,
}

/// Hasher state that the workers pass on from block to block.
#[derive(Debug)]
struct HasherState {
    /// Number of the block to hash next.
    turn: u64,
    /// `None` while a worker updates the digests, and after they are finished.
    running_digests: Option<RunningDigests>,
    /// Number of workers that wait for their turn.
    waiting: usize,
    /// True if nothing more is hashed: the file ended or failed, or a worker panicked.
    over: bool,
}

/// Turn of one worker on one block, until the worker passes the hasher state on. If the turn is
/// dropped before that, for example by a panic, the relay ends: the later blocks can no longer have
/// a turn.
struct BlockTurn<'a> {
    relay: &'a Relay,
    block: u64,
    passed: bool,
}

/// Interface to the job that a relay uses between two blocks.
pub(super) trait RelayJob {
    /// Returns true if this worker should take another block.
    fn stays(&self) -> bool;

    /// Called while the worker holds the hasher state.
    fn holds_hasher_state(&self);

    /// Returns true if the job was stopped.
    fn stopping(&self) -> bool;
}

impl Relay {
    /// Returns true if several workers may be faster than one for an open file.
    pub(super) fn pays(opened: &Opened, block: usize, workers: usize) -> bool {
        let few = opened.len() < BLOCKS_MIN.saturating_mul(block as u64);
        workers > 1 && block >= BLOCK_BYTES_MIN && !few
    }

    /// Creates a relay over an open file with blocks of `block` bytes, the buffer size of every
    /// worker. Nothing is hashed yet.
    ///
    /// # Panics
    /// Panics if the source is not a range of a file, or if the range is empty.
    pub(super) fn new(opened: Opened, running_digests: RunningDigests, block: usize) -> Relay {
        let SourceRange::Range(range) = opened.reach() else {
            panic!("only a range of a file is cut into blocks")
        };
        assert!(!range.is_empty() && block > 0, "a relay has at least one block");
        let hasher_state =
            HasherState { turn: 0, running_digests: Some(running_digests), waiting: 0, over: false };
        Relay {
            opened,
            range,
            block: block as u64,
            next: AtomicU64::new(0),
            runners: AtomicUsize::new(0),
            called: AtomicBool::new(false),
            hasher_state: Mutex::new(hasher_state),
            passed: Condvar::new(),
        }
    }

    /// Takes blocks until none is left, the relay ends, or the team needs this worker elsewhere.
    /// Only the worker that ends the relay gets the result.
    pub(super) fn run(
        &self,
        buffer: &mut [u8],
        counters: &Counters,
        team: &impl RelayJob,
    ) -> Option<Result<Sums, SumError>> {
        self.runners.fetch_add(1, Ordering::Relaxed);
        let result = self.run_legs(buffer, counters, team);
        self.runners.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Returns true if another worker is useful and none has been called yet. After `true` the
    /// caller must offer the file.
    pub(super) fn wants_runner(&self) -> bool {
        self.runners.load(Ordering::Relaxed) < RUNNERS_MAX && !self.called.swap(true, Ordering::Relaxed)
    }

    /// Records that a worker has joined after the call.
    pub(super) fn answered(&self) {
        self.called.store(false, Ordering::Relaxed);
    }

    /// Ends the relay from outside. Returns true to the caller that must report the end.
    pub(super) fn abandon(&self) -> bool {
        let mut hasher_state = self.lock();
        let first = !std::mem::replace(&mut hasher_state.over, true);
        drop(hasher_state);
        self.passed.notify_all();
        first
    }

    fn run_legs(
        &self,
        buffer: &mut [u8],
        counters: &Counters,
        team: &impl RelayJob,
    ) -> Option<Result<Sums, SumError>> {
        while team.stays() {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            let start = self.range.start.0.saturating_add(block.saturating_mul(self.block));
            if start >= self.range.end.0 {
                return None;
            }
            let block_turn = BlockTurn { relay: self, block, passed: false };
            let want = self.block.min(self.range.end.0 - start) as usize;
            let read = match team.stopping() {
                true => Err(SumError::Stopped),
                false => self.opened.read(start, &mut buffer[..want]),
            };
            let mut running_digests = block_turn.wait()?;
            let got = match read {
                Ok(got) => got,
                Err(error) => {
                    block_turn.end();
                    return Some(Err(error));
                }
            };
            team.holds_hasher_state();
            running_digests.update(&buffer[..got]);
            counters.done_bytes(got as u64);
            let end = start + got as u64;
            // A file may report a larger size than it has; the final check decides whether it
            // changed.
            if got < want || end == self.range.end.0 {
                block_turn.end();
                return Some(conclude(
                    &self.opened,
                    running_digests,
                    ByteRange::between(self.range.start.0, end),
                ));
            }
            block_turn.pass(running_digests);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HasherState> {
        // The hasher state is consistent between any two statements, so it is usable after a panic
        // of a worker.
        self.hasher_state.lock()
    }
}

impl BlockTurn<'_> {
    /// Waits for the turn of this block; returns `None` if the relay has ended.
    fn wait(&self) -> Option<RunningDigests> {
        let mut hasher_state = self.relay.lock();
        while !hasher_state.over && hasher_state.turn != self.block {
            hasher_state.waiting += 1;
            self.relay.passed.wait(&mut hasher_state);
            hasher_state.waiting -= 1;
        }
        if hasher_state.over { None } else { hasher_state.running_digests.take() }
    }

    /// Passes the hasher state to the next block.
    fn pass(mut self, running_digests: RunningDigests) {
        self.passed = true;
        let mut hasher_state = self.relay.lock();
        hasher_state.turn += 1;
        hasher_state.running_digests = Some(running_digests);
        let someone_waits = hasher_state.waiting > 0;
        drop(hasher_state);
        if someone_waits {
            self.relay.passed.notify_all();
        }
    }

    /// Ends the relay: no other block gets a turn.
    fn end(self) {
        drop(self);
    }
}

impl Drop for BlockTurn<'_> {
    fn drop(&mut self) {
        if !self.passed {
            self.relay.abandon();
        }
    }
}
