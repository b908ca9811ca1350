//! Combination of the parts of a file, in any order, into its digest.

use crate::blake3_parts::{Blake3Node, Blake3Part};
use crate::forest::{Duplicate, Forest, Hole};
use crate::part::{LinearSum, Part, PartState};
use crate::unix_sums::sysv_close;
use crate::{Algorithm, Digest, crc};
use haul_model::{ByteLen, ByteRange, ObjectIndex, ObjectSize};
use std::collections::BTreeMap;
use thiserror::Error;

/// Combines the parts of one file.
///
/// Adjacent parts are merged as soon as both are present, so memory use grows with the number of
/// gaps and not with the number of objects.
#[derive(Clone, Debug)]
pub struct Assembly {
    algorithm: Algorithm,
    object: ObjectSize,
    pieces: Pieces,
    /// The first error; reported by [`Assembly::finish`].
    fault: Option<AssemblyError>,
}

/// Reason why the parts do not form the file.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AssemblyError {
    /// No part covers these bytes.
    #[error("bytes {0} were not hashed")]
    Missing(ByteRange),
    /// Two parts cover some of these bytes.
    #[error("bytes {0} were hashed twice")]
    Overlap(ByteRange),
    /// Parts extend past the length passed to [`Assembly::finish`].
    #[error("bytes {0} were hashed, but are past the end of the file")]
    Beyond(ByteRange),
    /// A BLAKE3 part covers the complete file, but was hashed as a part of a larger file, or vice
    /// versa.
    #[error(
        "bytes {0} were hashed for another file length: BLAKE3 finalizes a file of one object differently"
    )]
    WrongEnd(ByteRange),
}

#[derive(Clone, Debug)]
enum Pieces {
    Linear(LinearSum, Runs),
    Blake3(Blake3Pieces),
}

impl Assembly {
    /// Returns an assembly without parts, for a file with objects of this size.
    pub fn new(algorithm: Algorithm, object: ObjectSize) -> Assembly {
        let pieces = match LinearSum::of(algorithm) {
            Some(sum) => Pieces::Linear(sum, Runs::default()),
            None => Pieces::Blake3(Blake3Pieces::new()),
        };
        Assembly { algorithm, object, pieces, fault: None }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the object size.
    pub(crate) fn object_size(&self) -> ObjectSize {
        self.object
    }

    /// Adds the part that holds the object `index`. An empty part has no effect.
    ///
    /// # Panics
    ///
    /// Panics if the part has another algorithm, or if its offset is not that of the object.
    pub fn add(&mut self, index: ObjectIndex, part: Part) {
        assert_eq!(part.algorithm, self.algorithm, "a part joins parts of its own algorithm");
        let range = part.range;
        assert_eq!(Some(range.start.0), index.0.checked_mul(self.object.bytes()), "part at object {index:?}");
        if range.is_empty() {
            return;
        }
        let added = match (&mut self.pieces, part.state) {
            (Pieces::Linear(sum, runs), PartState::Sum(value)) => runs.add(*sum, range, value),
            (Pieces::Blake3(pieces), PartState::Blake3(part)) => pieces.add(self.object, index, range, part),
            _ => unreachable!("the algorithm decides the kind of state"),
        };
        self.fault = self.fault.or(added.err());
    }

    /// Returns the number of pieces that are kept, as a measure of memory use.
    pub fn pieces(&self) -> usize {
        match &self.pieces {
            Pieces::Linear(_, runs) => runs.by_start.len(),
            Pieces::Blake3(pieces) => pieces.forest.kept() + usize::from(pieces.whole.is_some()),
        }
    }

    /// Returns the digest of the file, which has `len` bytes.
    ///
    /// # Errors
    ///
    /// Returns an [`AssemblyError`] if the parts do not cover exactly those bytes, each once.
    pub fn finish(self, len: ByteLen) -> Result<Digest, AssemblyError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match self.pieces {
            Pieces::Linear(sum, runs) => {
                let value = runs.finish(sum, len.0)?;
                Ok(close_sum(self.algorithm, value, len.0))
            }
            Pieces::Blake3(pieces) => pieces.finish(self.object, len.0),
        }
    }
}

/// Returns the digest that belongs to the sum of a complete file.
fn close_sum(algorithm: Algorithm, value: u64, len: u64) -> Digest {
    let closed = match algorithm {
        Algorithm::Cksum => crc::cksum_close(value, len),
        Algorithm::Sysv => u64::from(sysv_close(value as u32)),
        _ => value,
    };
    Digest::from_value(algorithm, closed)
}

/// Sums of runs of bytes that touch no other run.
#[derive(Clone, Debug, Default)]
struct Runs {
    by_start: BTreeMap<u64, Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    value: u64,
}

