//! Opening, creating and removing names.
//!
//! Every name is resolved from an open directory. A tree may therefore be deeper than `PATH_MAX`,
//! and a concurrent replacement of a directory does not redirect any call.

use crate::stat::{FileKind, Follow, Stat, stat_fd};
use crate::transfer::write_all_at;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::Arg;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Custom flag for the options of the standard library (`custom_flags`) that opens no symbolic
/// link.
pub const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Behavior of a rename if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenameMode {
    /// Replaces the existing name atomically.
    Replace,
    /// Fails with `EEXIST`, or with `EINVAL` if the file system cannot guarantee that.
    NoReplace,
    /// Exchanges the two names. Fails with `EINVAL` if the file system does not support that.
    Exchange,
}

/// Opens a file to read its bytes.
///
/// Never blocks: if a named pipe has replaced a regular file, it is opened immediately (its reads
/// then block or end as for any reader). A stat of the descriptor reveals the pipe.
///
/// # Errors
///
/// Returns the errors of openat(2): `ELOOP` for a symbolic link that is not followed; `EINVAL` if
/// `direct` is set and the file system does not support direct I/O.
pub fn open_source_at(dir: impl AsFd, name: impl Arg, follow: Follow, direct: bool) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    if direct {
        flags |= OFlags::DIRECT;
    }
    let name = name.into_c_str()?;
    let open = |flags| retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()));
    let fd = match open(flags | OFlags::NONBLOCK) {
        Ok(fd) => fd,
        // Another process holds a lease on the file. Only a blocking open breaks the lease.
        Err(Errno::AGAIN) => return Ok(open(flags)?),
        Err(errno) => return Err(errno.into()),
    };
    // Only the open needs the flag: reads must wait for their data. On a newly opened file this
    // clears no other flag, because F_SETFL affects only the flags given here.
    let kept = if direct { OFlags::DIRECT } else { OFlags::empty() };
    retry_on_intr(|| rustix::fs::fcntl_setfl(&fd, kept))?;
    Ok(fd)
}

/// Opens an entry that its directory reports as a regular file, in one call; follows no link.
///
/// `O_NONBLOCK` stays on, so that a named pipe that has replaced the file does not block the call.
/// Reads of regular files ignore the flag. The caller must check the kind of the descriptor before
/// it reads.
///
/// # Errors
///
/// Returns the errors of openat(2): `ELOOP` for a symbolic link, `EAGAIN` for a file under a lease.
pub fn open_entry_at(dir: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Opens an entry of any kind with `O_PATH`, without following a symbolic link: the descriptor
/// refers to the same entry when its name changes. It gives no access to the data.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn hold_at(dir: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Opens a file to read it as a stream, and blocks if the file requires it: a named pipe until it
/// has a writer.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn open_stream_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// Creates a new regular file and opens it for writing and reading.
///
/// Never opens an existing file or the target of a symbolic link. The umask of the process applies
/// to `mode`.
///
/// # Errors
///
/// Returns `EEXIST` if the name exists, also as a dangling link, and the other errors of openat(2).
pub fn create_new_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, permissions(mode)))?)
}

/// Creates a regular file in `dir` that never has a name, for writing and reading. The file is
/// freed with its last descriptor.
///
/// If the file system does not support such files (NFS, FUSE), the name is removed immediately
/// after the file is created. A process killed between these two calls leaves the file as
/// `.haul-PID-NUMBER`.
///
/// # Errors
///
/// Returns the errors of openat(2) and unlinkat(2).
pub fn create_nameless(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(dir, flags, permissions(0o600))) {
        // EISDIR: the kernel knows only the part of the flag that means a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => create_and_unlink(dir),
        made => Ok(made?),
    }
}

/// Same as [`create_nameless`], in an open directory, which need not be readable.
///
/// # Errors
///
/// Returns the errors of openat(2) and unlinkat(2).
pub fn create_nameless_at(dir: impl AsFd) -> io::Result<OwnedFd> {
    create_nameless(Path::new(&proc_path(dir.as_fd())))
}

