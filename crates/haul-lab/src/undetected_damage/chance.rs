//! Random corruptions: measured and expected rates of misses.

use super::Source;
use super::detector::Detector;
use super::forge::{ADLER_PERIOD, swap_blocks};
use haul_digest::{Algorithm, Digest};
use std::collections::HashSet;
use std::f64::consts::PI;

/// Number of corruptions of one kind that one judge missed.
pub(super) struct MissCount {
    pub(super) what: String,
    pub(super) detector: Detector,
    pub(super) trials: u64,
    pub(super) missed: u64,
    /// Expected number of misses; `None` if it has no simple formula.
    pub(super) expected: Option<f64>,
}

/// Number of random messages until two had the same value.
pub(super) struct Birthday {
    pub(super) detector: Detector,
    /// Length of the messages in bytes.
    pub(super) bytes: usize,
    /// Mean of all trials; `None` if one trial found no two among [`Birthday::drawn`] messages.
    pub(super) mean: Option<f64>,
    pub(super) expected: Option<f64>,
    pub(super) trials: u32,
    /// Maximum number of messages per trial.
    pub(super) drawn: u64,
}

/// Lengths of the messages, in bytes.
const BIRTHDAY_BYTES: [usize; 3] = [8, 64, 1024];

/// Messages per trial for wider digests, which do not collide within any feasible run.
const DRAWN_OF_WIDE: u64 = 1 << 17;

/// Messages per trial for digests of 32 bits. This many messages contain a collision, except in one
/// of e^128 runs.
const DRAWN_OF_NARROW: u64 = 1 << 20;

/// Blocks of a small file; each pair is swapped once.
const SWAP_BLOCKS: usize = 128;

/// Length of these blocks, in bytes.
const SWAP_BYTES: usize = 128;

/// Size of a record that is replaced by random bytes, in bytes.
const RECORD_BYTES: usize = 8;

/// Variance of a random byte.
const BYTE_VARIANCE: f64 = (256.0 * 256.0 - 1.0) / 12.0;

/// Swaps every pair of blocks in `files` random files.
pub(super) fn swapped_blocks(source: &mut Source, detectors: &[Detector], files: u64) -> Vec<MissCount> {
    let mut missed = vec![0; detectors.len()];
    let pairs = (SWAP_BLOCKS * (SWAP_BLOCKS - 1) / 2) as u64;
    for _ in 0..files {
        let mut file = source.bytes(SWAP_BLOCKS * SWAP_BYTES);
        let value = |detector: &Detector, file: &[u8]| detector.value(file, SWAP_BYTES);
        let before: Vec<Digest> = detectors.iter().map(|detector| value(detector, &file)).collect();
        for first in 0..SWAP_BLOCKS {
            for second in first + 1..SWAP_BLOCKS {
                let (first, second) = (first * SWAP_BYTES, second * SWAP_BYTES);
                swap_blocks(&mut file, first, second, SWAP_BYTES);
                for ((detector, old), missed) in detectors.iter().zip(&before).zip(&mut missed) {
                    *missed += u64::from(value(detector, &file) == *old);
                }
                swap_blocks(&mut file, first, second, SWAP_BYTES);
            }
        }
    }
    let trials = pairs * files;
    let what = format!("two of {SWAP_BLOCKS} blocks of {SWAP_BYTES} bytes swapped");
    counted(&what, detectors, &missed, trials, |detector| match detector {
        Detector::XorOfBlocks(_) | Detector::Whole(Algorithm::Sysv) => Some(1.0),
        // The swap changes the second sum by the difference of the byte sums times the distance.
        Detector::Whole(Algorithm::Adler32) => Some(same_sum(SWAP_BYTES)),
        _ => agreement(detector, SWAP_BYTES),
    })
}

