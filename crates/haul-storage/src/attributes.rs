//! Copies of permissions and extended attributes from one inode to another.

use crate::storage::Inode;
use haul_sys::FileKind;
use haul_sys::metadata::{ACL_ACCESS, ACL_DEFAULT};
use std::ffi::{CStr, CString};
use std::io;
use thiserror::Error;

/// `errno` of an attribute that a storage lists and cannot read. It is the same on all
/// architectures but four.
const EOPNOTSUPP: i32 = 95;

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

/// An attribute that could not be copied.
#[derive(Debug, Error)]
#[error("cannot copy attribute {name:?}: {source}")]
pub struct XattrFailure {
    /// Name of the attribute with its namespace, for example `user.comment`.
    pub name: CString,
    /// Side that failed.
    pub side: XattrSide,
    /// Error of the storage.
    pub source: io::Error,
}

/// Side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSide {
    /// The attribute could not be read.
    Source,
    /// The attribute could not be set.
    Destination,
}

impl AclError {
    /// Returns the error of the storage.
    pub fn io(&self) -> &io::Error {
        match self {
            AclError::Read(error) | AclError::Write(error) | AclError::Mode(error) => error,
        }
    }
}

/// Gives `to` the permissions of `from`: its access control list if it has one, and always the mode
/// bits `mode` (with setuid, setgid and sticky).
///
/// For a directory the default list is copied too. Lists that `to` has (for example inherited ones)
/// and `from` lacks are removed.
///
/// A storage without lists is treated like a file without a list. It is an error only if the source
/// has a list that the destination cannot hold; the mode is set even then. If the access list of
/// the source cannot be read, nothing is set.
///
/// # Errors
/// Returns the first error; the remaining steps are still carried out, except after a failed read
/// of the access list.
pub fn copy_permissions(from: &dyn Inode, to: &dyn Inode, kind: FileKind, mode: u32) -> Result<(), AclError> {
    let access = match copy_list(from, to, ACL_ACCESS) {
        // The group bits of a file with a list are the mask, which may exceed what the list grants
        // to the group. Without the list the mode is meaningless.
        Err(AclError::Read(error)) => return Err(AclError::Read(error)),
        other => other,
    };
    // Set the mode after the list. On a file with a list the group bits of the mode are the mask of
    // the list, and chmod sets that mask.
    let chmod = to.set_mode(mode);
    let default = if kind == FileKind::Directory { copy_list(from, to, ACL_DEFAULT) } else { Ok(()) };
    access.and(chmod.map_err(AclError::Mode)).and(default)
}

/// Reduces the permissions of an inode to its mode: removes its access control list (for example an
/// inherited one). The default list of a directory stays.
///
/// # Errors
/// Returns the errors of reading or removing a list. A storage without lists is not an error.
pub fn drop_access_list(inode: &dyn Inode) -> io::Result<()> {
    inode.remove_attribute(ACL_ACCESS).map(drop)
}

fn copy_list(from: &dyn Inode, to: &dyn Inode, name: &CStr) -> Result<(), AclError> {
    match from.attribute(name).map_err(AclError::Read)? {
        Some(list) => to.set_attribute(name, &list),
        None => to.remove_attribute(name).map(drop),
    }
    .map_err(AclError::Write)
}

/// Copies every attribute of `from` that `filter` accepts, and continues after failures. Returns
/// the failures.
///
/// An attribute that vanishes during the copy is not a failure. Attributes that only `to` has stay.
///
/// # Errors
/// Returns an error if the attributes of the source cannot be listed.
pub fn copy_attributes(
    from: &dyn Inode,
    to: &dyn Inode,
    filter: impl Fn(&CStr) -> bool,
) -> io::Result<Vec<XattrFailure>> {
    let mut failures = Vec::new();
    for name in from.attributes()?.into_iter().filter(|name| filter(name)) {
        let (side, source) = match from.attribute(&name) {
            Ok(None) if !from.attributes()?.contains(&name) => continue,
            Ok(None) => (XattrSide::Source, io::Error::from_raw_os_error(EOPNOTSUPP)),
            Err(error) => (XattrSide::Source, error),
            Ok(Some(value)) => match to.set_attribute(&name, &value) {
                Ok(()) => continue,
                Err(error) => (XattrSide::Destination, error),
            },
        };
        failures.push(XattrFailure { name, side, source });
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local;
    use crate::memory::{Call, MemoryStorage};
    use crate::name::Name;
    use crate::storage::{Create, SinkFile};
    use haul_sys::Follow;
    use std::path::Path;
    use std::sync::Arc;

    fn made(storage: &MemoryStorage, name: &str) -> Arc<dyn SinkFile> {
        storage.root().sink(&Name::new(name).unwrap(), Create::New { mode: 0o600 }).unwrap()
    }

    #[test]
    fn source_without_lists_gives_only_its_mode() {
        // /proc has no access control lists.
        let proc = local::open(Path::new("/proc/self"), Follow::Yes).unwrap();
        let from = proc.source(&Name::new("status").unwrap(), Follow::No).unwrap();
        let to = made(&MemoryStorage::new(1), "to");
        copy_permissions(&*from, &*to, FileKind::Regular, 0o444).unwrap();
        assert_eq!(to.stat().unwrap().mode, 0o444);
        assert!(copy_attributes(&*from, &*to, |_| true).unwrap().is_empty());
    }

    #[test]
    fn unsupported_list_is_an_error_and_the_mode_is_still_set() {
        let storage = MemoryStorage::new(1);
        let (from, to) = (made(&storage, "from"), made(&storage, "to"));
        from.set_attribute(ACL_ACCESS, b"a list").unwrap();
        storage.fail(Call::SetAttribute, 1, EOPNOTSUPP);
        match copy_permissions(&*from, &*to, FileKind::Regular, 0o640) {
            Err(AclError::Write(error)) => assert_eq!(error.raw_os_error(), Some(EOPNOTSUPP)),
            other => panic!("{other:?}"),
        }
        assert_eq!(to.stat().unwrap().mode, 0o640);
    }

    #[test]
    fn nothing_is_set_if_the_list_cannot_be_read() {
        let storage = MemoryStorage::new(1);
        let (from, to) = (made(&storage, "from"), made(&storage, "to"));
        storage.fail(Call::Attribute, 1, 5);
        let copied = copy_permissions(&*from, &*to, FileKind::Regular, 0o640);
        assert!(matches!(copied, Err(AclError::Read(_))), "{copied:?}");
        assert_eq!(to.stat().unwrap().mode, 0o600);
    }
}
