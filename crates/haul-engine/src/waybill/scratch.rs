//! File without a name for data that waits for a waybill.

use haul_storage::{Dir, Follow, SinkFile, SourceFile, local, open_parent};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// File without a name. Its space is freed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    file: Arc<dyn SinkFile>,
    reader: Arc<dyn SourceFile>,
}

impl Scratch {
    /// Creates a file in the directory of the waybill at `path`, whose file system needs the space
    /// anyway. If no file can be created there, the directory for temporary files is used.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::nameless`] in the directory for temporary files.
    pub(super) fn beside(path: &Path) -> io::Result<Scratch> {
        open_parent(path)
            .and_then(|(dir, _)| Scratch::in_dir(&*dir))
            .or_else(|_| Scratch::in_dir(&*local::open(&std::env::temp_dir(), Follow::Yes)?))
    }

    /// Creates a file on the device of a directory.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::nameless`].
    pub(super) fn in_dir(dir: &dyn Dir) -> io::Result<Scratch> {
        let file = dir.nameless()?;
        Ok(Scratch { reader: file.reader()?, file })
    }

    /// Writes all bytes at offset `at`.
    ///
    /// # Errors
    /// Returns the errors of [`SinkFile::write_at`].
    pub(super) fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(at, bytes)
    }

    /// Fills `into` from offset `at`. Returns less than its length only at the end of the file.
    ///
    /// # Errors
    /// Returns the errors of [`SourceFile::read_at`].
    pub(super) fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read_at(at, into)
    }

    /// Returns the size of the file, in bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.reader.stat()?.size)
    }
}
