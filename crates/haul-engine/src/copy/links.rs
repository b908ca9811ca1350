//! What a job remembers of what it met and made, where cp's rules need it: names of one inode, directories
//! named by the command or made by it, and operands seen.
//!
//! Files of one name and directories beneath new ones leave nothing here, so memory does not grow with them.

use haul_sys::Stat;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Device and inode.
pub(crate) type Identity = (u64, u64);

/// Locks over the names of inodes: an inode's lock is held while its first sink is made.
const SHARDS: usize = 64;

/// What was met and made so far.
#[derive(Debug)]
pub(crate) struct Memory {
    files: [Mutex<HashMap<Identity, FirstName>>; SHARDS],
    directories: RwLock<HashMap<Identity, KnownDirectory>>,
    sources: Mutex<HashMap<Identity, Vec<OsString>>>,
    sinks: Mutex<HashSet<(OsString, Identity)>>,
    /// Entries and directories that are known to be there and whose fate is not decided.
    unmet: AtomicUsize,
    /// Two workers would get in each other's way.
    pub(crate) one_worker: AtomicBool,
}

/// A directory that must not be copied again as if it were new.
#[derive(Clone, Debug)]
pub(crate) struct KnownDirectory {
    /// The operand it belongs to.
    pub(crate) operand: usize,
    /// Its copy, or the directory itself where this job made it.
    pub(crate) sink: OsString,
    /// This job made it.
    pub(crate) made: bool,
}

/// The sink that an inode's first name became.
#[derive(Debug)]
struct FirstName {
    sink: OsString,
    /// Names of the inode not met yet, where they can be counted.
    left: Option<u64>,
}

/// What becomes of one name of an inode that may have several.
#[derive(Debug)]
pub(crate) enum Claim<'m> {
    /// An earlier name was copied to this sink: link to it.
    Earlier(OsString),
    /// This is the first: copy it, and say where. The inode's other names wait meanwhile.
    First(FirstSink<'m>),
}

/// The right to make an inode's first sink. Dropped without [`FirstSink::made`], the next name is the first.
#[derive(Debug)]
pub(crate) struct FirstSink<'m> {
    shard: MutexGuard<'m, HashMap<Identity, FirstName>>,
    identity: Identity,
    left: Option<u64>,
}

impl FirstSink<'_> {
    /// The sink exists: other names may be linked to it.
    pub(crate) fn made(mut self, sink: OsString) {
        self.shard.insert(self.identity, FirstName { sink, left: self.left });
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            files: std::array::from_fn(|_| Mutex::default()),
            directories: RwLock::default(),
            sources: Mutex::default(),
            sinks: Mutex::default(),
            unmet: AtomicUsize::new(0),
            one_worker: AtomicBool::new(false),
        }
    }
}

impl Memory {
    /// More entries are known to be there.
    pub(crate) fn expect(&self, count: usize) {
        self.unmet.fetch_add(count, Ordering::Relaxed);
    }

    /// One entry's fate is decided, or one directory read to its end. Returns whether it was the last: the
    /// whole tree has been met.
    pub(crate) fn met(&self) -> bool {
        self.unmet.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Claims one name of a file. With `each_name_once` no name is met twice, and an inode is forgotten when
    /// all its names were met.
    pub(crate) fn claim(&self, file: &Stat, each_name_once: bool) -> Claim<'_> {
        let identity = file.identity();
        let mut shard = self.shard(identity);
        if let Slot::Occupied(mut slot) = shard.entry(identity) {
            let sink = slot.get().sink.clone();
            if let Some(left) = &mut slot.get_mut().left {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    slot.remove();
                }
            }
            return Claim::Earlier(sink);
        }
        let left = each_name_once.then(|| file.nlink.saturating_sub(1));
        Claim::First(FirstSink { shard, identity, left })
    }

    /// The first sink did not become a whole copy: later names are copied anew.
    pub(crate) fn forget(&self, identity: Identity) {
        self.shard(identity).remove(&identity);
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

    /// A directory that was named by an operand up to `operand`, or that this job made.
    pub(crate) fn known_directory(&self, identity: Identity, operand: usize) -> Option<KnownDirectory> {
        let known = self.directories.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&identity).filter(|known| known.made || known.operand <= operand).cloned()
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

    fn shard(&self, identity: Identity) -> MutexGuard<'_, HashMap<Identity, FirstName>> {
        let shard = &self.files[(identity.1 % SHARDS as u64) as usize];
        // Each call leaves the map whole, whatever the worker that held it ran into later.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::{CWD, Follow, stat};

    fn a_file(nlink: u64) -> Stat {
        Stat { nlink, ..stat::stat_at(CWD, ".", Follow::No).unwrap() }
    }

    #[test]
    fn later_names_are_linked_to_the_first() {
        let memory = Memory::default();
        let file = a_file(3);
        let Claim::First(first) = memory.claim(&file, true) else { panic!("nothing was met") };
        first.made(OsString::from("sink"));
        for _ in 0..2 {
            assert!(matches!(memory.claim(&file, true), Claim::Earlier(sink) if sink == "sink"));
        }
        assert!(matches!(memory.claim(&file, true), Claim::First(_)), "all three names were met");
    }

    #[test]
    fn a_first_sink_that_failed_is_forgotten() {
        let memory = Memory::default();
        let file = a_file(2);
        drop(memory.claim(&file, false));
        let Claim::First(first) = memory.claim(&file, false) else { panic!("the first failed") };
        first.made(OsString::from("sink"));
        memory.forget(file.identity());
        assert!(matches!(memory.claim(&file, false), Claim::First(_)));
    }

    #[test]
    fn the_last_thing_met_ends_the_count() {
        let memory = Memory::default();
        memory.expect(1);
        memory.expect(2);
        assert_eq!([memory.met(), memory.met(), memory.met()], [false, false, true]);
    }

    #[test]
    fn directories_of_later_operands_are_not_known_yet() {
        let memory = Memory::default();
        let named = |operand| KnownDirectory { operand, sink: OsString::new(), made: false };
        assert!(memory.name_directory((1, 1), named(5)).is_none());
        assert!(memory.known_directory((1, 1), 4).is_none());
        assert!(memory.known_directory((1, 1), 5).is_some());
        assert_eq!(memory.name_directory((1, 1), named(7)).map(|known| known.operand), Some(5));
    }
}
