//! Names of one inode: the first is copied, the others become links to the copy.

use crate::cp::directory::{Directory, Identity};
use haul_storage::Stat;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// Number of locks over the names of inodes.
const SHARDS: usize = 64;

/// A first sink or a name linked to one: its directory and the name in it.
pub(crate) type LinkedName = (Arc<Directory>, OsString);

/// Inodes of which a name was found and others may follow.
#[derive(Debug)]
pub(crate) struct LinkTable([Shard; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    files: Mutex<HashMap<Identity, InodeState>>,
    /// Notified when a first sink was created, or could not be.
    decided: Condvar,
}

#[derive(Debug)]
enum InodeState {
    /// A worker is creating the first sink.
    Making,
    Made(FirstName),
}

/// The sink of an inode's first name.
#[derive(Debug)]
struct FirstName {
    sink: LinkedName,
    /// Number of names of the inode that are not found yet, if they can be counted.
    left: Option<u64>,
    /// Names linked to the sink while it is incomplete; `None` once it is complete.
    links: Option<Links>,
}

/// State shared by the first name and the names linked to it.
type Links = Arc<Mutex<LinkState>>;

#[derive(Debug)]
enum LinkState {
    /// The first sink is not complete yet; these names were linked to it.
    UnderWay(Vec<LinkedName>),
    Whole,
    /// The first sink did not become complete.
    Void,
}

/// State of a link to an earlier sink.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Linked {
    /// The sink is complete.
    Whole,
    /// The sink is not complete yet: [`LinkTable::settled`] or [`LinkTable::forget`] returns this
    /// name later.
    UnderWay,
    /// The sink did not become complete, so the link is useless.
    Void,
}

/// Action for one name of an inode that may have several.
#[derive(Debug)]
pub(crate) enum LinkAction<'m> {
    /// An earlier name was copied to a sink: create a link to it.
    Earlier(Earlier),
    /// This is the first name: copy it and report its sink. The other names of the inode wait
    /// meanwhile.
    First(FirstSink<'m>),
}

/// The sink of an earlier name.
#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) sink: LinkedName,
    links: Option<Links>,
}

/// The right to create the first sink of an inode. If it is dropped without [`FirstSink::made`],
/// the next name is the first.
#[derive(Debug)]
pub(crate) struct FirstSink<'m> {
    link_table: &'m LinkTable,
    identity: Identity,
    left: Option<u64>,
    is_made: bool,
}

impl Default for LinkTable {
    fn default() -> LinkTable {
        LinkTable(std::array::from_fn(|_| Shard::default()))
    }
}

impl LinkTable {
    /// Claims one name of a file. With `each_name_once`, no name occurs twice. An inode is then
    /// dropped when all its names were found and its first sink is complete.
    pub(super) fn claim(&self, file: &Stat, each_name_once: bool) -> LinkAction<'_> {
        let identity = file.identity();
        let shard = self.shard(identity);
        let mut files = shard.files();
        loop {
            match files.entry(identity) {
                Slot::Vacant(slot) => {
                    slot.insert(InodeState::Making);
                    let left = each_name_once.then(|| file.nlink.saturating_sub(1));
                    return LinkAction::First(FirstSink { link_table: self, identity, left, is_made: false });
                }
                Slot::Occupied(mut slot) => {
                    if let InodeState::Made(first) = slot.get_mut() {
                        let earlier = first.next_name();
                        if first.is_over() {
                            slot.remove();
                        }
                        return LinkAction::Earlier(earlier);
                    }
                }
            }
            shard.decided.wait(&mut files);
        }
    }

    /// Records that the first sink is complete, so that the names linked to it need no tracking any
    /// more. Returns these names.
    pub(super) fn settled(&self, identity: Identity) -> Vec<LinkedName> {
        let mut files = self.shard(identity).files();
        let Slot::Occupied(mut slot) = files.entry(identity) else { return Vec::new() };
        let InodeState::Made(first) = slot.get_mut() else { return Vec::new() };
        let links = first.links.take();
        if first.is_over() {
            slot.remove();
        }
        links.map_or_else(Vec::new, |links| links.lock().end(LinkState::Whole))
    }

    /// Drops an inode whose first sink did not become a complete copy: later names are copied
    /// again. Returns the names already linked.
    pub(super) fn forget(&self, identity: Identity) -> Vec<LinkedName> {
        let known = self.shard(identity).files().remove(&identity);
        let Some(InodeState::Made(FirstName { links: Some(links), .. })) = known else { return Vec::new() };
        links.lock().end(LinkState::Void)
    }

    /// Returns true if a name of this inode was claimed and more names were expected.
    pub(super) fn knows(&self, identity: Identity) -> bool {
        self.shard(identity).files().contains_key(&identity)
    }

    fn shard(&self, identity: Identity) -> &Shard {
        &self.0[(identity.1 % SHARDS as u64) as usize]
    }
}

impl Shard {
    fn files(&self) -> MutexGuard<'_, HashMap<Identity, InodeState>> {
        // Each call leaves the map consistent, whatever error the worker meets later.
        self.files.lock()
    }
}

impl LinkState {
    /// Sets the final state of the sink. Returns the names that were linked to it meanwhile.
    fn end(&mut self, state: LinkState) -> Vec<LinkedName> {
        match std::mem::replace(self, state) {
            LinkState::UnderWay(names) => names,
            LinkState::Whole | LinkState::Void => Vec::new(),
        }
    }
}

