//! In-place repair: the same file under all its names, either complete or unchanged. A journal
//! exists while it is neither.

use super::{BIG, assert_whole, bytes, fixture, killed_at_each, rot, run, with_state};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use haul_lab::traced;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// Returns the names of journals and temporary files in a directory.
pub(super) fn journals(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(".haul-")).collect()
}

#[test]
fn a_hard_linked_file_is_repaired_under_all_names() {
    let home = fixture();
    let dir = home.path();
    fs::hard_link(dir.join("data/big"), dir.join("second")).unwrap();
    let inode = fs::metadata(dir.join("second")).unwrap().ino();
    rot(&dir.join("data/big"), |bytes| bytes[70_000] ^= 1);
    let args = ["repair", "w", ".", "--from", "a"];
    let dry = run(dir, &[&args[..], &["-n"]].concat());
    assert_eq!(dry.1, "'data/big': would be repaired in place: bytes 65536-131072 from 'a'\n");
    let ended = run(dir, &args);
    assert_eq!(
        (ended.0, &*ended.1),
        (Some(0), "'data/big': repaired in place: bytes 65536-131072 from 'a'\n")
    );
    assert_whole(dir);
    let second = fs::metadata(dir.join("second")).unwrap();
    assert_eq!((second.ino(), second.nlink()), (inode, 2));
    assert!(fs::read(dir.join("second")).unwrap() == bytes(BIG, BIG as u64 + 1));
}

/// The modification may have been intended for any of the names, so that haul does not revert it
/// for all names by default.
#[test]
fn a_modified_hard_linked_file_is_restored_only_with_in_place() {
    let home = fixture();
    let dir = home.path();
    fs::hard_link(dir.join("data/big"), dir.join("second")).unwrap();
    let meant = bytes(BIG, 3);
    fs::write(dir.join("data/big"), &meant).unwrap();
    let args = ["repair", "w", ".", "--from", "a", "--modified", "--keep-damaged", "kept"];
    let ended = run(dir, &args);
    assert_eq!(ended.0, Some(1));
    assert!(
        ended.1.contains("the file has 2 names and would change under all of them; use --in-place"),
        "{ended:?}"
    );
    assert!(fs::read(dir.join("second")).unwrap() == meant);
    assert_eq!(run(dir, &[&args[..], &["--in-place"]].concat()).0, Some(0));
    assert_whole(dir);
    assert_eq!(fs::metadata(dir.join("second")).unwrap().nlink(), 2);
    assert!(fs::read(dir.join("kept/data/big.0-700000")).unwrap() == meant);
}

#[test]
fn every_kind_of_damage_is_repaired_in_place() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change, &[&str]); 7] = [
        ("one bit", |bytes| bytes[BIG - 1] ^= 1, &[]),
        ("zeroed", |bytes| bytes[100_000..140_000].fill(0), &[]),
        ("all of it", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1), &[]),
        ("two places", |bytes| (bytes[1], bytes[400_000]) = (!bytes[1], !bytes[400_000]), &[]),
        ("truncated", |bytes| bytes.truncate(65_537), &["--modified"]),
        ("empty", Vec::clear, &["--modified"]),
        ("longer", |bytes| bytes.extend_from_slice(&[7; 200_001]), &["--modified"]),
    ];
    for (name, change, more) in changes {
        for waybill in ["w", "serial"] {
            let home = fixture();
            let dir = home.path();
            let path = dir.join("data/big");
            let sum = ["sum", "-r", "-a", "md5", "--waybill", "serial", "data"];
            assert_eq!(run(dir, &sum).0, Some(0));
            let whole = Snapshot::take(&dir.join("data")).unwrap();
            let inode = fs::metadata(&path).unwrap().ino();
            rot(&path, change);
            let hurt = fs::read(&path).unwrap();
            let args = ["repair", waybill, ".", "--from", "a", "--in-place", "--keep-damaged", "kept"];
            let ended = run(dir, &[&args[..], more].concat());
            assert_eq!(ended.0, Some(0), "{name} by {waybill}: {ended:?}");
            assert!(ended.1.contains(": repaired in place"), "{name}: {ended:?}");
            assert_whole(dir);
            assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "{name}");
            assert!(journals(&dir.join("data")).is_empty(), "{name}");
            whole.assert_same(
                &Snapshot::take(&dir.join("data")).unwrap(),
                Facets { mtime: true, ..Facets::CONTENT },
            );
            for kept in fs::read_dir(dir.join("kept/data")).unwrap().flatten() {
                let range = kept.file_name().into_string().unwrap().replace("big.", "");
                let (start, end) = range.split_once('-').unwrap();
                let range = start.parse().unwrap()..end.parse::<usize>().unwrap().min(hurt.len());
                let held = fs::read(kept.path()).unwrap();
                assert!(held[..range.len()] == hurt[range.clone()], "{name}: {range:?}");
            }
        }
    }
}

