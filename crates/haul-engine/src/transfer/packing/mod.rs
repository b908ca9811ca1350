//! Blocks that travel packed: zstd frames of their own, one a block, so that any lane carries any of them.
//!
//! Digests are over the bytes as they are in the file; packing is the wire's business alone.

mod auto;

use auto::{Auto, Took};
use haul_proto::{Compression, limits};
use std::io;
use std::time::{Duration, Instant};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::find_frame_compressed_size;

/// The level where the job leaves the choice to this side. Above it a processor's core packs less than a gigabit a second.
const LEVEL: i8 = 3;

/// The levels there are: below the first it only gets a little faster, above the last it takes memory for nothing, since a block
/// is far smaller than what those levels look back on.
pub const LEVELS: std::ops::RangeInclusive<i8> = -7..=19;

/// Blocks shorter than this go as they are, in bytes: a frame's header and the other side's work are not worth it.
const PACK_FROM: usize = 512;

/// A packed block saves at least this part of its bytes, or it goes as it is.
const SAVED_LEAST: usize = 32;

/// Bytes that one NEW_BLOCK announces at most, where they go as they are; what was announced must be sent, so not more than
/// is soon through.
const STRETCH_BYTES: u64 = 8 << 20;

const _: () = assert!(STRETCH_BYTES <= limits::PAYLOAD_BYTES_MAX as u64);

/// The nearest level that there is.
pub(super) fn possible(compression: Compression) -> Compression {
    match compression {
        Compression::Zstd(level) => Compression::Zstd(level.clamp(*LEVELS.start(), *LEVELS.end())),
        other => other,
    }
}

/// Packs the blocks of one lane.
pub(super) struct Packer {
    when: When,
    zstd: Option<Compressor<'static>>,
    packed: Vec<u8>,
    /// Of the block in hand.
    packing: Duration,
}

/// When blocks are packed.
enum When {
    Never,
    Always,
    IfItHelps(Box<Auto>),
}

impl Packer {
    /// For a lane of a job with this option.
    pub(super) fn new(compression: Compression) -> Packer {
        let (when, level) = match possible(compression) {
            Compression::Off => (When::Never, None),
            Compression::Auto => (When::IfItHelps(Box::default()), Some(LEVEL)),
            Compression::Zstd(level) => (When::Always, Some(level)),
        };
        // Without memory for it, blocks go as they are.
        let zstd = level.and_then(|level| Compressor::new(level.into()).ok());
        Packer { when, zstd, packed: Vec::new(), packing: Duration::ZERO }
    }

    /// Packs a block, where that is to be done and saves enough; the frame is there until the next call.
    pub(super) fn pack(&mut self, block: &[u8]) -> Option<&[u8]> {
        self.packing = Duration::ZERO;
        let wanted = match &self.when {
            When::Never => false,
            When::Always => true,
            When::IfItHelps(auto) => auto.packs_next(),
        };
        let zstd = self.zstd.as_mut().filter(|_| wanted && block.len() >= PACK_FROM)?;
        let begin = Instant::now();
        // One that does not fit saves too little.
        self.packed.resize(block.len() - block.len() / SAVED_LEAST, 0);
        let len = zstd.compress_to_buffer(block, &mut self.packed[..]);
        self.packing = begin.elapsed();
        Some(&self.packed[..len.ok()?])
    }

    /// How many bytes one NEW_BLOCK may announce that go as they are: the next block is packed, if at all, behind them.
    pub(super) fn stretch(&self) -> u64 {
        match &self.when {
            When::Never => STRETCH_BYTES,
            // Each block is looked at: its own header is a five-thousandth of it.
            When::Always | When::IfItHelps(_) => 1,
        }
    }

    /// What became of a block of `plain` bytes: how many went, how long it took to read and hash it, and how long the lane
    /// held the worker up. Gives how long it took to pack.
    pub(super) fn sent(&mut self, plain: usize, went: usize, own: Duration, lane: Duration) -> Duration {
        let packing = std::mem::take(&mut self.packing);
        if let When::IfItHelps(auto) = &mut self.when {
            auto.sent(&Took { plain: plain as u64, went: went as u64, packing, own, lane });
        }
        packing
    }
}

/// Unpacks the blocks of one lane, as their source packed them or as a hostile one did.
#[derive(Default)]
pub struct Unpacker {
    zstd: Decompressor<'static>,
    packed: Vec<u8>,
}

impl Unpacker {
    /// Room for a frame of `len` bytes, to be filled before [`Unpacker::unpack`].
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.packed.resize(len, 0);
        &mut self.packed
    }

    /// Unpacks the frame into `block`, which it must fill: nothing is written, and no memory taken, beyond that.
    ///
    /// # Errors
    /// What is there is no frame, more than one, or one of another length. What `block` holds then is anything.
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
