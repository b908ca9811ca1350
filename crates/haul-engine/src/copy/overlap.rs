//! A serial digest beside the copy: one thread reads and writes, another hashes the same blocks behind it.
//!
//! This is FIVER's queue: the bytes are read once, and a bounded number of blocks lies between the two, so
//! that a file under MD5 takes the longer of copying and hashing instead of their sum.

use super::digesting::InOrder;
use super::error::CopyError;
use super::job::Job;
use super::pipeline::{Run, block_bytes, interrupted};
use super::report::Tally;
use super::reread::Method;
use haul_model::ByteOffset;
use haul_sys::buffer::AlignedBuffer;

/// Blocks between the copying and the hashing thread.
const BLOCKS_BETWEEN: usize = 8;

/// Whether a second thread for one file is worth it: it was asked for, or there is a processor without work.
pub(crate) fn is_wanted(job: &Job<'_>, method: Method) -> bool {
    let moving = &job.settings.moving;
    matches!(method, Method::Nothing | Method::Journey)
        && moving.double_buffer.unwrap_or_else(|| job.pool.someone_is_idle() && moving.workers.count() > 1)
}

/// Moves a whole file in order and hashes it in a thread of its own, or in this one where no other can be had.
/// Returns the bytes moved and the digest.
///
/// # Errors
/// As [`Run::object`].
pub(crate) fn move_in_order(run: &Run<'_>, mut digest: InOrder) -> Result<(u64, InOrder), CopyError> {
    let bytes = block_bytes(run.job);
    let (filled_tx, filled) = crossbeam_channel::bounded::<(AlignedBuffer, usize)>(BLOCKS_BETWEEN);
    let (empty_tx, empty) = crossbeam_channel::bounded::<AlignedBuffer>(BLOCKS_BETWEEN);
    for _ in 0..BLOCKS_BETWEEN {
        let block = AlignedBuffer::new(bytes).map_err(|source| run.read_failed(0, source))?;
        // The channel has room for exactly these.
        let _ = empty_tx.send(block);
    }
    let moved = std::thread::scope(|scope| {
        let hash = || {
            // Taken in: this end of the channel closes with the thread.
            let empty_tx = empty_tx;
            for (block, len) in filled {
                digest.update(&block[..len]);
                // At the end nobody takes the block back, but blocks to hash may still lie in the queue.
                let _ = empty_tx.send(block);
            }
        };
        let hashing = std::thread::Builder::new().spawn_scoped(scope, hash).ok()?;
        let len = run.plan.geometry().len();
        let mut at = 0;
        let mut moved = Ok(());
        while at < len && moved.is_ok() {
            // Both threads end only with each other, so a block always comes back.
            let Ok(mut block) = empty.recv() else { break };
            moved = move_block(run, &mut block, at, len).map(|got| {
                at += got as u64;
                let _ = filled_tx.send((block, got));
            });
        }
        drop((filled_tx, empty));
        hashing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some(moved.map(|()| at))
    });
    match moved {
        Some(moved) => moved.map(|at| (at, digest)),
        None => move_alone(run, digest),
    }
}

/// Moves a whole file in order and hashes each block before the next is read.
fn move_alone(run: &Run<'_>, mut digest: InOrder) -> Result<(u64, InOrder), CopyError> {
    let mut block = AlignedBuffer::new(block_bytes(run.job)).map_err(|source| run.read_failed(0, source))?;
    let len = run.plan.geometry().len();
    let mut at = 0;
    while at < len {
        let got = move_block(run, &mut block, at, len)?;
        digest.update(&block[..got]);
        at += got as u64;
    }
    Ok((at, digest))
}

fn move_block(run: &Run<'_>, block: &mut AlignedBuffer, at: u64, len: u64) -> Result<usize, CopyError> {
    if run.job.pool.stopping() {
        return Err(interrupted(run.file));
    }
    let wanted = usize::try_from(len - at).unwrap_or(usize::MAX).min(block.len());
    let got = run.read(at, block, wanted)?;
    run.delivery.put(run.file, run.plan.in_sink(ByteOffset(at)), &block[..got])?;
    Tally::add(&run.job.tally.bytes_done, got as u64);
    Ok(got)
}
