//! Re-check level of a log on resume (`--verify-resume`).

use std::fmt;
use std::str::FromStr;

/// Inverse sampling rate: [`Recheck::Sample`] checks one object in this many.
pub const SAMPLE_ONE_IN: u64 = 16;

/// Maximum number of objects per file for [`Recheck::Sample`] if it compares whole objects, because
/// only their digests travel. If one object in twenty is lost anywhere in a file, all samples miss
/// the loss once in 26 times (0.95 to the 64th).
pub const SAMPLE_OBJECTS_MAX: u64 = 64;

/// Part of the logged objects that is compared with the source again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing: the log is trusted as long as source and sink are the same files as before.
    None,
    /// A part of one object in [`SAMPLE_ONE_IN`], and of the first object of each file in progress.
    /// If a sample differs, all other objects are compared.
    Sample,
    /// All logged objects.
    All,
}

impl Recheck {
    const NAMES: [(&'static str, Recheck); 3] =
        [("none", Recheck::None), ("sample", Recheck::Sample), ("all", Recheck::All)];
}

impl FromStr for Recheck {
    type Err = String;

    fn from_str(word: &str) -> Result<Recheck, String> {
        let found = Recheck::NAMES.into_iter().find(|(name, _)| *name == word);
        found
            .map(|(_, recheck)| recheck)
            .ok_or_else(|| format!("{word:?} is invalid; valid values are none, sample, all"))
    }
}

impl fmt::Display for Recheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Recheck::NAMES.into_iter().find(|(_, recheck)| recheck == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for (name, recheck) in Recheck::NAMES {
            assert_eq!((name.parse(), recheck.to_string()), (Ok(recheck), name.to_owned()));
        }
        assert!("some".parse::<Recheck>().is_err_and(|said| said.contains("none, sample, all")));
    }
}
