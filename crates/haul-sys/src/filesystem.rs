//! File-system properties that determine how a file is best copied.

use rustix::fd::AsFd;
use std::io;

/// `f_type` of file systems whose server can copy a file by itself, from statfs(2): NFS, SMB2/3,
/// CIFS, Ceph.
const COPY_ON_SERVER: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];

/// `f_type` of FUSE file systems, from statfs(2).
const FUSE: u32 = 0x6573_5546;

/// `f_type` of XFS, from statfs(2).
const XFS: u32 = 0x5846_5342;

/// `f_type` of overlayfs, from statfs(2).
const OVERLAY: u32 = 0x794c_7630;

/// `f_type` of Lustre, from its published headers.
const LUSTRE: u32 = 0x0bd0_0bd0;

/// `f_type` of file systems whose fallocate(2) only marks extents, from statfs(2): ext4, XFS, F2FS.
const RESERVING: [u32; 3] = [0xef53, XFS, 0xf2f5_2010];

/// `f_type` of local file systems on block devices, from statfs(2): ext2 to ext4, XFS, btrfs, F2FS.
const LOCAL: [u32; 4] = [0xef53, XFS, 0x9123_683e, 0xf2f5_2010];

/// `f_type` of file systems in memory, from statfs(2): tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// `f_type` of file systems whose files are computed when they are read, from statfs(2): proc,
/// sysfs, debugfs, tracefs, securityfs, configfs, cgroup, cgroup2, selinuxfs, smackfs, pstore,
/// binfmt_misc, resctrl.
const COMPUTED: [u32; 13] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0xf97c_ff8c,
    0x4341_5d53,
    0x6165_676c,
    0x4249_4e4d,
    0x0765_5821,
];

/// `f_type` of further file systems that store lengths, from statfs(2): overlayfs, Lustre, GPFS,
/// BeeGFS, ZFS, vfat, exFAT, squashfs, EROFS, ISO 9660, UDF.
const STORED: [u32; 11] = [
    OVERLAY,
    LUSTRE,
    0x4750_4653,
    0x1983_0326,
    0x2fc1_2fc1,
    0x4d44,
    0x2011_bab0,
    0x7371_7368,
    0xe0f5_e1e2,
    0x9660,
    0x1501_3346,
];

/// `f_type` of file systems that store everything locally and report no errors at close(2): ext2 to
/// ext4, XFS, btrfs, F2FS, tmpfs, ramfs, overlayfs, ZFS, bcachefs, vfat and exFAT.
const SILENT_AT_CLOSE: [u32; 11] = [
    0xef53,
    XFS,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x8584_58f6,
    OVERLAY,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x4d44,
    0x2011_bab0,
];

/// Flag of a read-only mount in `f_flags`, from statfs(2): `ST_RDONLY`.
const READ_ONLY: u64 = 1;

/// The file system of an open file, as one call of fstatfs(2) describes it.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// `f_type`; `None` if the kernel does not tell. Such a file system has none of the properties
    /// below, and its close(2) may fail.
    kind: Option<u32>,
    space: Option<Space>,
    is_read_only: bool,
}

/// Free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes, including those reserved for the superuser; `None` if the file system does not
    /// report them.
    pub free: Option<u64>,
    /// True if fallocate(2) reserves space at the cost of one call, and does not change how the
    /// bytes are stored. Btrfs does not compress reserved space, and an in-memory file system fills
    /// the pages.
    pub reserves: bool,
}

/// Backing of the page cache of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// None: the file system is in memory, and at most in swap.
    Memory,
    /// A file of another file system. Residency queries through this file system say nothing about
    /// its pages.
    FileBelow,
    /// A device, a server, or anything else that stores the bytes elsewhere.
    Storage,
}

/// Returns the free space of the file system of a file.
///
/// # Errors
///
/// Returns the errors of fstatfs(2).
pub fn space(fd: impl AsFd) -> io::Result<Space> {
    Ok(space_of(&rustix::fs::fstatfs(fd)?))
}

