//! Builds NEW_FILE messages, which describe an entry before its data, from the file system's
//! metadata.

use super::tree::Item;
use super::walk::has_several_names;
use crate::stored;
use crate::transfer::acl;
use crate::transfer::hashing::HashPlan;
use haul_log::objects::Identity;
use haul_model::{ByteRange, Moment, ObjectSize};
use haul_proto::limits::{OWNER_BYTES_MAX, PRINCIPALS_MAX};
use haul_proto::{FileKind as Kind, JobOptions, Keep, NewFile, Principal, Runs, Xattr};
use haul_storage::{FileKind, Timespec};
use haul_sys::{stat::device_numbers, users};
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
    /// Returns the metadata of an item. `first` is the path of the name to which it is a hard link.
    ///
    /// # Errors
    /// Returns an error if the attributes or the link target cannot be read.
    pub(super) fn facts(
        &mut self,
        item: &Item,
        options: &JobOptions,
        hash_plan: &HashPlan,
        first: Option<&[u8]>,
    ) -> io::Result<NewFile> {
        let stat = &item.facts;
        let keep = options.keep;
        let by_name = keep.has(Keep::OWNER) && !keep.has(Keep::NUMERIC);
        let kind = match first {
            Some(first) => Kind::HardLink { first: first.into() },
            None => kind_of(item, options, hash_plan)?,
        };
        let xattrs = if first.is_some() { Vec::new() } else { xattrs(item, keep)? };
        let principals = if keep.has(Keep::NUMERIC) { Vec::new() } else { self.principals(&xattrs) };
        Ok(NewFile {
            mode: stat.mode,
            mtime: moment(stat.mtime),
            atime: moment(stat.atime),
            uid: stat.uid,
            gid: stat.gid,
            user: if by_name { name(&mut self.users, stat.uid, users::user_name) } else { Box::default() },
            group: if by_name { name(&mut self.groups, stat.gid, users::group_name) } else { Box::default() },
            xattrs,
            version: version(item, options),
            is_linked: first.is_none() && has_several_names(item) && keep.has(Keep::HARD_LINKS),
            principals,
            ..NewFile::new(item.path.as_slice(), kind)
        })
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

fn kind_of(item: &Item, options: &JobOptions, hash_plan: &HashPlan) -> io::Result<Kind> {
    let device = || device_numbers(item.facts.rdev);
    Ok(match item.facts.kind {
        FileKind::Regular => {
            let is_sparse = options.keep.has(Keep::HOLES) && item.facts.is_sparse();
            let holes = if is_sparse { holes(item, options.object, hash_plan) } else { Runs::default() };
            Kind::File { size: item.facts.size, holes }
        }
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => {
            let name = item.name.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
            Kind::Symlink { target: item.place.hold(name)?.read_link()?.into_boxed_slice() }
        }
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => {
            let (major, minor) = device();
            Kind::CharDevice { major, minor }
        }
        FileKind::BlockDevice => {
            let (major, minor) = device();
            Kind::BlockDevice { major, minor }
        }
        FileKind::Unknown => return Err(io::Error::other("this kind of file cannot be sent")),
    })
}

/// Returns the objects without any data. Returns none if the file system cannot report holes, or if
/// its report is not relied on.
fn holes(item: &Item, object: ObjectSize, hash_plan: &HashPlan) -> Runs {
    let mut holes = Runs::default();
    let Ok(file) = item.source() else { return holes };
    if !hash_plan.may_skip_holes(&*file, &item.facts) {
        return holes;
    }
    let size = item.facts.size;
    let mut from = 0;
    let mut add = |from: u64, to: u64, is_end: bool| {
        let first = from.div_ceil(object.bytes());
        let end = if is_end { to.div_ceil(object.bytes()) } else { to / object.bytes() };
        if first < end && holes.pieces() < haul_proto::limits::RUNS_MAX {
            holes.unite(&Runs::of(first, end));
        }
    };
    for data in file.data_ranges(ByteRange::between(0, size)) {
        let Ok(data) = data else { return Runs::default() };
        add(from, data.start.0, false);
        from = data.end.0;
    }
    add(from, size, true);
    holes
}

fn xattrs(item: &Item, keep: Keep) -> io::Result<Vec<Xattr>> {
    if !keep.has(Keep::XATTRS) && !keep.has(Keep::ACLS) {
        return Ok(Vec::new());
    }
    let Item { place, name: entry, .. } = item;
    let names = match entry {
        Some(entry) => place.attributes_at(entry)?,
        None => place.attributes()?,
    };
    let mut found = Vec::new();
    for name in names {
        let bytes = name.to_bytes();
        let wanted = if acl::is_acl(bytes) || acl::is_nfs4_acl(bytes) {
            keep.has(Keep::ACLS)
        } else {
            let is_carried = keep.has(Keep::STORED_SUMS) || !stored::is_attribute(bytes);
            let on_lustre = || place.device().capabilities.is_lustre;
            keep.has(Keep::XATTRS)
                && is_carried
                && crate::copied_attributes::is_attribute_copied(&name, on_lustre)
        };
        if !wanted {
            continue;
        }
        let value = match entry {
            Some(entry) => place.attribute_at(entry, &name),
            None => place.attribute(&name),
        };
        let value = match value {
            // Skip an attribute that is inaccessible to this user, as `cp -a` does.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            // It may have been removed meanwhile.
            value => value?,
        };
        if let Some(value) = value {
            found.push(Xattr { name: bytes.into(), value: value.into_boxed_slice() });
        }
    }
    Ok(found)
}

/// Converts a timestamp to the form of the wire.
pub(in crate::transfer) fn moment(time: Timespec) -> Moment {
    Moment { sec: time.sec, nsec: time.nsec }
}
