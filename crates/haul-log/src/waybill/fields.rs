//! Fields of a line: `tag key=value key=value ...`.

use super::flaw::FlawKind;
use haul_model::Percent;
use std::fmt::{Display, Write};

/// Maximum number of fields in a line: every digest, and four times the other fields. Limits the
/// cost of a hostile line.
const FIELDS_MAX: usize = 96;

/// Fields of a line, in order; each key occurs once.
#[derive(Debug)]
pub(super) struct Fields<'l> {
    pairs: Vec<(&'l str, &'l str)>,
}

impl<'l> Fields<'l> {
    /// Parses the text after the tag of a line.
    pub(super) fn parse(text: &'l str) -> Result<Fields<'l>, FlawKind> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').ok_or(FlawKind::NotAField)?;
            if pairs.iter().any(|(known, _)| *known == key) || pairs.len() == FIELDS_MAX {
                return Err(FlawKind::TwiceOrTooMany);
            }
            pairs.push((key, value));
        }
        Ok(Fields { pairs })
    }

    /// Returns the value of an optional field.
    pub(super) fn get(&self, key: &str) -> Option<&'l str> {
        self.pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Returns the parsed value of an optional field, or `None` if the field is missing.
    pub(super) fn maybe<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&'l str) -> Option<T>,
    ) -> Result<Option<T>, FlawKind> {
        self.get(key).map(|value| parse(value).ok_or(FlawKind::BadField(key))).transpose()
    }

    /// Returns the parsed value of a required field.
    pub(super) fn must<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&'l str) -> Option<T>,
    ) -> Result<T, FlawKind> {
        self.maybe(key, parse)?.ok_or(FlawKind::MissingField(key))
    }

    /// Returns keys and values in the order of the line.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'l str, &'l str)> {
        self.pairs.iter().copied()
    }
}

/// Appends ` key=value`.
pub(super) fn put(line: &mut String, key: &str, value: impl Display) {
    // Writing to a string does not fail.
    let _ = write!(line, " {key}={value}");
}

/// Parses an integer without sign or leading zeros.
pub(super) fn number(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

/// Parses permission bits: four octal digits.
pub(super) fn octal(text: &str) -> Option<u32> {
    let is_octal = text.len() == 4 && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    is_octal.then(|| u32::from_str_radix(text, 8).ok()).flatten()
}

/// Parses percent-encoded bytes.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    Percent::decode(text)
}
