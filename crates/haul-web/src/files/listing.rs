//! Pages of a directory's listing, sorted by the bytes of the names.

use super::{FileError, directory, failed};
use haul_proto::check_received;
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::stat::stat_at;
use haul_sys::{FileKind, Follow, Stat};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

/// One page.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Names and metadata; `None` if an entry was removed meanwhile or cannot be examined.
    pub(crate) entries: Vec<(CString, Option<Stat>)>,
    /// True if more names follow behind the last one.
    pub(crate) has_more: bool,
}

/// Lists at most `max` entries of the directory `path` whose names come after `after`.
///
/// Each page reads the whole directory, and keeps only the names of the page: memory does not grow
/// with the directory.
pub(crate) fn list(root: &OwnedFd, path: &[u8], after: &[u8], max: usize) -> Result<Listing, FileError> {
    const DOING: &str = "list the directory";
    let place = directory(root, path, DOING)?;
    let opened = open_dir_at(&place, c".", Follow::No).map_err(failed(DOING))?;
    let is_wanted = |name: &[u8]| Ok::<_, io::Error>(check_received(name).is_ok());
    let names = DirReader::new(opened).names_behind(after, max, is_wanted);
    let (names, has_more) = names.map_err(failed(DOING))?;
    let with_facts = |name: CString| {
        let facts = stat_at(&place, name.as_c_str(), Follow::No).ok();
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
