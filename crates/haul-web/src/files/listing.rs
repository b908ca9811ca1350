//! Pages of a directory's listing, sorted by the bytes of the names.

use super::{FileError, directory, failed};
use haul_proto::check_received;
use haul_storage::{Dir, FileKind, Follow, Name, Stat};
use std::io;
use std::sync::Arc;

/// One page.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Names and metadata; `None` if an entry was removed meanwhile or cannot be examined.
    pub(crate) entries: Vec<(Name, Option<Stat>)>,
    /// True if more names follow behind the last one.
    pub(crate) has_more: bool,
}

/// Lists at most `max` entries of the directory `path` whose names come after `after`.
///
/// Each page reads the whole directory, and keeps only the names of the page: memory does not grow
/// with the directory.
pub(crate) fn list(root: &Arc<dyn Dir>, path: &[u8], after: &[u8], max: usize) -> Result<Listing, FileError> {
    const DOING: &str = "list the directory";
    let dir = directory(root, path, DOING)?;
    let is_wanted = |name: &[u8]| Ok::<_, io::Error>(check_received(name).is_ok());
    let names = dir.list().and_then(|mut listing| listing.names_behind(after, max, is_wanted));
    let (names, has_more) = names.map_err(failed(DOING))?;
    let with_facts = |name: Name| {
        let facts = dir.stat_at(&name, Follow::No).ok();
        (name, facts)
    };
    Ok(Listing { entries: names.into_iter().map(with_facts).collect(), has_more })
}

/// Returns the word for a kind of entry.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice | FileKind::BlockDevice => "device",
        FileKind::Unknown => "unknown",
    }
}
