//! Names in messages, quoted as the coreutils quote them, so that no control character reaches a terminal and
//! every name can be pasted into a shell.
//!
//! A name stands in single quotes. Bytes that can't be shown leave them for the shell's `$'...'`; a name with
//! a single quote and nothing else of note stands in double quotes.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// A name that prints quoted.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a> {
    name: &'a [u8],
    when: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    Needed,
}

/// Quotes a name for a message, plain ones too.
pub fn quote(name: &OsStr) -> Quoted<'_> {
    Quoted { name: name.as_bytes(), when: When::Always }
}

/// Quotes a name only where a shell would need it: for messages that begin with the name.
pub fn quote_if_needed(name: &OsStr) -> Quoted<'_> {
    Quoted { name: name.as_bytes(), when: When::Needed }
}

/// A word of the command line in a message about it: in the quotation marks of the user's language.
pub fn quote_word(word: &OsStr) -> String {
    let (open, close) = if locale_is_utf8() { ('\u{2018}', '\u{2019}') } else { ('\'', '\'') };
    let mut text = String::from(open);
    for piece in pieces(word.as_bytes(), locale_is_utf8()) {
        match piece {
            Piece::Shown(character @ ('\\' | '\'')) if !locale_is_utf8() || character == '\\' => {
                text.push('\\');
                text.push(character);
            }
            Piece::Shown(character) => text.push(character),
            Piece::Hidden(byte) => text.push_str(&escape(byte)),
        }
    }
    text.push(close);
    text
}

/// Whether names are UTF-8 to the user, by the usual variables of the environment.
pub(crate) fn locale_is_utf8() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let charset = locale.rsplit_once('.').map_or("", |(_, charset)| charset).to_ascii_lowercase();
        matches!(charset.split('@').next(), Some("utf-8" | "utf8"))
    })
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, self.name, self.when, locale_is_utf8())
    }
}

/// One step through a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// A character that prints.
    Shown(char),
    /// A byte that must be written as an escape.
    Hidden(u8),
}

fn write_quoted(f: &mut impl Write, name: &[u8], when: When, utf8: bool) -> fmt::Result {
    let clean = |piece| matches!(piece, Piece::Shown(_));
    if when == When::Needed && !name.is_empty() && is_safe_in_shell(name, utf8) {
        return pieces(name, utf8).try_for_each(|piece| match piece {
            Piece::Shown(character) => f.write_char(character),
            Piece::Hidden(_) => Ok(()),
        });
    }
    if name.contains(&b'\'') && pieces(name, utf8).all(clean) && is_safe_in_double_quotes(name, utf8) {
        f.write_char('"')?;
        f.write_str(&String::from_utf8_lossy(name))?;
        return f.write_char('"');
    }
    f.write_char('\'')?;
    let mut escaping = false;
    for piece in pieces(name, utf8) {
        match piece {
            Piece::Hidden(byte) => {
                f.write_str(if escaping { "" } else { "'$'" })?;
                f.write_str(&escape(byte))?;
                escaping = true;
            }
            Piece::Shown('\'') => {
                // Which ends what was open, of either kind, and opens plain quotes.
                f.write_str("'\\''")?;
                escaping = false;
            }
            Piece::Shown(character) => {
                f.write_str(if escaping { "''" } else { "" })?;
                f.write_char(character)?;
                escaping = false;
            }
        }
    }
    f.write_char('\'')
}

/// The name as characters that print and bytes that don't. Without UTF-8 every byte past ASCII is one of those.
fn pieces(name: &[u8], utf8: bool) -> impl Iterator<Item = Piece> {
    name.utf8_chunks().flat_map(move |chunk| {
        let valid = chunk.valid().chars().flat_map(move |character| {
            let shown = is_shown(character) && (utf8 || character.is_ascii());
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).len();
            (0..if shown { 1 } else { bytes })
                .map(move |at| if shown { Piece::Shown(character) } else { Piece::Hidden(buffer[at]) })
        });
        valid.chain(chunk.invalid().iter().map(|&byte| Piece::Hidden(byte)))
    })
}

