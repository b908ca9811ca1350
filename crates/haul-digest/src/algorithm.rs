//! The registry of checksum algorithms: names, tags, digest lengths and combination properties.

use crate::blake2b_len::Blake2bLen;
use crate::lanes::LaneAlgorithm;
use std::fmt;
use thiserror::Error;

/// Defines [`Algorithm`] and the list of those with one length.
macro_rules! algorithms {
    ($($(#[$text:meta])* $name:ident,)* ; $($(#[$later_text:meta])* $later:ident,)*) => {
        /// A checksum algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Algorithm {
            $($(#[$text])* $name,)*
            /// BLAKE2b with fewer bits: a different digest, not a prefix of the longer one. Not in
            /// [`Algorithm::ALL`].
            Blake2bOf(Blake2bLen),
            $($(#[$later_text])* $later,)*
        }

        impl Algorithm {
            /// All algorithms except `Blake2bOf`, in the order of printed lists.
            pub const ALL: &'static [Algorithm] = &[$(Algorithm::$name,)* $(Algorithm::$later,)*];
        }
    };
}

algorithms! {
    /// Adler-32, RFC 1950.
    Adler32,
    /// CRC-32/ISO-HDLC, the CRC of zlib, gzip and zip. EOS calls it `crc32`, GNU `crc32b`, XRootD
    /// `zcrc32`.
    Crc32,
    /// CRC-32/ISCSI (Castagnoli), RFC 3720.
    Crc32c,
    /// The CRC of POSIX `cksum`: CRC-32/CKSUM over the bytes and then their number. XRootD calls it
    /// `crc32`.
    Cksum,
    /// CRC-64/NVME, S3's `CRC64NVME`.
    Crc64Nvme,
    /// CRC-64/XZ of xz and 7z: the polynomial of ECMA-182, reflected, initial value and final XOR
    /// all ones.
    Crc64Xz,
    /// The `crc64` of CERN's EOS. It is CRC-64/ECMA-182 of the CRC catalogue: the polynomial of XZ
    /// with the high bit first, initial value 0 and no final XOR.
    Crc64Eos,
    /// CRC-16/IBM-SDLC (X.25, ISO 3309; Qt's `qChecksum`).
    Crc16,
    /// The 16-bit sum of BSD's `sum`: rotated right by one bit before each byte is added.
    Bsd,
    /// The 16-bit sum of System V's `sum`: the sum of the bytes, with the carries folded in.
    Sysv,
    /// MD5, RFC 1321.
    Md5,
    /// SHA-1, FIPS 180-4.
    Sha1,
    /// SHA-224, FIPS 180-4.
    Sha224,
    /// SHA-256, FIPS 180-4.
    Sha256,
    /// SHA-384, FIPS 180-4.
    Sha384,
    /// SHA-512, FIPS 180-4.
    Sha512,
    /// SHA3-224, FIPS 202.
    Sha3_224,
    /// SHA3-256, FIPS 202.
    Sha3_256,
    /// SHA3-384, FIPS 202.
    Sha3_384,
    /// SHA3-512, FIPS 202.
    Sha3_512,
    /// SM3, GB/T 32905-2016 (ISO/IEC 10118-3).
    Sm3,
    /// BLAKE2b with 512 bits, RFC 7693.
    Blake2b,
    ;
    /// BLAKE3 with 256 bits.
    Blake3,
    /// XXH32 with seed 0.
    Xxh32,
    /// XXH64 with seed 0.
    Xxh64,
    /// XXH3 with 64 bits and seed 0.
    Xxh3_64,
    /// XXH3 with 128 bits and seed 0 (`XXH128`).
    Xxh3_128,
}

/// Rule for combining the digests of the pieces of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algebra {
    /// Pieces can be hashed in any order, by any worker, and their states combined.
    Combines,
    /// Bytes must be fed from the first to the last.
    Serial,
}

/// Error for a text that is not the name of an algorithm.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown checksum '{name}'; valid names are {known}", known = KnownNames)]
pub struct UnknownAlgorithm {
    /// The given text.
    pub name: String,
}

/// Displays all canonical names, separated by commas.
struct KnownNames;

impl fmt::Display for KnownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, algorithm) in Algorithm::ALL.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{algorithm}")?;
        }
        Ok(())
    }
}

