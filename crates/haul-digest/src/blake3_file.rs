//! BLAKE3 of a file from its objects, without the other algorithms.
//!
//! A program that calls [`crate::PartHasher`] or [`crate::Assembly`] contains every algorithm of
//! the registry. A module for browsers must be small, and needs only BLAKE3.

use crate::assembly::{AssemblyError, Blake3Pieces};
use crate::blake3_parts::{Blake3Part, Blake3Stream};
use crate::part::PartPlace;
use crate::{Algorithm, Digest};
use haul_model::{ByteLen, ByteRange, Geometry, Object, ObjectIndex, ObjectSize};

/// Zeros to hash: enough to fill the SIMD lanes of WebAssembly, and small in its modules.
static ZEROS: [u8; 4096] = [0; 4096];

/// Running BLAKE3 of one object of a file.
#[derive(Clone)]
pub struct Blake3Object {
    stream: Blake3Stream,
    len: u64,
}

impl Blake3Object {
    /// Returns a hasher for the object of a file of `file_len` bytes.
    pub fn new(object: Object, file_len: u64) -> Blake3Object {
        let whole = object.range.len() == file_len;
        let place = PartPlace { offset: object.range.start, whole };
        Blake3Object { stream: Blake3Stream::new(place), len: 0 }
    }

    /// Feeds the next bytes of the object.
    ///
    /// # Panics
    ///
    /// Panics if the bytes exceed the object, unless it is the last of its file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.stream.update(bytes);
    }

    /// Feeds `len` zero bytes.
    pub fn update_zeros(&mut self, len: u64) {
        let mut rest = len;
        while rest > 0 {
            let now = rest.min(ZEROS.len() as u64);
            self.update(&ZEROS[..now as usize]);
            rest -= now;
        }
    }

    /// Returns the number of bytes so far.
    pub fn fed(&self) -> u64 {
        self.len
    }

    /// Returns the digest that [`crate::Part::digest`] has for the same object: the chaining value
    /// of its subtree, or the digest of the file if the object is the complete file.
    pub fn finish(self) -> Digest {
        let bytes = match self.stream.finish() {
            Blake3Part::Whole(bytes) | Blake3Part::Inner(bytes) => bytes,
            Blake3Part::Empty => *blake3::hash(&[]).as_bytes(),
        };
        Digest::from_exact(Algorithm::Blake3, &bytes)
    }
}

impl std::fmt::Debug for Blake3Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blake3Object").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Combines the objects of one file, in any order, into its BLAKE3 digest. Memory use grows with
/// the number of gaps, and not with the number of objects.
#[derive(Clone, Debug)]
pub struct Blake3File {
    geometry: Geometry,
    pieces: Blake3Pieces,
    /// The first error; reported by [`Blake3File::finish`].
    fault: Option<AssemblyError>,
}

impl Blake3File {
    /// Returns a file of `len` bytes without objects.
    pub fn new(len: u64, object: ObjectSize) -> Blake3File {
        let geometry = Geometry::new(ByteLen(len), object);
        Blake3File { geometry, pieces: Blake3Pieces::new(), fault: None }
    }

    /// Returns the division of the file into objects.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Adds an object by the digest of [`Blake3Object::finish`]. Returns false past the end of the
    /// file.
    pub fn add(&mut self, index: ObjectIndex, digest: [u8; 32]) -> bool {
        let Some(Object { range, .. }) = self.geometry.object(index) else { return false };
        let whole = range.len() == self.geometry.len();
        let part = if whole { Blake3Part::Whole(digest) } else { Blake3Part::Inner(digest) };
        let added = self.pieces.add(self.geometry.object_size(), index, range, part);
        self.fault = self.fault.or(added.err());
        true
    }

    /// Returns the digest of the file.
    ///
    /// # Errors
    ///
    /// Returns an [`AssemblyError`] if an object is missing or was added twice.
    pub fn finish(&self) -> Result<Digest, AssemblyError> {
        match self.fault {
            Some(fault) => Err(fault),
            None => self.pieces.clone().finish(self.geometry.object_size(), self.geometry.len()),
        }
    }

    /// Returns the range of an object, or `None` past the end of the file.
    pub fn range(&self, index: ObjectIndex) -> Option<ByteRange> {
        self.geometry.object(index).map(|object| object.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assembly, PartHasher, digest};

    /// The general types are the reference: the same digests of objects and files, on edge lengths.
    #[test]
    fn digests_equal_those_of_the_general_types() {
        let size = ObjectSize::new(64 << 10).unwrap();
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at * 31 % 251) as u8).collect();
        for len in [0, 1, 65_535, 65_536, 65_537, 131_072, 196_609] {
            let (mut file, mut assembly) =
                (Blake3File::new(len, size), Assembly::new(Algorithm::Blake3, size));
            let objects: Vec<Object> = file.geometry().objects().collect();
            for object in objects.into_iter().rev() {
                let range = object.range.start.0 as usize..object.range.end.0 as usize;
                let place = PartPlace { offset: object.range.start, whole: object.range.len() == len };
                let mut part = PartHasher::new(Algorithm::Blake3, place);
                part.update(&bytes[range.clone()]);
                let part = part.finish();
                let mut hasher = Blake3Object::new(object, len);
                bytes[range].chunks(777).for_each(|bytes| hasher.update(bytes));
                assert_eq!(hasher.fed(), object.range.len());
                let found = hasher.finish();
                assert_eq!(found, part.digest());
                assert!(file.finish().is_err(), "an object is missing");
                assert!(file.add(object.index, found.as_bytes().try_into().unwrap()));
                assembly.add(object.index, part);
            }
            assert_eq!(file.finish(), assembly.finish(ByteLen(len)));
            assert_eq!(file.finish().unwrap(), digest(Algorithm::Blake3, &bytes[..len as usize]));
            assert!(!file.add(ObjectIndex(len.div_ceil(size.bytes())), [0; 32]), "past the end");
        }
    }

    #[test]
    fn zeros_are_hashed_like_bytes() {
        let size = ObjectSize::new(64 << 10).unwrap();
        let file = Blake3File::new(10_001, size);
        let mut hasher = Blake3Object::new(file.geometry().object(ObjectIndex(0)).unwrap(), 10_001);
        hasher.update_zeros(10_001);
        assert_eq!(hasher.finish(), digest(Algorithm::Blake3, &[0; 10_001]));
    }

    #[test]
    fn object_added_twice_is_an_error() {
        let mut file = Blake3File::new(200_000, ObjectSize::new(64 << 10).unwrap());
        assert!(file.add(ObjectIndex(1), [1; 32]) && file.add(ObjectIndex(1), [1; 32]));
        assert!(matches!(file.finish(), Err(AssemblyError::Overlap(_))));
    }
}
