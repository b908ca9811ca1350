//! What of a log is looked at again when its job goes on (`--verify-resume`).

use std::fmt;
use std::str::FromStr;

/// Of so many objects one is looked at again by [`Recheck::Sample`].
pub const SAMPLE_ONE_IN: u64 = 16;

/// Where [`Recheck::Sample`] compares whole objects, because only their digests travel, it is so many of a file at most. Where one object
/// in twenty is lost anywhere in a file, all of these miss it once in 26 times (0.95 to the 64th).
pub const SAMPLE_OBJECTS_MAX: u64 = 64;

/// How much of what the log says is compared with the source again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing: the log is taken at its word, while source and sink are the same files as then.
    None,
    /// Something of one object in [`SAMPLE_ONE_IN`], and of the first of each file under way. What differs makes all the rest be compared.
    Sample,
    /// All.
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
            .ok_or_else(|| format!("{word:?} says not what to compare again; choose none, sample or all"))
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
        assert!("some".parse::<Recheck>().is_err_and(|said| said.contains("none, sample or all")));
    }
}
