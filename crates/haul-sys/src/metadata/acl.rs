//! POSIX access control lists, in the form of the extended attributes by which the kernel exposes
//! them.

use super::xattr::{Place, get_xattr, remove_xattr, set_xattr};
use crate::stat::FileKind;
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use thiserror::Error;

/// Attribute that holds the access permissions of a file beyond its mode.
pub const ACL_ACCESS: &CStr = c"system.posix_acl_access";

/// Attribute that holds the initial access control list of new files in a directory.
pub const ACL_DEFAULT: &CStr = c"system.posix_acl_default";

/// Error of an incomplete copy of permissions.
#[derive(Debug, Error)]
pub enum AclError {
    /// The list of the source could not be read.
    #[error("cannot read the access control list: {0}")]
    Read(#[source] io::Error),
    /// The destination rejected the list, or the removal of its own list. `EOPNOTSUPP`: it does not
    /// support lists.
    #[error("cannot set the access control list: {0}")]
    Write(#[source] io::Error),
    /// The destination rejected the mode.
    #[error("cannot set the mode: {0}")]
    Mode(#[source] io::Error),
}

impl AclError {
    /// Returns the error of the kernel.
    pub fn io(&self) -> &io::Error {
        match self {
            AclError::Read(error) | AclError::Write(error) | AclError::Mode(error) => error,
        }
    }
}

/// Gives `dst` the permissions of `src`: its access control list if it has one, and always the mode
/// bits `mode` (with setuid, setgid and sticky).
///
/// For a directory the default list is copied too. Lists that `dst` has (for example inherited
/// ones) and `src` lacks are removed.
///
/// A file system without lists is treated like a file without a list. It is an error only if the
/// source has a list that the destination cannot hold; the mode is set even then. If the access
/// list of the source cannot be read, nothing is set.
///
/// # Errors
///
/// Returns the first error; the remaining steps are still carried out, except after a failed read
/// of the access list.
pub fn copy_acl(src: Place<'_>, dst: Place<'_>, kind: FileKind, mode: u32) -> Result<(), AclError> {
    let access = match copy_list(src, dst, ACL_ACCESS) {
        // The group bits of a file with a list are the mask, which may exceed what the list grants
        // to the group. Without the list the mode is meaningless.
        Err(AclError::Read(error)) => return Err(AclError::Read(error)),
        other => other,
    };
    // Set the mode after the list. On a file with a list the group bits of the mode are the mask of
    // the list, and chmod sets that mask.
    let chmod = match dst {
        Place::File(fd) => super::set_mode_fd(fd, mode),
        Place::Name(dir, name) => super::set_mode_at(dir, name, mode),
    };
    let default = if kind == FileKind::Directory { copy_list(src, dst, ACL_DEFAULT) } else { Ok(()) };
    access.and(chmod.map_err(AclError::Mode)).and(default)
}

/// Reduces the permissions of `place` to its mode: removes its access control list (for example an
/// inherited one). The default list of a directory stays.
///
/// # Errors
///
/// Returns the errors of reading or removing a list. A file system without lists is not an error.
pub fn drop_acl(place: Place<'_>) -> io::Result<()> {
    if get_list(place, ACL_ACCESS)?.is_some() {
        remove_xattr(place, ACL_ACCESS)?;
    }
    Ok(())
}

fn copy_list(src: Place<'_>, dst: Place<'_>, name: &CStr) -> Result<(), AclError> {
    match get_list(src, name).map_err(AclError::Read)? {
        Some(list) => set_xattr(dst, name, &list).map_err(AclError::Write),
        // A lookup is much cheaper than a removal: on a journaled file system even the removal of a
        // missing attribute opens a transaction.
        None => match get_list(dst, name) {
            Ok(Some(_)) => remove_xattr(dst, name).map(drop).map_err(AclError::Write),
            Ok(None) => Ok(()),
            Err(error) => Err(AclError::Write(error)),
        },
    }
}

/// Returns the list if there is one. A file system without lists has none.
fn get_list(place: Place<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    match get_xattr(place, name) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NOSYS)) => {
            Ok(None)
        }
        other => other,
    }
}
