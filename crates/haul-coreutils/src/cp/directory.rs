//! A directory in progress: its source, its sink, and the number of unfinished items beneath it.

use super::descriptors::Slot;
use super::operand_walk::OperandWalk;
use super::place::Place;
use haul_storage::{Follow, Stat};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Device number and inode number.
pub(crate) type Identity = (u64, u64);

/// An operand of the command, for messages from deep beneath it.
#[derive(Debug, Default)]
pub(crate) struct OperandNames {
    /// Index in the command, from 0.
    pub(crate) index: usize,
    /// True if no other operand is copied.
    pub(crate) is_only_one: bool,
    /// The source, as typed.
    pub(crate) source: OsString,
    /// The sink.
    pub(crate) sink: OsString,
}

/// Work to do on a directory when everything beneath it has finished.
#[derive(Debug)]
pub(crate) enum DirectorySettle {
    /// Nothing: the directory of all operands.
    Nothing,
    /// The directory of one operand.
    Operand(OperandSettle),
    /// A directory that was copied.
    Copied(Box<DirectoryFacts>),
}

/// Work to do when an operand has finished.
#[derive(Debug)]
pub(crate) struct OperandSettle {
    pub(crate) names: Arc<OperandNames>,
    /// `--parents`: the directories above the operand, outermost first.
    pub(crate) parents: Vec<MadeParent>,
    /// The next operands, if they must wait for this one.
    pub(crate) next: Mutex<Option<OperandWalk>>,
}

/// A directory above an operand, at both ends.
#[derive(Debug)]
pub(crate) struct MadeParent {
    /// Path of the source, as typed.
    pub(crate) source: OsString,
    /// Path of the sink, relative to the target.
    pub(crate) sink: OsString,
    pub(crate) stat: Stat,
    /// Final mode, if the mode of the source is not preserved.
    pub(crate) restore: Option<u32>,
}

/// State of both ends of a directory when it was found.
#[derive(Debug)]
pub(crate) struct DirectoryFacts {
    pub(crate) names: Arc<OperandNames>,
    pub(crate) source: Stat,
    /// `Follow::Yes` if a link may lead to the source.
    pub(crate) follow: Follow,
    /// State of a new sink as created, before its owner got all permissions, or of an existing sink
    /// as found.
    pub(crate) sink: Stat,
    pub(crate) sink_name: OsString,
    pub(crate) is_new: bool,
    /// True if the sink existed and its owner lacked permissions. The owner has all permissions
    /// until the directory is filled.
    pub(crate) was_closed: bool,
    /// Permissions that the sink lacks until its owner is set.
    pub(crate) omitted: u32,
    /// `Follow::Yes` if the sink's name may be a link to the directory
    /// (`--keep-directory-symlink`).
    pub(crate) follows_sink: Follow,
    /// True if the open sink accepts no metadata, because this user may not read the directory.
    pub(crate) set_by_name: bool,
}

/// State of the sink end of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkEnd {
    /// True if this job created the directory.
    pub(crate) is_new: bool,
    /// Device number of the directory.
    pub(crate) dev: u64,
}

/// A directory that exists at the sink and is not opened yet.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub(crate) parent: Arc<Directory>,
    pub(crate) source_name: OsString,
    /// True if its contents are copied; false for other file systems with `-x`.
    pub(crate) is_entered: bool,
    pub(crate) facts: DirectoryFacts,
}

impl DirectorySettle {
    /// Returns the operand that this directory is, or is beneath.
    pub(crate) fn names(&self) -> Option<&Arc<OperandNames>> {
        match self {
            DirectorySettle::Nothing => None,
            DirectorySettle::Operand(operand) => Some(&operand.names),
            DirectorySettle::Copied(facts) => Some(&facts.names),
        }
    }

    /// Returns the device number of the source directory.
    pub(crate) fn source_dev(&self) -> Option<u64> {
        match self {
            DirectorySettle::Copied(facts) => Some(facts.source.dev),
            _ => None,
        }
    }
}

