//! The checksums of a log, bound to the place they stand in.

use haul_digest::{Algorithm, Hasher};

/// Bytes of a checksum.
pub(super) const SUM_BYTES: usize = 4;

/// What every checksum of a part of a log covers before the bytes themselves, so that bytes that belong to an earlier
/// log, to another file or to another place are not taken for bytes of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// Told apart from every other log of the job.
    pub(super) life: u64,
    /// The number of the file within the log; 0 for what belongs to no file.
    pub(super) serial: u32,
}

impl Seal {
    /// CRC-32C of life, serial, offset (little-endian, 8, 4 and 8 bytes) and the bytes.
    pub(super) fn sum(self, at: u64, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new(Algorithm::Crc32c);
        hasher.update(&self.life.to_le_bytes());
        hasher.update(&self.serial.to_le_bytes());
        hasher.update(&at.to_le_bytes());
        hasher.update(bytes);
        hasher.finish().value().unwrap_or_default() as u32
    }

    /// Appends the checksum of bytes that begin at `at`.
    pub(super) fn close(self, at: u64, bytes: &mut Vec<u8>) {
        let sum = self.sum(at, bytes);
        bytes.extend(sum.to_le_bytes());
    }

    /// The bytes before the checksum, if it is theirs.
    pub(super) fn open(self, at: u64, bytes: &[u8]) -> Option<&[u8]> {
        let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        (self.sum(at, body) == u32::from_le_bytes(*sum)).then_some(body)
    }
}

/// A number of up to 8 bytes, the low one first.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
