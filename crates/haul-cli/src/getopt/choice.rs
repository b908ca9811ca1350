//! Option values with a fixed set of words, which may be abbreviated.

use haul_engine::copy::quote_word;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// The words for one choice, and its value.
pub(crate) type Choice<T> = (&'static [&'static str], T);

/// Error of a word that is not a choice. The message lists the choices.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{what} argument {} for {}{list}", quote_word(word), quote_word(OsStr::new(option)))]
pub(crate) struct ChoiceError {
    what: &'static str,
    word: OsString,
    option: &'static str,
    list: String,
}

/// Returns the choice of a word: a full name, or an abbreviation that no other choice shares.
///
/// # Errors
/// Returns [`ChoiceError`] for a word that is unknown or ambiguous.
pub(crate) fn choose<T: Copy + PartialEq>(
    option: &'static str,
    word: &OsStr,
    choices: &[Choice<T>],
) -> Result<T, ChoiceError> {
    let words = || choices.iter().flat_map(|(words, choice)| words.iter().map(move |name| (*name, *choice)));
    if let Some((_, exact)) = words().find(|(name, _)| name.as_bytes() == word.as_bytes()) {
        return Ok(exact);
    }
    let mut begun = words().filter(|(name, _)| name.as_bytes().starts_with(word.as_bytes()));
    let fail = |what| Err(ChoiceError { what, word: word.to_owned(), option, list: list(choices) });
    let Some((_, first)) = begun.next() else { return fail("invalid") };
    if begun.all(|(_, other)| other == first) { Ok(first) } else { fail("ambiguous") }
}

fn list<T>(choices: &[Choice<T>]) -> String {
    let mut text = String::from("\nValid arguments are:");
    for (words, _) in choices {
        let words: Vec<String> = words.iter().map(|word| quote_word(OsStr::new(word))).collect();
        // Writing to a string does not fail.
        let _ = write!(text, "\n  - {}", words.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: [Choice<u8>; 3] = [(&["none", "off"], 0), (&["never", "no"], 1), (&["nowhere"], 2)];

    #[test]
    fn unambiguous_abbreviations_of_values_are_accepted() {
        let choose = |word: &str| choose("--x", OsStr::new(word), &CHOICES);
        assert_eq!(choose("off"), Ok(0));
        assert_eq!(choose("o"), Ok(0));
        assert_eq!(choose("ne"), Ok(1));
        assert_eq!(choose("no"), Ok(1), "a whole word is no beginning");
        assert_eq!(choose("now"), Ok(2));
        assert_eq!(choose("n").unwrap_err().what, "ambiguous");
        assert_eq!(choose("").unwrap_err().what, "ambiguous");
        assert_eq!(choose("x").unwrap_err().what, "invalid");
    }
}
