//! Descriptors of directories in progress: one at the source and one at the sink of each. Their
//! number is limited by the process's limit on open files.
//!
//! A directory is in progress as long as anything beneath it is. A deep tree therefore has more
//! such directories than a process has descriptors. If there are too many, those that were opened
//! the longest ago are closed and reopened when needed. A directory is reopened from beneath by
//! `..`, in one step. Otherwise it is reopened from the nearest open directory above, name by name,
//! through no link that was not followed before. The result counts only if it is the same directory
//! by device, inode and birth time. No path is resolved again, because another process could have
//! put a link into it meanwhile.

use super::directory::{Directory, DirectoryFacts, DirectorySettle, OperandSettle, SinkEnd};
use super::place::Place;
use crate::location::Location;
use haul_engine::copy::{CopyError, CopySink, CopySource, Refusal};
use haul_model::limits::{OPEN_DIRECTORIES_MAX, OPEN_FILES_PER_WORKER, OPEN_FILES_RESERVED};
use haul_storage::local::{sink_descriptor, source_descriptor};
use haul_sys::dir::{is_same_file, open_dir_at, open_place_at};
use haul_sys::{Follow, Stat};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The open directories of a job.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// Maximum number of directories that may stay open.
    most: usize,
    /// Number of open directories, counted by [`DirPair`].
    open: Arc<AtomicUsize>,
    /// Open directories, the one opened the longest ago first; each occurs once. Some of them have
    /// finished by now.
    coldest: Mutex<VecDeque<Weak<Directory>>>,
    /// Number of partly read directories that wait. Each stays open.
    half_read: AtomicUsize,
}

/// A directory whose two ends stay open as long as this handle exists.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    directory: Arc<Directory>,
    ends: Arc<DirPair>,
}

/// Both ends of a directory. Without a descriptor, names are relative to the working directory.
#[derive(Debug)]
pub(crate) struct DirPair {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    /// Sink of the target and of operands, if it is not the working directory.
    place: Option<Arc<OwnedFd>>,
    /// Counter of open directories. `None` for the target, of which a job has one.
    counted: Option<Arc<AtomicUsize>>,
}

/// Source end of an open directory, for reading.
#[derive(Debug)]
pub(crate) struct SourceEnd(Arc<DirPair>);

/// Storage for the ends of a directory.
#[derive(Debug)]
pub(super) struct Slot(Mutex<DescriptorState>);

#[derive(Debug)]
enum DescriptorState {
    Open(Arc<DirPair>),
    /// Another handle may still hold the ends open.
    Closed(Weak<DirPair>),
}

impl Descriptors {
    /// Creates the descriptors of a job with `workers` workers, in a process that may have
    /// `open_files` files open.
    pub(crate) fn new(workers: usize, open_files: u64) -> Descriptors {
        let taken = OPEN_FILES_RESERVED + OPEN_FILES_PER_WORKER * workers as u64;
        let pairs = usize::try_from(open_files.saturating_sub(taken) / 2).unwrap_or(usize::MAX);
        Descriptors {
            most: pairs.clamp(1, OPEN_DIRECTORIES_MAX),
            open: Arc::default(),
            coldest: Mutex::default(),
            half_read: AtomicUsize::new(0),
        }
    }

    /// Returns a directory with both ends open. Reopens the directory if it was closed.
    ///
    /// # Errors
    /// Returns an error if the directory can no longer be reached, or if another one replaced it.
    pub(crate) fn open(&self, directory: &Arc<Directory>) -> Result<Opened, CopyError> {
        if let Some(opened) = self.held(directory) {
            return Ok(opened);
        }
        let mut closed = vec![directory];
        let mut opened = None;
        while let (None, Some(above)) = (&opened, closed.last().and_then(|last| last.parent.as_ref())) {
            opened = self.held(above);
            if opened.is_none() {
                closed.push(above);
            }
        }
        // Directories without a parent are never closed.
        let mut opened = opened.unwrap_or_else(|| Opened::target(None));
        for below in closed.into_iter().rev() {
            opened = self.open_within(&opened, below)?;
        }
        Ok(opened)
    }

