//! Open inputs: files, and streams that have no offsets. Paths that a user names and the standard
//! input can be either.

use haul_storage::local::Stream;
use haul_storage::{FileKind, Follow, SourceFile, Stat, local};
use haul_sys::dir::CWD;
use haul_sys::open::{open_source_at, open_stream_at};
use haul_sys::{stat, wait};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Place that bytes come from.
#[derive(Debug)]
pub(super) enum Input {
    /// A regular file, at offsets.
    File(Arc<dyn SourceFile>),
    /// A pipe, a device, or a regular file without a size, in order; with the metadata from before
    /// the first read.
    Stream(Stream, Stat),
}

/// Returns the metadata of the file at a path that a user names. Links are followed.
///
/// # Errors
/// Returns the errors of statx(2).
pub(super) fn stat_file(path: &OsStr) -> io::Result<Stat> {
    stat::stat_at(CWD, path, Follow::Yes)
}

impl Input {
    /// Opens the file at a path. Links are followed. With `waits`, waits for the writer of a named
    /// pipe. Returns `None` if `stop` ended the wait.
    ///
    /// # Errors
    /// Returns the errors of openat(2), and [`io::ErrorKind::IsADirectory`] for a directory.
    pub(super) fn open(path: &OsStr, waits: bool, stop: &AtomicBool) -> io::Result<Option<Input>> {
        let kind = if waits { stat_file(path)?.kind } else { FileKind::Regular };
        let fd = match kind {
            FileKind::Regular | FileKind::Directory => open_source_at(CWD, path, Follow::Yes, false)?,
            FileKind::Fifo => {
                let stopping = || stop.load(Ordering::Relaxed);
                match wait::open_pipe_source_at(CWD, path, Follow::Yes, stopping)? {
                    Some(fd) => fd,
                    None => return Ok(None),
                }
            }
            _ => open_stream_at(CWD, path, Follow::Yes)?,
        };
        Input::of(fd).map(Some)
    }

    /// Opens the standard input. Returns it with the offset where reads of a file start. Unless it
    /// was read before, leaves the position of a regular file at its end: processes that share the
    /// descriptor find it there, as after any other reader.
    ///
    /// # Errors
    /// Returns the errors of dup(2) and lseek(2).
    pub(super) fn stdin(is_again: bool) -> io::Result<(Input, u64)> {
        let mut file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let start = file.stream_position().unwrap_or(0);
        if file.metadata().is_ok_and(|facts| facts.is_file() && facts.len() > 0) && !is_again {
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.max(start)))?;
        }
        Ok((Input::of(file.into())?, start))
    }

    fn of(fd: OwnedFd) -> io::Result<Input> {
        let opened = stat::stat_fd(&fd)?;
        match opened.kind {
            FileKind::Directory => Err(io::ErrorKind::IsADirectory.into()),
            FileKind::Regular if opened.size > 0 => Ok(Input::File(local::source_of(fd, opened))),
            _ => Ok(Input::Stream(Stream::new(fd.into()), opened)),
        }
    }

    /// Returns the metadata from before the first read.
    pub(super) fn opened(&self) -> &Stat {
        match self {
            Input::File(file) => file.opened(),
            Input::Stream(_, opened) => opened,
        }
    }

    /// Returns the metadata now.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub(super) fn stat(&self) -> io::Result<Stat> {
        match self {
            Input::File(file) => file.stat(),
            Input::Stream(stream, _) => stream.file().stat(),
        }
    }

    /// Fills `buffer` with the next bytes, of which `at` were read, as far as the input goes. Waits
    /// for the data of a stream until `stop` is true, and then returns `None`.
    ///
    /// # Errors
    /// Returns the errors of read(2), pread(2) and poll(2).
    pub(super) fn read_next(
        &self,
        at: u64,
        buffer: &mut [u8],
        stop: &AtomicBool,
    ) -> io::Result<Option<usize>> {
        match self {
            Input::File(file) => file.read_at(at, buffer).map(Some),
            Input::Stream(stream, _) => stream.read(buffer, || stop.load(Ordering::Relaxed)),
        }
    }
}