/// Creates a file without a name, in memory, with these bytes.
///
/// # Errors
///
/// Returns the errors of memfd_create(2) and pwrite(2).
pub fn create_in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"haul", MemfdFlags::CLOEXEC)?;
    write_all_at(&file, 0, bytes)?;
    Ok(file)
}

fn create_and_unlink(dir: &Path) -> io::Result<OwnedFd> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".haul-{}-{number}", std::process::id()));
    let file = create_new_at(CWD, &path, 0o600)?;
    unlink_at(CWD, &path)?;
    Ok(file)
}

/// Same as [`create_new_at`], but follows a dangling symbolic link and creates the file at its
/// target.
///
/// For callers that must do so (POSIX). Any user who may write to the directory of the link
/// determines where the file is created.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn create_through_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, permissions(mode)))?)
}

/// Opens an existing file for writing. It keeps its bytes.
///
/// The file is opened only for writing. Therefore a file whose mode forbids reading can still be
/// overwritten, and the open of a named pipe blocks until it has a reader.
///
/// # Errors
///
/// Returns the errors of openat(2).
pub fn open_existing_at(dir: impl AsFd, name: impl Arg, follow: Follow) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()))?)
}

/// An existing regular file that is open for writing.
#[derive(Debug)]
pub struct ForUpdate {
    /// The file.
    pub file: OwnedFd,
    /// Its metadata from after the open.
    pub found: Stat,
    /// True if the file is open for reading too.
    pub is_readable: bool,
}

/// Opens an existing regular file for writing, and for reading too if its mode permits that.
/// Returns `None` if the name belongs to an entry of another kind.
///
/// Never blocks on a named pipe: `O_NONBLOCK` is set for the open, and the kind of the open file
/// decides. Writes to regular files ignore the flag.
///
/// # Errors
///
/// Returns the errors of openat(2), except `EISDIR` and `ENXIO`, which other kinds cause, and
/// except `ELOOP` for a link that is not followed.
pub fn open_regular_for_update_at(
    dir: impl AsFd,
    name: impl Arg,
    follow: Follow,
) -> io::Result<Option<ForUpdate>> {
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | no_follow(follow);
    let name = name.into_c_str()?;
    let open_by = |flags| retry_on_intr(|| rustix::fs::openat(&dir, &*name, flags, Mode::empty()));
    let open = |access| match open_by(flags | access | OFlags::NONBLOCK) {
        // Another process holds a lease on the file. Only a blocking open breaks the lease.
        Err(Errno::AGAIN) => open_by(flags | access),
        opened => opened,
    };
    let (opened, is_readable) = match open(OFlags::RDWR) {
        Err(Errno::ACCESS) => (open(OFlags::WRONLY), false),
        opened => (opened, true),
    };
    match opened {
        Ok(file) => {
            let found = stat_fd(&file)?;
            Ok((found.kind == FileKind::Regular).then_some(ForUpdate { file, found, is_readable }))
        }
        Err(Errno::LOOP) if follow == Follow::No => Ok(None),
        Err(Errno::ISDIR | Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens the file that `fd` refers to again for reading, even if its name refers to another file
/// now. Needs /proc.
///
/// # Errors
///
/// Returns the errors of openat(2): `EACCES` if the mode of the file forbids reading. Without
/// /proc, returns an error that says so, of kind `NotFound`.
pub fn reopen_source(fd: impl AsFd, direct: bool) -> io::Result<OwnedFd> {
    open_source_at(CWD, proc_path(fd.as_fd()), Follow::Yes, direct).map_err(or_without_proc)
}

/// Returns the error of an open by way of /proc, or that /proc is not mounted, as in many chroot
/// environments.
fn or_without_proc(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && !Path::new("/proc/thread-self").exists() {
        return io::Error::new(error.kind(), "/proc is not mounted, and this step needs it");
    }
    error
}

/// Removes a name that is not a directory.
///
/// # Errors
///
/// Returns the errors of unlinkat(2).
pub fn unlink_at(dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&dir, &*name, AtFlags::empty()))?)
}

/// Removes an empty directory.
///
/// # Errors
///
/// Returns the errors of unlinkat(2); `ENOTEMPTY` if the directory is not empty.
pub fn rmdir_at(dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::unlinkat(&dir, &*name, AtFlags::REMOVEDIR))?)
}

