//! Lines with several fields: cksum and sum, eos-checksum, xrdcp, hashdeep, md5deep.

use super::claim::{Blocks, Claim, Dialect, Flaw, Foreign, Interpretation, Line, Span, StatedChecksum};
use super::digits::{Select, UntaggedDigest, exact, may_be_a_digest, padded};
use super::hint::forced;
use super::plain::{claim, is_blank, trim_start};
use crate::{Algorithm, Digest};

/// Parses a decimal number at the start. Returns it with the text after it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    Some((number, &text[digits..]))
}

fn blanks(text: &[u8]) -> usize {
    text.iter().take_while(|byte| is_blank(**byte)).count()
}

/// Reads `VALUE SIZE NAME`.
///
/// cksum prints its CRC with the size in bytes; with crc32b, GNU's cksum prints the CRC of zlib.
/// `sum -s` prints a 16-bit value with blocks of 512 bytes. `sum` prints a value of five digits
/// with blocks of 1024, padded to five characters.
pub(super) fn read_cksum(select: &Select, line: &[u8]) -> Option<Line> {
    let (value, rest) = number(line)?;
    let digits = line.len() - rest.len();
    let gap = blanks(rest);
    let (count, rest) = number(&rest[gap..])?;
    if gap == 0 || digits > 10 {
        return None;
    }
    let name = match rest {
        [] => b"",
        [blank, name @ ..] if is_blank(*blank) => name,
        _ => return None,
    };
    let unpadded = gap == 1 && (digits == 1 || line[0] != b'0');
    let mut names: Vec<(&str, u64)> = Vec::new();
    if unpadded && u32::try_from(value).is_ok() {
        names.extend([("cksum", 1), ("crc32", 1)]);
    }
    if value <= u64::from(u16::MAX) {
        names.extend(unpadded.then_some(("sysv", 512)));
        names.extend((digits == 5).then_some(("bsd", 1024)));
    }
    // `12345678 7` is an XRootD value and a file with the name 7.
    if names.is_empty() || (name.is_empty() && digits == 8) {
        return None;
    }
    let meaning = |&(name, unit): &(&str, u64)| {
        let algorithm = Algorithm::parse(name).ok()?;
        let bytes = value.to_be_bytes();
        let digest = Digest::from_bytes(algorithm, &bytes[8 - algorithm.digest_len()..]).ok()?;
        Some(Interpretation { digests: vec![digest], blocks: Some(Blocks { count, unit }) })
    };
    let known: Vec<Interpretation> = names.iter().filter_map(meaning).collect();
    if known.is_empty() {
        return Some(Line::Foreign(Foreign { algorithm: "sum".to_owned(), name: name.to_vec() }));
    }
    // One CRC in 65536 is as small as a sum.
    let dialect = if value > u64::from(u16::MAX) { Dialect::Cksum } else { Dialect::Sum };
    Some(match select.permitted(known) {
        Some(known) => claim(name, dialect, known),
        None => Line::Excluded,
    })
}

/// Reads `SIZE  DIGEST  NAME`, with the size padded with blanks: md5deep -z.
pub(super) fn read_md5deep(select: &Select, line: &[u8]) -> Option<Line> {
    let (size, rest) = number(trim_start(line))?;
    let rest = rest.strip_prefix(b"  ")?;
    let digits = rest.iter().position(|&byte| byte == b' ').filter(|digits| *digits >= 32)?;
    let name = rest[digits..].strip_prefix(b"  ")?;
    match select.bare(&rest[..digits]) {
        UntaggedDigest::No => None,
        UntaggedDigest::Excluded => Some(Line::Excluded),
        UntaggedDigest::Means(meanings, _) => Some(sized(claim(name, Dialect::Md5deep, meanings), size)),
    }
}

fn sized(line: Line, size: u64) -> Line {
    match line {
        Line::Claim(claim) => Line::Claim(Claim { size: Some(size), ..claim }),
        other => other,
    }
}

/// Reads `path=NAME size=N time=SECONDS TYPE=HEX`. A name may contain anything, so the fields are
/// searched from the end.
pub(super) fn read_eos(select: &Select, line: &[u8]) -> Option<Line> {
    let rest = line.strip_prefix(b"path=")?;
    let at = rest.windows(6).rposition(|window| window == b" size=")?;
    let (name, fields) = (&rest[..at], std::str::from_utf8(&rest[at + 1..]).ok()?);
    let mut fields = fields.split(' ');
    let size = fields.next()?.strip_prefix("size=")?.parse().ok()?;
    fields.next()?.strip_prefix("time=").filter(|time| time.parse::<f64>().is_ok())?;
    let (kind, text) = fields.next()?.split_once('=')?;
    if fields.next().is_some() {
        return None;
    }
    let Some(algorithm) = eos_algorithm(kind) else {
        return Some(Line::Foreign(Foreign { algorithm: kind.to_owned(), name: name.to_vec() }));
    };
    Some(match exact(algorithm, text.as_bytes()) {
        _ if !select.permits(algorithm) => Line::Excluded,
        Err(flaw) => Line::Malformed(flaw),
        Ok(digest) => sized(claim(name, Dialect::Eos, vec![Interpretation::of(digest)]), size),
    })
}

