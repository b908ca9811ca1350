//! Combinations of options: every pair of values occurs in one of the rows of a [covering
//! array](cover).
//!
//! The result of a copy or a move is compared with that of the system's tool. A receipt must verify
//! afterwards, and no temporary file may stay. A pair that the program refuses must fail with a
//! message and change nothing.

pub(crate) mod copies;
pub(crate) mod cover;
pub(crate) mod plant;
mod receipts;

use crate::differential::Wanted;
use haul_lab::random::{Random, soak_seed};
use std::sync::OnceLock;

const SEED: u64 = 20_261_125;

/// Slices of the rows that a soak run takes: its system calls come late, and each run has rows of
/// another seed.
const SOAK_SLICES: usize = 3;

/// The rows of a run: `take` of them, more in a soak run.
pub(crate) fn slice<T>(rows: Vec<T>, take: usize) -> Vec<T> {
    let cases = if soak_seed().is_some() { take * SOAK_SLICES } else { take } as u64;
    let Wanted { cases, .. } = Wanted { seed: SEED, cases }.or_as_the_environment_says();
    rows.into_iter().take(cases as usize).collect()
}

/// The seed of the rows, the same for all tests of a run.
pub(crate) fn seed() -> u64 {
    static OF_RUN: OnceLock<u64> = OnceLock::new();
    *OF_RUN.get_or_init(|| Wanted { seed: SEED, cases: 0 }.or_as_the_environment_says().seed)
}

/// The generator of a test's rows.
pub(crate) fn generator(test: u64) -> Random {
    Random::for_part(seed(), test)
}

/// Fails once, with all rows that went wrong.
#[track_caller]
pub(crate) fn assert_none(wrong: &[String], rows: usize) {
    assert!(wrong.is_empty(), "{} of {rows} rows of seed {} fail\n{}", wrong.len(), seed(), wrong.join("\n"));
}
