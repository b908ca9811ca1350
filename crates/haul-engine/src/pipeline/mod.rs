//! Steps of the data path that several jobs share.

mod block;
mod read;

pub(crate) use block::{BLOCK_BYTES, Block, Reads};
pub(crate) use read::{BlockFault, ReadAt, read_blocks, read_step, read_to_end};
