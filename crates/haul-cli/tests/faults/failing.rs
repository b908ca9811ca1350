//! Storage that fails at chosen bytes, or transfers less than requested.

use super::fixture::{
    FaultFixture, OPTION_SETS, RunResult, assert_same_file, assert_same_tree, assert_unfinished, haul, noise,
    others_are_whole, tree_with_victim, write_old,
};
use haul_lab::faults::Op;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn copy_tree(way: &[&str], from: &Path, to: &Path) -> RunResult {
    haul(["cp", "-aT"].iter().chain(way).map(Path::new).chain([from, to]))
}

/// Copies a tree from the storage with each set of options; `rule` damages the victim, `words` name
/// it. Without the fault, the same command with `--update` then completes the copy.
fn reading_fails(rule: &str, words: &[&str]) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let [store, view] = ["store/tree", "view/tree"].map(|name| fixture.path(name));
    fixture.tree(4 * MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        let sink = fixture.path(&format!("sink{number}"));
        fixture.rules(rule);
        let ended = copy_tree(way, &view, &sink);
        ended.failed_with(words);
        assert_eq!(ended.complaints(), 1, "{way:?}: {ended:?}");
        others_are_whole(&store, &sink);
        if sink.join("victim").exists() {
            assert_unfinished(&sink.join("victim"));
        }
        assert!(!ended.stdout.contains("victim"), "no digest without all bytes: {ended:?}");

        fixture.rules("");
        copy_tree(&["--update"], &view, &sink).is_fine();
        assert_same_tree(&store, &sink);
    }
}

/// Does the same with a copy to the storage.
fn writing_fails(rule: &str, ways: &[&[&str]], words: &[&str]) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in ways.iter().enumerate() {
        let sink = fixture.path(&format!("view/sink{number}"));
        fixture.rules(rule);
        let ended = copy_tree(way, &source, &sink);
        ended.failed_with(words);
        assert_eq!(ended.complaints(), 1, "{way:?}: {ended:?}");
        others_are_whole(&source, &sink);
        if sink.join("victim").exists() {
            assert_unfinished(&sink.join("victim"));
        }

        fixture.rules("");
        copy_tree(&["--update"], &source, &sink).is_fine();
        assert_same_tree(&source, &sink);
    }
}

#[test]
fn a_read_error_in_the_middle_fails_only_its_file() {
    reading_fails(
        "*victim read 1048576..1052672 errno EIO",
        &["error reading", "tree/victim", "Input/output error"],
    );
}

#[test]
fn a_read_error_in_the_last_bytes_fails_only_its_file() {
    reading_fails(
        "*victim read 4194305.. errno EIO",
        &["error reading", "tree/victim", "Input/output error"],
    );
}

#[test]
fn an_open_error_fails_only_its_file() {
    reading_fails("*victim open .. errno EACCES", &["cannot open", "tree/victim", "Permission denied"]);
}

#[test]
fn a_write_error_in_the_middle_fails_only_its_file() {
    writing_fails(
        "*victim write 1048576..1052672 errno EIO",
        &OPTION_SETS,
        &["error writing", "/victim", "Input/output error"],
    );
}

#[test]
fn a_full_device_fails_only_its_file() {
    writing_fails(
        "*victim write 4194304.. errno ENOSPC\n*victim truncate 4194304.. errno ENOSPC",
        &OPTION_SETS,
        &["error writing", "/victim", "No space left on device"],
    );
}

#[test]
fn a_failed_sync_is_reported_as_a_write_error() {
    writing_fails(
        "*victim fsync .. errno EIO",
        &[&["--fadvise-write"], &["--fadvise-write", "--threads=1", "--print-hash"]],
        &["error writing", "/victim", "Input/output error"],
    );
}

#[test]
fn a_close_error_fails_the_file_before_its_times_are_set() {
    writing_fails(
        "*victim flush .. errno EIO",
        &OPTION_SETS,
        &["failed to close", "/victim", "Input/output error"],
    );
}

#[test]
fn a_create_error_fails_only_its_file() {
    writing_fails(
        "*victim create .. errno EACCES",
        &[&[], &["--threads=1"]],
        &["cannot create regular file", "/victim", "Permission denied"],
    );
}

#[test]
fn an_unlistable_directory_is_reported_and_the_rest_copied() {
    let Some(fixture) = FaultFixture::new("tree/dir list .. errno EIO") else { return };
    fixture.tree(MIB);
    let sink = fixture.path("sink");
    let ended = copy_tree(&[], &fixture.path("view/tree"), &sink);
    ended.failed_with(&["tree/dir", "Input/output error"]);
    for name in ["a", "b", "z", "victim"] {
        assert_same_file(&fixture.path("store/tree").join(name), &sink.join(name));
    }
    fixture.rules("");
    copy_tree(&["--update"], &fixture.path("view/tree"), &sink).is_fine();
    assert_same_tree(&fixture.path("store/tree"), &sink);
}

#[test]
fn times_that_cannot_be_set_fail_the_copy() {
    let Some(fixture) = FaultFixture::new("*victim setattr .. errno EPERM") else { return };
    let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
    tree_with_victim(&source, MIB);
    let options = ["cp", "-rT", "--preserve=timestamps"].map(Path::new).into_iter();
    let ended = haul(options.chain([&*source, &*sink]));
    ended.failed_with(&["preserving times for", "/victim", "Operation not permitted"]);
    others_are_whole(&source, &sink);
}

