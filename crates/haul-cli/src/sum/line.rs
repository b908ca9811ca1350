//! One line of a list of checksums.
//!
//! [`read_line`] reads what `haul sum` and msum print; [`any`] reads every other format for `haul
//! sum`. [`gnu`] and [`b3sum`] read exactly as those tools do.

pub(crate) mod any;
pub(crate) mod b3sum;
pub(crate) mod gnu;

use haul_digest::list::{Interpretation, unescape};
use haul_digest::{Algorithm, Digest};
use haul_model::ByteRange;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Claim of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The file.
    pub(crate) path: OsString,
    /// The file's digest; several for the parts of a tree.
    pub(crate) digests: Vec<Digest>,
    /// All meanings of a line with several, or with a size in blocks; one of them must match. Empty
    /// if `digests` are the only meaning.
    pub(crate) meanings: Vec<Interpretation>,
    /// Range of a `#mutil#` line; `None` for the complete file.
    pub(crate) range: Option<ByteRange>,
    /// True if the digest is the root of a tree (or the roots of its parts), as in a `#mutil#`
    /// line.
    pub(crate) tree: bool,
    /// The file's size, if the line has it.
    pub(crate) size: Option<u64>,
    /// True if the digest may be of any algorithm with the same digest length.
    pub(crate) guessed: bool,
}

/// Rules for reading lines.
#[derive(Clone, Debug)]
pub(crate) struct LineRules {
    /// Candidate algorithms of a digest without a tag: the first of matching length. If empty, only
    /// tagged lines count.
    pub(crate) untagged: Vec<Algorithm>,
    /// True if a digest without a tag may be of any algorithm in `untagged` with the same digest
    /// length.
    pub(crate) guess: bool,
    /// Accepted algorithms of tags; `None` for all.
    pub(crate) tagged: Option<Vec<Algorithm>>,
    /// True if `#mutil#` starts a checksum and not a remark.
    pub(crate) mutil: bool,
    /// True if lines end with NUL and names have no escapes.
    pub(crate) zero: bool,
    /// True if lines in every other known format count too.
    pub(crate) any: bool,
}

/// Reads one line. All untagged lines of a list have either two blanks or one (as BSD's `-r`
/// writes).
struct LineReader<'a> {
    rules: &'a LineRules,
    /// True if the lines of the list have one blank; `None` until it is known.
    single_blank: &'a mut Option<bool>,
}

/// Result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A checksum.
    Claim(Claim),
    /// An empty line or a remark.
    Remark,
    /// Neither a checksum nor a remark.
    Malformed,
}

const MUTIL: &[u8] = b"#mutil#";

/// Reads a line without its line break.
pub(crate) fn read_line(line: &[u8], rules: &LineRules, single_blank: &mut Option<bool>) -> Line {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Line::Remark;
    }
    let mut reader = LineReader { rules, single_blank };
    let claim = match line.strip_prefix(MUTIL) {
        Some(rest) if rules.mutil => reader.mutil(rest),
        _ if line[0] == b'#' => return Line::Remark,
        _ => reader.claim(line, false),
    };
    claim.map_or(Line::Malformed, Line::Claim)
}

