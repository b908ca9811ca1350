//! XRootD's form: one attribute of 96 bytes for each algorithm.

use haul_digest::{Algorithm, Digest};
use thiserror::Error;

/// Bytes of a value, always.
pub const VALUE_BYTES: usize = 96;

/// What the names of the attributes begin with; the algorithm's name follows.
pub const ATTRIBUTE_PREFIX: &str = "user.XrdCks.";

/// Bytes of the name, the NUL at its end included.
const NAME_BYTES: usize = 16;

/// Bytes of the longest checksum.
const CHECKSUM_BYTES_MAX: usize = 64;

/// The algorithms that XRootD computes itself, by its names: its `crc32` is POSIX's. Its `zcrc32`, zlib's, is left out:
/// releases of XRootD put it into the attribute as it lies in memory, so that its bytes depend on the machine.
const NAMES: [(Algorithm, &str); 4] = [
    (Algorithm::Adler32, "adler32"),
    (Algorithm::Cksum, "crc32"),
    (Algorithm::Crc32c, "crc32c"),
    (Algorithm::Md5, "md5"),
];

/// A checksum and the version of the file that it is for.
///
/// ```text
///   0                16        24      28    30    31    32                                96
///   +----------------+---------+-------+-----+-----+-----+---------------------------------+
///   | name, NUL      | fmTime  | csTime|  0  |  0  | len | value, then zeros               |
///   +----------------+---------+-------+-----+-----+-----+---------------------------------+
/// ```
/// The two times have their high byte first, whatever the machine (XRootD puts them into network order); the value
/// stands as it is printed, so a number has its high byte first, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrootdValue {
    /// The checksum.
    pub digest: Digest,
    /// The file's modification time when it was computed, in seconds since 1970.
    pub mtime: i64,
    /// How many seconds after that it was computed.
    pub delay: i32,
}

/// Why bytes are no checksum of XRootD's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum XrootdFlaw {
    /// Too many or too few bytes.
    #[error("{0} bytes where XRootD writes {VALUE_BYTES}")]
    Length(usize),
    /// The name is not that of the attribute, or not known here.
    #[error("the name of its algorithm is not the attribute's")]
    Name,
    /// The checksum is not as long as its algorithm makes it.
    #[error("a checksum of {0} bytes")]
    Value(u8),
}

/// What XRootD calls an algorithm; `None` for those it does not compute itself.
pub fn name_of(algorithm: Algorithm) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == algorithm).map(|&(_, name)| name)
}

/// All algorithms that XRootD computes itself.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    NAMES.iter().map(|&(algorithm, _)| algorithm)
}

impl XrootdValue {
    /// The bytes of the attribute; `None` if XRootD does not compute such a checksum.
    pub fn encode(&self) -> Option<[u8; VALUE_BYTES]> {
        let name = name_of(self.digest.algorithm())?.as_bytes();
        let value = self.digest.as_bytes();
        let mut bytes = [0; VALUE_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        bytes[16..24].copy_from_slice(&self.mtime.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.delay.to_be_bytes());
        bytes[31] = value.len() as u8;
        bytes[32..32 + value.len()].copy_from_slice(value);
        Some(bytes)
    }

    /// The value of the attribute for this algorithm.
    ///
    /// # Errors
    /// [`XrootdFlaw`].
    pub fn decode(algorithm: Algorithm, bytes: &[u8]) -> Result<XrootdValue, XrootdFlaw> {
        let bytes: &[u8; VALUE_BYTES] = bytes.try_into().map_err(|_| XrootdFlaw::Length(bytes.len()))?;
        let end = bytes[..NAME_BYTES].iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        if Some(&bytes[..end]) != name_of(algorithm).map(str::as_bytes) {
            return Err(XrootdFlaw::Name);
        }
        let value = bytes[32..].get(..usize::from(bytes[31])).unwrap_or_default();
        let digest = Digest::from_bytes(algorithm, value).map_err(|_| XrootdFlaw::Value(bytes[31]))?;
        let mut mtime = [0; 8];
        mtime.copy_from_slice(&bytes[16..24]);
        let delay = [bytes[24], bytes[25], bytes[26], bytes[27]];
        Ok(XrootdValue { digest, mtime: i64::from_be_bytes(mtime), delay: i32::from_be_bytes(delay) })
    }
}

const _: () = assert!(32 + CHECKSUM_BYTES_MAX == VALUE_BYTES);
