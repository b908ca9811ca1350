//! Memory of a job about entries that it found and created, as far as cp's rules need it.
//!
//! It holds names of one inode, sinks being written, directories that the command named or the job
//! created, and the operands found so far. Files with one name and directories are not stored,
//! unless the copy goes into its own source. Memory use therefore does not grow with their number.

mod link_table;
mod writing;

pub(crate) use link_table::{Earlier, FirstSink, LinkAction, LinkTable, Linked, LinkedName};
pub(crate) use writing::WriteTurn;

use super::directory::Identity;
use super::sinks_under_way::SinksUnderWay;
use haul_storage::Stat;
use parking_lot::{Mutex, RwLock};
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use writing::Writing;

/// A name, and the directory that contains it.
pub(crate) type NamedIn = (Identity, OsString);

/// Entries found and created so far.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    link_table: Arc<LinkTable>,
    writing: Arc<Writing>,
    directories: RwLock<HashMap<Identity, KnownDirectory>>,
    made: Mutex<HashSet<Identity>>,
    sources: Mutex<HashMap<Identity, Vec<OsString>>>,
    sinks: Mutex<HashSet<(OsString, Identity)>>,
    written: Mutex<HashMap<Identity, Written>>,
    /// Sinks of the batch lines in progress.
    pub(crate) lines: SinksUnderWay,
    /// True if two workers would interfere with each other.
    pub(crate) one_worker: AtomicBool,
    /// Operands that are copied into themselves, with their sinks, as already reported.
    reported_into_itself: Mutex<HashSet<(OsString, OsString)>>,
    /// True if copies go into their own source.
    pub(crate) into_itself: AtomicBool,
}

/// A sink that may have other names and that the job verifies or records.
#[derive(Debug)]
struct Written {
    source: Identity,
    path: OsString,
}

/// A directory that must not be copied again as a new one.
#[derive(Clone, Debug)]
pub(crate) struct KnownDirectory {
    /// Number of the operand that it belongs to.
    pub(crate) operand: usize,
    /// Path of its copy for messages.
    pub(crate) sink: OsString,
    /// Location of its copy, if known.
    pub(crate) place: Option<NamedIn>,
}

impl Memory {
    /// Creates the memory of a job that follows earlier jobs.
    pub(crate) fn after(link_table: &Arc<LinkTable>) -> Memory {
        Memory { link_table: Arc::clone(link_table), ..Memory::default() }
    }

    /// Returns true if another name of this file was copied before.
    pub(crate) fn is_claimed(&self, file: &Stat) -> bool {
        self.link_table.knows(file.identity())
    }