impl LineReader<'_> {
    /// Reads `[START-STOP]#` and a checksum.
    fn mutil(&mut self, rest: &[u8]) -> Option<Claim> {
        let hash = rest.iter().position(|&byte| byte == b'#')?;
        let range = match &rest[..hash] {
            b"" => None,
            text => Some(read_range(std::str::from_utf8(text).ok()?)?),
        };
        let claim = self.claim(&rest[hash + 1..], true)?;
        Some(Claim { range, tree: true, ..claim })
    }

    fn claim(&mut self, line: &[u8], tree: bool) -> Option<Claim> {
        let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
        let line = &line[blanks..];
        let (escaped, line) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let certain = self.tagged(line, tree).or_else(|| self.cksum(line));
        let guessed = certain.is_none() && self.rules.guess;
        let (digests, name, size) = certain.or_else(|| self.untagged(line, tree))?;
        let name = if escaped { unescape(name)? } else { name.to_vec() };
        (!name.contains(&0)).then(|| Claim {
            path: OsString::from_vec(name),
            digests,
            meanings: Vec::new(),
            range: None,
            tree: false,
            size,
            guessed,
        })
    }

    /// Reads `TAG (NAME) = DIGEST`, and OpenSSL's `TAG(NAME)= DIGEST`.
    fn tagged<'l>(&self, line: &'l [u8], tree: bool) -> Option<Fields<'l>> {
        let open = line.iter().position(|&byte| byte == b'(')?;
        let tag = std::str::from_utf8(&line[..open]).ok()?;
        let tag = tag.strip_suffix(' ').unwrap_or(tag);
        if tag.is_empty() || tag.contains(' ') {
            return None;
        }
        let algorithm = Algorithm::parse(tag).ok()?;
        if self.rules.tagged.as_ref().is_some_and(|allowed| !allowed.contains(&algorithm)) {
            return None;
        }
        let close = line.iter().rposition(|&byte| byte == b')')?;
        let name = line.get(open + 1..close)?;
        let digest = trim_start(trim_start(&line[close + 1..]).strip_prefix(b"=")?);
        Some((read_digests(algorithm, digest, tree)?, name, None))
    }

    /// Reads `DECIMAL SIZE NAME`, as cksum prints its CRC.
    fn cksum<'l>(&self, line: &'l [u8]) -> Option<Fields<'l>> {
        if !self.rules.untagged.contains(&Algorithm::Cksum) {
            return None;
        }
        let mut fields = line.splitn(3, |&byte| byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let (value, size) = (u32::try_from(number()?).ok()?, number()?);
        let digest = Digest::from_bytes(Algorithm::Cksum, &value.to_be_bytes()).ok()?;
        Some((vec![digest], fields.next()?, Some(size)))
    }

    /// Reads `DIGEST  NAME` or `DIGEST *NAME`, or with one blank throughout the list.
    fn untagged<'l>(&mut self, line: &'l [u8], tree: bool) -> Option<Fields<'l>> {
        let end = line.iter().position(|&byte| is_blank(byte))?;
        let text = &line[..end];
        // Without a tree, these two are printed in hexadecimal only with a tag.
        let is_decimal = |algorithm: &Algorithm| matches!(algorithm, Algorithm::Bsd | Algorithm::Sysv);
        let mut candidates = self
            .rules
            .untagged
            .iter()
            .filter(|algorithm| tree || text.ends_with(b"=") || !is_decimal(algorithm));
        let digests = candidates.find_map(|&algorithm| read_digests(algorithm, text, tree))?;
        let rest = &line[end + 1..];
        if rest.is_empty() {
            return None;
        }
        match rest {
            [b' ' | b'*', name @ ..] if !name.is_empty() => {
                if *self.single_blank == Some(true) {
                    return Some((digests, rest, None));
                }
                *self.single_blank = Some(false);
                Some((digests, name, None))
            }
            _ if *self.single_blank == Some(false) => None,
            _ => {
                *self.single_blank = Some(true);
                Some((digests, rest, None))
            }
        }
    }
}

type Fields<'l> = (Vec<Digest>, &'l [u8], Option<u64>);

/// Returns the text up to the first NUL, where text ends for tools in C.
fn up_to_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    &text[..end]
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    &text[blanks..]
}

/// Reads one digest in hexadecimal or base64; if parts are allowed, several in hexadecimal without
/// a gap.
fn read_digests(algorithm: Algorithm, text: &[u8], parts: bool) -> Option<Vec<Digest>> {
    let text = std::str::from_utf8(text).ok()?;
    let text = match algorithm {
        Algorithm::Xxh3_64 => text.strip_prefix("XXH3_").unwrap_or(text),
        _ => text,
    };
    let digits = algorithm.digest_len() * 2;
    if text.len() == digits
        && let Ok(digest) = Digest::from_hex(algorithm, text)
    {
        return Some(vec![digest]);
    }
    if let Some(bytes) = super::base64::decode(text)
        && let Ok(digest) = Digest::from_bytes(algorithm, &bytes)
    {
        return Some(vec![digest]);
    }
    if !parts || !text.is_ascii() || text.is_empty() || text.len() % digits != 0 {
        return None;
    }
    let piece = |at: usize| Digest::from_hex(algorithm, &text[at..at + digits]).ok();
    (0..text.len()).step_by(digits).map(piece).collect()
}

/// Returns true if an unreadable line starts with a possible digest (at least eight hexadecimal
/// digits), or ends with one after a tag.
pub(crate) fn has_digest(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_digest = |word: &[u8]| word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit);
    let mut words = trim_start(line).split(|&byte| is_blank(byte));
    let first = words.next().is_some_and(|word| is_digest(word.strip_prefix(b"\\").unwrap_or(word)));
    let rest: Vec<&[u8]> = words.collect();
    let tagged = line.contains(&b'(') && rest.last().is_some_and(|word| is_digest(word));
    first && rest.iter().any(|word| !word.is_empty()) || tagged
}

