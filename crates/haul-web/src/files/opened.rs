//! Files for downloads.

use super::{Entry, FileError, entry, failed};
use haul_sys::open::open_source_at;
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{FileKind, Follow, Stat};
use std::fs::File;
use std::os::fd::OwnedFd;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) facts: Stat,
}

/// Opens the regular file `path`.
pub(crate) fn open_file(root: &OwnedFd, path: &[u8]) -> Result<OpenedFile, FileError> {
    const DOING: &str = "open the file";
    let Entry { place, name } = entry(root, path, DOING)?;
    // Opening a device can have effects.
    let before = stat_at(&place, name.as_c_str(), Follow::No).map_err(failed(DOING))?;
    if before.kind != FileKind::Regular {
        return Err(FileError::Kind("cannot open the file: it is not a regular file"));
    }
    let opened = open_source_at(&place, name.as_c_str(), Follow::No, false).map_err(failed(DOING))?;
    let facts = stat_fd(&opened).map_err(failed(DOING))?;
    if facts.kind != FileKind::Regular {
        return Err(FileError::Kind("cannot open the file: it is not a regular file"));
    }
    Ok(OpenedFile { file: opened.into(), facts })
}