fn space_of(found: &rustix::fs::StatFs) -> Space {
    let unit = u64::try_from(found.f_bsize).unwrap_or(0);
    let free = (found.f_blocks > 0).then(|| found.f_bfree.saturating_mul(unit));
    Space { free, reserves: RESERVING.contains(&kind_of(found)) }
}

/// Only 32 bits of the field are significant; its type differs between architectures.
fn kind_of(found: &rustix::fs::StatFs) -> u32 {
    found.f_type as u32
}

impl FileSystem {
    /// Asks for the file system of an open file or directory.
    pub fn of(fd: impl AsFd) -> FileSystem {
        let found = rustix::fs::fstatfs(fd).ok();
        FileSystem {
            kind: found.as_ref().map(kind_of),
            space: found.as_ref().map(space_of),
            is_read_only: found.is_some_and(|found| found.f_flags as u64 & READ_ONLY != 0),
        }
    }

    fn is_one_of(self, kinds: &[u32]) -> bool {
        self.kind.is_some_and(|kind| kinds.contains(&kind))
    }

    /// Returns the free space at the time of the call, unless the kernel did not tell.
    pub fn space(self) -> Option<Space> {
        self.space
    }

    /// Returns true if the file system may carry out copy_file_range(2) to one of its files itself,
    /// which saves a round trip of the bytes.
    ///
    /// `same_device`: true if the source is on the same file system. A FUSE file system cannot copy
    /// from another one.
    pub fn copies_by_itself(self, same_device: bool) -> bool {
        self.is_one_of(&COPY_ON_SERVER) || (same_device && self.is_one_of(&[FUSE]))
    }

    /// Returns true if the file system preallocates space for a writer that extends a file, like
    /// XFS. If the writer then skips a range, the preallocated space stays in what should be a
    /// hole.
    pub fn preallocates(self) -> bool {
        self.is_one_of(&[XFS])
    }

    /// Returns true if a copy with a digest may rely on SEEK_DATA.
    ///
    /// These are file systems of the kernel that never reported data as a hole. Other file systems
    /// did (OpenZFS issue 15526), or depend on a daemon or a server.
    pub fn reports_holes(self) -> bool {
        self.is_one_of(&LOCAL) || self.is_one_of(&IN_MEMORY[..1])
    }

    /// Returns true if a regular file that reports `len` bytes certainly has that many.
    ///
    /// Other files are read to find their length: file systems that compute their files report 0
    /// bytes or a page, and FUSE and 9p may report 0 bytes for a document that a server generates
    /// when it is read.
    pub fn is_length_certain(self, len: u64) -> bool {
        let stores = [&LOCAL[..], &IN_MEMORY, &STORED, &COPY_ON_SERVER];
        match self.kind {
            None => false,
            Some(_) if self.is_one_of(&COMPUTED) => false,
            Some(_) => len > 0 || stores.iter().any(|kinds| self.is_one_of(kinds)),
        }
    }

    /// Returns true if the file system is on a block device of this machine, and one of the known
    /// ones (`LOCAL`).
    pub fn is_local(self) -> bool {
        self.is_one_of(&LOCAL)
    }

    /// Returns true if the file system is known to keep names, owners and permissions as given, or
    /// to report an error.
    ///
    /// vfat, exFAT and many FUSE file systems treat `a` and `A` as the same name, or report success
    /// and keep the old mode. Servers may have users of their own.
    pub fn keeps_as_given(self) -> bool {
        self.is_local() || self.backing() != Backing::Storage
    }

    /// Returns true if syncfs(2) has the same effect for a file as fsync(2).
    ///
    /// Other file systems may only push pages to a server or a daemon, without a request to store
    /// them. Plain FUSE file systems never receive syncfs.
    pub fn syncs_as_a_whole(self) -> bool {
        self.is_local()
    }

    /// Returns the backing of the page cache of its files.
    pub fn backing(self) -> Backing {
        if self.is_overlay() {
            Backing::FileBelow
        } else if self.is_one_of(&IN_MEMORY) {
            Backing::Memory
        } else {
            Backing::Storage
        }
    }