impl Runs {
    fn add(&mut self, sum: LinearSum, range: ByteRange, value: u64) -> Result<(), AssemblyError> {
        let (mut start, mut run) = (range.start.0, Run { end: range.end.0, value });
        let before = self.by_start.range(..=start).next_back().map(|(&at, &run)| (at, run));
        let after = self.by_start.range(start..).next().map(|(&at, &run)| (at, run));
        let touched = before.is_some_and(|(_, left)| left.end > start);
        if touched || after.is_some_and(|(right_start, _)| right_start < run.end) {
            return Err(AssemblyError::Overlap(range));
        }
        if let Some((right_start, right)) = after
            && right_start == run.end
        {
            self.by_start.remove(&right_start);
            run = Run { end: right.end, value: sum.combine(run.value, right.value, right.end - right_start) };
        }
        if let Some((left_start, left)) = before
            && left.end == start
        {
            run.value = sum.combine(left.value, run.value, run.end - start);
            start = left_start;
        }
        self.by_start.insert(start, run);
        Ok(())
    }

    /// Returns the sum of the one run that remains if no bytes are missing.
    fn finish(self, sum: LinearSum, len: u64) -> Result<u64, AssemblyError> {
        let head = self.by_start.get(&0).copied().unwrap_or(Run { end: 0, value: sum.empty() });
        if head.end < len {
            let next = self.by_start.range(head.end..).next().map_or(len, |(&start, _)| start.min(len));
            return Err(AssemblyError::Missing(ByteRange::between(head.end, next)));
        }
        let end = self.by_start.last_key_value().map_or(0, |(_, run)| run.end);
        if end > len {
            return Err(AssemblyError::Beyond(ByteRange::between(len, end)));
        }
        Ok(head.value)
    }
}

/// Nodes of a BLAKE3 tree; each object is a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Blake3Pieces {
    forest: Forest<Blake3Node>,
    /// A part that was hashed as the complete file.
    whole: Option<(ByteRange, [u8; 32])>,
    /// The one part that is shorter than an object; it must be the last.
    short: Option<ByteRange>,
}

impl Blake3Pieces {
    pub(crate) fn new() -> Blake3Pieces {
        Blake3Pieces { forest: Forest::new(), whole: None, short: None }
    }

    pub(crate) fn add(
        &mut self,
        object: ObjectSize,
        index: ObjectIndex,
        range: ByteRange,
        part: Blake3Part,
    ) -> Result<(), AssemblyError> {
        let value = match part {
            Blake3Part::Whole(_) if self.whole.is_some() => return Err(AssemblyError::Overlap(range)),
            Blake3Part::Whole(digest) => {
                self.whole = Some((range, digest));
                return Ok(());
            }
            Blake3Part::Inner(value) => value,
            Blake3Part::Empty => return Ok(()),
        };
        assert!(range.len() <= object.bytes(), "a part is at most one object");
        self.forest
            .insert(index.0, Blake3Node::Object(value), Blake3Node::parent)
            .map_err(|Duplicate| AssemblyError::Overlap(range))?;
        if range.len() < object.bytes()
            && let Some(other) = self.short.replace(range)
        {
            let gap = if other.end < range.start { other } else { range };
            let object_end = gap.start.0 + object.bytes();
            return Err(AssemblyError::Missing(ByteRange::between(gap.end.0, object_end)));
        }
        Ok(())
    }

    pub(crate) fn finish(self, object: ObjectSize, len: u64) -> Result<Digest, AssemblyError> {
        if let Some((range, digest)) = self.whole {
            let alone = range == ByteRange::between(0, len) && self.forest.kept() == 0;
            let wrong_end = AssemblyError::WrongEnd(range);
            return alone.then(|| Digest::from_exact(Algorithm::Blake3, &digest)).ok_or(wrong_end);
        }
        let size = object.bytes();
        let bytes = |start: u64, end: u64| {
            let end = end.saturating_mul(size).min(len);
            AssemblyError::Missing(ByteRange::between(start.saturating_mul(size).min(end), end))
        };
        let top = self.forest.top(len.div_ceil(size), Blake3Node::parent).map_err(|hole| match hole {
            Hole::Missing { start, end } => bytes(start, end),
            Hole::Beyond { count } => {
                let end = self.short.map_or(count.saturating_mul(size), |short| short.end.0);
                AssemblyError::Beyond(ByteRange::between(len, end.max(len)))
            }
        })?;
        let Some(top) = top else {
            return Ok(Digest::from_exact(Algorithm::Blake3, blake3::hash(&[]).as_bytes()));
        };
        check_last(self.short, size, len)?;
        let wrong_end = AssemblyError::WrongEnd(ByteRange::between(0, len));
        top.root().map(|root| Digest::from_exact(Algorithm::Blake3, &root)).ok_or(wrong_end)
    }
}

/// Checks that the last object ends where the file does. `short` is the only part that is shorter
/// than an object of `size` bytes. All objects up to that of the last byte are present.
fn check_last(short: Option<ByteRange>, size: u64, len: u64) -> Result<(), AssemblyError> {
    let full_end = len.div_ceil(size).saturating_mul(size);
    match short {
        Some(short) if short.end.0 < len => {
            let end = len.min(short.start.0 + size);
            Err(AssemblyError::Missing(ByteRange::between(short.end.0, end)))
        }
        Some(short) if short.end.0 > len => Err(AssemblyError::Beyond(ByteRange::between(len, short.end.0))),
        None if full_end > len => Err(AssemblyError::Beyond(ByteRange::between(len, full_end))),
        _ => Ok(()),
    }
}
