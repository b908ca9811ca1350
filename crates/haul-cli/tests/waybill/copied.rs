//! Waybills of `haul cp --waybill`: digests from the same read, levels up to the one reached, and
//! all kinds of names.

use super::{good, haul, pattern, rot, run, tree};
use crate::faults::fixture::{FaultFixture, HOLD, start};
use haul_lab::mounts::{FsKind, SmallFs, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use haul_log::waybill::{Content, CopyMethod, Entry, Kind, Reader, Record};
use haul_model::Level;
use rustix::pipe::{SpliceFlags, pipe, splice};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const A_DAY: Duration = Duration::from_secs(86_400);

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
fn a_copied_tree_verifies_and_its_digests_match_sum() {
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
fn levels_state_only_what_was_proven() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), pattern(200_000, 1)).unwrap();
    let level = |options: &[&str], name: &str| {
        good(
            dir.path(),
            &[&["cp", "--reflink=never", "--split-size=64K", "--waybill", name, "a", "b"], options].concat(),
        );
        let content = content(&dir.path().join(name), "b");
        assert_eq!(content.way, Some(CopyMethod::ReadWrite));
        content.level
    };
    assert_eq!(level(&[], "w1"), Some(Level::Received));
    assert_eq!(level(&["--fadvise-write"], "w2"), Some(Level::Received));
    assert_eq!(level(&["--verify"], "w3"), Some(Level::Verified));
    assert_eq!(level(&["--verify", "--fadvise-write"], "w4"), Some(Level::Durable));
}

#[test]
fn printed_digests_are_equal_with_and_without_a_waybill() {
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
fn links_directories_and_hard_links_are_recorded() {
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
    assert!(ran.out.contains("'data/link': modified: different link target"), "{}", ran.out);
    assert!(ran.out.contains("no longer a hard link to the same file"), "{}", ran.out);
    // The first name is removed; the second one exists.
    let names = entries(&dir.path().join("w")).into_iter().find_map(|entry| match entry.kind {
        Kind::Same { first } => Some([first, entry.path].map(|path| path.to_string())),
        _ => None,
    });
    let [first, second] = names.unwrap();
    fs::remove_file(dir.path().join("to").join(&first)).unwrap();
    let ran = run(dir.path(), &["verify", "w", "to"]);
    assert!(ran.out.contains(&format!("'{first}': missing\n")), "{}", ran.out);
    assert!(ran.out.contains(&format!("'{second}': modified: no longer a hard link")), "{}", ran.out);
}

/// A hard link is created while the file is still being filled, and has neither its mode nor its
/// times then.
#[test]
fn hard_link_entries_have_the_final_mode_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("data/first");
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(&first, pattern(64 << 20, 5)).unwrap();
    fs::set_permissions(&first, Permissions::from_mode(0o751)).unwrap();
    File::options().write(true).open(&first).unwrap().set_modified(UNIX_EPOCH + A_DAY).unwrap();
    for second in ["data/again", "data/second"] {
        fs::hard_link(&first, dir.path().join(second)).unwrap();
    }
    good(dir.path(), &["cp", "-a", "--waybill", "w", "data", "to"]);
    let names: Vec<_> =
        entries(&dir.path().join("w")).into_iter().filter(|entry| entry.kind.name() != "dir").collect();
    assert_eq!(names.len(), 3);
    for name in names {
        assert_eq!((name.mode, name.mtime.sec), (0o751, A_DAY.as_secs() as i64), "{name:?}");
    }
}

#[test]
fn a_partly_failed_job_has_a_waybill_of_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let ran =
        run(dir.path(), &["cp", "--waybill", "w", "data/small", "missing", "data/empty", "data/sub dir"]);
    assert_eq!(ran.status, Some(1));
    let names: Vec<String> =
        entries(&dir.path().join("w")).iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // The same command resumes the job and its waybill.
    fs::write(dir.path().join("missing"), "found again").unwrap();
    good(dir.path(), &["cp", "-u", "--waybill", "w", "data/small", "missing", "data/empty", "data/sub dir"]);
    good(&dir.path().join("data"), &["verify", "-q", "../w", "sub dir"]);
}

