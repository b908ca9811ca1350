//! Transfers between files and memory, and between files inside the kernel.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl;
use std::io;

/// Maximum number of bytes per copy_file_range(2) call: the kernel's limit for a transfer,
/// page-aligned.
const COPY_CALL_BYTES: u64 = 0x7fff_f000;

/// Outcome of a copy inside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRange {
    /// All requested bytes were copied.
    Whole,
    /// The source ended after `copied` bytes.
    SourceEnded {
        /// Bytes copied before the end.
        copied: u64,
    },
    /// The kernel cannot copy between these two files (or stopped doing so). The bytes after the
    /// first `copied` must be read and written instead.
    Unsupported {
        /// Bytes copied before the kernel stopped.
        copied: u64,
    },
}

/// Reads from `offset` until `buffer` is full or the file ends. Returns the number of bytes read.
///
/// # Errors
///
/// Returns the errors of pread(2). Bytes read before the error are in the buffer, but their number
/// is lost.
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

/// Writes all of `bytes` at `offset`. The first bytes of a file without offsets, as many in /proc,
/// are written by write(2).
///
/// # Errors
///
/// Returns the errors of pwrite(2); `WriteZero` if the file accepts no bytes without an error.
pub fn write_all_at(fd: impl AsFd, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        let written = match retry_on_intr(|| rustix::io::pwrite(&fd, &bytes[done..], at)) {
            Err(Errno::SPIPE) if at == 0 => retry_on_intr(|| rustix::io::write(&fd, bytes)),
            written => written,
        };
        match written? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}

/// Reads a stream (a pipe, a terminal) until `buffer` is full or the stream ends. Returns the
/// number of bytes read.
///
/// # Errors
///
/// Returns the errors of read(2).
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
///
/// Returns the errors of write(2); `WriteZero` if the stream accepts no bytes without an error.
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

/// Copies `len` bytes inside the kernel (copy_file_range(2)), which may share extents or copy on a
/// server.
///
/// A result of 0 counts as the end of the file only if a read also finds the end. The reason is
/// that /proc and some network file systems return 0 for files that have bytes.
///
/// # Errors
///
/// Returns errors that reading and writing would also return (`EIO`, `ENOSPC`, `EDQUOT`, ...). The
/// kernel does not report which side failed; the caller can read and write the range again to find
/// out.
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
///
/// Returns the errors of ioctl(2); [`clone_is_unsupported`] distinguishes missing support from a
/// failure.
pub fn clone_file(src: impl AsFd, dst: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::ioctl_ficlone(&dst, &src))?)
}

/// Makes a range of `dst` share the extents of a range of `src` (FICLONERANGE).
///
/// Offsets and length must be multiples of the block size of the file system, except that a range
/// may end at the end of the source.
///
/// # Errors
///
/// Same as [`clone_file`]; also `EINVAL` for ranges that are not aligned.
pub fn clone_range(
    src: impl AsFd,
    src_offset: u64,
    dst: impl AsFd,
    dst_offset: u64,
    len: u64,
) -> io::Result<()> {
    let src = src.as_fd();
    if len == 0 {
        // The kernel interprets a length of 0 as "to the end".
        return Ok(());
    }
    let range = CloneRange { src_fd: i64::from(src.as_raw_fd()), src_offset, src_length: len, dst_offset };
    Ok(retry_on_intr(|| {
        // SAFETY: FICLONERANGE reads one `struct file_clone_range` and writes nothing. `CloneRange`
        // has the layout of that struct (linux/fs.h: i64, u64, u64, u64), so the size encoded in
        // the opcode is correct. `src` is borrowed for longer than the call.
        unsafe { ioctl::ioctl(&dst, ioctl::Setter::<{ FICLONERANGE }, CloneRange>::new(range)) }
    })?)
}

/// Returns true if an error of [`clone_file`] or [`clone_range`] means that these two files cannot
/// share extents. The caller can then copy the bytes. All other errors are failures.
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

/// Returns true if an error of [`clone_file`] or [`clone_range`] is due to the two file systems and
/// not to the two files. An attempt with other files is then useless.
///
/// `EINVAL`, `EPERM` and `ETXTBSY` are due to the files: a file without checksums on btrfs, an
/// immutable file, a swap file.
pub fn clone_never_works_between(error: &io::Error) -> bool {
    let Some(errno) = Errno::from_io_error(error) else { return false };
    matches!(errno, Errno::XDEV | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS)
}

/// Returns true for errors after which another copy method may succeed.
///
/// `EFBIG` and `EPERM` are in the list because some kernels return them for files that an ordinary
/// write can extend. If the limit is real, the write returns the error again.
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
    use std::fs::{self, File};

    /// Most files in /proc that can be written have no offsets: pwrite(2) fails with ESPIPE.
    #[test]
    fn first_bytes_of_a_file_without_offsets_are_written() {
        let path = "/proc/thread-self/comm";
        let file = File::options().write(true).open(path).unwrap();
        write_all_at(&file, 0, b"renamed").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"renamed\n");
        assert!(write_all_at(&file, 7, b"more").is_err(), "the bytes before are not known to be there");
    }

    /// Errors from the manual pages of copy_file_range(2) and ioctl_ficlone(2), each with three
    /// flags. They state that the kernel cannot copy between the two files, that the two files
    /// cannot share extents, and that no files of their two file systems can.
    const MEANINGS: [(Errno, bool, bool, bool); 20] = [
        (Errno::XDEV, true, true, true),
        (Errno::OPNOTSUPP, true, true, true),
        (Errno::NOSYS, true, true, true),
        (Errno::NOTTY, false, true, true),
        (Errno::INVAL, true, true, false),
        (Errno::PERM, true, true, false),
        (Errno::ACCESS, true, true, false),
        (Errno::TXTBSY, true, true, false),
        (Errno::BADF, true, true, false),
        (Errno::FBIG, true, false, false),
        (Errno::OVERFLOW, true, false, false),
        (Errno::NOENT, true, false, false),
        (Errno::ISDIR, true, false, false),
        (Errno::IO, false, false, false),
        (Errno::NOSPC, false, false, false),
        (Errno::DQUOT, false, false, false),
        (Errno::NOMEM, false, false, false),
        (Errno::STALE, false, false, false),
        (Errno::ROFS, false, false, false),
        (Errno::TIMEDOUT, false, false, false),
    ];

    #[test]
    fn each_errno_is_classified_as_documented() {
        for (errno, no_copy, no_clone, never) in MEANINGS {
            let error = io::Error::from(errno);
            assert_eq!(copying_is_unsupported(errno), no_copy, "{errno:?} of copy_file_range");
            assert_eq!(clone_is_unsupported(&error), no_clone, "{errno:?} of FICLONE");
            assert_eq!(clone_never_works_between(&error), never, "{errno:?} of FICLONE, permanently");
        }
        let other = io::Error::other("no number");
        assert!(!clone_is_unsupported(&other) && !clone_never_works_between(&other));
    }
}
