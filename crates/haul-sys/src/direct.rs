//! Direct I/O: transfers between device and buffer that bypass the page cache.
//!
//! A successful open with O_DIRECT proves little, because some file systems accept the flag and
//! reject the first transfer. Therefore a probe makes a transfer.
//!
//! A file whose length is not a multiple of the device's block size ends in a tail that cannot be
//! written directly. The tail is written through the page cache, and never padded past the end.

use crate::buffer::{AlignedBuffer, BUFFER_ALIGN};
use crate::{sparse, stat, transfer};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io;

/// Required alignment of direct transfers on a file, in bytes. Both values are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of memory addresses.
    pub memory: u32,
    /// Alignment of file offsets and lengths.
    pub offset: u32,
}

impl Alignment {
    /// Alignment that every device in use accepts: pages.
    pub const FALLBACK: Alignment = Alignment { memory: BUFFER_ALIGN as u32, offset: BUFFER_ALIGN as u32 };

    /// Returns the number of bytes of `len` that can be transferred directly; the rest is the tail.
    pub fn whole_blocks(self, len: u64) -> u64 {
        len - len % u64::from(self.offset)
    }
}

/// Turns direct I/O on an open file on or off.
///
/// The flag belongs to the open file description: the change affects every thread and every
/// duplicate of the descriptor.
///
/// # Errors
///
/// Returns the errors of fcntl(2); `EINVAL` if the file system does not support direct I/O.
pub fn set_direct(fd: impl AsFd, on: bool) -> io::Result<()> {
    let flags = retry_on_intr(|| rustix::fs::fcntl_getfl(&fd))?;
    let wanted = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    if wanted == flags {
        return Ok(());
    }
    Ok(retry_on_intr(|| rustix::fs::fcntl_setfl(&fd, wanted))?)
}

/// Returns true if direct I/O is on for an open file.
///
/// # Errors
///
/// Returns the errors of fcntl(2).
pub fn is_direct(fd: impl AsFd) -> io::Result<bool> {
    Ok(retry_on_intr(|| rustix::fs::fcntl_getfl(&fd))?.contains(OFlags::DIRECT))
}

/// Returns the alignment that the file requires (statx(2), STATX_DIOALIGN, Linux 6.1).
///
/// Returns `None` if the file system reports that the file does not support direct I/O, and
/// [`Alignment::FALLBACK`] if it reports nothing.
///
/// # Errors
///
/// Returns the errors of statx(2).
pub fn alignment(fd: impl AsFd) -> io::Result<Option<Alignment>> {
    let found = retry_on_intr(|| rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN));
    let statx = match found {
        Ok(statx) => statx,
        Err(Errno::NOSYS) => return Ok(Some(Alignment::FALLBACK)),
        Err(errno) => return Err(errno.into()),
    };
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Some(Alignment::FALLBACK));
    }
    let (memory, offset) = (statx.stx_dio_mem_align, statx.stx_dio_offset_align);
    if offset == 0 {
        return Ok(None);
    }
    Ok(Some(Alignment { memory: memory.max(1), offset }))
}

/// Turns direct I/O on if a direct read of the first block of the file succeeds. Returns the
/// required alignment.
///
/// With `None` the flag of the file is off.
///
/// # Errors
///
/// Returns errors that an ordinary read would also return.
pub fn probe_read(fd: impl AsFd) -> io::Result<Option<Alignment>> {
    probe(fd, |fd, block| retry_on_intr(|| rustix::io::pread(fd, &mut *block, 0)).map(drop))
}

/// Turns direct I/O on if a direct write succeeds. Returns the required alignment.
///
/// The file must be empty and is left empty. With `None` the flag of the file is off.
///
/// # Errors
///
/// Returns `InvalidInput` if the file is not empty, and errors that an ordinary write would also
/// return.
pub fn probe_write(fd: impl AsFd) -> io::Result<Option<Alignment>> {
    if stat::stat_fd(&fd)?.size != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "only an empty file is probed by a write"));
    }
    let outcome = probe(&fd, |fd, block| retry_on_intr(|| rustix::io::pwrite(fd, &*block, 0)).map(drop));
    sparse::set_len(&fd, 0)?;
    outcome
}

/// Reads from the aligned offset `offset` until `buffer` is full or the file ends. Returns the
/// number of bytes read.
///
/// The length and the address of `buffer` must be aligned as well. Also works without the flag.
///
/// # Errors
///
/// Returns the errors of pread(2); `EINVAL` if the alignment is violated.
pub fn read_at(fd: impl AsFd, offset: u64, buffer: &mut [u8], alignment: Alignment) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        let n = retry_on_intr(|| rustix::io::pread(&fd, &mut buffer[filled..], at))?;
        filled += n;
        // A transfer that stops within a block has reached the end of the file. Reading on from
        // there would violate the alignment and fail.
        if n == 0 || n % alignment.offset as usize != 0 {
            break;
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at the aligned offset `offset`: full blocks directly, and the tail by
/// [`write_tail`]. Only the end of the file may have a tail.
///
/// # Errors
///
/// Returns the errors of pwrite(2); `EINVAL` if offset or address is not aligned.
pub fn write_all_at(fd: impl AsFd, offset: u64, bytes: &[u8], alignment: Alignment) -> io::Result<()> {
    let whole = alignment.whole_blocks(bytes.len() as u64) as usize;
    transfer::write_all_at(&fd, offset, &bytes[..whole])?;
    write_tail(fd, offset + whole as u64, &bytes[whole..])
}

/// Writes bytes that fill no block through the page cache, and turns direct I/O off during the
/// write.
///
/// Writes exactly these bytes. Other threads may write to the file at the same time: their blocks
/// then also pass through the page cache. No two threads may write a tail at the same time.
///
/// # Errors
///
/// Returns the errors of pwrite(2) and fcntl(2).
pub fn write_tail(fd: impl AsFd, offset: u64, tail: &[u8]) -> io::Result<()> {
    if tail.is_empty() {
        return Ok(());
    }
    let was_direct = is_direct(&fd)?;
    set_direct(&fd, false)?;
    let written = transfer::write_all_at(&fd, offset, tail);
    if was_direct {
        set_direct(&fd, true)?;
    }
    written
}

type Transfer = fn(rustix::fd::BorrowedFd<'_>, &mut [u8]) -> rustix::io::Result<()>;

fn probe(fd: impl AsFd, transfer: Transfer) -> io::Result<Option<Alignment>> {
    let Some(alignment) = alignment(&fd)? else { return Ok(None) };
    // Callers align to pages. A device with larger blocks is read and written through the page
    // cache.
    if alignment.memory.max(alignment.offset) as usize > BUFFER_ALIGN {
        return Ok(None);
    }
    match set_direct(&fd, true) {
        Ok(()) => {}
        Err(error) if means_unsupported(Errno::from_io_error(&error)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut block = AlignedBuffer::new(alignment.offset as usize)?;
    match transfer(fd.as_fd(), &mut block) {
        Ok(()) => Ok(Some(alignment)),
        Err(errno) => {
            set_direct(&fd, false)?;
            if means_unsupported(Some(errno)) { Ok(None) } else { Err(errno.into()) }
        }
    }
}

fn means_unsupported(errno: Option<Errno>) -> bool {
    matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS))
}
