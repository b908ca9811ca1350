//! Directories of the sink, by their paths. Each received path is resolved from the root, name by
//! name, and no link is followed. The most recently used directories are remembered.

use haul_storage::{Dir, Follow, Missing, Name, Remove, Stat};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of directories that are remembered. A depth-first transfer needs one for each
/// lane and level in progress. Those that a storage keeps open count against its own limit.
const RECENT_DIRS_MAX: usize = 128;

/// Mode of a directory that is created because an entry beneath it came first. Its own metadata is
/// set when it arrives.
const TEMPORARY_MODE: u32 = 0o700;

/// Mode of a directory whose mode the source does not send; the umask applies.
const ORDINARY_MODE: u32 = 0o777;

/// Directories of a sink, by their paths beneath its root.
#[derive(Debug)]
pub(super) struct SinkDirs {
    /// `None` in a dry run if the directory does not exist.
    root: Option<Arc<dyn Dir>>,
    recent: Mutex<RecentDirs>,
    /// Directories on the way to the root in which this session may have created names.
    above_root: Vec<Arc<dyn Dir>>,
    /// True once the names of the way to the root are durable.
    is_root_durable: AtomicBool,
    /// Mode of new directories, to which the umask applies.
    new_mode: u32,
}

#[derive(Debug, Default)]
struct RecentDirs {
    by_path: HashMap<Box<[u8]>, RecentDir>,
    /// Number of look-ups. The least recently used directories are forgotten first.
    clock: u64,
}

#[derive(Debug)]
struct RecentDir {
    dir: Arc<dyn Dir>,
    used: u64,
    /// True once the names on the path of the directory are durable.
    is_durable: bool,
}

/// A directory and the name of an entry in it, which need not exist.
#[derive(Clone, Debug)]
pub(super) struct EntryAt {
    pub(super) dir: Arc<dyn Dir>,
    pub(super) name: Name,
}