/// Creates a directory. The umask applies to `mode`.
///
/// # Errors
///
/// Returns the errors of mkdirat(2).
pub fn mkdir_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<()> {
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::mkdirat(&dir, &*name, permissions(mode)))?)
}

/// Creates the symbolic link `name` to `target`. The target is stored unchanged and need not exist.
///
/// # Errors
///
/// Returns the errors of symlinkat(2).
pub fn symlink_at(target: impl Arg, dir: impl AsFd, name: impl Arg) -> io::Result<()> {
    let target = target.into_c_str()?;
    let name = name.into_c_str()?;
    Ok(retry_on_intr(|| rustix::fs::symlinkat(&*target, &dir, &*name))?)
}

/// Creates a second name for the file `old`. With [`Follow::No`], a symbolic link is linked itself.
///
/// # Errors
///
/// Returns the errors of linkat(2): `EXDEV`, `EMLINK`, `EPERM` for directories, ...
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

/// Renames within a file system, atomically.
///
/// # Errors
///
/// Returns the errors of renameat2(2); see [`RenameMode`].
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
        // Use the older call: kernels and file systems without support for flags have this one.
        RenameMode::Replace => {
            return Ok(retry_on_intr(|| rustix::fs::renameat(&old_dir, &*old, &new_dir, &*new))?);
        }
        RenameMode::NoReplace => RenameFlags::NOREPLACE,
        RenameMode::Exchange => RenameFlags::EXCHANGE,
    };
    Ok(retry_on_intr(|| rustix::fs::renameat_with(&old_dir, &*old, &new_dir, &*new, flags))?)
}

/// Creates a named pipe, the name of a socket, a device node or an empty regular file.
///
/// `rdev` is used only for devices. The umask applies to `mode`.
///
/// # Errors
///
/// Returns the errors of mknodat(2): `EPERM` for devices without privilege. Returns `EINVAL` for
/// any other kind.
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

/// Returns the target of a symbolic link, of any length.
///
/// # Errors
///
/// Returns the errors of readlinkat(2); `EINVAL` if the name is not a symbolic link.
pub fn read_link_at(dir: impl AsFd, name: impl Arg) -> io::Result<OsString> {
    let name = name.into_c_str()?;
    let target = retry_on_intr(|| rustix::fs::readlinkat(&dir, &*name, Vec::new()))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Returns a path that refers to the open file itself. Uses `thread-self` and not `self`, because a
/// thread may have its own descriptor table.
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
    fn nameless_file_is_usable_and_leaves_no_name() {
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

    #[test]
    fn only_regular_files_are_opened_for_update() {
        let dir = tempfile::tempdir().unwrap();
        let place = crate::dir::open_dir_at(CWD, dir.path(), Follow::No).unwrap();
        let file = create_new_at(&place, "file", 0o600).unwrap();
        write_all_at(&file, 0, b"bytes").unwrap();
        mkdir_at(&place, "dir", 0o700).unwrap();
        symlink_at("file", &place, "link").unwrap();
        mknod_at(&place, "pipe", FileKind::Fifo, 0o600, 0).unwrap();
        for other in ["dir", "link", "pipe"] {
            assert!(open_regular_for_update_at(&place, other, Follow::No).unwrap().is_none(), "{other}");
        }
        let error = open_regular_for_update_at(&place, "none", Follow::No).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let opened = open_regular_for_update_at(&place, "file", Follow::No).unwrap().unwrap();
        assert!(opened.is_readable && opened.found.size == 5);
        let mut bytes = [0; 5];
        assert_eq!(read_at(&opened.file, 0, &mut bytes).unwrap(), 5);
        write_all_at(&opened.file, 5, b" more").unwrap();
        // Root may read any file.
        crate::metadata::set_mode_at(&place, "file", 0o200).unwrap();
        let opened = open_regular_for_update_at(&place, "file", Follow::No).unwrap().unwrap();
        assert_eq!(opened.is_readable, crate::process::effective_user() == 0);
        write_all_at(&opened.file, 0, b"BYTES").unwrap();
        assert_eq!(opened.found.size, 10);
    }
}
