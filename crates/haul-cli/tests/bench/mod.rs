//! `haul bench` as users start it. No test asserts a speed.

use haul_lab::wait_until;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Returns the command `haul bench` with these words, for the directory `folder`.
fn bench(folder: &Path, words: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.arg("bench").args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// Returns the result of `haul bench --quick` with words that are UTF-8.
fn quick(folder: &Path, words: &[&str]) -> Output {
    let words: Vec<&OsStr> =
        std::iter::once("--quick").chain(words.iter().copied()).map(OsStr::new).collect();
    bench(folder, &words).output().expect("haul starts")
}

/// Returns the standard output of a run that must have succeeded.
fn text_of(output: &Output) -> &str {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    std::str::from_utf8(&output.stdout).expect("the output is text")
}

/// Returns the objects of a run with `--json`, after checks of their common fields.
fn figures(output: &Output) -> Vec<Value> {
    let lines = text_of(output).lines();
    let figures: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect(line)).collect();
    for figure in &figures {
        let number = |name: &str| figure[name].as_f64().unwrap_or_else(|| panic!("{name} in {figure}"));
        let (low, middle, high) = (number("gb_per_s_min"), number("gb_per_s"), number("gb_per_s_max"));
        assert!(0.0 < low && low <= middle && middle <= high && high.is_finite(), "{figure}");
        assert!((number("s_per_gb") * middle - 1.0).abs() < 1e-9, "{figure}");
        assert!(number("block_bytes") > 0.0 && number("threads") >= 1.0, "{figure}");
    }
    figures
}

/// Returns place and method of the figures of one algorithm, in their order.
fn ways<'a>(figures: &'a [Value], algorithm: &str) -> Vec<(&'a str, &'a str)> {
    let of_it = figures.iter().filter(|figure| figure["algorithm"] == algorithm);
    of_it.filter_map(|figure| Some((figure["place"].as_str()?, figure["way"].as_str()?))).collect()
}

/// Creates a directory with a file `data` of `len` bytes with different values.
fn folder_with_file(len: usize) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    fs::write(folder.path().join("data"), bytes).expect("the file is written");
    folder
}

/// Returns the names in a directory.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder opens");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn in_memory_methods_depend_on_the_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    let found = figures(&quick(folder.path(), &["--no-io", "-a", "crc32,md5,xxh64", "--json"]));
    assert_eq!(ways(&found, "crc32"), [("memory", "stream"), ("memory", "workers")]);
    assert_eq!(ways(&found, "md5"), [("memory", "stream"), ("memory", "lanes")]);
    assert_eq!(ways(&found, "xxh64"), [("memory", "stream")]);
    let lanes = found.iter().find(|figure| figure["way"] == "lanes").unwrap();
    assert!(lanes["streams"].as_u64().unwrap() >= 1 && lanes["backend"].is_string(), "{lanes}");
    assert!(found.iter().all(|figure| figure["runs"] == 3));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn every_algorithm_is_measured_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let output = quick(folder.path(), &["--no-io", "--runs", "1"]);
    let text = text_of(&output);
    for algorithm in haul_digest::Algorithm::ALL {
        let has_row = |line: &str| line.split_whitespace().next() == Some(algorithm.name());
        assert!(text.lines().any(has_row), "{algorithm} in {text}");
    }
}

#[test]
fn an_existing_file_is_measured_and_not_modified() {
    for len in [1, 4095, 4096, 100_000] {
        let folder = folder_with_file(len);
        let before = fs::read(folder.path().join("data")).unwrap();
        let words = ["--file", "data", "--block", "4K", "--json", "-a", "adler32,sha3-256"];
        let found = figures(&quick(folder.path(), &words));
        for algorithm in ["adler32", "sha3-256"] {
            let warm: Vec<_> = ways(&found, algorithm).into_iter().filter(|way| way.0 == "warm").collect();
            assert_eq!(warm, [("warm", "reading"), ("warm", "synchronous"), ("warm", "pipelined")]);
        }
        let on_file = found.iter().filter(|figure| figure["place"] != "memory");
        for figure in on_file {
            assert_eq!(figure["run_bytes"], len, "{figure}");
            let is_hashing = figure["way"] != "reading";
            assert_eq!(
                figure["times_reading"].as_f64().is_some_and(|times| times > 0.0),
                is_hashing,
                "{figure}"
            );
        }
        assert_eq!(fs::read(folder.path().join("data")).unwrap(), before);
        assert_eq!(names(folder.path()), ["data"]);
    }
}

