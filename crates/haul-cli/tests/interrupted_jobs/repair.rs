//! `haul repair`, interrupted and run again.

use super::{Fixture, RunResult, rot};
use haul_lab::needs::met_or_skip;
use haul_lab::random::Random;
use haul_lab::traced;
use rustix::process::Signal;
use std::fs;
use std::process::Stdio;

const FILES: usize = 60;
const BYTES: usize = 16 << 10;

/// The search for damage takes about ten seconds.
const SLOWLY: [&str; 8] =
    ["repair", "--json", "--threads=1", "--bwlimit=100K", "w", ".", "--from", "replica"];

/// Creates a tree with some damaged files, the waybill of its original state, and an intact
/// replica.
fn fixture(seed: u64, damaged: u64) -> Fixture {
    let fixture = Fixture::new(FILES, BYTES, seed);
    fixture.aside(&["sum", "-r", "--waybill", "w", "data"]);
    fs::create_dir(fixture.path("replica")).unwrap();
    fixture.aside(&["cp", "-a", "data", "replica"]);
    let mut random = Random::from_seed(seed);
    while wrong(&fixture) < damaged {
        let file = fixture.file(random.below(FILES as u64) as usize);
        if fs::read(&file).unwrap()
            == fs::read(fixture.path("replica").join(relative(&fixture, &file))).unwrap()
        {
            rot(&file);
        }
    }
    fixture.rest();
    fixture
}

fn relative(fixture: &Fixture, path: &std::path::Path) -> std::path::PathBuf {
    path.strip_prefix(fixture.home.path()).unwrap().to_owned()
}

/// Returns the number of files that differ from the replica.
fn wrong(fixture: &Fixture) -> u64 {
    let is_wrong = |number: &usize| {
        let file = fixture.file(*number);
        fs::read(&file).unwrap() != fs::read(fixture.path("replica").join(relative(fixture, &file))).unwrap()
    };
    (0..FILES).filter(is_wrong).count() as u64
}

/// Asserts that the next run repairs the remaining files, and reads only the files that the state
/// does not cover.
#[track_caller]
fn resume_run(fixture: &Fixture, what: &str) -> RunResult {
    let (done, left) = (fixture.state("done").unwrap_or(0), wrong(fixture));
    let ran = fixture.run(&SLOWLY);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{what}: {ran:?}");
    assert_eq!(ran.summary("before"), done, "{what}");
    assert_eq!(ran.summary("bytes_read"), (FILES as u64 - done) * BYTES as u64, "{what}");
    assert_eq!((ran.summary("repaired"), ran.summary("left")), (left, 0), "{what}");
    assert_eq!(wrong(fixture), 0, "{what}");
    assert_eq!(fs::read_dir(fixture.path("data")).unwrap().count(), FILES, "{what}: no other file is left");
    fixture.aside(&["verify", "-q", "w"]);
    assert_eq!(fixture.of_job("state"), None, "{what}");
    ran
}

#[test]
fn repair_killed_while_checking_resumes_without_rereading() {
    for seed in 1..=3 {
        let fixture = fixture(seed, 6);
        let at_least = 1 + Random::from_seed(seed).below(20);
        let is_there = || fixture.state("done").is_some_and(|done| done >= at_least);
        assert!(fixture.ended(&SLOWLY, Signal::KILL, is_there), "it finished");
        let job = fixture.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"repair".into()), "{job}");
        assert_eq!(wrong(&fixture), 6, "nothing is repaired before all was checked");
        let ran = resume_run(&fixture, &format!("seed {seed}"));
        assert!(ran.summary("before") >= at_least);
        assert_eq!(fixture.listed()["status"], "finished");
    }
}

#[test]
fn repair_killed_while_repairing_resumes_with_the_remaining_files() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    for seed in 4..=6 {
        let fixture = fixture(seed, 30);
        let mended = 1 + Random::from_seed(seed).below(20);
        // All files have been checked; then the repaired files get their names one by one. The test
        // checks the tree after each rename.
        let mut repair = traced::signalled(&fixture.haul(&SLOWLY), "renameat", "STOP", "1+");
        let mut child =
            repair.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(traced::stops_when(&child, || wrong(&fixture) == 30 - mended), "the repair finished");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fixture.state("next"), Some(FILES as u64), "no file is repaired before all are verified");
        assert_eq!(fixture.state("done"), Some(FILES as u64 - 30));
        resume_run(&fixture, &format!("seed {seed}"));
    }
}

#[test]
fn files_changed_between_two_runs_are_checked_again() {
    let fixture = fixture(7, 2);
    assert!(fixture.ended(&SLOWLY, Signal::INT, || fixture.state("done").is_some()));
    let done = fixture.state("done").unwrap();
    // A file that the first run found intact.
    let state = String::from_utf8(fixture.of_job("state").unwrap()).unwrap();
    let again = state.lines().find_map(|line| line.strip_prefix("again=")).unwrap().to_owned();
    let is_done = |number: &usize| !again.split(',').any(|other| other == number.to_string());
    let number = (0..FILES).find(is_done).unwrap();
    rot(&fixture.file(number));
    let ran = fixture.run(&SLOWLY);
    assert_eq!((ran.status, wrong(&fixture)), (Some(0), 0), "{ran:?}");
    assert_eq!((ran.summary("before"), ran.summary("repaired")), (done - 1, 3));
}

#[test]
fn a_dry_run_does_not_resume_a_repair_and_changes_nothing() {
    let fixture = fixture(8, 3);
    assert!(fixture.ended(&SLOWLY, Signal::KILL, || fixture.state("done").is_some()));
    let dry = fixture.run(&["repair", "--json", "-n", "w", ".", "--from", "replica"]);
    assert_eq!((dry.status, dry.summary("before"), dry.summary("repaired")), (Some(0), 0, 3), "{dry:?}");
    assert_eq!(wrong(&fixture), 3);
}
