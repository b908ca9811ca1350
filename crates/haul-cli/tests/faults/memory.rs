//! Memory use does not grow with the number or the length of files. The limit is coarse: an
//! additional kilobyte for each file would exceed it.

use super::fixture::{HAUL, RunResult, Running, haul, resident_peak};
use haul_lab::dataset::DataSet;
use rustix::fs::statvfs;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB_IN_KIB: u64 = 1024;

/// Creates a test directory in memory if there is space for many files, because a disk would get
/// 80,000 requests. Otherwise uses the default location.
fn roomy() -> TempDir {
    let memory = Path::new("/dev/shm");
    let free = statvfs(memory).map_or(0, |space| space.f_bavail * space.f_frsize);
    let place = (free > 1 << 30).then(|| tempfile::tempdir_in(memory).ok()).flatten();
    place.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

#[track_caller]
fn assert_small(what: &str, ended: &RunResult) {
    ended.is_fine();
    assert!(ended.peak_kib > 0, "{what} ended before its memory was measured");
    assert!(ended.peak_kib < 64 * MIB_IN_KIB, "{what} took {} KiB", ended.peak_kib);
}

/// Copies and hashes a tree of 20,000 files.
fn copy_and_sum(what: &str, source: &Path, home: &TempDir) {
    let sink = home.path().join("sink");
    assert_small(&format!("cp of {what}"), &haul([Path::new("cp"), "-aT".as_ref(), source, &sink]));
    let sum = haul([Path::new("sum"), "-a".as_ref(), "blake3".as_ref(), "-r".as_ref(), &sink]);
    assert_eq!(sum.stdout.lines().count(), 20_000);
    assert_small(&format!("sum of {what}"), &sum);
    let again = haul([Path::new("cp"), "-aTu".as_ref(), "--print-hash".as_ref(), source, &sink]);
    assert_small(&format!("cp -u of {what}"), &again);
    assert_eq!(again.stdout, "", "nothing was left to copy");
}

#[test]
fn twenty_thousand_files_in_one_directory_take_little_memory() {
    let home = roomy();
    let source = home.path().join("source");
    DataSet::Uniform { files: 20_000, bytes: 1 }.build(&source, 1, 1).unwrap();
    copy_and_sum("a flat tree", &source, &home);
}

#[test]
fn twenty_thousand_files_in_nested_directories_take_little_memory() {
    let home = roomy();
    let source = home.path().join("source");
    for number in 0..2000 {
        let dir =
            source.join(format!("a{}/b{}/c{}/d{number}", number % 4, number / 4 % 10, number / 40 % 10));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..10 {
            fs::write(dir.join(format!("f{file}")), b"x").unwrap();
        }
    }
    copy_and_sum("a nested tree", &source, &home);
}

/// All commands that read or write a receipt: write, verify, export, repair. Also digests that are
/// stored with files.
#[test]
fn receipts_of_twenty_thousand_files_take_little_memory() {
    let home = roomy();
    let [source, sink, summed, copied] =
        ["source", "sink", "summed", "copied"].map(|name| home.path().join(name));
    DataSet::Uniform { files: 20_000, bytes: 1 }.build(&source, 1, 1).unwrap();
    let job = |what: &str, words: &[&str], paths: &[&Path]| {
        let ended = haul(words.iter().map(Path::new).chain(paths.iter().copied()));
        assert_small(what, &ended);
        ended.stdout.lines().count()
    };
    assert_eq!(job("sum --waybill", &["sum", "-r", "--waybill"], &[&summed, &source]), 20_000);
    job("cp --waybill", &["cp", "-aT", "--waybill"], &[&copied, &source, &sink]);
    job("verify", &["verify", "-q"], &[&summed, &source]);
    job("verify --extra", &["verify", "-q", "--cached", "--extra"], &[&summed, &source]);
    assert_eq!(job("waybill check", &["waybill", "check"], &[&copied]), 1);
    assert_eq!(job("waybill export", &["waybill", "export"], &[&copied]), 20_000);
    // With a second section all paths are looked up in an index of both sections.
    job("sum --waybill again", &["sum", "-r", "--waybill"], &[&summed, &source]);
    assert_eq!(job("waybill export of two", &["waybill", "export"], &[&summed]), 20_000);
    let some = fs::read_dir(&sink).unwrap().flatten().filter(|entry| entry.path().is_file()).take(3);
    some.for_each(|entry| fs::remove_file(entry.path()).unwrap());
    let repaired = job("repair", &["repair", "-q"], &[&summed, &sink, "--from".as_ref(), &source]);
    assert_eq!(repaired, 3);
    assert_eq!(job("sum --store", &["sum", "-r", "--store=tree"], &[&sink]), 20_000);
    job("verify of stored digests", &["verify", "-q", "--cached"], &[&sink]);
}

/// Two processes transfer the files, with logs and waybills, and again when all files exist.
#[test]
fn transfer_of_twenty_thousand_files_takes_little_memory() {
    let home = roomy();
    let source = home.path().join("source");
    DataSet::Uniform { files: 20_000, bytes: 1 }.build(&source, 1, 1).unwrap();
    let state = roomy();
    let run = |words: &[&str]| {
        let mut command = Command::new(HAUL);
        command.current_dir(home.path()).env("XDG_STATE_HOME", state.path()).args(words);
        command
    };
    let serve = ["serve", "-q", "--plain", "--keep-owner", "--listen=127.0.0.1:0", "--root=."];
    let mut server = run(&serve).stdout(Stdio::piped()).spawn().unwrap();
    let mut ticket = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
    fs::write(home.path().join("ticket"), ticket).unwrap();
    fs::set_permissions(home.path().join("ticket"), fs::Permissions::from_mode(0o600)).unwrap();
    for (what, words) in [
        ("send", &["send", "source", ":sent"][..]),
        ("send --update", &["send", "--update", "source", ":sent"]),
        ("fetch", &["fetch", "--waybill=fetched.waybill", ":sent/source", "back"]),
        ("fetch --delete --checksum", &["fetch", "--delete", "--checksum", ":sent/source", "back"]),
    ] {
        let words = [&words[..1], &["-q", "--plain", "--ticket-file=ticket"], &words[1..]].concat();
        assert_small(what, &Running::new(&mut run(&words)).end());
        let peak = resident_peak(server.id());
        assert!(peak > 0 && peak < 64 * MIB_IN_KIB, "{what} took {peak} KiB of the server");
    }
    server.kill().unwrap();
    server.wait().unwrap();
    for end in ["sent", "back"] {
        let arrived = walk(&home.path().join(end));
        assert_eq!(arrived, 20_000, "{end}");
    }
}

/// Returns the number of regular files beneath a directory.
fn walk(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| if entry.file_type().unwrap().is_dir() { walk(&entry.path()) } else { 1 }).sum()
}

