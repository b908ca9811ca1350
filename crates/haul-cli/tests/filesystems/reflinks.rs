//! `--reflink` within and across file systems: shared extents, messages, and leftovers.

use super::fixture::{Twins, assert_alike, test_dirs};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use haul_lab::snapshot::Facets;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Size in bytes, too large for any file system to store it inside the inode.
const LEN: usize = 300_000;

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(len as u64).fill(&mut bytes);
    bytes
}

fn sources(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("data"), noise(LEN)).unwrap();
    fs::write(dir.join("large"), noise(9 << 20)).unwrap();
    fs::write(dir.join("little"), b"little").unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(&noise(70_000), 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
}

/// Returns true if an extent of a file is shared, according to FIEMAP.
fn shares(path: &Path) -> bool {
    // Recently written data has no location on the disk before a sync.
    File::open(path).unwrap().sync_all().unwrap();
    let output = Command::new("filefrag").arg("-v").arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).contains("shared")
}

#[test]
fn reflink_options_share_copy_or_refuse_as_in_gnu() {
    if !met_or_skip(&[Need::Program("filefrag")]) {
        return;
    }
    let mut wrong = Vec::new();
    for (from, source_room) in test_dirs() {
        let dir = source_room.path().join("src");
        sources(&dir);
        for to in FsKind::ALL {
            let Some(sink) = shared_dir(to) else { continue };
            for reflink in ["--reflink", "--reflink=always", "--reflink=auto", "--reflink=never", "-p"] {
                for name in ["data", "large", "little", "empty", "sparse"] {
                    let source = dir.join(name);
                    let twins =
                        Twins::run(sink.path(), "z", &[reflink.as_ref(), source.as_os_str(), "z".as_ref()]);
                    let facets = Facets { mtime: reflink == "-p", ..Facets::CONTENT };
                    let mut text = twins.differences("z", facets);
                    let is_shared = twins.folders.each_ref().map(|folder| {
                        let made = folder.join("z");
                        to.shares_extents() && made.exists() && shares(&made)
                    });
                    let may = from == to && to.shares_extents() && reflink != "--reflink=never";
                    if is_shared[0] != is_shared[1] {
                        text += &format!("  shared, gnu and ours: {is_shared:?}\n");
                    }
                    if name == "data" && is_shared[1] != may {
                        text += &format!("  shared: {}\n", is_shared[1]);
                    }
                    if !text.is_empty() {
                        wrong.push((format!("{reflink} {name} {from:?} to {to:?}"), text));
                    }
                    twins.remove();
                }
            }
        }
    }
    assert_alike(&wrong);
}

/// Each subvolume of btrfs has its own device number, but subvolumes can share extents.
#[test]
fn btrfs_subvolumes_share_extents() {
    if !met_or_skip(&[Need::Program("btrfs"), Need::Program("filefrag")]) {
        return;
    }
    let Some(room) = shared_dir(FsKind::Btrfs) else { return };
    let subvolume = room.path().join("sub");
    let made = Command::new("btrfs").args(["subvolume", "create"]).arg(&subvolume).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let source = subvolume.join("data");
    fs::write(&source, noise(LEN)).unwrap();
    for reflink in ["--reflink=auto", "--reflink=always"] {
        let twins = Twins::run(room.path(), "z", &[reflink.as_ref(), source.as_os_str(), "z".as_ref()]);
        assert_eq!(twins.differences("z", Facets::CONTENT), "");
        for folder in &twins.folders {
            assert!(shares(&folder.join("z")), "{reflink} {}", folder.display());
        }
        twins.remove();
    }
}

/// On btrfs a file without checksums and a file with checksums cannot share extents. This says
/// nothing about the following files.
#[test]
fn a_file_that_cannot_be_cloned_does_not_stop_other_clones() {
    if !met_or_skip(&[Need::Program("chattr"), Need::Program("filefrag")]) {
        return;
    }
    let Some(room) = shared_dir(FsKind::Btrfs) else { return };
    let source = room.path().join("source");
    fs::create_dir(&source).unwrap();
    let plain = source.join("a plain");
    File::create(&plain).unwrap();
    let attributed = Command::new("chattr").arg("+C").arg(&plain).output().unwrap();
    assert!(attributed.status.success(), "{attributed:?}");
    for name in ["a plain", "b", "c", "d"] {
        fs::write(source.join(name), noise(LEN)).unwrap();
    }
    let operands = ["a plain", "b", "c", "d"].map(|name| source.join(name));
    let args: Vec<_> =
        ["-pt".as_ref(), "z".as_ref()].into_iter().chain(operands.iter().map(|p| p.as_os_str())).collect();
    let twins = Twins::prepared(room.path(), "z", |folder| fs::create_dir(folder.join("z")).unwrap(), &args);
    assert_eq!(twins.differences("z", Facets { mtime: true, ..Facets::CONTENT }), "");
    for folder in &twins.folders {
        for (name, is_shared) in [("a plain", false), ("b", true), ("c", true), ("d", true)] {
            assert_eq!(shares(&folder.join("z").join(name)), is_shared, "{} {name}", folder.display());
        }
    }
    twins.remove();
}

/// A file without extents cannot be cloned: with `--reflink=always` haul reports that.
#[test]
fn cloning_devices_and_proc_files_is_handled_as_in_gnu() {
    let mut wrong = Vec::new();
    for (kind, room) in test_dirs() {
        fs::write(room.path().join("data"), noise(LEN)).unwrap();
        let data = room.path().join("data");
        for args in [
            ["--reflink=always".as_ref(), "/proc/version".as_ref(), "z".as_ref()],
            ["--reflink=always".as_ref(), "/dev/null".as_ref(), "z".as_ref()],
            ["--reflink=always".as_ref(), data.as_os_str(), "/dev/null".as_ref()],
            ["--reflink=auto".as_ref(), "/proc/version".as_ref(), "z".as_ref()],
            ["--reflink=auto".as_ref(), data.as_os_str(), "/dev/null".as_ref()],
        ] {
            let twins = Twins::run(room.path(), "z", &args);
            let text = twins.differences("z", Facets::CONTENT);
            if !text.is_empty() {
                wrong.push((format!("{kind:?} {args:?}"), text));
            }
            twins.remove();
        }
    }
    assert_alike(&wrong);
}
