//! Owner, mode, times and extended attributes.
//!
//! Calls ending in `_fd` act on an open file, also one opened with `O_PATH`, such as a symbolic
//! link or a device. Calls ending in `_at` act on a name, which another process can replace
//! meanwhile. No call follows a symbolic link in the last component.

mod xattr;

pub use xattr::{ACL_ACCESS, ACL_DEFAULT, Place, get_xattr, list_xattrs, remove_xattr, set_xattr};

use crate::open::{hold_at, proc_path};
use crate::stat::{Stat, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, Gid, Mode, Timestamps, UTIME_OMIT, Uid};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::ffi::CStr;
use std::io;

/// Times to set on a file; `None` leaves a time unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Option<Timespec>,
    /// Last change of the contents.
    pub mtime: Option<Timespec>,
}

impl Times {
    /// Returns both times of a stat result.
    pub fn of(stat: &Stat) -> Times {
        Times { atime: Some(stat.atime), mtime: Some(stat.mtime) }
    }

    fn to_rustix(self) -> Timestamps {
        let time = |t: Option<Timespec>| match t {
            Some(t) => rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
            None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        Timestamps { last_access: time(self.atime), last_modification: time(self.mtime) }
    }
}

/// Returns true if a file system supports a property but could not store its value: the value does
/// not fit (`ENOSPC`, `EDQUOT`, `E2BIG`, `ERANGE`), or the storage failed (`EIO`).
pub fn is_unstored(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE | Errno::IO))
}

/// Sets owner and group of an open file; `None` leaves a value unchanged.
///
/// The kernel may clear setuid and setgid during the call, so set the mode after the owner.
///
/// # Errors
///
/// Returns the errors of fchown(2); `EPERM` without privilege.
pub fn set_owner_fd(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fchown(&fd, user(uid), group(gid))) {
        Err(Errno::BADF) => set_owner_held(fd, uid, gid),
        other => Ok(other?),
    }
}

/// Same as [`set_owner_fd`] for a name; for a symbolic link, sets the owner of the link itself.
///
/// # Errors
///
/// Returns the errors of fchownat(2).
pub fn set_owner_at(dir: impl AsFd, name: impl Arg, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    let name = name.into_c_str()?;
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    Ok(retry_on_intr(|| rustix::fs::chownat(&dir, &*name, user(uid), group(gid), nofollow))?)
}

/// Sets all bits of `0o7777` of the mode of an open file, regardless of the umask.
///
/// # Errors
///
/// Returns the errors of fchmod(2).
pub fn set_mode_fd(fd: impl AsFd, mode: u32) -> io::Result<()> {
    match retry_on_intr(|| rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o7777))) {
        Err(Errno::BADF) => set_mode_held(fd, mode),
        other => Ok(other?),
    }
}

/// Same as [`set_mode_fd`] for a name. A symbolic link has no mode of its own and fails with
/// `EOPNOTSUPP`.
///
/// # Errors
///
/// Returns the errors of fchmodat2(2), or of the fallback through /proc if the kernel (before 6.6)
/// lacks that call.
pub fn set_mode_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<()> {
    let name = name.into_c_str()?;
    match fchmodat2(dir.as_fd(), &name, mode, AtFlags::SYMLINK_NOFOLLOW) {
        // Sandboxes return EPERM for system calls that they do not know. The fallback returns a
        // genuine EPERM again.
        Err(Errno::NOSYS | Errno::PERM) => set_mode_by_handle(dir, &name, mode),
        other => Ok(other?),
    }
}

fn fchmodat2(dir: BorrowedFd<'_>, name: &CStr, mode: u32, flags: AtFlags) -> Result<(), Errno> {
    retry_on_intr(|| {
        // SAFETY: fchmodat2(dirfd, path, mode, flags) reads the NUL-terminated `name`, which
        // outlives the call, and writes nothing.
        let result = unsafe {
            libc::syscall(SYS_FCHMODAT2, dir.as_raw_fd(), name.as_ptr(), mode & 0o7777, flags.bits())
        };
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
        }
    })
}

/// Same as [`set_owner_fd`] for a file opened with `O_PATH`.
///
/// # Errors
///
/// Returns the errors of fchownat(2).
pub fn set_owner_held(held: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::chownat(&held, c"", user(uid), group(gid), AtFlags::EMPTY_PATH))?)
}

/// Same as [`set_mode_fd`] for a file opened with `O_PATH` that is not a symbolic link. Needs
/// /proc on kernels before 6.6.
///
/// # Errors
///
/// Returns the errors of fchmodat2(2) and chmod(2); `ENOENT` without /proc.
pub fn set_mode_held(held: impl AsFd, mode: u32) -> io::Result<()> {
    match fchmodat2(held.as_fd(), c"", mode, AtFlags::EMPTY_PATH) {
        // As in `set_mode_at`.
        Err(Errno::NOSYS | Errno::PERM) => {}
        other => return Ok(other?),
    }
    let path = proc_path(held.as_fd());
    let mode = Mode::from_raw_mode(mode & 0o7777);
    Ok(retry_on_intr(|| rustix::fs::chmodat(rustix::fs::CWD, &path, mode, AtFlags::empty()))?)
}

/// Opens the name with `O_PATH`, checks that it is not a symbolic link, and sets the mode through
/// that descriptor.
fn set_mode_by_handle(dir: impl AsFd, name: &CStr, mode: u32) -> io::Result<()> {
    let held = hold_at(dir, name)?;
    if crate::stat::stat_fd(&held)?.kind == crate::stat::FileKind::Symlink {
        return Err(Errno::OPNOTSUPP.into());
    }
    set_mode_held(held, mode)
}

