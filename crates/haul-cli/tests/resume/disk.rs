//! A sink on a file system of its own, which is remounted between two runs of a copy, or
//! temporarily full.

use super::{Fixture, kill};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::met_or_skip;
use haul_lab::traced;
use std::fs;

/// Returns a test directory whose sink is a directory of a separate ext4 file system.
fn on_a_disk(seed: u64) -> (Fixture, SmallFs, Mounted) {
    let fixture = Fixture::new(seed);
    let small = SmallFs::new(32).unwrap();
    for place in [small.path().join("sink"), fixture.path("sink")] {
        fs::create_dir(place).unwrap();
    }
    let seen = Mounted::bind_at(&small.path().join("sink"), &fixture.path("sink")).unwrap();
    (fixture, small, seen)
}

/// The device number may change with a remount: objects that are not trusted are compared, and not
/// copied.
#[test]
fn a_copy_resumes_after_a_remount_of_the_sink() {
    if !met_or_skip(&Format::Ext4.needs()) || !met_or_skip(&[traced::NEED]) {
        return;
    }
    let (fixture, small, seen) = on_a_disk(92);
    let mut child = fixture.held_at_work(fixture.cp(&["--sync=object", "--threads=1"]));
    kill(&mut child);
    let claimed = fixture.claimed("killed");
    assert!(claimed > 0);
    seen.close().unwrap();
    small.mount_again().unwrap();
    let seen = Mounted::bind_at(&small.path().join("sink"), &fixture.path("sink")).unwrap();
    let ended = fixture.ends(&["--sync=object"]);
    ended.is_fine("mounted again");
    assert!(ended.moved() <= ended.count("bytes") - claimed, "{claimed} {ended:?}");
    fixture.is_whole("mounted again");
    seen.close().unwrap();
    small.close().unwrap();
}

/// Groups of a second also log the objects that arrived before the disk was full.
#[test]
fn data_durable_before_the_sink_was_full_is_not_copied_again() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for sync in ["--sync=group", "--sync=object"] {
        let (fixture, small, seen) = on_a_disk(93);
        // There is space for at least two of the large files, whichever they are: one of them
        // counts.
        small.leave(15 << 17).unwrap();
        let ended = fixture.ends(&[sync]);
        assert_eq!(ended.code, Some(1), "{sync}: {ended:?}");
        assert!(ended.stderr.contains("No space left"), "{sync}: {ended:?}");
        let claimed = fixture.claimed(sync);
        assert!(claimed > 0, "{sync}: nothing is claimed: {ended:?}");
        small.free_space().unwrap();
        let ended = fixture.ends(&[sync]);
        ended.is_fine(sync);
        assert!(ended.moved() <= ended.count("bytes") - claimed, "{sync}: {claimed} {ended:?}");
        fixture.is_whole(sync);
        seen.close().unwrap();
        small.close().unwrap();
    }
}
