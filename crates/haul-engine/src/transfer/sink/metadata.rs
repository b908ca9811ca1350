//! Metadata that a file gets from its source: owner, attributes, permissions, and finally times.

use super::policy::SinkPolicy;
use crate::copied_attributes::is_attribute_copied;
use crate::stored;
use crate::transfer::acl;
use crate::transfer::reason::reason;
use haul_proto::{FileKind, Keep, NewFile, Reason, Why};
use haul_storage::{Inode, Metadata, Part, SinkFile, Times, Timespec, Unset};
use haul_sys::metadata::{ACL_ACCESS, ACL_DEFAULT};
use haul_sys::{process, users};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::io;
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

    /// Sets the metadata of `facts` that the job preserves on the held entry. A name is never used,
    /// because another process could have replaced it.
    ///
    /// # Errors
    /// Returns the first failure to set something that this user could expect to be preserved. A
    /// storage without attributes, and a user who may not change owners, cause no error.
    pub(super) fn apply(&self, entry: &dyn Inode, facts: &NewFile) -> Result<(), Reason> {
        self.set(entry, facts, |metadata| entry.set_metadata(metadata))
    }

    /// Ends the writing of a received file, as [`SinkFile::finish`] does, and sets its metadata as
    /// [`MetadataWriter::apply`] does.
    ///
    /// # Errors
    /// Same as [`MetadataWriter::apply`], and the reason if the file could not get its length or
    /// lost bytes.
    pub(super) fn finish(&self, file: &dyn SinkFile, facts: &NewFile) -> Result<(), Reason> {
        self.set(file, facts, |metadata| file.finish(facts.size(), metadata))
    }

    /// Sets the metadata by `first`, and what follows a part that this user or the storage cannot
    /// have by further calls.
    fn set(
        &self,
        entry: &dyn Inode,
        facts: &NewFile,
        first: impl FnOnce(&Metadata<'_>) -> Result<(), Unset>,
    ) -> Result<(), Reason> {
        self.remove_inherited_lists(entry, facts)?;
        let mut metadata = self.metadata(entry, facts);
        let mut set = first(&metadata);
        while let Err(unset) = set {
            self.leave_out(&unset, &mut metadata, entry, facts)?;
            set = entry.set_metadata(&metadata);
        }
        Ok(())
    }

    /// Returns the metadata that the job preserves, with local users and groups.
    fn metadata(&self, entry: &dyn Inode, facts: &NewFile) -> Metadata<'static> {
        let owner = self.keep.has(Keep::OWNER).then(|| self.owner(facts));
        let time = |moment: haul_model::Moment| Some(Timespec { sec: moment.sec, nsec: moment.nsec });
        let has_times = self.keep.has(Keep::TIMES);
        Metadata {
            user: owner.map(|(user, _)| user),
            group: owner.map(|(_, group)| group),
            attributes: Cow::Owned(self.attributes(entry, facts)),
            mode: self.mode(facts, owner.is_some()),
            times: if has_times {
                Times { atime: time(facts.atime), mtime: time(facts.mtime) }
            } else {
                Times::default()
            },
        }
    }

    /// Removes the part that could not be set, and those before it, from `metadata`.
    ///
    /// # Errors
    /// Returns the failure if the job counts on the part.
    fn leave_out(
        &self,
        unset: &Unset,
        metadata: &mut Metadata<'_>,
        entry: &dyn Inode,
        facts: &NewFile,
    ) -> Result<(), Reason> {
        let Unset { part, error } = unset;
        let mut failure = reason(&unset.to_string(), error);
        match part {
            Part::Owner if !self.is_root => {
                // This user may be allowed to set the group alone.
                let _ = entry.set_owner(None, metadata.group);
                metadata.mode = self.mode(facts, false);
            }
            Part::Attribute(name) if self.is_left_out(error) => {
                let attributes = metadata.attributes.to_mut();
                if acl::is_nfs4_acl(name.to_bytes()) {
                    // It is set after all others, and after the mode.
                    attributes.clear();
                    metadata.mode = None;
                } else if let Some(at) = attributes.iter().position(|(set, _)| set == name) {
                    let mut last = attributes.split_off(at + 1);
                    let done = std::mem::take(attributes).into_iter();
                    *attributes = done.filter(|(set, _)| acl::is_nfs4_acl(set.to_bytes())).collect();
                    attributes.append(&mut last);
                }
            }
            Part::Attribute(_) if failure.why.is_shortage() => {
                // File systems report these also for attributes above their limits. The data of the
                // next file shows whether there is no space at all.
                failure.why = Why::TooLarge;
                return Err(failure);
            }
            _ => return Err(failure),
        }
        (metadata.user, metadata.group) = (None, None);
        Ok(())
    }

    /// Returns true if an attribute that fails with this error is left out: the storage has no such
    /// attributes, or this user may not set it.
    fn is_left_out(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::Unsupported
            || (error.kind() == io::ErrorKind::PermissionDenied && !self.is_root)
    }

    /// Sets only the owner of the source on a held entry, if the job preserves owners and the user
    /// may set it.
    pub(super) fn give_owner(&self, entry: &dyn Inode, facts: &NewFile) {
        if self.keep.has(Keep::OWNER) {
            let (user, group) = self.owner(facts);
            // Ignore errors: the code that needs the owner checks it.
            let _ = entry.set_owner(Some(user), Some(group)).or_else(|_| entry.set_owner(None, Some(group)));
        }
    }

    /// Returns the local user and group of the source's owner.
    fn owner(&self, facts: &NewFile) -> (u32, u32) {
        (
            id_of(&self.users, &facts.user, facts.uid, users::user),
            id_of(&self.groups, &facts.group, facts.gid, users::group),
        )
    }

    /// Returns the attributes that the job preserves and this side accepts.
    fn attributes(&self, entry: &dyn Inode, facts: &NewFile) -> Vec<(CString, Vec<u8>)> {
        let mut attributes = Vec::new();
        for xattr in &facts.xattrs {
            let is_acl = acl::is_acl(&xattr.name);
            let is_wanted = match &*xattr.name {
                name if is_acl || acl::is_nfs4_acl(name) => self.keep.has(Keep::ACLS),
                name if stored::is_attribute(name) => {
                    self.keep.has(Keep::XATTRS) && self.keep.has(Keep::STORED_SUMS)
                }
                CAPABILITIES => self.keep.has(Keep::XATTRS) && self.keep.has(Keep::SETUID),
                name => self.keep.has(Keep::XATTRS) && self.policy.accepts_attribute(name),
            };
            let Some(name) = CString::new(&*xattr.name).ok().filter(|_| is_wanted) else { continue };
            let on_lustre = || entry.device().capabilities.is_lustre;
            if is_acl {
                attributes.push((name, self.with_local_ids(&xattr.value, facts)));
            } else if acl::is_nfs4_acl(&xattr.name) || is_attribute_copied(&name, on_lustre) {
                attributes.push((name, xattr.value.to_vec()));
            }
        }
        attributes
    }

    /// Removes access control lists that the source does not have: a new entry may have inherited
    /// them from its directory, and an existing entry can have its own.
    fn remove_inherited_lists(&self, entry: &dyn Inode, facts: &NewFile) -> Result<(), Reason> {
        if !self.keep.has(Keep::ACLS) || matches!(facts.kind, FileKind::Symlink { .. }) {
            return Ok(());
        }
        let has_default = facts.kind == FileKind::Directory;
        let lists = [Some(ACL_ACCESS), has_default.then_some(ACL_DEFAULT)].into_iter().flatten();
        let is_sent = |list: &&CStr| facts.xattrs.iter().any(|xattr| *xattr.name == *list.to_bytes());
        for list in lists.filter(|list| !is_sent(list)) {
            let removed = entry.remove_attribute(list);
            removed.map_err(|error| reason("cannot remove an inherited access control list", &error))?;
        }
        Ok(())
    }

    /// Returns an access control list with the local user and group numbers of its named users and
    /// groups.
    fn with_local_ids(&self, list: &[u8], facts: &NewFile) -> Vec<u8> {
        if facts.principals.is_empty() {
            return list.to_vec();
        }
        acl::map_ids(list, |is_group, number| {
            let mut all = facts.principals.iter();
            match all.find(|one| (one.is_group, one.number) == (is_group, number)) {
                Some(one) if is_group => id_of(&self.groups, &one.name, number, users::group),
                Some(one) => id_of(&self.users, &one.name, number, users::user),
                None => number,
            }
        })
    }

    /// Returns the permission bits of an entry, `None` for a symbolic link. `has_owner` is true if
    /// the entry gets the owner of its source.
    fn mode(&self, facts: &NewFile, has_owner: bool) -> Option<u32> {
        if matches!(facts.kind, FileKind::Symlink { .. }) {
            return None;
        }
        let is_directory = facts.kind == FileKind::Directory;
        if self.keep.has(Keep::MODE) {
            let is_kept = self.keep.has(Keep::SETUID) && (has_owner || is_directory);
            let withheld = if is_kept { 0 } else { SET_ID_BITS };
            Some(facts.mode & 0o7777 & !withheld)
        } else {
            Some((if is_directory { 0o777 } else { facts.mode & 0o777 }) & !self.umask)
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::Moment;
    use haul_storage::memory::{Call, MemoryStorage};
    use haul_storage::{Create, Follow, Name, Node, Replace};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn facts(kind: FileKind) -> NewFile {
        let moment = Moment { sec: 1_000_000, nsec: 0 };
        NewFile { mtime: moment, atime: moment, mode: 0o777, ..NewFile::new(&b"x"[..], kind) }
    }

    /// Metadata was set by the temporary name: another user who could write to the directory
    /// replaced the name by a link to, or a hard link of, a file whose owner and times then
    /// changed.
    #[test]
    fn an_entry_that_replaces_a_held_one_keeps_its_metadata() {
        let dir = MemoryStorage::new(1).root();
        let swap = |from: &str, to: &str| dir.rename(&name(from), &*dir, &name(to), Replace::Yes).unwrap();
        dir.sink(&name("victim"), Create::New { mode: 0o640 }).unwrap();
        let link = (FileKind::Symlink { target: b"t"[..].into() }, Node::Link { target: b"t" });
        let pipe = Node::Special { kind: haul_storage::FileKind::Fifo, mode: 0o600, rdev: 0 };
        for (kind, node) in [link, (FileKind::Fifo, pipe)] {
            dir.make(&name("entry"), &node).unwrap();
            let before = dir.stat_at(&name("victim"), Follow::No).unwrap();
            let held = dir.hold_made(&name("entry"), &node).unwrap();
            swap("victim", "entry");
            let keep = Keep::MODE.with(Keep::TIMES).with(Keep::XATTRS);
            MetadataWriter::new(keep, SinkPolicy::ALL).apply(&*held, &facts(kind)).unwrap();
            assert_eq!(held.stat().unwrap().mtime.sec, 1_000_000);
            let after = dir.stat_at(&name("entry"), Follow::No).unwrap();
            assert_eq!((after.mtime, after.mode), (before.mtime, before.mode), "the victim");
            swap("entry", "victim");
        }
    }

    /// Every part that fails is either left out, and then all the others are set, or reported.
    #[test]
    fn a_part_that_cannot_be_set_is_left_out_or_reported() {
        let attributes = ["user.a", "system.nfs4_acl", "user.b"]
            .map(|name| haul_proto::Xattr { name: name.as_bytes().into(), value: b"value"[..].into() });
        let mut facts = facts(FileKind::File { size: 3, holes: haul_proto::Runs::default() });
        (facts.xattrs, facts.mode, facts.uid, facts.gid) = (attributes.to_vec(), 0o6755, 7, 8);
        let keep = [Keep::TIMES, Keep::OWNER, Keep::XATTRS, Keep::ACLS, Keep::SETUID];
        let keep = keep.into_iter().fold(Keep::MODE, Keep::with);
        let (permission, unsupported) = (1, 95);
        for (call, nth, errno, is_root) in [
            (Call::SetOwner, 1, permission, false),
            (Call::SetOwner, 1, permission, true),
            (Call::SetAttribute, 1, unsupported, true),
            (Call::SetAttribute, 1, permission, false),
            (Call::SetAttribute, 1, permission, true),
            (Call::SetAttribute, 2, unsupported, true),
            (Call::SetMode, 1, permission, false),
            (Call::SetTimes, 1, permission, false),
        ] {
            let storage = MemoryStorage::new(1);
            let file = storage.root().sink(&name("file"), Create::New { mode: 0o600 }).unwrap();
            let writer = MetadataWriter { is_root, ..MetadataWriter::new(keep, SinkPolicy::ALL) };
            // An inherited access control list is removed first.
            storage.fail(call, nth + u64::from(call == Call::SetAttribute), errno);
            let set = writer.finish(&*file, &facts);
            let case = format!("{call:?} {nth} {errno} as root: {is_root}");
            let is_left_out = match call {
                Call::SetOwner => !is_root,
                Call::SetAttribute => errno == unsupported || !is_root,
                _ => false,
            };
            assert_eq!(set.is_ok(), is_left_out, "{case}: {set:?}");
            if !is_left_out {
                continue;
            }
            let now = file.stat().unwrap();
            assert_eq!((now.size, now.mtime.sec), (3, 1_000_000), "{case}");
            let has_owner = call != Call::SetOwner;
            assert_eq!(now.mode & 0o7777, if has_owner { 0o6755 } else { 0o755 }, "{case}");
            assert_eq!((now.uid, now.gid), if has_owner { (7, 8) } else { (now.uid, 8) }, "{case}");
            // The storage in memory has no access control lists of NFSv4.
            assert_eq!(file.attribute(c"system.nfs4_acl").unwrap(), None);
            for (number, attribute) in (1..).zip([c"user.a", c"user.b"]) {
                let failed = call == Call::SetAttribute && nth == number;
                assert_eq!(file.attribute(attribute).unwrap().is_none(), failed, "{case}: {attribute:?}");
            }
        }
    }
}
