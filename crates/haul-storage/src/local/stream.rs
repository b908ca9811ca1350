//! Files without offsets: pipes, devices and sockets.

use haul_sys::{Stat, stat, wait};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// An open file that is read or written from its first byte on.
#[derive(Clone, Debug)]
pub struct Stream(Arc<File>);

impl Stream {
    /// Returns a stream that the caller opened.
    pub fn new(file: Arc<File>) -> Stream {
        Stream(file)
    }

    /// Returns the metadata of the file now.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub fn stat(&self) -> io::Result<Stat> {
        stat::stat_fd(&*self.0)
    }

    /// Reads until `into` is full or the stream ends. Returns the number of bytes, or `None` once
    /// `is_stopping` returns true; bytes read before are then lost.
    ///
    /// # Errors
    /// Returns the errors of read(2) and poll(2).
    pub fn read(&self, into: &mut [u8], is_stopping: impl Fn() -> bool) -> io::Result<Option<usize>> {
        wait::read_stream(&*self.0, into, is_stopping)
    }

    /// Writes all bytes. Returns false once `is_stopping` returns true; a part may then be written.
    ///
    /// # Errors
    /// Returns the errors of write(2) and poll(2).
    pub fn write(&self, bytes: &[u8], is_stopping: impl Fn() -> bool) -> io::Result<bool> {
        wait::write_stream(&*self.0, bytes, is_stopping)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
