//! Entries without data: directories, links, additional names, devices. Each has a temporary name
//! until it is complete. Directories are an exception: they are created when the first entry in
//! them arrives.

use super::destination::Destination;
use super::dirs::EntryAt;
use super::metadata::MetadataWriter;
use crate::transfer::reason::reason;
use haul_model::RelPath;
use haul_proto::{FileKind as Kind, NewFile, Reason, Why};
use haul_storage::{FileKind, Follow, Node, Replace, Tag};
use haul_sys::stat::device_of;
use std::io;

/// Creates the entry that `facts` describes, at `path`.
///
/// # Errors
/// Returns [`Why::InTheWay`] if a directory has its name, and otherwise the reason of the failed
/// call.
pub(super) fn make(
    destination: &Destination,
    metadata_writer: &MetadataWriter,
    tag: Tag,
    facts: &NewFile,
    path: &RelPath,
    first: Option<&RelPath>,
) -> Result<(), Reason> {
    let dirs = &destination.dirs;
    if facts.kind == Kind::Directory {
        let dir = dirs.open_or_create(path.as_bytes()).map_err(cannot_create)?;
        return metadata_writer.apply(&*dir, facts);
    }
    let at = dirs.new_entry(path.as_bytes()).map_err(cannot_create)?;
    let existing = at.dir.stat_at(&at.name, Follow::No);
    if existing.is_ok_and(|existing| existing.kind == FileKind::Directory) {
        return Err(Reason::new(Why::InTheWay, "a directory has this name"));
    }
    let temporary = EntryAt { name: tag.name(), dir: at.dir };
    // A killed session with the same tag may have left this name.
    let _ = temporary.remove();
    let made = match (&facts.kind, first) {
        (Kind::HardLink { .. }, Some(first)) => link(destination, first, path, &temporary),
        (Kind::HardLink { .. }, None) => Err(Reason::new(Why::Protocol, "a hard link without a first name")),
        _ => make_node(metadata_writer, facts, &temporary),
    };
    let made = made.and_then(|()| {
        let renamed = temporary.dir.rename(&temporary.name, &*temporary.dir, &at.name, Replace::Yes);
        renamed.map_err(|error| reason("cannot rename to the final name", &error))
    });
    if made.is_err() || first.is_some() {
        // A rename does nothing if both names belong to one file, so the temporary name may still
        // exist.
        let _ = temporary.remove();
    }
    made
}

/// Creates an entry that is neither a file nor a directory, with its metadata.
fn make_node(metadata_writer: &MetadataWriter, facts: &NewFile, at: &EntryAt) -> Result<(), Reason> {
    let special = |kind, rdev| Node::Special { kind, mode: facts.mode & 0o777, rdev };
    let node = match &facts.kind {
        Kind::Symlink { target } => Node::Link { target },
        Kind::Fifo => special(FileKind::Fifo, 0),
        Kind::Socket => special(FileKind::Socket, 0),
        Kind::CharDevice { major, minor } => special(FileKind::CharDevice, device_of(*major, *minor)),
        Kind::BlockDevice { major, minor } => special(FileKind::BlockDevice, device_of(*major, *minor)),
        Kind::File { .. } | Kind::Directory | Kind::HardLink { .. } => return Err(Why::Internal.into()),
    };
    at.dir.make(&at.name, &node).map_err(cannot_create)?;
    let held = at.dir.hold_made(&at.name, &node).map_err(cannot_create)?;
    metadata_writer.apply(&*held, facts)
}

/// Creates a further name, which will be at `path`, of the file at `first`.
fn link(destination: &Destination, first: &RelPath, path: &RelPath, at: &EntryAt) -> Result<(), Reason> {
    let EntryAt { dir, name } = destination.dirs.entry(first.as_bytes()).map_err(cannot_create)?;
    dir.link(&name, Follow::No, &*at.dir, &at.name).map_err(cannot_create)?;
    // The link is checked, not the first name, which may be replaced meanwhile. The caller removes
    // the link.
    let held = at.dir.hold(&at.name).map_err(cannot_create)?;
    let found = held.stat().map_err(cannot_create)?;
    if !destination.may_link_to(&found) {
        return Err(Reason::new(Why::Denied, "the file of this hard link is not from this session"));
    }
    if found.kind == FileKind::Symlink {
        // A target inside the root at the first name can be outside at this one.
        let target = held.read_link().map_err(cannot_create)?;
        destination.policy.check_target(&target, path, destination.depth)?;
    }
    Ok(())
}

fn cannot_create(error: io::Error) -> Reason {
    reason("cannot create", &error)
}
