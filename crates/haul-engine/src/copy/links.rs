//! What a job remembers of what it met and made, where cp's rules need it: names of one inode, sinks being
//! written, directories named by the command or made by it, and operands seen.
//!
//! Files of one name and directories leave nothing here unless the copy goes into what is copied, so memory does
//! not grow with them.

mod claims;
mod writing;

pub(crate) use claims::{Claim, Claims, Earlier, FirstSink, Linked, LinkedName};
pub(crate) use writing::WriteTurn;

use super::operands::SinksUnderWay;
use haul_sys::Stat;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use writing::Writing;

/// Device and inode.
pub(crate) type Identity = (u64, u64);

/// A name, and the directory it is in.
pub(crate) type NamedIn = (Identity, OsString);

/// What was met and made so far.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    claims: Arc<Claims>,
    writing: Arc<Writing>,
    directories: RwLock<HashMap<Identity, KnownDirectory>>,
    made: Mutex<HashSet<Identity>>,
    sources: Mutex<HashMap<Identity, Vec<OsString>>>,
    sinks: Mutex<HashSet<(OsString, Identity)>>,
    written: Mutex<HashMap<Identity, Written>>,
    /// Where the lines of a batch that are under way go.
    pub(crate) lines: SinksUnderWay,
    /// Two workers would get in each other's way.
    pub(crate) one_worker: AtomicBool,
    /// Operands and their sinks that were found to go into themselves.
    told_into_itself: Mutex<HashSet<(OsString, OsString)>>,
    /// Copies go into what is copied.
    pub(crate) into_itself: AtomicBool,
}

/// A sink that may have other names, and that is vouched for.
#[derive(Debug)]
struct Written {
    source: Identity,
    path: OsString,
}

/// A directory that must not be copied again as if it were new.
#[derive(Clone, Debug)]
pub(crate) struct KnownDirectory {
    /// The operand it belongs to.
    pub(crate) operand: usize,
    /// Its copy's path for messages.
    pub(crate) sink: OsString,
    /// Where its copy stands, as far as that could be told.
    pub(crate) place: Option<NamedIn>,
}

impl Memory {
    /// The memory of a job that follows others.
    pub(crate) fn after(claims: &Arc<Claims>) -> Memory {
        Memory { claims: Arc::clone(claims), ..Memory::default() }
    }

    /// Whether another name of this file was copied before.
    pub(crate) fn is_claimed(&self, file: &Stat) -> bool {
        self.claims.knows(file.identity())
    }

    /// Claims one name of a file. With `each_name_once` no name is met twice, and an inode is forgotten when
    /// all its names were met and its first sink is whole.
    pub(crate) fn claim(&self, file: &Stat, each_name_once: bool) -> Claim<'_> {
        self.claims.claim(file, each_name_once)
    }

    /// The first sink of an inode is whole, with all that is set on it. Returns the names that were linked to it before.
    pub(crate) fn settled(&self, identity: Identity) -> Vec<LinkedName> {
        self.claims.settled(identity)
    }

    /// The first sink did not become a whole copy: later names are copied anew. Returns those already linked.
    #[must_use]
    pub(crate) fn forget(&self, identity: Identity) -> Vec<LinkedName> {
        self.claims.forget(identity)
    }

    /// Waits until no other file of this job writes this sink. Returns whether one did.
    pub(crate) fn write_alone(&self, sink: Identity) -> (WriteTurn, bool) {
        self.writing.wait(sink)
    }

    /// Remembers that an operand goes into its own copy. Returns false if that was known.
    pub(crate) fn first_into_itself(&self, source: &OsStr, sink: &OsStr) -> bool {
        let mut told = self.told_into_itself.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert((source.to_owned(), sink.to_owned()))
    }

    /// Remembers a directory that this job made.
    pub(crate) fn made_directory(&self, identity: Identity) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(identity);
    }

    /// Whether this job made a directory, where such are remembered.
    pub(crate) fn has_made(&self, identity: Identity) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity)
    }

    /// Remembers a directory named by the command, unless it is known: then what is known.
    pub(crate) fn name_directory(
        &self,
        identity: Identity,
        directory: KnownDirectory,
    ) -> Option<KnownDirectory> {
        let mut known = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        match known.entry(identity) {
            Slot::Occupied(slot) => Some(slot.get().clone()),
            Slot::Vacant(slot) => {
                slot.insert(directory);
                None
            }
        }
    }

    /// A directory that was named could not be made: it is met anew when it is named again.
    pub(crate) fn forget_directory(&self, identity: Identity) {
        self.directories.write().unwrap_or_else(PoisonError::into_inner).remove(&identity);
    }

    /// A directory that was named by an operand up to `operand`.
    pub(crate) fn known_directory(&self, identity: Identity, operand: usize) -> Option<KnownDirectory> {
        let known = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&identity).filter(|known| known.operand <= operand).cloned()
    }

    /// Whether a source of this inode was named before by a name that `same` finds to be the same; remembers it.
    pub(crate) fn source_was_named(
        &self,
        identity: Identity,
        name: &OsStr,
        same: impl Fn(&OsStr) -> bool,
    ) -> bool {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let names = sources.entry(identity).or_default();
        if names.iter().any(|earlier| earlier == name || same(earlier)) {
            return true;
        }
        names.push(name.to_owned());
        false
    }

    /// An existing sink is about to be written from this source. Remembered where it may have other names; `path` is its own. Gives the
    /// name by which another source was written into it.
    pub(crate) fn written_before(
        &self,
        sink: Identity,
        source: Identity,
        may_have_others: bool,
        path: impl FnOnce() -> OsString,
    ) -> Option<OsString> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Remembers what an operand became.
    pub(crate) fn add_sink(&self, name: &OsStr, identity: Identity) {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner).insert((name.to_owned(), identity));
    }

    /// Whether an earlier operand became this.
    pub(crate) fn sink_was_made(&self, name: &OsStr, identity: Identity) -> bool {
        let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        // A set of pairs is asked by a pair: the name is copied, once an operand at most.
        sinks.contains(&(name.to_owned(), identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_later_operands_are_not_known_yet() {
        let memory = Memory::default();
        let named = |operand| KnownDirectory { operand, sink: OsString::new(), place: None };
        assert!(memory.name_directory((1, 1), named(5)).is_none());
        assert!(memory.known_directory((1, 1), 4).is_none());
        assert!(memory.known_directory((1, 1), 5).is_some());
        assert_eq!(memory.name_directory((1, 1), named(7)).map(|known| known.operand), Some(5));
    }
}
