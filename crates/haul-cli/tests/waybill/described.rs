//! Completeness of docs/formats/waybill.md. A second reader that uses only this description reads
//! the waybills of the binary. Each digest is computed again as the description says, and both
//! readers find the same damage.

use super::checksums::{PROGRAMS, checksums, description, digest};
use super::twin::{self, Entry, Section, hex};
use super::{good, haul, pattern, run, tree};
use blake3::hazmat::HasherExt;
use haul_digest::Algorithm;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use haul_lab::snapshot::Snapshot;
use haul_sys::{CWD, FileKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// Asserts that all fields of an entry match the file.
fn hold(root: &Path, entry: &Entry, checksums: &BTreeMap<String, Vec<String>>) {
    let path = root.join(OsStr::from_bytes(&entry.fields.bytes("path")));
    let facts = fs::symlink_metadata(&path).unwrap();
    let name = path.display();
    let mtime = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
    // The metadata of a further name is that of its first name.
    if entry.tag != "same" {
        assert_eq!(entry.fields.text("mode"), format!("{:04o}", facts.mode() & 0o7777), "{name}");
        assert_eq!(entry.mtime(), mtime, "{name}");
    }
    let kind = facts.file_type();
    let is_it = match &*entry.tag {
        "file" => kind.is_file(),
        "same" => {
            let first = root.join(OsStr::from_bytes(&entry.fields.bytes("first")));
            fs::symlink_metadata(first).unwrap().ino() == facts.ino()
        }
        "dir" => kind.is_dir(),
        "link" => fs::read_link(&path).unwrap().as_os_str().as_bytes() == entry.fields.bytes("target"),
        "fifo" => kind.is_fifo(),
        "socket" => kind.is_socket(),
        // Compares the device number by the bits that the description names.
        "char" => kind.is_char_device() && entry.fields.number("device") == 0x78 | 0x123 << 8 | 0x456 << 20,
        _ => false,
    };
    assert!(is_it, "{name}: {entry:?}");
    if entry.tag != "file" {
        return;
    }
    assert_eq!(entry.fields.number("size"), facts.len(), "{name}");
    for (key, value) in entry.fields.all() {
        let shorter = key.strip_prefix("blake2b-").map(|bits| format!("b2sum -l {bits}"));
        let shorter = shorter.map(|tool| ["", "0", "", &tool].map(str::to_owned));
        let row = shorter.as_ref().map(|row| &row[..]).or_else(|| checksums.get(key).map(|row| &row[..]));
        if let Some(row) = row {
            assert_eq!(value, digest(row, &path), "{name} by {key}");
        }
    }
    hold_parts(&fs::read(&path).unwrap(), entry);
}

/// Asserts that the digests of objects and leaves match the bytes.
fn hold_parts(bytes: &[u8], entry: &Entry) {
    assert!(matches!(entry.fields.get("of"), None | Some("blake3")), "what is written: {entry:?}");
    let value = |start: u64, end: u64| {
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(start).update(&bytes[start as usize..end as usize]);
        hasher.finalize_non_root().to_vec()
    };
    for (index, digest) in entry.objects.iter().enumerate() {
        let (start, end) = entry.object(index as u64);
        assert_eq!(*digest, value(start, end), "object {index} of {entry:?}");
    }
    for (&object, leaves) in &entry.leaves {
        let ((start, end), leaf) = (entry.object(object), entry.fields.number("leaf"));
        for (number, digest) in (0..).zip(leaves) {
            let first = start + number * leaf;
            assert_eq!(*digest, value(first, (first + leaf).min(end)), "leaf {object}.{number} of {entry:?}");
        }
    }
}

/// Reads a waybill, asserts that its effective entries match the files, and returns its sections.
fn held(root: &Path, waybill: &Path) -> Vec<Section> {
    let sections = twin::read(&fs::read(waybill).unwrap()).unwrap();
    let (checksums, mut seen) = (checksums(), BTreeSet::new());
    for section in sections.iter().rev() {
        let paths: Vec<_> = section.entries.iter().map(|entry| entry.fields.bytes("path")).collect();
        for entry in section.entries.iter().filter(|entry| !seen.contains(&entry.fields.bytes("path"))) {
            hold(root, entry, &checksums);
        }
        seen.extend(paths);
    }
    sections
}

/// Creates a tree with all kinds of files and names, and with unusual times and modes.
fn rich(dir: &Path) {
    tree(dir);
    let data = dir.join("data");
    fs::write(data.join(OsStr::from_bytes(b"no utf-8 \xff")), pattern(70_000, 7)).unwrap();
    fs::write(data.join("\u{202e}turned"), pattern(3000, 8)).unwrap();
    let old = data.join("before 1970");
    fs::write(&old, "old").unwrap();
    fs::set_permissions(&old, PermissionsExt::from_mode(0o4751)).unwrap();
    let before = UNIX_EPOCH - Duration::from_millis(1500);
    File::options().write(true).open(&old).unwrap().set_modified(before).unwrap();
    fs::hard_link(data.join("big"), data.join("sub dir/again")).unwrap();
    symlink("../nowhere/\u{1b}[2J", data.join("link")).unwrap();
    UnixListener::bind(data.join("socket")).unwrap();
    let node = |name: &str, kind, device| {
        haul_sys::open::mknod_at(CWD, data.join(name).as_os_str(), kind, 0o600, device).unwrap();
    };
    node("fifo", FileKind::Fifo, 0);
    if met_or_skip(&[Need::DeviceNodes]) {
        node("device", FileKind::CharDevice, rustix::fs::makedev(0x123, 0x45678));
    }
}

/// Runs a command that must succeed, whatever bytes it prints.
#[track_caller]
fn done(dir: &Path, args: &[&str]) {
    let ran = haul(dir).args(args).output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{args:?}: {ran:?}");
}

fn now() -> String {
    let ran = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn every_checksum_is_documented() {
    let (described, known) = (checksums(), Algorithm::ALL);
    let names: BTreeSet<&str> = known.iter().map(|algorithm| algorithm.name()).collect();
    assert_eq!(described.keys().map(String::as_str).collect::<BTreeSet<_>>(), names);
    let dir = tempfile::tempdir().unwrap();
    let nine = dir.path().join("nine");
    fs::write(&nine, "123456789").unwrap();
    for algorithm in known {
        let row = &described[algorithm.name()];
        let is_crc = row.len() == 7;
        let bytes = row[1].parse::<usize>().unwrap() / if is_crc { 8 } else { 1 };
        assert_eq!(bytes, algorithm.digest_len(), "{algorithm}");
        if is_crc {
            assert_eq!(digest(row, &nine), row[6], "{algorithm}");
        }
    }
}

#[test]
fn waybills_of_sum_are_parsed_by_an_independent_reader() {
    if !met_or_skip(&PROGRAMS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    rich(dir);
    let all: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    let all = all.join(",");
    let begun = now();
    let jobs: [&[&str]; 4] = [
        &["sum", "-r", "-a", &all, "--object-size", "64K", "--leaf", "--waybill", "w", "data"],
        &["sum", "-a", "blake2b-256,sha256", "--waybill", "w", "data/small"],
        &["sum", "-a", "md5", "--object-size=128K", "--leaf=4K", "--waybill", "w", "data/big"],
        &["sum", "-r", "--object-size=64K", "--waybill", "w", "data/sub dir", "data/before 1970"],
    ];
    for (number, job) in jobs.into_iter().enumerate() {
        done(dir, job);
        let all = || twin::read(&fs::read(dir.join("w")).unwrap()).unwrap();
        let sections = if number == 0 { held(dir, &dir.join("w")) } else { all() };
        assert_eq!(sections.len(), number + 1);
        let head = &sections[number].head;
        let words = [&["haul"][..], job].concat();
        assert_eq!(head.bytes("run"), words.join(" ").into_bytes());
        assert_eq!(head.bytes("program"), concat!("haul ", env!("CARGO_PKG_VERSION")).as_bytes());
        assert_eq!(head.bytes("root"), b".");
        let at = head.text("at");
        assert!(*begun <= *at && *at <= *now(), "{begun} {at}");
    }
    let sections = held(dir, &dir.join("w"));
    let first = &sections[0];
    // For a sum a further name is a separate file. Links, pipes and other special files are
    // skipped.
    assert_eq!(first.entries.len(), 10, "{:?}", first.entries);
    let big = first.entries.iter().find(|entry| entry.fields.text("path") == "data/big").unwrap();
    assert_eq!((big.objects.len(), big.leaves.len()), (11, 11));
    assert_eq!(big.leaves[&10].len(), (700_000 - 10 * 65_536usize).div_ceil(1024));
    let small = &sections[1].entries[0].fields;
    let named = |key: &str| small.get(key).map(|value| hex(value).len());
    assert_eq!((named("blake2b-256"), named("sha256"), named("blake3")), (Some(32), Some(32), Some(32)));
}

#[test]
fn waybills_of_cp_are_parsed_by_an_independent_reader() {
    if !met_or_skip(&PROGRAMS) {
        return;
    }
    for (options, level) in [
        (&["--waybill-digests=crc64nvme,sha3-256"][..], "received"),
        (&["--leaf=4K", "--waybill-digests=md5", "--threads=3"], "received"),
        (&["--verify", "--leaf"], "verified"),
        (&["--verify", "--fadvise-write"], "durable"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        rich(dir);
        let cp = ["cp", "-a", "--reflink=never", "--split-size=64K", "--waybill", "w", "data", "copy"];
        done(dir, &[&cp[..], options].concat());
        let sections = held(dir, &dir.join("w"));
        let [section] = &sections[..] else { panic!("one job, one section") };
        let names = Snapshot::take(&dir.join("copy")).unwrap().entries().count();
        let with_its_own = section.entries.iter().any(|entry| entry.fields.text("path") == "copy");
        let beneath = section.entries.len() - usize::from(with_its_own);
        assert!(beneath == names || beneath + 1 == names, "{beneath} entries, {names} names: {options:?}");
        let files: Vec<&Entry> = section.entries.iter().filter(|entry| entry.tag == "file").collect();
        assert!(files.len() >= 8, "{options:?}");
        for file in files {
            assert_eq!(file.fields.text("way"), "read-write", "{options:?}");
            let is_empty = file.fields.text("size") == "0";
            assert!(is_empty || file.fields.text("level") == level, "{options:?}: {file:?}");
        }
        done(dir, &["verify", "-q", "w", "."]);
    }
}

/// Returns the lines of a waybill with one removed, repeated or moved, or its bytes truncated or
/// with a flipped bit.
fn hurt(whole: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    let (place, line) =
        (random.below(whole.len() as u64) as usize, random.below(lines.len() as u64) as usize);
    match random.below(5) {
        0 => whole[..place].to_vec(),
        1 => {
            lines.remove(line);
            lines.concat()
        }
        2 => {
            lines.insert(line, lines[line]);
            lines.concat()
        }
        3 => {
            lines.swap(line.saturating_sub(1), line);
            lines.concat()
        }
        _ => {
            let mut bytes = whole.to_vec();
            bytes[place] ^= 1 << random.below(8);
            bytes
        }
    }
}

#[test]
fn both_readers_report_damage_in_the_same_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    good(dir, &["sum", "-r", "-a", "md5,crc32", "--object-size=64K", "--leaf=16K", "--waybill", "w", "data"]);
    good(dir, &["sum", "-r", "--object-size=128K", "--waybill", "w", "data"]);
    let whole = fs::read(dir.join("w")).unwrap();
    let mut random = Random::from_seed(30);
    let (mut found, mut sound) = (0, 0);
    for round in 0..150 {
        let bytes = hurt(&whole, &mut random);
        fs::write(dir.join("hurt"), &bytes).unwrap();
        let ran = run(dir, &["waybill", "check", "hurt"]);
        match twin::read(&bytes) {
            Ok(_) => {
                sound += 1;
                assert_eq!(ran.status, Some(0), "round {round}: {ran:?}");
            }
            Err((line, why)) => {
                found += 1;
                assert_eq!((ran.status, &*ran.out), (Some(2), ""), "round {round}, line {line}: {why}");
                let first = ran.err.split("line ").nth(1).and_then(|rest| rest.split(':').next());
                assert_eq!(first, Some(&*line.to_string()), "round {round}: {why}: {}", ran.err);
            }
        }
    }
    // A line may be swapped with itself, and a waybill may be truncated between its sections.
    assert!(found >= 100 && sound <= 20, "{found} found, {sound} sound");
}

/// Returns the code block of the description that starts with `begins`.
fn block(begins: &str) -> String {
    let text = description();
    let block = text.split("```\n").find(|block| block.starts_with(begins));
    block.unwrap_or_else(|| panic!("no block begins with {begins}")).to_owned()
}

#[test]
fn documented_manual_commands_work() {
    if !met_or_skip(&[Need::Program("python3"), Need::Program("b3sum"), Need::Program("sed")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("data")).unwrap();
    for (name, len) in [("one", 150_000), ("two", 10)] {
        fs::write(dir.join("data").join(name), pattern(len, len as u64)).unwrap();
    }
    good(dir, &["sum", "-r", "-a", "sha256", "--object-size=64K", "--waybill", "w", "data"]);
    let sh = |line: &str| {
        let ran =
            Command::new("sh").args(["-c", line]).current_dir(dir).stdin(Stdio::null()).output().unwrap();
        (ran.status.success(), String::from_utf8(ran.stdout).unwrap())
    };
    // The program in Python, on one section, on two sections, and on a damaged waybill.
    fs::write(dir.join("check.py"), format!("import zlib\n{}", block("crc = 0\n"))).unwrap();
    assert!(sh("python3 check.py").0);
    let sections = twin::read(&fs::read(dir.join("w")).unwrap()).unwrap();
    let end = &sections[0].end;
    let (_, printed) = sh(&format!("head -n {} w | b3sum", end.number("lines")));
    assert_eq!(printed.split(' ').next(), Some(end.text("blake3")));
    good(dir, &["sum", "--waybill", "w", "data/two"]);
    assert!(sh("python3 check.py").0);
    let mut bytes = fs::read(dir.join("w")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dir.join("hurt"), bytes).unwrap();
    assert!(!sh("sed 's/\"w\"/\"hurt\"/' check.py > hurt.py && python3 hurt.py 2>/dev/null").0);
    // The sed command.
    let text = description();
    let line = text.split('`').find(|code| code.starts_with("sed -n ")).unwrap();
    let (well, printed) = sh(line);
    assert!(well && printed.lines().filter(|line| line.ends_with(": OK")).count() == 3, "{line}: {printed}");
}
