//! Descriptors of directories that are being removed: one at the source and one at the copy of
//! each. Their number is limited by the process's limit on open files.
//!
//! A directory is in progress as long as anything beneath it is. A deep tree therefore has more
//! such directories than a process has descriptors. As in a copy, those that were opened the
//! longest ago are closed, and reopened when needed. A directory is reopened from beneath by `..`,
//! otherwise name by name from the nearest open directory above. The result counts only if it is
//! the same directory that was closed.

use crate::cp::Place;
use crate::location::Location;
use haul_engine::files_left;
use haul_model::limits::{OPEN_DIRECTORIES_MAX, OPEN_FILES_PER_WORKER, OPEN_FILES_RESERVED};
use haul_storage::{Follow, Stat};
use haul_sys::dir::{is_same_file, open_dir_at, open_place_at};
use haul_sys::{CWD, metadata, process, stat};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The open directories of a removal.
#[derive(Debug)]
pub(super) struct OpenEnds<'a> {
    /// The directory that contains the copies of all operands.
    place: &'a Place,
    /// Maximum number of directories that may stay open.
    most: usize,
    /// Number of open directories, counted by [`DirPair`].
    open: Arc<AtomicUsize>,
    /// Open directories, the one opened the longest ago first. Some of them have finished by now.
    coldest: Mutex<VecDeque<Weak<Node>>>,
    /// Number of partly read directories that wait. Each stays open.
    half_read: AtomicUsize,
    /// Directories in progress to whose copies this user got search permission, each after those
    /// above it.
    grant_access: Mutex<Vec<Arc<Node>>>,
}

/// A directory at both ends, while anything beneath it is to be removed.
#[derive(Debug)]
pub(super) struct Node {
    /// Name in its parent; as typed for an operand.
    pub(super) name: OsString,
    /// Name at the sink; for an operand relative to the common target directory.
    pub(super) sink_name: OsString,
    pub(super) parent: Option<Arc<Node>>,
    /// Number of unfinished items beneath the directory.
    pub(super) pending: AtomicUsize,
    /// True if an item beneath the directory is kept.
    pub(super) stays: AtomicBool,
    /// True if the directory was read a second time, because names were found that the first read
    /// had missed.
    pub(super) is_reread: AtomicBool,
    facts: Facts,
    /// True if the mode of the copy denies access to its owner, who is this user, and is extended
    /// while this directory is in progress.
    is_access_granted: bool,
    held: Mutex<DescriptorState>,
}

/// Stat results of a directory at its source and at its copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) source: Stat,
    pub(super) sink: Stat,
}

/// A directory whose two ends stay open as long as this handle exists.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    node: Arc<Node>,
    ends: Arc<DirPair>,
}

/// A source directory that is read: by its own descriptor, or by another one for the second time.
#[derive(Debug)]
pub(super) enum Reading {
    First(Arc<DirPair>),
    Again(OwnedFd),
}

