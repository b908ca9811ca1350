//! Sinks without room for what is sent: that is found before the bytes travel, and nothing of it stays.

use super::ends::{WAYS, bring};
use super::{Bed, assert_ended};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::Path;

/// More than any of the sinks has, in bytes.
const LEN: u64 = 400 << 20;

/// Brings a file that has no room into `sink`, both ways.
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
        // What is under way when the refusal comes.
        assert!(wire.iter().sum::<u64>() < LEN / 4, "{way:?}: {summary}");
        let left: Vec<_> = fs::read_dir(sink).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lost+found"), "{way:?}: {left:?}");
        // What the file system needs for itself may differ by a little.
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
