//! The one definition of "unchanged": size, modification time, change time and inode.

use haul_sys::{Stat, Timespec};

/// State of a regular file at one moment, as far as its metadata shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Last change of the inode. No process can set it to a value of its choice.
    pub ctime: Timespec,
    /// Device and inode number.
    pub inode: (u64, u64),
}

/// Difference of a file from an earlier version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Only the change time differs. The mode, the owner, an attribute or the number of names
    /// changed, or a process wrote to the file and restored its modification time.
    Unknown,
    /// The size or the modification time differs.
    Contents,
    /// It is another file.
    Replaced,
}

impl Version {
    /// Returns the version of a file with this metadata.
    pub fn of(stat: &Stat) -> Version {
        Version { size: stat.size, mtime: stat.mtime, ctime: stat.ctime, inode: stat.identity() }
    }

    /// Returns the greatest difference of a file with the metadata `now`, or `None` if the file is
    /// unchanged. A write within the granularity of the change time (a tick of the kernel before
    /// Linux 6.13, 4 ms) is not detected.
    pub fn change(&self, now: &Stat) -> Option<Change> {
        match Version::of(now) {
            now if now.inode != self.inode => Some(Change::Replaced),
            now if (now.size, now.mtime) != (self.size, self.mtime) => Some(Change::Contents),
            now if now.ctime != self.ctime => Some(Change::Unknown),
            _ => None,
        }
    }
}
