//! A stream cut into objects: its digest and those of its objects, from one pass.

use crate::part::PartPlace;
use crate::{Algorithm, Assembly, Digest, PartHasher, digest};
use haul_model::{ByteLen, ByteOffset, ObjectIndex, ObjectSize};

/// Hashes a stream in order and cuts it into objects on the way. What it makes of them is [`crate::Part::digest`]: the
/// same that workers make who hash the objects apart.
#[derive(Debug)]
pub struct ObjectStream {
    size: ObjectSize,
    len: u64,
    current: PartHasher,
    /// Objects that are complete, once there is more than one.
    assembly: Assembly,
}

impl ObjectStream {
    /// A stream of no bytes yet.
    ///
    /// # Panics
    /// If the algorithm does not combine: a mistake of the caller.
    pub fn new(algorithm: Algorithm, size: ObjectSize) -> ObjectStream {
        let place = PartPlace { offset: ByteOffset(0), whole: false };
        let current = PartHasher::new(algorithm, place);
        ObjectStream { size, len: 0, current, assembly: Assembly::new(algorithm, size) }
    }

    /// Takes the next bytes, and hands on the digest of each object behind which there are more.
    pub fn update(&mut self, mut bytes: &[u8], mut found: impl FnMut(ObjectIndex, Digest)) {
        while !bytes.is_empty() {
            let filled = self.len % self.size.bytes();
            if filled == 0 && self.len > 0 {
                self.next_object(&mut found);
            }
            let room = usize::try_from(self.size.bytes() - filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.current.update(now);
            self.len += now.len() as u64;
            bytes = later;
        }
    }

    fn next_object(&mut self, found: &mut impl FnMut(ObjectIndex, Digest)) {
        let place = PartPlace { offset: ByteOffset(self.len), whole: false };
        let next = PartHasher::new(self.current.algorithm(), place);
        let part = std::mem::replace(&mut self.current, next).finish();
        let index = ObjectIndex(part.range().start.0 / self.size.bytes());
        found(index, part.digest());
        self.assembly.add(index, part);
    }

    /// The digest of all bytes. Hands on that of the last object if there is more than one: a stream of one object has
    /// no other digest than its own.
    pub fn finish(mut self, mut found: impl FnMut(ObjectIndex, Digest)) -> Digest {
        let algorithm = self.current.algorithm();
        if self.len == 0 {
            return digest(algorithm, &[]);
        }
        if self.len <= self.size.bytes() {
            return self.current.finish_whole().digest();
        }
        let part = self.current.finish();
        let index = ObjectIndex(part.range().start.0 / self.size.bytes());
        found(index, part.digest());
        self.assembly.add(index, part);
        let joined = self.assembly.finish(ByteLen(self.len));
        joined.unwrap_or_else(|error| unreachable!("a stream has no holes: {error}"))
    }
}
