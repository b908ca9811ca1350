//! Combination of digests that other programs computed over the blocks of a file.

use crate::part::LinearSum;
use crate::{Algebra, Algorithm, Digest, crc};
use haul_model::ByteLen;
use thiserror::Error;

/// Reason why digests cannot be combined.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CombineError {
    /// The algorithm must process the bytes in order.
    #[error("cannot combine {0} values of blocks: {0} must read the file from start to end")]
    Serial(Algorithm),
    /// A BLAKE3 digest finalizes the tree of its own block and is not a node of a larger tree.
    #[error(
        "cannot combine blake3 digests of blocks: each was finalized as a separate file; \
         hash the blocks as parts of one file instead"
    )]
    Ended,
    /// System V's sum is folded to 16 bits at its end, which loses the number of overflows of 32
    /// bits.
    #[error(
        "cannot combine sysv values of blocks: each was folded to 16 bits; hash the blocks as parts of one file instead"
    )]
    Folded,
    /// A part has a value of another algorithm.
    #[error("part {number} is a {found} digest, not {expected}")]
    Mixed {
        /// Number of the part, counted from 1.
        number: usize,
        /// Requested algorithm.
        expected: Algorithm,
        /// Algorithm of the part.
        found: Algorithm,
    },
    /// The total length exceeds 2^64 - 1 bytes.
    #[error("the total length of the parts exceeds 2^64 - 1 bytes")]
    TooLong,
}

/// Returns the digest of a file from those of its blocks, given in order with their lengths.
/// Without blocks the file is empty.
///
/// # Errors
///
/// Returns a [`CombineError`] if the algorithm does not allow it, or if the parts do not match.
pub fn combine(algorithm: Algorithm, parts: &[(Digest, ByteLen)]) -> Result<Digest, CombineError> {
    let sum = match (LinearSum::of(algorithm), algorithm.algebra()) {
        (Some(LinearSum::Sysv), _) => return Err(CombineError::Folded),
        (Some(sum), _) => sum,
        (None, Algebra::Serial) => return Err(CombineError::Serial(algorithm)),
        (None, Algebra::Combines) => return Err(CombineError::Ended),
    };
    let mut whole = sum.empty();
    let mut total: u64 = 0;
    for (number, &(part, ByteLen(len))) in (1..).zip(parts) {
        let found = part.algorithm();
        let value = part.value().filter(|_| found == algorithm);
        let value = value.ok_or(CombineError::Mixed { number, expected: algorithm, found })?;
        let open = if algorithm == Algorithm::Cksum { crc::cksum_open(value, len) } else { value };
        total = total.checked_add(len).ok_or(CombineError::TooLong)?;
        whole = sum.combine(whole, open, len);
    }
    let closed = if algorithm == Algorithm::Cksum { crc::cksum_close(whole, total) } else { whole };
    Ok(Digest::from_value(algorithm, closed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;

    #[test]
    fn no_parts_are_an_empty_file() {
        for &algorithm in Algorithm::ALL {
            if let Ok(combined) = combine(algorithm, &[]) {
                assert_eq!(combined, digest(algorithm, &[]), "{algorithm}");
            }
        }
    }
}
