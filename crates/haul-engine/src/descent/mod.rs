//! Walk of a tree by one thread, to any depth, with one path for all levels.

mod sorted_dir;

use haul_storage::{Dir, FileKind, Follow, Missing, Name};
use sorted_dir::SortedDir;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// A walk: the directories from an operand down to the one being read, outermost first.
#[derive(Debug, Default)]
pub struct Descent {
    levels: Vec<Level>,
    /// The path of the last level, with a slash at its end.
    path: Vec<u8>,
}

#[derive(Debug)]
struct Level {
    dir: SortedDir,
    /// Device and inode.
    identity: (u64, u64),
    /// Length of the path of this directory.
    path_len: usize,
}

/// Result of one step.
#[derive(Debug)]
pub enum Step {
    /// An entry that is no directory: its directory, its name there, its path, and its kind.
    Entry(Arc<dyn Dir>, Name, OsString, FileKind),
    /// A directory, which the next steps read: itself and its path, with a slash at its end.
    /// [`Descent::skip`] leaves it.
    Entered(Arc<dyn Dir>, OsString),
    /// A directory was left: its path, as it was entered.
    Left(OsString),
    /// Nothing yet.
    Nothing,
    /// A directory or an entry that cannot be read: its path and the error.
    Failed(OsString, io::Error),
}

impl Descent {
    /// Returns true if all directories were left.
    pub fn is_over(&self) -> bool {
        self.levels.is_empty()
    }

