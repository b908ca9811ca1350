//! Lines exactly as the coreutils read them.

use super::{Claim, is_blank, trim_start, unescape, up_to_nul};
use haul_digest::{Algorithm, Blake2bLen, Digest};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Tool that reads the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GnuRules {
    tool: Tool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    /// A tool with one algorithm.
    One(Algorithm),
    /// `cksum`, with the algorithm of its `-a`.
    Cksum(Option<Algorithm>),
}

/// State from earlier lines of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GnuState {
    /// True if lines have one blank before the name, as BSD's `-r` writes them; false for two.
    single_blank: Option<bool>,
    /// The algorithm of the last tag that `cksum` read.
    met: Option<Algorithm>,
}

/// Minimum number of bytes of a `b2sum` line: digests have at least two digits.
const B2SUM_LINE_MIN: usize = 3;

impl GnuRules {
    /// Returns the rules of a tool with one algorithm.
    pub(crate) fn of(algorithm: Algorithm) -> GnuRules {
        GnuRules { tool: Tool::One(algorithm) }
    }

    /// Returns the rules of `cksum`; without an algorithm it accepts only tagged lines.
    pub(crate) fn cksum(algorithm: Option<Algorithm>) -> GnuRules {
        GnuRules { tool: Tool::Cksum(algorithm) }
    }

