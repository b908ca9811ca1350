//! A compression function over the lanes of a register, and the loop that feeds it blocks.

use super::register::{MAX_LANES, Register, Word};

/// The chaining state of one stream: up to eight words, 32-bit ones in the low half.
pub(super) type State = [u64; 8];

/// A hash of the Merkle-Damgard family with blocks of 16 words.
pub(super) trait Compression {
    /// The word of message and state.
    type Word: Word;
    /// How the bytes of a message word are ordered.
    const BIG_ENDIAN: bool;
    /// Takes one block of every lane into every lane's state.
    fn compress<R: Register<Word = Self::Word>>(state: &mut [R; 8], block: [R; 16]);
}

/// What one stream still has to take in: whole blocks only, in up to two pieces.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    /// Where the stream stands.
    pub(super) state: State,
    /// The next bytes; empty when the job is done.
    pub(super) now: &'a [u8],
    /// The bytes after those.
    pub(super) then: &'a [u8],
}

impl<'a> Job<'a> {
    /// A job over two pieces of whole blocks, either of which may be empty.
    pub(super) fn new(state: State, first: &'a [u8], second: &'a [u8]) -> Job<'a> {
        if first.is_empty() {
            Job { state, now: second, then: &[] }
        } else {
            Job { state, now: first, then: second }
        }
    }

    /// Steps over bytes that have been taken in.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.now = &self.now[bytes..];
        if self.now.is_empty() {
            self.now = core::mem::take(&mut self.then);
        }
    }
}

/// Takes the next `blocks` blocks of the jobs that `lanes` names, side by side, one job a lane of the
/// register. Lanes left over work on the first job's bytes, and their result is dropped.
///
/// # Panics
/// If `lanes` is empty or longer than the register has lanes, or if a job has fewer than `blocks` blocks now.
///
/// # Safety
/// The CPU has the instructions of `R`.
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
        assert!(job.now.len() >= bytes, "every lane has the blocks it is asked for");
        at[lane] = job.now.as_ptr();
        for (row, word) in words.iter_mut().zip(job.state) {
            row[lane] = C::Word::from_state(word);
        }
    }
    // SAFETY: the caller vouches for the instructions.
    let mut state = unsafe { [R::gather(&words[0]); 8] };
    for (register, row) in state.iter_mut().zip(&words) {
        // SAFETY: the caller vouches for the instructions.
        *register = unsafe { R::gather(row) };
    }
    for block in 0..blocks {
        // SAFETY: each pointer is the start of a job's bytes, of which there are `blocks` blocks (asserted
        // above; unused lanes point at the first job's), and the caller vouches for the instructions.
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
