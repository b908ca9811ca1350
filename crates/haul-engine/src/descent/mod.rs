//! Walk of a tree in the order of its names, to any depth, with one path for all levels.

mod examine;
mod pace;
mod prefetch;
mod sorted_dir;

pub use examine::Examine;

use examine::{DirIdentity, ExaminedEntry};
use haul_storage::{Dir, FileKind, Follow, Missing, Name};
use pace::Pace;
use prefetch::{Prefetcher, Request, Ticket};
use sorted_dir::SortedDir;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Instant;

/// Number of threads that examine entries ahead of a walk if the storage is slow.
const THREADS: usize = 15;

/// Number of files that the process must still be able to open for each thread.
const FILES_PER_THREAD: u64 = 16;

/// Maximum number of entries of a directory that are prefetched.
const WINDOW: usize = 64;

/// Maximum number of prefetched entries in all directories of a walk. In a deeper tree the walk
/// examines the entries of the innermost ones itself.
const PREFETCHED_MAX: usize = 16 * WINDOW;

/// A walk: the directories from an operand down to the one being read, outermost first.
#[derive(Debug)]
pub struct Descent<E: Examine = ()> {
    levels: Vec<Level>,
    /// The path of the last level, with a slash at its end.
    path: Vec<u8>,
    examiner: Arc<E>,
    pace: Pace,
    prefetcher: Prefetcher<E>,
    /// Number of prefetched entries in all levels.
    prefetched: usize,
    /// Number of threads to start if the storage is slow; 0 after the start.
    threads: usize,
}

#[derive(Debug)]
struct Level {
    dir: SortedDir,
    identity: DirIdentity,
    /// Length of the path of this directory.
    path_len: usize,
    /// The next entries, if they are prefetched.
    next: VecDeque<NextEntry>,
}

/// A next entry of a directory.
#[derive(Debug)]
enum NextEntry {
    /// An entry, its kind if the directory stores it, and the request to examine it.
    Entry(Name, Option<FileKind>, Option<Ticket>),
    /// The directory cannot be read further.
    Failed(io::Error),
}

/// An entry that is no directory.
#[derive(Debug)]
pub struct WalkEntry<S> {
    /// Its directory.
    pub dir: Arc<dyn Dir>,
    /// Its name there.
    pub name: Name,
    /// Its path.
    pub path: OsString,
    /// Its kind.
    pub kind: FileKind,
    /// Facts that [`Examine::entry`] returned.
    pub examined: S,
}

/// Result of one step.
#[derive(Debug)]
pub enum Step<S> {
    /// An entry that is no directory.
    Entry(WalkEntry<S>),
    /// A directory, which the next steps read: itself, its path, with a slash at its end, and the
    /// facts that [`Examine::directory`] returned. [`Descent::skip`] leaves it.
    Entered(Arc<dyn Dir>, OsString, S),
    /// A directory was left: its path, as it was entered.
    Left(OsString),
    /// Nothing yet.
    Nothing,
    /// A directory or an entry that cannot be read: its path and the error.
    Failed(OsString, io::Error),
}

impl Default for Descent<()> {
    fn default() -> Descent<()> {
        Descent::new(())
    }
}

impl<E: Examine> Descent<E> {
    /// Creates a walk without an operand.
    pub fn new(examiner: E) -> Descent<E> {
        Descent {
            levels: Vec::new(),
            path: Vec::new(),
            examiner: Arc::new(examiner),
            pace: Pace::default(),
            prefetcher: Prefetcher::default(),
            prefetched: 0,
            threads: THREADS,
        }
    }

    /// Returns true if all directories were left.
    pub fn is_over(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the selection of facts.
    pub(crate) fn examiner(&self) -> &E {
        &self.examiner
    }

    /// Sets the selection of facts for the next operand.
    pub(crate) fn set_examiner(&mut self, examiner: E) {
        self.examiner = Arc::new(examiner);
    }

    /// Starts with an operand.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn begin(&mut self, dir: Arc<dyn Dir>, path: &OsStr) -> io::Result<()> {
        let identity = DirIdentity::of(&dir.opened()?);
        let dir = SortedDir::read(dir)?;
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.push(dir, identity);
        Ok(())
    }

