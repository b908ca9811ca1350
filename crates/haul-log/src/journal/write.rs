//! Encoder of the journal.

use super::{
    CHUNK, CHUNK_BYTES_MAX, CLOSING, CLOSING_BYTES, Chunk, HEAD_BYTES, Head, MAC_BYTES, MAGIC, MacChain,
    NO_BIRTH, TEXT_BYTES_MAX, VERSION,
};
use crate::waybill::Moment;
use haul_digest::DigestKey;
use std::io::{self, Write};

/// Writes a journal: first the head, then chunks in file order, and a closing record.
///
/// ```text
///   0        8     10  12     16      24      36     44         52      64      76          88     92     94     96
///   +--------+-----+---+------+-------+-------+------+----------+-------+-------+-----------+------+------+------+------+------+-----+
///   |haulmend| ver | 0 | len  | inode | birth | size | new size | atime | mtime | new mtime | mode |  c   |  n   | caps | name | MAC |
///   +--------+-----+---+------+-------+-------+------+----------+-------+-------+-----------+------+------+------+------+------+-----+
///       8       2    2    4       8      12      8        8         12      12       12        4      2      2      c      n     16
///
///   +---+-----+-----+----+-----------+------------------+-----+    +---+---+--------+-----+
///   | 1 | old | new | at | old bytes | CRC of each 512  | MAC |    | 2 | 0 | chunks | MAC |
///   +---+-----+-----+----+-----------+------------------+-----+    +---+---+--------+-----+
///     4    4     4     8      old       4 x new / 512     16         4   4     8      16
/// ```
/// Numbers are little-endian. A time is seconds (8 bytes) and nanoseconds (4 bytes). `len` is the
/// length of the head, including its MAC. Every CRC is CRC-32C. A MAC is the first half of the
/// keyed BLAKE3 of the MAC of the previous record (16 zeros before the head) and of the preceding
/// bytes of its record.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    macs: MacChain,
    chunks: u64,
    /// Exclusive end of the last chunk in the file.
    end: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a journal that only holders of `key` can read.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output; `InvalidInput` if a text is longer than
    /// [`TEXT_BYTES_MAX`].
    pub fn new(out: W, head: &Head, key: &DigestKey) -> io::Result<Writer<W>> {
        if head.name.len().max(head.capability.len()) > TEXT_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "File name too long"));
        }
        let mut writer = Writer { out, macs: MacChain::new(key), chunks: 0, end: 0 };
        writer.put(encode(head))?;
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
        let mut bytes = Vec::with_capacity(20 + chunk.old.len() + 4 * chunk.sums.len() + MAC_BYTES);
        bytes.extend(CHUNK.to_le_bytes());
        bytes.extend((chunk.old.len() as u32).to_le_bytes());
        bytes.extend(chunk.new_len.to_le_bytes());
        bytes.extend(chunk.at.to_le_bytes());
        bytes.extend(&chunk.old);
        chunk.sums.iter().for_each(|sum| bytes.extend(sum.to_le_bytes()));
        self.put(bytes)
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
        let mut bytes = Vec::with_capacity(CLOSING_BYTES + MAC_BYTES);
        bytes.extend(CLOSING.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(self.chunks.to_le_bytes());
        self.put(bytes)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a record and its MAC.
    fn put(&mut self, mut record: Vec<u8>) -> io::Result<()> {
        record.extend(self.macs.next(&record));
        self.out.write_all(&record)
    }
}

fn encode(head: &Head) -> Vec<u8> {
    let len = HEAD_BYTES + head.capability.len() + head.name.len() + MAC_BYTES;
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
    bytes
}

fn put_moment(bytes: &mut Vec<u8>, moment: Moment) {
    bytes.extend(moment.sec.to_le_bytes());
    bytes.extend(moment.nsec.to_le_bytes());
}
