//! Reads of a file: all bytes, from the current file, and into buffers.

use crate::faults::fixture::{FaultFixture, HAUL, HOLD, haul, noise, start, write_old};
use haul_lab::needs::{Need, met_or_skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Returns the calls of these names that a command makes.
fn calls(names: &str, args: &[&Path]) -> Option<String> {
    if !met_or_skip(&[Need::Program("strace")]) {
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={names}"), "-o"]).arg(&log).arg(HAUL).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(fs::read_to_string(&log).unwrap())
}

/// SEEK_DATA has reported holes where data was (OpenZFS 15526). If a file system may do so, all
/// verified data was read.
#[test]
fn hashing_and_verifying_do_not_use_seek_data_on_the_source() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let [local, view, sink] = ["store/source", "view/source", "sink"].map(|name| fixture.path(name));
    File::create(&local).unwrap().set_len(9 << 20).unwrap();
    File::options().write(true).open(&local).unwrap().write_all_at(b"data", 5 << 20).unwrap();
    let cp = |options: &[&str], source: &Path| {
        let words = ["cp"].iter().chain(options).map(Path::new).chain([source, &*sink]);
        calls("lseek", &words.collect::<Vec<_>>())
    };
    for options in [&["--print-hash"][..], &["--print-hash", "--hash-type=blake3"], &["--verify"]] {
        let Some(log) = cp(options, &view) else { return };
        assert!(!log.contains("SEEK_DATA"), "{options:?}: {log}");
    }
    for options in [&["--print-hash", "--hash-type=md5"][..], &["--verify=reread"]] {
        let Some(log) = cp(options, &local) else { return };
        assert!(!log.contains("SEEK_DATA"), "{options:?}: {log}");
    }
    for algorithm in ["md5", "blake3"] {
        let Some(log) = calls("lseek", &["sum".as_ref(), "-a".as_ref(), algorithm.as_ref(), &*local]) else {
            return;
        };
        assert!(!log.contains("SEEK_DATA"), "{algorithm}: {log}");
    }
    // Other copies use SEEK_DATA, which proves that this test can detect it.
    for (options, source) in [(&[][..], &view), (&["--verify"], &local)] {
        let Some(log) = cp(options, source) else { return };
        assert!(log.contains("SEEK_DATA"), "{options:?}: {log}");
    }
}

/// A source that is removed in the end was read completely, including holes.
#[test]
fn moves_do_not_use_seek_data_on_the_source() {
    let (home, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let [source, sink] = [home.path().join("source"), memory.path().join("sink")];
    File::create(&source).unwrap().set_len(9 << 20).unwrap();
    File::options().write(true).open(&source).unwrap().write_all_at(b"data", 5 << 20).unwrap();
    let Some(log) = calls("lseek,unlinkat,unlink", &["mv".as_ref(), &*source, &*sink]) else { return };
    assert!(log.contains("unlink") && !source.exists(), "it was copied and removed: {log}");
    assert!(!log.contains("SEEK_DATA"), "{log}");
    let bytes = fs::read(&sink).unwrap();
    assert_eq!((bytes.len(), &bytes[5 << 20..(5 << 20) + 4]), (9 << 20, &b"data"[..]));
}

/// Mapped files cause seeks on hard disks and count as memory of the process (b3sum 32, 305).
#[test]
fn files_are_not_memory_mapped() {
    for words in [&["sum", "-a", "blake3"][..], &["sum", "-a", "md5"], &["sum", "-a", "md5,crc32c"], &["cp"]]
    {
        let Some(fixture) = FaultFixture::new(&format!("victim read 1048576.. delay {HOLD} times 1")) else {
            return;
        };
        write_old(&fixture.path("store/victim"), &noise(6 << 20));
        let (victim, sink) = (fixture.path("view/victim"), fixture.path("sink"));
        let sink = (words == ["cp"]).then_some(&*sink);
        let running = start(words.iter().map(Path::new).chain([&*victim]).chain(sink));
        fixture.held();
        let maps = running.maps();
        fixture.release();
        running.end().is_fine();
        assert!(maps.contains("haul"), "no map was seen: {maps}");
        assert!(!maps.contains("victim") && !maps.contains("/sink"), "{words:?}: {maps}");
    }
}

/// haul keeps no state of a file between runs, so that an unchanged time hides nothing.
#[test]
fn a_changed_bit_with_unchanged_time_is_detected() {
    let home = tempfile::tempdir().unwrap();
    let [file, list] = ["file", "list"].map(|name| home.path().join(name));
    write_old(&file, &noise(100_000));
    fs::write(
        &list,
        haul(["sum".as_ref(), "-a".as_ref(), "sha256".as_ref(), &*file]).is_fine().stdout.as_bytes(),
    )
    .unwrap();
    let check = || haul(["sum".as_ref(), "-a".as_ref(), "sha256".as_ref(), "-c".as_ref(), &*list]);
    check().is_fine();
    let writer = File::options().write(true).open(&file).unwrap();
    writer.write_all_at(&[noise(100_000)[70_000] ^ 4], 70_000).unwrap();
    writer.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let ended = check();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("file: FAILED"), "{ended:?}");
}

#[test]
fn a_read_error_prevents_the_digest() {
    for algorithm in ["md5", "blake3", "crc32c", "xxh128", "sha1,adler32"] {
        for from in [0, 3 << 20, (5 << 20) - 1] {
            let Some(fixture) = FaultFixture::new(&format!("victim read {from}.. errno EIO")) else { return };
            write_old(&fixture.path("store/victim"), &noise(5 << 20));
            write_old(&fixture.path("store/well"), &noise(10));
            let [victim, well] = ["view/victim", "view/well"].map(|name| fixture.path(name));
            let ended = haul(["sum".as_ref(), "-a".as_ref(), algorithm.as_ref(), &*victim, &*well]);
            ended.failed_with(&["view/victim", "Input/output error"]);
            assert!(
                !ended.stdout.contains("victim") && ended.stdout.contains("well"),
                "{algorithm} {from}: {ended:?}"
            );
            let sink = fixture.path("sink");
            let ended = haul(["cp".as_ref(), "--print-hash".as_ref(), &*victim, &*sink]);
            ended.failed_with(&["view/victim", "Input/output error"]);
            assert_eq!(ended.stdout, "", "{ended:?}");
        }
    }
}
