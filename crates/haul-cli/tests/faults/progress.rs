//! Progress of a copy: a bar on a terminal, nothing in a pipe, events for programs.

use super::bed::{FaultBed, HAUL, HOLD, haul, noise, start, write_old};
use haul_lab::attempt::{Inconclusive, attempt};
use haul_lab::needs::{Need, met_or_skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Returns a test directory with a tree whose copy is held in the middle of its largest file.
fn held() -> Option<FaultBed> {
    let bed = FaultBed::new(&format!("*victim read 2097152.. delay {HOLD} times 1"))?;
    bed.tree(5 * MIB);
    Some(bed)
}

#[test]
fn nothing_is_drawn_in_a_pipe_however_long_it_takes() {
    let Some(bed) = held() else { return };
    // The delay is longer than the time until a bar is drawn.
    bed.rules("*victim read 2097152.. delay 1200 times 2");
    let args =
        [Path::new("cp"), "-aT".as_ref(), "--progress".as_ref(), &bed.path("view/tree"), &bed.path("sink")];
    let ended = start(args).end();
    ended.is_fine();
    assert_eq!(ended.stdout, "");
}

/// Runs a command line on a terminal of its own, and releases the hold when all these parts are
/// drawn. Returns the exit status and the output.
fn on_a_terminal(bed: &FaultBed, line: &str, parts: &[&str]) -> (Option<i32>, String) {
    let mut script = Command::new("script");
    script.args(["-qec", line, "/dev/null"]).env("TERM", "xterm").env("COLUMNS", "120").env("LC_ALL", "C");
    let mut child = script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut terminal = child.stdout.take().unwrap();
    let (mut drawn, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = terminal.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        drawn.extend_from_slice(&piece[..count]);
        let drawn = String::from_utf8_lossy(&drawn);
        if parts.iter().all(|part| drawn.contains(part)) {
            bed.let_go();
        }
    }
    let drawn = String::from_utf8_lossy(&drawn).into_owned();
    let missing = parts.iter().find(|part| !drawn.contains(**part));
    assert_eq!(missing, None, "{drawn:?}");
    (child.wait().unwrap().code(), drawn)
}

/// Parts of the bar for all kinds of work.
const BAR: [&str; 3] = [" files", " MiB", "iB/s"];

fn copy_line(options: &str, bed: &FaultBed) -> String {
    let [view, sink] = ["view/tree", "sink"].map(|name| bed.path(name));
    format!("stty cols 120; exec '{HAUL}' cp -aT {options} '{}' '{}'", view.display(), sink.display())
}

#[test]
fn a_terminal_is_shown_files_bytes_and_rate() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(bed) = held() else { return };
    let (code, drawn) = on_a_terminal(&bed, &copy_line("--progress --threads=1", &bed), &BAR);
    assert_eq!(code, Some(0), "{drawn:?}");
}

#[test]
fn checksums_draw_the_same_bar_and_wipe_it() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    for algorithm in ["blake3", "md5"] {
        let Some(bed) = held() else { return };
        let tree = bed.path("view/tree");
        let line = format!(
            "stty cols 120; exec '{HAUL}' sum -r -a {algorithm} --threads=1 --progress '{}' >/dev/null",
            tree.display()
        );
        let (code, drawn) = on_a_terminal(&bed, &line, &BAR);
        assert_eq!(code, Some(0), "{drawn:?}");
        let last = drawn.rsplit('\r').next().unwrap_or_default();
        assert!(!last.contains("files"), "the bar is left behind: {drawn:?}");
    }
}

#[test]
fn time_left_is_shown_once_all_files_are_known() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(bed) = held() else { return };
    let [view, sink] = ["view/tree/victim", "sink"].map(|name| bed.path(name));
    // `haul cp` draws the bar by default.
    let line = format!("stty cols 120; exec '{HAUL}' cp '{}' '{}'", view.display(), sink.display());
    let (code, drawn) = on_a_terminal(&bed, &line, &["0/1 files", "/5.0 MiB", " left"]);
    assert_eq!(code, Some(0), "{drawn:?}");
}

