//! Reads that ask the device: a range is brought there and dropped from the page cache, and the kernel is asked whether it went.

use haul_model::ByteRange;
use haul_sys::cache::{self, Advice, FOLIO_BYTES_MAX};
use haul_sys::filesystem::{self, Medium};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often the page cache is asked to let go of a range. The first may meet pages that wait in a batch of the kernel's;
/// later ones are widened to whole folios.
const DROPS_MAX: u32 = 3;

/// How often it is asked again after that, a little later each time: another worker may just write to a page or a folio that
/// holds a part of this range as well. About 50 ms in all.
const PATIENT_DROPS_MAX: u32 = 9;

/// Where a read got its bytes from, as the page cache told before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPath {
    /// No page of the range was in memory.
    Device,
    /// Some may have been, and why.
    Cache(&'static str),
}

/// How long the page cache is asked to let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as others may write nearby.
    Some,
    /// A few times: this file has shown that waiting is no use.
    None,
}

/// Brings a range of a file to the device and out of the page cache; says where a read gets it from now.
///
/// # Errors
/// The device does not take it.
pub(crate) fn clear(file: impl AsFd, range: ByteRange, patience: Patience) -> io::Result<ReadPath> {
    let file = file.as_fd();
    let drop_once = |range| {
        cache::wait_writeback(file, range)?;
        // What stays is seen by whoever asks what the cache holds.
        let _ = cache::advise(file, range, Advice::DontNeed);
        Ok::<(), io::Error>(())
    };
    match filesystem::medium(file) {
        Medium::Storage => {}
        Medium::Memory => return Ok(ReadPath::Cache("its file system lives in memory")),
        Medium::FileBelow => {
            drop_once(widened(range, cache::page_bytes()))?;
            return Ok(ReadPath::Cache("overlayfs does not tell what the page cache holds"));
        }
    }
    let patient = if patience == Patience::Some { PATIENT_DROPS_MAX } else { 0 };
    for attempt in 0..DROPS_MAX + patient {
        if let Some(late) = attempt.checked_sub(DROPS_MAX - 1) {
            std::thread::sleep(Duration::from_millis(u64::from(late)));
        }
        let border = if attempt == 0 { cache::page_bytes() } else { FOLIO_BYTES_MAX };
        drop_once(widened(range, border))?;
        match cache::residency(file, range) {
            Ok(Some(found)) if found.cached == 0 => return Ok(ReadPath::Device),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                return Ok(ReadPath::Cache("the kernel does not tell what the page cache holds"));
            }
        }
    }
    Ok(ReadPath::Cache("the page cache does not let go of it: another process may have it mapped"))
}

/// A range out to the next borders, as far as offsets go.
pub(crate) fn widened(range: ByteRange, border: u64) -> ByteRange {
    let start = range.start.0 / border * border;
    ByteRange::between(start, range.end.0.checked_next_multiple_of(border).unwrap_or(range.end.0))
}
