//! Files for downloads.

use super::{Entry, FileError, entry, failed};
use haul_sys::filesystem::is_length_certain;
use haul_sys::open::{create_in_memory, open_entry_at, open_source_at};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::transfer::read_all;
use haul_sys::{Contents, FileKind, Follow, Stat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) facts: Stat,
    /// False on file systems that always report the present time as the change time.
    has_ctime: bool,
}

impl OpenedFile {
    /// Returns a tag of this version of the file, in quotes. A process can reset the modification
    /// time, but not the change time.
    pub(crate) fn tag(&self) -> String {
        let Stat { ino, size, mtime, ctime, .. } = self.facts;
        let tag = format!("{ino:x}-{size:x}-{:x}.{:x}", mtime.sec, mtime.nsec);
        if self.has_ctime {
            format!("\"{tag}-{:x}.{:x}\"", ctime.sec, ctime.nsec)
        } else {
            format!("\"{tag}\"")
        }
    }

    /// Checks that the file has not changed since it was opened.
    pub(crate) fn check(&self) -> io::Result<()> {
        match stat_fd(&self.file)?.contents_since(&self.facts) {
            Contents::Unchanged => Ok(()),
            Contents::Unknown if !self.has_ctime => Ok(()),
            Contents::Unknown | Contents::Changed => Err(io::Error::other("the file changed")),
        }
    }
}

/// Maximum number of bytes of a file that is read before it is sent.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Opens the regular file `path`. A file that reports no certain length is read to its end first.
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
    if is_length_certain(&opened, facts.size) {
        let again = stat_fd(&opened).map_err(failed(DOING))?;
        return Ok(OpenedFile { file: opened.into(), facts, has_ctime: again.ctime == facts.ctime });
    }
    // The response states the length, and the contents may be different at each read.
    let bytes = open_entry_at(&place, name.as_c_str())
        .and_then(|file| read_all(file, HELD_BYTES_MAX))
        .map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => FileError::Kind(
                "cannot open the file: its file system does not report its length, and it has more than 16 MiB",
            ),
            _ => failed("read the file")(error),
        })?;
    let held = create_in_memory(&bytes).map_err(failed(DOING))?;
    // Its own metadata make its tag: two reads are two versions.
    let facts = stat_fd(&held).map_err(failed(DOING))?;
    Ok(OpenedFile { file: held.into(), facts, has_ctime: true })
}
