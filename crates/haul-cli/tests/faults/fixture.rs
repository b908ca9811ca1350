//! Runs of the binary with a timeout, and file systems that inject faults.

use haul_lab::faults::{Action, FaultFs, Fired};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use haul_lab::{TEST_TIMEOUT, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Path of the binary under test.
pub(crate) const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// Runs the first line of `advice` in a shell in this directory, with `haul` in the path and state
/// in `state`. The command must succeed.
#[track_caller]
pub(crate) fn pasted(dir: impl AsRef<Path>, advice: &str) -> std::process::Output {
    let (folder, path) = (Path::new(HAUL).parent().unwrap(), std::env::var("PATH").unwrap());
    let command = advice.lines().next().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(&dir).env("XDG_STATE_HOME", dir.as_ref().join("state"));
    let output = shell.env("PATH", format!("{}:{path}", folder.display())).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    output
}

/// Puts a copy of the binary at `to`, for users that cannot enter its build directory.
///
/// Another process creates the copy. A process that another test forks at that moment could inherit
/// a descriptor that this process uses for writing. A file that is open for writing cannot be
/// executed (`ETXTBSY`).
#[track_caller]
pub(crate) fn copy_haul(to: &Path) {
    assert!(Command::new("/usr/bin/cp").arg(HAUL).arg(to).status().unwrap().success(), "{}", to.display());
}

/// Maximum duration of a hold in milliseconds. It exceeds the timeout of a command, so that a test
/// that does not release the hold fails.
pub(crate) const HOLD: u64 = TEST_TIMEOUT.as_millis() as u64 + 100_000;

/// A running command. It is killed when the value is dropped.
pub(crate) struct Running {
    child: Child,
    told: Option<[JoinHandle<Vec<u8>>; 2]>,
    line: String,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// The exit status; `None` if a signal ended the command.
    pub(crate) code: Option<i32>,
    /// The signal that ended the command.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Peak resident set that was observed, in KiB.
    pub(crate) peak_kib: u64,
}

/// Runs `haul` with these arguments until it exits.
pub(crate) fn haul<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> RunResult {
    start(args).end()
}

/// Starts `haul` with these arguments.
pub(crate) fn start<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Running {
    Running::new(Command::new(HAUL).env_remove("XDG_STATE_HOME").env("HOME", "").args(args))
}

impl Running {
    pub(crate) fn new(command: &mut Command) -> Running {
        Running::answered_by(command, Stdio::null())
    }

    /// Starts a command with this standard input.
    pub(crate) fn answered_by(command: &mut Command, stdin: impl Into<Stdio>) -> Running {
        let line = format!("{command:?}");
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C");
        let mut child = command.spawn().unwrap();
        let told = [drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap())];
        Running { child, told: Some(told), line }
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).expect("numbers of processes are small")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal and waits until the command has taken it.
    pub(crate) fn deliver(&self, signal: Signal) {
        deliver(Pid::from_child(&self.child), signal);
    }

    /// Waits until the first thread of the process has exited. Other threads may still be blocked
    /// by storage.
    pub(crate) fn is_over(&self) {
        wait_until(format_args!("the end of {}", self.line), || is_gone(&status(self.child.id())));
    }

    /// Returns true if the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Returns the memory mappings of the command.
    pub(crate) fn maps(&self) -> String {
        fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap()
    }

    /// Waits until the command handles this signal, and has `path` open if one is given.
    pub(crate) fn is_ready(&self, signal: Signal, path: Option<&Path>) {
        wait_until(&self.line, || has(&status(self.child.id()), "SigCgt", signal));
        if let Some(path) = path {
            self.has_opened(path);
        }
    }

    /// Waits until the command has `path` open.
    pub(crate) fn has_opened(&self, path: &Path) {
        let descriptors = PathBuf::from(format!("/proc/{}/fd", self.child.id()));
        wait_until(&self.line, || {
            let open = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == path))
        });
    }

    /// Waits for the command to exit. Kills a command that exceeds the timeout, and panics.
    pub(crate) fn end(mut self) -> RunResult {
        let begun = Instant::now();
        let mut peak_kib = 0;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            peak_kib = peak_kib.max(resident_peak(self.child.id()));
            if begun.elapsed() > TEST_TIMEOUT {
                panic!("hangs since {TEST_TIMEOUT:?}: {}", self.line);
            }
            thread::sleep(Duration::from_millis(2));
        };
        let [stdout, stderr] = self.told.take().unwrap().map(|told| {
            let bytes = told.join().unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        });
        RunResult { code: status.code(), signal: status.signal(), stdout, stderr, peak_kib }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls do nothing to a child that was waited for. A running child would keep its
        // mounts busy.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output from before the pipe broke is still useful.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Sends a signal to a process and waits until the process has taken it. If storage blocks the
