//! Corruptions that each checksum misses: docs/undetected-damage.md.
//!
//! Corruptions are constructed ([`constructed`]) or random ([`chance`]). Each judge ([`detector`])
//! tries to detect them, and the results are printed next to the expected numbers ([`show`]).
//! Everything is computed on request; only the seed determines the data.

mod chance;
mod constructed;
mod detector;
mod forge;
#[cfg(test)]
mod forge_tests;
mod show;
#[cfg(test)]
mod tests;

use chance::{Birthday, MissCount};
use constructed::Verdicts;
use detector::Detector;
use haul_digest::Algorithm;
use haul_lab::random::{GAMMA, splitmix64};

/// Default digests.
const USUAL: [Algorithm; 9] = [
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
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Judge only these algorithms, separated by commas.
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = Algorithm::parse, default_values_t = USUAL)]
    algorithms: Vec<Algorithm>,
    /// Generate all data from this seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Make fewer random trials.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per result instead of tables.
    #[arg(long)]
    json: bool,
}

/// Constructs and judges all corruptions, which takes seconds of one core. Returns the output, with
/// its line ends.
pub(crate) fn text(settings: &Settings) -> String {
    let study = Study::make(settings);
    if settings.json { show::json(&study) } else { show::tables(&study) }
}

/// Results of the study.
struct Study {
    seed: u32,
    constructed: Vec<Verdicts>,
    counted: Vec<MissCount>,
    birthdays: Vec<Birthday>,
}

impl Study {
    fn make(settings: &Settings) -> Study {
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
        let mut state = self.next.wrapping_mul(GAMMA);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&splitmix64(&mut state).to_le_bytes()[..chunk.len()]);
        }
        self.next = self.next.wrapping_add(bytes.len().div_ceil(8) as u64);
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}
