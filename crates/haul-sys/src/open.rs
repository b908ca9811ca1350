//! Opening, making and removing names. Every name is resolved from an open directory, so a tree may lie
//! deeper than `PATH_MAX`, and a directory that is swapped meanwhile misleads nobody.

use crate::stat::{FileKind, Follow};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the standard library's options take, as custom flags, to open no symbolic link.
pub const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// What a rename does with a name that exists at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenameMode {
    /// It is replaced, in one step.
    Replace,
    /// The rename fails with `EEXIST`. `EINVAL` where the file system cannot promise that.
    NoReplace,
    /// The two names change places. `EINVAL` where the file system cannot do it.
    Exchange,
}

/// Opens a file to read its bytes. Never waits: a named pipe that took a regular file's place is opened at
/// once (its reads then wait or end as for any reader), and is seen by a stat of the descriptor.
///
/// # Errors
/// What openat(2) reports; `ELOOP` for a symbolic link that is not to be followed; `EINVAL` where `direct`
/// is asked of a file system without direct I/O.
pub fn open_source_at(dir: impl AsFd, name: impl Arg, follow: Follow, direct: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    if direct {
        flags |= OFlags::DIRECT;
    }
    let name = name.into_c_str()?;
    let open = |flags| retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()));
    let fd = match open(flags | OFlags::NONBLOCK) {
        Ok(fd) => fd,
        // Another process holds a lease on the file: only an open that may wait makes it give way.
        Err(Errno::AGAIN) => return Ok(open(flags)?),
        Err(errno) => return Err(errno.into()),
    };
    // The flag served the open alone: a read must wait for its data. Setting it on a file just opened can
    // drop no other flag, since F_SETFL touches only those given here.
    let kept = if direct { OFlags::DIRECT } else { OFlags::empty() };
    retry_on_intr(|| rustix::fs::fcntl_setfl(&fd, kept))?;
    Ok(fd)
}

/// Opens what a directory calls a regular file, in one call; follows no link. `O_NONBLOCK` stays on, so that a named
/// pipe that took the file's place is not waited for; reads of regular files don't heed it. The caller looks at the
/// descriptor's kind before it reads.
///
/// # Errors
/// What openat(2) reports: `ELOOP` for a symbolic link, `EAGAIN` for a file under a lease.
pub fn open_entry_at(dir: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Opens a file to read it, and waits where the file makes a reader wait: a named pipe until it has a
/// writer. For what is meant to be a stream.
///
/// # Errors
/// What openat(2) reports.
pub fn open_stream_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Makes a new regular file and opens it to write and to read back. Never opens what is there already, nor
/// what a symbolic link leads to. `mode` is cut by the process's umask.
///
/// # Errors
/// `EEXIST` where the name is taken, by a dangling link as well; else what openat(2) reports.
pub fn create_new_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, permissions(mode)))?)
}

/// Makes a regular file in `dir` that never has a name, to write and to read back; it goes with its last descriptor.
/// Where the file system has no such files (NFS, FUSE), its name is taken away at once: a process killed between those
/// two calls leaves it there, as `.haul-PID-NUMBER`.
///
/// # Errors
/// What openat(2) and unlinkat(2) report.
pub fn create_nameless(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(dir, flags, permissions(0o600))) {
        // EISDIR: so answers a kernel that knows only the part of the flag that means a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => create_and_unlink(dir),
        made => Ok(made?),
    }
}

/// As [`create_nameless`], in an open directory, which nobody needs to be allowed to read.
///
/// # Errors
/// What openat(2) and unlinkat(2) report.
pub fn create_nameless_at(dir: impl AsFd) -> io::Result<OwnedFd> {
    create_nameless(Path::new(&proc_path(dir.as_fd())))
}

fn create_and_unlink(dir: &Path) -> io::Result<OwnedFd> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".haul-{}-{number}", std::process::id()));
    let file = create_new_at(CWD, &path, 0o600)?;
    unlink_at(CWD, &path)?;
    Ok(file)
}

/// As [`create_new_at`], but through a symbolic link that leads to nothing yet: the file is made where it leads. For
/// those who ask for that (POSIX); whoever may write where the link lies says where the file comes to stand.
///
/// # Errors
/// What openat(2) reports.
pub fn create_through_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, permissions(mode)))?)
}

/// Opens a file that exists to write it, cut to no bytes first if `truncate`. For writing only: a file
/// whose mode forbids reading can still be overwritten, and a named pipe waits for its reader.
///
/// # Errors
/// What openat(2) reports.
pub fn open_existing_at(
    dir: impl AsFd,
    name: impl Arg,
    truncate: bool,
    follow: Follow,
) -> io::Result<OwnedFd> {
    let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    if truncate {
        flags |= OFlags::TRUNC;
    }
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Opens the very file that `fd` is open on once more, for reading, whatever its name leads to by now.
/// Needs /proc.
///
/// # Errors
/// What openat(2) reports: `EACCES` where the file's mode forbids reading, `ENOENT` without /proc.
pub fn reopen_source(fd: impl AsFd, direct: bool) -> io::Result<OwnedFd> {
    open_source_at(CWD, proc_path(fd.as_fd()), Follow::Yes, direct)
}

/// As [`reopen_source`], for reading and writing.
///
/// # Errors
/// What openat(2) reports: `EACCES` where the file may not be written, `ETXTBSY` for a program that runs, `EROFS`, ...
pub fn reopen_for_update(fd: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = proc_path(fd.as_fd());
    Ok(retry_on_intr(|| rustix::fs::openat(CWD, &path, flags, Mode::empty()))?)
}

/// Removes a name that is no directory.
///
/// # Errors
/// What unlinkat(2) reports.
pub fn unlink_at(dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&dir, &*name, AtFlags::empty()))?)
}

