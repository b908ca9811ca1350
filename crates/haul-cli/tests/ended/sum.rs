//! `haul sum --waybill`, interrupted and run again.
//!
//! The names of the files come through a pipe: only those that the first run should hash, and no
//! others until it is killed.

use super::{Bed, Ran, rot, waited};
use crate::faults::bed::{Running, pasted};
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
fn stamps(bed: &Bed) -> usize {
    bed.of_job("state").and(bed.of_job("state.stamps")).map_or(0, |stamps| stamps.len() / 16)
}

/// Runs a command that gets its names through a pipe, and kills it when all these files are hashed.
fn ended(bed: &Bed, words: &[&str], numbers: impl IntoIterator<Item = usize>) {
    let mut list = pipe(&bed.path("names"));
    let text = names(numbers);
    list.write_all(text.as_bytes()).unwrap();
    let all = text.lines().count();
    assert!(bed.ended(words, Signal::KILL, || stamps(bed) == all), "the run finished");
    fs::remove_file(bed.path("names")).unwrap();
}

/// Returns the number of files that a run did not read.
fn spared(ran: &Ran) -> usize {
    let Some(line) = ran.err.lines().find_map(|line| line.strip_prefix("haul sum: resumed: ")) else {
        return 0;
    };
    line.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the lines of a waybill without times, and without the checksums that depend on them.
fn timeless(path: &Path) -> Vec<String> {
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
fn goes_on(bed: &Bed, words: &[&str], expected: usize) {
    let before = fs::read(bed.path("before")).ok();
    let ran = bed.run(words);
    assert_eq!((ran.status, spared(&ran)), (Some(0), expected), "{ran:?}");
    assert_eq!(bed.run(&["waybill", "check", "w"]).status, Some(0));
    assert_eq!(bed.listed()["status"], "finished");
    let folder = &bed.jobs()[0];
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["record"], "a finished job is not resumable");
    fs::rename(bed.path("w"), bed.path("w.resumed")).unwrap();
    if let Some(before) = before {
        fs::write(bed.path("w"), before).unwrap();
    }
    let undisturbed = bed.run(words);
    assert_eq!((undisturbed.status, undisturbed.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out, undisturbed.out);
    assert_eq!(timeless(&bed.path("w.resumed")), timeless(&bed.path("w")));
}

#[test]
fn killed_at_any_point_it_goes_on_and_writes_the_same_waybill() {
    for (seed, leaf) in [(1, None), (2, Some("--leaf")), (3, Some("--leaf=16K"))] {
        let bed = Bed::new(FILES, BYTES, seed);
        // Sizes at the boundaries of objects and leaves.
        for (number, len) in [0, 1, 1024, 1025, 16_384, 65_536, 65_537, 131_072].into_iter().enumerate() {
            File::options().write(true).open(bed.file(number)).unwrap().set_len(len).unwrap();
        }
        bed.rest();
        let words: Vec<&str> = BY_LIST.iter().copied().chain(leaf).collect();
        let done = 1 + Random::from_seed(seed).below(FILES as u64 - 1) as usize;
        ended(&bed, &words, 0..done);
        let job = bed.listed();
        assert_eq!((&job["status"], &job["kind"]), (&"stopped".into(), &"sum".into()), "{job}");
        fs::write(bed.path("names"), names(0..FILES)).unwrap();
        goes_on(&bed, &words, done);
    }
}

#[test]
fn cut_off_twice_nothing_that_was_hashed_is_lost() {
    let bed = Bed::new(FILES, BYTES, 11);
    bed.rest();
    ended(&bed, &BY_LIST, 0..20);
    // The second run does not get as far as the first one; the third run gets further.
    ended(&bed, &BY_LIST, 0..5);
    ended(&bed, &BY_LIST, 0..30);
    fs::write(bed.path("names"), names(0..FILES)).unwrap();
    goes_on(&bed, &BY_LIST, 30);
}

#[test]
fn what_changed_in_between_is_hashed_again_and_nothing_else() {
    let bed = Bed::new(FILES, BYTES, 12);
    bed.rest();
    // The first run has the even numbers; the odd ones are added later.
    ended(&bed, &BY_LIST, (0..30).step_by(2));
    rot(&bed.file(4));
    bed.aside(&["cp", "-p", "data/006", "twin"]);
    fs::rename(bed.path("twin"), bed.file(6)).unwrap();
    // In another order, with new files between, and without two hashed files.
    let numbers = (0..FILES).filter(|number| ![8, 10].contains(number)).rev();
    fs::write(bed.path("names"), names(numbers)).unwrap();
    goes_on(&bed, &BY_LIST, 15 - 4);
}

#[test]
fn a_section_that_is_appended_goes_on_and_those_before_stay() {
    let bed = Bed::new(FILES, BYTES, 13);
    bed.rest();
    bed.aside(&["sum", "--waybill", "w", "data/039"]);
    fs::copy(bed.path("w"), bed.path("before")).unwrap();
    ended(&bed, &BY_LIST, 0..10);
    fs::write(bed.path("names"), names(0..FILES)).unwrap();
    goes_on(&bed, &BY_LIST, 10);
    let (before, after) = (fs::read(bed.path("before")).unwrap(), fs::read(bed.path("w.resumed")).unwrap());
    assert!(after.starts_with(&before) && after.len() > before.len());
}

#[test]
fn asked_to_stop_it_leaves_a_whole_waybill_and_goes_on() {
    let bed = Bed::new(FILES, BYTES, 14);
    fs::write(bed.path("data/sub"), "name").unwrap();
    bed.rest();
    let words = ["sum", "-r", "--waybill", "w", "data", "hold"];
    drop(pipe(&bed.path("hold")));
    let mut child = bed.haul(&words).stdout(Stdio::null()).spawn().unwrap();
    assert!(waited(&mut child, || stamps(&bed) == FILES + 1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let (_, advice) = said.split_once("to resume, run: ").unwrap();
    assert_eq!(advice, "haul sum -r --waybill w data hold\n");
    assert_eq!(bed.run(&["waybill", "check", "w"]).status, Some(0));
    fs::remove_file(bed.path("hold")).unwrap();
    fs::write(bed.path("hold"), "a file by now").unwrap();
    goes_on(&bed, &words, FILES + 1);
}

/// In earlier versions the section of the files that were already hashed was closed, and remained
/// next to the section of the next run.
#[test]
fn asked_to_stop_before_it_is_listed_it_takes_its_section_back() {
    for signal in [Signal::INT, Signal::TERM] {
        attempt(|| {
            let bed = Bed::new(4, BYTES, 19);
            bed.good(&["sum", "--waybill", "with one before", "data/000"]);
            let before = fs::read(bed.path("with one before")).unwrap();
            for waybill in ["w", "with one before"] {
                drop(pipe(&bed.path("hold")));
                let mut sum = bed.haul(&["sum", "-r", "--waybill", waybill, "data", "hold"]);
                let running = Running::new(&mut sum);
                // The pipe has no writer: the job blocks in open, and already handles signals.
                running.is_ready(signal, None);
                wait_until("the waybill", || bed.path(waybill).exists());
                running.signal(signal);
                let ended = running.end();
                assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
                fs::remove_file(bed.path("hold")).unwrap();
                fs::write(bed.path("hold"), "a file by now").unwrap();
                if !bed.jobs().is_empty() {
                    return Err(Inconclusive::new("it ran for longer than a second"));
                }
                let left = fs::read(bed.path(waybill)).ok();
                assert_eq!(left, Some(before.clone()).filter(|_| waybill != "w"), "{ended:?}");
                let (_, advice) = ended.stderr.split_once("to write it, run: ").unwrap();
                pasted(bed.path(""), advice);
                let said = bed.good(&["waybill", "check", waybill]);
                assert!(said.starts_with("whole: 5 entries, "), "{said}");
                let text = fs::read_to_string(bed.path(waybill)).unwrap();
                let sections = text.lines().filter(|line| line.starts_with("surehaul-waybill ")).count();
                assert_eq!(sections, if waybill == "w" { 1 } else { 2 });
            }
            Ok(())
        });
    }
}

#[test]
fn the_same_command_in_another_directory_knows_nothing_of_it() {
    let bed = Bed::new(FILES, BYTES, 15);
    let waybill = bed.path("w");
    let waybill = waybill.to_str().unwrap();
    let words = ["sum", "--waybill", waybill, "--files-from", "names"];
    fs::create_dir(bed.path("other")).unwrap();
    bed.aside(&["cp", "-a", "data", "other"]);
    bed.rest();
    ended(&bed, &words, 0..10);
    fs::write(bed.path("other/names"), names(0..FILES)).unwrap();
    let mut there = bed.haul(&words);
    there.current_dir(bed.path("other"));
    let ran = Ran::of(there);
    // An interrupted section is not a receipt. This command writes the section again and reads all
    // of its own files.
    assert_eq!((ran.status, spared(&ran), ran.err.as_str()), (Some(0), 0, ""));
    assert_eq!(bed.run(&["waybill", "check", "w"]).status, Some(0));
}

#[test]
fn another_command_neither_goes_on_nor_writes_over_what_was_cut_off() {
    let bed = Bed::new(FILES, BYTES, 16);
    bed.rest();
    ended(&bed, &BY_LIST, 0..10);
    let cut_off = fs::read(bed.path("w")).unwrap();
    let ran = bed.run(&["sum", "--waybill", "w", "data/000"]);
    assert!(
        ran.status == Some(1) && ran.err.contains("or truncated; name a file that does not exist"),
        "{ran:?}"
    );
    assert_eq!(fs::read(bed.path("w")).unwrap(), cut_off);
}