    /// Claims one name of a file. With `each_name_once`, no name occurs twice. An inode is then
    /// dropped from memory when all its names were found and its first sink is complete.
    pub(crate) fn claim(&self, file: &Stat, each_name_once: bool) -> LinkAction<'_> {
        self.link_table.claim(file, each_name_once)
    }

    /// Records that the first sink of an inode is complete, including its metadata. Returns the
    /// names that were linked to it before.
    pub(crate) fn settled(&self, identity: Identity) -> Vec<LinkedName> {
        self.link_table.settled(identity)
    }

    /// Drops an inode whose first sink did not become a complete copy: later names are copied
    /// again. Returns the names already linked.
    #[must_use]
    pub(crate) fn forget(&self, identity: Identity) -> Vec<LinkedName> {
        self.link_table.forget(identity)
    }

    /// Waits until no other file of this job writes this sink. Returns true if the call had to
    /// wait.
    pub(crate) fn write_alone(&self, sink: Identity) -> (WriteTurn, bool) {
        self.writing.wait(sink)
    }

    /// Records that an operand is copied into itself. Returns false if that was already known.
    pub(crate) fn first_into_itself(&self, source: &OsStr, sink: &OsStr) -> bool {
        let mut told = self.reported_into_itself.lock();
        told.insert((source.to_owned(), sink.to_owned()))
    }

    /// Records a directory that this job created.
    pub(crate) fn made_directory(&self, identity: Identity) {
        self.made.lock().insert(identity);
    }

    /// Returns true if this job created the directory and recorded it.
    pub(crate) fn has_made(&self, identity: Identity) -> bool {
        self.made.lock().contains(&identity)
    }

    /// Records a directory named by the command. If it is already known, returns the earlier
    /// record.
    pub(crate) fn name_directory(
        &self,
        identity: Identity,
        directory: KnownDirectory,
    ) -> Option<KnownDirectory> {
        let mut known = self.directories.write();
        match known.entry(identity) {
            Slot::Occupied(slot) => Some(slot.get().clone()),
            Slot::Vacant(slot) => {
                slot.insert(directory);
                None
            }
        }
    }

    /// Drops a named directory that could not be created. It is treated as new if it is named
    /// again.
    pub(crate) fn forget_directory(&self, identity: Identity) {
        self.directories.write().remove(&identity);
    }

    /// Returns a directory that was named by an operand up to `operand`.
    pub(crate) fn known_directory(&self, identity: Identity, operand: usize) -> Option<KnownDirectory> {
        let known = self.directories.read();
        known.get(&identity).filter(|known| known.operand <= operand).cloned()
    }

    /// Returns true if an earlier operand named a source of this inode by a name that equals `name`
    /// or that `same` accepts. Otherwise records the name.
    pub(crate) fn source_was_named(
        &self,
        identity: Identity,
        name: &OsStr,
        same: impl Fn(&OsStr) -> bool,
    ) -> bool {
        let mut sources = self.sources.lock();
        let names = sources.entry(identity).or_default();
        if names.iter().any(|earlier| earlier == name || same(earlier)) {
            return true;
        }
        names.push(name.to_owned());
        false
    }

    /// Records that an existing sink is about to be written from this source, if the sink may have
    /// other names. `path` returns the sink's own path. Returns the name under which another source
    /// was written into the sink.
    pub(crate) fn written_before(
        &self,
        sink: Identity,
        source: Identity,
        may_have_others: bool,
        path: impl FnOnce() -> OsString,
    ) -> Option<OsString> {
        let mut written = self.written.lock();
        match written.get(&sink) {
            Some(earlier) => (earlier.source != source).then(|| earlier.path.clone()),
            None => {
                if may_have_others {
                    written.insert(sink, Written { source, path: path() });
                }
                None
            }
        }
    }

    /// Records the sink of an operand.
    pub(crate) fn add_sink(&self, name: &OsStr, identity: Identity) {
        self.sinks.lock().insert((name.to_owned(), identity));
    }

    /// Drops a sink that did not become a complete copy of its source: as in cp, later operands may
    /// replace it.
    pub(crate) fn forget_sink(&self, name: &OsStr, sink: &Stat, source: Identity) {
        self.sinks.lock().remove(&(name.to_owned(), sink.identity()));
        let mut written = self.written.lock();
        if written.get(&sink.identity()).is_some_and(|written| written.source == source) {
            written.remove(&sink.identity());
        }
    }

    /// Returns true if an earlier operand created this sink.
    pub(crate) fn sink_was_made(&self, name: &OsStr, identity: Identity) -> bool {
        let sinks = self.sinks.lock();
        // The set holds pairs, so a look-up needs a copy of the name: at most once per operand.
        sinks.contains(&(name.to_owned(), identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_directory_ignores_later_operands() {
        let memory = Memory::default();
        let named = |operand| KnownDirectory { operand, sink: OsString::new(), place: None };
        assert!(memory.name_directory((1, 1), named(5)).is_none());
        assert!(memory.known_directory((1, 1), 4).is_none());
        assert!(memory.known_directory((1, 1), 5).is_some());
        assert_eq!(memory.name_directory((1, 1), named(7)).map(|known| known.operand), Some(5));
    }
}