/// Sets the times of an open file, in nanoseconds if the file system supports that resolution.
///
/// # Errors
///
/// Returns the errors of futimens(3).
pub fn set_times_fd(fd: impl AsFd, times: Times) -> io::Result<()> {
    let times = times.to_rustix();
    let empty = AtFlags::EMPTY_PATH;
    match retry_on_intr(|| rustix::fs::futimens(&fd, &times)) {
        Err(Errno::BADF) => match retry_on_intr(|| rustix::fs::utimensat(&fd, c"", &times, empty)) {
            // Kernels before 5.8 lack the flag.
            Err(Errno::INVAL) => {
                let path = proc_path(fd.as_fd());
                let none = AtFlags::empty();
                Ok(retry_on_intr(|| rustix::fs::utimensat(rustix::fs::CWD, &path, &times, none))?)
            }
            other => Ok(other?),
        },
        other => Ok(other?),
    }
}

/// Same as [`set_times_fd`] for a name; for a symbolic link, sets the times of the link itself.
///
/// # Errors
///
/// Returns the errors of utimensat(2).
pub fn set_times_at(dir: impl AsFd, name: impl Arg, times: Times) -> io::Result<()> {
    let name = name.into_c_str()?;
    let times = times.to_rustix();
    Ok(retry_on_intr(|| rustix::fs::utimensat(&dir, &*name, &times, AtFlags::SYMLINK_NOFOLLOW))?)
}

/// Excludes the ID of all ones: chown(2) leaves the owner unchanged for it.
fn user(uid: Option<u32>) -> Option<Uid> {
    uid.filter(|&id| id != u32::MAX).map(Uid::from_raw)
}

fn group(gid: Option<u32>) -> Option<Gid> {
    gid.filter(|&id| id != u32::MAX).map(Gid::from_raw)
}

/// System call number of fchmodat2(2), the same on every architecture except alpha.
const SYS_FCHMODAT2: libc::c_long = 452;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::{Follow, stat_at};

    #[test]
    fn set_mode_by_handle_sets_modes_and_refuses_symlinks() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let dir = std::fs::File::open(place.path()).expect("opens");
        let file = crate::open::create_new_at(&dir, c"file", 0o600).expect("made");
        crate::open::symlink_at("file", &dir, c"link").expect("made");
        for mode in [0o4711, 0o000, 0o644] {
            set_mode_by_handle(&dir, c"file", mode).expect("set");
            assert_eq!(stat_at(&dir, c"file", Follow::No).expect("found").mode, mode);
        }
        let error = set_mode_by_handle(&dir, c"link", 0o777).expect_err("a link has no mode");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP));
        assert_eq!(crate::stat::stat_fd(&file).expect("found").mode, 0o644);
    }

    /// The times and attributes of a symbolic link are its own; the target stays as it was.
    #[test]
    fn metadata_is_set_through_path_descriptors_of_every_kind() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let dir = std::fs::File::open(place.path()).expect("opens");
        crate::open::create_new_at(&dir, c"file", 0o600).expect("made");
        crate::open::symlink_at("file", &dir, c"link").expect("made");
        crate::open::mkdir_at(&dir, c"dir", 0o300).expect("made");
        crate::open::mknod_at(&dir, c"pipe", crate::FileKind::Fifo, 0o600, 0).expect("made");
        let time = |sec| Some(Timespec { sec, nsec: 5 });
        for (at, name) in (1_000_000..).zip([c"link", c"dir", c"pipe", c"file"]) {
            let held = crate::open::hold_at(&dir, name).expect("held");
            let found = crate::stat::stat_fd(&held).expect("found");
            set_owner_fd(&held, Some(found.uid), Some(found.gid)).expect("its own owner may be set");
            if found.kind == crate::FileKind::Symlink {
                assert!(set_mode_fd(&held, 0o711).is_err(), "a link has no mode");
            } else {
                set_mode_fd(&held, 0o711).expect("set");
            }
            if matches!(found.kind, crate::FileKind::Directory | crate::FileKind::Regular) {
                let place = Place::file(&held);
                set_xattr(place, c"user.note", b"value").expect("set");
                assert_eq!(get_xattr(place, c"user.note").expect("read").as_deref(), Some(&b"value"[..]));
                assert!(list_xattrs(place).expect("listed").iter().any(|one| one.as_c_str() == c"user.note"));
                assert!(remove_xattr(place, c"user.note").expect("removed"));
            }
            set_times_fd(&held, Times { atime: time(at), mtime: time(at) }).expect("set");
        }
        for (at, name) in (1_000_000..).zip([c"link", c"dir", c"pipe", c"file"]) {
            let found = stat_at(&dir, name, Follow::No).expect("found");
            assert_eq!((found.mtime.sec, found.mtime.nsec), (at, 5), "{name:?}");
            assert!(found.kind == crate::FileKind::Symlink || found.mode == 0o711, "{name:?}");
        }
    }

    #[test]
    fn owner_and_mode_are_set_through_a_path_descriptor() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let held = crate::dir::open_place_at(rustix::fs::CWD, place.path(), Follow::No).expect("held");
        let found = crate::stat::stat_fd(&held).expect("found");
        set_owner_held(&held, Some(found.uid), Some(found.gid)).expect("its own owner may be set");
        set_mode_held(&held, 0o711).expect("set");
        assert_eq!(crate::stat::stat_fd(&held).expect("found").mode, 0o711);
    }
}
