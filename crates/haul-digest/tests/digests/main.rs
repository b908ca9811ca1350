//! Every digest against published vectors and a slow twin, and all ways of joining pieces against the whole.

mod forged;
mod lists;
mod parts;
mod streams;
mod trees;
mod twin;
mod vectors;

use haul_digest::Algorithm;

/// The input of BLAKE3's published vectors: bytes that count up to 250 and start over, a period that no power of
/// two shares.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// All algorithms whose pieces may be hashed apart.
fn combining() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| algorithm.algebra() == haul_digest::Algebra::Combines)
}

/// Those of them whose finished values can be joined too.
fn joinable() -> impl Iterator<Item = Algorithm> {
    combining().filter(|algorithm| !matches!(algorithm, Algorithm::Blake3 | Algorithm::Sysv))
}
