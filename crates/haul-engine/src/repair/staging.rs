//! Staging directory for file parts from other hosts. Only this user can access it, and the repair
//! removes it at its end. The next repair uses the data that a killed repair left. The data is not
//! trusted, and therefore not synced.

use super::places::Replica;
use haul_storage::{Dir, Draft, Durability, FileKind, Follow, Missing, Name, Node, Remove, Writers, local};
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of repairs that can fetch into one directory at the same time.
const NUMBERS: u32 = 16;

/// Maximum number of attempts to open a directory that another repair has just removed.
const ATTEMPTS: u32 = 8;

/// Mode of the directory: only this user may write to it.
const MODE: u32 = 0o700;

/// Marker file that identifies the directory.
const MARK: &str = "what-this-is";

/// Name of a marker that is being written. Its rename makes it the marker.
const MARK_DRAFT: &str = "what-this-is.new";

/// Number of entries of the directory that are read at a time.
const ENTRIES_AT_ONCE: usize = 1024;

/// Read limit for the marker file, in bytes; above the size of a valid one.
const MARK_BYTES: usize = 256;

/// Staging directory. Its lock distinguishes a directory in use from one that a killed repair left.
#[derive(Debug)]
pub(super) struct Staging {
    base: Arc<dyn Dir>,
    name: Name,
    dir: Arc<dyn Dir>,
    /// Descriptor of the directory, which has the lock.
    lock: File,
}

/// Part of the staging directory for one replica.
pub(super) struct StagedPlace {
    /// Path for a fetch; it is valid as long as the staging directory is open.
    pub(super) path: OsString,
    /// The same directory as a replica.
    pub(super) replica: Replica,
    /// True if an earlier run left data there.
    pub(super) was_there: bool,
}

