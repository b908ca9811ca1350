//! Corruptions constructed so that a checksum misses them, and the judges that detect them.

use super::Source;
use super::detector::Detector;
use super::forge::{
    ADLER_PERIOD, balance, crc_blind_flips, equal_sums, flip_line, refill_run, swap_blocks, swap_twice,
};
use haul_digest::{Algorithm, Digest};

/// Size of the corrupted file, in bytes: it has enough blocks that some of them have equal sums.
pub(super) const FILE_BYTES: usize = 4 << 20;

/// Block size: a page, and a sector of current disks.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Offset of the run of equal bytes, and their value.
const RUN: (usize, u8) = (1 << 20, 0xff);

/// Offsets of two equal blocks.
const TWINS: [usize; 2] = [2 << 20, 3 << 20];

/// A corruption and the verdict of each judge.
pub(super) struct Verdicts {
    /// Description in one line.
    pub(super) what: String,
    /// Number of changed bytes.
    pub(super) changed: usize,
    /// Judges, each with true if it detected the corruption.
    pub(super) seen: Vec<(Detector, bool)>,
}

/// A corrupted file.
struct Corruption {
    what: String,
    bytes: Vec<u8>,
}

/// Changes bytes; returns false if the bytes are not suitable.
type Corrupt<'a> = dyn Fn(&mut [u8]) -> bool + 'a;

/// Constructs every corruption and asks every judge. Each CRC among `algorithms` has one corruption
/// of its own, and all of them have one together.
pub(super) fn judged(source: &mut Source, detectors: &[Detector], algorithms: &[Algorithm]) -> Vec<Verdicts> {
    let file = file(source);
    let before: Vec<Digest> = detectors.iter().map(|detector| detector.value(&file, BLOCK_BYTES)).collect();
    let mut corruptions = against_adler(&file);
    corruptions.extend(against_crcs(&file, algorithms));
    corruptions.extend(against_xor(&file, source));
    let verdict = |Corruption { what, bytes }: Corruption| {
        let answers = detectors.iter().zip(&before);
        let seen =
            answers.map(|(&detector, &old)| (detector, detector.value(&bytes, BLOCK_BYTES) != old)).collect();
        let changed = file.iter().zip(&bytes).filter(|(old, new)| old != new).count();
        Verdicts { what, changed, seen }
    };
    corruptions.into_iter().map(verdict).collect()
}

/// Returns random bytes with a run of one value and two equal blocks.
fn file(source: &mut Source) -> Vec<u8> {
    let mut file = source.bytes(FILE_BYTES);
    file[RUN.0..RUN.0 + ADLER_PERIOD].fill(RUN.1);
    file.copy_within(TWINS[0]..TWINS[0] + BLOCK_BYTES, TWINS[1]);
    file
}

