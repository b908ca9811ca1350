//! Object digests of one file in progress.

use crate::{Algorithm, Digest};
use haul_model::{ObjectIndex, ObjectSize};
use std::collections::BTreeMap;

/// Number of digests that are stored together. A single digest then takes at most 512 bytes, which
/// is less than ten times the shortest line of a waybill or message of the wire that brings one.
const GROUP: u64 = u16::BITS as u64;

/// Digests of [`GROUP`] objects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// Bit `n` is set if object `n` of the group has a digest.
    present: u16,
    /// The digests one after the other; zeros for missing ones.
    values: Box<[u8]>,
}

/// Digests of the objects of one file. Those of BLAKE3 take 32 bytes each: 8 MiB for a file of 1
/// TiB in objects of 4 MiB.
///
/// Memory grows with the number of digests, whatever their objects: a peer or a waybill can name
/// any object of a file of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTable {
    algorithm: Algorithm,
    size: ObjectSize,
    /// Groups by the number of their first object divided by [`GROUP`].
    groups: BTreeMap<u64, Group>,
}

impl ObjectTable {
    /// Creates an empty value for the BLAKE3 digests of a file with objects of `size`.
    pub fn new(size: ObjectSize) -> ObjectTable {
        ObjectTable::of(Algorithm::Blake3, size)
    }

    /// Creates an empty value for the digests of a file with objects of `size`.
    pub fn of(algorithm: Algorithm, size: ObjectSize) -> ObjectTable {
        ObjectTable { algorithm, size, groups: BTreeMap::new() }
    }

    /// Sets the digest of an object.
    ///
    /// # Panics
    /// Panics if the digest has another algorithm: a programming error of the caller.
    pub fn set(&mut self, index: ObjectIndex, digest: Digest) {
        assert_eq!(digest.algorithm(), self.algorithm, "a table has digests of one algorithm");
        let (len, at) = (self.algorithm.digest_len(), (index.0 % GROUP) as usize);
        let group = self.groups.entry(index.0 / GROUP).or_insert_with(|| Group {
            present: 0,
            values: vec![0; len * GROUP as usize].into_boxed_slice(),
        });
        group.present |= 1 << at;
        group.values[at * len..][..len].copy_from_slice(digest.as_bytes());
    }

    /// Returns the digest of an object; `None` if it is missing.
    pub fn get(&self, index: ObjectIndex) -> Option<Digest> {
        self.groups.get(&(index.0 / GROUP))?.get(self.algorithm, index.0 % GROUP)
    }

    /// Returns the object size.
    pub fn size(&self) -> ObjectSize {
        self.size
    }

    /// Returns the number after the last object with a digest.
    pub fn len(&self) -> u64 {
        let Some((number, group)) = self.groups.last_key_value() else { return 0 };
        number * GROUP + u64::from(u16::BITS - group.present.leading_zeros())
    }

    /// Returns the number of digests.
    pub fn count(&self) -> u64 {
        self.groups.values().map(|group| u64::from(group.present.count_ones())).sum()
    }

    /// Returns true if there is no digest.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Iterates over the objects with a digest, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectIndex, Digest)> {
        let all =
            self.groups.iter().flat_map(|(number, group)| (0..GROUP).map(move |at| (number, at, group)));
        all.filter_map(|(number, at, group)| {
            Some((ObjectIndex(number * GROUP + at), group.get(self.algorithm, at)?))
        })
    }
}

impl Group {
    fn get(&self, algorithm: Algorithm, at: u64) -> Option<Digest> {
        let len = algorithm.digest_len();
        let is_present = self.present >> at & 1 == 1;
        is_present.then(|| Digest::from_exact(algorithm, &self.values[at as usize * len..][..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(number: u64) -> Digest {
        crate::digest(Algorithm::Blake3, &number.to_le_bytes())
    }

    /// CRC-64/NVME of nothing is 0, as are the bytes of an object without a digest.
    #[test]
    fn digest_of_zeros_is_present() {
        let mut table = ObjectTable::of(Algorithm::Crc64Nvme, ObjectSize::DEFAULT);
        let zero = crate::digest(Algorithm::Crc64Nvme, &[]);
        assert!(zero.as_bytes().iter().all(|&byte| byte == 0));
        table.set(ObjectIndex(17), zero);
        assert_eq!(table.get(ObjectIndex(17)), Some(zero));
        assert_eq!((table.get(ObjectIndex(16)), table.len(), table.count()), (None, 18, 1));
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