#[test]
fn short_work_draws_nothing_on_a_terminal() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(bed) = held() else { return };
    bed.rules("");
    attempt(|| {
        let begun = Instant::now();
        let (code, drawn) = on_a_terminal(&bed, &copy_line("--progress", &bed), &[]);
        assert_eq!(code, Some(0), "{drawn:?}");
        // On a slow machine a bar may be drawn.
        if begun.elapsed() >= Duration::from_secs(1) {
            return Err(Inconclusive::new("a copy of a few files took a second"));
        }
        assert_eq!(drawn.trim(), "");
        Ok(())
    });
}

#[test]
fn errors_stand_on_lines_of_their_own_beside_the_bar() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(bed) = held() else { return };
    bed.rules(&format!("*victim read 2097152.. delay {HOLD} times 1\n*victim read 4194304.. errno EIO"));
    let (code, drawn) = on_a_terminal(&bed, &copy_line("--progress --threads=1", &bed), &[" files"]);
    assert_eq!(code, Some(1), "{drawn:?}");
    assert!(drawn.contains("error reading") && drawn.contains("Input/output error"), "{drawn:?}");
}

/// Parses each line of standard output as JSON.
#[track_caller]
fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn events_are_one_json_object_a_line_whatever_names_hold() {
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), home.path().join("sink"));
    fs::create_dir(&source).unwrap();
    for name in [&b"plain"[..], b"new\nline", b"quote\"\\", b"not \xff utf-8", b"\x1b[31mred"] {
        write_old(&source.join(OsStr::from_bytes(name)), &noise(100_000));
    }
    let options = ["cp", "-aTv", "--json", "--print-hash", "--hash-type=blake3"].map(Path::new);
    let ended = haul(options.into_iter().chain([&*source, &*sink]));
    ended.is_fine();
    let events = events(&ended.stdout);
    let count = |kind: &str| events.iter().filter(|event| event["event"] == kind).count();
    assert_eq!((count("file"), count("hash"), count("summary")), (5, 5, 1), "{}", ended.stdout);
    assert_eq!(events.len(), 11 + count("made"));
    let last = events.last().unwrap();
    assert_eq!(last["event"], "summary");
    assert_eq!((&last["files"], &last["bytes"], &last["failures"]), (&5.into(), &500_000.into(), &0.into()));
    let plain = events.iter().find(|event| {
        event["event"] == "file" && event["source"].as_str().is_some_and(|name| name.ends_with("/plain"))
    });
    assert_eq!(plain.unwrap()["bytes"], 100_000);
}

#[test]
fn failures_are_events_too_and_the_summary_counts_them() {
    let Some(bed) = FaultBed::new("*victim read .. errno EIO") else { return };
    bed.tree(MIB);
    let args = ["cp", "-aT", "--json"].map(Path::new).into_iter();
    let ended = haul(args.chain([&*bed.path("view/tree"), &*bed.path("sink")]));
    ended.failed_with(&["error reading", "victim"]);
    let events = events(&ended.stdout);
    let errors: Vec<&Value> = events.iter().filter(|event| event["event"] == "error").collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0]["message"].as_str().unwrap().contains("victim"));
    assert_eq!(events.last().unwrap()["failures"], 1);
}

#[test]
fn output_that_cannot_be_written_fails_the_job() {
    if !met_or_skip(&[Need::Path("/dev/full")]) {
        return;
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let home = tempfile::tempdir().unwrap();
    let (source, sink) = (home.path().join("source"), home.path().join("sink"));
    fs::write(&source, b"bytes").unwrap();
    let output =
        Command::new(HAUL).args(["cp", "--print-hash"]).args([&source, &sink]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"), "{output:?}");
    assert_eq!(fs::read(&sink).unwrap(), b"bytes", "the copy itself is whole");
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_and_no_panic() {
    if !met_or_skip(&[Need::Path("/dev/full")]) {
        return;
    }
    for question in ["--help", "--version"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(HAUL).arg(question).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{question}");
        assert_eq!(output.stderr, b"haul: write error: No space left on device\n", "{question}");
    }
    for command in ["verify", "repair", "waybill"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(HAUL).args([command, "--help"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        let told = format!("haul {command}: write error: No space left on device\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), told);
    }
}
