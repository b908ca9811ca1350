//! A directory on its way: open at both ends while anything beneath it is under way, finished when all is done.

use super::entry::{DirectoryFacts, DirectorySettle, OperandNames};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory being copied. Its metadata is set when the last thing beneath it is through, because a
/// read-only directory could not be filled, and filling one moves its times.
#[derive(Debug)]
pub(crate) struct Directory {
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    /// Its name in its parent's source. Whole paths are built when a message needs one: kept in every directory, they
    /// would take memory by the square of a tree's depth.
    source_name: OsString,
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
    /// What all operands stand in: sources are relative to the working directory, sinks to the target
    /// directory, or without one to the working directory as well. Never settled.
    pub(crate) fn target(sink: Option<OwnedFd>, target_path: OsString) -> Arc<Directory> {
        Arc::new(Directory {
            source: None,
            sink,
            source_name: OsString::new(),
            target_path,
            sink_is_new: false,
            sink_dev: None,
            settle: DirectorySettle::Nothing,
            parent: None,
            pending: AtomicUsize::new(1),
        })
    }

    /// The place of one operand: its entry is all that it waits for.
    pub(crate) fn operand(target: &Arc<Directory>, settle: DirectorySettle) -> Arc<Directory> {
        Arc::new(Directory {
            source: None,
            sink: None,
            source_name: OsString::new(),
            target_path: OsString::new(),
            sink_is_new: false,
            sink_dev: None,
            settle,
            parent: Some(Arc::clone(target)),
            pending: AtomicUsize::new(1),
        })
    }

    /// A directory open at both ends. It waits for one thing from the start: its own walk.
    pub(crate) fn open(
        parent: Arc<Directory>,
        ends: (OwnedFd, OwnedFd),
        source_name: OsString,
        sink: SinkEnd,
        settle: DirectorySettle,
    ) -> Arc<Directory> {
        Arc::new(Directory {
            source: Some(ends.0),
            sink: Some(ends.1),
            source_name,
            target_path: OsString::new(),
            sink_is_new: sink.is_new,
            sink_dev: Some(sink.dev),
            settle,
            parent: Some(parent),
            pending: AtomicUsize::new(1),
        })
    }

    /// The descriptor that names in the source are relative to.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        self.source.as_ref().map_or(haul_sys::CWD, |fd| fd.as_fd())
    }

    /// The descriptor that names in the sink are relative to.
    pub(crate) fn sink(&self) -> BorrowedFd<'_> {
        match (&self.sink, &self.parent) {
            (Some(fd), _) => fd.as_fd(),
            (None, Some(target)) => target.sink(),
            (None, None) => haul_sys::CWD,
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

/// What is known of the sink end of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkEnd {
    /// This job made it.
    pub(crate) is_new: bool,
    /// Its device number.
    pub(crate) dev: u64,
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

/// Joins as cp does: `a` + `b` is `a/b`, and nothing + `b` is `b`.
fn add(path: &mut OsString, name: &OsStr) {
    if !path.is_empty() && !path.as_bytes().ends_with(b"/") {
        path.push("/");
    }
    path.push(name);
}