    /// Does one step in the innermost directory.
    pub fn step(&mut self) -> Step<E::Examined> {
        if self.prefetcher.is_started() {
            self.prefetch();
        }
        let Some(level) = self.levels.last_mut() else { return Step::Nothing };
        let dir = Arc::clone(level.dir.dir());
        let next = match level.next.pop_front() {
            Some(next) => {
                self.prefetched -= 1;
                Some(next)
            }
            None => self.next(),
        };
        let (name, kind, ticket) = match next {
            None => return self.left(),
            Some(NextEntry::Failed(error)) => {
                return Step::Failed(OsString::from_vec(self.path.clone()), error);
            }
            Some(NextEntry::Entry(name, kind, ticket)) => (name, kind, ticket),
        };
        let path = OsString::from_vec([&self.path[..], name.as_bytes()].concat());
        let examined = match ticket.and_then(|ticket| self.prefetcher.take(ticket)) {
            Some(examined) => examined.map(Some),
            None if calls_storage::<E>(kind) => {
                let begin = Instant::now();
                let examined = self.examine(&dir, &name, kind);
                self.pace.count(begin.elapsed());
                examined
            }
            None => self.examine(&dir, &name, kind),
        };
        if self.threads > 0 && self.pace.is_slow() {
            let most = usize::try_from(crate::files_left() / FILES_PER_THREAD).unwrap_or(usize::MAX);
            self.prefetcher.start(std::mem::take(&mut self.threads).min(most));
        }
        match examined {
            // The kind was not known before.
            Ok(Some(ExaminedEntry::Other(found, _)))
                if kind.is_none() && !self.examiner.wants(&self.path, &name, found) =>
            {
                Step::Nothing
            }
            Ok(Some(ExaminedEntry::Other(kind, examined))) => {
                Step::Entry(WalkEntry { dir, name, path, kind, examined })
            }
            Ok(Some(ExaminedEntry::Directory(dir, identity, examined))) => {
                let entered = self.enter(dir, identity, &name);
                Step::Entered(entered, OsString::from_vec(self.path.clone()), examined)
            }
            Ok(None) => Step::Nothing,
            Err(error) => Step::Failed(path, error),
        }
    }

    /// Leaves the directory just entered without going through it; no step tells that it was left.
    pub fn skip(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.prefetched -= level.next.len();
            self.prefetcher.forget(level.next.into_iter().filter_map(|next| match next {
                NextEntry::Entry(.., ticket) => ticket,
                NextEntry::Failed(_) => None,
            }));
        }
        self.path.truncate(self.levels.last().map_or(0, |above| above.path_len));
    }

    /// Leaves the innermost directory, and tells so.
    fn left(&mut self) -> Step<E::Examined> {
        if let [.., above, level] = &self.levels[..] {
            // A directory above that the storage has closed is opened from here, whatever its name
            // is now. The next step reports an error.
            let _ = level.dir.dir().reach().and_then(|_| above.dir.dir().reach());
        }
        let path = OsString::from_vec(self.path.clone());
        self.skip();
        Step::Left(path)
    }

    /// Requests the examination of the next entries of the innermost directory.
    fn prefetch(&mut self) {
        let number = self.levels.len();
        let Some(level) = self.levels.last() else { return };
        if level.next.len() > WINDOW / 2 {
            return;
        }
        let dir = Arc::clone(level.dir.dir());
        let mut added = Vec::new();
        while added.len() < WINDOW / 2
            && self.prefetched + added.len() < PREFETCHED_MAX
            && let Some(next) = self.next()
        {
            added.push(match next {
                NextEntry::Entry(name, kind, None) if calls_storage::<E>(kind) => {
                    let (examiner, dir) = (Arc::clone(&self.examiner), Arc::clone(&dir));
                    let request = Request { examiner, dir, name: name.clone(), kind };
                    NextEntry::Entry(name, kind, Some(self.prefetcher.request(number, request)))
                }
                next => next,
            });
        }
        if !added.is_empty() {
            self.prefetcher.wake();
        }
        self.prefetched += added.len();
        if let Some(level) = self.levels.last_mut() {
            level.next.extend(added);
        }
    }

    /// Returns the next entry of the innermost directory that is wanted.
    fn next(&mut self) -> Option<NextEntry> {
        let level = self.levels.last_mut()?;
        loop {
            let (name, kind) = match level.dir.next() {
                Ok(entry) => entry?,
                Err(error) => {
                    // The entries that were read so far count.
                    level.dir.end();
                    return Some(NextEntry::Failed(error));
                }
            };
            let is_wanted = |kind| self.examiner.wants(&self.path, &name, kind);
            if kind.is_none_or(is_wanted) {
                return Some(NextEntry::Entry(name, kind, None));
            }
        }
    }

    /// Examines an entry of the innermost directory. Returns `None` if it is not wanted.
    fn examine(
        &self,
        dir: &Arc<dyn Dir>,
        name: &Name,
        kind: Option<FileKind>,
    ) -> io::Result<Option<ExaminedEntry<E::Examined>>> {
        let found = kind.map_or_else(|| Ok(dir.stat_at(name, Follow::No)?.kind), io::Result::Ok)?;
        if kind.is_none() && !self.examiner.wants(&self.path, name, found) {
            return Ok(None);
        }
        if found != FileKind::Directory {
            return Ok(Some(ExaminedEntry::Other(found, self.examiner.entry(dir, name, found)?)));
        }
        let dir = dir.dir(name, Follow::No, Missing::Fail)?;
        let identity = DirIdentity::of(&dir.opened()?);
        // No link was followed: only a mount leads from a directory to itself.
        let leads_back = |level: &Level| level.identity.inode == identity.inode;
        if identity.may_be_mount_root && self.levels.iter().any(leads_back) {
            return Err(io::Error::other("mount point of a directory that it lies in: not read again"));
        }
        let sorted = SortedDir::read(Arc::clone(&dir))?;
        let examined = self.examiner.directory(&dir)?;
        Ok(Some(ExaminedEntry::Directory(sorted, identity, examined)))
    }

    /// Enters a directory, a name of the innermost one.
    fn enter(&mut self, dir: SortedDir, identity: DirIdentity, name: &Name) -> Arc<dyn Dir> {
        self.path.extend_from_slice(name.as_bytes());
        self.path.push(b'/');
        let entered = Arc::clone(dir.dir());
        self.push(dir, identity);
        entered
    }

    fn push(&mut self, dir: SortedDir, identity: DirIdentity) {
        self.levels.push(Level { dir, identity, path_len: self.path.len(), next: VecDeque::new() });
    }
}

