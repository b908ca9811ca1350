//! A directory on its way: where it comes from, where it goes, and what is still under way beneath it.

use super::descriptors::Slot;
use super::entry::{DirectoryFacts, DirectorySettle, OperandNames, SinkEnd};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory being copied. Its metadata is set when the last thing beneath it is through, because a
/// read-only directory could not be filled, and filling one moves its times.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Its descriptors, while it has any.
    pub(super) ends: Slot,
    /// Its name in its parent's source. Whole paths are built when a message needs one: kept in every directory, they
    /// would take memory by the square of a tree's depth.
    pub(super) source_name: OsString,
    /// The target directory as typed; nothing for all others.
    target_path: OsString,
    /// Nothing stood at the sink before this job: no name in it can collide.
    pub(crate) sink_is_new: bool,
    /// Device number of the sink's file system, where names in it are known to lie there.
    pub(crate) sink_dev: Option<u64>,
    /// What is set when all beneath is through.
    pub(crate) settle: DirectorySettle,
    /// Who waits for this directory.
    pub(crate) parent: Option<Arc<Directory>>,
    pending: AtomicUsize,
}

impl Directory {
    /// What all operands stand in.
    pub(super) fn target(ends: Slot, target_path: OsString) -> Directory {
        Directory {
            ends,
            source_name: OsString::new(),
            target_path,
            sink_is_new: false,
            sink_dev: None,
            settle: DirectorySettle::Nothing,
            parent: None,
            pending: AtomicUsize::new(1),
        }
    }

    /// A directory in another. It waits for one thing from the start: its own walk.
    pub(super) fn new(
        ends: Slot,
        parent: Arc<Directory>,
        source_name: OsString,
        sink: Option<SinkEnd>,
        settle: DirectorySettle,
    ) -> Directory {
        Directory {
            ends,
            source_name,
            target_path: OsString::new(),
            sink_is_new: sink.is_some_and(|sink| sink.is_new),
            sink_dev: sink.map(|sink| sink.dev),
            settle,
            parent: Some(parent),
            pending: AtomicUsize::new(1),
        }
    }

    /// The operand this directory is or lies beneath.
    pub(crate) fn names(&self) -> Option<&Arc<OperandNames>> {
        self.settle.names()
    }

    /// The source's path for messages, as typed or found.
    pub(crate) fn source_path(&self) -> OsString {
        self.path(OsString::new(), |directory, _| &directory.source_name)
    }

    /// The sink's path for messages, as typed or built.
    pub(crate) fn sink_path(&self) -> OsString {
        let target = self.upward().last().map(|target| target.target_path.clone());
        self.path(target.unwrap_or_default(), |_, facts| &facts.sink_name)
    }

    /// The path of a name in the source, for messages.
    pub(crate) fn source_path_of(&self, name: &OsStr) -> OsString {
        let mut path = self.source_path();
        add(&mut path, name);
        path
    }

    /// The path of a name in the sink, for messages.
    pub(crate) fn sink_path_of(&self, name: &OsStr) -> OsString {
        let mut path = self.sink_path();
        add(&mut path, name);
        path
    }

    /// This directory and those above it, the target last.
    pub(crate) fn upward(&self) -> impl Iterator<Item = &Directory> {
        std::iter::successors(Some(self), |directory| directory.parent.as_deref())
    }

    /// `path` and beneath it the names of the directories that were copied, down to this one.
    fn path<'d>(
        &'d self,
        mut path: OsString,
        name: impl Fn(&'d Directory, &'d DirectoryFacts) -> &'d OsString,
    ) -> OsString {
        let mut names = Vec::new();
        for directory in self.upward() {
            if let DirectorySettle::Copied(facts) = &directory.settle {
                names.push(name(directory, facts));
            }
        }
        names.iter().rev().for_each(|name| add(&mut path, name));
        path
    }

    /// Makes the directory wait for `count` more things.
    pub(crate) fn expect(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::Relaxed);
    }

    /// One thing beneath is through. Returns whether it was the last, in which case the caller settles the
    /// directory and then tells its parent.
    #[must_use]
    pub(crate) fn one_is_through(&self) -> bool {
        // Release and acquire: the settling worker sees all that the others did beneath.
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Drop for Directory {
    /// Lets go of the directories above, where nobody else holds them, one by one: left to themselves they would drop
    /// each other, each deeper in the stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}

/// Joins as cp does: `a` + `b` is `a/b`, so is `a//` + `b`, and nothing + `b` is `b`.
fn add(path: &mut OsString, name: &OsStr) {
    let bytes = path.as_bytes();
    // A root keeps its slashes.
    if let Some(end) = bytes.iter().rposition(|&byte| byte != b'/') {
        let mut joined = OsStr::from_bytes(&bytes[..=end]).to_owned();
        joined.push("/");
        *path = joined;
    }
    path.push(name);
}