impl EntryAt {
    /// Returns the metadata of the entry itself, or `None` if there is none.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::stat_at`], except `NotFound`.
    pub(super) fn stat(&self) -> io::Result<Option<Stat>> {
        match self.dir.stat_at(&self.name, Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// Removes the entry if it exists and is no directory.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::remove`].
    pub(super) fn remove(&self) -> io::Result<()> {
        self.dir.remove(&self.name, Remove::File)
    }
}

impl SinkDirs {
    /// Returns the directories beneath `root`.
    pub(super) fn new(root: Arc<dyn Dir>) -> SinkDirs {
        SinkDirs { root: Some(root), ..SinkDirs::absent() }
    }

    /// Returns the directories beneath a root that does not exist and is not created: each is
    /// `NotFound`.
    pub(super) fn absent() -> SinkDirs {
        SinkDirs {
            root: None,
            recent: Mutex::default(),
            above_root: Vec::new(),
            is_root_durable: AtomicBool::new(false),
            new_mode: TEMPORARY_MODE,
        }
    }

    /// Returns the directories beneath the directory at `path`. If it is missing, creates it with
    /// those above it if `creates` is true.
    ///
    /// # Errors
    /// Same as [`SinkDirs::open`] and [`SinkDirs::open_or_create`].
    pub(super) fn beneath(self, path: &[u8], creates: bool) -> io::Result<SinkDirs> {
        let root = if creates { self.open_or_create(path)? } else { self.open(path)? };
        let above_root = self.unsynced_above(&[path, b"/"].concat())?;
        Ok(SinkDirs { above_root, ..SinkDirs::new(root) })
    }

    /// Creates directories with the mode that the umask gives if the source does not send modes.
    pub(super) fn with_modes_sent(self, are_sent: bool) -> SinkDirs {
        SinkDirs { new_mode: if are_sent { TEMPORARY_MODE } else { ORDINARY_MODE }, ..self }
    }

    /// Returns the root directory.
    ///
    /// # Errors
    /// Returns `NotFound` if the root does not exist.
    pub(super) fn root(&self) -> io::Result<&Arc<dyn Dir>> {
        self.root.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the directory at `path` (empty: the root).
    ///
    /// # Errors
    /// Returns the errors of [`Dir::dir`]: also for a file or a link in the path.
    pub(super) fn open(&self, path: &[u8]) -> io::Result<Arc<dyn Dir>> {
        self.resolve(path, Missing::Fail)
    }

    /// Opens the directory at `path`. Creates the directories that are missing.
    ///
    /// # Errors
    /// Same as [`SinkDirs::open`]; `AlreadyExists` if a directory exists in another spelling, and
    /// `InvalidFilename` if the storage would not keep a name.
    pub(super) fn open_or_create(&self, path: &[u8]) -> io::Result<Arc<dyn Dir>> {
        self.resolve(path, Missing::Create { mode: self.new_mode })
    }

    /// Opens the directory of the entry at `path`.
    ///
    /// # Errors
    /// Same as [`SinkDirs::open`].
    pub(super) fn entry(&self, path: &[u8]) -> io::Result<EntryAt> {
        let (above, name) = split(path);
        Ok(EntryAt { dir: self.open(above)?, name: name_of(name)? })
    }

    /// Opens or creates the directory of an entry that is to be created at `path`.
    ///
    /// # Errors
    /// Same as [`SinkDirs::open_or_create`].
    pub(super) fn new_entry(&self, path: &[u8]) -> io::Result<EntryAt> {
        let (above, name) = split(path);
        Ok(EntryAt { dir: self.open_or_create(above)?, name: name_of(name)? })
    }

    /// Returns the metadata of the entry at `path`, or `None` if there is none.
    ///
    /// # Errors
    /// Same as [`SinkDirs::entry`] and [`EntryAt::stat`], except `NotFound`.
    pub(super) fn stat(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        match self.entry(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            entry => entry?.stat(),
        }
    }

    /// Returns the directories to sync before the directory of the entry at `path` is certain to
    /// stay: those with a name on the path that is not durable yet.
    ///
    /// # Errors
    /// Same as [`SinkDirs::open`].
    pub(super) fn unsynced_above(&self, path: &[u8]) -> io::Result<Vec<Arc<dyn Dir>>> {
        let mut dirs = Vec::new();
        let (mut dir, _) = split(path);
        while !dir.is_empty() {
            if self.recent.lock().by_path.get(dir).is_some_and(|known| known.is_durable) {
                return Ok(dirs);
            }
            (dir, _) = split(dir);
            dirs.push(self.open(dir)?);
        }
        if !self.is_root_durable.load(Ordering::Relaxed) {
            dirs.extend(self.above_root.iter().cloned());
        }
        Ok(dirs)
    }

    /// Records that the names of the directories above the entry at `path` are durable.
    pub(super) fn mark_durable(&self, path: &[u8]) {
        let mut recent = self.recent.lock();
        let (mut dir, _) = split(path);
        while !dir.is_empty() {
            // One that is no longer remembered is synced again.
            if let Some(known) = recent.by_path.get_mut(dir) {
                known.is_durable = true;
            }
            (dir, _) = split(dir);
        }
        self.is_root_durable.store(true, Ordering::Relaxed);
    }

    fn resolve(&self, path: &[u8], missing: Missing) -> io::Result<Arc<dyn Dir>> {
        let root = self.root()?;
        if path.is_empty() {
            return Ok(Arc::clone(root));
        }
        if let Some(known) = self.known(path) {
            return Ok(known);
        }
        // Start from the nearest known directory above. Use no recursion: paths can be deep.
        let mut from = path.len();
        let mut dir = loop {
            match path[..from].iter().rposition(|&byte| byte == b'/') {
                None => {
                    from = 0;
                    break Arc::clone(root);
                }
                Some(slash) => from = slash,
            }
            if let Some(known) = self.known(&path[..from]) {
                from += 1;
                break known;
            }
        };
        while from < path.len() {
            let end = path[from..].iter().position(|&byte| byte == b'/').map_or(path.len(), |at| from + at);
            dir = dir.dir(&name_of(&path[from..end])?, Follow::No, missing)?;
            self.remember(&path[..end], &dir);
            from = end + 1;
        }
        Ok(dir)
    }

    /// Forgets the directories at a path and beneath it, before the path is removed or replaced.
    pub(super) fn forget(&self, path: &[u8]) {
        let beneath =
            |known: &[u8]| known.starts_with(path) && matches!(known.get(path.len()), None | Some(b'/'));
        self.recent.lock().by_path.retain(|known, _| !beneath(known));
    }

    fn known(&self, path: &[u8]) -> Option<Arc<dyn Dir>> {
        let mut recent = self.recent.lock();
        recent.clock += 1;
        let now = recent.clock;
        let found = recent.by_path.get_mut(path)?;
        found.used = now;
        Some(Arc::clone(&found.dir))
    }

    fn remember(&self, path: &[u8], dir: &Arc<dyn Dir>) {
        let mut recent = self.recent.lock();
        if recent.by_path.len() >= RECENT_DIRS_MAX {
            // Forget half of them, so that one scan serves many calls.
            let mut ages: Vec<u64> = recent.by_path.values().map(|known| known.used).collect();
            let (_, &mut middle, _) = ages.select_nth_unstable(RECENT_DIRS_MAX / 2);
            recent.by_path.retain(|_, known| known.used > middle);
        }
        recent.clock += 1;
        let used = recent.clock;
        recent.by_path.insert(path.into(), RecentDir { dir: Arc::clone(dir), used, is_durable: false });
    }
}

/// Splits a path into its directory, empty for the root, and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    }
}

fn name_of(bytes: &[u8]) -> io::Result<Name> {
    Name::new(bytes).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::needs::shown_or_skip;
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{Create, Node, Replace, Tag, local};
    use haul_sys::sandbox::{self, Sandbox};
    use std::os::unix::fs::symlink;

    fn ino(dir: &Arc<dyn Dir>) -> u64 {
        dir.stat().expect("found").ino
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn missing_directories_are_created_once_and_reused() {
        let storage = MemoryStorage::new(1);
        let dirs = SinkDirs::new(storage.root());
        assert_eq!(dirs.open(b"a/b/c").unwrap_err().kind(), io::ErrorKind::NotFound);
        let made = dirs.open_or_create(b"a/b/c").expect("made");
        assert!(Arc::ptr_eq(&made, &dirs.open(b"a/b/c").expect("known")));
        let found = SinkDirs::new(storage.root()).open(b"a/b/c").expect("there");
        assert_eq!(ino(&made), ino(&found));
        assert_eq!(ino(&dirs.open(b"").expect("root")), ino(&storage.root()));
    }

    #[test]
    fn no_symlink_is_followed_even_inside_the_root() {
        let storage = MemoryStorage::new(1);
        let root = storage.root();
        let real = root.dir(&name("real"), Follow::No, Missing::Create { mode: 0o700 }).expect("made");
        for (target, link) in [("/", "out"), ("real", "inside"), ("..", "up")] {
            root.make(&name(link), &Node::Link { target: target.as_bytes() }).expect("made");
        }
        let dirs = SinkDirs::new(root);
        for path in ["out", "out/tmp", "inside", "inside/x", "up/x"] {
            assert!(dirs.open_or_create(path.as_bytes()).is_err(), "{path}");
        }
        assert_eq!(real.stat_at(&name("x"), Follow::No).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// The directories are resolved through a link on purpose: the write would succeed, and the
    /// kernel refuses it.
    #[test]
    fn with_a_broken_path_check_the_kernel_refuses_to_leave_the_root() {
        if !shown_or_skip(sandbox::version().is_some(), "a kernel with Landlock") {
            return;
        }
        let [root, outside] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        symlink(outside.path(), root.path().join("out")).expect("made");
        let receive = |within: &[&str]| -> io::Result<()> {
            let mut dir = local::open(root.path(), Follow::Yes)?;
            for part in within {
                dir = dir.dir(&name(part), Follow::Yes, Missing::Create { mode: 0o700 })?;
            }
            let file = dir.sink(&name("file"), Create::Temporary(Tag { session: 1, number: 1 }))?;
            file.write_at(0, b"data")?;
            file.commit(Replace::Yes)
        };
        let confined = |within: &[&str]| {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    assert!(Sandbox::new().writable(root.path()).enter().expect("confined"));
                    receive(within)
                });
                thread.join().expect("no panic")
            })
        };
        for within in [&["out"][..], &["out", "dir"]] {
            let error = confined(within).expect_err("outside the root");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{within:?}: {error}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).expect("there").count(), 0);
        confined(&["in"]).expect("inside the root");
        receive(&["out"]).expect("nothing but the kernel refused it");
        assert_eq!(std::fs::read(outside.path().join("file")).expect("written"), b"data");
    }

