//! `cp -a` from each kind of file system to each kind: tree, metadata, messages and exit status are
//! those of GNU `cp`.

use super::everything::{Holds, build};
use super::fixture::{Twins, allocated, assert_alike, test_dirs};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};

/// Maximum number of bytes that a copy may allocate in addition to GNU's copy. File systems round
/// up differently if two workers write one file.
const SLACK: u64 = 128 << 10;

/// Copies the complete tree from each kind of file system to this one.
fn arrives_on(kind: FsKind) {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let Some(sink) = shared_dir(kind) else { return };
    let mut wrong = Vec::new();
    for (from, room) in test_dirs() {
        let source = room.path().join("tree");
        build(&source, Holds { lists: from != FsKind::Fuse, attributes: true });
        let original = Snapshot::take(&source).unwrap();
        let name = format!("{from:?} to {kind:?}");
        let twins = Twins::run(sink.path(), "z", &["-a".as_ref(), source.as_os_str(), "z".as_ref()]);
        // XFS reports preallocated space as data for a while, so that a source looks less sparse.
        // With XFS the test compares the amount of allocated space, and not its location.
        let facets = if [kind, from].contains(&FsKind::Xfs) { Facets::ARCHIVE } else { Facets::ALL };
        let mut text = twins.differences("z", facets);
        let [Some(gnu), Some(ours)] = twins.look("z") else { panic!("{name}: nothing was made\n{text}") };
        for ((path, gnu), (_, ours)) in allocated(&gnu).into_iter().zip(allocated(&ours)) {
            if ours > gnu + SLACK {
                text += &format!("  {} takes {ours} bytes, gnu's {gnu}\n", path.display());
            }
        }
        // A FUSE file system stores no lists: both commands report that, and the rest arrives.
        if kind != FsKind::Fuse {
            for difference in original.diff(&ours, Facets::ARCHIVE, 9) {
                text += &format!("  source against ours: {difference}\n");
            }
            if twins.runs[1].status != Some(0) {
                text += &format!("  {:?}\n", twins.runs[1]);
            }
        }
        if !text.is_empty() {
            wrong.push((name, text));
        }
        twins.remove();
    }
    assert_alike(&wrong);
}

#[test]
fn copies_to_ext4_match_gnu() {
    arrives_on(FsKind::Ext4);
}

#[test]
fn copies_to_xfs_match_gnu() {
    arrives_on(FsKind::Xfs);
}

#[test]
fn copies_to_btrfs_match_gnu() {
    arrives_on(FsKind::Btrfs);
}

#[test]
fn copies_to_compressed_btrfs_match_gnu() {
    arrives_on(FsKind::BtrfsZstd);
}

#[test]
fn copies_to_tmpfs_match_gnu() {
    arrives_on(FsKind::Tmpfs);
}

#[test]
fn copies_to_overlayfs_match_gnu() {
    arrives_on(FsKind::Overlay);
}

#[test]
fn copies_to_fuse_match_gnu() {
    arrives_on(FsKind::Fuse);
}

/// A second copy over the first one: no source is newer, and nothing changes.
#[test]
fn a_second_copy_with_update_changes_nothing() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    for (kind, room) in test_dirs() {
        let source = room.path().join("tree");
        build(&source, Holds { lists: kind != FsKind::Fuse, attributes: true });
        let twins = Twins::run(room.path(), "z", &["-a".as_ref(), source.as_os_str(), "z".as_ref()]);
        let before = twins.look("z").map(Option::unwrap);
        for (maker, folder) in [super::fixture::ToolOrigin::Gnu, super::fixture::ToolOrigin::Ours]
            .into_iter()
            .zip(&twins.folders)
        {
            let args = ["-auT".as_ref(), source.as_os_str(), "z".as_ref()];
            let again = super::fixture::cp(maker, folder, args);
            assert_eq!((again.status, &*again.err), (Some(0), ""), "{kind:?} {maker:?}");
        }
        for (before, after) in before.iter().zip(twins.look("z").map(Option::unwrap)) {
            before.assert_same(&after, Facets::ALL);
        }
        twins.remove();
    }
}
