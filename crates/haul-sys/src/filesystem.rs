//! File-system properties that determine how a file is best copied.

use rustix::fd::AsFd;
use rustix::fs::StatVfsMountFlags;
use std::io;

/// `f_type` of file systems whose server can copy a file by itself, from statfs(2): NFS, SMB2/3,
/// CIFS, Ceph.
const COPY_ON_SERVER: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];

/// `f_type` of FUSE file systems, from statfs(2).
const FUSE: u32 = 0x6573_5546;

/// Returns true if the file system of `sink` may carry out copy_file_range(2) itself, which saves a
/// round trip of the bytes.
///
/// `same_device`: true if the source is on the same file system. A FUSE file system cannot copy
/// from another one. A file system whose type cannot be queried is treated as local.
pub fn copies_by_itself(sink: impl AsFd, same_device: bool) -> bool {
    // Only 32 bits of the field are significant; its type differs between architectures.
    rustix::fs::fstatfs(sink).is_ok_and(|found| kind_copies_by_itself(found.f_type as u32, same_device))
}

fn kind_copies_by_itself(kind: u32, same_device: bool) -> bool {
    COPY_ON_SERVER.contains(&kind) || (kind == FUSE && same_device)
}

/// `f_type` of XFS, from statfs(2).
const XFS: u32 = 0x5846_5342;

/// Returns true if the file system of a file preallocates space for a writer that extends it, like
/// XFS. If the writer then skips a range, the preallocated space stays in what should be a hole.
pub fn preallocates(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type as u32 == XFS)
}

/// Returns true if a copy with a digest may rely on SEEK_DATA for a file.
///
/// These are file systems of the kernel that never reported data as a hole. Other file systems did
/// (OpenZFS issue 15526), or depend on a daemon or a server.
pub fn reports_holes(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| {
        let kind = found.f_type as u32;
        LOCAL.contains(&kind) || kind == IN_MEMORY[0]
    })
}

/// Returns true if a regular file that reports `len` bytes certainly has that many. `place` is the
/// file, or its directory.
///
/// Other files are read to find their length: file systems that compute their files report 0 bytes
/// or a page, and FUSE and 9p may report 0 bytes for a document that a server generates when it is
/// read.
pub fn is_length_certain(place: impl AsFd, len: u64) -> bool {
    rustix::fs::fstatfs(place).is_ok_and(|found| kind_is_length_certain(found.f_type as u32, len))
}

fn kind_is_length_certain(kind: u32, len: u64) -> bool {
    match kind {
        kind if COMPUTED.contains(&kind) => false,
        kind if LOCAL.contains(&kind) || IN_MEMORY.contains(&kind) || STORED.contains(&kind) => true,
        kind if COPY_ON_SERVER.contains(&kind) => true,
        _ => len > 0,
    }
}

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
    0x0bd0_0bd0,
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

/// Free space of the file system of a file.
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

/// `f_type` of file systems whose fallocate(2) only marks extents, from statfs(2): ext4, XFS, F2FS.
const RESERVING: [u32; 3] = [0xef53, XFS, 0xf2f5_2010];

/// Returns the free space of the file system of a file.
///
/// # Errors
///
/// Returns the errors of fstatfs(2).
pub fn space(fd: impl AsFd) -> io::Result<Space> {
    let found = rustix::fs::fstatfs(fd)?;
    let unit = u64::try_from(found.f_bsize).unwrap_or(0);
    let free = (found.f_blocks > 0).then(|| found.f_bfree.saturating_mul(unit));
    Ok(Space { free, reserves: RESERVING.contains(&(found.f_type as u32)) })
}

/// `f_type` of local file systems on block devices, from statfs(2): ext2 to ext4, XFS, btrfs, F2FS.
const LOCAL: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// Returns true if a file is on a block device of this machine, in one of the known file systems
/// (`LOCAL`).
pub fn is_local(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| LOCAL.contains(&(found.f_type as u32)))
}

