//! mcp's numbers, which the other tools accept as well: threads, sizes, and the copied part of each
//! file.

use haul_digest::{Algebra, Algorithm};
use haul_engine::copy::{HashForm, Moving, Workers};
use haul_model::{ByteLen, ByteOffset, ObjectSize, SizeError, limits, parse_size};
use std::ffi::{OsStr, OsString};
use thiserror::Error;

/// mcp's default leaf size of a hash tree, in bytes.
const LEAF_BYTES_DEFAULT: u64 = 1 << 30;

/// Error of a number that is not valid.
#[derive(Debug, Error)]
pub(crate) enum SizeOptionError {
    #[error("--{option}: {source}")]
    Size { option: String, source: SizeError },
    #[error("--{option}: '{}' is not UTF-8", value.display())]
    NotText { option: String, value: OsString },
    #[error("--{option}: {value} is outside {least} to {most}")]
    Range { option: String, value: u64, least: u64, most: u64 },
}

/// Numbers given so far.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    threads: Option<usize>,
    split: Option<ObjectSize>,
    buffer: Option<usize>,
    leaf: Option<ObjectSize>,
    offset: Option<u64>,
    length: Option<u64>,
    sink_offset: Option<u64>,
}

impl Sizes {
    /// Handles the value of one option.
    ///
    /// # Errors
    /// Returns [`SizeOptionError`] with the option and the value.
    ///
    /// # Panics
    /// If `option` is in the table but not handled here, which is a bug.
    pub(crate) fn set(&mut self, option: &str, value: &OsStr) -> Result<(), SizeOptionError> {
        let number = |unit| parse(option, value, unit);
        match option {
            "threads" => {
                let threads = within(option, number(1)?, 1, limits::WORKERS_MAX as u64)?;
                self.threads = usize::try_from(threads).ok();
            }
            "split-size" => self.split = Some(object(option, number(1 << 20)?)?),
            "hash-leaf-size" => self.leaf = Some(object(option, number(1 << 10)?)?),
            "buffer-size" => {
                let bytes = within(option, number(1 << 20)?, 1, limits::BLOCK_BYTES_MAX as u64)?;
                self.buffer = usize::try_from(bytes).ok();
            }
            "offset" => self.offset = Some(number(1)?),
            "length" => self.length = Some(number(1)?),
            "dst-offset" => self.sink_offset = Some(number(1)?),
            other => unreachable!("the option --{other} has no meaning"),
        }
        Ok(())
    }

    /// Replaces the measured defaults by the given numbers.
    pub(crate) fn apply(&self, moving: &mut Moving) {
        if let Some(threads) = self.threads {
            moving.workers = Workers::exactly(threads);
        }
        moving.object = self.split.unwrap_or(moving.object);
        moving.block = self.buffer.or(moving.block);
        moving.offset = self.offset.map_or(moving.offset, ByteOffset);
        moving.length = self.length.map(ByteLen);
        // An offset in the source, even 0, also applies to the sink.
        moving.sink_offset = self.sink_offset.or(self.offset).map(ByteOffset);
    }

    /// Returns the form of hashes. mcp always hashes the parts of a split file; here the user
    /// selects that by requesting parts.
    pub(crate) fn hash_form(&self, algorithm: Algorithm, check_tree: bool) -> HashForm {
        let serial = algorithm.algebra() == Algebra::Serial;
        let leaf = self.leaf.unwrap_or_else(|| ObjectSize::round_up(LEAF_BYTES_DEFAULT));
        let leaf = self.split.map_or(leaf, |split| leaf.min(split));
        if check_tree {
            HashForm::Leaves(leaf)
        } else if self.leaf.is_some() || (serial && self.split.is_some()) {
            HashForm::Tree(leaf)
        } else {
            HashForm::Plain
        }
    }
}

/// Parses the size of an option; a plain number counts `unit` bytes.
pub(crate) fn parse(option: &str, value: &OsStr, unit: u64) -> Result<u64, SizeOptionError> {
    let option = || option.to_owned();
    let text = value
        .to_str()
        .ok_or_else(|| SizeOptionError::NotText { option: option(), value: value.to_owned() })?;
    parse_size(text, unit).map_err(|source| SizeOptionError::Size { option: option(), source })
}

/// Rounds object sizes up to a power of two, as mcp does.
fn object(option: &str, bytes: u64) -> Result<ObjectSize, SizeOptionError> {
    within(option, bytes, 1, limits::OBJECT_BYTES_MAX).map(ObjectSize::round_up)
}

fn within(option: &str, value: u64, least: u64, most: u64) -> Result<u64, SizeOptionError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(SizeOptionError::Range { option: option.to_owned(), value, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_unit_use_the_units_of_mcp() {
        let mut sizes = Sizes::default();
        for (option, value) in
            [("split-size", "3"), ("buffer-size", "2"), ("threads", "7"), ("offset", "1K"), ("length", "9")]
        {
            sizes.set(option, OsStr::new(value)).unwrap();
        }
        let mut moving = Moving::with(Workers::exactly(2));
        sizes.apply(&mut moving);
        assert_eq!(moving.object.bytes(), 4 << 20);
        assert_eq!((moving.block, moving.workers.count()), (Some(2 << 20), 7));
        assert_eq!((moving.offset, moving.length), (ByteOffset(1024), Some(ByteLen(9))));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let message =
            |option, value: &str| Sizes::default().set(option, OsStr::new(value)).unwrap_err().to_string();
        assert_eq!(message("threads", "0"), "--threads: 0 is outside 1 to 1024");
        assert!(message("split-size", "x").starts_with("--split-size: 'x' is not a size"));
        assert!(message("buffer-size", "2G").contains("is outside"));
    }
}
