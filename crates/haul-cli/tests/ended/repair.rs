//! `haul repair`, interrupted and run again.

use super::{Bed, Ran, rot};
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
fn bed(seed: u64, damaged: u64) -> Bed {
    let bed = Bed::new(FILES, BYTES, seed);
    bed.aside(&["sum", "-r", "--waybill", "w", "data"]);
    fs::create_dir(bed.path("replica")).unwrap();
    bed.aside(&["cp", "-a", "data", "replica"]);
    let mut random = Random::from_seed(seed);
    while wrong(&bed) < damaged {
        let file = bed.file(random.below(FILES as u64) as usize);
        if fs::read(&file).unwrap() == fs::read(bed.path("replica").join(relative(&bed, &file))).unwrap() {
            rot(&file);
        }
    }
    bed.rest();
    bed
}

fn relative(bed: &Bed, path: &std::path::Path) -> std::path::PathBuf {
    path.strip_prefix(bed.home.path()).unwrap().to_owned()
}

/// Returns the number of files that differ from the replica.
fn wrong(bed: &Bed) -> u64 {
    let is_wrong = |number: &usize| {
        let file = bed.file(*number);
        fs::read(&file).unwrap() != fs::read(bed.path("replica").join(relative(bed, &file))).unwrap()
    };
    (0..FILES).filter(is_wrong).count() as u64
}

/// Asserts that the next run repairs the remaining files, and reads only the files that the state
/// does not cover.
#[track_caller]
fn goes_on(bed: &Bed, what: &str) -> Ran {
    let (done, left) = (bed.state("done").unwrap_or(0), wrong(bed));
    let ran = bed.run(&SLOWLY);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{what}: {ran:?}");
    assert_eq!(ran.summary("before"), done, "{what}");
    assert_eq!(ran.summary("bytes_read"), (FILES as u64 - done) * BYTES as u64, "{what}");
    assert_eq!((ran.summary("repaired"), ran.summary("left")), (left, 0), "{what}");
    assert_eq!(wrong(bed), 0, "{what}");
    assert_eq!(fs::read_dir(bed.path("data")).unwrap().count(), FILES, "{what}: no other file is left");
    bed.aside(&["verify", "-q", "w"]);
    assert_eq!(bed.of_job("state"), None, "{what}");
    ran
}

#[test]
fn killed_while_it_looks_for_damage_it_goes_on_and_reads_nothing_twice() {
    for seed in 1..=3 {
        let bed = bed(seed, 6);
        let at_least = 1 + Random::from_seed(seed).below(20);
        let is_there = || bed.state("done").is_some_and(|done| done >= at_least);
        assert!(bed.ended(&SLOWLY, Signal::KILL, is_there), "it finished");
        let job = bed.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"repair".into()), "{job}");
        assert_eq!(wrong(&bed), 6, "nothing is repaired before all was checked");
        let ran = goes_on(&bed, &format!("seed {seed}"));
        assert!(ran.summary("before") >= at_least);
        assert_eq!(bed.listed()["status"], "finished");
    }
}

#[test]
fn killed_while_it_mends_it_goes_on_with_what_is_left() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    for seed in 4..=6 {
        let bed = bed(seed, 30);
        let mended = 1 + Random::from_seed(seed).below(20);
        // All files have been checked; then the repaired files get their names one by one. The test
        // checks the tree after each rename.
        let mut repair = traced::signalled(&bed.haul(&SLOWLY), "renameat", "STOP", "1+");
        let mut child =
            repair.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert!(traced::stops_where(&child, || wrong(&bed) == 30 - mended), "the repair finished");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(bed.state("next"), Some(FILES as u64), "no file is repaired before all are verified");
        assert_eq!(bed.state("done"), Some(FILES as u64 - 30));
        goes_on(&bed, &format!("seed {seed}"));
    }
}

#[test]
fn what_rots_in_between_is_found_where_somebody_wrote() {
    let bed = bed(7, 2);
    assert!(bed.ended(&SLOWLY, Signal::INT, || bed.state("done").is_some()));
    let done = bed.state("done").unwrap();
    // A file that the first run found intact.
    let state = String::from_utf8(bed.of_job("state").unwrap()).unwrap();
    let again = state.lines().find_map(|line| line.strip_prefix("again=")).unwrap().to_owned();
    let is_done = |number: &usize| !again.split(',').any(|other| other == number.to_string());
    let number = (0..FILES).find(is_done).unwrap();
    rot(&bed.file(number));
    let ran = bed.run(&SLOWLY);
    assert_eq!((ran.status, wrong(&bed)), (Some(0), 0), "{ran:?}");
    assert_eq!((ran.summary("before"), ran.summary("repaired")), (done - 1, 3));
}

#[test]
fn a_dry_run_is_another_job_and_changes_nothing() {
    let bed = bed(8, 3);
    assert!(bed.ended(&SLOWLY, Signal::KILL, || bed.state("done").is_some()));
    let dry = bed.run(&["repair", "--json", "-n", "w", ".", "--from", "replica"]);
    assert_eq!((dry.status, dry.summary("before"), dry.summary("repaired")), (Some(0), 0, 3), "{dry:?}");
    assert_eq!(wrong(&bed), 3);
}
