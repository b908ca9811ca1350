//! `TAG (NAME) = DIGEST`, and openssl's `TAG(NAME)= DIGEST`.

use super::claim::{Dialect, Flaw, Foreign, Interpretation, Line};
use super::digits::{Select, UntaggedDigest, exact, may_be_a_digest, reversed, row_of};
use super::hint::forced;
use super::plain::{claim, trim_end, trim_start};
use crate::Algorithm;

/// Maximum number of characters of a tag: more than the name of any checksum has.
const TAG_MAX: usize = 24;

/// Reads a line with a tag, or returns `None` if there is none. With `parts`, the line may contain
/// several digests without separators.
pub(super) fn read(select: &Select, line: &[u8], parts: bool) -> Option<Line> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let tag = tag_of(&line[..open])?;
    let close = line.iter().rposition(|&byte| byte == b')').filter(|&close| close > open)?;
    let name = &line[open + 1..close];
    let text = trim_end(trim_start(trim_start(&line[close + 1..]).strip_prefix(b"=")?));
    let (plain_tag, little_endian) = match tag.strip_suffix("_LE") {
        Some(rest) if rest.starts_with("XXH") => (rest, true),
        _ => (tag, false),
    };
    let Some(algorithms) = forced(plain_tag) else {
        // The line may be a digest without a tag before a name with parentheses.
        let is_foreign =
            !name.is_empty() && may_be_a_digest(text) && select.bare(tag.as_bytes()) == UntaggedDigest::No;
        return is_foreign.then(|| Line::Foreign(Foreign { algorithm: tag.to_owned(), name: name.to_vec() }));
    };
    if !algorithms.iter().any(|&algorithm| select.permits(algorithm)) {
        return Some(Line::Excluded);
    }
    let dialect = if little_endian { Dialect::Xxhsum } else { Dialect::Tagged };
    Some(match meanings(&algorithms, text, little_endian, parts) {
        Ok(meanings) => match select.permitted(meanings) {
            Some(meanings) => claim(name, dialect, meanings),
            None => Line::Excluded,
        },
        Err(flaw) => Line::Malformed(flaw),
    })
}

/// Returns the word before the parenthesis, which rhash pads with blanks.
fn tag_of(text: &[u8]) -> Option<&str> {
    let tag = std::str::from_utf8(trim_end(text)).ok()?;
    let is_tag = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    (!tag.is_empty() && tag.len() <= TAG_MAX && tag.chars().all(is_tag)).then_some(tag)
}

fn meanings(
    algorithms: &[Algorithm],
    text: &[u8],
    little_endian: bool,
    parts: bool,
) -> Result<Vec<Interpretation>, Flaw> {
    let mut meanings = Vec::with_capacity(algorithms.len());
    for &algorithm in algorithms {
        let digest = if little_endian { reversed(algorithm, text) } else { exact(algorithm, text) };
        meanings.push(match (digest, parts) {
            (Ok(digest), _) => Interpretation::of(digest),
            (Err(flaw), true) => {
                Interpretation { digests: row_of(algorithm, text).ok_or(flaw)?, blocks: None }
            }
            (Err(flaw), false) => return Err(flaw),
        });
    }
    Ok(meanings)
}
