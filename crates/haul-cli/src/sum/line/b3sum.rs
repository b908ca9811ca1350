//! Lines as b3sum reads them, and its messages for refused lines.

use super::{Claim, unescape};
use haul_digest::{Algorithm, Digest};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use thiserror::Error;

/// Reason why a line is not one of b3sum's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Refusal {
    #[error("Empty line")]
    Empty,
    #[error("Short line")]
    Short,
    #[error("Non-ASCII prefix")]
    Prefix,
    #[error("Invalid space")]
    Space,
    #[error("Invalid hex")]
    Hex,
    #[error("Invalid backslash escape")]
    Escape,
    #[error("Null character in path")]
    Null,
    #[error("Unicode replacement character in path")]
    Replacement,
}

const DIGITS: usize = 64;

/// Reads a line without its line break. Also returns the name as b3sum prints it: unchanged from
/// the line.
///
/// # Errors
/// Returns [`Refusal`], in the order of b3sum's checks.
pub(crate) fn read(line: &str) -> Result<(Claim, Vec<u8>), Refusal> {
    let (escaped, rest) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    if rest.is_empty() && !escaped {
        return Err(Refusal::Empty);
    }
    let (digest, name) = match tagged(rest) {
        Some(fields) => fields,
        None => untagged(rest)?,
    };
    let path =
        if escaped { unescape(name.as_bytes()).ok_or(Refusal::Escape)? } else { name.as_bytes().to_vec() };
    if path.contains(&0) {
        return Err(Refusal::Null);
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Refusal::Replacement);
    }
    let shown = format!("{}{name}", if escaped { "\\" } else { "" });
    let path = OsString::from_vec(path);
    let claim = Claim { path, digests: vec![digest], range: None, tree: false, size: None, guessed: false };
    Ok((claim, shown.into_bytes()))
}

fn untagged(line: &str) -> Result<(Digest, &str), Refusal> {
    if line.len() < DIGITS + 3 {
        return Err(Refusal::Short);
    }
    if !line.as_bytes()[..DIGITS + 2].is_ascii() {
        return Err(Refusal::Prefix);
    }
    let name = line.get(DIGITS..).and_then(|rest| rest.strip_prefix("  ")).ok_or(Refusal::Space)?;
    Ok((digest(&line[..DIGITS]).ok_or(Refusal::Hex)?, name))
}

/// Reads `BLAKE3 (NAME) = DIGEST`, which later releases write with `--tag`.
fn tagged(line: &str) -> Option<(Digest, &str)> {
    let (name, text) = line.strip_prefix("BLAKE3 (")?.rsplit_once(") = ")?;
    Some((digest(text)?, name))
}

/// Reads a digest in lower case only.
fn digest(text: &str) -> Option<Digest> {
    let small = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    Digest::from_hex(Algorithm::Blake3, text).ok().filter(|_| small)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    #[test]
    fn lines_are_parsed_and_names_are_shown_unchanged() {
        for (line, path, shown) in [
            (format!("{NOTHING}  e f"), "e f", "e f"),
            (format!("\\{NOTHING}  e\\\\f\\n"), "e\\f\n", "\\e\\\\f\\n"),
            (format!("{NOTHING}  e\r"), "e\r", "e\r"),
            (format!("BLAKE3 (a) b) = {NOTHING}"), "a) b", "a) b"),
        ] {
            let (claim, name) = read(&line).unwrap();
            assert_eq!((claim.path.to_str().unwrap(), name.as_slice()), (path, shown.as_bytes()), "{line}");
        }
    }

    #[test]
    fn lines_are_refused_for_the_same_reason_as_by_b3sum() {
        for (line, refusal) in [
            (String::new(), Refusal::Empty),
            ("\\".to_owned(), Refusal::Short),
            (format!("{NOTHING}  "), Refusal::Short),
            (format!("{NOTHING} *e"), Refusal::Space),
            (format!(" {NOTHING}  e"), Refusal::Space),
            (format!("{}  e", NOTHING.to_uppercase()), Refusal::Hex),
            (format!("\\{NOTHING}  e\\q"), Refusal::Escape),
            (format!("\\{NOTHING}  e\\"), Refusal::Escape),
            (format!("{NOTHING}  e\0"), Refusal::Null),
            (format!("{NOTHING}  \u{fffd}"), Refusal::Replacement),
            (format!("{}é  e", &NOTHING[..63]), Refusal::Prefix),
            (format!("\u{feff}{NOTHING}  e"), Refusal::Prefix),
            (format!("é{}  e", &NOTHING[..62]), Refusal::Prefix),
            (format!("{NOTHING} é e"), Refusal::Prefix),
            (format!("a{NOTHING} é"), Refusal::Space),
        ] {
            assert_eq!(read(&line), Err(refusal), "{line:?}");
        }
    }
}
