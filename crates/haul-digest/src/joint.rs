//! The value of one part of a file from those of its leaves, given in order.

use crate::blake3_parts::Blake3Node;
use crate::forest::Forest;
use crate::part::PartPlace;
use crate::{Algorithm, CombineError, Digest, combine};
use haul_model::ByteLen;

/// Joins the leaves of a part: equal powers of two of bytes, at least BLAKE3's chunk of 1,024, the last one perhaps
/// shorter. Each leaf is the [`crate::Part::digest`] of a part hashed on its own, and what comes out is that of the
/// part which holds them all. Memory grows with the logarithm of the number of leaves.
#[derive(Clone, Debug)]
pub struct Joint {
    algorithm: Algorithm,
    whole: bool,
    count: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// The sum so far and its bytes.
    Sum(Option<(Digest, u64)>),
    /// The only leaf, or the nodes over several.
    Blake3(Option<Digest>, Forest<Blake3Node>),
}

impl Joint {
    /// No leaves yet, of the part at `place`.
    ///
    /// # Panics
    /// Unless [`Algorithm::digests_join`]: a mistake of the caller.
    pub fn new(algorithm: Algorithm, place: PartPlace) -> Joint {
        assert!(algorithm.digests_join(), "{algorithm} has no parts that can be read back");
        let state = match algorithm {
            Algorithm::Blake3 => State::Blake3(None, Forest::new()),
            _ => State::Sum(None),
        };
        Joint { algorithm, whole: place.whole, count: 0, state }
    }

    /// Takes the next leaf, of `len` bytes. A leaf of the only part of a file counts as a whole file itself if it is
    /// the only one, and was hashed so.
    ///
    /// # Errors
    /// [`CombineError`]: a digest of another algorithm, or more than 2^64 - 1 bytes.
    pub fn add(&mut self, leaf: Digest, len: ByteLen) -> Result<(), CombineError> {
        let (expected, found) = (self.algorithm, leaf.algorithm());
        let number = usize::try_from(self.count + 1).unwrap_or(usize::MAX);
        if found != expected {
            return Err(CombineError::Mixed { number, expected, found });
        }
        match &mut self.state {
            State::Sum(sum) => {
                let (before, bytes) = sum.unwrap_or((crate::digest(expected, &[]), 0));
                let joined = combine(expected, &[(before, ByteLen(bytes)), (leaf, len)])?;
                *sum = Some((joined, bytes.checked_add(len.0).ok_or(CombineError::TooLong)?));
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

    /// The part's value; `None` without leaves.
    pub fn finish(self) -> Option<Digest> {
        let whole = self.whole;
        self.finish_as(whole)
    }

    /// The same, where it shows only at the end whether the part is the whole file.
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
