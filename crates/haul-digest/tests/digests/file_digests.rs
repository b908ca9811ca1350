//! Tests of the accumulator of a file's digests against its slow reference.

use crate::reference::{Reference, ReferenceSum};
use crate::{pattern, twin};
use haul_digest::{
    Added, Algebra, Algorithm, Digest, DigestSpec, FileDigest, FileSum, Form, KEPT_MAX, Missing,
    ObjectDigest, Recipe, digest,
};
use haul_model::{ByteLen, ByteRange, Geometry, LeafSize, Object, ObjectIndex, ObjectSize};
use proptest::prelude::*;

/// The smallest object size, in bytes.
const PIECE: usize = 64 << 10;

fn size() -> ObjectSize {
    ObjectSize::new(PIECE as u64).unwrap()
}

fn geometry(len: usize) -> Geometry {
    Geometry::new(ByteLen(len as u64), size())
}

fn leaf(bytes: u64) -> Option<LeafSize> {
    Some(LeafSize::new(bytes, size()).unwrap())
}

/// Returns every form that suits objects of [`PIECE`] bytes.
fn forms() -> [Form; 9] {
    let tree = |leaf, keep: Option<u64>| Form::Tree { leaf: ByteLen(leaf), keep: keep.map(ByteLen) };
    [
        Form::Plain,
        Form::Apart,
        Form::Objects { leaf: None },
        Form::Objects { leaf: leaf(1024) },
        Form::Objects { leaf: leaf(PIECE as u64) },
        tree(4096, None),
        tree(PIECE as u64, None),
        tree(4096, Some(4096)),
        tree(1024, Some(32 << 10)),
    ]
}

/// Returns every digest in every form that it has.
fn specs() -> Vec<DigestSpec> {
    let all = Algorithm::ALL.iter().flat_map(|&alg| forms().map(|form| DigestSpec::new(alg, form)));
    all.filter(|spec| !matches!(spec.form, Form::Objects { .. }) || spec.algorithm.digests_join()).collect()
}

/// Returns bytes of which some ranges are zeros.
fn content(len: usize, holes: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = pattern(len);
    for &(start, hole) in holes {
        let start = start.min(len);
        bytes[start..len.min(start + hole)].fill(0);
    }
    bytes
}

/// Feeds bytes in pieces; those that are all zeros as a hole.
fn feed(bytes: &[u8], chunk: usize, mut each: impl FnMut(Result<&[u8], u64>)) {
    for piece in bytes.chunks(chunk) {
        let is_hole = piece.iter().all(|&byte| byte == 0);
        each(if is_hole { Err(piece.len() as u64) } else { Ok(piece) });
    }
}

fn feed_object(mut object: ObjectDigest, bytes: &[u8], chunk: usize) -> ObjectDigest {
    feed(bytes, chunk, |piece| match piece {
        Ok(bytes) => object.update(bytes),
        Err(hole) => object.zeros(hole),
    });
    object
}

fn as_reference(sums: Vec<FileSum>) -> Vec<ReferenceSum> {
    let one = |FileSum { digest, objects, kept }| ReferenceSum {
        digest,
        objects: objects.map(|table| table.iter().collect()),
        kept,
    };
    sums.into_iter().map(one).collect()
}

/// Hashes the objects in this order, and compares everything with the reference.
#[track_caller]
fn check(specs: &[DigestSpec], bytes: &[u8], order: &[u64], chunk: usize) {
    let recipe = Recipe::new(specs.iter().copied());
    let mut file = FileDigest::new(&recipe, geometry(bytes.len()));
    let mut reference = Reference::new(bytes, PIECE);
    for &index in order {
        let object = file.object(ObjectIndex(index)).unwrap();
        let was_added = file.has(object.index);
        let mut hasher = feed_object(file.begin(object), reference.object_bytes(index), chunk);
        let mut leaves: Vec<Digest> = hasher.take_leaves().collect();
        let sums = hasher.finish();
        leaves.extend(sums.leaves());
        for (number, &spec) in specs.iter().enumerate() {
            assert_eq!(sums.digest(number), reference.object(spec, index), "{spec:?}, object {index}");
        }
        let of_object =
            |spec: &DigestSpec| reference.leaves(*spec).into_iter().filter(|leaf| leaf.0.0 == index);
        let expected = specs.iter().flat_map(of_object).map(|(_, leaf)| leaf);
        let by_spec =
            specs.iter().filter(|spec| matches!(spec.form, Form::Objects { leaf: Some(_) })).count();
        if by_spec <= 1 {
            assert!(expected.eq(leaves), "{specs:?}: leaves of object {index}");
        }
        assert_eq!(file.add(sums), if was_added { Added::Twice } else { Added::Once });
        reference.add(index);
    }
    let expected = reference.finish(specs);
    for (number, spec) in specs.iter().enumerate() {
        let alone = reference.finish(std::slice::from_ref(spec)).map(|sums| sums[0].digest);
        if spec.form != Form::Apart {
            assert_eq!(file.digest(number), alone, "{spec:?} of {} bytes, {order:?}", bytes.len());
        }
    }
    assert_eq!(file.finish().map(as_reference), expected, "{specs:?} of {} bytes, {order:?}", bytes.len());
}

