//! Places that cannot be written, full disks, and waybills and replicas with paths out of the root.
//! Each file stays unchanged, and haul names it with the reason.

use super::{BIG, bytes, rot, run};
use crate::faults::fixture::{RunResult, Running, copy_haul};
use haul_lab::mounts::{Access, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

const MIB: usize = 1 << 20;

/// User ID of `nobody` on Linux.
const NOBODY: u32 = 65534;

/// Creates the usual test directory with a copy of the binary, accessible to all users. The user
/// owns `data`, two of its files, and `data/sub`.
fn user_fixture() -> Option<tempfile::TempDir> {
    if !met_or_skip(&[Need::Root, Need::Program("setpriv")]) {
        return None;
    }
    let home = super::fixture();
    set_mode(home.path(), 0o755);
    copy_haul(&home.path().join("haul"));
    for name in ["data", "data/big", "data/sub", "data/sub/x y"] {
        chown(home.path().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    Some(home)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Runs `haul repair` as that user.
fn repair_as_user(dir: &Path, more: &[&str]) -> RunResult {
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    let mut command = Command::new("setpriv");
    command.args([&*user, &*group, "--clear-groups", "--"]).arg(dir.join("haul"));
    Running::new(command.args(["repair", "w", ".", "--from", "a"]).args(more).current_dir(dir)).end()
}

#[test]
fn files_without_permission_are_reported_and_unchanged() {
    let Some(home) = user_fixture() else { return };
    let dir = home.path();
    let big = dir.join("data/big");
    rot(&big, |bytes| bytes[70_000] ^= 1);
    let before = fs::read(&big).unwrap();
    let left = |more: &[&str], words: &str| {
        let ended = repair_as_user(dir, more);
        let line = format!("'data/big': not repaired: {words}\n");
        assert_eq!((ended.code, &*ended.stdout), (Some(1), &*line), "{more:?}: {ended:?}");
        assert!(fs::read(&big).unwrap() == before);
        let names = fs::read_dir(dir.join("data")).unwrap().flatten();
        assert!(names.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("haul")));
    };
    // The directory is not writable: haul can create neither a file next to the damaged one nor a
    // journal.
    set_mode(&dir.join("data"), 0o555);
    left(&[], "cannot create a temporary file: Permission denied");
    left(&["--in-place"], "cannot write the journal of the replaced bytes: Permission denied");
    set_mode(&dir.join("data"), 0o755);
    // The file is not writable.
    set_mode(&big, 0o444);
    left(&["--in-place"], "cannot open the file for writing: Permission denied");
    set_mode(&big, 0);
    let ended = repair_as_user(dir, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.starts_with("'data/big': not repaired: "), "{ended:?}");
    assert!(ended.stdout.contains("Permission denied"), "{ended:?}");
    // The file belongs to another user and is writable for all: only its owner can set its times.
    set_mode(&big, 0o666);
    chown(&big, Some(0), Some(0)).unwrap();
    left(&["--in-place"], "cannot restore the times of the file: Operation not permitted");
    left(&[], "cannot set the owner of the repaired file: Operation not permitted");
    chown(&big, Some(NOBODY), Some(NOBODY)).unwrap();
    // The replica is not readable.
    set_mode(&dir.join("a/data/big"), 0);
    left(
        &[],
        "no replica has the correct bytes 65536-131072; cannot read the file in 'a': Permission denied",
    );
    set_mode(&dir.join("a/data/big"), 0o644);
    for more in [&[][..], &["--in-place"]] {
        rot(&big, |bytes| bytes[..100].fill(1));
        let ended = repair_as_user(dir, more);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(fs::metadata(&big).unwrap().uid(), NOBODY);
    }
    super::assert_whole(dir);
}

/// A user who may write in a directory could leave a journal there that makes root write into one
/// of root's files.
#[test]
fn a_journal_of_another_user_is_not_replayed() {
    let Some(home) = user_fixture() else { return };
    let dir = home.path();
    let store = dir.join("data");
    rot(&store.join("big"), |bytes| bytes[0] ^= 1);
    let name = format!(".haul-journal-{}", haul_digest::digest(haul_digest::Algorithm::Xxh64, b"big"));
    fs::write(store.join(&name), "anything").unwrap();
    chown(store.join(&name), Some(NOBODY), Some(NOBODY)).unwrap();
    let ignored = |number: &str| {
        let ended = run(dir, &["repair", "w", ".", "--from", "a"]);
        assert_eq!(
            (ended.0, &*ended.1),
            (Some(0), "'data/big': repaired: bytes 0-65536 from 'a'\n"),
            "{ended:?}"
        );
        let aside = format!("{name}.untrusted{number}");
        let reason = format!("not a file that only this user can write; renamed it to {aside}; remove it");
        assert!(ended.2.contains(&reason), "{ended:?}");
        store.join(aside)
    };
    assert_eq!(fs::read(ignored("")).unwrap(), b"anything");
    for number in [".1", ".2", ".3"] {
        rot(&store.join("big"), |bytes| bytes[0] ^= 1);
        match number {
            ".1" => symlink(dir.join("w"), store.join(&name)).unwrap(),
            ".2" => fs::create_dir(store.join(&name)).unwrap(),
            _ => {
                fs::write(store.join(&name), "anything").unwrap();
                set_mode(&store.join(&name), 0o666);
            }
        }
        assert!(fs::symlink_metadata(ignored(number)).is_ok());
    }
    assert_eq!(run(dir, &["verify", "-q", "w", "."]).0, Some(0));
}

/// Creates a small file system with a tree that is larger than the remaining space, and its replica
/// on another file system.
fn nearly_full() -> Option<(SmallFs, tempfile::TempDir)> {
    let small = met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]).then(|| SmallFs::new(48).unwrap())?;
    let home = tempfile::tempdir().unwrap();
    let (dir, data) = (home.path(), small.path().join("data"));
    fs::create_dir(&data).unwrap();
    fs::write(data.join("big"), bytes(16 * MIB, 1)).unwrap();
    let root = small.path();
    let root = root.to_str().unwrap();
    let sum = ["sum", "-r", "--object-size", "64K", "--waybill", "w", &format!("{root}/data")];
    assert_eq!(run(dir, &sum).0, Some(0));
    fs::create_dir(dir.join("a")).unwrap();
    assert_eq!(run(dir, &["cp", "-aT", data.to_str().unwrap(), "a"]).0, Some(0));
    rot(&data.join("big"), |bytes| {
        bytes[5 * MIB] ^= 1;
        bytes[9 * MIB..10 * MIB].fill(0);
    });
    Some((small, home))
}

#[test]
fn a_full_disk_leaves_the_file_unchanged_and_in_place_succeeds() {
    let Some((small, home)) = nearly_full() else { return };
    let (dir, root) = (home.path(), small.path().join("data"));
    let big = root.join("big");
    let before = fs::read(&big).unwrap();
    let repair =
        |more: &[&str]| run(dir, &[&["repair", "w", root.to_str().unwrap(), "--from", "a"], more].concat());
    for (left, more, words) in [
        (
            8 * MIB,
            &[][..],
            "cannot write a repaired copy of 16.0 MiB next to the file: No space left on device; free space, or use --in-place",
        ),
        (MIB / 2, &["--in-place"], "cannot write the journal of the replaced bytes: No space left on device"),
    ] {
        small.leave(left as u64).unwrap();
        let ended = repair(more);
        assert_eq!(ended.0, Some(1), "{ended:?}");
        assert!(ended.1.starts_with(&format!("'big': not repaired: {words}")), "{ended:?}");
        assert!(fs::read(&big).unwrap() == before);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "nothing is left beside it");
    }
    small.leave(3 * MIB as u64).unwrap();
    let ended = repair(&["--in-place"]);
    assert_eq!(ended.0, Some(0), "{ended:?}");
    assert!(fs::read(&big).unwrap() == bytes(16 * MIB, 1));
    small.close().unwrap();
}

