//! BLAKE3 with a key, for key derivation, and with output of any length.

use crate::{Algorithm, Digest};
use std::fmt;

/// Mode of the hash; each mode has different digests.
#[derive(Clone, PartialEq, Eq)]
pub enum Blake3Mode {
    /// The regular hash.
    Hash,
    /// A message authentication code with this key.
    Keyed([u8; 32]),
    /// A key derived from the bytes, for this context: a text that contains the program, the date
    /// and the purpose.
    DeriveKey(String),
}

impl fmt::Debug for Blake3Mode {
    /// Writes the mode without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blake3Mode::Hash => f.write_str("Hash"),
            Blake3Mode::Keyed(_) => f.write_str("Keyed(..)"),
            Blake3Mode::DeriveKey(context) => f.debug_tuple("DeriveKey").field(context).finish(),
        }
    }
}

/// A stream, fed in order.
#[derive(Clone)]
pub struct ExtendedBlake3(Box<blake3::Hasher>);

impl ExtendedBlake3 {
    /// Returns a hasher without input.
    pub fn new(mode: &Blake3Mode) -> ExtendedBlake3 {
        ExtendedBlake3(Box::new(match mode {
            Blake3Mode::Hash => blake3::Hasher::new(),
            Blake3Mode::Keyed(key) => blake3::Hasher::new_keyed(key),
            Blake3Mode::DeriveKey(context) => blake3::Hasher::new_derive_key(context),
        }))
    }

    /// Feeds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the regular digest of all bytes so far, in the mode [`Blake3Mode::Hash`].
    pub fn digest(&self) -> Digest {
        Digest::from_exact(Algorithm::Blake3, self.0.finalize().as_bytes())
    }

    /// Returns the output for all bytes so far; its first 32 bytes are the regular digest.
    pub fn finish(self) -> Blake3Output {
        Blake3Output(self.0.finalize_xof())
    }
}

impl fmt::Debug for ExtendedBlake3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedBlake3").finish_non_exhaustive()
    }
}

/// Extendable output: 2^64 - 1 bytes, readable from any offset.
#[derive(Clone)]
pub struct Blake3Output(blake3::OutputReader);

impl Blake3Output {
    /// Sets the position in the output.
    pub fn seek(&mut self, at: u64) {
        self.0.set_position(at);
    }

    /// Fills `buffer` with the next bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

impl fmt::Debug for Blake3Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blake3Output").field("at", &self.0.position()).finish_non_exhaustive()
    }
}