/// Reads `START-END`, with an exclusive end.
pub(crate) fn read_range(text: &str) -> Option<ByteRange> {
    let (start, end) = text.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (start, end) = (digits(start) && digits(end)).then_some((start, end))?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start <= end).then(|| ByteRange::between(start, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::list::escape;
    use proptest::prelude::*;

    const MD5: &str = "60b725f10c9c85c70d97880dfe8191b3";

    fn rules() -> LineRules {
        LineRules {
            untagged: vec![Algorithm::Md5, Algorithm::Blake3],
            guess: false,
            tagged: None,
            mutil: true,
            zero: false,
            any: false,
        }
    }

    fn read(line: &str) -> Line {
        read_line(line.as_bytes(), &rules(), &mut None)
    }

    fn path_of(line: &str) -> Option<String> {
        match read(line) {
            Line::Claim(claim) => claim.path.into_string().ok(),
            _ => None,
        }
    }

    #[test]
    fn all_line_formats_are_parsed() {
        for (line, path) in [
            (format!("{MD5}  a b"), "a b"),
            (format!("{MD5} *a"), "a"),
            (format!("{MD5} a"), "a"),
            (format!("  {MD5}  a\r"), "a"),
            (format!("\\{MD5}  a\\nb\\\\c\\rd"), "a\nb\\c\rd"),
            (format!("MD5 (a) b) = {MD5}"), "a) b"),
            (format!("MD5(a)= {MD5}"), "a"),
            ("BLAKE3-256 (x) = ".to_owned() + &"0".repeat(64), "x"),
            ("CRC32 (x) = 0000abcd".to_owned(), "x"),
            (format!("#mutil##{MD5}{MD5}  t"), "t"),
            (format!("#mutil#5-9#\\{MD5}  t\\n"), "t\n"),
        ] {
            assert_eq!(path_of(&line).as_deref(), Some(path), "{line}");
        }
        let Line::Claim(claim) = read(&format!("#mutil#5-9#{MD5}  t")) else { panic!("a checksum") };
        assert_eq!((claim.range, claim.tree), (Some(ByteRange::between(5, 9)), true));
    }

    #[test]
    fn malformed_lines_are_distinguished_from_comments() {
        for line in ["", "# remark", "\r"] {
            assert_eq!(read(line), Line::Remark, "{line}");
        }
        let short = &MD5[1..];
        for line in [
            "junk",
            MD5,
            &format!("{short}  a"),
            &format!("x{short}  a"),
            &format!("\\{MD5}  a\\q"),
            &format!("\\{MD5}  a\\"),
            &format!("MD5 (a = {MD5}"),
            &format!("MD9 (a) = {MD5}"),
            &format!("#mutil#9-5#{MD5}  t"),
            &format!("#mutil#{MD5}  t"),
            &format!("{MD5}  a\0b"),
        ] {
            assert_eq!(read(line), Line::Malformed, "{line}");
        }
    }

    #[test]
    fn a_list_uses_one_separator_throughout() {
        let mut blank = None;
        let mut read = |line: String| read_line(line.as_bytes(), &rules(), &mut blank);
        assert!(matches!(read(format!("{MD5} a")), Line::Claim(_)));
        let Line::Claim(claim) = read(format!("{MD5} *b")) else { panic!("a checksum") };
        assert_eq!(claim.path, "*b");
        let mut blank = Some(false);
        assert_eq!(read_line(format!("{MD5} a").as_bytes(), &rules(), &mut blank), Line::Malformed);
    }

    proptest! {
        #[test]
        fn escaped_names_round_trip(name in proptest::collection::vec(1u8..=255, 1..40)) {
            let escaped = escape(&name);
            prop_assert_eq!(escaped.is_some(), name.iter().any(|byte| b"\\\n\r".contains(byte)));
            prop_assert_eq!(unescape(&escaped.unwrap_or(name.clone())), Some(name));
        }

        #[test]
        fn any_line_is_parsed_without_panic(line in proptest::collection::vec(any::<u8>(), 0..120), prefix in proptest::sample::select(vec!["", "#mutil#", "MD5 (", "\\"])) {
            let line = [prefix.as_bytes(), &line].concat();
            let _ = read_line(&line, &rules(), &mut None);
        }
    }
}
