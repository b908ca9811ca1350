//! Checks of a copy between two directories.

use super::{FileError, check_length, directory, failed};
use haul_proto::check_received;
use haul_sys::dir::open_place_at;
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow};
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// Action in messages.
const DOING: &str = "copy the entry";

/// Device and inode.
type Identity = (u64, u64);

/// Returns the name of an entry if it is allowed: one component, and not a reserved one.
pub(crate) fn name(name: &[u8]) -> Result<CString, FileError> {
    let refused = |why: &dyn std::fmt::Display| FileError::Name(format!("cannot {DOING}: {why}"));
    check_length(name)?;
    check_received(name).map_err(|fault| refused(&fault))?;
    if name.contains(&b'/') {
        return Err(refused(&"the name has a slash"));
    }
    CString::new(name).map_err(|_| refused(&"the name has a NUL"))
}

/// Returns the directory `path`, and all directories above it up to that of the host.
pub(crate) fn ancestors(root: &OwnedFd, path: &[u8]) -> Result<Vec<Identity>, FileError> {
    let failed = failed("open the directory for the copies");
    let mut place = directory(root, path, "open the directory for the copies")?;
    let mut found = Vec::new();
    loop {
        let identity = stat_fd(&place).map_err(&failed)?.identity();
        // The directory above that of the host is itself.
        if found.last() == Some(&identity) {
            return Ok(found);
        }
        found.push(identity);
        place = open_place_at(&place, "..", Follow::No).map_err(&failed)?;
    }
}

/// Opens the directory `path`, only as a path, for a copy of the entries `names` to the first
/// directory of `target`, which the others contain.
pub(crate) fn open_for_copy(
    root: &OwnedFd,
    path: &[u8],
    names: &[CString],
    target: &[Identity],
) -> Result<OwnedFd, FileError> {
    if names.is_empty() {
        return Err(FileError::Name("the copy names no entry".to_owned()));
    }
    let place = directory(root, path, "open the directory")?;
    let own = stat_fd(&place).map_err(failed("open the directory"))?.identity();
    if target.first() == Some(&own) {
        return Err(FileError::Kind("cannot copy entries to their own directory"));
    }
    for name in names {
        let facts = stat_at(&place, name.as_c_str(), Follow::No).map_err(failed(DOING))?;
        if !matches!(facts.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
            return Err(FileError::Kind("cannot copy the entry: it is a device, a pipe or a socket"));
        }
        if facts.kind == FileKind::Directory && target.contains(&facts.identity()) {
            return Err(FileError::Kind("cannot copy a directory into itself"));
        }
    }
    Ok(place)
}
