//! Options, exit statuses, and the directories in which files are searched.

use super::{check, folder, good, hex, run_with, write};
use crate::faults::fixture::haul;
use crate::faults::fixture::{Running, pasted};
use haul_digest::{Algorithm, digest};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn md5_list(dir: &Path) -> String {
    let md5 = hex(Algorithm::Md5);
    let list = format!("{md5}  digits\n{md5}  empty\n{md5}  nope\n");
    write(dir, "list", &list);
    list
}

#[test]
fn quiet_status_and_ignore_missing_work_as_in_md5sum() {
    let dir = folder();
    let dir = dir.path();
    md5_list(dir);
    let (status, out, _) = check(dir, &["list"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: OK\nempty: FAILED\nnope: FAILED open or read\n"));
    let (status, out, _) = check(dir, &["--quiet", "list"]);
    assert_eq!((status, out.as_str()), (Some(1), "empty: FAILED\nnope: FAILED open or read\n"));
    let (status, out, err) = check(dir, &["--status", "list"]);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert_eq!(err, "haul check: nope: No such file or directory\n");
    let (status, out, err) = check(dir, &["--ignore-missing", "list"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: OK\nempty: FAILED\n"));
    assert!(!err.contains("nope") && !err.contains("could not be read"), "{err}");
    write(dir, "missing", format!("{}  nope\n", hex(Algorithm::Md5)));
    let (status, _, err) = check(dir, &["--ignore-missing", "missing"]);
    assert_eq!(status, Some(1));
    assert!(err.ends_with("no file was verified\n"), "{err}");
    write(dir, "well", format!("{}  digits\n", hex(Algorithm::Md5)));
    assert_eq!(check(dir, &["--quiet", "well"]), (Some(0), String::new(), String::new()));
    assert_eq!(check(dir, &["--status", "well"]), (Some(0), String::new(), String::new()));
}

#[test]
fn files_without_checksum_lines_are_reported() {
    let dir = folder();
    let dir = dir.path();
    write(dir, "void", "");
    write(dir, "remarks", "# a\n\n");
    write(dir, "utf16", b"\xff\xfeM\0D\0");
    for (name, said) in [
        ("void", "void: no properly formatted checksum lines found"),
        ("remarks", "remarks: no properly formatted checksum lines found"),
        ("no-list", "no-list: No such file or directory"),
        ("utf16", "utf16: cannot read UTF-16 text; convert the list to UTF-8 first"),
    ] {
        let (status, _, err) = check(dir, &[name]);
        assert_eq!((status, err), (Some(1), format!("haul check: {said}\n")));
    }
    write(dir, "md5", format!("{}  digits\n", hex(Algorithm::Md5)));
    let (status, _, err) = check(dir, &["-a", "sha1", "md5"]);
    assert_eq!(status, Some(1));
    assert!(
        err.starts_with("haul check: md5: no checksum lines of the requested algorithms found\n"),
        "{err}"
    );
}

#[test]
fn several_lists_and_standard_input_are_checked() {
    let dir = folder();
    let dir = dir.path();
    write(dir, "one", format!("{}  digits\n", hex(Algorithm::Md5)));
    let input = format!("{}  digits\n", hex(Algorithm::Sha1));
    let args = ["one".as_ref(), "-".as_ref(), "no-list".as_ref(), "one".as_ref()];
    let (status, out, err) = run_with(dir, &args, input.as_bytes());
    assert_eq!((status, out), (Some(1), "digits: OK\n".repeat(3)));
    assert_eq!(err.matches("detected as").count(), 3, "{err}");
    let (status, out, _) = run_with(dir, &[], input.as_bytes());
    assert_eq!((status, out.as_str()), (Some(0), "digits: OK\n"));
    // A list may contain the standard input itself.
    write(dir, "of-stdin", format!("{}  -\n", hex(Algorithm::Crc32c)));
    let (status, out, _) = run_with(dir, &["of-stdin".as_ref()], b"123456789");
    assert_eq!((status, out.as_str()), (Some(0), "-: OK\n"));
    // Before a list from the standard input, the line gets all of the input. In that list, the line
    // is not a checksum of it.
    let whole = digest(Algorithm::Crc32c, input.as_bytes());
    write(dir, "of-stdin", format!("{}{whole}  -\n", input.repeat(40)));
    for _ in 0..20 {
        let (status, out, _) = run_with(dir, &["of-stdin".as_ref(), "-".as_ref()], input.as_bytes());
        assert_eq!((status, out), (Some(1), "digits: OK\n".repeat(40) + "-: OK\n"));
    }
    let own = format!("{whole}  -\n{input}");
    let (status, out, err) = run_with(dir, &["-w".as_ref()], own.as_bytes());
    assert_eq!((status, out.as_str()), (Some(0), "digits: OK\n"));
    assert!(err.contains("cannot name standard input"), "{err}");
}

#[test]
fn a_list_from_a_pipe_is_checked() {
    let dir = folder();
    let mut child = Command::new(env!("CARGO_BIN_EXE_haul"))
        .args(["check", "--json", "-"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut list = child.stdin.take().unwrap();
    writeln!(list, "{}  digits", hex(Algorithm::Md5)).unwrap();
    writeln!(list, "{}  digits", hex(Algorithm::Sha1)).unwrap();
    drop(list);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
}

#[test]
fn files_are_opened_relative_to_the_given_directory() {
    let dir = folder();
    let dir = dir.path();
    fs::create_dir(dir.join("sub")).unwrap();
    write(&dir.join("sub"), "list", format!("{}  inner\n", hex(Algorithm::Md5)));
    write(&dir.join("sub"), "inner", "123456789");
    good(dir, &["-C", "sub", "sub/list"]);
    good(dir, &["--directory=sub", "sub/list"]);
    let (status, _, err) = check(dir, &["sub/list"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("the files are next to the list; add -C 'sub'\n"), "{err}");
    assert_eq!(check(dir, &["-C", "nowhere", "sub/list"]).0, Some(1));
}

#[test]
fn json_reports_each_line_and_each_list() {
    let dir = folder();
    let dir = dir.path();
    md5_list(dir);
    let (status, out, _) = check(dir, &["--json", "list"]);
    assert_eq!(status, Some(1));
    let records: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |record: &serde_json::Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    let statuses: Vec<String> = records[..3].iter().map(|record| text(record, "status")).collect();
    assert_eq!(statuses, ["ok", "failed", "unreadable"]);
    assert_eq!((text(&records[0], "algorithm"), text(&records[0], "format")), ("md5".into(), "plain".into()));
    assert_eq!((records[2]["line"].as_u64(), text(&records[2], "path")), (Some(3), "nope".into()));
    let end = &records[3];
    assert_eq!(
        (end["ok"].as_u64(), end["failed"].as_u64(), end["missing"].as_u64()),
        (Some(1), Some(1), Some(1))
    );
    assert_eq!(text(&end["taken_for"][0], "format"), "plain");
}

#[test]
fn usage_errors_exit_with_status_2() {
    let dir = folder();
    for args in [
        &["--bogus"][..],
        &["-a", "md7", "list"],
        &["-a", "", "list"],
        &["--threads=0", "list"],
        &["--tree=0", "list"],
        &["--tree=4M", "--split-size=6M", "list"],
        &["--json", "--status", "list"],
    ] {
        let (status, out, err) = check(dir.path(), args);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(
            err.starts_with("haul check: ") && err.contains("Try 'haul check --help'"),
            "{args:?}: {err}"
        );
    }
    let (status, out, _) = check(dir.path(), &["--help"]);
    assert_eq!(status, Some(0));
    assert!(out.contains("--ignore-missing"), "{out}");
}

#[test]
fn failed_writes_are_reported_and_fail() {
    let dir = folder();
    write(dir.path(), "list", format!("{}  digits\n", hex(Algorithm::Md5)));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    let output = command.args(["check", "list"]).current_dir(dir.path()).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.ends_with("haul check: write error: No space left on device\n"), "{err}");
    assert!(!err.contains("interrupted"), "{err}");
}

#[test]
fn the_command_suggested_after_an_interrupt_checks_all() {
    let dir = folder();
    // A hole of 1 TiB keeps the job running until the signal arrives.
    let hole = fs::File::create(dir.path().join("it's a hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    write(dir.path(), "a list", "d41d8cd98f00b204e9800998ecf8427e  it's a hole\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    let running = Running::new(command.args(["check", "a list"]).current_dir(dir.path()));
    running.is_ready(Signal::INT, None);
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    hole.set_len(0).unwrap();
    let (_, advice) = ended.stderr.split_once("to check all, run: ").unwrap();
    assert!(String::from_utf8(pasted(dir.path(), advice).stdout).unwrap().contains("it's a hole: OK"));
}

#[test]
fn threads_and_progress_do_not_change_the_results() {
    let dir = folder();
    md5_list(dir.path());
    let plain = check(dir.path(), &["list"]);
    for args in [&["--threads=1", "list"][..], &["--threads", "7", "list"], &["--progress", "list"]] {
        assert_eq!(check(dir.path(), args), plain, "{args:?}");
    }
}

/// Lists are read on demand: the number of pending lines is bounded, whatever the length of the
/// list.
#[test]
fn memory_use_does_not_grow_with_the_list() {
    let dir = folder();
    let lines = format!("{}  digits\n{}  a b\n", hex(Algorithm::Sha256), "0".repeat(64)).repeat(100_000);
    write(dir.path(), "list", lines);
    let list = dir.path().join("list");
    let args =
        ["check".as_ref(), "--status".as_ref(), "-a".as_ref(), "sha256".as_ref(), "-C".as_ref(), dir.path()];
    let ended = haul(args.into_iter().chain([list.as_path()]));
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(1), "", ""));
    assert!(ended.peak_kib > 0, "it ended before its memory was measured");
    assert!(ended.peak_kib < 48 << 10, "it took {} KiB for 15 MB of list", ended.peak_kib);
}
