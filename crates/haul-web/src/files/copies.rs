//! Checks of a copy between two directories.

use super::{FileError, checked, failed};
use haul_storage::{Dir, FileKind, Follow, Name};
use std::io;

/// Action in messages.
const DOING: &str = "copy the entry";

/// Device and inode.
pub(crate) type Identity = (u64, u64);

/// Returns the name of an entry if it is allowed: one component, and not a reserved one.
pub(crate) fn name(name: &[u8]) -> Result<Name, FileError> {
    checked(name, DOING)?;
    if name.contains(&b'/') {
        return Err(FileError::Name(format!("cannot {DOING}: the name has a slash")));
    }
    Name::new(name).ok_or_else(|| failed(DOING)(io::ErrorKind::InvalidFilename.into()))
}

/// Checks that the entries `names` of a directory can be copied to the first directory of `target`,
/// which the others contain.
pub(super) fn check(dir: &dyn Dir, names: &[Name], target: &[Identity]) -> Result<(), FileError> {
    let own = dir.stat().map_err(failed("open the directory"))?.identity();
    if target.first() == Some(&own) {
        return Err(FileError::Kind("cannot copy entries to their own directory"));
    }
    for name in names {
        let facts = dir.stat_at(name, Follow::No).map_err(failed(DOING))?;
        if !matches!(facts.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
            return Err(FileError::Kind("cannot copy the entry: it is a device, a pipe or a socket"));
        }
        if facts.kind == FileKind::Directory && target.contains(&facts.identity()) {
            return Err(FileError::Kind("cannot copy a directory into itself"));
        }
    }
    Ok(())
}
