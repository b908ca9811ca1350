//! Mark of a job of which a sync failed.
//!
//! After a failed write the kernel keeps the bytes in clean pages and reports the error once. A
//! later run that compares a file with its source would then find equal bytes that the device
//! lacks. The mark makes it copy such a file instead. After a reboot the pages are gone, so the
//! mark itself needs no sync.

use super::{LogError, folder};
use std::fs;
use std::io;
use std::path::Path;

/// Name of the file in the directory of a job. Its contents have no meaning.
const NAME: &str = "unsynced";

/// Returns true if a sync failed in a run of the job that is not finished.
///
/// # Errors
/// Returns [`LogError::Io`] if the directory of the job cannot be searched.
pub(crate) fn is_marked(home: &Path) -> Result<bool, LogError> {
    let path = home.join(NAME);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map(|_| true).map_err(LogError::io("check", &path)),
    }
}

/// Records that a sync failed.
///
/// # Errors
/// Returns [`LogError::Io`] if the mark cannot be created. The next run may then count files as
/// finished that a power failure destroys.
pub(crate) fn mark(home: &Path) -> Result<(), LogError> {
    let path = home.join(NAME);
    let made = folder::options().write(true).create(true).truncate(false).open(&path);
    made.map(drop).map_err(LogError::io("write", &path))
}

/// Removes the mark of a finished job.
///
/// # Errors
/// Returns [`LogError::Io`] if the mark remains. The next run then copies more files than needed.
pub(crate) fn clear(home: &Path) -> Result<(), LogError> {
    let path = home.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(LogError::io("remove", &path)),
    }
}
