//! Tests of forged corruptions: each differs from the data, has the same value of the checksum that
//! it targets, and is detected by other digests.

use super::forge::{
    ADLER_PERIOD, balance, crc_blind_flips, equal_sums, flip_line, refill_run, swap_blocks, swap_twice,
};
use haul_digest::{Algorithm, digest};
use proptest::prelude::*;

/// Digests that no corruption in this file targets.
const SHARP: [Algorithm; 6] = [
    Algorithm::Xxh3_64,
    Algorithm::Xxh3_128,
    Algorithm::Md5,
    Algorithm::Sha256,
    Algorithm::Blake2b,
    Algorithm::Blake3,
];

const CRCS: [Algorithm; 7] = [
    Algorithm::Crc32,
    Algorithm::Crc32c,
    Algorithm::Cksum,
    Algorithm::Crc64Nvme,
    Algorithm::Crc64Xz,
    Algorithm::Crc64Eos,
    Algorithm::Crc16,
];

/// Returns bytes of a splitmix64 generator.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    });
    words.flatten().take(len).collect()
}

fn missed(algorithm: Algorithm, before: &[u8], after: &[u8]) -> bool {
    digest(algorithm, before) == digest(algorithm, after)
}

/// Checks that the data changed, that `blind` do not detect the change, and that `SHARP` and
/// `seeing` do.
fn assert_made_for(blind: &[Algorithm], seeing: &[Algorithm], before: &[u8], after: &[u8]) {
    assert_ne!(before, after);
    assert_eq!(before.len(), after.len());
    for &algorithm in blind {
        assert!(missed(algorithm, before, after), "{algorithm} sees it");
    }
    for &algorithm in seeing.iter().chain(&SHARP) {
        assert!(!missed(algorithm, before, after), "{algorithm} misses it");
    }
}

#[test]
fn changes_that_keep_both_adler_sums_are_found_by_every_crc() {
    for (seed, len) in [(1, 200), (2, 4096), (3, 70_001), (4, 300_000)] {
        let data = random(seed, len);
        for step in [1, 3, 16] {
            let mut changed = data.clone();
            let [a, b, c] = balance(&mut changed, 7, step).expect("random bytes have such a place");
            assert!(a >= 7 && b - a == step && c - b == step);
            assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);

            let mut changed = data.clone();
            let four = flip_line(&mut changed, 7, step, (seed % 8) as u32).expect("such bits");
            assert!(four.iter().all(|&at| changed[at] ^ data[at] == 1 << (seed % 8)));
            assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);
        }
        let mut changed = data.clone();
        swap_twice(&mut changed, 0).expect("such neighbours");
        assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);
        assert_eq!(data.iter().zip(&changed).filter(|(a, b)| a != b).count(), 4);
    }
}

#[test]
fn adler_misses_a_refilled_run_of_its_period() {
    for (seed, at, from, to) in [(1, 0, 0xff, 0), (2, 1000, 0, 0xff), (3, 4096, 0x20, 0x41)] {
        let mut data = random(seed, at + ADLER_PERIOD + 777);
        data[at..at + ADLER_PERIOD].fill(from);
        let mut changed = data.clone();
        assert!(refill_run(&mut changed, at, to));
        assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);
        // With one byte less of the run, the change is detected.
        changed[at] = from;
        assert!(!missed(Algorithm::Adler32, &data, &changed));
    }
}

#[test]
fn adler_misses_swapped_blocks_of_equal_sums_or_period_distance() {
    for (seed, block) in [(1, 512), (2, 4096), (3, 100)] {
        let data = random(seed, 4 << 20);
        let mut changed = data.clone();
        swap_blocks(&mut changed, block + ADLER_PERIOD * 2, block, block);
        assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);

        let pairs = equal_sums(&data, block);
        for &(first, second) in pairs.iter().take(3) {
            let mut changed = data.clone();
            swap_blocks(&mut changed, first, second, block);
            assert_made_for(&[Algorithm::Adler32], &CRCS, &data, &changed);
        }
        assert!(!pairs.is_empty());
        let other =
            (1..).map(|n| n * block).find(|&at| !pairs.contains(&(0, at))).expect("most pairs differ");
        let mut changed = data.clone();
        swap_blocks(&mut changed, 0, other, block);
        assert!(!missed(Algorithm::Adler32, &data, &changed));
    }
}

#[test]
fn equal_sum_pairs_match_a_brute_force_search() {
    let data = random(9, 300 * 8 + 5);
    let sum = |at: usize| data[at..at + 8].iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let starts = || (0..300).map(|number| number * 8);
    let mut slow: Vec<(usize, usize)> = starts()
        .flat_map(|b| starts().take_while(move |&a| a < b).map(move |a| (a, b)))
        .filter(|&(a, b)| sum(a) == sum(b) && data[a..a + 8] != data[b..b + 8])
        .collect();
    let mut fast = equal_sums(&data, 8);
    slow.sort_unstable();
    fast.sort_unstable();
    assert!(fast.len() > 10);
    assert_eq!(fast, slow);
}

