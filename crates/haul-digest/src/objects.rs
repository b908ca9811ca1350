//! Stream divided into objects: its digest and those of its objects (and of their leaves), in one
//! pass.

use crate::leaves::LeafHasher;
use crate::part::PartPlace;
use crate::{Algorithm, Assembly, Digest, Part, PartHasher, digest};
use haul_model::{ByteLen, ByteOffset, LeafSize, ObjectIndex, ObjectSize};

/// Hashes a stream in order and divides it into objects. Their digests are those of
/// [`Part::digest`], the same as for objects that are hashed separately.
#[derive(Debug)]
pub struct ObjectStream {
    algorithm: Algorithm,
    size: ObjectSize,
    leaf: Option<LeafSize>,
    len: u64,
    current: Current,
    /// Complete objects, if there is more than one object.
    assembly: Assembly,
}

/// Digest that an [`ObjectStream`] passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The digest of an object.
    Object(ObjectIndex, Digest),
    /// The digest of the next leaf of an object, before that of the object.
    Leaf(ObjectIndex, Digest),
}

/// The current object.
#[derive(Debug)]
enum Current {
    Part(PartHasher),
    Leaves(Box<LeafHasher>),
}

impl ObjectStream {
    /// Returns a stream without input. With `leaf`, the digests of the leaves of objects are passed
    /// on as well.
    ///
    /// # Panics
    ///
    /// Panics if the algorithm does not combine, or with leaves if [`Algorithm::digests_join`] is
    /// false.
    pub fn new(algorithm: Algorithm, size: ObjectSize, leaf: Option<LeafSize>) -> ObjectStream {
        let current = Current::new(algorithm, ByteOffset(0), leaf);
        ObjectStream { algorithm, size, leaf, len: 0, current, assembly: Assembly::new(algorithm, size) }
    }

    /// Feeds the next bytes. Passes the digest of each object and leaf that is followed by more
    /// bytes to `found`.
    pub fn update(&mut self, mut bytes: &[u8], mut found: impl FnMut(Found)) {
        while !bytes.is_empty() {
            let filled = self.len % self.size.bytes();
            if filled == 0 && self.len > 0 {
                self.next_object(&mut found);
            }
            let room = usize::try_from(self.size.bytes() - filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let index = self.index();
            self.current.update(now, |leaf| found(Found::Leaf(index, leaf)));
            self.len += now.len() as u64;
            bytes = later;
        }
    }

    fn next_object(&mut self, found: &mut impl FnMut(Found)) {
        let next = Current::new(self.algorithm, ByteOffset(self.len), self.leaf);
        let index = ObjectIndex(self.len / self.size.bytes() - 1);
        let full = std::mem::replace(&mut self.current, next);
        let part = full.finish(false, |leaf| found(Found::Leaf(index, leaf)));
        found(Found::Object(index, part.digest()));
        self.assembly.add(index, part);
    }

    /// Returns the object of the next byte.
    fn index(&self) -> ObjectIndex {
        ObjectIndex(self.len / self.size.bytes())
    }

    /// Returns the digest of all bytes.
    ///
    /// Passes the digests of the last object and its last leaf to `found` if there is more than
    /// one. A stream of one object, or of one leaf, has no digest other than its own.
    pub fn finish(mut self, mut found: impl FnMut(Found)) -> Digest {
        if self.len == 0 {
            return digest(self.algorithm, &[]);
        }
        let index = ObjectIndex((self.len - 1) / self.size.bytes());
        let whole = index == ObjectIndex(0);
        let part = self.current.finish(whole, |leaf| found(Found::Leaf(index, leaf)));
        if whole {
            return part.digest();
        }
        found(Found::Object(index, part.digest()));
        self.assembly.add(index, part);
        let joined = self.assembly.finish(ByteLen(self.len));
        joined.unwrap_or_else(|error| unreachable!("a stream has no holes: {error}"))
    }
}

impl Current {
    fn new(algorithm: Algorithm, offset: ByteOffset, leaf: Option<LeafSize>) -> Current {
        match leaf {
            Some(leaf) => Current::Leaves(Box::new(LeafHasher::new(algorithm, offset, leaf))),
            None => Current::Part(PartHasher::new(algorithm, PartPlace { offset, whole: false })),
        }
    }

    fn update(&mut self, bytes: &[u8], found: impl FnMut(Digest)) {
        match self {
            Current::Part(hasher) => hasher.update(bytes),
            Current::Leaves(hasher) => hasher.update(bytes, found),
        }
    }

    fn finish(self, whole: bool, found: impl FnMut(Digest)) -> Part {
        match self {
            Current::Part(hasher) if whole => hasher.finish_whole(),
            Current::Part(hasher) => hasher.finish(),
            Current::Leaves(hasher) => hasher.finish(whole, found),
        }
    }
}
