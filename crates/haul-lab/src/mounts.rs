//! Mounted file systems for tests: small ones of every format, tmpfs, overlays, bind mounts, and
//! one of each kind that all tests of a process share.

mod disk;
mod recorded;
mod shared;

pub use disk::{Format, SmallFs};
pub use recorded::{RecordedDisk, Recording};
pub use shared::{FsKind, shared_dir};

use crate::TEST_TIMEOUT;
use crate::tool::{self, ToolError};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thiserror::Error;

/// Error of creating, mounting or unmounting a file system.
#[derive(Debug, Error)]
pub enum MountError {
    /// A file or directory for the file system could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Make {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A program that creates or mounts the file system failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// A mount on a directory of its own. Close it; dropping it unmounts as a last resort and can only
/// print an error.
#[derive(Debug)]
pub struct Mounted {
    home: TempDir,
    dir: PathBuf,
    open: bool,
}

/// Time between two attempts of [`while_busy`].
const STEP: Duration = Duration::from_millis(2);

/// Access mode of a mounted file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes are allowed.
    #[default]
    ReadWrite,
    /// Every write fails with EROFS.
    ReadOnly,
}

impl Mounted {
    /// Mounts a tmpfs of at most `mib` MiB. Needs the right to mount.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `mount` if the mount fails.
    pub fn tmpfs(mib: u64) -> Result<Self, MountError> {
        Self::new(|_, dir| {
            let size = format!("size={mib}m,mode=755");
            run(
                "mount",
                &["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), size.as_ref(), "tmpfs".as_ref(), dir],
            )
        })
    }

    /// Bind-mounts `source` on a new directory. Needs the right to mount.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `mount` if the mount fails.
    pub fn bind(source: &Path, access: Access) -> Result<Self, MountError> {
        Self::new(|_, dir| {
            run("mount", &["--bind".as_ref(), source, dir])?;
            if access == Access::ReadWrite {
                return Ok(());
            }
            run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), dir]).inspect_err(|_| {
                // If the remount fails, undo the bind mount.
                let _ = run("umount", &[dir]);
            })
        })
    }

    /// Bind-mounts `source` on the existing directory `place`. Several sources that are mounted
    /// there one after the other have the same path. Needs the right to mount.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `mount` if the mount fails.
    pub fn bind_at(source: &Path, place: &Path) -> Result<Self, MountError> {
        let mut mounted = Self::new(|_, _| run("mount", &["--bind".as_ref(), source, place]))?;
        mounted.dir = place.to_owned();
        Ok(mounted)
    }

    /// Mounts an overlay with the new layers `lower` and `upper` in `base`, whose file system must
    /// support upper layers. Files in `lower` show through, also those created later; writes go to
    /// `upper`. Needs the right to mount.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `mount` if the mount fails.
    pub fn overlay(base: &Path) -> Result<Self, MountError> {
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| base.join(name));
        for path in [&lower, &upper, &work] {
            fs::create_dir(path).map_err(|source| MountError::Make { path: path.clone(), source })?;
        }
        let layers =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        Self::new(|_, dir| {
            let words = ["-t", "overlay", "-o", &layers, "overlay"].map(Path::new);
            run("mount", &words.into_iter().chain([dir]).collect::<Vec<_>>())
        })
    }

    fn new(mount: impl FnOnce(&Path, &Path) -> Result<(), MountError>) -> Result<Self, MountError> {
        let temp = std::env::temp_dir();
        let home = tempfile::Builder::new()
            .prefix("haul-lab-")
            .tempdir()
            .map_err(|source| MountError::Make { path: temp, source })?;
        let dir = home.path().join("mnt");
        fs::create_dir(&dir).map_err(|source| MountError::Make { path: dir.clone(), source })?;
        mount(home.path(), &dir)?;
        Ok(Self { home, dir, open: true })
    }

    /// Returns the mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.clone()
    }

    /// Unmounts the file system and removes its directory. The loop device of a [`SmallFs`] is
    /// freed with its last mount.
    ///
    /// # Errors
    /// Returns [`MountError`] if the unmount fails, for instance while a file below the mount point
    /// is open.
    pub fn close(mut self) -> Result<(), MountError> {
        while_busy(&self.dir, || run("umount", &[&self.dir]))?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // Only a failing test gets here. A directory cannot be removed while it is mounted: detach
        // the mount.
        if let Err(error) = run("umount", &["-l".as_ref(), &self.dir]) {
            let _ = writeln!(io::stderr(), "haul-lab: {error}");
        }
    }
}

