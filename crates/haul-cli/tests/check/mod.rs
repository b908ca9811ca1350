//! `haul check`: each list format, written by the tool of this format. For tools that are too large
//! to install, the tests contain their output.

mod bags;
mod damage;
mod options;
mod samples;
mod tools;

use haul_digest::{Algorithm, digest};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Contents with published digests.
const DIGITS: &[u8] = b"123456789";

/// Exit status, standard output and standard error of a run, with one character for each byte.
type Outcome = (Option<i32>, String, String);

fn run_with(dir: &Path, args: &[&OsStr], input: &[u8]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.arg("check").args(args).current_dir(dir).env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A run that exits before it reads closes its input.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs `haul check` with these words.
fn check(dir: &Path, args: &[&str]) -> Outcome {
    run_with(dir, &args.iter().map(OsStr::new).collect::<Vec<_>>(), b"")
}

/// Checks a list that must be good, and returns its detected format.
#[track_caller]
fn good(dir: &Path, args: &[&str]) -> String {
    let (status, out, err) = check(dir, args);
    assert_eq!(status, Some(0), "{args:?}\n{out}{err}");
    assert!(out.lines().all(|line| line.ends_with(": OK")), "{args:?}\n{out}");
    let taken = err.lines().filter_map(|line| Some(line.split_once(": detected as ")?.1));
    taken.collect::<Vec<_>>().join("|")
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(dir.join(name), bytes).unwrap();
}

/// Creates a directory with a file of digits, an empty file, and a file with a blank in its name.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "digits", DIGITS);
    write(dir.path(), "empty", "");
    write(dir.path(), "a b", "x");
    dir
}

/// Returns the digest of the digits in hexadecimal.
fn hex(algorithm: Algorithm) -> String {
    digest(algorithm, DIGITS).to_string()
}