/// Corruptions that keep the sum of the bytes and the sum of the bytes times their positions.
fn against_adler(file: &[u8]) -> Vec<Corruption> {
    let pairs = equal_sums(file, BLOCK_BYTES);
    let tried: [(String, &Corrupt<'_>); 7] = [
        ("three bytes in a row: +1, -2, +1".to_owned(), &|bytes| balance(bytes, 1000, 1).is_some()),
        ("three bytes 512 apart: +1, -2, +1".to_owned(), &|bytes| balance(bytes, 1000, 512).is_some()),
        ("bit 3 flipped in four bytes 64 apart".to_owned(), &|bytes| flip_line(bytes, 2000, 64, 3).is_some()),
        ("two neighbours swapped, two elsewhere too".to_owned(), &|bytes| swap_twice(bytes, 3000).is_some()),
        (format!("a run of {ADLER_PERIOD} bytes {:#x} zeroed", RUN.1), &|bytes| refill_run(bytes, RUN.0, 0)),
        (format!("512 bytes swapped with those {ADLER_PERIOD} later"), &|bytes| {
            swap_blocks(bytes, 4096, 4096 + ADLER_PERIOD, 512);
            true
        }),
        (format!("two 4 KiB blocks swapped, 1 of {} such pairs", pairs.len()), &|bytes| {
            pairs.first().map(|&(a, b)| swap_blocks(bytes, a, b, BLOCK_BYTES)).is_some()
        }),
    ];
    let made = tried.into_iter().filter_map(|(what, corrupt)| {
        let mut bytes = file.to_vec();
        corrupt(&mut bytes).then_some(Corruption { what, bytes })
    });
    made.collect()
}

/// Corruptions by multiples of the generator polynomials, at arbitrary offsets.
fn against_crcs(file: &[u8], algorithms: &[Algorithm]) -> Vec<Corruption> {
    let of_one = |&algorithm: &Algorithm| crc_blind_flips(&[algorithm], 0).map(|flips| (algorithm, flips));
    let forged: Vec<(Algorithm, Vec<u8>)> = algorithms.iter().filter_map(of_one).collect();
    let crcs: Vec<Algorithm> = forged.iter().map(|&(algorithm, _)| algorithm).collect();
    let named = forged.into_iter().map(|(crc, flips)| (crc.to_string(), flips));
    let mut all: Vec<(String, Vec<u8>)> = named.collect();
    if crcs.len() > 1 {
        all.extend(crc_blind_flips(&crcs, 0).map(|flips| ("all these CRCs together".to_owned(), flips)));
    }
    let place = |number: usize| 5000 + 1013 * number;
    let flipped = all.into_iter().enumerate().map(|(number, (name, flips))| {
        let mut bytes = file.to_vec();
        bytes[place(number)..].iter_mut().zip(&flips).for_each(|(byte, flip)| *byte ^= flip);
        let bits: u32 = flips.iter().map(|flip| flip.count_ones()).sum();
        Corruption { what: format!("{bits} bits within {} bytes, made for {name}", flips.len()), bytes }
    });
    flipped.collect()
}

/// Corruptions that cancel if the digests of blocks are XORed.
fn against_xor(file: &[u8], source: &mut Source) -> [Corruption; 2] {
    let mut swapped = file.to_vec();
    swap_blocks(&mut swapped, 7 * BLOCK_BYTES, 9 * BLOCK_BYTES, BLOCK_BYTES);
    let mut overwritten = file.to_vec();
    let garbage = source.bytes(BLOCK_BYTES);
    for at in TWINS {
        overwritten[at..at + BLOCK_BYTES].copy_from_slice(&garbage);
    }
    [
        Corruption { what: "two 4 KiB blocks swapped, the 8th and the 10th".to_owned(), bytes: swapped },
        Corruption { what: "two equal blocks lost to the same garbage".to_owned(), bytes: overwritten },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::USUAL;
    use super::*;

    /// Returns the names of judges that miss a corruption.
    fn blind(verdict: &Verdicts) -> Vec<String> {
        verdict.seen.iter().filter(|(_, seen)| !seen).map(|(detector, _)| detector.name()).collect()
    }

    #[test]
    fn constructed_corruptions_defeat_only_their_target_algorithms() {
        for seed in [1, 2, 77] {
            let mut detectors: Vec<Detector> = USUAL.iter().copied().map(Detector::Whole).collect();
            detectors.extend([
                Detector::XorOfBlocks(Algorithm::Sha256),
                Detector::TreeOfBlocks(Algorithm::Sha256),
            ]);
            let found = judged(&mut Source::new(seed), &detectors, &USUAL);
            let (adler, rest) = found.split_at(7);
            for (number, verdict) in adler.iter().enumerate() {
                // The last corruption swaps whole blocks, which the XOR misses as well.
                let both: &[&str] = &["adler32", "xor of sha256s"];
                assert_eq!(blind(verdict), both[..if number == 6 { 2 } else { 1 }], "{}", verdict.what);
                assert!(verdict.changed >= 3);
            }
            let crcs = ["crc16", "crc32", "crc32c", "crc64nvme"];
            for (verdict, crc) in rest.iter().zip(crcs) {
                assert_eq!(blind(verdict), [crc], "{}", verdict.what);
            }
            assert_eq!(blind(&rest[4]), crcs);
            for verdict in &rest[5..] {
                assert_eq!(blind(verdict), ["xor of sha256s"], "{}", verdict.what);
            }
            assert_eq!(rest.len(), 7);
        }
    }
}
