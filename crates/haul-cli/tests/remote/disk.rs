//! Sinks on a file system of their own, which is remounted between two runs of a transfer, or
//! temporarily full.

use super::assert_ended;
use super::claims::{claimed, claims};
use super::resumed::{Play, Victim, Way, identity};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::met_or_skip;
use std::fs;

/// Returns a job whose sink is an ext4 file system of its own.
fn on_a_disk(way: Way, options: &[&str]) -> (Play, SmallFs, Mounted) {
    let play = Play::new(way, options);
    let small = SmallFs::new(48).unwrap();
    let place = play.sink().parent().unwrap().to_owned();
    fs::create_dir(&place).unwrap();
    let seen = Mounted::bind_at(&small.path(), &place).unwrap();
    (play, small, seen)
}

/// The device number may change with a remount. The next run then compares the logged objects where
/// it cannot trust the log.
#[test]
fn a_sink_that_was_mounted_again_goes_on() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for way in [Way::Send, Way::Fetch] {
        let what = format!("{way:?}");
        let (play, small, seen) = on_a_disk(way, &["--sync=object"]);
        play.cut_off(Victim::Both);
        assert!(claimed(&play, &what) > 0, "{what}");
        let (finished, logged) = play.durable();
        seen.close().unwrap();
        small.mount_again().unwrap();
        let seen = Mounted::bind_at(&small.path(), play.sink().parent().unwrap()).unwrap();
        let (summary, told) = play.finish(&[]);
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(spared >= finished + logged, "{what}: {finished} and {logged}, {spared}: {told}");
        play.far_side_is_gone();
        play.assert_whole(&what);
        seen.close().unwrap();
        small.close().unwrap();
    }
}

/// If the sink cannot preallocate a larger file, it accepts no object of this file. Of other files
/// it accepts the objects that arrive before the disk is full.
#[test]
fn what_was_durable_before_a_sink_was_full_is_not_sent_again() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for (way, sync) in
        [Way::Send, Way::Fetch].into_iter().flat_map(|way| ["group", "object"].map(|sync| (way, sync)))
    {
        let what = format!("{way:?}, --sync={sync}");
        let (play, small, seen) = on_a_disk(way, &[&format!("--sync={sync}")]);
        for number in 0..6 {
            fs::write(
                play.source().join(format!("f{number}")),
                super::bytes(950_000 + number, 70 + number as u64),
            )
            .unwrap();
        }
        small.leave(5 << 19).unwrap();
        let ended = play.run(&[]);
        assert_ended(&ended, 1);
        assert!(ended.err.contains("no space left"), "{what}: {ended:#?}");
        play.far_side_is_gone();
        for claim in play.jobs().iter().flat_map(|home| claims(&play, home, identity)) {
            assert_ne!(claim.holds, Some(false), "{what}: {}", claim.place);
        }
        let (finished, logged) = play.durable();
        assert!(logged > 0, "{what}: nothing is claimed of files that found no room: {ended:#?}");
        small.make_room().unwrap();
        let (summary, told) = play.finish(&[]);
        play.assert_spared(&summary, (finished, logged), &format!("{what}: {told}"));
        play.far_side_is_gone();
        play.assert_whole(&what);
        seen.close().unwrap();
        small.close().unwrap();
    }
}
