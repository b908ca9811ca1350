//! Logs and state directories that cannot be trusted or used, and two processes with one job.

use super::{Fixture, OBJECT, RunResult, kill};
use haul_lab::mounts::{Access, Mounted};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::newer;
use haul_lab::random::Random;
use haul_lab::traced;
use haul_log::record::{JobRecord, Status};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Returns the log files and the record of the only job.
fn files(fixture: &Fixture) -> Vec<PathBuf> {
    let log = fs::read_dir(fixture.job().join("log")).unwrap().map(|entry| entry.unwrap().path());
    log.chain([fixture.job().join("record")]).collect()
}

/// Copies a directory recursively.
fn copy_tree(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-aT").args([from, to]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_truncated_or_corrupted_log_never_causes_a_wrong_copy() {
    let Some(fixture) = Fixture::to_cut_off(21) else { return };
    fixture.cut_off(&[
        "--sync=object",
        "--threads=1",
        "--log-mechanism=transaction:1",
        "--log-encoding=char",
    ]);
    copy_tree(&fixture.path("state"), &fixture.path("state-before"));
    copy_tree(&fixture.path("sink"), &fixture.path("sink-before"));
    let mut random = Random::from_seed(21);
    for case in 0..24 {
        for name in ["state", "sink"] {
            fs::remove_dir_all(fixture.path(name)).unwrap();
            copy_tree(&fixture.path(&format!("{name}-before")), &fixture.path(name));
        }
        let files = files(&fixture);
        let victim = &files[random.index(files.len())];
        let mut bytes = fs::read(victim).unwrap();
        let at = random.index(bytes.len());
        if case % 2 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(victim, bytes).unwrap();
        let what = format!("case {case}: {} at {at}", victim.display());
        let ended = fixture.ends(&["--sync=object"]);
        ended.is_fine(&what);
        let copied = super::Snapshot::take(&fixture.path("sink")).unwrap();
        let source = super::Snapshot::take(&fixture.path("source")).unwrap();
        // The copied sink has other inodes, so that no log entry counts and the objects are
        // compared.
        assert!(source.diff(&copied, super::Facets::ARCHIVE, 3).is_empty(), "{what}");
    }
}