    /// Returns true for a file system, or a mount of one, that is read-only.
    pub fn is_read_only(self) -> bool {
        self.is_read_only
    }

    /// Returns true for overlayfs. There a directory gets a new birth time when the first name is
    /// created in it.
    pub fn is_overlay(self) -> bool {
        self.is_one_of(&[OVERLAY])
    }

    /// Returns true for Lustre.
    pub fn is_lustre(self) -> bool {
        self.is_one_of(&[LUSTRE])
    }

    /// Returns true if closing a file may report lost bytes: NFS, SMB, FUSE and others write back
    /// at close.
    pub fn close_may_fail(self) -> bool {
        !self.is_one_of(&SILENT_AT_CLOSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn of_kind(kind: u32) -> FileSystem {
        FileSystem { kind: Some(kind), space: None, is_read_only: false }
    }

    fn at(path: &str) -> FileSystem {
        FileSystem::of(File::open(path).unwrap())
    }

    #[test]
    fn local_file_system_has_no_copy_offload() {
        assert!(!FileSystem::of(tempfile::tempfile().unwrap()).copies_by_itself(true));
    }

    #[test]
    fn tmpfs_is_memory_and_overlay_is_backed_by_another_file() {
        assert_eq!(of_kind(0x0102_1994).backing(), Backing::Memory);
        assert_eq!(of_kind(OVERLAY).backing(), Backing::FileBelow);
        assert_eq!(of_kind(0xef53).backing(), Backing::Storage);
        assert_eq!(at("/proc/self/stat").backing(), Backing::Storage);
    }

    #[test]
    fn lengths_are_certain_where_they_are_stored() {
        // NFS, ext4, tmpfs, overlayfs: certain. FUSE, 9p: unless 0. proc, sysfs: never.
        let kinds = [0x6969, 0xef53, IN_MEMORY[0], OVERLAY, FUSE, 0x0102_1997, 0x9fa0, 0x6265_6572];
        let certain = |len| kinds.map(|kind| of_kind(kind).is_length_certain(len));
        assert_eq!(certain(0), [true, true, true, true, false, false, false, false]);
        assert_eq!(certain(4096), [true, true, true, true, true, true, false, false]);
        assert!(!at("/proc/self/stat").is_length_certain(0) && !at("/proc").is_length_certain(0));
        assert!(at("/dev/shm").is_length_certain(0));
    }

    #[test]
    fn permissions_are_trusted_only_on_known_file_systems() {
        assert!(at("/dev/shm").keeps_as_given(), "tmpfs");
        assert!(!at("/proc/self").keeps_as_given(), "a kind that is not in the lists");
    }

    #[test]
    fn only_local_file_systems_are_synced_as_a_whole() {
        // procfs stores nothing.
        assert!(!at("/proc/self/stat").syncs_as_a_whole());
        assert!(!LOCAL.contains(&FUSE) && LOCAL.contains(&0xef53));
    }

    #[test]
    fn a_file_system_that_cannot_be_asked_has_no_property() {
        let unknown = FileSystem { kind: None, space: None, is_read_only: false };
        assert!(!unknown.is_local() && !unknown.keeps_as_given() && !unknown.copies_by_itself(true));
        assert!(!unknown.is_length_certain(1) && unknown.close_may_fail());
        assert_eq!(unknown.backing(), Backing::Storage);
    }

    #[test]
    fn network_file_systems_offload_and_fuse_only_its_own_files() {
        const EXT4: u32 = 0xef53;
        for (kind, from_itself, from_elsewhere) in [
            (0x6969, true, true),      // NFS
            (0xfe53_4d42, true, true), // SMB2 and later
            (0xff53_4d42, true, true), // CIFS
            (0x00c3_6400, true, true), // Ceph
            (FUSE, true, false),
            (EXT4, false, false),
        ] {
            let found = [true, false].map(|same| of_kind(kind).copies_by_itself(same));
            assert_eq!(found, [from_itself, from_elsewhere], "{kind:x}");
        }
    }
}