/// There is space for the repaired copy of one file, and not for those of all workers.
#[test]
fn files_that_fit_one_by_one_are_repaired_by_several_workers() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let (small, home) = (SmallFs::new(48).unwrap(), tempfile::tempdir().unwrap());
    let (dir, root) = (home.path(), small.path().join("data"));
    for folder in [&dir.join("a"), &root] {
        fs::create_dir(folder).unwrap();
        for number in 0..16 {
            fs::write(folder.join(format!("f{number}")), bytes(MIB, number)).unwrap();
        }
    }
    let root = root.to_str().unwrap();
    assert_eq!(run(dir, &["sum", "-r", "--waybill=w", root]).0, Some(0));
    for number in 0..16 {
        rot(&Path::new(root).join(format!("f{number}")), |bytes| bytes[5] ^= 1);
    }
    small.leave(3 * MIB as u64 / 2).unwrap();
    let ended = run(dir, &["repair", "w", root, "--from", "a", "--threads=8"]);
    assert!(ended.0 == Some(0) && ended.2.contains("16 repaired"), "{ended:?}");
    for number in 0..16 {
        assert!(fs::read(Path::new(root).join(format!("f{number}"))).unwrap() == bytes(MIB, number));
    }
    small.close().unwrap();
}

#[test]
fn a_read_only_disk_is_reported_and_unchanged() {
    let Some((small, home)) = nearly_full() else { return };
    let (dir, root) = (home.path(), small.path().join("data"));
    let before = fs::read(root.join("big")).unwrap();
    small.set_access(Access::ReadOnly).unwrap();
    for (more, words) in [
        (&[][..], "cannot create a temporary file: Read-only file system"),
        (&["--in-place"], "cannot open the file for writing: Read-only file system"),
    ] {
        let ended = run(dir, &[&["repair", "w", root.to_str().unwrap(), "--from", "a"], more].concat());
        assert_eq!((ended.0, &*ended.1), (Some(1), &*format!("'big': not repaired: {words}\n")), "{ended:?}");
    }
    small.set_access(Access::ReadWrite).unwrap();
    assert!(fs::read(root.join("big")).unwrap() == before);
    small.close().unwrap();
}

