//! The conformance suite on local file systems of each kind.

use crate::conformance::{Case, Feature, Subject, all, run};
use haul_lab::faults::FaultFs;
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_storage::{Dir, Follow, local};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// vfat as its driver behaves for root with the mount option `quiet`, emulated by a FUSE file
/// system, because the kernel of a test machine may lack the driver. Names that differ only in case
/// are one name. Changes of modes and owners are ignored.
const VFAT: &str = "* name .. fold\n* chmod .. drop\n* chown .. drop\n* stat .. coarse 2000\n* xattr .. errno ENOTSUP\n\
     * mknod .. errno EPERM\n* symlink .. errno EPERM\n* link .. errno EPERM\n* allocate .. errno ENOTSUP\n\
     * seek .. errno ENOSYS";

/// Directories of a local file system.
struct LocalSubject {
    room: TempDir,
    /// A directory of another file system.
    elsewhere: Option<TempDir>,
    lacks: Vec<Feature>,
}

impl Subject for LocalSubject {
    fn root(&self) -> Arc<dyn Dir> {
        local::open(self.room.path(), Follow::No).expect("opened")
    }

    fn lacks(&self) -> Vec<Feature> {
        self.lacks.clone()
    }

    fn elsewhere(&self) -> Option<Arc<dyn Dir>> {
        self.elsewhere.as_ref().map(|room| local::open(room.path(), Follow::No).expect("opened"))
    }
}

/// Features that this user or this machine lacks, on every file system.
fn lacks_everywhere(elsewhere: Option<&TempDir>) -> Vec<Feature> {
    let mut lacks = vec![Feature::Faults, Feature::FoldsCase];
    if !Need::Root.is_met() {
        lacks.push(Feature::Owners);
    }
    if !Need::DeviceNodes.is_met() {
        lacks.push(Feature::Devices);
    }
    if elsewhere.is_none() {
        lacks.push(Feature::Elsewhere);
    }
    lacks
}

/// Returns a directory in memory, which is another file system than `kind`.
fn another_than(kind: FsKind) -> Option<TempDir> {
    if kind == FsKind::Tmpfs { tempfile::tempdir().ok() } else { tempfile::tempdir_in("/dev/shm").ok() }
}

fn conforms(name: &str, subject: &dyn Fn() -> Box<dyn Subject>) {
    // A disk fails and loses its power only in memory.
    let cases: Vec<Case> = all().into_iter().filter(|case| !case.needs.contains(&Feature::Faults)).collect();
    let (failed, skipped) = run(&cases, subject);
    assert!(failed.is_empty(), "{name}: {failed:?} failed");
    assert!(skipped.len() * 2 < cases.len(), "{name}: {skipped:?} were skipped");
}

fn conforms_on(kind: FsKind, lacks: &[Feature]) {
    if shared_dir(kind).is_none() {
        return;
    }
    conforms(&format!("{kind:?}"), &|| {
        let (room, elsewhere) = (shared_dir(kind).expect("mounted"), another_than(kind));
        let lacks = [lacks, &lacks_everywhere(elsewhere.as_ref())].concat();
        Box::new(LocalSubject { room, elsewhere, lacks })
    });
}

#[test]
fn ext4_conforms() {
    conforms_on(FsKind::Ext4, &[Feature::Sharing]);
}

#[test]
fn xfs_conforms() {
    conforms_on(FsKind::Xfs, &[Feature::FileLimit]);
}

#[test]
fn btrfs_conforms() {
    conforms_on(FsKind::Btrfs, &[Feature::FileLimit]);
}

#[test]
fn compressed_btrfs_conforms() {
    conforms_on(FsKind::BtrfsZstd, &[Feature::FileLimit]);
}

/// Needs no rights, so that the suite also runs for a user who is not root.
#[test]
fn tmpfs_conforms() {
    if !met_or_skip(&[Need::Path("/dev/shm")]) {
        return;
    }
    conforms("tmpfs", &|| {
        let (room, elsewhere) = (tempfile::tempdir_in("/dev/shm"), another_than(FsKind::Tmpfs));
        let lacks =
            [&[Feature::FileLimit, Feature::Sharing], &*lacks_everywhere(elsewhere.as_ref())].concat();
        Box::new(LocalSubject { room: room.expect("a folder"), elsewhere, lacks })
    });
}

#[test]
fn overlayfs_conforms() {
    conforms_on(FsKind::Overlay, &[Feature::Sharing]);
}

#[test]
fn fuse_conforms() {
    // The FUSE file system of the tests resolves paths, also for an inode that is held.
    conforms_on(FsKind::Fuse, &[Feature::Sharing, Feature::Deep, Feature::OpenAfterRemove]);
}

#[test]
fn vfat_conforms() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().expect("a folder");
    let [store, view] = ["store", "view"].map(|place| home.path().join(place));
    for place in [&store, &view] {
        fs::create_dir(place).expect("made");
    }
    let faults = FaultFs::mount(&store, &view, VFAT.parse().expect("rules")).expect("mounted");
    conforms("vfat", &|| Box::new(vfat_subject(&view)));
    faults.close();
}

fn vfat_subject(view: &Path) -> LocalSubject {
    let room = tempfile::tempdir_in(view).expect("a folder");
    let elsewhere = another_than(FsKind::Fuse);
    let mut lacks = lacks_everywhere(elsewhere.as_ref());
    lacks.retain(|lack| *lack != Feature::FoldsCase);
    lacks.extend([
        Feature::Links,
        Feature::HardLinks,
        Feature::Specials,
        Feature::Devices,
        Feature::Modes,
        Feature::Owners,
        Feature::Attributes,
        Feature::AccessLists,
        Feature::Nanoseconds,
        Feature::FarTimes,
        Feature::Holes,
        Feature::Sharing,
        Feature::AnyNames,
        Feature::Deep,
        Feature::OpenAfterRemove,
    ]);
    LocalSubject { room, elsewhere, lacks }
}
