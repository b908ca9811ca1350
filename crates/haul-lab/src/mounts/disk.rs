//! File systems on a loop device.

use super::{Access, MountError, Mounted, run, while_busy};
use crate::TEST_TIMEOUT;
use crate::needs::Need;
use crate::random::Random;
use crate::tool::ToolError;
use rustix::fs::statvfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Name of the file that fills the file system.
const BALLAST: &str = "ballast";

/// A small file system on a loop device. It can be filled up and made read-only. Needs the right to
/// mount.
#[derive(Debug)]
pub struct SmallFs {
    mounted: Mounted,
    format: Format,
}

/// Format of a [`SmallFs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext4 without space reserved for root; at least 2 MiB.
    Ext4,
    /// XFS with shared extents; at least 300 MiB, of which the image occupies little.
    Xfs,
    /// btrfs; at least 109 MiB.
    Btrfs,
    /// btrfs that compresses all data.
    BtrfsZstd,
}

impl Format {
    /// Returns the requirements of a test that mounts the format.
    pub fn needs(self) -> [Need; 3] {
        let [program, kind] = match self {
            Self::Ext4 => ["mkfs.ext4", "ext4"],
            Self::Xfs => ["mkfs.xfs", "xfs"],
            Self::Btrfs | Self::BtrfsZstd => ["mkfs.btrfs", "btrfs"],
        };
        [Need::Loop, Need::Program(program), Need::FileSystem(kind)]
    }

    fn make(self, image: &Path) -> Result<(), MountError> {
        match self {
            Self::Ext4 => {
                run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), "-m".as_ref(), "0".as_ref(), image])
            }
            Self::Xfs => run("mkfs.xfs", &["-q".as_ref(), "-m".as_ref(), "reflink=1".as_ref(), image]),
            Self::Btrfs | Self::BtrfsZstd => make_btrfs(|| run("mkfs.btrfs", &["-q".as_ref(), image])),
        }
    }

    fn mount(self, image: &Path, dir: &Path) -> Result<(), MountError> {
        run("mount", &["-o".as_ref(), self.options().as_ref(), image, dir])
    }

    fn options(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Xfs | Self::Btrfs => "loop",
            Self::BtrfsZstd => "loop,compress-force=zstd",
        }
    }
}

/// Creates a btrfs with `make`. `mkfs.btrfs` asks every loop device whether it holds the image. It
/// fails if a loop device of another test is detached at that moment. Nothing is written yet then,
/// so `make` runs again.
fn make_btrfs(make: impl Fn() -> Result<(), MountError>) -> Result<(), MountError> {
    let lost_a_device = |error: &MountError| match error {
        MountError::Tool(ToolError::Failed { said, .. }) => said.contains("cannot check mount status"),
        _ => false,
    };
    let begun = Instant::now();
    loop {
        match make() {
            Err(error) if lost_a_device(&error) && begun.elapsed() < TEST_TIMEOUT => {}
            made => return made,
        }
    }
}

impl SmallFs {
    /// Creates an ext4 of `mib` MiB.
    ///
    /// # Errors
    /// Returns the errors of [`SmallFs::of`].
    pub fn new(mib: u64) -> Result<Self, MountError> {
        Self::of(Format::Ext4, mib)
    }

    /// Creates a file system of `mib` MiB.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `mkfs` or `mount` if one of them fails.
    pub fn of(format: Format, mib: u64) -> Result<Self, MountError> {
        let mounted = Mounted::new(|home, dir| {
            let image = home.join("image");
            File::create_new(&image)
                .and_then(|file| file.set_len(mib << 20))
                .map_err(|source| MountError::Make { path: image.clone(), source })?;
            format.make(&image)?;
            format.mount(&image, dir)
        })?;
        Ok(Self { mounted, format })
    }

    /// Returns the mount point.
    pub fn path(&self) -> PathBuf {
        self.mounted.path()
    }

    /// Remounts the file system read-only or read-write.
    ///
    /// # Errors
    /// Returns [`MountError`] if the remount fails, for instance while a file is open for writing.
    pub fn set_access(&self, access: Access) -> Result<(), MountError> {
        let how = if access == Access::ReadOnly { "remount,ro" } else { "remount,rw" };
        while_busy(&self.path(), || run("mount", &["-o".as_ref(), how.as_ref(), &self.path()]))
    }

    /// Takes all space except `bytes` bytes, with an incompressible file `ballast`.
    ///
    /// # Errors
    /// Returns [`MountError`] if the file cannot be written.
    pub fn leave(&self, bytes: u64) -> Result<(), MountError> {
        self.free_space()?;
        let ballast = self.path().join(BALLAST);
        let space = statvfs(self.path()).map_err(io::Error::from);
        let filled = space.and_then(|space| {
            let len = (space.f_bavail * space.f_frsize).saturating_sub(bytes);
            let mut noise = vec![0; usize::try_from(len).unwrap_or(0)];
            Random::from_seed(len).fill(&mut noise);
            fs::write(&ballast, noise)
        });
        filled.map_err(|source| MountError::Make { path: ballast, source })?;
        self.sync()
    }

