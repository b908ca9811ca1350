//! Files and logs of an earlier run of a transfer that the next run cannot trust.

use super::cut::{cut_in_the_middle, cut_with, ended_when, is_in_the_middle};
use super::resumed::{
    Direction, KilledSide, ResumeScenario, WIRE_BESIDE, files_beneath, finished_bytes, is_temporary,
};
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::{CWD, Follow, stat};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Changes every byte of the incomplete files. Their identity stays the same.
fn change_what_is_left(scenario: &ResumeScenario) {
    for path in files_beneath(&scenario.sink()).into_iter().filter(|path| is_temporary(path)) {
        let bytes: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
        fs::write(path, bytes).unwrap();
    }
}

/// A resumed run finds changes in incomplete files if it re-checks them, which is the default after
/// a kill. No wrong data gets a final name.
#[test]
fn changed_partial_files_are_resent_if_rechecked() {
    for (direction, how) in [Direction::Send, Direction::Fetch].into_iter().flat_map(|direction| {
        [&[][..], &["--verify-resume=sample"], &["--verify-resume"]].map(|how| (direction, how))
    }) {
        let scenario = cut_in_the_middle(direction, &[]);
        change_what_is_left(&scenario);
        scenario.finish(how);
        scenario.assert_whole(&format!("{direction:?}, {how:?}"));
    }
}

/// With `--update=object`, earlier versions trusted the objects of an earlier run whatever
/// `--verify-resume` requested.
#[test]
fn update_object_rechecks_changed_partial_files() {
    for how in ["sample", "all"] {
        let (scenario, ()) = cut_with(Direction::Send, &["--update=object"], |scenario| {
            for name in ["a", "m/b", "z"] {
                let place = scenario.sink().join(name);
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::write(place, "an existing file").unwrap();
            }
        });
        change_what_is_left(&scenario);
        scenario.finish(&[&format!("--verify-resume={how}")]);
        scenario.assert_whole(how);
    }
}

/// If a file system reports no birth time, another file may have got the inode number of the logged
/// file. Earlier versions treated that file as the logged one.
#[test]
fn without_birth_times_logged_files_are_compared() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for direction in [Direction::Send, Direction::Fetch] {
        let (scenario, view) = cut_with(direction, &[], |scenario| {
            let (store, place) =
                (scenario.fixture.path("store"), scenario.sink().parent().unwrap().to_owned());
            fs::create_dir(&store).unwrap();
            fs::create_dir(&place).unwrap();
            FaultFs::mount(&store, &place, Rules::default()).unwrap()
        });
        assert_eq!(stat::stat_at(CWD, scenario.sink(), Follow::No).unwrap().btime, None);
        change_what_is_left(&scenario);
        scenario.finish(&["--verify-resume=none"]);
        scenario.assert_whole(&format!("{direction:?}"));
        view.close();
    }
}

/// Earlier versions gave a file that is shorter than its logged objects its final name, with zeros
/// in it.
#[test]
fn a_file_shorter_than_its_logged_objects_is_compared() {
    for direction in [Direction::Send, Direction::Fetch] {
        let scenario = cut_in_the_middle(direction, &[]);
        for path in files_beneath(&scenario.sink()).iter().filter(|path| is_temporary(path)) {
            fs::File::options().write(true).open(path).unwrap().set_len(1).unwrap();
        }
        scenario.finish(&["--verify-resume=none"]);
        scenario.assert_whole(&format!("{direction:?}"));
    }
}

/// A file gets its mode before its name, and leaves the log when it has both. If a power loss took
/// the name, earlier versions sent the complete file again.
#[test]
fn a_file_with_final_mode_and_temporary_name_is_compared() {
    let scenario = cut_in_the_middle(Direction::Fetch, &[]);
    let (finished, logged) = scenario.durable();
    for path in files_beneath(&scenario.sink()).iter().filter(|path| is_temporary(path)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    each(&scenario.jobs()[0].join("log"), Vec::clear);
    let (summary, reported) = scenario.finish(&[]);
    let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
    assert!(spared >= finished + logged, "of {finished} and {logged} bytes {spared} were spared: {reported}");
    scenario.assert_whole("mode");
}

/// A lost or damaged log costs reads, not retransmission.
#[test]
fn damaged_logs_are_reported_and_not_trusted() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage, &str); 5] = [
        ("lost", |log| fs::remove_dir_all(log).unwrap(), ""),
        ("empty", |log| each(log, |bytes| bytes.clear()), ""),
        ("cut", |log| each(log, |bytes| bytes.truncate(bytes.len() * 2 / 3)), ""),
        ("bent", |log| each(log, |bytes| bytes[20] ^= 4), "its objects will be compared again"),
        (
            "another job's",
            |log| each(log, |bytes| bytes[24..40].fill(9)),
            "its objects will be compared again",
        ),
    ];
    for (what, spoil, words) in cases {
        let scenario = cut_in_the_middle(Direction::Fetch, &[]);
        let (finished, logged) = scenario.durable();
        spoil(&scenario.jobs()[0].join("log"));
        let (summary, reported) = scenario.finish(&[]);
        assert!(reported.contains(words), "{what}: {reported}");
        // The next run trusts the remaining entries of a truncated log and receives the rest.
        let logged = if what == "cut" { 0 } else { logged };
        scenario.assert_skipped(&summary, (finished, logged), &format!("{what}: {reported}"));
        scenario.assert_whole(what);
    }
}

