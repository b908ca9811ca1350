//! Tests of every digest against published vectors and a slow reference, and of all ways of joining
//! pieces.

mod file_digests;
mod lists;
mod parts;
mod reference;
mod streams;
mod trees;
mod twin;
mod vectors;

use haul_digest::Algorithm;

/// Returns the input of BLAKE3's published vectors: bytes that count up to 250 and start over. This
/// period is coprime to every power of two.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Returns all algorithms whose pieces can be hashed separately.
fn combining() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.iter().copied().filter(|algorithm| algorithm.algebra() == haul_digest::Algebra::Combines)
}

/// Returns those of them whose finished values can be joined too.
fn joinable() -> impl Iterator<Item = Algorithm> {
    combining().filter(|algorithm| !matches!(algorithm, Algorithm::Blake3 | Algorithm::Sysv))
}
