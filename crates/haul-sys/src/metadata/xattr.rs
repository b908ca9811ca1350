//! Extended attributes of open files and of names.

use crate::open::proc_path;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, XattrFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Size, in bytes, of the first buffer for a list or a value. Nearly all fit, and then one call is
/// enough.
const FIRST_BYTES: usize = 1024;

/// Owner of the attributes.
///
/// A descriptor opened with `O_PATH`, as of a symbolic link or a special file, is reached through
/// /proc. Except for lists, so is a name, because the kernel (before 6.13) has no call for a name
/// in a directory. A link in the last component is not followed.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// An open file, also one opened with `O_PATH`.
    File(BorrowedFd<'a>),
    /// A name in an open directory; with [`CWD`], a path.
    Name(BorrowedFd<'a>, &'a CStr),
}

/// Attribute that holds the access permissions of a file beyond its mode: a POSIX access control
/// list, in the form by which the kernel exposes it.
pub const ACL_ACCESS: &CStr = c"system.posix_acl_access";

/// Attribute that holds the initial access control list of new files in a directory.
pub const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// Returns the names of all attributes visible to this user, with their namespaces. Returns an
/// empty list if the file system has none.
///
/// # Errors
///
/// Returns the errors of listxattr(2) except `EOPNOTSUPP`.
pub fn list_xattrs(place: Place<'_>) -> io::Result<Vec<CString>> {
    let found = match place {
        Place::File(fd) => match grow(|buffer| rustix::fs::flistxattr(fd, buffer)) {
            Err(Errno::BADF) => grow(|buffer| rustix::fs::listxattr(proc_path(fd), buffer)),
            other => other,
        },
        Place::Name(dir, name) => match grow(|buffer| list_at(dir, name, buffer)) {
            // Sandboxes return EPERM for system calls that they do not know. The fallback returns a
            // genuine EPERM again.
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

/// Returns the value of an attribute, or `None` if the file has no such attribute.
///
/// # Errors
///
/// Returns the errors of getxattr(2) except `ENODATA`; `EOPNOTSUPP` if the file system does not
/// support the namespace.
pub fn get_xattr(place: Place<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let path = place.path();
    let found = grow(|buffer| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lgetxattr(path.as_path(), name, buffer),
        (Place::File(fd) | Place::Name(fd, _), _) => match rustix::fs::fgetxattr(fd, name, &mut *buffer) {
            Err(Errno::BADF) => rustix::fs::getxattr(proc_path(*fd), name, buffer),
            other => other,
        },
    });
    match found {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets an attribute; replaces an existing value.
///
/// # Errors
///
/// Returns the errors of setxattr(2): `EOPNOTSUPP`, `EPERM`, `ENOSPC`, `E2BIG`, ...
pub fn set_xattr(place: Place<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = place.path();
    let flags = XattrFlags::empty();
    Ok(retry_on_intr(|| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lsetxattr(path.as_path(), name, value, flags),
        (Place::File(fd) | Place::Name(fd, _), _) => match rustix::fs::fsetxattr(fd, name, value, flags) {
            Err(Errno::BADF) => rustix::fs::setxattr(proc_path(*fd), name, value, flags),
            other => other,
        },
    })?)
}

/// Removes an attribute. Returns false if the file has no such attribute.
///
/// # Errors
///
/// Returns the errors of removexattr(2) except `ENODATA`.
pub fn remove_xattr(place: Place<'_>, name: &CStr) -> io::Result<bool> {
    let path = place.path();
    let removed = retry_on_intr(|| match (&place, &path) {
        (Place::Name(..), Some(path)) => rustix::fs::lremovexattr(path.as_path(), name),
        (Place::File(fd) | Place::Name(fd, _), _) => match rustix::fs::fremovexattr(fd, name) {
            Err(Errno::BADF) => rustix::fs::removexattr(proc_path(*fd), name),
            other => other,
        },
    });
    match removed {
        Ok(()) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl<'a> Place<'a> {
    /// Refers to the attributes of an open file.
    pub fn file(fd: &'a impl AsFd) -> Place<'a> {
        Place::File(fd.as_fd())
    }

    /// Refers to the attributes of a name; for a symbolic link, those of the link itself.
    pub fn name(dir: &'a impl AsFd, name: &'a CStr) -> Place<'a> {
        Place::Name(dir.as_fd(), name)
    }

    /// Returns the open file, or the directory of the name. Both are on the same file system,
    /// unless another one is mounted at the name.
    pub fn fd(&self) -> BorrowedFd<'a> {
        match self {
            Place::File(fd) | Place::Name(fd, _) => *fd,
        }
    }

    /// Returns the path through which a name is reached, or `None` for an open file.
    fn path(&self) -> Option<PathBuf> {
        let Place::Name(dir, name) = self else { return None };
        let name = Path::new(OsStr::from_bytes(name.to_bytes()));
        if dir.as_raw_fd() == CWD.as_raw_fd() {
            return Some(name.to_owned());
        }
        // An absolute name replaces the path before it, as in openat(2).
        Some(Path::new(&proc_path(*dir)).join(name))
    }
}

/// Calls listxattrat(2) (since Linux 6.13), which lists the attributes of a name without the detour
/// through /proc and saves four lookups.
fn list_at(dir: BorrowedFd<'_>, name: &CStr, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let flags = AtFlags::SYMLINK_NOFOLLOW.bits();
    // SAFETY: listxattrat(dirfd, path, flags, list, size) reads the NUL-terminated `name` and
    // writes at most `size` bytes to `list`. Both are borrowed for longer than the call.
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

/// System call number of listxattrat(2), the same on every architecture except alpha.
const SYS_LISTXATTRAT: libc::c_long = 465;

/// Calls `call` with larger and larger buffers until the result fits. The kernel limits a value and
/// a list to 64 KiB, so this terminates.
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
            // Some file systems exceed the kernel's limit for lists, but none exceeds a mebibyte.
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => buffer.resize(buffer.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}
