//! Pseudorandom numbers: the same seed gives the same bytes on every machine.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Returns the seed of a soak run (`HAUL_SOAK=1`), which runs test matrices in full and draws new
/// points each time. The seed is `PROPTEST_RNG_SEED`, or a random one of 32 bits. Returns `None` in
/// all other runs. A test that uses the seed prints it in its failures.
pub fn soak_seed() -> Option<u64> {
    let is_soak = env::var_os("HAUL_SOAK").is_some_and(|value| value == "1");
    let given = || env::var("PROPTEST_RNG_SEED").ok()?.parse().ok();
    is_soak.then(|| given().unwrap_or_else(|| RandomState::new().hash_one(0) >> 32))
}

/// Returns the time for which a test of a fuzz target continues after its fixed cases:
/// `HAUL_FUZZ_SECONDS`, else a minute in a soak run and no time in all other runs.
pub fn fuzz_time() -> Duration {
    let asked = env::var("HAUL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(if soak_seed().is_some() { 60 } else { 0 }))
}

/// Runs a case for each seed below `fixed`, and then for [`fuzz_time`] with seeds that follow from
/// that of the soak run.
pub fn fuzz(fixed: u64, mut case: impl FnMut(&mut Random)) {
    (0..fixed).for_each(|seed| case(&mut Random::from_seed(seed)));
    let (begun, time) = (Instant::now(), fuzz_time());
    let mut seed = soak_seed().unwrap_or(1).wrapping_add(1) << 32;
    while begun.elapsed() < time {
        case(&mut Random::from_seed(seed));
        seed += 1;
    }
}

/// A xoshiro256** generator (Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators",
/// 2018). As its authors advise, splitmix64 fills its state. Fast and repeatable; not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// Returns `len` incompressible random bytes; any shift or swap changes them.
pub fn noise(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("a test has memory for its data")];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

impl Random {
    /// Creates a generator. Every seed gives another sequence; 0 is a valid seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut mix = seed;
        Self { state: std::array::from_fn(|_| splitmix64(&mut mix)) }
    }

    /// Creates a generator for part `index` of the work of `seed`, so that parts can be made in any
    /// order.
    pub fn for_part(seed: u64, index: u64) -> Self {
        let mut mix = index;
        Self::from_seed(seed ^ splitmix64(&mut mix))
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (t2, t3) = (s2 ^ s0, s3 ^ s1);
        self.state = [s0 ^ t3, s1 ^ t2, t2 ^ (s1 << 17), t3.rotate_left(45)];
        result
    }

    /// Returns a number from 0 to `bound - 1`, by multiplication (Lemire 2019, without the
    /// rejection step: the bias is below `bound` / 2^64).
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(bound - 1)
    }

    /// Returns an index into a sequence of length `len`.
    ///
    /// # Panics
    /// Panics if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Returns true with a probability of `percent` percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number from 0 to below 1, a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        // Both conversions are exact.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills `bytes` with incompressible random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        let rest = words.into_remainder();
        let last = self.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.index(end + 1));
        }
    }

    /// Returns `bytes` with one to six mutations: flipped bits, bytes and numbers set to edge
    /// values, pieces removed, duplicated or refilled, and truncation.
    pub fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bent = bytes.to_vec();
        for _ in 0..=self.below(6) {
            let at = self.index(bent.len() + 1);
            let end = at + self.index((bent.len() - at).min(40) + 1);
            match self.below(7) {
                0 | 1 if at < bent.len() => bent[at] ^= 1 << self.below(8),
                2 if at < bent.len() => bent[at] = [0, 1, 0x7f, 0x80, 0xff][self.index(5)],
                3 => {
                    let edge =
                        [u64::MAX, 0, 1 << 63, 1 << 31, u64::from(u32::MAX)][self.index(5)].to_le_bytes();
                    let width = [2, 4, 8][self.index(3)].min(bent.len() - at);
                    bent[at..at + width].copy_from_slice(&edge[..width]);
                }
                4 => drop(bent.drain(at..end)),
                5 => {
                    let piece = bent[at..end].to_vec();
                    bent.splice(at..at, piece);
                }
                6 if self.chance(20) => bent.truncate(at),
                _ => self.fill(&mut bent[at..end]),
            }
        }
        bent
    }
}

/// Step of the state of splitmix64.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes one step of splitmix64 (Steele, Lea and Flood 2014).
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GAMMA);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        // First outputs of the reference program for the seed 1234567.
        let mut state = 1_234_567;
        let got: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn xoshiro_gives_the_published_sequence() {
        // First outputs of the reference program for the state 1, 2, 3, 4.
        let mut random = Random { state: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(got, [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn same_seed_repeats_and_parts_differ() {
        let mut a = [0; 37];
        let mut b = [0; 37];
        Random::from_seed(9).fill(&mut a);
        Random::from_seed(9).fill(&mut b);
        assert_eq!(a, b);
        Random::for_part(9, 1).fill(&mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn index_stays_in_range_and_reaches_every_value() {
        let mut random = Random::from_seed(3);
        let mut seen = [0_u32; 7];
        for _ in 0..700 {
            seen[random.index(7)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }

    #[test]
    fn unit_numbers_are_spread_below_one() {
        let mut random = Random::from_seed(4);
        let drawn: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)));
        // Four standard deviations of the mean are 0.0115.
        let mean = drawn.iter().sum::<f64>() / 10_000.0;
        assert!((0.488..0.512).contains(&mean), "{mean}");
    }

    #[test]
    fn mutated_bytes_differ_and_repeat_by_seed() {
        let bytes: Vec<u8> = (0..200).collect();
        let bent = |seed| Random::from_seed(seed).mutate(&bytes);
        assert!((0..100).filter(|seed| bent(*seed) != bytes).count() > 90);
        assert!((0..100).all(|seed| bent(seed) == bent(seed)));
        assert!((0..100).any(|seed| bent(seed).len() != bytes.len()));
        assert!((0..100).all(|seed| Random::from_seed(seed).mutate(&[]).len() < 100));
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::from_seed(5).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
