//! Compression functions over the lanes of a register, and the loop that feeds them with blocks.

use super::register::{MAX_LANES, Register, Word};

/// Chaining state of one stream: up to eight words, 32-bit ones in the low half.
pub(super) type State = [u64; 8];

/// A hash of the Merkle-Damgard family with blocks of 16 words.
pub(super) trait Compression {
    /// Word of message and state.
    type Word: Word;
    /// True if the bytes of a message word are in big-endian order.
    const BIG_ENDIAN: bool;
    /// Compresses one block of every lane into the state of that lane.
    fn compress<R: Register<Word = Self::Word>>(state: &mut [R; 8], block: [R; 16]);
}

/// Remaining input of one stream: complete blocks only, in up to two pieces.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    /// Current state of the stream.
    pub(super) state: State,
    /// The next bytes; empty when the job is complete.
    pub(super) now: &'a [u8],
    /// The bytes after those.
    pub(super) then: &'a [u8],
}

impl<'a> Job<'a> {
    /// Returns a job over two pieces of complete blocks, either of which may be empty.
    pub(super) fn new(state: State, first: &'a [u8], second: &'a [u8]) -> Job<'a> {
        if first.is_empty() {
            Job { state, now: second, then: &[] }
        } else {
            Job { state, now: first, then: second }
        }
    }

    /// Skips bytes that have been processed.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.now = &self.now[bytes..];
        if self.now.is_empty() {
            self.now = core::mem::take(&mut self.then);
        }
    }
}

/// Processes the next `blocks` blocks of the jobs in `lanes` in parallel, one job per lane of the
/// register. Unused lanes process the bytes of the first job, and their result is dropped.
///
/// # Panics
///
/// Panics if `lanes` is empty or longer than the number of lanes of the register, or if a job has
/// fewer than `blocks` blocks in `now`.
///
/// # Safety
///
/// The CPU must have the instructions of `R`.
#[inline(always)]
pub(super) unsafe fn run<C: Compression, R: Register<Word = C::Word>>(
    jobs: &mut [Job<'_>],
    lanes: &[usize],
    blocks: usize,
) {
    assert!(!lanes.is_empty() && lanes.len() <= R::LANES, "one job a lane");
    let bytes = blocks * C::Word::BLOCK;
    let mut at = [jobs[lanes[0]].now.as_ptr(); MAX_LANES];
    let mut words = [[C::Word::ZERO; MAX_LANES]; 8];
    for (lane, &job) in lanes.iter().enumerate() {
        let job = &jobs[job];
        assert!(job.now.len() >= bytes, "every lane has the requested blocks");
        at[lane] = job.now.as_ptr();
        for (row, word) in words.iter_mut().zip(job.state) {
            row[lane] = C::Word::from_state(word);
        }
    }
    // SAFETY: the caller guarantees the instructions.
    let mut state = unsafe { [R::gather(&words[0]); 8] };
    for (register, row) in state.iter_mut().zip(&words) {
        // SAFETY: the caller guarantees the instructions.
        *register = unsafe { R::gather(row) };
    }
    for block in 0..blocks {
        // SAFETY: each pointer is the start of the bytes of a job, which has `blocks` blocks
        // (asserted above). Unused lanes point to the bytes of the first job. The caller guarantees
        // the instructions.
        let message = unsafe { R::load_block(&at, block * C::Word::BLOCK, C::BIG_ENDIAN) };
        C::compress(&mut state, message);
    }
    for (register, row) in state.iter().zip(&mut words) {
        register.scatter(row);
    }
    for (lane, &job) in lanes.iter().enumerate() {
        for (word, row) in jobs[job].state.iter_mut().zip(&words) {
            *word = row[lane].to_state();
        }
    }
}
