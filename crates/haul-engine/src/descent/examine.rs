//! Examination of the entries of a walk: their kinds, and the facts that the caller needs.

use super::sorted_dir::SortedDir;
use haul_storage::{Dir, FileKind, Follow, Missing, Name, Stat};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// Selection of the facts that a walk collects about each entry. If the storage is slow, several
/// threads collect them at the same time.
pub trait Examine: Debug + Send + Sync + 'static {
    /// Facts about an entry.
    type Examined: Debug + Send;

    /// True if [`Examine::entry`] calls the storage.
    const CALLS_STORAGE: bool;

    /// Returns false for an entry to leave out. A directory is then not opened. `above` is the path
    /// of its directory, with a slash at its end.
    fn wants(&self, above: &[u8], name: &Name, kind: FileKind) -> bool;

    /// Examines an entry that is not a directory.
    ///
    /// # Errors
    /// The walk reports an error as [`Step::Failed`](super::Step::Failed).
    fn entry(&self, dir: &Arc<dyn Dir>, name: &Name, kind: FileKind) -> io::Result<Self::Examined>;

    /// Examines a directory.
    ///
    /// # Errors
    /// Same as [`Examine::entry`]. The walk does not enter the directory.
    fn directory(&self, dir: &Arc<dyn Dir>) -> io::Result<Self::Examined>;

    /// Returns the approximate number of bytes that the facts take beyond their own size.
    fn bytes(examined: &Self::Examined) -> usize;
}

/// Takes all entries, and needs only their kinds.
impl Examine for () {
    type Examined = ();

    const CALLS_STORAGE: bool = false;

    fn wants(&self, _: &[u8], _: &Name, _: FileKind) -> bool {
        true
    }

    fn entry(&self, _: &Arc<dyn Dir>, _: &Name, _: FileKind) -> io::Result<()> {
        Ok(())
    }

    fn directory(&self, _: &Arc<dyn Dir>) -> io::Result<()> {
        Ok(())
    }

    fn bytes((): &()) -> usize {
        0
    }
}

/// Identity of a directory, by which the walk recognizes a mount point that leads back to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirIdentity {
    /// Device and inode.
    pub(super) inode: (u64, u64),
    pub(super) may_be_mount_root: bool,
}

impl DirIdentity {
    pub(super) fn of(opened: &Stat) -> DirIdentity {
        DirIdentity { inode: opened.identity(), may_be_mount_root: opened.may_be_mount_root }
    }
}

/// Entry that was examined.
#[derive(Debug)]
pub(super) enum ExaminedEntry<S> {
    /// An entry that is not a directory.
    Other(FileKind, S),
    /// A directory, with its first names.
    Directory(SortedDir, DirIdentity, S),
}

/// Examines the entry `name` of `dir` ahead of the walk. `kind` is its kind if the directory stores
/// it.
///
/// Returns `None` for a directory that the walk has to open or read itself: one that it may not
/// want, another file system, or a large one.
pub(super) fn examine_ahead<E: Examine>(
    examiner: &E,
    dir: &Arc<dyn Dir>,
    name: &Name,
    kind: Option<FileKind>,
) -> io::Result<Option<ExaminedEntry<E::Examined>>> {
    let found = kind.map_or_else(|| Ok(dir.stat_at(name, Follow::No)?.kind), io::Result::Ok)?;
    if found != FileKind::Directory {
        return Ok(Some(ExaminedEntry::Other(found, examiner.entry(dir, name, found)?)));
    }
    if kind.is_none() {
        return Ok(None);
    }
    let dir = dir.dir(name, Follow::No, Missing::Fail)?;
    let identity = DirIdentity::of(&dir.opened()?);
    if identity.may_be_mount_root {
        return Ok(None);
    }
    let Some(sorted) = SortedDir::read_small(Arc::clone(&dir))? else { return Ok(None) };
    let examined = examiner.directory(&dir)?;
    Ok(Some(ExaminedEntry::Directory(sorted, identity, examined)))
}
