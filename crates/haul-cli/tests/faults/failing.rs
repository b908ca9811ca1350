//! Storage that fails at chosen bytes, or transfers less than requested.

use super::bed::{
    Ended, FaultBed, WAYS, assert_same_file, assert_same_tree, assert_unfinished, haul, noise,
    others_are_whole, tree_with_victim, write_old,
};
use haul_lab::faults::Op;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn copy_tree(way: &[&str], from: &Path, to: &Path) -> Ended {
    haul(["cp", "-aT"].iter().chain(way).map(Path::new).chain([from, to]))
}

/// Copies a tree from the storage with each set of options; `rule` damages the victim, `words` name
/// it. Without the fault, the same command with `--update` then completes the copy.
fn reading_fails(rule: &str, words: &[&str]) {
    let Some(bed) = FaultBed::new("") else { return };
    let [store, view] = ["store/tree", "view/tree"].map(|name| bed.path(name));
    bed.tree(4 * MIB + 7);
    for (number, way) in WAYS.iter().enumerate() {
        let sink = bed.path(&format!("sink{number}"));
        bed.rules(rule);
        let ended = copy_tree(way, &view, &sink);
        ended.failed_with(words);
        assert_eq!(ended.complaints(), 1, "{way:?}: {ended:?}");
        others_are_whole(&store, &sink);
        if sink.join("victim").exists() {
            assert_unfinished(&sink.join("victim"));
        }
        assert!(!ended.stdout.contains("victim"), "no digest without all bytes: {ended:?}");

        bed.rules("");
        copy_tree(&["--update"], &view, &sink).is_fine();
        assert_same_tree(&store, &sink);
    }
}

/// Does the same with a copy to the storage.
fn writing_fails(rule: &str, ways: &[&[&str]], words: &[&str]) {
    let Some(bed) = FaultBed::new("") else { return };
    let source = bed.path("source");
    tree_with_victim(&source, 4 * MIB + 7);
    for (number, way) in ways.iter().enumerate() {
        let sink = bed.path(&format!("view/sink{number}"));
        bed.rules(rule);
        let ended = copy_tree(way, &source, &sink);
        ended.failed_with(words);
        assert_eq!(ended.complaints(), 1, "{way:?}: {ended:?}");
        others_are_whole(&source, &sink);
        if sink.join("victim").exists() {
            assert_unfinished(&sink.join("victim"));
        }

        bed.rules("");
        copy_tree(&["--update"], &source, &sink).is_fine();
        assert_same_tree(&source, &sink);
    }
}

#[test]
fn a_read_error_in_the_middle_names_the_file_and_spares_the_rest() {
    reading_fails(
        "*victim read 1048576..1052672 errno EIO",
        &["error reading", "tree/victim", "Input/output error"],
    );
}

#[test]
fn a_read_error_in_the_last_bytes_names_the_file_and_spares_the_rest() {
    reading_fails(
        "*victim read 4194305.. errno EIO",
        &["error reading", "tree/victim", "Input/output error"],
    );
}

#[test]
fn a_file_that_may_not_be_opened_is_named_and_spares_the_rest() {
    reading_fails("*victim open .. errno EACCES", &["cannot open", "tree/victim", "Permission denied"]);
}

#[test]
fn a_write_error_in_the_middle_names_the_file_and_spares_the_rest() {
    writing_fails(
        "*victim write 1048576..1052672 errno EIO",
        &WAYS,
        &["error writing", "/victim", "Input/output error"],
    );
}

#[test]
fn a_device_that_is_full_for_one_file_names_it_and_spares_the_rest() {
    writing_fails(
        "*victim write 4194304.. errno ENOSPC\n*victim truncate 4194304.. errno ENOSPC",
        &WAYS,
        &["error writing", "/victim", "No space left on device"],
    );
}

#[test]
fn a_sync_that_fails_is_an_error_of_writing() {
    writing_fails(
        "*victim fsync .. errno EIO",
        &[&["--fadvise-write"], &["--fadvise-write", "--threads=1", "--print-hash"]],
        &["error writing", "/victim", "Input/output error"],
    );
}

