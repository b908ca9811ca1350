//! Lengths of BLAKE2b below its maximum.

use blake2::Blake2bVarCore;
use blake2::digest::block_api::{Buffer, UpdateCore, VariableOutputCore};
use std::fmt;

/// A length of 1 to 63 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blake2bLen(u8);

impl Blake2bLen {
    /// Returns the length of `bytes` bytes, or `None` for 0, for 64 (which is
    /// [`crate::Algorithm::Blake2b`]) and for more.
    pub const fn new(bytes: usize) -> Option<Blake2bLen> {
        if bytes >= 1 && bytes <= 63 { Some(Blake2bLen(bytes as u8)) } else { None }
    }

    /// Returns the length in bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the canonical name of the algorithm, which contains the number of bits:
    /// `blake2b-256`.
    pub(crate) const fn name(self) -> &'static str {
        NAMES[self.bytes() - 1]
    }

    /// Returns the tag of the BSD form, as b2sum prints it: `BLAKE2b-256`.
    pub(crate) const fn tag(self) -> &'static str {
        TAGS[self.bytes() - 1]
    }

    /// Parses a length in bits: a multiple of 8, without a sign or leading zeros.
    pub(crate) fn parse(bits: &str) -> Option<Blake2bLen> {
        let number: usize = bits.parse().ok()?;
        let written_so = number.is_multiple_of(8) && number.to_string() == bits;
        if written_so { Blake2bLen::new(number / 8) } else { None }
    }
}

impl fmt::Display for Blake2bLen {
    /// Writes the length in bits, without a unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.bytes() * 8).fmt(f)
    }
}

/// A running BLAKE2b with a digest length that is known only at run time.
#[derive(Clone)]
pub(crate) struct ShortBlake2b {
    core: Blake2bVarCore,
    buffer: Buffer<Blake2bVarCore>,
    len: Blake2bLen,
}

impl ShortBlake2b {
    pub(crate) fn new(len: Blake2bLen) -> ShortBlake2b {
        let Ok(core) = Blake2bVarCore::new(len.bytes()) else {
            unreachable!("BLAKE2b has all lengths of 1 to 64 bytes")
        };
        ShortBlake2b { core, buffer: Buffer::<Blake2bVarCore>::default(), len }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let ShortBlake2b { core, buffer, .. } = self;
        buffer.digest_blocks(bytes, |blocks| core.update_blocks(blocks));
    }

    /// Passes the bytes of the digest to `use_bytes`.
    pub(crate) fn finish<T>(mut self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        let mut full = Default::default();
        self.core.finalize_variable_core(&mut self.buffer, &mut full);
        use_bytes(&full[..self.len.bytes()])
    }
}

macro_rules! for_all_lengths {
    ($prefix:literal) => {
        for_all_lengths!($prefix:
            8 16 24 32 40 48 56 64 72 80 88 96 104 112 120 128 136 144 152 160 168 176 184 192 200 208 216 224 232
            240 248 256 264 272 280 288 296 304 312 320 328 336 344 352 360 368 376 384 392 400 408 416 424 432 440
            448 456 464 472 480 488 496 504)
    };
    ($prefix:literal: $($bits:literal)+) => { [$(concat!($prefix, $bits)),+] };
}

const NAMES: [&str; 63] = for_all_lengths!("blake2b-");
const TAGS: [&str; 63] = for_all_lengths!("BLAKE2b-");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    #[test]
    fn blake2b_names_and_tags_state_bits_and_round_trip() {
        for bytes in 1..64 {
            let len = Blake2bLen::new(bytes).unwrap();
            let algorithm = Algorithm::Blake2bOf(len);
            assert_eq!(algorithm.name(), format!("blake2b-{}", bytes * 8));
            assert_eq!(algorithm.tag(), format!("BLAKE2b-{}", bytes * 8));
            assert_eq!((algorithm.digest_len(), len.to_string()), (bytes, (bytes * 8).to_string()));
            assert_eq!(Algorithm::parse(algorithm.tag()), Ok(algorithm));
        }
        assert_eq!(Algorithm::parse("blake2b-512"), Ok(Algorithm::Blake2b));
        assert_eq!((Blake2bLen::new(0), Blake2bLen::new(64)), (None, None));
        for name in ["blake2b-0", "blake2b-7", "blake2b-08", "blake2b-+8", "blake2b-520", "blake2b-"] {
            assert!(Algorithm::parse(name).is_err(), "{name}");
        }
    }
}