/// In earlier versions a killed run left a section without an end, and the same command could not
/// append to it.
#[test]
fn a_killed_copy_can_be_repeated_with_its_waybill() {
    let Some(fixture) = FaultFixture::new(&format!("data/small read 0.. delay {HOLD} times 1")) else {
        return;
    };
    tree(&fixture.path("store"));
    good(&fixture.path(""), &["cp", "--waybill", "w", "store/data/big", "one"]);
    fs::create_dir(fixture.path("store/data/many")).unwrap();
    for number in 0..300 {
        fs::write(fixture.path(&format!("store/data/many/{number}")), "one of many").unwrap();
    }
    fs::create_dir(fixture.path("copy")).unwrap();
    let words = ["cp", "-r", "--threads=1", "--waybill", "w", "view/data/many", "view/data/small", "copy"];
    let before = fs::metadata(fixture.path("w")).unwrap().len();
    let mut killed = haul(&fixture.path("")).args(words).spawn().unwrap();
    fixture.held();
    // The waybill has entries of the first operand.
    assert!(fs::metadata(fixture.path("w")).unwrap().len() > before);
    killed.kill().unwrap();
    // The process exits when its read returns.
    fixture.release();
    killed.wait().unwrap();
    assert_eq!(run(&fixture.path(""), &["waybill", "check", "w"]).status, Some(2));
    // A run that skips existing files would not record them.
    for skips in ["--update", "-n"] {
        let ran = run(&fixture.path(""), &[&words[..], &[skips]].concat());
        assert!(ran.status == Some(1) && ran.err.contains("name a file that does not exist yet"), "{ran:?}");
    }
    good(&fixture.path(""), &words);
    let check = good(&fixture.path(""), &["waybill", "check", "w"]);
    assert!(check.starts_with("whole: 303 entries, 302 files"), "{check}");
}

/// In earlier versions the file had its entry under the name of the link, and `haul verify` found
/// another kind of file there.
#[test]
fn a_file_written_through_a_link_verifies() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let at = |name: &str| dir.path().join(name);
    for name in ["to", "elsewhere"] {
        fs::create_dir(at(name)).unwrap();
    }
    for (target, name) in [("file", "to/l"), ("l", "to/ll"), ("../elsewhere/f", "to/out"), ("to", "place")] {
        symlink(target, at(name)).unwrap();
    }
    fs::write(at("to/file"), "old").unwrap();
    fs::write(at("elsewhere/f"), "old").unwrap();
    for (words, root) in [
        (&["data/small", "to/l"][..], "to"),
        (&["data/big", "to/ll"], "to"),
        (&["data/small", "data/one-object", "place"], "place"),
        (&["data/small", "place/l"], "place"),
    ] {
        fs::remove_file(at("w")).unwrap_or_default();
        good(dir.path(), &[&["cp", "--waybill", "w", "--verify=reread"][..], words].concat());
        good(dir.path(), &["verify", "-q", "w", root]);
    }
    let names: Vec<String> = entries(&at("w")).iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(names, ["l", "file"]);
    // No path beneath the root names a target outside the root.
    let ran = run(dir.path(), &["cp", "--waybill", "w2", "data/small", "to/out"]);
    assert!(
        ran.status == Some(1) && ran.err.contains("a symbolic link in it leads out of the root directory"),
        "{ran:?}"
    );
    assert!(entries(&at("w2")).is_empty());
}