/// Returns zlib's CRC-32 of `bytes`, continued from `before`, computed bit by bit.
pub(crate) fn crc32(before: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!before, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

/// Returns a waybill of one section that is valid except for the contents of its entries.
pub(crate) fn forged(entries: &[String]) -> String {
    let mut text = String::new();
    let mut crc = 0;
    let mut line = |body: &str, text: &mut String| {
        let body = format!("{body} ");
        crc = crc32(crc, body.as_bytes());
        text.push_str(&format!("{body}{crc:08x}\n"));
    };
    line("surehaul-waybill version=1 section=1 at=2026-01-01T00:00:00Z program=x root=. run=x", &mut text);
    entries.iter().for_each(|entry| line(entry, &mut text));
    let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, text.as_bytes());
    let (all, files) = (entries.len(), entries.iter().filter(|entry| entry.starts_with("file ")).count());
    let end = format!(
        "end section=1 entries={all} files={files} bytes={} lines={} blake3={digest}",
        8 * files,
        all + 1
    );
    line(&end, &mut text);
    text
}

/// Returns the entry of a file with the eight bytes of `precious`.
pub(crate) fn entry(path: &str) -> String {
    let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, b"precious");
    format!("file path={path} size=8 mode=0644 mtime=0.000000000 blake3={digest}")
}

/// Returns a waybill with a damaged line below a file of 4 EiB, and then the last object of that
/// file. With the digests of all objects before it, the list of them would take 2 PiB.
pub(crate) fn with_a_far_object() -> String {
    let file = "file path=f size=4611686018427387904 mode=0644 mtime=0.000000000 object=65536 of=blake3";
    let value = "A".repeat(42);
    let lines = [file.to_owned(), format!("0 {value}A"), format!("70368744177663 {value}Q")];
    forged(&lines).replacen("\n0 A", "\n0 B", 1)
}

