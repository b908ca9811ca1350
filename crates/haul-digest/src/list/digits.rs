//! Interpretation of the text of a digest.

use super::claim::{Flaw, Interpretation};
use super::hint::Hints;
use crate::{Algorithm, Digest};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Algorithms by the number of hexadecimal digits of a digest without further information, the
/// likeliest first.
///
/// Names that the registry does not know are skipped. Four digits count as a checksum only if the
/// list says so, because they may be a word.
const LIKELY: [(usize, &[&str]); 8] = [
    (8, &["adler32", "crc32", "crc32c", "cksum", "xxh32"]),
    (16, &["xxh64", "crc64nvme", "crc64xz", "crc64eos", "xxh3-64"]),
    (32, &["md5", "xxh3-128"]),
    (40, &["sha1"]),
    (56, &["sha224", "sha3-224"]),
    (64, &["sha256", "blake3", "sha3-256", "blake2b-256", "sm3"]),
    (96, &["sha384", "sha3-384"]),
    (128, &["sha512", "blake2b", "sha3-512"]),
];

/// Number of digits of the shortest number that may lack leading zeros: adler32 and CRCs.
const NUMBER_DIGITS: usize = 8;

/// Accepted and likely algorithms.
#[derive(Clone, Debug)]
pub(super) struct Select {
    forced: Option<Vec<Algorithm>>,
    named: Vec<Algorithm>,
    likely: Vec<(usize, Vec<Algorithm>)>,
}

/// Result of interpreting a text without a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UntaggedDigest {
    /// Not a digest.
    No,
    /// A digest, but of none of the accepted algorithms.
    Excluded,
    /// The possible meanings.
    Means(Vec<Interpretation>, Notation),
}

/// Notation of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notation {
    Hex,
    Base64,
    /// `XXH3_` and digits.
    Xxh3,
}

impl Select {
    pub(super) fn new(hints: &Hints) -> Select {
        let known = |names: &[&str]| names.iter().filter_map(|name| Algorithm::parse(name).ok()).collect();
        let likely = LIKELY.iter().map(|(digits, names)| (*digits, known(names))).collect();
        Select { forced: hints.forced.clone(), named: hints.named.clone(), likely }
    }

    /// Returns the algorithms in the name of the list.
    pub(super) fn named(&self) -> &[Algorithm] {
        &self.named
    }

    /// Returns true if the algorithm is accepted.
    pub(super) fn permits(&self, algorithm: Algorithm) -> bool {
        self.forced.as_ref().is_none_or(|forced| forced.contains(&algorithm))
    }

    /// Returns the accepted meanings, or `None` if there are none.
    pub(super) fn permitted(&self, mut meanings: Vec<Interpretation>) -> Option<Vec<Interpretation>> {
        meanings.retain(|meaning| self.permits(meaning.algorithm()));
        (!meanings.is_empty()).then_some(meanings)
    }

    /// Interprets a text without a tag.
    pub(super) fn bare(&self, text: &[u8]) -> UntaggedDigest {
        let (text, script) = match text.strip_prefix(b"XXH3_") {
            Some(rest) if rest.len() == 16 => (rest, Notation::Xxh3),
            _ => (text, Notation::Hex),
        };
        let (bytes, script) = match decode_hex(text) {
            Some(bytes) => (bytes, script),
            None if script == Notation::Hex => match decode_base64(text) {
                Some(bytes) => (bytes, Notation::Base64),
                None => return self.short_number(text),
            },
            None => return UntaggedDigest::No,
        };
        if script == Notation::Xxh3 {
            return self.means(vec![Algorithm::Xxh3_64], &bytes, script);
        }
        let likely = self.likely(bytes.len());
        if let Some(forced) = &self.forced {
            let fitting = fitting(forced, &bytes);
            return match fitting.is_empty() {
                false => self.means(fitting, &bytes, script),
                true if likely.is_empty() => self.short_number(text),
                true => UntaggedDigest::Excluded,
            };
        }
        let named = fitting(&self.named, &bytes);
        match (named.is_empty(), likely.is_empty()) {
            (false, _) => self.means(named, &bytes, script),
            (true, false) => self.means(likely.to_vec(), &bytes, script),
            (true, true) => self.short_number(text),
        }
    }