/// An entry of the registry.
struct Entry {
    name: &'static str,
    tag: &'static str,
    /// Digest length in bytes.
    len: usize,
    /// Additional names that [`Algorithm::parse`] accepts, in lower case.
    aliases: &'static [&'static str],
}

const fn entry(name: &'static str, tag: &'static str, len: usize, aliases: &'static [&'static str]) -> Entry {
    Entry { name, tag, len, aliases }
}

impl Algorithm {
    const fn entry(self) -> Entry {
        match self {
            Algorithm::Adler32 => entry("adler32", "ADLER32", 4, &["adler", "adler-32"]),
            Algorithm::Crc32 => entry(
                "crc32",
                "CRC32",
                4,
                &["crc-32", "crc32b", "zcrc32", "crc32-iso-hdlc", "crc-32/iso-hdlc", "zlib"],
            ),
            Algorithm::Crc32c => {
                entry("crc32c", "CRC32C", 4, &["crc-32c", "crc32-c", "crc32-iscsi", "crc-32/iscsi"])
            }
            Algorithm::Cksum => {
                entry("cksum", "CKSUM", 4, &["posix", "posix-crc", "crc", "crc32-cksum", "crc-32/cksum"])
            }
            Algorithm::Crc64Nvme => {
                entry("crc64nvme", "CRC64NVME", 8, &["crc64-nvme", "crc-64-nvme", "crc-64/nvme"])
            }
            Algorithm::Crc64Xz => {
                entry("crc64xz", "CRC64XZ", 8, &["crc64", "crc-64", "crc64-xz", "crc-64-xz", "crc-64/xz"])
            }
            Algorithm::Crc64Eos => entry(
                "crc64eos",
                "CRC64EOS",
                8,
                &["crc64-eos", "crc-64-eos", "crc64-ecma", "crc64-ecma-182", "crc-64/ecma-182"],
            ),
            Algorithm::Crc16 => entry(
                "crc16",
                "CRC16",
                2,
                &["crc-16", "crc16-iso3309", "crc16-x25", "crc-16/ibm-sdlc", "qchecksum"],
            ),
            Algorithm::Bsd => entry("bsd", "BSD", 2, &["bsd-sum"]),
            Algorithm::Sysv => entry("sysv", "SYSV", 2, &["sysv-sum"]),
            Algorithm::Md5 => entry("md5", "MD5", 16, &["md-5"]),
            Algorithm::Sha1 => entry("sha1", "SHA1", 20, &["sha-1"]),
            Algorithm::Sha224 => entry("sha224", "SHA224", 28, &["sha-224", "sha2-224"]),
            Algorithm::Sha256 => entry("sha256", "SHA256", 32, &["sha-256", "sha2-256"]),
            Algorithm::Sha384 => entry("sha384", "SHA384", 48, &["sha-384", "sha2-384"]),
            Algorithm::Sha512 => entry("sha512", "SHA512", 64, &["sha-512", "sha2-512"]),
            Algorithm::Sha3_224 => entry("sha3-224", "SHA3-224", 28, &["sha3_224"]),
            Algorithm::Sha3_256 => entry("sha3-256", "SHA3-256", 32, &["sha3_256", "sha3"]),
            Algorithm::Sha3_384 => entry("sha3-384", "SHA3-384", 48, &["sha3_384"]),
            Algorithm::Sha3_512 => entry("sha3-512", "SHA3-512", 64, &["sha3_512"]),
            Algorithm::Sm3 => entry("sm3", "SM3", 32, &[]),
            Algorithm::Blake2b => {
                entry("blake2b", "BLAKE2b", 64, &["b2", "blake2", "blake2b-512", "blake2b512"])
            }
            Algorithm::Blake2bOf(len) => entry(len.name(), len.tag(), len.bytes(), &[]),
            Algorithm::Blake3 => entry("blake3", "BLAKE3", 32, &["b3", "blake3-256"]),
            Algorithm::Xxh32 => entry("xxh32", "XXH32", 4, &["xxhash32"]),
            Algorithm::Xxh64 => entry("xxh64", "XXH64", 8, &["xxhash64", "xxhash"]),
            Algorithm::Xxh3_64 => entry("xxh3-64", "XXH3", 8, &["xxh3", "xxh3_64", "xxh3_64bits"]),
            Algorithm::Xxh3_128 => {
                entry("xxh3-128", "XXH128", 16, &["xxh128", "xxhash128", "xxh3_128", "xxh3_128bits"])
            }
        }
    }

