//! If files can share extents, a repaired file shares all intact data with the damaged file.

use super::{bytes, rot, run};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;

/// Returns the number of bytes of a file that are not shared, according to FIEMAP.
fn own_bytes(path: &Path) -> usize {
    File::open(path).unwrap().sync_all().unwrap();
    let output = Command::new("filefrag").args(["-v", "-b512"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // number: logical..logical: physical..physical: length: expected: flags
    let extents = text.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let own = extents.filter(|line| !line.contains("shared"));
    own.map(|line| line.split(':').nth(3).unwrap().trim().parse::<usize>().unwrap() * 512).sum()
}

#[test]
fn undamaged_extents_are_shared_and_not_rewritten() {
    if !met_or_skip(&[Need::Program("filefrag")]) {
        return;
    }
    for kind in [FsKind::Xfs, FsKind::Btrfs] {
        let Some(room) = shared_dir(kind) else { continue };
        for more in [&[][..], &["--in-place"]] {
            let home = tempfile::tempdir_in(room.path()).unwrap();
            let dir = home.path();
            fs::create_dir_all(dir.join("a/data")).unwrap();
            fs::create_dir(dir.join("data")).unwrap();
            fs::write(dir.join("data/big"), bytes(16 * MIB, 1)).unwrap();
            let sum = ["sum", "-r", "--object-size", "64K", "--waybill", "w", "data"];
            assert_eq!(run(dir, &sum).0, Some(0));
            assert_eq!(run(dir, &["cp", "-p", "--reflink=never", "data/big", "a/data/big"]).0, Some(0));
            rot(&dir.join("data/big"), |bytes| bytes[9 * MIB] ^= 1);
            // Data that is still shared with this file was not written.
            assert_eq!(run(dir, &["cp", "--reflink=always", "data/big", "damaged"]).0, Some(0));
            assert_eq!(own_bytes(&dir.join("data/big")), 0, "{kind:?}");
            let ended = run(dir, &[&["repair", "w", ".", "--from", "a"], more].concat());
            assert_eq!(ended.0, Some(0), "{kind:?}: {ended:?}");
            assert!(fs::read(dir.join("data/big")).unwrap() == bytes(16 * MIB, 1));
            let own = own_bytes(&dir.join("data/big"));
            assert!((1..=MIB).contains(&own), "{kind:?} {more:?}: {own} bytes of 16 MiB were written");
        }
    }
}