    /// Returns the tool's name for checksums in a message about a line.
    pub(crate) fn kind(&self, state: &GnuState) -> &'static str {
        match self.tool {
            Tool::One(algorithm) | Tool::Cksum(Some(algorithm)) => algorithm.tag(),
            Tool::Cksum(None) => state.met.map_or("CRC", Algorithm::tag),
        }
    }

    /// Reads a line without its line break, which is not a remark; `None` if it is malformed.
    pub(crate) fn read(&self, line: &[u8], state: &mut GnuState) -> Option<Claim> {
        let line = trim_start(line);
        let (escaped, line) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (digest, name) = match self.tag(line, state) {
            Tag::Of(algorithm, rest) => self.tagged(algorithm, rest)?,
            Tag::Wrong => return None,
            Tag::None => self.untagged(line, state)?,
        };
        let name = match escaped {
            true => unescape(name).filter(|name| !name.contains(&0))?,
            // For these tools a name ends at the line's first NUL.
            false => up_to_nul(name).to_vec(),
        };
        Some(Claim {
            path: OsString::from_vec(name),
            digests: vec![digest],
            meanings: Vec::new(),
            range: None,
            tree: false,
            guessed: false,
            size: None,
        })
    }

    /// Finds a tag at the start of a line.
    fn tag<'l>(&self, line: &'l [u8], state: &mut GnuState) -> Tag<'l> {
        match self.tool {
            Tool::One(algorithm) => match line.strip_prefix(algorithm.tag().as_bytes()) {
                Some(rest) => behind_tag(algorithm, rest),
                None => Tag::None,
            },
            Tool::Cksum(Some(asked)) => match line.strip_prefix(asked.tag().as_bytes()) {
                // Any byte but a dash ends the requested tag.
                Some([end, rest @ ..]) if !b"-(".contains(end) && asked != Algorithm::Blake2b => {
                    behind_tag(asked, rest)
                }
                Some(rest) => behind_tag(asked, rest),
                None => Tag::None,
            },
            Tool::Cksum(None) => {
                // A NUL ends a tag, as it ends every text of a tool in C.
                let ends = |byte: &u8| is_blank(*byte) || matches!(byte, b'-' | b'(' | 0);
                let end = line.iter().position(ends).unwrap_or(line.len());
                // A tag of SHA-3 has a length after a dash; the others end before the dash.
                let found = ALGORITHMS.iter().find_map(|&algorithm| {
                    let tag = algorithm.tag().as_bytes();
                    let long = tag.contains(&b'-') && line.starts_with(tag);
                    (long || &line[..end] == tag).then(|| (algorithm, &line[tag.len()..]))
                });
                match found {
                    Some((algorithm, rest)) => {
                        state.met = Some(algorithm);
                        let rest = match rest {
                            [end, rest @ ..]
                                if (is_blank(*end) || *end == 0) && algorithm != Algorithm::Blake2b =>
                            {
                                rest
                            }
                            _ => rest,
                        };
                        behind_tag(algorithm, rest)
                    }
                    None => Tag::Wrong,
                }
            }
        }
    }

    /// Reads `NAME) = DIGEST`.
    fn tagged<'l>(&self, algorithm: Algorithm, rest: &'l [u8]) -> Option<(Digest, &'l [u8])> {
        let close = rest.iter().rposition(|&byte| byte == b')')?;
        let digest = trim_start(trim_start(&rest[close + 1..]).strip_prefix(b"=")?);
        Some((self.digest(algorithm, up_to_nul(digest))?, &rest[..close]))
    }

    /// Reads `DIGEST  NAME` or `DIGEST *NAME`, or with one blank throughout the run.
    fn untagged<'l>(&self, line: &'l [u8], state: &mut GnuState) -> Option<(Digest, &'l [u8])> {
        let algorithm = match self.tool {
            Tool::One(algorithm) | Tool::Cksum(Some(algorithm)) => algorithm,
            Tool::Cksum(None) => return None,
        };
        let shortest = match (self.tool, algorithm) {
            (Tool::Cksum(_), _) => 0,
            (_, Algorithm::Blake2b) => B2SUM_LINE_MIN,
            _ => algorithm.digest_len() * 2 + 2,
        };
        if line.len() < shortest {
            return None;
        }
        let end = line.iter().position(|&byte| is_blank(byte))?;
        let (text, rest) = (&line[..end], &line[end + 1..]);
        let algorithm = if algorithm == Algorithm::Blake2b { blake2b_of(text.len())? } else { algorithm };
        let digest = self.digest(algorithm, text)?;
        let one_blank = rest.len() == 1 || !matches!(rest.first(), Some(b' ' | b'*'));
        match (one_blank, state.single_blank) {
            (true, Some(false)) => None,
            (true, _) => {
                state.single_blank = Some(true);
                Some((digest, rest))
            }
            (false, Some(true)) => Some((digest, rest)),
            (false, _) => {
                state.single_blank = Some(false);
                Some((digest, &rest[1..]))
            }
        }
    }

    /// Reads a hexadecimal digest; for `cksum` since 9.2 also base64 with padding.
    fn digest(&self, algorithm: Algorithm, text: &[u8]) -> Option<Digest> {
        let text = std::str::from_utf8(text).ok()?;
        let hex = Digest::from_hex(algorithm, text).ok();
        if hex.is_some() || !matches!(self.tool, Tool::Cksum(_)) {
            return hex;
        }
        Digest::from_bytes(algorithm, &super::super::base64::decode(text)?).ok()
    }
}

/// Start of a line.
enum Tag<'l> {
    /// The tag of an algorithm and an opening parenthesis, with the text after it.
    Of(Algorithm, &'l [u8]),
    /// A tag that is not valid.
    Wrong,
    /// No tag.
    None,
}

/// Algorithms whose tags `cksum` reads.
const ALGORITHMS: [Algorithm; 12] = [
    Algorithm::Md5,
    Algorithm::Sha1,
    Algorithm::Sha224,
    Algorithm::Sha256,
    Algorithm::Sha384,
    Algorithm::Sha512,
    Algorithm::Sha3_224,
    Algorithm::Sha3_256,
    Algorithm::Sha3_384,
    Algorithm::Sha3_512,
    Algorithm::Blake2b,
    Algorithm::Sm3,
];

