//! Directories that are being removed: one at the source and one at the copy of each.
//!
//! A directory is in progress as long as anything beneath it is. A deep tree therefore has more
//! such directories than a process has descriptors. The storage closes those that were not used
//! for the longest time, and opens them again when they are needed.

use crate::cp::Place;
use crate::half_read::HalfRead;
use crate::location::{EntryName, Location, LocationName};
use haul_engine::files_left;
use haul_storage::{Dir, Follow, Listing, Reached, Stat};
use haul_sys::process;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// The directories of a removal.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    /// The directory that contains the copies of all operands.
    place: &'a Place,
    /// Directories that wait half read.
    pub(super) half_read: HalfRead,
    /// Directories in progress to whose copies this user got search permission, each after those
    /// above it.
    grant_access: Mutex<Vec<Arc<Node>>>,
}

/// A directory at both ends, while anything beneath it is to be removed.
#[derive(Debug)]
pub(super) struct Node {
    /// Name in its parent; as typed for an operand.
    pub(super) name: EntryName,
    /// Name at the sink; for an operand relative to the common target directory.
    pub(super) sink_name: EntryName,
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
    source: Arc<dyn Dir>,
    sink: Arc<dyn Dir>,
}

/// Stat results of a directory at its source and at its copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) source: Stat,
    pub(super) sink: Stat,
}

/// Name of one object at both ends.
#[derive(Clone, Copy)]
pub(super) struct NamePair<'a> {
    pub(super) source: &'a EntryName,
    pub(super) sink: &'a EntryName,
}

impl<'a> Ends<'a> {
    /// Creates the directories of a removal by `workers` workers.
    pub(super) fn new(workers: usize, place: &'a Place) -> Ends<'a> {
        Ends { place, half_read: HalfRead::new(workers, files_left()), grant_access: Mutex::default() }
    }

    /// Opens a directory that was found earlier and may have waited since, and starts to list its
    /// source.
    ///
    /// # Errors
    /// Returns the error of openat(2) at either end, or `NotFound` if the directory was replaced.
    pub(super) fn enter(
        &self,
        parent: Option<&Arc<Node>>,
        names: NamePair<'_>,
        facts: Facts,
    ) -> io::Result<(Arc<Node>, Box<dyn Listing>)> {
        let above = parent.map(|parent| &**parent);
        let source = source_at(above, names.source).dir(Follow::No, self.place.storage())?;
        let listing = source.list()?;
        let sink = self.sink_at(above, names.sink).dir(Follow::No, self.place.storage())?;
        if !source.is_same(&facts.source)? || !sink.is_same(&facts.sink)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let is_access_granted = grant_access(&*sink, &facts.sink)?;
        let node = Arc::new(Node {
            name: names.source.clone(),
            sink_name: names.sink.clone(),
            parent: parent.map(Arc::clone),
            pending: AtomicUsize::new(1),
            stays: AtomicBool::new(false),
            is_reread: AtomicBool::new(false),
            facts,
            is_access_granted,
            source,
            sink,
        });
        if is_access_granted {
            self.grant_access.lock().push(Arc::clone(&node));
        }
        Ok((node, listing))
    }

    /// Removes a directory from the list of those with extended permissions.
    pub(super) fn forget_granted(&self, node: &Node) {
        let mut grant_access = self.grant_access.lock();
        if let Some(at) = grant_access.iter().rposition(|known| std::ptr::eq(&**known, node)) {
            grant_access.remove(at);
        }
    }

    /// Takes the directories whose permissions are still extended, each before those above it.
    pub(super) fn take_granted(&self) -> impl Iterator<Item = Arc<Node>> {
        std::mem::take(&mut *self.grant_access.lock()).into_iter().rev()
    }

    /// Returns the location of a name at the sink; for an operand, in the common target directory.
    pub(super) fn sink_at<'s>(
        &'s self,
        above: Option<&'s Node>,
        name: impl Into<LocationName<'s>>,
    ) -> Location<'s> {
        Location::within(above.map_or(&**self.place.dir(), |above| &*above.sink), name)
    }
}

/// Returns the location of a name in the source; for an operand, in the working directory.
pub(super) fn source_at<'a>(above: Option<&'a Node>, name: &'a EntryName) -> Location<'a> {
    above.map_or_else(|| Location::here(name), |above| Location::within(&*above.source, name))
}

impl Node {
    /// Opens both ends again if they were closed, and keeps them open as long as the result exists.
    /// The directory above is then opened from here.
    ///
    /// # Errors
    /// Returns an error if the directory can no longer be reached, or `NotFound` if it was
    /// replaced.
    pub(super) fn reach(&self) -> io::Result<[Reached; 2]> {
        Ok([self.source.reach()?, self.sink.reach()?])
    }

    /// Lists the source again.
    ///
    /// # Errors
    /// Same as [`Dir::list`].
    pub(super) fn list(&self) -> io::Result<Box<dyn Listing>> {
        self.source.list()
    }

    /// Returns true if the copy denied access to its owner and its permissions were extended.
    pub(super) fn is_access_granted(&self) -> bool {
        self.is_access_granted
    }

    /// Restores the mode that the copy had before this user got search permission.
    ///
    /// # Errors
    /// Returns the error of chmod(2).
    pub(super) fn shut(&self) -> io::Result<()> {
        self.sink.set_mode(self.facts.sink.mode)
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

/// Gives this user search permission on a copy, if the copy belongs to this user and its mode
/// denies that. Returns true if the mode was changed.
///
/// A directory of another owner may be accessible to this user and not to its owner. Its copy
/// belongs to this user.
fn grant_access(sink: &dyn Dir, found: &Stat) -> io::Result<bool> {
    if found.mode & 0o100 != 0 || found.uid != process::effective_user() {
        return Ok(false);
    }
    match Location::within(sink, OsStr::new(".")).stat(Follow::No) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        _ => return Ok(false),
    }
    sink.set_mode(found.mode | 0o100)?;
    Ok(true)
}
