//! Manifests of a bag, RFC 8493.

use super::claim::{Dialect, Flaw, Foreign, Line};
use super::digits::{Select, UntaggedDigest};
use super::escape::unescape_percent;
use super::hint::Hints;
use super::plain::{claim, split_blank, trim_start};
use super::{Kind, forced};

/// Rules for reading the manifests of a bag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BagRules {
    /// True if a percent sign in a name is encoded as `%25`, as since version 1.0. Earlier versions
    /// encode only line ends.
    pub encodes_percent: bool,
    /// Algorithm of the manifest, if this crate does not compute it.
    pub foreign: Option<String>,
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
    let Some((text, rest)) = split_blank(line) else { return Line::Malformed(Flaw::NoChecksum) };
    let rest = trim_start(rest);
    let rest = rest.strip_prefix(b"*").unwrap_or(rest);
    let escaped: &[u8] = if rules.encodes_percent { b"\n\r%" } else { b"\n\r" };
    let name = unescape_percent(rest, escaped);
    if leaves_root(&name) {
        return Line::Malformed(Flaw::OutsideBag);
    }
    if let Some(algorithm) = &rules.foreign {
        return Line::Foreign(Foreign { algorithm: algorithm.clone(), name });
    }
    match select.bare(text) {
        UntaggedDigest::No => Line::Malformed(Flaw::NoChecksum),
        UntaggedDigest::Excluded => Line::Excluded,
        UntaggedDigest::Means(meanings, _) => claim(&name, Dialect::BagIt, meanings),
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
    use crate::Algorithm;

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
    fn paths_outside_the_bag_are_detected() {
        for name in ["/etc/passwd", "../x", "data/../../x", "~root/x", "data/.."] {
            assert!(leaves_root(name.as_bytes()), "{name}");
        }
        for name in ["data/x", "data/..x", "./data/x", "data/~x"] {
            assert!(!leaves_root(name.as_bytes()), "{name}");
        }
    }
}
