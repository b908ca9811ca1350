//! Direct I/O: bytes between device and buffer past the page cache.
//!
//! Opening with O_DIRECT proves little: some file systems accept the flag and refuse the first transfer.
//! So a probe makes a transfer. Files whose length is no multiple of the device's block end in a tail that
//! cannot be written directly; it is written through the cache, and never padded past the end.

use crate::buffer::{AlignedBuffer, BUFFER_ALIGN};
use crate::{sparse, stat, transfer};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io;

/// What direct transfers on a file must be multiples of, in bytes; both powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// For addresses in memory.
    pub memory: u32,
    /// For offsets in the file and for lengths.
    pub offset: u32,
}

impl Alignment {
    /// What every device in use accepts: pages.
    pub const FALLBACK: Alignment = Alignment { memory: BUFFER_ALIGN as u32, offset: BUFFER_ALIGN as u32 };

    /// The part of `len` bytes that can go directly; the rest is the tail.
    pub fn whole_blocks(self, len: u64) -> u64 {
        len - len % u64::from(self.offset)
    }
}

/// Turns direct I/O on an open file on or off. The flag belongs to the open file: every thread and every
/// duplicate of the descriptor sees the change.
///
/// # Errors
/// What fcntl(2) reports; `EINVAL` where the file system knows no direct I/O.
pub fn set_direct(fd: impl AsFd, on: bool) -> io::Result<()> {
    let flags = retry_on_intr(|| rustix::fs::fcntl_getfl(&fd))?;
    let wanted = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    if wanted == flags {
        return Ok(());
    }
    Ok(retry_on_intr(|| rustix::fs::fcntl_setfl(&fd, wanted))?)
}

/// Whether direct I/O is on for an open file.
///
/// # Errors
/// What fcntl(2) reports.
pub fn is_direct(fd: impl AsFd) -> io::Result<bool> {
    Ok(retry_on_intr(|| rustix::fs::fcntl_getfl(&fd))?.contains(OFlags::DIRECT))
}

/// What alignment the file asks for (statx(2), STATX_DIOALIGN, Linux 6.1): `None` where the file system
/// says that the file knows no direct I/O, [`Alignment::FALLBACK`] where it says nothing.
///
/// # Errors
/// What statx(2) reports.
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

/// Turns direct I/O on if a direct read of the file's first block works, and says what alignment it keeps
/// to. With `None` the file is left as it was, without the flag.
///
/// # Errors
/// Failures that an ordinary read would meet as well.
pub fn probe_read(fd: impl AsFd) -> io::Result<Option<Alignment>> {
    probe(fd, |fd, block| retry_on_intr(|| rustix::io::pread(fd, &mut *block, 0)).map(drop))
}

/// Turns direct I/O on if a direct write works, and says what alignment it keeps to. The file must be
/// empty, and is left empty. With `None` it is left without the flag.
///
/// # Errors
/// `InvalidInput` for a file that holds bytes; else failures that an ordinary write would meet as well.
pub fn probe_write(fd: impl AsFd) -> io::Result<Option<Alignment>> {
    if stat::stat_fd(&fd)?.size != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "only an empty file is probed by a write"));
    }
    let outcome = probe(&fd, |fd, block| retry_on_intr(|| rustix::io::pwrite(fd, &*block, 0)).map(drop));
    sparse::set_len(&fd, 0)?;
    outcome
}

/// Reads from `offset`, which is aligned, until `buffer` is full or the file ends; returns the bytes read.
/// The length of `buffer` is aligned as well, and so is its address. Works without the flag, too.
///
/// # Errors
/// What pread(2) reports; `EINVAL` where the alignment is not kept.
pub fn read_at(fd: impl AsFd, offset: u64, buffer: &mut [u8], alignment: Alignment) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        let n = retry_on_intr(|| rustix::io::pread(&fd, &mut buffer[filled..], at))?;
        filled += n;
        // A transfer that stops within a block met the end of the file. Asking on from there would break
        // the alignment and fail.
        if n == 0 || n % alignment.offset as usize != 0 {
            break;
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `offset`, which is aligned: whole blocks directly, and the tail, which only the
/// end of the file may have, by [`write_tail`].
///
/// # Errors
/// What pwrite(2) reports; `EINVAL` where offset or address is not aligned.
pub fn write_all_at(fd: impl AsFd, offset: u64, bytes: &[u8], alignment: Alignment) -> io::Result<()> {
    let whole = alignment.whole_blocks(bytes.len() as u64) as usize;
    transfer::write_all_at(&fd, offset, &bytes[..whole])?;
    write_tail(fd, offset + whole as u64, &bytes[whole..])
}

/// Writes bytes that fill no block through the page cache, with direct I/O off meanwhile, and puts the flag
/// back. Exactly these bytes are written. Other threads may go on writing to the file: in that moment their
/// blocks pass through the cache as well, and none of them may write a tail at the same time.
///
/// # Errors
/// What pwrite(2) and fcntl(2) report.
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
    // Callers keep to pages; a device of larger blocks is read and written through the cache.
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
