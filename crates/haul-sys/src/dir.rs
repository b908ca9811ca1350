//! Directories: opening them and reading what they hold.

use crate::filesystem;
use crate::stat::{FileKind, Follow, Stat, stat_fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

pub use rustix::fs::CWD;

/// Bytes asked of the kernel at a time: what one getdents64(2) call brings. About a thousand short names;
/// larger buffers gained nothing and every directory being read holds one.
const READ_BYTES: usize = 32 << 10;

/// Reads one directory in batches, so that a directory of millions of names never stands in memory whole. `F` is
/// whatever holds the open directory.
#[derive(Debug)]
pub struct DirReader<F = OwnedFd> {
    fd: F,
    buffer: Vec<u8>,
    /// Entries that the kernel handed over with the last call and no batch has taken yet.
    waiting: VecDeque<DirEntry>,
    ended: bool,
}

/// One name in a directory. Never `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, any bytes but NUL and `/`, at most 255 of them on the usual file systems.
    pub name: CString,
    /// What the directory says the entry is; `None` where the file system keeps no such hint.
    pub kind_hint: Option<FileKind>,
    /// Inode number. At a mount point it is that of the directory below the mount, not what stat finds.
    pub ino: u64,
}

impl DirEntry {
    /// The name as an operating system string.
    pub fn name_os(&self) -> &OsStr {
        OsStr::from_bytes(self.name.as_bytes())
    }
}

impl<F: AsFd> DirReader<F> {
    /// Reads the directory that `fd` is open on, from wherever that descriptor stands.
    pub fn new(fd: F) -> DirReader<F> {
        DirReader { fd, buffer: Vec::with_capacity(READ_BYTES), waiting: VecDeque::new(), ended: false }
    }

    /// Appends up to `max` entries to `out`, in the directory's own order, and says whether there may be
    /// more. A directory that was removed while it was read ends there.
    ///
    /// # Errors
    /// What getdents64(2) reports. Entries that were appended before the failure stay in `out`.
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

    /// The open directory, to resolve the names it held.
    pub fn fd(&self) -> &F {
        &self.fd
    }

    /// Gives the open directory back; entries not yet taken are dropped.
    pub fn into_fd(self) -> F {
        self.fd
    }

    /// One call to the kernel (more where a call brings only `.` and `..`); false at the end.
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
                // The entries borrow the buffer: all of them leave it before the next call fills it anew.
                if raw.is_buffer_empty() {
                    break;
                }
            }
        }
        Ok(!self.waiting.is_empty())
    }
}

impl<F: AsFd> AsFd for DirReader<F> {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a directory only to resolve names in it (O_PATH), which needs no permission to read it. Through such
/// a descriptor nothing can be read, and no metadata set.
///
/// # Errors
/// What openat(2) reports.
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
/// What openat(2) reports; a symbolic link gives `ENOTDIR` or `ELOOP` where it is not to be followed.
pub fn open_dir_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if follow == Follow::No {
        flags |= OFlags::NOFOLLOW;
    }
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Lets the next [`DirReader`] of an open directory begin at its first name again.
///
/// # Errors
/// What lseek(2) reports.
pub fn rewind(dir: impl AsFd) -> io::Result<()> {
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(0))?;
    Ok(())
}

/// Whether an open directory is the one that was looked at `then`: one that was closed meanwhile and found again, by a
/// name that may lead elsewhere by now.
///
/// # Errors
/// What statx(2) reports.
pub fn is_still(dir: impl AsFd, then: &Stat) -> io::Result<bool> {
    let now = stat_fd(&dir)?;
    Ok(now.is_still(then) || (now.identity() == then.identity() && filesystem::is_overlay(&dir)))
}
