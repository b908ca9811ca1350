//! Ctrl-C and killed processes: no incomplete file has its final name, and no process keeps
//! running.

use super::{Bed, assert_alike, assert_no_strays};
use crate::faults::bed::pasted;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true.
#[track_caller]
pub(super) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the `haul meet` processes with the working directory `there`.
pub(super) fn far_sides(there: &Path) -> Vec<Pid> {
    let is_one = |entry: &fs::DirEntry| {
        let cwd = fs::read_link(entry.path().join("cwd"));
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        cwd.is_ok_and(|cwd| cwd == there) && line.ends_with(b"\0meet\0")
    };
    let found = fs::read_dir("/proc").unwrap().flatten().filter(is_one);
    found.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Starts a send of 40 MiB at 500 KiB per second, and returns when the sink has its first file.
fn slow(bed: &Bed, way: &[&str]) -> Child {
    bed.file("data/big", 40 << 20);
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let args = [
        &["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--rate=500K"],
        way,
        &["data", "localhost:in"],
    ];
    let child = bed.haul(&args.concat()).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let there = bed.path("there/in/data");
    wait_until("the job", || fs::read_dir(&there).is_ok_and(|found| found.count() > 0));
    child
}

fn interrupted(way: &[&str]) {
    let bed = Bed::new();
    let child = slow(&bed, way);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("stopped") || told.contains("incomplete"), "{told}");
    let there = bed.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || far_sides(&there).is_empty());
    assert!(!bed.path("there/in/data/big").exists());
    let (_, advice) = told.split_once("to resume: ").expect(&told);
    // A higher rate limit makes the resumed job faster.
    assert!(advice.starts_with("haul send ") && advice.contains(" '--rate=500K' "), "{advice}");
    pasted(bed.path(""), &advice.replace("--rate=500K", "--rate=500M"));
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    assert_no_strays(&bed.path("there"));
}

#[test]
fn ctrl_c_ends_both_sides_beside_ssh() {
    interrupted(&[]);
}

#[test]
fn ctrl_c_ends_both_sides_inside_ssh() {
    interrupted(&["--inside-ssh"]);
}

#[test]
fn the_command_that_an_interrupted_fetch_advises_finishes_it() {
    let bed = Bed::new();
    bed.file("there/data/big", 40 << 20);
    fs::create_dir(bed.path("in")).unwrap();
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
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
    let child = bed.haul(&args).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the job", || fs::read_dir(bed.path("in/data")).is_ok_and(|found| found.count() > 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    let (_, advice) = said.split_once("to resume: ").expect(&said);
    assert!(advice.starts_with("haul fetch ") && advice.contains(" '--rate=500K' "), "{advice}");
    pasted(bed.path(""), &advice.replace("--rate=500K", "--rate=500M"));
    assert_alike(&bed.path("there/data"), &bed.path("in/data"));
}

#[test]
fn the_other_side_ends_when_this_one_is_killed() {
    for way in [&[][..], &["--inside-ssh"]] {
        let bed = Bed::new();
        let mut child = slow(&bed, way);
        child.kill().unwrap();
        child.wait().unwrap();
        let there = bed.path("there").canonicalize().unwrap();
        wait_until("the exit of the remote haul", || far_sides(&there).is_empty());
        assert!(!bed.path("there/in/data/big").exists());
    }
}

#[test]
fn a_server_that_is_told_to_end_ends_its_sessions() {
    let bed = Bed::new();
    bed.file("data/big", 40 << 20);
    let server = bed.serve(&["--root", "there"]);
    let client = bed
        .haul(&["send", "--rate=500K", "--ticket-file", "ticket", "data", ":"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the job", || bed.path("there/data").exists());
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
    let ended = client.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_no_strays(&bed.path("there"));
    assert!(!bed.path("there/data/big").exists());
}
