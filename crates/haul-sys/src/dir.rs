//! Opening and reading directories.

use crate::filesystem::FileSystem;
use crate::stat::{FileKind, Follow, Stat, stat_at, stat_fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

pub use rustix::fs::CWD;

/// Size, in bytes, of the buffer for one getdents64(2) call, for about a thousand short names.
/// Larger buffers were not faster, and each directory that is being read holds one.
const READ_BYTES: usize = 32 << 10;

/// Reader that returns a directory in batches, so that millions of names never occupy memory at the
/// same time. `F` owns the open directory.
#[derive(Debug)]
pub struct DirReader<F = OwnedFd> {
    fd: F,
    buffer: Vec<u8>,
    /// Entries that the last system call returned and that no batch contains yet.
    waiting: VecDeque<DirEntry>,
    ended: bool,
}

/// One name in a directory. Never `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name: any bytes except NUL and `/`, at most 255 bytes on the usual file systems.
    pub name: CString,
    /// Kind of the entry according to the directory; `None` if the file system stores no such hint.
    pub kind_hint: Option<FileKind>,
    /// Inode number. At a mount point this is the inode of the directory below the mount, not the
    /// one that stat returns.
    pub ino: u64,
}

impl DirEntry {
    /// Returns the name as an `OsStr`.
    pub fn name_os(&self) -> &OsStr {
        OsStr::from_bytes(self.name.as_bytes())
    }

    /// Returns the kind of the entry of the directory `dir`, by a stat call if there is no hint.
    ///
    /// # Errors
    ///
    /// Returns the errors of statx(2).
    pub fn kind_in(&self, dir: impl AsFd) -> io::Result<FileKind> {
        self.kind_hint.map_or_else(|| Ok(stat_at(dir, &*self.name, Follow::No)?.kind), Ok)
    }
}

impl<F: AsFd> DirReader<F> {
    /// Returns a reader for the directory that `fd` is open on. Reading starts at the current
    /// position of the descriptor.
    pub fn new(fd: F) -> DirReader<F> {
        DirReader { fd, buffer: Vec::with_capacity(READ_BYTES), waiting: VecDeque::new(), ended: false }
    }

    /// Appends up to `max` entries to `out`, in the order of the directory. Returns false if there
    /// are no more entries.
    ///
    /// If the directory is removed during the read, it ends there.
    ///
    /// # Errors
    ///
    /// Returns the errors of getdents64(2). Entries that were appended before the error stay in
    /// `out`.
    pub fn read_batch(&mut self, max: usize, out: &mut Vec<DirEntry>) -> io::Result<bool> {
        let mut room = max;
        while room > 0 {
            if self.waiting.is_empty() && !self.refill()? {
                return Ok(false);
            }
            let taken = room.min(self.waiting.len());
            out.extend(self.waiting.drain(..taken));
            room -= taken;
        }
        Ok(!self.ended || !self.waiting.is_empty())
    }

    /// Returns the open directory, for resolving its names.
    pub fn fd(&self) -> &F {
        &self.fd
    }

    /// Makes one system call, or several if a call returns only `.` and `..`. Returns false at the
    /// end.
    fn refill(&mut self) -> io::Result<bool> {
        while self.waiting.is_empty() && !self.ended {
            let mut raw = RawDir::new(&self.fd, self.buffer.spare_capacity_mut());
            loop {
                match raw.next() {
                    None | Some(Err(Errno::NOENT)) => {
                        self.ended = true;
                        break;
                    }
                    Some(Err(Errno::INTR)) => continue,
                    Some(Err(errno)) => return Err(errno.into()),
                    Some(Ok(entry)) => {
                        let name = entry.file_name();
                        if name != c"." && name != c".." {
                            let kind = FileKind::from_rustix(entry.file_type());
                            self.waiting.push_back(DirEntry {
                                name: name.to_owned(),
                                kind_hint: (kind != FileKind::Unknown).then_some(kind),
                                ino: entry.ino(),
                            });
                        }
                    }
                }
                // The entries borrow the buffer, so all of them are copied before the next call
                // refills it.
                if raw.is_buffer_empty() {
                    break;
                }
            }
        }
        Ok(!self.waiting.is_empty())
    }
}

/// Iterates over the entries. Ends after an error.
impl<F: AsFd> Iterator for DirReader<F> {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.waiting.is_empty()
            && let Err(error) = self.refill()
        {
            self.ended = true;
            return Some(Err(error));
        }
        self.waiting.pop_front().map(Ok)
    }
}

impl<F: AsFd> AsFd for DirReader<F> {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a directory by its path, to read it. In contrast to [`std::fs::read_dir`], a failed close
/// does not panic.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn read_dir(path: impl Arg) -> io::Result<DirReader> {
    open_dir_at(CWD, path, Follow::Yes).map(DirReader::new)
}

/// Opens a directory with O_PATH, only to resolve names in it. This needs no read permission. The
/// descriptor cannot be used to read the directory or to set its metadata.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn open_place_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if follow == Follow::No {
        flags |= OFlags::NOFOLLOW;
    }
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Opens a directory to read it and to resolve names in it.
///
/// # Errors
///
/// Returns the errors of openat(2); `ENOTDIR` or `ELOOP` for a symbolic link that is not followed.
pub fn open_dir_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if follow == Follow::No {
        flags |= OFlags::NOFOLLOW;
    }
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Resets an open directory, so that its next [`DirReader`] starts at the first name.
///
/// # Errors
///
/// Returns the errors of lseek(2).
pub fn rewind(dir: impl AsFd) -> io::Result<()> {
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(0))?;
    Ok(())
}

/// Returns true if an open directory is the one that `then` describes. The directory was closed in
/// between and reopened by a name that may now refer to another directory.
///
/// # Errors
///
/// Returns the errors of statx(2).
pub fn is_same_file(dir: impl AsFd, then: &Stat) -> io::Result<bool> {
    let now = stat_fd(&dir)?;
    Ok(now.is_same_file(then) || (now.identity() == then.identity() && FileSystem::of(&dir).is_overlay()))
}
