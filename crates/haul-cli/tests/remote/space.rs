//! Sinks without free space for the job: haul detects this before the bytes travel, and no data of
//! the job remains.

use super::ends::{WAYS, bring};
use super::{Bed, assert_ended};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::Path;

/// Size of the file in bytes, larger than each of the sinks.
const LEN: u64 = 400 << 20;

/// Asserts in both directions that a file without enough space in `sink` fails and leaves nothing
/// behind.
fn does_not_fit(bed: &Bed, sink: &Path) {
    let free = || statvfs(sink).unwrap().f_bfree;
    let before = free();
    for way in WAYS {
        let ended = bring(bed, way, &["--json"], &bed.path("data/large"), sink);
        assert_ended(&ended, 1);
        assert!(ended.err.contains("large: no space left"), "{way:?}: {ended:#?}");
        let summary = ended.out.lines().last().unwrap();
        let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
        let wire = ["out", "in"].map(|end| summary["wire"][end].as_u64().unwrap());
        // Only bytes in flight at the time of the refusal may have travelled.
        assert!(wire.iter().sum::<u64>() < LEN / 4, "{way:?}: {summary}");
        let left: Vec<_> = fs::read_dir(sink).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lost+found"), "{way:?}: {left:?}");
        // The metadata of the file system may take a few blocks more or less.
        assert!(before - free() < 1024, "{way:?}: {before} and {} blocks are free", free());
    }
}

#[test]
fn a_file_that_has_no_room_is_refused_before_its_bytes_travel() {
    let formats = [Format::Ext4, Format::Xfs, Format::Btrfs];
    let needs = formats.iter().flat_map(|format| format.needs()).chain([Need::Mount]);
    if !met_or_skip(&needs.collect::<Vec<_>>()) {
        return;
    }
    let bed = Bed::new();
    fs::create_dir(bed.path("data")).unwrap();
    let source = File::create(bed.path("data/large")).unwrap();
    fallocate(&source, FallocateFlags::empty(), 0, LEN).unwrap();
    for (format, mib) in formats.into_iter().zip([20, 320, 150]) {
        let disk = SmallFs::of(format, mib).unwrap();
        does_not_fit(&bed, &disk.path());
        disk.close().unwrap();
    }
    let memory = Mounted::tmpfs(8).unwrap();
    does_not_fit(&bed, &memory.path());
}

/// There is space for each of the two files, but not for both.
#[test]
fn a_job_that_has_no_room_is_found_before_it_begins() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let bed = Bed::new();
    bed.file("tree/one", 5 << 20);
    bed.file("tree/two", 5 << 20);
    fs::hard_link(bed.path("tree/one"), bed.path("tree/three")).unwrap();
    File::create(bed.path("tree/hole")).unwrap().set_len(1 << 40).unwrap();
    let small = Mounted::tmpfs(8).unwrap();
    let there = format!("localhost:{}", small.path().display());
    let is_empty = || fs::read_dir(small.path()).unwrap().next().is_none();
    let [tree, one, two] =
        ["tree", "tree/one", "tree/two"].map(|name| bed.path(name).to_str().unwrap().to_owned());
    let warning = "the job has 10.0 MiB, and the receiver has 8.0 MiB of free space";

    // The sizes of file operands are known.
    let ended = bed.over_ssh("send", &["--check-space=refuse", &one, &two, &there]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains(warning) && ended.err.contains("nothing sent") && is_empty(), "{ended:#?}");
    let ended = bed.over_ssh("send", &["-n", &one, &two, &there]);
    assert_ended(&ended, 0);
    assert!(ended.err.contains(warning) && is_empty(), "{ended:#?}");
    // haul walks a tree for this check only on request. A file counts once, and a hole does not
    // count.
    for (option, status, warns) in
        [("--check-space=refuse", 2, true), ("--check-space=warn", 0, true), ("-q", 0, false)]
    {
        let ended = bed.over_ssh("send", &["-n", option, &tree, &there]);
        assert_ended(&ended, status);
        assert!(ended.err.contains(warning) == warns && is_empty(), "{option}: {ended:#?}");
    }
    // An update sends what differs, and this amount is not known in advance.
    let ended = bed.over_ssh("send", &["-n", "--check-space=refuse", "--update", &tree, &there]);
    assert_ended(&ended, 0);
    let ended = bed.over_ssh("send", &["--check-space=refuse", &one, &there]);
    assert_ended(&ended, 0);
    assert!(!ended.err.contains("free space"), "{ended:#?}");
    small.close().unwrap();
}

/// The quota of a ticket limits the free space, too.
#[test]
fn a_job_beyond_the_quota_is_found_before_it_begins() {
    let bed = Bed::new();
    bed.file("one", 5000);
    bed.file("two", 5000);
    let server = bed.serve(&["--root", "there", "--quota", "8K"]);
    let ended = bed.run(&["send", "--ticket-file", "ticket", "--check-space=refuse", "one", "two", ":"]);
    assert_ended(&ended, 2);
    assert!(
        ended.err.contains("the job has 9.8 KiB, and the receiver has 8.0 KiB of free space"),
        "{ended:#?}"
    );
    // Its session has ended at the server, too.
    server.says("incomplete");
    assert!(fs::read_dir(bed.path("there")).unwrap().next().is_none());
    let ended = bed.run(&["send", "--ticket-file", "ticket", "--check-space=refuse", "one", ":"]);
    assert_ended(&ended, 0);
    drop(server);
}
