//! Entries without data: directories, links, additional names, devices. Each has a temporary name
//! until it is complete. Directories are an exception: they are created when the first entry in
//! them arrives.

use super::created;
use super::destination::Destination;
use super::dirs::Missing;
use super::metadata::MetadataWriter;
use super::partial_file::{Tag, name_at};
use crate::transfer::reason::reason;
use haul_model::RelPath;
use haul_proto::{FileKind as Kind, NewFile, Reason, Why};
use haul_sys::open::{hold_at, link_at, mknod_at, read_link_at, symlink_at, unlink_at};
use haul_sys::{FileKind, Follow, stat};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Creates the entry that `facts` describes, at `path`.
///
/// # Errors
/// Returns [`Why::InTheWay`] if a directory has its name, and otherwise the reason of the failed
/// system call.
pub(super) fn make(
    destination: &Destination,
    metadata_writer: &MetadataWriter,
    tag: &Tag,
    facts: &NewFile,
    path: &RelPath,
    first: Option<&RelPath>,
) -> Result<(), Reason> {
    let dirs = &destination.dirs;
    if facts.kind == Kind::Directory {
        let place =
            dirs.open(path.as_bytes(), Missing::Create).map_err(|error| reason("cannot create", &error))?;
        return metadata_writer.apply(place.as_fd(), facts, None);
    }
    let (place, name) =
        name_at(dirs, path.as_bytes(), Missing::Create).map_err(|error| reason("cannot create", &error))?;
    let existing = stat::stat_at(&place, name.as_c_str(), Follow::No).ok();
    if existing.is_some_and(|existing| existing.kind == FileKind::Directory) {
        return Err(Reason::new(Why::InTheWay, "a directory has this name"));
    }
    let temporary = tag.name();
    // A killed session with the same tag may have left this name.
    let _ = unlink_at(&place, temporary.as_c_str());
    let made = make_under(destination, &place, &temporary, facts, path, first).and_then(|()| {
        if first.is_none() {
            let held =
                created::hold(&place, &temporary, facts).map_err(|error| reason("cannot create", &error))?;
            metadata_writer.apply(held.as_fd(), facts, None)?;
        }
        let (from, to) = (temporary.as_c_str(), name.as_c_str());
        dirs.name_folding()
            .rename(&place, from, to)
            .map_err(|error| reason("cannot rename to the final name", &error))
    });
    if made.is_err() || first.is_some() {
        // `rename` does nothing if both names belong to one file, so the temporary name may still
        // exist.
        let _ = unlink_at(&place, temporary.as_c_str());
    }
    made
}

fn make_under(
    destination: &Destination,
    place: &OwnedFd,
    name: &CString,
    facts: &NewFile,
    path: &RelPath,
    first: Option<&RelPath>,
) -> Result<(), Reason> {
    let mode = facts.mode & 0o777;
    let node = |kind, device| mknod_at(place.as_fd(), name.as_c_str(), kind, mode, device);
    let made = match &facts.kind {
        Kind::Symlink { target } => symlink_at(OsStr::from_bytes(target), place, name.as_c_str()),
        Kind::HardLink { .. } => {
            let first =
                first.ok_or_else(|| Reason::new(Why::Protocol, "a hard link without a first name"))?;
            let linked =
                name_at(&destination.dirs, first.as_bytes(), Missing::Fail).and_then(|(dir, old)| {
                    link_at(&dir, old.as_c_str(), place, name.as_c_str(), Follow::No)?;
                    let held = hold_at(place, name.as_c_str())?;
                    let found = stat::stat_fd(&held)?;
                    let is_symlink = found.kind == FileKind::Symlink;
                    Ok((found, is_symlink.then(|| read_link_at(&held, c"")).transpose()?))
                });
            // The link is checked, not the first name, which may be replaced meanwhile. The caller
            // removes the link.
            if let Ok((found, target)) = &linked {
                if !destination.may_link_to(found) {
                    let refusal = "the file of this hard link is not from this session";
                    return Err(Reason::new(Why::Denied, refusal));
                }
                // A target inside the root at the first name can be outside at this one.
                if let Some(target) = target {
                    destination.policy.check_target(target.as_bytes(), path, destination.depth)?;
                }
            }
            linked.map(drop)
        }
        Kind::Fifo => node(FileKind::Fifo, 0),
        Kind::Socket => node(FileKind::Socket, 0),
        Kind::CharDevice { major, minor } => node(FileKind::CharDevice, stat::device_of(*major, *minor)),
        Kind::BlockDevice { major, minor } => node(FileKind::BlockDevice, stat::device_of(*major, *minor)),
        Kind::File { .. } | Kind::Directory => return Err(Why::Internal.into()),
    };
    made.map_err(|error| reason("cannot create", &error))
}
