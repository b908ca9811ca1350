//! Lines with a digest without a tag: `DIGEST  NAME`, `NAME CRC`, `#mutil#RANGE#DIGEST  NAME`.

use super::claim::{Claim, Dialect, Flaw, Interpretation, Line, Span, StatedChecksum};
use super::digits::{Notation, Select, UntaggedDigest};
use super::tagged;
use crate::Algorithm;
use haul_model::ByteRange;

/// Returns a claim of one checksum of a complete file.
pub(super) fn claim(name: &[u8], dialect: Dialect, meanings: Vec<Interpretation>) -> Line {
    if name.is_empty() {
        return Line::Malformed(Flaw::NoName);
    }
    let stated = vec![StatedChecksum { meanings }];
    Line::Claim(Claim { name: name.to_vec(), dialect, stated, size: None, span: Span::File })
}

pub(super) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

pub(super) fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    &text[blanks..]
}

pub(super) fn trim_end(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|byte| is_blank(**byte)).count();
    &text[..text.len() - blanks]
}

/// Returns the text up to the first blank, and the text after that blank.
pub(super) fn split_blank(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| is_blank(byte))?;
    Some((&text[..at], &text[at + 1..]))
}

/// Reads `DIGEST  NAME`, `DIGEST *NAME`, `DIGEST NAME`. Returns `None` if the line does not start
/// with a digest.
pub(super) fn read(select: &Select, line: &[u8]) -> Option<Line> {
    let (text, rest) = split_blank(line).unwrap_or((line, b""));
    let (meanings, script) = match select.bare(text) {
        UntaggedDigest::No => return None,
        UntaggedDigest::Excluded => return Some(Line::Excluded),
        UntaggedDigest::Means(meanings, script) => (meanings, script),
    };
    let (name, one_blank) = after_digest(rest);
    // A signature is a word in base64, too.
    if name.is_empty() && script == Notation::Base64 {
        return None;
    }
    let dialect = match script {
        Notation::Xxh3 => Dialect::Xxhsum,
        Notation::Base64 => Dialect::Base64,
        Notation::Hex if one_blank => Dialect::OneBlank,
        Notation::Hex => Dialect::Plain,
    };
    Some(claim(name, dialect, meanings))
}

/// Returns the name after a digest and its first blank. Returns true if that blank is the only one
/// between them.
fn after_digest(rest: &[u8]) -> (&[u8], bool) {
    match rest {
        [b' ', name @ ..] => (name, false),
        [b'*', name @ ..] if !name.is_empty() => (name, false),
        name => (name, true),
    }
}

/// Reads `NAME CRC`; the blanks before the CRC do not belong to the name. Returns `None` if the
/// line does not end with a CRC.
pub(super) fn read_sfv(select: &Select, line: &[u8], is_sfv: bool) -> Option<Line> {
    let (name, text) = split_last(line)?;
    if text.len() != 8 {
        return None;
    }
    let mut meanings = match select.bare(text) {
        UntaggedDigest::No => return None,
        UntaggedDigest::Excluded => return Some(Line::Excluded),
        UntaggedDigest::Means(meanings, _) => meanings,
    };
    if is_sfv {
        let certain: Vec<Interpretation> =
            meanings.iter().filter(|meaning| meaning.algorithm() == Algorithm::Crc32).cloned().collect();
        meanings = if certain.is_empty() { meanings } else { certain };
    }
    Some(claim(name, Dialect::Sfv, meanings))
}

/// Does the same as [`read_sfv`] for a CRC that lacks leading zeros, in a list that is SFV.
pub(super) fn read_short_sfv(select: &Select, line: &[u8]) -> Option<Line> {
    let (name, text) = split_last(line)?;
    match select.padded_as(&[Algorithm::Crc32], text) {
        UntaggedDigest::No => None,
        UntaggedDigest::Excluded => Some(Line::Excluded),
        UntaggedDigest::Means(meanings, _) => Some(claim(name, Dialect::Sfv, meanings)),
    }
}

/// Returns the text before the last blanks, and the last word.
fn split_last(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = trim_end(line);
    let at = line.iter().rposition(|&byte| is_blank(byte))?;
    Some((trim_end(&line[..at]), &line[at + 1..]))
}

/// Reads the text after `#mutil#`: a range or nothing, `#`, and a line with possibly several
/// digests without separators.
pub(super) fn read_mutil(select: &Select, rest: &[u8]) -> (Line, bool) {
    let Some(hash) = rest.iter().position(|&byte| byte == b'#') else {
        return (Line::Malformed(Flaw::Damaged), false);
    };
    let range = match &rest[..hash] {
        b"" => None,
        text => match read_range(text) {
            Some(range) => Some(range),
            None => return (Line::Malformed(Flaw::Range), false),
        },
    };
    let body = trim_start(&rest[hash + 1..]);
    let (body, escaped) = body.strip_prefix(b"\\").map_or((body, false), |body| (body, true));
    let line = match tagged::read(select, body, true) {
        Some(line) => line,
        None => read_row(select, body),
    };
    let Line::Claim(claim) = line else { return (line, escaped) };
    (Line::Claim(Claim { dialect: Dialect::Mutil, span: Span::Tree(range), ..claim }), escaped)
}

fn read_row(select: &Select, body: &[u8]) -> Line {
    let Some((text, rest)) = split_blank(body) else { return Line::Malformed(Flaw::Damaged) };
    match select.row(text) {
        UntaggedDigest::No => Line::Malformed(Flaw::Damaged),
        UntaggedDigest::Excluded => Line::Excluded,
        UntaggedDigest::Means(meanings, _) => claim(after_digest(rest).0, Dialect::Mutil, meanings),
    }
}

/// Parses `START-END` in decimal, with an exclusive end.
fn read_range(text: &[u8]) -> Option<ByteRange> {
    let text = std::str::from_utf8(text).ok()?;
    let (start, end) = text.split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { text.parse::<u64>().ok() } else { None }
    };
    let (start, end) = (number(start)?, number(end)?);
    (start <= end).then(|| ByteRange::between(start, end))
}
