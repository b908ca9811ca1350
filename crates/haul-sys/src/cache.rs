//! The page cache: advice to it, pushing it to the device, and asking what it holds.

use haul_model::ByteRange;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::{Errno, retry_on_intr};
use std::io;
use std::num::NonZeroU64;

pub use rustix::fs::Advice;

/// Largest piece, in bytes, that the page cache keeps a file in (a folio, aligned to its size) with pages
/// of 4 KiB. Since ext4 and XFS keep large folios, dropping part of one drops nothing (seen on Linux 6.18:
/// 64 KiB out of a file written by one call stayed).
pub const FOLIO_BYTES_MAX: u64 = 2 << 20;

/// What of a range the page cache holds, in pages of [`page_bytes`] bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages in memory.
    pub cached: u64,
    /// Pages in memory whose bytes the device does not have yet.
    pub dirty: u64,
    /// Pages on their way to the device.
    pub writeback: u64,
    /// Pages that were in memory and were dropped.
    pub evicted: u64,
    /// Pages dropped so lately that dropping them shows the memory to be short.
    pub recently_evicted: u64,
}

/// Tells the kernel how a range will be used. An empty range is advice about nothing.
///
/// # Errors
/// What posix_fadvise(2) reports; `ESPIPE` for pipes.
pub fn advise(fd: impl AsFd, range: ByteRange, advice: Advice) -> io::Result<()> {
    let Some(len) = NonZeroU64::new(range.len()) else { return Ok(()) };
    Ok(retry_on_intr(|| rustix::fs::fadvise(&fd, range.start.0, Some(len), advice))?)
}

/// Tells the kernel how the whole file will be used.
///
/// # Errors
/// As [`advise`].
pub fn advise_all(fd: impl AsFd, advice: Advice) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fadvise(&fd, 0, None, advice))?)
}

/// Starts writing the dirty pages of a range to the device and does not wait. Says nothing about
/// durability: the device's own cache and the file's metadata are untouched.
///
/// # Errors
/// What sync_file_range(2) reports.
pub fn start_writeback(fd: impl AsFd, range: ByteRange) -> io::Result<()> {
    sync_file_range(fd, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages of a range and waits until all have been handed to the device. Not durable, as
/// [`start_writeback`].
///
/// # Errors
/// What sync_file_range(2) reports, write errors of the device (`EIO`, `ENOSPC`) among them.
pub fn wait_writeback(fd: impl AsFd, range: ByteRange) -> io::Result<()> {
    let all =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(fd, range, all)
}

/// Reports what of a file could not be written to the device, once to each open file since Linux 4.14. Waits for one page of it at most, and syncs
/// nothing: for who has synced it by other means.
///
/// # Errors
/// What sync_file_range(2) reports.
pub fn check_writeback(fd: impl AsFd) -> io::Result<()> {
    sync_file_range(fd, ByteRange::between(0, 1), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

/// Makes a file's bytes durable, with what metadata is needed to find them again (fdatasync(2)).
///
/// # Errors
/// What fdatasync(2) reports. After an error the pages may count as clean: trying again proves nothing.
pub fn sync_data(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fdatasync(&fd))?)
}

/// Makes a file's bytes and all its metadata durable (fsync(2)); of a directory, its names.
///
/// # Errors
/// As [`sync_data`].
pub fn sync_all(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fsync(&fd))?)
}

/// Makes all that is written to a file system durable, files and names alike (syncfs(2)).
///
/// # Errors
/// What syncfs(2) reports: since Linux 5.8 also what was lost in writing back since `fd` was opened. Whoever opens `fd`
/// after the writing learns of losses that nobody was told of before.
pub fn sync_filesystem(fd: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::syncfs(&fd))?)
}

/// Makes the file durable and drops a range of it from the page cache, so that the next read of the range
/// asks the device. The range is widened to whole folios of [`FOLIO_BYTES_MAX`]: the kernel keeps a folio
/// that is asked for in part. What another process has mapped or is using stays; [`residency`] tells.
///
/// # Errors
/// As [`sync_data`] and [`advise`].
pub fn drop_range(fd: impl AsFd, range: ByteRange) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    sync_data(&fd)?;
    let start = range.start.0 / FOLIO_BYTES_MAX * FOLIO_BYTES_MAX;
    let end = range.end.0.checked_next_multiple_of(FOLIO_BYTES_MAX).unwrap_or(range.end.0);
    advise(fd, ByteRange::between(start, end), Advice::DontNeed)
}

/// What of a range the page cache holds (cachestat(2), Linux 6.5); `None` where the kernel or the file
/// system cannot say, or does not let this user know.
///
/// # Errors
/// What cachestat(2) reports beyond that.
pub fn residency(fd: impl AsFd, range: ByteRange) -> io::Result<Option<Residency>> {
    if range.is_empty() {
        // To the kernel a length of 0 means "to the end".
        return Ok(Some(Residency::default()));
    }
    let asked = CachestatRange { off: range.start.0, len: range.len() };
    let mut found = Residency::default();
    let mut raw = Cachestat::default();
    // SAFETY: cachestat(fd, *const range, *mut stat, flags) reads one `struct cachestat_range` and writes
    // one `struct cachestat`; both types below have those layouts (linux/mman.h) and outlive the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, fd.as_fd().as_raw_fd(), &raw const asked, &raw mut raw, 0_u32)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match Errno::from_io_error(&error) {
            // Sandboxes answer EPERM for calls they do not know.
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

/// Bytes in a page of memory.
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
        // SAFETY: the call takes integers only and touches no memory of this process.
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

/// Number of cachestat(2), the same on every architecture but alpha.
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