/// Repeats `step`, which fails while something below `dir` is open, until it succeeds. Between fork
/// and exec, a child that another thread starts holds copies of this process's descriptors. Nothing
/// reports when it closes them, so `step` runs again.
///
/// # Errors
/// Returns the error of `step`: at once if this process itself has something open below `dir`, and
/// otherwise after [`TEST_TIMEOUT`].
fn while_busy(dir: &Path, step: impl Fn() -> Result<(), MountError>) -> Result<(), MountError> {
    let begun = Instant::now();
    while let Err(error) = step() {
        if has_open_below(dir) || begun.elapsed() > TEST_TIMEOUT {
            return Err(error);
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Returns true if this process has a file or directory below `dir` open.
fn has_open_below(dir: &Path) -> bool {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    open.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(dir)))
}

/// Runs a program and waits for its end.
fn run(program: &'static str, args: &[&Path]) -> Result<(), MountError> {
    Ok(tool::run(program, args)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::{Need, met_or_skip};
    use std::fs::File;
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;

    pub(super) fn mounts_below(home: &Path) -> usize {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.lines().filter(|line| line.contains(home.to_str().unwrap())).count()
    }

    #[test]
    fn closing_a_busy_file_system_returns_an_error() {
        if !met_or_skip(&[Need::Mount]) {
            return;
        }
        let memory = Mounted::tmpfs(1).unwrap();
        let home = memory.path().parent().unwrap().to_owned();
        let held = File::create(memory.path().join("held")).unwrap();
        let error = memory.close().unwrap_err();
        assert!(matches!(error, MountError::Tool(ToolError::Failed { .. })), "{error}");
        drop(held);
        assert_eq!(mounts_below(&home), 0, "dropping detaches it");
    }

    #[test]
    fn tmpfs_and_bind_mounts_show_the_expected_files() {
        if !met_or_skip(&[Need::Mount]) {
            return;
        }
        let memory = Mounted::tmpfs(1).unwrap();
        let error = fs::write(memory.path().join("big"), vec![1; 2 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        fs::remove_file(memory.path().join("big")).unwrap();
        fs::write(memory.path().join("file"), b"seen").unwrap();

        let view = Mounted::bind(&memory.path(), Access::ReadOnly).unwrap();
        let [a, b] = [memory.path(), view.path()].map(|p| fs::metadata(p.join("file")).unwrap());
        assert_eq!((a.dev(), a.ino()), (b.dev(), b.ino()), "one file, two paths");
        assert_eq!(
            fs::write(view.path().join("new"), b"").unwrap_err().kind(),
            ErrorKind::ReadOnlyFilesystem
        );
        view.close().unwrap();

        let home = tempfile::tempdir().unwrap();
        let other = Mounted::tmpfs(1).unwrap();
        for (source, is_there) in [(&memory, true), (&other, false)] {
            let seen = Mounted::bind_at(&source.path(), home.path()).unwrap();
            assert_eq!((seen.path(), home.path().join("file").exists()), (home.path().to_owned(), is_there));
            seen.close().unwrap();
        }
        assert!(!home.path().join("file").exists());
        other.close().unwrap();
        memory.close().unwrap();
    }

    #[test]
    fn overlay_shows_its_lower_layer_and_writes_to_its_upper() {
        if !met_or_skip(&[Need::Mount, Need::FileSystem("overlay")]) {
            return;
        }
        let memory = Mounted::tmpfs(1).unwrap();
        let layers = Mounted::overlay(&memory.path()).unwrap();
        fs::write(memory.path().join("lower/below"), b"old").unwrap();
        assert_eq!(fs::read(layers.path().join("below")).unwrap(), b"old");
        fs::write(layers.path().join("below"), b"new").unwrap();
        assert_eq!(fs::read(memory.path().join("lower/below")).unwrap(), b"old");
        assert_eq!(fs::read(memory.path().join("upper/below")).unwrap(), b"new");
        layers.close().unwrap();
        memory.close().unwrap();
    }
}