    /// Returns the canonical name, in lower case.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the algorithm with this name, tag or alias, in any case.
    ///
    /// Three names have different meanings in different tools. Here `crc32` is the CRC of zlib
    /// (XRootD's `crc32` is [`Algorithm::Cksum`]). `crc` is that of POSIX, as in `cksum -a crc`.
    /// `crc64` alone is that of XZ, as in xz and 7z, so the name of EOS's CRC is `crc64eos`.
    ///
    /// # Errors
    ///
    /// Returns [`UnknownAlgorithm`] if there is no such name; its message lists the known names.
    pub fn parse(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let wanted = text.to_ascii_lowercase();
        let named = |algorithm: &Algorithm| {
            let row = algorithm.entry();
            row.name == wanted
                || row.tag.eq_ignore_ascii_case(&wanted)
                || row.aliases.contains(&wanted.as_str())
        };
        let short = || Blake2bLen::parse(wanted.strip_prefix("blake2b-")?).map(Algorithm::Blake2bOf);
        let found = Algorithm::ALL.iter().copied().find(named).or_else(short);
        found.ok_or_else(|| UnknownAlgorithm { name: text.to_owned() })
    }

    /// Returns the tag in the BSD form `TAG (file) = digest`.
    pub const fn tag(self) -> &'static str {
        self.entry().tag
    }

    /// Returns the length of a digest in bytes: 1 to 64.
    pub const fn digest_len(self) -> usize {
        self.entry().len
    }

    /// Returns the rule for combining the digests of the pieces of a file.
    pub const fn algebra(self) -> Algebra {
        match self {
            Algorithm::Adler32
            | Algorithm::Crc32
            | Algorithm::Crc32c
            | Algorithm::Cksum
            | Algorithm::Crc64Nvme
            | Algorithm::Crc64Xz
            | Algorithm::Crc64Eos
            | Algorithm::Crc16
            | Algorithm::Sysv
            | Algorithm::Blake3 => Algebra::Combines,
            _ => Algebra::Serial,
        }
    }

    /// Returns true if [`crate::lanes`] can compute many streams of this algorithm in the lanes of
    /// one register.
    pub const fn has_lanes(self) -> bool {
        self.lanes().is_some()
    }

    /// Returns the lane algorithm of [`crate::lanes`], or `None` if there is none.
    pub const fn lanes(self) -> Option<LaneAlgorithm> {
        Some(match self {
            Algorithm::Md5 => LaneAlgorithm::Md5,
            Algorithm::Sha1 => LaneAlgorithm::Sha1,
            Algorithm::Sha224 => LaneAlgorithm::Sha224,
            Algorithm::Sha256 => LaneAlgorithm::Sha256,
            Algorithm::Sha384 => LaneAlgorithm::Sha384,
            Algorithm::Sha512 => LaneAlgorithm::Sha512,
            _ => return None,
        })
    }

    /// Returns true if the algorithm was designed to resist attackers; all others detect only
    /// accidents.
    pub fn is_cryptographic(self) -> bool {
        !self.is_numeric()
            && !matches!(
                self,
                Algorithm::Sysv
                    | Algorithm::Xxh32
                    | Algorithm::Xxh64
                    | Algorithm::Xxh3_64
                    | Algorithm::Xxh3_128
            )
    }

    /// Returns true if the digest is a number, usually printed in decimal or hexadecimal: Adler-32,
    /// the CRCs, and the sums of `sum`.
    pub const fn is_numeric(self) -> bool {
        let combines = matches!(self.algebra(), Algebra::Combines) && !matches!(self, Algorithm::Blake3);
        combines || matches!(self, Algorithm::Bsd)
    }
}

