//! A directory in the order of its names, in memory that doesn't grow with the number of names.
//!
//! The directory is read several times if it is large: each pass keeps the smallest names behind
//! those already handed out, as many as fit the budget.

use haul_storage::{Dir, Entry, FileKind, Name};
use std::io;
use std::sync::Arc;

/// Bytes of names one pass keeps at least, and at most twice of it while it reads. About 300,000
/// names of the usual length; a larger directory is read again for each of that many.
const NAMES_BYTES: usize = 8 << 20;

/// Maximum number of names of a small directory: at most 1 MiB.
const SMALL_MAX: usize = 4096;

/// Entries asked of the directory at a time.
const BATCH: usize = 512;

/// The entries of one directory, returned in the order of the bytes of their names.
#[derive(Debug)]
pub(super) struct SortedDir {
    dir: Arc<dyn Dir>,
    names: Names,
    /// Index in `names` of the next one.
    at: usize,
    /// True if a further pass may find names behind the last one kept.
    more: bool,
}

impl SortedDir {
    /// Reads the first names of a directory.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::list`] and of the listing.
    pub(super) fn read(dir: Arc<dyn Dir>) -> io::Result<SortedDir> {
        SortedDir::with_budget(dir, NAMES_BYTES)
    }

    /// Reads all names of a directory. Returns `None` if there are more than [`SMALL_MAX`].
    ///
    /// # Errors
    /// Same as [`SortedDir::read`].
    pub(super) fn read_small(dir: Arc<dyn Dir>) -> io::Result<Option<SortedDir>> {
        let mut sorted = SortedDir::unread(dir, NAMES_BYTES);
        Ok(sorted.pass(None, SMALL_MAX)?.then_some(sorted))
    }

    fn with_budget(dir: Arc<dyn Dir>, budget: usize) -> io::Result<SortedDir> {
        let mut sorted = SortedDir::unread(dir, budget);
        sorted.pass(None, usize::MAX)?;
        Ok(sorted)
    }

    fn unread(dir: Arc<dyn Dir>, budget: usize) -> SortedDir {
        SortedDir { dir, names: Names { budget, ..Names::default() }, at: 0, more: true }
    }

    /// Returns the directory itself, to open its entries.
    pub(super) fn dir(&self) -> &Arc<dyn Dir> {
        &self.dir
    }

    /// Returns the number of bytes that the names take.
    pub(super) fn bytes(&self) -> usize {
        self.names.bytes.capacity() + self.names.places.capacity() * size_of::<Place>()
    }

    /// Returns no more entries from here on.
    pub(super) fn end(&mut self) {
        self.names.clear();
        (self.at, self.more) = (0, false);
    }

    /// Returns the next name, and the kind of its entry if the directory stores it. Returns `None`
    /// at the end.
    ///
    /// # Errors
    /// Same as [`SortedDir::read`].
    pub(super) fn next(&mut self) -> io::Result<Option<(Name, Option<FileKind>)>> {
        if self.at == self.names.places.len() && self.more {
            let last = self.at.checked_sub(1).map(|at| self.names.bytes_at(at).to_vec());
            self.pass(last.as_deref(), usize::MAX)?;
        }
        let Some(place) = self.names.places.get(self.at) else { return Ok(None) };
        let name = Name::new(slice(&self.names.bytes, place)).ok_or(io::ErrorKind::InvalidFilename)?;
        self.at += 1;
        Ok(Some((name, place.kind)))
    }

    /// Reads the whole directory and keeps the smallest names behind `last`. Returns false, after
    /// about `most` names, if there are more.
    fn pass(&mut self, last: Option<&[u8]>, most: usize) -> io::Result<bool> {
        self.end();
        let mut list = self.dir.list()?;
        let mut batch = Vec::with_capacity(BATCH);
        let (mut goes_on, mut count) = (true, 0);
        while goes_on {
            goes_on = list.next(BATCH, &mut batch)?;
            count += batch.len();
            if count > most {
                return Ok(false);
            }
            for Entry { name, kind, .. } in batch.drain(..) {
                if last.is_none_or(|last| name.as_bytes() > last) {
                    self.more |= self.names.offer(name.as_bytes(), kind);
                }
            }
        }
        self.names.sort();
        Ok(true)
    }
}

/// Names packed end to end.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Names behind this one are left to a later pass.
    bound: Option<Vec<u8>>,
    budget: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    len: u16,
    kind: Option<FileKind>,
}

impl Names {
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.bound = None;
    }

    /// Takes a name; returns whether some name had to be left to a later pass.
    fn offer(&mut self, name: &[u8], kind: Option<FileKind>) -> bool {
        if self.bound.as_deref().is_some_and(|bound| name > bound) {
            return true;
        }
        let place = Place { start: self.bytes.len() as u32, len: name.len() as u16, kind };
        self.bytes.extend_from_slice(name);
        self.places.push(place);
        let full = self.bytes.len() + self.places.len() * size_of::<Place>() > 2 * self.budget;
        if full {
            self.keep_smaller_half();
        }
        full
    }

    fn keep_smaller_half(&mut self) {
        self.sort();
        self.places.truncate(self.places.len().div_ceil(2));
        let mut kept = Vec::with_capacity(self.bytes.len() / 2);
        for place in &mut self.places {
            let name = &self.bytes[place.start as usize..][..usize::from(place.len)];
            place.start = kept.len() as u32;
            kept.extend_from_slice(name);
        }
        self.bytes = kept;
        self.bound = self.places.len().checked_sub(1).map(|last| self.bytes_at(last).to_vec());
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| slice(bytes, a).cmp(slice(bytes, b)));
    }

    fn bytes_at(&self, at: usize) -> &[u8] {
        slice(&self.bytes, &self.places[at])
    }
}

fn slice<'a>(bytes: &'a [u8], place: &Place) -> &'a [u8] {
    &bytes[place.start as usize..][..usize::from(place.len)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{Create, Follow, local};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn names_are_sorted_for_any_budget(names in proptest::collection::btree_set("[a-zé\\\\\n ]{1,12}", 0..60), budget in 0usize..2000) {
            let home = tempfile::tempdir().unwrap();
            for dir in [local::open(home.path(), Follow::Yes).unwrap(), MemoryStorage::new(1).root()] {
                for name in &names {
                    dir.sink(&Name::new(name.as_str()).unwrap(), Create::New { mode: 0o600 }).unwrap();
                }
                let mut sorted = SortedDir::with_budget(dir, budget).unwrap();
                let mut found = Vec::new();
                while let Some((name, _)) = sorted.next().unwrap() {
                    found.push(String::from_utf8(name.as_bytes().to_vec()).unwrap());
                }
                prop_assert_eq!(found, names.iter().cloned().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn only_a_small_directory_is_read_as_a_small_one() {
        let dir = MemoryStorage::new(1).root();
        let add = |number: usize| {
            let name = Name::new(format!("{number:05}")).unwrap();
            dir.sink(&name, Create::New { mode: 0o600 }).unwrap();
        };
        (0..SMALL_MAX).for_each(add);
        let sorted = SortedDir::read_small(Arc::clone(&dir)).unwrap().unwrap();
        assert!(sorted.names.places.len() == SMALL_MAX && !sorted.more);
        assert!((1..1 << 20).contains(&sorted.bytes()));
        add(SMALL_MAX);
        assert!(SortedDir::read_small(dir).unwrap().is_none());
    }
}
