//! Files that are more than one entry of the waybill: a repair of one entry must not change
//! another.
//!
//! This happens if a user linked one file over another, or if a link leads from one directory of
//! the root to another. Bytes that are wrong under one name may then be right under the other, and
//! may exist nowhere else.

use super::places::{NameAt, Root};
use super::rounds::Wanted;
use super::{LeftReason, Repair, rebuild};
use haul_log::waybill::{Entry, Kind, ReadError, Reader, Record, RelPath};
use haul_storage::Stat;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// Entries that refer to the file of a wanted name, by device and inode.
pub(super) type Shared = HashMap<(u64, u64), Vec<Entry>>;

/// Finds the entries that refer to the file of one of the `wanted` names, if there is more than
/// one.
///
/// # Errors
/// Returns an error if the waybill can no longer be read.
pub(super) fn find<R: BufRead>(reader: Reader<R>, root: &Root, wanted: &Wanted) -> Result<Shared, ReadError> {
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
            // A later section replaces the entry.
            entries.retain(|known: &Entry| known.path != entry.path);
            entries.push(entry);
        }
    }
    shared.retain(|_, entries| entries.len() > 1);
    Ok(shared)
}

/// Returns the device and inode of the file at a path; `None` if it is not a regular file.
fn identity(root: &Root, path: &RelPath) -> Option<(u64, u64)> {
    NameAt::of(root, path).and_then(|name_at| name_at.open()).ok().map(|file| file.opened().identity())
}

impl Repair<'_> {
    /// Returns true if further entries lead to the file of a name.
    pub(super) fn is_several_entries(&self, path: &RelPath) -> bool {
        identity(self.root, path).is_some_and(|file| self.shared.contains_key(&file))
    }

    /// Links the further names of an entry to its repaired file, which replaced the file `old`
    /// under the first name alone.
    ///
    /// # Errors
    /// [`LeftReason::Io`]: names before the one that failed are linked.
    pub(super) fn link_again(&self, entry: &Entry, name_at: &NameAt, old: &Stat) -> Result<(), LeftReason> {
        let entries = self.shared.get(&old.identity()).map_or(&[][..], Vec::as_slice);
        let is_further = |other: &&Entry| matches!(&other.kind, Kind::Same { first } if *first == entry.path);
        for other in entries.iter().filter(is_further) {
            let there = NameAt::of(self.root, &other.path).map_err(LeftReason::place)?;
            if there.stat().is_ok_and(|found| found.identity() == old.identity()) {
                rebuild::link_over(name_at, &there)?;
            }
        }
        Ok(())
    }

    /// Returns true if the file is also another entry with different contents; it must then not be
    /// overwritten in place.
    ///
    /// # Errors
    /// Returns [`LeftReason::OneName`] if both entries are the same name, so that it must not be
    /// replaced either.
    pub(super) fn is_another(
        &self,
        entry: &Entry,
        name_at: &NameAt,
        file: &Stat,
    ) -> Result<bool, LeftReason> {
        let entries = self.shared.get(&file.identity()).map_or(&[][..], Vec::as_slice);
        let mut is_another = false;
        for other in entries.iter().filter(|other| other.path != entry.path) {
            if has_same(entry, other, entries) {
                continue;
            }
            // The other name may refer to another file after a repair.
            let Ok(there) = NameAt::of(self.root, &other.path) else { continue };
            if !there.stat().is_ok_and(|found| found.identity() == file.identity()) {
                continue;
            }
            let dirs = [&name_at.dir, &there.dir].map(|dir| dir.stat().map(|found| found.identity()));
            if name_at.name == there.name && matches!(dirs, [Ok(a), Ok(b)] if a == b) {
                return Err(LeftReason::OneName(other.path.clone()));
            }
            is_another = true;
        }
        Ok(is_another)
    }
}

/// Returns true if the waybill records the same contents for two entries.
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
