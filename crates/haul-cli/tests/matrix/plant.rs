//! Trees of a row: sources with a file of each kind, and a sink that already has some of the names.

use crate::filesystems::everything::{set, set_times};
use haul_lab::random::Random;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// The sources: files `f`, `g` (also in the tree), `e`, `s`, the link `lf` and the directory
/// `tree`.
pub(crate) fn sources(dir: &Path) {
    fs::create_dir_all(dir.join("tree/sub/deep")).unwrap();
    fs::create_dir(dir.join("tree/none")).unwrap();
    for (name, len) in
        [("f", 300_000), ("g", 1000), ("e", 0), ("tree/sub/x", 140_000), ("tree/sub/deep/z", 65_536)]
    {
        fs::write(dir.join(name), bytes(len, len as u64 + 1)).unwrap();
    }
    for name in ["s", "tree/s"] {
        let sparse = File::create(dir.join(name)).unwrap();
        sparse.write_all_at(&bytes(70_000, 3), 200_000).unwrap();
        sparse.set_len(1 << 20).unwrap();
    }
    fs::write(dir.join("tree/zeros"), vec![0; 100_000]).unwrap();
    fs::hard_link(dir.join("tree/sub/x"), dir.join("tree/y")).unwrap();
    fs::hard_link(dir.join("g"), dir.join("tree/g")).unwrap();
    symlink("f", dir.join("lf")).unwrap();
    symlink("sub/x", dir.join("tree/l")).unwrap();
    symlink("nowhere", dir.join("tree/dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("tree/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    set(&dir.join("f"), "user.note", b"kept with -a");
    chown(dir.join("f"), Some(1234), Some(2345)).unwrap();
    for (name, mode) in [("f", 0o640), ("g", 0o4755), ("tree/sub/deep/z", 0o400), ("tree/sub/deep", 0o500)] {
        fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    set_times(dir);
}

/// The sink: the files `old` and `newer`, the link `dl` to the directory `dir`, with an older `f`,
/// a newer `g` and a `tree`.
pub(crate) fn sink(dir: &Path) {
    fs::create_dir_all(dir.join("dir/tree/sub")).unwrap();
    for (name, len) in [
        ("old", 300_000),
        ("newer", 10),
        ("dir/f", 10),
        ("dir/g", 1000),
        ("dir/tree/sub/x", 140_000),
        ("dir/tree/s", 70),
    ] {
        fs::write(dir.join(name), bytes(len, 99)).unwrap();
    }
    fs::write(dir.join("dir/tree/extra"), "of the sink alone").unwrap();
    symlink("elsewhere", dir.join("dir/tree/l")).unwrap();
    symlink("dir", dir.join("dl")).unwrap();
    fs::write(dir.join("dir/old"), "linked").unwrap();
    set_times(dir);
    for name in ["newer", "dir/g", "dir/tree/s"] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
        File::options().write(true).open(dir.join(name)).unwrap().set_modified(time).unwrap();
    }
    let older = SystemTime::UNIX_EPOCH + Duration::from_secs(900_000_000);
    for name in ["old", "dir/f", "dir/tree/sub/x"] {
        File::options().write(true).open(dir.join(name)).unwrap().set_modified(older).unwrap();
    }
}
