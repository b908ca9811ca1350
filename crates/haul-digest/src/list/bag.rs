//! Manifests of a bag, RFC 8493.

use super::claim::{Dialect, Flaw, Foreign, Interpretation, Line};
use super::digits::Select;
use super::escape::unescape_percent;
use super::hint::Hints;
use super::plain::{claim, split_blank, trim_start};
use super::{Kind, forced};
use crate::{Algorithm, Digest, DigestError};

/// Rules for reading the manifests of a bag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BagRules {
    /// True if a percent sign in a name is encoded as `%25`, as since version 1.0. Earlier versions
    /// encode only line ends.
    pub encodes_percent: bool,
    /// Algorithm of the manifest, if this crate does not compute it.
    pub foreign: Option<String>,
}

impl BagRules {
    /// Returns the path that a manifest or `fetch.txt` writes.
    fn name(&self, written: &[u8]) -> Vec<u8> {
        unescape_percent(written, if self.encodes_percent { b"\n\r%" } else { b"\n\r" })
    }

    /// Reads a line `URL LENGTH PATH` of `fetch.txt`. Returns the path, which is relative to the
    /// bag; the length is a number of bytes or `-`.
    ///
    /// # Errors
    ///
    /// Returns [`Flaw::Damaged`] for a line of another form, and [`Flaw::OutsideBag`] if the path
    /// leads out of the bag.
    pub fn fetched(&self, line: &[u8]) -> Result<Vec<u8>, Flaw> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (url, rest) = split_blank(line).ok_or(Flaw::Damaged)?;
        let (length, path) = split_blank(trim_start(rest)).ok_or(Flaw::Damaged)?;
        let is_length = length == b"-" || !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        let name = self.name(trim_start(path));
        // A URL has a scheme (RFC 3986, section 3).
        let has_scheme = url.iter().position(|&byte| byte == b':').is_some_and(|at| at > 0);
        if !(is_length && has_scheme) || name.is_empty() || name.contains(&0) {
            return Err(Flaw::Damaged);
        }
        if leaves_root(&name) { Err(Flaw::OutsideBag) } else { Ok(name) }
    }
}

impl Hints {
    /// Returns the hints in the name of a manifest (`manifest-sha512.txt`, `tagmanifest-md5.txt`),
    /// or `None` for any other name.
    pub fn of_manifest(name: &str, encodes_percent: bool) -> Option<Hints> {
        let stem = name.strip_suffix(".txt")?;
        let word = stem.strip_prefix("tagmanifest-").or_else(|| stem.strip_prefix("manifest-"))?;
        // Names in a bag are in lower case and without punctuation: sha3256 for SHA3-256.
        let spelled = match word.strip_prefix("sha3") {
            Some(bits @ ("224" | "256" | "384" | "512")) => format!("sha3-{bits}"),
            _ => word.to_owned(),
        };
        let named = forced(&spelled);
        let foreign = named.is_none().then(|| word.to_owned());
        let kind = Kind::Bag(BagRules { encodes_percent, foreign });
        Some(Hints { named: named.unwrap_or_default(), kind, ..Hints::default() })
    }
}

/// Reads `HEX PATH` with any blanks between them. Old tools write a `*` before the path.
pub(super) fn read(rules: &BagRules, select: &Select, line: &[u8]) -> Line {
    let Some((text, rest)) = split_blank(line) else { return Line::Malformed(Flaw::Damaged) };
    let rest = trim_start(rest);
    let rest = rest.strip_prefix(b"*").unwrap_or(rest);
    let name = rules.name(rest);
    if leaves_root(&name) {
        return Line::Malformed(Flaw::OutsideBag);
    }
    if let Some(algorithm) = &rules.foreign {
        return Line::Foreign(Foreign { algorithm: algorithm.clone(), name });
    }
    let digest = |&algorithm: &Algorithm| Digest::from_hex(algorithm, &String::from_utf8_lossy(text));
    let digests: Result<Vec<Digest>, DigestError> = select.named().iter().map(digest).collect();
    let meanings = digests.map(|digests| digests.into_iter().map(Interpretation::of).collect());
    match meanings.map(|meanings| select.permitted(meanings)) {
        _ if !select.named().iter().any(|&algorithm| select.permits(algorithm)) => Line::Excluded,
        Err(error) => Line::Malformed(Flaw::Digest(error)),
        Ok(None) => Line::Excluded,
        Ok(Some(meanings)) => claim(&name, Dialect::BagIt, meanings),
    }
}

fn leaves_root(name: &[u8]) -> bool {
    name.first() == Some(&b'/')
        || name.first() == Some(&b'~')
        || name.split(|&byte| byte == b'/').any(|step| step == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_name_determines_the_algorithm() {
        let named = |name: &str| Hints::of_manifest(name, true).map(|hints| hints.named);
        assert_eq!(named("manifest-sha256.txt"), Some(vec![Algorithm::Sha256]));
        assert_eq!(named("tagmanifest-md5.txt"), Some(vec![Algorithm::Md5]));
        assert_eq!(named("manifest-sha3512.txt"), Some(vec![Algorithm::Sha3_512]));
        assert_eq!(named("manifest-whirlpool.txt"), Some(vec![]));
        assert_eq!(named("fetch.txt"), None);
        assert_eq!(named("manifest-sha256"), None);
    }

    #[test]
    fn lines_of_fetch_txt_are_parsed_and_refused() {
        let rules = BagRules { encodes_percent: true, foreign: None };
        let read = |line: &str| rules.fetched(line.as_bytes());
        assert_eq!(read("https://x/a 12 data/a b%0A\r"), Ok(b"data/a b\n".to_vec()));
        assert_eq!(read("file:///a\t-  data/a"), Ok(b"data/a".to_vec()));
        for path in ["../x", "/x", "~/x", "~root/x", "data/../../x"] {
            assert_eq!(read(&format!("http://x 1 {path}")), Err(Flaw::OutsideBag), "{path}");
        }
        for line in
            ["http://x", "http://x 1", "http://x 1 ", "http://x 1x data/a", "x 1 data/a", ":x - data/a"]
        {
            assert_eq!(read(line), Err(Flaw::Damaged), "{line}");
        }
    }

    #[test]
    fn paths_outside_the_bag_are_detected() {
        for name in ["/etc/passwd", "../x", "data/../../x", "~root/x", "data/.."] {
            assert!(leaves_root(name.as_bytes()), "{name}");
        }
        for name in ["data/x", "data/..x", "./data/x", "data/~x"] {
            assert!(!leaves_root(name.as_bytes()), "{name}");
        }
    }
}
