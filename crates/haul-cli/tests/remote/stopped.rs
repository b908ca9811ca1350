//! Ctrl-C and killed processes: no incomplete file has its final name, and no process keeps
//! running.

use super::{Fixture, assert_alike, assert_no_strays};
use crate::faults::fixture::pasted;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true.
#[track_caller]
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the `haul meet` processes with the working directory `there`.
pub(super) fn remote_processes(there: &Path) -> Vec<Pid> {
    let is_one = |entry: &fs::DirEntry| {
        let cwd = fs::read_link(entry.path().join("cwd"));
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        cwd.is_ok_and(|cwd| cwd == there) && line.windows(6).any(|part| part == b"\0meet\0")
    };
    let found = fs::read_dir("/proc").unwrap().flatten().filter(is_one);
    found.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Starts a send of 40 MiB at 500 KiB per second, and returns when the sink has its first file.
fn slow(fixture: &Fixture, way: &[&str]) -> Child {
    fixture.file("data/big", 40 << 20);
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let args = [
        &["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--rate=500K"],
        way,
        &["data", "localhost:in"],
    ];
    let child = fixture.haul(&args.concat()).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let there = fixture.path("there/in/data");
    wait_until("the job", || fs::read_dir(&there).is_ok_and(|found| found.count() > 0));
    child
}

fn interrupted(way: &[&str]) {
    let fixture = Fixture::new();
    let child = slow(&fixture, way);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{reported}");
    assert!(reported.contains("stopped") || reported.contains("incomplete"), "{reported}");
    let there = fixture.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    assert!(!fixture.path("there/in/data/big").exists());
    let (_, advice) = reported.split_once("to resume: ").expect(&reported);
    // A higher rate limit makes the resumed job faster.
    assert!(advice.starts_with("haul send ") && advice.contains(" '--rate=500K' "), "{advice}");
    pasted(fixture.path(""), &advice.replace("--rate=500K", "--rate=500M"));
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn sigint_ends_both_sides_of_a_direct_transfer() {
    interrupted(&[]);
}

#[test]
fn sigint_ends_both_sides_of_a_transfer_inside_ssh() {
    interrupted(&["--inside-ssh"]);
}

#[test]
fn the_command_suggested_after_an_interrupt_completes_the_fetch() {
    let fixture = Fixture::new();
    fixture.file("there/data/big", 40 << 20);
    fs::create_dir(fixture.path("in")).unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let args = [
        "fetch",
        "-e",
        &ssh,
        "--remote-haul",
        env!("CARGO_BIN_EXE_haul"),
        "--rate=500K",
        "localhost:data",
        "in",
    ];
    let child = fixture.haul(&args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the job", || fs::read_dir(fixture.path("in/data")).is_ok_and(|found| found.count() > 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let (_, advice) = said.split_once("to resume: ").expect(&said);
    assert!(advice.starts_with("haul fetch ") && advice.contains(" '--rate=500K' "), "{advice}");
    pasted(fixture.path(""), &advice.replace("--rate=500K", "--rate=500M"));
    assert_alike(&fixture.path("there/data"), &fixture.path("in/data"));
}

#[test]
fn the_remote_process_ends_if_the_local_process_is_killed() {
    for way in [&[][..], &["--inside-ssh"]] {
        let fixture = Fixture::new();
        let mut child = slow(&fixture, way);
        child.kill().unwrap();
        child.wait().unwrap();
        let there = fixture.path("there").canonicalize().unwrap();
        wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
        assert!(!fixture.path("there/in/data/big").exists());
    }
}

#[test]
fn a_server_ends_its_sessions_on_sigterm() {
    let fixture = Fixture::new();
    fixture.file("data/big", 40 << 20);
    let server = fixture.serve(&["--root", "there"]);
    let client = fixture
        .haul(&["send", "--rate=500K", "--ticket-file", "ticket", "data", ":"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the job", || fixture.path("there/data").exists());
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
    let ended = client.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_no_strays(&fixture.path("there"));
    assert!(!fixture.path("there/data/big").exists());
}
