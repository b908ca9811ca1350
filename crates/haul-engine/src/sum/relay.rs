//! One file whose digests must be fed in order, read by several workers.
//!
//! Each worker reads a block into its own buffer, waits until the blocks before it are hashed, hashes it while its
//! own cache still holds it, and passes the baton (the digests in the making) on. Reading goes side by side, hashing
//! in turn, and no block moves from one thread to another.

use super::counters::Counters;
use super::order::{SumError, Sums};
use super::serial::{Course, conclude};
use super::source::{Opened, Reach};
use haul_model::ByteRange;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[cfg(test)]
mod tests;

/// Files of fewer blocks are over before a helper is awake.
const BLOCKS_MIN: u64 = 4;

/// Shorter blocks are hashed faster than the baton passes from thread to thread.
const BLOCK_BYTES_MIN: usize = 64 << 10;

/// Workers on one file. The digests take one block at a time, and reading one takes less than three times as long
/// as the fastest of them needs for it, so that more would only wait.
const RUNNERS_MAX: usize = 4;

/// An open file in the hands of several workers.
#[derive(Debug)]
pub(super) struct Relay {
    opened: Opened,
    range: ByteRange,
    /// Bytes in every block but the last.
    block: u64,
    /// The next block nobody has taken.
    next: AtomicU64,
    /// Workers at it.
    runners: AtomicUsize,
    /// Whether the file lies in the schedule for another worker to join.
    called: AtomicBool,
    baton: Mutex<Baton>,
    passed: Condvar,
}

/// What goes from worker to worker.
#[derive(Debug)]
struct Baton {
    /// The block that is hashed next.
    turn: u64,
    /// `None` while a worker feeds it, and once it is finished.
    course: Option<Course>,
    /// Workers that wait for their turn.
    waiting: usize,
    /// Whether nothing more is to be hashed: the file ended or failed, or a worker panicked.
    over: bool,
}

/// A worker's block, from when it is taken until the baton is passed on. Dropped before that, as by a panic, it ends
/// the relay, for the blocks behind it can have no turn.
struct Leg<'a> {
    relay: &'a Relay,
    block: u64,
    passed: bool,
}

/// The parts of the job that a relay asks about between two blocks.
pub(super) trait Team {
    /// Whether this worker is to take another block.
    fn stays(&self) -> bool;

    /// Called while the worker has the baton.
    fn has_baton(&self);

    /// Whether the job was told to stop.
    fn stopping(&self) -> bool;
}

impl Relay {
    /// Whether an open file may gain from more than one worker.
    pub(super) fn pays(opened: &Opened, block: usize, workers: usize) -> bool {
        let few = opened.len() < BLOCKS_MIN.saturating_mul(block as u64);
        workers > 1 && block >= BLOCK_BYTES_MIN && !few
    }

    /// The open file in blocks of `block` bytes, the size of every worker's buffer. None of it is hashed yet.
    ///
    /// # Panics
    /// If the file is no range of bytes, or an empty one.
    pub(super) fn new(opened: Opened, course: Course, block: usize) -> Relay {
        let Reach::Range(range) = opened.reach() else { panic!("only a range of a file is cut into blocks") };
        assert!(!range.is_empty() && block > 0, "a relay has at least one block");
        let baton = Baton { turn: 0, course: Some(course), waiting: 0, over: false };
        Relay {
            opened,
            range,
            block: block as u64,
            next: AtomicU64::new(0),
            runners: AtomicUsize::new(0),
            called: AtomicBool::new(false),
            baton: Mutex::new(baton),
            passed: Condvar::new(),
        }
    }

    /// Takes block after block until none is left, the relay is over, or the team calls this worker away. The one
    /// worker that ends the relay gets the result.
    pub(super) fn run(
        &self,
        buffer: &mut [u8],
        counters: &Counters,
        team: &impl Team,
    ) -> Option<Result<Sums, SumError>> {
        self.runners.fetch_add(1, Ordering::Relaxed);
        let result = self.run_legs(buffer, counters, team);
        self.runners.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Whether another worker is wanted and nobody called for one yet. True makes it the caller's business.
    pub(super) fn wants_runner(&self) -> bool {
        self.runners.load(Ordering::Relaxed) < RUNNERS_MAX && !self.called.swap(true, Ordering::Relaxed)
    }

    /// Notes that a worker answered the call.
    pub(super) fn answered(&self) {
        self.called.store(false, Ordering::Relaxed);
    }

    /// Ends the relay from outside; true for the one who must report how.
    pub(super) fn abandon(&self) -> bool {
        let mut baton = self.lock();
        let first = !std::mem::replace(&mut baton.over, true);
        drop(baton);
        self.passed.notify_all();
        first
    }

    fn run_legs(
        &self,
        buffer: &mut [u8],
        counters: &Counters,
        team: &impl Team,
    ) -> Option<Result<Sums, SumError>> {
        while team.stays() {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            let start = self.range.start.0.saturating_add(block.saturating_mul(self.block));
            if start >= self.range.end.0 {
                return None;
            }
            let leg = Leg { relay: self, block, passed: false };
            let want = self.block.min(self.range.end.0 - start) as usize;
            let read = match team.stopping() {
                true => Err(SumError::Stopped),
                false => self.opened.read_at(start, &mut buffer[..want]),
            };
            let mut course = leg.wait()?;
            let got = match read {
                Ok(got) => got,
                Err(error) => {
                    leg.end();
                    return Some(Err(error));
                }
            };
            team.has_baton();
            course.update(&buffer[..got]);
            counters.done_bytes(got as u64);
            let end = start + got as u64;
            // A file may tell a size and hold less; whether that is a change shows at the end.
            if got < want || end == self.range.end.0 {
                leg.end();
                return Some(conclude(&self.opened, course, ByteRange::between(self.range.start.0, end)));
            }
            leg.pass(course);
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Baton> {
        // The baton is whole between any two statements, so a worker that panicked leaves it usable.
        self.baton.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leg<'_> {
    /// Waits for the turn of this block; `None` once the relay is over.
    fn wait(&self) -> Option<Course> {
        let mut baton = self.relay.lock();
        while !baton.over && baton.turn != self.block {
            baton.waiting += 1;
            baton = self.relay.passed.wait(baton).unwrap_or_else(PoisonError::into_inner);
            baton.waiting -= 1;
        }
        if baton.over { None } else { baton.course.take() }
    }

    /// Gives the baton to the next block.
    fn pass(mut self, course: Course) {
        self.passed = true;
        let mut baton = self.relay.lock();
        baton.turn += 1;
        baton.course = Some(course);
        let someone_waits = baton.waiting > 0;
        drop(baton);
        if someone_waits {
            self.relay.passed.notify_all();
        }
    }

    /// Ends the relay: nobody gets a turn any more.
    fn end(self) {
        drop(self);
    }
}

impl Drop for Leg<'_> {
    fn drop(&mut self) {
        if !self.passed {
            self.relay.abandon();
        }
    }
}
