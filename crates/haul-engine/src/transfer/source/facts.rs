//! What is told of a name before its bytes: NEW_FILE from what the system says.

use super::tree::Item;
use crate::transfer::lists;
use haul_log::objects::Identity;
use haul_model::{ByteRange, Moment, ObjectSize};
use haul_proto::limits::{OWNER_BYTES_MAX, PRINCIPALS_MAX};
use haul_proto::{FileKind as Kind, JobOptions, Keep, NewFile, Principal, Runs, Xattr};
use haul_sys::metadata::{Place, get_xattr, list_xattrs};
use haul_sys::sparse::DataRanges;
use haul_sys::{FileKind, Timespec, open, stat, users};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

/// Looks up what NEW_FILE says, with names of owners that were looked up before.
#[derive(Debug, Default)]
pub(super) struct Clerk {
    users: HashMap<u32, Box<[u8]>>,
    groups: HashMap<u32, Box<[u8]>>,
}

impl Clerk {
    /// All that is told of an item. `first` is the path of the name that it is a hard link to.
    ///
    /// # Errors
    /// Its attributes or its target can't be read.
    pub(super) fn facts(
        &mut self,
        item: &Item,
        options: &JobOptions,
        first: Option<&[u8]>,
    ) -> io::Result<NewFile> {
        let stat = &item.facts;
        let keep = options.keep;
        let by_name = keep.has(Keep::OWNER) && !keep.has(Keep::NUMERIC);
        let kind = match first {
            Some(first) => Kind::HardLink { first: first.into() },
            None => kind_of(item, options)?,
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
            principals,
            ..NewFile::new(item.path.as_slice(), kind)
        })
    }

    /// The names of those whom access control lists among these attributes name by number. Who has none, or a very long one, goes by number.
    fn principals(&mut self, xattrs: &[Xattr]) -> Vec<Principal> {
        let mut found: Vec<Principal> = Vec::new();
        let all = xattrs.iter().filter(|xattr| lists::is_list(&xattr.name));
        for (is_group, number) in all.flat_map(|xattr| lists::named(&xattr.value)) {
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

/// What a log knows this version of a file by; nothing of files of one object, which no log knows.
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
    // Who has no name, or whose names can't be asked for, goes by number.
    let asked = || ask(number).ok().flatten().unwrap_or_default().into_vec().into_boxed_slice();
    known.entry(number).or_insert_with(asked).clone()
}

fn kind_of(item: &Item, options: &JobOptions) -> io::Result<Kind> {
    let device = || stat::device_numbers(item.facts.rdev);
    Ok(match item.facts.kind {
        FileKind::Regular => {
            let is_sparse = options.keep.has(Keep::HOLES) && item.facts.is_sparse();
            let holes = if is_sparse { holes(item, options.object) } else { Runs::default() };
            Kind::File { size: item.facts.size, holes }
        }
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => {
            let target = open::read_link_at(&item.place, item.name.as_c_str())?;
            Kind::Symlink { target: target.into_vec().into_boxed_slice() }
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
        FileKind::Unknown => return Err(io::Error::other("not a kind of file that can be sent")),
    })
}

/// The objects without a byte of data. Where that can't be told, none.
fn holes(item: &Item, object: ObjectSize) -> Runs {
    let mut holes = Runs::default();
    let Ok(file) = open::open_entry_at(&item.place, item.name.as_c_str()) else { return holes };
    let size = item.facts.size;
    let mut from = 0;
    let mut add = |from: u64, to: u64, is_end: bool| {
        let first = from.div_ceil(object.bytes());
        let end = if is_end { to.div_ceil(object.bytes()) } else { to / object.bytes() };
        if first < end && holes.pieces() < haul_proto::limits::RUNS_MAX {
            holes.unite(&Runs::of(first, end));
        }
    };
    for data in DataRanges::new(file.as_fd(), ByteRange::between(0, size)) {
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
    let place = if item.facts.kind == FileKind::Directory {
        Place::file(&item.place)
    } else {
        Place::name(&item.place, &item.name)
    };
    let mut found = Vec::new();
    for name in list_xattrs(place)? {
        let bytes = name.to_bytes();
        let wanted = if lists::is_list(bytes) {
            keep.has(Keep::ACLS)
        } else {
            keep.has(Keep::XATTRS) && crate::copy::is_attribute_copied(&name)
        };
        if !wanted {
            continue;
        }
        // Gone meanwhile, or not for this user to see: cp -a goes on as well.
        if let Ok(Some(value)) = get_xattr(place, &name) {
            found.push(Xattr { name: bytes.into(), value: value.into_boxed_slice() });
        }
    }
    Ok(found)
}

/// A time as the wire has it.
pub(in crate::transfer) fn moment(time: Timespec) -> Moment {
    Moment { sec: time.sec, nsec: time.nsec }
}
