//! Information about a list that is available before its first line: the requested algorithms and
//! the name of the list.

use super::bag::BagRules;
use crate::Algorithm;

/// Input of a reader before the first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Accepted algorithms; `None` for all.
    pub forced: Option<Vec<Algorithm>>,
    /// Algorithms in the name of the list; used for digests of matching length.
    pub named: Vec<Algorithm>,
    /// Kind of the list.
    pub kind: Kind,
    /// True if lines end with NUL: names contain no escapes, and a carriage return belongs to the
    /// name.
    pub zero: bool,
}

/// Kinds of lists; some kinds cannot be recognized by a single line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Each line is recognized by itself.
    #[default]
    Any,
    /// Simple file verification: the name comes first, and the checksum is the CRC of zlib.
    Sfv,
    /// A manifest of a bag.
    Bag(BagRules),
}

impl Hints {
    /// Returns the hints in the name of a list, which must not contain directories.
    pub fn of_name(name: &str) -> Hints {
        let lower = name.to_ascii_lowercase();
        let kind = if lower.ends_with(".sfv") { Kind::Sfv } else { Kind::Any };
        Hints { named: named(&lower), kind, ..Hints::default() }
    }
}

/// Returns the algorithms that a name means, or `None` for an unknown name. There is only one,
/// except for `crc32`: that of POSIX for XRootD, and that of zlib for all other tools.
pub fn forced(name: &str) -> Option<Vec<Algorithm>> {
    if name.eq_ignore_ascii_case("crc32") || name.eq_ignore_ascii_case("crc-32") {
        return Some(vec![Algorithm::Crc32, Algorithm::Cksum]);
    }
    Algorithm::parse(name).ok().map(|algorithm| vec![algorithm])
}

/// Words that name an algorithm on request, but may have any meaning in the name of a list.
const VAGUE: [&str; 4] = ["", "crc", "posix", "zlib"];

/// Returns the algorithms that a word of the name means, searched from its end: `iso.sha256`,
/// `MD5SUMS`, `b3sum.txt`, `manifest-sha3-256.txt`.
fn named(lower: &str) -> Vec<Algorithm> {
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for end in (1..=words.len()).rev() {
        for start in [end.saturating_sub(2), end - 1] {
            let word = words[start..end].join("-");
            let bare = ["", "sums", "sum", "s"].iter().filter_map(|tail| word.strip_suffix(tail));
            if let Some(algorithms) = bare.filter(|word| !VAGUE.contains(word)).find_map(forced) {
                return algorithms;
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_name_determines_the_algorithms() {
        let one = |algorithm| vec![algorithm];
        for (name, expected) in [
            ("SHA256SUMS", one(Algorithm::Sha256)),
            ("MD5SUMS.txt", one(Algorithm::Md5)),
            ("zlib-1.3.tar.gz.sha1", one(Algorithm::Sha1)),
            ("b3sum.txt", one(Algorithm::Blake3)),
            ("b2sums", one(Algorithm::Blake2b)),
            ("data.xxh64", one(Algorithm::Xxh64)),
            ("data.xxh3", one(Algorithm::Xxh3_64)),
            ("manifest-sha3-256.txt", one(Algorithm::Sha3_256)),
            ("CHECKSUM.SHA512-FreeBSD", one(Algorithm::Sha512)),
            ("cksum", one(Algorithm::Cksum)),
            ("list.adler32", one(Algorithm::Adler32)),
            ("list.crc32", vec![Algorithm::Crc32, Algorithm::Cksum]),
            ("list.zcrc32", one(Algorithm::Crc32)),
            ("sums", vec![]),
            ("files.crc", vec![]),
            ("zlib.sums", vec![]),
            ("checksums.txt", vec![]),
            ("files.sfv", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(Hints::of_name(name).named, expected, "{name}");
        }
        assert_eq!(Hints::of_name("A.SFV").kind, Kind::Sfv);
    }
}