/// Replaces one record by random bytes, `trials` times.
pub(super) fn replaced_records(source: &mut Source, detectors: &[Detector], trials: u64) -> Vec<MissCount> {
    let mut missed = vec![0; detectors.len()];
    let mut pair = [0; 2 * RECORD_BYTES];
    for _ in 0..trials {
        source.fill(&mut pair);
        let (old, new) = pair.split_at(RECORD_BYTES);
        for (detector, missed) in detectors.iter().zip(&mut missed) {
            let same = detector.value(old, RECORD_BYTES) == detector.value(new, RECORD_BYTES);
            *missed += u64::from(same && old != new);
        }
    }
    let what = format!("{RECORD_BYTES} bytes replaced by random ones");
    counted(&what, detectors, &missed, trials, |detector| agreement(detector, RECORD_BYTES))
}

fn counted(
    what: &str,
    detectors: &[Detector],
    missed: &[u64],
    trials: u64,
    chance: impl Fn(Detector) -> Option<f64>,
) -> Vec<MissCount> {
    let one = |(&detector, &missed): (&Detector, &u64)| {
        let expected = chance(detector).map(|chance| trials as f64 * chance);
        MissCount { what: what.to_owned(), detector, trials, missed, expected }
    };
    detectors.iter().zip(missed).map(one).collect()
}

/// Draws random messages until two of them collide, `trials` times for each length and judge.
pub(super) fn birthdays(source: &mut Source, detectors: &[Detector], trials: u32) -> Vec<Birthday> {
    let cases =
        BIRTHDAY_BYTES.iter().flat_map(|&bytes| detectors.iter().map(move |&detector| (bytes, detector)));
    let mut all = Vec::new();
    for (bytes, detector) in cases {
        let narrow = detector.algorithm().digest_len() <= 4;
        // One trial is enough if no collision can occur.
        let (drawn, trials) = if narrow { (DRAWN_OF_NARROW, trials) } else { (DRAWN_OF_WIDE, 1) };
        let draws: Option<Vec<u64>> =
            (0..trials).map(|_| until_two_agree(source, detector, bytes, drawn)).collect();
        let mean = draws.map(|draws| draws.iter().sum::<u64>() as f64 / f64::from(trials));
        let expected = agreement(detector, bytes).map(|chance| (PI / 2.0 / chance).sqrt());
        all.push(Birthday { detector, bytes, mean, expected, trials, drawn });
    }
    all
}

/// Returns the number of messages drawn up to the first collision; `None` if `most` messages had
/// none.
fn until_two_agree(source: &mut Source, detector: Detector, bytes: usize, most: u64) -> Option<u64> {
    // Equal messages are not a corruption; the generator never repeats 8 bytes within its sequence.
    let mut met = HashSet::new();
    let mut message = vec![0; bytes];
    (1..=most).find(|_| {
        source.fill(&mut message);
        !met.insert(detector.value(&message, bytes))
    })
}

/// Returns the probability that two random messages of `bytes` bytes have the same value.
fn agreement(detector: Detector, bytes: usize) -> Option<f64> {
    match detector {
        Detector::Whole(Algorithm::Adler32) => Some(same_adler(bytes)),
        // Two old sums that are measured only on request: their values are not equally probable.
        Detector::Whole(Algorithm::Bsd | Algorithm::Sysv) => None,
        _ => Some(detector.values().recip()),
    }
}

/// Returns the probability that two blocks of `bytes` random bytes have the same sum modulo Adler's
/// period.
fn same_sum(bytes: usize) -> f64 {
    same_residue(BYTE_VARIANCE * bytes as f64)
}

/// Returns the probability that two random messages of `bytes` bytes have the same Adler-32: the
/// same sum and, given that, the same sum of sums. These two have the covariance of Σ x and Σ i x;
/// the conditional variance is σ² n (n² - 1) / 12.
fn same_adler(bytes: usize) -> f64 {
    let n = bytes as f64;
    same_sum(bytes) * same_residue(BYTE_VARIANCE * n * (n * n - 1.0) / 12.0)
}

