//! The algorithms that have lanes, and their digests.

use core::fmt;
use core::ops::Deref;

use super::compression::State;
use super::{md5, sha1, sha2};
use crate::{Algorithm, Digest};

/// A serial digest that can be computed for many streams in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneAlgorithm {
    /// MD5, RFC 1321: 16 bytes.
    Md5,
    /// SHA-1, FIPS 180-4: 20 bytes.
    Sha1,
    /// SHA-224, FIPS 180-4: 28 bytes.
    Sha224,
    /// SHA-256, FIPS 180-4: 32 bytes.
    Sha256,
    /// SHA-384, FIPS 180-4: 48 bytes.
    Sha384,
    /// SHA-512, FIPS 180-4: 64 bytes.
    Sha512,
}

impl LaneAlgorithm {
    /// All lane algorithms.
    pub const ALL: [LaneAlgorithm; 6] = [
        LaneAlgorithm::Md5,
        LaneAlgorithm::Sha1,
        LaneAlgorithm::Sha224,
        LaneAlgorithm::Sha256,
        LaneAlgorithm::Sha384,
        LaneAlgorithm::Sha512,
    ];

    /// Returns the lane algorithm of an algorithm, if there is one.
    pub fn of(algorithm: Algorithm) -> Option<LaneAlgorithm> {
        LaneAlgorithm::ALL.into_iter().find(|lanes| lanes.algorithm() == algorithm)
    }

    /// Returns the number of equally long streams from which lanes are worthwhile.
    ///
    /// The plan uses the cheapest instructions for the number of streams. Fewer streams gain too
    /// little over one stream on the fastest serial code.
    pub fn streams_min(self) -> usize {
        if self == LaneAlgorithm::Md5 { 3 } else { 4 }
    }

    /// Returns the algorithm in the registry.
    pub fn algorithm(self) -> Algorithm {
        match self {
            LaneAlgorithm::Md5 => Algorithm::Md5,
            LaneAlgorithm::Sha1 => Algorithm::Sha1,
            LaneAlgorithm::Sha224 => Algorithm::Sha224,
            LaneAlgorithm::Sha256 => Algorithm::Sha256,
            LaneAlgorithm::Sha384 => Algorithm::Sha384,
            LaneAlgorithm::Sha512 => Algorithm::Sha512,
        }
    }

    /// Converts a digest of this algorithm into a [`Digest`].
    ///
    /// # Panics
    ///
    /// Panics if it has another length than the digests of this algorithm.
    pub fn digest(self, lane: &LaneDigest) -> Digest {
        match Digest::from_bytes(self.algorithm(), lane) {
            Ok(digest) => digest,
            Err(_) => panic!("a digest of {} bytes is none of {self:?}", lane.len()),
        }
    }

    /// Returns the size of a digest in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            LaneAlgorithm::Md5 => 16,
            LaneAlgorithm::Sha1 => 20,
            LaneAlgorithm::Sha224 => 28,
            LaneAlgorithm::Sha256 => 32,
            LaneAlgorithm::Sha384 => 48,
            LaneAlgorithm::Sha512 => 64,
        }
    }

    /// Returns the size of a message block, the unit of hashing, in bytes.
    pub fn block_len(self) -> usize {
        match self {
            LaneAlgorithm::Sha384 | LaneAlgorithm::Sha512 => 128,
            _ => 64,
        }
    }

    /// Returns the state before the first block.
    pub(super) fn start(self) -> State {
        match self {
            LaneAlgorithm::Md5 => md5::START,
            LaneAlgorithm::Sha1 => sha1::START,
            LaneAlgorithm::Sha224 => sha2::START_224,
            LaneAlgorithm::Sha256 => sha2::START_256,
            LaneAlgorithm::Sha384 => sha2::START_384,
            LaneAlgorithm::Sha512 => sha2::START_512,
        }
    }
}

/// Bytes of a digest, in print order. Displayed as lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneDigest {
    bytes: [u8; 64],
    len: u8,
}

impl LaneDigest {
    /// Returns an empty digest as a placeholder.
    pub(super) fn empty() -> LaneDigest {
        LaneDigest { bytes: [0; 64], len: 0 }
    }

    /// Returns the digest for the final state of a stream.
    pub(super) fn from_state(algorithm: LaneAlgorithm, state: &State) -> LaneDigest {
        let mut bytes = [0; 64];
        if algorithm.block_len() == 128 {
            for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(state) {
                *out = word.to_be_bytes();
            }
        } else {
            for (out, &word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
                let word = word as u32;
                *out = if algorithm == LaneAlgorithm::Md5 { word.to_le_bytes() } else { word.to_be_bytes() };
            }
        }
        let len = algorithm.digest_len();
        bytes[len..].fill(0);
        LaneDigest { bytes, len: len as u8 }
    }
}

impl Deref for LaneDigest {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AsRef<[u8]> for LaneDigest {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Display for LaneDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LaneDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
