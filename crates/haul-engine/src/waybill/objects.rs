//! The digests of one file's objects, while the file is under way.

use haul_digest::{Algorithm, Digest};
use haul_model::{ObjectIndex, ObjectSize};

/// BLAKE3 values of the objects of one file: 32 bytes for each, so 8 MiB for a file of 1 TiB in objects of 4 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSums {
    size: ObjectSize,
    /// Zeros where a value has not come.
    values: Vec<[u8; 32]>,
}

impl ObjectSums {
    /// No values yet, of a file cut into objects of `size`.
    pub fn new(size: ObjectSize) -> ObjectSums {
        ObjectSums { size, values: Vec::new() }
    }

    /// Puts an object's value in its place.
    ///
    /// # Panics
    /// If the digest is not BLAKE3's: a mistake of the caller.
    pub fn set(&mut self, index: ObjectIndex, digest: Digest) {
        assert_eq!(digest.algorithm(), Algorithm::Blake3, "objects are kept by BLAKE3");
        let place = usize::try_from(index.0).unwrap_or(usize::MAX);
        if self.values.len() <= place {
            self.values.resize(place + 1, [0; 32]);
        }
        self.values[place].copy_from_slice(digest.as_bytes());
    }

    /// The value of an object; `None` where it has not come.
    pub fn get(&self, index: ObjectIndex) -> Option<Digest> {
        let value = self.values.get(usize::try_from(index.0).ok()?).filter(|value| **value != [0; 32])?;
        Digest::from_bytes(Algorithm::Blake3, value).ok()
    }

    /// The size of an object.
    pub fn size(&self) -> ObjectSize {
        self.size
    }

    /// One past the last object that has a value.
    pub fn len(&self) -> u64 {
        self.values.len() as u64
    }

    /// Whether no value has come.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The objects that have a value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectIndex, Digest)> {
        (0..self.len()).filter_map(|index| Some((ObjectIndex(index), self.get(ObjectIndex(index))?)))
    }
}
