//! A directory in progress: its source, its sink, and the number of unfinished items beneath it.

use super::operand_walk::OperandWalk;
use super::place::Place;
use crate::location::{Base, EntryName, Location, LocationName};
use haul_engine::copy::{CopyError, Refusal};
use haul_storage::local::cause_of_loss;
use haul_storage::{Dir, Follow, Reached, Stat};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
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
    pub(crate) sink_name: EntryName,
    pub(crate) is_new: bool,
    /// True if the sink existed and its owner lacked permissions. The owner has all permissions
    /// until the directory is filled.
    pub(crate) was_closed: bool,
    /// Permissions that the sink lacks until its owner is set.
    pub(crate) omitted: u32,
    /// `Follow::Yes` if the sink's name may be a link to the directory
    /// (`--keep-directory-symlink`).
    pub(crate) follows_sink: Follow,
}

/// Both ends of a directory, which stay open as long as this value exists.
#[derive(Debug)]
pub(crate) struct HeldEnds {
    _source: Option<Reached>,
    _sink: Option<Reached>,
}

/// A directory that exists at the sink and is not opened yet.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub(crate) parent: Arc<Directory>,
    pub(crate) source_name: EntryName,
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
    /// Source, which names in the source are relative to.
    pub(crate) source: Base,
    /// Sink, which names in the sink are relative to.
    pub(crate) sink: Base,
    /// Name of the directory in its parent's source. Complete paths are built only when a message
    /// needs them. Stored in every directory, they would take memory by the square of the depth of
    /// a tree.
    pub(super) source_name: EntryName,
    /// Prefix of sinks in the target directory, for messages; empty for all other directories.
    lead: OsString,
    /// True if the sink did not exist before this job, so that no name in it can collide.
    pub(crate) sink_is_new: bool,
    /// Work to do when everything beneath has finished.
    pub(crate) settle: DirectorySettle,
    /// Parent directory, which waits for this directory.
    pub(crate) parent: Option<Arc<Directory>>,
    pending: AtomicUsize,
}

impl Directory {
    /// Returns the directory that contains all operands. Sources and sinks are relative to these
    /// directories; without one, to the working directory. This directory is never settled.
    pub(crate) fn target(source: Option<&Place>, place: Option<&Place>) -> Arc<Directory> {
        let base = |place: Option<&Place>| match place {
            Some(place) => Base::Dir(Arc::clone(place.dir())),
            None => Base::WorkingDirectory,
        };
        Arc::new(Directory {
            source: base(source),
            sink: base(place),
            source_name: EntryName::Path(OsString::new()),
            lead: place.map(|place| place.lead().to_owned()).unwrap_or_default(),
            sink_is_new: false,
            settle: DirectorySettle::Nothing,
            parent: None,
            pending: AtomicUsize::new(1),
        })
    }

    /// Returns the directory of one operand in the target. It waits only for the entry of the
    /// operand.
    pub(crate) fn operand(target: &Arc<Directory>, settle: OperandSettle) -> Arc<Directory> {
        Arc::new(Directory {
            source: target.source.clone(),
            sink: target.sink.clone(),
            source_name: EntryName::Path(OsString::new()),
            lead: OsString::new(),
            sink_is_new: false,
            settle: DirectorySettle::Operand(settle),
            parent: Some(Arc::clone(target)),
            pending: AtomicUsize::new(1),
        })
    }

    /// Returns a copied directory that is open at both ends. From the start it waits for one item:
    /// its own walk.
    pub(super) fn copied(new: NewDirectory, source: Arc<dyn Dir>, sink: Arc<dyn Dir>) -> Arc<Directory> {
        Arc::new(Directory {
            source: Base::Dir(source),
            sink: Base::Dir(sink),
            source_name: new.source_name,
            lead: OsString::new(),
            sink_is_new: new.facts.is_new,
            settle: DirectorySettle::Copied(Box::new(new.facts)),
            parent: Some(new.parent),
            pending: AtomicUsize::new(1),
        })
    }

    /// Returns the location of a name in the source.
    pub(crate) fn source_at<'a>(&'a self, name: impl Into<LocationName<'a>>) -> Location<'a> {
        self.source.at(name)
    }

    /// Returns the location of a name in the sink.
    pub(crate) fn sink_at<'a>(&'a self, name: impl Into<LocationName<'a>>) -> Location<'a> {
        self.sink.at(name)
    }

    /// Opens both ends again if they were closed, and keeps them open as long as the result exists.
    /// The directory above is then opened from here.
    ///
    /// # Errors
    /// Returns an error that names the directory that can no longer be reached, or that another one
    /// replaced: this directory, or the uppermost one above it.
    pub(crate) fn reach(&self) -> Result<HeldEnds, CopyError> {
        let error = match self.reach_ends() {
            Ok(held) => return Ok(held),
            Err(error) => error,
        };
        let above = self.upward().skip(1).map_while(|directory| directory.reach_ends().err());
        Err(above.last().unwrap_or(error))
    }

