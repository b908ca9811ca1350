//! A stream cut into objects: its digest and those of its objects (and of their leaves), from one pass.

use crate::leaves::LeafHasher;
use crate::part::PartPlace;
use crate::{Algorithm, Assembly, Digest, Part, PartHasher, digest};
use haul_model::{ByteLen, ByteOffset, LeafSize, ObjectIndex, ObjectSize};

/// Hashes a stream in order and cuts it into objects on the way. What it makes of them is [`Part::digest`]: the
/// same that workers make who hash the objects apart.
#[derive(Debug)]
pub struct ObjectStream {
    algorithm: Algorithm,
    size: ObjectSize,
    leaf: Option<LeafSize>,
    len: u64,
    current: Current,
    /// Objects that are complete, once there is more than one.
    assembly: Assembly,
}

/// What an [`ObjectStream`] hands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The digest of an object.
    Object(ObjectIndex, Digest),
    /// The digest of the next leaf of an object, before that of the object.
    Leaf(ObjectIndex, Digest),
}

/// The object under way.
#[derive(Debug)]
enum Current {
    Part(PartHasher),
    Leaves(Box<LeafHasher>),
}

impl ObjectStream {
    /// A stream of no bytes yet; of its objects' leaves, if there are any, the digests are handed on as well.
    ///
    /// # Panics
    /// If the algorithm does not combine, or with leaves unless [`Algorithm::digests_join`]: a mistake of the caller.
    pub fn new(algorithm: Algorithm, size: ObjectSize, leaf: Option<LeafSize>) -> ObjectStream {
        let current = Current::new(algorithm, ByteOffset(0), leaf);
        ObjectStream { algorithm, size, leaf, len: 0, current, assembly: Assembly::new(algorithm, size) }
    }

    /// Takes the next bytes, and hands on the digests of each object and leaf behind which there are more.
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

    /// The object that the next byte belongs to.
    fn index(&self) -> ObjectIndex {
        ObjectIndex(self.len / self.size.bytes())
    }

    /// The digest of all bytes. Hands on those of the last object and its last leaf if there is more than one: a stream
    /// of one object, or of one leaf, has no other digest than its own.
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
