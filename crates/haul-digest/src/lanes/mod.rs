//! Many independent streams of MD5, SHA-1 or SHA-2 hashed side by side in the lanes of one register.
//!
//! These digests are serial: the next block of a stream waits for the one before. One stream cannot be cut,
//! but sixteen streams share a register as well as one, so files and the leaves of a tree go through together
//! at many times the rate of one (the multi-buffer idea of Gueron and Krasnov, "Simultaneous Hashing of
//! Multiple Messages", 2012). The instructions are chosen when the program runs.
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

pub use backend::{Backend, backends};
pub use digest::{LaneAlgorithm, LaneDigest};

use backend::Plan;
use compression::Job;
use register::MAX_LANES;
use slot::{Slot, TAIL_MAX, tail};

/// A fixed number of slots, each holding one stream at a time, hashed side by side.
///
/// A slot is a fresh stream to begin with and again after it was finished.
pub struct Streams {
    algorithm: LaneAlgorithm,
    plan: Plan,
    slots: Vec<Slot>,
}

impl Streams {
    /// Streams on the fastest instructions of this CPU.
    pub fn new(algorithm: LaneAlgorithm) -> Streams {
        Streams::with_plan(algorithm, Plan::best(algorithm))
    }

    /// Streams on one backend alone, for tests and measurements; `None` if this CPU lacks it or it lacks the
    /// algorithm.
    pub fn with_backend(algorithm: LaneAlgorithm, backend: Backend) -> Option<Streams> {
        Some(Streams::with_plan(algorithm, Plan::only(backend, algorithm)?))
    }

    fn with_plan(algorithm: LaneAlgorithm, plan: Plan) -> Streams {
        let slots = vec![Slot::fresh(algorithm); plan.width()];
        Streams { algorithm, plan, slots }
    }

    /// What the streams are hashed with.
    pub fn algorithm(&self) -> LaneAlgorithm {
        self.algorithm
    }

    /// How many slots there are, `1..=32`: as many streams as make the best use of this CPU.
    pub fn width(&self) -> usize {
        self.slots.len()
    }

    /// Takes in the next bytes of several slots, of any and different lengths, in one pass for all. Slots
    /// that are not named stay as they are; of a slot named twice the bytes are taken in the order given.
    ///
    /// Fastest are large pieces of equal length whose addresses are multiples of 64 and differ modulo 4096,
    /// such as buffers laid out 64 bytes further apart than a power of two. Pieces that start alike modulo
    /// 4096 fall into the same few sets of the first-level cache: with 32 lanes of MD5 that was seen to cost
    /// 10 % at aligned addresses and 40 % at others.
    ///
    /// # Panics
    /// If a slot is not below [`Streams::width`].
    pub fn update(&mut self, inputs: &[(usize, &[u8])]) {
        let mut rest = inputs;
        while !rest.is_empty() {
            let (once, again) = rest.split_at(distinct(rest.iter().map(|input| input.0)));
            self.update_distinct(once);
            rest = again;
        }
    }

    /// [`Streams::update`] with each slot at most once.
    fn update_distinct(&mut self, inputs: &[(usize, &[u8])]) {
        let block = self.algorithm.block_len();
        let mut bodies: [&[u8]; MAX_LANES] = [&[]; MAX_LANES];
        let mut work = false;
        for (body, &(slot, bytes)) in bodies.iter_mut().zip(inputs) {
            *body = self.slots[slot].fill(bytes, block);
            work |= self.slots[slot].is_full(block) || body.len() >= block;
        }
        if !work {
            // Nothing came to a whole block: what there is now lies in the buffers.
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

    /// The digest of one slot, which is a fresh stream afterwards.
    ///
    /// # Panics
    /// If the slot is not below [`Streams::width`].
    pub fn finish(&mut self, slot: usize) -> LaneDigest {
        let mut digest = LaneDigest::empty();
        self.finish_distinct(&[slot], |finished| digest = finished);
        digest
    }

    /// The digests of several slots, padded and finished side by side; each is a fresh stream afterwards, so
    /// a slot named twice gives the digest of nothing the second time.
    ///
    /// # Panics
    /// If a slot is not below [`Streams::width`].
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

    /// Finishes slots that are each named once, and hands every digest over in that order.
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

    /// Drops what a slot has taken in: it is a fresh stream afterwards.
    ///
    /// # Panics
    /// If the slot is not below [`Streams::width`].
    pub fn reset(&mut self, slot: usize) {
        self.slots[slot] = Slot::fresh(self.algorithm);
    }
}

/// The digests of any number of messages of any lengths, as many side by side as this CPU does best. A lane
/// whose message ends takes the next one, so equal lengths are fastest but different ones lose little.
/// Besides the digests this holds some 350 bytes a message while it works.
pub fn hash_many(algorithm: LaneAlgorithm, messages: &[&[u8]]) -> Vec<LaneDigest> {
    hash_many_by(algorithm, &Plan::best(algorithm), messages)
}

/// [`hash_many`] on one backend alone, for tests and measurements; `None` if this CPU lacks it or it lacks
/// the algorithm.
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

/// As much of `bytes` as makes whole blocks.
fn whole(bytes: &[u8], block: usize) -> &[u8] {
    &bytes[..bytes.len() - bytes.len() % block]
}

/// How many of the first slots are all different; at least one if there is any.
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
