//! `haul send`, `haul fetch` and `haul serve`: two processes on this host, connected through a
//! stand-in for ssh or by a ticket.

mod accounting;
mod claims;
mod compressed;
mod confined;
mod connection_faults;
mod cut;
mod disk;
mod endless;
mod ends;
mod fidelity;
mod gui;
mod hostile;
mod impaired_link;
mod lanes;
mod listing;
mod log_store;
mod lookup;
mod matrix;
mod odd;
mod owners;
mod page;
mod peers;
mod power;
mod quic;
mod reads;
mod repaired;
mod replica;
mod reported;
mod resumed;
mod rules;
mod serve;
mod slow;
mod space;
mod ssh;
mod states;
mod stopped;
mod ticketed;
mod tickets;
mod torn;
mod udp;
mod unauthenticated;
mod untrusted;
mod waybills;
mod web;

use haul_lab::random::Random;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// Timeout for a line in the log of a server.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A test directory with a stand-in for ssh. The stand-in runs the command on this host, in the
/// directory `there`, as ssh does in a home directory.
pub(crate) struct Fixture {
    home: TempDir,
}

/// Exit status and output of a run.
#[derive(Debug)]
struct RunResult {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("there")).unwrap();
        // The stand-in records its arguments: no secret may be among them.
        let script = "#!/bin/sh\nprintf '%s\\n' \"$@\" >> \"${0%/*}/argv\"\nshift\ncd \"${0%/*}/there\" || exit 255\n\
            options=$(cat ../receiver-options 2>/dev/null)\nexec sh -c \"$*$options\"\n";
        fs::write(home.path().join("fake-ssh"), script).unwrap();
        Fixture { home }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Creates a file whose contents depend on its length.
    fn file(&self, name: &str, len: usize) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(len, len as u64 + 1)).unwrap();
    }

    /// Creates a tree of five files: one is larger than an object of 64 KiB, one has exactly its
    /// size.
    fn tree(&self, name: &str) {
        for (file, len) in
            [("big", 700_000), ("one", 65_536), ("small", 100), ("empty", 0), ("sub/x y", 5000)]
        {
            self.file(&format!("{name}/{file}"), len);
        }
    }

    /// Returns the command `haul ARGS` in the test directory, not yet started.
    pub(crate) fn haul(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command
            .current_dir(self.home.path())
            .env("LC_ALL", "C.UTF-8")
            .env_remove("SSH_CONNECTION")
            // State of interrupted jobs, for both sides: they are users of one host here.
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> RunResult {
        let ended = self.haul(args).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunResult { status: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) }
    }

    /// Returns the words for the command that starts a job. If the job sends, the options for the
    /// layout of the log are left to the stand-in for ssh, which adds them to the command of the
    /// receiver like a forced command.
    fn words_of_sender<'a>(&self, command: &str, args: &[&'a str]) -> Vec<&'a str> {
        let is_of_receiver = |word: &&str| command == "send" && word.starts_with("--log-");
        let (theirs, ours): (Vec<&str>, Vec<&str>) = args.iter().copied().partition(is_of_receiver);
        if !theirs.is_empty() {
            fs::write(self.path("receiver-options"), format!(" {}", theirs.join(" "))).unwrap();
        }
        ours
    }

    /// Runs `haul` with the stand-in for ssh.
    fn over_ssh(&self, command: &str, args: &[&str]) -> RunResult {
        let ssh = format!("sh {}", self.path("fake-ssh").display());
        let args = &self.words_of_sender(command, args)[..];
        let all = [&[command, "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul")], args].concat();
        self.run(&all)
    }

    /// Starts a server and writes its ticket into the file `ticket`.
    fn serve(&self, args: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0", args)
    }

    fn serve_at(&self, address: &str, args: &[&str]) -> Server {
        let all = [&["serve", "--listen", address], args].concat();
        self.serve_by(self.haul(&all))
    }

    /// Starts a server with this command and writes its ticket into the file `ticket`.
    fn serve_by(&self, mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.secret("ticket", &line);
        Server::new(child)
    }

    /// Starts a server with a configuration file. Such a server prints no ticket.
    fn serve_config(&self, file: &str) -> Server {
        Server::new(self.haul(&["serve", "--config", file]).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Creates a file that only its owner can read.
    fn secret(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A server that is killed when the value is dropped.
struct Server {
    child: Child,
    log: Receiver<String>,
}

impl Server {
    fn new(mut child: Child) -> Server {
        let (sender, log) = channel();
        let errors = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Server { child, log }
    }

    /// Waits for a log line that contains `words`, and returns the line.
    #[track_caller]
    fn wait_for_log(&self, words: &str) -> String {
        let mut heard = Vec::new();
        while let Ok(line) = self.log.recv_timeout(TEST_TIMEOUT) {
            if line.contains(words) {
                return line;
            }
            heard.push(line);
        }
        panic!("'{words}' was not said: {heard:#?}");
    }

    /// Waits for the server to exit, and returns its exit status.
    fn status(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the same command for a network namespace.
fn inside(namespace: &str, command: &Command) -> Command {
    by(&["ip", "netns", "exec", namespace], command)
}

/// Returns the same command with these words in front.
fn by(words: &[&str], command: &Command) -> Command {
    let mut there = Command::new(words[0]);
    there.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        there.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => there.env(name, value),
            None => there.env_remove(name),
        };
    }
    there
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Returns a free port for a server, below the range of ephemeral ports. The kernel could assign an
/// ephemeral port to another process before the server binds it.
fn own_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let from = u16::try_from(std::process::id() * 61 % 15_000).unwrap();
    let ports = std::iter::repeat_with(|| 17_000 + (from + TAKEN.fetch_add(1, Ordering::Relaxed)) % 15_000);
    ports.take(15_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Asserts that diff(1) finds the same names and bytes in two trees.
#[track_caller]
pub(crate) fn assert_alike(one: &Path, other: &Path) {
    let ended = Command::new("diff").arg("-r").arg("--no-dereference").args([one, other]).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// Asserts that no temporary file exists beneath `dir`.
#[track_caller]
fn assert_no_strays(dir: &Path) {
    let found = Command::new("find").arg(dir).args(["-name", ".haul-*"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[track_caller]
fn assert_ended(ended: &RunResult, status: i32) {
    assert_eq!(ended.status, Some(status), "{ended:#?}");
}
