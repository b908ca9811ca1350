//! Files of a later program version: an object log and a job record with another version number and
//! correct checksums (docs/formats/log.md). This module does not depend on the rest of the crate,
//! so that a fuzz target can include it.

use haul_digest::{Algorithm, Hasher, digest};
use std::ops::Range;

/// Length of the head of each object log file.
const HEAD_BYTES: usize = 44;

/// Offset of the low byte of the version.
const VERSION: usize = 8;

/// Range of the log's unique number (`life`), which every checksum in its files covers.
const LOG_ID: Range<usize> = 16..24;

/// Length of a checksum.
const SUM_BYTES: usize = 4;

/// Sets the version of an object log file.
///
/// # Panics
/// Panics if the file is shorter than its head.
pub fn log(file: &mut [u8], version: u8) {
    file[VERSION] = version;
    seal(file, 0..HEAD_BYTES);
}

/// Writes the correct checksum at the end of the head or record at `part` of an object log file.
///
/// # Panics
/// Panics if the file has no such range, or if the range is shorter than a checksum.
pub fn seal(file: &mut [u8], part: Range<usize>) {
    let (from, sum) = (part.start, part.end - SUM_BYTES);
    let mut hasher = Hasher::new(Algorithm::Crc32c);
    hasher.update(&file[LOG_ID]);
    hasher.update(&0_u32.to_le_bytes());
    hasher.update(&(from as u64).to_le_bytes());
    hasher.update(&file[from..sum]);
    // The digest is big-endian; the file stores the number in little-endian order.
    let mut right = [0; SUM_BYTES];
    right.copy_from_slice(hasher.finish().as_bytes());
    right.reverse();
    file[sum..part.end].copy_from_slice(&right);
}

/// Returns a job record of version 2.
pub fn record() -> Vec<u8> {
    let text = "haul-job version=2\nall=new\n";
    format!("{text}blake3={}\n", digest(Algorithm::Blake3, text.as_bytes())).into_bytes()
}
