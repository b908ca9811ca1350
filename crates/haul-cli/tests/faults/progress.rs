//! Progress of a copy: a bar on a terminal, nothing in a pipe, events for programs.

use super::fixture::{FaultFixture, HAUL, HOLD, haul, noise, start, write_old};
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
fn held() -> Option<FaultFixture> {
    let fixture = FaultFixture::new(&format!("*victim read 2097152.. delay {HOLD} times 1"))?;
    fixture.tree(5 * MIB);
    Some(fixture)
}

#[test]
fn no_progress_bar_is_written_to_a_pipe() {
    let Some(fixture) = held() else { return };
    // The delay is longer than the time until a bar is drawn.
    fixture.rules("*victim read 2097152.. delay 1200 times 2");
    let args = [
        Path::new("cp"),
        "-aT".as_ref(),
        "--progress".as_ref(),
        &fixture.path("view/tree"),
        &fixture.path("sink"),
    ];
    let ended = start(args).end();
    ended.is_fine();
    assert_eq!(ended.stdout, "");
}

/// Runs a command line on a terminal of its own, and releases the hold when all these parts are
/// drawn. Returns the exit status and the output.
fn on_a_terminal(fixture: &FaultFixture, line: &str, parts: &[&str]) -> (Option<i32>, String) {
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
            fixture.release();
        }
    }
    let drawn = String::from_utf8_lossy(&drawn).into_owned();
    let missing = parts.iter().find(|part| !drawn.contains(**part));
    assert_eq!(missing, None, "{drawn:?}");
    (child.wait().unwrap().code(), drawn)
}

/// Parts of the bar for all kinds of work.
const BAR: [&str; 3] = [" files", " MiB", "iB/s"];

fn copy_line(options: &str, fixture: &FaultFixture) -> String {
    let [view, sink] = ["view/tree", "sink"].map(|name| fixture.path(name));
    format!("stty cols 120; exec '{HAUL}' cp -aT {options} '{}' '{}'", view.display(), sink.display())
}

#[test]
fn progress_bar_shows_files_bytes_and_rate() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(fixture) = held() else { return };
    let (code, drawn) = on_a_terminal(&fixture, &copy_line("--progress --threads=1", &fixture), &BAR);
    assert_eq!(code, Some(0), "{drawn:?}");
}

/// Regression test: the total was what the copy had met so far, up to its end.
#[test]
fn the_total_of_a_tree_is_known_while_its_first_file_is_copied() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    for threads in [1, 3] {
        let Some(fixture) = FaultFixture::new("") else { return };
        fixture.tree(5 * MIB);
        fs::create_dir(fixture.path("store/tree/more")).unwrap();
        write_old(&fixture.path("store/tree/more/last"), &noise(3 * MIB));
        fixture.rules(&format!("* read .. pause {HOLD} times 1"));
        let line = copy_line(&format!("--progress --threads={threads}"), &fixture);
        let (code, drawn) = on_a_terminal(&fixture, &line, &["/7 files", "/8.1 MiB", " left"]);
        assert_eq!(code, Some(0), "{drawn:?}");
        assert!(!drawn.contains("at least"), "{drawn:?}");
    }
}

#[test]
fn sum_draws_the_progress_bar_and_erases_it() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    for algorithm in ["blake3", "md5"] {
        let Some(fixture) = held() else { return };
        let tree = fixture.path("view/tree");
        let line = format!(
            "stty cols 120; exec '{HAUL}' sum -r -a {algorithm} --threads=1 --progress '{}' >/dev/null",
            tree.display()
        );
        let (code, drawn) = on_a_terminal(&fixture, &line, &BAR);
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
    let Some(fixture) = held() else { return };
    let [view, sink] = ["view/tree/victim", "sink"].map(|name| fixture.path(name));
    // `haul cp` draws the bar by default.
    let line = format!("stty cols 120; exec '{HAUL}' cp '{}' '{}'", view.display(), sink.display());
    let (code, drawn) = on_a_terminal(&fixture, &line, &["0/1 files", "/5.0 MiB", " left"]);
    assert_eq!(code, Some(0), "{drawn:?}");
}

