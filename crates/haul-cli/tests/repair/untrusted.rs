//! Replicas that are not trusted: forged bytes with a correct checksum, and metadata of a replica.

use super::refused::crc32;
use super::{BIG, assert_whole, bytes, fixture, rot, run};
use haul_digest::Algorithm::{self, Adler32, Crc32, Md5, Sha256};
use haul_lab::needs::{Need, met_or_skip};
use haul_log::waybill::{Content, Entry, Job, Kind, ObjectDigests, Objects, Writer};
use haul_model::{ByteLen, Geometry, Moment, ObjectSize, RelPath};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Changes bytes, and then the last four bytes so that the CRC-32 stays the same.
///
/// The state of the CRC before the last four bytes, combined with these bytes by XOR, determines
/// the CRC.
pub(crate) fn forge_crc32(bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    let (before, len) = (crc32(0, bytes), bytes.len());
    let (head, tail) = bytes.split_at_mut(len - 4);
    let honest = crc32(0, head);
    change(head);
    let shift = (honest ^ crc32(0, head)).to_le_bytes();
    tail.iter_mut().zip(shift).for_each(|(byte, shift)| *byte ^= shift);
    assert_eq!(crc32(0, bytes), before, "the forgery has the same CRC");
}

/// Writes the waybill `w2` of `data/big` and `data/one`: digests of the whole files, and of objects
/// of 64 KiB unless `objects` is empty. haul's own waybills always have BLAKE3.
pub(crate) fn write_waybill(dir: &Path, whole: &[Algorithm], objects: &[Algorithm]) {
    let size = ObjectSize::new(65_536).unwrap();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &Job::default()).unwrap();
    for name in ["data/big", "data/one"] {
        let (bytes, facts) = (fs::read(dir.join(name)).unwrap(), fs::metadata(dir.join(name)).unwrap());
        let of = |bytes: &[u8], algorithms: &[Algorithm]| {
            algorithms.iter().map(|&algorithm| haul_digest::digest(algorithm, bytes)).collect::<Vec<_>>()
        };
        let division = || Objects { size, algorithms: objects.to_vec(), leaf: None };
        let content = Content {
            size: bytes.len() as u64,
            digests: of(&bytes, whole),
            way: None,
            level: None,
            objects: (!objects.is_empty()).then(division),
        };
        let lines = content.object_lines();
        let mtime = Moment { sec: facts.mtime(), nsec: facts.mtime_nsec() as u32 };
        let path = RelPath::new(name.as_bytes()).unwrap();
        writer.entry(&Entry { path, kind: Kind::File(content), mode: 0o644, mtime }).unwrap();
        for object in Geometry::new(ByteLen(bytes.len() as u64), size).objects().take(lines as usize) {
            let part = &bytes[object.range.start.0 as usize..object.range.end.0 as usize];
            writer.object(&ObjectDigests { index: object.index, digests: of(part, objects) }).unwrap();
        }
    }
    writer.close().unwrap();
    fs::write(dir.join("w2"), out).unwrap();
}

/// Forges the replica of `big` with `change`. The time stays as it was.
fn forge(path: &Path, range: std::ops::Range<usize>) {
    rot(path, |bytes| forge_crc32(&mut bytes[range], |bytes| bytes[..7].copy_from_slice(b"forged!")));
}

