//! Division of a file into objects.
//!
//! ```text
//!  offset 0        S          2S         3S     len
//!         |object 0|object 1  |object 2  |obj 3 |      S = object size, a power of two
//! ```

use crate::{ByteLen, ByteOffset, ByteRange, limits};
use thiserror::Error;

/// Index of an object in its file, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIndex(pub u64);

/// Size in bytes of every object of a file except for the last. It is a power of two, so that an
/// object is a complete subtree of a hash tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectSize(u64);

/// Reason for a number of bytes that is not an object size.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ObjectSizeError {
    /// Not a power of two. Objects are powers of two so that their digests form a binary tree.
    #[error("object size {0} is not a power of two")]
    NotAPowerOfTwo(u64),
    /// Not between [`limits::OBJECT_BYTES_MIN`] and [`limits::OBJECT_BYTES_MAX`].
    #[error("object size {0} is outside {min} to {max} bytes", min = limits::OBJECT_BYTES_MIN, max = limits::OBJECT_BYTES_MAX)]
    OutOfRange(u64),
}

impl ObjectSize {
    /// Default size: 4 MiB.
    pub const DEFAULT: ObjectSize = ObjectSize(limits::OBJECT_BYTES_DEFAULT);

    /// Creates an object size of exactly `bytes`.
    ///
    /// # Errors
    /// Returns an [`ObjectSizeError`] if `bytes` is not a power of two or is out of range.
    pub const fn new(bytes: u64) -> Result<ObjectSize, ObjectSizeError> {
        if !bytes.is_power_of_two() {
            return Err(ObjectSizeError::NotAPowerOfTwo(bytes));
        }
        if bytes < limits::OBJECT_BYTES_MIN || bytes > limits::OBJECT_BYTES_MAX {
            return Err(ObjectSizeError::OutOfRange(bytes));
        }
        Ok(ObjectSize(bytes))
    }

    /// Returns the smallest object size of at least `bytes`, within the limits. The `--split-size`
    /// of mcp is rounded up to a power of two in the same way.
    pub fn round_up(bytes: u64) -> ObjectSize {
        let wanted = bytes.clamp(limits::OBJECT_BYTES_MIN, limits::OBJECT_BYTES_MAX);
        ObjectSize(wanted.next_power_of_two())
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Size in bytes of every leaf of an object except for the last: a power of two from BLAKE3's chunk
/// of 1,024 up to the size of the object. Damage is located to leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafSize(u64);

/// Reason for a number of bytes that is not a leaf size.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LeafSizeError {
    /// Not a power of two. Leaves are powers of two so that their digests form a binary tree.
    #[error("leaf size {0} is not a power of two")]
    NotAPowerOfTwo(u64),
    /// Not between [`limits::LEAF_BYTES_MIN`] and the size of the objects.
    #[error("leaf size {leaf} is outside {min} to {object} bytes, the size of an object", min = limits::LEAF_BYTES_MIN)]
    OutOfRange {
        /// The requested size.
        leaf: u64,
        /// The size of an object.
        object: u64,
    },
}

impl LeafSize {
    /// Creates a leaf size of exactly `bytes`, for objects of this size.
    ///
    /// # Errors
    /// Returns a [`LeafSizeError`] if `bytes` is not a power of two or is out of range.
    pub const fn new(bytes: u64, object: ObjectSize) -> Result<LeafSize, LeafSizeError> {
        if !bytes.is_power_of_two() {
            return Err(LeafSizeError::NotAPowerOfTwo(bytes));
        }
        if bytes < limits::LEAF_BYTES_MIN || bytes > object.0 {
            return Err(LeafSizeError::OutOfRange { leaf: bytes, object: object.0 });
        }
        Ok(LeafSize(bytes))
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// One object: its index and the range of the file that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Index in the file.
    pub index: ObjectIndex,
    /// Range in the file; never empty.
    pub range: ByteRange,
}

/// Division into objects of one file with a known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    len: ByteLen,
    object: ObjectSize,
}

impl Geometry {
    /// Divides `len` bytes into objects of `object` bytes.
    pub const fn new(len: ByteLen, object: ObjectSize) -> Geometry {
        Geometry { len, object }
    }

    /// Returns the length of the file in bytes.
    pub const fn len(self) -> u64 {
        self.len.0
    }

    /// Returns true if the file is empty and therefore has no objects.
    pub const fn is_empty(self) -> bool {
        self.len.0 == 0
    }

    /// Returns the size of all objects except for the last.
    pub const fn object_size(self) -> ObjectSize {
        self.object
    }

    /// Returns the number of objects; 0 for an empty file.
    pub const fn count(self) -> u64 {
        self.len.0.div_ceil(self.object.0)
    }

    /// Returns the object with this index, or `None` past the end.
    pub fn object(self, index: ObjectIndex) -> Option<Object> {
        if index.0 >= self.count() {
            return None;
        }
        let start = index.0 * self.object.0;
        let end = start.saturating_add(self.object.0).min(self.len.0);
        Some(Object { index, range: ByteRange::between(start, end) })
    }

    /// Returns the object that contains the byte at `offset`, or `None` past the end.
    pub fn object_at(self, offset: ByteOffset) -> Option<Object> {
        self.object(ObjectIndex(offset.0 / self.object.0)).filter(|_| offset.0 < self.len.0)
    }

    /// Returns all objects in order.
    pub fn objects(self) -> impl Iterator<Item = Object> {
        (0..self.count()).filter_map(move |index| self.object(ObjectIndex(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn objects_tile_the_file(len in 0u64..1 << 30, shift in 16u32..26) {
            let size = ObjectSize::new(1 << shift).unwrap();
            let cut = Geometry::new(ByteLen(len), size);
            let mut at = 0;
            for (number, object) in cut.objects().enumerate() {
                prop_assert_eq!(object.index.0, number as u64);
                prop_assert_eq!(object.range.start.0, at);
                prop_assert!(!object.range.is_empty());
                prop_assert!(object.range.len() <= size.bytes());
                prop_assert_eq!(cut.object_at(object.range.start), Some(object));
                at = object.range.end.0;
            }
            prop_assert_eq!(at, len);
            prop_assert_eq!(cut.object_at(ByteOffset(len)), None);
        }
    }

    #[test]
    fn an_empty_file_has_no_objects() {
        assert_eq!(Geometry::new(ByteLen(0), ObjectSize::DEFAULT).count(), 0);
    }

    #[test]
    fn file_of_2_to_the_63_bytes_is_divided_without_overflow() {
        let cut = Geometry::new(ByteLen(1 << 63), ObjectSize::DEFAULT);
        let last = cut.object(ObjectIndex(cut.count() - 1)).unwrap();
        assert_eq!(last.range.end.0, 1 << 63);
    }

    #[test]
    fn object_sizes_must_be_powers_of_two_in_range() {
        assert_eq!(ObjectSize::new(3 << 20), Err(ObjectSizeError::NotAPowerOfTwo(3 << 20)));
        assert_eq!(ObjectSize::new(512), Err(ObjectSizeError::OutOfRange(512)));
        assert_eq!(ObjectSize::round_up(3 << 20).bytes(), 4 << 20);
    }
}
