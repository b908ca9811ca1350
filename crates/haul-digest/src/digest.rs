//! The result of a hasher.

use crate::Algorithm;
use crate::lanes::{LaneAlgorithm, LaneDigest};
use std::fmt;
use thiserror::Error;

/// Length of the longest digest in bytes: SHA-512, SHA3-512 and BLAKE2b.
pub const DIGEST_BYTES_MAX: usize = 64;

/// A digest and its algorithm. Numbers (CRC, Adler, XXH) are stored big-endian, so that the
/// hexadecimal form is the one that every tool prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// The first `algorithm.digest_len()` bytes are used; the rest are 0.
    bytes: [u8; DIGEST_BYTES_MAX],
}

/// Reason why bytes or a text are not a digest of an algorithm.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DigestError {
    /// The number of bytes is wrong.
    #[error("a {algorithm} digest has {expected} bytes, not {found}", expected = algorithm.digest_len())]
    WrongLength {
        /// Requested algorithm.
        algorithm: Algorithm,
        /// Number of bytes found.
        found: usize,
    },
    /// The length of the text is not twice that of the digest.
    #[error(
        "a {algorithm} digest has {expected} hexadecimal digits, not {found}",
        expected = algorithm.digest_len() * 2
    )]
    WrongDigits {
        /// Requested algorithm.
        algorithm: Algorithm,
        /// Number of characters found.
        found: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("'{character}' in a {algorithm} digest is not a hexadecimal digit")]
    NotHexadecimal {
        /// Requested algorithm.
        algorithm: Algorithm,
        /// The first such character.
        character: char,
    },
}

impl Digest {
    /// Returns the digest with these bytes.
    ///
    /// # Errors
    ///
    /// Returns [`DigestError::WrongLength`] if the number of bytes is not that of the algorithm.
    pub fn from_bytes(algorithm: Algorithm, bytes: &[u8]) -> Result<Digest, DigestError> {
        if bytes.len() != algorithm.digest_len() {
            return Err(DigestError::WrongLength { algorithm, found: bytes.len() });
        }
        Ok(Digest::from_exact(algorithm, bytes))
    }

    /// Parses a digest in hexadecimal, in lower or upper case, with all leading zeros.
    ///
    /// # Errors
    ///
    /// Returns a [`DigestError`] if the number of digits is wrong, or if a character is not a
    /// digit.
    pub fn from_hex(algorithm: Algorithm, text: &str) -> Result<Digest, DigestError> {
        if let Some(character) = text.chars().find(|character| !character.is_ascii_hexdigit()) {
            return Err(DigestError::NotHexadecimal { algorithm, character });
        }
        if text.len() != algorithm.digest_len() * 2 {
            return Err(DigestError::WrongDigits { algorithm, found: text.len() });
        }
        let mut bytes = [0; DIGEST_BYTES_MAX];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = hex_value(pair[0]) << 4 | hex_value(pair[1]);
        }
        Ok(Digest { algorithm, bytes })
    }

    /// Returns the digest of a stream of [`crate::lanes`].
    ///
    /// # Panics
    ///
    /// Panics if `lane` has another length than the digests of `algorithm`.
    pub fn from_lane(algorithm: LaneAlgorithm, lane: &LaneDigest) -> Digest {
        assert_eq!(lane.len(), algorithm.digest_len(), "a digest of {algorithm:?} lanes");
        Digest::from_exact(Algorithm::from(algorithm), lane)
    }

    /// Returns the digest of a numeric algorithm with this value.
    pub(crate) fn from_value(algorithm: Algorithm, value: u64) -> Digest {
        let len = algorithm.digest_len();
        Digest::from_exact(algorithm, &value.to_be_bytes()[8 - len..])
    }

    /// Returns the digest with these bytes, whose number is known to be correct.
    pub(crate) fn from_exact(algorithm: Algorithm, exact: &[u8]) -> Digest {
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes[..algorithm.digest_len()].copy_from_slice(exact);
        Digest { algorithm, bytes }
    }

    /// Returns the algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the bytes, 1 to [`DIGEST_BYTES_MAX`] of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_len()]
    }

    /// Returns the number for Adler-32, the CRCs and the sums of `sum`, and `None` for all other
    /// algorithms.
    pub fn value(&self) -> Option<u64> {
        let fold = |value, &byte: &u8| value << 8 | u64::from(byte);
        self.algorithm.is_numeric().then(|| self.as_bytes().iter().fold(0, fold))
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

impl fmt::Display for Digest {
    /// Writes lower-case hexadecimal, always in full width.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(self.as_bytes().len() * 2);
        for byte in self.as_bytes() {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_and_bytes_round_trip(bytes in proptest::collection::vec(any::<u8>(), 64)) {
            for &algorithm in Algorithm::ALL {
                let digest = Digest::from_bytes(algorithm, &bytes[..algorithm.digest_len()]).unwrap();
                prop_assert_eq!(digest.as_bytes(), &bytes[..algorithm.digest_len()]);
                let text = digest.to_string();
                prop_assert_eq!(text.len(), algorithm.digest_len() * 2);
                prop_assert_eq!(Digest::from_hex(algorithm, &text), Ok(digest));
                prop_assert_eq!(Digest::from_hex(algorithm, &text.to_uppercase()), Ok(digest));
                if let Some(value) = digest.value() {
                    prop_assert_eq!(Digest::from_value(algorithm, value), digest);
                }
            }
        }
    }

    #[test]
    fn leading_zeros_are_kept() {
        let digest = Digest::from_value(Algorithm::Adler32, 0x1a);
        assert_eq!(digest.to_string(), "0000001a");
        assert_eq!(digest.value(), Some(0x1a));
        assert_eq!(format!("{digest:?}"), "adler32:0000001a");
    }

    #[test]
    fn malformed_digests_are_refused() {
        let algorithm = Algorithm::Crc32;
        assert_eq!(
            Digest::from_bytes(algorithm, &[0; 5]),
            Err(DigestError::WrongLength { algorithm, found: 5 })
        );
        assert_eq!(
            Digest::from_hex(algorithm, "1234567"),
            Err(DigestError::WrongDigits { algorithm, found: 7 })
        );
        assert_eq!(
            Digest::from_hex(algorithm, "1234567ä"),
            Err(DigestError::NotHexadecimal { algorithm, character: 'ä' })
        );
        assert_eq!(Digest::from_hex(Algorithm::Md5, &"0".repeat(32)).unwrap().value(), None);
    }
}
