//! Names of one inode: the first is copied, the others become links to the copy.

use super::Identity;
use crate::copy::directory::Directory;
use haul_sys::Stat;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Number of locks over the names of inodes.
const SHARDS: usize = 64;

/// A first sink or a name linked to one: its directory and the name in it.
pub(crate) type LinkedName = (Arc<Directory>, OsString);

/// Inodes of which a name was found and others may follow.
#[derive(Debug)]
pub(crate) struct Claims([Shard; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    files: Mutex<HashMap<Identity, Known>>,
    /// Notified when a first sink was created, or could not be.
    decided: Condvar,
}

#[derive(Debug)]
enum Known {
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
    /// The sink is not complete yet: [`Claims::settled`] or [`Claims::forget`] returns this name
    /// later.
    UnderWay,
    /// The sink did not become complete, so the link is useless.
    Void,
}

/// Action for one name of an inode that may have several.
#[derive(Debug)]
pub(crate) enum Claim<'m> {
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
    claims: &'m Claims,
    identity: Identity,
    left: Option<u64>,
    is_made: bool,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims(std::array::from_fn(|_| Shard::default()))
    }
}

impl Claims {
    /// Claims one name of a file. With `each_name_once`, no name occurs twice. An inode is then
    /// dropped when all its names were found and its first sink is complete.
    pub(super) fn claim(&self, file: &Stat, each_name_once: bool) -> Claim<'_> {
        let identity = file.identity();
        let shard = self.shard(identity);
        let mut files = shard.files();
        loop {
            match files.entry(identity) {
                Slot::Vacant(slot) => {
                    slot.insert(Known::Making);
                    let left = each_name_once.then(|| file.nlink.saturating_sub(1));
                    return Claim::First(FirstSink { claims: self, identity, left, is_made: false });
                }
                Slot::Occupied(mut slot) => {
                    if let Known::Made(first) = slot.get_mut() {
                        let earlier = first.met_again();
                        if first.is_over() {
                            slot.remove();
                        }
                        return Claim::Earlier(earlier);
                    }
                }
            }
            files = shard.decided.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that the first sink is complete, so that the names linked to it need no tracking any
    /// more. Returns these names.
    pub(super) fn settled(&self, identity: Identity) -> Vec<LinkedName> {
        let mut files = self.shard(identity).files();
        let Slot::Occupied(mut slot) = files.entry(identity) else { return Vec::new() };
        let Known::Made(first) = slot.get_mut() else { return Vec::new() };
        let links = first.links.take();
        if first.is_over() {
            slot.remove();
        }
        links.map_or_else(Vec::new, |links| lock(&links).end(LinkState::Whole))
    }

    /// Drops an inode whose first sink did not become a complete copy: later names are copied
    /// again. Returns the names already linked.
    pub(super) fn forget(&self, identity: Identity) -> Vec<LinkedName> {
        let known = self.shard(identity).files().remove(&identity);
        let Some(Known::Made(FirstName { links: Some(links), .. })) = known else { return Vec::new() };
        lock(&links).end(LinkState::Void)
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
    fn files(&self) -> MutexGuard<'_, HashMap<Identity, Known>> {
        // Each call leaves the map consistent, whatever error the worker meets later.
        lock(&self.files)
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
    fn met_again(&mut self) -> Earlier {
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
        match &mut *lock(links) {
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
        self.links.as_ref().is_some_and(|links| matches!(*lock(links), LinkState::Void))
    }
}

impl FirstSink<'_> {
    /// Records that the sink exists, so that other names may be linked to it. If `is_whole` is
    /// false, [`Claims::settled`] or [`Claims::forget`] must report the outcome later.
    pub(crate) fn made(mut self, sink: LinkedName, is_whole: bool) {
        let links = (!is_whole).then(|| Arc::new(Mutex::new(LinkState::UnderWay(Vec::new()))));
        let first = FirstName { sink, left: self.left, links };
        self.is_made = true;
        let shard = self.claims.shard(self.identity);
        shard.files().insert(self.identity, Known::Made(first));
        shard.decided.notify_all();
    }
}

impl Drop for FirstSink<'_> {
    fn drop(&mut self) {
        if !self.is_made {
            let shard = self.claims.shard(self.identity);
            shard.files().remove(&self.identity);
            shard.decided.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::descriptors::Opened;
    use haul_sys::{CWD, Follow, stat};

    fn a_file(nlink: u64) -> Stat {
        Stat { nlink, ..stat::stat_at(CWD, ".", Follow::No).unwrap() }
    }

    fn sink() -> LinkedName {
        (Arc::clone(&Opened::target(None)), OsString::from("sink"))
    }

    fn first<'m>(claims: &'m Claims, file: &Stat, once: bool) -> FirstSink<'m> {
        match claims.claim(file, once) {
            Claim::First(first) => first,
            Claim::Earlier(earlier) => panic!("{earlier:?}"),
        }
    }

    fn earlier(claims: &Claims, file: &Stat, once: bool) -> Earlier {
        match claims.claim(file, once) {
            Claim::Earlier(earlier) => earlier,
            Claim::First(first) => panic!("{:?}", first.identity),
        }
    }

    fn names_of(linked: &[LinkedName]) -> Vec<&OsStr> {
        linked.iter().map(|(_, name)| name.as_os_str()).collect()
    }

    #[test]
    fn later_names_are_linked_to_the_first() {
        let (claims, file) = (Claims::default(), a_file(3));
        first(&claims, &file, true).made(sink(), true);
        for _ in 0..2 {
            assert_eq!(earlier(&claims, &file, true).path(), "sink");
        }
        drop(first(&claims, &file, true));
    }

    #[test]
    fn a_first_sink_that_failed_is_forgotten() {
        let (claims, file) = (Claims::default(), a_file(2));
        drop(claims.claim(&file, false));
        first(&claims, &file, false).made(sink(), false);
        assert!(claims.forget(file.identity()).is_empty());
        drop(first(&claims, &file, false));
    }

    #[test]
    fn links_to_a_sink_that_is_not_whole_are_remembered_until_it_is() {
        let (claims, file) = (Claims::default(), a_file(3));
        let place = Arc::clone(&Opened::target(None));
        first(&claims, &file, true).made(sink(), false);
        let linked = |name: &str| earlier(&claims, &file, true).linked(&place, OsStr::new(name));
        assert_eq!(linked("one"), Linked::UnderWay);
        let late = earlier(&claims, &file, true);
        let names = claims.forget(file.identity());
        assert_eq!(names_of(&names), ["one"]);
        assert_eq!(late.linked(&place, OsStr::new("two")), Linked::Void);
        assert!(late.is_void());
        first(&claims, &file, true).made(sink(), false);
        assert_eq!(linked("three"), Linked::UnderWay);
        let late = earlier(&claims, &file, true);
        let settled = claims.settled(file.identity());
        assert_eq!(names_of(&settled), ["three"]);
        assert_eq!(late.linked(&place, OsStr::new("four")), Linked::Whole);
        assert!(claims.settled(file.identity()).is_empty() && claims.forget(file.identity()).is_empty());
        drop(late);
        assert_eq!(Arc::strong_count(&place), 1 + names.len() + settled.len());
    }

    #[test]
    fn other_names_wait_for_the_first_sink() {
        let (claims, file) = (Claims::default(), a_file(2));
        let making = first(&claims, &file, false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| earlier(&claims, &file, false).path());
            std::thread::yield_now();
            making.made(sink(), true);
            assert_eq!(waiting.join().unwrap(), "sink");
        });
    }
}