    /// Returns the parent of an open directory. Reopens a closed parent by `..`; returns `None` if
    /// `..` leads to another directory.
    pub(crate) fn open_above(&self, below: &Opened) -> Option<Opened> {
        let above = below.parent.as_ref()?;
        if let Some(opened) = self.held(above) {
            return Some(opened);
        }
        let DirectorySettle::Copied(facts) = &above.settle else { return None };
        let open_sink = if facts.set_by_name { open_place_at } else { open_dir_at };
        let source = open_dir_at(below.source(), c"..", Follow::No).ok()?;
        let sink = open_sink(below.sink().as_fd(), c"..", Follow::No).ok()?;
        let is_it = is_same_file(&source, &facts.source).ok()? && is_same_file(&sink, &facts.sink).ok()?;
        is_it.then(|| self.admit(above, source, sink))
    }

    /// Adds a newly found directory that is open at both ends.
    pub(crate) fn enter(
        &self,
        parent: Arc<Directory>,
        ends: (OwnedFd, OwnedFd),
        source_name: OsString,
        facts: DirectoryFacts,
    ) -> Opened {
        let sink = SinkEnd { is_new: facts.is_new, dev: facts.sink.dev };
        let settle = DirectorySettle::Copied(Box::new(facts));
        let ends = self.count(ends.0, ends.1);
        let slot = Slot::new(Arc::clone(&ends));
        let directory = Arc::new(Directory::new(slot, parent, source_name, Some(sink), settle));
        self.register_opened(&directory);
        Opened { directory, ends }
    }

    /// Reserves a slot for a directory that waits half read. Returns false if too many already
    /// wait: the caller must then read the directory to its end first.
    pub(crate) fn pause_reading(&self) -> bool {
        let waiting = self.half_read.fetch_add(1, Ordering::Relaxed);
        let may = waiting < self.most.div_ceil(4);
        if !may {
            self.resume_reading();
        }
        may
    }

    /// Releases the slot of a directory that waited half read, before reading continues.
    pub(crate) fn resume_reading(&self) {
        self.half_read.fetch_sub(1, Ordering::Relaxed);
    }

    fn open_within(&self, above: &Opened, directory: &Arc<Directory>) -> Result<Opened, CopyError> {
        if let Some(opened) = self.held(directory) {
            return Ok(opened);
        }
        let DirectorySettle::Copied(facts) = &directory.settle else {
            return Ok(Opened { directory: Arc::clone(directory), ends: Arc::clone(&above.ends) });
        };
        let source = open_source(above, &directory.source_name, facts)?;
        let sink = open_sink(above, facts)?;
        Ok(self.admit(directory, source, sink))
    }

    /// Returns a directory if it is open.
    fn held(&self, directory: &Arc<Directory>) -> Option<Opened> {
        let mut slot = directory.ends.lock();
        let (ends, was_closed) = match &*slot {
            DescriptorState::Open(ends) => (Arc::clone(ends), false),
            DescriptorState::Closed(ends) => (ends.upgrade()?, true),
        };
        if was_closed {
            *slot = DescriptorState::Open(Arc::clone(&ends));
        }
        drop(slot);
        if was_closed {
            self.register_opened(directory);
        }
        Some(Opened { directory: Arc::clone(directory), ends })
    }

    /// Adds a reopened directory, unless another worker was faster.
    fn admit(&self, directory: &Arc<Directory>, source: OwnedFd, sink: OwnedFd) -> Opened {
        if let Some(opened) = self.held(directory) {
            return opened;
        }
        let ends = self.count(source, sink);
        *directory.ends.lock() = DescriptorState::Open(Arc::clone(&ends));
        self.register_opened(directory);
        Opened { directory: Arc::clone(directory), ends }
    }

