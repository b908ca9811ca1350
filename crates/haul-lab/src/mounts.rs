//! File systems for tests: a small one that fills up, one in memory, a second view of a directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use thiserror::Error;

/// A file system could not be made, mounted or unmounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// A file or directory for it could not be made.
    #[error("cannot make {}: {source}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Its name.
        program: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// Its command line.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
}

/// Something mounted on a directory of its own. Close it; dropping it unmounts as a last resort and can only
/// print what went wrong.
#[derive(Debug)]
pub struct Mounted {
    home: TempDir,
    open: bool,
}

/// How a mounted file system treats writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// As usual.
    #[default]
    ReadWrite,
    /// Every write gives EROFS.
    ReadOnly,
}

impl Mounted {
    /// A tmpfs of at most `mib` MiB. Needs the right to mount.
    ///
    /// # Errors
    /// [`MountError`] with what `mount` said.
    pub fn tmpfs(mib: u64) -> Result<Self, MountError> {
        Self::new(|_, dir| {
            let size = format!("size={mib}m,mode=755");
            run(
                "mount",
                &["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), size.as_ref(), "tmpfs".as_ref(), dir],
            )
        })
    }

    /// `source` seen a second time, under another device-independent path. Needs the right to mount.
    ///
    /// # Errors
    /// [`MountError`] with what `mount` said.
    pub fn bind(source: &Path, access: Access) -> Result<Self, MountError> {
        Self::new(|_, dir| {
            run("mount", &["--bind".as_ref(), source, dir])?;
            if access == Access::ReadWrite {
                return Ok(());
            }
            run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), dir]).inspect_err(|_| {
                // The first half must not outlive the failure of the second.
                let _ = run("umount", &[dir]);
            })
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
        Ok(Self { home, open: true })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.home.path().join("mnt")
    }

    /// Unmounts and removes all traces; the loop device of a [`SmallFs`] goes with its last mount.
    ///
    /// # Errors
    /// [`MountError`], for instance while something below is still open.
    pub fn close(mut self) -> Result<(), MountError> {
        run("umount", &[&self.path()])?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // Only a test that fails comes here. Left mounted, the directory could not be removed: detach it.
        if let Err(error) = run("umount", &["-l".as_ref(), &self.path()]) {
            let _ = writeln!(io::stderr(), "haul-lab: {error}");
        }
    }
}

/// A small ext4 of its own on a loop device: it fills up, and it can be made read-only. Needs the right to mount.
#[derive(Debug)]
pub struct SmallFs {
    mounted: Mounted,
}

impl SmallFs {
    /// An ext4 of `mib` MiB (at least 2), nothing reserved for root.
    ///
    /// # Errors
    /// [`MountError`] with what `mkfs.ext4` or `mount` said.
    pub fn new(mib: u64) -> Result<Self, MountError> {
        let mounted = Mounted::new(|home, dir| {
            let image = home.join("image");
            File::create_new(&image)
                .and_then(|file| file.set_len(mib << 20))
                .map_err(|source| MountError::Make { path: image.clone(), source })?;
            run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-m".as_ref(), "0".as_ref(), &image])?;
            run("mount", &["-o".as_ref(), "loop".as_ref(), &image, dir])
        })?;
        Ok(Self { mounted })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.mounted.path()
    }

    /// Mounts the same file system again for readers only, or for writers again.
    ///
    /// # Errors
    /// [`MountError`], for instance while a file is open for writing.
    pub fn set_access(&self, access: Access) -> Result<(), MountError> {
        let how = if access == Access::ReadOnly { "remount,ro" } else { "remount,rw" };
        run("mount", &["-o".as_ref(), how.as_ref(), &self.path()])
    }

    /// Writes everything out. Only then is the space of removed files there again.
    ///
    /// # Errors
    /// [`MountError`] with what `sync` said.
    pub fn sync(&self) -> Result<(), MountError> {
        run("sync", &["-f".as_ref(), &self.path()])
    }

    /// Unmounts, which frees the loop device, and removes the image.
    ///
    /// # Errors
    /// [`MountError`], for instance while something below is still open.
    pub fn close(self) -> Result<(), MountError> {
        self.mounted.close()
    }
}

fn run(program: &'static str, args: &[&Path]) -> Result<(), MountError> {
    let mut command = Command::new(program);
    // mkfs and mount live in /sbin, which a user's path need not hold.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Ok(path) = std::env::join_paths(dirs) {
        command.env("PATH", path);
    }
    let output = command.args(args).output().map_err(|source| MountError::Start { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MountError::Failed { command: format!("{command:?}"), said })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::{Need, met_or_skip};
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;

    fn mounts_below(home: &Path) -> usize {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.lines().filter(|line| line.contains(home.to_str().unwrap())).count()
    }

    #[test]
    fn a_small_file_system_fills_up_and_goes_away() {
        if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
            return;
        }
        let small = SmallFs::new(8).unwrap();
        let file = small.path().join("big");
        let error = fs::write(&file, vec![1; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        fs::remove_file(&file).unwrap();
        small.sync().unwrap();
        fs::write(&file, vec![1; 1 << 20]).unwrap();

        small.set_access(Access::ReadOnly).unwrap();
        assert_eq!(fs::write(&file, b"x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        let home = small.path().parent().unwrap().to_owned();
        assert_eq!(mounts_below(&home), 1);
        small.close().unwrap();
        assert_eq!(mounts_below(&home), 0);
        assert!(!home.exists(), "the image is gone");
    }

    #[test]
    fn a_file_system_in_use_is_not_closed_silently() {
        if !met_or_skip(&[Need::Mount]) {
            return;
        }
        let memory = Mounted::tmpfs(1).unwrap();
        let home = memory.path().parent().unwrap().to_owned();
        let held = File::create(memory.path().join("held")).unwrap();
        let error = memory.close().unwrap_err();
        assert!(matches!(error, MountError::Failed { .. }), "{error}");
        drop(held);
        assert_eq!(mounts_below(&home), 0, "dropping detaches it");
    }

    #[test]
    fn memory_and_bind_mounts_show_what_they_should() {
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
        memory.close().unwrap();
    }

    #[test]
    fn a_failing_program_says_why() {
        let error = run("ls", &["/no/such/directory/here".as_ref()]).unwrap_err();
        assert!(error.to_string().contains("/no/such/directory/here"), "{error}");
        assert!(matches!(run("no-such-program", &[]), Err(MountError::Start { .. })));
    }
}
