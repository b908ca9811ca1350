//! Object digests of one file in progress.

use haul_digest::{Algorithm, Digest};
use haul_model::{ObjectIndex, ObjectSize};

/// BLAKE3 digests of the objects of one file. Each takes 32 bytes: 8 MiB for a file of 1 TiB in
/// objects of 4 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSums {
    size: ObjectSize,
    /// Zeros for missing digests.
    values: Vec<[u8; 32]>,
}

impl ObjectSums {
    /// Creates an empty value for a file with objects of `size`.
    pub fn new(size: ObjectSize) -> ObjectSums {
        ObjectSums { size, values: Vec::new() }
    }

    /// Sets the digest of an object.
    ///
    /// # Panics
    /// Panics if the digest is not a BLAKE3 digest: a programming error of the caller.
    pub fn set(&mut self, index: ObjectIndex, digest: Digest) {
        assert_eq!(digest.algorithm(), Algorithm::Blake3, "objects are kept by BLAKE3");
        let place = usize::try_from(index.0).unwrap_or(usize::MAX);
        if self.values.len() <= place {
            self.values.resize(place + 1, [0; 32]);
        }
        self.values[place].copy_from_slice(digest.as_bytes());
    }

    /// Returns the digest of an object; `None` if it is missing.
    pub fn get(&self, index: ObjectIndex) -> Option<Digest> {
        let value = self.values.get(usize::try_from(index.0).ok()?).filter(|value| **value != [0; 32])?;
        Digest::from_bytes(Algorithm::Blake3, value).ok()
    }

    /// Returns the object size.
    pub fn size(&self) -> ObjectSize {
        self.size
    }

    /// Returns the number after the last object with a digest.
    pub fn len(&self) -> u64 {
        self.values.len() as u64
    }

    /// Returns true if there is no digest.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Iterates over the objects with a digest, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectIndex, Digest)> {
        (0..self.len()).filter_map(|index| Some((ObjectIndex(index), self.get(ObjectIndex(index))?)))
    }
}
