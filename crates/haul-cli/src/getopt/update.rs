//! `--update`: the existing files that cp and mv replace.

use super::choice::{self, Choice, ChoiceError};
use std::ffi::OsStr;

/// Existing files to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All files.
    All,
    /// No files.
    None,
    /// No files, and each existing one is an error.
    NoneFail,
    /// Files that are older than their source.
    Older,
}

impl Which {
    /// Parses `-u` and `--update[=WHICH]`.
    ///
    /// # Errors
    /// Returns [`ChoiceError`] for an unknown word.
    pub(crate) fn typed(word: Option<&OsStr>) -> Result<Which, ChoiceError> {
        word.map_or(Ok(Which::Older), |word| choice::choose("--update", word, &WORDS))
    }
}

const WORDS: [Choice<Which>; 4] = [
    (&["all"], Which::All),
    (&["none"], Which::None),
    (&["none-fail"], Which::NoneFail),
    (&["older"], Which::Older),
];
