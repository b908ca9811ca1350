//! Hashing of a part of a file by leaves: the digests of its leaves and of the part, in one pass.

use crate::blake3_parts::leaf_values;
use crate::part::PartPlace;
use crate::{Algorithm, Digest, Joint, Part, PartHasher};
use haul_model::{ByteLen, ByteOffset, LeafSize};

/// Hashes one part of a file in order and divides it into leaves.
///
/// The digest of each leaf is [`Part::digest`] of that leaf hashed on its own. The part is the same
/// as that of a [`PartHasher`] over all of its bytes.
#[derive(Clone, Debug)]
pub struct LeafHasher {
    algorithm: Algorithm,
    start: ByteOffset,
    leaf: LeafSize,
    len: u64,
    /// The current leaf. A full leaf stays here until more bytes come, because only then is it
    /// known not to be the complete file.
    current: Option<PartHasher>,
    /// The leaves before the current one.
    joint: Joint,
}

impl LeafHasher {
    /// Returns a hasher for the part that starts at `start`, a multiple of the leaf size.
    ///
    /// # Panics
    ///
    /// Panics if [`Algorithm::digests_join`] is false.
    pub fn new(algorithm: Algorithm, start: ByteOffset, leaf: LeafSize) -> LeafHasher {
        let joint = Joint::new(algorithm, PartPlace { offset: start, whole: false });
        LeafHasher { algorithm, start, leaf, len: 0, current: None, joint }
    }

    /// Feeds the next bytes of the part. Passes the digest of each leaf that is followed by more
    /// bytes to `found`.
    pub fn update(&mut self, mut bytes: &[u8], mut found: impl FnMut(Digest)) {
        let leaf = self.leaf.bytes();
        while !bytes.is_empty() {
            let filled = self.len % leaf;
            if filled == 0 {
                self.close_leaf(&mut found);
                let whole = (bytes.len() as u64 - 1) / leaf * leaf;
                bytes = &bytes[self.take_whole(&bytes[..whole as usize], &mut found)..];
            }
            let room = usize::try_from(leaf - filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let place = self.place();
            let current = self.current.get_or_insert_with(|| PartHasher::new(self.algorithm, place));
            current.update(now);
            self.len += now.len() as u64;
            bytes = later;
        }
    }

    /// Returns the part; `whole` is true if it is the complete file.
    ///
    /// Passes the digest of the last leaf to `found`, unless that leaf is the complete file. Such a
    /// leaf has no digest other than that of the file.
    ///
    /// # Panics
    ///
    /// Panics if a part that is the complete file does not start at 0.
    pub fn finish(mut self, whole: bool, mut found: impl FnMut(Digest)) -> Part {
        assert!(!whole || self.start == ByteOffset(0), "a part that is the whole file starts at 0");
        let place = PartPlace { offset: self.start, whole };
        if self.len == 0 {
            return PartHasher::new(self.algorithm, place).finish();
        }
        if whole && self.len <= self.leaf.bytes() {
            return self.current.map_or_else(
                || unreachable!("a leaf is under way while there are bytes"),
                PartHasher::finish_whole,
            );
        }
        self.close_leaf(&mut found);
        let value = self.joint.finish_as(whole);
        let value = value.unwrap_or_else(|| unreachable!("a part with bytes has leaves"));
        Part::from_digest(value, place, ByteLen(self.len))
    }

    /// Hashes several complete leaves together if that is faster than one by one. Returns the
    /// number of bytes processed.
    fn take_whole(&mut self, bytes: &[u8], found: &mut impl FnMut(Digest)) -> usize {
        if self.algorithm != Algorithm::Blake3 {
            return 0;
        }
        leaf_values(bytes, self.start.0 + self.len, self.leaf, |value| {
            let digest = Digest::from_exact(Algorithm::Blake3, value);
            add(&mut self.joint, digest, self.leaf.bytes());
            found(digest);
        });
        self.len += bytes.len() as u64;
        bytes.len()
    }

    fn close_leaf(&mut self, found: &mut impl FnMut(Digest)) {
        if let Some(full) = self.current.take() {
            let part = full.finish();
            let digest = part.digest();
            add(&mut self.joint, digest, part.range().len());
            found(digest);
        }
    }

    /// Returns the place of the next byte.
    fn place(&self) -> PartPlace {
        PartPlace { offset: ByteOffset(self.start.0 + self.len), whole: false }
    }
}

fn add(joint: &mut Joint, digest: Digest, len: u64) {
    let added = joint.add(digest, ByteLen(len));
    added.unwrap_or_else(|error| unreachable!("leaves are of one algorithm: {error}"));
}