/// Both ends of a directory.
#[derive(Debug)]
pub(super) struct DirPair {
    source: OwnedFd,
    sink: OwnedFd,
    counted: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum DescriptorState {
    Open(Arc<DirPair>),
    /// Another handle may still hold the ends open.
    Closed(Weak<DirPair>),
}

impl<'a> OpenEnds<'a> {
    /// Creates the descriptors for `workers` workers, limited by the number that this process may
    /// still open.
    pub(super) fn new(workers: usize, place: &'a Place) -> OpenEnds<'a> {
        let taken = OPEN_FILES_RESERVED + OPEN_FILES_PER_WORKER * workers as u64;
        let pairs = usize::try_from(files_left().saturating_sub(taken) / 2).unwrap_or(usize::MAX);
        OpenEnds {
            place,
            most: pairs.clamp(1, OPEN_DIRECTORIES_MAX),
            open: Arc::default(),
            coldest: Mutex::default(),
            half_read: AtomicUsize::new(0),
            grant_access: Mutex::default(),
        }
    }

    /// Opens a directory that was found earlier and may have waited since.
    ///
    /// # Errors
    /// Returns the error of openat(2) at either end, or `NotFound` if the directory was replaced.
    pub(super) fn enter(
        &self,
        parent: Option<&Opened>,
        name: &OsStr,
        sink_name: &OsStr,
        facts: Facts,
    ) -> io::Result<Opened> {
        let ends = self.open_both(parent, name, sink_name)?;
        ends.are_still(&facts)?;
        let is_access_granted = ends.grant_access(&facts.sink)?;
        let node = Arc::new(Node {
            name: name.to_owned(),
            sink_name: sink_name.to_owned(),
            parent: parent.map(|parent| Arc::clone(&parent.node)),
            pending: AtomicUsize::new(1),
            stays: AtomicBool::new(false),
            is_reread: AtomicBool::new(false),
            facts,
            is_access_granted,
            held: Mutex::new(DescriptorState::Open(Arc::clone(&ends))),
        });
        if is_access_granted {
            self.grant_access.lock().push(Arc::clone(&node));
        }
        self.register_opened(&node);
        Ok(Opened { node, ends })
    }

    /// Removes a directory from the list of those with extended permissions.
    pub(super) fn forget_granted(&self, node: &Arc<Node>) {
        let mut grant_access = self.grant_access.lock();
        if let Some(at) = grant_access.iter().rposition(|known| Arc::ptr_eq(known, node)) {
            grant_access.remove(at);
        }
    }

    /// Takes the directories whose permissions are still extended, each before those above it.
    pub(super) fn take_granted(&self) -> impl Iterator<Item = Arc<Node>> {
        std::mem::take(&mut *self.grant_access.lock()).into_iter().rev()
    }

    /// Returns a directory with both ends open. Reopens the directory if it was closed.
    ///
    /// # Errors
    /// Returns an error if the directory can no longer be reached, or `NotFound` if it was
    /// replaced.
    pub(super) fn open(&self, node: &Arc<Node>) -> io::Result<Opened> {
        let mut closed = Vec::new();
        let mut opened = None;
        for node in std::iter::successors(Some(node), |node| node.parent.as_ref()) {
            opened = self.held(node);
            if opened.is_some() {
                break;
            }
            closed.push(node);
        }
        for below in closed.into_iter().rev() {
            let ends = self.open_both(opened.as_ref(), &below.name, &below.sink_name)?;
            opened = Some(self.admit(below, ends)?);
        }
        opened.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the parent of an open directory, if there is one. Reopens a closed parent by `..`,
    /// or from above if `..` leads to another directory.
    ///
    /// # Errors
    /// See [`OpenEnds::open`].
    pub(super) fn open_above(&self, node: &Node, below: Option<&Opened>) -> io::Result<Option<Opened>> {
        let Some(above) = &node.parent else { return Ok(None) };
        if let Some(opened) = self.held(above) {
            return Ok(Some(opened));
        }
        let by_dots = below.and_then(|below| {
            let name = OsStr::new("..");
            self.open_both(Some(below), name, name).and_then(|ends| self.admit(above, ends)).ok()
        });
        by_dots.map_or_else(|| self.open(above), Ok).map(Some)
    }

    /// Reserves a slot for a directory that waits half read. Returns false if too many already
    /// wait: the caller must then read the directory to its end first.
    pub(super) fn pause_reading(&self) -> bool {
        let may = self.half_read.fetch_add(1, Ordering::Relaxed) < self.most.div_ceil(4);
        if !may {
            self.resume_reading();
        }
        may
    }

    /// Reserves a slot for a directory that waits for its second read, even if too many already
    /// wait.
    pub(super) fn read_again(&self) {
        self.half_read.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases the slot of a directory that waited half read, before reading continues.
    pub(super) fn resume_reading(&self) {
        self.half_read.fetch_sub(1, Ordering::Relaxed);
    }

    fn open_both(&self, above: Option<&Opened>, name: &OsStr, sink_name: &OsStr) -> io::Result<Arc<DirPair>> {
        let source = open_dir_at(source_of(above), name, Follow::No)?;
        let sink = open_place_at(self.sink_of(above), sink_name, Follow::No)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(DirPair { source, sink, counted: Arc::clone(&self.open) }))
    }

    /// Returns the descriptor that names at the sink are relative to; for operands, the common
    /// target directory.
    pub(super) fn sink_of<'s>(&'s self, above: Option<&'s Opened>) -> BorrowedFd<'s> {
        above.map_or_else(|| self.place.as_fd(), |opened| opened.ends.sink.as_fd())
    }

    /// Returns the location of a name at the sink.
    pub(super) fn sink_at<'s>(&'s self, above: Option<&'s Opened>, name: &'s OsStr) -> Location<'s> {
        Location::new(self.sink_of(above), name)
    }

