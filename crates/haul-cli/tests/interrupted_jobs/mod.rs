//! Long commands that are interrupted and run again: `verify`, `repair` and `sum --waybill` resume.
//!
//! No test here depends on a duration. A rate limit, or a pipe without a writer, holds a command
//! until its own state shows enough progress. The test then kills the command, and derives the
//! expectation for the next run from this state.

mod jobs;
mod repair;
mod sum;
mod verify;

use haul_lab::random::Random;
use haul_lab::wait_until;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// A test directory with a tree `data`, in which `state` is created.
struct Fixture {
    home: TempDir,
}

/// Exit status, standard output and standard error of a run.
#[derive(Debug)]
struct RunResult {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Fixture {
    /// Creates `count` files of `bytes` bytes each in `data`.
    fn new(count: usize, bytes: usize, seed: u64) -> Fixture {
        let fixture = Fixture { home: tempfile::tempdir().unwrap() };
        fs::create_dir(fixture.path("data")).unwrap();
        for number in 0..count {
            let mut content = vec![0; bytes];
            Random::from_seed(seed * 1000 + number as u64).fill(&mut content);
            fs::write(fixture.file(number), content).unwrap();
        }
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn file(&self, number: usize) -> PathBuf {
        self.path(&format!("data/{number:03}"))
    }

    /// Lets the files become a little older: a later run reads files again that changed just before
    /// they were read.
    fn rest(&self) {
        sleep(Duration::from_millis(150));
    }

    fn haul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.current_dir(self.home.path()).args(words).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("LC_ALL", "C.UTF-8").env("XDG_STATE_HOME", self.path("state"));
        command
    }

    fn run(&self, words: &[&str]) -> RunResult {
        RunResult::of(self.haul(words))
    }

    /// Runs a command that must succeed without standard error, and returns its standard output.
    #[track_caller]
    fn good(&self, words: &[&str]) -> String {
        Fixture::was_good(self.haul(words))
    }

    /// Runs a command that only prepares a test. On a busy machine it may run for a second and be
    /// listed, so that it has another state directory.
    #[track_caller]
    fn aside(&self, words: &[&str]) {
        let mut command = self.haul(words);
        command.env("XDG_STATE_HOME", self.path("aside"));
        Fixture::was_good(command);
    }

    #[track_caller]
    fn was_good(command: Command) -> String {
        let what = format!("{command:?}");
        let ran = RunResult::of(command);
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{what}: {ran:?}");
        ran.out
    }

    /// Returns the directories of all jobs.
    fn jobs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("state/haul/jobs")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns a file of the only job, if the job and the file exist.
    fn of_job(&self, name: &str) -> Option<Vec<u8>> {
        let jobs = self.jobs();
        assert!(jobs.len() < 2, "{jobs:?}");
        fs::read(jobs.first()?.join(name)).ok()
    }

    /// Returns a number from the state of the only job, a verification or a repair.
    fn state(&self, name: &str) -> Option<u64> {
        let text = String::from_utf8(self.of_job("state")?).unwrap();
        let fields = text.split([' ', '\n']);
        fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix('=')?.parse().ok()).next()
    }

    /// Returns the only job in the output of `haul jobs --json`.
    fn listed(&self) -> Value {
        let told = self.good(&["jobs", "--json"]);
        assert_eq!(told.lines().count(), 1, "{told}");
        serde_json::from_str(&told).unwrap()
    }

    /// Starts a command, and sends a signal when `is_there` returns true. Returns false if the
    /// command finishes before that.
    fn ended(&self, words: &[&str], signal: rustix::process::Signal, is_there: impl Fn() -> bool) -> bool {
        let mut child = self.haul(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let came = waited(&mut child, is_there);
        if came {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        }
        child.wait().unwrap();
        came
    }
}

impl RunResult {
    fn of(mut command: Command) -> RunResult {
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        RunResult { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Returns the events of a kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        let all = self.out.lines().map(|line| serde_json::from_str(line).unwrap());
        all.filter(|event: &Value| event["event"] == kind).collect()
    }

    /// Returns a number of the summary.
    fn summary(&self, name: &str) -> u64 {
        self.events("summary")[0][name].as_u64().unwrap_or_else(|| panic!("{name}: {self:?}"))
    }

    /// Returns the path and the result of each reported entry.
    fn told(&self, key: &str) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.events("entry").iter().map(|event| (text(&event["path"]), text(&event[key]))).collect()
    }
}

/// Waits until `is_there` returns true. Returns false if the process exits before that.
fn waited(child: &mut Child, is_there: impl Fn() -> bool) -> bool {
    let mut came = false;
    wait_until("the point that is meant", || {
        came = is_there();
        came || child.try_wait().unwrap().is_some()
    });
    came
}

/// Changes a byte and restores the modification time, like bit rot.
fn rot(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[77] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}
