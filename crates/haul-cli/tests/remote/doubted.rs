//! Files and logs of an earlier run of a transfer that the next run cannot trust.

use super::cut::{cut_in_the_middle, cut_with, ended_when, is_in_the_middle};
use super::resumed::{Play, Victim, WIRE_BESIDE, Way, files_beneath, finished_bytes, is_temporary};
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::{CWD, Follow, stat};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Changes every byte of the incomplete files. Their identity stays the same.
fn change_what_is_left(play: &Play) {
    for path in files_beneath(&play.sink()).into_iter().filter(|path| is_temporary(path)) {
        let bytes: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
        fs::write(path, bytes).unwrap();
    }
}

/// A resumed run finds changes in incomplete files if it re-checks them, which is the default after
/// a kill. No wrong data gets a final name.
#[test]
fn what_was_changed_since_is_sent_again_where_it_is_looked_at() {
    for (way, how) in [Way::Send, Way::Fetch]
        .into_iter()
        .flat_map(|way| [&[][..], &["--verify-resume=sample"], &["--verify-resume"]].map(|how| (way, how)))
    {
        let play = cut_in_the_middle(way, &[]);
        change_what_is_left(&play);
        play.finish(how);
        play.assert_whole(&format!("{way:?}, {how:?}"));
    }
}

/// With `--update=object`, earlier versions trusted the objects of an earlier run whatever
/// `--verify-resume` requested.
#[test]
fn what_was_changed_since_is_found_beside_what_stands_under_the_name() {
    for how in ["sample", "all"] {
        let (play, ()) = cut_with(Way::Send, &["--update=object"], |play| {
            for name in ["a", "m/b", "z"] {
                let place = play.sink().join(name);
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::write(place, "an existing file").unwrap();
            }
        });
        change_what_is_left(&play);
        play.finish(&[&format!("--verify-resume={how}")]);
        play.assert_whole(how);
    }
}

/// If a file system reports no birth time, another file may have got the inode number of the logged
/// file. Earlier versions treated that file as the logged one.
#[test]
fn where_births_are_not_told_what_is_logged_is_compared() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for way in [Way::Send, Way::Fetch] {
        let (play, view) = cut_with(way, &[], |play| {
            let (store, place) = (play.bed.path("store"), play.sink().parent().unwrap().to_owned());
            fs::create_dir(&store).unwrap();
            fs::create_dir(&place).unwrap();
            FaultFs::mount(&store, &place, Rules::default()).unwrap()
        });
        assert_eq!(stat::stat_at(CWD, play.sink(), Follow::No).unwrap().btime, None);
        change_what_is_left(&play);
        play.finish(&["--verify-resume=none"]);
        play.assert_whole(&format!("{way:?}"));
        view.close();
    }
}

/// Earlier versions gave a file that is shorter than its logged objects its final name, with zeros
/// in it.
#[test]
fn a_file_that_is_shorter_than_what_is_logged_of_it_is_compared() {
    for way in [Way::Send, Way::Fetch] {
        let play = cut_in_the_middle(way, &[]);
        for path in files_beneath(&play.sink()).iter().filter(|path| is_temporary(path)) {
            fs::File::options().write(true).open(path).unwrap().set_len(1).unwrap();
        }
        play.finish(&["--verify-resume=none"]);
        play.assert_whole(&format!("{way:?}"));
    }
}

/// A file gets its mode before its name, and leaves the log when it has both. If a power loss took
/// the name, earlier versions sent the complete file again.
#[test]
fn what_has_its_mode_and_not_its_name_is_compared() {
    let play = cut_in_the_middle(Way::Fetch, &[]);
    let (finished, logged) = play.durable();
    for path in files_beneath(&play.sink()).iter().filter(|path| is_temporary(path)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    each(&play.jobs()[0].join("log"), Vec::clear);
    let (summary, told) = play.finish(&[]);
    let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
    assert!(spared >= finished + logged, "of {finished} and {logged} bytes {spared} were spared: {told}");
    play.assert_whole("mode");
}

/// A lost or damaged log costs reads, not retransmission.
#[test]
fn bad_logs_are_told_of_and_not_trusted() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil, &str); 5] = [
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
        let play = cut_in_the_middle(Way::Fetch, &[]);
        let (finished, logged) = play.durable();
        spoil(&play.jobs()[0].join("log"));
        let (summary, told) = play.finish(&[]);
        assert!(told.contains(words), "{what}: {told}");
        // The next run trusts the remaining entries of a truncated log and receives the rest.
        let logged = if what == "cut" { 0 } else { logged };
        play.assert_spared(&summary, (finished, logged), &format!("{what}: {told}"));
        play.assert_whole(what);
    }
}

