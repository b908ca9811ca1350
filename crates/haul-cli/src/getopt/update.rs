//! `--update`: the existing files that cp and mv replace.

use super::choice::{self, Choice, ChoiceError};
use std::ffi::OsStr;

/// Existing files to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplaceRule {
    /// All files.
    All,
    /// No files.
    None,
    /// No files, and each existing one is an error.
    NoneFail,
    /// Files that are older than their source.
    Older,
}

impl ReplaceRule {
    /// Parses `-u` and `--update[=WHICH]`.
    ///
    /// # Errors
    /// Returns [`ChoiceError`] for an unknown word.
    pub(crate) fn typed(word: Option<&OsStr>) -> Result<ReplaceRule, ChoiceError> {
        word.map_or(Ok(ReplaceRule::Older), |word| choice::choose("--update", word, &WORDS))
    }
}

const WORDS: [Choice<ReplaceRule>; 4] = [
    (&["all"], ReplaceRule::All),
    (&["none"], ReplaceRule::None),
    (&["none-fail"], ReplaceRule::NoneFail),
    (&["older"], ReplaceRule::Older),
];
