//! A sink whose file system was mounted again between two runs of a transfer.

use super::claims::claimed;
use super::resumed::{Play, Victim, Way};
use super::stopped::wait_until;
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::met_or_skip;
use std::fs;

/// A job whose sink is an ext4 of its own.
fn on_a_disk(way: Way, options: &[&str]) -> (Play, SmallFs, Mounted) {
    let play = Play::new(way, options);
    let small = SmallFs::new(48).unwrap();
    let place = play.sink().parent().unwrap().to_owned();
    fs::create_dir(&place).unwrap();
    let seen = Mounted::bind_at(&small.path(), &place).unwrap();
    (play, small, seen)
}

/// Its device may have another number then: what the log says is compared where it can't be believed.
#[test]
fn a_sink_that_was_mounted_again_goes_on() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for way in [Way::Send, Way::Fetch] {
        let what = format!("{way:?}");
        let (play, small, seen) = on_a_disk(way, &["--sync=object"]);
        let child = play.start(&["--rate=256K"]);
        wait_until("a log", || play.durable().1 > 0);
        play.kill(child, Victim::Both);
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
