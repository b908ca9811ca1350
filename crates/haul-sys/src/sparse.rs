//! Holes: finding them, making them, and keeping space from the start.

use haul_model::{ByteOffset, ByteRange};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use std::io;

/// Whether the file system did what it was asked, or has no such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It was done.
    Done,
    /// The file system cannot; the file is unchanged.
    Unsupported,
}

/// The next range of data within the `len` bytes after `from`, or `None` where only a hole (or the end of
/// the file) remains. A file system that keeps no map says that all is data. Moves the descriptor's own
/// position, which positioned reads do not use.
///
/// # Errors
/// What lseek(2) reports.
pub fn next_data(fd: impl AsFd, from: u64, len: u64) -> io::Result<Option<ByteRange>> {
    let end = from.saturating_add(len);
    if from >= end {
        return Ok(None);
    }
    let start = match retry_on_intr(|| rustix::fs::seek(&fd, SeekFrom::Data(from))) {
        // Some network file systems have answered with a place before the question.
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
        // The file shrank between the two questions: the read will find the end.
        Err(Errno::NXIO) => end,
        Err(errno) if seeking_is_unsupported(errno) => end,
        Err(errno) => return Err(errno.into()),
    };
    // A map that changes meanwhile may say that the data ends where it begins; then no end is known.
    let stop = if hole > start { hole.min(end) } else { end };
    Ok(Some(ByteRange::between(start, stop)))
}

/// The ranges of data within a range of a file, in order.
#[derive(Debug)]
pub struct DataRanges<Fd> {
    fd: Fd,
    rest: ByteRange,
}

impl<Fd: AsFd> DataRanges<Fd> {
    /// Walks the data of `range`.
    pub fn new(fd: Fd, range: ByteRange) -> DataRanges<Fd> {
        DataRanges { fd, rest: range }
    }
}

impl<Fd: AsFd> Iterator for DataRanges<Fd> {
    type Item = io::Result<ByteRange>;

    fn next(&mut self) -> Option<io::Result<ByteRange>> {
        match next_data(&self.fd, self.rest.start.0, self.rest.len()) {
            Ok(Some(data)) => {
                self.rest.start = data.end;
                Some(Ok(data))
            }
            Ok(None) => {
                self.rest.start = self.rest.end;
                None
            }
            Err(error) => {
                // Asking again would fail again: the walk is over.
                self.rest.start = self.rest.end;
                Some(Err(error))
            }
        }
    }
}

/// Gives the space of a range back; it then reads as zeros. The file's length stays.
///
/// # Errors
/// What fallocate(2) reports, `EOPNOTSUPP` told apart.
pub fn punch_hole(fd: impl AsFd, range: ByteRange) -> io::Result<Support> {
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range)
}

/// Takes the space of a range now, so that writing it cannot run out. `keep_len` leaves the file's length
/// as it is, so that a file cut off is not left looking complete.
///
/// # Errors
/// What fallocate(2) reports (`ENOSPC`, `EFBIG`, ...), `EOPNOTSUPP` told apart.
pub fn allocate(fd: impl AsFd, range: ByteRange, keep_len: bool) -> io::Result<Support> {
    fallocate(fd, if keep_len { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() }, range)
}

/// Cuts or extends a file to `len` bytes; new bytes are a hole.
///
/// # Errors
/// What ftruncate(2) reports.
pub fn set_len(fd: impl AsFd, len: u64) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ftruncate(&fd, len))?)
}

/// Whether every byte is zero. Looks at the first bytes before the rest: data seldom begins with zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    /// Bytes folded into one word before it is looked at: four 512-bit registers, two pages' worth of
    /// branches saved.
    const FOLD: usize = 256;
    let mut chunks = bytes.chunks_exact(FOLD);
    let whole = chunks.all(|chunk| {
        let mut any = [0_u64; 8];
        for lane in chunk.chunks_exact(64) {
            for (any, word) in any.iter_mut().zip(lane.chunks_exact(8)) {
                *any |= u64::from_ne_bytes(word.try_into().expect("chunks_exact gives eight bytes"));
            }
        }
        any.iter().fold(0, |a, b| a | b) == 0
    });
    whole && bytes[bytes.len() - bytes.len() % FOLD..].iter().all(|&byte| byte == 0)
}

fn fallocate(fd: impl AsFd, flags: FallocateFlags, range: ByteRange) -> io::Result<Support> {
    if range.is_empty() {
        // The kernel calls a length of 0 a mistake; here it is nothing to do.
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
