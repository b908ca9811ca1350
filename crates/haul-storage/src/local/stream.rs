//! Files that are read or written in order: pipes, devices, and files that may have no offsets.

use super::source::LocalSource;
use super::source_descriptor;
use crate::storage::SourceFile;
use haul_sys::wait;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file that is read or written from its first byte on. Clones share the position.
#[derive(Clone, Debug)]
pub struct Stream {
    file: Arc<dyn SourceFile>,
    /// Number of bytes that were read, for a storage that reads at offsets only.
    read: Arc<AtomicU64>,
}

impl Stream {
    /// Returns the stream of a file of any kind that the caller opened.
    pub fn new(file: File) -> Stream {
        Stream::of(Arc::new(LocalSource::opened_before(file)))
    }

    /// Returns the stream of a file that is open for reading.
    pub fn of(file: Arc<dyn SourceFile>) -> Stream {
        Stream { file, read: Arc::default() }
    }

    /// Returns the file, for its metadata.
    pub fn file(&self) -> &dyn SourceFile {
        &*self.file
    }

    /// Reads until `into` is full or the stream ends. Returns the number of bytes, or `None` once
    /// `is_stopping` returns true; bytes read before are then lost.
    ///
    /// # Errors
    /// Returns the errors of read(2) and poll(2).
    pub fn read(&self, into: &mut [u8], is_stopping: impl Fn() -> bool) -> io::Result<Option<usize>> {
        if let Some(file) = source_descriptor(self.file()) {
            return wait::read_stream(file, into, is_stopping);
        }
        let read = self.file.read_at(self.read.load(Ordering::Relaxed), into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(Some(read))
    }

    /// Writes all bytes. Returns false once `is_stopping` returns true; a part may then be written.
    ///
    /// # Errors
    /// Returns the errors of write(2) and poll(2), and [`io::ErrorKind::InvalidInput`] for a file
    /// of another storage.
    pub fn write(&self, bytes: &[u8], is_stopping: impl Fn() -> bool) -> io::Result<bool> {
        let file = source_descriptor(self.file()).ok_or(io::ErrorKind::InvalidInput)?;
        wait::write_stream(file, bytes, is_stopping)
    }
}
