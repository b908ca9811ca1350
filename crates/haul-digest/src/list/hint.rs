//! What is known of a list before its first line: what was asked for, and what its name tells.

use super::bag::BagRules;
use crate::Algorithm;

/// What a reader is told beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Only these count; `None` for all there are.
    pub forced: Option<Vec<Algorithm>>,
    /// What the list's name calls its digests; believed for those of fitting length.
    pub named: Vec<Algorithm>,
    /// What kind of list it is.
    pub kind: Kind,
    /// Lines end with NUL: nothing in names is escaped, and a carriage return belongs to the name.
    pub zero: bool,
}

/// Kinds of lists whose lines can't be told by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Each line tells.
    #[default]
    Any,
    /// Simple file verification: the name comes first, and the checksum is zlib's CRC.
    Sfv,
    /// A manifest of a bag.
    Bag(BagRules),
}

impl Hints {
    /// What the name of a list tells; without folders.
    pub fn of_name(name: &str) -> Hints {
        let lower = name.to_ascii_lowercase();
        let kind = if lower.ends_with(".sfv") { Kind::Sfv } else { Kind::Any };
        Hints { named: named(&lower), kind, ..Hints::default() }
    }
}

/// The algorithms behind a name: one, but for `crc32`, by which XRootD means POSIX's and everyone else zlib's.
/// `None` for no known name.
pub fn forced(name: &str) -> Option<Vec<Algorithm>> {
    if name.eq_ignore_ascii_case("crc32") || name.eq_ignore_ascii_case("crc-32") {
        return Some(vec![Algorithm::Crc32, Algorithm::Cksum]);
    }
    Algorithm::parse(name).ok().map(|algorithm| vec![algorithm])
}

/// Words that name an algorithm when it is asked for, and in the name of a list may mean anything.
const VAGUE: [&str; 4] = ["", "crc", "posix", "zlib"];

/// The algorithms that a word of the name means, looked for from its end: `iso.sha256`, `MD5SUMS`, `b3sum.txt`,
/// `manifest-sha3-256.txt`.
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
    fn the_name_of_a_list_tells_what_it_holds() {
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