/// A write removes setuid, setgid and capabilities from a program.
#[test]
fn repair_preserves_all_metadata_of_the_file() {
    if !met_or_skip(&[
        Need::Root,
        Need::Program("setfacl"),
        Need::Program("setcap"),
        Need::Program("setfattr"),
    ]) {
        return;
    }
    for in_place in [true, false] {
        let home = fixture();
        let dir = home.path();
        let path = dir.join("data/big");
        chown(&path, Some(7), Some(8)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6751)).unwrap();
        let script = "setfacl -m u:9:rx data/big && setfattr -n user.note -v kept data/big && \
                      setfattr -n trusted.note -v kept data/big && setcap cap_net_raw=ep data/big";
        let given = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
        assert!(given.status.success(), "{given:?}");
        let shown = || {
            let script = "getfacl -cp data/big; getcap data/big; getfattr -d -m - -e hex data/big; \
                          stat -c '%a %u %g %y %s' data/big";
            let shown = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
            String::from_utf8(shown.stdout).unwrap()
        };
        let before = shown();
        assert!(before.contains("cap_net_raw") && before.contains("trusted.note"), "{before}");
        // Rot below the file system removes none of these attributes, so the test sets them all
        // again.
        rot(&path, |bytes| bytes[70_000] ^= 1);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6751)).unwrap();
        Command::new("sh").args(["-c", script]).current_dir(dir).status().unwrap();
        assert_eq!(shown(), before);
        let more: &[&str] = if in_place { &["--in-place"] } else { &[] };
        let ended = run(dir, &[&["repair", "w", ".", "--from", "a"], more].concat());
        assert_eq!(ended.0, Some(0), "{ended:?}");
        assert_eq!(shown(), before, "in place: {in_place}");
        assert_whole(dir);
    }
}

#[test]
fn damaged_replicas_complement_each_other_in_place() {
    let home = fixture();
    let dir = home.path();
    rot(&dir.join("data/big"), |bytes| bytes[..200_000].fill(7));
    rot(&dir.join("a/data/big"), |bytes| bytes[70_000] ^= 1);
    rot(&dir.join("b/data/big"), |bytes| bytes[10] ^= 1);
    let ended = run(dir, &["repair", "w", ".", "--in-place", "--from", "a", "--from", "b"]);
    let line = "'data/big': repaired in place: bytes 0-65536 from 'a', 65536-262144 from 'b'\n";
    assert_eq!((ended.0, &*ended.1), (Some(0), line));
    assert_whole(dir);
}

#[test]
fn in_place_repair_killed_at_any_call_is_completed_or_undone() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let home = fixture();
    let dir = home.path();
    with_state(dir);
    let path = dir.join("data/big");
    let right = fs::read(&path).unwrap();
    let damage = || rot(&path, |bytes| bytes[..400_000].fill(7));
    damage();
    let before = fs::read(&path).unwrap();
    rot(&dir.join("b/data/big"), |bytes| bytes[..400_000].fill(9));
    let (mut round, mut half, mut finished, mut undone) = (0, 0, 0, 0);
    let calls = ["write", "fsync", "renameat", "fallocate", "pwrite64", "fdatasync", "utimensat", "unlinkat"];
    killed_at_each(dir, &["repair", "w", ".", "--from", "a", "--in-place"], &calls, damage, |point| {
        let after = fs::read(&path).unwrap();
        if after != before && after != right {
            half += 1;
            let verified = run(dir, &["verify", "w", "."]);
            assert!(
                verified.1.contains("; an in-place repair was interrupted; run haul repair"),
                "{point}: {verified:?}"
            );
        }
        // Without a replica that has the bytes, the repair is undone or finished, and never left
        // half done.
        round += 1;
        if round % 2 == 0 {
            run(dir, &["repair", "w", ".", "--from", "b"]);
            let after = fs::read(&path).unwrap();
            assert!(after == before || after == right, "{point}");
            finished += usize::from(after == right);
            undone += usize::from(after == before);
            assert!(journals(&dir.join("data")).is_empty(), "{point}");
        }
        let ended = run(dir, &["repair", "w", ".", "--from", "a"]);
        assert_eq!(ended.0, Some(0), "{point}: {ended:?}");
        assert!(fs::read(&path).unwrap() == right, "{point}");
        assert!(journals(&dir.join("data")).is_empty(), "{point}");
    });
    assert!(
        half > 5 && finished > 0 && undone > 0,
        "{half} half repaired, {finished} finished, {undone} undone"
    );
    assert!(fs::read(&path).unwrap() == right, "the last run was not killed");
    fs::copy(dir.join("a/data/big"), dir.join("b/data/big")).unwrap();
    assert_whole(dir);
}