impl Staging {
    /// Creates a staging directory below `base`, or reuses an abandoned one.
    ///
    /// # Errors
    /// Returns the error of the kernel, and `ResourceBusy` if all [`NUMBERS`] directories are
    /// unavailable.
    pub(super) fn open(base: &OsStr) -> io::Result<Staging> {
        for number in 0..NUMBERS {
            if let Some(staging) = Staging::take(base, number, true)? {
                return Ok(staging);
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Removes the staging directories that killed repairs left below `base`. A directory that
    /// cannot be removed stays, which is harmless.
    pub(super) fn sweep(base: &OsStr) {
        for number in 0..NUMBERS {
            if let Ok(Some(left)) = Staging::take(base, number, false) {
                let _ = left.remove();
            }
        }
    }

    /// Opens the part of the replica that `id` identifies; creates it if it is missing.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    pub(super) fn place(&self, id: &[u8]) -> io::Result<StagedPlace> {
        let name = haul_digest::digest(haul_digest::Algorithm::Xxh64, id).to_string();
        let path = self.way().join(&name);
        let name = name_of(&name)?;
        let was_there = make(&*self.dir, &name)?;
        let replica = Replica::fetched(self.dir.dir(&name, Follow::No, Missing::Fail)?);
        Ok(StagedPlace { path: path.into_os_string(), replica, was_there })
    }

    /// Removes the directory with all its contents. The marker is removed last, so that remaining
    /// data stays recognizable.
    ///
    /// # Errors
    /// Returns the error of the kernel; the remaining contents stay.
    pub(super) fn remove(self) -> io::Result<()> {
        let (mut list, mut entries) = (self.dir.list()?, Vec::new());
        while list.next(ENTRIES_AT_ONCE, &mut entries)? {}
        let mark = name_of(MARK)?;
        for name in entries.into_iter().map(|entry| entry.name).filter(|name| *name != mark) {
            match self.dir.stat_at(&name, Follow::No)?.kind {
                FileKind::Directory => local::remove_tree(&*self.dir, &name)?,
                _ => self.dir.remove(&name, Remove::File)?,
            }
        }
        match self.dir.remove(&mark, Remove::File) {
            // The directory was created and not marked yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        self.base.remove(&self.name, Remove::Directory)
    }

    /// Opens the directory of this number. Returns `None` if another repair holds it, or if it is
    /// not a staging directory of this user. Also returns `None` if it is missing and `makes` is
    /// false.
    fn take(base: &OsStr, number: u32, makes: bool) -> io::Result<Option<Staging>> {
        let base = local::open(Path::new(base), Follow::Yes)?;
        let name = name_of(&format!(".haul-fetched-{number}"))?;
        for _ in 0..ATTEMPTS {
            if makes {
                make(&*base, &name)?;
            }
            let dir = match base.dir(&name, Follow::No, Missing::Fail) {
                Ok(dir) => dir,
                Err(error) if makes && error.kind() == io::ErrorKind::NotFound => continue,
                // The name is not a directory, or it does not exist.
                Err(_) => return Ok(None),
            };
            let lock = File::from(local::descriptor_of(&*dir)?.as_fd().try_clone_to_owned()?);
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let facts = dir.stat()?;
            match base.stat_at(&name, Follow::No) {
                Ok(now) if now.is_same_file(&facts) => {}
                // The directory was removed before it was locked.
                _ => continue,
            }
            let is_private = facts.uid == dir.user() && facts.mode & 0o077 == 0;
            let is_own = is_private && is_marked(&*dir, facts.ino, makes)?;
            return Ok(is_own.then_some(Staging { base, name, dir, lock }));
        }
        Ok(None)
    }

    /// Returns a path to the directory that stays valid if a parent directory is renamed.
    fn way(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.lock.as_raw_fd().to_string())
    }
}

/// Returns true if the directory has a valid marker. If `marks` is true, writes the marker to an
/// empty directory. The marker contains the inode number, so that a copy in a user's data is not
/// treated as a staging directory.
fn is_marked(dir: &dyn Dir, ino: u64, marks: bool) -> io::Result<bool> {
    let text = format!(
        "Data that 'haul repair' received from other hosts. The next repair removes it.\ninode {ino}\n"
    );
    let mark = name_of(MARK)?;
    let found = match dir.source(&mark, Follow::No) {
        Ok(file) => {
            let mut found = vec![0; MARK_BYTES];
            let got = file.read_at(0, &mut found)?;
            found.truncate(got);
            Some(found)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => return Ok(false),
    };
    if found.as_deref() == Some(text.as_bytes()) {
        return Ok(true);
    }
    // A repair may have been killed before it wrote the marker. Earlier versions wrote the marker
    // in place, so that it can be incomplete.
    let is_begun = match &found {
        None => has_only(dir, &[MARK_DRAFT])?,
        Some(found) => text.as_bytes().starts_with(found) && has_only(dir, &[MARK, MARK_DRAFT])?,
    };
    if is_begun && marks {
        let mut draft = Draft::create(dir, &mark, Writers::One, 0o600)?;
        draft.write_all(text.as_bytes())?;
        draft.replace(&mark, Durability::Data)?;
    }
    Ok(is_begun)
}

/// Returns true if the directory has no entries but some of these.
fn has_only(dir: &dyn Dir, names: &[&str]) -> io::Result<bool> {
    let (mut list, mut found) = (dir.list()?, Vec::new());
    while list.next(names.len() + 1, &mut found)? && found.len() <= names.len() {}
    Ok(found.iter().all(|entry| names.iter().any(|name| name.as_bytes() == entry.name.as_bytes())))
}

/// Creates a directory for this user. Returns true if the name existed.
fn make(dir: &dyn Dir, name: &Name) -> io::Result<bool> {
    match dir.make(name, &Node::Directory { mode: MODE }) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
        made => made.map(|()| false),
    }
}

fn name_of(name: &str) -> io::Result<Name> {
    Name::try_from(OsStr::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn bed() -> (tempfile::TempDir, OsString) {
        let home = tempfile::tempdir().unwrap();
        let base = home.path().as_os_str().to_owned();
        (home, base)
    }

    fn names(home: &tempfile::TempDir) -> Vec<String> {
        let found = fs::read_dir(home.path()).unwrap();
        let mut names: Vec<String> =
            found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn each_repair_uses_and_removes_its_own_directory() {
        let (home, base) = bed();
        let one = Staging::open(&base).unwrap();
        let other = Staging::open(&base).unwrap();
        assert_eq!(names(&home), [".haul-fetched-0", ".haul-fetched-1"]);
        for staging in [&one, &other] {
            let place = staging.place(b"host").unwrap();
            assert!(!place.was_there);
            fs::create_dir_all(Path::new(&place.path).join("a/b")).unwrap();
            fs::write(Path::new(&place.path).join("a/b/c"), "bytes").unwrap();
        }
        Staging::sweep(&base);
        assert_eq!(names(&home).len(), 2, "what is in use stays");
        one.remove().unwrap();
        assert_eq!(names(&home), [".haul-fetched-1"]);
        other.remove().unwrap();
        assert!(names(&home).is_empty());
    }

    #[test]
    fn leftover_staging_directory_is_reused_or_swept() {
        let (home, base) = bed();
        let left = Staging::open(&base).unwrap();
        let place = left.place(b"host").unwrap();
        fs::write(Path::new(&place.path).join("f"), "bytes").unwrap();
        // Same effect as a killed process.
        drop((left, place));
        let next = Staging::open(&base).unwrap();
        let place = next.place(b"host").unwrap();
        assert!(place.was_there);
        assert_eq!(fs::read(Path::new(&place.path).join("f")).unwrap(), b"bytes");
        assert!(!next.place(b"another").unwrap().was_there);
        drop((next, place));
        Staging::sweep(&base);
        assert!(names(&home).is_empty());
    }

    #[test]
    fn incomplete_marker_is_rewritten() {
        let (home, base) = bed();
        for begun in [None, Some(""), Some("Data that 'haul")] {
            let dir = home.path().join(".haul-fetched-0");
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(MODE)).unwrap();
            if let Some(text) = begun {
                fs::write(dir.join("what-this-is"), text).unwrap();
            }
            let staging = Staging::open(&base).unwrap();
            assert_eq!(names(&home), [".haul-fetched-0"], "{begun:?}");
            staging.place(b"host").unwrap();
            drop(staging);
            Staging::open(&base).unwrap().remove().unwrap();
            assert!(names(&home).is_empty());
        }
    }

    /// Regression test: the marker was written in place, and a power failure could leave one that
    /// no later repair recognized.
    #[test]
    fn marker_that_was_not_renamed_is_written_again() {
        let (home, base) = bed();
        let dir = home.path().join(".haul-fetched-0");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(MODE)).unwrap();
        fs::write(dir.join(MARK_DRAFT), [0; 100]).unwrap();
        let staging = Staging::open(&base).unwrap();
        assert_eq!(names(&home), [".haul-fetched-0"]);
        let entries: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(entries, [MARK]);
        staging.remove().unwrap();
        assert!(names(&home).is_empty());
    }

    #[test]
    fn foreign_entries_with_the_name_are_neither_used_nor_removed() {
        let (home, base) = bed();
        let at = |number: u32| home.path().join(format!(".haul-fetched-{number}"));
        fs::write(at(0), "a file").unwrap();
        fs::create_dir(home.path().join("data")).unwrap();
        symlink("data", at(1)).unwrap();
        // A directory of a user, and a directory that other users may write to.
        for (number, mode) in [(2, MODE), (3, 0o770)] {
            fs::create_dir(at(number)).unwrap();
            fs::set_permissions(at(number), fs::Permissions::from_mode(mode)).unwrap();
            fs::write(at(number).join("kept"), "bytes").unwrap();
        }
        // A copy of a staging directory, as in data that was copied during a repair.
        let staging = Staging::open(&base).unwrap();
        assert_eq!(staging.name.as_bytes(), b".haul-fetched-4");
        fs::create_dir(at(5)).unwrap();
        fs::set_permissions(at(5), fs::Permissions::from_mode(MODE)).unwrap();
        fs::copy(at(4).join("what-this-is"), at(5).join("what-this-is")).unwrap();
        staging.remove().unwrap();
        Staging::sweep(&base);
        let kept = [0, 1, 2, 3, 5].map(|number| format!(".haul-fetched-{number}"));
        assert_eq!(names(&home), [&kept[..], &["data".to_owned()]].concat());
        assert!(at(2).join("kept").exists() && at(3).join("kept").exists());
    }
}
