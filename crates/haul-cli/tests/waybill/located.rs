//! Leaves in waybills: written by `sum` and `cp`, read by `verify --locate`. Also waybills without
//! leaves.

use super::{good, pattern, rot, run, tree};
use haul_log::waybill::{Kind, Reader, Record};
use std::fs;
use std::path::Path;

/// Returns the path of each file, the size of its leaves, and their number.
fn leaves(waybill: &Path) -> Vec<(String, Option<u64>, usize)> {
    let mut found: Vec<(String, Option<u64>, usize)> = Vec::new();
    for record in Reader::new(&fs::read(waybill).unwrap()[..]) {
        match record.unwrap() {
            Record::Entry(entry) => {
                let Kind::File(content) = &entry.kind else { continue };
                let leaf = content.objects.as_ref().and_then(|objects| objects.leaf);
                found.push((entry.path.to_string(), leaf.map(|leaf| leaf.bytes()), 0));
            }
            Record::Leaves(run) => found.last_mut().unwrap().2 += run.digests.len(),
            _ => {}
        }
    }
    found.sort();
    found
}

const SUM: [&str; 6] = ["sum", "-r", "--object-size", "64K", "--waybill", "w"];

#[test]
fn sum_and_cp_record_the_same_leaves() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for (option, leaf) in [("--leaf", 1024), ("--leaf=4K", 4096), ("--leaf=64K", 65_536)] {
        let _ = fs::remove_file(dir.path().join("w"));
        good(dir.path(), &[&SUM[..], &[option, "-a", "md5", "data"]].concat());
        let expected: Vec<_> = [
            ("data/big", 700_000),
            ("data/empty", 0),
            ("data/one-object", 65_536),
            ("data/small", 100),
            ("data/sub%20dir/back\\slash%20100%25", 20),
            ("data/sub%20dir/line%0Abreak", 10),
        ]
        .into_iter()
        .map(|(name, len): (&str, u64)| match len > leaf {
            // The leaves of each object start at the object, and only the last leaf is shorter.
            true => (name.to_owned(), Some(leaf), len.div_ceil(leaf) as usize),
            false => (name.to_owned(), None, 0),
        })
        .collect();
        assert_eq!(leaves(&dir.path().join("w")), expected, "{option}");
        for threads in ["--threads=1", "--threads=4"] {
            for serial in ["blake3", "sha1"] {
                let _ = fs::remove_file(dir.path().join("copied"));
                let _ = fs::remove_dir_all(dir.path().join("to"));
                fs::create_dir(dir.path().join("to")).unwrap();
                let digests = format!("--waybill-digests={serial}");
                let sizes = ["--split-size=64K", "--waybill=copied", option, digests.as_str(), threads];
                good(dir.path(), &[&["cp", "-a"], &sizes[..], &["data", "to"]].concat());
                assert_eq!(leaves(&dir.path().join("copied")), expected, "{option} {threads} {serial}");
                let both = ["w", "copied"].map(|name| leaf_lines(&dir.path().join(name)));
                assert_eq!(both[0], both[1], "{option} {threads} {serial}");
            }
        }
    }
}

/// Returns all leaves of the big file.
fn leaf_lines(waybill: &Path) -> Vec<Record> {
    let text = fs::read(waybill).unwrap();
    let records = Reader::new(&text[..]).map(Result::unwrap);
    let of_big = records.skip_while(
        |record| !matches!(record, Record::Entry(entry) if entry.path.as_bytes().ends_with(b"/big")),
    );
    let below = of_big.skip(1).take_while(|record| !matches!(record, Record::Entry(_) | Record::End(_)));
    below.filter(|record| matches!(record, Record::Leaves(_))).collect()
}

#[test]
fn locate_reports_damage_by_leaf() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &[&SUM[..], &["--leaf", "data"]].concat());
    rot(&dir.path().join("data/big"), |bytes| {
        bytes[0] ^= 1;
        bytes[100_000] ^= 1;
        bytes[100_352] ^= 1;
        bytes[699_999] ^= 1;
    });
    rot(&dir.path().join("data/one-object"), |bytes| bytes[1024..5000].fill(0));
    rot(&dir.path().join("data/small"), |bytes| bytes[50] ^= 1);
    let expected = "'data/big': rotted: bytes 0-1024, 99328-101376, 699392-700000\n\
                    'data/one-object': rotted: bytes 1024-5120\n\
                    'data/small': rotted: bytes 0-100\n";
    for args in [&["verify", "--locate", "w"][..], &["verify", "--locate", "--cached", "--threads=3", "w"]] {
        let ran = run(dir.path(), args);
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), expected), "{}", ran.err);
    }
    let ran = run(dir.path(), &["verify", "--locate", "--json", "w"]);
    let big: serde_json::Value =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).find(is_big).unwrap();
    assert_eq!(big["damage"], serde_json::json!([[0, 1024], [99_328, 101_376], [699_392, 700_000]]));
    assert_eq!((&big["leaf"], big.get("whole_objects")), (&1024.into(), None));
    // Without the option haul prints the damaged objects.
    let ran = run(dir.path(), &["verify", "w"]);
    assert!(ran.out.starts_with("'data/big': rotted: bytes 0-131072, 655360-700000\n"), "{}", ran.out);
}

fn is_big(event: &serde_json::Value) -> bool {
    event["path"] == "data/big"
}

