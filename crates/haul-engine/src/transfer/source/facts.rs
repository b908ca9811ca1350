//! Builds NEW_FILE messages, which describe an entry before its data, from the file system's
//! metadata.

use super::details::{Details, has_several_names};
use super::tree::Item;
use crate::transfer::acl;
use haul_log::objects::Identity;
use haul_model::Moment;
use haul_proto::limits::{OWNER_BYTES_MAX, PRINCIPALS_MAX};
use haul_proto::{FileKind as Kind, JobOptions, Keep, NewFile, Principal, Xattr};
use haul_storage::{FileKind, Timespec};
use haul_sys::users;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// Builder of NEW_FILE messages with a cache of user and group names.
#[derive(Debug, Default)]
pub(super) struct FileInfoBuilder {
    users: HashMap<u32, Box<[u8]>>,
    groups: HashMap<u32, Box<[u8]>>,
}

impl FileInfoBuilder {
    /// Returns the metadata of an item.
    pub(super) fn facts(&mut self, item: &Item, options: &JobOptions, details: Details) -> NewFile {
        let stat = &item.facts;
        let keep = options.keep;
        let by_name = keep.has(Keep::OWNER) && !keep.has(Keep::NUMERIC);
        let Details { kind, xattrs } = details;
        let is_first = !matches!(kind, Kind::HardLink { .. });
        let principals = if keep.has(Keep::NUMERIC) { Vec::new() } else { self.principals(&xattrs) };
        NewFile {
            mode: stat.mode,
            mtime: moment(stat.mtime),
            atime: moment(stat.atime),
            uid: stat.uid,
            gid: stat.gid,
            user: if by_name { name(&mut self.users, stat.uid, users::user_name) } else { Box::default() },
            group: if by_name { name(&mut self.groups, stat.gid, users::group_name) } else { Box::default() },
            xattrs,
            version: version(item, options),
            is_linked: is_first && has_several_names(stat) && keep.has(Keep::HARD_LINKS),
            principals,
            ..NewFile::new(item.path.as_slice(), kind)
        }
    }

    /// Returns the names of the users and groups that access control lists in these attributes
    /// contain by number. Those without a name, or with a very long one, are identified by number.
    fn principals(&mut self, xattrs: &[Xattr]) -> Vec<Principal> {
        let mut found: Vec<Principal> = Vec::new();
        let all = xattrs.iter().filter(|xattr| acl::is_acl(&xattr.name));
        for (is_group, number) in all.flat_map(|xattr| acl::named(&xattr.value)) {
            let is_known = found.iter().any(|one| (one.is_group, one.number) == (is_group, number));
            if is_known || found.len() == PRINCIPALS_MAX {
                continue;
            }
            let name = match is_group {
                true => name(&mut self.groups, number, users::group_name),
                false => name(&mut self.users, number, users::user_name),
            };
            if (1..=OWNER_BYTES_MAX).contains(&name.len()) {
                found.push(Principal { is_group, number, name });
            }
        }
        found
    }
}

/// Returns the identity by which a log recognizes this version of a file. Returns `None` for a file
/// of one object, which is not logged.
fn version(item: &Item, options: &JobOptions) -> Option<[u8; 16]> {
    let facts = &item.facts;
    if facts.kind != FileKind::Regular || facts.size <= options.object.bytes() {
        return None;
    }
    let (sec, nsec) = (facts.ctime.sec.cast_unsigned(), u64::from(facts.ctime.nsec));
    let mut bytes = [0; 32];
    for (to, part) in bytes.chunks_mut(8).zip([facts.dev, facts.ino, sec, nsec]) {
        to.copy_from_slice(&part.to_le_bytes());
    }
    Some(Identity::of(&bytes).0)
}

fn name(
    known: &mut HashMap<u32, Box<[u8]>>,
    number: u32,
    ask: impl FnOnce(u32) -> io::Result<Option<std::ffi::OsString>>,
) -> Box<[u8]> {
    // Users without a name, and users whose names cannot be looked up, are identified by number.
    let asked = || ask(number).ok().flatten().unwrap_or_default().into_vec().into_boxed_slice();
    known.entry(number).or_insert_with(asked).clone()
}

/// Converts a timestamp to the form of the wire.
pub(in crate::transfer) fn moment(time: Timespec) -> Moment {
    Moment { sec: time.sec, nsec: time.nsec }
}
