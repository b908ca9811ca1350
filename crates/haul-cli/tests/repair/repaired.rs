//! Damage that a replica can repair.

use super::{BIG, assert_whole, bytes, fixture, rot, run};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

#[test]
fn a_bit_flip_replaces_only_its_object() {
    let home = fixture();
    let dir = home.path();
    for object in 0..11 {
        let at = (object * 65_536 + 77).min(BIG - 1);
        rot(&dir.join("data/big"), |bytes| bytes[at] ^= 1);
        let before = fs::metadata(dir.join("data/big")).unwrap();
        let (status, out, _) = run(dir, &["repair", "w", ".", "--from", "a"]);
        let end = ((object + 1) * 65_536).min(BIG);
        let line = format!("'data/big': repaired: bytes {}-{end} from 'a'\n", object * 65_536);
        assert_eq!((status, out), (Some(0), line));
        let after = fs::metadata(dir.join("data/big")).unwrap();
        assert_eq!(
            (before.mode(), before.mtime_nsec(), before.uid()),
            (after.mode(), after.mtime_nsec(), after.uid())
        );
    }
    assert_whole(dir);
}

#[test]
fn every_kind_of_rot_is_repaired_and_the_damaged_data_kept() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change, &str); 4] = [
        ("zeroed", |bytes| bytes[100_000..140_000].fill(0), "65536-196608"),
        (
            "swapped objects",
            |bytes| {
                let (head, tail) = bytes.split_at_mut(131_072);
                head[..65_536].swap_with_slice(&mut tail[..65_536]);
            },
            "0-65536",
        ),
        ("all of it", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1), "0-700000"),
        ("the end", |bytes| bytes[BIG - 1] ^= 1, "655360-700000"),
    ];
    for (name, change, kept) in changes {
        let home = fixture();
        let dir = home.path();
        fs::set_permissions(dir.join("data/big"), fs::Permissions::from_mode(0o4640)).unwrap();
        rot(&dir.join("data/big"), change);
        fs::set_permissions(dir.join("data/big"), fs::Permissions::from_mode(0o4640)).unwrap();
        let hurt = fs::read(dir.join("data/big")).unwrap();
        let args = ["repair", "w", ".", "--from", "a", "--keep-damaged", "kept"];
        let ended = run(dir, &args);
        assert_eq!(ended.0, Some(0), "{name}: {ended:?}");
        assert_whole(dir);
        assert_eq!(fs::metadata(dir.join("data/big")).unwrap().mode() & 0o7777, 0o4640);
        let (start, end) = kept.split_once('-').unwrap();
        let range: std::ops::Range<usize> = start.parse().unwrap()..end.parse().unwrap();
        let path = dir.join(format!("kept/data/big.{kept}"));
        assert!(fs::read(&path).unwrap() == hurt[range.clone()], "{name}");
        // A second repair does not overwrite the kept data.
        rot(&dir.join("data/big"), |bytes| bytes[range.clone()].fill(9));
        assert_eq!(run(dir, &args).0, Some(0));
        assert!(fs::read(&path).unwrap() == hurt[range]);
        assert!(dir.join(format!("kept/data/big.{kept}.1")).exists(), "{name}");
    }
}

#[test]
fn a_hole_in_place_of_data_is_filled() {
    let home = fixture();
    let path = home.path().join("data/big");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(65_536).unwrap();
    file.set_len(BIG as u64).unwrap();
    file.set_modified(before).unwrap();
    let (status, out, _) = run(home.path(), &["repair", "w", ".", "--from", "b"]);
    assert_eq!((status, &*out), (Some(0), "'data/big': repaired: bytes 65536-700000 from 'b'\n"));
    assert_whole(home.path());
}

#[test]
fn damaged_replicas_complement_each_other() {
    let home = fixture();
    let dir = home.path();
    rot(&dir.join("data/big"), |bytes| bytes[..200_000].fill(7));
    rot(&dir.join("a/data/big"), |bytes| bytes[70_000] ^= 1);
    rot(&dir.join("b/data/big"), |bytes| bytes[10] ^= 1);
    let line = "'data/big': repaired: bytes 0-65536 from 'a', 65536-262144 from 'b'\n";
    let args = ["repair", "w", ".", "--from", "a", "--from", "b"];
    let before = fs::read(dir.join("data/big")).unwrap();
    let dry = run(dir, &[&args[..], &["--dry-run"]].concat());
    assert_eq!((dry.0, &*dry.1), (Some(0), &*line.replace("repaired", "would be repaired")));
    assert!(fs::read(dir.join("data/big")).unwrap() == before);
    let (status, out, _) = run(dir, &args);
    assert_eq!((status, &*out), (Some(0), line));
    assert_whole(dir);
}

