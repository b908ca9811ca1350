//! Printable form of arbitrary bytes, without spaces or terminal control: percent-encoding as in
//! RFC 3986, except that letters of all scripts are not encoded.

use std::fmt::{self, Write};

/// Bytes that print percent-encoded, as `%` and two hexadecimal digits per byte.
///
/// Encoded are white space, control characters, characters without a visible shape or that change
/// the writing direction, invalid UTF-8, and `%` itself.
#[derive(Clone, Copy, Debug)]
pub struct Percent<'a>(pub &'a [u8]);

impl fmt::Display for Percent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_plain(character) {
                    f.write_char(character)?;
                } else {
                    let mut bytes = [0; 4];
                    hidden(f, character.encode_utf8(&mut bytes).as_bytes())?;
                }
            }
            hidden(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn hidden(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "%{byte:02X}"))
}

/// Returns true if a character is printed without encoding.
fn is_plain(character: char) -> bool {
    let has_no_shape = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{e0000}'..='\u{e0fff}');
    !(character.is_control() || character.is_whitespace() || has_no_shape || character == '%')
}

impl Percent<'_> {
    /// Decodes a text. Returns `None` if it contains a raw character that must be encoded, or a `%`
    /// without two digits.
    pub fn decode(text: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            if character == '%' {
                let (high, low) = (rest.next()?.to_digit(16)?, rest.next()?.to_digit(16)?);
                bytes.push(u8::try_from(high << 4 | low).ok()?);
            } else if is_plain(character) {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                return None;
            }
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_round_trip_without_control_characters(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let text = Percent(&bytes).to_string();
            prop_assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace()), "{text:?}");
            prop_assert_eq!(Percent::decode(&text), Some(bytes));
        }
    }

    #[test]
    fn letters_stay_and_unsafe_characters_are_encoded() {
        assert_eq!(Percent("Zürich/数据.nc".as_bytes()).to_string(), "Zürich/数据.nc");
        assert_eq!(Percent(b"a b%\x1b[2J\xff").to_string(), "a%20b%25%1B[2J%FF");
        assert_eq!(Percent("\u{202e}cod.exe\u{9b}".as_bytes()).to_string(), "%E2%80%AEcod.exe%C2%9B");
    }

    #[test]
    fn malformed_encodings_are_refused() {
        for bad in ["%", "%4", "%zz", "a b", "\u{1b}", "\u{202e}", "%+1"] {
            assert_eq!(Percent::decode(bad), None, "{bad:?}");
        }
        assert_eq!(Percent::decode("%2f%2F"), Some(b"//".to_vec()));
    }
}
