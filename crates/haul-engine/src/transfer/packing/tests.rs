//! Tests of compression and decompression alone.

use super::*;
use proptest::prelude::*;

/// A block of any kind: random, repeating, zeros, words.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![0usize..2000, Just(256 << 10), (256usize << 10) - 3..(256 << 10)];
    (any::<u64>(), 1u64..300, len).prop_map(|(seed, kinds, len)| {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..len).map(|_| (next() % kinds).to_le_bytes()[0]).collect()
    })
}

fn any_level() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(1i8), Just(3), Just(-7), Just(9), any::<i8>()]
        .prop_map(|level| Compression::Zstd(level.min(9)))
}

/// Decompresses `frame`, which must contain `len` bytes.
fn unpack(frame: &[u8], len: usize) -> io::Result<Vec<u8>> {
    let mut unpacker = Unpacker::default();
    unpacker.room(frame.len()).copy_from_slice(frame);
    let mut block = vec![0; len];
    unpacker.unpack(&mut block).map(|()| block)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_blocks_are_smaller_and_round_trip(block in block(), level in any_level()) {
        let mut packer = Packer::new(level);
        if let Some(frame) = packer.pack(&block) {
            prop_assert!(frame.len() <= block.len() - block.len() / SAVED_FRACTION_MIN);
            prop_assert!(unpack(frame, block.len()).unwrap() == block);
        }
    }

    /// Compares with a second implementation of frames: the library's streaming interface.
    #[test]
    fn frames_are_compatible_with_the_streaming_interface(block in block()) {
        let mut packer = Packer::new(Compression::Zstd(3));
        if let Some(frame) = packer.pack(&block) {
            prop_assert!(zstd::stream::decode_all(frame).unwrap() == block);
        }
        let theirs = zstd::stream::encode_all(&block[..], 1).unwrap();
        prop_assert!(unpack(&theirs, block.len()).unwrap() == block);
    }

    #[test]
    fn frame_of_another_length_is_refused(block in block(), other in 0usize..(300 << 10)) {
        let frame = zstd::stream::encode_all(&block[..], 1).unwrap();
        prop_assert_eq!(unpack(&frame, other).is_ok(), other == block.len());
    }

    #[test]
    fn damaged_frames_fail_or_keep_the_length(
        block in block(), at in any::<prop::sample::Index>(), with in 1u8.., noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut frame = zstd::stream::encode_all(&block[..], 1).unwrap();
        let at = at.index(frame.len());
        frame[at] ^= with;
        for bytes in [&frame[..], &frame[..at], &noise] {
            if let Ok(unpacked) = unpack(bytes, block.len()) {
                prop_assert_eq!(unpacked.len(), block.len());
            }
        }
    }
}

#[test]
fn incompressible_or_short_blocks_are_not_packed() {
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    })
    .take(256 << 10)
    .collect();
    for level in [-7, 1, 3, 19] {
        assert!(Packer::new(Compression::Zstd(level)).pack(&noise).is_none(), "level {level}");
    }
    assert!(Packer::new(Compression::Off).pack(&[0; 4096]).is_none());
    assert!(Packer::new(Compression::Zstd(3)).pack(&[0; 100]).is_none(), "too short to be worth it");
}

/// A frame below 16 KiB that expands to 128 MiB, and one whose header claims 2^62 bytes. Neither is
/// decompressed beyond the announced block.
#[test]
fn decompression_bomb_is_refused() {
    let bomb = zstd::stream::encode_all(std::io::repeat(0).take(128 << 20), 19).unwrap();
    assert!(bomb.len() < 16 << 10);
    let refusal = unpack(&bomb, 1 << 20).expect_err("it decompresses to more bytes");
    assert!(refusal.to_string().contains("too long"), "{refusal}");
    let mut claims = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    claims.extend((1_u64 << 62).to_le_bytes());
    claims.extend([1, 0, 0]);
    unpack(&claims, 4096).expect_err("it claims more");
}

#[test]
fn concatenated_or_skippable_frames_are_refused() {
    let one = zstd::stream::encode_all(&[7; 1000][..], 1).unwrap();
    unpack(&[&one[..], &one].concat(), 2000).expect_err("two frames");
    unpack(&[&one[..], b"behind"].concat(), 1000).expect_err("something behind it");
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    unpack(&[&skippable[..], &one].concat(), 1000).expect_err("something before it");
    unpack(&skippable, 4).expect_err("nothing but that");
    unpack(&[], 1).expect_err("nothing at all");
}

use std::io::Read;
