//! Removal of sources whose copies exist. The trees at both ends are walked in parallel, and each
//! name with a matching copy is removed. A directory is removed after everything beneath it.

use super::compare::{CopyRequirements, KeepReason, Side, keep_reason};
use super::ends::{Ends, Facts, NamePair, Node, source_at};
use super::error::MoveError;
use super::settings::MoveObserver;
use crate::cp::{Place, Unstored};
use crate::location::{EntryName, Location};
use crate::paths::without_slashes;
use haul_engine::copy::quote;
use haul_engine::{Pool, WorkItem};
use haul_engine::{files_left, workers_within};
use haul_model::limits;
use haul_storage::{Entry, FileKind, Follow, Listing};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of entries read from a directory before they are shared.
const ENTRIES_PER_READ: usize = 8 * limits::ENTRIES_PER_BATCH;

/// An operand that was copied.
#[derive(Clone, Debug)]
pub(super) struct CopiedOperand {
    /// The source, as typed.
    pub(super) source: OsString,
    /// Name of its copy, relative to the common target directory.
    pub(super) name: OsString,
    /// Device and inode number of the file or directory that was copied.
    pub(super) identity: (u64, u64),
}

/// Removal of the copied operands, or a check of which could be removed.
pub(super) struct Removal<'a> {
    pub(super) report: &'a dyn MoveObserver,
    pub(super) stop: &'a AtomicBool,
    /// Common target directory of the operands.
    pub(super) place: &'a Place,
    pub(super) requirements: CopyRequirements,
    pub(super) unstored: &'a Unstored,
    pub(super) verbose: bool,
    pub(super) workers: usize,
}

/// State shared by the workers.
struct Job<'a> {
    removal: &'a Removal<'a>,
    pool: Pool<'a, Walk, u8>,
    ends: Ends<'a>,
    /// True for a check without removals and reports: it only determines if everything could be
    /// removed.
    only_looks: bool,
    failures: AtomicU64,
}

enum Walk {
    Operand(CopiedOperand),
    /// A directory of this name, which is opened when its turn comes.
    Enter(Arc<Node>, EntryName, Box<Facts>),
    /// The rest of a directory that waited half read, or that is read again.
    Read(Arc<Node>, Box<dyn Listing>),
    Batch(Arc<Node>, Vec<Entry>),
}

impl Removal<'_> {
    /// Removes everything in these operands that was copied. Returns the number of names that had
    /// to stay; each was reported.
    pub(super) fn remove(&self, operands: Vec<CopiedOperand>) -> u64 {
        self.walk(operands, false)
    }

    /// Returns true if the complete operand could be removed.
    pub(super) fn could_remove(&self, operand: &CopiedOperand) -> bool {
        self.walk(vec![operand.clone()], true) == 0
    }

    fn walk(&self, operands: Vec<CopiedOperand>, only_looks: bool) -> u64 {
        let workers = match &*operands {
            [operand] if !is_directory(&operand.source) => 0,
            _ => workers_within(self.workers, files_left()),
        };
        let (pool, failures) = (Pool::new(workers, self.stop), AtomicU64::new(0));
        let job = Job { removal: self, pool, ends: Ends::new(workers, self.place), only_looks, failures };
        // The pool takes the last offered walk first.
        for operand in operands.into_iter().rev() {
            job.pool.offer_walk(Walk::Operand(operand));
        }
        job.pool.run(workers, |_| (), |(), turn| job.turn(turn));
        // After a stop, the permissions of some directories may still be extended.
        for node in job.ends.take_granted() {
            job.shut(&node);
        }
        job.failures.into_inner() + u64::from(self.stop.load(Ordering::Relaxed))
    }
}

