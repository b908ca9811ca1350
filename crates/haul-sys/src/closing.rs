//! Errors that a file system reports only when a file is closed.

use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use std::io;

/// Makes the file system report now the errors that it would report at close.
///
/// Closes a duplicate of the descriptor, which flushes the file like every close. The descriptor
/// stays open.
///
/// # Errors
///
/// Returns the errors of close(2): `EIO`, `ENOSPC`, `EDQUOT`. Also returns the error of fcntl(2) if
/// the descriptor cannot be duplicated.
pub fn flush(fd: impl AsFd) -> io::Result<()> {
    close(retry_on_intr(|| fcntl_dupfd_cloexec(&fd, 0))?)
}

/// Closes a descriptor and returns the error, which a drop would ignore.
///
/// # Errors
///
/// Returns the errors of close(2): `EIO`, `ENOSPC`, `EDQUOT`. The descriptor is closed even then.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: `into_raw_fd` released the only owner of this descriptor, so only this call closes
    // it.
    let closed = unsafe { libc::close(fd.into_raw_fd()) };
    match closed {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // On Linux the descriptor is closed even after EINTR, and no data was lost.
            error if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => Ok(()),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_flushed_file_stays_open() {
        let mut file = tempfile::tempfile().unwrap();
        flush(&file).unwrap();
        file.write_all(b"more").unwrap();
    }
}
