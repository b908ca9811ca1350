//! Storage that corrupts data, and `--verify=reread`, which reads the data back: damage that the
//! page cache hides, repaired objects, and failures.

use super::fixture::{
    FaultFixture, HAUL, HOLD, RunResult, Running, assert_same_tree, assert_unfinished, haul, noise,
    others_are_whole, start, tree_with_victim, write_old,
};
use haul_lab::faults::{Action, Op};
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Options with different paths to the re-read; objects of 1 MiB.
const OPTION_SETS: [&[&str]; 7] = [
    &["--split-size=1M"],
    &["--split-size=1M", "--threads=1"],
    &["--split-size=1M", "--threads=4", "--print-hash", "--hash-type=crc32"],
    &["--split-size=1M", "--print-hash", "--hash-type=md5"],
    &["--split-size=1M", "--sparse=always"],
    &["--split-size=1M", "--double-buffer"],
    &["--split-size=1M", "--direct-write"],
];

fn copy(way: &[&str], source: &Path, sink: &Path) -> RunResult {
    haul(["cp", "-aT", "--verify=reread"].iter().chain(way).map(Path::new).chain([source, sink]))
}

/// Returns the number of writes that the storage damaged.
fn flips(fixture: &FaultFixture) -> usize {
    fixture.fired().iter().filter(|fired| matches!(fired.action, Action::Flip { .. })).count()
}

#[test]
fn stream_and_hybrid_do_not_detect_storage_damage() {
    for verify in ["--verify=stream", "--verify=hybrid"] {
        let Some(fixture) = FaultFixture::new("*victim write .. flip 2500000.3") else { return };
        let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
        tree_with_victim(&source, 4 * MIB);
        haul([Path::new("cp"), "-aT".as_ref(), verify.as_ref(), &source, &sink]).is_fine();
        let [sent, kept] =
            [source, fixture.path("store/sink")].map(|root| fs::read(root.join("victim")).unwrap());
        let differing: Vec<usize> = (0..sent.len()).filter(|&at| sent[at] != kept[at]).collect();
        assert_eq!(differing, [2_500_000], "{verify}: the fault is real, and unseen");
    }
}

#[test]
fn damage_that_does_not_recur_is_repaired() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
        fixture.rules(
            "*victim write .. flip 2500000.3 times 2\n*victim write 0..1048576 drop times 2\n*d write .. flip 4500.1 times 1",
        );
        let before = flips(&fixture);
        let ended = copy(way, &source, &sink);
        assert_eq!(ended.code, Some(0), "{way:?}: {ended:?}");
        assert_eq!(flips(&fixture) - before, 3, "{way:?}: the faults are real");
        for words in [
            "warning: bytes 2097152-3145728 of ",
            "/victim' differed when read back from the device; rewritten (2 times)",
            "warning: bytes 0-1048576 of ",
            "warning: bytes 0-5000 of ",
        ] {
            assert!(ended.stderr.contains(words), "{way:?}: no {words}: {ended:?}");
        }
        assert_eq!(ended.complaints(), 3, "{way:?}: {ended:?}");
        assert_same_tree(&source, &stored);
    }
}

/// If one of the five objects of a file is wrong, no byte of the other objects is written a second
/// time.
#[test]
fn only_the_damaged_object_is_rewritten() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
        fixture.rules("*victim write .. flip 2500000.3 times 1\n*victim write .. delay 0");
        let before = fixture.fired().len();
        let ended = copy(way, &source, &sink);
        assert_eq!((ended.code, ended.complaints()), (Some(0), 1), "{way:?}: {ended:?}");
        assert_same_tree(&source, &stored);
        let mut written: BTreeMap<u64, u32> = BTreeMap::new();
        for fired in fixture.fired()[before..].iter().filter(|fired| matches!(fired.action, Action::Delay(_)))
        {
            *written.entry(fired.from).or_default() += 1;
        }
        assert_eq!(written.get(&(2 * MIB)), Some(&2), "{way:?}: {written:?}");
        let others = written.iter().filter(|(from, _)| !(2 * MIB..3 * MIB).contains(*from));
        // With direct I/O, one write at the start tests if the storage accepts direct writes.
        let tried = u32::from(way.contains(&"--direct-write"));
        let expected = |from: u64| if from == 0 { 1 + tried } else { 1 };
        let again: Vec<_> = others.clone().filter(|(from, times)| **times != expected(**from)).collect();
        assert!(others.count() >= 4 && again.is_empty(), "{way:?}: {again:?}");
    }
}

