//! Descriptors that the engine gets as paths.
//!
//! The jobs of a verification and of a copy take paths. Another process can replace a directory on
//! such a path by a link before the job resolves it. So the server opens the directory or the
//! waybill, and the job gets the path of the descriptor, `/proc/self/fd/N`. A `Dir` has no
//! descriptor, and it does not lead to the directories above its root.

use super::copies::{Identity, check};
use super::opened::{OpenedFile, open_file};
use super::{FileError, OpenRoot, checked, directory, failed, split};
use haul_storage::{Follow, Name, Stat};
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::open_place_at;
use haul_sys::open::{create_in_memory, open_source_at};
use haul_sys::stat::stat_fd;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

/// Opens the directory `path`, only as a path; empty for the root.
pub(crate) fn open_directory(root: &OpenRoot, path: &[u8]) -> Result<OwnedFd, FileError> {
    place(root, path, "open the directory")
}

/// Opens the waybill `path`, a regular file. The bytes of a file that reports no certain length are
/// copied into memory.
pub(crate) fn open_waybill(root: &OpenRoot, path: &[u8]) -> Result<OwnedFd, FileError> {
    const DOING: &str = "open the file";
    let file = match open_file(&root.dir, path)? {
        OpenedFile::Stored { file, .. } => file,
        OpenedFile::Held(bytes) => return create_in_memory(&bytes).map_err(failed(DOING)),
    };
    let (above, name) = split(path);
    let place = place(root, above, DOING)?;
    let opened = open_source_at(&place, OsStr::from_bytes(name), Follow::No, false).map_err(failed(DOING))?;
    ensure_same(&opened, file.stat(), DOING)?;
    Ok(opened)
}

/// Returns the directory `path`, and all directories above it up to that of the host.
pub(crate) fn ancestors(root: &OpenRoot, path: &[u8]) -> Result<Vec<Identity>, FileError> {
    const DOING: &str = "open the directory for the copies";
    let mut place = place(root, path, DOING)?;
    let mut found = Vec::new();
    loop {
        let identity = stat_fd(&place).map_err(failed(DOING))?.identity();
        // The directory above that of the host is itself.
        if found.last() == Some(&identity) {
            return Ok(found);
        }
        found.push(identity);
        place = open_place_at(&place, "..", Follow::No).map_err(failed(DOING))?;
    }
}

/// Opens the directory `path`, only as a path, for a copy of the entries `names` to the first
/// directory of `target`, which the others contain.
pub(crate) fn open_for_copy(
    root: &OpenRoot,
    path: &[u8],
    names: &[Name],
    target: &[Identity],
) -> Result<OwnedFd, FileError> {
    const DOING: &str = "open the directory";
    if names.is_empty() {
        return Err(FileError::Name("the copy names no entry".to_owned()));
    }
    let dir = directory(&root.dir, path, DOING)?;
    check(&*dir, names, target)?;
    let place = place(root, path, DOING)?;
    ensure_same(&place, dir.stat(), DOING)?;
    Ok(place)
}

/// Opens the directory `path`, only as a path; empty for the root.
fn place(root: &OpenRoot, path: &[u8], doing: &'static str) -> Result<OwnedFd, FileError> {
    if !path.is_empty() {
        checked(path, doing)?;
    }
    open_place_beneath(&root.place, OsStr::from_bytes(path), Follow::No).map_err(failed(doing))
}

/// Checks that a descriptor is open on the inode whose metadata were read for the checks.
pub(super) fn ensure_same(
    opened: &OwnedFd,
    examined: io::Result<Stat>,
    doing: &'static str,
) -> Result<(), FileError> {
    let examined = examined.map_err(failed(doing))?;
    if stat_fd(opened).map_err(failed(doing))?.identity() == examined.identity() {
        return Ok(());
    }
    Err(FileError::Kind("another entry got this path meanwhile; try again"))
}
