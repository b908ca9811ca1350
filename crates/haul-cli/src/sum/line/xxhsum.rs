//! Lines as xxhsum reads them.

use super::Claim;
use haul_digest::{Algorithm, Digest};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Starts of the tags of algorithms; any other tag means XXH64.
const TAGS: [(&[u8], Algorithm); 3] =
    [(b"XXH32", Algorithm::Xxh32), (b"XXH128", Algorithm::Xxh3_128), (b"XXH3", Algorithm::Xxh3_64)];

/// Reads a line without its line break; `None` if it is malformed. `little_endian` gives the byte
/// order of digests without a tag; a tag states its own. For xxhsum a line ends at its first NUL.
pub(crate) fn read(line: &[u8], little_endian: bool) -> Option<Claim> {
    let line = super::up_to_nul(line);
    let blank = line.iter().position(|&byte| byte == b' ')?;
    let (first, rest) = (&line[..blank], &line[blank + 1..]);
    let (digest, name) = match rest.first() {
        Some(b'(') => tagged(first, rest)?,
        _ => untagged(first, rest, little_endian)?,
    };
    let path: OsString = OsStr::from_bytes(name).to_owned();
    Some(Claim {
        path,
        digests: vec![digest],
        meanings: vec![],
        range: None,
        tree: false,
        size: None,
        guessed: false,
    })
}

/// Returns the digest with its bytes reversed.
pub(crate) fn turned(digest: &Digest) -> Option<Digest> {
    let bytes: Vec<u8> = digest.as_bytes().iter().rev().copied().collect();
    Digest::from_bytes(digest.algorithm(), &bytes).ok()
}

/// Reads `(NAME) = DIGEST` after a tag and a blank. `_LE` in the tag means that the digest's lowest
/// byte is first.
fn tagged<'l>(tag: &[u8], rest: &'l [u8]) -> Option<(Digest, &'l [u8])> {
    let close = rest.windows(4).rposition(|four| four == b") = ")?;
    let named = TAGS.iter().find(|(known, _)| tag.starts_with(known));
    let algorithm = named.map_or(Algorithm::Xxh64, |(_, algorithm)| *algorithm);
    let little_endian = tag.windows(3).any(|three| three == b"_LE");
    Some((digest(algorithm, &rest[close + 4..], little_endian)?, rest.get(1..close)?))
}

/// Reads `DIGEST`, a blank, any byte, and the name; the number of digits gives the algorithm.
/// Releases after 0.8.1 mark a 64-bit XXH3 by `XXH3_`.
fn untagged<'l>(text: &[u8], rest: &'l [u8], little_endian: bool) -> Option<(Digest, &'l [u8])> {
    let (algorithm, text) = match (text.strip_prefix(b"XXH3_"), text.len()) {
        (Some(text), _) => (Algorithm::Xxh3_64, text),
        (None, 8) => (Algorithm::Xxh32, text),
        (None, 16) => (Algorithm::Xxh64, text),
        (None, 32) => (Algorithm::Xxh3_128, text),
        _ => return None,
    };
    Some((digest(algorithm, text, little_endian)?, rest.get(1..)?))
}

fn digest(algorithm: Algorithm, text: &[u8], little_endian: bool) -> Option<Digest> {
    let digest = Digest::from_hex(algorithm, std::str::from_utf8(text).ok()?).ok()?;
    if little_endian { turned(&digest) } else { Some(digest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XXH64: &str = "8cb841db40e6ae83";

    fn read_text(line: &str, little_endian: bool) -> Option<(String, String)> {
        let claim = read(line.as_bytes(), little_endian)?;
        Some((claim.digests[0].to_string(), claim.path.into_string().unwrap()))
    }

    #[test]
    fn plain_and_tagged_lines_are_parsed() {
        for (line, name) in [
            (format!("{XXH64}  a"), "a"),
            (format!("{XXH64} *a"), "a"),
            (format!("{XXH64} \ta"), "a"),
            (format!("{XXH64} a"), ""),
            (format!("{XXH64}   a"), " a"),
            (format!("{XXH64}  a\r"), "a\r"),
            (format!("XXH64 (a) = {XXH64}"), "a"),
            (format!("XXH64 (b) (a) = {XXH64}"), "b) (a"),
            (format!("XXH3_64bits (a) = {XXH64}"), "a"),
            (format!("XXH3_{XXH64}  a"), "a"),
            (format!("XXH64 () = {XXH64}"), ""),
            (format!("\\XXH3 ((p) = x) = {XXH64}"), "(p) = x"),
        ] {
            assert_eq!(read_text(&line, false), Some((XXH64.to_owned(), name.to_owned())), "{line:?}");
        }
    }

    #[test]
    fn little_endian_digests_are_byte_swapped() {
        let turned = Some(("83aee640db41b88c".to_owned(), "a".to_owned()));
        assert_eq!(read_text(&format!("{XXH64}  a"), true), turned);
        for flag in [false, true] {
            assert_eq!(read_text(&format!("XXH64_LE (a) = {XXH64}"), flag), turned);
            assert_eq!(
                read_text(&format!("XXH64 (a) = {XXH64}"), flag),
                Some((XXH64.to_owned(), "a".to_owned()))
            );
        }
    }

    /// Regression: a line with a NUL in the name, or at the end, was malformed.
    #[test]
    fn a_line_ends_at_its_first_nul() {
        for (line, name) in [
            (format!("{XXH64}  a\0"), Some("a")),
            (format!("{XXH64}  a\0b"), Some("a")),
            (format!("{XXH64}  \0a"), Some("")),
            (format!("XXH64 (a) = {XXH64}\0x"), Some("a")),
            (format!("XXH64 (a\0) = {XXH64}"), None),
            (format!("{XXH64}\0  a"), None),
        ] {
            let expected = name.map(|name| (XXH64.to_owned(), name.to_owned()));
            assert_eq!(read_text(&line, false), expected, "{line:?}");
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            "",
            "junk",
            "# remark",
            XXH64,
            &format!("{XXH64} "),
            &format!("{XXH64}\ta"),
            &format!(" {XXH64}  a"),
            &format!("XXH64(a) = {XXH64}"),
            &format!("XXH64  (a) = {XXH64}"),
            &format!("XXH64 (a) ={XXH64}"),
            &format!("XXH32 (a) = {XXH64}"),
            &format!("XXH64 (a) = {XXH64} "),
            &format!("XXH64 () {XXH64}"),
            &format!("{XXH64} (a"),
        ] {
            assert_eq!(read(line.as_bytes(), false), None, "{line:?}");
        }
    }
}