/// After a clean end a run re-checks nothing. Earlier versions sent again what a damaged log had
/// lost.
#[test]
fn what_a_damaged_log_lost_is_compared_after_a_clean_end_too() {
    let loses_its_source = |play: &Play, child| play.kill(child, Victim::Source);
    let (play, ()) = ended_when((Way::Fetch, &[]), |_| (), is_in_the_middle, loses_its_source);
    let (finished, logged) = play.durable();
    let log = play.jobs()[0].join("log");
    let objects = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    for path in objects.filter(|path| path.extension().is_some_and(|kind| kind == "log")) {
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 4;
        fs::write(&path, bytes).unwrap();
    }
    let (summary, told) = play.finish(&[]);
    assert!(told.contains("its objects will be compared again"), "{told}");
    play.assert_spared(&summary, (finished, logged), &told);
    play.assert_whole("damaged");
}

/// Without the state directory no record of the job exists. Complete files are sent again; the
/// contents of incomplete files are compared.
#[test]
fn where_all_that_was_kept_is_lost_what_is_left_is_compared() {
    for way in [Way::Send, Way::Fetch] {
        let is_much = |play: &Play| play.durable().1 > 2 * WIRE_BESIDE;
        let (play, ()) =
            ended_when((way, &[]), |_| (), is_much, |play, child| play.kill(child, Victim::Both));
        let (_, logged) = play.durable();
        fs::remove_dir_all(play.bed.path("state")).unwrap();
        let (summary, told) = play.finish(&[]);
        let wire = summary["wire"][if way == Way::Send { "out" } else { "in" }].as_u64().unwrap();
        let most = finished_bytes(&play.source()) - logged + WIRE_BESIDE;
        assert!(wire <= most, "{way:?}: {wire} bytes travelled where {most} would do: {told}");
        play.assert_whole(&format!("{way:?}"));
    }
}

/// The file `begun` records when the job ran. These times decide which log entries count and which
/// files the job created. Earlier versions sent those files again, although all of their bytes
/// existed.
#[test]
fn where_it_is_not_known_when_a_job_ran_all_that_is_left_is_compared() {
    type Spoil = fn(&Path);
    let cases: [(&str, Spoil); 3] = [
        ("lost", |begun| fs::remove_file(begun).unwrap()),
        ("cut", |begun| {
            fs::write(begun, fs::read_to_string(begun).unwrap().lines().next().unwrap()).unwrap();
        }),
        ("bent", |begun| {
            fs::write(begun, fs::read_to_string(begun).unwrap().replacen(' ', " 1", 1)).unwrap();
        }),
    ];
    for (what, spoil) in cases {
        let has_whole_files = |play: &Play| play.durable().0 > 0 && is_in_the_middle(play);
        let (play, ()) = ended_when(
            (Way::Fetch, &[]),
            |_| (),
            has_whole_files,
            |play, child| play.kill(child, Victim::Both),
        );
        let (finished, logged) = play.durable();
        spoil(&play.jobs()[0].join("begun"));
        change_what_is_left(&play);
        let (summary, told) = play.finish(&["--verify-resume=none"]);
        assert!(logged > 0 && told.contains("all logged objects will be compared again"), "{what}: {told}");
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(
            finished > 0 && spared >= finished,
            "{what}: of {finished} bytes of complete files {spared} were not resent: {told}"
        );
        play.assert_whole(what);
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
