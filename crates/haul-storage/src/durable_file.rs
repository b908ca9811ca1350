//! Replacement of a small file as a whole.
//!
//! The new contents get a temporary name in the directory of the file, and one rename replaces the
//! file. A reader sees the old contents or the new ones, never a part of them. After a kill, the
//! same holds, and after a power failure what the [`Durability`] says.

use haul_sys::dir::{CWD, open_dir_at, open_place_at};
use haul_sys::open::{RenameMode, create_new_at, rename_at, unlink_at};
use haul_sys::stat::stat_at;
use haul_sys::{FileKind, Follow, cache, closing};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of temporary names that are tried.
const ATTEMPTS: u32 = 100;

/// Part of a replacement that survives a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// None: the file is the old or the new one, and may be torn.
    None,
    /// The bytes: the file is the old or the new one, complete.
    Data,
    /// The bytes and the name: the file is the new one.
    DataAndName,
}

/// Writers that may replace one file at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// One: the caller holds a lock that excludes others. The temporary name is `NAME.new`. A file
    /// that a killed writer left under this name is removed.
    One,
    /// Any number, in any processes. The temporary name is `.haul-PID-NUMBER`, which walks and
    /// transfers skip. A file that a killed writer left stays.
    Many,
}

/// Properties of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Writers of the file.
    pub writers: Writers,
    /// Mode of the new file; the umask applies.
    pub mode: u32,
    /// Part of the replacement that survives a power failure.
    pub durability: Durability,
}

impl Replacement {
    /// Returns the replacement by a file that only its owner can access.
    pub const fn private(writers: Writers, durability: Durability) -> Replacement {
        Replacement { writers, mode: 0o600, durability }
    }
}

/// Replaces the file `name` in the directory `dir` by a new file with the bytes that `write`
/// writes.
///
/// # Errors
/// Returns the first error of creating, writing, syncing, closing and renaming the new file. The
/// old file is then unchanged, and the new one is removed. If only the sync of the directory fails,
/// returns its error although the file is replaced: a power failure may bring the old file back.
pub fn replace_file(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    replacement: Replacement,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let Replacement { writers, mode, durability } = replacement;
    let mut draft = Draft::create(dir.as_fd(), &name, writers, mode)?;
    write(&mut draft)?;
    draft.replace(name, durability)
}

/// Replaces the file at `path` as [`replace_file`] does. Links in the path of its directory are
/// followed; a link under its own name is replaced.
///
/// # Errors
/// Returns the errors of [`replace_file`], and an error if the directory cannot be opened.
pub fn replace_path(
    path: &Path,
    replacement: Replacement,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let (dir, name) = open_parent(path)?;
    replace_file(dir, name, replacement, write)
}

/// Opens the directory of `path`; returns it with the last name of the path.
///
/// # Errors
/// Returns an error if the path has no last name or the directory cannot be opened.
pub fn open_parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((open_place_at(CWD, parent.unwrap_or(Path::new(".")), Follow::Yes)?, name))
}

/// New contents of a file, under a temporary name until [`Draft::replace`]. If the draft is dropped
/// before, its file is removed.
#[derive(Debug)]
pub struct Draft<'d> {
    file: File,
    temporary: Temporary<'d>,
}

impl<'d> Draft<'d> {
    /// Creates an empty file with this mode, less the umask, which is to replace the file `name` in
    /// `dir`.
    ///
    /// # Errors
    /// Returns the errors of openat(2); `EEXIST` if the temporary name belongs to something that is
    /// not a regular file.
    pub fn create(
        dir: BorrowedFd<'d>,
        name: impl AsRef<OsStr>,
        writers: Writers,
        mode: u32,
    ) -> io::Result<Draft<'d>> {
        for _ in 0..ATTEMPTS {
            let temporary = writers.temporary_name(name.as_ref());
            match create_new_at(dir, &*temporary, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if writers == Writers::One {
                        remove_leftover(dir, &temporary)?;
                    }
                }
                created => {
                    let file = File::from(created?);
                    return Ok(Draft { file, temporary: Temporary { dir, name: Some(temporary) } });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Replaces the file `name` in the directory of the draft.
    ///
    /// # Errors
    /// Same as [`replace_file`].
    pub fn replace(self, name: impl AsRef<OsStr>, durability: Durability) -> io::Result<()> {
        let dir = self.temporary.dir;
        self.replace_in(dir, name, durability)
    }

    /// Replaces the file `name` in another directory of the same file system.
    ///
    /// # Errors
    /// Same as [`replace_file`].
    pub fn replace_in(
        self,
        dir: impl AsFd,
        name: impl AsRef<OsStr>,
        durability: Durability,
    ) -> io::Result<()> {
        let Draft { file, temporary } = self;
        if durability != Durability::None {
            cache::sync_data(&file)?;
        }
        // File systems that write back at close report lost bytes here.
        closing::close(file.into())?;
        temporary.rename(dir.as_fd(), name.as_ref())?;
        if durability == Durability::DataAndName { sync_names(dir) } else { Ok(()) }
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes the names in a directory durable. `dir` may be open only to resolve names. Succeeds on
/// network file systems that cannot sync directories.
///
/// # Errors
/// Returns the errors of openat(2) and fsync(2).
pub fn sync_names(dir: impl AsFd) -> io::Result<()> {
    cache::sync_all(open_dir_at(dir, ".", Follow::No)?).or_else(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Ok(()),
        _ => Err(error),
    })
}

/// Temporary name; removed on drop unless it was renamed.
#[derive(Debug)]
struct Temporary<'d> {
    dir: BorrowedFd<'d>,
    name: Option<OsString>,
}

impl Temporary<'_> {
    fn rename(mut self, dir: BorrowedFd<'_>, to: &OsStr) -> io::Result<()> {
        if let Some(name) = &self.name {
            rename_at(self.dir, &**name, dir, to, RenameMode::Replace)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller reports the error that left the file without its final name.
            let _ = unlink_at(self.dir, &**name);
        }
    }
}

impl Writers {
    /// Returns a temporary name for the file `name`.
    fn temporary_name(self, name: &OsStr) -> OsString {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match self {
            Writers::One => {
                let mut temporary = name.to_owned();
                temporary.push(".new");
                temporary
            }
            Writers::Many => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                format!(".haul-{}-{number}", std::process::id()).into()
            }
        }
    }
}

