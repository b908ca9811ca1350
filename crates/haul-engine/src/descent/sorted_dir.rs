//! A directory in the order of its names, in memory that doesn't grow with the number of names.
//!
//! The directory is read several times if it is large: each pass keeps the smallest names behind
//! those already handed out, as many as fit the budget.

use haul_sys::dir::{DirReader, is_same_file, rewind};
use haul_sys::{FileKind, Stat};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of names one pass keeps at least, and at most twice of it while it reads. About 300,000
/// names of the usual length; a larger directory is read again for each of that many.
const NAMES_BYTES: usize = 8 << 20;

/// A call on a descriptor that is not open.
const EBADF: i32 = 9;

/// Entries asked of the directory at a time.
const BATCH: usize = 512;

/// The names of one directory, handed out in the order of their bytes. It can be closed meanwhile.
#[derive(Debug)]
pub(super) struct SortedDir {
    fd: Option<Arc<OwnedFd>>,
    /// The directory as it was opened first.
    facts: Stat,
    names: Names,
    /// Index in `names` of the next one.
    at: usize,
    /// True if a further pass may find names behind the last one kept.
    more: bool,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: CString,
    pub(super) kind_hint: Option<FileKind>,
}

impl SortedDir {
    /// Reads the first names of a directory with these facts.
    pub(super) fn read(fd: OwnedFd, facts: Stat) -> io::Result<SortedDir> {
        SortedDir::with_budget(fd, facts, NAMES_BYTES)
    }

    fn with_budget(fd: OwnedFd, facts: Stat, budget: usize) -> io::Result<SortedDir> {
        let names = Names { budget, ..Names::default() };
        let mut dir = SortedDir { fd: None, facts, names, at: 0, more: true };
        let fd = Arc::new(fd);
        dir.pass(&fd, None)?;
        dir.fd = Some(fd);
        Ok(dir)
    }

    /// The directory itself, to open its entries; `None` while it is closed.
    pub(super) fn fd(&self) -> Option<&Arc<OwnedFd>> {
        self.fd.as_ref()
    }

    /// Returns the state of the directory when it was opened first.
    pub(super) fn facts(&self) -> &Stat {
        &self.facts
    }

    /// Closes the directory; its names stay. Files that are still to be opened in it hold it open
    /// by themselves.
    pub(super) fn close(&mut self) {
        self.fd = None;
    }

    /// Takes the directory, which was opened again, unless it is another one by now.
    ///
    /// # Errors
    /// Returns an error if it is another one, or if stat(2) fails.
    pub(super) fn reopen(&mut self, fd: OwnedFd) -> io::Result<()> {
        if !is_same_file(&fd, &self.facts)? {
            return Err(io::Error::other("replaced by another directory while it was read"));
        }
        self.fd = Some(Arc::new(fd));
        Ok(())
    }

    /// Returns true if all names were returned, so that the directory is needed no more.
    pub(super) fn is_through(&self) -> bool {
        self.at == self.names.places.len() && !self.more
    }

    /// Returns no more names from here on.
    pub(super) fn end(&mut self) {
        self.names.clear();
        (self.at, self.more) = (0, false);
    }

    /// The next name. The directory must be open.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read; `EBADF` while it is closed.
    pub(super) fn next(&mut self) -> io::Result<Option<Name>> {
        if self.at == self.names.places.len() && self.more {
            let last = self.at.checked_sub(1).map(|at| self.names.bytes_at(at).to_vec());
            let fd = self.fd.clone().ok_or_else(|| io::Error::from_raw_os_error(EBADF))?;
            rewind(&fd)?;
            self.pass(&fd, last.as_deref())?;
        }
        let found = (self.at < self.names.places.len()).then(|| self.names.name_at(self.at));
        self.at += usize::from(found.is_some());
        Ok(found)
    }

    /// Reads the whole directory and keeps the smallest names behind `last`.
    fn pass(&mut self, fd: &OwnedFd, last: Option<&[u8]>) -> io::Result<()> {
        self.names.clear();
        (self.at, self.more) = (0, false);
        let mut reader = DirReader::new(fd);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let go_on = reader.read_batch(BATCH, &mut batch)?;
            for entry in batch.drain(..) {
                let name = entry.name.to_bytes();
                if last.is_none_or(|last| name > last) {
                    self.more |= self.names.offer(name, entry.kind_hint);
                }
            }
            if !go_on {
                break;
            }
        }
        self.names.sort();
        Ok(())
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

    fn name_at(&self, at: usize) -> Name {
        // A name out of the kernel ends at its first zero byte, so there is none within.
        let name = CString::new(self.bytes_at(at)).unwrap_or_default();
        Name { name, kind_hint: self.places[at].kind }
    }
}

fn slice<'a>(bytes: &'a [u8], place: &Place) -> &'a [u8] {
    &bytes[place.start as usize..][..usize::from(place.len)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::dir::{CWD, open_dir_at};
    use haul_sys::{Follow, stat};
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn names_are_sorted_for_any_budget(names in proptest::collection::btree_set("[a-zé\\\\\n ]{1,12}", 0..60), budget in 0usize..2000) {
            let dir = tempfile::tempdir().unwrap();
            for name in &names {
                std::fs::write(dir.path().join(name), "").unwrap();
            }
            let fd = open_dir_at(CWD, dir.path(), Follow::Yes).unwrap();
            let facts = stat::stat_fd(&fd).unwrap();
            let mut sorted = SortedDir::with_budget(fd, facts, budget).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = sorted.next().unwrap() {
                found.push(std::ffi::OsStr::from_bytes(entry.name.to_bytes()).to_str().unwrap().to_owned());
            }
            prop_assert_eq!(found, names.into_iter().collect::<Vec<_>>());
        }
    }
}
