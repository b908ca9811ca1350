//! Tests of transfers with compressed blocks: the same files arrive with fewer bytes on the wire.

use super::pair::Pair;
use super::small_objects;
use haul_lab::random::Random;
use haul_model::ObjectSize;
use haul_proto::{Compression, JobOptions};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::FileExt;

/// Overhead of a block in bytes: a frame's header and NEW_BLOCK's body.
const HEADER_BYTES: u64 = 16 + 35;

/// Maximum number of bytes of all other messages in a session of a few files.
const TALK_BYTES: u64 = 4 << 10;

fn with(compression: Compression) -> JobOptions {
    JobOptions { compression, ..small_objects() }
}

/// Returns `len` bytes of log lines.
fn text(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::from_seed(seed);
    let mut text = Vec::with_capacity(len + 100);
    while text.len() < len {
        let (code, place) = (random.below(40), random.below(1 << 20));
        text.extend(format!("2026-03-01 node{:02} event {code:04} at {place}\n", code % 7).bytes());
    }
    text.truncate(len);
    text
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

#[test]
fn text_tree_arrives_unchanged_with_fewer_bytes_sent() {
    for compression in [Compression::Zstd(1), Compression::Zstd(9), Compression::Zstd(-3)] {
        let pair = Pair::new();
        fs::create_dir_all(pair.source().join("logs/old")).unwrap();
        let mut plain = 0;
        for (name, len) in [("a", 3_000_000), ("old/b", 70_000), ("old/c", 65_536), ("d", 4096), ("e", 0)] {
            fs::write(pair.source().join("logs").join(name), text(len, len as u64)).unwrap();
            plain += len as u64;
        }
        let told = pair.send(&["logs"], &with(compression), 3);
        told.is_fine();
        assert!(told.bytes_out < plain / 2, "{} of {plain} bytes with {compression:?}", told.bytes_out);
        for traffic in told.traffic() {
            assert!(traffic.plain > plain * 9 / 10 && traffic.packed < traffic.plain / 2, "{traffic:?}");
        }
        assert_eq!(told.traffic()[0].sent, told.bytes_out);
        for name in ["a", "old/b", "old/c", "d", "e"] {
            let [before, after] =
                [pair.source(), pair.sink()].map(|root| fs::read(root.join("logs").join(name)));
            assert!(before.unwrap() == after.unwrap(), "{name}");
        }
    }
}

#[test]
fn incompressible_data_costs_only_headers() {
    for compression in [Compression::Zstd(3), Compression::Auto] {
        let pair = Pair::new();
        let len = 5_000_000_u64;
        fs::write(pair.source().join("noise"), noise(len as usize, 5)).unwrap();
        let told = pair.send(&["noise"], &with(compression), 2);
        told.is_fine();
        // Each block is an object of 64 KiB, followed by its digest.
        let blocks = len.div_ceil(64 << 10);
        let most = len + blocks * (HEADER_BYTES + 16 + 19 + 2 + 32) + TALK_BYTES;
        assert!(told.bytes_out <= most, "{} bytes for {len}, {most} at most", told.bytes_out);
        assert_eq!(told.traffic()[0].plain, 0, "nothing got smaller");
        assert!(fs::read(pair.sink().join("noise")).unwrap() == noise(len as usize, 5));
    }
}

#[test]
fn without_compression_nothing_is_packed() {
    let pair = Pair::new();
    fs::write(pair.source().join("text"), text(1_000_000, 1)).unwrap();
    let told = pair.send(&["text"], &with(Compression::Off), 2);
    told.is_fine();
    assert!(told.bytes_out > 1_000_000);
    assert_eq!(told.traffic().map(|traffic| traffic.plain), [0, 0]);
}

#[test]
fn unknown_compression_level_is_clamped() {
    for level in [i8::MIN, i8::MAX] {
        let pair = Pair::new();
        fs::write(pair.source().join("text"), text(100_000, 1)).unwrap();
        // In a fetch the answering side compresses, at the request of the peer.
        let told = pair.fetch(&["text"], &with(Compression::Zstd(level)), 1);
        told.is_fine();
        assert!(told.traffic()[0].packed < 50_000);
    }
}

#[test]
fn holes_between_packed_blocks_stay_holes() {
    let pair = Pair::new();
    let file = fs::File::create(pair.source().join("sparse")).unwrap();
    for at in [0_u64, 1 << 20, 40 << 20] {
        file.write_all_at(&text(300_000, at), at).unwrap();
    }
    file.set_len(64 << 20).unwrap();
    drop(file);
    let options = JobOptions { object: ObjectSize::new(1 << 20).unwrap(), ..with(Compression::Zstd(3)) };
    let told = pair.send(&["sparse"], &options, 2);
    told.is_fine();
    assert!(told.bytes_out < 400_000, "{}", told.bytes_out);
    assert!(fs::read(pair.source().join("sparse")).unwrap() == fs::read(pair.sink().join("sparse")).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// Text, noise and zeros in one file, cut anywhere, with every verification.
    #[test]
    fn mixed_data_arrives_with_every_verification(
        parts in prop::collection::vec((0u8..3, 0usize..400_000), 0..6),
        seed in any::<u64>(),
        options in super::any_options(),
        compression in prop_oneof![Just(Compression::Auto), (-7i8..6).prop_map(Compression::Zstd)],
        object in 16u32..21,
        fetched in any::<bool>(),
    ) {
        let pair = Pair::new();
        let bytes: Vec<u8> = parts
            .iter()
            .flat_map(|(kind, len)| match kind {
                0 => text(*len, seed),
                1 => noise(*len, seed),
                _ => vec![0; *len],
            })
            .collect();
        fs::write(pair.source().join("f"), &bytes).unwrap();
        let options = JobOptions { compression, object: ObjectSize::new(1 << object).unwrap(), ..options };
        let told = if fetched { pair.fetch(&["f"], &options, 2) } else { pair.send(&["f"], &options, 2) };
        told.is_fine();
        prop_assert!(fs::read(pair.sink().join("f")).unwrap() == bytes);
    }
}
