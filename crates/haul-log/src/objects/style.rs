//! Layout of a log: mechanisms and encodings by name.

use super::OBJECTS_MAX;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use thiserror::Error;

/// Layout of the log of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Number of files per log.
    pub mechanism: Mechanism,
    /// Format of an object number.
    pub encoding: Encoding,
}

impl Style {
    /// Default style: it takes the least space, and syncs one file per group instead of one for
    /// each file in progress.
    pub const DEFAULT: Style = Style { mechanism: Mechanism::Universal, encoding: Encoding::Bit8 };
}

/// Number of files per log (section 4.1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// One log for each file; no index.
    File,
    /// One log and one index for the given number of files, in the order in which their first
    /// objects became durable.
    Transaction(NonZeroU32),
    /// One log and one index for all files of the job.
    Universal,
}

impl Mechanism {
    /// Default number of files of a transaction, as in the paper's experiments (section 6.1).
    pub const TRANSACTION_FILES: NonZeroU32 = NonZeroU32::new(4).expect("4 is not 0");

    /// All mechanisms; the transaction has the paper's size.
    pub const ALL: [Mechanism; 3] =
        [Mechanism::File, Mechanism::Transaction(Mechanism::TRANSACTION_FILES), Mechanism::Universal];
}

/// Format of an object number (section 4.2 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// Human-readable decimal digits.
    Char,
    /// An integer of 64 bits.
    Int,
    /// A number of variable length, 7 bits per byte.
    Enc,
    /// 32 bits: at most 2^32 objects per file, as in the paper.
    Binary,
    /// One bit per object, in words of 8 bits.
    Bit8,
    /// One bit per object, in words of 64 bits.
    Bit64,
}

impl Encoding {
    /// All encodings, in the order of the paper.
    pub const ALL: [Encoding; 6] =
        [Encoding::Char, Encoding::Int, Encoding::Enc, Encoding::Binary, Encoding::Bit8, Encoding::Bit64];

    /// Returns the maximum number of objects of a file.
    pub const fn objects_max(self) -> u64 {
        match self {
            Encoding::Char | Encoding::Int | Encoding::Enc => OBJECTS_MAX,
            Encoding::Binary | Encoding::Bit8 | Encoding::Bit64 => 1 << 32,
        }
    }

    /// Returns the size of a word of the bit vector in bytes, or `None` for encodings that append
    /// numbers.
    pub(super) const fn word_bytes(self) -> Option<u64> {
        match self {
            Encoding::Bit8 => Some(1),
            Encoding::Bit64 => Some(8),
            _ => None,
        }
    }

    /// Returns the code of the encoding in a header: 1 to 6.
    pub(super) fn code(self) -> u8 {
        1 + Encoding::ALL.iter().position(|&known| known == self).unwrap_or_default() as u8
    }

    pub(super) fn from_code(code: u8) -> Option<Encoding> {
        Encoding::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    const fn name(self) -> &'static str {
        match self {
            Encoding::Char => "char",
            Encoding::Int => "int",
            Encoding::Enc => "enc",
            Encoding::Binary => "binary",
            Encoding::Bit8 => "bit8",
            Encoding::Bit64 => "bit64",
        }
    }
}

/// A string that is not the name of a mechanism or encoding.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnknownStyle {
    /// Not a mechanism.
    #[error(
        "{0:?} is invalid; valid values are file, transaction, transaction:FILES (FILES at least 1), universal"
    )]
    Mechanism(String),
    /// Not an encoding.
    #[error("{0:?} is invalid; valid values are char, int, enc, binary, bit8, bit64")]
    Encoding(String),
}

impl FromStr for Mechanism {
    type Err = UnknownStyle;

    fn from_str(word: &str) -> Result<Mechanism, UnknownStyle> {
        let unknown = || UnknownStyle::Mechanism(word.to_owned());
        match word.split_once(':') {
            None if word == "file" => Ok(Mechanism::File),
            None if word == "universal" => Ok(Mechanism::Universal),
            None if word == "transaction" => Ok(Mechanism::Transaction(Mechanism::TRANSACTION_FILES)),
            Some(("transaction", files)) => files.parse().map(Mechanism::Transaction).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mechanism::File => f.write_str("file"),
            Mechanism::Transaction(files) => write!(f, "transaction:{files}"),
            Mechanism::Universal => f.write_str("universal"),
        }
    }
}

impl FromStr for Encoding {
    type Err = UnknownStyle;

    fn from_str(word: &str) -> Result<Encoding, UnknownStyle> {
        let found = Encoding::ALL.into_iter().find(|encoding| encoding.name() == word);
        found.ok_or_else(|| UnknownStyle::Encoding(word.to_owned()))
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_round_trip_and_unknown_words_are_refused() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
        }
        for encoding in Encoding::ALL {
            assert_eq!(encoding.to_string().parse(), Ok(encoding));
            assert_eq!(Encoding::from_code(encoding.code()), Some(encoding));
        }
        assert_eq!("transaction".parse(), Ok(Mechanism::ALL[1]));
        assert_eq!((Encoding::from_code(0), Encoding::from_code(7)), (None, None));
        for word in ["", "transaction:0", "transaction:", "file:2", "File"] {
            assert_eq!(word.parse::<Mechanism>(), Err(UnknownStyle::Mechanism(word.to_owned())));
        }
        assert!("bit16".parse::<Encoding>().is_err_and(|error| error.to_string().contains("bit8")));
    }
}