    /// Same as [`Directory::reach`], but an error names this directory.
    pub(super) fn reach_ends(&self) -> Result<HeldEnds, CopyError> {
        let hold = |end: &Base| end.dir().map(Dir::reach).transpose();
        let source = hold(&self.source).map_err(|error| lost(error, self.source_path()))?;
        let sink = hold(&self.sink).map_err(|error| lost(error, self.sink_path()))?;
        Ok(HeldEnds { _source: source, _sink: sink })
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
        name: impl Fn(&'d Directory, &'d DirectoryFacts) -> &'d OsStr,
        last: Option<&OsStr>,
    ) -> OsString {
        let mut names = Vec::new();
        for directory in self.upward() {
            if let DirectorySettle::Copied(facts) = &directory.settle {
                names.push(name(directory, facts));
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

/// Returns the error of a directory that can no longer be reached.
fn lost(source: io::Error, path: OsString) -> CopyError {
    match cause_of_loss(source) {
        Some(source) => CopyError::Cannot { action: "access", path, source },
        None => Refusal::Replaced(path).into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::limits::OPEN_DIRECTORIES_MAX;
    use haul_storage::Name;
    use haul_storage::local::OpenedFiles;
    use std::fs;
    use std::path::Path;

    /// Opens the directory at a path, which the storage may close.
    fn open(storage: &OpenedFiles, path: &Path) -> Arc<dyn Dir> {
        storage.dir_here(path.as_os_str(), Follow::No).unwrap()
    }

    fn within(parent: &Arc<Directory>, name: &str, ends: [Arc<dyn Dir>; 2]) -> Arc<Directory> {
        let name = EntryName::from(OsString::from(name));
        let [source, sink] = ends;
        let facts = DirectoryFacts {
            names: Arc::default(),
            source: source.stat().unwrap(),
            follow: Follow::No,
            sink: sink.stat().unwrap(),
            sink_name: name.clone(),
            is_new: true,
            was_closed: false,
            omitted: 0,
            follows_sink: Follow::No,
        };
        let parent = Arc::clone(parent);
        Directory::copied(NewDirectory { parent, source_name: name, is_entered: true, facts }, source, sink)
    }

    /// The storage closes all directories of the tree before one of them is replaced.
    #[test]
    fn replaced_directory_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for end in ["source", "sink"] {
            fs::create_dir_all(home.path().join(end).join("d0/d1/d2/d3")).unwrap();
        }
        let storage = OpenedFiles::default();
        let ends = ["source", "sink"].map(|end| open(&storage, &home.path().join(end)));
        let mut tree = vec![within(&Directory::target(None, None), "tree", ends)];
        for (level, name) in ["d0", "d1", "d2", "d3"].into_iter().enumerate() {
            let (above, entry) = (&tree[level], Name::new(name).unwrap());
            let ends =
                [&above.source, &above.sink].map(|end| end.at(&entry).dir(Follow::No, &storage).unwrap());
            tree.push(within(above, name, ends));
        }
        let others: Vec<_> = (0..2 * OPEN_DIRECTORIES_MAX)
            .map(|number| {
                let path = home.path().join(number.to_string());
                fs::create_dir(&path).unwrap();
                open(&storage, &path)
            })
            .collect();
        let place = home.path().join("sink/d0/d1");
        fs::rename(&place, home.path().join("was")).unwrap();
        fs::create_dir_all(place.join("d2/d3")).unwrap();
        let refused = tree[4].reach().unwrap_err().to_string();
        assert!(refused.contains("tree/d0/d1'") && refused.contains("replaced"), "{refused}");
        tree[1].reach().unwrap();
        drop(others);
    }

    #[test]
    fn missing_directory_is_not_taken_for_a_replaced_one() {
        let home = tempfile::tempdir().unwrap();
        let storage = OpenedFiles::default();
        for (is_replaced, message) in [(false, "No such file"), (true, "replaced")] {
            let path = home.path().join(message);
            fs::create_dir(&path).unwrap();
            let dir = open(&storage, &path);
            let others: Vec<_> = (0..2 * OPEN_DIRECTORIES_MAX)
                .map(|number| {
                    let path = home.path().join(format!("{message}{number}"));
                    fs::create_dir(&path).unwrap();
                    open(&storage, &path)
                })
                .collect();
            fs::rename(&path, home.path().join(format!("was {message}"))).unwrap();
            if is_replaced {
                fs::create_dir(&path).unwrap();
            }
            let error = dir.reach().unwrap_err();
            assert!(lost(error, OsString::from("d")).to_string().contains(message), "{message}");
            // No caller takes the loss of the directory for the absence of an entry.
            let entry = dir.stat_at(&Name::new("x").unwrap(), Follow::No).unwrap_err();
            assert_eq!(entry.kind(), io::ErrorKind::StaleNetworkFileHandle);
            drop(others);
        }
    }
}
