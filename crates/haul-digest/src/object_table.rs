//! Object digests of one file in progress.

use crate::{Algorithm, Digest};
use haul_model::{ObjectIndex, ObjectSize};
use std::collections::BTreeMap;

/// Number of digests that are stored together. A single digest then takes at most 512 bytes, which
/// is less than ten times the shortest line of a waybill or message of the wire that brings one.
const GROUP: u64 = 16;

/// Digests of [`GROUP`] objects; zeros for missing digests.
type Group = Box<[[u8; 32]; GROUP as usize]>;

/// BLAKE3 digests of the objects of one file. Each takes 32 bytes: 8 MiB for a file of 1 TiB in
/// objects of 4 MiB.
///
/// Memory grows with the number of digests, whatever their objects: a peer or a waybill can name
/// any object of a file of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTable {
    size: ObjectSize,
    /// Groups by the number of their first object divided by [`GROUP`].
    groups: BTreeMap<u64, Group>,
}

impl ObjectTable {
    /// Creates an empty value for a file with objects of `size`.
    pub fn new(size: ObjectSize) -> ObjectTable {
        ObjectTable { size, groups: BTreeMap::new() }
    }

    /// Sets the digest of an object.
    ///
    /// # Panics
    /// Panics if the digest is not a BLAKE3 digest: a programming error of the caller.
    pub fn set(&mut self, index: ObjectIndex, digest: Digest) {
        assert_eq!(digest.algorithm(), Algorithm::Blake3, "objects are kept by BLAKE3");
        let group = self.groups.entry(index.0 / GROUP).or_default();
        group[(index.0 % GROUP) as usize].copy_from_slice(digest.as_bytes());
    }

    /// Returns the digest of an object; `None` if it is missing.
    pub fn get(&self, index: ObjectIndex) -> Option<Digest> {
        stored(&self.groups.get(&(index.0 / GROUP))?[(index.0 % GROUP) as usize])
    }

    /// Returns the object size.
    pub fn size(&self) -> ObjectSize {
        self.size
    }

    /// Returns the number after the last object with a digest.
    pub fn len(&self) -> u64 {
        let Some((number, group)) = self.groups.last_key_value() else { return 0 };
        let used = group.iter().rposition(|value| stored(value).is_some()).map_or(0, |at| at + 1);
        number * GROUP + used as u64
    }

    /// Returns the number of digests.
    pub fn count(&self) -> u64 {
        self.iter().count() as u64
    }

    /// Returns true if there is no digest.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Iterates over the objects with a digest, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectIndex, Digest)> {
        let all = self.groups.iter().flat_map(|(number, group)| (number * GROUP..).zip(group.iter()));
        all.filter_map(|(index, value)| Some((ObjectIndex(index), stored(value)?)))
    }
}

/// Returns a digest, or `None` for zeros.
fn stored(value: &[u8; 32]) -> Option<Digest> {
    (*value != [0; 32]).then(|| Digest::from_bytes(Algorithm::Blake3, value).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(number: u64) -> Digest {
        crate::digest(Algorithm::Blake3, &number.to_le_bytes())
    }

    proptest! {
        #[test]
        fn object_sums_match_a_plain_map(
            numbers in prop::collection::vec(prop_oneof![0_u64..80, Just(u64::MAX >> 16), any::<u64>()], 0..80),
        ) {
            let (mut sums, mut twin) = (ObjectTable::new(ObjectSize::DEFAULT), BTreeMap::new());
            for (at, number) in numbers.into_iter().enumerate() {
                let number = number.min(u64::MAX - 1);
                sums.set(ObjectIndex(number), value(at as u64));
                twin.insert(ObjectIndex(number), value(at as u64));
                prop_assert_eq!(sums.get(ObjectIndex(number)), Some(value(at as u64)));
            }
            prop_assert_eq!(sums.is_empty(), twin.is_empty());
            prop_assert_eq!(sums.len(), twin.last_key_value().map_or(0, |(last, _)| last.0 + 1));
            prop_assert!((0..100).all(|index| sums.get(ObjectIndex(index)) == twin.get(&ObjectIndex(index)).copied()));
            prop_assert!(sums.iter().eq(twin));
        }
    }
}
