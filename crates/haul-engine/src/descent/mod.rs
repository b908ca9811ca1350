//! Walk of a tree by one thread, to any depth, with few descriptors and one path for all levels.

mod sorted_dir;

use haul_sys::dir::open_dir_at;
use haul_sys::{FileKind, Follow, Stat, process, stat};
use sorted_dir::{Name, SortedDir};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Levels that stay open at most. More gain nothing: each comes back in one step from the level
/// beneath.
const OPEN_LEVELS_MOST: u64 = 64;

/// A walk: the directories from an operand down to the one being read, outermost first. The first
/// and the last few are open. Those between are opened again on the way back, by `..` from beneath
/// or by their names from the first, and only if they are still the same directories.
#[derive(Debug)]
pub struct Descent {
    levels: Vec<Level>,
    /// The path of the last level, with a slash at its end.
    path: Vec<u8>,
    /// The first of the last levels that are open.
    open_from: usize,
    most_open: usize,
}

#[derive(Debug)]
struct Level {
    dir: SortedDir,
    /// In the level above; nothing for the first.
    name: CString,
    /// Length of the path of this directory.
    path_len: usize,
}

/// Result of one step.
#[derive(Debug)]
pub enum Step {
    /// An entry that is no directory: its directory, its name there, its path, and its kind.
    Entry(Arc<OwnedFd>, CString, OsString, FileKind),
    /// A directory, which the next steps read: itself and its path, with a slash at its end.
    /// [`Descent::skip`] leaves it.
    Entered(Arc<OwnedFd>, OsString),
    /// A directory was left: its path, as it was entered.
    Left(OsString),
    /// Nothing yet.
    Nothing,
    /// A directory or an entry that cannot be read: its path and the error.
    Failed(OsString, io::Error),
}

impl Default for Descent {
    /// Creates a walk that is in no directory yet.
    fn default() -> Descent {
        // Three quarters are left for files, and for directories that files yet to be opened lie
        // in.
        let most_open = (process::open_file_limit() / 4).clamp(2, OPEN_LEVELS_MOST);
        Descent::with_open(most_open as usize)
    }
}

impl Descent {
    fn with_open(most_open: usize) -> Descent {
        Descent { levels: Vec::new(), path: Vec::new(), open_from: 0, most_open }
    }

    /// Returns true if all directories were left.
    pub fn is_over(&self) -> bool {
        self.levels.is_empty()
    }