/// What the C library's iswprint(3) says in a UTF-8 locale, but for code points that no standard has given out.
fn is_shown(character: char) -> bool {
    let is_noncharacter = u32::from(character) & 0xfffe == 0xfffe;
    !character.is_control() && !is_noncharacter && !matches!(character, '\u{2028}' | '\u{2029}')
}

/// Characters that mean nothing to a shell between double quotes, nor to C.
fn is_safe_in_double_quotes(name: &[u8], utf8: bool) -> bool {
    let alone = name.len() == 1;
    pieces(name, utf8).enumerate().all(|(at, piece)| match piece {
        Piece::Shown('#' | '~') => at == 0,
        Piece::Shown('{' | '}') => alone,
        Piece::Shown(c) if c.is_ascii_alphanumeric() => true,
        Piece::Shown(c) => !c.is_ascii() || " '%+,-./:]_".contains(c),
        Piece::Hidden(_) => false,
    })
}

/// Names that a shell reads as they are.
fn is_safe_in_shell(name: &[u8], utf8: bool) -> bool {
    let alone = name.len() == 1;
    pieces(name, utf8).enumerate().all(|(at, piece)| match piece {
        Piece::Shown('#' | '~') => at > 0,
        Piece::Shown('{' | '}') => !alone,
        Piece::Shown(c) => !" !\"$&()*;<=>[^`|'\\?".contains(c),
        Piece::Hidden(_) => false,
    })
}

/// A byte as `$'...'` takes it.
fn escape(byte: u8) -> String {
    let letter = match byte {
        0x07 => 'a',
        0x08 => 'b',
        b'\t' => 't',
        b'\n' => 'n',
        0x0b => 'v',
        0x0c => 'f',
        b'\r' => 'r',
        _ => return format!("\\{byte:03o}"),
    };
    format!("\\{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(name: &[u8], utf8: bool) -> String {
        let mut text = String::new();
        write_quoted(&mut text, name, When::Always, utf8).unwrap();
        text
    }

    /// Each line was taken from what coreutils 9.1 prints about a file of that name.
    #[test]
    fn names_are_quoted_as_the_coreutils_do() {
        let lines: [(&[u8], &str); 16] = [
            (b"plain", "'plain'"),
            (b"", "''"),
            (b"two words", "'two words'"),
            (b"it's", "\"it's\""),
            (b"it's $HOME", "'it'\\''s $HOME'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"a\n", "'a'$'\\n'"),
            (b"\na", "''$'\\n''a'"),
            (b"\x1b[31m", "''$'\\033''[31m'"),
            (b"it's\t", "'it'\\''s'$'\\t'"),
            (b"back\\slash", "'back\\slash'"),
            (b"\x7f\x01", "''$'\\177\\001'"),
            (b"bad\xff", "'bad'$'\\377'"),
            (b"\"", "'\"'"),
            (b"'\n'", "''\\'''$'\\n'\\'''"),
            (b"\t's", "''$'\\t'\\''s'"),
        ];
        for (name, expected) in lines {
            assert_eq!(quoted(name, true), expected, "{name:?}");
            assert_eq!(quoted(name, false), expected, "{name:?}");
        }
    }

    #[test]
    fn letters_past_ascii_print_where_the_locale_knows_them() {
        assert_eq!(quoted("é".as_bytes(), true), "'é'");
        assert_eq!(quoted("é".as_bytes(), false), "''$'\\303\\251'");
        assert_eq!(quoted("é's".as_bytes(), true), "\"é's\"");
        assert_eq!(quoted("\u{9b}31m".as_bytes(), true), "''$'\\302\\233''31m'");
        assert_eq!(quoted("\u{10ffff}".as_bytes(), true), "''$'\\364\\217\\277\\277'");
        assert_eq!(quoted("\u{e000}".as_bytes(), true), "'\u{e000}'");
    }

    #[test]
    fn quotes_are_left_out_where_nothing_needs_them() {
        let mut text = String::new();
        write_quoted(&mut text, b"d/a", When::Needed, true).unwrap();
        text.push(' ');
        write_quoted(&mut text, b"d/a b", When::Needed, true).unwrap();
        assert_eq!(text, "d/a 'd/a b'");
    }
}
