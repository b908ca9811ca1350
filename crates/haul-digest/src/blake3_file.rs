//! BLAKE3 of a file from its objects, without the other algorithms.
//!
//! A program that calls [`crate::FileDigest`] contains every algorithm of the registry. A module
//! for browsers must be small, and needs only BLAKE3: [`Blake3File`] is its `FileDigest`.

use crate::assembly::{AssemblyError, Blake3Pieces};
use crate::blake3_parts::{Blake3Part, Blake3Stream};
use crate::part::PartPlace;
use crate::{Algorithm, Digest};
use haul_model::{ByteLen, ByteRange, Geometry, Object, ObjectIndex, ObjectSize, Runs};

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

/// Combines the objects of one file, in any order, each possibly several times, into its BLAKE3
/// digest. Memory use grows with the number of gaps, and not with the number of objects.
#[derive(Clone, Debug)]
pub struct Blake3File {
    geometry: Geometry,
    pieces: Blake3Pieces,
    /// Objects that were added.
    seen: Runs,
}

impl Blake3File {
    /// Returns a file of `len` bytes without objects.
    pub fn new(len: u64, object: ObjectSize) -> Blake3File {
        let geometry = Geometry::new(ByteLen(len), object);
        Blake3File { geometry, pieces: Blake3Pieces::new(), seen: Runs::default() }
    }

    /// Returns the division of the file into objects.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the hasher of an object, or `None` past the end of the file.
    pub fn hasher(&self, index: ObjectIndex) -> Option<Blake3Object> {
        self.geometry.object(index).map(|object| Blake3Object::new(object, self.geometry.len()))
    }

    /// Returns the number of objects of the file.
    pub fn objects(&self) -> u64 {
        self.geometry.count()
    }

    /// Adds an object by the digest of [`Blake3Object::finish`]. If the object was added before,
    /// nothing changes. Returns false past the end of the file.
    pub fn add(&mut self, index: ObjectIndex, digest: &Digest) -> bool {
        digest.as_bytes().try_into().is_ok_and(|digest| self.add_bytes(index, digest))
    }

    /// Does the same as [`Blake3File::add`], for the bytes of a digest.
    pub fn add_bytes(&mut self, index: ObjectIndex, digest: [u8; 32]) -> bool {
        let Some(Object { range, .. }) = self.geometry.object(index) else { return false };
        if self.seen.insert(index.0) {
            let whole = range.len() == self.geometry.len();
            let part = if whole { Blake3Part::Whole(digest) } else { Blake3Part::Inner(digest) };
            let added = self.pieces.add(self.geometry.object_size(), index, range, part);
            added.unwrap_or_else(|error| unreachable!("each object counts once: {error}"));
        }
        true
    }

    /// Returns the digest of the file.
    ///
    /// # Errors
    ///
    /// Returns an [`AssemblyError`] if an object is missing.
    pub fn finish(&self) -> Result<Digest, AssemblyError> {
        self.pieces.clone().finish(self.geometry.object_size(), self.geometry.len())
    }

    /// Returns the range of an object, or `None` past the end of the file.
    pub fn range(&self, index: ObjectIndex) -> Option<ByteRange> {
        self.geometry.object(index).map(|object| object.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DigestSpec, FileDigest, Form, Recipe, digest};
    use proptest::prelude::*;

    proptest! {
        /// The general types are the reference: the same digests of objects and files.
        #[test]
        fn digests_equal_those_of_the_general_types(
            len in prop_oneof![
                proptest::sample::select(vec![0, 1, 65_535, 65_536, 65_537, 131_072, 196_609]),
                0_u64..400_000,
            ],
            order in any::<u64>(),
        ) {
            let size = ObjectSize::new(64 << 10).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
            let spec = DigestSpec::new(Algorithm::Blake3, Form::Plain);
            let mut file = Blake3File::new(len, size);
            let mut general = FileDigest::new(&Recipe::new([spec]), file.geometry());
            let mut objects: Vec<Object> = file.geometry().objects().collect();
            objects.sort_by_key(|object| (object.index.0 ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for object in objects.iter().chain(&objects) {
                let bytes = &bytes[object.range.start.0 as usize..object.range.end.0 as usize];
                let mut part = general.begin(*object);
                part.update(bytes);
                let part = part.finish();
                let mut hasher = file.hasher(object.index).unwrap();
                bytes.chunks(777).for_each(|bytes| hasher.update(bytes));
                prop_assert_eq!(hasher.fed(), object.range.len());
                let found = hasher.finish();
                prop_assert_eq!(part.digest(0), Some(found));
                prop_assert_eq!(file.finish().is_ok(), general.digest(0).is_ok());
                prop_assert!(file.add(object.index, &found));
                general.add(part);
            }
            prop_assert_eq!(file.finish().ok(), general.digest(0).unwrap());
            prop_assert_eq!(file.finish().unwrap(), digest(Algorithm::Blake3, &bytes));
            prop_assert!(!file.add_bytes(ObjectIndex(file.objects()), [0; 32]), "past the end");
            prop_assert!(file.hasher(ObjectIndex(file.objects())).is_none());
        }
    }

    #[test]
    fn zeros_are_hashed_like_bytes() {
        let size = ObjectSize::new(64 << 10).unwrap();
        let file = Blake3File::new(10_001, size);
        let mut hasher = file.hasher(ObjectIndex(0)).unwrap();
        hasher.update_zeros(10_001);
        assert_eq!(hasher.finish(), digest(Algorithm::Blake3, &[0; 10_001]));
    }
}
