//! Map from inode numbers to paths, and the attributes reported to the kernel.

use fuser::{FUSE_ROOT_ID, FileAttr, FileType};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Inodes that the kernel knows.
///
/// The numbers are those of the source's file system, so hard links remain one file. The source
/// must therefore be one file system. A file with several names has the path of its last lookup.
#[derive(Debug)]
pub(super) struct Nodes {
    root: PathBuf,
    paths: HashMap<u64, PathBuf>,
}

impl Nodes {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, paths: HashMap::from([(FUSE_ROOT_ID, PathBuf::new())]) }
    }

    /// Returns the path of an inode, relative to the root; ESTALE if the inode is unknown.
    pub(super) fn path(&self, ino: u64) -> Result<&Path, Errno> {
        self.paths.get(&ino).map(PathBuf::as_path).ok_or(Errno::STALE)
    }

    /// Returns the path in the source directory. The path of the root itself has no trailing slash.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Reads the attributes of `path` and records its inode.
    pub(super) fn look(&mut self, path: &Path) -> Result<FileAttr, Errno> {
        let meta = fs::symlink_metadata(self.real(path)).map_err(|e| errno_of(&e))?;
        let ino = if path.as_os_str().is_empty() { FUSE_ROOT_ID } else { meta.ino() };
        self.paths.insert(ino, path.to_owned());
        Ok(attr(ino, &meta))
    }

    /// Updates the paths after a rename, also those below a renamed directory.
    pub(super) fn renamed(&mut self, from: &Path, to: &Path) {
        for path in self.paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }
}

/// Converts the attributes of a file into those reported to the kernel.
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

/// Returns the generation of an inode: its birth time in nanoseconds. The generation distinguishes
/// a file from an earlier, removed file with the same inode number. Otherwise the kernel would take
/// the new file for a removed directory, for example.
pub(super) fn generation(attr: &FileAttr) -> u64 {
    let born = attr.crtime.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(born.as_nanos()).unwrap_or(0)
}

/// Converts the file type of an entry for the kernel.
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

/// Converts a time into the form that `fuser` decodes. Before 1970, `fuser` counts seconds and
/// nanoseconds backwards separately: -2 s and 0.5 s are 2.5 s before 1970, and not 1.5 s.
fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let distance =
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_nanos(nanoseconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Converts a time from `fuser` into seconds and nanoseconds as the system counts them (the inverse
/// of [`time`]).
pub(super) fn seconds_of(time: SystemTime) -> (i64, i64) {
    let (distance, sign) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after, 1),
        Err(before) => (before.duration(), -1),
    };
    (sign * i64::try_from(distance.as_secs()).unwrap_or(i64::MAX), i64::from(distance.subsec_nanos()))
}

/// Returns the error number of a standard library error, EIO if it has none.
pub(super) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming_a_directory_moves_its_contents() {
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
    fn times_round_trip() {
        for (seconds, nanoseconds) in [(0, 0), (5, 999_999_999), (-2, 500_000_000), (-1, 0)] {
            assert_eq!(seconds_of(time(seconds, nanoseconds)), (seconds, nanoseconds));
        }
    }
}
