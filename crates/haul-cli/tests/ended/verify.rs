//! `haul verify`, interrupted and run again.

use super::{Bed, Ran, rot};
use crate::faults::bed::{Running, pasted};
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

fn bed(seed: u64) -> Bed {
    let bed = Bed::new(FILES, BYTES, seed);
    bed.aside(&["sum", "-r", "--waybill", "w", "data"]);
    bed
}

/// Interrupts a slow verification by a signal when at least `at_least` entries are done. Returns
/// the number of done entries in its state.
#[track_caller]
fn ended(bed: &Bed, signal: Signal, at_least: u64) -> u64 {
    let is_there = || bed.state("done").is_some_and(|done| done >= at_least);
    assert!(bed.ended(&SLOWLY, signal, is_there), "it came to its end");
    bed.state("done").unwrap()
}

/// Returns the number of bytes that only this run read.
fn read(ran: &Ran) -> u64 {
    ran.summary("bytes") - ran.summary("bytes_before")
}

#[test]
fn killed_at_any_point_it_goes_on_and_reads_nothing_twice() {
    for seed in 1..=3 {
        let bed = bed(seed);
        let mut random = Random::from_seed(seed);
        let rotted = random.below(FILES as u64) as usize;
        rot(&bed.file(rotted));
        bed.rest();
        let done = ended(&bed, Signal::KILL, 1 + random.below(25));
        let job = bed.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"verify".into()), "{job}");
        let ran = bed.run(&SLOWLY);
        assert_eq!((ran.status, ran.err.as_str()), (Some(1), ""), "{seed}");
        assert!(ran.out.lines().next().unwrap().contains(&format!("resumed: {done} entries")), "{ran:?}");
        assert_eq!(ran.summary("before"), done, "{seed}");
        assert_eq!(read(&ran), (FILES as u64 - done) * BYTES as u64, "{seed}");
        assert_eq!((ran.summary("intact"), ran.summary("rotted")), (FILES as u64 - 1, 1), "{seed}");
        assert_eq!(ran.told("verdict"), [(format!("data/{rotted:03}"), "rotted".to_owned())]);
        // The run finished, and damage is no reason to resume.
        let job = bed.listed();
        assert_eq!((&job["status"], &job["exit"], &job["runs"]), (&"failed".into(), &1.into(), &2.into()));
        assert_eq!((bed.of_job("state"), bed.of_job("state.stamps")), (None, None));
    }
}

#[test]
fn what_somebody_touched_in_between_is_read_again() {
    let bed = bed(11);
    bed.rest();
    let done = ended(&bed, Signal::KILL, 5);
    // Changed bytes, a missing name, and a file with another inode that otherwise looks the same.
    rot(&bed.file(0));
    fs::remove_file(bed.file(1)).unwrap();
    bed.aside(&["cp", "-p", "data/002", "twin"]);
    fs::rename(bed.path("twin"), bed.file(2)).unwrap();
    let ran = bed.run(&SLOWLY);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_eq!(ran.summary("before"), done - 3);
    let told = [("data/000", "rotted"), ("data/001", "missing")];
    assert_eq!(ran.told("verdict"), told.map(|(path, verdict)| (path.to_owned(), verdict.to_owned())));
    assert_eq!(read(&ran), (FILES as u64 - done + 2) * BYTES as u64);
}

#[test]
fn asked_to_stop_it_is_gone_on_with_from_anywhere_and_a_finished_one_begins_anew() {
    let bed = bed(12);
    bed.rest();
    let done = ended(&bed, Signal::INT, 1);
    let job = bed.listed();
    assert_eq!((&job["status"], &job["exit"]), (&"stopped".into(), &130.into()), "{job}");
    let id = job["id"].as_str().unwrap();
    let mut resumed = bed.haul(&["jobs", "resume", &id[..8]]);
    resumed.current_dir("/");
    let ran = Ran::of(resumed);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    assert!(done > 0 && ran.summary("before") == done, "{ran:?}");
    // The bytes of the interrupted file are counted, and read again.
    assert_eq!((ran.summary("intact"), read(&ran)), (FILES as u64, (FILES as u64 - done) * BYTES as u64));
    assert!(ran.summary("bytes") >= (FILES * BYTES) as u64);
    assert_eq!(bed.listed()["status"], "finished");
    let ran = bed.run(&SLOWLY);
    assert_eq!((ran.status, ran.summary("before"), ran.summary("bytes_before")), (Some(0), 0, 0));
}

#[test]
fn the_command_that_an_interrupted_verification_advises_finishes_it() {
    let bed = bed(14);
    bed.rest();
    let words = ["verify", "--threads=1", "--bwlimit=100K", "w"];
    let running = Running::new(&mut bed.haul(&words));
    wait_until("the first entry", || bed.state("done").is_some_and(|done| done > 0));
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let (_, advice) =
        ended.stderr.split_once("the remaining entries were not verified; to resume: ").unwrap();
    assert_eq!(advice, "haul verify '--threads=1' '--bwlimit=100K' w\n");
    let output = pasted(bed.path(""), advice);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("entries already verified") && said.contains(&format!("{FILES} intact")), "{said}");
}

#[test]
fn a_sample_keeps_its_seed_and_a_forgotten_job_is_another() {
    let bed = bed(13);
    bed.rest();
    let words = ["verify", "--json", "--threads=1", "--bwlimit=70K", "--sample=70", "w"];
    let is_there = || bed.state("seed").is_some();
    assert!(bed.ended(&words, Signal::KILL, is_there));
    let (seed, done) = (bed.state("seed").unwrap(), bed.state("done"));
    assert!(bed.ended(&words, Signal::KILL, || bed.state("done") > done));
    assert_eq!(bed.state("seed"), Some(seed));
    let job = bed.listed();
    bed.good(&["jobs", "forget", job["id"].as_str().unwrap()]);
    assert!(bed.jobs().is_empty());
    assert!(bed.ended(&words, Signal::KILL, is_there));
    assert!(bed.state("seed") != Some(seed));
}

#[test]
fn a_short_one_leaves_nothing_and_one_without_a_place_is_not_listed() {
    let bed = bed(14);
    attempt(|| {
        let _ = fs::remove_dir_all(bed.path("state"));
        let begun = Instant::now();
        bed.good(&["verify", "-q", "w"]);
        // On a slow machine the job may be listed.
        if begun.elapsed() >= Duration::from_secs(1) {
            return Err(Inconclusive::new("a short verification took a second"));
        }
        assert!(!bed.path("state").exists());
        Ok(())
    });
    fs::write(bed.path("occupied"), "no directory").unwrap();
    let slowly = ["verify", "--threads=1", "--bwlimit=200K", "--state-dir=occupied", "w"];
    let ran = bed.run(&slowly);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(ran.err.contains("this run is not listed and cannot be resumed: "), "{ran:?}");
    let mut homeless = bed.haul(&["verify", "-q", "--threads=1", "--bwlimit=200K", "w"]);
    homeless.env_remove("XDG_STATE_HOME").env("HOME", "");
    let ran = Ran::of(homeless);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""));
}
