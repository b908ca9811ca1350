//! Re-check level of a log on resume (`--verify-resume`).

use std::fmt;
use std::str::FromStr;

/// Inverse sampling rate: [`ResumeCheck::Sample`] checks one object in this many.
pub const SAMPLE_ONE_IN: u64 = 16;

/// Maximum number of objects per file for [`ResumeCheck::Sample`] if it compares whole objects,
/// because only their digests travel. If one object in twenty is lost anywhere in a file, all
/// samples miss the loss once in 26 times (0.95 to the 64th).
pub const SAMPLE_OBJECTS_MAX: u64 = 64;

/// Part of the logged objects that is compared with the source again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeCheck {
    /// Nothing: the log is trusted as long as source and sink are the same files as before.
    None,
    /// A part of one object in [`SAMPLE_ONE_IN`], and of the first object of each file in progress.
    /// If a sample differs, all other objects are compared.
    Sample,
    /// All logged objects.
    All,
}

impl ResumeCheck {
    const NAMES: [(&'static str, ResumeCheck); 3] =
        [("none", ResumeCheck::None), ("sample", ResumeCheck::Sample), ("all", ResumeCheck::All)];
}

impl FromStr for ResumeCheck {
    type Err = String;

    fn from_str(word: &str) -> Result<ResumeCheck, String> {
        let found = ResumeCheck::NAMES.into_iter().find(|(name, _)| *name == word);
        found
            .map(|(_, resume_check)| resume_check)
            .ok_or_else(|| format!("{word:?} is invalid; valid values are none, sample, all"))
    }
}

impl fmt::Display for ResumeCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ResumeCheck::NAMES.into_iter().find(|(_, resume_check)| resume_check == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recheck_levels_round_trip_as_text() {
        for (name, resume_check) in ResumeCheck::NAMES {
            assert_eq!((name.parse(), resume_check.to_string()), (Ok(resume_check), name.to_owned()));
        }
        assert!("some".parse::<ResumeCheck>().is_err_and(|said| said.contains("none, sample, all")));
    }
}
