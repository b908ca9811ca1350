//! Hashing of many independent streams of MD5, SHA-1 or SHA-2 in parallel, in the lanes of one
//! register.
//!
//! These digests are serial: the next block of a stream depends on the previous one. One stream
//! cannot be divided, but sixteen streams can share a register. Files and the leaves of a tree are
//! therefore hashed together at many times the rate of one stream. (This is the multi-buffer idea
//! of Gueron and Krasnov, "Simultaneous Hashing of Multiple Messages", 2012.) The instructions are
//! selected at run time.
//!
//! ```
//! use haul_digest::lanes::{LaneAlgorithm, Streams};
//!
//! let mut streams = Streams::new(LaneAlgorithm::Md5);
//! streams.update(&[(0, b"mess")]);
//! streams.update(&[(0, b"age digest")]);
//! let digest = streams.finish(0);
//! assert_eq!(digest.to_string(), "f96b697d7cb7938d525a2f31aaf161d0");
//! ```

mod backend;
pub(crate) mod chunks;
mod compression;
mod digest;
mod md5;
mod register;
mod sha1;
mod sha2;
mod slot;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod sha_ni;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

pub use backend::{Backend, LimitError, backends, limit_backends};
pub use digest::{LaneAlgorithm, LaneDigest};

use backend::Plan;
use compression::Job;
use register::MAX_LANES;
use slot::{Slot, TAIL_MAX, tail};

/// A fixed number of slots that are hashed in parallel. Each slot holds one stream at a time.
///
/// A slot starts as an empty stream, and becomes empty again when its stream is finished.
pub struct Streams {
    algorithm: LaneAlgorithm,
    plan: Plan,
    slots: Vec<Slot>,
}

impl Streams {
    /// Returns streams that use the fastest instructions of this CPU.
    pub fn new(algorithm: LaneAlgorithm) -> Streams {
        Streams::with_plan(algorithm, Plan::best(algorithm))
    }

    /// Returns streams on one backend only, for tests and measurements. Returns `None` if this CPU
    /// lacks the backend or the backend lacks the algorithm.
    pub fn with_backend(algorithm: LaneAlgorithm, backend: Backend) -> Option<Streams> {
        Streams::with_backends(algorithm, &[backend])
    }

    /// Returns streams that use the fastest instructions of some backends only, for tests of CPUs
    /// that have no others. Returns `None` if none of them that is available has the algorithm.
    pub fn with_backends(algorithm: LaneAlgorithm, backends: &[Backend]) -> Option<Streams> {
        Some(Streams::with_plan(algorithm, Plan::with(backends, algorithm)?))
    }

