//! Undo journal of an in-place repair: the old bytes of a file, logged before the repair overwrites
//! them, so that they can be restored.
//!
//! A [`Head`] identifies the file and holds its metadata. A [`Chunk`] holds old bytes and the
//! checksums of the bytes that replace them. Each record ends with a MAC that also covers all
//! records before it: only a holder of the key can write, change or extend a journal.
//! `docs/formats/journal.md` specifies the bytes.

mod read;
mod write;

pub use read::{JournalFlaw, Reader};
pub use write::Writer;

use crate::waybill::Moment;
use haul_digest::{Algorithm, DigestKey, digest};
use haul_model::ByteRange;

/// Version that is written, and the only version that is read. Version 1 was not authenticated.
pub const VERSION: u16 = 2;

/// Maximum length of the range of a chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Unit, in bytes, that a device writes atomically. Old and new bytes are distinguished per sector.
pub const SECTOR_BYTES: usize = 512;

/// Maximum length of a name or attribute in a head, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// First bytes of every journal.
const MAGIC: [u8; 8] = *b"haulmend";

/// Size of a head before its texts, in bytes.
const HEAD_BYTES: usize = 96;

/// Size of the CRC of a sector in bytes.
const CRC_BYTES: usize = 4;

/// Size of the MAC of a record in bytes.
const MAC_BYTES: usize = 16;

/// Size of a closing record before its MAC, in bytes.
const CLOSING_BYTES: usize = 16;

/// Nanoseconds value that represents an unknown birth time.
const NO_BIRTH: u32 = u32::MAX;

/// First number of a chunk.
const CHUNK: u32 = 1;

/// First number of the closing record.
const CLOSING: u32 = 2;

const _: () = assert!(CHUNK_BYTES_MAX.is_multiple_of(SECTOR_BYTES));

/// The file to repair, with its state before and after the repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Inode number of the file.
    pub inode: u64,
    /// Birth time of the inode, if the file system stores it.
    pub birth: Option<Moment>,
    /// Name under which the file is repaired, in the directory of the journal.
    pub name: Vec<u8>,
    /// Permission bits. A write may clear setuid and setgid.
    pub mode: u32,
    /// Value of `security.capability`, which a write removes; empty if there is none.
    pub capability: Vec<u8>,
    /// State before the repair.
    pub before: Shape,
    /// State after the repair.
    pub after: Shape,
}

/// Metadata of a file that a repair changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Length in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Moment,
    /// Access time.
    pub atime: Moment,
}

/// A replaced range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte.
    pub at: u64,
    /// Old bytes; shorter than the new bytes if the file grows.
    pub old: Vec<u8>,
    /// Number of new bytes; lower than the number of old bytes if the file shrinks.
    pub new_len: u32,
    /// CRC-32C of each [`SECTOR_BYTES`] of the new bytes.
    pub sums: Vec<u32>,
}

/// Current contents of the range of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// The old bytes.
    Old,
    /// The new bytes.
    New,
    /// Some sectors hold the old bytes and some the new ones.
    Mixed,
    /// At least one sector holds neither: another process wrote to it.
    Foreign,
}

impl Chunk {
    /// Returns a chunk for bytes that differ. At least one of `old` and `new` must not be empty,
    /// and both have at most [`CHUNK_BYTES_MAX`] bytes.
    pub fn new(at: u64, old: Vec<u8>, new: &[u8]) -> Chunk {
        assert!(old.len().max(new.len()) <= CHUNK_BYTES_MAX, "the caller cuts what is longer");
        Chunk { at, old, new_len: new.len() as u32, sums: new.chunks(SECTOR_BYTES).map(sum).collect() }
    }

    /// Returns the range that the old and the new bytes cover together.
    pub fn range(&self) -> ByteRange {
        let len = self.old.len().max(self.new_len as usize);
        ByteRange::between(self.at, self.at.saturating_add(len as u64))
    }

    /// Returns true if `bytes` are the new bytes.
    pub fn is_new(&self, bytes: &[u8]) -> bool {
        let sums = bytes.chunks(SECTOR_BYTES).map(sum);
        bytes.len() == self.new_len as usize && sums.eq(self.sums.iter().copied())
    }

    /// Classifies `now`, the current bytes of [`Chunk::range`], which are fewer if the file ends
    /// earlier.
    ///
    /// Bytes past the end of the file count as zeros, because a file that grows is filled with
    /// zeros.
    pub fn state(&self, now: &[u8]) -> ChunkState {
        let len = self.range().len() as usize;
        let padded = |bytes: &[u8]| {
            let mut padded = bytes[..bytes.len().min(len)].to_vec();
            padded.resize(len, 0);
            padded
        };
        let (now, old) = (padded(now), padded(&self.old));
        let (mut all_old, mut all_new) = (true, true);
        for (number, (now, old)) in now.chunks(SECTOR_BYTES).zip(old.chunks(SECTOR_BYTES)).enumerate() {
            let taken = (self.new_len as usize).saturating_sub(number * SECTOR_BYTES).min(now.len());
            let (new, rest) = now.split_at(taken);
            let is_new = rest.iter().all(|&byte| byte == 0)
                && (taken == 0 || self.sums.get(number) == Some(&sum(new)));
            match (now == old, is_new) {
                (false, false) => return ChunkState::Foreign,
                (is_old, is_new) => {
                    all_old &= is_old;
                    all_new &= is_new;
                }
            }
        }
        match (all_old, all_new) {
            (true, _) => ChunkState::Old,
            (false, true) => ChunkState::New,
            (false, false) => ChunkState::Mixed,
        }
    }
}

/// MACs of the records of a journal, in order. Each MAC also covers the MAC before it, and
/// therefore all earlier records: a record counts only at its place in its journal.
#[derive(Debug)]
struct MacChain {
    key: DigestKey,
    last: [u8; MAC_BYTES],
}

impl MacChain {
    fn new(key: &DigestKey) -> MacChain {
        MacChain { key: *key, last: [0; MAC_BYTES] }
    }

    /// Returns the MAC of the next record: the first half of the keyed BLAKE3 of the previous MAC
    /// and of the record.
    fn next(&mut self, record: &[u8]) -> [u8; MAC_BYTES] {
        let mut hasher = self.key.hasher();
        hasher.update(&self.last);
        hasher.update(record);
        self.last.copy_from_slice(&hasher.finish().as_bytes()[..MAC_BYTES]);
        self.last
    }

    /// Returns true if the next record ends with its MAC.
    fn accepts(&mut self, record: &[u8]) -> bool {
        record.split_last_chunk::<MAC_BYTES>().is_some_and(|(body, stated)| self.next(body) == *stated)
    }
}

/// Returns the CRC-32C.
fn sum(bytes: &[u8]) -> u32 {
    digest(Algorithm::Crc32c, bytes).value().unwrap_or(0) as u32
}
