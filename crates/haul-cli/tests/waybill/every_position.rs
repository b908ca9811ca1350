//! Damage at each position: in each object of the data, in each byte of a waybill, and at each
//! length of a waybill.

use super::{RunResult, good, pattern, rot, run, tree};
use haul_model::ByteRange;
use haul_sys::sparse::{Support, punch_hole};
use std::fs::{self, File};
use std::path::Path;

const OBJECT: usize = 65_536;

/// Size of `data/big` in bytes: ten objects and a part of one.
const BIG: usize = 700_000;

/// Returns a directory with a tree and a waybill `w` with objects of 64 KiB.
fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "-a", "blake3,md5", "--object-size", "64K", "--waybill", "w", "data"]);
    dir
}

/// Changes `data/big` without changing its time, verifies it, and restores its contents.
fn damaged(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> RunResult {
    let path = dir.join("data/big");
    rot(&path, change);
    let ran = run(dir, &["verify", "-q", "w"]);
    rot(&path, |bytes| *bytes = pattern(BIG, BIG as u64 + 1));
    ran
}

fn range(object: usize) -> (usize, usize) {
    (object * OBJECT, ((object + 1) * OBJECT).min(BIG))
}

#[track_caller]
fn is_rot(ran: &RunResult, ranges: &str) {
    let expected = format!("'data/big': rotted: bytes {ranges}\n");
    assert_eq!((ran.status, &*ran.out, &*ran.err), (Some(1), &*expected, ""));
}

#[test]
fn a_flipped_first_or_last_bit_of_each_object_is_detected() {
    let dir = fixture();
    for object in 0..11 {
        let (start, end) = range(object);
        for (at, bit) in [(start, 0), (end - 1, 7)] {
            is_rot(&damaged(dir.path(), |bytes| bytes[at] ^= 1 << bit), &format!("{start}-{end}"));
        }
    }
}

#[test]
fn zeroed_and_swapped_objects_are_detected() {
    let dir = fixture();
    for object in 0..11 {
        let (start, end) = range(object);
        is_rot(&damaged(dir.path(), |bytes| bytes[start..end].fill(0)), &format!("{start}-{end}"));
    }
    // The last object is shorter and is not swapped.
    for object in 0..9 {
        let (start, end) = range(object);
        let swap = |bytes: &mut Vec<u8>| {
            let (head, tail) = bytes.split_at_mut(end);
            head[start..].swap_with_slice(&mut tail[..OBJECT]);
        };
        is_rot(&damaged(dir.path(), swap), &format!("{start}-{}", end + OBJECT));
    }
}

#[test]
fn a_hole_in_place_of_each_object_is_detected() {
    let dir = fixture();
    let path = dir.path().join("data/big");
    for object in 0..11 {
        let (start, end) = range(object);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        if punch_hole(&file, ByteRange::between(start as u64, end as u64)).unwrap() != Support::Done {
            let right = fs::read(&path).unwrap();
            // If the file system cannot punch a hole, the file is rewritten with one.
            use std::os::unix::fs::FileExt;
            file.set_len(0).unwrap();
            file.write_all_at(&right[..start], 0).unwrap();
            file.write_all_at(&right[end..], end as u64).unwrap();
            file.set_len(BIG as u64).unwrap();
        }
        file.set_modified(time).unwrap();
        is_rot(&run(dir.path(), &["verify", "-q", "w"]), &format!("{start}-{end}"));
        rot(&path, |bytes| *bytes = pattern(BIG, BIG as u64 + 1));
    }
    good(dir.path(), &["verify", "-q", "w"]);
}

/// Returns a directory and a small waybill with every kind of line.
fn small() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/two objects"), pattern(OBJECT + 1, 1)).unwrap();
    fs::write(dir.path().join("data/small"), pattern(10, 2)).unwrap();
    fs::hard_link(dir.path().join("data/small"), dir.path().join("data/same")).unwrap();
    std::os::unix::fs::symlink("small", dir.path().join("data/link")).unwrap();
    let cp = ["cp", "-a", "--split-size=64K", "--reflink=never", "--waybill", "w", "data", "copy"];
    good(dir.path(), &cp);
    good(dir.path(), &["verify", "-q", "w", "."]);
    let waybill = fs::read(dir.path().join("w")).unwrap();
    (dir, waybill)
}

#[test]
fn a_flipped_bit_in_a_waybill_is_reported_by_line() {
    let (dir, whole) = small();
    let mut line = 1;
    for at in 0..whole.len() {
        let mut hurt = whole.clone();
        hurt[at] ^= 1 << (at % 8);
        fs::write(dir.path().join("w"), &hurt).unwrap();
        let ran = run(dir.path(), &["verify", "-q", "w", "."]);
        assert_eq!((ran.status, &*ran.out), (Some(2), ""), "byte {at}: {}", ran.err);
        // Some bytes of the first line identify the file as a waybill.
        let reported = ran.err.contains(&format!("line {line}: "))
            || (line == 1 && ran.err.contains("nothing was verified"));
        assert!(reported, "byte {at} of line {line}: {}", ran.err);
        line += usize::from(whole[at] == b'\n');
    }
}

#[test]
fn a_waybill_truncated_at_any_length_is_reported() {
    let (dir, whole) = small();
    for len in 0..whole.len() {
        fs::write(dir.path().join("w"), &whole[..len]).unwrap();
        let ran = run(dir.path(), &["verify", "-q", "w", "."]);
        assert_eq!((ran.status, &*ran.out), (Some(2), ""), "{len} bytes: {}", ran.err);
        let reported = ran.err.contains("truncated") || ran.err.contains("nothing was verified");
        assert!(reported, "{len} bytes: {}", ran.err);
    }
}
