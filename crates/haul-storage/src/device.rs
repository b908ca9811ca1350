//! A device of a storage: its number and what its file system can do.

use haul_sys::filesystem::Backing;

/// A device. Its properties are asked once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the device, [`Stat::dev`](haul_sys::Stat::dev) of its inodes.
    pub id: u64,
    /// Properties of its file system.
    pub capabilities: Capabilities,
}

/// Properties of the file system of a device. An unknown file system has the value that is right
/// for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Backing of the page cache.
    pub backing: Backing,
    /// True if the device cannot be written.
    pub is_read_only: bool,
    /// True for a known file system on a block device of this machine.
    pub is_local: bool,
    /// True if names, owners and permissions are kept as given, or an error is reported.
    pub keeps_as_given: bool,
    /// True if a sync of the device has the same effect on a file as a sync of the file.
    pub syncs_as_a_whole: bool,
    /// True if [`SourceFile::next_data`](crate::SourceFile::next_data) never reports data as a
    /// hole.
    pub reports_holes: bool,
    /// Lengths of files that can be relied on.
    pub lengths: Lengths,
    /// True if [`SinkFile::reserve`](crate::SinkFile::reserve) reserves space at the cost of one
    /// call, and does not change how the bytes are stored.
    pub reserves: bool,
    /// True if space is preallocated for a writer that extends a file, so that ranges that are left
    /// out have to be given back.
    pub preallocates: bool,
    /// Files between which [`Offload::Copy`](crate::Offload::Copy) saves a round trip of the bytes.
    pub copies_by_itself: CopiesByItself,
    /// True if lost bytes may be reported only when a file is closed.
    pub close_may_fail: bool,
    /// True for Lustre, whose attributes describe the placement of a file.
    pub is_lustre: bool,
}

/// Lengths of regular files that certainly are the number of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All.
    Certain,
    /// All but 0, which files have that a server generates when they are read.
    CertainUnlessZero,
    /// None: the files are computed when they are read.
    Uncertain,
}

impl Lengths {
    /// Returns true if a file that reports `len` bytes certainly has that many.
    pub fn is_certain(self, len: u64) -> bool {
        match self {
            Lengths::Certain => true,
            Lengths::CertainUnlessZero => len > 0,
            Lengths::Uncertain => false,
        }
    }
}

/// Files that a storage copies by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiesByItself {
    /// None.
    None,
    /// Files on the same device.
    SameDevice,
    /// Files on all devices of its kind.
    All,
}
