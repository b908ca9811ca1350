//! What a repair writes down before it writes over a file: the bytes that stand there, so that they can be put back.
//!
//! A [`Head`] says which file it is for and what belongs to it; a [`Chunk`] has bytes as they were and sums of those that
//! come into their place; the closing record binds all of it. `docs/formats/journal.md` draws the bytes.

mod read;
mod write;

pub use read::{JournalFlaw, Reader};
pub use write::Writer;

use crate::waybill::Moment;
use haul_digest::{Algorithm, digest};
use haul_model::ByteRange;

/// The version that is written, and the highest that is read.
pub const VERSION: u16 = 1;

/// The longest span of a chunk, in bytes.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The unit, in bytes, that a device writes whole or not at all, and that bytes are told apart by.
pub const SECTOR_BYTES: usize = 512;

/// The longest name or attribute that a head holds, in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;

/// What every journal begins with.
const MAGIC: [u8; 8] = *b"haulmend";

/// Bytes of a head before its texts.
const HEAD_BYTES: usize = 96;

/// Bytes of a CRC.
const CRC_BYTES: usize = 4;

/// Bytes of the record that closes a journal.
const CLOSING_BYTES: usize = 48;

/// Where a birth time is unknown, this stands for its nanoseconds.
const NO_BIRTH: u32 = u32::MAX;

/// The first number of a chunk.
const CHUNK: u32 = 1;

/// The first number of the closing record.
const CLOSING: u32 = 2;

const _: () = assert!(CHUNK_BYTES_MAX.is_multiple_of(SECTOR_BYTES));

/// The file that is repaired, as it was before and as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its inode's number.
    pub inode: u64,
    /// When the inode was made, where the file system knows.
    pub birth: Option<Moment>,
    /// The name it was repaired by, in the directory of the journal.
    pub name: Vec<u8>,
    /// Permission bits, which writing may take setuid and setgid from.
    pub mode: u32,
    /// The value of `security.capability`, which writing removes; empty for none.
    pub capability: Vec<u8>,
    /// What it is before.
    pub before: Shape,
    /// What it is to be.
    pub after: Shape,
}

/// What of a file changes by a repair, beside bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its length in bytes.
    pub size: u64,
    /// Its modification time.
    pub mtime: Moment,
    /// Its access time.
    pub atime: Moment,
}

/// Some bytes that are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first.
    pub at: u64,
    /// What stood there; shorter than the new bytes where the file grows.
    pub old: Vec<u8>,
    /// How many bytes come there; fewer than stood there where the file shrinks.
    pub new_len: u32,
    /// CRC-32C of each [`SECTOR_BYTES`] of the new bytes.
    pub sums: Vec<u32>,
}

/// What stands in a file where a chunk is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The bytes from before.
    Old,
    /// The new bytes.
    New,
    /// Some sectors have the old bytes and some the new ones.
    Mixed,
    /// Some sector has neither: somebody else wrote there.
    Foreign,
}

impl Chunk {
    /// A chunk of bytes that differ; at least one of both is there, and at most [`CHUNK_BYTES_MAX`].
    pub fn new(at: u64, old: Vec<u8>, new: &[u8]) -> Chunk {
        assert!(old.len().max(new.len()) <= CHUNK_BYTES_MAX, "the caller cuts what is longer");
        Chunk { at, old, new_len: new.len() as u32, sums: new.chunks(SECTOR_BYTES).map(sum).collect() }
    }

    /// All that it is about: what stood there and what comes there.
    pub fn range(&self) -> ByteRange {
        let len = self.old.len().max(self.new_len as usize);
        ByteRange::between(self.at, self.at.saturating_add(len as u64))
    }

    /// Whether these are the new bytes.
    pub fn is_new(&self, bytes: &[u8]) -> bool {
        let sums = bytes.chunks(SECTOR_BYTES).map(sum);
        bytes.len() == self.new_len as usize && sums.eq(self.sums.iter().copied())
    }

    /// What `now` is: the bytes of [`Chunk::range`], fewer where the file ends before. Behind a file's end stand zeros to
    /// this, because those are what a file is filled up with that grows.
    pub fn standing(&self, now: &[u8]) -> Standing {
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
                (false, false) => return Standing::Foreign,
                (is_old, is_new) => {
                    all_old &= is_old;
                    all_new &= is_new;
                }
            }
        }
        match (all_old, all_new) {
            (true, _) => Standing::Old,
            (false, true) => Standing::New,
            (false, false) => Standing::Mixed,
        }
    }
}

/// CRC-32C.
fn sum(bytes: &[u8]) -> u32 {
    digest(Algorithm::Crc32c, bytes).value().unwrap_or(0) as u32
}