/// Returns true if the examination of an entry of this kind calls the storage.
fn calls_storage<E: Examine>(kind: Option<FileKind>) -> bool {
    E::CALLS_STORAGE || kind.is_none_or(|kind| kind == FileKind::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::attempt::wait_until;
    use haul_model::limits::OPEN_DIRECTORIES_MAX;
    use haul_storage::memory::{Call, MemoryStorage};
    use haul_storage::{Create, local};
    use proptest::prelude::*;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;
    use std::{fmt, fs, thread};

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

    /// Asks for the size of each entry.
    #[derive(Debug)]
    struct Sizes;

    impl Examine for Sizes {
        type Examined = u64;

        const CALLS_STORAGE: bool = true;

        fn wants(&self, _: &[u8], name: &Name, _: FileKind) -> bool {
            name.as_bytes() != b"unwanted"
        }

        fn entry(&self, dir: &Arc<dyn Dir>, name: &Name, _: FileKind) -> io::Result<u64> {
            dir.stat_at(name, Follow::No).map(|found| found.size)
        }

        fn directory(&self, dir: &Arc<dyn Dir>) -> io::Result<u64> {
            dir.stat().map(|_| 0)
        }

        fn bytes(_: &u64) -> usize {
            0
        }
    }

    fn begun(root: &Path, threads: usize) -> Descent<Sizes> {
        with_threads(threads, &local::open(root, Follow::Yes).unwrap(), root.as_os_str(), Sizes).unwrap()
    }

    /// Begins a walk with this number of threads.
    fn with_threads<E: Examine>(
        threads: usize,
        root: &Arc<dyn Dir>,
        path: &OsStr,
        examiner: E,
    ) -> io::Result<Descent<E>> {
        let mut descent = Descent::new(examiner);
        descent.threads = 0;
        descent.prefetcher.start(threads);
        descent.begin(Arc::clone(root), path)?;
        Ok(descent)
    }

    /// Does one step; a failure becomes text.
    fn step<E: Examine>(descent: &mut Descent<E>) -> Option<Result<PathBuf, String>> {
        match descent.step() {
            Step::Entry(entry) => Some(Ok(entry.path.into())),
            Step::Failed(path, error) => Some(Err(format!("{}: {error}", Path::new(&path).display()))),
            Step::Entered(..) | Step::Left(_) | Step::Nothing => None,
        }
    }

    fn rest<E: Examine>(mut descent: Descent<E>) -> Vec<Result<PathBuf, String>> {
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
            threads in 0..4usize,
            skipped in any::<[bool; 8]>(),
        ) {
            let home = tempfile::tempdir().unwrap();
            let mut dirs = vec![home.path().to_owned()];
            for (number, (parent, name)) in parents.iter().enumerate() {
                let parent = if deep { dirs.len() - 1 } else { parent % dirs.len() };
                let dir = dirs[parent].join(format!("{name}{number}"));
                fs::create_dir(&dir).unwrap();
                for file in ["ab", "b", "z", "unwanted"].iter().take(number % 5) {
                    fs::write(dir.join(file), "").unwrap();
                }
                dirs.push(dir);
            }
            // Every eighth directory may be left without going through it.
            let is_skipped = |path: &Path| {
                let number = path.to_str().unwrap().bytes().filter(u8::is_ascii_digit).map(usize::from).sum::<usize>();
                path != home.path() && skipped[number % 8]
            };
            let root = local::open(home.path(), Follow::Yes).unwrap();
            let mut descent = with_threads(threads, &root, home.path().as_os_str(), Sizes).unwrap();
            let mut found = Vec::new();
            while !descent.is_over() {
                match descent.step() {
                    Step::Entry(entry) => found.push(PathBuf::from(entry.path)),
                    Step::Entered(_, path, _) if is_skipped(Path::new(&path)) => descent.skip(),
                    Step::Failed(path, error) => panic!("{path:?}: {error}"),
                    Step::Entered(..) | Step::Left(_) | Step::Nothing => {}
                }
            }
            prop_assert_eq!(descent.prefetched, 0);
            let mut expected = Vec::new();
            naive(home.path(), &mut expected);
            let is_walked = |path: &PathBuf| {
                let above = path.parent().unwrap().strip_prefix(home.path()).unwrap();
                let mut dirs = above.ancestors().filter(|dir| !dir.as_os_str().is_empty());
                !path.ends_with("unwanted") && !dirs.any(|dir| is_skipped(&home.path().join(dir)))
            };
            expected.retain(is_walked);
            prop_assert_eq!(found, expected);
        }
    }

    /// Levels with a file that sorts last in each; the walk has come to the bottom.
    fn at_the_bottom(home: &Path, threads: usize) -> Descent<Sizes> {
        let mut bottom = home.to_owned();
        for _ in 0..LEVELS {
            fs::write(bottom.join("z"), "").unwrap();
            fs::create_dir(bottom.join("y")).unwrap();
            bottom.push("d");
            fs::create_dir(&bottom).unwrap();
        }
        let mut descent = begun(home, threads);
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
        for (threads, moved) in [0, 3].into_iter().flat_map(|threads| [(threads, LEVELS), (threads, 1)]) {
            let home = tempfile::tempdir().unwrap();
            let descent = at_the_bottom(home.path(), threads);
            // `..` of the last directory leads elsewhere now; by their names the others are still
            // found. The first one has no name any more; `..` of the others still leads to it.
            fs::create_dir(home.path().join("elsewhere")).unwrap();
            fs::write(home.path().join("elsewhere/z"), "").unwrap();
            fs::rename(beneath(home.path(), moved), home.path().join("elsewhere/d")).unwrap();
            let expected = (0..LEVELS).rev().map(|level| Ok(beneath(home.path(), level).join("z")));
            assert_eq!(rest(descent), expected.collect::<Vec<_>>(), "{threads} {moved}");
        }
    }

    #[test]
    fn replaced_directory_is_reported_and_not_read() {
        let home = tempfile::tempdir().unwrap();
        let mut descent = at_the_bottom(home.path(), 0);
        let replaced = beneath(home.path(), 10);
        // `..` of the directory beneath leads elsewhere, too.
        fs::rename(replaced.join("d"), home.path().join("moved")).unwrap();
        fs::rename(&replaced, home.path().join("elsewhere")).unwrap();
        fs::create_dir(&replaced).unwrap();
        fs::write(replaced.join("z"), "of another").unwrap();
        let mut sizes = Vec::new();
        while !descent.is_over() {
            match descent.step() {
                Step::Entry(entry) => sizes.push(Some(entry.examined)),
                Step::Failed(path, _) if path.as_bytes().ends_with(b"/z") => sizes.push(None),
                _ => {}
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
        let walk = |threads| match with_threads(threads, &storage.root(), OsStr::new("r"), Sizes) {
            Ok(descent) => rest(descent),
            Err(error) => vec![Err(error.to_string())],
        };
        let all = walk(0);
        assert_eq!(all.len(), 6);
        for (call, threads) in Call::ALL.into_iter().flat_map(|call| [0, 1, 3].map(|threads| (call, threads)))
        {
            for nth in 1.. {
                storage.fail(call, nth, 5);
                let before = storage.count(call);
                let found = walk(threads);
                if storage.count(call) - before < nth {
                    break;
                }
                let failures = found.iter().filter(|step| step.is_err()).count();
                assert_eq!(failures, 1, "{call:?} {nth} {threads}: {found:?}");
                // One directory has two files. Without the first one there is no walk.
                let files = found.iter().filter(|step| all.contains(step)).count();
                assert!(files >= 4 || found.len() == 1, "{call:?} {nth} {threads}: {found:?}");
            }
        }
    }

    /// Calls a function at each entry.
    struct Calls<F>(F);

    impl<F> fmt::Debug for Calls<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Calls")
        }
    }

    impl<F: Fn(&Name) + Send + Sync + 'static> Examine for Calls<F> {
        type Examined = ();

        const CALLS_STORAGE: bool = true;

        fn wants(&self, _: &[u8], _: &Name, _: FileKind) -> bool {
            true
        }

        fn entry(&self, _: &Arc<dyn Dir>, name: &Name, _: FileKind) -> io::Result<()> {
            (self.0)(name);
            Ok(())
        }

        fn directory(&self, _: &Arc<dyn Dir>) -> io::Result<()> {
            Ok(())
        }

        /// Two results reach the limit.
        fn bytes((): &()) -> usize {
            prefetch::LEVEL_BYTES / 2
        }
    }

    /// Returns the root of a storage with this number of files.
    fn files(count: usize) -> Arc<dyn Dir> {
        let root = MemoryStorage::new(1).root();
        for number in 0..count {
            let name = Name::new(format!("{number:03}")).unwrap();
            root.sink(&name, Create::New { mode: 0o600 }).unwrap();
        }
        root
    }

    #[test]
    fn a_slow_storage_starts_threads_which_examine_at_the_same_time() {
        let running = Arc::new(AtomicUsize::new(0));
        let together = Arc::new(AtomicBool::new(false));
        let (count, met) = (Arc::clone(&running), Arc::clone(&together));
        let examiner = Calls(move |_: &Name| {
            if count.fetch_add(1, Ordering::Relaxed) > 0 {
                met.store(true, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(1));
            count.fetch_sub(1, Ordering::Relaxed);
        });
        let mut descent = Descent::new(examiner);
        descent.begin(files(1000), OsStr::new("r")).unwrap();
        let mut found = Vec::new();
        while !descent.is_over() {
            found.extend(step(&mut descent).map(Result::unwrap));
        }
        assert!(descent.prefetcher.is_started() && together.load(Ordering::Relaxed));
        assert!(found.len() == 1000 && found.is_sorted());
    }

    /// Regression: what a thread had found out was used whenever the walk reached it.
    #[test]
    fn an_old_result_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(home.path().join(name), "").unwrap();
        }
        let mut descent = begun(home.path(), 1);
        step(&mut descent).unwrap().unwrap();
        let threads_are_idle = || descent.prefetcher.is_idle();
        wait_until("the threads are idle", threads_are_idle);
        fs::write(home.path().join("c"), "grown").unwrap();
        thread::sleep(prefetch::AGE_MAX);
        let mut sizes = Vec::new();
        while !descent.is_over() {
            if let Step::Entry(entry) = descent.step() {
                sizes.push(entry.examined);
            }
        }
        assert_eq!(sizes, [0, 5]);
    }

    #[test]
    fn results_that_wait_are_bounded() {
        let examined = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&examined);
        let examiner = Calls(move |_: &Name| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut descent = with_threads(3, &files(100), OsStr::new("r"), examiner).unwrap();
        for taken in 1..=100 {
            assert!(step(&mut descent).is_some());
            // One result is below the limit, and then each thread and the walk can start one.
            assert!(examined.load(Ordering::Relaxed) <= taken + 5, "{taken}");
        }
    }

    #[test]
    #[should_panic(expected = "a thread of the walk panicked")]
    fn a_panic_of_a_thread_ends_the_walk() {
        let walk = thread::current().id();
        let has_begun = AtomicBool::new(false);
        let examiner = Calls(move |_: &Name| {
            if thread::current().id() == walk {
                return wait_until("a thread begins", || has_begun.load(Ordering::Relaxed));
            }
            has_begun.store(true, Ordering::Relaxed);
            panic!("in a thread");
        });
        let mut descent = with_threads(1, &files(1000), OsStr::new("r"), examiner).unwrap();
        while !descent.is_over() {
            step(&mut descent);
        }
    }
}
