//! Metadata that a file gets from its source: owner, attributes, permissions, and finally times.

use super::policy::SinkPolicy;
use crate::stored;
use crate::transfer::acl;
use crate::transfer::reason::reason;
use haul_proto::{FileKind, Keep, NewFile, Reason, Why};
use haul_sys::metadata::{
    ACL_ACCESS, ACL_DEFAULT, Place, Times, drop_acl, drop_default_acl, set_mode_fd, set_owner_fd,
    set_times_fd, set_xattr,
};
use haul_sys::{Stat, Timespec, filesystem, process, users};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

/// Set-user-ID and set-group-ID bits, set only if both sides ask for them.
const SET_ID_BITS: u32 = 0o6000;

/// Attribute that grants rights to every user who runs the file, as set-user-ID does.
const CAPABILITIES: &[u8] = b"security.capability";

/// Maximum number of cached user names, and of cached group names.
const NAMES_MAX: usize = 4096;

/// Sets the metadata that a job preserves.
#[derive(Debug)]
pub(super) struct MetadataWriter {
    keep: Keep,
    policy: SinkPolicy,
    umask: u32,
    is_root: bool,
    users: Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    groups: Mutex<HashMap<Box<[u8]>, Option<u32>>>,
}

impl MetadataWriter {
    /// Creates a writer for the metadata in `keep`, as far as `policy` accepts it.
    pub(super) fn new(keep: Keep, policy: SinkPolicy) -> MetadataWriter {
        MetadataWriter {
            keep,
            policy,
            umask: process::umask(),
            is_root: process::effective_user() == 0,
            users: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Sets the metadata of `facts` that the job preserves on the open entry `entry`; `O_PATH` is
    /// sufficient. A name is never used, because another process could have replaced it. `new` is
    /// the current metadata of an entry that this job created and no other process changed; an
    /// owner that is already right is not set again.
    ///
    /// # Errors
    /// Returns the first failure to set something that this user could expect to be preserved. A
    /// file system without attributes, and a user who may not change owners, cause no error.
    pub(super) fn apply(
        &self,
        entry: BorrowedFd<'_>,
        facts: &NewFile,
        new: Option<&Stat>,
    ) -> Result<(), Reason> {
        let is_link = matches!(facts.kind, FileKind::Symlink { .. });
        let has_owner = self.owner(entry, facts, new)?;
        self.attributes(Place::File(entry), facts)?;
        if !is_link {
            self.permissions(entry, facts, has_owner)?;
        }
        if self.keep.has(Keep::ACLS) {
            let lists = facts.xattrs.iter().filter(|xattr| acl::is_nfs4_acl(&xattr.name));
            lists
                .into_iter()
                .try_for_each(|list| self.attribute(Place::File(entry), &list.name, &list.value))?;
        }
        if self.keep.has(Keep::TIMES) {
            let time = |moment: haul_model::Moment| Some(Timespec { sec: moment.sec, nsec: moment.nsec });
            let times = Times { atime: time(facts.atime), mtime: time(facts.mtime) };
            set_times_fd(entry, times).map_err(|error| reason("cannot set the times", &error))?;
        }
        Ok(())
    }

    /// Sets only the owner of the source on an open entry, if the job preserves owners and the user
    /// may set it.
    pub(super) fn give_owner(&self, entry: BorrowedFd<'_>, facts: &NewFile) {
        // Ignore an error: the code that needs the owner checks it.
        let _ = self.owner(entry, facts, None);
    }

    /// Returns true if the entry has the owner of its source now.
    fn owner(&self, entry: BorrowedFd<'_>, facts: &NewFile, new: Option<&Stat>) -> Result<bool, Reason> {
        if !self.keep.has(Keep::OWNER) {
            return Ok(false);
        }
        let uid = id_of(&self.users, &facts.user, facts.uid, users::user);
        let gid = id_of(&self.groups, &facts.group, facts.gid, users::group);
        if new.is_some_and(|new| (new.uid, new.gid) == (uid, gid)) {
            return Ok(true);
        }
        let set = |uid, gid| set_owner_fd(entry, uid, gid);
        match set(Some(uid), Some(gid)) {
            Ok(()) => Ok(true),
            Err(error) if self.is_root => Err(reason("cannot set the owner", &error)),
            Err(_) => {
                // This user may be allowed to set the group alone.
                let _ = set(None, Some(gid));
                Ok(false)
            }
        }
    }

    fn attributes(&self, place: Place<'_>, facts: &NewFile) -> Result<(), Reason> {
        let (mut has_acl, mut has_default) = (false, false);
        for xattr in &facts.xattrs {
            let is_acl = acl::is_acl(&xattr.name);
            let is_wanted = match &*xattr.name {
                _ if is_acl => self.keep.has(Keep::ACLS),
                name if stored::is_attribute(name) => {
                    self.keep.has(Keep::XATTRS) && self.keep.has(Keep::STORED_SUMS)
                }
                CAPABILITIES => self.keep.has(Keep::XATTRS) && self.keep.has(Keep::SETUID),
                name => self.keep.has(Keep::XATTRS) && self.policy.accepts_attribute(name),
            };
            let Ok(name) = CString::new(&*xattr.name) else { continue };
            let on_lustre = || filesystem::is_lustre(place.fd());
            if !is_wanted || !(is_acl || crate::copied_attributes::is_attribute_copied(&name, on_lustre)) {
                continue;
            }
            has_acl |= name.as_c_str() == ACL_ACCESS;
            has_default |= name.as_c_str() == ACL_DEFAULT;
            let value =
                if is_acl { self.with_local_ids(&xattr.value, facts) } else { Cow::Borrowed(&*xattr.value) };
            self.attribute(place, &xattr.name, &value)?;
        }
        let failed = |error: io::Error| reason("cannot remove an inherited access control list", &error);
        if self.keep.has(Keep::ACLS) && !matches!(facts.kind, FileKind::Symlink { .. }) {
            // A new entry may have inherited lists from its directory, and an existing entry can
            // have its own.
            if !has_acl {
                drop_acl(place).map_err(failed)?;
            }
            if !has_default && facts.kind == FileKind::Directory {
                drop_default_acl(place).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Sets one attribute, if the file system has such attributes and this user may set it.
    fn attribute(&self, place: Place<'_>, name: &[u8], value: &[u8]) -> Result<(), Reason> {
        let set = CString::new(name).map_err(io::Error::from).and_then(|name| set_xattr(place, &name, value));
        set.or_else(|error| {
            let expected = error.kind() == io::ErrorKind::Unsupported
                || (error.kind() == io::ErrorKind::PermissionDenied && !self.is_root);
            let mut failure =
                reason(&format!("cannot set the attribute {}", haul_model::Percent(name)), &error);
            if failure.why.is_shortage() {
                // File systems report these also for attributes above their limits. The data of
                // the next file shows whether there is no space at all.
                failure.why = Why::TooLarge;
            }
            if expected { Ok(()) } else { Err(failure) }
        })
    }

    /// Returns an access control list with the local user and group numbers of its named users and
    /// groups.
    fn with_local_ids<'a>(&self, list: &'a [u8], facts: &NewFile) -> Cow<'a, [u8]> {
        if facts.principals.is_empty() {
            return Cow::Borrowed(list);
        }
        Cow::Owned(acl::map_ids(list, |is_group, number| {
            let mut all = facts.principals.iter();
            match all.find(|one| (one.is_group, one.number) == (is_group, number)) {
                Some(one) if is_group => id_of(&self.groups, &one.name, number, users::group),
                Some(one) => id_of(&self.users, &one.name, number, users::user),
                None => number,
            }
        }))
    }

    fn permissions(&self, entry: BorrowedFd<'_>, facts: &NewFile, has_owner: bool) -> Result<(), Reason> {
        let is_directory = facts.kind == FileKind::Directory;
        let mode = if self.keep.has(Keep::MODE) {
            let is_kept = self.keep.has(Keep::SETUID) && (has_owner || is_directory);
            let withheld = if is_kept { 0 } else { SET_ID_BITS };
            facts.mode & 0o7777 & !withheld
        } else {
            (if is_directory { 0o777 } else { facts.mode & 0o777 }) & !self.umask
        };
        set_mode_fd(entry, mode).map_err(|error| reason("cannot set the permissions", &error))
    }
}

/// Returns the local number of a user or group: by name if the name is known here, otherwise
/// `number`.
fn id_of(
    known: &Mutex<HashMap<Box<[u8]>, Option<u32>>>,
    name: &[u8],
    number: u32,
    ask: impl FnOnce(&OsStr) -> io::Result<Option<u32>>,
) -> u32 {
    if name.is_empty() {
        return number;
    }
    let mut known = known.lock();
    if known.len() >= NAMES_MAX {
        // No real job has this many names. The limit keeps a peer that makes up names from filling
        // the memory.
        known.clear();
    }
    let asked = || ask(OsStr::from_bytes(name)).ok().flatten();
    known.entry(name.into()).or_insert_with(asked).unwrap_or(number)
}
