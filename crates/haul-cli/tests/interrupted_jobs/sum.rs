//! `haul sum --waybill`, interrupted and run again.
//!
//! The names of the files come through a pipe: only those that the first run should hash, and no
//! others until it is killed.

use super::{Fixture, RunResult, rot, waited};
use crate::faults::fixture::{Running, pasted};
use haul_lab::attempt::Inconclusive;
use haul_lab::random::Random;
use haul_lab::{attempt, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

const FILES: usize = 40;
const BYTES: usize = 150_000;

const BY_LIST: [&str; 8] =
    ["sum", "-a", "blake3,md5", "--object-size=64K", "--waybill", "w", "--files-from", "names"];

fn pipe(path: &Path) -> File {
    let _ = fs::remove_file(path);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // Holds both ends of the pipe, so that opening it does not block and a reader gets no end of
    // file.
    File::options().read(true).write(true).open(path).unwrap()
}

fn names(numbers: impl IntoIterator<Item = usize>) -> String {
    numbers.into_iter().map(|number| format!("data/{number:03}\n")).collect()
}

/// Returns the number of files with a stamp in the state of the job.
fn stamps(fixture: &Fixture) -> usize {
    fixture.of_job("state").and(fixture.of_job("state.stamps")).map_or(0, |stamps| stamps.len() / 16)
}

/// Runs a command that gets its names through a pipe, and kills it when all these files are hashed.
fn ended(fixture: &Fixture, words: &[&str], numbers: impl IntoIterator<Item = usize>) {
    let mut list = pipe(&fixture.path("names"));
    let text = names(numbers);
    list.write_all(text.as_bytes()).unwrap();
    let all = text.lines().count();
    assert!(fixture.ended(words, Signal::KILL, || stamps(fixture) == all), "the run finished");
    fs::remove_file(fixture.path("names")).unwrap();
}

/// Returns the number of files that a run did not read.
fn spared(ran: &RunResult) -> usize {
    let Some(line) = ran.err.lines().find_map(|line| line.strip_prefix("haul sum: resumed: ")) else {
        return 0;
    };
    line.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the lines of a waybill without times, and without the checksums that depend on them.
fn without_times(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let fields = line.split(' ');
        let is_time = |field: &&str| match line.split(' ').next() {
            Some("surehaul-waybill") => field.starts_with("at=") || field.starts_with("after="),
            Some("end") => field.starts_with("blake3="),
            _ => false,
        };
        let mut kept: Vec<&str> = fields.filter(|field| !is_time(field)).collect();
        // The checksum of the line.
        kept.pop();
        kept.join(" ")
    };
    text.lines().map(line).collect()
}

/// Asserts that the resumed job has the same output and waybill as an uninterrupted run, and that
/// it did not read `expected` files.
#[track_caller]
fn resume_run(fixture: &Fixture, words: &[&str], expected: usize) {
    let before = fs::read(fixture.path("before")).ok();
    let ran = fixture.run(words);
    assert_eq!((ran.status, spared(&ran)), (Some(0), expected), "{ran:?}");
    assert_eq!(fixture.run(&["waybill", "check", "w"]).status, Some(0));
    assert_eq!(fixture.listed()["status"], "finished");
    let folder = &fixture.jobs()[0];
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["record"], "a finished job is not resumable");
    fs::rename(fixture.path("w"), fixture.path("w.resumed")).unwrap();
    if let Some(before) = before {
        fs::write(fixture.path("w"), before).unwrap();
    }
    let undisturbed = fixture.run(words);
    assert_eq!((undisturbed.status, undisturbed.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, undisturbed.out);
    assert_eq!(without_times(&fixture.path("w.resumed")), without_times(&fixture.path("w")));
}

#[test]
fn sum_killed_at_any_point_resumes_and_writes_the_same_waybill() {
    for (seed, leaf) in [(1, None), (2, Some("--leaf")), (3, Some("--leaf=16K"))] {
        let fixture = Fixture::new(FILES, BYTES, seed);
        // Sizes at the boundaries of objects and leaves.
        for (number, len) in [0, 1, 1024, 1025, 16_384, 65_536, 65_537, 131_072].into_iter().enumerate() {
            File::options().write(true).open(fixture.file(number)).unwrap().set_len(len).unwrap();
        }
        fixture.rest();
        let words: Vec<&str> = BY_LIST.iter().copied().chain(leaf).collect();
        let done = 1 + Random::from_seed(seed).below(FILES as u64 - 1) as usize;
        ended(&fixture, &words, 0..done);
        let job = fixture.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"sum".into()), "{job}");
        fs::write(fixture.path("names"), names(0..FILES)).unwrap();
        resume_run(&fixture, &words, done);
    }
}

#[test]
fn sum_interrupted_twice_keeps_all_digests() {
    let fixture = Fixture::new(FILES, BYTES, 11);
    fixture.rest();
    ended(&fixture, &BY_LIST, 0..20);
    // The second run does not get as far as the first one; the third run gets further.
    ended(&fixture, &BY_LIST, 0..5);
    ended(&fixture, &BY_LIST, 0..30);
    fs::write(fixture.path("names"), names(0..FILES)).unwrap();
    resume_run(&fixture, &BY_LIST, 30);
}

