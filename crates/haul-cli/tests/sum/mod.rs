//! `haul sum` and its tool names, compared with the tools of these names.

mod check;
mod forms;
mod generated;
mod peers;
mod read_back;
mod tools;

use haul_lab::needs::shown_or_skip;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the binary under the name of a tool, in a directory. Names are read as UTF-8, and
/// messages are in English.
fn ours(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    match name {
        "haul sum" => command.arg0("haul").arg("sum"),
        _ => command.arg0(name),
    };
    command.current_dir(dir).env("LC_ALL", "C.UTF-8");
    command
}

/// Returns the installed tool. If it is missing, prints a message and returns `None`; with
/// `HAUL_REQUIRE_ALL=1` the test fails.
fn theirs(name: &str, dir: &Path) -> Option<Command> {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|place| place.join(name).is_file()));
    // Debian's release of b3sum reads lists by older rules.
    let (program, found) = match name {
        "b3sum" => ("b3sum 1.8.6", found && is_current_b3sum()),
        _ => (name, found),
    };
    if !shown_or_skip(found, &format!("the program {program}")) {
        return None;
    }
    let mut command = Command::new(name);
    command.current_dir(dir).env("LC_ALL", "C.UTF-8").env("RUST_BACKTRACE", "0");
    Some(command)
}

fn is_current_b3sum() -> bool {
    let output = Command::new("b3sum").arg("--version").output();
    output.is_ok_and(|output| output.stdout == b"b3sum 1.8.6\n")
}

/// Exit status, standard output and standard error of a run.
type Outcome = (Option<i32>, String, String);

fn outcome(output: &Output) -> Outcome {
    // One character for each byte, so that different bytes result in different texts.
    let text = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn run(mut command: Command, args: &[&OsStr], input: &[u8]) -> Outcome {
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A tool that reads no input closes it. This test ignores the error.
    let _ = stdin.write_all(input);
    drop(stdin);
    outcome(&child.wait_with_output().unwrap())
}

fn words<'a>(args: &[&'a str]) -> Vec<&'a OsStr> {
    args.iter().map(|arg| OsStr::new(*arg)).collect()
}

/// Runs haul's tool, which must succeed, and returns its standard output.
fn good(name: &str, dir: &Path, args: &[&str], input: &[u8]) -> String {
    let (status, out, err) = run(ours(name, dir), &words(args), input);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{name} {args:?}");
    out
}