    fn with_plan(algorithm: LaneAlgorithm, plan: Plan) -> Streams {
        let slots = vec![Slot::fresh(algorithm); plan.width()];
        Streams { algorithm, plan, slots }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> LaneAlgorithm {
        self.algorithm
    }

    /// Returns the number of slots, `1..=32`: the number of streams that this CPU processes best.
    pub fn width(&self) -> usize {
        self.slots.len()
    }

    /// Feeds the next bytes of several slots, of any and different lengths, in one pass. Slots that
    /// are not listed stay unchanged. If a slot is listed twice, its bytes are processed in the
    /// given order.
    ///
    /// Large pieces of equal length are fastest if their addresses are multiples of 64 and differ
    /// modulo 4096. An example are buffers at distances of 64 bytes more than a power of two.
    /// Pieces with equal addresses modulo 4096 share the same few sets of the first-level cache.
    /// With 32 lanes of MD5 this cost 10 % at aligned addresses and 40 % at others.
    ///
    /// # Panics
    ///
    /// Panics if a slot is not below [`Streams::width`].
    pub fn update(&mut self, inputs: &[(usize, &[u8])]) {
        let mut rest = inputs;
        while !rest.is_empty() {
            let (once, again) = rest.split_at(distinct(rest.iter().map(|input| input.0)));
            self.update_distinct(once);
            rest = again;
        }
    }

    /// Same as [`Streams::update`], with each slot at most once.
    fn update_distinct(&mut self, inputs: &[(usize, &[u8])]) {
        let block = self.algorithm.block_len();
        let mut bodies: [&[u8]; MAX_LANES] = [&[]; MAX_LANES];
        let mut work = false;
        for (body, &(slot, bytes)) in bodies.iter_mut().zip(inputs) {
            *body = self.slots[slot].fill(bytes, block);
            work |= self.slots[slot].is_full(block) || body.len() >= block;
        }
        if !work {
            // No block is complete: all bytes are in the buffers.
            return;
        }
        let mut jobs = [Job::new([0; 8], &[], &[]); MAX_LANES];
        let jobs = &mut jobs[..inputs.len()];
        for ((job, body), &(slot, _)) in jobs.iter_mut().zip(bodies).zip(inputs) {
            *job = Job::new(self.slots[slot].state, self.slots[slot].full_block(block), whole(body, block));
        }
        self.plan.complete(jobs);
        let mut states = [[0; 8]; MAX_LANES];
        for (state, job) in states.iter_mut().zip(jobs.iter()) {
            *state = job.state;
        }
        for ((state, body), &(slot, _)) in states.into_iter().zip(bodies).zip(inputs) {
            self.slots[slot].settle(state, &body[whole(body, block).len()..], block);
        }
    }

    /// Returns the digest of one slot, which is an empty stream afterwards.
    ///
    /// # Panics
    ///
    /// Panics if the slot is not below [`Streams::width`].
    pub fn finish(&mut self, slot: usize) -> LaneDigest {
        let mut digest = LaneDigest::empty();
        self.finish_distinct(&[slot], |finished| digest = finished);
        digest
    }

    /// Returns the digests of several slots, padded and finished in parallel. Each slot is an empty
    /// stream afterwards, so a slot that is listed twice returns the digest of zero bytes the
    /// second time.
    ///
    /// # Panics
    ///
    /// Panics if a slot is not below [`Streams::width`].
    pub fn finish_many(&mut self, slots: &[usize]) -> Vec<LaneDigest> {
        let mut digests = Vec::with_capacity(slots.len());
        let mut rest = slots;
        while !rest.is_empty() {
            let (once, again) = rest.split_at(distinct(rest.iter().copied()));
            self.finish_distinct(once, |digest| digests.push(digest));
            rest = again;
        }
        digests
    }

    /// Finishes slots that are each listed once, and passes the digests to `hand_over` in that
    /// order.
    fn finish_distinct(&mut self, slots: &[usize], mut hand_over: impl FnMut(LaneDigest)) {
        let mut tails = [[0; TAIL_MAX]; MAX_LANES];
        let mut jobs = [Job::new([0; 8], &[], &[]); MAX_LANES];
        let jobs = &mut jobs[..slots.len()];
        for ((job, bytes), &slot) in jobs.iter_mut().zip(&mut tails).zip(slots) {
            let from = &self.slots[slot];
            *job = Job::new(from.state, tail(self.algorithm, from.rest(), from.bytes(), bytes), &[]);
        }
        self.plan.complete(jobs);
        for (job, &slot) in jobs.iter().zip(slots) {
            hand_over(LaneDigest::from_state(self.algorithm, &job.state));
            self.slots[slot] = Slot::fresh(self.algorithm);
        }
    }

    /// Discards the input of a slot, which is an empty stream afterwards.
    ///
    /// # Panics
    ///
    /// Panics if the slot is not below [`Streams::width`].
    pub fn reset(&mut self, slot: usize) {
        self.slots[slot] = Slot::fresh(self.algorithm);
    }
}

/// Returns the digests of any number of messages of any lengths, with the parallelism that suits
/// this CPU best.
///
/// A lane whose message ends takes the next one. Equal lengths are fastest, but different lengths
/// lose little. In addition to the digests this uses about 350 bytes per message.
pub fn hash_many(algorithm: LaneAlgorithm, messages: &[&[u8]]) -> Vec<LaneDigest> {
    hash_many_by(algorithm, &Plan::best(algorithm), messages)
}

/// Same as [`hash_many`] on one backend only, for tests and measurements. Returns `None` if this
/// CPU lacks the backend or the backend lacks the algorithm.
pub fn hash_many_with(
    algorithm: LaneAlgorithm,
    backend: Backend,
    messages: &[&[u8]],
) -> Option<Vec<LaneDigest>> {
    Some(hash_many_by(algorithm, &Plan::only(backend, algorithm)?, messages))
}

fn hash_many_by(algorithm: LaneAlgorithm, plan: &Plan, messages: &[&[u8]]) -> Vec<LaneDigest> {
    let block = algorithm.block_len();
    let mut tails = vec![[0; TAIL_MAX]; messages.len()];
    let mut jobs = Vec::with_capacity(messages.len());
    for (message, bytes) in messages.iter().zip(&mut tails) {
        let body = whole(message, block);
        let end = tail(algorithm, &message[body.len()..], message.len() as u64, bytes);
        jobs.push(Job::new(algorithm.start(), body, end));
    }
    plan.complete(&mut jobs);
    jobs.iter().map(|job| LaneDigest::from_state(algorithm, &job.state)).collect()
}

/// Returns the part of `bytes` that consists of complete blocks.
fn whole(bytes: &[u8], block: usize) -> &[u8] {
    &bytes[..bytes.len() - bytes.len() % block]
}

/// Returns the number of leading slots that are all different; at least one if there is any.
fn distinct(slots: impl Iterator<Item = usize>) -> usize {
    let mut seen = 0u64;
    let fresh = |slot: &usize| {
        assert!(*slot < MAX_LANES, "slot {slot} is beyond the last");
        let bit = 1 << slot;
        let new = seen & bit == 0;
        seen |= bit;
        new
    };
    slots.take_while(fresh).count()
}
