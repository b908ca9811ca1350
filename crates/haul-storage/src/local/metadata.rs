//! Metadata of an inode that is held by a descriptor: it is read and set through the descriptor,
//! never by name, because another process could have replaced the name.

use super::device::LocalDevice;
use super::dir_place::DirPlace;
use crate::device::Device;
use crate::storage::Inode;
use haul_sys::metadata::{
    ACL_ACCESS, ACL_DEFAULT, Place, Times, get_xattr, list_xattrs, remove_xattr, set_mode_fd, set_owner_fd,
    set_times_fd, set_xattr,
};
use haul_sys::open::read_link_at;
use haul_sys::{FileKind, Stat, cache, process, stat};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, OnceLock};

/// An inode that a descriptor holds.
pub(super) trait Held: Any + Debug + Send + Sync {
    /// Calls `act` with the descriptor, which may have been opened with `O_PATH`.
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;

    /// Returns the file system of the inode.
    fn local_device(&self) -> &LocalDevice;

    /// Syncs the file system of the inode.
    fn sync_file_system(&self) -> io::Result<()> {
        self.with_fd(|fd| cache::sync_filesystem(fd))
    }
}

impl<H: Held> Inode for H {
    fn stat(&self) -> io::Result<Stat> {
        self.with_fd(|fd| stat::stat_fd(fd))
    }

    fn user(&self) -> u32 {
        process::effective_user()
    }

    fn device(&self) -> &Device {
        &self.local_device().device
    }

    fn sync_device(&self) -> io::Result<()> {
        self.sync_file_system()
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        self.with_fd(|fd| match read_link_at(fd, c"") {
            Ok(target) => Ok(target.into_vec()),
            Err(_) if stat::stat_fd(fd)?.kind != FileKind::Symlink => Err(io::ErrorKind::InvalidInput.into()),
            Err(error) => Err(error),
        })
    }

    fn attributes(&self) -> io::Result<Vec<CString>> {
        self.with_fd(|fd| list_xattrs(Place::File(fd)))
    }

    fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        self.with_fd(|fd| get_xattr(Place::File(fd), name)).or_else(|error| none_if_unsupported(error, None))
    }

    fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        self.with_fd(|fd| set_xattr(Place::File(fd), name, value))
    }

    fn remove_attribute(&self, name: &CStr) -> io::Result<bool> {
        self.with_fd(|fd| remove_attribute(Place::File(fd), name))
    }

    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        self.with_fd(|fd| set_owner_fd(fd, user, group))
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.with_fd(|fd| set_mode_fd(fd, mode))
    }

    fn set_times(&self, times: Times) -> io::Result<()> {
        self.with_fd(|fd| set_times_fd(fd, times))
    }
}

/// Removes an attribute. Returns false if there is none.
pub(super) fn remove_attribute(place: Place<'_>, name: &CStr) -> io::Result<bool> {
    if name != ACL_ACCESS && name != ACL_DEFAULT {
        return remove_xattr(place, name).or_else(|error| none_if_unsupported(error, false));
    }
    // A lookup is much cheaper than a removal: on a journaled file system even the removal of a
    // missing list opens a transaction. Most files have none.
    match get_xattr(place, name).or_else(|error| none_if_unsupported(error, None))? {
        Some(_) => remove_xattr(place, name),
        None => Ok(false),
    }
}

/// Returns `none` for the error of a file system without attributes of this kind.
pub(super) fn none_if_unsupported<T>(error: io::Error, none: T) -> io::Result<T> {
    if error.kind() == io::ErrorKind::Unsupported { Ok(none) } else { Err(error) }
}

/// An inode of any kind that is held with `O_PATH`.
#[derive(Debug)]
pub(super) struct LocalInode {
    held: OwnedFd,
    dir: Arc<DirPlace>,
    device: OnceLock<Arc<LocalDevice>>,
}

impl LocalInode {
    /// Returns an entry of a directory that was just opened.
    pub(super) fn new(held: OwnedFd, dir: &Arc<DirPlace>) -> LocalInode {
        LocalInode { held, dir: Arc::clone(dir), device: OnceLock::new() }
    }
}

impl Held for LocalInode {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.held.as_fd())
    }

    fn local_device(&self) -> &LocalDevice {
        self.device.get_or_init(|| match stat::stat_fd(&self.held) {
            Ok(found) => self.dir.device_of(found.dev, &self.held),
            // Only a mount at the entry would make a difference.
            Err(_) => Arc::clone(self.dir.device()),
        })
    }
}
