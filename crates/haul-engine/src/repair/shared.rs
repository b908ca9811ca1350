//! Files that are more than one entry of the waybill: a repair of one of them must not touch another.
//!
//! A user linked one file over another, or a link leads from one directory of the root to another. Then bytes that are wrong under one name
//! may be right under another, and perhaps nowhere else.

use super::places::Spot;
use super::rounds::Wanted;
use super::{Repair, Why, rebuild};
use haul_log::waybill::{Entry, Kind, ReadError, Reader, Record, RelPath};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{Follow, Stat};
use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::os::fd::OwnedFd;

/// Entries that lead to the file of a wanted name, by the file.
pub(super) type Shared = HashMap<(u64, u64), Vec<Entry>>;

/// Looks for the entries that lead to the file of one of the `wanted` names, if there is more than one.
///
/// # Errors
/// The waybill cannot be read any more.
pub(super) fn find<R: BufRead>(
    reader: Reader<R>,
    root: &OwnedFd,
    wanted: &Wanted,
) -> Result<Shared, ReadError> {
    let paths = wanted.keys().filter_map(|path| RelPath::new(path).ok());
    let files: HashSet<_> = paths.filter_map(|path| identity(root, &path)).collect();
    let mut shared = Shared::new();
    for record in reader {
        let Record::Entry(entry) = record? else { continue };
        if !files.is_empty()
            && matches!(entry.kind, Kind::File(_) | Kind::Same { .. })
            && let Some(file) = identity(root, &entry.path).filter(|file| files.contains(file))
        {
            let entries = shared.entry(file).or_default();
            // A later section speaks last.
            entries.retain(|known: &Entry| known.path != entry.path);
            entries.push(entry);
        }
    }
    shared.retain(|_, entries| entries.len() > 1);
    Ok(shared)
}

/// The file that a path leads to; `None` where that is none.
fn identity(root: &OwnedFd, path: &RelPath) -> Option<(u64, u64)> {
    Spot::of(root, path).and_then(|spot| spot.open()).ok().map(|(_, facts)| facts.identity())
}

impl Repair<'_> {
    /// Returns true if further entries lead to the file of a name.
    pub(super) fn is_several_entries(&self, path: &RelPath) -> bool {
        identity(self.root, path).is_some_and(|file| self.shared.contains_key(&file))
    }

    /// Links the further names of an entry to its repaired file, which replaced the file `old` under the first name alone.
    ///
    /// # Errors
    /// [`Why::Io`]: names before the one that failed are linked.
    pub(super) fn link_again(&self, entry: &Entry, spot: &Spot, old: &Stat) -> Result<(), Why> {
        let entries = self.shared.get(&old.identity()).map_or(&[][..], Vec::as_slice);
        let is_further = |other: &&Entry| matches!(&other.kind, Kind::Same { first } if *first == entry.path);
        for other in entries.iter().filter(is_further) {
            let there = Spot::of(self.root, &other.path).map_err(Why::place)?;
            let found = stat_at(&there.place, there.name.as_c_str(), Follow::No);
            if found.is_ok_and(|found| found.identity() == old.identity()) {
                rebuild::link_over(spot, &there)?;
            }
        }
        Ok(())
    }

    /// Returns true if a file is another entry as well, one of other bytes: it must not be written into.
    ///
    /// # Errors
    /// [`Why::OneName`]: both are one name, so that it may not be put in another place either.
    pub(super) fn is_another(&self, entry: &Entry, spot: &Spot, file: &Stat) -> Result<bool, Why> {
        let entries = self.shared.get(&file.identity()).map_or(&[][..], Vec::as_slice);
        let mut is_another = false;
        for other in entries.iter().filter(|other| other.path != entry.path) {
            if has_same(entry, other, entries) {
                continue;
            }
            // It may have been repaired since: it is another file then.
            let Ok(there) = Spot::of(self.root, &other.path) else { continue };
            let is_here = |there: &Spot| stat_at(&there.place, there.name.as_c_str(), Follow::No);
            if !is_here(&there).is_ok_and(|found| found.identity() == file.identity()) {
                continue;
            }
            let [here, there_place] =
                [&spot.place, &there.place].map(|place| stat_fd(place).map(|found| found.identity()));
            if spot.name == there.name && matches!((here, there_place), (Ok(a), Ok(b)) if a == b) {
                return Err(Why::OneName(other.path.clone()));
            }
            is_another = true;
        }
        Ok(is_another)
    }
}

/// Returns true if the waybill gives two entries the same bytes.
fn has_same(entry: &Entry, other: &Entry, entries: &[Entry]) -> bool {
    let first = |entry: &'_ Entry| match &entry.kind {
        Kind::Same { first } => first.clone(),
        _ => entry.path.clone(),
    };
    let content = |path: &RelPath| {
        entries.iter().find(|known| known.path == *path).and_then(|known| match &known.kind {
            Kind::File(content) if !content.digests.is_empty() => Some((content.size, &content.digests)),
            _ => None,
        })
    };
    let (a, b) = (first(entry), first(other));
    a == b || content(&a).is_some_and(|a| Some(a) == content(&b))
}
