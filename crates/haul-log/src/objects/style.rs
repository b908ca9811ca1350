//! How a log is laid out: mechanisms and encodings by name.

use super::OBJECTS_MAX;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use thiserror::Error;

/// How a job's log is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How many files share a log.
    pub mechanism: Mechanism,
    /// How an object's number is written.
    pub encoding: Encoding,
}

impl Style {
    /// What is taken unless another is asked for: the least space of all, and one file to sync a group instead of one
    /// for each file under way.
    pub const DEFAULT: Style = Style { mechanism: Mechanism::Universal, encoding: Encoding::Bit8 };
}

/// How many files share a log (section 4.1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// One log for each file; no index.
    File,
    /// One log and one index for so many files, in the order in which their first objects became durable.
    Transaction(NonZeroU32),
    /// One log and one index for all files of the job.
    Universal,
}

impl Mechanism {
    /// Files of a transaction in the paper's experiments (section 6.1), and unless another number is asked for.
    pub const TRANSACTION_FILES: NonZeroU32 = NonZeroU32::new(4).expect("4 is not 0");

    /// One of each, transactions of the paper's size.
    pub const ALL: [Mechanism; 3] =
        [Mechanism::File, Mechanism::Transaction(Mechanism::TRANSACTION_FILES), Mechanism::Universal];
}

/// How an object's number is written (section 4.2 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// Decimal digits, readable by people.
    Char,
    /// An integer of 64 bits.
    Int,
    /// A number of variable length, 7 bits a byte.
    Enc,
    /// 32 bits: at most 2^32 objects a file, as in the paper.
    Binary,
    /// One bit an object, in words of 8 bits.
    Bit8,
    /// One bit an object, in words of 64 bits.
    Bit64,
}

impl Encoding {
    /// All of them, in the order of the paper.
    pub const ALL: [Encoding; 6] =
        [Encoding::Char, Encoding::Int, Encoding::Enc, Encoding::Binary, Encoding::Bit8, Encoding::Bit64];

    /// Most objects that a file may have.
    pub const fn objects_max(self) -> u64 {
        match self {
            Encoding::Char | Encoding::Int | Encoding::Enc => OBJECTS_MAX,
            Encoding::Binary | Encoding::Bit8 | Encoding::Bit64 => 1 << 32,
        }
    }

    /// Bytes of a word of the bit vector; `None` where numbers are appended instead.
    pub(super) const fn word_bytes(self) -> Option<u64> {
        match self {
            Encoding::Bit8 => Some(1),
            Encoding::Bit64 => Some(8),
            _ => None,
        }
    }

    /// The number that stands for it in a head: 1 to 6.
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

/// A word that names no mechanism or encoding.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UnknownStyle {
    /// Not a mechanism.
    #[error(
        "{0:?} is no mechanism of the object log; choose file, transaction, transaction:FILES (1 or more), or universal"
    )]
    Mechanism(String),
    /// Not an encoding.
    #[error("{0:?} is no encoding of the object log; choose char, int, enc, binary, bit8, or bit64")]
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
    fn styles_are_read_as_they_are_written() {
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
