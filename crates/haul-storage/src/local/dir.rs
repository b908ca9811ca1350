//! A directory: names are resolved from its descriptor, which the cache may close meanwhile.

use super::device::LocalDevice;
use super::dir_cache::{DirCache, DirPosition, OpenDir};
use super::dir_fd::{DirFd, is_own, open_made_directory, replaced};
use super::dir_place::{DirPlace, LocalTree, PathLinks};
use super::metadata::{Held, LocalInode, none_if_unsupported};
use super::name_folding::not_empty;
use super::named::LocalName;
use super::sink::LocalSink;
use super::source::{LocalSource, open_source};
use crate::name::Name;
use crate::storage::{
    Create, Dir, Entry, Inode, Listing, Missing, Node, Reached, Remove, Replace, SinkFile, SourceFile,
    check_made,
};
use haul_model::RelPath;
use haul_sys::beneath::open_source_beneath;
use haul_sys::dir::{DirEntry, DirReader, is_same_file, open_dir_at, rewind};
use haul_sys::filesystem::{self, Backing, Space};
use haul_sys::metadata::{Place, get_xattr, list_xattrs};
use haul_sys::open::{
    RenameMode, hold_at, link_at, mkdir_at, mknod_at, read_link_at, rename_at, rmdir_at, symlink_at,
    unlink_at,
};
use haul_sys::{FileKind, Follow, Stat, cache, stat};
use std::any::Any;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// A directory of the local file system.
#[derive(Debug)]
pub(super) struct LocalDir(Arc<DirPlace>);

impl LocalDir {
    /// Opens the root of a tree, which stays open.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn root(path: &Path, follow: Follow, cache: &'static DirCache) -> io::Result<LocalDir> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        DirPlace::root(path, follow, cache).map(LocalDir)
    }

    /// Returns a directory that is open already and stays open. It is read by the descriptor if
    /// `is_readable`.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub(super) fn of_descriptor(
        tree: &Arc<LocalTree>,
        fd: OwnedFd,
        is_readable: bool,
    ) -> io::Result<LocalDir> {
        let dir = DirFd { opened: stat::stat_fd(&fd)?, fd, is_readable };
        Ok(LocalDir(DirPlace::root_of(Arc::clone(tree), dir, CString::default(), Follow::No)))
    }

    /// Opens the directory at a path of any kind that begins at `place`.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn at_path(place: &Arc<DirPlace>, path: &OsStr, follow: Follow) -> io::Result<LocalDir> {
        let (path, links) = (CString::new(path.as_bytes())?, PathLinks::Anywhere(follow));
        let opened = place.open_beneath(&path, links)?;
        Ok(LocalDir(place.enter(path, links, opened)))
    }

    /// Opens the directory at a path of any kind, as [`DirPlace::here`] does.
    ///
    /// # Errors
    /// Same as [`DirPlace::here`].
    pub(super) fn here(tree: &Arc<LocalTree>, path: &OsStr, follow: Follow) -> io::Result<LocalDir> {
        let path = CString::new(path.as_bytes())?;
        Ok(LocalDir(DirPlace::here(Arc::clone(tree), path, follow)?))
    }

    /// Returns the place of this directory in its tree.
    pub(super) fn place(&self) -> &Arc<DirPlace> {
        &self.0
    }

    /// Returns the open directory, which stays open as long as the result exists.
    ///
    /// # Errors
    /// Returns the errors of opening the directory again.
    pub(super) fn open(&self) -> io::Result<Arc<OpenDir>> {
        self.0.open()
    }

    fn opened_source(&self, file: OwnedFd, opened: Stat) -> Arc<dyn SourceFile> {
        let device = self.0.device_of(opened.dev, &file);
        Arc::new(LocalSource::new(file.into(), opened, Some(device)))
    }

    /// Returns the open directory behind a reference to a directory of this storage.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a directory of another storage, and otherwise
    /// the errors of opening the directory again.
    pub(super) fn open_of(dir: &dyn Dir) -> io::Result<Arc<OpenDir>> {
        LocalDir::of(dir)?.open()
    }

    /// Returns the directory of the same kind of storage behind a reference.
    pub(super) fn of(dir: &dyn Dir) -> io::Result<&LocalDir> {
        let dir: &dyn Any = dir;
        dir.downcast_ref().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Opens the directory `name`, or makes it with this mode.
    fn found_or_made(&self, name: &CStr, follow: Follow, mode: u32) -> io::Result<DirFd> {
        let above = self.open()?;
        let above = above.fd();
        self.0.create_beside_others(name, || {
            let found = match DirFd::open(above, name, follow) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match mkdir_at(above, name, mode) {
                        Ok(()) => {
                            self.0.keep_name((above, name), Remove::Directory)?;
                            return open_made_directory(above, name);
                        }
                        // Another worker may have made it meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                            DirFd::open(above, name, follow)?
                        }
                        Err(error) => return Err(error),
                    }
                }
                opened => opened?,
            };
            // Otherwise two directories could become one here.
            self.0.check_no_clash((above, name))?;
            Ok(found)
        })
    }

    /// Calls `act` with a descriptor by which this directory can be read. If this user may not read
    /// the directory, calls `otherwise` with one of a directory above on the same file system.
    fn with_readable<T>(
        &self,
        act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
        otherwise: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let open = self.open()?;
        if open.is_readable() {
            return act(open.as_fd());
        }
        let error = match open_dir_at(&*open, c".", Follow::No) {
            Ok(own) => return act(own.as_fd()),
            Err(error) => error,
        };
        let mut above = self.0.above();
        while let Some(place) = above {
            let open = place.open()?;
            if open.is_readable() {
                return otherwise(open.as_fd());
            }
            above = place.above();
        }
        Err(error)
    }
}

