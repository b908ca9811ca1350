//! `--update`: which existing files cp and mv replace.

use super::choice::{self, Choice, ChoiceError};
use std::ffi::OsStr;

/// Which existing files are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All of them.
    All,
    /// None.
    None,
    /// None, and each is a failure.
    NoneFail,
    /// Those that are older than their source.
    Older,
}

impl Which {
    /// `-u` and `--update[=WHICH]`.
    ///
    /// # Errors
    /// [`ChoiceError`] for a word that nobody knows.
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
