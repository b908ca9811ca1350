//! BLAKE3 of a file from its objects, in any order.

use haul_digest::{Blake3File, Blake3Object, Digest};
use haul_model::{ByteRange, ObjectIndex, ObjectSize};
use haul_proto::Runs;

/// Digest of a file whose objects are added in any order, each possibly several times. Its memory
/// depends on the number of gaps.
#[derive(Clone, Debug)]
pub struct FileDigest {
    file: Blake3File,
    seen: Runs,
}

impl FileDigest {
    /// Creates the digest of a file of `size` bytes without objects.
    pub fn new(size: u64, object: ObjectSize) -> FileDigest {
        FileDigest { file: Blake3File::new(size, object), seen: Runs::default() }
    }

    /// Returns the hasher of an object, or `None` past the end of the file.
    pub fn hasher(&self, index: ObjectIndex) -> Option<Blake3Object> {
        let geometry = self.file.geometry();
        geometry.object(index).map(|object| Blake3Object::new(object, geometry.len()))
    }

    /// Returns the range of an object, or `None` past the end of the file.
    pub fn range(&self, index: ObjectIndex) -> Option<ByteRange> {
        self.file.range(index)
    }

    /// Adds an object by its digest: the chaining value of its subtree, or the digest of the file
    /// if the object is the complete file. If the object was added before, nothing changes. Returns
    /// false past the end of the file.
    pub fn add(&mut self, index: ObjectIndex, digest: &Digest) -> bool {
        digest.as_bytes().try_into().is_ok_and(|digest| self.add_bytes(index, digest))
    }

    /// Does the same as [`FileDigest::add`], for the bytes of a digest.
    pub fn add_bytes(&mut self, index: ObjectIndex, digest: [u8; 32]) -> bool {
        let is_inside = self.range(index).is_some();
        if is_inside && self.seen.insert(index.0) {
            self.file.add(index, digest);
        }
        is_inside
    }

    /// Returns the number of objects of the file.
    pub fn objects(&self) -> u64 {
        self.file.geometry().count()
    }

    /// Returns the digest of the file, or `None` if an object is missing.
    pub fn finish(&self) -> Option<Digest> {
        self.file.finish().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::{Algorithm, PartHasher, PartPlace};
    use haul_model::ByteOffset;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn objects_in_any_order_give_the_digest_of_the_file(
            len in 0usize..400_000,
            order in any::<u64>(),
        ) {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
            let object = ObjectSize::new(64 << 10).unwrap();
            let mut file = FileDigest::new(len as u64, object);
            let mut indices: Vec<u64> = (0..file.objects()).collect();
            indices.sort_by_key(|index| (index ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for index in indices.iter().chain(&indices) {
                let mut hasher = file.hasher(ObjectIndex(*index)).unwrap();
                let start = (*index as usize) << 16;
                bytes[start..len.min(start + (1 << 16))].chunks(1000).for_each(|part| hasher.update(part));
                let digest = hasher.finish();
                let place = PartPlace { offset: ByteOffset(start as u64), whole: file.objects() == 1 };
                let mut part = PartHasher::new(Algorithm::Blake3, place);
                part.update(&bytes[start..len.min(start + (1 << 16))]);
                prop_assert_eq!(part.finish().digest(), digest);
                prop_assert!(file.add(ObjectIndex(*index), &digest));
            }
            prop_assert_eq!(file.finish(), Some(haul_digest::digest(Algorithm::Blake3, &bytes)));
            prop_assert!(file.hasher(ObjectIndex(file.objects())).is_none());
        }
    }

    #[test]
    fn missing_object_gives_no_digest() {
        let mut file = FileDigest::new(200_000, ObjectSize::new(64 << 10).unwrap());
        assert!(file.add_bytes(ObjectIndex(0), [1; 32]) && !file.add_bytes(ObjectIndex(4), [1; 32]));
        assert_eq!(file.finish(), None);
    }
}