impl Held for LocalDir {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        // Metadata of the directory has no effect on the list of its names.
        act(self.0.open_unmarked()?.as_fd())
    }

    fn local_device(&self) -> &LocalDevice {
        self.0.device()
    }

    fn sync_file_system(&self) -> io::Result<()> {
        self.with_readable(|fd| cache::sync_filesystem(fd), |fd| cache::sync_filesystem(fd))
    }
}

impl Dir for LocalDir {
    fn opened(&self) -> io::Result<Stat> {
        Ok(*self.0.opened())
    }

    fn reach(&self) -> io::Result<Reached> {
        self.0.reach().map(|open| Reached::by(open))
    }

    fn is_same(&self, then: &Stat) -> io::Result<bool> {
        Ok(self.0.opened().is_same_file(then) || is_same_file(&*self.0.open_unmarked()?, then)?)
    }

    fn list(&self) -> io::Result<Box<dyn Listing>> {
        let open = self.0.open_unmarked()?;
        let is_fresh = open.mark_used();
        let capabilities = &self.device().capabilities;
        // Other file systems may list the names from when the directory was opened.
        let rewinds = capabilities.is_local || capabilities.backing == Backing::Memory;
        let position = if is_fresh || rewinds { DirPosition::take(&open) } else { None };
        let reader = match position {
            Some(position) => {
                if rewinds {
                    // Btrfs does so too, and forgets that at this call.
                    rewind(&position)?;
                }
                ListedDir::Cached(position)
            }
            None => ListedDir::Own(open_dir_at(&*open, c".", Follow::No)?),
        };
        Ok(Box::new(LocalListing { reader: DirReader::new(reader), batch: Vec::new() }))
    }

    fn stat_at(&self, name: &Name, follow: Follow) -> io::Result<Stat> {
        stat::stat_at(self.open()?.fd(), name.as_c_str(), follow)
    }

    fn read_link_at(&self, name: &Name) -> io::Result<Vec<u8>> {
        read_link_at(self.open()?.fd(), name.as_c_str()).map(OsStringExt::into_vec)
    }

    fn hold(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        let held = hold_at(self.open()?.fd(), name.as_c_str())?;
        Ok(Arc::new(LocalInode::new(held, &self.0)))
    }

    fn named(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        Ok(Arc::new(LocalName::new(Some(self.0.open_unmarked()?), name.as_c_str().to_owned())))
    }

    fn hold_device(&self) -> io::Result<Arc<dyn Inode>> {
        let held = open_dir_at(&*self.open()?, c".", Follow::No)?;
        Ok(Arc::new(LocalInode::new(held, &self.0)))
    }