/// Returns entries that are not regular files. They would be created, changed or read through the
/// links `absolute`, `relative` and `dangling` out of the root. The targets contain `f`, and `new`
/// does not exist.
pub(crate) fn names_that_lead_out() -> Vec<Vec<String>> {
    const FACTS: &str = "mode=0777 mtime=1.000000000";
    let one = |entry: &str| vec![format!("{entry} {FACTS}")];
    vec![
        one("dir path=absolute"),
        one("dir path=dangling"),
        one("dir path=absolute/new"),
        one("dir path=relative/new/deeper"),
        one("link path=absolute/new target=f"),
        one("link path=relative/f target=elsewhere"),
        one("fifo path=relative/new"),
        // A second name of a file outside the root, and a second name outside the root of a file
        // inside.
        vec![entry("absolute/f"), format!("same path=sub/new first=absolute/f {FACTS}")],
        vec![entry("sub/f"), format!("same path=relative/new first=sub/f {FACTS}")],
    ]
}

/// Returns a snapshot of the root and its surroundings: each name, with contents and times.
fn surroundings(dir: &Path) -> Snapshot {
    Snapshot::take(dir).unwrap()
}

#[test]
fn malicious_waybills_neither_read_nor_write_outside_the_root() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, waybill) = (home.path(), elsewhere.path().join("w"));
    let kept = elsewhere.path().join("kept");
    let ways: [&[&str]; 2] = [&[], &["--in-place", "--modified", "--keep-damaged", kept.to_str().unwrap()]];
    let repair = |path: &str, way: &[&str]| {
        // The name `here` exists, because a root without any of the names is refused.
        fs::write(&waybill, forged(&[entry("here"), entry(path)])).unwrap();
        run(dir, &[&["repair", waybill.to_str().unwrap(), "root", "--from", "replica"], way].concat())
    };
    for name in ["root/sub", "replica/sub", "outside"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    let through = [
        "absolute/f",
        "relative/f",
        "again/f",
        "last",
        "dangling",
        "absolute/new",
        "relative/deep/new",
        "magic/f",
    ];
    // The replica has the right bytes for each of the names.
    for path in through.iter().chain(&["f", "sub/f"]).map(|path| dir.join("replica").join(path)) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    fs::write(dir.join("outside/f"), "theirs!!").unwrap();
    fs::write(dir.join("root/here"), "precious").unwrap();
    // Links out of the root: as the last component and as a directory, absolute and relative, and
    // one link to a link.
    symlink(dir.join("outside"), dir.join("root/absolute")).unwrap();
    symlink("../outside", dir.join("root/relative")).unwrap();
    symlink("relative", dir.join("root/again")).unwrap();
    symlink("../outside/f", dir.join("root/last")).unwrap();
    symlink("../outside/none", dir.join("root/dangling")).unwrap();
    symlink("/proc/self/root", dir.join("root/magic")).unwrap();
    let before = surroundings(dir);
    let absolute = dir.join("outside/f").to_str().unwrap().to_owned();
    let climbing = [
        "../outside/f",
        "sub/../../outside/f",
        &absolute,
        "/etc/hostname",
        "./../outside/f",
        "sub//f",
        ".",
        "",
    ];
    for path in climbing {
        for way in ways {
            let ended = repair(path, way);
            assert_eq!((ended.0, &*ended.1), (Some(2), ""), "{path}: {ended:?}");
            assert!(ended.2.contains("line 3: ") && ended.2.contains("nothing was repaired"), "{}", ended.2);
        }
        before.assert_same(&surroundings(dir), Facets::ALL);
    }
    for path in through {
        for way in ways {
            let ended = repair(path, way);
            assert_eq!(ended.0, Some(1), "{path}: {ended:?}");
            assert!(ended.1.contains(": not repaired: "), "{path}: {ended:?}");
        }
        before.assert_same(&surroundings(dir), Facets::ALL);
    }
    // The same waybill works for a name inside the root.
    assert_eq!(repair("sub/f", &[]).0, Some(0));
    assert_eq!(fs::read(dir.join("root/sub/f")).unwrap(), b"precious");
    let before = surroundings(dir);
    for entries in names_that_lead_out() {
        fs::write(&waybill, forged(&[vec![entry("here")], entries.clone()].concat())).unwrap();
        for way in ways {
            let ended = run(
                dir,
                &[&["repair", waybill.to_str().unwrap(), "root", "--from", "replica"], way].concat(),
            );
            assert_eq!(ended.0, Some(1), "{entries:?}: {ended:?}");
            assert!(ended.1.contains(": not repaired: "), "{entries:?}: {ended:?}");
        }
        before.assert_same(&surroundings(dir), Facets::ALL);
    }
    // Such names are created if they are within the root.
    let made = ["dir path=sub/d", "link path=sub/l target=f"];
    let made = made.map(|entry| format!("{entry} mode=0755 mtime=1.000000000"));
    fs::write(&waybill, forged(&[vec![entry("here")], made.to_vec()].concat())).unwrap();
    let ended = run(dir, &["repair", waybill.to_str().unwrap(), "root", "--from", "replica"]);
    assert_eq!(ended.0, Some(0), "{ended:?}");
    assert!(dir.join("root/sub/d").is_dir());
    assert_eq!(fs::read_link(dir.join("root/sub/l")).unwrap(), Path::new("f"));
}

