//! Which path stands behind which inode number, and what the kernel is told about it.

use fuser::{FUSE_ROOT_ID, FileAttr, FileType};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The inodes that the kernel has been told of. Numbers are those of the source's file system, so that hard
/// links stay one file; hence the source must be one file system. A file with several names stands under the
/// name it was looked up by last.
#[derive(Debug)]
pub(super) struct Nodes {
    root: PathBuf,
    paths: HashMap<u64, PathBuf>,
}

impl Nodes {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, paths: HashMap::from([(FUSE_ROOT_ID, PathBuf::new())]) }
    }

    /// The path from the root.
    pub(super) fn path(&self, ino: u64) -> Result<&Path, Errno> {
        self.paths.get(&ino).map(PathBuf::as_path).ok_or(Errno::STALE)
    }

    /// Where a path from the root really is. The root itself ends in no slash.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Looks at `path` and remembers its inode.
    pub(super) fn look(&mut self, path: &Path) -> Result<FileAttr, Errno> {
        let meta = fs::symlink_metadata(self.real(path)).map_err(|e| errno_of(&e))?;
        let ino = if path.as_os_str().is_empty() { FUSE_ROOT_ID } else { meta.ino() };
        self.paths.insert(ino, path.to_owned());
        Ok(attr(ino, &meta))
    }

    /// Follows a rename: everything below moves along.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        for path in self.paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }
}

/// What the kernel is told of a file.
pub(super) fn attr(ino: u64, meta: &Metadata) -> FileAttr {
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    FileAttr {
        ino,
        size: meta.size(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: meta.created().unwrap_or(UNIX_EPOCH),
        kind: kind(meta.file_type()),
        perm: u16::try_from(meta.mode() & 0o7777).unwrap_or(0),
        nlink: narrow(meta.nlink()),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: narrow(meta.rdev()),
        blksize: narrow(meta.blksize()),
        flags: 0,
    }
}

/// Tells a file from one that had its inode number before it and is gone: the kernel would take the new one for the old,
/// a directory that was removed. The time of birth, which differs.
pub(super) fn generation(attr: &FileAttr) -> u64 {
    let born = attr.crtime.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(born.as_nanos()).unwrap_or(0)
}

/// The kind of an entry in the kernel's words.
pub(super) fn kind(kind: fs::FileType) -> FileType {
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_fifo() {
        FileType::NamedPipe
    } else if kind.is_socket() {
        FileType::Socket
    } else if kind.is_block_device() {
        FileType::BlockDevice
    } else if kind.is_char_device() {
        FileType::CharDevice
    } else {
        FileType::RegularFile
    }
}

/// A time in the form that `fuser` takes apart again: before 1970 it counts seconds and nanoseconds backwards
/// each for itself, so that -2 s and 0.5 s stand 2.5 s before 1970 and not 1.5.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let distance =
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_nanos(nanoseconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The inverse of [`time`], for times that come from `fuser`: seconds and nanoseconds as the system counts.
pub(super) fn seconds_of(time: SystemTime) -> (i64, i64) {
    let (distance, sign) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after, 1),
        Err(before) => (before.duration(), -1),
    };
    (sign * i64::try_from(distance.as_secs()).unwrap_or(i64::MAX), i64::from(distance.subsec_nanos()))
}

/// The number behind an error of the standard library.
pub(super) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_takes_its_contents_along() {
        let mut nodes = Nodes::new("/r".into());
        for (ino, path) in [(2, "d"), (3, "d/f"), (4, "dd")] {
            nodes.paths.insert(ino, path.into());
        }
        nodes.renamed(Path::new("d"), Path::new("e/n"));
        let paths = [1, 2, 3, 4].map(|ino| nodes.path(ino).unwrap().to_str().unwrap());
        assert_eq!(paths, ["", "e/n", "e/n/f", "dd"]);
        assert_eq!(nodes.path(9), Err(Errno::STALE));
        assert_eq!(nodes.real(Path::new("")), Path::new("/r"));
    }

    #[test]
    fn times_come_back_as_they_went() {
        for (seconds, nanoseconds) in [(0, 0), (5, 999_999_999), (-2, 500_000_000), (-1, 0)] {
            assert_eq!(seconds_of(time(seconds, nanoseconds)), (seconds, nanoseconds));
        }
    }
}