impl FirstName {
    fn next_name(&mut self) -> Earlier {
        self.left = self.left.map(|left| left.saturating_sub(1));
        Earlier { sink: self.sink.clone(), links: self.links.clone() }
    }

    fn is_over(&self) -> bool {
        self.left == Some(0) && self.links.is_none()
    }
}

impl Earlier {
    /// Returns the path of the sink, for messages.
    pub(crate) fn path(&self) -> OsString {
        self.sink.0.sink_path_of(&self.sink.1)
    }

    /// Records a name that was linked to the sink. Returns the state of the link.
    pub(crate) fn linked(&self, parent: &Arc<Directory>, name: &OsStr) -> Linked {
        let Some(links) = &self.links else { return Linked::Whole };
        match &mut *links.lock() {
            LinkState::UnderWay(names) => {
                names.push((Arc::clone(parent), name.to_owned()));
                Linked::UnderWay
            }
            LinkState::Whole => Linked::Whole,
            LinkState::Void => Linked::Void,
        }
    }

    /// Returns true if the sink is known to remain incomplete.
    pub(crate) fn is_void(&self) -> bool {
        self.links.as_ref().is_some_and(|links| matches!(*links.lock(), LinkState::Void))
    }
}

impl FirstSink<'_> {
    /// Records that the sink exists, so that other names may be linked to it. If `is_whole` is
    /// false, [`LinkTable::settled`] or [`LinkTable::forget`] must report the outcome later.
    pub(crate) fn made(mut self, sink: LinkedName, is_whole: bool) {
        let links = (!is_whole).then(|| Arc::new(Mutex::new(LinkState::UnderWay(Vec::new()))));
        let first = FirstName { sink, left: self.left, links };
        self.is_made = true;
        let shard = self.link_table.shard(self.identity);
        shard.files().insert(self.identity, InodeState::Made(first));
        shard.decided.notify_all();
    }
}

impl Drop for FirstSink<'_> {
    fn drop(&mut self) {
        if !self.is_made {
            let shard = self.link_table.shard(self.identity);
            shard.files().remove(&self.identity);
            shard.decided.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use haul_storage::Follow;

    fn a_file(nlink: u64) -> Stat {
        Stat { nlink, ..Location::here(OsStr::new(".")).stat(Follow::No).unwrap() }
    }

    fn sink() -> LinkedName {
        (Directory::target(None, None), OsString::from("sink"))
    }

    fn first<'m>(link_table: &'m LinkTable, file: &Stat, once: bool) -> FirstSink<'m> {
        match link_table.claim(file, once) {
            LinkAction::First(first) => first,
            LinkAction::Earlier(earlier) => panic!("{earlier:?}"),
        }
    }

    fn earlier(link_table: &LinkTable, file: &Stat, once: bool) -> Earlier {
        match link_table.claim(file, once) {
            LinkAction::Earlier(earlier) => earlier,
            LinkAction::First(first) => panic!("{:?}", first.identity),
        }
    }

    fn names_of(linked: &[LinkedName]) -> Vec<&OsStr> {
        linked.iter().map(|(_, name)| name.as_os_str()).collect()
    }

    #[test]
    fn later_names_link_to_the_first() {
        let (link_table, file) = (LinkTable::default(), a_file(3));
        first(&link_table, &file, true).made(sink(), true);
        for _ in 0..2 {
            assert_eq!(earlier(&link_table, &file, true).path(), "sink");
        }
        drop(first(&link_table, &file, true));
    }

    #[test]
    fn failed_first_sink_frees_the_claim() {
        let (link_table, file) = (LinkTable::default(), a_file(2));
        drop(link_table.claim(&file, false));
        first(&link_table, &file, false).made(sink(), false);
        assert!(link_table.forget(file.identity()).is_empty());
        drop(first(&link_table, &file, false));
    }

    #[test]
    fn links_to_an_incomplete_sink_are_recorded_until_complete() {
        let (link_table, file) = (LinkTable::default(), a_file(3));
        let place = Directory::target(None, None);
        first(&link_table, &file, true).made(sink(), false);
        let linked = |name: &str| earlier(&link_table, &file, true).linked(&place, OsStr::new(name));
        assert_eq!(linked("one"), Linked::UnderWay);
        let late = earlier(&link_table, &file, true);
        let names = link_table.forget(file.identity());
        assert_eq!(names_of(&names), ["one"]);
        assert_eq!(late.linked(&place, OsStr::new("two")), Linked::Void);
        assert!(late.is_void());
        first(&link_table, &file, true).made(sink(), false);
        assert_eq!(linked("three"), Linked::UnderWay);
        let late = earlier(&link_table, &file, true);
        let settled = link_table.settled(file.identity());
        assert_eq!(names_of(&settled), ["three"]);
        assert_eq!(late.linked(&place, OsStr::new("four")), Linked::Whole);
        assert!(
            link_table.settled(file.identity()).is_empty() && link_table.forget(file.identity()).is_empty()
        );
        drop(late);
        assert_eq!(Arc::strong_count(&place), 1 + names.len() + settled.len());
    }

    #[test]
    fn other_names_wait_for_the_first_sink() {
        let (link_table, file) = (LinkTable::default(), a_file(2));
        let making = first(&link_table, &file, false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| earlier(&link_table, &file, false).path());
            std::thread::yield_now();
            making.made(sink(), true);
            assert_eq!(waiting.join().unwrap(), "sink");
        });
    }
}
