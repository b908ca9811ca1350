//! Changes of the tree: new directories, renames and deletions.

use super::{Entry, FileError, entry, failed};
use crate::limits::DELETE_DEPTH_MAX;
use haul_storage::{Dir, FileKind, Follow, Listing, Missing, Name, Node, Remove, Replace};
use std::io;
use std::sync::Arc;

/// Names of a directory that are deleted at once.
const BATCH_LEN: usize = 256;

/// Creates the directory `path`. Its parent must exist.
pub(crate) fn create_folder(root: &Arc<dyn Dir>, path: &[u8]) -> Result<(), FileError> {
    const DOING: &str = "create the directory";
    let Entry { dir, name } = entry(root, path, DOING)?;
    dir.make(&name, &Node::Directory { mode: 0o777 }).map_err(failed(DOING))
}

/// Renames `from` to `to`. Without `replaces`, an existing entry at `to` is an error. If both are
/// names of one file, removes `from`, as `mv` does.
pub(crate) fn rename(root: &Arc<dyn Dir>, from: &[u8], to: &[u8], replaces: bool) -> Result<(), FileError> {
    const DOING: &str = "rename the entry";
    let (from, to) = (entry(root, from, DOING)?, entry(root, to, DOING)?);
    let replace = if replaces { Replace::Yes } else { Replace::No };
    let renamed = from.dir.rename(&from.name, &*to.dir, &to.name, replace);
    renamed.map_err(|error| match error.kind() {
        io::ErrorKind::CrossesDevices => FileError::Kind(
            "cannot rename the entry: the new directory is on another file system; copy the entry and delete it",
        ),
        io::ErrorKind::InvalidInput => FileError::Kind(
            "cannot rename the entry: a directory cannot move into itself, or the file system cannot protect an existing entry; repeat with \"replace\"",
        ),
        _ => failed(DOING)(error),
    })?;
    // rename(2) does nothing for two names of one file.
    if are_names_of_one_file(&from, &to).map_err(failed(DOING))? {
        from.dir.remove(&from.name, Remove::File).map_err(failed(DOING))?;
    }
    Ok(())
}

/// Returns true if both names exist, in different directories or as different entries of one, and
/// refer to the same file.
fn are_names_of_one_file(from: &Entry, to: &Entry) -> io::Result<bool> {
    let facts = |entry: &Entry| match entry.dir.stat_at(&entry.name, Follow::No) {
        Ok(facts) => Ok(Some(facts)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(source), Some(sink)) = (facts(from)?, facts(to)?) else { return Ok(false) };
    if source.identity() != sink.identity() || source.nlink < 2 {
        return Ok(false);
    }
    if from.dir.stat()?.identity() != to.dir.stat()?.identity() {
        return Ok(true);
    }
    // On a file system that ignores case, two spellings can be one entry.
    let mut listing = from.dir.list()?;
    let (mut names, mut found, mut more) = (Vec::new(), 0, from.name != to.name);
    while more && found < 2 {
        more = listing.next(BATCH_LEN, &mut names)?;
        found += names.drain(..).filter(|entry| entry.name == from.name || entry.name == to.name).count();
    }
    Ok(found == 2)
}

/// Deletes the entry `path`. A directory that is not empty needs `recursive`.
pub(crate) fn delete(root: &Arc<dyn Dir>, path: &[u8], recursive: bool) -> Result<(), FileError> {
    const DOING: &str = "delete the entry";
    let Entry { dir, name } = entry(root, path, DOING)?;
    let facts = dir.stat_at(&name, Follow::No).map_err(failed(DOING))?;
    if facts.kind != FileKind::Directory {
        return dir.remove(&name, Remove::File).map_err(failed(DOING));
    }
    if recursive {
        empty(&*dir, &name)?;
    }
    dir.remove(&name, Remove::Directory).map_err(failed(DOING))
}

/// A directory that is being emptied.
struct Level {
    dir: Arc<dyn Dir>,
    listing: Box<dyn Listing>,
    /// Name in the directory above.
    name: Name,
    /// Entries that were read and not deleted yet.
    batch: Vec<haul_storage::Entry>,
}

/// Deletes everything in the directory `name`. Follows no link, and resolves each name in the
/// directory that was opened.
fn empty(above: &dyn Dir, name: &Name) -> Result<(), FileError> {
    const DOING: &str = "delete the directory";
    let enter = |above: &dyn Dir, name: &Name| {
        let dir = above.dir(name, Follow::No, Missing::Fail)?;
        Ok(Level { listing: dir.list()?, dir, name: name.clone(), batch: Vec::new() })
    };
    let mut levels = vec![enter(above, name).map_err(failed(DOING))?];
    while let Some(level) = levels.last_mut() {
        let Some(next) = level.batch.pop() else {
            level.listing.next(BATCH_LEN, &mut level.batch).map_err(failed(DOING))?;
            if level.batch.is_empty() {
                let done = levels.pop().map(|level| level.name);
                if let (Some(above), Some(name)) = (levels.last(), done) {
                    above.dir.remove(&name, Remove::Directory).map_err(failed(DOING))?;
                }
            }
            continue;
        };
        match level.dir.remove(&next.name, Remove::File) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                let deeper = enter(&*level.dir, &next.name).map_err(failed(DOING))?;
                if levels.len() >= DELETE_DEPTH_MAX {
                    return Err(FileError::Kind(
                        "cannot delete the directory: it is deeper than 256 levels; delete an inner directory first",
                    ));
                }
                levels.push(deeper);
            }
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(DOING)(error)),
        }
    }
    Ok(())
}