/// After a clean end a run re-checks nothing. Earlier versions sent again what a damaged log had
/// lost.
#[test]
fn entries_lost_from_a_log_are_compared_after_a_clean_end() {
    let loses_its_source = |scenario: &ResumeScenario, child| scenario.kill(child, KilledSide::Source);
    let (scenario, ()) = ended_when((Direction::Fetch, &[]), |_| (), is_in_the_middle, loses_its_source);
    let (finished, logged) = scenario.durable();
    let log = scenario.jobs()[0].join("log");
    let objects = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    for path in objects.filter(|path| path.extension().is_some_and(|kind| kind == "log")) {
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 4;
        fs::write(&path, bytes).unwrap();
    }
    let (summary, reported) = scenario.finish(&[]);
    assert!(reported.contains("its objects will be compared again"), "{reported}");
    scenario.assert_skipped(&summary, (finished, logged), &reported);
    scenario.assert_whole("damaged");
}

/// Without the state directory no record of the job exists. Complete files are sent again; the
/// contents of incomplete files are compared.
#[test]
fn without_a_state_directory_partial_files_are_compared() {
    for direction in [Direction::Send, Direction::Fetch] {
        let is_much = |scenario: &ResumeScenario| scenario.durable().1 > 2 * WIRE_BESIDE;
        let (scenario, ()) = ended_when(
            (direction, &[]),
            |_| (),
            is_much,
            |scenario, child| scenario.kill(child, KilledSide::Both),
        );
        let (_, logged) = scenario.durable();
        fs::remove_dir_all(scenario.fixture.path("state")).unwrap();
        let (summary, reported) = scenario.finish(&[]);
        let wire = summary["wire"][if direction == Direction::Send { "out" } else { "in" }].as_u64().unwrap();
        let most = finished_bytes(&scenario.source()) - logged + WIRE_BESIDE;
        assert!(wire <= most, "{direction:?}: {wire} bytes travelled where {most} would do: {reported}");
        scenario.assert_whole(&format!("{direction:?}"));
    }
}

/// The file `begun` records when the job ran. These times decide which log entries count and which
/// files the job created. Earlier versions sent those files again, although all of their bytes
/// existed.
#[test]
fn without_a_run_history_existing_files_are_compared() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 3] = [
        ("lost", |begun| fs::remove_file(begun).unwrap()),
        ("cut", |begun| {
            fs::write(begun, fs::read_to_string(begun).unwrap().lines().next().unwrap()).unwrap();
        }),
        ("bent", |begun| {
            fs::write(begun, fs::read_to_string(begun).unwrap().replacen(' ', " 1", 1)).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        let has_whole_files =
            |scenario: &ResumeScenario| scenario.durable().0 > 0 && is_in_the_middle(scenario);
        let (scenario, ()) = ended_when(
            (Direction::Fetch, &[]),
            |_| (),
            has_whole_files,
            |scenario, child| scenario.kill(child, KilledSide::Both),
        );
        let (finished, logged) = scenario.durable();
        spoil(&scenario.jobs()[0].join("begun"));
        change_what_is_left(&scenario);
        let (summary, reported) = scenario.finish(&["--verify-resume=none"]);
        assert!(
            logged > 0 && reported.contains("all logged objects will be compared again"),
            "{what}: {reported}"
        );
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(
            finished > 0 && spared >= finished,
            "{what}: of {finished} bytes of complete files {spared} were not resent: {reported}"
        );
        scenario.assert_whole(what);
    }
}

/// Applies `change` to the contents of each file in a directory.
fn each(folder: &Path, change: impl Fn(&mut Vec<u8>)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }
}