    fn attributes_at(&self, name: &Name) -> io::Result<Vec<CString>> {
        list_xattrs(Place::Name(self.open()?.as_fd(), name.as_c_str()))
    }

    fn attribute_at(&self, name: &Name, attribute: &CStr) -> io::Result<Option<Vec<u8>>> {
        get_xattr(Place::Name(self.open()?.as_fd(), name.as_c_str()), attribute)
            .or_else(|error| none_if_unsupported(error, None))
    }

    fn hold_made(&self, name: &Name, node: &Node<'_>) -> io::Result<Arc<dyn Inode>> {
        let held = self.hold(name)?;
        let is_made = match check_made(&*held, node)? {
            Some(found) => is_own(self.open()?.fd(), &found)?,
            None => false,
        };
        if is_made { Ok(held) } else { Err(replaced()) }
    }

    fn dir(&self, name: &Name, follow: Follow, missing: Missing) -> io::Result<Arc<dyn Dir>> {
        let links = PathLinks::Name(follow);
        let opened = match missing {
            Missing::Fail => self.0.open_beneath(name.as_c_str(), links)?,
            Missing::Create { mode } => self.found_or_made(name.as_c_str(), follow, mode)?,
        };
        Ok(Arc::new(LocalDir(self.0.enter(name.as_c_str().to_owned(), links, opened))))
    }

    fn beneath(&self, path: &RelPath, links: Follow) -> io::Result<Arc<dyn Dir>> {
        let (path, links) = (CString::new(path.as_bytes())?, PathLinks::Beneath(links));
        let opened = self.0.open_beneath(&path, links)?;
        Ok(Arc::new(LocalDir(self.0.enter(path, links, opened))))
    }

    fn source(&self, name: &Name, follow: Follow) -> io::Result<Arc<dyn SourceFile>> {
        let (file, opened) = open_source(self.open()?.fd(), name.as_c_str(), follow)?;
        Ok(self.opened_source(file, opened))
    }

    fn source_beneath(&self, path: &RelPath) -> io::Result<Arc<dyn SourceFile>> {
        let file = open_source_beneath(self.open()?.fd(), OsStr::from_bytes(path.as_bytes()))?;
        let opened = stat::stat_fd(&file)?;
        if opened.kind != FileKind::Regular {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.opened_source(file, opened))
    }

    fn sink(&self, name: &Name, create: Create) -> io::Result<Arc<dyn SinkFile>> {
        Ok(Arc::new(LocalSink::open(&self.0, name, create)?))
    }

    fn nameless(&self) -> io::Result<Arc<dyn SinkFile>> {
        Ok(Arc::new(LocalSink::nameless(&self.0)?))
    }

    fn make(&self, name: &Name, node: &Node<'_>) -> io::Result<()> {
        let place = self.open()?;
        let (place, name) = (place.fd(), name.as_c_str());
        let what = if matches!(node, Node::Directory { .. }) { Remove::Directory } else { Remove::File };
        self.0.create_name((place, name), what, || match *node {
            Node::Directory { mode } => mkdir_at(place, name, mode),
            Node::Link { target } => symlink_at(target, place, name),
            Node::Special { kind: FileKind::Regular, .. } => Err(io::ErrorKind::InvalidInput.into()),
            Node::Special { kind, mode, rdev } => mknod_at(place, name, kind, mode, rdev),
        })
    }

    fn link(&self, from: &Name, follow: Follow, to_dir: &dyn Dir, to: &Name) -> io::Result<()> {
        let to_dir = LocalDir::of(to_dir)?;
        let (old, new) = (self.open()?, to_dir.open()?);
        let (from, new) = ((old.fd(), from.as_c_str()), (new.fd(), to.as_c_str()));
        to_dir.0.create_name(new, Remove::File, || link_at(from.0, from.1, new.0, new.1, follow))
    }

    fn rename(&self, from: &Name, to_dir: &dyn Dir, to: &Name, replace: Replace) -> io::Result<()> {
        let to_dir = LocalDir::of(to_dir)?;
        let (old, new) = (self.open()?, to_dir.open()?);
        let (from, to) = ((old.fd(), from.as_c_str()), (new.fd(), to.as_c_str()));
        to_dir.0.rename_here(from, to, replace)
    }

