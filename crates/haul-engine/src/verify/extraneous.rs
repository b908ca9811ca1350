//! Extraneous files: files that no section of the waybill lists.

use super::index::Index;
use super::stored::last_name;
use super::{Verdict, VerdictKind};
use crate::signature::beside;
use crate::stored::HIDDEN;
use haul_log::waybill::RelPath;
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{DirEntry, DirReader, open_dir_at};
use haul_sys::stat::stat_at;
use haul_sys::{CWD, FileKind, Follow, Stat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of names read from a directory at a time.
const BATCH: usize = 1024;

/// Device and inode of the waybill and its signature. Wherever they are located, they describe the
/// data and are not a part of it.
#[derive(Debug)]
pub(super) struct ReceiptFiles(Vec<(u64, u64)>);

impl ReceiptFiles {
    /// Returns the existing ones of a waybill and its signature.
    pub(super) fn at(waybill: &OsStr) -> ReceiptFiles {
        let signature = beside(waybill);
        let found = [waybill, &signature].into_iter().flat_map(|name| stat_at(CWD, name, Follow::Yes));
        ReceiptFiles(found.map(|facts| facts.identity()).collect())
    }

    fn holds(&self, facts: &Stat) -> bool {
        self.0.contains(&facts.identity())
    }
}

/// Walk of everything below the root, without following links, that reports extraneous regular
/// files.
pub(super) struct ExtraneousWalk<'a> {
    pub(super) root: &'a OwnedFd,
    pub(super) index: &'a Index,
    pub(super) receipt: &'a ReceiptFiles,
    pub(super) stop: &'a AtomicBool,
    pub(super) tell: &'a mut dyn FnMut(Verdict),
    /// Paths of the directories that are still to be listed.
    pub(super) open: Vec<Vec<u8>>,
}

impl ExtraneousWalk<'_> {
    /// Runs the walk. A directory that cannot be listed is reported as unreadable; the walk
    /// continues with the others.
    ///
    /// # Errors
    /// Returns an error if the root itself cannot be listed.
    pub(super) fn find(mut self) -> io::Result<()> {
        self.open.push(Vec::new());
        while let Some(dir) = self.open.pop() {
            match self.list(&dir) {
                Err(error) if dir.is_empty() => return Err(error),
                Err(error) => self.fail(&dir, &error),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn list(&mut self, dir: &[u8]) -> io::Result<()> {
        let place = open_place_beneath(self.root, OsStr::from_bytes(dir), Follow::Yes)?;
        let mut reader = DirReader::new(open_dir_at(&place, c".", Follow::No)?);
        let mut names = Vec::with_capacity(BATCH);
        let mut more = Ok(true);
        while matches!(more, Ok(true)) && !self.stop.load(Ordering::Relaxed) {
            // Process the names that were listed before an error.
            more = reader.read_batch(BATCH, &mut names);
            names.drain(..).for_each(|name| self.examine(dir, &place, &name));
        }
        more.map(drop)
    }

    fn examine(&mut self, dir: &[u8], place: &OwnedFd, entry: &DirEntry) {
        let stat = || stat_at(place, entry.name.as_c_str(), Follow::No);
        let mut path = dir.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(entry.name.to_bytes());
        let kind = match entry.kind_hint.map_or_else(|| stat().map(|facts| facts.kind), Ok) {
            Ok(kind) => kind,
            Err(error) => return self.fail(&path, &error),
        };
        match kind {
            // The stored digests describe the data as well.
            FileKind::Directory if path == HIDDEN.as_bytes() => {}
            FileKind::Directory => self.open.push(path),
            FileKind::Regular if !self.index.is_extraneous(&path) => {}
            FileKind::Regular if stat().is_ok_and(|facts| self.receipt.holds(&facts)) => {}
            FileKind::Regular => self.tell(&path, VerdictKind::Extra),
            _ => {}
        }
    }

    /// Reports a file that cannot be examined, unless it no longer exists. Reports it only once for
    /// any number of shares.
    fn fail(&mut self, path: &[u8], error: &io::Error) {
        let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        if !is_gone && self.index.is_in_share(path) {
            self.tell(path, VerdictKind::Unreadable(crate::sum::reason(error)));
        }
    }

    fn tell(&mut self, path: &[u8], kind: VerdictKind) {
        let (path, kind) = match RelPath::new(path) {
            Ok(path) => (path, kind),
            // The path is too long for any waybill: report its last component.
            Err(fault) => {
                let why = format!("invalid path: {fault}");
                (last_name(OsStr::from_bytes(path)), VerdictKind::Unreadable(why))
            }
        };
        (self.tell)(Verdict::new(path, kind));
    }
}
