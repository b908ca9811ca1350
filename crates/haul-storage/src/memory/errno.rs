//! Numbers of the errors that a local file system returns on Linux. They are the same on all
//! architectures but Alpha, MIPS, PA-RISC and SPARC.

use std::io;

pub(super) const ENOENT: i32 = 2;
pub(super) const EIO: i32 = 5;
pub(super) const EEXIST: i32 = 17;
pub(super) const EXDEV: i32 = 18;
pub(super) const ENOTDIR: i32 = 20;
pub(super) const EISDIR: i32 = 21;
pub(super) const EINVAL: i32 = 22;
pub(super) const EPERM: i32 = 1;
pub(super) const EFBIG: i32 = 27;
pub(super) const ENOSPC: i32 = 28;
pub(super) const ERANGE: i32 = 34;
pub(super) const ENAMETOOLONG: i32 = 36;
pub(super) const ENOTEMPTY: i32 = 39;
pub(super) const ELOOP: i32 = 40;
pub(super) const EOPNOTSUPP: i32 = 95;

/// Returns the error with this number.
pub(super) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Fails with this number unless the condition holds.
pub(super) fn ensure(condition: bool, errno: i32) -> io::Result<()> {
    if condition { Ok(()) } else { Err(error(errno)) }
}