/// A link of a replica may lead to a secret of the user who runs the repair. The secret would be
/// copied into a file that other users can read.
#[test]
fn replica_links_are_followed_only_within_the_replica() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["root", "replica/inside", "outside"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    fs::write(dir.join("outside/f"), "precious").unwrap();
    fs::write(dir.join("replica/inside/f"), "precious").unwrap();
    fs::write(dir.join("root/here"), "precious").unwrap();
    symlink(dir.join("outside"), dir.join("replica/absolute")).unwrap();
    symlink("../outside", dir.join("replica/relative")).unwrap();
    symlink("../outside/f", dir.join("replica/last")).unwrap();
    symlink("inside", dir.join("replica/within")).unwrap();
    for (path, comes) in [("absolute/f", false), ("relative/f", false), ("last", false), ("within/f", true)] {
        fs::write(dir.join("w"), forged(&[entry("here"), entry(path)])).unwrap();
        let ended = run(dir, &["repair", "w", "root", "--from", "replica"]);
        assert_eq!(ended.0, Some(i32::from(!comes)), "{path}: {ended:?}");
        assert_eq!(dir.join("root").join(path).exists(), comes, "{path}");
        if !comes {
            assert!(ended.1.contains("no replica has the correct bytes 0-8"), "{path}: {ended:?}");
        }
    }
}

#[test]
fn swapped_files_and_objects_are_repaired() {
    let home = super::fixture();
    let dir = home.path();
    let data = dir.join("data");
    fs::write(data.join("other"), bytes(BIG, 99)).unwrap();
    assert_eq!(run(dir, &["sum", "--object-size", "64K", "--waybill", "w", "data/other"]).0, Some(0));
    fs::copy(data.join("other"), dir.join("a/data/other")).unwrap();
    let times = ["big", "other"].map(|name| fs::metadata(data.join(name)).unwrap().modified().unwrap());
    fs::rename(data.join("big"), dir.join("x")).unwrap();
    fs::rename(data.join("other"), data.join("big")).unwrap();
    fs::rename(dir.join("x"), data.join("other")).unwrap();
    for (name, time) in ["big", "other"].iter().zip(times) {
        fs::File::options().write(true).open(data.join(name)).unwrap().set_modified(time).unwrap();
    }
    rot(&data.join("one"), |bytes| bytes.reverse());
    let found = run(dir, &["verify", "-q", "w", "."]);
    assert_eq!(found.0, Some(1));
    for name in
        ["'data/big': rotted: bytes 0-700000", "'data/other': rotted: bytes 0-700000", "'data/one': rotted: "]
    {
        assert!(found.1.contains(name), "{found:?}");
    }
    let ended = run(dir, &["repair", "w", ".", "--from", "a"]);
    assert_eq!(ended.0, Some(0), "{ended:?}");
    assert!(fs::read(data.join("other")).unwrap() == bytes(BIG, 99));
    super::assert_whole(dir);
}