    /// Interprets a text that may be one digest, or several in hexadecimal without separators.
    /// `XXH3_` before them names their algorithm.
    pub(super) fn row(&self, text: &[u8]) -> UntaggedDigest {
        let whole = self.bare(text);
        if let Some(rest) = text.strip_prefix(b"XXH3_") {
            let digests = row_of(Algorithm::Xxh3_64, rest);
            let meanings = digests.map(|digests| vec![Interpretation { digests, blocks: None }]);
            return match meanings.map(|meanings| self.permitted(meanings)) {
                None => whole,
                Some(None) => UntaggedDigest::Excluded,
                Some(Some(meanings)) => UntaggedDigest::Means(meanings, Notation::Xxh3),
            };
        }
        let all = self.likely.iter().filter(|(digits, _)| *digits >= 32).map(|(_, likely)| likely[0]);
        let candidates: Vec<Algorithm> = match &self.forced {
            Some(forced) => forced.clone(),
            None => self.named.iter().copied().chain(all).collect(),
        };
        let mut meanings =
            if let UntaggedDigest::Means(meanings, _) = &whole { meanings.clone() } else { Vec::new() };
        for algorithm in candidates {
            let known = meanings.iter().any(|meaning| meaning.algorithm() == algorithm);
            if !known && let Some(digests) = row_of(algorithm, text) {
                meanings.push(Interpretation { digests, blocks: None });
            }
        }
        match meanings.is_empty() {
            true => whole,
            false => UntaggedDigest::Means(meanings, Notation::Hex),
        }
    }

    fn likely(&self, bytes: usize) -> &[Algorithm] {
        let row = self.likely.iter().find(|(digits, _)| *digits == bytes * 2);
        row.map_or(&[], |(_, algorithms)| algorithms)
    }

    fn means(&self, algorithms: Vec<Algorithm>, bytes: &[u8], script: Notation) -> UntaggedDigest {
        let meaning = |algorithm| Digest::from_bytes(algorithm, bytes).ok().map(Interpretation::of);
        match self.permitted(algorithms.into_iter().filter_map(meaning).collect()) {
            Some(meanings) => UntaggedDigest::Means(meanings, script),
            None => UntaggedDigest::Excluded,
        }
    }

    /// Interprets a number without leading zeros, as `xrdcrc32c -x` prints it, but only if such a
    /// number is expected.
    fn short_number(&self, text: &[u8]) -> UntaggedDigest {
        self.padded_as(&self.named, text)
    }

    /// Interprets a number that may lack leading zeros: of an accepted algorithm, if only some are
    /// accepted, and else of one of `usual`.
    pub(super) fn padded_as(&self, usual: &[Algorithm], text: &[u8]) -> UntaggedDigest {
        let expected = self.forced.as_deref().unwrap_or(usual).iter().copied();
        let meanings: Vec<Interpretation> =
            expected.filter_map(|algorithm| padded(algorithm, text).map(Interpretation::of)).collect();
        match meanings.is_empty() {
            true => UntaggedDigest::No,
            false => UntaggedDigest::Means(meanings, Notation::Hex),
        }
    }
}

/// Parses a digest of a known algorithm, in hexadecimal or base64.
pub(super) fn exact(algorithm: Algorithm, text: &[u8]) -> Result<Digest, Flaw> {
    let shown = String::from_utf8_lossy(text);
    Digest::from_hex(algorithm, &shown).or_else(|error| {
        let digest = decode_base64(text).and_then(|bytes| Digest::from_bytes(algorithm, &bytes).ok());
        digest.ok_or(Flaw::Digest(error))
    })
}

/// Parses a digest in little-endian order, as `xxhsum --little-endian` writes numbers.
pub(super) fn reversed(algorithm: Algorithm, text: &[u8]) -> Result<Digest, Flaw> {
    let mut bytes = exact(algorithm, text)?.as_bytes().to_vec();
    bytes.reverse();
    Ok(Digest::from_bytes(algorithm, &bytes)?)
}

/// Parses a number in hexadecimal that may lack leading zeros.
pub(super) fn padded(algorithm: Algorithm, text: &[u8]) -> Option<Digest> {
    let digits = algorithm.digest_len() * 2;
    let is_number = algorithm.is_numeric() && digits >= NUMBER_DIGITS;
    if !is_number || text.is_empty() || text.len() > digits {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    Digest::from_hex(algorithm, &format!("{text:0>digits$}")).ok()
}

/// Parses digests of one algorithm without separators.
pub(super) fn row_of(algorithm: Algorithm, text: &[u8]) -> Option<Vec<Digest>> {
    let digits = algorithm.digest_len() * 2;
    if text.is_empty() || !text.len().is_multiple_of(digits) {
        return None;
    }
    let digest = |piece: &[u8]| Digest::from_hex(algorithm, std::str::from_utf8(piece).ok()?).ok();
    text.chunks(digits).map(digest).collect()
}

fn fitting(algorithms: &[Algorithm], bytes: &[u8]) -> Vec<Algorithm> {
    algorithms.iter().copied().filter(|algorithm| algorithm.digest_len() == bytes.len()).collect()
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    text.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

/// Decodes base64 in the standard alphabet or the URL-safe one (which rclone uses), with or without
/// padding. A text without padding must have the length of a SHA-384, because anything shorter may
/// be a word, and must not be 64 hexadecimal digits some of which are damaged.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let is_hex = || 4 * text.iter().filter(|byte| byte.is_ascii_hexdigit()).count() >= 3 * text.len();
    if text.last() != Some(&b'=') && (text.len() != 64 || is_hex()) {
        return None;
    }
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical);
    let common = GeneralPurpose::new(&alphabet::STANDARD, config).decode(text);
    common.or_else(|_| GeneralPurpose::new(&alphabet::URL_SAFE, config).decode(text)).ok()
}

