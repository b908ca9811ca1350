//! Holes: finding and punching them, and preallocating space.

use crate::transfer::write_all_at;
use haul_model::{ByteOffset, ByteRange};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use std::io;

/// Outcome of an operation that some file systems do not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The operation succeeded.
    Done,
    /// The file system does not support it; the file is unchanged.
    Unsupported,
}

/// Returns the next range of data within the `len` bytes after `from`, or `None` if only a hole (or
/// the end of the file) remains.
///
/// A file system without an extent map reports everything as data. Moves the file position of the
/// descriptor, which positioned reads do not use.
///
/// # Errors
///
/// Returns the errors of lseek(2).
pub fn next_data(fd: impl AsFd, from: u64, len: u64) -> io::Result<Option<ByteRange>> {
    let end = from.saturating_add(len);
    if from >= end {
        return Ok(None);
    }
    let start = match retry_on_intr(|| rustix::fs::seek(&fd, SeekFrom::Data(from))) {
        // Some network file systems have returned an offset before `from`.
        Ok(start) => start.max(from),
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) if seeking_is_unsupported(errno) => return Ok(Some(ByteRange::between(from, end))),
        Err(errno) => return Err(errno.into()),
    };
    if start >= end {
        return Ok(None);
    }
    let hole = match retry_on_intr(|| rustix::fs::seek(&fd, SeekFrom::Hole(start))) {
        Ok(hole) => hole,
        // The file shrank between the two calls; the read will find the end.
        Err(Errno::NXIO) => end,
        Err(errno) if seeking_is_unsupported(errno) => end,
        Err(errno) => return Err(errno.into()),
    };
    // If the map changes meanwhile, the data may seem to end where it starts. Then the end is
    // unknown.
    let stop = if hole > start { hole.min(end) } else { end };
    Ok(Some(ByteRange::between(start, stop)))
}

/// Frees the space of a range, which then reads as zeros. The length of the file stays.
///
/// # Errors
///
/// Returns the errors of fallocate(2) except `EOPNOTSUPP`, which gives [`Support::Unsupported`].
pub fn punch_hole(fd: impl AsFd, range: ByteRange) -> io::Result<Support> {
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range)
}

/// Makes a range read as zeros: punches a hole or, where that fails, writes zeros. Calls `is_over`
/// before each 64 KiB of zeros. Returns false if `is_over` returned true; the rest of the range
/// then has its old bytes.
///
/// # Errors
///
/// Returns the errors of pwrite(2).
pub fn clear(fd: impl AsFd, range: ByteRange, is_over: impl FnMut() -> bool) -> io::Result<bool> {
    match punch_hole(&fd, range) {
        Ok(Support::Done) => Ok(true),
        Ok(Support::Unsupported) | Err(_) => write_zeros(fd, range, is_over),
    }
}

/// Number of zeros that one call writes.
const ZEROS_BYTES: usize = 64 << 10;

fn write_zeros(fd: impl AsFd, range: ByteRange, mut is_over: impl FnMut() -> bool) -> io::Result<bool> {
    static ZEROS: [u8; ZEROS_BYTES] = [0; ZEROS_BYTES];
    let mut at = range.start.0;
    while at < range.end.0 {
        if is_over() {
            return Ok(false);
        }
        let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(ZEROS_BYTES);
        write_all_at(&fd, at, &ZEROS[..len])?;
        at += len as u64;
    }
    Ok(true)
}

/// Allocates the space of a range now, so that a later write to it cannot run out of space.
///
/// `keep_len` leaves the length of the file unchanged, so that an interrupted copy does not look
/// complete.
///
/// # Errors
///
/// Returns the errors of fallocate(2) (`ENOSPC`, `EFBIG`, ...) except `EOPNOTSUPP`, which gives
/// [`Support::Unsupported`].
pub fn allocate(fd: impl AsFd, range: ByteRange, keep_len: bool) -> io::Result<Support> {
    fallocate(fd, if keep_len { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }, range)
}

/// Truncates or extends a file to `len` bytes; new bytes are a hole.
///
/// # Errors
///
/// Returns the errors of ftruncate(2).
pub fn set_len(fd: impl AsFd, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?)
}

fn fallocate(fd: impl AsFd, flags: FallocateFlags, range: ByteRange) -> io::Result<Support> {
    if range.is_empty() {
        // The kernel rejects a length of 0; here there is nothing to do.
        return Ok(Support::Done);
    }
    let ByteOffset(start) = range.start;
    match retry_on_intr(|| rustix::fs::fallocate(&fd, flags, start, range.len())) {
        Ok(()) => Ok(Support::Done),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Support::Unsupported),
        Err(errno) => Err(errno.into()),
    }
}

fn seeking_is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY | Errno::SPIPE | Errno::NOSYS)
}
