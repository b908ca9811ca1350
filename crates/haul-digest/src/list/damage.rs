//! Recognition of damaged lines: text that looks like an entry of a format, but has no readable
//! digest. Such a line must not be skipped like a word of prose, because its file would not be
//! checked.

use super::claim::{Dialect, Line};
use super::hint::forced;
use super::plain::{is_blank, trim_end, trim_start};
use crate::Algorithm;

/// Numbers of hexadecimal digits of the digests in the registry, 8 and more.
const DIGITS: [usize; 7] = [8, 16, 32, 40, 56, 64, 96];

/// Minimum length of a word that is treated as a digest with several damaged characters.
const LONG: usize = 16;

/// Formats of the earlier lines of a list, as far as they decide about later ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// True after a line `NAME CRC`.
    pub(super) sfv: bool,
    /// True after a line with a decimal number and a size.
    decimal: bool,
    /// True after a digest in base64 without a tag.
    base64: bool,
    /// Lengths of digests before two blanks, or a blank and a star.
    widths: Vec<usize>,
}

impl Seen {
    /// Returns the state of a list whose algorithms are known from its name or the command line.
    pub(super) fn of(algorithms: &[Algorithm]) -> Seen {
        let is_decimal =
            |algorithm: &Algorithm| matches!(algorithm, Algorithm::Cksum | Algorithm::Bsd | Algorithm::Sysv);
        let widths = |algorithm: &Algorithm| {
            let bytes = algorithm.digest_len();
            [2 * bytes, bytes.div_ceil(3) * 4]
        };
        Seen {
            decimal: algorithms.iter().any(is_decimal),
            widths: algorithms.iter().flat_map(widths).collect(),
            ..Seen::default()
        }
    }

    /// Records the format of a line.
    pub(super) fn add(&mut self, line: &Line) {
        let Line::Claim(claim) = line else { return };
        match claim.dialect {
            Dialect::Sfv => self.sfv = true,
            Dialect::Cksum | Dialect::Sum => self.decimal = true,
            Dialect::Base64 => self.base64 = true,
            Dialect::Plain => {
                let digits = 2 * claim.stated[0].meanings[0].algorithm().digest_len();
                if !self.widths.contains(&digits) {
                    self.widths.push(digits);
                }
            }
            _ => {}
        }
    }

    /// Returns true if a line without a readable digest looks like an entry of any format, or of
    /// one that the list has used before.
    pub(super) fn looks_like_an_entry(&self, line: &[u8]) -> bool {
        let line = trim_end(trim_start(line));
        let line = line.strip_prefix(b"\\").unwrap_or(line);
        let mut words = line.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty());
        let (Some(first), second) = (words.next(), words.next()) else { return false };
        let last = words.next_back();
        let is_decimal = last.is_some() && second.is_some_and(|second| is_sum(first, second));
        let last = last.or(second).unwrap_or(first);
        let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
        starts_with_mark(line)
            || is_plain(line, first, second)
            || is_decimal
            || last.len() >= 8 && line.contains(&b'(') && resembles_hex(last)
            || self.widths.iter().any(|&width| has_width(line, first, width))
            || self.base64 && first.len() >= 8 && kinds_of_base64(first) == 3
            || self.decimal && second.is_some_and(|second| is_number(first) || is_number(second))
    }
}

/// Returns true if the last line of a list, which has no line end and which no format reads, may be
/// the start of a truncated entry: a single word, or the start of the mark of a tree.
pub fn is_start_of_an_entry(line: &[u8]) -> bool {
    let line = trim_end(line);
    let is_word = !line.starts_with(b"#") && !line.iter().any(|&byte| is_blank(byte));
    !line.is_empty() && (is_word || b"#mutil#".starts_with(line))
}

