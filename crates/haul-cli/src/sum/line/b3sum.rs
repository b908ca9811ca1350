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
    #[error("Invalid check line format")]
    Form,
    #[error("Invalid hash length")]
    Length,
    #[error("Invalid hex")]
    Hex,
    #[error("Invalid backslash escape")]
    Escape,
    #[error("empty file path")]
    NoPath,
    #[error("Null character in path")]
    Null,
    #[error("Unicode replacement character in path")]
    Replacement,
}

/// Number of hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// Reads a line without its line feed. Also returns the name as b3sum prints it: unchanged from the
/// line.
///
/// # Errors
/// Returns [`Refusal`], in the order of b3sum's checks.
pub(crate) fn read(line: &str) -> Result<(Claim, Vec<u8>), Refusal> {
    let line = line.trim_end_matches('\r');
    if line.is_empty() {
        return Err(Refusal::Empty);
    }
    let (escaped, rest) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (digits, name) = rest.split_once("  ").or_else(|| tagged(rest)).ok_or(Refusal::Form)?;
    if digits.len() != DIGITS {
        return Err(Refusal::Length);
    }
    let digest = digest(digits).ok_or(Refusal::Hex)?;
    let path =
        if escaped { unescape(name.as_bytes()).ok_or(Refusal::Escape)? } else { name.as_bytes().to_vec() };
    if path.is_empty() {
        return Err(Refusal::NoPath);
    }
    if path.contains(&0) {
        return Err(Refusal::Null);
    }
    if name.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Refusal::Replacement);
    }
    let shown = format!("{}{name}", if escaped { "\\" } else { "" });
    let path = OsString::from_vec(path);
    let (digests, meanings) = (vec![digest], vec![]);
    let claim = Claim { path, digests, meanings, range: None, tree: false, size: None, guessed: false };
    Ok((claim, shown.into_bytes()))
}

/// Splits `BLAKE3 (NAME) = DIGEST`, which `--tag` writes, into digest and name.
fn tagged(line: &str) -> Option<(&str, &str)> {
    let (name, digits) = line.strip_prefix("BLAKE3 (")?.rsplit_once(") = ")?;
    Some((digits, name))
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
            (format!("{NOTHING}  e\r"), "e", "e"),
            (format!("{NOTHING}   e  f\r\r"), " e  f", " e  f"),
            (format!("\\{NOTHING}  e\\r"), "e\r", "\\e\\r"),
            (format!("BLAKE3 (a) b) = {NOTHING}\r"), "a) b", "a) b"),
        ] {
            let (claim, name) = read(&line).unwrap();
            assert_eq!((claim.path.to_str().unwrap(), name.as_slice()), (path, shown.as_bytes()), "{line}");
        }
    }

    #[test]
    fn lines_are_refused_for_the_same_reason_as_by_b3sum() {
        for (line, refusal) in [
            (String::new(), Refusal::Empty),
            ("\r".to_owned(), Refusal::Empty),
            ("\\".to_owned(), Refusal::Form),
            (format!("{NOTHING}  "), Refusal::NoPath),
            (format!("{NOTHING} *e"), Refusal::Form),
            (format!(" {NOTHING}  e"), Refusal::Length),
            (format!("{}  e", &NOTHING[1..]), Refusal::Length),
            (format!("BLAKE3 (a  b) = {NOTHING}"), Refusal::Length),
            (format!("BLAKE3 (a) = {NOTHING} "), Refusal::Length),
            (format!("{}  e", NOTHING.to_uppercase()), Refusal::Hex),
            (format!("\\{NOTHING}  e\\q"), Refusal::Escape),
            (format!("\\{NOTHING}  e\\"), Refusal::Escape),
            (format!("{NOTHING}  e\0"), Refusal::Null),
            (format!("{NOTHING}  \u{fffd}"), Refusal::Replacement),
            (format!("{}é  e", &NOTHING[..62]), Refusal::Hex),
            (format!("\u{feff}{NOTHING}  e"), Refusal::Length),
            (format!("{NOTHING} é e"), Refusal::Form),
        ] {
            assert_eq!(read(&line), Err(refusal), "{line:?}");
        }
    }
}
