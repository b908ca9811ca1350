//! Tests of hash trees against their definition.

use crate::{pattern, twin};
use haul_digest::tree::{TreeAssembly, TreeError, TreeHasher, TreeShape, node_digest, root_of};
use haul_digest::{Algorithm, Digest, digest};
use haul_model::{ByteLen, ByteRange, Geometry, ObjectSize};
use proptest::prelude::*;

fn shape(len: usize, leaf: usize) -> TreeShape {
    TreeShape::new(ByteLen(len as u64), ByteLen(leaf as u64))
}

fn leaves(algorithm: Algorithm, bytes: &[u8], leaf: usize) -> Vec<Digest> {
    bytes.chunks(leaf).map(|leaf| digest(algorithm, leaf)).collect()
}

#[test]
fn small_trees_match_the_reference() {
    let longest = pattern(200);
    for &algorithm in Algorithm::ALL {
        for leaf in [1, 2, 3, 7, 64] {
            for len in 0..=70 {
                let bytes = &longest[..len];
                let expected = twin::tree(algorithm, bytes, leaf);
                let mut hasher = TreeHasher::new(algorithm, ByteLen(leaf as u64));
                hasher.update(bytes);
                assert_eq!(hasher.finish(), expected, "{algorithm}, {len} bytes, leaves of {leaf}");
                assert_eq!(root_of(algorithm, &leaves(algorithm, bytes, leaf)), expected);
            }
        }
    }
}

#[test]
fn single_leaf_tree_has_the_plain_digest() {
    for len in [0, 1, 4095, 4096] {
        let bytes = pattern(len);
        let mut hasher = TreeHasher::new(Algorithm::Md5, ByteLen(4096));
        hasher.update(&bytes);
        assert_eq!(hasher.finish(), digest(Algorithm::Md5, &bytes));
    }
}

#[test]
fn tree_of_three_leaves_matches_manual_nodes() {
    let [a, b, c] = [&b"aaaa"[..], b"bbbb", b"cc"].map(|leaf| digest(Algorithm::Sha256, leaf));
    let mut hasher = TreeHasher::new(Algorithm::Sha256, ByteLen(4));
    hasher.update(b"aaaabbbbcc");
    assert_eq!(hasher.finish(), node_digest(node_digest(a, b), c));
    let by_hand = digest(Algorithm::Sha256, &[a.as_bytes(), b.as_bytes()].concat());
    assert_eq!(node_digest(a, b), by_hand);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn leaves_assemble_in_any_order(
        len in 0usize..5000,
        leaf in 1usize..600,
        seed in proptest::collection::vec(any::<u32>(), 5000),
        number in 0..Algorithm::ALL.len(),
    ) {
        let algorithm = Algorithm::ALL[number];
        let bytes = pattern(len);
        let mut order: Vec<(usize, Digest)> =
            leaves(algorithm, &bytes, leaf).into_iter().enumerate().collect();
        order.sort_by_key(|&(leaf, _)| seed[leaf]);
        let mut assembly = TreeAssembly::new(algorithm);
        for (leaf, leaf_digest) in order {
            assembly.add(leaf as u64, leaf_digest);
        }
        prop_assert_eq!(assembly.finish(shape(len, leaf)), Ok(twin::tree(algorithm, &bytes, leaf)));
    }

    #[test]
    fn stream_with_holes_matches_the_reference(
        runs in proptest::collection::vec((any::<bool>(), 0usize..3000), 0..12),
        leaf in 1usize..900,
    ) {
        let mut hasher = TreeHasher::new(Algorithm::Sha1, ByteLen(leaf as u64));
        let mut dense = Vec::new();
        for (hole, len) in runs {
            let bytes = if hole { vec![0; len] } else { pattern(len) };
            if hole { hasher.update_zeros(len as u64) } else { hasher.update(&bytes) }
            dense.extend_from_slice(&bytes);
        }
        prop_assert_eq!(hasher.finish(), twin::tree(Algorithm::Sha1, &dense, leaf));
    }

    #[test]
    fn flipped_byte_is_located_in_its_leaf(len in 1usize..5000, leaf in 1usize..600, at in any::<prop::sample::Index>()) {
        let mut bytes = pattern(len);
        let ours = leaves(Algorithm::Crc32, &bytes, leaf);
        let at = at.index(len);
        bytes[at] ^= 0x10;
        let theirs = leaves(Algorithm::Crc32, &bytes, leaf);
        let shape = shape(len, leaf);
        let expected = shape.range_of((at / leaf) as u64).unwrap();
        prop_assert!(expected.start.0 <= at as u64 && (at as u64) < expected.end.0);
        prop_assert_eq!(shape.mismatches(&ours, &theirs), vec![expected]);
        prop_assert_eq!(shape.mismatches(&ours, &ours), vec![]);
    }
}

#[test]
fn differing_and_missing_leaves_are_reported() {
    let ours = leaves(Algorithm::Md5, b"aabbccddee", 2);
    let mut theirs = leaves(Algorithm::Md5, b"aaBBCCddee", 2);
    let shape = shape(10, 2);
    let [second, third] = [ByteRange::between(2, 4), ByteRange::between(4, 6)];
    assert_eq!(shape.mismatches(&ours, &theirs), [second, third]);
    theirs.pop();
    assert_eq!(shape.mismatches(&ours, &theirs), [second, third, ByteRange::between(8, 10)]);
    assert_eq!(shape.mismatches(&ours[..1], &theirs[..1]), []);
    assert_eq!(shape.ranges().count() as u64, shape.leaf_count());
    assert_eq!(shape.range_of(5), None);
}

#[test]
fn missing_duplicate_and_surplus_leaves_are_reported() {
    let all = leaves(Algorithm::Md5, &pattern(50), 10);
    let finish = |which: &[u64], len| {
        let mut assembly = TreeAssembly::new(Algorithm::Md5);
        for &leaf in which {
            assembly.add(leaf, all[leaf as usize]);
        }
        assembly.finish(shape(len, 10))
    };
    assert!(finish(&[4, 3, 2, 1, 0], 50).is_ok());
    assert_eq!(finish(&[0, 1, 3, 4], 50), Err(TreeError::Missing(ByteRange::between(20, 30))));
    assert_eq!(finish(&[0, 1], 45), Err(TreeError::Missing(ByteRange::between(20, 45))));
    assert_eq!(finish(&[0, 1, 1], 20), Err(TreeError::Duplicate(1)));
    assert_eq!(finish(&[0, 1, 2], 20), Err(TreeError::Beyond { found: 3, expected: 2 }));
    assert_eq!(finish(&[], 0), Ok(digest(Algorithm::Md5, b"")));
}

#[test]
fn tree_shape_of_a_geometry_has_one_leaf_per_object() {
    let geometry = Geometry::new(ByteLen((9 << 20) + 1), ObjectSize::DEFAULT);
    let shape = TreeShape::from(geometry);
    assert!(shape.ranges().eq(geometry.objects().map(|object| object.range)));
    assert_eq!(shape.leaf_size().0, ObjectSize::DEFAULT.bytes());
}