    #[test]
    fn more_directories_than_are_remembered_are_reachable() {
        let storage = MemoryStorage::new(1);
        let dirs = SinkDirs::new(storage.root());
        let paths: Vec<String> = (0..RECENT_DIRS_MAX * 3).map(|number| format!("d{number}/e")).collect();
        let made: Vec<u64> =
            paths.iter().map(|path| ino(&dirs.open_or_create(path.as_bytes()).expect("made"))).collect();
        assert!(dirs.recent.lock().by_path.len() <= RECENT_DIRS_MAX);
        for (path, made) in paths.iter().zip(made) {
            assert_eq!(ino(&dirs.open(path.as_bytes()).expect("there")), made);
        }
    }

    #[test]
    fn forgotten_directories_are_looked_up_again() {
        let storage = MemoryStorage::new(1);
        let dirs = SinkDirs::new(storage.root());
        let before = dirs.open_or_create(b"a/b").expect("made");
        dirs.open_or_create(b"ab").expect("made");
        dirs.open(b"a").expect("there").remove(&name("b"), Remove::Directory).expect("removed");
        dirs.forget(b"a");
        let after = dirs.open_or_create(b"a/b").expect("made");
        assert!(!Arc::ptr_eq(&before, &after) && ino(&before) != ino(&after));
        assert!(dirs.known(b"ab").is_some(), "only what lies beneath is forgotten");
    }

    #[test]
    fn directories_above_a_durable_name_are_synced_once_and_again_if_they_are_new() {
        let storage = MemoryStorage::new(1);
        let dirs = SinkDirs::new(storage.root()).beneath(b"into/deep", true).expect("made");
        dirs.open_or_create(b"a/b").expect("made");
        let above =
            |path: &[u8]| -> Vec<u64> { dirs.unsynced_above(path).expect("known").iter().map(ino).collect() };
        let at = |path: &str| ino(&SinkDirs::new(storage.root()).open(path.as_bytes()).expect("there"));
        let way = [at("into"), at("")];
        assert_eq!(above(b"a/b/file"), [&[at("into/deep/a"), at("into/deep")], &way[..]].concat());
        assert_eq!(above(b"file"), way);
        dirs.mark_durable(b"a/b/file");
        assert!(above(b"a/b/other").is_empty() && above(b"file").is_empty());
        dirs.open(b"a").expect("there").remove(&name("b"), Remove::Directory).expect("removed");
        dirs.forget(b"a/b");
        dirs.open_or_create(b"a/b").expect("made");
        assert_eq!(above(b"a/b/file"), [at("into/deep/a")], "a new directory has the name");
    }
}
