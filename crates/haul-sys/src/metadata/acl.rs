//! POSIX access control lists, kept as the extended attributes that the kernel shows them as.

use super::xattr::{Place, get_xattr, remove_xattr, set_xattr};
use crate::stat::FileKind;
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use thiserror::Error;

/// The attribute that holds who may do what with a file, beyond its mode.
pub const ACL_ACCESS: &CStr = c"system.posix_acl_access";

/// The attribute that holds what new files in a directory start with.
pub const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// Why permissions could not be copied in full.
#[derive(Debug, Error)]
pub enum AclError {
    /// The source's list could not be read.
    #[error("reading the access control list: {0}")]
    Read(#[source] io::Error),
    /// The destination refused the list, or to part with its own. `EOPNOTSUPP`: it keeps no lists.
    #[error("setting the access control list: {0}")]
    Write(#[source] io::Error),
    /// The destination refused the mode.
    #[error("setting the mode: {0}")]
    Mode(#[source] io::Error),
}

impl AclError {
    /// What the kernel said.
    pub fn io(&self) -> &io::Error {
        match self {
            AclError::Read(error) | AclError::Write(error) | AclError::Mode(error) => error,
        }
    }
}

/// Gives `dst` the permissions of `src`: its access control list where it has one, the mode bits `mode`
/// (with setuid, setgid and sticky) in any case; for directories the default list, too. Lists that `dst`
/// has (inherited, perhaps) and `src` lacks are removed. File systems without lists count as files without
/// one; only where the source has a list that the destination cannot hold is that an error, and the mode
/// is set even then. Where the source's list can't be read, nothing is set.
///
/// # Errors
/// The first failure; what could still be done was done.
pub fn copy_acl(src: Place<'_>, dst: Place<'_>, kind: FileKind, mode: u32) -> Result<(), AclError> {
    let access = match copy_list(src, dst, ACL_ACCESS) {
        // The mode of a file with a list grants its group more than the list may: without the list it says nothing.
        Err(AclError::Read(error)) => return Err(AclError::Read(error)),
        other => other,
    };
    // After the list: chmod on a file with a list sets the list's mask, which the mode's group bits are.
    let chmod = match dst {
        Place::File(fd) => super::set_mode_fd(fd, mode),
        Place::Name(dir, name) => super::set_mode_at(dir, name, mode),
    };
    let default = if kind == FileKind::Directory { copy_list(src, dst, ACL_DEFAULT) } else { Ok(()) };
    access.and(chmod.map_err(AclError::Mode)).and(default)
}

/// Leaves `place` with its mode alone: an access control list that it has (inherited, perhaps) is removed. What new
/// files in a directory start with stays.
///
/// # Errors
/// What reading or removing a list reports; file systems without lists have none to remove.
pub fn drop_acl(place: Place<'_>) -> io::Result<()> {
    if get_list(place, ACL_ACCESS)?.is_some() {
        remove_xattr(place, ACL_ACCESS)?;
    }
    Ok(())
}

/// Removes the default access control list of the directory `place`.
///
/// # Errors
/// Errors of getxattr(2) and removexattr(2). A file system without lists is no error.
pub fn drop_default_acl(place: Place<'_>) -> io::Result<()> {
    if get_list(place, ACL_DEFAULT)?.is_some() {
        remove_xattr(place, ACL_DEFAULT)?;
    }
    Ok(())
}

fn copy_list(src: Place<'_>, dst: Place<'_>, name: &CStr) -> Result<(), AclError> {
    match get_list(src, name).map_err(AclError::Read)? {
        Some(list) => set_xattr(dst, name, &list).map_err(AclError::Write),
        // Looking is much cheaper than removing: on a journaled file system even a removal of nothing
        // opens a transaction.
        None => match get_list(dst, name) {
            Ok(Some(_)) => remove_xattr(dst, name).map(drop).map_err(AclError::Write),
            Ok(None) => Ok(()),
            Err(error) => Err(AclError::Write(error)),
        },
    }
}

/// The list, where there is one; a file system without lists has none.
fn get_list(place: Place<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    match get_xattr(place, name) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NOSYS)) => {
            Ok(None)
        }
        other => other,
    }
}