    fn exchange(&self, name: &Name, other_dir: &dyn Dir, other: &Name) -> io::Result<()> {
        let (one, two) = (self.open()?, LocalDir::of(other_dir)?.open()?);
        rename_at(one.fd(), name.as_c_str(), two.fd(), other.as_c_str(), RenameMode::Exchange)
    }

    fn remove(&self, name: &Name, what: Remove) -> io::Result<()> {
        let place = self.open()?;
        match what {
            Remove::File => unlink_at(place.fd(), name.as_c_str()),
            Remove::Directory => rmdir_at(place.fd(), name.as_c_str()).map_err(not_empty),
        }
    }

    fn check_spelling(&self, name: &Name) -> io::Result<()> {
        self.0.check_no_clash((self.open()?.fd(), name.as_c_str()))
    }

    fn sync(&self) -> io::Result<()> {
        let open = self.open()?;
        if !open.is_readable() {
            return self.with_readable(sync_open, |fd| cache::sync_filesystem(fd));
        }
        sync_open(open.as_fd())
    }

    fn space(&self) -> io::Result<Space> {
        filesystem::space(self.open()?.fd())
    }
}

/// Makes the names in a directory durable, by a descriptor by which it can be read. Some network
/// file systems cannot sync directories: their server makes names durable.
fn sync_open(dir: BorrowedFd<'_>) -> io::Result<()> {
    cache::sync_all(dir).or_else(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    })
}

/// Descriptor by which a directory is read.
#[derive(Debug)]
enum ListedDir {
    /// The one in the cache.
    Cached(DirPosition),
    /// Another one.
    Own(OwnedFd),
}

impl AsFd for ListedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListedDir::Cached(position) => position.as_fd(),
            ListedDir::Own(own) => own.as_fd(),
        }
    }
}

/// A directory that is read in batches.
#[derive(Debug)]
struct LocalListing {
    reader: DirReader<ListedDir>,
    batch: Vec<DirEntry>,
}

impl Listing for LocalListing {
    fn next(&mut self, max: usize, out: &mut Vec<Entry>) -> io::Result<bool> {
        let more = self.reader.read_batch(max, &mut self.batch);
        for DirEntry { name, kind_hint, ino } in self.batch.drain(..) {
            let name = Name::from_c_string(name).ok_or(io::ErrorKind::InvalidFilename)?;
            out.push(Entry { name, kind: kind_hint, ino });
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::faults::FaultFs;
    use haul_lab::needs::{Need, met_or_skip};
    use proptest::prelude::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Barrier;
    use tempfile::TempDir;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// Returns a root that keeps at most two directories open, and its cache.
    fn root(home: &TempDir) -> (LocalDir, &'static DirCache) {
        let cache: &DirCache = Box::leak(Box::new(DirCache::new(2)));
        (LocalDir::root(home.path(), Follow::Yes, cache).expect("opens"), cache)
    }

    fn made(dir: &dyn Dir, text: &str) -> Arc<dyn Dir> {
        dir.dir(&name(text), Follow::No, Missing::Create { mode: 0o700 }).expect("made")
    }

    fn existing(dir: &dyn Dir, text: &str) -> io::Result<Arc<dyn Dir>> {
        dir.dir(&name(text), Follow::No, Missing::Fail)
    }

    /// Puts bytes into a new file of a directory.
    fn put(dir: &dyn Dir, text: &str) -> io::Result<()> {
        dir.sink(&name(text), Create::New { mode: 0o600 })?.write_at(0, b"x")
    }

    #[test]
    fn tree_deeper_than_the_limit_of_open_directories_is_reachable_in_any_order() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, cache) = root(&home);
        let mut dirs: Vec<Arc<dyn Dir>> = vec![Arc::new(root)];
        for level in 1..30 {
            let next = made(&*dirs[level - 1], "d");
            dirs.push(next);
        }
        let upward = (0..30).rev();
        let jumps = (0..30).map(|step| step * 7 % 30);
        for (number, level) in (0..30).chain(upward).chain(jumps).enumerate() {
            put(&*dirs[level], &format!("f{number}")).expect("reached");
            assert!(cache.count() <= 2, "{} are open", cache.count());
        }
        let mut path = home.path().to_owned();
        for dir in &dirs {
            assert_eq!(fs::read_dir(&path).expect("lists").filter(|e| !is_d(e)).count(), 3);
            assert_eq!(
                dir.stat().expect("found").ino,
                std::os::unix::fs::MetadataExt::ino(&path.metadata().expect("found"))
            );
            path.push("d");
        }
    }

