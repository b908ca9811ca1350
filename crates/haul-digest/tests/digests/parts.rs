//! Tests of parts in any order, and of block values, against the digest of the whole.

use crate::{combining, joinable, pattern};
use haul_digest::{
    Algorithm, Assembly, AssemblyError, CombineError, Digest, Joint, LeafHasher, Part, PartHasher, PartPlace,
    combine, digest,
};
use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, LeafSize, Object, ObjectIndex, ObjectSize};
use proptest::prelude::*;

/// Returns the smallest object size, so that many objects are quick.
fn small() -> ObjectSize {
    ObjectSize::round_up(0)
}

fn cut(bytes: &[u8]) -> Geometry {
    Geometry::new(ByteLen(bytes.len() as u64), small())
}

fn content(bytes: &[u8], range: ByteRange) -> &[u8] {
    &bytes[range.start.0 as usize..range.end.0 as usize]
}

fn hash_part(algorithm: Algorithm, object: Object, whole: bool, bytes: &[u8]) -> Part {
    let mut hasher = PartHasher::new(algorithm, PartPlace { offset: object.range.start, whole });
    for piece in content(bytes, object.range).chunks(50_000) {
        hasher.update(piece);
    }
    let part = hasher.finish();
    assert_eq!((part.algorithm(), part.range()), (algorithm, object.range));
    part
}

/// Assembles the objects in the given order.
fn assemble(algorithm: Algorithm, bytes: &[u8], order: &[u64]) -> Result<Digest, AssemblyError> {
    let geometry = cut(bytes);
    let mut assembly = Assembly::new(algorithm, small());
    for &index in order {
        let object = geometry.object(ObjectIndex(index)).unwrap();
        assembly.add(object.index, hash_part(algorithm, object, geometry.count() == 1, bytes));
    }
    assembly.finish(ByteLen(bytes.len() as u64))
}