#[test]
fn locate_without_leaves_reports_objects_and_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &[&SUM[..], &["data"]].concat());
    rot(&dir.path().join("data/big"), |bytes| bytes[100_000] ^= 1);
    let ran = run(dir.path(), &["verify", "--locate", "w"]);
    let line =
        "'data/big': rotted: bytes 65536-131072 (whole objects: the waybill has no leaves of this file)\n";
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), line), "{}", ran.err);
    let ran = run(dir.path(), &["verify", "--locate", "--json", "w"]);
    let big: serde_json::Value =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).find(is_big).unwrap();
    let why = "the waybill has no leaves of this file";
    assert_eq!((big.get("leaf"), &big["whole_objects"]), (None, &why.into()));
    // A later section with leaves takes precedence.
    good(dir.path(), &[&SUM[..], &["--accept-changes", "--leaf=2K", "data/big"]].concat());
    rot(&dir.path().join("data/big"), |bytes| bytes[5000] ^= 1);
    let ran = run(dir.path(), &["verify", "--locate", "w"]);
    assert_eq!(ran.out, "'data/big': rotted: bytes 4096-6144\n", "{}", ran.err);
}

#[test]
fn shorter_and_longer_files_are_reported_by_size() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &[&SUM[..], &["--leaf", "data"]].concat());
    rot(&dir.path().join("data/big"), |bytes| bytes.truncate(65_536 + 1024));
    rot(&dir.path().join("data/one-object"), |bytes| bytes.push(1));
    let ran = run(dir.path(), &["verify", "--locate", "w"]);
    let lines = "'data/big': modified: 700000 bytes before, 66560 now\n\
                 'data/one-object': modified: 65536 bytes before, 65537 now\n";
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), lines), "{}", ran.err);
}

#[test]
fn damage_to_the_waybill_does_not_hide_damage_to_the_data() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &[&SUM[..], &["--leaf", "data/big"]].concat());
    rot(&dir.path().join("data/big"), |bytes| {
        bytes[70_000] ^= 4;
        bytes[300_000] ^= 4;
    });
    let whole = fs::read_to_string(dir.path().join("w")).unwrap();
    let line = whole.lines().position(|line| line.starts_with("1.0 ")).unwrap();
    let hurt = whole.replacen("\n1.0 ", "\n1.0 A", 1);
    fs::write(dir.path().join("w"), &hurt).unwrap();
    let ran = run(dir.path(), &["verify", "--locate", "w"]);
    // The leaves of the second object are lost; those of the fifth are found after the damage.
    let expected = "'data/big': rotted: bytes 65536-131072, 299008-300032 \
                    (some whole objects: the leaves in the waybill do not match the digest of the object)\n";
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), expected), "{}", ran.err);
    let reported = format!("the waybill: line {}: checksum mismatch: the line is damaged", line + 1);
    assert!(ran.err.contains(&reported), "{}", ran.err);
    assert_eq!(run(dir.path(), &["waybill", "check", "w"]).status, Some(2));
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let sum = |text: &str| format!("{text} {:08x}\n", crc32(text));
    fs::write(dir.path().join("w"), sum("surehaul-waybill version=2 leaves=elsewhere")).unwrap();
    let ran = run(dir.path(), &["verify", "--locate", "w"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("version 2") && ran.err.contains("nothing was verified"), "{}", ran.err);
}

/// Returns the CRC-32 of a line and the space after it.
fn crc32(text: &str) -> u32 {
    let digest = haul_digest::digest(haul_digest::Algorithm::Crc32, format!("{text} ").as_bytes());
    digest.as_bytes().iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[test]
fn invalid_leaf_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    for (args, reason) in [
        (&["sum", "--leaf", "data/small"][..], "--leaf needs --waybill"),
        (&["sum", "--leaf=1000", "--waybill", "w", "data/small"], "not a power of two"),
        (&["sum", "--leaf=512", "--waybill", "w", "data/small"], "outside 1024 to 4194304"),
        (&["sum", "--leaf=1M", "--object-size=64K", "--waybill", "w", "data/small"], "outside 1024 to 65536"),
        (&["sum", "--leaf", "-c", "list"], "--leaf with --check"),
        (&["cp", "--leaf", "data/small", "x"], "--leaf needs --waybill"),
        (&["cp", "--leaf=3K", "--waybill=w", "data/small", "x"], "not a power of two"),
        (&["cp", "--leaf=8M", "--waybill=w", "data/small", "x"], "outside 1024 to 4194304"),
        (&["verify", "--locate", "data"], "--locate needs a waybill"),
    ] {
        let ran = run(dir.path(), args);
        assert!(ran.status != Some(0) && ran.out.is_empty(), "{args:?}: {ran:?}");
        assert!(ran.err.contains(reason), "{args:?}: {}", ran.err);
        assert!(!dir.path().join("w").exists() && !dir.path().join("x").exists(), "{args:?}");
    }
}

#[test]
fn only_damaged_leaves_are_read_from_the_replica() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    let bytes = pattern(300_000, 4);
    fs::write(dir.path().join("data/f"), &bytes).unwrap();
    good(dir.path(), &[&SUM[..], &["--leaf", "data"]].concat());
    let copied = ["cp", "-a", "data", "replica"];
    good(dir.path(), &copied);
    rot(&dir.path().join("data/f"), |bytes| bytes[70_000] ^= 1);
    // Each object of the replica is damaged, but the required leaf is intact.
    rot(&dir.path().join("replica/f"), |bytes| (0..5).for_each(|object| bytes[object * 65_536] ^= 1));
    fs::create_dir(dir.path().join("from")).unwrap();
    fs::rename(dir.path().join("replica"), dir.path().join("from/data")).unwrap();
    let ran = run(dir.path(), &["repair", "w", ".", "--from", "from"]);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.out.contains("69632-70656"), "{}", ran.out);
    assert!(fs::read(dir.path().join("data/f")).unwrap() == bytes);
}
