//! Encoder of the journal.

use super::{
    CHUNK, CHUNK_BYTES_MAX, CLOSING, CRC_BYTES, Chunk, HEAD_BYTES, Head, MAGIC, NO_BIRTH, TEXT_BYTES_MAX,
    VERSION, sum,
};
use crate::waybill::Moment;
use haul_digest::{Algorithm, Hasher};
use std::io::{self, Write};

/// Writes a journal: first the head, then chunks in file order, and a closing record.
///
/// ```text
///   0        8     10  12     16      24      36     44         52      64      76          88     92     94     96
///   +--------+-----+---+------+-------+-------+------+----------+-------+-------+-----------+------+------+------+------+------+-----+
///   |haulmend| ver | 0 | len  | inode | birth | size | new size | atime | mtime | new mtime | mode |  c   |  n   | caps | name | CRC |
///   +--------+-----+---+------+-------+-------+------+----------+-------+-------+-----------+------+------+------+------+------+-----+
///       8       2    2    4       8      12      8        8         12      12       12        4      2      2      c      n      4
///
///   +---+-----+-----+----+-----------+------------------+-----+    +---+---+--------+--------+
///   | 1 | old | new | at | old bytes | CRC of each 512  | CRC |    | 2 | 0 | chunks | BLAKE3 |
///   +---+-----+-----+----+-----------+------------------+-----+    +---+---+--------+--------+
///     4    4     4     8      old       4 x new / 512      4         4   4     8        32
/// ```
/// Numbers are little-endian. A time is seconds (8 bytes) and nanoseconds (4 bytes). `len` is the
/// length of the head, including its CRC. Every CRC is the CRC-32C of the preceding bytes of its
/// record. BLAKE3 covers all bytes before it, including those of its own record.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    hasher: Hasher,
    chunks: u64,
    /// Exclusive end of the last chunk in the file.
    end: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a journal.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output; `InvalidInput` if a text is longer than
    /// [`TEXT_BYTES_MAX`].
    pub fn new(out: W, head: &Head) -> io::Result<Writer<W>> {
        if head.name.len().max(head.capability.len()) > TEXT_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "File name too long"));
        }
        let mut writer = Writer { out, hasher: Hasher::new(Algorithm::Blake3), chunks: 0, end: 0 };
        writer.put(&encode(head))?;
        Ok(writer)
    }

    /// Writes a chunk.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    ///
    /// # Panics
    ///
    /// Panics if the chunk is empty, too long, or starts before the end of the previous one.
    pub fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        let range = chunk.range();
        assert!(!range.is_empty() && range.len() <= CHUNK_BYTES_MAX as u64, "a chunk has a bounded length");
        assert!(range.start.0 >= self.end, "chunks come in order");
        self.end = range.end.0;
        self.chunks += 1;
        let mut bytes = Vec::with_capacity(32 + chunk.old.len() + 4 * chunk.sums.len());
        bytes.extend(CHUNK.to_le_bytes());
        bytes.extend((chunk.old.len() as u32).to_le_bytes());
        bytes.extend(chunk.new_len.to_le_bytes());
        bytes.extend(chunk.at.to_le_bytes());
        bytes.extend(&chunk.old);
        chunk.sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        bytes.extend(sum(&bytes).to_le_bytes());
        self.put(&bytes)
    }

    /// Returns the number of chunks written.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Writes the closing record and returns the output.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn close(mut self) -> io::Result<W> {
        let mut bytes = Vec::with_capacity(48);
        bytes.extend(CLOSING.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.chunks.to_le_bytes());
        self.put(&bytes)?;
        self.out.write_all(self.hasher.finish().as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }
}

fn encode(head: &Head) -> Vec<u8> {
    let len = HEAD_BYTES + head.capability.len() + head.name.len() + CRC_BYTES;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([0; 2]);
    bytes.extend((len as u32).to_le_bytes());
    bytes.extend(head.inode.to_le_bytes());
    put_moment(&mut bytes, head.birth.unwrap_or(Moment { sec: 0, nsec: NO_BIRTH }));
    bytes.extend(head.before.size.to_le_bytes());
    bytes.extend(head.after.size.to_le_bytes());
    put_moment(&mut bytes, head.before.atime);
    put_moment(&mut bytes, head.before.mtime);
    put_moment(&mut bytes, head.after.mtime);
    bytes.extend(head.mode.to_le_bytes());
    for text in [&head.capability, &head.name] {
        bytes.extend((text.len() as u16).to_le_bytes());
    }
    bytes.extend(&head.capability);
    bytes.extend(&head.name);
    bytes.extend(sum(&bytes).to_le_bytes());
    bytes
}

fn put_moment(bytes: &mut Vec<u8>, moment: Moment) {
    bytes.extend(moment.sec.to_le_bytes());
    bytes.extend(moment.nsec.to_le_bytes());
}