/// Two files had the same length and time, and one was then linked over the other. In earlier
/// versions the only correct data of one file was replaced by that of the other.
#[test]
fn a_file_shared_with_another_entry_is_not_written_in_place() {
    for more in [&[][..], &["--in-place"]] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        fs::create_dir_all(dir.join("replica/data")).unwrap();
        fs::create_dir(dir.join("data")).unwrap();
        let [b, c] = [3, 4].map(|seed| bytes(200_000, seed));
        fs::write(dir.join("data/b"), &b).unwrap();
        fs::write(dir.join("data/c"), &c).unwrap();
        let b_as_c = Command::new("touch").args(["-r", "data/b", "data/c"]).current_dir(dir).status();
        assert!(b_as_c.unwrap().success());
        assert_eq!(run(dir, &["sum", "-r", "--waybill", "w", "data"]).0, Some(0));
        assert_eq!(run(dir, &["cp", "-p", "data/c", "replica/data/c"]).0, Some(0));
        fs::remove_file(dir.join("data/c")).unwrap();
        fs::hard_link(dir.join("data/b"), dir.join("data/c")).unwrap();
        let args = ["repair", "w", ".", "--from", "replica"];
        let dry = run(dir, &[&args[..], more, &["-n"]].concat());
        assert!(dry.1.starts_with("'data/c': would be repaired: "), "{more:?}: {dry:?}");
        let inode = fs::metadata(dir.join("data/b")).unwrap().ino();
        let ended = run(dir, &[&args[..], more].concat());
        assert_eq!(ended.0, Some(0), "{more:?}: {ended:?}");
        assert!(
            fs::read(dir.join("data/b")).unwrap() == b,
            "{more:?}: the intact file was written to: {ended:?}"
        );
        assert!(fs::read(dir.join("data/c")).unwrap() == c, "{more:?}: {ended:?}");
        assert_eq!(fs::metadata(dir.join("data/b")).unwrap().ino(), inode);
        assert_whole_but_replicas(dir);
    }
}

/// In earlier versions the first name was reported as left, with status 1, although all data was
/// right when the repair ended.
#[test]
fn replica_data_under_another_hard_link_repairs_all_names() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir(dir.join("data")).unwrap();
    fs::write(dir.join("data/a"), bytes(70_000, 5)).unwrap();
    fs::hard_link(dir.join("data/a"), dir.join("data/b")).unwrap();
    assert_eq!(run(dir, &["sum", "-r", "--waybill", "w", "data"]).0, Some(0));
    fs::create_dir_all(dir.join("replica/data")).unwrap();
    fs::copy(dir.join("data/b"), dir.join("replica/data/b")).unwrap();
    rot(&dir.join("data/a"), |bytes| bytes[5] ^= 1);
    let args = ["repair", "--json", "w", ".", "--from", "replica"];
    for more in [&["--dry-run"][..], &[]] {
        let (status, out, err) = run(dir, &[&args[..], more].concat());
        let events: Vec<serde_json::Value> =
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = events.iter().map(|event| (&event["path"], &event["result"])).collect();
        let expected =
            [("data/b".into(), "repaired".into()), ("data/a".into(), serde_json::Value::from("intact"))];
        assert_eq!(
            told[..2],
            expected.each_ref().map(|(path, result)| (path, result)),
            "{more:?}: {out}{err}"
        );
        let summary = &events[2];
        assert_eq!(
            (status, &summary["left"], &summary["bytes"]),
            (Some(0), &0.into(), &70_000.into()),
            "{out}"
        );
    }
    assert_whole_but_replicas(dir);
}