fn check_stream(specs: &[DigestSpec], bytes: &[u8], chunk: usize) {
    let mut stream = FileDigest::stream(&Recipe::new(specs.iter().copied()), size());
    let mut leaves = Vec::new();
    feed(bytes, chunk, |piece| {
        match piece {
            Ok(bytes) => stream.update(bytes),
            Err(hole) => stream.zeros(hole),
        }
        leaves.extend(stream.take_leaves());
    });
    let (sums, rest) = stream.finish().unwrap();
    leaves.extend(rest);
    let reference = Reference::complete(bytes, PIECE);
    let expected = reference.finish(specs).unwrap();
    assert_eq!(as_reference(sums), expected, "{specs:?} of {} bytes as a stream", bytes.len());
    if let [spec] = specs {
        assert_eq!(leaves, reference.leaves(*spec), "{spec:?} of {} bytes as a stream", bytes.len());
    }
}

#[test]
fn every_digest_in_every_form_matches_the_reference_on_edge_lengths() {
    for len in [0, 1, 1024, 1025, PIECE, PIECE + 1, PIECE + 1024, 3 * PIECE - 1] {
        let bytes = content(len, &[(700, 3000), (PIECE, PIECE)]);
        let forward: Vec<u64> = (0..geometry(len).count()).collect();
        for spec in specs() {
            check(&[spec], &bytes, &forward, 10_000);
            check_stream(&[spec], &bytes, 10_000);
        }
    }
}

/// An algorithm and a form, a file, an order of its objects, and the size of pieces.
type Case = (Vec<DigestSpec>, Vec<u8>, Vec<u64>, usize);

