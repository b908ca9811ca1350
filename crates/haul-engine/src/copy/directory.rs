//! A directory on its way: where it comes from, where it goes, and what is still under way beneath it.

use super::descriptors::Slot;
use super::entry::{DirectoryFacts, DirectorySettle, OperandNames, SinkEnd};
use super::place::Place;
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
    /// What sinks in the target directory begin with in messages; nothing for all others.
    lead: OsString,
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
    pub(super) fn target(ends: Slot, place: Option<&Place>) -> Directory {
        Directory {
            ends,
            source_name: OsString::new(),
            lead: place.map(|place| place.lead().to_owned()).unwrap_or_default(),
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
            lead: OsString::new(),
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
        self.path(OsString::new(), |directory, _| &directory.source_name, None)
    }

    /// The sink's path for messages, as typed or built.
    pub(crate) fn sink_path(&self) -> OsString {
        self.path(self.lead(), |_, facts| &facts.sink_name, None)
    }

    /// The path of a name in the source, for messages.
    pub(crate) fn source_path_of(&self, name: &OsStr) -> OsString {
        self.path(OsString::new(), |directory, _| &directory.source_name, Some(name))
    }

    /// The path of a name in the sink, for messages.
    pub(crate) fn sink_path_of(&self, name: &OsStr) -> OsString {
        self.path(self.lead(), |_, facts| &facts.sink_name, Some(name))
    }

    /// What the sinks of all operands begin with.
    fn lead(&self) -> OsString {
        self.upward().last().map(|target| target.lead.clone()).unwrap_or_default()
    }

    /// This directory and those above it, the target last.
    pub(crate) fn upward(&self) -> impl Iterator<Item = &Directory> {
        std::iter::successors(Some(self), |directory| directory.parent.as_deref())
    }

    /// `path` and behind it the names of the directories that were copied, down to this one, and `last` in it.
    fn path<'d>(
        &'d self,
        mut path: OsString,
        name: impl Fn(&'d Directory, &'d DirectoryFacts) -> &'d OsString,
        last: Option<&OsStr>,
    ) -> OsString {
        let mut names = Vec::new();
        for directory in self.upward() {
            if let DirectorySettle::Copied(facts) = &directory.settle {
                names.push(name(directory, facts).as_os_str());
            }
        }
        for (depth, name) in names.into_iter().rev().chain(last).enumerate() {
            if depth > 0 {
                add_slash(&mut path);
            }
            path.push(name);
        }
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

/// Ends a path in one slash, as cp joins: `a` becomes `a/`, and so does `a//`.
fn add_slash(path: &mut OsString) {
    let bytes = path.as_bytes();
    // A root keeps its slashes.
    if let Some(end) = bytes.iter().rposition(|&byte| byte != b'/') {
        let mut joined = OsStr::from_bytes(&bytes[..=end]).to_owned();
        joined.push("/");
        *path = joined;
    }
}
