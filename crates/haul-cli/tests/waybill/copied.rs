//! What `haul cp --waybill` writes: digests from the same read, levels as far as they were reached, and all kinds of names.

use super::{good, pattern, rot, run, tree};
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_log::waybill::{Content, Entry, Kind, Reader, Record, Way};
use haul_model::Level;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn entries(path: &Path) -> Vec<Entry> {
    let records = Reader::new(&fs::read(path).unwrap()[..]).collect::<Result<Vec<_>, _>>().unwrap();
    let entry = |record| if let Record::Entry(entry) = record { Some(entry) } else { None };
    records.into_iter().filter_map(entry).collect()
}

fn content(path: &Path, name: &str) -> Content {
    let found = entries(path).into_iter().find(|entry| entry.path.as_bytes() == name.as_bytes());
    match found.map(|entry| entry.kind) {
        Some(Kind::File(content)) => content,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_copied_tree_verifies_and_its_digests_are_those_of_sum() {
    for options in [
        &[][..],
        &["--threads=1"],
        &["--verify"],
        &["--verify=stream"],
        &["--waybill-digests=md5,crc64nvme"],
        &["--direct-write"],
        &["--double-buffer"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        tree(dir.path());
        let cp = ["cp", "-a", "--reflink=never", "--split-size=64K", "--waybill", "w", "data", "copy"];
        good(dir.path(), &[&cp[..], options].concat());
        good(dir.path(), &["verify", "-q", "w", "."]);
        let check = good(dir.path(), &["waybill", "check", "w"]);
        assert!(check.starts_with("whole: 8 entries, 6 files"), "{options:?}: {check}");
        let mut exported: Vec<String> =
            good(dir.path(), &["waybill", "export", "w"]).lines().map(str::to_owned).collect();
        exported.sort_by(|a, b| a.trim_start_matches('\\')[64..].cmp(&b.trim_start_matches('\\')[64..]));
        let printed = good(dir.path(), &["sum", "-a", "blake3", "-r", "copy"]);
        assert_eq!(exported.join("\n") + "\n", printed, "{options:?}");
        rot(&dir.path().join("copy/big"), |bytes| bytes[300_000] ^= 1);
        let ran = run(dir.path(), &["verify", "w"]);
        assert_eq!(
            (ran.status, ran.out.as_str()),
            (Some(1), "'copy/big': rotted: bytes 262144-327680\n"),
            "{options:?}"
        );
    }
}

#[test]
fn levels_say_what_was_proven_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), pattern(200_000, 1)).unwrap();
    let level = |options: &[&str], name: &str| {
        good(
            dir.path(),
            &[&["cp", "--reflink=never", "--split-size=64K", "--waybill", name, "a", "b"], options].concat(),
        );
        let content = content(&dir.path().join(name), "b");
        assert_eq!(content.way, Some(Way::ReadWrite));
        content.level
    };
    assert_eq!(level(&[], "w1"), Some(Level::Received));
    assert_eq!(level(&["--fadvise-write"], "w2"), Some(Level::Received));
    assert_eq!(level(&["--verify"], "w3"), Some(Level::Verified));
    assert_eq!(level(&["--verify", "--fadvise-write"], "w4"), Some(Level::Durable));
}

#[test]
fn printed_digests_come_from_the_waybills_where_it_has_them() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for kind in ["blake3", "md5", "crc32"] {
        let hash = format!("--hash-type={kind}");
        let plain = good(dir.path(), &["cp", "--print-hash", &hash, "data/big", "p"]);
        let beside =
            ["cp", "--print-hash", &hash, "--waybill", "w", "--waybill-digests=crc32", "data/big", "p"];
        assert_eq!(good(dir.path(), &beside), plain, "{kind}");
    }
}

