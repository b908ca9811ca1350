//! Tests of one stream with any division of the bytes, against the slow references.

use crate::{pattern, twin};
use haul_digest::lanes::{LaneAlgorithm, hash_many};
use haul_digest::{
    Algebra, Algorithm, Blake2bLen, Blake3Mode, Digest, ExtendedBlake3, Hasher, combine, digest,
};
use haul_model::ByteLen;
use proptest::prelude::*;
use sha2::Digest as _;

/// Up to 9,000 bytes: more than the block size of each algorithm and the unrolled loops of the
/// CRCs.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        proptest::collection::vec(any::<u8>(), 300..9000),
        (any::<u8>(), 0usize..9000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Returns the MD5, SHA-1, SHA-2 and SHA-3 of RustCrypto, which under WebAssembly are the crate's
/// own.
fn other_crate(algorithm: Algorithm, bytes: &[u8]) -> Option<Vec<u8>> {
    Some(match algorithm {
        Algorithm::Md5 => md5::Md5::digest(bytes).to_vec(),
        Algorithm::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
        Algorithm::Sha224 => sha2::Sha224::digest(bytes).to_vec(),
        Algorithm::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
        Algorithm::Sha384 => sha2::Sha384::digest(bytes).to_vec(),
        Algorithm::Sha512 => sha2::Sha512::digest(bytes).to_vec(),
        Algorithm::Sha3_224 => sha3::Sha3_224::digest(bytes).to_vec(),
        Algorithm::Sha3_256 => sha3::Sha3_256::digest(bytes).to_vec(),
        Algorithm::Sha3_384 => sha3::Sha3_384::digest(bytes).to_vec(),
        Algorithm::Sha3_512 => sha3::Sha3_512::digest(bytes).to_vec(),
        _ => return None,
    })
}

/// Returns every algorithm, and BLAKE2b of some more lengths.
fn all_lengths() -> impl Iterator<Item = Algorithm> {
    let short = [1, 20, 32, 63].map(|len| Algorithm::Blake2bOf(Blake2bLen::new(len).unwrap()));
    Algorithm::ALL.iter().copied().chain(short)
}

#[test]
fn every_algorithm_has_a_reference_implementation() {
    for algorithm in all_lengths() {
        assert!(twin::bytes(algorithm, b"").or(other_crate(algorithm, b"")).is_some(), "{algorithm}");
    }
}

/// Compares every algorithm that has a reference with that reference.
fn agree_with_twins(bytes: &[u8]) {
    for algorithm in all_lengths() {
        let ours = digest(algorithm, bytes);
        if let Some(twin) = twin::bytes(algorithm, bytes) {
            assert_eq!(ours.as_bytes(), twin, "{algorithm} of {} bytes", bytes.len());
        }
        if let Some(other) = other_crate(algorithm, bytes) {
            assert_eq!(ours.as_bytes(), other, "{algorithm} of {} bytes", bytes.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_content_matches_the_references(bytes in content()) {
        agree_with_twins(&bytes);
    }

    #[test]
    fn update_boundaries_do_not_change_the_digest(bytes in content(), cuts in proptest::collection::vec(1usize..2000, 1..20)) {
        for algorithm in all_lengths() {
            let mut hasher = Hasher::new(algorithm);
            let mut rest = bytes.as_slice();
            for &cut in cuts.iter().cycle() {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                hasher.update(head);
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            hasher.update(&[]);
            prop_assert_eq!(hasher.clone().finish(), digest(algorithm, &bytes));
            prop_assert_eq!(hasher.algorithm(), algorithm);
        }
    }

    #[test]
    fn holes_hash_as_zeros(head in content(), hole in 0u64..150_000, tail in content()) {
        let mut dense = head.clone();
        dense.resize(head.len() + hole as usize, 0);
        dense.extend_from_slice(&tail);
        for &algorithm in Algorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(&head);
            hasher.update_zeros(hole);
            hasher.update(&tail);
            prop_assert_eq!(hasher.finish(), digest(algorithm, &dense));
        }
    }
}

#[test]
fn edge_lengths_match_the_references() {
    let longest = pattern(70_000);
    for middle in [64, 128, 256, 1024, 4096, 65_536] {
        for len in middle - 1..=middle + 1 {
            agree_with_twins(&longest[..len]);
            agree_with_twins(&longest[3..3 + len]);
        }
    }
}

/// Each form of XXH3 and each shape of BLAKE3's tree up to nine chunks, at the lengths of their
/// boundaries.
#[test]
fn lengths_at_form_boundaries_match_the_references() {
    let longest = pattern(9 * 1024 + 1);
    let short = (0..=300).chain([511, 512, 513, 1023, 1024, 1025, 1026, 1087, 1088, 1089, 2047, 2048, 2049]);
    let chunks = (2..=9).flat_map(|chunks| [chunks * 1024 - 1, chunks * 1024, chunks * 1024 + 1]);
    for len in short.chain(chunks) {
        agree_with_twins(&longest[..len]);
    }
}

#[test]
fn blake3_modes_and_lengths_match_the_reference() {
    let longest = pattern(5000);
    let modes = [
        Blake3Mode::Hash,
        Blake3Mode::Keyed(std::array::from_fn(|at| at as u8)),
        Blake3Mode::DeriveKey("a context".to_owned()),
    ];
    for mode in &modes {
        for len in [0, 1, 63, 64, 65, 1024, 1025, 3072, 5000] {
            let mut hasher = ExtendedBlake3::new(mode);
            longest[..len].chunks(100).for_each(|piece| hasher.update(piece));
            for (seek, bytes) in [(0, 32), (0, 200), (1, 63), (64, 64), (100, 5), (1000, 130)] {
                let mut found = vec![0; bytes];
                let mut output = hasher.clone().finish();
                output.seek(seek);
                output.fill(&mut found);
                assert_eq!(
                    found,
                    twin::blake3_output(mode, &longest[..len], seek, bytes),
                    "{mode:?} {len} {seek}"
                );
            }
        }
    }
    assert_eq!(format!("{:?}", modes[1]), "Keyed(..)");
}

#[test]
fn lanes_match_single_streams() {
    let longest = pattern(3000);
    let messages: Vec<&[u8]> = (0..60).map(|number| &longest[..number * 50]).collect();
    for lanes in LaneAlgorithm::ALL {
        let digests = hash_many(lanes, &messages);
        for (message, lane) in messages.iter().zip(&digests) {
            assert_eq!(Digest::from_lane(lanes, lane), digest(lanes.into(), message));
        }
    }
}

#[test]
fn adler_sums_do_not_overflow() {
    // 5,552 bytes of 0xff are the maximum for a 32-bit sum without a division.
    for len in [5551, 5552, 5553, 11_104, 11_105, 65_521, 65_522, 1 << 20] {
        let bytes = vec![0xff; len];
        assert_eq!(digest(Algorithm::Adler32, &bytes).value(), twin::number(Algorithm::Adler32, &bytes));
    }
}

#[test]
fn tebibyte_hole_matches_combined_digests() {
    const TEBIBYTE: u64 = 1 << 40;
    for algorithm in crate::joinable() {
        let zeros = |len| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update_zeros(len);
            hasher.finish()
        };
        let mut doubled = digest(algorithm, &[0]);
        let mut len = 1;
        while len < TEBIBYTE {
            doubled = combine(algorithm, &[(doubled, ByteLen(len)), (doubled, ByteLen(len))]).unwrap();
            len *= 2;
        }
        assert_eq!(zeros(TEBIBYTE), doubled, "{algorithm}");
        let odd = combine(algorithm, &[(doubled, ByteLen(len)), (zeros(12_345), ByteLen(12_345))]);
        assert_eq!(odd, Ok(zeros(TEBIBYTE + 12_345)), "{algorithm}");
    }
}

#[test]
fn serial_and_combinable_algorithms_are_distinguished() {
    let serial = |algorithm: Algorithm| algorithm.algebra() == Algebra::Serial;
    assert!(serial(Algorithm::Md5) && serial(Algorithm::Xxh3_64) && serial(Algorithm::Blake2b));
    assert_eq!(crate::combining().count(), 10);
}
