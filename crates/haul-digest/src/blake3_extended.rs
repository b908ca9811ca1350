//! BLAKE3 with a key, for deriving keys, and with output of any length.

use std::fmt;

/// What the hash is for; each mode has digests of its own.
#[derive(Clone, PartialEq, Eq)]
pub enum Blake3Mode {
    /// The common hash.
    Hash,
    /// A message authentication code under this key.
    Keyed([u8; 32]),
    /// A key derived from the bytes, for this context: a text that names the program, the date and the purpose.
    DeriveKey(String),
}

impl fmt::Debug for Blake3Mode {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blake3Mode::Hash => f.write_str("Hash"),
            Blake3Mode::Keyed(_) => f.write_str("Keyed(..)"),
            Blake3Mode::DeriveKey(context) => f.debug_tuple("DeriveKey").field(context).finish(),
        }
    }
}

/// One stream, fed in order.
#[derive(Clone)]
pub struct ExtendedBlake3(Box<blake3::Hasher>);

impl ExtendedBlake3 {
    /// A hasher that has seen no bytes.
    pub fn new(mode: &Blake3Mode) -> ExtendedBlake3 {
        ExtendedBlake3(Box::new(match mode {
            Blake3Mode::Hash => blake3::Hasher::new(),
            Blake3Mode::Keyed(key) => blake3::Hasher::new_keyed(key),
            Blake3Mode::DeriveKey(context) => blake3::Hasher::new_derive_key(context),
        }))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The output for all bytes so far; its first 32 bytes are the common digest.
    pub fn finish(self) -> Blake3Output {
        Blake3Output(self.0.finalize_xof())
    }
}

impl fmt::Debug for ExtendedBlake3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedBlake3").finish_non_exhaustive()
    }
}

/// Output without an end: 2^64 - 1 bytes, from any place on.
#[derive(Clone)]
pub struct Blake3Output(blake3::OutputReader);

impl Blake3Output {
    /// Goes to a byte of the output.
    pub fn seek(&mut self, at: u64) {
        self.0.set_position(at);
    }

    /// Writes the next bytes into all of `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill(buffer);
    }
}

impl fmt::Debug for Blake3Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blake3Output").field("at", &self.0.position()).finish_non_exhaustive()
    }
}
