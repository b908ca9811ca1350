//! Sinks without free space for the job: haul detects this before the bytes travel, and no data of
//! the job remains.

use super::ends::{DIRECTIONS, transfer};
use super::{Fixture, assert_ended};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::Path;

/// Size of the file in bytes, larger than each of the sinks.
const LEN: u64 = 400 << 20;

/// Asserts in both directions that a file without enough space in `sink` fails and leaves nothing
/// behind.
fn does_not_fit(fixture: &Fixture, sink: &Path) {
    let free = || statvfs(sink).unwrap().f_bfree;
    let before = free();
    for direction in DIRECTIONS {
        let ended = transfer(fixture, direction, &["--json"], &fixture.path("data/large"), sink);
        assert_ended(&ended, 1);
        assert!(ended.err.contains("no space left: "), "{direction:?}: {ended:#?}");
        assert!(ended.err.contains("large: cannot create"), "{direction:?}: {ended:#?}");
        let summary = ended.out.lines().last().unwrap();
        let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
        let wire = ["out", "in"].map(|end| summary["wire"][end].as_u64().unwrap());
        // Only bytes in flight at the time of the refusal may have travelled.
        assert!(wire.iter().sum::<u64>() < LEN / 4, "{direction:?}: {summary}");
        let left: Vec<_> = fs::read_dir(sink).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lost+found"), "{direction:?}: {left:?}");
        // The metadata of the file system may take a few blocks more or less.
        assert!(before - free() < 1024, "{direction:?}: {before} and {} blocks are free", free());
    }
}

#[test]
fn a_file_without_space_is_refused_before_its_data_is_sent() {
    let formats = [Format::Ext4, Format::Xfs, Format::Btrfs];
    let needs = formats.iter().flat_map(|format| format.needs()).chain([Need::Mount]);
    if !met_or_skip(&needs.collect::<Vec<_>>()) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("data")).unwrap();
    let source = File::create(fixture.path("data/large")).unwrap();
    fallocate(&source, FallocateFlags::empty(), 0, LEN).unwrap();
    for (format, mib) in formats.into_iter().zip([20, 320, 150]) {
        let disk = SmallFs::of(format, mib).unwrap();
        does_not_fit(&fixture, &disk.path());
        disk.close().unwrap();
    }
    let memory = Mounted::tmpfs(8).unwrap();
    does_not_fit(&fixture, &memory.path());
}

/// There is space for each of the two files, but not for both.
#[test]
fn a_job_without_space_is_refused_before_it_starts() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.file("tree/one", 5 << 20);
    fixture.file("tree/two", 5 << 20);
    fs::hard_link(fixture.path("tree/one"), fixture.path("tree/three")).unwrap();
    File::create(fixture.path("tree/hole")).unwrap().set_len(1 << 40).unwrap();
    let small = Mounted::tmpfs(8).unwrap();
    let there = format!("localhost:{}", small.path().display());
    let is_empty = || fs::read_dir(small.path()).unwrap().next().is_none();
    let [tree, one, two] =
        ["tree", "tree/one", "tree/two"].map(|name| fixture.path(name).to_str().unwrap().to_owned());
    let warning = "the job has 10.0 MiB, and the receiver has 8.0 MiB of free space";

    // The sizes of file operands are known.
    let ended = fixture.over_ssh("send", &["--check-space=refuse", &one, &two, &there]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains(warning) && ended.err.contains("nothing sent") && is_empty(), "{ended:#?}");
    let ended = fixture.over_ssh("send", &["-n", &one, &two, &there]);
    assert_ended(&ended, 0);
    assert!(ended.err.contains(warning) && is_empty(), "{ended:#?}");
    // haul walks a tree for this check only on request. A file counts once, and a hole does not
    // count.
    for (option, status, warns) in
        [("--check-space=refuse", 2, true), ("--check-space=warn", 0, true), ("-q", 0, false)]
    {
        let ended = fixture.over_ssh("send", &["-n", option, &tree, &there]);
        assert_ended(&ended, status);
        assert!(ended.err.contains(warning) == warns && is_empty(), "{option}: {ended:#?}");
    }
    // An update sends what differs, and this amount is not known in advance.
    let ended = fixture.over_ssh("send", &["-n", "--check-space=refuse", "--update", &tree, &there]);
    assert_ended(&ended, 0);
    let ended = fixture.over_ssh("send", &["--check-space=refuse", &one, &there]);
    assert_ended(&ended, 0);
    assert!(!ended.err.contains("free space"), "{ended:#?}");
    small.close().unwrap();
}

/// The quota of a ticket limits the free space, too.
#[test]
fn a_job_above_the_quota_is_refused_before_it_starts() {
    let fixture = Fixture::new();
    fixture.file("one", 5000);
    fixture.file("two", 5000);
    let server = fixture.serve(&["--root", "there", "--quota", "8K"]);
    let ended = fixture.run(&["send", "--ticket-file", "ticket", "--check-space=refuse", "one", "two", ":"]);
    assert_ended(&ended, 2);
    assert!(
        ended.err.contains("the job has 9.8 KiB, and the receiver has 8.0 KiB of free space"),
        "{ended:#?}"
    );
    // Its session has ended at the server, too.
    server.wait_for_log("incomplete");
    assert!(fs::read_dir(fixture.path("there")).unwrap().next().is_none());
    let ended = fixture.run(&["send", "--ticket-file", "ticket", "--check-space=refuse", "one", ":"]);
    assert_ended(&ended, 0);
    drop(server);
}