/// In earlier versions the further name was left, because its first name was created after it.
#[test]
fn a_hard_link_is_created_if_its_first_name_is_in_a_later_section() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/a"), bytes(70_000, 5)).unwrap();
    fs::hard_link(dir.join("src/a"), dir.join("src/b")).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "--waybill", "w", "src", "data"]).0, Some(0));
    let text = fs::read_to_string(dir.join("w")).unwrap();
    let first = if text.contains("same path=data/a ") { "data/b" } else { "data/a" };
    assert_eq!(run(dir, &["sum", "--waybill", "w", first]).0, Some(0));
    fs::create_dir(dir.join("replica")).unwrap();
    assert_eq!(run(dir, &["cp", "-a", "data", "replica"]).0, Some(0));
    for name in ["data/a", "data/b"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    for more in [&["--dry-run"][..], &[]] {
        let (status, out, err) = run(dir, &[&["repair", "w", ".", "--from", "replica"], more].concat());
        assert_eq!((status, out.matches("made").count()), (Some(0), 2), "{more:?}: {out}{err}");
    }
    assert_whole_but_replicas(dir);
}

/// In earlier versions the first name got a repaired file of its own, with status 0, and the
/// further name still named the damaged one.
#[test]
fn hard_links_follow_the_repaired_file() {
    for more in [&[][..], &["--in-place"]] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        fs::create_dir(dir.join("src")).unwrap();
        fs::write(dir.join("src/a"), bytes(70_000, 5)).unwrap();
        fs::hard_link(dir.join("src/a"), dir.join("src/b")).unwrap();
        fs::write(dir.join("src/c"), bytes(70_000, 6)).unwrap();
        let same = Command::new("touch").args(["-r", "src/a", "src/c"]).current_dir(dir).status();
        assert!(same.unwrap().success());
        assert_eq!(run(dir, &["cp", "-a", "--waybill", "w", "src", "data"]).0, Some(0));
        fs::create_dir(dir.join("replica")).unwrap();
        assert_eq!(run(dir, &["cp", "-a", "data", "replica"]).0, Some(0));
        fs::remove_file(dir.join("data/c")).unwrap();
        fs::hard_link(dir.join("data/a"), dir.join("data/c")).unwrap();
        rot(&dir.join("data/a"), |bytes| bytes[5] ^= 1);
        let ended = run(dir, &[&["repair", "w", ".", "--from", "replica"], more].concat());
        assert_eq!(ended.0, Some(0), "{more:?}: {ended:?}");
        assert_whole_but_replicas(dir);
        let [a, b, c] = ["a", "b", "c"].map(|name| fs::metadata(dir.join("data").join(name)).unwrap().ino());
        assert!(a == b && b != c, "{more:?}");
        let strays = fs::read_dir(dir.join("data")).unwrap().count();
        assert_eq!(strays, 3, "{more:?}");
    }
}

/// A link from one directory of the root to another makes one file name reachable through two
/// entries.
#[test]
fn a_name_reachable_through_another_entry_is_not_replaced() {
    for more in [&[][..], &["--in-place"]] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        for (place, seed) in [("data/one", 5), ("data/two", 6)] {
            fs::create_dir_all(dir.join(place)).unwrap();
            fs::write(dir.join(place).join("f"), bytes(70_000, seed)).unwrap();
        }
        let same = Command::new("touch").args(["-r", "data/one/f", "data/two/f"]).current_dir(dir).status();
        assert!(same.unwrap().success());
        assert_eq!(run(dir, &["sum", "-r", "--waybill", "w", "data"]).0, Some(0));
        fs::create_dir(dir.join("replica")).unwrap();
        assert_eq!(run(dir, &["cp", "-a", "data", "replica"]).0, Some(0));
        fs::remove_dir_all(dir.join("data/two")).unwrap();
        std::os::unix::fs::symlink("one", dir.join("data/two")).unwrap();
        let ended = run(dir, &[&["repair", "w", ".", "--from", "replica"], more].concat());
        assert_eq!(ended.0, Some(1), "{more:?}: {ended:?}");
        assert!(fs::read(dir.join("data/one/f")).unwrap() == bytes(70_000, 5), "{more:?}: {ended:?}");
    }
}

#[track_caller]
fn assert_whole_but_replicas(dir: &Path) {
    let ended = run(dir, &["verify", "w", "."]);
    assert_eq!(ended.0, Some(0), "{ended:?}");
}