    /// Starts with an operand.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn begin(&mut self, fd: OwnedFd, path: &OsStr) -> io::Result<()> {
        let facts = stat::stat_fd(&fd)?;
        let dir = SortedDir::read(fd, facts)?;
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.open_from = 0;
        self.levels.push(Level { dir, name: CString::default(), path_len: self.path.len() });
        Ok(())
    }

    /// Does one step in the innermost directory.
    pub fn step(&mut self) -> Step {
        let Some(level) = self.levels.last() else { return Step::Nothing };
        if level.dir.is_through() {
            return self.left();
        }
        let (fd, entry) = match self.next_name() {
            Ok((fd, Some(entry))) => (fd, entry),
            Ok((_, None)) => return self.left(),
            Err(error) => {
                // The entries that were read so far count; the next step leaves the directory.
                if let Some(level) = self.levels.last_mut() {
                    level.dir.end();
                }
                return Step::Failed(OsString::from_vec(self.path.clone()), error);
            }
        };
        let kind = match entry.kind_hint {
            Some(kind) => Ok(kind),
            None => stat::stat_at(&fd, entry.name.as_c_str(), Follow::No).map(|facts| facts.kind),
        };
        match kind {
            Ok(FileKind::Directory) => {
                let path_len = self.path.len();
                match self.enter(&fd, &entry.name) {
                    Ok(entered) => Step::Entered(entered, OsString::from_vec(self.path.clone())),
                    Err(error) => {
                        self.path.truncate(path_len);
                        Step::Failed(self.path_of(&entry.name), error)
                    }
                }
            }
            Ok(kind) => {
                let path = self.path_of(&entry.name);
                Step::Entry(fd, entry.name, path, kind)
            }
            Err(error) => Step::Failed(self.path_of(&entry.name), error),
        }
    }

    /// The next name of the innermost directory, and that directory, open.
    fn next_name(&mut self) -> io::Result<(Arc<OwnedFd>, Option<Name>)> {
        self.reach()?;
        let closed = || io::Error::from(io::ErrorKind::NotFound);
        let level = self.levels.last_mut().ok_or_else(closed)?;
        let fd = level.dir.fd().map(Arc::clone).ok_or_else(closed)?;
        Ok((fd, level.dir.next()?))
    }

    /// Leaves the directory just entered without going through it; no step tells that it was left.
    pub fn skip(&mut self) {
        self.leave();
    }

    /// Leaves the innermost directory, and tells so.
    fn left(&mut self) -> Step {
        let path = OsString::from_vec(self.path.clone());
        self.leave();
        Step::Left(path)
    }

    fn enter(&mut self, above: &OwnedFd, name: &CString) -> io::Result<Arc<OwnedFd>> {
        let fd = open_dir_at(above, name.as_c_str(), Follow::No)?;
        let facts = stat::stat_fd(&fd)?;
        // No link was followed: only a mount leads from a directory to itself.
        if facts.may_be_mount_root && self.is_within(&facts) {
            return Err(io::Error::other("mount point of a directory that it lies in: not read again"));
        }
        let dir = SortedDir::read(fd, facts)?;
        let entered = dir.fd().map(Arc::clone).ok_or(io::ErrorKind::NotFound)?;
        self.path.extend_from_slice(name.to_bytes());
        self.path.push(b'/');
        self.levels.push(Level { dir, name: name.clone(), path_len: self.path.len() });
        self.close_coldest();
        Ok(entered)
    }

    fn is_within(&self, facts: &Stat) -> bool {
        self.levels.iter().any(|level| level.dir.facts().identity() == facts.identity())
    }

    /// Leaves the innermost directory, and opens the one above if it was closed.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        let last = self.levels.len().saturating_sub(1);
        self.open_from = self.open_from.min(last);
        let Some(above) = self.levels.last_mut() else { return };
        self.path.truncate(above.path_len);
        if above.dir.fd().is_some() {
            return;
        }
        // Where that leads elsewhere, its name is tried when something of it is needed.
        let parent = left.dir.fd().and_then(|fd| open_dir_at(fd, c"..", Follow::No).ok());
        if parent.is_some_and(|parent| above.dir.reopen(parent).is_ok()) {
            self.open_from = last;
        }
    }

    /// Opens the innermost directory if it is closed: from the first, by the names of all between.
    fn reach(&mut self) -> io::Result<()> {
        let last = self.levels.len().saturating_sub(1);
        if self.levels.last().is_none_or(|level| level.dir.fd().is_some()) {
            return Ok(());
        }
        let (first, below) = self.levels.split_at_mut(1);
        let mut above = first[0].dir.fd().map(Arc::clone);
        for (index, level) in (1..).zip(below) {
            let fd = above.ok_or(io::ErrorKind::NotFound)?;
            level.dir.reopen(open_dir_at(&fd, level.name.as_c_str(), Follow::No)?)?;
            above = level.dir.fd().map(Arc::clone);
            if index + self.most_open <= last {
                level.dir.close();
            }
        }
        self.open_from = (last + 1).saturating_sub(self.most_open).max(1);
        Ok(())
    }

    /// Closes the outermost of the open levels where there are too many. The first stays: the way
    /// down begins there.
    fn close_coldest(&mut self) {
        if self.levels.len() - self.open_from > self.most_open {
            if self.open_from > 0 {
                self.levels[self.open_from].dir.close();
            }
            self.open_from += 1;
        }
    }

    fn path_of(&self, name: &CString) -> OsString {
        OsString::from_vec([&self.path[..], name.to_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::dir::CWD;
    use proptest::prelude::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Finds the files of a tree recursively.
    fn naive(dir: &Path, found: &mut Vec<PathBuf>) {
        let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() { naive(&path, found) } else { found.push(path) }
        }
    }

    fn begun(root: &Path, most_open: usize) -> Descent {
        let mut descent = Descent::with_open(most_open);
        let fd = open_dir_at(CWD, root, Follow::Yes).unwrap();
        descent.begin(fd, root.as_os_str()).unwrap();
        descent
    }

    /// Does one step; a failure becomes text.
    fn step(descent: &mut Descent) -> Option<Result<PathBuf, String>> {
        match descent.step() {
            Step::Entry(_, _, path, _) => Some(Ok(path.into())),
            Step::Failed(path, error) => Some(Err(format!("{}: {error}", Path::new(&path).display()))),
            Step::Entered(..) | Step::Left(_) | Step::Nothing => None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn walk_matches_a_recursive_walk(
            parents in proptest::collection::vec((any::<usize>(), "[a-c]{1,2}"), 1..50),
            deep in any::<bool>(),
            most_open in 1usize..5,
        ) {
            let home = tempfile::tempdir().unwrap();
            let mut dirs = vec![home.path().to_owned()];
            for (number, (parent, name)) in parents.iter().enumerate() {
                let parent = if deep { dirs.len() - 1 } else { parent % dirs.len() };
                let dir = dirs[parent].join(format!("{name}{number}"));
                fs::create_dir(&dir).unwrap();
                for file in ["ab", "b", "z"].iter().take(number % 4) {
                    fs::write(dir.join(file), "").unwrap();
                }
                dirs.push(dir);
            }
            let mut descent = begun(home.path(), most_open);
            let mut found = Vec::new();
            while !descent.is_over() {
                found.extend(step(&mut descent).map(|path| path.unwrap()));
                let open = descent.levels.iter().filter(|level| level.dir.fd().is_some()).count();
                // The first and the last ones.
                prop_assert!(open <= most_open + 1, "{open} of {}", descent.levels.len());
            }
            let mut expected = Vec::new();
            naive(home.path(), &mut expected);
            prop_assert_eq!(found, expected);
        }
    }

    /// Five levels with a file that sorts last in each; the walk has come to the bottom, where the
    /// one above is closed.
    fn at_the_bottom(home: &Path) -> Descent {
        let bottom = home.join("a/b/c/d");
        fs::create_dir_all(&bottom).unwrap();
        for dir in bottom.ancestors().take(5) {
            fs::write(dir.join("z"), "").unwrap();
        }
        let mut descent = begun(home, 1);
        assert_eq!((0..5).find_map(|_| step(&mut descent)), Some(Ok(bottom.join("z"))));
        descent
    }

    #[test]
    fn walk_continues_by_name_after_a_directory_moved() {
        let home = tempfile::tempdir().unwrap();
        let mut descent = at_the_bottom(home.path());
        // `..` of the last directory leads elsewhere now; by their names the others are still
        // found.
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        fs::write(home.path().join("elsewhere/z"), "").unwrap();
        fs::rename(home.path().join("a/b/c/d"), home.path().join("elsewhere/d")).unwrap();
        let mut found = Vec::new();
        while !descent.is_over() {
            found.extend(step(&mut descent));
        }
        let expected = ["a/b/c/z", "a/b/z", "a/z", "z"].map(|path| Ok(home.path().join(path)));
        assert_eq!(found, expected);
    }

    #[test]
    fn replaced_directory_is_reported_and_not_read() {
        let home = tempfile::tempdir().unwrap();
        let mut descent = at_the_bottom(home.path());
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        fs::rename(home.path().join("a/b/c/d"), home.path().join("elsewhere/d")).unwrap();
        fs::rename(home.path().join("a/b/c"), home.path().join("elsewhere/c")).unwrap();
        std::os::unix::fs::symlink("/etc", home.path().join("a/b/c")).unwrap();
        let mut found = Vec::new();
        while !descent.is_over() {
            found.extend(step(&mut descent));
        }
        assert!(matches!(&found[0], Err(text) if text.contains("a/b/c/: ")), "{found:?}");
        let expected = ["a/b/z", "a/z", "z"].map(|path| Ok(home.path().join(path)));
        assert_eq!(found[1..], expected);
    }
}
