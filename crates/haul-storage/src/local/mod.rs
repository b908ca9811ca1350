//! The local file system: names are resolved from open directories, and files are read and written
//! by system calls.
//!
//! A directory keeps its place in the tree, not its descriptor: descriptors are in one bounded
//! cache. Metadata is set through descriptors only, because another process can replace a name.

mod device;
mod dir;
mod dir_cache;
mod dir_fd;
mod dir_place;
mod metadata;
mod name_folding;
mod named;
mod sink;
mod source;
mod stream;

pub use stream::Stream;

use crate::name::Name;
use crate::storage::{Create, Dir, Inode, SinkFile, SourceFile, Storage};
use dir::LocalDir;
use dir_cache::{DirCache, OpenDir};
use dir_place::{LocalTree, Spelling};
use haul_sys::dir::open_dir_at;
use haul_sys::{CWD, Follow, Stat, stat};
use named::LocalName;
use sink::LocalSink;
use source::{LocalSource, open_source};
use std::any::Any;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalStorage;

impl Storage for LocalStorage {
    fn open(&self, path: &Path, follow: Follow) -> io::Result<Arc<dyn Dir>> {
        open(path, follow)
    }
}

/// Opens a directory of the local file system. It stays open until it is dropped; directories
/// beneath it may be closed meanwhile and opened again.
///
/// A directory without read permission, or that the device cannot read, is opened only to resolve
/// names in it.
///
/// # Errors
/// Returns the errors of openat(2); [`io::ErrorKind::NotADirectory`] or `ELOOP` for a link that is
/// not followed.
pub fn open(path: &Path, follow: Follow) -> io::Result<Arc<dyn Dir>> {
    Ok(Arc::new(LocalDir::root(path, follow, DirCache::of_process())?))
}

/// Files and directories that the caller opened by descriptors, as files of this storage.
///
/// In these directories, the file system alone decides about a new name, as for other programs: it
/// may change the name or take it for another one.
#[derive(Clone, Debug)]
pub struct OpenedFiles {
    tree: Arc<LocalTree>,
}

impl Default for OpenedFiles {
    fn default() -> OpenedFiles {
        let tree = LocalTree::new(DirCache::of_process(), Spelling::AsGiven);
        OpenedFiles { tree: Arc::new(tree) }
    }
}

impl OpenedFiles {
    /// Opens the regular file at a path that may lead anywhere, as the kernel resolves it: from a
    /// directory of this storage, or from the working directory.
    ///
    /// # Errors
    /// Same as [`Dir::source`], and [`io::ErrorKind::InvalidInput`] for a directory of another
    /// storage.
    pub fn source_at(
        &self,
        base: Option<&dyn Dir>,
        path: &OsStr,
        follow: Follow,
    ) -> io::Result<Arc<dyn SourceFile>> {
        let base = base.map(LocalDir::open_of).transpose()?;
        let path = CString::new(path.as_bytes())?;
        let (file, opened) = open_source(base.as_deref().map_or(CWD, AsFd::as_fd), &path, follow)?;
        let device = self.tree.devices.of(opened.dev, &file);
        Ok(Arc::new(LocalSource::new(file.into(), opened, Some(device))))
    }

    /// Opens or creates the file at a path, like [`OpenedFiles::source_at`].
    ///
    /// # Errors
    /// Same as [`Dir::sink`], and [`io::ErrorKind::InvalidInput`] for a directory of another
    /// storage or a temporary name.
    pub fn sink_at(
        &self,
        base: Option<&dyn Dir>,
        path: &OsStr,
        create: Create,
    ) -> io::Result<Arc<dyn SinkFile>> {
        let base = base.map(LocalDir::open_of).transpose()?;
        let path = CString::new(path.as_bytes())?;
        let base = base.as_deref().map_or(CWD, AsFd::as_fd);
        Ok(Arc::new(LocalSink::at_path(&self.tree, base, &path, create)?))
    }

    /// Returns the entry at a path, like [`Dir::named`].
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a directory of another storage.
    pub fn named_at(&self, base: Option<&dyn Dir>, path: &OsStr) -> io::Result<Arc<dyn Inode>> {
        let base = base.map(LocalDir::open_of).transpose()?;
        Ok(Arc::new(LocalName::new(base, CString::new(path.as_bytes())?)))
    }

