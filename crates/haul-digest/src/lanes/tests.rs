//! Tests of every backend of this CPU against published vectors and against the reference
//! implementation.

use proptest::prelude::*;

use super::*;

/// Test messages of RFC 1321 (appendix A.5) and of NIST's examples to FIPS 180-4, with their
/// digests.
#[rustfmt::skip]
const PUBLISHED: &[(LaneAlgorithm, &str, &str)] = &[
    (LaneAlgorithm::Md5, "", "d41d8cd98f00b204e9800998ecf8427e"),
    (LaneAlgorithm::Md5, "a", "0cc175b9c0f1b6a831c399e269772661"),
    (LaneAlgorithm::Md5, "abc", "900150983cd24fb0d6963f7d28e17f72"),
    (LaneAlgorithm::Md5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
    (LaneAlgorithm::Md5, "abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
    (LaneAlgorithm::Md5, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
    (LaneAlgorithm::Md5, "12345678901234567890123456789012345678901234567890123456789012345678901234567890", "57edf4a22be3c955ac49da2e2107b67a"),
    (LaneAlgorithm::Sha1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    (LaneAlgorithm::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
    (LaneAlgorithm::Sha1, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
    (LaneAlgorithm::Sha224, "", "d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f"),
    (LaneAlgorithm::Sha224, "abc", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"),
    (LaneAlgorithm::Sha224, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "75388b16512776cc5dba5da1fd890150b0c6455cb4f58b1952522525"),
    (LaneAlgorithm::Sha256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    (LaneAlgorithm::Sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (LaneAlgorithm::Sha256, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
    (LaneAlgorithm::Sha384, "", "38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b"),
    (LaneAlgorithm::Sha384, "abc", "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"),
    (LaneAlgorithm::Sha384, "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu", "09330c33f71147e83d192fc782cd1b4753111b173b3b05d22fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039"),
    (LaneAlgorithm::Sha512, "", "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e"),
    (LaneAlgorithm::Sha512, "abc", "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"),
    (LaneAlgorithm::Sha512, "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu", "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"),
];

/// The long example of FIPS 180-4: a million times the letter a.
#[rustfmt::skip]
const MILLION: &[(LaneAlgorithm, &str)] = &[
    (LaneAlgorithm::Md5, "7707d6ae4e027c70eea2a935c2296f21"),
    (LaneAlgorithm::Sha1, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
    (LaneAlgorithm::Sha224, "20794655980c91d8bbb4c1ea97618a4bf03f42581948b2ee4ee7ad67"),
    (LaneAlgorithm::Sha256, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    (LaneAlgorithm::Sha384, "9d0e1809716474cb086e834e310a4a1ced149e9c00f248527972cec5704c2a5b07b8b3dc38ecc4ebae97ddd87f3d8985"),
    (LaneAlgorithm::Sha512, "e718483d0ce769644e2e42c7bc15b4638e1f98b13b2044285632a803afa973ebde0ff244877ea60a4cb0432ce577c31beb009c5c2c49aa2e4eadb217ad8cc09b"),
];

/// Lengths at which the padding grows from one block to two, and lengths around the ends of blocks,
/// for both block sizes.
const EDGES: [usize; 26] = [
    0, 1, 3, 55, 56, 57, 63, 64, 65, 111, 112, 113, 119, 120, 121, 127, 128, 129, 183, 191, 192, 193, 239,
    240, 256, 1000,
];

/// Returns pseudo-random bytes, because a pattern could hide mixed-up lanes.
fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Returns streams of every backend that has the algorithm, those of the plan, which mixes
/// backends, and those of the plan without one backend: of a CPU that lacks it.
fn every(algorithm: LaneAlgorithm) -> Vec<(String, Streams)> {
    let mut all = vec![("chosen".to_string(), Streams::new(algorithm))];
    for backend in backends() {
        let others: Vec<Backend> = backends().into_iter().filter(|other| *other != backend).collect();
        let (only, without) =
            (Streams::with_backend(algorithm, backend), Streams::with_backends(algorithm, &others));
        all.extend(only.map(|streams| (format!("only {backend:?}"), streams)));
        all.extend(without.map(|streams| (format!("without {backend:?}"), streams)));
    }
    all
}

#[test]
fn reference_and_backends_match_published_digests() {
    for &(algorithm, message, hex) in PUBLISHED {
        let twin: String =
            twin::digest(algorithm, message.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(twin, hex, "the twin on {algorithm:?} of {message:?}");
        for (name, mut streams) in every(algorithm) {
            let slot = streams.width() - 1;
            streams.update(&[(slot, message.as_bytes())]);
            assert_eq!(streams.finish(slot).to_string(), hex, "{name} on {algorithm:?} of {message:?}");
        }
    }
}

#[test]
fn million_letter_vector_matches_in_every_lane() {
    let million = vec![b'a'; 1_000_000];
    for &(algorithm, hex) in MILLION {
        for backend in backends() {
            let Some(digests) = hash_many_with(algorithm, backend, &[million.as_slice(); 3]) else {
                continue;
            };
            assert!(digests.iter().all(|digest| digest.to_string() == hex), "{backend:?} on {algorithm:?}");
        }
        assert_eq!(hash_many(algorithm, &[million.as_slice()])[0].to_string(), hex, "{algorithm:?}");
    }
}

#[test]
fn edge_lengths_match_the_reference_in_any_number_of_lanes() {
    for algorithm in LaneAlgorithm::ALL {
        let messages: Vec<Vec<u8>> = EDGES.iter().map(|&len| noise(len, len)).collect();
        let expected: Vec<Vec<u8>> =
            messages.iter().map(|message| twin::digest(algorithm, message)).collect();
        for (name, mut streams) in every(algorithm) {
            for active in 1..=streams.width() {
                let edge = |slot: usize| (7 * slot + active) % EDGES.len();
                let inputs: Vec<(usize, &[u8])> =
                    (0..active).map(|slot| (slot, messages[edge(slot)].as_slice())).collect();
                streams.update(&inputs);
                let slots: Vec<usize> = (0..active).rev().collect();
                for (slot, digest) in slots.iter().zip(streams.finish_many(&slots)) {
                    let len = EDGES[edge(*slot)];
                    assert_eq!(
                        *digest,
                        *expected[edge(*slot)],
                        "{name}, {algorithm:?}, {active} lanes, {len} bytes"
                    );
                }
            }
        }
    }
}

#[test]
fn more_messages_than_lanes_match_the_reference() {
    for algorithm in LaneAlgorithm::ALL {
        let messages: Vec<Vec<u8>> = (0..75).map(|i| noise(i, (i * i * 37) % 3000)).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let expected: Vec<Vec<u8>> =
            messages.iter().map(|message| twin::digest(algorithm, message)).collect();
        let check = |name: &str, digests: Vec<LaneDigest>| {
            assert_eq!(digests.len(), expected.len());
            for (i, (digest, expected)) in digests.iter().zip(&expected).enumerate() {
                assert_eq!(**digest, **expected, "{name}, {algorithm:?}, message {i}");
            }
        };
        check("chosen", hash_many(algorithm, &messages));
        for backend in backends() {
            if let Some(digests) = hash_many_with(algorithm, backend, &messages) {
                check(&format!("{backend:?}"), digests);
            }
        }
        assert!(hash_many(algorithm, &[]).is_empty());
    }
}

#[test]
fn unaligned_inputs_match_the_reference() {
    let bytes = noise(5, 4096);
    for algorithm in LaneAlgorithm::ALL {
        for (name, mut streams) in every(algorithm) {
            let inputs: Vec<(usize, &[u8])> =
                (0..streams.width()).map(|slot| (slot, &bytes[slot * 5 + 1..slot * 5 + 1 + 640])).collect();
            streams.update(&inputs);
            for &(slot, message) in &inputs {
                assert_eq!(
                    *streams.finish(slot),
                    *twin::digest(algorithm, message),
                    "{name}, {algorithm:?}, {slot}"
                );
            }
        }
    }
}

#[test]
fn repeated_slot_appends_in_order_and_finishes_once() {
    let mut streams = Streams::new(LaneAlgorithm::Sha256);
    streams.update(&[(0, b"a"), (0, b"b"), (0, b"c")]);
    let digests = streams.finish_many(&[0, 0]);
    assert_eq!(*digests[0], *twin::digest(LaneAlgorithm::Sha256, b"abc"));
    assert_eq!(*digests[1], *twin::digest(LaneAlgorithm::Sha256, b""));
}

#[test]
fn reset_clears_one_slot_and_no_other() {
    let mut streams =
        Streams::with_backend(LaneAlgorithm::Md5, Backend::Portable).expect("plain words run anywhere");
    let (kept, dropped) = (noise(1, 200), noise(2, 200));
    streams.update(&[(0, &dropped), (1, &kept)]);
    streams.reset(0);
    assert_eq!(*streams.finish(0), *twin::digest(LaneAlgorithm::Md5, b""));
    assert_eq!(*streams.finish(1), *twin::digest(LaneAlgorithm::Md5, &kept));
}

#[test]
#[should_panic(expected = "beyond the last")]
fn slot_out_of_range_panics() {
    Streams::new(LaneAlgorithm::Sha1).update(&[(64, b"x")]);
}

#[test]
fn portable_backend_is_available_and_sha_ni_lacks_md5() {
    assert!(backends().contains(&Backend::Portable));
    assert!(Streams::with_backend(LaneAlgorithm::Md5, Backend::ShaNi).is_none());
    for algorithm in LaneAlgorithm::ALL {
        let widths = every(algorithm).into_iter().map(|(_, streams)| streams.width());
        assert!(widths.into_iter().all(|width| (1..=MAX_LANES).contains(&width)), "{algorithm:?}");
    }
}

/// An operation on the slots; a list of them is a history.
#[derive(Clone, Debug)]
enum Step {
    Update(Vec<(usize, usize)>),
    Finish(Vec<usize>),
    Reset(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..4usize, 50..70usize, 110..140usize, 0..900usize];
    prop_oneof![
        6 => prop::collection::vec((0..32usize, len), 1..40).prop_map(Step::Update),
        2 => prop::collection::vec(0..32usize, 1..20).prop_map(Step::Finish),
        1 => (0..32usize).prop_map(Step::Reset),
    ]
}

/// Applies a history to streams and to the reference implementation, and finishes all slots at the
/// end.
fn play(algorithm: LaneAlgorithm, name: &str, mut streams: Streams, steps: &[Step], bytes: &[u8]) {
    let width = streams.width();
    let mut model = vec![Vec::new(); width];
    let mut at = 0;
    let end = Step::Finish((0..width).collect());
    for step in steps.iter().chain([&end]) {
        match step {
            Step::Update(lengths) => {
                let mut inputs: Vec<(usize, &[u8])> = Vec::new();
                for &(slot, len) in lengths {
                    let piece = &bytes[at % 512..at % 512 + len];
                    at += len + 1;
                    model[slot % width].extend_from_slice(piece);
                    inputs.push((slot % width, piece));
                }
                streams.update(&inputs);
            }
            Step::Finish(slots) => {
                let slots: Vec<usize> = slots.iter().map(|slot| slot % width).collect();
                for (&slot, digest) in slots.iter().zip(streams.finish_many(&slots)) {
                    let message = std::mem::take(&mut model[slot]);
                    assert_eq!(
                        *digest,
                        *twin::digest(algorithm, &message),
                        "{name}, {algorithm:?}, slot {slot}"
                    );
                }
            }
            Step::Reset(slot) => {
                streams.reset(slot % width);
                model[slot % width].clear();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_slot_history_matches_the_reference(
        steps in prop::collection::vec(step(), 1..8),
        algorithm in prop::sample::select(LaneAlgorithm::ALL.to_vec()),
        seed in 0..1000usize,
    ) {
        let bytes = noise(seed, 2048);
        for (name, streams) in every(algorithm) {
            play(algorithm, &name, streams, &steps, &bytes);
        }
    }

    #[test]
    fn messages_hashed_together_match_the_reference(
        lengths in prop::collection::vec(0..2000usize, 0..50),
        algorithm in prop::sample::select(LaneAlgorithm::ALL.to_vec()),
    ) {
        let messages: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, &len)| noise(i, len)).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        for (message, digest) in messages.iter().zip(hash_many(algorithm, &messages)) {
            prop_assert_eq!(&*digest, &*twin::digest(algorithm, message));
        }
    }
}
