//! Combination of the values of the leaves of a part, in order, into the value of the part.

use crate::blake3_parts::Blake3Node;
use crate::forest::Forest;
use crate::part::PartPlace;
use crate::{Algorithm, CombineError, Digest, combine};
use haul_model::ByteLen;

/// Combines the leaves of a part.
///
/// All leaves have the same size, a power of two of at least BLAKE3's chunk of 1,024 bytes; only
/// the last may be shorter. Each leaf is given by the [`crate::Part::digest`] of a part hashed on
/// its own. The result is that of the part that contains all leaves. Memory use is logarithmic in
/// the number of leaves.
#[derive(Clone, Debug)]
pub struct Joint {
    algorithm: Algorithm,
    whole: bool,
    count: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// The sum so far and its number of bytes.
    Sum(Option<(Digest, u64)>),
    /// The only leaf, or the nodes over several leaves.
    Blake3(Option<Digest>, Forest<Blake3Node>),
}

impl Joint {
    /// Returns a joint without leaves, for the part at `place`.
    ///
    /// # Panics
    ///
    /// Panics if [`Algorithm::digests_join`] is false.
    pub fn new(algorithm: Algorithm, place: PartPlace) -> Joint {
        assert!(algorithm.digests_join(), "{algorithm} has no parts that can be read back");
        let state = match algorithm {
            Algorithm::Blake3 => State::Blake3(None, Forest::new()),
            _ => State::Sum(None),
        };
        Joint { algorithm, whole: place.whole, count: 0, state }
    }

    /// Adds the next leaf, of `len` bytes. If a file has only one part with only one leaf, that
    /// leaf must be hashed as a complete file.
    ///
    /// # Errors
    ///
    /// Returns a [`CombineError`] if the digest has another algorithm, or if the total exceeds 2^64
    /// - 1 bytes.
    pub fn add(&mut self, leaf: Digest, len: ByteLen) -> Result<(), CombineError> {
        let (expected, found) = (self.algorithm, leaf.algorithm());
        let number = usize::try_from(self.count + 1).unwrap_or(usize::MAX);
        if found != expected {
            return Err(CombineError::Mixed { number, expected, found });
        }
        match &mut self.state {
            State::Sum(sum) => {
                let before = sum.map(|(before, bytes)| (before, ByteLen(bytes)));
                let parts: Vec<_> = before.into_iter().chain([(leaf, len)]).collect();
                let bytes = before.map_or(0, |(_, bytes)| bytes.0);
                let total = bytes.checked_add(len.0).ok_or(CombineError::TooLong)?;
                *sum = Some((combine(expected, &parts)?, total));
            }
            State::Blake3(only, forest) => {
                *only = (self.count == 0).then_some(leaf);
                let mut value = [0; 32];
                value.copy_from_slice(leaf.as_bytes());
                let inserted = forest.insert(self.count, Blake3Node::Object(value), Blake3Node::parent);
                assert!(inserted.is_ok(), "leaves are counted and none comes twice");
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Returns the value of the part, or `None` without leaves.
    pub fn finish(self) -> Option<Digest> {
        let whole = self.whole;
        self.finish_as(whole)
    }

    /// Same as `finish`, if only the end shows that the part is the complete file.
    pub(crate) fn finish_as(self, whole: bool) -> Option<Digest> {
        match self.state {
            State::Sum(sum) => sum.map(|(digest, _)| digest),
            State::Blake3(Some(only), _) => Some(only),
            State::Blake3(None, forest) => {
                let top = forest.top(self.count, Blake3Node::parent).ok()??;
                let value = if whole { top.root()? } else { top.chaining_value() };
                Some(Digest::from_exact(self.algorithm, &value))
            }
        }
    }
}
