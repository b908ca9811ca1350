//! What a later version of this program would write: the files of an object log and the record of a job, each with another version and its sums
//! right (docs/formats/log.md). Nothing here knows more of this crate, so that a fuzzer can take it alone.

use haul_digest::{Algorithm, Hasher, digest};
use std::ops::Range;

/// The head of each file of an object log.
const HEAD_BYTES: usize = 44;

/// Where its version stands: the lower byte.
const VERSION: usize = 8;

/// Where the log's life stands, which every sum in its files covers.
const LIFE: Range<usize> = 16..24;

/// Bytes of a sum.
const SUM_BYTES: usize = 4;

/// Gives a file of an object log another version.
///
/// # Panics
/// It is shorter than its head.
pub fn log(file: &mut [u8], version: u8) {
    file[VERSION] = version;
    seal(file, 0..HEAD_BYTES);
}

/// Puts the right sum behind a head or a record that stands in `part` of a file of an object log.
///
/// # Panics
/// The file has no such part, or that has no room for a sum.
pub fn seal(file: &mut [u8], part: Range<usize>) {
    let (from, sum) = (part.start, part.end - SUM_BYTES);
    let mut hasher = Hasher::new(Algorithm::Crc32c);
    hasher.update(&file[LIFE]);
    hasher.update(&0_u32.to_le_bytes());
    hasher.update(&(from as u64).to_le_bytes());
    hasher.update(&file[from..sum]);
    // As a number it has its highest byte first.
    let mut right = [0; SUM_BYTES];
    right.copy_from_slice(hasher.finish().as_bytes());
    right.reverse();
    file[sum..part.end].copy_from_slice(&right);
}

/// The record of a job, of version 2.
pub fn record() -> Vec<u8> {
    let text = "haul-job version=2\nall=new\n";
    format!("{text}blake3={}\n", digest(Algorithm::Blake3, text.as_bytes())).into_bytes()
}