#[test]
fn edge_lengths_assemble_in_three_orders() {
    let size = small().bytes() as usize;
    let longest = pattern(9 * size + 1);
    let edges = (0..=9).flat_map(|objects| [-1i64, 0, 1].map(|off| (objects * size) as i64 + off));
    for len in edges.filter(|&len| len >= 0).chain([1000, 1024, 1025, 2049, 4 * size as i64 + 1024]) {
        let bytes = &longest[..len as usize];
        let forward: Vec<u64> = (0..cut(bytes).count()).collect();
        let backward: Vec<u64> = forward.iter().rev().copied().collect();
        let (even, odd): (Vec<u64>, Vec<u64>) = forward.iter().partition(|&&index| index % 2 == 0);
        let odd_first = [odd, even].concat();
        for algorithm in combining() {
            let expected = Ok(digest(algorithm, bytes));
            for order in [&forward, &backward, &odd_first] {
                assert_eq!(
                    assemble(algorithm, bytes, order),
                    expected,
                    "{algorithm}, {len} bytes, {order:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn parts_assemble_in_any_order(
        (len, order) in (1usize..1_500_000).prop_flat_map(|len| {
            let count = Geometry::new(ByteLen(len as u64), small()).count();
            (Just(len), Just((0..count).collect::<Vec<_>>()).prop_shuffle())
        }),
    ) {
        let bytes = pattern(len);
        for algorithm in combining() {
            prop_assert_eq!(assemble(algorithm, &bytes, &order), Ok(digest(algorithm, &bytes)));
        }
    }

    #[test]
    fn block_digests_combine_to_the_file_digest(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for algorithm in joinable() {
            let blocks = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
            let values: Vec<(Digest, ByteLen)> =
                blocks.map(|block| (digest(algorithm, block), ByteLen(block.len() as u64))).collect();
            prop_assert_eq!(combine(algorithm, &values), Ok(digest(algorithm, &bytes)));
        }
    }

    #[test]
    fn holes_in_parts_hash_as_zeros(data in 0u64..100_000, hole in 0u64..100_000, at in 0u64..4) {
        for algorithm in combining() {
            let place = PartPlace { offset: ByteOffset(at << 20), whole: false };
            let mut sparse = PartHasher::new(algorithm, place);
            let mut dense = PartHasher::new(algorithm, place);
            let bytes = pattern(data as usize);
            sparse.update(&bytes);
            sparse.update_zeros(hole);
            sparse.update(&bytes);
            dense.update(&bytes);
            dense.update(&vec![0; hole as usize]);
            dense.update(&bytes);
            let (sparse, dense) = (sparse.finish(), dense.finish());
            prop_assert_eq!(format!("{sparse:?}"), format!("{dense:?}"));
        }
    }
}

/// Adds `count` full objects with the same bytes, which is cheap for large numbers.
fn add_all(
    assembly: &mut Assembly,
    part_of: impl Fn(u64) -> Part,
    order: impl Iterator<Item = u64>,
) -> usize {
    let mut most = 0;
    for index in order {
        assembly.add(ObjectIndex(index), part_of(index));
        most = most.max(assembly.pieces());
    }
    most
}

#[test]
fn assembly_memory_depends_on_gaps_not_on_objects() {
    const COUNT: u64 = 4000;
    let size = small().bytes();
    let part_of = |algorithm, index: u64| {
        let offset = ByteOffset(index * size);
        let mut hasher = PartHasher::new(algorithm, PartPlace { offset, whole: false });
        hasher.update_zeros(size);
        hasher.finish()
    };
    let mut crc = Assembly::new(Algorithm::Crc32c, small());
    assert_eq!(add_all(&mut crc, |index| part_of(Algorithm::Crc32c, index), 0..COUNT), 1);
    // Four workers each take every fourth object, slightly out of step.
    let jittered = (0..COUNT).map(|index| (index / 8) * 8 + (index * 5) % 8);
    let mut crc = Assembly::new(Algorithm::Crc32c, small());
    assert!(add_all(&mut crc, |index| part_of(Algorithm::Crc32c, index), jittered) <= 6);
    let mut blake3 = Assembly::new(Algorithm::Blake3, small());
    assert!(add_all(&mut blake3, |index| part_of(Algorithm::Blake3, index), 0..400) <= 9);
    let mut whole = haul_digest::Hasher::new(Algorithm::Blake3);
    whole.update_zeros(400 * size);
    assert_eq!(blake3.finish(ByteLen(400 * size)), Ok(whole.finish()));
}

#[test]
fn missing_and_overlapping_parts_are_reported() {
    let size = small().bytes();
    let bytes = pattern(5 * size as usize - 7);
    let between = |start, end| ByteRange::between(start, end);
    for algorithm in combining() {
        let finish = |order: &[u64]| assemble(algorithm, &bytes, order);
        assert_eq!(finish(&[0, 1, 2, 3, 4]), Ok(digest(algorithm, &bytes)), "{algorithm}");
        let missing = |start, end| Err(AssemblyError::Missing(between(start, end)));
        assert_eq!(finish(&[0, 1, 4]), missing(2 * size, 4 * size), "{algorithm}");
        assert_eq!(finish(&[1, 2, 3, 4]), missing(0, size), "{algorithm}");
        assert_eq!(finish(&[0, 1, 2, 3]), missing(4 * size, bytes.len() as u64), "{algorithm}");
        assert_eq!(finish(&[]), missing(0, bytes.len() as u64), "{algorithm}");
        let twice = Err(AssemblyError::Overlap(between(2 * size, 3 * size)));
        assert_eq!(finish(&[0, 1, 2, 2, 3, 4]), twice, "{algorithm}");
        assert_eq!(finish(&[3, 2, 2, 1, 0, 4]), twice, "{algorithm}");
    }
}

#[test]
fn changed_file_length_is_reported() {
    let size = small().bytes();
    let bytes = pattern(3 * size as usize + 5);
    let between = |start, end| ByteRange::between(start, end);
    for algorithm in combining() {
        let finish = |len| {
            let mut assembly = Assembly::new(algorithm, small());
            for object in cut(&bytes).objects() {
                assembly.add(object.index, hash_part(algorithm, object, false, &bytes));
            }
            assembly.finish(ByteLen(len))
        };
        let end = bytes.len() as u64;
        assert_eq!(finish(end), Ok(digest(algorithm, &bytes)), "{algorithm}");
        assert_eq!(finish(end + 2), Err(AssemblyError::Missing(between(end, end + 2))), "{algorithm}");
        assert_eq!(finish(end - 2), Err(AssemblyError::Beyond(between(end - 2, end))), "{algorithm}");
        assert_eq!(finish(size), Err(AssemblyError::Beyond(between(size, end))), "{algorithm}");
        assert_eq!(finish(0), Err(AssemblyError::Beyond(between(0, end))), "{algorithm}");
    }
}

#[test]
fn short_parts_leave_a_reported_gap() {
    let size = small().bytes();
    for algorithm in combining() {
        let mut assembly = Assembly::new(algorithm, small());
        for index in [1, 0, 2] {
            let offset = ByteOffset(index * size);
            let mut hasher = PartHasher::new(algorithm, PartPlace { offset, whole: false });
            hasher.update(&pattern(if index == 1 { size as usize } else { 100 }));
            assembly.add(ObjectIndex(index), hasher.finish());
        }
        let gap = AssemblyError::Missing(ByteRange::between(100, size));
        assert_eq!(assembly.finish(ByteLen(2 * size + 100)), Err(gap), "{algorithm}");
    }
}

#[test]
fn single_object_blake3_must_be_hashed_as_the_entire_file() {
    let bytes = pattern(5000);
    let object = cut(&bytes).object(ObjectIndex(0)).unwrap();
    let wrong_end = Err(AssemblyError::WrongEnd(object.range));
    let finish = |whole, len| {
        let mut assembly = Assembly::new(Algorithm::Blake3, small());
        assembly.add(object.index, hash_part(Algorithm::Blake3, object, whole, &bytes));
        assembly.finish(ByteLen(len))
    };
    assert_eq!(finish(true, 5000), Ok(digest(Algorithm::Blake3, &bytes)));
    assert_eq!(finish(false, 5000), wrong_end);
    assert_eq!(finish(true, 5001), wrong_end);
}

#[test]
#[should_panic(expected = "md5 must be fed in order")]
fn part_hasher_of_a_serial_algorithm_panics() {
    PartHasher::new(Algorithm::Md5, PartPlace { offset: ByteOffset(0), whole: true });
}

#[test]
fn digests_that_cannot_be_combined_are_reported() {
    let crc = digest(Algorithm::Crc32, b"a");
    let other = digest(Algorithm::Crc32c, b"a");
    let one = ByteLen(1);
    assert_eq!(combine(Algorithm::Crc32, &[]), Ok(digest(Algorithm::Crc32, b"")));
    assert_eq!(
        combine(Algorithm::Crc32, &[(crc, one), (other, one)]),
        Err(CombineError::Mixed { number: 2, expected: Algorithm::Crc32, found: Algorithm::Crc32c })
    );
    assert_eq!(combine(Algorithm::Sha256, &[]), Err(CombineError::Serial(Algorithm::Sha256)));
    assert_eq!(combine(Algorithm::Blake3, &[]), Err(CombineError::Ended));
    assert_eq!(combine(Algorithm::Sysv, &[]), Err(CombineError::Folded));
    let long = ByteLen(u64::MAX);
    assert_eq!(combine(Algorithm::Crc32, &[(crc, long), (crc, one)]), Err(CombineError::TooLong));
}

#[test]
fn combined_digests_match_published_values() {
    // "123456789" as "1234" and "56789"; check values from zlib, GNU coreutils and the CRC
    // catalogue.
    for (algorithm, whole) in [
        (Algorithm::Adler32, "091e01de"),
        (Algorithm::Crc32, "cbf43926"),
        (Algorithm::Cksum, "377a6011"),
        (Algorithm::Crc64Eos, "6c40df5f0b497347"),
        (Algorithm::Crc16, "906e"),
    ] {
        let (left, right) = (digest(algorithm, b"1234"), digest(algorithm, b"56789"));
        let joined = combine(algorithm, &[(left, ByteLen(4)), (right, ByteLen(5))]).unwrap();
        assert_eq!(joined.to_string(), whole, "{algorithm}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Parts that were written and parsed again join to the file, and the leaves of each part join
    /// to the part.
    #[test]
    fn parsed_parts_and_leaves_combine_to_the_file_digest(len in 0usize..300_000, leaf_shift in 10u32..15) {
        let bytes = pattern(len);
        let geometry = cut(&bytes);
        for algorithm in combining().filter(|algorithm| algorithm.digests_join()) {
            let mut assembly = Assembly::new(algorithm, small());
            for object in geometry.objects() {
                let place = PartPlace { offset: object.range.start, whole: geometry.count() == 1 };
                let len = ByteLen(object.range.len());
                let part = hash_part(algorithm, object, place.whole, &bytes);
                let mut joint = Joint::new(algorithm, place);
                let leaves: Vec<&[u8]> = content(&bytes, object.range).chunks(1 << leaf_shift).collect();
                for (number, leaf) in leaves.iter().enumerate() {
                    let offset = ByteOffset(object.range.start.0 + ((number as u64) << leaf_shift));
                    let whole = place.whole && leaves.len() == 1;
                    let mut hasher = PartHasher::new(algorithm, PartPlace { offset, whole });
                    hasher.update(leaf);
                    joint.add(hasher.finish().digest(), ByteLen(leaf.len() as u64)).unwrap();
                }
                prop_assert_eq!(joint.finish(), Some(part.digest()), "{}", algorithm);
                assembly.add(object.index, Part::from_digest(part.digest(), place, len));
            }
            prop_assert_eq!(assembly.finish(ByteLen(len as u64)), Ok(digest(algorithm, &bytes)));
        }
    }
}

#[test]
fn part_digest_equals_the_digest_of_its_bytes() {
    let bytes = pattern(100_000);
    let object = cut(&bytes).object(ObjectIndex(1)).unwrap();
    for algorithm in combining().filter(|&algorithm| algorithm != Algorithm::Blake3) {
        let part = hash_part(algorithm, object, false, &bytes);
        assert_eq!(part.digest(), digest(algorithm, content(&bytes, object.range)), "{algorithm}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Objects hashed separately, leaf by leaf, join to the file.
    #[test]
    fn parts_hashed_by_leaves_combine_to_the_file_digest(len in 0usize..300_000, leaf in proptest::sample::select(vec![1024u64, 4096, 65_536])) {
        let bytes = pattern(len);
        let geometry = cut(&bytes);
        let leaf = LeafSize::new(leaf, small()).unwrap();
        for algorithm in combining().filter(|algorithm| algorithm.digests_join()) {
            let mut assembly = Assembly::new(algorithm, small());
            for object in geometry.objects() {
                let mut hasher = LeafHasher::new(algorithm, object.range.start, leaf);
                let mut count = 0;
                hasher.update(content(&bytes, object.range), |_| count += 1);
                let whole = geometry.count() == 1;
                let part = hasher.finish(whole, |_| count += 1);
                prop_assert_eq!(part.digest(), hash_part(algorithm, object, whole, &bytes).digest(), "{}", algorithm);
                let expected = if whole && len as u64 <= leaf.bytes() { 0 } else { object.range.len().div_ceil(leaf.bytes()) };
                prop_assert_eq!(count, expected);
                assembly.add(object.index, part);
            }
            prop_assert_eq!(assembly.finish(ByteLen(len as u64)), Ok(digest(algorithm, &bytes)));
        }
    }
}