#[test]
fn only_files_changed_between_two_runs_are_hashed_again() {
    let fixture = Fixture::new(FILES, BYTES, 12);
    fixture.rest();
    // The first run has the even numbers; the odd ones are added later.
    ended(&fixture, &BY_LIST, (0..30).step_by(2));
    rot(&fixture.file(4));
    fixture.aside(&["cp", "-p", "data/006", "twin"]);
    fs::rename(fixture.path("twin"), fixture.file(6)).unwrap();
    // In another order, with new files between, and without two hashed files.
    let numbers = (0..FILES).filter(|number| ![8, 10].contains(number)).rev();
    fs::write(fixture.path("names"), names(numbers)).unwrap();
    resume_run(&fixture, &BY_LIST, 15 - 4);
}

#[test]
fn an_interrupted_appended_section_is_resumed() {
    let fixture = Fixture::new(FILES, BYTES, 13);
    fixture.rest();
    fixture.aside(&["sum", "--waybill", "w", "data/039"]);
    fs::copy(fixture.path("w"), fixture.path("before")).unwrap();
    ended(&fixture, &BY_LIST, 0..10);
    fs::write(fixture.path("names"), names(0..FILES)).unwrap();
    resume_run(&fixture, &BY_LIST, 10);
    let (before, after) =
        (fs::read(fixture.path("before")).unwrap(), fs::read(fixture.path("w.resumed")).unwrap());
    assert!(after.starts_with(&before) && after.len() > before.len());
}

#[test]
fn interrupted_sum_leaves_a_complete_waybill_and_resumes() {
    let fixture = Fixture::new(FILES, BYTES, 14);
    fs::write(fixture.path("data/sub"), "name").unwrap();
    fixture.rest();
    let words = ["sum", "-r", "--waybill", "w", "data", "hold"];
    drop(pipe(&fixture.path("hold")));
    let mut child = fixture.haul(&words).stdout(Stdio::null()).spawn().unwrap();
    assert!(waited(&mut child, || stamps(&fixture) == FILES + 1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let (_, advice) = said.split_once("to resume, run: ").unwrap();
    assert_eq!(advice, "haul sum -r --waybill w data hold\n");
    assert_eq!(fixture.run(&["waybill", "check", "w"]).status, Some(0));
    fs::remove_file(fixture.path("hold")).unwrap();
    fs::write(fixture.path("hold"), "a file by now").unwrap();
    resume_run(&fixture, &words, FILES + 1);
}

/// In earlier versions the section of the files that were already hashed was closed, and remained
/// next to the section of the next run.
#[test]
fn sum_interrupted_before_it_is_listed_removes_its_section() {
    for signal in [Signal::INT, Signal::TERM] {
        attempt(|| {
            let fixture = Fixture::new(4, BYTES, 19);
            fixture.good(&["sum", "--waybill", "with one before", "data/000"]);
            let before = fs::read(fixture.path("with one before")).unwrap();
            for waybill in ["w", "with one before"] {
                drop(pipe(&fixture.path("hold")));
                let mut sum = fixture.haul(&["sum", "-r", "--waybill", waybill, "data", "hold"]);
                let running = Running::new(&mut sum);
                // The pipe has no writer: the job blocks in open, and already handles signals.
                running.is_ready(signal, None);
                wait_until("the waybill", || fixture.path(waybill).exists());
                running.signal(signal);
                let ended = running.end();
                assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
                fs::remove_file(fixture.path("hold")).unwrap();
                fs::write(fixture.path("hold"), "a file by now").unwrap();
                if !fixture.jobs().is_empty() {
                    return Err(Inconclusive::new("it ran for longer than a second"));
                }
                let left = fs::read(fixture.path(waybill)).ok();
                assert_eq!(left, Some(before.clone()).filter(|_| waybill != "w"), "{ended:?}");
                let (_, advice) = ended.stderr.split_once("to write it, run: ").unwrap();
                pasted(fixture.path(""), advice);
                let said = fixture.good(&["waybill", "check", waybill]);
                assert!(said.starts_with("whole: 5 entries, "), "{said}");
                let text = fs::read_to_string(fixture.path(waybill)).unwrap();
                let sections = text.lines().filter(|line| line.starts_with("surehaul-waybill ")).count();
                assert_eq!(sections, if waybill == "w" { 1 } else { 2 });
            }
            Ok(())
        });
    }
}

#[test]
fn the_same_command_in_another_directory_does_not_resume() {
    let fixture = Fixture::new(FILES, BYTES, 15);
    let waybill = fixture.path("w");
    let waybill = waybill.to_str().unwrap();
    let words = ["sum", "--waybill", waybill, "--files-from", "names"];
    fs::create_dir(fixture.path("other")).unwrap();
    fixture.aside(&["cp", "-a", "data", "other"]);
    fixture.rest();
    ended(&fixture, &words, 0..10);
    fs::write(fixture.path("other/names"), names(0..FILES)).unwrap();
    let mut there = fixture.haul(&words);
    there.current_dir(fixture.path("other"));
    let ran = RunResult::of(there);
    // An interrupted section is not a receipt. This command writes the section again and reads all
    // of its own files.
    assert_eq!((ran.status, spared(&ran), ran.err.as_str()), (Some(0), 0, ""));
    assert_eq!(fixture.run(&["waybill", "check", "w"]).status, Some(0));
}

#[test]
fn another_command_does_not_overwrite_an_incomplete_waybill() {
    let fixture = Fixture::new(FILES, BYTES, 16);
    fixture.rest();
    ended(&fixture, &BY_LIST, 0..10);
    let cut_off = fs::read(fixture.path("w")).unwrap();
    let ran = fixture.run(&["sum", "--waybill", "w", "data/000"]);
    assert!(
        ran.status == Some(1) && ran.err.contains("or truncated; name a file that does not exist"),
        "{ran:?}"
    );
    assert_eq!(fs::read(fixture.path("w")).unwrap(), cut_off);
}