/// first thread, this thread takes the signal next.
pub(crate) fn deliver(process: Pid, signal: Signal) {
    kill_process(process, signal).unwrap();
    let begun = Instant::now();
    let (mut last, mut since) = (String::new(), begun);
    while let Some(now) = waiting(process, signal) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{signal:?} is not taken");
        if now != last {
            (last, since) = (now, Instant::now());
        }
        // Only the completion of its request wakes such a thread; a working device answers sooner.
        if last.starts_with('D') && since.elapsed() > Duration::from_secs(1) {
            return;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the state of the first thread of a process and its number of voluntary context switches,
/// while no thread has taken the signal. Returns `None` if the signal was taken or the process has
/// exited.
fn waiting(process: Pid, signal: Signal) -> Option<String> {
    let status = status(process);
    let waits = has(&status, "ShdPnd", signal) && !is_gone(&status);
    waits.then(|| format!("{} {}", field(&status, "State"), field(&status, "voluntary_ctxt_switches")))
}

/// Returns true if the first thread of a process has exited, according to its status.
fn is_gone(status: &str) -> bool {
    matches!(field(status, "State").get(..1), None | Some("Z" | "X"))
}

/// Returns the status of a process, one field a line, or an empty text if the process has exited.
fn status(process: impl Display) -> String {
    fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

/// Returns true if a signal is in a signal set of [`status`].
fn has(status: &str, set: &str, signal: Signal) -> bool {
    u64::from_str_radix(field(status, set), 16).unwrap_or(0) >> (signal.as_raw() - 1) & 1 == 1
}

/// Returns a field of [`status`], or an empty text if there is none.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap_or_default()
}

/// Returns `VmHWM` of a process in KiB, or 0 if the process has exited.
pub(crate) fn resident_peak(pid: u32) -> u64 {
    field(&status(pid), "VmHWM").trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

impl RunResult {
    /// Panics unless the command succeeded without standard error.
    #[track_caller]
    pub(crate) fn is_fine(&self) -> &RunResult {
        assert_eq!((self.code, &*self.stderr), (Some(0), ""), "{self:?}");
        self
    }

    /// Panics unless the exit status is 1 and one line of standard error has all these words.
    #[track_caller]
    pub(crate) fn failed_with(&self, words: &[&str]) -> &RunResult {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(
            self.stderr.lines().any(|line| words.iter().all(|word| line.contains(word))),
            "no line with {words:?}:\n{}",
            self.stderr
        );
        self
    }

    /// Returns the number of lines on standard error.
    pub(crate) fn complaints(&self) -> usize {
        self.stderr.lines().count()
    }
}

/// A test directory. Its directory `view` shows the directory `store` with faults.
pub(crate) struct FaultFixture {
    faults: FaultFs,
    home: TempDir,
}

impl FaultFixture {
    /// Returns `None` if this machine cannot mount the file system.
    pub(crate) fn new(rules: &str) -> Option<FaultFixture> {
        if !met_or_skip(&[Need::Fuse]) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let [store, view] = ["store", "view"].map(|name| home.path().join(name));
        fs::create_dir(&store).unwrap();
        fs::create_dir(&view).unwrap();
        let faults = FaultFs::mount(&store, &view, rules.parse().unwrap()).unwrap();
        Some(FaultFixture { faults, home })
    }

    /// Returns a path beneath the test directory: `view/...`, `store/...` or another one.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn rules(&self, rules: &str) {
        self.faults.set_rules(rules.parse().unwrap());
    }

    pub(crate) fn fired(&self) -> Vec<Fired> {
        self.faults.fired()
    }

    /// Waits until a rule with `delay` holds an operation. Returns the path of the file beneath the
    /// view.
    pub(crate) fn held(&self) -> PathBuf {
        let is_hold = |fired: &Fired| matches!(fired.action, Action::Delay(_));
        let mut held = None;
        wait_until("a held operation", || {
            held = self.fired().into_iter().find(is_hold);
            held.is_some()
        });
        held.expect("it was found").path
    }

    /// Ends the hold, so that the held operation continues.
    pub(crate) fn release(&self) {
        self.faults.release();
    }

    /// Creates a tree `store/tree` with five small files, two of them in a directory, and `victim`
    /// of `len` bytes.
    pub(crate) fn tree(&self, len: u64) {
        tree_with_victim(&self.path("store/tree"), len);
    }
}

/// Creates five small files, two of them in a directory, and `victim` of `len` bytes, all with
/// times of the year 2001.
pub(crate) fn tree_with_victim(root: &Path, len: u64) {
    fs::create_dir_all(root.join("dir")).unwrap();
    for (name, len) in [("a", 10), ("b", 70_000), ("dir/c", 0), ("dir/d", 5000), ("z", 1), ("victim", len)] {
        write_old(&root.join(name), &noise(len));
    }
}

/// Writes a file and sets its times back to the year 2001.
pub(crate) fn write_old(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

pub(crate) fn noise(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    Random::from_seed(len).fill(&mut bytes);
    bytes
}

/// Asserts that all files of [`tree_with_victim`] except the victim are copied completely, with
/// their times.
#[track_caller]
pub(crate) fn others_are_whole(source: &Path, sink: &Path) {
    for name in ["a", "b", "dir/c", "dir/d", "z"] {
        assert_same_file(&source.join(name), &sink.join(name));
    }
}

#[track_caller]
pub(crate) fn assert_same_file(source: &Path, sink: &Path) {
    let [a, b] = [source, sink].map(|path| Snapshot::take(path).unwrap());
    a.assert_same(&b, Facets { mtime: true, ..Facets::CONTENT });
}

#[track_caller]
pub(crate) fn assert_same_tree(source: &Path, sink: &Path) {
    let [a, b] = [source, sink].map(|root| Snapshot::take(root).unwrap());
    a.assert_same(&b, Facets::ARCHIVE);
}

/// Asserts that an incomplete sink is marked by its time: 1970, older than each source.
#[track_caller]
pub(crate) fn assert_unfinished(sink: &Path) {
    let found = fs::metadata(sink).unwrap();
    assert_eq!(found.mtime(), 0, "{} looks finished", sink.display());
    let room = found.blocks() * 512;
    assert!(room <= found.len() + (128 << 10), "{}: {room} bytes are reserved for nothing", sink.display());
}

/// Options that use different copy methods.
pub(crate) const OPTION_SETS: [&[&str]; 10] = [
    &[],
    &["--threads=1"],
    &["--threads=4", "--split-size=1M"],
    &["--print-hash", "--hash-type=blake3", "--split-size=1M"],
    &["--print-hash", "--hash-type=md5"],
    &["--verify"],
    &["--verify=reread", "--split-size=1M"],
    &["--sparse=always"],
    &["--double-buffer"],
    &["--direct-read", "--direct-write"],
];