/// Reads the text after a tag: for BLAKE2b an optional length, else any byte that ends the tag;
/// then at most one blank, then the parenthesis.
fn behind_tag(algorithm: Algorithm, rest: &[u8]) -> Tag<'_> {
    let (algorithm, rest) = match (algorithm, rest.strip_prefix(b"-")) {
        (Algorithm::Blake2b, Some(rest)) => match read_length(rest) {
            Some((bits, rest)) if bits.is_multiple_of(8) => match blake2b_of(bits as usize / 4) {
                Some(algorithm) => (algorithm, rest),
                None => return Tag::Wrong,
            },
            _ => return Tag::Wrong,
        },
        (Algorithm::Blake2b, None) => match rest {
            [end, rest @ ..] if *end != b'(' => (algorithm, rest),
            _ => (algorithm, rest),
        },
        _ => (algorithm, rest),
    };
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    rest.strip_prefix(b"(").map_or(Tag::Wrong, |rest| Tag::Of(algorithm, rest))
}

/// Reads a number as strtoumax(3) does with base 0: blanks, a plus, then octal after 0, hexadecimal
/// after 0x, else decimal. A number above every valid length saturates.
fn read_length(text: &[u8]) -> Option<(u32, &[u8])> {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = &text[blanks..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let hex = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"));
    let hex = hex.filter(|digits| digits.first().is_some_and(u8::is_ascii_hexdigit));
    let (digits, base) = match hex {
        Some(digits) => (digits, 16),
        None => (text, if text.first() == Some(&b'0') { 8 } else { 10 }),
    };
    let mut value: u32 = 0;
    let mut count = 0;
    while let Some(digit) = digits.get(count).and_then(|&byte| char::from(byte).to_digit(base)) {
        value = value.saturating_mul(base).saturating_add(digit).min(1 << 20);
        count += 1;
    }
    (count > 0).then(|| (value, &digits[count..]))
}

/// Returns BLAKE2b with a digest of `digits` hexadecimal digits.
fn blake2b_of(digits: usize) -> Option<Algorithm> {
    match digits {
        128 => Some(Algorithm::Blake2b),
        _ if digits.is_multiple_of(2) => Blake2bLen::new(digits / 2).map(Algorithm::Blake2bOf),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "25f9e794323b453885f5181f1b624d0b";

    fn read(rules: &GnuRules, line: &str) -> Option<Claim> {
        rules.read(line.as_bytes(), &mut GnuState::default())
    }

    #[test]
    fn blake2b_lengths_are_parsed_as_by_strtoumax() {
        let b2sum = GnuRules::of(Algorithm::Blake2b);
        for tag in ["BLAKE2b-16", "BLAKE2b- 16", "BLAKE2b-+16", "BLAKE2b-020", "BLAKE2b-0x10"] {
            assert!(read(&b2sum, &format!("{tag} (a) = 1209")).is_some(), "{tag}");
        }
        for tag in [
            "BLAKE2b -16",
            "BLAKE2b-16 ",
            "BLAKE2b-016",
            "BLAKE2b-16x",
            "BLAKE2b-0",
            "BLAKE2b-520",
            "BLAKE2b",
        ] {
            assert_eq!(read(&b2sum, &format!("{tag} (a) = 1209")), None, "{tag}");
        }
        assert_eq!(read_length(b"99999999999 x"), Some((1 << 20, b" x".as_slice())));
        assert_eq!(read_length(b"0x"), Some((0, b"x".as_slice())));
    }

    /// Regression: two blanks, or a byte that is not a blank, were refused, although the coreutils
    /// accept them as the end of the tag. For `cksum` without `-a`, a NUL did not end it.
    #[test]
    fn tags_end_as_in_coreutils() {
        let readers =
            |algorithm| [GnuRules::of(algorithm), GnuRules::cksum(None), GnuRules::cksum(Some(algorithm))];
        for (algorithm, digest, ends) in [
            (
                Algorithm::Blake2b,
                "0".repeat(128),
                &[
                    (" (a)", [true; 3]),
                    ("(a)", [true; 3]),
                    ("  (a)", [true; 3]),
                    ("\t (a)", [true; 3]),
                    ("\t(a)", [true; 3]),
                    ("# (a)", [true, false, true]),
                    ("x(a)", [true, false, true]),
                    ("   (a)", [false; 3]),
                    ("#- (a)", [false; 3]),
                    (" #(a)", [false; 3]),
                    ("\0(a)", [true; 3]),
                    ("\0 (a)", [true; 3]),
                    ("\0\0(a)", [false; 3]),
                    ("\0x(a)", [false; 3]),
                    ("\0-16 (a)", [false; 3]),
                    ("-512\0(a)", [false; 3]),
                    ("-512 (a)", [true; 3]),
                    ("-512  (a)", [false; 3]),
                    ("-512#(a)", [false; 3]),
                ][..],
            ),
            (
                Algorithm::Md5,
                MD5.to_owned(),
                &[
                    (" (a)", [true; 3]),
                    ("(a)", [true; 3]),
                    ("  (a)", [false, true, true]),
                    ("\t(a)", [false, true, true]),
                    ("# (a)", [false, false, true]),
                    ("#(a)", [false, false, true]),
                    ("\0(a)", [false, true, true]),
                    ("\0 (a)", [false, true, true]),
                    ("\0\0(a)", [false; 3]),
                    ("\0x(a)", [false; 3]),
                    ("\0-(a)", [false; 3]),
                    (" \0(a)", [false; 3]),
                    ("-(a)", [false; 3]),
                    ("   (a)", [false; 3]),
                ],
            ),
        ] {
            for (end, expected) in ends {
                let line = format!("{}{end} = {digest}", algorithm.tag());
                let found = readers(algorithm).map(|rules| read(&rules, &line).is_some());
                assert_eq!(found, *expected, "{line:?}");
            }
        }
    }

    #[test]
    fn cksum_reports_the_last_algorithm_it_read() {
        let (rules, mut state) = (GnuRules::cksum(None), GnuState::default());
        assert_eq!(rules.kind(&state), "CRC");
        assert!(rules.read(format!("MD5 (a) = {MD5}").as_bytes(), &mut state).is_some());
        assert_eq!(rules.read(b"SHA1 (a) = 00", &mut state), None);
        assert_eq!(rules.kind(&state), "SHA1");
        assert_eq!(rules.read(format!("{MD5}  a").as_bytes(), &mut state), None);
        assert_eq!(rules.read(b"CRC (a) = 00", &mut state), None);
        assert_eq!(rules.kind(&state), "SHA1");
    }

    #[test]
    fn cksum_accepts_base64_and_md5sum_does_not() {
        let line = "MD5 (a) = JfnnlDI7RTiF9RgfG2JNCw==";
        let claim = read(&GnuRules::cksum(None), line).unwrap();
        assert_eq!(claim.digests[0].to_string(), MD5);
        assert!(read(&GnuRules::cksum(Some(Algorithm::Md5)), "JfnnlDI7RTiF9RgfG2JNCw==  a").is_some());
        assert_eq!(read(&GnuRules::of(Algorithm::Md5), line), None);
        for broken in ["JfnnlDI7RTiF9RgfG2JNCw=", "JfnnlDI7RTiF9RgfG2JNCw", "JfnnlDI7RTiF9RgfG2JNC==="] {
            assert_eq!(read(&GnuRules::cksum(None), &format!("MD5 (a) = {broken}")), None, "{broken}");
        }
    }

    #[test]
    fn a_nul_ends_a_name_and_a_digest() {
        let md5sum = GnuRules::of(Algorithm::Md5);
        for line in [format!("{MD5}  a\0b"), format!("MD5 (a\0b) = {MD5}"), format!("MD5 (a) = {MD5}\0junk")]
        {
            assert_eq!(read(&md5sum, &line).unwrap().path, "a", "{line:?}");
        }
        for line in [format!("\\{MD5}  a\0b"), format!("\0{MD5}  a"), format!("{MD5}\0  a")] {
            assert_eq!(read(&md5sum, &line), None, "{line:?}");
        }
    }

    #[test]
    fn sha3_tags_need_a_length() {
        let digest = "0".repeat(56);
        let claim = read(&GnuRules::cksum(None), &format!("SHA3-224 (a) = {digest}")).unwrap();
        assert_eq!(claim.digests[0].algorithm(), Algorithm::Sha3_224);
        assert_eq!(read(&GnuRules::cksum(None), &format!("SHA3 (a) = {digest}")), None);
    }
}