/// Removes an empty directory.
///
/// # Errors
/// What unlinkat(2) reports; `ENOTEMPTY` where it holds names.
pub fn rmdir_at(dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&dir, &*name, AtFlags::REMOVEDIR))?)
}

/// Makes a directory; `mode` is cut by the umask.
///
/// # Errors
/// What mkdirat(2) reports.
pub fn mkdir_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::mkdirat(&dir, &*name, permissions(mode)))?)
}

/// Makes `name` a symbolic link to `target`, which is taken as it is and need not exist.
///
/// # Errors
/// What symlinkat(2) reports.
pub fn symlink_at(target: impl Arg, dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let target = target.into_c_str()?;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::symlinkat(&*target, &dir, &*name))?)
}

/// Gives the file `old` a second name. With [`Follow::No`] a symbolic link gets the second name itself.
///
/// # Errors
/// What linkat(2) reports: `EXDEV`, `EMLINK`, `EPERM` for directories, ...
pub fn link_at(
    old_dir: impl AsFd,
    old: impl Arg,
    new_dir: impl AsFd,
    new: impl Arg,
    follow: Follow,
) -> io::Result<()> {
    let flags = if follow == Follow::Yes { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
    let old = old.into_c_str()?;
    let new = new.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::linkat(&old_dir, &*old, &new_dir, &*new, flags))?)
}

/// Renames within a file system, in one step.
///
/// # Errors
/// What renameat2(2) reports; see [`RenameMode`].
pub fn rename_at(
    old_dir: impl AsFd,
    old: impl Arg,
    new_dir: impl AsFd,
    new: impl Arg,
    mode: RenameMode,
) -> io::Result<()> {
    let old = old.into_c_str()?;
    let new = new.into_c_str()?;
    let flags = match mode {
        // The older call: kernels and file systems that lack flags have this one.
        RenameMode::Replace => {
            return Ok(retry_on_intr(|| rustix::fs::renameat(&old_dir, &*old, &new_dir, &*new))?);
        }
        RenameMode::NoReplace => RenameFlags::NOREPLACE,
        RenameMode::Exchange => RenameFlags::EXCHANGE,
    };
    Ok(retry_on_intr(|| rustix::fs::renameat_with(&old_dir, &*old, &new_dir, &*new, flags))?)
}

/// Makes a named pipe, a socket's name, a device node or an empty regular file. `rdev` matters for devices
/// only; `mode` is cut by the umask.
///
/// # Errors
/// What mknodat(2) reports: `EPERM` for devices without privilege. `EINVAL` for any other kind.
pub fn mknod_at(dir: impl AsFd, name: impl Arg, kind: FileKind, mode: u32, rdev: u64) -> io::Result<()> {
    let (kind, rdev) = match kind {
        FileKind::Fifo => (FileType::Fifo, 0),
        FileKind::Socket => (FileType::Socket, 0),
        FileKind::Regular => (FileType::RegularFile, 0),
        FileKind::CharDevice => (FileType::CharacterDevice, rdev),
        FileKind::BlockDevice => (FileType::BlockDevice, rdev),
        FileKind::Directory | FileKind::Symlink | FileKind::Unknown => return Err(Errno::INVAL.into()),
    };
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::mknodat(&dir, &*name, kind, permissions(mode), rdev))?)
}

/// What a symbolic link points to, of any length.
///
/// # Errors
/// What readlinkat(2) reports; `EINVAL` where the name is no symbolic link.
pub fn read_link_at(dir: impl AsFd, name: impl Arg) -> io::Result<OsString> {
    let name = name.into_c_str()?;
    let target = retry_on_intr(|| rustix::fs::readlinkat(&dir, &*name, Vec::new()))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// A path that leads to the open file itself. `thread-self` and not `self`: a thread may have a table of
/// descriptors of its own.
pub(crate) fn proc_path(fd: rustix::fd::BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", fd.as_raw_fd())
}

pub(crate) fn no_follow(follow: Follow) -> OFlags {
    match follow {
        Follow::Yes => OFlags::empty(),
        Follow::No => OFlags::NOFOLLOW,
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::{read_at, write_all_at};

    #[test]
    fn a_file_without_a_name_is_written_and_read_and_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        for make in [create_nameless, create_and_unlink] {
            let files = [make(dir.path()).unwrap(), make(dir.path()).unwrap()];
            for (file, byte) in files.iter().zip([3, 4]) {
                write_all_at(file, 5, &[byte]).unwrap();
            }
            for (file, byte) in files.iter().zip([3, 4]) {
                let mut found = [9; 6];
                assert_eq!(read_at(file, 0, &mut found).unwrap(), 6);
                assert_eq!(found, [0, 0, 0, 0, 0, byte]);
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
