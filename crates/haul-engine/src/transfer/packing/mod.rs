//! Compressed blocks. Each block is a separate zstd frame, so any lane can carry it.
//!
//! Digests cover the bytes of the file. Compression affects only the wire.

mod auto;

use auto::{Auto, Measurement};
use haul_proto::{Compression, limits};
use std::io;
use std::time::{Duration, Instant};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::find_frame_compressed_size;

/// Level if the job leaves the choice to this side. At higher levels one CPU core compresses less
/// than 1 Gbit/s.
const LEVEL: i8 = 3;

/// Valid levels. Lower levels are hardly faster. Higher levels use memory without effect, because a
/// block is much smaller than their window.
pub const LEVELS: std::ops::RangeInclusive<i8> = -7..=19;

/// Minimum block size for compression, in bytes. For smaller blocks the frame header and the work
/// of the peer outweigh the gain.
const PACK_FROM: usize = 512;

/// A compressed block must save at least this fraction (1/32) of its bytes. Otherwise it is sent as
/// is.
const SAVED_FRACTION_MIN: usize = 32;

/// Maximum number of uncompressed bytes that one NEW_BLOCK announces. Announced bytes must be sent,
/// so the limit is an amount that is soon sent.
const ANNOUNCED_BYTES_MAX: u64 = 8 << 20;

const _: () = assert!(ANNOUNCED_BYTES_MAX <= limits::PAYLOAD_BYTES_MAX as u64);

/// Limits a level to the valid levels.
pub(super) fn possible(compression: Compression) -> Compression {
    match compression {
        Compression::Zstd(level) => Compression::Zstd(level.clamp(*LEVELS.start(), *LEVELS.end())),
        other => other,
    }
}

/// Compressor for the blocks of one lane.
pub(super) struct Packer {
    when: PackPolicy,
    zstd: Option<Compressor<'static>>,
    packed: Vec<u8>,
    /// Time spent on the current block.
    packing: Duration,
}

/// Selection of the blocks to compress.
enum PackPolicy {
    Never,
    Always,
    IfItHelps(Box<Auto>),
}

impl Packer {
    /// Creates the packer for a lane of a job with this option.
    pub(super) fn new(compression: Compression) -> Packer {
        let (when, level) = match possible(compression) {
            Compression::Off => (PackPolicy::Never, None),
            Compression::Auto => (PackPolicy::IfItHelps(Box::default()), Some(LEVEL)),
            Compression::Zstd(level) => (PackPolicy::Always, Some(level)),
        };
        // If there is no memory for the compressor, blocks are sent as is.
        let zstd = level.and_then(|level| Compressor::new(level.into()).ok());
        Packer { when, zstd, packed: Vec::new(), packing: Duration::ZERO }
    }

    /// Compresses a block, if it is selected and saves enough. The returned frame is valid until
    /// the next call.
    pub(super) fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        self.packing = Duration::ZERO;
        let wanted = match &self.when {
            PackPolicy::Never => false,
            PackPolicy::Always => true,
            PackPolicy::IfItHelps(auto) => auto.packs_next(),
        };
        let zstd = self.zstd.as_mut().filter(|_| wanted && block.len() >= PACK_FROM)?;
        let begin = Instant::now();
        // A block that does not fit saves too little.
        self.packed.resize(block.len() - block.len() / SAVED_FRACTION_MIN, 0);
        let len = zstd.compress_to_buffer(block, &mut self.packed[..]);
        self.packing = begin.elapsed();
        Some(&self.packed[..len.ok()?])
    }

    /// Returns the number of uncompressed bytes that one NEW_BLOCK may announce. The next block can
    /// be compressed only after them.
    pub(super) fn announce_limit(&self) -> u64 {
        match &self.when {
            PackPolicy::Never => ANNOUNCED_BYTES_MAX,
            // Each block is decided separately. Its header adds 1/5,000 to it.
            PackPolicy::Always | PackPolicy::IfItHelps(_) => 1,
        }
    }

    /// Records that a block of `plain` bytes was sent as `sent_bytes` bytes. `own` is the time to
    /// read and hash it, and `lane` the time that the lane blocked the worker. Returns the time
    /// spent on compression.
    pub(super) fn sent(
        &mut self,
        plain: usize,
        sent_bytes: usize,
        own: Duration,
        lane: Duration,
    ) -> Duration {
        let packing = std::mem::take(&mut self.packing);
        if let PackPolicy::IfItHelps(auto) = &mut self.when {
            auto.sent(&Measurement {
                plain: plain as u64,
                sent_bytes: sent_bytes as u64,
                packing,
                own,
                lane,
            });
        }
        packing
    }
}

/// Decompressor for the blocks of one lane. The frames may come from a hostile peer.
#[derive(Default)]
pub struct Unpacker {
    zstd: Decompressor<'static>,
    packed: Vec<u8>,
}

impl Unpacker {
    /// Returns a buffer for a frame of `len` bytes, to be filled before [`Unpacker::unpack`].
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.packed.resize(len, 0);
        &mut self.packed
    }

    /// Decompresses the frame into `block`, which it must fill exactly. Writes nothing and
    /// allocates nothing beyond that.
    ///
    /// # Errors
    /// Returns an error if the buffer does not hold exactly one frame of this length. The contents
    /// of `block` are then undefined.
    pub fn unpack(&mut self, block: &mut [u8]) -> io::Result<()> {
        let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        match find_frame_compressed_size(&self.packed) {
            Ok(len) if len == self.packed.len() => {}
            _ => return Err(refused("not one zstd frame")),
        }
        match self.zstd.decompress_to_buffer(&self.packed, block) {
            Ok(len) if len == block.len() => Ok(()),
            Ok(_) => Err(refused("a zstd frame that is too short")),
            Err(_) => Err(refused("a zstd frame that is damaged or too long")),
        }
    }
}

#[cfg(test)]
mod tests;
