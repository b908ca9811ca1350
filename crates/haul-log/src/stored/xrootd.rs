//! Checksums in the form of XRootD: one attribute of 96 bytes for each algorithm.

use haul_digest::{Algorithm, Digest};
use thiserror::Error;

/// Size of every value in bytes.
pub const VALUE_BYTES: usize = 96;

/// Prefix of the attribute names; the name of the algorithm follows.
pub const ATTRIBUTE_PREFIX: &str = "user.XrdCks.";

/// Size of the name in bytes, including the NUL at its end.
const NAME_BYTES: usize = 16;

/// Size of the longest checksum in bytes.
const CHECKSUM_BYTES_MAX: usize = 64;

/// Algorithms that XRootD computes itself, with XRootD's names. Its `crc32` is that of POSIX. Its
/// `zcrc32`, that of zlib, is excluded: releases of XRootD store it in memory order, so its bytes
/// depend on the machine.
const NAMES: [(Algorithm, &str); 4] = [
    (Algorithm::Adler32, "adler32"),
    (Algorithm::Cksum, "crc32"),
    (Algorithm::Crc32c, "crc32c"),
    (Algorithm::Md5, "md5"),
];

/// A checksum, and the version of the file that it belongs to.
///
/// ```text
///   0                16        24      28    30    31    32                                96
///   +----------------+---------+-------+-----+-----+-----+---------------------------------+
///   | name, NUL      | fmTime  | csTime|  0  |  0  | len | value, then zeros               |
///   +----------------+---------+-------+-----+-----+-----+---------------------------------+
/// ```
/// The two times are big-endian on every machine (XRootD converts them to network order). The value
/// is stored in print order, so a number is big-endian, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrootdValue {
    /// The checksum.
    pub digest: Digest,
    /// Modification time of the file when the checksum was computed, in seconds since 1970.
    pub mtime: i64,
    /// Seconds between that time and the computation of the checksum.
    pub delay: i32,
}

/// Reason why bytes are not a checksum of XRootD.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum XrootdFlaw {
    /// The number of bytes is wrong.
    #[error("{0} bytes instead of {VALUE_BYTES}")]
    Length(usize),
    /// The name does not match the attribute, or is unknown.
    #[error("the algorithm does not match the name of the attribute")]
    Name,
    /// The length of the checksum does not match its algorithm.
    #[error("invalid checksum length of {0} bytes")]
    Value(u8),
}

/// Returns XRootD's name of an algorithm, or `None` if XRootD does not compute the algorithm
/// itself.
pub fn name_of(algorithm: Algorithm) -> Option<&'static str> {
    NAMES.iter().find(|(known, _)| *known == algorithm).map(|&(_, name)| name)
}

/// Returns all algorithms that XRootD computes itself.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    NAMES.iter().map(|&(algorithm, _)| algorithm)
}

impl XrootdValue {
    /// Returns the bytes of the attribute, or `None` if XRootD does not compute such a checksum.
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

    /// Decodes the attribute of this algorithm.
    ///
    /// # Errors
    ///
    /// Returns an [`XrootdFlaw`] if the length, the name or the checksum is invalid.
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