#[test]
fn forged_bytes_with_the_right_crc_are_not_accepted() {
    let reason = "cannot prove the bytes of a replica: crc32, the strongest digest in the waybill, can be \
                forged; use --trust-replica if you trust every replica";
    for (whole, objects) in [(&[Crc32][..], &[][..]), (&[Crc32], &[Crc32]), (&[Adler32, Crc32], &[])] {
        let home = fixture();
        let dir = home.path();
        write_waybill(dir, whole, objects);
        let big = dir.join("data/big");
        forge(&dir.join("a/data/big"), if objects.is_empty() { 0..BIG } else { 0..65_536 });
        rot(&big, |bytes| bytes[5] ^= 1);
        fs::remove_file(dir.join("data/one")).unwrap();
        let before = fs::read(&big).unwrap();
        let args = ["repair", "w2", ".", "--from", "a"];
        for more in [&["-n"][..], &["--in-place"], &[]] {
            let ended = run(dir, &[&args[..], more].concat());
            let line = |name: &str| format!("'data/{name}': not repaired: {reason}\n");
            assert_eq!(
                (ended.0, ended.1),
                (Some(1), line("big") + &line("one")),
                "{whole:?} {objects:?} {more:?}"
            );
            assert!(fs::read(&big).unwrap() == before && !dir.join("data/one").exists());
        }
        if whole.len() > 1 {
            continue;
        }
        // The user may trust the replica. haul then cannot detect the forgery.
        assert_eq!(run(dir, &[&args[..], &["--trust-replica"]].concat()).0, Some(0));
        assert!(fs::read(&big).unwrap().starts_with(b"forged!"));
        assert_eq!(run(dir, &["verify", "w2", "."]).0, Some(0));
    }
}

/// The objects have only a CRC, but the whole file has a cryptographic digest.
#[test]
fn cryptographic_digest_of_the_whole_file_rejects_forged_objects() {
    for (more, strong) in [(&[][..], Sha256), (&["--in-place"], Md5)] {
        let home = fixture();
        let dir = home.path();
        write_waybill(dir, &[Crc32, strong], &[Crc32]);
        let big = dir.join("data/big");
        forge(&dir.join("a/data/big"), 65_536..131_072);
        rot(&big, |bytes| bytes[70_000] ^= 1);
        let before = fs::read(&big).unwrap();
        let args = [&["repair", "w2", ".", "--from", "a"], more].concat();
        let ended = run(dir, &args);
        assert_eq!(ended.0, Some(1), "{ended:?}");
        assert!(ended.1.contains("no replica has the correct bytes"), "{ended:?}");
        assert!(fs::read(&big).unwrap() == before);
        assert_eq!(run(dir, &[&args[..], &["--from", "b"]].concat()).0, Some(0));
        assert!(fs::read(&big).unwrap() == bytes(BIG, BIG as u64 + 1));
        assert_whole(dir);
    }
}

#[test]
fn owner_mode_and_attributes_of_a_replica_are_not_used() {
    if !met_or_skip(&[Need::Root, Need::Program("setfattr"), Need::Program("getfattr")]) {
        return;
    }
    let home = fixture();
    let dir = home.path();
    let set_mode = |name: &str, mode| {
        fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    for name in ["a/data/small", "a/data/sub", "a/data/sub/x y"] {
        chown(dir.join(name), Some(65534), Some(65534)).unwrap();
        set_mode(name, 0o6777);
    }
    let script = "setfattr -n user.note -v planted a/data/small a/data/sub 'a/data/sub/x y'";
    assert!(Command::new("sh").args(["-c", script]).current_dir(dir).status().unwrap().success());
    rot(&dir.join("data/small"), |bytes| bytes[1] ^= 1);
    fs::remove_dir_all(dir.join("data/sub")).unwrap();
    assert_eq!(run(dir, &["repair", "w", ".", "--from", "a"]).0, Some(0));
    for (name, mode) in [("small", 0o644), ("sub", 0o700), ("sub/x y", 0o644)] {
        let facts = fs::metadata(dir.join("data").join(name)).unwrap();
        assert_eq!((facts.mode() & 0o7777, facts.uid(), facts.gid()), (mode, 0, 0), "{name}");
    }
    let shown = Command::new("getfattr").args(["-R", "-d", "data"]).current_dir(dir).output().unwrap();
    assert!(shown.status.success() && shown.stdout.is_empty(), "{shown:?}");
    assert_whole(dir);
}
