//! File metadata from the file system.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::io;

/// Metadata of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: `0` to `0o7777`.
    pub mode: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Length in bytes; for a symbolic link, the length of its target.
    pub size: u64,
    /// Number of names of the inode.
    pub nlink: u64,
    /// Device of the inode. An inode number is meaningful only together with the device.
    pub dev: u64,
    /// Inode number, unique within `dev`.
    pub ino: u64,
    /// Device that a character or block node refers to; 0 for all other kinds.
    pub rdev: u64,
    /// Preferred transfer size in bytes.
    pub blksize: u32,
    /// Allocated space in units of 512 bytes, regardless of the block size.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Birth time, if the file system stores it.
    pub btime: Option<Timespec>,
    /// True if a file system is mounted here, so that a descent may lead back up. Also true if the
    /// kernel (before 5.8) does not report it.
    pub may_be_mount_root: bool,
}

/// Point in time: seconds since 1970 and nanoseconds within the second (0 to 999,999,999).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespec {
    /// Seconds since the epoch; negative before it.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A kind that this program does not know.
    Unknown,
}

/// Treatment of a symbolic link in the last component of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Follow {
    /// The call acts on the target of the link.
    Yes,
    /// The call acts on the link itself.
    No,
}

impl Stat {
    /// Returns device and inode. Two names refer to the same file exactly if these are equal.
    pub fn identity(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Returns true if this is the same file as `then`: device and inode are equal, and so is the
    /// birth time if both are known. The birth time detects a reused inode number.
    pub fn is_same_file(&self, then: &Stat) -> bool {
        let same_birth = self.btime.is_none() || then.btime.is_none() || self.btime == then.btime;
        self.identity() == then.identity() && same_birth
    }

    /// Returns the major and minor numbers of a device file, the form that users and other systems
    /// use.
    pub fn device_numbers(&self) -> (u32, u32) {
        (rustix::fs::major(self.rdev), rustix::fs::minor(self.rdev))
    }

    /// Returns true if the file takes less space than its length, so that a search for holes may
    /// pay off. This is only a hint, because files on compressing file systems look sparse as well.
    pub fn is_sparse(&self) -> bool {
        u128::from(self.blocks) * 512 < u128::from(self.size)
    }
}

/// Returns the metadata of `name`, resolved from the directory `dir`.
///
/// # Errors
///
/// Returns the errors of statx(2): `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, ...
pub fn stat_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<Stat> {
    let nofollow = match follow {
        Follow::Yes => AtFlags::empty(),
        Follow::No => AtFlags::SYMLINK_NOFOLLOW,
    };
    let name = name.into_c_str()?;
    statx_or_stat(dir.as_fd(), &name, nofollow | AtFlags::NO_AUTOMOUNT)
}

/// Returns the metadata of an open file.
///
/// # Errors
///
/// Returns the errors of statx(2).
pub fn stat_fd(fd: impl AsFd) -> io::Result<Stat> {
    statx_or_stat(fd.as_fd(), c"", AtFlags::EMPTY_PATH)
}

/// Returns the device with these numbers.
pub fn device_of(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

fn statx_or_stat(fd: rustix::fd::BorrowedFd<'_>, name: &std::ffi::CStr, flags: AtFlags) -> io::Result<Stat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match retry_on_intr(|| rustix::fs::statx(fd, name, flags, wanted)) {
        Ok(statx) => Ok(from_statx(&statx)),
        // Sandboxes older than statx(2) reject it. fstatat(2) reports everything except the birth
        // time and the mount flag.
        Err(Errno::NOSYS) => {
            let stat = if flags.contains(AtFlags::EMPTY_PATH) {
                retry_on_intr(|| rustix::fs::fstat(fd))?
            } else {
                retry_on_intr(|| rustix::fs::statat(fd, name, flags))?
            };
            Ok(from_stat(&stat))
        }
        Err(errno) => Err(errno.into()),
    }
}

fn from_statx(x: &Statx) -> Stat {
    let time = |t: &rustix::fs::StatxTimestamp| Timespec { sec: t.tv_sec, nsec: t.tv_nsec };
    let has_btime = x.stx_mask & StatxFlags::BTIME.bits() != 0;
    let tells_mounts = x.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    Stat {
        kind: FileKind::from_rustix(rustix::fs::FileType::from_raw_mode(u32::from(x.stx_mode))),
        mode: u32::from(x.stx_mode) & 0o7777,
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        nlink: u64::from(x.stx_nlink),
        dev: rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor),
        ino: x.stx_ino,
        rdev: rustix::fs::makedev(x.stx_rdev_major, x.stx_rdev_minor),
        blksize: x.stx_blksize,
        blocks: x.stx_blocks,
        atime: time(&x.stx_atime),
        mtime: time(&x.stx_mtime),
        ctime: time(&x.stx_ctime),
        btime: has_btime.then(|| time(&x.stx_btime)),
        may_be_mount_root: !tells_mounts || x.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }
}

// The types of the fields differ between architectures, so on each some casts are unnecessary.
#[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
fn from_stat(s: &rustix::fs::Stat) -> Stat {
    let time = |sec, nsec| Timespec { sec, nsec };
    Stat {
        kind: FileKind::from_rustix(rustix::fs::FileType::from_raw_mode(s.st_mode)),
        mode: s.st_mode & 0o7777,
        uid: s.st_uid,
        gid: s.st_gid,
        size: s.st_size as u64,
        nlink: s.st_nlink as u64,
        dev: s.st_dev as u64,
        ino: s.st_ino as u64,
        rdev: s.st_rdev as u64,
        blksize: s.st_blksize as u32,
        blocks: s.st_blocks as u64,
        atime: time(s.st_atime as i64, s.st_atime_nsec as u32),
        mtime: time(s.st_mtime as i64, s.st_mtime_nsec as u32),
        ctime: time(s.st_ctime as i64, s.st_ctime_nsec as u32),
        btime: None,
        may_be_mount_root: true,
    }
}

impl FileKind {
    pub(crate) fn from_rustix(kind: rustix::fs::FileType) -> FileKind {
        use rustix::fs::FileType;
        match kind {
            FileType::RegularFile => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::Unknown => FileKind::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstat_matches_statx_except_birth_time_and_mount_root() {
        for path in ["/", "/dev/null", "/proc/self/status", "Cargo.toml"] {
            let file = std::fs::File::open(path).expect("every one of these opens");
            let older = from_stat(&rustix::fs::fstat(&file).expect("found"));
            let newer = stat_fd(&file).expect("found");
            assert_eq!(older, Stat { btime: None, may_be_mount_root: true, ..newer }, "{path}");
        }
    }
}
