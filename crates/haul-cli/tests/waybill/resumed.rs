//! Verifications that are interrupted and resumed.

use super::{RunResult, good, haul, pattern, rot, run};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{AtFlags, CWD, FileType, Mode, makedev, mknodat, statat};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

const FILES: usize = 40;
const FILE_BYTES: usize = 65_536;

/// Returns a directory with forty files, the first of them damaged, and their waybill.
fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    for number in 0..FILES {
        fs::write(dir.path().join(format!("data/{number:02}")), pattern(FILE_BYTES, number as u64 + 1))
            .unwrap();
    }
    good(dir.path(), &["sum", "-r", "--waybill", "w", "data"]);
    rot(&dir.path().join("data/00"), |bytes| bytes[5] ^= 1);
    // A later run reads files again that changed just before they were read.
    sleep(Duration::from_millis(150));
    dir
}

/// Verifies slowly with the state `s`, and sends `signal` when the state records a verified file.
/// Returns the output until then. If a run finishes before, the next one is slower.
fn ended(dir: &Path, signal: rustix::process::Signal) -> String {
    let reported = ["300K", "100K", "30K"].into_iter().find_map(|rate| ended_at(dir, signal, rate));
    reported.expect("it ends before a state is kept")
}

/// Returns the number of verified files in the state `s`. The first state may record none.
fn kept(dir: &Path) -> usize {
    let state = fs::read_to_string(dir.join("s")).unwrap_or_default();
    let mut fields = state.split([' ', '\n']);
    fields.find_map(|field| field.strip_prefix("done=")?.parse().ok()).unwrap_or(0)
}

fn ended_at(dir: &Path, signal: rustix::process::Signal, rate: &str) -> Option<String> {
    let slowly = ["verify", "--threads=1", "--bwlimit", rate, "--resume=s", "w"];
    let mut child = haul(dir).args(slowly).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while kept(dir) == 0 {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no state is kept");
        sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).unwrap();
    child.wait().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    // A verification that finishes removes its state.
    dir.join("s").exists().then_some(out)
}

/// Returns a number from the first summary event.
fn number(out: &str, name: &str) -> usize {
    let line = out.lines().find(|line| line.contains(r#""event":"summary""#)).unwrap();
    let value = line.split(&format!(r#""{name}":"#)).nth(1).unwrap();
    value.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Returns the number of files that a run skips, from its first event.
fn passed_over(out: &str) -> usize {
    let said = out.lines().next().unwrap().split("resumed: ").nth(1).expect("the verification resumes");
    said.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_killed_verify_resumes_and_reports_its_damage_again() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::TERM] {
        let dir = fixture();
        let dir = dir.path();
        assert_eq!(ended(dir, signal), "'data/00': rotted: bytes 0-65536\n");
        let ran = run(dir, &["verify", "--json", "--verbose", "--resume=s", "w"]);
        assert_eq!((ran.status, ran.err.as_str()), (Some(1), ""));
        let before = passed_over(&ran.out);
        assert!((1..FILES - 1).contains(&before), "{}", ran.out);
        let again = ran.out.lines().filter(|line| line.contains(r#""event":"entry""#)).count();
        assert_eq!(again, FILES - before);
        assert!(ran.out.contains(r#""path":"data/00","verdict":"rotted""#), "{}", ran.out);
        assert_eq!((number(&ran.out, "intact"), number(&ran.out, "rotted")), (FILES - 1, 1));
        assert!(number(&ran.out, "bytes") >= FILES * FILE_BYTES);
        // The verification is complete, and the next run starts from the beginning.
        assert!(!dir.join("s").exists() && !dir.join("s.new").exists());
        let ran = run(dir, &["verify", "--json", "--verbose", "--resume=s", "w"]);
        assert_eq!(ran.out.lines().count(), FILES + 1);
    }
}

#[test]
fn a_mismatching_state_is_reported_and_all_is_verified() {
    let dir = fixture();
    let dir = dir.path();
    ended(dir, rustix::process::Signal::KILL);
    let state = fs::read(dir.join("s")).unwrap();
    let anew = |args: &[&str], why: &str| {
        let RunResult { status, out, err } =
            run(dir, &[&["verify", "--json", "--verbose", "--resume=s"], args].concat());
        assert_eq!((status, err.as_str()), (Some(1), ""), "{args:?}");
        assert!(out.lines().next().unwrap().contains(why), "{args:?}: {out}");
        assert_eq!(out.lines().count(), FILES + 2, "{args:?}");
        assert!(!dir.join("s").exists());
        fs::write(dir.join("s"), &state).unwrap();
    };
    let other = "belongs to another waybill, directory or set of options";
    anew(&["--cached", "w"], other);
    anew(&["--sample=100", "--seed=1", "w"], other);
    fs::create_dir(dir.join("twin")).unwrap();
    good(dir, &["cp", "-a", "data", "twin"]);
    anew(&["w", "twin"], other);
    good(dir, &["sum", "-r", "-a", "md5", "--waybill", "w2", "data"]);
    rot(&dir.join("data/01"), |bytes| bytes[5] ^= 1);
    anew(&["w2"], other);
    for cut in [1, 60, state.len() - 1] {
        fs::write(dir.join("s"), &state[..cut]).unwrap();
        anew(&["w"], "damaged or truncated");
    }
    let mut flipped = state.clone();
    flipped[state.len() / 2] ^= 1;
    fs::write(dir.join("s"), flipped).unwrap();
    anew(&["w"], "damaged or truncated");
}

/// In earlier versions a device was replaced by a file, and this file was removed.
#[test]
fn a_pipe_or_device_as_state_file_is_refused_and_kept() {
    let dir = fixture();
    let dir = dir.path();
    let make = |kind: FileType, device| mknodat(CWD, dir.join("s"), kind, Mode::from_raw_mode(0o666), device);
    for (kind, device) in [(FileType::Fifo, 0), (FileType::CharacterDevice, makedev(1, 3))] {
        // Only root can create devices.
        if kind == FileType::CharacterDevice && !met_or_skip(&[Need::Root]) {
            continue;
        }
        make(kind, device).unwrap();
        let ran = run(dir, &["verify", "--resume=s", "w"]);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(
            ran.err.contains("'s': the file is not the state of a verification and stays unchanged"),
            "{}",
            ran.err
        );
        let facts = statat(CWD, dir.join("s"), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        assert_eq!((FileType::from_raw_mode(facts.st_mode), facts.st_rdev), (kind, device));
        fs::remove_file(dir.join("s")).unwrap();
    }
}

#[test]
fn a_file_that_is_not_a_state_is_not_modified() {
    let dir = fixture();
    fs::write(dir.path().join("s"), "my thesis").unwrap();
    let ran = run(dir.path(), &["verify", "--resume=s", "w"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""));
    assert!(
        ran.err.contains("'s': the file is not the state of a verification and stays unchanged"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(dir.path().join("s")).unwrap(), b"my thesis");
    // Files with the temporary names of a state are left alone, too.
    for name in ["u.new", "u.stamps"] {
        fs::write(dir.path().join(name), "my thesis").unwrap();
        let ran = run(dir.path(), &["verify", "--resume=u", "w"]);
        let reported = format!("the file with {} appended to this name is not the state", &name[1..]);
        assert!(ran.status == Some(2) && ran.err.contains(&reported), "{ran:?}");
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"my thesis");
        assert!(!dir.path().join("u").exists());
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let ran = run(dir.path(), &["verify", "--resume=t", "--sample=5", "w"]);
    assert!(ran.status == Some(2) && ran.err.contains("needs --seed N"), "{ran:?}");
}
