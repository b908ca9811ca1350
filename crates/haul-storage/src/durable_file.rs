//! Replacement of a small file as a whole.
//!
//! The new contents get a temporary name in the directory of the file, and one rename replaces the
//! file. A reader sees the old contents or the new ones, never a part of them. After a kill, the
//! same holds, and after a power failure what the [`Durability`] says.

use crate::local;
use crate::name::Name;
use crate::storage::{Create, Dir, Remove, Replace, SinkFile, SyncWhat};
use haul_sys::{FileKind, Follow};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
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
/// Returns the first error of creating, writing, syncing, flushing and renaming the new file. The
/// old file is then unchanged, and the new one is removed. If only the sync of the directory fails,
/// returns its error although the file is replaced: a power failure may bring the old file back.
pub fn replace_file(
    dir: &dyn Dir,
    name: &Name,
    replacement: Replacement,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let Replacement { writers, mode, durability } = replacement;
    let mut draft = Draft::create(dir, name, writers, mode)?;
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
    replace_file(&*dir, &name, replacement, write)
}

/// Opens the directory of `path` on this machine; returns it with the last name of the path.
///
/// # Errors
/// Returns an error if the path has no last name or the directory cannot be opened.
pub fn open_parent(path: &Path) -> io::Result<(Arc<dyn Dir>, Name)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((local::open(parent.unwrap_or(Path::new(".")), Follow::Yes)?, Name::try_from(name)?))
}

/// New contents of a file, under a temporary name until [`Draft::replace`]. If the draft is dropped
/// before, its file is removed.
#[derive(Debug)]
pub struct Draft<'d> {
    file: Arc<dyn SinkFile>,
    /// Number of bytes that were written in order.
    written: u64,
    temporary: Temporary<'d>,
}

impl<'d> Draft<'d> {
    /// Creates an empty file with this mode, less the umask, which is to replace the file `name` in
    /// `dir`.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::sink`]; [`io::ErrorKind::AlreadyExists`] if the temporary name
    /// belongs to something that is not a regular file.
    pub fn create(dir: &'d dyn Dir, name: &Name, writers: Writers, mode: u32) -> io::Result<Draft<'d>> {
        for _ in 0..ATTEMPTS {
            let temporary = writers.temporary_name(name)?;
            match dir.sink(&temporary, Create::New { mode }) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if writers == Writers::One {
                        remove_leftover(dir, &temporary)?;
                    }
                }
                created => {
                    let temporary = Temporary { dir, name: Some(temporary) };
                    return Ok(Draft { file: created?, written: 0, temporary });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Returns the open file.
    pub fn file(&self) -> &Arc<dyn SinkFile> {
        &self.file
    }

    /// Replaces the file `name` in the directory of the draft.
    ///
    /// # Errors
    /// Same as [`replace_file`].
    pub fn replace(self, name: &Name, durability: Durability) -> io::Result<()> {
        let dir = self.temporary.dir;
        self.replace_in(dir, name, durability)
    }

    /// Replaces the file `name` in another directory of the same device.
    ///
    /// # Errors
    /// Same as [`replace_file`].
    pub fn replace_in(self, dir: &dyn Dir, name: &Name, durability: Durability) -> io::Result<()> {
        if durability != Durability::None {
            self.file.sync(SyncWhat::Data)?;
        }
        self.file.flush()?;
        self.temporary.rename(dir, name)?;
        if durability == Durability::DataAndName { dir.sync() } else { Ok(()) }
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(self.written, bytes)?;
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Temporary name; removed on drop unless it was renamed.
#[derive(Debug)]
struct Temporary<'d> {
    dir: &'d dyn Dir,
    name: Option<Name>,
}

impl Temporary<'_> {
    fn rename(mut self, dir: &dyn Dir, to: &Name) -> io::Result<()> {
        if let Some(name) = &self.name {
            self.dir.rename(name, dir, to, Replace::Yes)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller reports the error that left the file without its final name.
            let _ = self.dir.remove(name, Remove::File);
        }
    }
}

impl Writers {
    /// Returns a temporary name for the file `name`.
    fn temporary_name(self, name: &Name) -> io::Result<Name> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let temporary = match self {
            Writers::One => [name.as_bytes(), b".new"].concat(),
            Writers::Many => {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                format!(".haul-{}-{number}", std::process::id()).into_bytes()
            }
        };
        Name::new(temporary).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
    }
}

/// Removes the regular file that a killed writer left.
fn remove_leftover(dir: &dyn Dir, name: &Name) -> io::Result<()> {
    let removed = dir.stat_at(name, Follow::No).and_then(|found| match found.kind {
        FileKind::Regular => dir.remove(name, Remove::File),
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
    use crate::memory::{Call, MemoryStorage};
    use std::ffi::OsString;
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
        assert_eq!(name.as_bytes(), b"f");
        assert_eq!(open_parent(Path::new("/")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    /// Returns the bytes of the file `f` in a storage.
    fn bytes_of_f(storage: &MemoryStorage) -> Vec<u8> {
        let file = storage.root().source(&Name::new("f").unwrap(), Follow::No).unwrap();
        file.read_all(100).unwrap()
    }

    #[test]
    fn failed_calls_and_power_cuts_leave_the_old_file_or_the_new_one() {
        let name = Name::new("f").unwrap();
        for replacement in ALL {
            let mut faults = 0;
            for call in Call::ALL {
                for nth in 1.. {
                    let storage = MemoryStorage::new(1);
                    let dir = storage.root();
                    let old = dir.sink(&name, Create::New { mode: 0o600 }).unwrap();
                    old.write_at(0, b"old").unwrap();
                    old.sync(SyncWhat::All).unwrap();
                    dir.sync().unwrap();
                    let before = storage.count(call);
                    storage.fail(call, nth, 5);
                    let replaced = replace_file(&*dir, &name, replacement, |out| out.write_all(b"contents"));
                    if storage.count(call) - before < nth {
                        replaced.unwrap();
                        break;
                    }
                    faults += 1;
                    let what = format!("{call:?} {nth}");
                    let is_replaced = call == Call::SyncNames;
                    assert!(replaced.is_err(), "{what} was not reported");
                    let expected = if is_replaced { &b"contents"[..] } else { b"old" };
                    assert_eq!(bytes_of_f(&storage), expected, "{what}");
                    let mut names = Vec::new();
                    while dir.list().unwrap().next(10, &mut names).unwrap() {}
                    assert_eq!(names.len(), 1, "{what}: no temporary file stays");
                    for seed in 0..8 {
                        let found = bytes_of_f(&storage.after_power_cut(seed));
                        assert!(found == b"old" || found == expected, "{what}: {found:?}");
                    }
                }
            }
            assert!(faults >= if replacement.durability == Durability::None { 3 } else { 6 }, "{faults}");
        }
    }
}