#[test]
fn a_damaged_log_is_reported_and_lost_entries_are_compared() {
    let Some(fixture) = Fixture::to_cut_off(22) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let index = fixture.job().join("log/universal.index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[20] ^= 4;
    fs::write(&index, bytes).unwrap();
    let ended = fixture.ends(&["--sync=object"]);
    ended.is_fine("a damaged log");
    assert!(ended.stderr.contains("universal.index"), "{ended:?}");
    fixture.is_whole("a damaged log");
}

/// In earlier versions the rest of such a log was trusted, as after a clean end.
#[test]
fn the_rest_of_a_damaged_log_is_sampled_after_a_clean_end() {
    let Some(fixture) = Fixture::to_cut_off(25) else { return };
    let how = ["--sync=object", "--threads=1", "--log-mechanism=file"];
    let mut job = fixture.held_at_work(fixture.cp(&how));
    kill_process(Pid::from_child(&job), Signal::INT).unwrap();
    assert!(!traced::stops_when(&job, || false), "it finishes");
    assert_eq!(job.wait().unwrap().code(), Some(130));
    let (name, objects) = fixture.logged_file();
    assert_eq!(fixture.record().status, Status::Stopped);
    let damaged = fixture.job().join("log/file-00000000000000000000000000000000.log");
    fs::write(&damaged, b"hauldone and what is no log").unwrap();
    let sink = File::options().write(true).open(fixture.path(&name)).unwrap();
    sink.write_all_at(b"other", objects[0] * OBJECT).unwrap();
    drop(sink);
    let ended = fixture.ends(&how);
    assert!(ended.stderr.contains("damaged; comparing a sample of the other objects"), "{ended:?}");
    assert!(ended.code == Some(1) && ended.stderr.contains("differs from its log entry"), "{ended:?}");
    fixture.ends(&how).is_fine("after that");
    fixture.is_whole("after that");
}

#[test]
fn the_log_of_another_job_or_of_other_objects_is_not_trusted() {
    let Some(fixture) = Fixture::to_cut_off(23) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let first = fixture.job();
    // The same log in the directory of another job.
    let mut command =
        fixture.haul(&["cp", "-rT", "--resume", "--json", "--split-size=64K", "source", "sink"]);
    let done = RunResult::of(command.output().unwrap());
    done.is_fine("another job");
    let second =
        fs::read_dir(fixture.jobs()).unwrap().map(|entry| entry.unwrap().path()).find(|path| *path != first);
    let second = second.unwrap();
    fs::create_dir(second.join("log")).unwrap();
    let index = "log/universal.index";
    fs::copy(first.join(index), second.join(index)).unwrap();
    let ended = RunResult::of(command.output().unwrap());
    ended.is_fine("a log of another job");
    assert!(ended.stderr.contains("belongs to another job"), "{ended:?}");
    fs::remove_dir_all(second).unwrap();
    // Objects of another size.
    let mut command =
        fixture.haul(&["cp", "-aT", "--resume", "--json", "--split-size=128K", "source", "sink"]);
    let ended = RunResult::of(command.output().unwrap());
    ended.is_fine("other objects");
    assert!(ended.stderr.contains("objects of 2^16 bytes"), "{ended:?}");
    fixture.is_whole("other objects");
}

#[test]
fn a_newer_job_record_stops_the_copy_before_any_change() {
    let Some(fixture) = Fixture::to_cut_off(24) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    fs::write(fixture.job().join("record"), newer::record()).unwrap();
    let before = super::Snapshot::take(&fixture.path("sink")).unwrap();
    let ended = fixture.ends(&[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("version 2") && ended.stderr.contains("haul jobs forget"), "{ended:?}");
    assert_eq!(super::Snapshot::take(&fixture.path("sink")).unwrap(), before);
}

/// Earlier versions wrote the record before they checked the log. The newer program then found a
/// job that had run again and been interrupted.
#[test]
fn a_newer_log_is_refused_and_nothing_is_changed() {
    let Some(fixture) = Fixture::to_cut_off(29) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let index = fixture.job().join("log/universal.index");
    let mut bytes = fs::read(&index).unwrap();
    newer::log(&mut bytes, 2);
    fs::write(&index, bytes).unwrap();
    let places = [fixture.path("state"), fixture.path("sink")];
    let before = places.each_ref().map(|place| super::Snapshot::take(place).unwrap());
    let ended = fixture.ends(&[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("version 2"), "{ended:?}");
    for (place, before) in places.iter().zip(&before) {
        let differences = super::Snapshot::take(place).unwrap().diff(before, super::Facets::CONTENT, 3);
        assert!(differences.is_empty(), "{}: {differences:?}", place.display());
    }
}

#[test]
fn an_unwritable_state_directory_stops_the_copy_before_any_change() {
    let fixture = Fixture::new(25);
    // The path is not a directory.
    fs::write(fixture.path("state"), "a file").unwrap();
    let ended = fixture.ends(&[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("state/haul/jobs"), "{ended:?}");
    assert!(!fixture.path("sink").exists());
    fs::remove_file(fixture.path("state")).unwrap();
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    fs::create_dir(fixture.path("locked")).unwrap();
    let view = Mounted::bind(&fixture.path("locked"), Access::ReadOnly).unwrap();
    let place = format!("--state-dir={}", view.path().display());
    let ended = fixture.ends(&[&place]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("Read-only file system") && ended.stderr.contains("--state-dir"),
        "{ended:?}"
    );
    assert!(!fixture.path("sink").exists());
    view.close().unwrap();
}

#[test]
fn a_second_process_of_a_job_names_the_lock_holder() {
    let Some(fixture) = Fixture::to_cut_off(27) else { return };
    let mut first = fixture.held_at_work(fixture.cp(&["--sync=object", "--threads=1"]));
    let second = fixture.ends(&[]);
    assert_eq!(second.code, Some(1));
    let holder = format!("process {}", first.id());
    assert!(second.stderr.contains(&holder) && second.stderr.contains("cannot lock job "), "{second:?}");
    kill(&mut first);
    fixture.ends(&[]).is_fine("when it is free");
    fixture.is_whole("when it is free");
}

#[test]
fn a_damaged_job_record_causes_a_complete_comparison() {
    let Some(fixture) = Fixture::to_cut_off(28) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let path = fixture.job().join("record");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(JobRecord::decode(&fs::read(&path).unwrap()).is_err());
    fixture.ends(&["--sync=object"]).is_fine("half a record");
    fixture.is_whole("half a record");
}