impl fmt::Display for Algorithm {
    /// Writes the canonical name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<LaneAlgorithm> for Algorithm {
    fn from(lanes: LaneAlgorithm) -> Algorithm {
        match lanes {
            LaneAlgorithm::Md5 => Algorithm::Md5,
            LaneAlgorithm::Sha1 => Algorithm::Sha1,
            LaneAlgorithm::Sha224 => Algorithm::Sha224,
            LaneAlgorithm::Sha256 => Algorithm::Sha256,
            LaneAlgorithm::Sha384 => Algorithm::Sha384,
            LaneAlgorithm::Sha512 => Algorithm::Sha512,
        }
    }
}

impl std::str::FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        Algorithm::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_name_denotes_one_algorithm() {
        let mut seen = BTreeMap::new();
        for &algorithm in Algorithm::ALL {
            let row = algorithm.entry();
            let tag = row.tag.to_ascii_lowercase();
            for name in row.aliases.iter().copied().chain([row.name, &tag]) {
                assert_eq!(name, name.to_ascii_lowercase());
                let other = seen.insert(name.to_owned(), algorithm);
                assert!(
                    other.is_none_or(|other| other == algorithm),
                    "{name} is both {other:?} and {algorithm}"
                );
            }
        }
        for (name, algorithm) in seen {
            assert_eq!(Algorithm::parse(&name), Ok(algorithm));
            assert_eq!(name.to_uppercase().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn algorithm_list_is_sorted_without_duplicates() {
        assert_eq!(Algorithm::ALL.len(), 27);
        assert!(Algorithm::ALL.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn lane_algorithms_match_the_registry() {
        for lanes in LaneAlgorithm::ALL {
            let algorithm = Algorithm::from(lanes);
            assert_eq!(algorithm.lanes(), Some(lanes));
            assert_eq!(algorithm.digest_len(), lanes.digest_len());
        }
        let with_lanes = Algorithm::ALL.iter().filter(|algorithm| algorithm.has_lanes());
        assert_eq!(with_lanes.count(), LaneAlgorithm::ALL.len());
    }

    #[test]
    fn unknown_name_error_lists_known_names() {
        let error = Algorithm::parse("sha3-84").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("unknown checksum 'sha3-84'; valid names are adler32, crc32, "), "{text}");
        assert!(text.ends_with(", xxh3-64, xxh3-128"), "{text}");
        assert!(Algorithm::parse("").is_err());
    }

    #[test]
    fn tool_specific_names_map_to_their_algorithm() {
        assert_eq!(Algorithm::parse("crc"), Ok(Algorithm::Cksum));
        assert_eq!(Algorithm::parse("ZCRC32"), Ok(Algorithm::Crc32));
        assert_eq!(Algorithm::parse("crc64"), Ok(Algorithm::Crc64Xz));
        assert_eq!(Algorithm::parse("BLAKE3-256"), Ok(Algorithm::Blake3));
        assert_eq!(Algorithm::parse("XXH3"), Ok(Algorithm::Xxh3_64));
        assert_eq!(Algorithm::parse("BLAKE2b"), Ok(Algorithm::Blake2b));
        assert_eq!(Algorithm::parse("sysv"), Ok(Algorithm::Sysv));
    }
}
