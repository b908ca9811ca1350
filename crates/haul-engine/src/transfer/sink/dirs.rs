//! Directories of the sink. Each received path is resolved from the root, name by name, and no link
//! is followed. The most recently used directories stay open.

use super::created::{open_created_directory, open_directory};
use super::name_folding::{NameFolding, check_trailing_dots};
use crate::close_checks::CloseChecks;
use haul_sys::Follow;
use haul_sys::open::{mkdir_at, rmdir_at};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum number of directories that stay open, unless a session has fewer descriptors. A
/// depth-first transfer needs one for each lane and level in progress.
const OPEN_DIRS_MAX: usize = 128;

/// Mode of a directory that is created because an entry beneath it came first. Its own metadata is
/// set when it arrives.
const TEMPORARY_MODE: u32 = 0o700;

/// Mode of a directory whose mode the source does not send; the umask applies.
const ORDINARY_MODE: u32 = 0o777;

/// Directories of a sink, by their paths beneath its root.
#[derive(Debug)]
pub(super) struct SinkDirs {
    /// `None` in a dry run if the directory does not exist.
    root: Option<Arc<OwnedFd>>,
    open: Mutex<OpenDirs>,
    /// Maximum number of directories in `open`, at least 2.
    open_max: usize,
    /// Mode of new directories, to which the umask applies.
    new_mode: u32,
    name_folding: Arc<NameFolding>,
    pub(super) close_checks: CloseChecks,
    /// True in a test that breaks the check of links, to show that the kernel confines the session.
    #[cfg(test)]
    follows_links: bool,
}

#[derive(Debug, Default)]
struct OpenDirs {
    by_path: HashMap<Box<[u8]>, CachedDir>,
    /// Number of look-ups. The least recently used directories are closed first.
    clock: u64,
}

#[derive(Debug)]
struct CachedDir {
    dir: Arc<OwnedFd>,
    used: u64,
}

/// Action for a directory that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transfer) enum Missing {
    /// Return an error.
    Fail,
    /// Create the directory.
    Create,
}

impl SinkDirs {
    /// Returns the directories beneath `root`.
    pub(super) fn new(root: OwnedFd) -> SinkDirs {
        SinkDirs { root: Some(Arc::new(root)), ..SinkDirs::absent() }
    }

    /// Returns the directories beneath a root that does not exist and is not created: each is
    /// `NotFound`.
    pub(super) fn absent() -> SinkDirs {
        SinkDirs {
            root: None,
            open: Mutex::default(),
            open_max: OPEN_DIRS_MAX,
            new_mode: TEMPORARY_MODE,
            name_folding: Arc::default(),
            close_checks: CloseChecks::default(),
            #[cfg(test)]
            follows_links: false,
        }
    }

    /// Keeps at most `count` directories open.
    pub(super) fn with_open_max(self, count: usize) -> SinkDirs {
        SinkDirs { open_max: count.clamp(2, OPEN_DIRS_MAX), ..self }
    }

    /// Creates directories with the mode that the umask gives if the source does not send modes.
    pub(super) fn with_modes_sent(self, are_sent: bool) -> SinkDirs {
        SinkDirs { new_mode: if are_sent { TEMPORARY_MODE } else { ORDINARY_MODE }, ..self }
    }

    /// Returns the rules for comparing names at this sink.
    pub(super) fn name_folding(&self) -> &Arc<NameFolding> {
        &self.name_folding
    }