    fn count(&self, source: OwnedFd, sink: OwnedFd) -> Arc<DirPair> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(DirPair {
            source: Some(source),
            sink: Some(sink),
            place: None,
            counted: Some(Arc::clone(&self.open)),
        })
    }

    /// Registers an opened directory, and closes those opened the longest ago if too many are open.
    fn register_opened(&self, directory: &Arc<Directory>) {
        let mut coldest = self.coldest.lock();
        coldest.push_back(Arc::downgrade(directory));
        if coldest.len() > 4 * self.most {
            coldest.retain(|directory| directory.strong_count() > 0);
        }
        let excess = self.open.load(Ordering::Relaxed).saturating_sub(self.most);
        let mut closing = Vec::new();
        while closing.len() < excess && coldest.len() > 1 {
            closing.extend(coldest.pop_front().and_then(|directory| directory.upgrade()));
        }
        drop(coldest);
        closing.iter().for_each(|directory: &Arc<Directory>| directory.ends.close());
    }
}

impl Opened {
    /// Returns the directory that contains all operands. Sources are relative to the working
    /// directory. Sinks are relative to the target directory, or to the working directory if there
    /// is no target. This directory is never closed and never settled.
    pub(crate) fn target(place: Option<&Place>) -> Opened {
        let held = place.map(|place| Arc::clone(place.directory()));
        let ends = Arc::new(DirPair { source: None, sink: None, place: held, counted: None });
        let directory = Arc::new(Directory::target(Slot::new(Arc::clone(&ends)), place));
        Opened { directory, ends }
    }

    /// Returns the directory of one operand in the target. It waits only for the entry of the
    /// operand.
    pub(crate) fn operand(target: &Opened, settle: OperandSettle) -> Opened {
        let (slot, parent) = (Slot::new(Arc::clone(&target.ends)), Arc::clone(&target.directory));
        let settle = DirectorySettle::Operand(settle);
        let directory = Arc::new(Directory::new(slot, parent, OsString::new(), None, settle));
        Opened { directory, ends: Arc::clone(&target.ends) }
    }

    /// Returns the descriptor that names in the source are relative to.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.ends.source.as_ref().map_or(haul_sys::CWD, |fd| fd.as_fd())
    }

    /// Returns the descriptor that names in the sink are relative to.
    pub(crate) fn sink(&self) -> BorrowedFd<'_> {
        let place = || self.ends.place.as_ref().map_or(haul_sys::CWD, |fd| fd.as_fd());
        self.ends.sink.as_ref().map_or_else(place, |fd| fd.as_fd())
    }

    /// Returns the location of a name in the source.
    pub(crate) fn source_at<'a>(&'a self, name: &'a OsStr) -> Location<'a> {
        Location::new(self.source(), name)
    }

    /// Returns the location of a name in the sink.
    pub(crate) fn sink_at<'a>(&'a self, name: &'a OsStr) -> Location<'a> {
        Location::new(self.sink(), name)
    }

    /// Returns the source end, which stays open until it was read.
    pub(crate) fn source_end(&self) -> SourceEnd {
        SourceEnd(Arc::clone(&self.ends))
    }
}

/// Returns the descriptor of an open source.
pub(crate) fn source_fd(source: &CopySource) -> BorrowedFd<'_> {
    match source {
        CopySource::File(file) => source_descriptor(&**file),
        CopySource::Generated(_, stream) | CopySource::Stream(stream) => Some(stream.as_fd()),
    }
    .unwrap_or_else(|| unreachable!("cp opens files of the local file system"))
}

/// Returns the descriptor of an open sink.
pub(crate) fn sink_fd(sink: &CopySink) -> BorrowedFd<'_> {
    match sink {
        CopySink::File(file) => sink_descriptor(&**file),
        CopySink::Stream(stream) => Some(stream.as_fd()),
    }
    .unwrap_or_else(|| unreachable!("cp opens files of the local file system"))
}

impl Deref for Opened {
    type Target = Arc<Directory>;

    fn deref(&self) -> &Arc<Directory> {
        &self.directory
    }
}

impl AsFd for SourceEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.source.as_ref().map_or(haul_sys::CWD, |fd| fd.as_fd())
    }
}

