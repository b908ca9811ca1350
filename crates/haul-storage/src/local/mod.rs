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
mod sink;
mod source;
mod stream;

pub use sink::OpenedSink;
pub use stream::Stream;

use crate::name::Name;
use crate::storage::{Dir, Inode, SinkFile, SourceFile, Storage};
use dir::LocalDir;
use dir_cache::{DirCache, OpenDir};
use dir_place::{LocalTree, Spelling};
use haul_sys::{Follow, Stat};
use sink::LocalSink;
use source::LocalSource;
use std::any::Any;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
    /// Returns a file that is open for reading. `opened` is its metadata from when it was opened.
    pub fn source(&self, file: File, opened: Stat) -> Arc<dyn SourceFile> {
        let device = self.tree.devices.of(opened.dev, &file);
        Arc::new(LocalSource::new(file, opened, Some(device)))
    }

    /// Returns a file that is open for reading, to be read at offsets or as a stream.
    pub fn source_and_stream(&self, file: File, opened: Stat) -> (Arc<dyn SourceFile>, Stream) {
        let (device, file) = (self.tree.devices.of(opened.dev, &file), Arc::new(file));
        (Arc::new(LocalSource::shared(Arc::clone(&file), opened, device)), Stream::new(file))
    }

    /// Returns an inode that is open for reading: a directory or a file. `opened` is its metadata.
    pub fn held(&self, file: File, opened: Stat) -> Arc<dyn Inode> {
        self.source(file, opened)
    }

    /// Returns a file on the device `device` that is open for writing, under its final name.
    pub fn sink(&self, file: File, device: u64, opened: OpenedSink) -> Arc<dyn SinkFile> {
        let device = self.tree.devices.of(device, &file);
        Arc::new(LocalSink::new(file, device, opened))
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
        let dir: &dyn Any = dir;
        let dir: &LocalDir = dir.downcast_ref().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Arc::new(LocalDir::at_path(dir.place(), path, follow)?))
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
    let dir: &dyn Any = dir;
    let dir: &LocalDir = dir.downcast_ref().ok_or(io::ErrorKind::InvalidInput)?;
    dir.open().map(DirDescriptor)
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
