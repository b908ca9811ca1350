//! Names in messages, quoted as the coreutils quote them, without control characters for a
//! terminal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Quotes a name so that a shell can read it back: unchanged if that is safe, else in quotes.
/// Control characters and bytes that are no character of the locale become `$'\n'` or `$'\377'`.
pub(crate) fn quotef(name: &OsStr) -> String {
    quote_in(name.as_bytes(), locale_is_utf8())
}

fn quote_in(name: &[u8], utf8: bool) -> String {
    let pieces = pieces(name, utf8);
    let plain = |piece: &Piece| matches!(piece, Piece::Char(c) if !is_special(*c));
    let exact = matches!(name, b"{" | b"}") || matches!(name.first(), None | Some(b'#' | b'~'));
    if !exact && pieces.iter().all(plain) {
        return pieces.iter().map(Piece::char).collect();
    }
    // A single quote alone needs only double quotes around the name.
    let gentle = |piece: &Piece| matches!(piece, Piece::Char(c) if c.is_ascii_alphanumeric() || "' %+,-./:]_".contains(*c));
    if pieces.iter().any(|piece| piece.char() == '\'') && pieces.iter().all(gentle) {
        let inner: String = pieces.iter().map(Piece::char).collect();
        return format!("\"{inner}\"");
    }
    let mut out = String::from("'");
    let mut in_escape = false;
    for piece in pieces {
        if let Piece::Byte(byte) = piece {
            if !std::mem::replace(&mut in_escape, true) {
                out.push_str("'$'");
            }
            push_escape(&mut out, byte);
            continue;
        }
        if std::mem::replace(&mut in_escape, false) {
            out.push_str("''");
        }
        match piece.char() {
            '\'' => out.push_str("'\\''"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Quotes an argument as the coreutils do in messages: in the locale's quotation marks, with C's
/// escapes.
pub(super) fn quote(word: &OsStr) -> String {
    let utf8 = locale_is_utf8();
    let mut out = String::from(if utf8 { "‘" } else { "'" });
    for piece in pieces(word.as_bytes(), utf8) {
        match piece {
            Piece::Byte(byte) => push_escape(&mut out, byte),
            Piece::Char('\'') if !utf8 => out.push_str("\\'"),
            Piece::Char('\\') => out.push_str("\\\\"),
            Piece::Char(c) => out.push(c),
        }
    }
    out.push(if utf8 { '’' } else { '\'' });
    out
}

/// A printable character, or a byte that is not printable.
#[derive(Clone, Copy)]
enum Piece {
    Char(char),
    Byte(u8),
}

impl Piece {
    fn char(&self) -> char {
        match self {
            Piece::Char(c) => *c,
            Piece::Byte(_) => char::REPLACEMENT_CHARACTER,
        }
    }
}

fn pieces(name: &[u8], utf8: bool) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || (!utf8 && !c.is_ascii()) {
                let mut buffer = [0; 4];
                pieces.extend(c.encode_utf8(&mut buffer).bytes().map(Piece::Byte));
            } else {
                pieces.push(Piece::Char(c));
            }
        }
        pieces.extend(chunk.invalid().iter().copied().map(Piece::Byte));
    }
    pieces
}

/// Returns true if the character is special to a shell.
fn is_special(c: char) -> bool {
    " !\"$&'()*;<=>?[\\^`|".contains(c)
}

fn push_escape(out: &mut String, byte: u8) {
    let letter = match byte {
        7 => 'a',
        8 => 'b',
        9 => 't',
        10 => 'n',
        11 => 'v',
        12 => 'f',
        13 => 'r',
        _ => {
            // Writing to a String does not fail.
            let _ = write!(out, "\\{byte:03o}");
            return;
        }
    };
    out.push('\\');
    out.push(letter);
}

fn locale_is_utf8() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    let locale = locale.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_by_coreutils() {
        let cases: [(&[u8], &str); 13] = [
            (b"plain-1.txt", "plain-1.txt"),
            (b"no pe", "'no pe'"),
            (b"no'pe", "\"no'pe\""),
            (b"no\npe", "'no'$'\\n''pe'"),
            (b"no\xffpe", "'no'$'\\377''pe'"),
            ("né".as_bytes(), "né"),
            (b"", "''"),
            (b"\nabc", "''$'\\n''abc'"),
            (b"abc\x1b\x1b", "'abc'$'\\033\\033'"),
            (b"it's $5", "'it'\\''s $5'"),
            (b"back\\slash", "'back\\slash'"),
            (b"#a~b", "'#a~b'"),
            (b"it'#s", "'it'\\''#s'"),
        ];
        for (name, quoted) in cases {
            assert_eq!(quote_in(name, true), quoted);
        }
        assert_eq!(quote_in("né".as_bytes(), false), "'n'$'\\303\\251'");
    }
}
