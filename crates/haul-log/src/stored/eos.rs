//! The form of CERN's EOS: the bare value in one attribute, its algorithm in another.

use haul_digest::{Algorithm, Digest};
use thiserror::Error;

/// The attribute with the value.
pub const VALUE_ATTRIBUTE: &str = "user.eos.checksum";

/// The attribute with the algorithm's name.
pub const TYPE_ATTRIBUTE: &str = "user.eos.checksumtype";

/// The algorithms of which EOS keeps the whole value, by its names. Of `crc64` and `xxhash64` it keeps four bytes of
/// eight, which are not taken for a checksum here.
const NAMES: [(Algorithm, &str); 7] = [
    (Algorithm::Adler32, "adler"),
    (Algorithm::Crc32, "crc32"),
    (Algorithm::Crc32c, "crc32c"),
    (Algorithm::Md5, "md5"),
    (Algorithm::Sha1, "sha1"),
    (Algorithm::Sha256, "sha256"),
    (Algorithm::Blake3, "blake3"),
];

/// Why a pair of attributes is no checksum of EOS.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EosFlaw {
    /// A type that is not known here, or whose value EOS does not keep whole.
    #[error("a checksum of type '{0}', which can't be checked here")]
    Type(String),
    /// The value is not as long as its type makes it.
    #[error("a checksum of {0} bytes")]
    Value(usize),
}

/// What EOS calls an algorithm; `None` for those of which it keeps no whole value.
pub fn name_of(algorithm: Algorithm) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == algorithm).map(|&(_, name)| name)
}

/// The bytes of the value's attribute. EOS writes a number as it lies in memory, that is with the low byte first on the
/// machines it runs on, and a hash as it is printed.
pub fn encode(digest: Digest) -> Vec<u8> {
    let mut bytes = digest.as_bytes().to_vec();
    if digest.value().is_some() {
        bytes.reverse();
    }
    bytes
}

/// The checksum from the two attributes.
///
/// # Errors
/// [`EosFlaw`].
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
