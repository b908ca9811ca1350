//! Checksums of a log, bound to their position.

use haul_digest::{Algorithm, Hasher};

/// Size of a checksum in bytes.
pub(super) const SUM_BYTES: usize = 4;

/// Values that every checksum covers before the bytes themselves. They prevent that bytes of an
/// earlier log, another file or another position are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChecksumContext {
    /// Log ID, different from that of every other log of the job.
    pub(super) log_id: u64,
    /// Number of the file within the log; 0 for bytes that belong to no file.
    pub(super) serial: u32,
}

impl ChecksumContext {
    /// Returns the CRC-32C of log ID, serial, offset (little-endian, 8, 4 and 8 bytes) and the
    /// bytes.
    pub(super) fn sum(self, at: u64, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new(Algorithm::Crc32c);
        hasher.update(&self.log_id.to_le_bytes());
        hasher.update(&self.serial.to_le_bytes());
        hasher.update(&at.to_le_bytes());
        hasher.update(bytes);
        hasher.finish().value().unwrap_or_default() as u32
    }

    /// Appends the checksum of bytes that start at offset `at`.
    pub(super) fn close(self, at: u64, bytes: &mut Vec<u8>) {
        let sum = self.sum(at, bytes);
        bytes.extend(sum.to_le_bytes());
    }

    /// Returns the bytes before the checksum if the checksum matches.
    pub(super) fn open(self, at: u64, bytes: &[u8]) -> Option<&[u8]> {
        let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        (self.sum(at, body) == u32::from_le_bytes(*sum)).then_some(body)
    }
}

/// Decodes a little-endian number of up to 8 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}
