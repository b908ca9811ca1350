//! Sinks on a file system of their own, which is remounted between two runs of a transfer, or
//! temporarily full.

use super::assert_ended;
use super::claims::{claimed, claims};
use super::resumed::{Direction, KilledSide, ResumeScenario, identity};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::met_or_skip;
use std::fs;

/// Returns a job whose sink is an ext4 file system of its own.
fn on_a_disk(direction: Direction, options: &[&str]) -> (ResumeScenario, SmallFs, Mounted) {
    let scenario = ResumeScenario::new(direction, options);
    let small = SmallFs::new(48).unwrap();
    let place = scenario.sink().parent().unwrap().to_owned();
    fs::create_dir(&place).unwrap();
    let seen = Mounted::bind_at(&small.path(), &place).unwrap();
    (scenario, small, seen)
}

/// The device number may change with a remount. The next run then compares the logged objects where
/// it cannot trust the log.
#[test]
fn a_transfer_resumes_after_a_remount_of_the_sink() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for direction in [Direction::Send, Direction::Fetch] {
        let what = format!("{direction:?}");
        let (scenario, small, seen) = on_a_disk(direction, &["--sync=object"]);
        scenario.cut_off(KilledSide::Both);
        assert!(claimed(&scenario, &what) > 0, "{what}");
        let (finished, logged) = scenario.durable();
        seen.close().unwrap();
        small.mount_again().unwrap();
        let seen = Mounted::bind_at(&small.path(), scenario.sink().parent().unwrap()).unwrap();
        let (summary, reported) = scenario.finish(&[]);
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(spared >= finished + logged, "{what}: {finished} and {logged}, {spared}: {reported}");
        scenario.wait_for_remote_exit();
        scenario.assert_whole(&what);
        seen.close().unwrap();
        small.close().unwrap();
    }
}

/// If the sink cannot preallocate a larger file, it accepts no object of this file. Of other files
/// it accepts the objects that arrive before the disk is full.
#[test]
fn data_durable_before_the_sink_was_full_is_not_resent() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for (direction, sync) in [Direction::Send, Direction::Fetch]
        .into_iter()
        .flat_map(|direction| ["group", "object"].map(|sync| (direction, sync)))
    {
        let what = format!("{direction:?}, --sync={sync}");
        let (scenario, small, seen) = on_a_disk(direction, &[&format!("--sync={sync}")]);
        for number in 0..6 {
            fs::write(
                scenario.source().join(format!("f{number}")),
                super::bytes(950_000 + number, 70 + number as u64),
            )
            .unwrap();
        }
        small.leave(5 << 19).unwrap();
        let ended = scenario.run(&[]);
        assert_ended(&ended, 1);
        assert!(ended.err.contains("no space left"), "{what}: {ended:#?}");
        scenario.wait_for_remote_exit();
        for claim in scenario.jobs().iter().flat_map(|home| claims(&scenario, home, identity)) {
            assert_ne!(claim.holds, Some(false), "{what}: {}", claim.place);
        }
        let (finished, logged) = scenario.durable();
        assert!(logged > 0, "{what}: nothing is claimed of files that found no room: {ended:#?}");
        small.free_space().unwrap();
        let (summary, reported) = scenario.finish(&[]);
        scenario.assert_skipped(&summary, (finished, logged), &format!("{what}: {reported}"));
        scenario.wait_for_remote_exit();
        scenario.assert_whole(&what);
        seen.close().unwrap();
        small.close().unwrap();
    }
}