impl Slot {
    fn new(ends: Arc<DirPair>) -> Slot {
        Slot(Mutex::new(DescriptorState::Open(ends)))
    }

    fn lock(&self) -> MutexGuard<'_, DescriptorState> {
        self.0.lock()
    }

    /// Closes the ends, immediately or when the last holder drops them.
    fn close(&self) {
        let mut held = self.lock();
        if let DescriptorState::Open(ends) = &*held {
            let closed = DescriptorState::Closed(Arc::downgrade(ends));
            let ends = std::mem::replace(&mut *held, closed);
            drop(held);
            drop(ends);
        }
    }
}

impl Drop for DirPair {
    fn drop(&mut self) {
        if let Some(open) = &self.counted {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Opens the source of a directory, if it is still the directory that was found.
///
/// # Errors
/// Returns an error if the source cannot be opened or was replaced.
pub(crate) fn open_source(
    above: &Opened,
    name: &OsStr,
    facts: &DirectoryFacts,
) -> Result<OwnedFd, CopyError> {
    let path = || above.source_path_of(name);
    let opened = open_dir_at(above.source(), name, facts.follow);
    is_same_directory(opened, &facts.source).map_err(|error| refused(error, path()))
}

/// Opens the sink of a directory, if it is still the directory that was created or found.
///
/// # Errors
/// Returns an error if the sink cannot be opened or was replaced. The caller must not write there.
pub(crate) fn open_sink(above: &Opened, facts: &DirectoryFacts) -> Result<OwnedFd, CopyError> {
    let open = if facts.set_by_name { open_place_at } else { open_dir_at };
    let opened = open(above.sink(), facts.sink_name.as_os_str(), facts.follows_sink);
    is_same_directory(opened, &facts.sink)
        .map_err(|error| refused(error, above.sink_path_of(&facts.sink_name)))
}

/// Returns `Err(None)` if the opened directory is another one.
fn is_same_directory(opened: io::Result<OwnedFd>, then: &Stat) -> Result<OwnedFd, Option<io::Error>> {
    let fd = opened?;
    if is_same_file(&fd, then)? { Ok(fd) } else { Err(None) }
}

fn refused(error: Option<io::Error>, path: OsString) -> CopyError {
    match error {
        Some(source) => CopyError::Cannot { action: "access", path, source },
        None => Refusal::Replaced(path).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::Stat;
    use haul_sys::stat::stat_fd;
    use proptest::prelude::*;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    /// Directories with the stat results of both their ends by path, the target first.
    struct Tree {
        nodes: Vec<(Arc<Directory>, [Stat; 2])>,
    }

    fn look(path: &PathBuf) -> Stat {
        stat_fd(std::fs::File::open(path).unwrap()).unwrap()
    }

    /// Builds a tree, with each directory in an earlier one, and enters all directories.
    fn build(descriptors: &Descriptors, home: &std::path::Path, parents: &[usize]) -> Tree {
        let ends = ["source", "sink"].map(|end| home.join(end));
        ends.iter().for_each(|end| std::fs::create_dir(end).unwrap());
        let target = Opened::target(None);
        let mut nodes = vec![(Arc::clone(&target), ends.each_ref().map(look))];
        let mut paths = vec![ends];
        for (number, parent) in parents.iter().enumerate() {
            let parent = parent % (number + 1);
            let name = OsString::from(format!("d{number}"));
            // The first directory is in the target, and its name is its complete path.
            let (names, place) = match parent {
                0 => (paths[0].each_ref().map(|path| path.join(&name).into_os_string()), Arc::clone(&target)),
                _ => ([name.clone(), name.clone()], Arc::clone(&nodes[parent].0)),
            };
            let made = paths[parent].each_ref().map(|path| path.join(&name));
            made.iter().for_each(|path| std::fs::create_dir(path).unwrap());
            let seen = made.each_ref().map(look);
            let facts = facts(seen, &names[1]);
            let above = descriptors.open(&place).unwrap();
            let source = open_source(&above, &names[0], &facts).unwrap();
            let sink = open_sink(&above, &facts).unwrap();
            let opened = descriptors.enter(place, (source, sink), names[0].clone(), facts);
            nodes.push((Arc::clone(&opened), seen));
            paths.push(made);
        }
        Tree { nodes }
    }

    fn facts(seen: [Stat; 2], sink_name: &OsString) -> DirectoryFacts {
        DirectoryFacts {
            follows_sink: Follow::No,
            names: Arc::default(),
            source: seen[0],
            follow: Follow::No,
            sink: seen[1],
            sink_name: sink_name.clone(),
            is_new: true,
            was_closed: false,
            omitted: 0,
            set_by_name: false,
        }
    }

    fn assert_is(opened: &Opened, seen: &[Stat; 2]) {
        assert_eq!(stat_fd(opened.source()).unwrap().identity(), seen[0].identity());
        assert_eq!(stat_fd(opened.sink()).unwrap().identity(), seen[1].identity());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn directories_are_reopened_in_any_order(
            parents in proptest::collection::vec(any::<usize>(), 1..40),
            // Deep trees as well as wide ones.
            deep in any::<bool>(),
            most in 1usize..8,
            steps in proptest::collection::vec((any::<usize>(), any::<bool>()), 1..60),
        ) {
            let home = tempfile::tempdir().unwrap();
            let descriptors = Descriptors { most, ..Descriptors::new(1, 1000) };
            let parents: Vec<usize> = parents.iter().enumerate().map(|(n, p)| if deep { n } else { *p }).collect();
            let tree = build(&descriptors, home.path(), &parents);
            for (which, upward) in steps {
                let (directory, seen) = &tree.nodes[1 + which % parents.len()];
                let opened = descriptors.open(directory).unwrap();
                assert_is(&opened, seen);
                if upward && let Some(above) = descriptors.open_above(&opened) {
                    let parent = directory.parent.as_ref().unwrap();
                    prop_assert!(Arc::ptr_eq(&above, parent));
                    let known = tree.nodes.iter().skip(1).find(|(node, _)| Arc::ptr_eq(node, parent));
                    known.iter().for_each(|(_, seen)| assert_is(&above, seen));
                }
                drop(opened);
                // One more directory is open while it is being opened.
                prop_assert!(descriptors.open.load(Ordering::Relaxed) <= most + 1);
            }
            drop(tree);
            prop_assert_eq!(descriptors.open.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn replaced_directory_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let descriptors = Descriptors { most: 1, ..Descriptors::new(1, 1000) };
        let tree = build(&descriptors, home.path(), &[0, 1, 2, 3]);
        let place = home.path().join("sink/d0/d1");
        std::fs::rename(&place, home.path().join("was")).unwrap();
        std::fs::create_dir(&place).unwrap();
        let refused = descriptors.open(&tree.nodes[3].0).unwrap_err().to_string();
        assert!(refused.contains("sink/d0/d1'") && refused.contains("replaced"), "{refused}");
        assert_is(&descriptors.open(&tree.nodes[1].0).unwrap(), &tree.nodes[1].1);
    }

    #[test]
    fn held_directory_stays_open_and_is_reused() {
        let home = tempfile::tempdir().unwrap();
        let descriptors = Descriptors { most: 1, ..Descriptors::new(1, 1000) };
        let tree = build(&descriptors, home.path(), &[0, 1, 2]);
        let held = descriptors.open(&tree.nodes[1].0).unwrap();
        descriptors.open(&tree.nodes[3].0).unwrap();
        let again = descriptors.open(&tree.nodes[1].0).unwrap();
        assert_eq!(held.source().as_raw_fd(), again.source().as_raw_fd());
    }

    #[test]
    fn partially_read_directories_are_limited() {
        let descriptors = Descriptors { most: 8, ..Descriptors::new(1, 1000) };
        assert_eq!([(); 3].map(|()| descriptors.pause_reading()), [true, true, false]);
        descriptors.resume_reading();
        assert!(descriptors.pause_reading());
    }
}