#[test]
fn cp_options_without_a_waybill_are_refused_before_copying() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for (args, reason) in [
        (&["--waybill=w", "--offset=5", "data/small", "x"][..], "complete files"),
        (&["--waybill=w", "--attributes-only", "data/small", "x"], "needs the data"),
        (&["--waybill=w", "--link", "data/small", "x"], "cannot combine --waybill with --link"),
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
fn only_data_read_back_from_the_device_is_recorded_as_reread() {
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

/// Shared blocks stay at their old location, so that no level about a device is reached, whatever
/// the options request.
#[test]
fn a_clone_is_recorded_as_a_clone_without_a_device_level() {
    for kind in [FsKind::Xfs, FsKind::Btrfs] {
        let Some(room) = shared_dir(kind) else { continue };
        let dir = room.path();
        fs::write(dir.join("a"), pattern(300_000, 1)).unwrap();
        for verify in ["--verify=none", "--verify=stream", "--verify=reread", "--verify=hybrid"] {
            let _ = fs::remove_file(dir.join("w"));
            let cp = ["cp", "--reflink=always", "--split-size=64K", "--waybill", "w", verify, "a", "b"];
            let ran = run(dir, &cp);
            assert_eq!(ran.status, Some(0), "{kind:?} {verify}: {ran:?}");
            let content = content(&dir.join("w"), "b");
            assert_eq!(
                (content.way, content.level),
                (Some(CopyMethod::Reflink), Some(Level::Received)),
                "{kind:?} {verify}"
            );
            let shown = good(dir, &["waybill", "show", "w"]);
            assert!(shown.contains("received reflink    'b'"), "{kind:?}: {shown}");
            good(dir, &["verify", "-q", "w"]);
            fs::remove_file(dir.join("b")).unwrap();
        }
        // If a level is requested and a clone is not, haul copies the bytes.
        fs::remove_file(dir.join("w")).unwrap();
        good(dir, &["cp", "--reflink=auto", "--verify=reread", "--waybill", "w", "a", "b"]);
        let content = content(&dir.join("w"), "b");
        assert_eq!(
            (content.way, content.level),
            (Some(CopyMethod::ReadWrite), Some(Level::Reread)),
            "{kind:?}"
        );
    }
}

/// A file system in memory has no device, and an overlay does not report the contents of the page
/// cache. The level there is at most verified, or durable.
#[test]
fn read_back_without_a_device_is_not_recorded_as_reread() {
    for kind in [FsKind::Tmpfs, FsKind::Overlay] {
        let Some(room) = shared_dir(kind) else { continue };
        let dir = room.path();
        tree(dir);
        let cp = ["cp", "-aT", "--verify=reread", "--split-size=64K", "--waybill", "w", "data", "copy"];
        let ran = run(dir, &cp);
        assert_eq!((ran.status, ran.err.lines().count()), (Some(0), 1), "{kind:?}: {ran:?}");
        assert!(ran.err.contains("was not read back from the device"), "{kind:?}: {ran:?}");
        for name in ["copy/big", "copy/one-object", "copy/small"] {
            let level = content(&dir.join("w"), name).level;
            assert!(matches!(level, Some(Level::Verified | Level::Durable)), "{kind:?} {name}: {level:?}");
        }
    }
}

/// haul cannot read pages back from the device while another process holds them. It reads back the
/// rest of the file, and the waybill has lines for these ranges.
#[test]
fn reread_ranges_of_a_partly_read_back_file_are_recorded() {
    const MIB: u64 = 1 << 20;
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    // The copy waits for its last object until another process holds pages of an earlier one.
    let Some(fixture) = FaultFixture::new(&format!("source read 7340032.. delay {HOLD} times 1")) else {
        return;
    };
    let small = SmallFs::new(48).unwrap();
    let (dir, sink, waybill) = (small.path(), small.path().join("sink"), small.path().join("w"));
    fs::write(fixture.path("store/source"), pattern(8 << 20, 3)).unwrap();
    let words = ["cp", "--verify=reread", "--split-size=1M", "--threads=1", "--json", "--waybill"];
    let running =
        start(words.map(Path::new).into_iter().chain([&*waybill, &*fixture.path("view/source"), &*sink]));
    fixture.held();
    // The kernel may read the last object ahead before the first objects are written.
    wait_until("the first objects", || fs::metadata(&sink).is_ok_and(|found| found.len() >= 3 * MIB));
    let (reader, writer) = pipe().unwrap();
    let held = 2 * MIB + 8192;
    let mut at = held;
    let from = File::open(&sink).unwrap();
    assert!(splice(&from, Some(&mut at), &writer, None, 4096, SpliceFlags::NONBLOCK).unwrap() > 0);
    fixture.release();
    let ended = running.end();
    assert_eq!((ended.code, ended.complaints()), (Some(0), 1), "{ended:?}");
    assert!(ended.stderr.contains("the kernel does not drop cached pages"), "{ended:?}");

    assert_eq!(content(&waybill, "sink").level, Some(Level::Durable));
    let whole = fs::read(&waybill).unwrap();
    let ranges: Vec<_> = Reader::new(&whole[..])
        .filter_map(|record| match record.unwrap() {
            Record::Proven(proven) => Some(proven),
            _ => None,
        })
        .collect();
    let summary: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    let reread: u64 = ranges.iter().map(|proven| proven.range.len()).sum();
    assert!(reread > 0 && reread < 8 * MIB && summary["bytes_reread"] == reread, "{summary}: {ranges:?}");
    for proven in &ranges {
        assert_eq!(proven.level, Level::Reread);
        assert!(held < proven.range.start.0 || proven.range.end.0 <= held, "{ranges:?}");
    }
    good(&dir, &["waybill", "check", "w"]);
    let shown = good(&dir, &["waybill", "show", "w"]);
    assert!(shown.contains(&format!("    bytes {}: re-read\n", ranges[0].range)), "{shown}");
    drop((reader, writer, from));
    good(&dir, &["verify", "-q", "w", "."]);
    small.close().unwrap();
}

/// In earlier versions a copy over its own waybill mixed both and succeeded.
#[test]
fn a_waybill_is_neither_copied_nor_overwritten_by_its_job() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    fs::create_dir(dir.join("to")).unwrap();
    let refused = |args: &[&str], name: &str| {
        let ran = run(dir, &[&["cp"], args].concat());
        assert_eq!(ran.status, Some(1), "{args:?}: {ran:?}");
        let words = format!("cannot copy or overwrite '{name}': it is the waybill of this job\n");
        assert!(ran.err.ends_with(&words), "{args:?}: {ran:?}");
    };
    // The waybill as the sink: itself, in a directory, by a symbolic link and by a hard link.
    refused(&["--waybill", "w1", "data/big", "w1"], "w1");
    refused(&["--waybill", "to/big", "data/big", "data/small", "to"], "to/big");
    refused(&["-rT", "--waybill", "to/big", "data", "to"], "to/big");
    fs::hard_link(dir.join("w1"), dir.join("again")).unwrap();
    symlink("w1", dir.join("link")).unwrap();
    for sink in ["again", "link"] {
        refused(&["--waybill", "w1", "data/big", sink], sink);
        refused(&["-b", "--waybill", "w1", "data/big", "again"], "again");
    }
    // The waybill as an operand.
    refused(&["--waybill", "w1", "w1", "x"], "w1");
    assert!(!dir.join("x").exists());
    for waybill in ["w1", "to/big"] {
        good(dir, &["waybill", "check", waybill]);
    }
    // In a tree the waybill is skipped, whatever the options: a receipt cannot contain itself.
    for (number, options) in [&["-r"][..], &["-a"], &["-aL"], &["-a", "--threads=1"]].into_iter().enumerate()
    {
        let sink = format!("sink{number}");
        good(dir, &[&["cp"], options, &["--waybill", "data/sub dir/w", "data", &sink]].concat());
        assert!(!dir.join(&sink).join("sub dir/w").exists(), "{options:?}");
        assert!(fs::read(dir.join(&sink).join("big")).unwrap() == pattern(700_000, 700_001), "{options:?}");
        good(dir, &["verify", "-q", "data/sub dir/w", "."]);
    }
}
