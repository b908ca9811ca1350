//! Names in messages, quoted like in the coreutils. No control character reaches a terminal, and
//! every name can be pasted into a shell.
//!
//! A name is in single quotes. Bytes that cannot be displayed are written as the shell's `$'...'`
//! outside these quotes. A name with a single quote and no other special character is in double
//! quotes.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// A name that is displayed with quotes.
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

/// Quotes a name for a message, including plain names.
pub fn quote(name: &OsStr) -> Quoted<'_> {
    Quoted { name: name.as_bytes(), when: When::Always }
}

/// Quotes a name only if a shell would need it, for messages that start with the name.
pub fn quote_if_needed(name: &OsStr) -> Quoted<'_> {
    Quoted { name: name.as_bytes(), when: When::Needed }
}

/// Quotes a word of a command that the user may paste into a shell. Unlike [`quote_if_needed`],
/// which follows the coreutils, this function also protects braces from brace expansion.
pub fn quote_for_shell(word: &OsStr) -> Quoted<'_> {
    let has_brace = word.as_bytes().iter().any(|byte| matches!(byte, b'{' | b'}'));
    Quoted { name: word.as_bytes(), when: if has_brace { When::Always } else { When::Needed } }
}

/// Quotes a command-line word in a message about the word, in the quotation marks of the user's
/// language.
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

/// Returns true if the locale uses UTF-8, by the usual environment variables.
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

/// One piece of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// A printable character.
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
                // This closes the open quotes, of either kind, and opens plain quotes.
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

/// Splits the name into printable characters and bytes to escape. Without UTF-8, every non-ASCII
/// byte is escaped.
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

/// Returns the result of the C library's iswprint(3) in a UTF-8 locale, except for unassigned code
/// points.
fn is_shown(character: char) -> bool {
    let is_noncharacter = u32::from(character) & 0xfffe == 0xfffe;
    !character.is_control() && !is_noncharacter && !matches!(character, '\u{2028}' | '\u{2029}')
}

/// Returns true if no character is special to a shell between double quotes, or to C.
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

/// Returns true if a shell reads the name literally.
fn is_safe_in_shell(name: &[u8], utf8: bool) -> bool {
    let alone = name.len() == 1;
    pieces(name, utf8).enumerate().all(|(at, piece)| match piece {
        Piece::Shown('#' | '~') => at > 0,
        Piece::Shown('{' | '}') => !alone,
        Piece::Shown(c) => !" !\"$&()*;<=>[^`|'\\?".contains(c),
        Piece::Hidden(_) => false,
    })
}

/// Escapes a byte for `$'...'`.
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

    /// Each line was taken from the output of coreutils 9.1 about a file of that name.
    #[test]
    fn names_are_quoted_as_by_coreutils() {
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
    fn non_ascii_letters_print_if_the_locale_allows() {
        assert_eq!(quoted("é".as_bytes(), true), "'é'");
        assert_eq!(quoted("é".as_bytes(), false), "''$'\\303\\251'");
        assert_eq!(quoted("é's".as_bytes(), true), "\"é's\"");
        assert_eq!(quoted("\u{9b}31m".as_bytes(), true), "''$'\\302\\233''31m'");
        assert_eq!(quoted("\u{10ffff}".as_bytes(), true), "''$'\\364\\217\\277\\277'");
        assert_eq!(quoted("\u{e000}".as_bytes(), true), "'\u{e000}'");
    }

    #[test]
    fn printed_commands_are_read_back_by_a_shell() {
        let mut words: Vec<Vec<u8>> =
            vec![vec![], b"a{b,c}d".to_vec(), b"{1..3}".to_vec(), b"~root".to_vec()];
        // Every byte but NUL, alone, between letters, and beside the characters that change how it
        // is read.
        for byte in 1..=255 {
            words.push(vec![byte]);
            for (before, after) in
                [("a", "b"), ("'", "'"), ("{", ",x}"), ("$", "("), ("\\", "\n"), ("~", "=~")]
            {
                words.push([before.as_bytes(), &[byte], after.as_bytes()].concat());
            }
        }
        for utf8 in [true, false] {
            let mut script = String::from("printf '%s\\0'");
            for word in &words {
                script.push(' ');
                let word = quote_for_shell(OsStr::from_bytes(word));
                write_quoted(&mut script, word.name, word.when, utf8).unwrap();
            }
            assert!(script.chars().all(|character| !character.is_control()));
            let shell = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            let read: Vec<&[u8]> = shell.stdout.split(|byte| *byte == 0).collect();
            assert_eq!(read[..words.len()], words[..], "{}", String::from_utf8_lossy(&shell.stderr));
        }
    }

    #[test]
    fn quotes_are_omitted_if_not_needed() {
        let mut text = String::new();
        write_quoted(&mut text, b"d/a", When::Needed, true).unwrap();
        text.push(' ');
        write_quoted(&mut text, b"d/a b", When::Needed, true).unwrap();
        assert_eq!(text, "d/a 'd/a b'");
    }
}
