//! File systems on a loop device.

use super::{Access, MountError, Mounted, run, while_busy};
use crate::PATIENCE;
use crate::needs::Need;
use crate::random::Random;
use crate::tool::ToolError;
use rustix::fs::statvfs;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What takes the room of a file system that is to be full.
const BALLAST: &str = "ballast";

/// A small file system of its own on a loop device: it fills up, and it can be made read-only. Needs the right to
/// mount.
#[derive(Debug)]
pub struct SmallFs {
    mounted: Mounted,
    format: Format,
}

/// How a [`SmallFs`] keeps its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext4 with nothing reserved for root; 2 MiB and up.
    Ext4,
    /// XFS whose files may share extents; 300 MiB and up, of which little is used on the disk below.
    Xfs,
    /// btrfs; 109 MiB and up.
    Btrfs,
    /// btrfs that compresses all it is given.
    BtrfsZstd,
}

impl Format {
    /// What a test needs to mount it.
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

/// Makes a btrfs. `mkfs.btrfs` asks every loop device whether it holds the image, and gives up if one of them, another test's, is let go just
/// then: nothing was written yet, and it is tried again.
fn make_btrfs(make: impl Fn() -> Result<(), MountError>) -> Result<(), MountError> {
    let lost_a_device = |error: &MountError| match error {
        MountError::Tool(ToolError::Failed { said, .. }) => said.contains("cannot check mount status"),
        _ => false,
    };
    let begun = Instant::now();
    loop {
        match make() {
            Err(error) if lost_a_device(&error) && begun.elapsed() < PATIENCE => {}
            made => return made,
        }
    }
}

impl SmallFs {
    /// An ext4 of `mib` MiB.
    ///
    /// # Errors
    /// As [`SmallFs::of`].
    pub fn new(mib: u64) -> Result<Self, MountError> {
        Self::of(Format::Ext4, mib)
    }

    /// A file system of `mib` MiB.
    ///
    /// # Errors
    /// [`MountError`] with what the `mkfs` of the format or `mount` said.
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
        while_busy(&self.path(), || run("mount", &["-o".as_ref(), how.as_ref(), &self.path()]))
    }

    /// Takes all the room but so many bytes, by a file `ballast` whose bytes get no smaller.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn leave(&self, bytes: u64) -> Result<(), MountError> {
        self.make_room()?;
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

    /// Gives back what [`SmallFs::leave`] took.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn make_room(&self) -> Result<(), MountError> {
        let ballast = self.path().join(BALLAST);
        match fs::remove_file(&ballast) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(MountError::Make { path: ballast, source })
            }
            _ => self.sync(),
        }
    }

    /// Writes everything out. Only then is the space of removed files there again.
    ///
    /// # Errors
    /// [`MountError`] with what `sync` said.
    pub fn sync(&self) -> Result<(), MountError> {
        run("sync", &["-f".as_ref(), &self.path()])
    }

    /// A file system with what the device holds by now, as it would be found after a loss of power: what is only in the
    /// page cache is not there.
    ///
    /// # Errors
    /// As [`SmallFs::of`].
    pub fn after_power_loss(&self) -> Result<Self, MountError> {
        let from = self.mounted.home.path().join("image");
        let mounted = Mounted::new(|home, dir| {
            let image = home.join("image");
            run("cp", &["--sparse=always".as_ref(), &from, &image])?;
            self.format.mount(&image, dir)
        })?;
        Ok(Self { mounted, format: self.format })
    }

    /// Unmounts it and mounts it again at the same place; its device may have another number then.
    ///
    /// # Errors
    /// [`MountError`], for instance while a file is open.
    pub fn mount_again(&self) -> Result<(), MountError> {
        while_busy(&self.path(), || run("umount", &[&self.path()]))?;
        // For a moment the loop device of before is still found for the image, and busy, where another process looks at it.
        while_busy(&self.path(), || self.format.mount(&self.mounted.home.path().join("image"), &self.path()))
    }

    /// The mount alone.
    pub(super) fn into_mounted(self) -> Mounted {
        self.mounted
    }

    /// Unmounts, which frees the loop device, and removes the image.
    ///
    /// # Errors
    /// [`MountError`], for instance while something below is still open.
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

    /// The bug: a test that asked for a btrfs failed because another test's loop device went away.
    #[test]
    fn a_btrfs_is_made_again_when_another_loop_device_goes_away_and_not_when_there_is_no_room() {
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
    fn a_small_file_system_fills_up_and_goes_away() {
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
        small.make_room().unwrap();
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
    fn each_format_keeps_holes_and_those_that_share_extents_do() {
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
