//! Changes of the tree: new directories, renames and deletions.

use super::{Entry, FileError, entry, failed};
use crate::limits::DELETE_DEPTH_MAX;
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{RenameMode, mkdir_at, rename_at, rmdir_at, unlink_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

/// Names of a directory that are deleted at once.
const BATCH_LEN: usize = 256;

/// Creates the directory `path`. Its parent must exist.
pub(crate) fn create_folder(root: &OwnedFd, path: &[u8]) -> Result<(), FileError> {
    const DOING: &str = "create the directory";
    let Entry { place, name } = entry(root, path, DOING)?;
    mkdir_at(&place, name.as_c_str(), 0o777).map_err(failed(DOING))
}

/// Renames `from` to `to`. Without `replaces`, an existing entry at `to` is an error. If both are
/// names of one file, removes `from`, as `mv` does.
pub(crate) fn rename(root: &OwnedFd, from: &[u8], to: &[u8], replaces: bool) -> Result<(), FileError> {
    const DOING: &str = "rename the entry";
    let (from, to) = (entry(root, from, DOING)?, entry(root, to, DOING)?);
    let mode = if replaces { RenameMode::Replace } else { RenameMode::NoReplace };
    let renamed = rename_at(&from.place, from.name.as_c_str(), &to.place, to.name.as_c_str(), mode);
    renamed.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => FileError::Kind(
            "cannot rename the entry: the new directory is on another file system; copy the entry and delete it",
        ),
        Some(Errno::INVAL) => FileError::Kind(
            "cannot rename the entry: a directory cannot move into itself, or the file system cannot protect an existing entry; repeat with \"replace\"",
        ),
        _ => failed(DOING)(error),
    })?;
    // rename(2) does nothing for two names of one file.
    if are_names_of_one_file(&from, &to).map_err(failed(DOING))? {
        unlink_at(&from.place, from.name.as_c_str()).map_err(failed(DOING))?;
    }
    Ok(())
}

/// Returns true if both names exist, in different directories or as different entries of one, and
/// refer to the same file.
fn are_names_of_one_file(from: &Entry, to: &Entry) -> io::Result<bool> {
    let facts = |entry: &Entry| match stat_at(&entry.place, entry.name.as_c_str(), Follow::No) {
        Ok(facts) => Ok(Some(facts)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(source), Some(sink)) = (facts(from)?, facts(to)?) else { return Ok(false) };
    if source.identity() != sink.identity() || source.nlink < 2 {
        return Ok(false);
    }
    if stat_fd(&from.place)?.identity() != stat_fd(&to.place)?.identity() {
        return Ok(true);
    }
    // On a file system that ignores case, two spellings can be one entry.
    let mut reader = DirReader::new(open_dir_at(&from.place, c".", Follow::No)?);
    let (mut names, mut found, mut more) = (Vec::new(), 0, from.name != to.name);
    while more && found < 2 {
        more = reader.read_batch(BATCH_LEN, &mut names)?;
        found += names.drain(..).filter(|entry| entry.name == from.name || entry.name == to.name).count();
    }
    Ok(found == 2)
}

/// Deletes the entry `path`. A directory that is not empty needs `recursive`.
pub(crate) fn delete(root: &OwnedFd, path: &[u8], recursive: bool) -> Result<(), FileError> {
    const DOING: &str = "delete the entry";
    let Entry { place, name } = entry(root, path, DOING)?;
    let facts = stat_at(&place, name.as_c_str(), Follow::No).map_err(failed(DOING))?;
    if facts.kind != FileKind::Directory {
        return unlink_at(&place, name.as_c_str()).map_err(failed(DOING));
    }
    if recursive {
        empty(&place, &name)?;
    }
    rmdir_at(&place, name.as_c_str()).map_err(failed(DOING))
}

/// A directory that is being emptied.
struct Level {
    reader: DirReader,
    /// Name in the directory above.
    name: CString,
    /// Entries that were read and not deleted yet.
    batch: Vec<CString>,
}

/// Deletes everything in the directory `name`. Follows no link, and resolves each name in the
/// directory that was opened.
fn empty(place: &OwnedFd, name: &CStr) -> Result<(), FileError> {
    const DOING: &str = "delete the directory";
    let enter = |place: &OwnedFd, name: &CStr| {
        let opened = open_dir_at(place, name, Follow::No).map_err(failed(DOING))?;
        Ok(Level { reader: DirReader::new(opened), name: name.to_owned(), batch: Vec::new() })
    };
    let mut levels = vec![enter(place, name)?];
    while let Some(level) = levels.last_mut() {
        let Some(next) = level.batch.pop() else {
            let mut entries = Vec::new();
            level.reader.read_batch(BATCH_LEN, &mut entries).map_err(failed(DOING))?;
            if !entries.is_empty() {
                level.batch.extend(entries.into_iter().map(|entry| entry.name));
                continue;
            }
            let done = levels.pop().map(|level| level.name);
            if let (Some(above), Some(name)) = (levels.last(), done) {
                rmdir_at(above.reader.fd(), name.as_c_str()).map_err(failed(DOING))?;
            }
            continue;
        };
        match unlink_at(level.reader.fd(), next.as_c_str()) {
            Ok(()) => {}
            Err(error) if is_directory(level.reader.fd(), &next, &error) => {
                let deeper = enter(level.reader.fd(), &next)?;
                if levels.len() >= DELETE_DEPTH_MAX {
                    return Err(FileError::Kind(
                        "cannot delete the directory: it is deeper than 256 levels; delete an inner directory first",
                    ));
                }
                levels.push(deeper);
            }
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(DOING)(error)),
        }
    }
    Ok(())
}

/// Returns true if unlinkat(2) failed because `name` belongs to a directory: with `EISDIR` on
/// Linux, with `EPERM` by POSIX and on some file systems.
fn is_directory(place: &OwnedFd, name: &CStr, error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ISDIR | Errno::PERM))
        && stat_at(place, name, Follow::No).is_ok_and(|facts| facts.kind == FileKind::Directory)
}