#[test]
fn crc_generator_flips_are_missed_by_that_crc_only() {
    for crc in CRCS {
        let flips = crc_blind_flips(&[crc], 1000).expect("a CRC");
        let others: Vec<Algorithm> = CRCS.into_iter().filter(|&other| other != crc).collect();
        for (seed, len, at) in [(1, 64, 0), (2, 4096, 17), (3, 100_000, 99_000)] {
            let data = random(seed, len);
            let mut changed = data.clone();
            changed[at..].iter_mut().zip(&flips).for_each(|(byte, flip)| *byte ^= flip);
            assert_made_for(&[crc], &others, &data, &changed);
            assert!(!missed(Algorithm::Adler32, &data, &changed), "{crc}, seed {seed}");
        }
    }
}

#[test]
fn blind_flips_of_a_crc_are_its_published_polynomial() {
    let published: [(Algorithm, u128); 4] = [
        (Algorithm::Crc32, 0x1_04c1_1db7),
        (Algorithm::Crc32c, 0x1_1edc_6f41),
        (Algorithm::Crc64Nvme, 0x1_ad93_d235_94c9_3659),
        (Algorithm::Crc16, 0x1_1021),
    ];
    for (crc, polynomial) in published {
        let flips = crc_blind_flips(&[crc], 0).expect("a CRC");
        let width = crc.digest_len() * 8;
        let bit = |at: usize| flips.get(at / 8).map_or(0, |byte| u128::from(byte >> (at % 8) & 1));
        let found = (0..=width).fold(0, |sum, at| sum << 1 | bit(at));
        assert_eq!(found, polynomial, "{crc}");
    }
    let msb_first = crc_blind_flips(&[Algorithm::Cksum], 0).expect("a CRC");
    assert_eq!(msb_first, [0x82, 0x60, 0x8e, 0xdb, 0x80], "x^32 first, in the high bit");
}

#[test]
fn one_change_can_be_missed_by_several_crcs() {
    let sets: [&[Algorithm]; 3] =
        [&[Algorithm::Crc32, Algorithm::Crc32c], &[Algorithm::Cksum, Algorithm::Crc16], &CRCS];
    for (seed, blind) in (5..).zip(sets) {
        let flips = crc_blind_flips(blind, 123).expect("CRCs");
        let data = random(seed, 5000);
        let mut changed = data.clone();
        changed[321..].iter_mut().zip(&flips).for_each(|(byte, flip)| *byte ^= flip);
        assert_made_for(blind, &[Algorithm::Adler32], &data, &changed);
    }
}

#[test]
fn impossible_forgeries_are_refused_without_changes() {
    assert_eq!(crc_blind_flips(&[Algorithm::Crc32, Algorithm::Adler32], 0), None);
    assert_eq!(crc_blind_flips(&[], 0), None);
    let mut flat = vec![0_u8; 100];
    assert_eq!(balance(&mut flat, 0, 1), None);
    assert_eq!(flip_line(&mut flat, 0, 1, 0), None);
    assert_eq!(swap_twice(&mut flat, 0), None);
    assert!(!refill_run(&mut flat, 0, 1), "too short");
    let mut run = vec![0_u8; ADLER_PERIOD];
    assert!(!refill_run(&mut run, 0, 0), "nothing would change");
    assert!(!refill_run(&mut run, 1, 1), "one byte short");
    assert_eq!(flat, [0; 100]);
    assert!(equal_sums(&run, 512).is_empty(), "equal blocks are no corruption");
    for step in [0, 50, usize::MAX] {
        assert_eq!(balance(&mut flat, 0, step), None);
        assert_eq!(balance(&mut [], 5, step), None);
    }
}

/// Corrupts bytes. Returns true if it found a position for the corruption.
type Forger<'a> = dyn Fn(&mut [u8]) -> bool + 'a;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn forgeries_keep_adler_and_change_bytes(
        data in proptest::collection::vec(any::<u8>(), 0..400),
        from in 0_usize..50,
        step in 1_usize..20,
        bit in 0_u32..8,
    ) {
        let forgers: [&Forger<'_>; 3] = [
            &|bytes| balance(bytes, from, step).is_some(),
            &|bytes| flip_line(bytes, from, step, bit).is_some(),
            &|bytes| swap_twice(bytes, from).is_some(),
        ];
        for forge in forgers {
            let mut changed = data.clone();
            let forged = forge(&mut changed);
            prop_assert_eq!(forged, changed != data);
            prop_assert!(missed(Algorithm::Adler32, &data, &changed));
        }
    }

    #[test]
    fn crc_misses_its_blind_flips_at_any_offset(
        data in proptest::collection::vec(any::<u8>(), 9..300),
        at in any::<proptest::sample::Index>(),
        which in 0_usize..7,
        after in 0_u64..5000,
    ) {
        let flips = crc_blind_flips(&[CRCS[which]], after).expect("a CRC");
        let at = at.index(data.len() - flips.len() + 1);
        let mut changed = data.clone();
        changed[at..].iter_mut().zip(&flips).for_each(|(byte, flip)| *byte ^= flip);
        prop_assert!(missed(CRCS[which], &data, &changed));
        prop_assert!(data != changed);
    }
}
