//! The calls that copy inside the kernel. strace injects each error that kernels and file systems
//! are known to return. The tests check the fallback, the messages, and the number of further
//! calls.

use super::fixture::assert_alike;
use crate::faults::fixture::{HAUL, noise, write_old};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Results of copy_file_range(2) after which GNU `cp` and haul use another method. /proc and some
/// servers return 0 for files that have data (`retval=0`).
const NO_COPY: [&str; 10] = [
    "error=EXDEV",
    "error=EINVAL",
    "error=EOPNOTSUPP",
    "error=ENOSYS",
    "error=EPERM",
    "error=EBADF",
    "error=ETXTBSY",
    "error=EINTR:when=1",
    "error=EXDEV:when=2+",
    "retval=0",
];

/// Results that end the copy of GNU `cp`. A read and a write show if the error belongs to the file,
/// and to which of the two files.
const COPY_FAILS: [&str; 12] = [
    "error=EIO",
    "error=EIO:when=2+",
    "error=ENOENT",
    "error=ENOSPC",
    "error=EDQUOT",
    "error=ENOMEM",
    "error=EFBIG",
    "error=EACCES",
    "error=EOVERFLOW",
    "error=ESTALE",
    "error=ETIMEDOUT",
    "retval=0:when=2+",
];

/// Results of FICLONE: for two file systems that never share extents, for a kernel without FICLONE,
/// for these two files, and for a failing device.
const NO_CLONE: [&str; 12] = [
    "error=EXDEV",
    "error=EOPNOTSUPP",
    "error=ENOTTY",
    "error=ENOSYS",
    "error=EINVAL",
    "error=EPERM",
    "error=EBADF",
    "error=ETXTBSY",
    "error=EACCES",
    "error=EIO",
    "error=ENOSPC",
    "error=EDQUOT",
];

/// A test directory for commands with calls that strace fails.
struct Stage {
    home: TempDir,
}

/// Result of a command.
#[derive(Debug, PartialEq, Eq)]
struct RunResult {
    status: Option<i32>,
    err: String,
}

impl Stage {
    /// Creates five files to copy: small ones, and one of several objects. They are in memory,
    /// where no extents are shared. Returns `None` without strace.
    fn new() -> Option<Stage> {
        if !met_or_skip(&[Need::Program("strace")]) {
            return None;
        }
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let source = home.path().join("source");
        fs::create_dir(&source).unwrap();
        for (name, len) in [("a", 10), ("b", 4096), ("c", 60_000), ("d", 65_536), ("large", 9 << 20)] {
            write_old(&source.join(name), &noise(len));
        }
        for (maker, program) in [("gnu", "/usr/bin/cp"), ("ours", HAUL)] {
            fs::create_dir(home.path().join(maker)).unwrap();
            symlink(program, home.path().join(maker).join("cp")).unwrap();
        }
        Some(Stage { home })
    }

    /// Copies with the `cp` of `maker` into the new directory `sink`, with this result for calls of
    /// this name. Returns the result and the trace lines of these calls.
    fn copy(&self, maker: &str, call: &str, answer: &str, options: &[&str]) -> (RunResult, Vec<String>) {
        let home = self.home.path();
        let (log, sink) = (home.join("log"), home.join("sink"));
        let _ = fs::remove_dir_all(&sink);
        let path = format!("{}:{}", home.join(maker).display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:{answer}")]);
        command.arg("-o").arg(&log).args(["cp", "-rT"]).args(options).args(["source", "sink"]);
        command.current_dir(home).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null());
        let output = command.output().unwrap();
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        let reported = fs::read_to_string(&log).unwrap();
        let injected =
            reported.lines().filter(|line| line.contains("(INJECTED)")).map(str::to_owned).collect();
        (RunResult { status: output.status.code(), err: lines.join("\n") }, injected)
    }

    /// Asserts that the files of the sink have the contents of their sources.
    #[track_caller]
    fn is_whole(&self, what: &str) {
        let [source, sink] =
            ["source", "sink"].map(|name| Snapshot::take(&self.home.path().join(name)).unwrap());
        assert!(
            source.diff(&sink, Facets::CONTENT, 9).is_empty(),
            "{what}: {:?}",
            source.diff(&sink, Facets::CONTENT, 9)
        );
    }
}

#[test]
fn an_unsupported_copy_file_range_falls_back_as_in_gnu() {
    let Some(stage) = Stage::new() else { return };
    for answer in NO_COPY {
        for options in [&["--reflink=auto"][..], &["--reflink=auto", "--sparse=always"], &["-p"]] {
            let (ended, injected) = stage.copy("ours", "copy_file_range", answer, options);
            let name = format!("{answer} {options:?}");
            assert_eq!(ended, RunResult { status: Some(0), err: String::new() }, "{name}");
            stage.is_whole(&name);
            assert!(
                !injected.is_empty() || options.contains(&"--sparse=always"),
                "{name}: it was never asked"
            );
            let (gnus, _) = stage.copy("gnu", "copy_file_range", answer, options);
            assert_eq!(gnus, ended, "{name}");
        }
    }
}

#[test]
fn a_failed_copy_file_range_falls_back_to_read_and_write() {
    let Some(stage) = Stage::new() else { return };
    for answer in COPY_FAILS {
        let (ended, injected) = stage.copy("ours", "copy_file_range", answer, &["-p"]);
        assert_eq!(ended, RunResult { status: Some(0), err: String::new() }, "{answer}");
        assert!(!injected.is_empty(), "{answer}: it was never asked");
        stage.is_whole(answer);
    }
}

#[test]
fn reflink_never_uses_neither_clone_nor_copy_file_range() {
    let Some(stage) = Stage::new() else { return };
    for call in ["copy_file_range", "ioctl"] {
        let (ended, injected) = stage.copy("ours", call, "error=EIO", &["--reflink=never"]);
        assert_eq!((ended.status, injected.len()), (Some(0), 0), "{call}: {injected:?}");
        stage.is_whole(call);
    }
}

#[test]
fn extents_that_cannot_be_shared_are_handled_as_in_gnu() {
    let Some(stage) = Stage::new() else { return };
    let mut wrong = Vec::new();
    for answer in NO_CLONE {
        for reflink in ["--reflink=auto", "--reflink=always"] {
            let ours = stage.copy("ours", "ioctl", answer, &[reflink, "-p"]);
            let name = format!("{answer} {reflink}");
            assert!(ours.1.iter().any(|line| line.contains("FICLONE")), "{name}: it was never asked");
            if reflink == "--reflink=auto" {
                stage.is_whole(&name);
            }
            let gnus = stage.copy("gnu", "ioctl", answer, &[reflink, "-p"]);
            if gnus.0 != ours.0 {
                wrong.push((name, format!("gnu {:#?}\nours {:#?}", gnus.0, ours.0)));
            }
        }
    }
    assert_alike(&wrong);
}

/// Each worker tries two file systems that never share extents once. A failure for two files says
/// nothing about the next two.
#[test]
fn a_clone_unsupported_between_file_systems_is_tried_once() {
    let Some(stage) = Stage::new() else { return };
    for (answers, asked) in [(&NO_CLONE[..4], 1), (&NO_CLONE[4..], 5)] {
        for answer in answers {
            let (ended, injected) = stage.copy("ours", "ioctl", answer, &["--threads=1"]);
            assert_eq!(ended, RunResult { status: Some(0), err: String::new() }, "{answer}");
            let clones = injected.iter().filter(|line| line.contains("FICLONE")).count();
            assert_eq!(clones, asked, "{answer}: {injected:?}");
            stage.is_whole(answer);
        }
    }
}