/// Returns true for a remark that was a digest until its first character was damaged: all but one
/// of its digits, and the blanks at their place.
pub(super) fn is_damaged_remark(line: &[u8]) -> bool {
    let is_digest = |digits: usize| {
        line.get(1..digits).is_some_and(|digest| digest.iter().all(u8::is_ascii_hexdigit))
            && separates(line, digits)
    };
    DIGITS.into_iter().any(is_digest)
}

/// Returns true for the start of a line that belongs to one format: a tag with a parenthesis,
/// `path=`, `TYPE: `.
fn starts_with_mark(line: &[u8]) -> bool {
    let is_algorithm =
        |word: &[u8]| std::str::from_utf8(trim_end(word)).is_ok_and(|word| forced(word).is_some());
    let up_to = |mark: u8| line.iter().position(|&byte| byte == mark).map(|at| line.split_at(at));
    let is_typed = |rest: &[u8]| {
        let mut words = rest[1..].split(|&byte| is_blank(byte));
        words.any(|word| word.len() >= 6 && word.iter().all(u8::is_ascii_alphanumeric) && resembles_hex(word))
    };
    line.starts_with(b"path=")
        || up_to(b'(').is_some_and(|(word, _)| is_algorithm(word))
        || up_to(b':').is_some_and(|(word, rest)| is_algorithm(word) && is_typed(rest))
}

/// Returns true for `DIGEST  NAME` and its relatives with a damaged digest.
fn is_plain(line: &[u8], first: &[u8], second: Option<&[u8]>) -> bool {
    let is_hex = || first.iter().all(u8::is_ascii_hexdigit) && first.iter().any(u8::is_ascii_digit);
    let is_short =
        (3..8).contains(&first.len()) && (is_hex() || first.ends_with(b"=")) && separates(line, first.len());
    let is_long = |word: &[u8]| word.len() >= LONG && resembles_hex(word);
    match second {
        // A blank in the middle of a digest leaves two words.
        Some(second) => is_short || resembles_hex(first) || resembles_base64(first) || is_long(second),
        // The name may be damaged as well. One word of base64 is a part of a signature.
        None => is_long(first),
    }
}

/// Returns true for the first words of `VALUE SIZE NAME` with a damaged value.
fn is_sum(value: &[u8], size: &[u8]) -> bool {
    let others = value.iter().filter(|byte| !byte.is_ascii_digit()).count();
    (3..=11).contains(&value.len()) && others <= 1 && size.iter().all(u8::is_ascii_digit)
}

/// Returns true if the blanks between a digest of this length and its name are at their place.
fn separates(line: &[u8], digits: usize) -> bool {
    line.len() > digits + 2 && matches!(line[digits..digits + 2], [b' ', b' ' | b'*'])
}

/// Returns true if a word of eight characters or more looks like hexadecimal digits, a few of which
/// may be damaged. A word without a decimal digit may be a word of prose.
fn resembles_hex(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"XXH3_").unwrap_or(word);
    let digits = word.iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    let run = word.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let marks = word.iter().filter(|byte| byte.is_ascii_punctuation()).count();
    let has_number = word.iter().any(u8::is_ascii_digit);
    has_number
        && match word.len() {
            0..6 => false,
            // Not a date, a time or a number with a unit.
            6..LONG => digits + 2 >= word.len() && digits >= 6 && marks <= 1,
            len => 4 * digits >= 3 * len || run >= LONG,
        }
}

/// Returns true for a word of a known length, with the blanks behind it at their place. One
/// character may be missing or too many.
fn has_width(line: &[u8], first: &[u8], width: usize) -> bool {
    separates(line, width) || first.len().abs_diff(width) == 1 && separates(line, first.len())
}

/// Returns true if a word looks like a digest in base64: with its padding, or as long as one of 64
/// bits and no word of prose.
fn resembles_base64(word: &[u8]) -> bool {
    word.len() >= 7 && word.ends_with(b"=") && kinds_of_base64(word) >= 2
        || word.len() >= 11 && kinds_of_base64(word) == 3
}