/// Removes the regular file that a killed writer left.
fn remove_leftover(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let removed = stat_at(dir, name, Follow::No).and_then(|found| match found.kind {
        FileKind::Regular => unlink_at(dir, name),
        _ => Err(io::ErrorKind::AlreadyExists.into()),
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use tempfile::TempDir;

    const ALL: [Replacement; 2] = [
        Replacement::private(Writers::One, Durability::DataAndName),
        Replacement { writers: Writers::Many, mode: 0o666, durability: Durability::None },
    ];

    /// Returns a directory with the file `f`, which contains `old`.
    fn home() -> TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("f"), "old").unwrap();
        home
    }

    fn names(home: &TempDir) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn file_gets_the_new_bytes_and_the_mode() {
        for replacement in ALL {
            let home = home();
            let path = home.path().join("f");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
            replace_path(&path, replacement, |out| out.write_all(b"new")).unwrap();
            assert_eq!((fs::read(&path).unwrap(), names(&home)), (b"new".to_vec(), vec!["f".into()]));
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, replacement.mode & !haul_sys::process::umask());
        }
    }

    #[test]
    fn error_or_panic_of_the_writer_keeps_the_old_file() {
        for replacement in ALL {
            let home = home();
            let path = home.path().join("f");
            let failed = replace_path(&path, replacement, |out| {
                out.write_all(b"part")?;
                Err(io::Error::other("no more"))
            });
            assert_eq!(failed.unwrap_err().to_string(), "no more");
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                replace_path(&path, replacement, |_| panic!("a defect of the writer"))
            }));
            assert!(panicked.is_err());
            assert_eq!((fs::read(&path).unwrap(), names(&home)), (b"old".to_vec(), vec!["f".into()]));
        }
    }

    #[test]
    fn failed_rename_leaves_no_temporary_file() {
        for replacement in ALL {
            let home = tempfile::tempdir().unwrap();
            fs::create_dir(home.path().join("f")).unwrap();
            let error = replace_path(&home.path().join("f"), replacement, |_| Ok(())).unwrap_err();
            assert_eq!((error.kind(), names(&home)), (io::ErrorKind::IsADirectory, vec!["f".into()]));
        }
    }

    #[test]
    fn leftover_of_a_killed_writer_is_replaced_only_if_it_is_a_file() {
        let home = home();
        let (path, left) = (home.path().join("f"), home.path().join("f.new"));
        fs::write(&left, "longer than the new contents").unwrap();
        replace_path(&path, ALL[0], |out| out.write_all(b"new")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(&home)), (b"new".to_vec(), vec!["f".into()]));
        symlink("elsewhere", &left).unwrap();
        let error = replace_path(&path, ALL[0], |out| out.write_all(b"newer")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read_link(&left).unwrap()),
            (b"new".to_vec(), "elsewhere".into())
        );
    }

    #[test]
    fn many_writers_at_once_never_mix_their_bytes() {
        let home = home();
        let path = home.path().join("f");
        // Names that killed processes with this number left.
        for number in 0..50 {
            fs::write(home.path().join(format!(".haul-{}-{number}", std::process::id())), "left").unwrap();
        }
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let bytes = [writer; 5000];
                        replace_path(path, ALL[1], |out| out.write_all(&bytes)).unwrap();
                        let found = fs::read(path).unwrap();
                        assert!(found.len() == 5000 && found.iter().all(|byte| *byte == found[0]));
                    }
                });
            }
        });
        assert_eq!(names(&home).len(), 51, "only what was there before");
    }

    #[test]
    fn longest_name_and_the_working_directory_are_served() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("n".repeat(255));
        replace_path(&path, ALL[1], |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let (_, name) = open_parent(Path::new("f")).unwrap();
        assert_eq!(name, "f");
        assert_eq!(open_parent(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