#[test]
fn damage_that_recurs_fails_only_its_file() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
        fixture.rules("*victim write .. flip 2500000.3");
        let before = flips(&fixture);
        let ended = copy(way, &source, &sink);
        ended.failed_with(&["/victim' differs from ", "in bytes 2097152-3145728", "after each of 4 writes"]);
        assert_eq!((ended.complaints(), flips(&fixture) - before), (1, 4), "{way:?}: {ended:?}");
        others_are_whole(&source, &stored);
        assert_unfinished(&stored.join("victim"));
        assert!(!ended.stdout.contains("victim"), "{ended:?}");

        fixture.rules("");
        copy(&["--update"], &source, &sink).is_fine();
        assert_same_tree(&source, &stored);
    }
}

#[test]
fn only_damaged_small_files_are_rewritten_or_fail() {
    let Some(fixture) = FaultFixture::new(
        "*f70 write .. flip 50.1\n*f140 write .. flip 1999.7 times 1\n*f9 fsync .. errno EIO",
    ) else {
        return;
    };
    let source = fixture.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for number in 0..200 {
        let name = if number % 2 == 0 { format!("f{number}") } else { format!("dir/f{number}") };
        write_old(&source.join(name), &noise(2000 + number));
    }
    write_old(&source.join("empty"), b"");
    let ended = copy(&[], &source, &fixture.path("view/sink"));
    ended.failed_with(&["sink/f70' differs from", "in bytes 0-2070", "4 writes"]);
    ended.failed_with(&["error syncing", "/f9': Input/output error"]);
    assert!(ended.stderr.contains("warning: bytes 0-2140 of"), "{ended:?}");
    assert_eq!(ended.complaints(), 3, "{ended:?}");
    for name in ["f70", "dir/f9"] {
        assert_unfinished(&fixture.path("store/sink").join(name));
    }
    fixture.rules("");
    copy(&["--update"], &source, &fixture.path("view/sink")).is_fine();
    assert_same_tree(&source, &fixture.path("store/sink"));
}

#[test]
fn a_temporary_read_error_is_repaired_and_a_permanent_one_fails() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
        // The kernel's read-ahead gets the first error and does not report it.
        fixture.rules("*victim read 1048576..1052672 errno EIO times 2");
        let ended = copy(way, &source, &sink);
        assert_eq!((ended.code, ended.complaints()), (Some(0), 1), "{way:?}: {ended:?}");
        assert!(ended.stderr.contains("warning: bytes 1048576-2097152 of "), "{way:?}: {ended:?}");
        assert_same_tree(&source, &stored);

        fixture.rules("*victim read 1048576..1052672 errno EIO");
        fs::remove_dir_all(&stored).unwrap();
        copy(way, &source, &sink).failed_with(&[&format!("sink{number}/victim"), "Input/output error"]);
        others_are_whole(&source, &stored);
        assert_unfinished(&stored.join("victim"));
    }
}

/// The copy must equal the first read, because each digest of the file describes these bytes. A
/// source that returns other bytes the second time cannot repair the copy.
#[test]
fn a_source_that_reads_differently_each_time_fails() {
    let rules = "tree/victim read .. flip 100.1 times 1\nsink/victim write .. flip 200.2 times 1";
    let Some(fixture) = FaultFixture::new(rules) else { return };
    fixture.tree(3 * MIB);
    let sink = fixture.path("view/sink");
    let ended = copy(&["--split-size=1M"], &fixture.path("view/tree"), &sink);
    ended.failed_with(&["bytes 0-1048576 of ", "tree/victim' differ on each read"]);
    others_are_whole(&fixture.path("store/tree"), &fixture.path("store/sink"));
    assert_unfinished(&fixture.path("store/sink/victim"));
}

#[test]
fn damage_to_data_from_a_pipe_is_detected_but_not_repaired() {
    let Some(fixture) = FaultFixture::new("sink write .. flip 1300000.1 times 1") else { return };
    let source = fixture.path("source");
    fs::write(&source, noise(3 * MIB)).unwrap();
    let (sink, stored) = (fixture.path("view/sink"), fixture.path("store/sink"));
    let piped = || {
        let (from, to) = (source.display(), sink.display());
        let line = format!("cat '{from}' | '{HAUL}' cp --verify=reread --split-size=1M /dev/stdin '{to}'");
        Running::new(Command::new("sh").args(["-c", &line])).end()
    };
    piped().failed_with(&["sink' differs from ", "in bytes ", "after each of 1 writes"]);
    assert_unfinished(&stored);
    piped().is_fine();
    assert!(fs::read(&stored).unwrap() == noise(3 * MIB));
}

