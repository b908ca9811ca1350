//! Pages of a directory's listing, sorted by the bytes of the names.

use super::{FileError, directory, failed};
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::stat::stat_at;
use haul_sys::{FileKind, Follow, Stat};
use std::collections::BinaryHeap;
use std::ffi::CString;
use std::os::fd::OwnedFd;

/// Names that are read at once.
const BATCH_LEN: usize = 1024;

/// Prefix of the names of haul's own files, which belong to running transfers.
const OWN: &[u8] = b".haul-";

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
    let mut reader = DirReader::new(opened);
    // The smallest names so far; the largest of them is on top.
    let mut page: BinaryHeap<CString> = BinaryHeap::with_capacity(max + 2);
    let (mut has_more, mut more) = (false, true);
    let mut batch = Vec::with_capacity(BATCH_LEN);
    while more {
        more = reader.read_batch(BATCH_LEN, &mut batch).map_err(failed(DOING))?;
        for entry in batch.drain(..) {
            let name = entry.name.as_bytes();
            if name <= after || name.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN)) {
                continue;
            }
            if page.len() < max {
                page.push(entry.name);
            } else {
                has_more = true;
                if page.peek().is_some_and(|largest| entry.name < *largest) {
                    page.pop();
                    page.push(entry.name);
                }
            }
        }
    }
    let with_facts = |name: CString| {
        let facts = stat_at(&place, name.as_c_str(), Follow::No).ok();
        (name, facts)
    };
    Ok(Listing { entries: page.into_sorted_vec().into_iter().map(with_facts).collect(), has_more })
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
