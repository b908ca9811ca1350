//! Checksums in the form of CERN's EOS: the raw value in one attribute, its algorithm in another.

use haul_digest::{Algorithm, Digest};
use thiserror::Error;

/// Attribute that holds the value.
pub const VALUE_ATTRIBUTE: &str = "user.eos.checksum";

/// Attribute that holds the name of the algorithm.
pub const TYPE_ATTRIBUTE: &str = "user.eos.checksumtype";

/// Algorithms of which EOS stores the complete value, with EOS's names. Of `crc64` and `xxhash64`
/// EOS stores four of eight bytes, which this module does not accept as a checksum.
const NAMES: [(Algorithm, &str); 7] = [
    (Algorithm::Adler32, "adler"),
    (Algorithm::Crc32, "crc32"),
    (Algorithm::Crc32c, "crc32c"),
    (Algorithm::Md5, "md5"),
    (Algorithm::Sha1, "sha1"),
    (Algorithm::Sha256, "sha256"),
    (Algorithm::Blake3, "blake3"),
];

/// Reason why a pair of attributes is not a checksum of EOS.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EosFlaw {
    /// An unknown type, or one whose value EOS does not store completely.
    #[error("unsupported checksum type '{0}'")]
    Type(String),
    /// The length of the value does not match its type.
    #[error("invalid checksum length of {0} bytes")]
    Value(usize),
}

/// Returns EOS's name of an algorithm, or `None` if EOS does not store its complete value.
pub fn name_of(algorithm: Algorithm) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == algorithm).map(|&(_, name)| name)
}

/// Returns the bytes of the value attribute. EOS writes a number in memory order, which is
/// little-endian on the machines that it runs on, and a hash in print order.
pub fn encode(digest: Digest) -> Vec<u8> {
    let mut bytes = digest.as_bytes().to_vec();
    if digest.value().is_some() {
        bytes.reverse();
    }
    bytes
}

/// Decodes the checksum from the two attributes.
///
/// # Errors
///
/// Returns an [`EosFlaw`] if the type is not supported or the value has the wrong length.
pub fn decode(kind: &[u8], value: &[u8]) -> Result<Digest, EosFlaw> {
    // Some writers end the name with a NUL.
    let kind = kind.strip_suffix(b"\0").unwrap_or(kind);
    let known = NAMES.iter().find(|(_, name)| name.as_bytes() == kind);
    let &(algorithm, _) =
        known.ok_or_else(|| EosFlaw::Type(String::from_utf8_lossy(kind).escape_default().to_string()))?;
    let mut bytes = value.to_vec();
    if matches!(algorithm, Algorithm::Adler32 | Algorithm::Crc32 | Algorithm::Crc32c) {
        bytes.reverse();
    }
    Digest::from_bytes(algorithm, &bytes).map_err(|_| EosFlaw::Value(value.len()))
}
