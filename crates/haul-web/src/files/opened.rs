//! Files for downloads.

use super::{Entry, FileError, entry, failed};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use haul_storage::{Change, Dir, FileKind, Follow, SourceFile, Stat, Version};
use std::io;
use std::sync::Arc;

/// Maximum number of bytes of a file that is read before it is sent.
const HELD_BYTES_MAX: usize = 16 << 20;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) enum OpenedFile {
    /// A file whose length is certain.
    Stored {
        /// The file.
        file: Arc<dyn SourceFile>,
        /// False on file systems that always report the present time as the change time.
        has_ctime: bool,
    },
    /// All bytes of a file that reports no certain length. The response states the length, and the
    /// contents may be different at each read.
    Held(Vec<u8>),
}

impl OpenedFile {
    /// Returns the number of bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            OpenedFile::Stored { file, .. } => file.opened().size,
            OpenedFile::Held(bytes) => bytes.len() as u64,
        }
    }

    /// Returns a tag of this version of the file, in quotes. A process can reset the modification
    /// time, but not the change time.
    pub(crate) fn tag(&self) -> String {
        let (file, has_ctime) = match self {
            OpenedFile::Stored { file, has_ctime } => (file, *has_ctime),
            // The metadata say nothing about contents that are computed.
            OpenedFile::Held(bytes) => {
                return format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest(&SHA256, bytes)));
            }
        };
        let Stat { ino, size, mtime, ctime, .. } = *file.opened();
        let tag = format!("{ino:x}-{size:x}-{:x}.{:x}", mtime.sec, mtime.nsec);
        if has_ctime { format!("\"{tag}-{:x}.{:x}\"", ctime.sec, ctime.nsec) } else { format!("\"{tag}\"") }
    }

    /// Fills `into` with the bytes from offset `at`.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::UnexpectedEof`] if the file ends before, and the errors of
    /// [`SourceFile::read_at`].
    pub(crate) fn read_exact_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let read = match self {
            OpenedFile::Stored { file, .. } => file.read_at(at, into)?,
            OpenedFile::Held(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                let len = rest.len().min(into.len());
                into[..len].copy_from_slice(&rest[..len]);
                len
            }
        };
        if read == into.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Checks that the file has not changed since it was opened.
    pub(crate) fn check(&self) -> io::Result<()> {
        let OpenedFile::Stored { file, has_ctime } = self else { return Ok(()) };
        match file.changed_since(&Version::of(file.opened()))? {
            None => Ok(()),
            Some(Change::Unknown) if !has_ctime => Ok(()),
            Some(_) => Err(io::Error::other("the file changed")),
        }
    }
}

/// Opens the regular file `path`. A file that reports no certain length is read to its end first.
pub(crate) fn open_file(root: &Arc<dyn Dir>, path: &[u8]) -> Result<OpenedFile, FileError> {
    const DOING: &str = "open the file";
    const OTHER_KIND: FileError = FileError::Kind("cannot open the file: it is not a regular file");
    let Entry { dir, name } = entry(root, path, DOING)?;
    // Opening a device can have effects.
    let before = dir.stat_at(&name, Follow::No).map_err(failed(DOING))?;
    if before.kind != FileKind::Regular {
        return Err(OTHER_KIND);
    }
    let file = dir.source(&name, Follow::No).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => OTHER_KIND,
        _ => failed(DOING)(error),
    })?;
    if file.device().capabilities.lengths.is_certain(file.opened().size) {
        let now = file.stat().map_err(failed(DOING))?;
        let has_ctime = now.ctime == file.opened().ctime;
        return Ok(OpenedFile::Stored { file, has_ctime });
    }
    file.read_all(HELD_BYTES_MAX).map(OpenedFile::Held).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => FileError::Kind(
            "cannot open the file: its file system does not report its length, and it has more than 16 MiB",
        ),
        _ => failed("read the file")(error),
    })
}
