//! A tree with everything that a file system can store.

use haul_lab::random::Random;
use haul_lab::random_tree::RandomTree;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Optional contents of the tree, in addition to files, directories, links, modes, owners and
/// times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds {
    /// Access control lists.
    pub(crate) lists: bool,
    /// Extended attributes.
    pub(crate) attributes: bool,
}

/// Builds the tree at `root`. Needs root.
pub(crate) fn build(root: &Path, holds: Holds) {
    fs::create_dir(root).unwrap();
    let random = RandomTree { xattrs: holds.attributes, hard_modes: true, ..RandomTree::default() };
    random.build(&root.join("random"), 4_711).unwrap();
    let special = root.join("special");
    fs::create_dir(&special).unwrap();
    nodes(&special);
    files(&special);
    owners(&special);
    if holds.attributes {
        attributes(&special);
    }
    if holds.lists {
        lists(&special);
    }
    set_times(&special);
    set_time(root, 3);
    // Before a sync, XFS reports preallocated space as data to the first reader.
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

fn nodes(dir: &Path) {
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("pipe", FileType::Fifo, 0),
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("loop7", FileType::BlockDevice, rustix::fs::makedev(7, 7)),
        ("far", FileType::CharacterDevice, rustix::fs::makedev(511, 70_000)),
    ] {
        mknodat(CWD, dir.join(name), kind, mode, device).unwrap();
    }
    // The file remains after the listener is dropped. The path of a socket is limited, so that the
    // socket is bound through a short path.
    let short = tempfile::tempdir_in("/tmp").unwrap();
    let link = short.path().join("d");
    symlink(dir, &link).unwrap();
    UnixListener::bind(link.join("socket")).unwrap();
}

fn files(dir: &Path) {
    let mut bytes = vec![0; (5 << 20) + 77];
    Random::from_seed(9).fill(&mut bytes);
    fs::write(dir.join("large"), &bytes).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    for at in [0, 1 << 20, 9 << 20] {
        sparse.write_all_at(&bytes[..70_000], at).unwrap();
    }
    sparse.set_len(20 << 20).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::hard_link(dir.join("large"), dir.join("sub/other name")).unwrap();
    fs::hard_link(dir.join("pipe"), dir.join("sub/other pipe")).unwrap();
    symlink("../large", dir.join("sub/link")).unwrap();
    fs::create_dir(dir.join("empty dir")).unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755), ("closed", 0), ("write only", 0o222)] {
        fs::write(dir.join(name), name).unwrap();
        fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::create_dir(dir.join("sticky")).unwrap();
    fs::set_permissions(dir.join("sticky"), PermissionsExt::from_mode(0o3777)).unwrap();
}

fn owners(dir: &Path) {
    for (name, uid, gid, mode) in [
        ("theirs", 12_345, 54_321, 0o640),
        ("theirs setuid", 12_345, 54_321, 0o6751),
        ("group only", 0, 54_321, 0o2770),
    ] {
        fs::write(dir.join(name), name).unwrap();
        chown(dir.join(name), Some(uid), Some(gid)).unwrap();
        fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("nowhere", dir.join("their-link")).unwrap();
    std::os::unix::fs::lchown(dir.join("their-link"), Some(12_345), Some(54_321)).unwrap();
    fs::create_dir(dir.join("their dir")).unwrap();
    fs::write(dir.join("their dir/file"), b"in it").unwrap();
    chown(dir.join("their dir"), Some(12_345), Some(54_321)).unwrap();
}

pub(crate) fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{name} {}: {e}", path.display()));
}

fn attributes(dir: &Path) {
    for name in ["tagged", "capable"] {
        fs::write(dir.join(name), name).unwrap();
    }
    set(&dir.join("tagged"), "user.empty", b"");
    set(&dir.join("tagged"), "user.long", &[7; 2000]);
    set(&dir.join("tagged"), "user.odd \u{e9}\u{1}", &[0, 255, 0]);
    set(&dir.join("tagged"), "trusted.haul", b"for root");
    set(&dir.join("sub"), "user.on a directory", b"yes");
    set(&dir.join("sub/link"), "trusted.on a link", b"yes");
    // struct vfs_cap_data, revision 2, effective: CAP_NET_BIND_SERVICE (bit 10), low words first.
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    let capability: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    set(&dir.join("capable"), "security.capability", &capability);
}

/// Returns an ACL in the format of the kernel (linux/posix_acl_xattr.h): version 2, then tag,
/// permission and ID of each entry, little-endian. It has one additional user, one additional
/// group, and a mask.
pub(super) fn list(user: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 6] = [
        (0x01, 6, NOBODY),
        (0x02, user, 4_321),
        (0x04, 4, NOBODY),
        (0x08, 5, 1_234),
        (0x10, 6, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permission, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permission.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn lists(dir: &Path) {
    fs::write(dir.join("listed"), b"with a list").unwrap();
    fs::create_dir(dir.join("listed dir")).unwrap();
    set(&dir.join("listed"), "system.posix_acl_access", &list(7));
    set(&dir.join("listed dir"), "system.posix_acl_access", &list(5));
    set(&dir.join("listed dir"), "system.posix_acl_default", &list(6));
    // New files in the directory inherit its list. A file without a list in the source must have
    // none in the copy.
    fs::write(dir.join("listed dir/heir"), b"inherits").unwrap();
    fs::write(dir.join("listed dir/plain"), b"does not").unwrap();
    rustix::fs::lremovexattr(dir.join("listed dir/plain"), "system.posix_acl_access").unwrap();
    fs::create_dir(dir.join("listed dir/sub")).unwrap();
}

/// Sets a different time, with nanoseconds, for each name beneath a path, children before their
/// parents.
pub(crate) fn set_times(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            set_times(&entry.unwrap().path());
        }
    }
    set_time(path, i64::try_from(path.as_os_str().len()).unwrap());
}

fn set_time(path: &Path, seed: i64) {
    let time = Timespec { tv_sec: 1_000_000_000 + seed, tv_nsec: 123_456_789 + seed };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
