//! The page cache: advice, write-back and residency.

use haul_model::ByteRange;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::num::NonZeroU64;

pub use rustix::fs::Advice;

/// Size, in bytes, of the largest unit in which the page cache keeps a file with pages of 4 KiB: a
/// folio, aligned to its size.
///
/// Since ext4 and XFS use large folios, dropping a part of one drops nothing. (Seen on Linux 6.18:
/// 64 KiB of a file written by one call stayed.)
pub const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// State of a range in the page cache, in pages of [`page_bytes`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in memory.
    pub cached: u64,
    /// Pages in memory that are not written to the device yet.
    pub dirty: u64,
    /// Pages in write-back.
    pub writeback: u64,
    /// Pages that were in memory and were evicted.
    pub evicted: u64,
    /// Pages evicted so recently that their eviction indicates memory pressure.
    pub recently_evicted: u64,
}

/// Advises the kernel on the use of a range. An empty range has no effect.
///
/// # Errors
///
/// Returns the errors of posix_fadvise(2); `ESPIPE` for pipes.
pub fn advise(fd: impl AsFd, range: ByteRange, advice: Advice) -> io::Result<()> {
    let Some(len) = NonZeroU64::new(range.len()) else { return Ok(()) };
    Ok(retry_on_intr(|| rustix::fs::fadvise(&fd, range.start.0, Some(len), advice))?)
}

/// Advises the kernel on the use of the complete file.
///
/// # Errors
///
/// Same as [`advise`].
pub fn advise_all(fd: impl AsFd, advice: Advice) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fadvise(&fd, 0, None, advice))?)
}

/// Starts write-back of the dirty pages of a range and does not wait.
///
/// This does not make the bytes durable: it flushes neither the device's own cache nor the metadata
/// of the file.
///
/// # Errors
///
/// Returns the errors of sync_file_range(2).
pub fn start_writeback(fd: impl AsFd, range: ByteRange) -> io::Result<()> {
    sync_file_range(fd, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages of a range and waits until the device has received all of them. Like
/// [`start_writeback`], this does not make the bytes durable.
///
/// # Errors
///
/// Returns the errors of sync_file_range(2), including write errors of the device (`EIO`,
/// `ENOSPC`).
pub fn wait_writeback(fd: impl AsFd, range: ByteRange) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(fd, range, all)
}

/// Reports a write-back error of a file, once per open file since Linux 4.14.
///
/// Waits for at most one page of the file, and syncs nothing: the caller has synced the file by
/// other means.
///
/// # Errors
///
/// Returns the errors of sync_file_range(2).
pub fn check_writeback(fd: impl AsFd) -> io::Result<()> {
    sync_file_range(fd, ByteRange::between(0, 1), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Makes the bytes of a file durable, and the metadata needed to find them (fdatasync(2)).
///
/// # Errors
///
/// Returns the errors of fdatasync(2). After an error the kernel may treat the pages as clean, so a
/// successful retry proves nothing.
pub fn sync_data(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(&fd))?)
}

/// Makes the bytes and all metadata of a file durable (fsync(2)); for a directory, its names.
///
/// # Errors
///
/// Same as [`sync_data`].
pub fn sync_all(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(&fd))?)
}

/// Makes everything written to a file system durable, both files and names (syncfs(2)).
///
/// # Errors
///
/// Returns the errors of syncfs(2). Since Linux 5.8 they include write-back errors since `fd` was
/// opened. If `fd` is opened after the writes, earlier errors that no caller has observed are
/// reported too.
pub fn sync_filesystem(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::syncfs(&fd))?)
}

/// Returns the state of a range in the page cache (cachestat(2), Linux 6.5). Returns `None` if the
/// kernel or the file system does not support the call, or denies it to this user.
///
/// # Errors
///
/// Returns the other errors of cachestat(2).
pub fn residency(fd: impl AsFd, range: ByteRange) -> io::Result<Option<Residency>> {
    if range.is_empty() {
        // The kernel interprets a length of 0 as "to the end".
        return Ok(Some(Residency::default()));
    }
    let asked = CachestatRange { off: range.start.0, len: range.len() };
    let mut found = Residency::default();
    let mut raw = Cachestat::default();
    // SAFETY: cachestat(fd, *const range, *mut stat, flags) reads one `struct cachestat_range` and
    // writes one `struct cachestat`; both types below have those layouts (linux/mman.h) and outlive
    // the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), &raw const asked, &raw mut raw, 0_u32)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match Errno::from_io_error(&error) {
            // Sandboxes return EPERM for system calls that they do not know.
            Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(None),
            _ => Err(error),
        };
    }
    found.cached = raw.cache;
    found.dirty = raw.dirty;
    found.writeback = raw.writeback;
    found.evicted = raw.evicted;
    found.recently_evicted = raw.recently_evicted;
    Ok(Some(found))
}

/// Returns true if the last page of a range is in memory. The first page is unsuitable for this
/// check, because the kernel's read-ahead for the bytes before the range may have loaded it.
pub fn ends_in_memory(fd: impl AsFd, range: ByteRange) -> bool {
    let last = ByteRange::between(range.start.0.max(range.end.0.saturating_sub(1)), range.end.0);
    matches!(residency(fd, last), Ok(Some(found)) if found.cached > 0)
}

/// Returns the size of a memory page in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn sync_file_range(fd: impl AsFd, range: ByteRange, flags: libc::c_uint) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let out_of_range = |_| io::Error::from(Errno::FBIG);
    let offset = libc::off64_t::try_from(range.start.0).map_err(out_of_range)?;
    let len = libc::off64_t::try_from(range.len()).map_err(out_of_range)?;
    loop {
        // SAFETY: the call takes only integers and accesses no memory of this process.
        let result = unsafe { libc::sync_file_range(fd.as_fd().as_raw_fd(), offset, len, flags) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// System call number of cachestat(2), the same on every architecture except alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of linux/mman.h.
#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// `struct cachestat` of linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}
