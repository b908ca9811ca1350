//! Serial digest in parallel with the copy: one thread reads and writes, and a second thread hashes
//! the same blocks.
//!
//! This is FIVER's queue. The bytes are read once, and a bounded number of blocks is queued between
//! the two threads. A file under MD5 therefore takes the longer of copying and hashing instead of
//! their sum.

use super::blocks::block_bytes;
use super::digesting::InOrder;
use super::error::CopyError;
use super::open_copy::OpenCopy;
use super::report::Tally;
use super::reread::Method;
use super::settings::Moving;
use crate::pipeline::Block;
use haul_model::{ByteOffset, ByteRange};
use std::cell::Cell;

/// Maximum number of blocks queued between the copying and the hashing thread.
const BLOCKS_BETWEEN: usize = 8;

/// Returns true if a second thread for one file is useful: it was requested, or a worker is idle.
pub(crate) fn is_wanted(moving: &Moving, method: Method, is_one_idle: bool) -> bool {
    matches!(method, Method::Nothing | Method::Journey)
        && moving.double_buffer.unwrap_or_else(|| is_one_idle && moving.workers.count() > 1)
}

/// Copies a complete file in order and hashes it in a second thread, or in this thread if no thread
/// can be started. Returns the number of bytes copied and the digest.
///
/// # Errors
/// See [`OpenCopy::copy_object`].
pub(crate) fn move_in_order(open: &OpenCopy<'_>, mut digest: InOrder) -> Result<(u64, InOrder), CopyError> {
    let bytes = block_bytes(open.context.moving);
    let (filled_tx, filled) = crossbeam_channel::bounded::<(Block, usize)>(BLOCKS_BETWEEN);
    let (empty_tx, empty) = crossbeam_channel::bounded::<Block>(BLOCKS_BETWEEN);
    for _ in 0..BLOCKS_BETWEEN {
        let block = Block::new(bytes).map_err(|source| open.read_failed(0, source))?;
        // The channel has capacity for exactly these blocks.
        let _ = empty_tx.send(block);
    }
    let moved = std::thread::scope(|scope| {
        let hash = || {
            // Moved into the closure, so that this end of the channel closes with the thread.
            let empty_tx = empty_tx;
            for (block, len) in filled {
                digest.update(&block[..len]);
                // At the end no thread takes the block back, but the queue may still hold blocks to
                // hash.
                let _ = empty_tx.send(block);
            }
        };
        let hashing = std::thread::Builder::new().spawn_scoped(scope, hash).ok()?;
        // Each thread ends only together with the other, so a block always comes back.
        let moved = move_blocks(open, || empty.recv().ok(), |block, got| _ = filled_tx.send((block, got)));
        drop((filled_tx, empty));
        hashing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some(moved)
    });
    match moved {
        Some(moved) => moved.map(|at| (at, digest)),
        None => move_alone(open, digest),
    }
}

/// Copies a complete file in order and hashes each block before it reads the next one.
fn move_alone(open: &OpenCopy<'_>, mut digest: InOrder) -> Result<(u64, InOrder), CopyError> {
    let block = Block::new(block_bytes(open.context.moving)).map_err(|source| open.read_failed(0, source))?;
    let free = Cell::new(Some(block));
    let hash = |block: Block, got: usize| {
        digest.update(&block[..got]);
        free.set(Some(block));
    };
    let bytes = move_blocks(open, || free.take(), hash)?;
    Ok((bytes, digest))
}

/// Reads and writes block by block until the end of the file. The end may come before the reported
/// length, as in sysfs. Each block comes from `empty` and goes to `filled` with its number of
/// bytes. Returns the number of bytes copied.
fn move_blocks(
    open: &OpenCopy<'_>,
    empty: impl Fn() -> Option<Block>,
    mut filled: impl FnMut(Block, usize),
) -> Result<u64, CopyError> {
    let len = open.plan.geometry().len();
    let mut at = 0;
    while at < len {
        let Some(mut block) = empty() else { break };
        if open.context.is_stopping() {
            return Err(open.file.interrupted());
        }
        let step = ByteRange::between(at, len.min(at + block.len() as u64));
        let got = open.read_source_step(step, &mut block)?;
        open.delivery.put(open.file, open.plan.in_sink(ByteOffset(at)), &block[..got])?;
        Tally::add(&open.context.observer.tally.bytes_done, got as u64);
        filled(block, got);
        at += got as u64;
        if (got as u64) < step.len() {
            break;
        }
    }
    Ok(at)
}
