//! Number of files that a job may have open.

use haul_model::limits::{self, OPEN_DIRECTORIES_MAX};
use haul_sys::process;

/// Returns the number of files that the process may still open. If the limit is high, inherited
/// descriptors are not counted.
pub fn files_left() -> u64 {
    let limit = process::open_file_limit();
    let plenty = 4 * OPEN_DIRECTORIES_MAX as u64;
    let inherited = if limit < plenty { process::open_files().unwrap_or(0) } else { 0 };
    limit.saturating_sub(inherited)
}

/// Returns `asked`, or the number of workers that half of these descriptors suffice for, if that is
/// smaller; at least 1.
pub fn workers_within(asked: usize, open_files: u64) -> usize {
    let for_workers = open_files.saturating_sub(limits::OPEN_FILES_RESERVED) / 2;
    let most = usize::try_from(for_workers / limits::OPEN_FILES_PER_WORKER).unwrap_or(usize::MAX);
    asked.min(most.max(1))
}
