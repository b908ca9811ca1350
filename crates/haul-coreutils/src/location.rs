//! Names as cp and mv use them: of entries, and of operands, as typed.
//!
//! An operand can have several components, end in slashes, or be `.`, `..` or the root. Each call
//! passes it to the kernel as a whole, so that it means what it means to GNU's tools.

use haul_storage::{FileKind, Follow, Replace, Stat};
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::metadata::{Place, set_mode_at};
use haul_sys::open::{self, RenameMode};
use haul_sys::{CWD, stat};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A name, and the directory that it is relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location<'a> {
    dir: BorrowedFd<'a>,
    name: &'a OsStr,
}

impl<'a> Location<'a> {
    /// Returns the location of a name in a directory.
    pub(crate) fn new(dir: BorrowedFd<'a>, name: &'a OsStr) -> Location<'a> {
        Location { dir, name }
    }

    /// Returns the location of a path that is relative to the working directory.
    pub(crate) fn here(name: &'a OsStr) -> Location<'a> {
        Location { dir: CWD, name }
    }

    /// Returns the location of another name that is relative to the same directory.
    pub(crate) fn beside<'b>(&self, name: &'b OsStr) -> Location<'b>
    where
        'a: 'b,
    {
        Location { dir: self.dir, name }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &'a OsStr {
        self.name
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'a> {
        self.dir
    }

    /// Returns the metadata of the entry.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub(crate) fn stat(&self, follow: Follow) -> io::Result<Stat> {
        stat::stat_at(self.dir, self.name, follow)
    }

    /// Returns true if the entry is a symbolic link.
    pub(crate) fn is_link(&self) -> bool {
        self.stat(Follow::No).is_ok_and(|found| found.kind == FileKind::Symlink)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of readlinkat(2).
    pub(crate) fn read_link(&self) -> io::Result<OsString> {
        open::read_link_at(self.dir, self.name)
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// Returns the errors of unlinkat(2).
    pub(crate) fn unlink(&self) -> io::Result<()> {
        open::unlink_at(self.dir, self.name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Returns the errors of unlinkat(2).
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        open::rmdir_at(self.dir, self.name)
    }

    /// Renames the entry.
    ///
    /// # Errors
    /// Returns the errors of renameat2(2).
    pub(crate) fn rename(&self, to: &Location<'_>, replace: Replace) -> io::Result<()> {
        let mode = match replace {
            Replace::Yes => RenameMode::Replace,
            Replace::No => RenameMode::NoReplace,
        };
        open::rename_at(self.dir, self.name, to.dir, to.name, mode)
    }

    /// Exchanges two entries.
    ///
    /// # Errors
    /// Returns the errors of renameat2(2).
    pub(crate) fn exchange(&self, other: &Location<'_>) -> io::Result<()> {
        open::rename_at(self.dir, self.name, other.dir, other.name, RenameMode::Exchange)
    }

    /// Gives the file another name. With [`Follow::Yes`], a symbolic link is followed.
    ///
    /// # Errors
    /// Returns the errors of linkat(2).
    pub(crate) fn link(&self, follow: Follow, to: &Location<'_>) -> io::Result<()> {
        open::link_at(self.dir, self.name, to.dir, to.name, follow)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of symlinkat(2).
    pub(crate) fn make_link(&self, target: &OsStr) -> io::Result<()> {
        open::symlink_at(target, self.dir, self.name)
    }

    /// Creates a pipe, a socket or a device.
    ///
    /// # Errors
    /// Returns the errors of mknodat(2).
    pub(crate) fn make_special(&self, kind: FileKind, mode: u32, rdev: u64) -> io::Result<()> {
        open::mknod_at(self.dir, self.name, kind, mode, rdev)
    }

    /// Creates a directory. The umask applies to `mode`.
    ///
    /// # Errors
    /// Returns the errors of mkdirat(2).
    pub(crate) fn make_directory(&self, mode: u32) -> io::Result<()> {
        open::mkdir_at(self.dir, self.name, mode)
    }

    /// Sets the mode of an entry that is not a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of fchmodat2(2).
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode_at(self.dir, self.name, mode)
    }

    /// Opens a file for reading. Never waits for the other end of a pipe.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(crate) fn open_source(&self, follow: Follow) -> io::Result<(OwnedFd, Stat)> {
        let file = open::open_source_at(self.dir, self.name, follow, false)?;
        let found = stat::stat_fd(&file)?;
        Ok((file, found))
    }

    /// Opens a directory to read its entries. Follows a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(crate) fn list(&self) -> io::Result<DirReader> {
        open_dir_at(self.dir, self.name, Follow::Yes).map(DirReader::new)
    }

    /// Calls `act` with the entry, for metadata that the storage traits cannot copy. A symbolic
    /// link is not followed.
    pub(crate) fn with_place<T>(&self, act: impl FnOnce(Place<'_>) -> T) -> T {
        // Names come from the kernel or the command line, which end them at the first NUL.
        let name = CString::new(self.name.as_bytes()).unwrap_or_default();
        act(Place::Name(self.dir, &name))
    }
}
