//! `haul bench --blindness`: shows the corruptions that each checksum misses.
//!
//! Corruptions are constructed ([`constructed`]) or random ([`chance`]). Each judge ([`detector`])
//! tries to detect them, and the results are printed next to the expected numbers ([`show`]).
//! Everything is computed on request; only the seed determines the data.

mod chance;
mod constructed;
mod detector;
mod show;

use super::file::fill_from_seed;
use chance::{Birthday, MissCount};
use constructed::Verdicts;
use detector::Detector;
use haul_digest::Algorithm;

/// Default digests.
pub(super) const USUAL: [Algorithm; 9] = [
    Algorithm::Adler32,
    Algorithm::Crc16,
    Algorithm::Crc32,
    Algorithm::Crc32c,
    Algorithm::Crc64Nvme,
    Algorithm::Xxh3_64,
    Algorithm::Md5,
    Algorithm::Sha256,
    Algorithm::Blake3,
];

/// Settings of the study.
#[derive(Debug)]
pub(super) struct Settings {
    /// Algorithms, each at most once, in the order of the output.
    pub(super) algorithms: Vec<Algorithm>,
    /// Seed of all data.
    pub(super) seed: u32,
    /// True for fewer random trials.
    pub(super) quick: bool,
    /// True for JSON instead of tables.
    pub(super) json: bool,
}

/// Results of the study.
pub(super) struct Study {
    seed: u32,
    constructed: Vec<Verdicts>,
    counted: Vec<MissCount>,
    birthdays: Vec<Birthday>,
}

impl Study {
    /// Constructs and judges all corruptions, which takes seconds of one core.
    pub(super) fn make(settings: &Settings) -> Study {
        let whole: Vec<Detector> = settings.algorithms.iter().copied().map(Detector::Whole).collect();
        let block_digest = Algorithm::Sha256;
        let mut detectors = whole.clone();
        detectors.extend([Detector::XorOfBlocks(block_digest), Detector::TreeOfBlocks(block_digest)]);
        let mut source = Source::new(settings.seed);
        let (files, records, trials) = if settings.quick { (1, 1 << 18, 2) } else { (4, 1 << 21, 8) };
        let constructed = constructed::judged(&mut source, &detectors, &settings.algorithms);
        let mut counted = chance::swapped_blocks(&mut source, &detectors, files);
        counted.extend(chance::replaced_records(&mut source, &whole, records));
        let birthdays = chance::birthdays(&mut source, &whole, trials);
        Study { seed: settings.seed, constructed, counted, birthdays }
    }

    /// Returns the output, with its line ends.
    pub(super) fn text(&self, json: bool) -> String {
        if json { show::json(self) } else { show::tables(self) }
    }
}

/// Source of pseudorandom bytes. Each seed has its own sequence of 2^32 words.
struct Source {
    next: u64,
}

impl Source {
    fn new(seed: u32) -> Source {
        Source { next: u64::from(seed) << 32 }
    }

    /// Fills `bytes` with the next bytes of the sequence.
    fn fill(&mut self, bytes: &mut [u8]) {
        fill_from_seed(bytes, self.next);
        self.next = self.next.wrapping_add(bytes.len().div_ceil(8) as u64);
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}