#[test]
fn long_files_take_little_memory() {
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), home.path().join("sink"));
    File::create(&source).unwrap().set_len(3 << 30).unwrap();
    let paths = [&*source, &*sink];
    for options in [&["--sparse=always"][..], &["--print-hash", "--hash-type=blake3"]] {
        let args = ["cp"].iter().chain(options).map(Path::new).chain(paths);
        assert_small(&format!("cp {options:?}"), &haul(args));
    }
    for algorithm in ["blake3", "crc32c,adler32"] {
        let ended = haul(["sum", "-a", algorithm].map(Path::new).into_iter().chain([&*source]));
        assert_small(&format!("sum -a {algorithm}"), &ended);
    }
}

#[test]
fn hundreds_of_files_larger_than_an_object_take_little_memory() {
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), home.path().join("sink"));
    fs::create_dir(&source).unwrap();
    for number in 0..400 {
        File::create(source.join(format!("f{number}"))).unwrap().set_len((5 << 20) + number).unwrap();
    }
    for options in [&["--threads=8"][..], &["--threads=8", "--verify"], &["--threads=8", "--verify=reread"]] {
        let args = ["cp", "-aT"].iter().chain(options).map(Path::new).chain([&*source, &*sink]);
        let ended = haul(args);
        ended.is_fine();
        assert!(ended.peak_kib < 64 * MIB_IN_KIB, "{options:?} took {} KiB", ended.peak_kib);
        fs::remove_dir_all(&sink).unwrap();
    }
}

/// The leaves of 1 KiB of this file have 96 MiB of digests, and its waybill has 128 MiB.
#[test]
fn leaves_of_long_files_take_little_memory() {
    let home = tempfile::tempdir().unwrap();
    let (root, sink) = (home.path().join("root"), home.path().join("sink"));
    let (summed, copied) = (home.path().join("summed"), home.path().join("copied"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&sink).unwrap();
    let file = root.join("file");
    File::create(&file).unwrap().set_len(3 << 30).unwrap();
    let word = |word: &'static str| Path::new(word);
    let sum = [word("sum"), word("--waybill"), &summed, word("--leaf"), &file];
    assert_small("sum --leaf", &haul(sum));
    let serial = [word("cp"), word("--leaf"), word("--waybill"), &copied, &file, &sink];
    assert_small("cp --leaf", &haul(serial));
    let damaged = sink.join("file");
    let mtime = fs::metadata(&damaged).unwrap().modified().unwrap();
    let open = File::options().write(true).open(&damaged).unwrap();
    open.write_all_at(b"x", (2 << 30) + 5).unwrap();
    open.set_modified(mtime).unwrap();
    let reported = haul([word("verify"), word("--locate"), word("--cached"), &copied, &sink]);
    assert_eq!(
        (reported.code, reported.stdout.as_str()),
        (Some(1), "'file': rotted: bytes 2147483648-2147484672\n")
    );
    assert!(
        reported.peak_kib > 0 && reported.peak_kib < 64 * MIB_IN_KIB,
        "verify took {} KiB",
        reported.peak_kib
    );
}
