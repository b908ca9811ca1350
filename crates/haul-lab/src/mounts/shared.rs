//! One file system of each kind for all tests of a process: mounting takes longer than most tests.

use super::{Format, MountError, Mounted, SmallFs};
use crate::faults::{FaultFs, Rules};
use crate::needs::{Need, met_or_skip};
use crate::tool::ToolError;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Kind of file system on which copies are tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsKind {
    /// ext4: keeps all metadata, shares no extents.
    Ext4,
    /// XFS: shares extents and preallocates space ahead of the writer.
    Xfs,
    /// btrfs: shares extents.
    Btrfs,
    /// btrfs with compression: the allocated space of a file has little to do with its length.
    BtrfsZstd,
    /// tmpfs.
    Tmpfs,
    /// overlayfs, both layers on an ext4.
    Overlay,
    /// A FUSE file system that passes everything through to an ext4. It has no access control lists
    /// and no shared extents.
    Fuse,
}

impl FsKind {
    /// All kinds.
    pub const ALL: [FsKind; 7] = [
        FsKind::Ext4,
        FsKind::Xfs,
        FsKind::Btrfs,
        FsKind::BtrfsZstd,
        FsKind::Tmpfs,
        FsKind::Overlay,
        FsKind::Fuse,
    ];

    /// Returns true if files on this kind may share extents.
    pub fn shares_extents(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs | Self::BtrfsZstd)
    }

    fn is_there(self) -> bool {
        let disk = match self {
            Self::Xfs => Format::Xfs,
            Self::Btrfs => Format::Btrfs,
            Self::BtrfsZstd => Format::BtrfsZstd,
            Self::Ext4 | Self::Overlay | Self::Fuse => Format::Ext4,
            Self::Tmpfs => return met_or_skip(&[Need::Mount]),
        };
        let more: &[Need] = match self {
            Self::Overlay => &[Need::FileSystem("overlay")],
            Self::Fuse => &[Need::Fuse],
            _ => &[],
        };
        let needs: Vec<Need> = disk.needs().into_iter().chain(more.iter().copied()).collect();
        met_or_skip(&needs)
    }
}

/// Returns a new folder on this process's shared file system of a kind. The file system is mounted
/// on the first call and unmounted when the process ends for any reason. Returns `None` and prints
/// a skip if the requirements are not met.
///
/// # Panics
/// Panics if the mount fails although all requirements are met. Panics instead of returning `None`
/// if `HAUL_REQUIRE_ALL` is 1.
#[track_caller]
pub fn shared_dir(kind: FsKind) -> Option<TempDir> {
    static SHARED_FILE_SYSTEMS: [OnceLock<Option<SharedFileSystem>>; FsKind::ALL.len()] =
        [const { OnceLock::new() }; _];
    let standing = SHARED_FILE_SYSTEMS[kind as usize].get_or_init(|| {
        kind.is_there().then(|| SharedFileSystem::new(kind).unwrap_or_else(|e| panic!("{kind:?}: {e}")))
    });
    let standing = standing.as_ref()?;
    let room = tempfile::Builder::new().prefix("room-").tempdir_in(&standing.dir);
    Some(room.unwrap_or_else(|e| panic!("{}: {e}", standing.dir.display())))
}

/// A mounted file system and the mounts below it.
struct SharedFileSystem {
    dir: PathBuf,
    _below: Vec<Mounted>,
    _faults: Option<FaultFs>,
    _cleanup: CleanupProcess,
}

impl SharedFileSystem {
    fn new(kind: FsKind) -> Result<SharedFileSystem, MountError> {
        let (mut below, mut faults) = (Vec::new(), None);
        match kind {
            FsKind::Tmpfs => below.push(Mounted::tmpfs(256)?),
            FsKind::Xfs => below.push(SmallFs::of(Format::Xfs, 512)?.into_mounted()),
            FsKind::Btrfs => below.push(SmallFs::of(Format::Btrfs, 512)?.into_mounted()),
            FsKind::BtrfsZstd => below.push(SmallFs::of(Format::BtrfsZstd, 512)?.into_mounted()),
            FsKind::Ext4 | FsKind::Overlay | FsKind::Fuse => {
                below.push(SmallFs::of(Format::Ext4, 512)?.into_mounted());
            }
        }
        if kind == FsKind::Overlay {
            below.push(Mounted::overlay(&below[0].path())?);
        }
        if kind == FsKind::Fuse {
            let store = below[0].path().join("store");
            fs::create_dir(&store).map_err(|source| MountError::Make { path: store.clone(), source })?;
            let mut failed = None;
            let view = Mounted::new(|_, dir| {
                match FaultFs::mount(&store, dir, Rules::default()) {
                    Ok(mounted) => faults = Some(mounted),
                    Err(error) => failed = Some(error),
                }
                Ok(())
            })?;
            assert!(failed.is_none(), "{failed:?}");
            below.push(view);
        }
        let dirs: Vec<PathBuf> = below.iter().rev().map(Mounted::path).collect();
        let dir = dirs[0].clone();
        Ok(SharedFileSystem { dir, _cleanup: CleanupProcess::new(&dirs)?, _below: below, _faults: faults })
    }
}

/// A child process that waits for the end of this process, for any reason, and then unmounts and
/// removes its file systems. Rust never drops statics.
struct CleanupProcess(#[expect(dead_code, reason = "its standard input closes with this process")] Child);

impl CleanupProcess {
    /// Shell script; its arguments are the mount points, uppermost first. Each mount point is in a
    /// folder of its own, which is removed after the unmount.
    const WORK: &str = r#"trap '' INT TERM HUP QUIT
        read -r _
        for dir; do umount "$dir" || umount -l "$dir"; done
        for dir; do rmdir "$dir" && rm -rf "${dir%/mnt}"; done"#;

    fn new(dirs: &[PathBuf]) -> Result<CleanupProcess, MountError> {
        assert!(dirs.iter().all(|dir| dir.ends_with("mnt")), "{dirs:?}");
        let mut command = Command::new("sh");
        command.args(["-c", Self::WORK, "janitor"].map(Path::new)).args(dirs);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|source| ToolError::Start { program: "sh", source })?;
        Ok(CleanupProcess(child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn each_kind_of_directory_has_its_own_file_system() {
        let mut seen = Vec::new();
        for kind in FsKind::ALL {
            let Some(room) = shared_dir(kind) else { continue };
            let device = fs::metadata(room.path()).unwrap().dev();
            assert!(!seen.contains(&device), "{kind:?}");
            seen.push(device);
            let again = shared_dir(kind).unwrap();
            assert_eq!(fs::metadata(again.path()).unwrap().dev(), device);
            assert_ne!(room.path(), again.path());
            fs::write(room.path().join("file"), b"kept").unwrap();
            assert_eq!(fs::read(room.path().join("file")).unwrap(), b"kept");
        }
    }
}