#[test]
fn read_and_output_options_do_not_change_the_repair() {
    for (args, is_silent) in [
        (&["--cached", "--threads=1"][..], false),
        (&["--threads", "5", "--progress"], false),
        (&["-q"], true),
    ] {
        let home = fixture();
        let dir = home.path();
        rot(&dir.join("data/big"), |bytes| bytes[70_000] ^= 1);
        let (status, out, err) = run(dir, &[&["repair", "w", ".", "--from", "a"], args].concat());
        let line = "'data/big': repaired: bytes 65536-131072 from 'a'\n";
        assert_eq!((status, &*out, err.is_empty()), (Some(0), line, is_silent), "{args:?}: {err}");
        assert_whole(dir);
    }
}

#[test]
fn missing_files_are_created_with_mode_and_time() {
    let home = fixture();
    let dir = home.path();
    let before = fs::metadata(dir.join("data/sub/x y")).unwrap();
    fs::remove_dir_all(dir.join("data/sub")).unwrap();
    fs::remove_file(dir.join("data/empty")).unwrap();
    let (status, out, _) = run(dir, &["repair", "w", ".", "--from", "a"]);
    assert_eq!(status, Some(0), "{out}");
    assert!(out.contains("'data/empty': made\n"), "{out}");
    assert!(out.contains("'data/sub/x y': made: bytes 0-5000 from 'a'\n"), "{out}");
    let after = fs::metadata(dir.join("data/sub/x y")).unwrap();
    assert_eq!(
        (before.mode(), before.mtime(), before.mtime_nsec()),
        (after.mode(), after.mtime(), after.mtime_nsec())
    );
    assert_whole(dir);
}

#[test]
fn modified_files_are_kept_without_the_modified_option() {
    let changes: [fn(&Path); 3] = [
        |path| fs::write(path, bytes(BIG, 3)).unwrap(),
        |path| rot(path, |bytes| bytes.truncate(65_537)),
        |path| rot(path, |bytes| bytes.extend_from_slice(b"more")),
    ];
    for change in changes {
        let home = fixture();
        let dir = home.path();
        change(&dir.join("data/big"));
        let changed = fs::read(dir.join("data/big")).unwrap();
        let args = ["repair", "w", ".", "--from", "a"];
        let (status, out, _) = run(dir, &args);
        assert_eq!(status, Some(1));
        assert!(out.starts_with("'data/big': not repaired: ") && out.contains("--modified"), "{out}");
        assert!(fs::read(dir.join("data/big")).unwrap() == changed);
        assert_eq!(run(dir, &[&args[..], &["--modified"]].concat()).0, Some(2), "it needs --keep-damaged");
        let ended = run(dir, &[&args[..], &["--modified", "--keep-damaged", "kept"]].concat());
        assert_eq!(ended.0, Some(0), "{ended:?}");
        assert_whole(dir);
        let kept = fs::read(dir.join(format!("kept/data/big.0-{}", changed.len()))).unwrap();
        assert!(kept == changed);
    }
}

#[test]
fn a_serial_digest_needs_an_undamaged_replica() {
    let home = fixture();
    let dir = home.path();
    let args = ["sum", "-r", "-a", "md5", "--waybill", "w2", "data"];
    assert_eq!(run(dir, &args).0, Some(0));
    rot(&dir.join("data/big"), |bytes| bytes[5] ^= 1);
    rot(&dir.join("a/data/big"), |bytes| bytes[600_000] ^= 1);
    let (status, out, _) = run(dir, &["repair", "w2", ".", "--from", "a"]);
    assert_eq!(status, Some(1));
    assert_eq!(out, "'data/big': not repaired: no replica has the correct bytes 0-700000\n");
    let (status, out, _) = run(dir, &["repair", "w2", ".", "--from", "a", "--from", "b"]);
    assert_eq!((status, &*out), (Some(0), "'data/big': repaired: bytes 0-700000 from 'b'\n"));
    assert_whole(dir);
}