#[test]
fn sigint_during_read_back_leaves_no_complete_looking_file() {
    let Some(fixture) = FaultFixture::new(&format!("sink/victim read .. delay {HOLD} times 1")) else {
        return;
    };
    fixture.tree(8 * MIB);
    let (source, sink) = (fixture.path("store/tree"), fixture.path("view/sink"));
    let words = ["cp", "-aT", "--verify=reread", "--split-size=1M"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]));
    assert_eq!(fixture.held(), Path::new("sink/victim"));
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!sink.join("victim").exists(), "a new file that was interrupted is removed");
    copy(&["--update"], &source, &sink).is_fine();
    assert_same_tree(&source, &fixture.path("store/sink"));
}

#[test]
fn a_source_changed_during_read_back_is_reported_as_changed() {
    let rules = format!("sink/victim read .. delay {HOLD} times 1\nsink/victim write .. flip 5.5");
    let Some(fixture) = FaultFixture::new(&rules) else { return };
    fixture.tree(8 * MIB);
    let (source, sink) = (fixture.path("store/tree"), fixture.path("view/sink"));
    let words = ["cp", "-aT", "--verify=reread", "--split-size=1M"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]));
    fixture.held();
    File::options().write(true).open(source.join("victim")).unwrap().write_all_at(b"new", 0).unwrap();
    fixture.release();
    let ended = running.end();
    ended.failed_with(&["tree/victim'", "the source changed during the copy"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_unfinished(&fixture.path("store/sink/victim"));
}

/// The re-read of the first objects does not wait for the last writes.
#[test]
fn objects_are_read_back_while_others_are_still_written() {
    let Some(fixture) = FaultFixture::new("sink write .. delay 0\nsink read .. delay 0") else {
        return;
    };
    let source = fixture.path("source");
    fs::write(&source, noise(112 * MIB)).unwrap();
    for threads in ["--threads=1", "--threads=3"] {
        let sink = fixture.path("view/sink");
        let before = fixture.fired().len();
        haul([Path::new("cp"), "--verify=reread".as_ref(), threads.as_ref(), &source, &sink]).is_fine();
        let fired = &fixture.fired()[before..];
        let places = |op| (0..fired.len()).filter(move |&at| fired[at].op == op);
        let (read, written) = (places(Op::Read).next().unwrap(), places(Op::Write).next_back().unwrap());
        assert!(read < written, "{threads}: the first read is step {read}, the last write {written}");
        let meanwhile = places(Op::Read).filter(|&at| at < written).count();
        assert!(meanwhile > 10, "{threads}: {meanwhile} reads came before the last write");
        fs::remove_file(fixture.path("store/sink")).unwrap();
    }
}

/// Returns the last event of `--json`.
fn summary(ended: &RunResult) -> serde_json::Value {
    serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap()
}

/// Creates a tree with all kinds of files: tiny, empty, sparse, of one object and of many objects.
/// Returns its size in bytes.
fn shapes(root: &Path) -> u64 {
    tree_with_victim(root, 3 * MIB + 5);
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(5 * MIB + 3).unwrap();
    sparse.write_all_at(&noise(70_000), 2 * MIB + 9).unwrap();
    File::create(root.join("hole")).unwrap().set_len(2 * MIB).unwrap();
    (10 + 70_000 + 5000 + 1) + (3 * MIB + 5) + (5 * MIB + 3) + 2 * MIB
}

#[test]
fn reread_reads_every_byte_from_the_disk_with_all_options() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let small = SmallFs::new(64).unwrap();
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    let bytes = shapes(&source);
    let ways = OPTION_SETS.iter().copied().chain([
        &["--split-size=64K", "--buffer-size=4K", "--threads=3"][..],
        &["--fadvise-write", "--direct-read", "--direct-write"],
        &["--reflink=auto"],
    ]);
    for way in ways {
        let sink = small.path().join("sink");
        let options: Vec<&str> = ["--json"].into_iter().chain(way.iter().copied()).collect();
        // A new sink, and an existing one.
        for _ in 0..2 {
            let ended = copy(&options, &source, &sink);
            let reported = summary(ended.is_fine());
            assert_eq!(reported["bytes_reread"], bytes, "{way:?}: {reported}");
            assert_eq!(
                (&reported["bytes_read_back"], &reported["objects_mended"]),
                (&0.into(), &0.into()),
                "{way:?}"
            );
            let levels: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("\"file\"")).collect();
            assert_eq!(levels.len(), 8, "{way:?}");
            for line in levels {
                let proof = if line.contains("\"bytes\":0,") { "durable" } else { "re-read" };
                assert!(line.contains(&format!("\"proof\":\"{proof}\"")), "{way:?}: {line}");
            }
            assert_same_tree(&source, &sink);
        }
        fs::remove_dir_all(&sink).unwrap();
    }
    small.close().unwrap();
}