    /// Returns a directory if it is open.
    fn held(&self, node: &Arc<Node>) -> Option<Opened> {
        let mut held = node.held.lock();
        let (ends, was_closed) = match &*held {
            DescriptorState::Open(ends) => (Arc::clone(ends), false),
            DescriptorState::Closed(ends) => (ends.upgrade()?, true),
        };
        if was_closed {
            *held = DescriptorState::Open(Arc::clone(&ends));
        }
        drop(held);
        if was_closed {
            self.register_opened(node);
        }
        Some(Opened { node: Arc::clone(node), ends })
    }

    /// Adds a reopened directory if it is still the same one, unless another worker was faster.
    fn admit(&self, node: &Arc<Node>, ends: Arc<DirPair>) -> io::Result<Opened> {
        ends.are_still(&node.facts)?;
        if let Some(opened) = self.held(node) {
            return Ok(opened);
        }
        *node.held.lock() = DescriptorState::Open(Arc::clone(&ends));
        self.register_opened(node);
        Ok(Opened { node: Arc::clone(node), ends })
    }

    /// Registers an opened directory, and closes those opened the longest ago if too many are open.
    fn register_opened(&self, node: &Arc<Node>) {
        let mut coldest = self.coldest.lock();
        coldest.push_back(Arc::downgrade(node));
        if coldest.len() > 4 * self.most {
            coldest.retain(|node| node.strong_count() > 0);
        }
        let excess = self.open.load(Ordering::Relaxed).saturating_sub(self.most);
        let mut closing: Vec<Arc<Node>> = Vec::new();
        while closing.len() < excess && coldest.len() > 1 {
            closing.extend(coldest.pop_front().and_then(|node| node.upgrade()));
        }
        drop(coldest);
        closing.iter().for_each(|node| node.close());
    }
}

impl Opened {
    /// Returns the source end for reading.
    pub(super) fn reading(&self) -> Reading {
        Reading::First(Arc::clone(&self.ends))
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Restores the mode that the copy had before this user got search permission.
    ///
    /// # Errors
    /// Returns the error of chmod(2).
    pub(super) fn shut(&self) -> io::Result<()> {
        metadata::set_mode_held(&self.ends.sink, self.facts.sink.mode)
    }
}

impl Deref for Opened {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Reading::First(ends) => ends.source.as_fd(),
            Reading::Again(fd) => fd.as_fd(),
        }
    }
}

impl Node {
    /// Returns true if the copy denied access to its owner and its permissions were extended.
    pub(super) fn is_access_granted(&self) -> bool {
        self.is_access_granted
    }

    /// Closes the ends, immediately or when the last holder drops them.
    fn close(&self) {
        let mut held = self.held.lock();
        if let DescriptorState::Open(ends) = &*held {
            let closed = DescriptorState::Closed(Arc::downgrade(ends));
            let ends = std::mem::replace(&mut *held, closed);
            drop(held);
            drop(ends);
        }
    }
}

impl Drop for Node {
    /// Releases the directories above one by one. Recursive drops would use stack space for each
    /// level.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut node) = above.and_then(Arc::into_inner) {
            above = node.parent.take();
        }
    }
}

impl DirPair {
    /// Gives this user search permission on the copy, if the copy belongs to this user and its mode
    /// denies that. Returns true if the mode was changed.
    ///
    /// A directory of another owner may be accessible to this user and not to its owner. Its copy
    /// belongs to this user.
    fn grant_access(&self, sink: &Stat) -> io::Result<bool> {
        if sink.mode & 0o100 != 0 || sink.uid != process::effective_user() {
            return Ok(false);
        }
        match stat::stat_at(&self.sink, ".", Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            _ => return Ok(false),
        }
        metadata::set_mode_held(&self.sink, sink.mode | 0o100)?;
        Ok(true)
    }

    /// Returns an error if either end is no longer the directory that was found.
    fn are_still(&self, facts: &Facts) -> io::Result<()> {
        let found = is_same_file(&self.source, &facts.source)? && is_same_file(&self.sink, &facts.sink)?;
        if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Drop for DirPair {
    fn drop(&mut self) {
        self.counted.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the descriptor that names in the source are relative to; for operands, the working
/// directory.
pub(super) fn source_of(above: Option<&Opened>) -> BorrowedFd<'_> {
    above.map_or(CWD, |opened| opened.ends.source.as_fd())
}

/// Returns the location of a name in the source.
pub(super) fn source_at<'a>(above: Option<&'a Opened>, name: &'a OsStr) -> Location<'a> {
    Location::new(source_of(above), name)
}