    /// Starts with an operand.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn begin(&mut self, dir: Arc<dyn Dir>, path: &OsStr) -> io::Result<()> {
        let identity = dir.opened()?.identity();
        let dir = SortedDir::read(dir)?;
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.levels.push(Level { dir, identity, path_len: self.path.len() });
        Ok(())
    }

    /// Does one step in the innermost directory.
    pub fn step(&mut self) -> Step {
        let Some(level) = self.levels.last_mut() else { return Step::Nothing };
        let (name, kind) = match level.dir.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return self.left(),
            Err(error) => {
                // The entries that were read so far count; the next step leaves the directory.
                level.dir.end();
                return Step::Failed(OsString::from_vec(self.path.clone()), error);
            }
        };
        let dir = Arc::clone(level.dir.dir());
        match kind.map_or_else(|| Ok(dir.stat_at(&name, Follow::No)?.kind), Ok) {
            Ok(FileKind::Directory) => match self.enter(&*dir, &name) {
                Ok(entered) => Step::Entered(entered, OsString::from_vec(self.path.clone())),
                Err(error) => Step::Failed(self.path_of(&name), error),
            },
            Ok(kind) => {
                let path = self.path_of(&name);
                Step::Entry(dir, name, path, kind)
            }
            Err(error) => Step::Failed(self.path_of(&name), error),
        }
    }

    /// Leaves the directory just entered without going through it; no step tells that it was left.
    pub fn skip(&mut self) {
        self.levels.pop();
        self.path.truncate(self.levels.last().map_or(0, |above| above.path_len));
    }

    /// Leaves the innermost directory, and tells so.
    fn left(&mut self) -> Step {
        let path = OsString::from_vec(self.path.clone());
        self.skip();
        Step::Left(path)
    }

    fn enter(&mut self, above: &dyn Dir, name: &Name) -> io::Result<Arc<dyn Dir>> {
        let dir = above.dir(name, Follow::No, Missing::Fail)?;
        let found = dir.opened()?;
        let identity = found.identity();
        // No link was followed: only a mount leads from a directory to itself.
        if found.may_be_mount_root && self.levels.iter().any(|level| level.identity == identity) {
            return Err(io::Error::other("mount point of a directory that it lies in: not read again"));
        }
        let sorted = SortedDir::read(Arc::clone(&dir))?;
        self.path.extend_from_slice(name.as_bytes());
        self.path.push(b'/');
        self.levels.push(Level { dir: sorted, identity, path_len: self.path.len() });
        Ok(dir)
    }

    fn path_of(&self, name: &Name) -> OsString {
        OsString::from_vec([&self.path[..], name.as_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::limits::OPEN_DIRECTORIES_MAX;
    use haul_storage::Create;
    use haul_storage::local;
    use haul_storage::memory::{Call, MemoryStorage};
    use proptest::prelude::*;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Number of levels of a tree. The storage closes the outer ones, although their last files are
    /// still to be walked.
    const LEVELS: usize = OPEN_DIRECTORIES_MAX + 100;

    /// Finds the files of a tree recursively.
    fn naive(dir: &Path, found: &mut Vec<PathBuf>) {
        let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() { naive(&path, found) } else { found.push(path) }
        }
    }

    fn begun(root: &Path) -> Descent {
        let mut descent = Descent::default();
        descent.begin(local::open(root, Follow::Yes).unwrap(), root.as_os_str()).unwrap();
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

    fn rest(mut descent: Descent) -> Vec<Result<PathBuf, String>> {
        let mut found = Vec::new();
        while !descent.is_over() {
            found.extend(step(&mut descent));
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn walk_matches_a_recursive_walk(
            parents in proptest::collection::vec((any::<usize>(), "[a-c]{1,2}"), 1..50),
            deep in any::<bool>(),
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
            let found: Vec<PathBuf> = rest(begun(home.path())).into_iter().map(Result::unwrap).collect();
            let mut expected = Vec::new();
            naive(home.path(), &mut expected);
            prop_assert_eq!(found, expected);
        }
    }

    /// Levels with a file that sorts last in each; the walk has come to the bottom.
    fn at_the_bottom(home: &Path) -> Descent {
        let mut bottom = home.to_owned();
        for _ in 0..LEVELS {
            fs::write(bottom.join("z"), "").unwrap();
            bottom.push("d");
            fs::create_dir(&bottom).unwrap();
        }
        let mut descent = begun(home);
        while descent.levels.len() <= LEVELS {
            assert_eq!(step(&mut descent), None);
        }
        descent
    }

    /// Returns the directory at this depth beneath another one.
    fn beneath(home: &Path, levels: usize) -> PathBuf {
        std::iter::repeat_n("d", levels).fold(home.to_owned(), |path, name| path.join(name))
    }

    #[test]
    fn walk_continues_after_a_directory_moved() {
        let home = tempfile::tempdir().unwrap();
        let descent = at_the_bottom(home.path());
        // `..` of the last directory leads elsewhere now; by their names the others are still
        // found.
        fs::create_dir(home.path().join("elsewhere")).unwrap();
        fs::write(home.path().join("elsewhere/z"), "").unwrap();
        fs::rename(beneath(home.path(), LEVELS), home.path().join("elsewhere/d")).unwrap();
        let expected = (0..LEVELS).rev().map(|level| Ok(beneath(home.path(), level).join("z")));
        assert_eq!(rest(descent), expected.collect::<Vec<_>>());
    }

    #[test]
    fn replaced_directory_is_reported_and_not_read() {
        let home = tempfile::tempdir().unwrap();
        let mut descent = at_the_bottom(home.path());
        let replaced = beneath(home.path(), 10);
        fs::rename(&replaced, home.path().join("elsewhere")).unwrap();
        fs::create_dir(&replaced).unwrap();
        fs::write(replaced.join("z"), "of another").unwrap();
        let mut sizes = Vec::new();
        while !descent.is_over() {
            if let Step::Entry(dir, name, ..) = descent.step() {
                sizes.push(dir.stat_at(&name, Follow::No).map(|found| found.size).ok());
            }
        }
        sizes.reverse();
        assert_eq!(sizes[..10], [Some(0); 10]);
        assert_eq!(sizes[10], None);
        // Directories beneath it that are still open have the right files.
        assert!(sizes.len() == LEVELS && !sizes.contains(&Some(10)), "{sizes:?}");
    }

    #[test]
    fn each_call_that_fails_is_reported_and_nothing_else_is_left_out() {
        let name = |text: &str| Name::new(text).unwrap();
        let storage = MemoryStorage::new(1);
        for dir in ["a", "b", "c"] {
            let missing = Missing::Create { mode: 0o700 };
            let dir = storage.root().dir(&name(dir), Follow::No, missing).unwrap();
            for file in ["x", "y"] {
                dir.sink(&name(file), Create::New { mode: 0o600 }).unwrap();
            }
        }
        let walk = || {
            let mut descent = Descent::default();
            let root = storage.root();
            match descent.begin(root, OsStr::new("r")) {
                Ok(()) => rest(descent),
                Err(error) => vec![Err(error.to_string())],
            }
        };
        let all = walk();
        assert_eq!(all.len(), 6);
        for call in Call::ALL {
            for nth in 1.. {
                storage.fail(call, nth, 5);
                let before = storage.count(call);
                let found = walk();
                if storage.count(call) - before < nth {
                    break;
                }
                let failures = found.iter().filter(|step| step.is_err()).count();
                assert_eq!(failures, 1, "{call:?} {nth}: {found:?}");
                // One directory has two files. Without the first one there is no walk.
                let files = found.iter().filter(|step| all.contains(step)).count();
                assert!(files >= 4 || found.len() == 1, "{call:?} {nth}: {found:?}");
            }
        }
    }
}