/// Returns the algorithm for EOS's name: its `crc32` is that of zlib, its `crc64` that of ECMA-182.
fn eos_algorithm(kind: &str) -> Option<Algorithm> {
    match kind {
        "adler" => Some(Algorithm::Adler32),
        "crc32" => Some(Algorithm::Crc32),
        "crc64" => Some(Algorithm::Crc64Eos),
        "sha" => Some(Algorithm::Sha1),
        "xxhash64" => Some(Algorithm::Xxh64),
        _ => Algorithm::parse(kind).ok(),
    }
}

/// Reads `TYPE: HEX NAME SIZE`, the number without leading zeros: xrdcp --cksum TYPE:print.
pub(super) fn read_xrdcp(select: &Select, line: &[u8]) -> Option<Line> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let kind = std::str::from_utf8(&line[..colon]).ok()?;
    let is_word = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let rest = line[colon + 1..].strip_prefix(b" ").filter(|_| is_word)?;
    let gap = rest.iter().position(|&byte| byte == b' ')?;
    let (text, rest) = (&rest[..gap], &rest[gap + 1..]);
    let last = rest.iter().rposition(|&byte| byte == b' ')?;
    let (name, size) = (&rest[..last], number(&rest[last + 1..]).filter(|(_, tail)| tail.is_empty())?.0);
    // XRootD's crc32 is that of POSIX, its zcrc32 that of zlib.
    let algorithm = if kind == "crc32" { Some(Algorithm::Cksum) } else { Algorithm::parse(kind).ok() };
    let Some(algorithm) = algorithm else {
        let foreign = || Line::Foreign(Foreign { algorithm: kind.to_owned(), name: name.to_vec() });
        return may_be_a_digest(text).then(foreign);
    };
    if !select.permits(algorithm) {
        return Some(Line::Excluded);
    }
    let digest = padded(algorithm, text).map_or_else(|| exact(algorithm, text), Ok);
    let mut meanings = match digest {
        Ok(digest) => vec![Interpretation::of(digest)],
        Err(flaw) => return Some(Line::Malformed(flaw)),
    };
    if kind == "zcrc32" {
        // xrdcp (seen in 5.5) prints its bytes in little-endian order.
        let backward = meanings[0].digests[0].as_bytes().iter().rev().copied().collect::<Vec<u8>>();
        meanings.extend(Digest::from_bytes(algorithm, &backward).ok().map(Interpretation::of));
    }
    Some(match select.permitted(meanings) {
        Some(meanings) => sized(claim(name, Dialect::Xrdcp, meanings), size),
        None => Line::Excluded,
    })
}

/// Columns of a hashdeep header; the name of the file is always the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns(Vec<Column>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Digest(Vec<Algorithm>),
    Foreign(String),
}

impl Columns {
    /// Reads `size,md5,sha256,filename`.
    pub(super) fn read(header: &[u8]) -> Option<Columns> {
        let names: Vec<&str> = std::str::from_utf8(header).ok()?.split(',').map(str::trim).collect();
        let (last, names) = names.split_last()?;
        let column = |name: &&str| match (*name, forced(name)) {
            ("size", _) => Column::Size,
            (_, Some(algorithms)) => Column::Digest(algorithms),
            (name, None) => Column::Foreign(name.to_owned()),
        };
        (*last == "filename" && !names.is_empty()).then(|| Columns(names.iter().map(column).collect()))
    }

    /// Reads a row. Returns `None` if its fields do not match the columns.
    pub(super) fn row(&self, select: &Select, line: &[u8]) -> Option<Line> {
        let mut fields = line.splitn(self.0.len() + 1, |&byte| byte == b',');
        let (mut size, mut stated) = (None, Vec::new());
        let (mut foreign, mut excluded) = (None, false);
        for column in &self.0 {
            let field = fields.next()?;
            match column {
                Column::Size => size = Some(number(field).filter(|(_, tail)| tail.is_empty())?.0),
                Column::Foreign(name) => foreign = Some(name),
                Column::Digest(algorithms) => {
                    let digest = |&algorithm: &Algorithm| exact(algorithm, field).map(Interpretation::of);
                    let meanings: Result<Vec<Interpretation>, Flaw> = algorithms.iter().map(digest).collect();
                    match meanings.map(|meanings| select.permitted(meanings)) {
                        Err(flaw) => return Some(Line::Malformed(flaw)),
                        Ok(Some(meanings)) => stated.push(StatedChecksum { meanings }),
                        Ok(None) => excluded = true,
                    }
                }
            }
        }
        let name = fields.next()?.to_vec();
        Some(match (stated.is_empty(), foreign) {
            _ if name.is_empty() => Line::Malformed(Flaw::NoName),
            (false, _) => {
                Line::Claim(Claim { name, dialect: Dialect::Hashdeep, stated, size, span: Span::File })
            }
            (true, Some(algorithm)) if !excluded => {
                Line::Foreign(Foreign { algorithm: algorithm.clone(), name })
            }
            (true, _) => Line::Excluded,
        })
    }
}