/// A directory being copied. Its metadata is set after the last item beneath it has finished. A
/// read-only directory could not be filled, and filling a directory changes its times.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The descriptors of the directory, while it has any.
    pub(super) ends: Slot,
    /// Name of the directory in its parent's source. Complete paths are built only when a message
    /// needs them. Stored in every directory, they would take memory by the square of the depth of
    /// a tree.
    pub(super) source_name: OsString,
    /// Prefix of sinks in the target directory, for messages; empty for all other directories.
    lead: OsString,
    /// True if the sink did not exist before this job, so that no name in it can collide.
    pub(crate) sink_is_new: bool,
    /// Device number of the sink's file system, if names in the sink are known to be on that file
    /// system.
    pub(crate) sink_dev: Option<u64>,
    /// Work to do when everything beneath has finished.
    pub(crate) settle: DirectorySettle,
    /// Parent directory, which waits for this directory.
    pub(crate) parent: Option<Arc<Directory>>,
    pending: AtomicUsize,
}

impl Directory {
    /// Creates the directory that contains all operands.
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

    /// Creates a directory in another one. From the start it waits for one item: its own walk.
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

    /// Returns the operand that this directory is, or is beneath.
    pub(crate) fn names(&self) -> Option<&Arc<OperandNames>> {
        self.settle.names()
    }

    /// Returns the path of the source for messages, as typed or found.
    pub(crate) fn source_path(&self) -> OsString {
        self.path(OsString::new(), |directory, _| &directory.source_name, None)
    }

    /// Returns the path of the sink for messages, as typed or built.
    pub(crate) fn sink_path(&self) -> OsString {
        self.path(self.lead(), |_, facts| &facts.sink_name, None)
    }

    /// Returns the path of a name in the source, for messages.
    pub(crate) fn source_path_of(&self, name: &OsStr) -> OsString {
        self.path(OsString::new(), |directory, _| &directory.source_name, Some(name))
    }

    /// Returns the path of a name in the sink, for messages.
    pub(crate) fn sink_path_of(&self, name: &OsStr) -> OsString {
        self.path(self.lead(), |_, facts| &facts.sink_name, Some(name))
    }

    /// Returns the common prefix of the sinks of all operands.
    fn lead(&self) -> OsString {
        self.upward().last().map(|target| target.lead.clone()).unwrap_or_default()
    }

    /// Returns this directory and those above it, the target last.
    pub(crate) fn upward(&self) -> impl Iterator<Item = &Directory> {
        std::iter::successors(Some(self), |directory| directory.parent.as_deref())
    }

    /// Appends to `path` the names of the copied directories down to this one, and then `last`.
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

    /// Returns true if this directory, or one above it, is a copy of the source directory
    /// `identity`. Only a followed link can lead to such a directory.
    pub(crate) fn is_within(&self, identity: Identity) -> bool {
        self.upward().any(|directory| match &directory.settle {
            DirectorySettle::Copied(facts) => facts.source.identity() == identity,
            _ => false,
        })
    }

    /// Makes the directory wait for `count` more items.
    pub(crate) fn expect(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::Relaxed);
    }

    /// Records that one item beneath has finished. Returns true if it was the last one. The caller
    /// then settles the directory and notifies its parent.
    #[must_use]
    pub(crate) fn finish_one(&self) -> bool {
        // Release and acquire: the settling worker sees all changes that the others made beneath.
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Drop for Directory {
    /// Releases the directories above one by one, if no other reference holds them. Recursive drops
    /// would use stack space for each level.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.parent.take();
        }
    }
}

/// Makes a path end in exactly one slash, as cp joins paths: `a` and `a//` both become `a/`.
fn add_slash(path: &mut OsString) {
    let bytes = path.as_bytes();
    // A root keeps its slashes.
    if let Some(end) = bytes.iter().rposition(|&byte| byte != b'/') {
        let mut joined = OsStr::from_bytes(&bytes[..=end]).to_owned();
        joined.push("/");
        *path = joined;
    }
}
