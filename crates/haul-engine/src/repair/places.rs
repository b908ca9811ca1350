//! Resolution of the paths of a waybill: below the root and the replicas, and never outside.

use super::LeftReason;
use crate::verify::component_of;
use haul_log::waybill::RelPath;
use haul_storage::{Dir, Follow, Name, Node, Remove, SourceFile, Stat, Version, local};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Directory that paths are resolved below. It keeps the directory of the last path open, because
/// the next path is usually in the same directory.
#[derive(Clone, Debug)]
pub(super) struct Root {
    dir: Arc<dyn Dir>,
    last: Arc<Mutex<Option<OpenedPath>>>,
}

/// A directory with its path below the root.
type OpenedPath = (RelPath, Arc<dyn Dir>);

/// Directory that files may be taken from.
#[derive(Debug)]
pub(super) struct Replica {
    root: Root,
    /// True if the directory holds data from another host. Its bytes are verified; its metadata is
    /// not trusted.
    pub(super) is_fetched: bool,
    /// First component of all names of the waybill, if the directory may stand for it.
    component: Option<Vec<u8>>,
}

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct NameAt {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) name: Name,
}

impl Root {
    pub(super) fn new(dir: Arc<dyn Dir>) -> Root {
        Root { dir, last: Arc::default() }
    }

    /// Opens a directory of the local file system.
    pub(super) fn open(path: &OsStr) -> io::Result<Root> {
        local::open(Path::new(path), Follow::Yes).map(Root::new)
    }

    /// Opens the directory at a path, or the root for an empty path.
    fn dir(&self, path: &[u8]) -> io::Result<Arc<dyn Dir>> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.dir));
        }
        if let Some((known, dir)) = &*self.last.lock()
            && known.as_bytes() == path
        {
            return Ok(Arc::clone(dir));
        }
        let path = RelPath::new(path).map_err(io::Error::other)?;
        let dir = self.dir.beneath(&path, Follow::Yes)?;
        *self.last.lock() = Some((path, Arc::clone(&dir)));
        Ok(dir)
    }
}

impl Replica {
    /// Opens a directory. If it has none of the names of the waybill, it replaces their first
    /// component.
    pub(super) fn open(name: &OsStr, waybill: &OsStr) -> io::Result<Replica> {
        let root = Root::open(name)?;
        let component = component_of(waybill, Some(&root.dir));
        Ok(Replica { root, is_fetched: false, component })
    }

    /// Creates a replica from a directory with data from another host.
    pub(super) fn fetched(dir: Arc<dyn Dir>) -> Replica {
        Replica { root: Root::new(dir), is_fetched: true, component: None }
    }

    /// Lets the directory stand for the first component of all names of the waybill.
    pub(super) fn standing_for(self, component: Option<Vec<u8>>) -> Replica {
        Replica { component, ..self }
    }

