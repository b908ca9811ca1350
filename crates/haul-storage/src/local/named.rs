//! An entry whose metadata is read and set by its name.

use super::device::LocalDevice;
use super::dir_cache::OpenDir;
use super::metadata::{none_if_unsupported, remove_attribute};
use crate::device::Device;
use crate::storage::Inode;
use haul_sys::metadata::{
    Place, Times, get_xattr, list_xattrs, set_mode_at, set_owner_at, set_times_at, set_xattr,
};
use haul_sys::open::read_link_at;
use haul_sys::{CWD, Follow, Stat, cache, process, stat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, OnceLock};

/// A name, or a path, and the directory that it is relative to.
#[derive(Debug)]
pub(super) struct LocalName {
    /// `None` for the working directory.
    base: Option<Arc<OpenDir>>,
    name: CString,
    device: OnceLock<Arc<LocalDevice>>,
}

impl LocalName {
    /// Returns the entry that has a name in a directory, or in the working directory.
    pub(super) fn new(base: Option<Arc<OpenDir>>, name: CString) -> LocalName {
        LocalName { base, name, device: OnceLock::new() }
    }

    fn base(&self) -> BorrowedFd<'_> {
        self.base.as_deref().map_or(CWD, AsFd::as_fd)
    }

    fn place(&self) -> Place<'_> {
        Place::Name(self.base(), &self.name)
    }
}

impl Inode for LocalName {
    fn stat(&self) -> io::Result<Stat> {
        stat::stat_at(self.base(), &*self.name, Follow::No)
    }

    fn user(&self) -> u32 {
        process::effective_user()
    }

    /// Returns the device of the directory: only a mount at the entry would make a difference.
    fn device(&self) -> &Device {
        let of_base =
            || Arc::new(LocalDevice::of(stat::stat_fd(self.base()).map_or(0, |base| base.dev), self.base()));
        &self.device.get_or_init(of_base).device
    }

    fn sync_device(&self) -> io::Result<()> {
        cache::sync_filesystem(self.base())
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        read_link_at(self.base(), &*self.name).map(OsStringExt::into_vec)
    }

    fn attributes(&self) -> io::Result<Vec<CString>> {
        list_xattrs(self.place())
    }

    fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        get_xattr(self.place(), name).or_else(|error| none_if_unsupported(error, None))
    }

    fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
        set_xattr(self.place(), name, value)
    }

    fn remove_attribute(&self, name: &CStr) -> io::Result<bool> {
        remove_attribute(self.place(), name)
    }

    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        set_owner_at(self.base(), &*self.name, user, group)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode_at(self.base(), &*self.name, mode)
    }

    fn set_times(&self, times: Times) -> io::Result<()> {
        set_times_at(self.base(), &*self.name, times)
    }
}