/// Copies a tree from and to storage that transfers less than requested, with each set of options.
fn short_transfers_copy_every_byte(ways: &[&[&str]]) {
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("store/tree");
    fixture.tree(MIB + 7);
    // Direct I/O treats a transfer that stops within a page as the end of the file, as on disks.
    let rules = ["* read .. short 32768", "* write .. short 32768", "*victim write 65536.. short 1 times 9"];
    for (number, way) in ways.iter().enumerate() {
        for rule in rules {
            fixture.rules(rule);
            let [sink, stored] = ["view", "store"].map(|side| fixture.path(&format!("{side}/sink{number}")));
            copy_tree(way, &fixture.path("view/tree"), &sink).is_fine();
            fixture.rules("");
            let [a, b] = [&source, &stored].map(|root| Snapshot::take(root).unwrap());
            assert_eq!(a.diff(&b, Facets::ARCHIVE, 9), [], "{way:?} under {rule:?}");
            fs::remove_dir_all(stored).unwrap();
        }
    }
}

#[test]
fn short_reads_and_writes_copy_every_byte() {
    short_transfers_copy_every_byte(&OPTION_SETS);
}

#[test]
fn interrupted_system_calls_are_retried() {
    let Some(fixture) = FaultFixture::new("") else { return };
    fixture.tree(MIB + 7);
    for (number, way) in OPTION_SETS.iter().enumerate() {
        fixture.rules("*victim read 65536.. errno EINTR times 2\n*victim write 65536.. errno EINTR times 2");
        let sink = format!("sink{number}");
        copy_tree(way, &fixture.path("view/tree"), &fixture.path("view").join(&sink)).is_fine();
        assert_same_tree(&fixture.path("store/tree"), &fixture.path("store").join(&sink));
    }
}

#[test]
fn an_unreadable_source_leaves_the_sink_unchanged() {
    let Some(fixture) = FaultFixture::new("source open .. errno EACCES") else { return };
    let sink = fixture.path("sink");
    write_old(&fixture.path("store/source"), &noise(100));
    fs::write(&sink, b"what was there").unwrap();
    for options in [&[][..], &["-f"], &["-a"], &["--backup"]] {
        let args = ["cp"].iter().chain(options).map(Path::new);
        haul(args.chain([&*fixture.path("view/source"), &*sink]))
            .failed_with(&["source", "Permission denied"]);
        assert_eq!(fs::read(&sink).unwrap(), b"what was there", "{options:?}");
        assert!(!fixture.path("sink~").exists(), "the backup has its name back");
    }
}

#[test]
fn a_sink_that_cannot_be_opened_is_unchanged() {
    let Some(fixture) = FaultFixture::new("sink open .. errno EACCES") else { return };
    write_old(&fixture.path("source"), &noise(100));
    fs::write(fixture.path("store/sink"), b"what was there").unwrap();
    let args = [Path::new("cp"), "-p".as_ref(), &fixture.path("source"), &fixture.path("view/sink")];
    haul(args).failed_with(&["cannot create regular file", "sink", "Permission denied"]);
    assert_eq!(fs::read(fixture.path("store/sink")).unwrap(), b"what was there");
    // With `-f` haul removes the sink.
    haul(["cp", "-pf"].map(Path::new).into_iter().chain(args[2..].iter().copied())).is_fine();
    assert_same_file(&fixture.path("source"), &fixture.path("store/sink"));
}

#[test]
fn a_backup_is_restored_if_the_new_file_cannot_be_created() {
    let Some(fixture) = FaultFixture::new("sink create .. errno ENOSPC") else { return };
    write_old(&fixture.path("source"), &noise(100));
    fs::write(fixture.path("store/sink"), b"what was there").unwrap();
    let ended =
        haul([Path::new("cp"), "--backup".as_ref(), &fixture.path("source"), &fixture.path("view/sink")]);
    ended.failed_with(&["sink", "No space left on device"]);
    assert_eq!(fs::read(fixture.path("store/sink")).unwrap(), b"what was there");
    assert!(!fixture.path("store/sink~").exists());
    assert!(fixture.fired().iter().any(|fired| fired.op == Op::Create));
}

#[test]
fn a_backup_is_restored_if_the_new_file_cannot_be_written() {
    let Some(fixture) = FaultFixture::new("sink write .. errno EIO") else { return };
    write_old(&fixture.path("source"), &noise(100));
    for options in ["--backup=simple", "--backup=numbered"] {
        fs::write(fixture.path("store/sink"), b"what was there").unwrap();
        let ended =
            haul([Path::new("cp"), options.as_ref(), &fixture.path("source"), &fixture.path("view/sink")]);
        ended.failed_with(&["error writing", "sink", "Input/output error"]);
        assert_eq!(fs::read(fixture.path("store/sink")).unwrap(), b"what was there", "{options}");
        assert_eq!(
            fs::read_dir(fixture.path("store")).unwrap().count(),
            1,
            "no other name is left: {options}"
        );
    }
}

#[test]
fn hard_links_of_a_failed_file_are_not_linked_to_it() {
    let Some(fixture) = FaultFixture::new("sink/* write .. errno EIO times 1") else { return };
    fs::create_dir(fixture.path("source")).unwrap();
    write_old(&fixture.path("source/one"), &noise(5000));
    fs::hard_link(fixture.path("source/one"), fixture.path("source/two")).unwrap();
    let ended = copy_tree(&["--threads=1"], &fixture.path("source"), &fixture.path("view/sink"));
    ended.failed_with(&["error writing", "sink/", "Input/output error"]);
    // The first name failed; the second one is copied by itself and complete.
    let (ruined, whole) = if ended.stderr.contains("sink/one'") { ("one", "two") } else { ("two", "one") };
    assert_same_file(&fixture.path("source").join(whole), &fixture.path("store/sink").join(whole));
    assert_unfinished(&fixture.path("store/sink").join(ruined));
    fixture.rules("");
    copy_tree(&["--update"], &fixture.path("source"), &fixture.path("view/sink")).is_fine();
    assert_same_tree(&fixture.path("source"), &fixture.path("store/sink"));
}
