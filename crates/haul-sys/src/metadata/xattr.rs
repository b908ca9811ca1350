//! Extended attributes of open files and of names.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, XattrFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes tried first for a list or a value: nearly all fit, and then one call does.
const FIRST_BYTES: usize = 1024;

/// Whose attributes are meant.
///
/// Descriptors opened with O_PATH carry no attributes; symbolic links and special files are reached by
/// name. But for lists, a name is looked up by way of /proc, since the kernel (before 6.13) has no call for a
/// name beneath a directory, and a link in its last component is not followed.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// An open file.
    File(BorrowedFd<'a>),
    /// A name in an open directory; in [`CWD`], a path.
    Name(BorrowedFd<'a>, &'a CStr),
}

/// One attribute that could not be copied.
#[derive(Debug, Error)]
#[error("attribute {name:?}: {source}")]
pub struct XattrFailure {
    /// The attribute, with its namespace: `user.comment`.
    pub name: CString,
    /// Which side failed.
    pub side: XattrSide,
    /// What the kernel said.
    pub source: io::Error,
}

/// The side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSide {
    /// The attribute could not be read.
    Source,
    /// The attribute could not be set.
    Destination,
}

/// The names of all attributes that this user may see, with their namespaces. Empty where the file system
/// keeps none.
///
/// # Errors
/// What listxattr(2) reports, except `EOPNOTSUPP`.
pub fn list_xattrs(place: Place<'_>) -> io::Result<Vec<CString>> {
    let found = match place {
        Place::File(fd) => grow(|buffer| rustix::fs::flistxattr(fd, buffer)),
        Place::Name(dir, name) => match grow(|buffer| list_at(dir, name, buffer)) {
            // Sandboxes answer EPERM for calls they do not know; a real EPERM is found again by the detour.
            Err(Errno::NOSYS | Errno::PERM) => {
                let path = place.path().unwrap_or_default();
                grow(|buffer| rustix::fs::llistxattr(path.as_path(), buffer))
            }
            other => other,
        },
    };
    let bytes = match found {
        Ok(bytes) => bytes,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let names = bytes.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

/// The value of one attribute; `None` where the file has no such attribute.
///
/// # Errors
/// What getxattr(2) reports, except `ENODATA`; `EOPNOTSUPP` where the file system keeps none of that
/// namespace.
pub fn get_xattr(place: Place<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let path = place.path();
    let found = grow(|buffer| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lgetxattr(path.as_path(), name, buffer),
        (Place::File(fd) | Place::Name(fd, _), _) => rustix::fs::fgetxattr(fd, name, buffer),
    });
    match found {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets one attribute, new or replaced.
///
/// # Errors
/// What setxattr(2) reports: `EOPNOTSUPP`, `EPERM`, `ENOSPC`, `E2BIG`, ...
pub fn set_xattr(place: Place<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = place.path();
    let flags = XattrFlags::empty();
    Ok(retry_on_intr(|| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lsetxattr(path.as_path(), name, value, flags),
        (Place::File(fd) | Place::Name(fd, _), _) => rustix::fs::fsetxattr(fd, name, value, flags),
    })?)
}

/// Removes one attribute; false where there was none.
///
/// # Errors
/// What removexattr(2) reports, except `ENODATA`.
pub fn remove_xattr(place: Place<'_>, name: &CStr) -> io::Result<bool> {
    let path = place.path();
    let removed = retry_on_intr(|| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lremovexattr(path.as_path(), name),
        (Place::File(fd) | Place::Name(fd, _), _) => rustix::fs::fremovexattr(fd, name),
    });
    match removed {
        Ok(()) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Copies every attribute of `src` that `filter` wants, and goes on past those that fail. An attribute that
/// vanishes meanwhile is not a failure. Attributes that only `dst` has stay.
///
/// # Errors
/// Where the source's attributes could not be listed.
pub fn copy_xattrs(
    src: Place<'_>,
    dst: Place<'_>,
    filter: impl Fn(&CStr) -> bool,
) -> io::Result<Vec<XattrFailure>> {
    let mut failures = Vec::new();
    for name in list_xattrs(src)? {
        if !filter(&name) {
            continue;
        }
        let (side, source) = match get_xattr(src, &name) {
            Ok(None) => continue,
            Err(error) => (XattrSide::Source, error),
            Ok(Some(value)) => match set_xattr(dst, &name, &value) {
                Ok(()) => continue,
                Err(error) => (XattrSide::Destination, error),
            },
        };
        failures.push(XattrFailure { name, side, source });
    }
    Ok(failures)
}

impl<'a> Place<'a> {
    /// An open file's attributes.
    pub fn file(fd: &'a impl AsFd) -> Place<'a> {
        Place::File(fd.as_fd())
    }

    /// The attributes of what a name stands for, a symbolic link's own.
    pub fn name(dir: &'a impl AsFd, name: &'a CStr) -> Place<'a> {
        Place::Name(dir.as_fd(), name)
    }

    /// The path by which a name is reached; `None` for an open file.
    fn path(&self) -> Option<PathBuf> {
        let Place::Name(dir, name) = self else { return None };
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        if dir.as_raw_fd() == CWD.as_raw_fd() {
            return Some(name.to_owned());
        }
        // An absolute name replaces what stands before it, as in openat(2).
        Some(Path::new(&crate::open::proc_path(*dir)).join(name))
    }
}

/// listxattrat(2), since Linux 6.13: the same for a name without the way by /proc, which is four look-ups longer.
fn list_at(dir: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let flags = AtFlags::SYMLINK_NOFOLLOW.bits();
    // SAFETY: listxattrat(dirfd, path, flags, list, size) reads the NUL-terminated `name` and writes at most `size` bytes to
    // `list`: both are borrowed for longer than the call.
    let result = unsafe {
        libc::syscall(
            SYS_LISTXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            flags,
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    usize::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Number of listxattrat(2), the same on every architecture but alpha.
const SYS_LISTXATTRAT: libc::c_long = 465;

/// Calls with a larger and larger buffer until the answer fits. The kernel's own limit for a value and for
/// a list is 64 KiB, so this ends.
fn grow(mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut first = [0_u8; FIRST_BYTES];
    match retry_on_intr(|| call(&mut first)) {
        Ok(len) => return Ok(first[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(errno) => return Err(errno),
    }
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        match retry_on_intr(|| call(&mut buffer)) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            // Some file systems go beyond the kernel's limit for lists; a mebibyte is none's.
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}