/// Returns the probability that two numbers of a normal distribution with this variance are equal
/// modulo Adler's period.
fn same_residue(variance: f64) -> f64 {
    let period = ADLER_PERIOD as f64;
    // The difference has twice the variance; far above the period all residues are equally
    // probable.
    let spread = (2.0 * variance).sqrt();
    if spread > 4.0 * period {
        return period.recip();
    }
    let density = |times: i32| {
        let z = f64::from(times) * period / spread;
        (-z * z / 2.0).exp() / (spread * (2.0 * PI).sqrt())
    };
    (-24..=24).map(density).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exact probability that two blocks have the same sum, from the distribution of
    /// sums.
    fn same_sum_exactly(bytes: usize) -> f64 {
        let mut chances = vec![1.0_f64];
        for _ in 0..bytes {
            let mut next = vec![0.0; chances.len() + 255];
            for (sum, chance) in chances.iter().enumerate() {
                next[sum..sum + 256].iter_mut().for_each(|slot| *slot += chance / 256.0);
            }
            chances = next;
        }
        let mut residues = vec![0.0; ADLER_PERIOD];
        chances.iter().enumerate().for_each(|(sum, chance)| residues[sum % ADLER_PERIOD] += chance);
        residues.iter().map(|chance| chance * chance).sum()
    }

    #[test]
    fn approximate_chance_of_equal_sums_matches_the_exact_chance() {
        for bytes in [4, 16, 128] {
            let (found, exact) = (same_sum(bytes), same_sum_exactly(bytes));
            assert!((found / exact - 1.0).abs() < 0.05, "{bytes}: {found} {exact}");
        }
        assert!((same_sum(1 << 20) * ADLER_PERIOD as f64 - 1.0).abs() < 1e-9);
        // At the limit between the wrapped sum and the flat distribution, both give the same value.
        let (below, above) = (same_residue(3.42e10), same_residue(3.44e10));
        assert!((below / above - 1.0).abs() < 1e-6, "{below} {above}");
    }

    #[test]
    fn adler_collisions_are_more_likely_for_short_messages() {
        let best = (ADLER_PERIOD as f64).powi(-2);
        assert!((same_adler(1 << 20) / best - 1.0).abs() < 1e-6);
        assert!(same_adler(8) / best > 3000.0 && same_adler(1024) / best > 7.0);
    }

    #[test]
    fn counted_misses_are_near_the_expected_count() {
        let detectors = [
            Detector::Whole(Algorithm::Adler32),
            Detector::Whole(Algorithm::Crc16),
            Detector::XorOfBlocks(Algorithm::Md5),
        ];
        let swapped = swapped_blocks(&mut Source::new(3), &detectors, 4);
        let records = replaced_records(&mut Source::new(4), &detectors[..2], 1 << 20);
        for counted in swapped.iter().chain(&records) {
            let expected = counted.expected.unwrap();
            let distance = (counted.missed as f64 - expected).abs();
            let spread = 5.0 * expected.max(1.0).sqrt();
            assert!(distance <= spread, "{:?}: {} {expected}", counted.detector, counted.missed);
        }
        assert!(swapped[0].missed > 0, "adler32 misses some");
        assert!(records[1].missed > 0, "crc16 misses some");
        assert_eq!(swapped[2].missed, swapped[2].trials, "XOR misses all");
    }

    #[test]
    fn first_collision_is_near_the_birthday_bound() {
        let detectors = [
            Detector::Whole(Algorithm::Crc32),
            Detector::Whole(Algorithm::Adler32),
            Detector::Whole(Algorithm::Blake3),
        ];
        for birthday in birthdays(&mut Source::new(5), &detectors, 16) {
            let Some(mean) = birthday.mean else {
                assert_eq!(birthday.detector, detectors[2]);
                continue;
            };
            assert_ne!(birthday.detector, detectors[2]);
            // A single count has a standard deviation of 52 % of its mean, the mean of 16 counts of
            // 13 %.
            let expected = birthday.expected.unwrap();
            assert!((mean / expected - 1.0).abs() < 0.6, "{:?}: {mean} {expected}", birthday.detector);
        }
    }
}
