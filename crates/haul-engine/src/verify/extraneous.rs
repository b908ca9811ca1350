//! Extraneous files: files that no section of the waybill lists.

use super::index::Index;
use super::stored::last_name;
use super::{Verdict, VerdictKind};
use crate::descent::{Descent, Step, WalkEntry};
use crate::signature::beside;
use crate::stored::HIDDEN;
use haul_log::waybill::RelPath;
use haul_storage::{Dir, FileKind, Follow, Name};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Device and inode of the waybill and its signature. Wherever they are located, they describe the
/// data and are not a part of it.
#[derive(Debug)]
pub(super) struct ReceiptFiles(Vec<(u64, u64)>);

impl ReceiptFiles {
    /// Returns the existing ones of a waybill and its signature.
    pub(super) fn at(waybill: &OsStr) -> ReceiptFiles {
        let signature = beside(waybill);
        let found = [waybill, &signature].into_iter().flat_map(fs::metadata);
        ReceiptFiles(found.map(|facts| (facts.dev(), facts.ino())).collect())
    }

    /// Returns true if an entry is one of them.
    fn has(&self, dir: &dyn Dir, name: &Name) -> bool {
        dir.stat_at(name, Follow::No).is_ok_and(|found| self.0.contains(&found.identity()))
    }
}

/// Walk of everything below the root, without following links, that reports extraneous regular
/// files.
pub(super) struct ExtraneousWalk<'a> {
    pub(super) root: &'a Arc<dyn Dir>,
    pub(super) index: &'a Index,
    pub(super) receipt: &'a ReceiptFiles,
    pub(super) stop: &'a AtomicBool,
    pub(super) tell: &'a mut dyn FnMut(Verdict),
}

impl ExtraneousWalk<'_> {
    /// Runs the walk. A directory that cannot be listed is reported as unreadable; the walk
    /// continues with the others.
    ///
    /// # Errors
    /// Returns an error if the root itself cannot be listed.
    pub(super) fn find(mut self) -> io::Result<()> {
        let mut descent = Descent::default();
        descent.begin(Arc::clone(self.root), OsStr::new("/"))?;
        while !descent.is_over() && !self.stop.load(Ordering::Relaxed) {
            match descent.step() {
                Step::Entry(WalkEntry { dir, name, path, kind: FileKind::Regular, .. }) => {
                    let path = beneath(&path);
                    if self.index.is_extraneous(path) && !self.receipt.has(&*dir, &name) {
                        self.tell(path, VerdictKind::Extra);
                    }
                }
                // The stored digests describe the data as well.
                Step::Entered(_, path, ()) if beneath(&path) == HIDDEN.as_bytes() => descent.skip(),
                Step::Failed(path, _) if beneath(&path) == HIDDEN.as_bytes() => {}
                Step::Failed(path, error) if beneath(&path).is_empty() => return Err(error),
                Step::Failed(path, error) => self.fail(beneath(&path), &error),
                Step::Entry(..) | Step::Entered(..) | Step::Left(_) | Step::Nothing => {}
            }
        }
        Ok(())
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

/// Returns a path of the walk as the path beneath the root; empty for the root.
fn beneath(path: &OsStr) -> &[u8] {
    let path = path.as_bytes();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}