#[test]
fn size_limits_the_bytes_read_of_a_file() {
    let folder = folder_with_file(100_000);
    let words = ["--file", "data", "--size", "10000", "--json", "-a", "crc32c", "--runs", "1"];
    let found = figures(&quick(folder.path(), &words));
    let mut on_file = found.iter().filter(|figure| figure["place"] != "memory").peekable();
    assert!(on_file.peek().is_some());
    assert!(on_file.all(|figure| figure["run_bytes"] == 10_000));
}

#[test]
fn cold_reads_are_measured_or_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let mut places = vec![folder.path().to_owned()];
    places.extend(Some("/dev/shm".into()).filter(|place: &std::path::PathBuf| place.is_dir()));
    for place in places {
        let place = place.to_str().unwrap();
        let words = ["--dir", place, "--size", "4M", "--json", "-a", "blake3", "--runs", "1"];
        let output = quick(folder.path(), &words);
        let found = figures(&output);
        let is_measured = ways(&found, "blake3").contains(&("cold", "synchronous"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_ne!(is_measured, errors.contains("no cold measurement"), "{place}: {errors}");
        for figure in found.iter().filter(|figure| figure["place"] == "cold") {
            assert!(
                figure["cached_share"].as_f64().is_none_or(|share| (0.0..=1.0).contains(&share)),
                "{figure}"
            );
        }
    }
}

#[test]
fn the_temporary_file_is_gone_after_success() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--quick", "--size", "8M", "-a", "md5,sha3-512", "--runs", "1"].map(OsStr::new);
    let mut child = bench(folder.path(), &words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("haul starts");
    let status = child.wait().unwrap();
    assert!(status.success());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn the_temporary_file_is_gone_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--size", "64M", "-a", "sha3-512", "--runs", "1000"].map(OsStr::new);
    let mut child = bench(folder.path(), &words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("haul starts");
    let holds_file = || {
        let held = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        let targets = held.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.into_iter().any(|target| target.starts_with(folder.path()))
    };
    wait_until("the temporary file", holds_file);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn usage_errors_exit_1_with_a_hint() {
    let folder = folder_with_file(10);
    fs::write(folder.path().join("empty"), "").unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let cases: [(&[&str], &[&str]); 9] = [
        (&["-a", "md6"], &["unknown checksum 'md6'", "md5", "xxh3-128"]),
        (&["-a", "md5,,sha1"], &["unknown checksum ''"]),
        (&["--size", "big"], &["'big' is not a size"]),
        (&["--runs", "0"], &["--runs"]),
        (&["--file", "nowhere", "-a", "md5"], &["'nowhere'", "No such file or directory", "--file"]),
        (&["--file", "empty", "-a", "md5"], &["'empty': the file is empty", "--file"]),
        (&["--file", "folder", "-a", "md5"], &["'folder': not a regular file", "--file"]),
        (&["--dir", "nowhere", "-a", "md5"], &["'nowhere'", "No such file or directory", "--dir", "--no-io"]),
        (
            &["--size", "4096P", "-a", "md5"],
            &["cannot create a temporary file in '.'", "4.0 EiB of free space needed", "--dir", "--size"],
        ),
    ];
    for (words, parts) in cases {
        let output = quick(folder.path(), words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(output.stdout.is_empty(), "{words:?}");
        for part in parts {
            assert!(errors.contains(part), "{words:?}: {part} in {errors}");
        }
        assert!(!errors.contains("os error"), "{errors}");
    }
    assert_eq!(names(folder.path()), ["data", "empty", "folder"]);
}

#[test]
fn a_full_output_fails_and_a_closed_output_exits_silently() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["--quick", "--no-io", "-a", "crc32", "--runs", "1"].map(OsStr::new);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full opens");
    let output = bench(folder.path(), &words).stdout(full).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors, "haul bench: write error: No space left on device\n");
    let mut child =
        bench(folder.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0), "{output:?}");
}

#[test]
fn help_lists_the_options() {
    let folder = tempfile::tempdir().unwrap();
    let output = quick(folder.path(), &["--help"]);
    let text = text_of(&output);
    for option in ["--algorithms", "--file", "--dir", "--size", "--block", "--runs", "--no-io", "--json"] {
        assert!(text.contains(option), "{option}");
    }
}