#[test]
fn reread_without_a_device_compares_and_warns_once() {
    let memory = Path::new("/dev/shm");
    let is_memory = rustix::fs::statfs(memory).is_ok_and(|found| found.f_type == 0x0102_1994);
    if !haul_lab::needs::shown_or_skip(is_memory, "a tmpfs on /dev/shm") {
        return;
    }
    let (home, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in(memory).unwrap());
    let (source, sink) = (home.path().join("source"), place.path().join("sink"));
    let bytes = shapes(&source);
    let ended = copy(&["--json"], &source, &sink);
    assert_eq!((ended.code, ended.complaints()), (Some(0), 1), "{ended:?}");
    assert!(
        ended.stderr.contains("was not read back from the device: the file system is in memory"),
        "{ended:?}"
    );
    let reported = summary(&ended);
    assert_eq!(
        (&reported["bytes_reread"], &reported["bytes_read_back"]),
        (&0.into(), &bytes.into()),
        "{reported}"
    );
    assert!(!ended.stdout.contains("re-read"), "{ended:?}");
    assert_same_tree(&source, &sink);
}

/// Pages of a file cannot be dropped from the page cache while another process has them in a pipe.
/// A read-back then returns these pages.
#[test]
fn pages_pinned_by_another_process_do_not_count_as_reread() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let small = SmallFs::new(32).unwrap();
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), small.path().join("sink"));
    fs::write(&source, noise(4 * MIB)).unwrap();
    // The copy writes into the existing file, and so into the held pages.
    let part = ["--offset=0", "--length=4194304", "--split-size=1M", "--json"];
    for held in [false, true] {
        fs::write(&sink, noise(4 * MIB + 1)).unwrap();
        let (reader, writer) = pipe().unwrap();
        fcntl_setpipe_size(&writer, 1 << 18).unwrap();
        if held {
            let mut at = 2 * MIB + 8192;
            let taken = splice(
                File::open(&sink).unwrap(),
                Some(&mut at),
                &writer,
                None,
                65_536,
                SpliceFlags::NONBLOCK,
            );
            assert!(taken.unwrap() > 0);
        }
        let ended = copy(&part, &source, &sink);
        let reported = summary(&ended);
        let bytes = |name: &str| reported[name].as_u64().unwrap();
        let (fresh, kept) = (bytes("bytes_reread"), bytes("bytes_read_back"));
        // The held pages keep their neighbours in memory, as far as the kernel groups them.
        assert!(fresh + kept == 4 * MIB && fresh > 0 && (kept > 0) == held, "{reported}");
        let file = ended.stdout.lines().find(|line| line.contains("\"file\"")).unwrap();
        assert_eq!(file.contains("\"proof\":\"re-read\""), !held, "{file}");
        assert_eq!((ended.code, ended.complaints()), (Some(0), usize::from(held)), "{ended:?}");
        assert_eq!(ended.stderr.contains("the kernel does not drop cached pages"), held, "{ended:?}");
        assert!(fs::read(&sink).unwrap()[..4 << 20] == fs::read(&source).unwrap());
        drop((reader, writer));
    }
    small.close().unwrap();
}

#[test]
fn a_device_file_sink_is_written_and_reported_as_not_read_back() {
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    fs::write(&source, noise(MIB)).unwrap();
    let ended = haul([Path::new("cp"), "--verify=reread".as_ref(), &source, "/dev/null".as_ref()]);
    assert_eq!((ended.code, ended.complaints()), (Some(0), 1), "{ended:?}");
    assert!(ended.stderr.contains("'/dev/null' was not read back from the device: it is not a regular file"));
}