impl Job<'_> {
    fn turn(&self, turn: WorkItem<Walk, u8>) {
        match turn {
            WorkItem::Walk(Walk::Operand(operand)) => self.operand(&operand),
            WorkItem::Walk(Walk::Enter(parent, name, facts)) => self.with(&parent, 1, |job, parent| {
                job.enter(Some(parent), NamePair { source: &name, sink: &name }, *facts);
            }),
            WorkItem::Walk(Walk::Read(node, listing)) => {
                self.ends.half_read.resume();
                self.with(&node, 1, |job, node| job.read(node, listing));
            }
            WorkItem::Walk(Walk::Batch(node, entries)) => {
                self.with(&node, entries.len(), |job, node| job.batch(node, entries, 0));
            }
            WorkItem::Object(..) | WorkItem::Help(_) => {}
        }
    }

    fn operand(&self, operand: &CopiedOperand) {
        if let b"." | b".." = crate::paths::last_component(&operand.source).as_bytes() {
            return self.fail(None, &MoveError::DotDirectory(operand.source.clone()));
        }
        let found = Location::here(&operand.source).stat(Follow::No);
        // Another file has this name now, or the path leads elsewhere: that file was not copied.
        if found.as_ref().is_ok_and(|found| found.identity() != operand.identity) {
            let (path, sink) = (operand.source.clone(), self.removal.place.path_of(&operand.name));
            return self.fail(None, &MoveError::Changed { path, sink });
        }
        let kind = found.map(|found| found.kind);
        let source = EntryName::Path(with_one_slash(&operand.source).to_owned());
        let sink = EntryName::from(operand.name.clone());
        self.name(None, NamePair { source: &source, sink: &sink }, kind.ok());
    }

    /// Opens a directory and continues with its waiting items. If it can no longer be opened, all
    /// these items stay.
    fn with(&self, node: &Arc<Node>, waiting: usize, go_on: impl FnOnce(&Self, &Arc<Node>)) {
        match node.reach() {
            Ok(_held) => go_on(self, node),
            Err(source) => {
                self.cannot(Some(node), "access", node.source_path(), source);
                self.leave(node, waiting);
            }
        }
    }

    fn read(&self, node: &Arc<Node>, mut listing: Box<dyn Listing>) {
        let mut entries = Vec::with_capacity(limits::ENTRIES_PER_BATCH);
        loop {
            let more = listing.next(ENTRIES_PER_READ, &mut entries).unwrap_or_else(|source| {
                self.cannot(Some(node), "access", node.source_path(), source);
                false
            });
            if !more {
                drop(listing);
                break;
            }
            if self.ends.half_read.pause() {
                node.pending.fetch_add(1, Ordering::Relaxed);
                self.pool.offer_walk(Walk::Read(Arc::clone(node), listing));
                break;
            }
        }
        node.pending.fetch_add(entries.len(), Ordering::Relaxed);
        entries.sort_unstable_by_key(|entry| entry.ino);
        while entries.len() > limits::ENTRIES_PER_BATCH {
            let later = entries.split_off(entries.len() - limits::ENTRIES_PER_BATCH);
            self.pool.offer_walk(Walk::Batch(Arc::clone(node), later));
        }
        self.batch(node, entries, 1);
    }

    /// Removes names of a directory; `through` more items beneath it have finished. The directory
    /// is completed after its last name, because going up needs descriptors at each level.
    fn batch(&self, node: &Arc<Node>, entries: Vec<Entry>, mut through: usize) {
        for entry in entries {
            if self.pool.stopping() {
                return;
            }
            let name = EntryName::Name(entry.name);
            let names = NamePair { source: &name, sink: &name };
            through += usize::from(self.name(Some(node), names, entry.kind));
        }
        self.leave(node, through);
    }

    /// Removes a name, or starts the directory of this name. Returns false if a directory remains
    /// to be removed.
    fn name(&self, parent: Option<&Arc<Node>>, names: NamePair<'_>, kind: Option<FileKind>) -> bool {
        match (self.check(parent, names, kind), parent) {
            (Ok(found), None) if found.source.kind == FileKind::Directory => {
                self.enter(None, names, found);
                return false;
            }
            (Ok(found), Some(parent)) if found.source.kind == FileKind::Directory => {
                let later = Walk::Enter(Arc::clone(parent), names.source.clone(), Box::new(found));
                self.pool.offer_walk(later);
                return false;
            }
            (Ok(_), _) => self.unlink(parent, names.source),
            (Err(error), _) => self.fail(parent, &error),
        }
        true
    }

    /// Starts a directory.
    fn enter(&self, parent: Option<&Arc<Node>>, names: NamePair<'_>, facts: Facts) {
        match self.ends.enter(parent, names, facts) {
            Ok((node, listing)) => self.read(&node, listing),
            Err(source) => {
                self.cannot(parent, "remove", path(parent, names.source, |node| &node.name), source);
                if let Some(parent) = parent {
                    self.leave(parent, 1);
                }
            }
        }
    }

    /// Stats a name at both ends and compares the results.
    fn check(
        &self,
        parent: Option<&Arc<Node>>,
        names: NamePair<'_>,
        kind: Option<FileKind>,
    ) -> Result<Facts, MoveError> {
        let above = parent.map(|parent| &**parent);
        let source_path = || path(parent, names.source, |node| &node.name);
        let sink_path = || self.removal.place.path_of(&path(parent, names.sink, |node| &node.sink_name));
        // A link to a directory with a trailing slash was moved as a link.
        let sink = match names.sink {
            EntryName::Path(path) if kind != Some(FileKind::Directory) => {
                self.ends.sink_at(above, without_slashes(path))
            }
            name => self.ends.sink_at(above, name),
        };
        let source = source_at(above, names.source);
        let found = source.stat(Follow::No).map_err(|source| MoveError::Cannot {
            action: "remove",
            path: source_path(),
            source,
        })?;
        let copy = sink.stat(Follow::No).map_err(|source| MoveError::NoCopy {
            path: source_path(),
            sink: sink_path(),
            source,
        })?;
        let (source, sink) = (Side { stat: found, at: source }, Side { stat: copy, at: sink });
        let unstored = self.removal.unstored.may_contain(found.identity());
        match keep_reason(&source, &sink, self.removal.requirements) {
            None if unstored => {
                let what = "attributes";
                Err(MoveError::Differs { path: source_path(), sink: sink_path(), what })
            }
            None => Ok(Facts { source: found, sink: copy }),
            Some(KeepReason::Changed) => Err(MoveError::Changed { path: source_path(), sink: sink_path() }),
            Some(KeepReason::Differs(what)) => {
                Err(MoveError::Differs { path: source_path(), sink: sink_path(), what })
            }
        }
    }

    fn unlink(&self, parent: Option<&Arc<Node>>, name: &EntryName) {
        if self.only_looks {
            return;
        }
        let path = || path(parent, name, |node| &node.name);
        match source_at(parent.map(|parent| &**parent), name).unlink() {
            Ok(()) => self.tell("removed", path),
            Err(source) => self.cannot(parent, "remove", path(), source),
        }
    }

    /// Counts `through` items beneath a directory as finished. The last item also removes the
    /// directory, and so on upward.
    fn leave(&self, node: &Arc<Node>, mut through: usize) {
        let mut current = Arc::clone(node);
        while through > 0 && current.pending.fetch_sub(through, Ordering::AcqRel) == through {
            through = 1;
            // A directory leads to the one above in one step, until it is removed or its copy gets
            // its mode back. An error occurs again in the removal.
            let _held = current.reach();
            let _above = current.parent.as_ref().map(|above| above.reach());
            let stays = self.only_looks || current.stays.load(Ordering::Relaxed);
            if !stays && !self.remove_directory(&current) {
                return;
            }
            if current.is_access_granted() {
                self.ends.forget_granted(&current);
                self.shut(&current);
            }
            match &current.parent {
                Some(parent) => current = Arc::clone(parent),
                None => return,
            }
        }
    }

    /// Removes an emptied directory. Returns false if it was not empty and is read again.
    fn remove_directory(&self, node: &Arc<Node>) -> bool {
        let above = node.parent.as_deref();
        let source = match source_at(above, &node.name).remove_directory() {
            Ok(()) => {
                self.tell("removed directory", || node.source_path());
                return true;
            }
            Err(error) => error,
        };
        let is_first = !node.is_reread.swap(true, Ordering::Relaxed);
        if source.kind() == io::ErrorKind::DirectoryNotEmpty
            && is_first
            && let Ok(again) = node.list()
        {
            node.pending.fetch_add(1, Ordering::Relaxed);
            self.ends.half_read.pause_anyway();
            self.pool.offer_walk(Walk::Read(Arc::clone(node), again));
            return false;
        }
        self.cannot(node.parent.as_ref(), "remove", node.source_path(), source);
        true
    }

    /// Restores the mode of a directory's copy after its permissions were extended.
    fn shut(&self, node: &Node) {
        if let Err(source) = node.shut() {
            let sink = path(node.parent.as_ref(), &node.sink_name, |node| &node.sink_name);
            let sink = self.removal.place.path_of(&sink);
            self.cannot(None, "restore the mode of", sink, source);
        }
    }

    fn tell(&self, verb: &str, path: impl Fn() -> OsString) {
        if self.removal.verbose {
            let line = format!("{verb} {}", quote(&path()));
            self.removal.report.made(OsStr::new(&line));
        }
    }

    fn cannot(&self, parent: Option<&Arc<Node>>, action: &'static str, path: OsString, source: io::Error) {
        self.fail(parent, &MoveError::Cannot { action, path, source });
    }

    /// Records that an item stays, and with it all directories above.
    fn fail(&self, parent: Option<&Arc<Node>>, error: &MoveError) {
        for node in std::iter::successors(parent, |node| node.parent.as_ref()) {
            node.stays.store(true, Ordering::Relaxed);
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !self.only_looks {
            self.removal.report.not_moved(error);
        }
    }
}

impl Node {
    fn source_path(&self) -> OsString {
        path(self.parent.as_ref(), &self.name, |node| &node.name)
    }
}

/// Returns the path of a name in a directory, for messages. `of` selects one of a directory's two
/// names.
fn path(parent: Option<&Arc<Node>>, name: &OsStr, of: impl Fn(&Node) -> &EntryName) -> OsString {
    let mut above: Vec<&EntryName> =
        std::iter::successors(parent, |node| node.parent.as_ref()).map(|node| of(node)).collect();
    let Some(first) = above.pop() else { return name.to_owned() };
    let mut path = first.to_os_string();
    for part in above.into_iter().rev().map(|name| &**name).chain([name]) {
        if !path.as_bytes().ends_with(b"/") {
            path.push("/");
        }
        path.push(part);
    }
    path
}

/// Returns a name in the form that tree-walking tools print: several trailing slashes become one,
/// but `//` may be a separate root.
fn with_one_slash(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    if bytes.len() == 2 { name } else { OsStr::from_bytes(&bytes[..bytes.len().min(end + 1)]) }
}

fn is_directory(name: &OsStr) -> bool {
    Location::here(name).stat(Follow::No).is_ok_and(|found| found.kind == FileKind::Directory)
}