/// Returns true if a file system is known to keep names, owners and permissions as given, or to
/// report an error.
///
/// vfat, exFAT and many FUSE file systems treat `a` and `A` as the same name, or report success and
/// keep the old mode. Servers may have users of their own.
pub fn keeps_as_given(fd: impl AsFd) -> bool {
    is_local(&fd) || backing(fd) != Backing::Storage
}

/// Returns true if syncfs(2) has the same effect for a file as fsync(2).
///
/// Other file systems may only push pages to a server or a daemon, without a request to store them.
/// Plain FUSE file systems never receive syncfs.
pub fn syncs_as_a_whole(fd: impl AsFd) -> bool {
    is_local(fd)
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

/// `f_type` of file systems in memory, from statfs(2): tmpfs, ramfs, hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Returns the backing of the page cache of a file. A file system whose type cannot be queried is
/// treated as storage.
pub fn backing(fd: impl AsFd) -> Backing {
    rustix::fs::fstatfs(fd).map_or(Backing::Storage, |found| backing_of(found.f_type as u32))
}

fn backing_of(kind: u32) -> Backing {
    match kind {
        OVERLAY => Backing::FileBelow,
        kind if IN_MEMORY.contains(&kind) => Backing::Memory,
        _ => Backing::Storage,
    }
}

/// `f_type` of overlayfs, from statfs(2).
const OVERLAY: u32 = 0x794c_7630;

/// Returns true for a file system, or a mount of one, that is read-only.
pub fn is_read_only(fd: impl AsFd) -> bool {
    rustix::fs::fstatvfs(fd).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Returns true if a file is on overlayfs. There a directory gets a new birth time when the first
/// name is created in it.
pub fn is_overlay(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type as u32 == OVERLAY)
}

/// `f_type` of Lustre, from its published headers.
const LUSTRE: u32 = 0x0bd0_0bd0;

/// Returns true if a file is on Lustre.
pub fn is_lustre(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type as u32 == LUSTRE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_system_has_no_copy_offload() {
        assert!(!copies_by_itself(tempfile::tempfile().unwrap(), true));
    }

    #[test]
    fn tmpfs_is_memory_and_overlay_is_backed_by_another_file() {
        assert_eq!(backing_of(0x0102_1994), Backing::Memory);
        assert_eq!(backing_of(OVERLAY), Backing::FileBelow);
        assert_eq!(backing_of(0xef53), Backing::Storage);
        assert_eq!(backing(std::fs::File::open("/proc/self/stat").unwrap()), Backing::Storage);
    }

    #[test]
    fn lengths_are_certain_where_they_are_stored() {
        // NFS, ext4, tmpfs, overlayfs: certain. FUSE, 9p: unless 0. proc, sysfs: never.
        let kinds = [0x6969, 0xef53, IN_MEMORY[0], OVERLAY, FUSE, 0x0102_1997, 0x9fa0, 0x6265_6572];
        let certain = |len| kinds.map(|kind| kind_is_length_certain(kind, len));
        assert_eq!(certain(0), [true, true, true, true, false, false, false, false]);
        assert_eq!(certain(4096), [true, true, true, true, true, true, false, false]);
        let open = |path| std::fs::File::open(path).unwrap();
        assert!(!is_length_certain(open("/proc/self/stat"), 0) && !is_length_certain(open("/proc"), 0));
        assert!(is_length_certain(open("/dev/shm"), 0));
    }

    #[test]
    fn permissions_are_trusted_only_on_known_file_systems() {
        assert!(keeps_as_given(std::fs::File::open("/dev/shm").unwrap()), "tmpfs");
        assert!(
            !keeps_as_given(std::fs::File::open("/proc/self").unwrap()),
            "a kind that is not in the lists"
        );
    }

    #[test]
    fn only_local_file_systems_are_synced_as_a_whole() {
        // procfs stores nothing.
        assert!(!syncs_as_a_whole(std::fs::File::open("/proc/self/stat").unwrap()));
        assert!(!LOCAL.contains(&FUSE) && LOCAL.contains(&0xef53));
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
            let found = [true, false].map(|same| kind_copies_by_itself(kind, same));
            assert_eq!(found, [from_itself, from_elsewhere], "{kind:x}");
        }
    }
}