/// Returns true if a text may be the value of an unknown checksum.
pub(super) fn may_be_a_digest(text: &[u8]) -> bool {
    (text.len() >= 8 && decode_hex(text).is_some())
        || decode_base64(text).is_some_and(|bytes| bytes.len() >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algorithms(select: &Select, text: &str) -> Vec<Algorithm> {
        match select.bare(text.as_bytes()) {
            UntaggedDigest::Means(meanings, _) => meanings.iter().map(Interpretation::algorithm).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn digest_length_determines_the_candidate_algorithms() {
        let select = Select::new(&Hints::default());
        let first = |digits: usize| algorithms(&select, &"0a".repeat(digits / 2)).first().copied();
        assert_eq!(first(32), Some(Algorithm::Md5));
        assert_eq!(first(40), Some(Algorithm::Sha1));
        assert_eq!(first(64), Some(Algorithm::Sha256));
        assert_eq!(first(128), Some(Algorithm::Sha512));
        assert_eq!(first(4), None);
        assert_eq!(first(48), None);
        assert!(algorithms(&select, "00790079").contains(&Algorithm::Crc32c));
        assert_eq!(algorithms(&select, "XXH3_0123456789abcdef"), [Algorithm::Xxh3_64]);
        assert_eq!(select.bare(b"hello"), UntaggedDigest::No);
        assert_eq!(select.bare(b""), UntaggedDigest::No);
        assert_eq!(select.bare(b"XXH3_"), UntaggedDigest::No);
    }

    #[test]
    fn requested_algorithms_limit_the_candidates() {
        let ask =
            |names: &[Algorithm]| Select::new(&Hints { forced: Some(names.to_vec()), ..Hints::default() });
        assert_eq!(algorithms(&ask(&[Algorithm::Blake3]), &"0".repeat(64)), [Algorithm::Blake3]);
        assert_eq!(ask(&[Algorithm::Md5]).bare(&[b'0'; 64]), UntaggedDigest::Excluded);
        assert_eq!(algorithms(&ask(&[Algorithm::Crc16]), "beef"), [Algorithm::Crc16]);
        assert_eq!(algorithms(&ask(&[Algorithm::Adler32]), "91e01de"), [Algorithm::Adler32]);
        assert_eq!(ask(&[Algorithm::Md5]).bare(b"91e01de"), UntaggedDigest::No);
    }

    #[test]
    fn base64_is_decoded_in_both_alphabets() {
        let select = Select::new(&Hints::default());
        for text in
            ["LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=", "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE="]
        {
            let UntaggedDigest::Means(meanings, script) = select.bare(text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!(script, Notation::Base64);
            let hex = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
            assert_eq!(meanings[0].digests[0].to_string(), hex);
        }
        assert_eq!(select.bare(b"password"), UntaggedDigest::No);
        // A damaged SHA-256 is not the SHA-384 of its length in base64.
        let damaged = format!("g{}", "0123456789abcdef".repeat(4).get(1..).unwrap());
        let ask = Select::new(&Hints { forced: Some(vec![Algorithm::Sha256]), ..Hints::default() });
        assert_eq!(ask.bare(damaged.as_bytes()), UntaggedDigest::No);
        assert_eq!(select.bare(b"===="), UntaggedDigest::No);
    }

    #[test]
    fn row_is_split_into_digests_of_fitting_length() {
        let select = Select::new(&Hints::default());
        let UntaggedDigest::Means(meanings, _) = select.row(&[b'1'; 64]) else { panic!("digests") };
        let parts: Vec<(Algorithm, usize)> =
            meanings.iter().map(|meaning| (meaning.algorithm(), meaning.digests.len())).collect();
        assert_eq!(parts[0], (Algorithm::Sha256, 1));
        assert!(parts.contains(&(Algorithm::Md5, 2)), "{parts:?}");
    }
}
