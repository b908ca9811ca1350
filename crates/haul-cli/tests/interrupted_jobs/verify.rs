//! `haul verify`, interrupted and run again.

use super::{Fixture, RunResult, rot};
use crate::faults::fixture::{Running, pasted};
use haul_lab::attempt::{Inconclusive, attempt};
use haul_lab::random::Random;
use haul_lab::wait_until;
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

const FILES: usize = 60;
const BYTES: usize = 16 << 10;

/// The complete run takes about ten seconds; the expected state is reached after three.
const SLOWLY: [&str; 5] = ["verify", "--json", "--threads=1", "--bwlimit=100K", "w"];

fn fixture(seed: u64) -> Fixture {
    let fixture = Fixture::new(FILES, BYTES, seed);
    fixture.aside(&["sum", "-r", "--waybill", "w", "data"]);
    fixture
}

/// Interrupts a slow verification by a signal when at least `at_least` entries are done. Returns
/// the number of done entries in its state.
#[track_caller]
fn ended(fixture: &Fixture, signal: Signal, at_least: u64) -> u64 {
    let is_there = || fixture.state("done").is_some_and(|done| done >= at_least);
    assert!(fixture.ended(&SLOWLY, signal, is_there), "the job finished before the signal");
    fixture.state("done").unwrap()
}

/// Returns the number of bytes that only this run read.
fn read(ran: &RunResult) -> u64 {
    ran.summary("bytes") - ran.summary("bytes_before")
}

#[test]
fn verify_killed_at_any_point_resumes_without_rereading() {
    for seed in 1..=3 {
        let fixture = fixture(seed);
        let mut random = Random::from_seed(seed);
        let rotted = random.below(FILES as u64) as usize;
        rot(&fixture.file(rotted));
        fixture.rest();
        let done = ended(&fixture, Signal::KILL, 1 + random.below(25));
        let job = fixture.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"verify".into()), "{job}");
        let ran = fixture.run(&SLOWLY);
        assert_eq!((ran.status, ran.err.as_str()), (Some(1), ""), "{seed}");
        assert!(ran.out.lines().next().unwrap().contains(&format!("resumed: {done} entries")), "{ran:?}");
        assert_eq!(ran.summary("before"), done, "{seed}");
        assert_eq!(read(&ran), (FILES as u64 - done) * BYTES as u64, "{seed}");
        assert_eq!((ran.summary("intact"), ran.summary("rotted")), (FILES as u64 - 1, 1), "{seed}");
        assert_eq!(ran.told("verdict"), [(format!("data/{rotted:03}"), "rotted".to_owned())]);
        // The run finished, and damage is no reason to resume.
        let job = fixture.listed();
        assert_eq!((&job["status"], &job["exit"], &job["runs"]), (&"failed".into(), &1.into(), &2.into()));
        assert_eq!((fixture.of_job("state"), fixture.of_job("state.stamps")), (None, None));
    }
}

#[test]
fn files_touched_between_two_runs_are_read_again() {
    let fixture = fixture(11);
    fixture.rest();
    let done = ended(&fixture, Signal::KILL, 5);
    // Changed bytes, a missing name, and a file with another inode that otherwise looks the same.
    rot(&fixture.file(0));
    fs::remove_file(fixture.file(1)).unwrap();
    fixture.aside(&["cp", "-p", "data/002", "twin"]);
    fs::rename(fixture.path("twin"), fixture.file(2)).unwrap();
    let ran = fixture.run(&SLOWLY);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_eq!(ran.summary("before"), done - 3);
    let told = [("data/000", "rotted"), ("data/001", "missing")];
    assert_eq!(ran.told("verdict"), told.map(|(path, verdict)| (path.to_owned(), verdict.to_owned())));
    assert_eq!(read(&ran), (FILES as u64 - done + 2) * BYTES as u64);
}

#[test]
fn interrupted_verify_resumes_by_id_and_a_finished_one_restarts() {
    let fixture = fixture(12);
    fixture.rest();
    let done = ended(&fixture, Signal::INT, 1);
    let job = fixture.listed();
    assert_eq!((&job["status"], &job["exit"]), (&"stopped".into(), &130.into()), "{job}");
    let id = job["id"].as_str().unwrap();
    let mut resumed = fixture.haul(&["jobs", "resume", &id[..8]]);
    resumed.current_dir("/");
    let ran = RunResult::of(resumed);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert!(done > 0 && ran.summary("before") == done, "{ran:?}");
    // The bytes of the interrupted file are counted, and read again.
    assert_eq!((ran.summary("intact"), read(&ran)), (FILES as u64, (FILES as u64 - done) * BYTES as u64));
    assert!(ran.summary("bytes") >= (FILES * BYTES) as u64);
    assert_eq!(fixture.listed()["status"], "finished");
    let ran = fixture.run(&SLOWLY);
    assert_eq!((ran.status, ran.summary("before"), ran.summary("bytes_before")), (Some(0), 0, 0));
}

#[test]
fn the_command_suggested_after_an_interrupt_completes_verify() {
    let fixture = fixture(14);
    fixture.rest();
    let words = ["verify", "--threads=1", "--bwlimit=100K", "w"];
    let running = Running::new(&mut fixture.haul(&words));
    wait_until("the first entry", || fixture.state("done").is_some_and(|done| done > 0));
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let (_, advice) =
        ended.stderr.split_once("the remaining entries were not verified; to resume: ").unwrap();
    assert_eq!(advice, "haul verify '--threads=1' '--bwlimit=100K' w\n");
    let output = pasted(fixture.path(""), advice);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("entries already verified") && said.contains(&format!("{FILES} intact")), "{said}");
}

#[test]
fn a_resumed_sample_keeps_its_seed_until_the_job_is_forgotten() {
    let fixture = fixture(13);
    fixture.rest();
    let words = ["verify", "--json", "--threads=1", "--bwlimit=70K", "--sample=70", "w"];
    let is_there = || fixture.state("seed").is_some();
    assert!(fixture.ended(&words, Signal::KILL, is_there));
    let (seed, done) = (fixture.state("seed").unwrap(), fixture.state("done"));
    assert!(fixture.ended(&words, Signal::KILL, || fixture.state("done") > done));
    assert_eq!(fixture.state("seed"), Some(seed));
    let job = fixture.listed();
    fixture.good(&["jobs", "forget", job["id"].as_str().unwrap()]);
    assert!(fixture.jobs().is_empty());
    assert!(fixture.ended(&words, Signal::KILL, is_there));
    assert!(fixture.state("seed") != Some(seed));
}

#[test]
fn short_verify_leaves_no_state_and_needs_no_state_directory() {
    let fixture = fixture(14);
    attempt(|| {
        let _ = fs::remove_dir_all(fixture.path("state"));
        let begun = Instant::now();
        fixture.good(&["verify", "-q", "w"]);
        // On a slow machine the job may be listed.
        if begun.elapsed() >= Duration::from_secs(1) {
            return Err(Inconclusive::new("a short verification took a second"));
        }
        assert!(!fixture.path("state").exists());
        Ok(())
    });
    fs::write(fixture.path("occupied"), "no directory").unwrap();
    let slowly = ["verify", "--threads=1", "--bwlimit=200K", "--state-dir=occupied", "w"];
    let ran = fixture.run(&slowly);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.err.contains("this run is not listed and cannot be resumed: "), "{ran:?}");
    let mut homeless = fixture.haul(&["verify", "-q", "--threads=1", "--bwlimit=200K", "w"]);
    homeless.env_remove("XDG_STATE_HOME").env("HOME", "");
    let ran = RunResult::of(homeless);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""));
}