    /// Opens the regular file at a path. Returns `None` if there is none, or if the path leads out
    /// of the replica.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be opened.
    pub(super) fn file(&self, path: &RelPath) -> io::Result<Option<Arc<dyn SourceFile>>> {
        for path in self.paths(path) {
            match NameAt::of(&self.root, &path).and_then(|name_at| name_at.open()) {
                Ok(found) => return Ok(Some(found)),
                Err(error) if is_no_file(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the paths beneath the replica that a path of the waybill may have: the path itself,
    /// and without the component that the replica replaces.
    fn paths(&self, path: &RelPath) -> impl Iterator<Item = RelPath> + use<> {
        let shorter = self.component.as_ref().and_then(|component| without_component(path, component));
        std::iter::once(path.clone()).chain(shorter)
    }

    /// Removes the fetched file at a path that is no longer needed, to free space for the next one.
    pub(super) fn forget(&self, path: &RelPath) {
        if self.is_fetched {
            for path in self.paths(path) {
                // If this fails, the file is removed with the whole staging directory.
                let _ = NameAt::of(&self.root, &path)
                    .and_then(|name_at| name_at.dir.remove(&name_at.name, Remove::File));
            }
        }
    }
}

/// Returns a path without its first component; `None` if that is another one, or all of the path.
pub(super) fn without_component(path: &RelPath, component: &[u8]) -> Option<RelPath> {
    let rest = path.as_bytes().strip_prefix(component)?.strip_prefix(b"/")?;
    RelPath::new(rest).ok()
}

impl NameAt {
    /// Resolves a path below `root`.
    pub(super) fn of(root: &Root, path: &RelPath) -> io::Result<NameAt> {
        let (dir, name) = split(path.as_bytes());
        let name = Name::new(name).ok_or(io::ErrorKind::InvalidFilename)?;
        Ok(NameAt { dir: root.dir(dir)?, name })
    }

    /// Opens a regular file, without following a link and without blocking on a pipe.
    pub(super) fn open(&self) -> io::Result<Arc<dyn SourceFile>> {
        self.dir.source(&self.name, Follow::No).map_err(|error| match error.raw_os_error() {
            None if error.kind() == io::ErrorKind::InvalidInput => {
                io::Error::new(error.kind(), "Not a regular file")
            }
            _ => error,
        })
    }

    /// Returns the metadata of the entry itself.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        self.dir.stat_at(&self.name, Follow::No)
    }

    /// Syncs the names in the directory.
    pub(super) fn sync(&self) -> Result<(), LeftReason> {
        self.dir.sync().map_err(LeftReason::io("sync the new name"))
    }
}

/// Returns true if the path does not exist, is not a regular file, or leads outside.
fn is_no_file(error: &io::Error) -> bool {
    // Error for a link that is not followed; the standard library has no name for it.
    const ELOOP: i32 = 40;
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::CrossesDevices => true,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => true,
        _ => error.raw_os_error() == Some(ELOOP),
    }
}

/// Returns true if a file with the metadata `now` is the one that `then` was opened as, without a
/// later change of contents or metadata.
pub(super) fn is_unchanged(now: &Stat, then: &dyn SourceFile) -> bool {
    Version::of(then.opened()).change(now).is_none()
}

/// Same as [`NameAt::of`], but creates the missing parent directories with mode 0700: their entries
/// in the waybill follow, and the modes in a replica are not trusted. Adds the created directories
/// to `made`.
pub(super) fn name_at_with_parents(
    root: &Root,
    path: &RelPath,
    made: &mut HashSet<Vec<u8>>,
) -> Result<NameAt, LeftReason> {
    match NameAt::of(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other.map_err(LeftReason::place),
    }
    let bytes = path.as_bytes();
    for end in (0..bytes.len()).filter(|&at| bytes[at] == b'/') {
        let dir = RelPath::new(&bytes[..end]).map_err(|fault| LeftReason::place(io::Error::other(fault)))?;
        let name_at = NameAt::of(root, &dir).map_err(LeftReason::place)?;
        match name_at.dir.make(&name_at.name, &Node::Directory { mode: 0o700 }) {
            Ok(()) => {
                name_at.sync()?;
                made.insert(dir.as_bytes().to_vec());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(LeftReason::io("create a directory")(error)),
        }
    }
    NameAt::of(root, path).map_err(LeftReason::place)
}

/// Returns an error if [`name_at_with_parents`] does, as far as can be seen without making
/// anything.
///
/// # Errors
/// [`LeftReason::Place`].
pub(super) fn may_be_made(root: &Root, path: &RelPath) -> Result<(), LeftReason> {
    let bytes = path.as_bytes();
    for end in (0..bytes.len()).filter(|&at| bytes[at] == b'/') {
        let dir = RelPath::new(&bytes[..end]).map_err(|fault| LeftReason::place(io::Error::other(fault)))?;
        let name_at = NameAt::of(root, &dir).map_err(LeftReason::place)?;
        match name_at.stat() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => {}
        }
    }
    NameAt::of(root, path).map(drop).map_err(LeftReason::place)
}

/// Splits a path into its directory and its last component.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn replica_entries_that_are_not_regular_files_return_none() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("replica");
        fs::create_dir_all(dir.join("directory")).unwrap();
        fs::write(home.path().join("outside"), "secret").unwrap();
        fs::write(dir.join("file"), "bytes").unwrap();
        symlink("file", dir.join("link")).unwrap();
        symlink("..", dir.join("out")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let _socket = UnixListener::bind(dir.join("socket")).unwrap();
        let replica = Replica::open(dir.as_os_str(), OsStr::new("/none")).unwrap();
        let file = |path: &str| replica.file(&RelPath::new(path.as_bytes()).unwrap());
        assert_eq!(file("file").unwrap().unwrap().opened().size, 5);
        for path in ["none", "none/f", "directory", "file/f", "link", "out/outside", "round/f", "socket"] {
            assert!(file(path).unwrap().is_none(), "{path}");
        }
    }
}
