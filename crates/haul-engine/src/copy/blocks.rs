//! Memory of a worker: the blocks that it reads into.

use super::settings::Moving;
use crate::pipeline::{BLOCK_BYTES, Block};
use std::io;

/// Returns the number of bytes per read and write: the requested number, or the one that measured
/// best.
pub(crate) fn block_bytes(moving: &Moving) -> usize {
    let chosen = moving.block.unwrap_or(BLOCK_BYTES);
    chosen.min(usize::try_from(moving.object.bytes()).unwrap_or(usize::MAX)).next_multiple_of(4096)
}

/// The blocks of one worker. Each is allocated on first use.
#[derive(Debug)]
pub(crate) struct Blocks {
    block: Option<Block>,
    /// A second block, for data that is read back.
    back: Option<Block>,
    bytes: usize,
}

impl Blocks {
    /// Creates the blocks of a worker.
    pub(crate) fn new(moving: &Moving) -> Blocks {
        Blocks { block: None, back: None, bytes: block_bytes(moving) }
    }

    /// Returns the block.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub(crate) fn one(&mut self) -> io::Result<&mut Block> {
        allocated(&mut self.block, self.bytes)
    }

    /// Returns the block and the one for data that is read back.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub(crate) fn two(&mut self) -> io::Result<(&mut Block, &mut Block)> {
        Ok((allocated(&mut self.block, self.bytes)?, allocated(&mut self.back, self.bytes)?))
    }
}

fn allocated(block: &mut Option<Block>, bytes: usize) -> io::Result<&mut Block> {
    match block {
        Some(block) => Ok(block),
        empty => Ok(empty.insert(Block::new(bytes)?)),
    }
}
