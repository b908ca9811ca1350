//! Moving bytes between files and memory, and between files inside the kernel.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl;
use std::io;

/// Most bytes one copy_file_range(2) call is asked for: what the kernel caps a transfer at, page-aligned.
const COPY_CALL_BYTES: u64 = 0x7fff_f000;

/// How a copy inside the kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRange {
    /// Every byte asked for was copied.
    Whole,
    /// The source ended after `copied` bytes.
    SourceEnded {
        /// Bytes copied before the end.
        copied: u64,
    },
    /// The kernel cannot copy between these two (or stopped doing so): the bytes after the first `copied`
    /// are to be read and written instead.
    Unsupported {
        /// Bytes that were copied before the kernel gave up.
        copied: u64,
    },
}

/// Reads from `offset` until `buffer` is full or the file ends; returns the bytes read.
///
/// # Errors
/// What pread(2) reports. Bytes read before a failure are in the buffer, but their number is lost.
pub fn read_at(fd: impl AsFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        match retry_on_intr(|| rustix::io::pread(&fd, &mut buffer[filled..], at))? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// What pwrite(2) reports; `WriteZero` where the file takes nothing and says no reason.
pub fn write_all_at(fd: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match retry_on_intr(|| rustix::io::pwrite(&fd, &bytes[done..], at))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Reads a stream (a pipe, a terminal) until `buffer` is full or the stream ends; returns the bytes read.
///
/// # Errors
/// What read(2) reports.
pub fn read_stream(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match retry_on_intr(|| rustix::io::read(&fd, &mut buffer[filled..]))? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` to a stream.
///
/// # Errors
/// What write(2) reports; `WriteZero` where the stream takes nothing and says no reason.
pub fn write_stream(fd: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match retry_on_intr(|| rustix::io::write(&fd, &bytes[done..]))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Copies `len` bytes inside the kernel (copy_file_range(2)), which may share extents or copy on a server
/// instead. A return of 0 is believed only where a read also finds the end: /proc and some network file
/// systems return 0 for files that have bytes.
///
/// # Errors
/// Errors that reading and writing would meet as well (`EIO`, `ENOSPC`, `EDQUOT`, ...). The kernel does
/// not say which side failed; reading and writing the range again tells.
pub fn copy_range(
    src: impl AsFd,
    src_offset: u64,
    dst: impl AsFd,
    dst_offset: u64,
    len: u64,
) -> io::Result<CopyRange> {
    let mut copied = 0;
    while copied < len {
        let mut from = src_offset + copied;
        let mut to = dst_offset + copied;
        let ask = (len - copied).min(COPY_CALL_BYTES) as usize;
        match rustix::fs::copy_file_range(&src, Some(&mut from), &dst, Some(&mut to), ask) {
            Ok(0) => {
                let mut probe = [0_u8; 1];
                return Ok(match read_at(&src, src_offset + copied, &mut probe)? {
                    0 => CopyRange::SourceEnded { copied },
                    _ => CopyRange::Unsupported { copied },
                });
            }
            Ok(n) => copied += n as u64,
            Err(Errno::INTR) => {}
            Err(errno) if copying_is_unsupported(errno) => return Ok(CopyRange::Unsupported { copied }),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(CopyRange::Whole)
}

/// Makes `dst` share all extents of `src` (FICLONE). A clone proves nothing about new media.
///
/// # Errors
/// What ioctl(2) reports; [`clone_is_unsupported`] tells "cannot be done here" from a failure.
pub fn clone_file(src: impl AsFd, dst: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ioctl_ficlone(&dst, &src))?)
}

/// Makes a range of `dst` share the extents of a range of `src` (FICLONERANGE). Offsets and length are
/// multiples of the file system's block, except that a range may end where the source ends.
///
/// # Errors
/// As [`clone_file`]; `EINVAL` also for ranges that are not aligned.
pub fn clone_range(
    src: impl AsFd,
    src_offset: u64,
    dst: impl AsFd,
    dst_offset: u64,
    len: u64,
) -> io::Result<()> {
    let src = src.as_fd();
    if len == 0 {
        // To the kernel a length of 0 means "to the end".
        return Ok(());
    }
    let range = CloneRange { src_fd: i64::from(src.as_raw_fd()), src_offset, src_length: len, dst_offset };
    Ok(retry_on_intr(|| {
        // SAFETY: FICLONERANGE reads one `struct file_clone_range` and writes nothing. `CloneRange` has
        // that struct's layout (linux/fs.h: i64, u64, u64, u64), so the size encoded in the opcode is
        // right, and `src` is borrowed past the call.
        unsafe { ioctl::ioctl(&dst, ioctl::Setter::<{ FICLONERANGE }, CloneRange>::new(range)) }
    })?)
}

/// Whether an error of [`clone_file`] or [`clone_range`] says that these two files can share no extents,
/// so that copying is the way, rather than that something broke.
pub fn clone_is_unsupported(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else { return false };
    matches!(
        errno,
        Errno::NOSYS
            | Errno::NOTTY
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::BADF
            | Errno::XDEV
            | Errno::TXTBSY
            | Errno::PERM
            | Errno::ACCESS
    )
}

/// Errors that mean "not this way" and not "not at all". `EFBIG` and `EPERM` are in the list because some
/// kernels give them for files that an ordinary write then extends; if the limit is real, it says so again.
fn copying_is_unsupported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::XDEV
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::PERM
            | Errno::ACCESS
            | Errno::FBIG
            | Errno::OPNOTSUPP
            | Errno::BADF
            | Errno::TXTBSY
            | Errno::OVERFLOW
            | Errno::NOENT
            | Errno::ISDIR
    )
}

/// `struct file_clone_range` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct CloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dst_offset: u64,
}

/// `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: ioctl::Opcode = ioctl::opcode::write::<CloneRange>(0x94, 13);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_will_not_copy_is_read_and_written() {
        for errno in [Errno::XDEV, Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::FBIG, Errno::OPNOTSUPP] {
            assert!(copying_is_unsupported(errno), "{errno}");
        }
        for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::NOMEM] {
            assert!(!copying_is_unsupported(errno), "{errno} is met again by reading and writing");
        }
    }
}
