//! Reads that reach the device. A range is written back and dropped from the page cache, and the
//! kernel reports whether its pages are gone.

use haul_model::ByteRange;
use haul_sys::cache::{self, Advice, FOLIO_BYTES_MAX};
use haul_sys::filesystem::{self, Backing};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Maximum number of attempts to drop a range from the page cache. The first may find pages in one
/// of the kernel's batches; later attempts are widened to complete folios.
const DROPS_MAX: u32 = 3;

/// Maximum number of further attempts, each with a longer delay. Another worker may be writing to a
/// page or a folio that also holds a part of this range. The delays add up to about 50 ms.
const PATIENT_DROPS_MAX: u32 = 9;

/// Source of the bytes of a read, as reported for the page cache before the read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPath {
    /// No page of the range was in memory.
    Device,
    /// Some pages may have been in memory, for this reason.
    Cache(&'static str),
}

/// Persistence in dropping pages from the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropRetries {
    /// Retries for as long as other workers may write nearby.
    Some,
    /// A few attempts only, because waiting did not help for this file before.
    None,
}

/// Writes a range of a file back to the device and drops it from the page cache. Returns the path
/// that a read takes now.
///
/// # Errors
/// Returns an error if the device could not store the range.
pub(crate) fn clear(file: impl AsFd, range: ByteRange, retries: DropRetries) -> io::Result<ReadPath> {
    let file = file.as_fd();
    let drop_once = |range| {
        cache::wait_writeback(file, range)?;
        // The residency check below detects pages that stay.
        let _ = cache::advise(file, range, Advice::DontNeed);
        Ok::<(), io::Error>(())
    };
    match filesystem::backing(file) {
        Backing::Storage => {}
        Backing::Memory => return Ok(ReadPath::Cache("the file system is in memory")),
        Backing::FileBelow => {
            drop_once(widened(range, cache::page_bytes()))?;
            return Ok(ReadPath::Cache("overlayfs does not report cached pages"));
        }
    }
    let patient = if retries == DropRetries::Some { PATIENT_DROPS_MAX } else { 0 };
    for attempt in 0..DROPS_MAX + patient {
        if let Some(late) = attempt.checked_sub(DROPS_MAX - 1) {
            std::thread::sleep(Duration::from_millis(u64::from(late)));
        }
        let boundary = if attempt == 0 { cache::page_bytes() } else { FOLIO_BYTES_MAX };
        drop_once(widened(range, boundary))?;
        match cache::residency(file, range) {
            Ok(Some(found)) if found.cached == 0 => return Ok(ReadPath::Device),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                return Ok(ReadPath::Cache("the kernel does not report cached pages"));
            }
        }
    }
    Ok(ReadPath::Cache("the kernel does not drop cached pages; another process may have the file mapped"))
}

/// Widens a range to the next multiples of `boundary`, as far as offsets allow.
pub(crate) fn widened(range: ByteRange, boundary: u64) -> ByteRange {
    let start = range.start.0 / boundary * boundary;
    ByteRange::between(start, range.end.0.checked_next_multiple_of(boundary).unwrap_or(range.end.0))
}