#[test]
fn short_jobs_draw_no_progress_bar() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(fixture) = held() else { return };
    fixture.rules("");
    attempt(|| {
        let begun = Instant::now();
        let (code, drawn) = on_a_terminal(&fixture, &copy_line("--progress", &fixture), &[]);
        assert_eq!(code, Some(0), "{drawn:?}");
        // On a slow machine a bar may be drawn.
        if begun.elapsed() >= Duration::from_secs(1) {
            return Err(Inconclusive::new("a copy of a few files took a second"));
        }
        assert!(drawn.trim().starts_with("haul cp: 6 files, 5.1 MiB, ") && !drawn.contains('['), "{drawn:?}");
        Ok(())
    });
}

#[test]
fn a_copy_that_shows_progress_or_verifies_ends_with_one_line_on_a_terminal() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(fixture) = held() else { return };
    fixture.rules("");
    let cp = fixture.path("cp");
    std::os::unix::fs::symlink(HAUL, &cp).unwrap();
    let own = copy_line("OPTIONS", &fixture);
    let other = own.replace(&format!("'{HAUL}' cp"), &cp.display().to_string());
    for (line, options, last) in [
        (&own, "--progress", Some("s")),
        (&own, "--verify", Some("verified")),
        (&own, "--verify=stream", Some("s")),
        (&own, "--progress --verify=reread", Some("verified")),
        (&own, "", None),
        (&own, "--verify --json >/dev/null", None),
        (&own, "--verify 2>/dev/null", None),
        (&other, "--progress --verify", None),
    ] {
        // A copy into an existing directory overwrites it.
        let (code, drawn) = on_a_terminal(&fixture, &line.replace("OPTIONS", options), &[]);
        assert_eq!(code, Some(0), "{options}: {drawn:?}");
        // A bar of a slow run is erased by a carriage return.
        let shown = drawn.trim_end().rsplit(['\r', '\n']).next().unwrap_or_default();
        let is_there = shown.starts_with("haul cp: 6 files, 5.1 MiB, ");
        assert_eq!(is_there, last.is_some(), "{options}: {drawn:?}");
        assert!(last.is_none_or(|last| shown.contains(&format!(" {last}"))), "{options}: {drawn:?}");
        assert_eq!(shown.contains("verified"), last == Some("verified"), "{options}: {drawn:?}");
    }
    fixture.rules("*victim read .. errno EIO");
    let (code, drawn) = on_a_terminal(&fixture, &own.replace("OPTIONS", "--progress"), &[]);
    assert!(code == Some(1) && !drawn.contains("6 files, "), "{drawn:?}");
}

#[test]
fn errors_are_printed_while_the_progress_bar_is_shown() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    let Some(fixture) = held() else { return };
    fixture.rules(&format!("*victim read 2097152.. delay {HOLD} times 1\n*victim read 4194304.. errno EIO"));
    let (code, drawn) = on_a_terminal(&fixture, &copy_line("--progress --threads=1", &fixture), &[" files"]);
    assert_eq!(code, Some(1), "{drawn:?}");
    assert!(drawn.contains("error reading") && drawn.contains("Input/output error"), "{drawn:?}");
}

/// Parses each line of standard output as JSON.
#[track_caller]
fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn json_events_are_one_object_per_line_for_any_name() {
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
fn json_reports_and_counts_failures() {
    let Some(fixture) = FaultFixture::new("*victim read .. errno EIO") else { return };
    fixture.tree(MIB);
    let args = ["cp", "-aT", "--json"].map(Path::new).into_iter();
    let ended = haul(args.chain([&*fixture.path("view/tree"), &*fixture.path("sink")]));
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
fn unwritable_help_and_version_output_fails_without_panic() {
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
        let reported = format!("haul {command}: write error: No space left on device\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), reported);
    }
}