    /// Holds the device of the working directory, like [`Dir::hold_device`].
    ///
    /// # Errors
    /// Same as [`Dir::hold_device`].
    pub fn hold_device_here(&self) -> io::Result<Arc<dyn Inode>> {
        let held = open_dir_at(CWD, c".", Follow::No)?;
        let opened = stat::stat_fd(&held)?;
        let device = self.tree.devices.of(opened.dev, &held);
        Ok(Arc::new(LocalSource::new(held.into(), opened, Some(device))))
    }

    /// Returns a directory, which stays open until it is dropped. It is listed by its descriptor if
    /// `is_readable`. A descriptor that was opened with `O_PATH` can only resolve names.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub fn dir(&self, fd: OwnedFd, is_readable: bool) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(LocalDir::of_descriptor(&self.tree, fd, is_readable)?))
    }

    /// Opens the directory at a path that may lead anywhere, as the kernel resolves it. The
    /// directory may be closed meanwhile and opened again by this path, which must then lead to the
    /// same directory.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub fn dir_here(&self, path: &OsStr, follow: Follow) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(LocalDir::here(&self.tree, path, follow)?))
    }

    /// Same as [`OpenedFiles::dir_here`], for a path that begins at a directory of this storage.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a directory of another storage, and otherwise
    /// the errors of openat(2).
    pub fn dir_at(&self, dir: &dyn Dir, path: &OsStr, follow: Follow) -> io::Result<Arc<dyn Dir>> {
        Ok(Arc::new(LocalDir::at_path(LocalDir::of(dir)?.place(), path, follow)?))
    }
}

/// Returns the descriptor of a file of this storage, for metadata that the traits cannot copy.
/// Returns `None` for a file of another storage.
pub fn source_descriptor(file: &dyn SourceFile) -> Option<BorrowedFd<'_>> {
    let file: &dyn Any = file;
    file.downcast_ref::<LocalSource>().map(LocalSource::as_fd)
}

/// Returns the descriptor of a file of this storage, like [`source_descriptor`].
pub fn sink_descriptor(file: &dyn SinkFile) -> Option<BorrowedFd<'_>> {
    let file: &dyn Any = file;
    file.downcast_ref::<LocalSink>().map(LocalSink::as_fd)
}

/// Returns a regular file that the caller has opened by itself, with its metadata: one that has no
/// known place in a directory, such as the standard input.
pub fn source_of(file: OwnedFd, opened: Stat) -> Arc<dyn SourceFile> {
    Arc::new(LocalSource::new(file.into(), opened, None))
}

/// An open descriptor of a directory. It stays open as long as this value exists.
#[derive(Clone, Debug)]
pub struct DirDescriptor(Arc<OpenDir>);

impl AsFd for DirDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the descriptor of a directory of the local file system, for calls that the traits do not
/// have.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] for a directory of another storage, and otherwise the
/// errors of opening the directory again.
pub fn descriptor_of(dir: &dyn Dir) -> io::Result<DirDescriptor> {
    LocalDir::open_of(dir).map(DirDescriptor)
}

/// Removes the directory `name` of a directory of the local file system, with all its contents. No
/// link is followed.
///
/// # Errors
/// Returns the errors of [`descriptor_of`], [`std::fs::remove_dir_all`] and, for a directory of
/// another storage, [`io::ErrorKind::InvalidInput`].
pub fn remove_tree(dir: &dyn Dir, name: &Name) -> io::Result<()> {
    let dir = descriptor_of(dir)?;
    // The standard library follows no link, and the path starts at an open descriptor.
    let path = Path::new("/proc/self/fd").join(dir.as_fd().as_raw_fd().to_string()).join(name.as_os_str());
    std::fs::remove_dir_all(path)
}

/// Returns the cause of an error of a directory of [`OpenedFiles`]: the error of the call that
/// could not open the directory again, or `None` if another directory has its place now.
pub fn cause_of_loss(error: io::Error) -> Option<io::Error> {
    if error.kind() != io::ErrorKind::StaleNetworkFileHandle {
        return Some(error);
    }
    error.into_inner().and_then(|inner| inner.downcast().ok()).map(|cause| *cause)
}

/// Returns a directory of the local file system that the caller has opened to read it.
///
/// # Errors
/// Returns the errors of statx(2).
pub fn directory_of(fd: OwnedFd) -> io::Result<Arc<dyn Dir>> {
    let tree = Arc::new(LocalTree::new(DirCache::of_process(), Spelling::Checked));
    Ok(Arc::new(LocalDir::of_descriptor(&tree, fd, true)?))
}