    /// Returns the root directory.
    ///
    /// # Errors
    /// Returns `NotFound` if the root does not exist.
    pub(super) fn root(&self) -> io::Result<&Arc<OwnedFd>> {
        self.root.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the directory at `path` (empty: the root), to resolve names in it and to read it.
    ///
    /// # Errors
    /// Returns the errors of openat(2) and mkdirat(2), and:
    /// - `ENOTDIR` or `ELOOP` if a component of the path is a file or a link;
    /// - `AlreadyExists` if the directory is to be created and exists in another spelling;
    /// - `InvalidFilename` if the file system would not keep the name.
    pub(super) fn open(&self, path: &[u8], missing: Missing) -> io::Result<Arc<OwnedFd>> {
        let root = self.root()?;
        if path.is_empty() {
            return Ok(Arc::clone(root));
        }
        if let Some(cached) = self.cached(path) {
            return Ok(cached);
        }
        // Start from the nearest open directory above. Use no recursion, because paths can be deep.
        let mut from = path.len();
        let mut dir = loop {
            match path[..from].iter().rposition(|&byte| byte == b'/') {
                None => {
                    from = 0;
                    break Arc::clone(root);
                }
                Some(slash) => from = slash,
            }
            if let Some(cached) = self.cached(&path[..from]) {
                from += 1;
                break cached;
            }
        };
        while from < path.len() {
            let end = path[from..].iter().position(|&byte| byte == b'/').map_or(path.len(), |at| from + at);
            let name = CString::new(&path[from..end])?;
            let make = || step(&dir, &name, missing, self.new_mode, self.links(), &self.name_folding);
            dir = Arc::new(self.name_folding.create_name(&name, make)?);
            self.cache(&path[..end], &dir);
            from = end + 1;
        }
        Ok(dir)
    }

    /// Returns whether links in paths are followed: never, except in a test.
    fn links(&self) -> Follow {
        #[cfg(test)]
        if self.follows_links {
            return Follow::Yes;
        }
        Follow::No
    }

    /// Closes the directories at a path and beneath it, before the path is removed or replaced.
    pub(super) fn forget(&self, path: &[u8]) {
        let beneath =
            |cached: &[u8]| cached.starts_with(path) && matches!(cached.get(path.len()), None | Some(b'/'));
        self.state().by_path.retain(|cached, _| !beneath(cached));
    }

    fn cached(&self, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut open = self.state();
        open.clock += 1;
        let now = open.clock;
        let place = open.by_path.get_mut(path)?;
        place.used = now;
        Some(Arc::clone(&place.dir))
    }

    fn cache(&self, path: &[u8], dir: &Arc<OwnedFd>) {
        let mut open = self.state();
        if open.by_path.len() >= self.open_max {
            // Close half of them, so that one scan serves many calls.
            let mut ages: Vec<u64> = open.by_path.values().map(|place| place.used).collect();
            let (_, &mut middle, _) = ages.select_nth_unstable(self.open_max / 2);
            open.by_path.retain(|_, place| place.used > middle);
        }
        open.clock += 1;
        let used = open.clock;
        open.by_path.insert(path.into(), CachedDir { dir: Arc::clone(dir), used });
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, OpenDirs> {
        self.open.lock()
    }
}

fn step(
    dir: &OwnedFd,
    name: &CString,
    missing: Missing,
    mode: u32,
    follow: Follow,
    name_folding: &NameFolding,
) -> io::Result<OwnedFd> {
    let found = match open_directory(dir, name, follow) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Create => {
            match mkdir_at(dir, name.as_c_str(), mode) {
                Ok(()) => {
                    return match check_trailing_dots(dir, name) {
                        Ok(()) => open_created_directory(dir, name),
                        Err(error) => {
                            // Ignore an error: the caller reports that the name is not kept.
                            let _ = rmdir_at(dir, name.as_c_str());
                            Err(error)
                        }
                    };
                }
                // Another worker may have created it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    open_directory(dir, name, follow)?
                }
                Err(error) => return Err(error),
            }
        }
        other => other?,
    };
    if missing == Missing::Create {
        // Otherwise two directories of the source could become one here.
        name_folding.check_no_clash(dir, name)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::faults::FaultFs;
    use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
    use haul_sys::dir::open_dir_at;
    use haul_sys::open::create_new_at;
    use haul_sys::sandbox::{self, Sandbox};
    use haul_sys::{CWD, stat};
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::Barrier;

    fn dirs(dir: &tempfile::TempDir) -> SinkDirs {
        SinkDirs::new(open_dir_at(CWD, dir.path(), Follow::Yes).expect("opens"))
    }

    fn ino(fd: &OwnedFd) -> u64 {
        stat::stat_fd(fd).expect("found").ino
    }

    #[test]
    fn missing_directories_are_created_once_and_reused() {
        let dir = tempfile::tempdir().expect("a folder");
        let dirs = dirs(&dir);
        assert!(dirs.open(b"a/b/c", Missing::Fail).is_err());
        let made = dirs.open(b"a/b/c", Missing::Create).expect("made");
        assert_eq!(ino(&made), std::fs::metadata(dir.path().join("a/b/c")).expect("found").ino());
        let again = dirs.open(b"a/b/c", Missing::Fail).expect("known");
        assert!(Arc::ptr_eq(&made, &again));
        assert_eq!(ino(&dirs.open(b"", Missing::Fail).expect("root")), ino(dirs.root().expect("there")));
    }

    #[test]
    fn no_symlink_is_followed_even_inside_the_root() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("real")).expect("made");
        for (target, name) in [("/", "out"), ("real", "inside"), ("..", "up")] {
            symlink(target, dir.path().join(name)).expect("made");
        }
        let dirs = dirs(&dir);
        for path in ["out", "out/tmp", "inside", "inside/x", "up/x"] {
            assert!(dirs.open(path.as_bytes(), Missing::Create).is_err(), "{path}");
        }
        assert!(!dir.path().join("real/x").exists());
    }

    /// The check of links is broken on purpose: the write would succeed, and the kernel refuses it.
    #[test]
    fn with_a_broken_path_check_the_kernel_refuses_to_leave_the_root() {
        use super::super::partial_file::{PartialFile, Tag, name_at};
        if !shown_or_skip(sandbox::version().is_some(), "a kernel with Landlock") {
            return;
        }
        let [root, outside] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        symlink(outside.path(), root.path().join("out")).expect("made");
        let receive = |path: &str| -> io::Result<()> {
            let broken = SinkDirs { follows_links: true, ..dirs(&root) };
            let place = name_at(&broken, path.as_bytes(), Missing::Create)?;
            let tag = Tag { session: 1, number: 1 };
            let file = PartialFile::create_temporary(place, &tag, 0, broken.name_folding())?;
            file.write(0, b"data")?;
            file.rename_to_final().map_err(|reason| io::Error::other(reason.to_string()))
        };
        let confined = |path| {
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    assert!(Sandbox::new().writable(root.path()).enter().expect("confined"));
                    receive(path)
                });
                thread.join().expect("no panic")
            })
        };
        for path in ["out/file", "out/dir/file"] {
            let error = confined(path).expect_err("outside the root");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}: {error}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).expect("there").count(), 0);
        confined("in/file").expect("inside the root");
        receive("out/file").expect("nothing but the kernel refused it");
        assert_eq!(std::fs::read(outside.path().join("file")).expect("written"), b"data");
    }

    /// Removing a directory whose dots were left out once also removed the directory of that
    /// shorter name, which another worker had just found.
    #[test]
    fn directory_with_an_altered_name_does_not_remove_another() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        let [store, view] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let rules = "* name .. trim".parse().expect("a rule");
        let faults = FaultFs::mount(store.path(), view.path(), rules).expect("mounted");
        let dirs = dirs(&view);
        for round in 0..300 {
            let begin = Barrier::new(2);
            std::thread::scope(|scope| {
                let dotted = scope.spawn(|| {
                    begin.wait();
                    dirs.open(format!("{round}.").as_bytes(), Missing::Create).is_err()
                });
                begin.wait();
                let dir = dirs.open(format!("{round}").as_bytes(), Missing::Create).expect("made");
                create_new_at(&dir, c"file", 0o600).expect("the directory is there");
                assert!(dotted.join().expect("no panic"), "its name would not be kept");
            });
            assert!(store.path().join(format!("{round}/file")).exists());
        }
        drop(dirs);
        faults.close();
    }

    #[test]
    fn more_directories_than_the_open_limit_are_reachable() {
        let dir = tempfile::tempdir().expect("a folder");
        let dirs = dirs(&dir);
        for number in 0..OPEN_DIRS_MAX * 3 {
            dirs.open(format!("d{number}/e").as_bytes(), Missing::Create).expect("made");
        }
        assert!(dirs.state().by_path.len() <= OPEN_DIRS_MAX);
        for number in 0..OPEN_DIRS_MAX * 3 {
            let path = format!("d{number}/e");
            let found = dirs.open(path.as_bytes(), Missing::Fail).expect("there");
            assert_eq!(ino(&found), std::fs::metadata(dir.path().join(path)).expect("found").ino());
        }
    }

    #[test]
    fn forgotten_directories_are_looked_up_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let dirs = dirs(&dir);
        let before = dirs.open(b"a/b", Missing::Create).expect("made");
        dirs.open(b"ab", Missing::Create).expect("made");
        std::fs::remove_dir_all(dir.path().join("a")).expect("removed");
        dirs.forget(b"a");
        let after = dirs.open(b"a/b", Missing::Create).expect("made");
        assert!(!Arc::ptr_eq(&before, &after) && dir.path().join("a/b").is_dir());
        assert!(dirs.cached(b"ab").is_some(), "only what lies beneath is forgotten");
    }
}
