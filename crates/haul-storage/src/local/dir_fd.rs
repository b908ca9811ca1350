//! Descriptors of directories, and proof that an entry is the one that this process made.
//!
//! Only regular files are created and opened in one call. Between the two calls for any other
//! entry, another process with write access to the directory can replace the name. Metadata must
//! then not go to the replacement.

use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{open_dir_at, open_place_at};
use haul_sys::open::{create_new_at, unlink_at};
use haul_sys::{Follow, Stat, process, stat};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// `errno` of a device that cannot read, the same on every architecture of Linux.
const EIO: i32 = 5;

/// A descriptor of a directory.
#[derive(Debug)]
pub(super) struct DirFd {
    pub(super) fd: OwnedFd,
    /// False if the directory was opened with `O_PATH`: it can then only resolve names.
    pub(super) is_readable: bool,
    /// Metadata from when the directory was opened.
    pub(super) opened: Stat,
}

impl DirFd {
    /// Opens a directory. One without read permission, or that the device cannot read, is opened
    /// with `O_PATH`: names in it may still be found.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn open(place: impl AsFd, path: &CStr, follow: Follow) -> io::Result<DirFd> {
        let (fd, is_readable) = match open_dir_at(&place, path, follow) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied || error.raw_os_error() == Some(EIO) =>
            {
                (open_place_at(place, path, follow)?, false)
            }
            opened => (opened?, true),
        };
        Ok(DirFd { opened: stat::stat_fd(&fd)?, fd, is_readable })
    }

    /// Opens the directory at a path of several names with `O_PATH`. Links that are followed stay
    /// beneath the directory `place`.
    ///
    /// # Errors
    /// Returns the errors of openat2(2).
    pub(super) fn open_beneath(place: impl AsFd, path: &CStr, links: Follow) -> io::Result<DirFd> {
        let fd = open_place_beneath(place, OsStr::from_bytes(path.to_bytes()), links)?;
        Ok(DirFd { opened: stat::stat_fd(&fd)?, fd, is_readable: false })
    }
}

/// Opens the directory `name` that was just made. Returns it if it is that directory.
///
/// # Errors
/// Returns the error of the failed system call, or an error if another process replaced the
/// directory.
pub(super) fn open_made_directory(place: &OwnedFd, name: &CStr) -> io::Result<DirFd> {
    let dir = DirFd::open(place, name, Follow::No)?;
    if is_own(place, &dir.opened)? { Ok(dir) } else { Err(replaced()) }
}

/// Returns true if this process can have made an entry of `place` with the metadata `found`: no
/// other user can create an entry that belongs to this one.
///
/// Some file systems give every new entry another owner, for example a server that maps root to
/// a user without rights. A new file then shows that owner.
///
/// # Errors
/// Returns the errors of creating, examining and removing that file.
pub(super) fn is_own(place: &OwnedFd, found: &Stat) -> io::Result<bool> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if found.uid == process::effective_user() {
        return Ok(true);
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = CString::new(format!(".haul-own-{}-{number:x}", std::process::id()))?;
    let new = create_new_at(place, name.as_c_str(), 0o600)?;
    unlink_at(place, name.as_c_str())?;
    Ok(stat::stat_fd(new)?.uid == found.uid)
}

/// Error for an entry that is not the made one.
pub(super) fn replaced() -> io::Error {
    io::Error::other("another process replaced it at once")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::needs::{Need, met_or_skip};
    use haul_sys::metadata::set_owner_at;
    use haul_sys::open::mkdir_at;

    #[test]
    fn a_directory_of_another_user_is_not_taken_for_the_made_one() {
        if !met_or_skip(&[Need::Root]) {
            return;
        }
        let home = tempfile::tempdir().expect("a folder");
        let place = open_dir_at(haul_sys::CWD, home.path(), Follow::No).expect("opens");
        mkdir_at(&place, c"planted", 0o700).expect("made");
        set_owner_at(&place, c"planted", Some(65534), Some(65534)).expect("given away");
        assert!(open_made_directory(&place, c"planted").is_err());
        mkdir_at(&place, c"own", 0o700).expect("made");
        assert!(open_made_directory(&place, c"own").is_ok());
        assert_eq!(std::fs::read_dir(home.path()).expect("lists").count(), 2, "no file of the check stays");
    }
}
