//! Decoder of the journal.

use super::{
    CHUNK, CHUNK_BYTES_MAX, CLOSING, CLOSING_BYTES, CRC_BYTES, Chunk, HEAD_BYTES, Head, MAC_BYTES, MAGIC,
    MacChain, NO_BIRTH, SECTOR_BYTES, Shape, TEXT_BYTES_MAX, VERSION,
};
use crate::waybill::Moment;
use haul_digest::DigestKey;
use std::io::{self, Read};
use thiserror::Error;

/// Reason why bytes are not a complete journal.
#[derive(Debug, Error)]
pub enum JournalFlaw {
    /// The bytes cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes start with something else.
    #[error("not a repair journal")]
    NotOurs,
    /// A newer version of the format.
    #[error("unsupported version {0} (this program supports {VERSION}); use a newer haul")]
    Newer(u16),
    /// A version that is not authenticated.
    #[error("version {0} is not authenticated (this program supports {VERSION})")]
    Older(u16),
    /// A MAC differs, or the end is missing.
    #[error("damaged at byte {0}, or not written with the key of this user")]
    Damaged(u64),
    /// The MACs are correct, but the fields are inconsistent.
    #[error("inconsistent: {0}")]
    Contradictory(&'static str),
}

/// Reads a journal: first the head, then chunk by chunk. The journal is complete and intact only if
/// the iterator reaches `None` without an error.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    macs: MacChain,
    head: Head,
    /// Number of bytes read.
    at: u64,
    chunks: u64,
    /// Exclusive end of the last chunk in the file.
    end: u64,
    closed: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a journal that was written with `key`.
    ///
    /// # Errors
    ///
    /// Returns a [`JournalFlaw`] if the input cannot be read, is not a journal, has another
    /// version, or has a damaged, forged or inconsistent head.
    pub fn new(mut input: R, key: &DigestKey) -> Result<Reader<R>, JournalFlaw> {
        let mut bytes = vec![0; HEAD_BYTES];
        let got = fill(&mut input, &mut bytes)?;
        let known = got.min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(JournalFlaw::NotOurs);
        }
        if got < HEAD_BYTES {
            return Err(JournalFlaw::Damaged(0));
        }
        let version = number(&bytes[8..10]) as u16;
        if version > VERSION {
            return Err(JournalFlaw::Newer(version));
        }
        if version < VERSION {
            return Err(JournalFlaw::Older(version));
        }
        let [caps, name] = [92, 94].map(|at| number(&bytes[at..at + 2]) as usize);
        let len = HEAD_BYTES + caps + name + MAC_BYTES;
        if caps.max(name) > TEXT_BYTES_MAX || number(&bytes[12..16]) != len as u64 {
            return Err(JournalFlaw::Damaged(0));
        }
        bytes.resize(len, 0);
        let mut macs = MacChain::new(key);
        if fill(&mut input, &mut bytes[HEAD_BYTES..])? < len - HEAD_BYTES || !macs.accepts(&bytes) {
            return Err(JournalFlaw::Damaged(0));
        }
        let head = decode(&bytes, caps, name)?;
        Ok(Reader { input, macs, head, at: len as u64, chunks: 0, end: 0, closed: false })
    }

    /// Returns the head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    fn record(&mut self) -> Result<Option<Chunk>, JournalFlaw> {
        let damaged = JournalFlaw::Damaged(self.at);
        // Length that both kinds of records exceed.
        let mut bytes = vec![0; CLOSING_BYTES];
        if fill(&mut self.input, &mut bytes)? < bytes.len() {
            return Err(damaged);
        }
        let words = [0, 4, 8].map(|at| number(&bytes[at..at + 4]) as u32);
        let [kind, old, new] = words;
        if kind == CLOSING {
            return self.closing(bytes).map(|()| None);
        }
        let [old, new] = [old, new].map(|len| len as usize);
        if kind != CHUNK || old.max(new) > CHUNK_BYTES_MAX {
            return Err(damaged);
        }
        let sums = new.div_ceil(SECTOR_BYTES) * CRC_BYTES;
        bytes.resize(20 + old + sums + MAC_BYTES, 0);
        let rest = bytes.len() - CLOSING_BYTES;
        if fill(&mut self.input, &mut bytes[CLOSING_BYTES..])? < rest || !self.macs.accepts(&bytes) {
            return Err(damaged);
        }
        self.at += bytes.len() as u64;
        self.chunks += 1;
        let (body, sums) = bytes[20..20 + old + sums].split_at(old);
        let sums = sums.chunks(CRC_BYTES).map(|sum| number(sum) as u32).collect();
        let chunk = Chunk { at: number(&bytes[12..20]), old: body.to_vec(), new_len: new as u32, sums };
        self.check(&chunk)?;
        Ok(Some(chunk))
    }

    /// Checks that a chunk follows the previous chunks and has the lengths that the head implies.
    fn check(&mut self, chunk: &Chunk) -> Result<(), JournalFlaw> {
        let range = chunk.range();
        if range.is_empty() || range.start.0 < self.end || range.len() > CHUNK_BYTES_MAX as u64 {
            return Err(JournalFlaw::Contradictory("chunks are out of order"));
        }
        let within = |size: u64| size.saturating_sub(range.start.0).min(range.len());
        let lens = (chunk.old.len() as u64, u64::from(chunk.new_len));
        if lens != (within(self.head.before.size), within(self.head.after.size)) {
            return Err(JournalFlaw::Contradictory("the length of a chunk does not match the file"));
        }
        self.end = range.end.0;
        Ok(())
    }

    fn closing(&mut self, mut bytes: Vec<u8>) -> Result<(), JournalFlaw> {
        self.closed = true;
        let is_counted = number(&bytes[8..16]) == self.chunks && number(&bytes[4..8]) == 0;
        // One byte more than the record may have.
        bytes.resize(CLOSING_BYTES + MAC_BYTES + 1, 0);
        let got = fill(&mut self.input, &mut bytes[CLOSING_BYTES..])?;
        let is_whole = got == MAC_BYTES && self.macs.accepts(&bytes[..CLOSING_BYTES + MAC_BYTES]);
        if is_whole && is_counted { Ok(()) } else { Err(JournalFlaw::Damaged(self.at)) }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Chunk, JournalFlaw>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.closed {
            return None;
        }
        let found = self.record().transpose();
        self.closed |= !matches!(found, Some(Ok(_)));
        found
    }
}

fn decode(bytes: &[u8], caps: usize, name: usize) -> Result<Head, JournalFlaw> {
    let long = |at: usize| number(&bytes[at..at + 8]);
    let birth = moment(&bytes[24..36]);
    let birth = (birth.nsec != NO_BIRTH).then_some(birth);
    let [atime, mtime, new_mtime] = [52, 64, 76].map(|at| moment(&bytes[at..at + 12]));
    let times = [Some(atime), Some(mtime), Some(new_mtime), birth];
    if times.iter().flatten().any(|time| time.nsec >= 1_000_000_000) {
        return Err(JournalFlaw::Contradictory("nanoseconds out of range"));
    }
    let texts = &bytes[HEAD_BYTES..HEAD_BYTES + caps + name];
    Ok(Head {
        inode: long(16),
        birth,
        name: texts[caps..].to_vec(),
        mode: number(&bytes[88..92]) as u32,
        capability: texts[..caps].to_vec(),
        before: Shape { size: long(36), mtime, atime },
        after: Shape { size: long(44), mtime: new_mtime, atime },
    })
}

fn moment(bytes: &[u8]) -> Moment {
    Moment { sec: number(&bytes[..8]) as i64, nsec: number(&bytes[8..]) as u32 }
}

/// Decodes a little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