/// Returns the number of kinds of characters in a word of base64: upper case, lower case, digits.
/// Returns 0 if more than one character is none of base64.
fn kinds_of_base64(word: &[u8]) -> usize {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte);
    if word.iter().filter(|byte| !fits(byte)).count() > 1 {
        return 0;
    }
    let kinds = [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit];
    kinds.into_iter().filter(|is| word.iter().any(is)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "60b725f10c9c85c70d97880dfe8191b3";

    fn looks(line: &str) -> bool {
        Seen::default().looks_like_an_entry(line.as_bytes())
    }

    #[test]
    fn damaged_digests_of_every_form_are_entries() {
        for line in [
            format!("{}  a", &MD5[1..]),
            format!("x{MD5}  a"),
            format!("{}g{}  a", &MD5[..9], &MD5[10..]),
            format!("{} {}  a", &MD5[..5], &MD5[6..]),
            format!("\\{}  a\\n", &MD5[2..]),
            format!("  {} *a", &MD5[3..]),
            format!("{MD5}_a"),
            format!("XXH3_{}  a", &MD5[..15]),
            "906e  a".to_owned(),
            "90e  a".to_owned(),
            "A1k=  a".to_owned(),
            "0g123     1 a".to_owned(),
            "cbf4392  a".to_owned(),
            "cbf4392x  a".to_owned(),
            format!("MD5 (a) = {}x", &MD5[1..]),
            format!("MD5 (a = {MD5}"),
            format!("MX5 (a) = {}", &MD5[1..]),
            "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOs=  x".to_owned(),
            "bEDfXwtJc0c  f".to_owned(),
            "ctyx2ehff8=  f".to_owned(),
            "path=/a size=9 time=0".to_owned(),
            "adler32: 91e01de /tmp/a".to_owned(),
        ] {
            assert!(looks(&line), "{line}");
        }
    }

    #[test]
    fn prose_and_signatures_are_no_entries() {
        for line in [
            "junk",
            "junk and more",
            "feed me  now",
            "2026-11-21 first release",
            "Hash: SHA256",
            "iQEzBAEBCAAdFiEEWJ3RCsm8kmrZ+ZoCVXQLiX0aW2sFAmWf3vAACgkQVXQLiX0a",
            "untrusted comment: signature from minisign secret key",
            "see https://example.org/12345678 for more",
            "SHA256: of the release",
            "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3",
            "trusted comment: timestamp:1698765432",
            "version 1.2.3 (build 7)",
            "x",
            "",
        ] {
            assert!(!looks(line), "{line}");
        }
    }

    #[test]
    fn earlier_lines_make_weaker_forms_entries() {
        let mut seen = Seen::default();
        assert!(!seen.looks_like_an_entry(b"4xx7 1 a"));
        seen.decimal = true;
        assert!(seen.looks_like_an_entry(b"4xx7 1 a"));
        assert!(!seen.looks_like_an_entry(b"some words"));
        let damaged = "zzzzzz????~~~~~~~~~~~~~~~~~~~~~~  a";
        assert!(!seen.looks_like_an_entry(damaged.as_bytes()));
        seen.base64 = true;
        assert!(seen.looks_like_an_entry(b"FeKw08M4  x") && !seen.looks_like_an_entry(b"something else"));
        assert!(
            !seen.looks_like_an_entry(b"kG4  a")
                && Seen::of(&[Algorithm::Crc16]).looks_like_an_entry(b"kG4  a")
        );
        let seen = Seen::of(&[Algorithm::Md5]);
        assert!(seen.looks_like_an_entry(damaged.as_bytes()));
    }

    #[test]
    fn remarks_that_were_digests_are_recognized() {
        assert!(is_damaged_remark(format!("#{}  a", &MD5[1..]).as_bytes()));
        for line in [format!("#{MD5}  a"), format!("# {MD5}  a"), "# a".to_owned(), "#".to_owned()] {
            assert!(!is_damaged_remark(line.as_bytes()), "{line}");
        }
    }
}
