//! JSON on standard output, without the control characters that JSON permits.

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// Writes `value` as JSON in one line. Text has no control characters: JSON permits U+007F to
/// U+009F, which some terminals obey, so that these are escaped too.
///
/// # Errors
/// Returns the error of `out`, or that `value` has no JSON form.
pub(crate) fn to_writer(out: impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, WithoutControls(CompactFormatter)))
}

/// Same as [`to_writer`], into a new vector.
///
/// # Errors
/// Returns that `value` has no JSON form.
pub(crate) fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::new();
    to_writer(&mut json, value).map(|()| json)
}

/// Returns the JSON of a value that always has a JSON form: of texts, numbers, lists, and maps with
/// texts as keys.
pub(crate) fn to_string(value: &impl Serialize) -> String {
    let json = to_vec(value).ok().and_then(|json| String::from_utf8(json).ok());
    json.unwrap_or_else(|| unreachable!("the caller passes a value that has a JSON form"))
}

/// Compact JSON with an escape for each control character.
struct WithoutControls(CompactFormatter);

impl Formatter for WithoutControls {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, mut text: &str) -> io::Result<()> {
        // The serializer escapes the ASCII control characters apart from DEL itself.
        while let Some((at, control)) = text.char_indices().find(|(_, character)| character.is_control()) {
            self.0.write_string_fragment(out, &text[..at])?;
            write!(out, "\\u{:04x}", u32::from(control))?;
            text = &text[at + control.len_utf8()..];
        }
        self.0.write_string_fragment(out, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn no_control_character_is_left_and_every_text_is_kept() {
        let text: String =
            (0..0x180).filter_map(char::from_u32).chain("\u{9b}\u{9b}2J\u{7f}".chars()).collect();
        let value = json!({ "name": &text, &text: [1, true, null, "", "\u{85}"] });
        let json = to_string(&value);
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), value);
        // Other characters have one form.
        assert!(json.contains("\\u009b\\u009b2J\\u007f") && json.contains("\u{a0}¡") && json.contains("\\n"));
    }
}