#[test]
fn a_loss_told_at_close_fails_the_file_before_it_gets_its_times() {
    writing_fails("*victim flush .. errno EIO", &WAYS, &["failed to close", "/victim", "Input/output error"]);
}

#[test]
fn a_name_that_cannot_be_made_is_told_and_spares_the_rest() {
    writing_fails(
        "*victim create .. errno EACCES",
        &[&[], &["--threads=1"]],
        &["cannot create regular file", "/victim", "Permission denied"],
    );
}

#[test]
fn a_directory_that_cannot_be_listed_is_told_and_the_others_are_copied() {
    let Some(bed) = FaultBed::new("tree/dir list .. errno EIO") else { return };
    bed.tree(MIB);
    let sink = bed.path("sink");
    let ended = copy_tree(&[], &bed.path("view/tree"), &sink);
    ended.failed_with(&["tree/dir", "Input/output error"]);
    for name in ["a", "b", "z", "victim"] {
        assert_same_file(&bed.path("store/tree").join(name), &sink.join(name));
    }
    bed.rules("");
    copy_tree(&["--update"], &bed.path("view/tree"), &sink).is_fine();
    assert_same_tree(&bed.path("store/tree"), &sink);
}

#[test]
fn times_that_cannot_be_set_fail_the_copy() {
    let Some(bed) = FaultBed::new("*victim setattr .. errno EPERM") else { return };
    let (source, sink) = (bed.path("source"), bed.path("view/sink"));
    tree_with_victim(&source, MIB);
    let options = ["cp", "-rT", "--preserve=timestamps"].map(Path::new).into_iter();
    let ended = haul(options.chain([&*source, &*sink]));
    ended.failed_with(&["preserving times for", "/victim", "Operation not permitted"]);
    others_are_whole(&source, &sink);
}

/// Copies a tree from and to storage that transfers less than requested, with each set of options.
fn short_transfers_copy_every_byte(ways: &[&[&str]]) {
    let Some(bed) = FaultBed::new("") else { return };
    let source = bed.path("store/tree");
    bed.tree(MIB + 7);
    // Direct I/O treats a transfer that stops within a page as the end of the file, as on disks.
    let rules = ["* read .. short 32768", "* write .. short 32768", "*victim write 65536.. short 1 times 9"];
    for (number, way) in ways.iter().enumerate() {
        for rule in rules {
            bed.rules(rule);
            let [sink, stored] = ["view", "store"].map(|side| bed.path(&format!("{side}/sink{number}")));
            copy_tree(way, &bed.path("view/tree"), &sink).is_fine();
            bed.rules("");
            let [a, b] = [&source, &stored].map(|root| Snapshot::take(root).unwrap());
            assert_eq!(a.diff(&b, Facets::ARCHIVE, 9), [], "{way:?} under {rule:?}");
            fs::remove_dir_all(stored).unwrap();
        }
    }
}

#[test]
fn reads_and_writes_that_do_less_than_asked_still_copy_every_byte() {
    let ways: Vec<&[&str]> = WAYS.into_iter().filter(|way| !way.contains(&"--double-buffer")).collect();
    short_transfers_copy_every_byte(&ways);
}

#[test]
fn reads_that_overlap_writes_and_do_less_than_asked_still_copy_every_byte() {
    // Linux itself continues a short read of a FUSE file through io_uring, and does so at the
    // offset where the read started.
    short_transfers_copy_every_byte(&[&["--double-buffer"]]);
}

#[test]
fn calls_that_are_interrupted_are_made_again() {
    let Some(bed) = FaultBed::new("") else { return };
    bed.tree(MIB + 7);
    for (number, way) in WAYS.iter().enumerate() {
        bed.rules("*victim read 65536.. errno EINTR times 2\n*victim write 65536.. errno EINTR times 2");
        let sink = format!("sink{number}");
        copy_tree(way, &bed.path("view/tree"), &bed.path("view").join(&sink)).is_fine();
        assert_same_tree(&bed.path("store/tree"), &bed.path("store").join(&sink));
    }
}