    /// Frees the space that [`SmallFs::leave`] took.
    ///
    /// # Errors
    /// Returns [`MountError`] if the file cannot be removed.
    pub fn free_space(&self) -> Result<(), MountError> {
        let ballast = self.path().join(BALLAST);
        match fs::remove_file(&ballast) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(MountError::Make { path: ballast, source })
            }
            _ => self.sync(),
        }
    }

    /// Syncs the file system. The space of removed files becomes available only then.
    ///
    /// # Errors
    /// Returns [`MountError`] with the message of `sync` if it fails.
    pub fn sync(&self) -> Result<(), MountError> {
        run("sync", &["-f".as_ref(), &self.path()])
    }

    /// Mounts a copy of the current device contents, which is the state after a power loss. Data
    /// that is only in the page cache is missing.
    ///
    /// # Errors
    /// Returns the errors of [`SmallFs::of`].
    pub fn after_power_loss(&self) -> Result<Self, MountError> {
        let from = self.mounted.home.path().join("image");
        let mounted = Mounted::new(|home, dir| {
            let image = home.join("image");
            run("cp", &["--sparse=always".as_ref(), &from, &image])?;
            self.format.mount(&image, dir)
        })?;
        Ok(Self { mounted, format: self.format })
    }

    /// Unmounts the file system and mounts it again at the same mount point. The device number may
    /// change.
    ///
    /// # Errors
    /// Returns [`MountError`] if that fails, for instance while a file is open.
    pub fn mount_again(&self) -> Result<(), MountError> {
        while_busy(&self.path(), || run("umount", &[&self.path()]))?;
        // If another process opens the old loop device, mount still finds that device for the
        // image, and it is busy for a moment.
        while_busy(&self.path(), || self.format.mount(&self.mounted.home.path().join("image"), &self.path()))
    }

    /// Returns the mount alone.
    pub(super) fn into_mounted(self) -> Mounted {
        self.mounted
    }

    /// Unmounts the file system, which frees the loop device, and removes the image.
    ///
    /// # Errors
    /// Returns [`MountError`] if the unmount fails, for instance while a file below the mount point
    /// is open.
    pub fn close(self) -> Result<(), MountError> {
        self.mounted.close()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mounts_below;
    use super::*;
    use crate::needs::met_or_skip;
    use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
    use std::cell::Cell;
    use std::io::ErrorKind;

    /// Regression: a test that mounted a btrfs failed because another test's loop device was
    /// detached.
    #[test]
    fn btrfs_creation_is_retried_only_after_a_loop_device_race() {
        for (said, tries) in [
            ("ERROR: cannot check mount status of /t/image: No such device or address", 3),
            ("ERROR: unable to open /t/image: No space left on device", 1),
        ] {
            let tried = Cell::new(0);
            let made = make_btrfs(|| {
                tried.set(tried.get() + 1);
                let (command, said) = ("mkfs.btrfs".to_owned(), said.to_owned());
                if tried.get() < 3 { Err(ToolError::Failed { command, said }.into()) } else { Ok(()) }
            });
            assert_eq!((tried.get(), made.is_ok()), (tries, tries == 3), "{said}");
        }
    }

    #[test]
    fn small_file_system_fills_up_and_is_removed() {
        if !met_or_skip(&Format::Ext4.needs()) {
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
        small.mount_again().unwrap();
        small.leave(1 << 20).unwrap();
        assert!(fs::write(small.path().join("more"), vec![1; 2 << 20]).is_err());
        small.free_space().unwrap();
        fs::write(small.path().join("more"), vec![1; 2 << 20]).unwrap();
        assert_eq!(fs::read(&file).unwrap(), vec![1; 1 << 20]);
        fs::write(&file, b"x").unwrap();
        let home = small.path().parent().unwrap().to_owned();
        assert_eq!(mounts_below(&home), 1);
        small.close().unwrap();
        assert_eq!(mounts_below(&home), 0);
        assert!(!home.exists(), "the image is gone");
    }

    #[test]
    fn formats_keep_holes_and_share_extents_if_supported() {
        for (format, mib, shares) in [
            (Format::Ext4, 64, false),
            (Format::Xfs, 320, true),
            (Format::Btrfs, 128, true),
            (Format::BtrfsZstd, 128, true),
        ] {
            if !met_or_skip(&format.needs()) {
                continue;
            }
            let small = SmallFs::of(format, mib).unwrap();
            let make =
                |name| File::options().read(true).write(true).create_new(true).open(small.path().join(name));
            let [one, two] = ["one", "two"].map(|name| make(name).unwrap());
            one.set_len(4 << 20).unwrap();
            assert!(seek(&one, SeekFrom::Data(0)).is_err(), "{format:?} keeps holes");
            assert_eq!(ioctl_ficlone(&two, &one).is_ok(), shares, "{format:?}");
            drop((one, two));
            small.close().unwrap();
        }
    }
}