fn cases() -> impl Strategy<Value = Case> {
    let specs = proptest::collection::vec(proptest::sample::select(specs()), 1..4);
    let holes = proptest::collection::vec((0..5 * PIECE, 0..2 * PIECE), 0..3);
    let chunk = prop_oneof![Just(1024_usize), 1_usize..3000, Just(PIECE), 5000_usize..200_000];
    (specs, 0..4 * PIECE + 100, holes, chunk).prop_flat_map(|(specs, len, holes, chunk)| {
        let count = geometry(len).count();
        let forward: Vec<u64> = (0..count).collect();
        let orders = prop_oneof![
            2 => Just(forward.clone()),
            3 => Just(forward).prop_shuffle(),
            // Some objects are missing, and some come twice.
            2 => proptest::collection::vec(0..count.max(1), 0..8),
        ];
        let orders = orders.prop_map(move |order| if count == 0 { Vec::new() } else { order });
        (Just(specs), Just(content(len, &holes)), orders, Just(chunk))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn objects_in_any_order_match_the_reference((specs, bytes, order, chunk) in cases()) {
        check(&specs, &bytes, &order, chunk);
    }

    #[test]
    fn streams_match_the_reference((specs, bytes, _, chunk) in cases()) {
        check_stream(&specs, &bytes, chunk);
    }

    /// A tree may be cut into pieces of any size that has whole subtrees, and streams into leaves
    /// of any size.
    #[test]
    fn trees_in_pieces_match_the_reference(
        algorithm in proptest::sample::select(Algorithm::ALL),
        leaf in 1_u64..3000,
        (per_unit, keeps) in (0_u32..4, any::<bool>()),
        units in 1_u64..5,
        len in 0_usize..40_000,
        is_known in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let bytes = content(len, &[(len / 3, len / 4)]);
        let unit = leaf << if keeps { per_unit } else { 0 };
        let form = Form::Tree { leaf: ByteLen(leaf), keep: keeps.then_some(ByteLen(unit)) };
        let specs = [DigestSpec::new(algorithm, form)];
        let piece = (unit * units).max(1000_u64.next_multiple_of(unit));
        let recipe = Recipe::new(specs);
        let mut file = FileDigest::in_pieces(&recipe, ByteLen(len as u64), ByteLen(piece));
        let reference = Reference::complete(&bytes, piece as usize);
        for index in (0..(len as u64).div_ceil(piece)).rev() {
            let object = file.object(ObjectIndex(index)).unwrap();
            let part = reference.object_bytes(index);
            let added = if is_known[index as usize % 40] {
                let leaves = part.chunks(leaf as usize).map(|leaf| digest(algorithm, leaf)).collect();
                file.known_leaves(object, vec![leaves])
            } else {
                let sums = feed_object(file.begin(object), part, 777).finish();
                file.add(sums)
            };
            prop_assert_eq!(added, Added::Once);
        }
        let expected = reference.finish(&specs);
        prop_assert_eq!(file.finish().map(as_reference), expected);
        check_stream(&specs, &bytes, 5000);
    }

    /// Digests of objects that an earlier run computed count as if their bytes were hashed.
    #[test]
    fn known_digests_match_the_reference(
        algorithm in proptest::sample::select(Algorithm::ALL),
        keeps in any::<bool>(),
        len in 1..4 * PIECE,
        is_known in proptest::collection::vec(any::<bool>(), 4),
    ) {
        let joins = algorithm.digests_join();
        let form = match joins {
            true if keeps => Form::Objects { leaf: None },
            true => Form::Plain,
            false => Form::Tree { leaf: ByteLen(PIECE as u64), keep: keeps.then_some(ByteLen(PIECE as u64)) },
        };
        let spec = DigestSpec::new(algorithm, form);
        let bytes = content(len, &[]);
        let reference = Reference::complete(&bytes, PIECE);
        let mut file = FileDigest::new(&Recipe::new([spec]), geometry(len));
        for object in geometry(len).objects() {
            let part = reference.object_bytes(object.index.0);
            let added = match is_known[object.index.0 as usize] {
                true => {
                    let known = reference.object(spec, object.index.0);
                    let known = known.unwrap_or_else(|| twin::tree(algorithm, part, PIECE));
                    file.known(object, &[known])
                }
                false => {
                    let sums = feed_object(file.begin(object), part, 4096).finish();
                    file.add(sums)
                }
            };
            prop_assert_eq!(added, Added::Once);
        }
        let expected = reference.finish(&[spec]);
        prop_assert_eq!(file.finish().map(as_reference), expected);
    }
}

fn file_of(specs: &[DigestSpec], len: usize) -> FileDigest {
    FileDigest::new(&Recipe::new(specs.iter().copied()), geometry(len))
}

fn object(file: &FileDigest, index: u64) -> Object {
    file.object(ObjectIndex(index)).unwrap()
}

/// Hashes an object and adds it, with [`FileDigest::replace`] if it was rejected before.
fn put(file: &mut FileDigest, index: u64, bytes: &[u8]) -> Added {
    let sums = feed_object(file.begin(object(file, index)), bytes, PIECE).finish();
    file.replace(sums)
}

#[test]
fn dropped_and_incomplete_objects_change_nothing() {
    let bytes = pattern(3 * PIECE);
    for &algorithm in Algorithm::ALL {
        let specs = [DigestSpec::new(algorithm, Form::Plain)];
        let mut file = file_of(&specs, bytes.len());
        for (index, part) in (0..).zip(bytes.chunks(PIECE)) {
            drop(feed_object(file.begin(object(&file, index)), &part[..PIECE / 2], 1000));
            let half = feed_object(file.begin(object(&file, index)), &part[..PIECE / 2], 1000).finish();
            assert_eq!(file.add(half), Added::Misfit);
            assert_eq!(put(&mut file, index, part), Added::Once);
        }
        assert_eq!(file.digest(0), Ok(Some(digest(algorithm, &bytes))), "{algorithm}");
        let other = file_of(&specs, 5 * PIECE);
        let beyond = feed_object(other.begin(object(&other, 4)), &bytes[..PIECE], PIECE).finish();
        assert_eq!(file.add(beyond), Added::Misfit, "an object past the end");
    }
}

#[test]
fn replaced_object_counts_with_its_last_digest_where_it_is_kept() {
    let bytes = pattern(2 * PIECE + 5);
    let mut damaged = bytes[..PIECE].to_vec();
    damaged[7] ^= 1;
    let blake3 = Algorithm::Blake3;
    let specs = [DigestSpec::new(blake3, Form::Objects { leaf: None }), DigestSpec::new(blake3, Form::Plain)];
    let mut file = file_of(&specs, bytes.len());
    assert_eq!(put(&mut file, 0, &damaged), Added::Once);
    assert_eq!(file.missing(ObjectIndex(0)), Some(object(&file, 1)));
    assert_eq!(file.missing(ObjectIndex(2)), Some(object(&file, 2)));
    assert_eq!(put(&mut file, 2, &bytes[2 * PIECE..]), Added::Once);
    let gap = ByteRange::between(PIECE as u64, 2 * PIECE as u64);
    assert_eq!(file.digest(0), Err(Missing::Bytes(gap)));
    assert_eq!(put(&mut file, 1, &bytes[PIECE..2 * PIECE]), Added::Once);
    assert_eq!(put(&mut file, 0, &bytes[..PIECE]), Added::Twice);
    assert_eq!(file.missing(ObjectIndex(0)), None);
    assert_eq!(file.digest(0), Ok(Some(digest(blake3, &bytes))));
    assert_ne!(file.digest(1), file.digest(0), "the value of the file counts the first");
    file.restart();
    for (index, part) in (0..).zip(bytes.chunks(PIECE)) {
        put(&mut file, index, part);
    }
    assert_eq!(file.digest(1), Ok(Some(digest(blake3, &bytes))));
}

/// Both sides of a resumed transfer add the rest of the objects.
#[test]
fn digest_in_order_covers_the_objects_that_were_added() {
    let bytes = pattern(4 * PIECE);
    let specs = [
        DigestSpec::new(Algorithm::Md5, Form::Plain),
        DigestSpec::new(Algorithm::Blake3, Form::Objects { leaf: None }),
    ];
    let mut file = file_of(&specs, bytes.len());
    put(&mut file, 1, &bytes[PIECE..2 * PIECE]);
    put(&mut file, 3, &bytes[3 * PIECE..]);
    // Objects that were not sent are hashed later, and the digest in order does not have them.
    for late in [0, 2] {
        let hasher = Recipe::new(specs).object(object(&file, late), false);
        let start = late as usize * PIECE;
        let sums = feed_object(hasher, &bytes[start..start + PIECE], PIECE).finish();
        assert_eq!(file.add(sums), Added::Once);
    }
    let sent = [&bytes[PIECE..2 * PIECE], &bytes[3 * PIECE..]].concat();
    assert_eq!(file.digest_of_added(0), Some(digest(Algorithm::Md5, &sent)));
    assert_eq!(file.digest(0), Err(Missing::Order(Algorithm::Md5)));
    assert_eq!(file.digest(1), Ok(Some(digest(Algorithm::Blake3, &bytes))));
    assert_eq!(file.missing(ObjectIndex(0)), None);
}

#[test]
fn recipe_without_digests_of_the_file_misses_nothing() {
    let serial = DigestSpec::new(Algorithm::Md5, Form::Plain);
    let apart = DigestSpec::new(Algorithm::Md5, Form::Apart);
    for specs in [vec![], vec![serial], vec![apart], vec![serial, apart]] {
        let file = file_of(&specs, 3 * PIECE);
        assert_eq!(file.missing(ObjectIndex(0)), None);
        assert_eq!(file.begin(object(&file, 0)).is_needed(), !specs.is_empty());
    }
    let known = digest(Algorithm::Md5, b"elsewhere");
    let file = file_of(&[apart], PIECE);
    let hasher = file.begin(object(&file, 0)).with_known(0, known);
    assert!(!hasher.is_needed());
    assert_eq!(hasher.finish().digest(0), Some(known));
    assert_eq!(Algorithm::Md5.algebra(), Algebra::Serial);
}

/// Files of exabytes of which a peer names some objects: memory follows what was added.
#[test]
fn objects_of_a_huge_file_take_memory_by_their_number() {
    let blake3 = DigestSpec::new(Algorithm::Blake3, Form::Objects { leaf: None });
    let plain = DigestSpec::new(Algorithm::Crc32c, Form::Plain);
    let unit = Form::Tree { leaf: ByteLen(PIECE as u64), keep: Some(ByteLen(PIECE as u64)) };
    let tree = DigestSpec::new(Algorithm::Blake3, unit);
    let value = digest(Algorithm::Blake3, b"object");
    let mut file =
        FileDigest::new(&Recipe::new([blake3, plain, tree]), Geometry::new(ByteLen(u64::MAX), size()));
    for index in [0, 1, 7 << 30, u64::MAX / PIECE as u64 - 1] {
        let object = object(&file, index);
        let crc = digest(Algorithm::Crc32c, &index.to_le_bytes());
        assert_eq!(file.known(object, &[value, crc, value]), Added::Once);
        assert_eq!(file.known(object, &[value, crc, value]), Added::Twice);
    }
    assert_eq!(file.objects(0).unwrap().count(), 4);
    let gap = ByteRange::between(2 * PIECE as u64, (7 << 30) * PIECE as u64);
    assert_eq!(file.finish(), Err(Missing::Bytes(gap)));
}

#[test]
fn more_subtrees_than_are_kept_are_an_error() {
    let form = Form::Tree { leaf: ByteLen(1), keep: Some(ByteLen(1)) };
    let recipe = Recipe::new([DigestSpec::new(Algorithm::Crc16, form)]);
    for (len, is_kept) in [(KEPT_MAX, true), (KEPT_MAX + 1, false), (3 * KEPT_MAX, false)] {
        let mut stream = FileDigest::stream(&recipe, size());
        stream.zeros(len);
        let kept = stream.finish().map(|(sums, _)| sums[0].kept.len() as u64);
        assert_eq!(kept, if is_kept { Ok(KEPT_MAX) } else { Err(Missing::Subtrees) });
    }
}