#[test]
fn a_source_that_cannot_be_read_costs_the_old_sink_nothing() {
    let Some(bed) = FaultBed::new("source open .. errno EACCES") else { return };
    let sink = bed.path("sink");
    write_old(&bed.path("store/source"), &noise(100));
    fs::write(&sink, b"what was there").unwrap();
    for options in [&[][..], &["-f"], &["-a"], &["--backup"]] {
        let args = ["cp"].iter().chain(options).map(Path::new);
        haul(args.chain([&*bed.path("view/source"), &*sink])).failed_with(&["source", "Permission denied"]);
        assert_eq!(fs::read(&sink).unwrap(), b"what was there", "{options:?}");
        assert!(!bed.path("sink~").exists(), "the backup has its name back");
    }
}

#[test]
fn a_sink_that_cannot_be_opened_stays_as_it_was() {
    let Some(bed) = FaultBed::new("sink open .. errno EACCES") else { return };
    write_old(&bed.path("source"), &noise(100));
    fs::write(bed.path("store/sink"), b"what was there").unwrap();
    let args = [Path::new("cp"), "-p".as_ref(), &bed.path("source"), &bed.path("view/sink")];
    haul(args).failed_with(&["cannot create regular file", "sink", "Permission denied"]);
    assert_eq!(fs::read(bed.path("store/sink")).unwrap(), b"what was there");
    // With `-f` haul removes the sink.
    haul(["cp", "-pf"].map(Path::new).into_iter().chain(args[2..].iter().copied())).is_fine();
    assert_same_file(&bed.path("source"), &bed.path("store/sink"));
}

#[test]
fn a_backup_gets_its_name_back_when_the_new_file_cannot_be_made() {
    let Some(bed) = FaultBed::new("sink create .. errno ENOSPC") else { return };
    write_old(&bed.path("source"), &noise(100));
    fs::write(bed.path("store/sink"), b"what was there").unwrap();
    let ended = haul([Path::new("cp"), "--backup".as_ref(), &bed.path("source"), &bed.path("view/sink")]);
    ended.failed_with(&["sink", "No space left on device"]);
    assert_eq!(fs::read(bed.path("store/sink")).unwrap(), b"what was there");
    assert!(!bed.path("store/sink~").exists());
    assert!(bed.fired().iter().any(|fired| fired.op == Op::Create));
}

#[test]
fn a_backup_gets_its_name_back_when_the_new_file_cannot_be_written() {
    let Some(bed) = FaultBed::new("sink write .. errno EIO") else { return };
    write_old(&bed.path("source"), &noise(100));
    for options in ["--backup=simple", "--backup=numbered"] {
        fs::write(bed.path("store/sink"), b"what was there").unwrap();
        let ended = haul([Path::new("cp"), options.as_ref(), &bed.path("source"), &bed.path("view/sink")]);
        ended.failed_with(&["error writing", "sink", "Input/output error"]);
        assert_eq!(fs::read(bed.path("store/sink")).unwrap(), b"what was there", "{options}");
        assert_eq!(fs::read_dir(bed.path("store")).unwrap().count(), 1, "no other name is left: {options}");
    }
}

#[test]
fn other_names_of_a_file_that_failed_are_no_links_to_its_ruin() {
    let Some(bed) = FaultBed::new("sink/* write .. errno EIO times 1") else { return };
    fs::create_dir(bed.path("source")).unwrap();
    write_old(&bed.path("source/one"), &noise(5000));
    fs::hard_link(bed.path("source/one"), bed.path("source/two")).unwrap();
    let ended = copy_tree(&["--threads=1"], &bed.path("source"), &bed.path("view/sink"));
    ended.failed_with(&["error writing", "sink/", "Input/output error"]);
    // The first name failed; the second one is copied by itself and complete.
    let (ruined, whole) = if ended.stderr.contains("sink/one'") { ("one", "two") } else { ("two", "one") };
    assert_same_file(&bed.path("source").join(whole), &bed.path("store/sink").join(whole));
    assert_unfinished(&bed.path("store/sink").join(ruined));
    bed.rules("");
    copy_tree(&["--update"], &bed.path("source"), &bed.path("view/sink")).is_fine();
    assert_same_tree(&bed.path("source"), &bed.path("store/sink"));
}
