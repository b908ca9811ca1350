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

use crate::storage::{Dir, SourceFile, Storage};
use dir::LocalDir;
use dir_cache::DirCache;
use haul_sys::{Follow, Stat};
use source::LocalSource;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
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

/// Returns a regular file that the caller has opened by itself, with its metadata: one that has no
/// known place in a directory, such as the standard input.
pub fn source_of(file: OwnedFd, opened: Stat) -> Arc<dyn SourceFile> {
    Arc::new(LocalSource::new(file, opened, None))
}

/// Returns a descriptor of a directory of the local file system, for callers that do not work on
/// the traits yet.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] for a directory of another storage, and otherwise the
/// errors of opening the directory again.
pub fn descriptor_of(dir: &dyn Dir) -> io::Result<OwnedFd> {
    let dir: &dyn Any = dir;
    dir.downcast_ref::<LocalDir>().ok_or(io::ErrorKind::InvalidInput)?.descriptor()
}

/// Returns a directory of the local file system that the caller has opened to read it.
///
/// # Errors
/// Returns the errors of statx(2).
pub fn directory_of(fd: OwnedFd) -> io::Result<Arc<dyn Dir>> {
    Ok(Arc::new(LocalDir::of_descriptor(fd)?))
}