#[test]
fn links_directories_and_second_names_are_held_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("data/sub")).unwrap();
    fs::write(dir.path().join("data/one"), "one").unwrap();
    fs::hard_link(dir.path().join("data/one"), dir.path().join("data/sub/two")).unwrap();
    symlink("../nowhere/\u{1b}", dir.path().join("data/link")).unwrap();
    fs::create_dir(dir.path().join("to")).unwrap();
    good(dir.path(), &["cp", "-a", "--waybill", "w", "data", "to"]);
    let mut kinds: Vec<String> = entries(&dir.path().join("w"))
        .iter()
        .map(|entry| format!("{} {}", entry.kind.name(), entry.path))
        .collect();
    kinds.sort();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    assert!(kinds[..2] == ["dir data", "dir data/sub"] && kinds[3] == "link data/link", "{kinds:?}");
    assert!(kinds[2].starts_with("file ") && kinds[4].starts_with("same "), "{kinds:?}");
    good(dir.path(), &["verify", "-q", "w", "to"]);
    fs::remove_file(dir.path().join("to/data/sub/two")).unwrap();
    fs::write(dir.path().join("to/data/sub/two"), "one").unwrap();
    fs::remove_file(dir.path().join("to/data/link")).unwrap();
    symlink("elsewhere", dir.path().join("to/data/link")).unwrap();
    let ran = run(dir.path(), &["verify", "w", "to"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.out.contains("'data/link': modified: the link leads elsewhere"), "{}", ran.out);
    assert!(ran.out.contains("it is no longer a link to the same file"), "{}", ran.out);
}

#[test]
fn a_job_that_fails_in_part_has_a_receipt_of_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let ran =
        run(dir.path(), &["cp", "--waybill", "w", "data/small", "missing", "data/empty", "data/sub dir"]);
    assert_eq!(ran.status, Some(1));
    let names: Vec<String> =
        entries(&dir.path().join("w")).iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The same command goes on, and the waybill with it.
    fs::write(dir.path().join("missing"), "found again").unwrap();
    good(dir.path(), &["cp", "-u", "--waybill", "w", "data/small", "missing", "data/empty", "data/sub dir"]);
    good(&dir.path().join("data"), &["verify", "-q", "../w", "sub dir"]);
}

#[test]
fn what_makes_no_receipt_is_refused_before_anything_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for (args, reason) in [
        (&["--waybill=w", "--offset=5", "data/small", "x"][..], "whole files"),
        (&["--waybill=w", "--attributes-only", "data/small", "x"], "needs the data"),
        (&["--waybill-digests=md5", "data/small", "x"], "--waybill-digests needs --waybill"),
        (&["--waybill=w", "--waybill-digests=rot13", "data/small", "x"], "unknown checksum 'rot13'"),
        (&["--waybill=data/small", "data/big", "x"], "name a file that does not exist yet"),
    ] {
        let ran = run(dir.path(), &[&["cp"], args].concat());
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
        assert!(!dir.path().join("x").exists(), "{args:?}");
    }
}

#[test]
fn what_was_read_back_from_the_device_is_written_down_as_that_and_nothing_else_is() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let small = SmallFs::new(32).unwrap();
    let dir = small.path();
    tree(&dir);
    for (verify, level) in [
        ("--verify=none", Level::Received),
        ("--verify=stream", Level::Received),
        ("--verify=cached", Level::Verified),
        ("--verify=reread", Level::Reread),
        ("--verify=hybrid", Level::Received),
    ] {
        let cp = ["cp", "-aT", "--split-size=64K", "--waybill", "w", verify, "data", "copy"];
        good(&dir, &cp);
        for name in ["copy/big", "copy/one-object", "copy/small"] {
            assert_eq!(content(&dir.join("w"), name).level, Some(level), "{verify} {name}");
        }
        good(&dir, &["verify", "-q", "w", "."]);
        fs::remove_dir_all(dir.join("copy")).unwrap();
        fs::remove_file(dir.join("w")).unwrap();
    }
    small.close().unwrap();
}