    fn is_d(entry: &io::Result<fs::DirEntry>) -> bool {
        entry.as_ref().is_ok_and(|entry| entry.file_name() == "d")
    }

    #[test]
    fn threads_that_close_directories_of_each_other_reach_their_own() {
        const DIRS: u64 = 20;
        let home = tempfile::tempdir().expect("a folder");
        let (root, cache) = root(&home);
        let dirs: Vec<_> = (0..DIRS).map(|number| made(&root, &format!("d{number}"))).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let dirs = &dirs;
                scope.spawn(move || {
                    for step in 0..200 {
                        let number = (step * 7 + thread * 5) % DIRS;
                        put(&*dirs[number as usize], &format!("{thread}-{step}-of-{number}")).expect("made");
                    }
                });
            }
        });
        assert!(cache.count() <= 2);
        for number in 0..DIRS {
            for entry in fs::read_dir(home.path().join(format!("d{number}"))).expect("lists") {
                let name = entry.expect("read").file_name().into_string().expect("text");
                assert!(name.ends_with(&format!("-of-{number}")), "{name} in d{number}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn directories_are_reopened_in_any_order(
            parents in proptest::collection::vec(any::<usize>(), 1..40),
            // Deep trees as well as wide ones.
            deep in any::<bool>(),
            most in 2usize..8,
            steps in proptest::collection::vec((any::<usize>(), any::<bool>()), 1..60),
        ) {
            let home = tempfile::tempdir().expect("a folder");
            let cache: &DirCache = Box::leak(Box::new(DirCache::new(most)));
            let root = LocalDir::root(home.path(), Follow::Yes, cache).expect("opens");
            let mut dirs: Vec<(Arc<dyn Dir>, usize, Stat)> = Vec::new();
            for (number, parent) in parents.iter().enumerate() {
                let parent = if deep { number } else { parent % (number + 1) };
                let above = parent.checked_sub(1).map_or(&root as &dyn Dir, |above| &*dirs[above].0);
                let dir = made(above, &format!("d{number}"));
                let found = dir.stat().expect("found");
                dirs.push((dir, parent, found));
            }
            for (which, upward) in steps {
                let (dir, parent, found) = &dirs[which % dirs.len()];
                dir.reach().expect("reached");
                prop_assert_eq!(dir.stat().expect("found").identity(), found.identity());
                if upward && let Some((above, _, found)) = parent.checked_sub(1).map(|above| &dirs[above]) {
                    above.reach().expect("reached");
                    prop_assert_eq!(above.stat().expect("found").identity(), found.identity());
                }
                // One more directory is open while it is being opened.
                prop_assert!(cache.count() <= most + 1);
            }
            drop(dirs);
            prop_assert_eq!(cache.count(), 0);
        }
    }

    /// Each directory of a chain leads to the one above, also if it was not the one opened last
    /// there.
    #[test]
    fn reached_directory_leads_to_the_one_above_it() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, cache) = root(&home);
        let a = made(&root, "a");
        let b = made(&*a, "b");
        let later = made(&*a, "later");
        let c = made(&*b, "c");
        drop(later);
        fs::rename(home.path().join("a"), home.path().join("moved")).expect("renamed");
        for dir in [&c, &b, &a] {
            dir.reach().expect("by `..`");
            assert!(cache.count() <= 2);
        }
    }

    #[test]
    fn way_back_to_a_closed_parent_needs_no_name() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, _) = root(&home);
        let (a, _elsewhere) = (made(&root, "a"), made(&root, "elsewhere"));
        let b = made(&*a, "b");
        let c = made(&*b, "c");
        let d = made(&*c, "d");
        // Only `c` and `d` are open. The name of `b` leads nowhere, and `..` of `c` still does.
        fs::rename(home.path().join("a/b"), home.path().join("elsewhere/moved")).expect("renamed");
        put(&*d, "1").expect("open");
        put(&*c, "2").expect("by `..` or open");
        put(&*b, "3").expect("by `..`");
        let moved = home.path().join("elsewhere/moved");
        assert!(moved.join("3").exists() && moved.join("c/2").exists() && moved.join("c/d/1").exists());
    }

    #[test]
    fn parent_is_found_by_its_name_if_the_directory_beneath_was_moved() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, _) = root(&home);
        let (b, _elsewhere) = (made(&root, "b"), made(&root, "elsewhere"));
        let c = made(&*b, "c");
        let d = made(&*c, "d");
        fs::rename(home.path().join("b/c"), home.path().join("elsewhere/c")).expect("renamed");
        // Only `c` and `d` are open, and `..` of `c` is another directory now.
        put(&*d, "1").expect("open");
        put(&*c, "2").expect("open");
        put(&*b, "3").expect("by its name");
        assert!(home.path().join("b/3").exists() && home.path().join("elsewhere/c/2").exists());
    }

    #[test]
    fn directory_that_took_the_place_of_a_closed_one_gets_nothing() {
        let home = tempfile::tempdir().expect("a folder");
        for plant in ["a directory", "a link", "a file", "nothing"] {
            let (root, cache) = root(&home);
            let (victim, other) = (made(&root, "victim"), made(&root, "other"));
            for text in ["x", "y"] {
                drop(made(&*other, text));
            }
            existing(&root, "other").expect("opens");
            fs::rename(home.path().join("victim"), home.path().join("away")).expect("renamed");
            match plant {
                "a directory" => fs::create_dir(home.path().join("victim")).expect("made"),
                "a link" => symlink("away", home.path().join("victim")).expect("made"),
                "a file" => fs::write(home.path().join("victim"), "").expect("made"),
                _ => {}
            }
            assert!(cache.count() <= 2);
            let error = put(&*victim, "f").expect_err(plant);
            let expected = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            assert!(expected.contains(&error.kind()), "{plant}: {error}");
            assert_eq!(fs::read_dir(home.path().join("away")).expect("lists").count(), 0, "{plant}");
            fs::remove_dir_all(home.path().join("away")).expect("removed");
            let _ = fs::remove_dir_all(home.path().join("victim"));
            let _ = fs::remove_file(home.path().join("victim"));
        }
    }

    /// A chain of 200,000 directories, which are the same one here.
    #[test]
    fn chain_of_any_length_is_dropped_without_recursion() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, _) = root(&home);
        let mut last = root;
        for _ in 0..200_000 {
            let links = PathLinks::Name(Follow::No);
            let dir = last.0.open_beneath(c".", links).expect("opens");
            last = LocalDir(last.0.enter(c".".to_owned(), links, dir));
        }
        drop(last);
    }

    #[test]
    fn lists_that_overlap_are_complete() {
        let home = tempfile::tempdir().expect("a folder");
        for number in 0..300 {
            fs::write(home.path().join(format!("f{number}")), "").expect("written");
        }
        let (root, _) = root(&home);
        let mut lists: Vec<_> = (0..3).map(|_| (root.list().expect("lists"), Vec::new())).collect();
        while lists
            .iter_mut()
            .filter_map(|(list, out)| list.next(7, out).expect("read").then_some(()))
            .count()
            > 0
        {}
        for (_, entries) in &mut lists {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            entries.dedup_by(|one, other| one.name == other.name);
            assert_eq!(entries.len(), 300);
        }
        let mut late = Vec::new();
        while root.list().expect("lists").next(1000, &mut late).expect("read") {}
        assert_eq!(late.len(), 300, "a later list starts at the first entry");
    }

    #[test]
    fn directory_that_only_resolves_names_is_listed_and_synced() {
        let home = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(home.path().join("a/b")).expect("made");
        fs::write(home.path().join("a/b/f"), "x").expect("written");
        symlink("a/b", home.path().join("link")).expect("made");
        symlink("/", home.path().join("out")).expect("made");
        let (root, _) = root(&home);
        let path = |text: &str| RelPath::new(text.as_bytes()).expect("a path");
        let b = root.beneath(&path("a/b"), Follow::No).expect("opens");
        let mut entries = Vec::new();
        while b.list().expect("lists").next(10, &mut entries).expect("read") {}
        assert_eq!(entries.len(), 1);
        b.sync().expect("synced");
        b.sync_device().expect("synced");
        assert!(root.beneath(&path("link"), Follow::No).is_err());
        assert_eq!(
            root.beneath(&path("link"), Follow::Yes).expect("opens").stat().expect("found").ino,
            b.stat().expect("found").ino
        );
        for text in ["out", "out/etc"] {
            let error = root.beneath(&path(text), Follow::Yes).expect_err("leads out");
            assert_eq!(error.kind(), io::ErrorKind::CrossesDevices, "{text}");
        }
        assert_eq!(root.source_beneath(&path("link/f")).expect("opens").opened().size, 1);
        assert_eq!(
            root.source_beneath(&path("a/b")).expect_err("a directory").kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn entry_that_was_replaced_before_it_is_held_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let (root, _) = root(&home);
        let entry = name("entry");
        let link = Node::Link { target: b"target" };
        let pipe = Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 };
        let directory = Node::Directory { mode: 0o700 };
        for (asked, planted) in
            [(link, pipe), (link, Node::Link { target: b"elsewhere" }), (link, directory), (pipe, link)]
        {
            root.make(&entry, &planted).expect("made");
            let error = root.hold_made(&entry, &asked).expect_err("another entry");
            assert_eq!(error.kind(), io::ErrorKind::Other);
            root.remove(&entry, Remove::File)
                .or_else(|_| root.remove(&entry, Remove::Directory))
                .expect("removed");
        }
        root.make(&entry, &link).expect("made");
        assert!(root.hold_made(&entry, &link).is_ok());
        root.link(&entry, Follow::No, &root, &name("second")).expect("linked");
        assert!(root.hold_made(&entry, &link).is_err(), "a new link has one name");
    }

    #[test]
    fn entry_of_another_user_is_not_taken_for_the_made_one() {
        if !met_or_skip(&[Need::Root]) {
            return;
        }
        let home = tempfile::tempdir().expect("a folder");
        let (root, _) = root(&home);
        let link = Node::Link { target: b"t" };
        root.make(&name("l"), &link).expect("made");
        let held = root.hold_made(&name("l"), &link).expect("own");
        held.set_owner(Some(65534), Some(65534)).expect("given away");
        assert_eq!(
            root.hold_made(&name("l"), &link).expect_err("another user's").kind(),
            io::ErrorKind::Other
        );
    }

    /// A removal of an entry whose dots were left out would remove the entry of that shorter name,
    /// into which another worker writes.
    #[test]
    fn entry_with_an_altered_name_does_not_remove_another() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        let [store, view] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let rules = "* name .. trim".parse().expect("a rule");
        let faults = FaultFs::mount(store.path(), view.path(), rules).expect("mounted");
        let (root, _) = root(&view);
        type Make = fn(&LocalDir, &str) -> io::Result<()>;
        let ways: [(&str, Make); 3] = [
            ("f", |dir, text| {
                dir.sink(
                    &name(text),
                    Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No },
                )
                .map(drop)
            }),
            ("d", |dir, text| {
                let dir = dir.dir(&name(text), Follow::No, Missing::Create { mode: 0o700 })?;
                put(&*dir, "file")
            }),
            ("l", |dir, text| dir.make(&name(text), &Node::Link { target: b"t" })),
        ];
        for (kind, make) in ways {
            for round in 0..100 {
                let begin = Barrier::new(2);
                let text = format!("{kind}{round}");
                std::thread::scope(|scope| {
                    let dotted = scope.spawn(|| {
                        begin.wait();
                        make(&root, &format!("{text}."))
                    });
                    begin.wait();
                    // If the dotted name was there for a moment, this one existed.
                    make(&root, &text).or_else(|_| make(&root, &text)).expect("made");
                    let error = dotted.join().expect("no panic").expect_err("its name would not be kept");
                    let kinds = [io::ErrorKind::InvalidFilename, io::ErrorKind::AlreadyExists];
                    assert!(kinds.contains(&error.kind()), "{text}: {error}");
                });
                assert!(store.path().join(&text).symlink_metadata().is_ok(), "{text}");
            }
        }
        drop(root);
        faults.close();
    }
}
