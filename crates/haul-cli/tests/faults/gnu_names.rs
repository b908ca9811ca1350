//! Runs under the name of another tool that are ended by a signal, or by a reader that closes the
//! pipe. They end as the tool does that haul replaces.

use super::fixture::{FaultFixture, HAUL, HOLD, RunResult, Running, noise, write_old};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Returns the command with the binary under another name.
fn named(tool: &str) -> Command {
    let mut command = Command::new(HAUL);
    command.arg0(tool);
    command
}

fn a_fifo(home: &Path) -> PathBuf {
    let fifo = home.join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    fifo
}

#[track_caller]
fn ended_by(signal: Signal, ended: &RunResult) {
    assert_eq!((ended.code, ended.signal), (None, Some(signal.as_raw())), "{ended:?}");
}

/// Earlier versions exited with 128 plus the signal number, which a shell treats as an ordinary
/// exit status.
#[test]
fn interrupted_gnu_named_copies_clean_up_and_die_by_the_signal() {
    for tool in ["cp", "mcp", "install"] {
        for signal in SIGNALS {
            let home = tempfile::tempdir().unwrap();
            let (fifo, sink) = (a_fifo(home.path()), home.path().join("sink"));
            let running = Running::new(named(tool).args([&fifo, &sink]));
            running.is_ready(signal, Some(&fifo));
            running.signal(signal);
            let ended = running.end();
            ended_by(signal, &ended);
            assert!(ended.stderr.contains(&format!("{tool}: interrupted: ")), "{ended:?}");
            assert!(!sink.exists(), "a new file that was interrupted is removed: {ended:?}");
        }
    }
}

#[test]
fn an_interrupted_gnu_named_move_dies_by_the_signal() {
    for signal in SIGNALS {
        let home = tempfile::tempdir().unwrap();
        let [source, into] = ["source", "into"].map(|name| home.path().join(name));
        fs::create_dir(&into).unwrap();
        fs::write(&source, "new").unwrap();
        fs::write(into.join("source"), "as it was").unwrap();
        // No answer arrives.
        let (answers, _user) = std::io::pipe().unwrap();
        let running = Running::answered_by(named("mv").arg("-i").args([&source, &into]), answers);
        running.is_ready(signal, Some(&into));
        running.signal(signal);
        let ended = running.end();
        ended_by(signal, &ended);
        assert_eq!(fs::read_to_string(into.join("source")).unwrap(), "as it was");
        assert!(source.exists());
    }
}

/// Under haul's own name the exit status is haul's, too.
#[test]
fn an_interrupted_haul_command_exits_with_a_status() {
    for tool in ["cp", "install"] {
        let home = tempfile::tempdir().unwrap();
        let fifo = a_fifo(home.path());
        let running = Running::new(Command::new(HAUL).arg(tool).args([&fifo, &home.path().join("sink")]));
        running.is_ready(Signal::TERM, Some(&fifo));
        running.signal(Signal::TERM);
        assert_eq!(running.end().code, Some(143), "{tool}");
    }
}

#[test]
fn a_second_signal_ends_a_gnu_named_copy_at_once() {
    let Some(fixture) = FaultFixture::new(&format!("tree/victim read 1048576.. delay {HOLD} times 1")) else {
        return;
    };
    fs::create_dir(fixture.path("store/tree")).unwrap();
    write_old(&fixture.path("store/tree/victim"), &noise(4 << 20));
    // The held thread is not the first one, which takes the signals.
    let mut copy = named("cp");
    let running = Running::new(
        copy.args(["-r", "--threads=2"]).args([fixture.path("view/tree"), fixture.path("sink")]),
    );
    fixture.held();
    // Two pending signals of one kind count as one.
    running.deliver(Signal::INT);
    running.signal(Signal::INT);
    running.is_over();
    fixture.release();
    ended_by(Signal::INT, &running.end());
}

/// Ctrl-C goes to all processes of the terminal. The shell ends its loop if the signal ended its
/// child.
#[test]
fn a_shell_loop_ends_if_its_copy_is_interrupted() {
    if !met_or_skip(&[Need::Program("bash")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (fifo, rounds) = (a_fifo(home.path()), home.path().join("rounds"));
    symlink(HAUL, home.path().join("cp")).unwrap();
    let script = "for n in 1 2 3; do ./cp fifo sink$n; echo $n >> rounds; done";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).current_dir(home.path()).process_group(0);
    let running = Running::new(&mut shell);
    let group = Pid::from_raw(running.id()).unwrap();
    let copy = until(|| child_with(running.id(), &fifo));
    until(|| catches(copy, Signal::INT).then_some(()));
    kill_process_group(group, Signal::INT).unwrap();
    let ended = running.end();
    ended_by(Signal::INT, &ended);
    assert!(!rounds.exists(), "it went on: {ended:?}");
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until("what is looked for", || {
        found = look();
        found.is_some()
    });
    found.expect("it was found")
}

/// Returns the child of a process that has a file open.
fn child_with(parent: i32, path: &Path) -> Option<i32> {
    let is_child = |status: &str| status.lines().any(|line| line == format!("PPid:\t{parent}"));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.find(|id| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let open = || fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        is_child(&status) && open().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == path))
    })
}

fn catches(id: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught >> (signal.as_raw() - 1) & 1 == 1
}

/// Creates a test directory with three files and an empty directory.
fn a_few_files() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    ["a", "b", "c"].iter().for_each(|name| fs::write(home.path().join(name), name).unwrap());
    fs::create_dir(home.path().join("d")).unwrap();
    home
}

/// Runs a command whose output has no reader. Each write fails like one to a pipe without a reader,
/// even if another thread of this process has inherited descriptors.
fn unread(mut command: Command, args: &[&str], home: &Path) -> Output {
    let (writer, _other_end) = UnixStream::pair().unwrap();
    writer.shutdown(Shutdown::Write).unwrap();
    let writer = OwnedFd::from(writer);
    command.args(args).current_dir(home).env("LC_ALL", "C");
    command
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

/// Earlier versions printed `write error: Broken pipe`, and exited with status 1.
#[test]
fn closed_output_ends_cp_mv_and_install_as_gnu() {
    for (tool, args) in [
        ("cp", &["-v", "a", "d"][..]),
        ("mv", &["-v", "a", "d"]),
        ("install", &["-v", "a", "d"]),
        ("install", &["-dv", "d/x"]),
        ("cp", &["-v", "no", "d"]),
        ("cp", &["a", "d"]),
        ("mv", &["--help"]),
    ] {
        let (theirs, ours) = (a_few_files(), a_few_files());
        let original = unread(Command::new(tool), args, theirs.path());
        let own = unread(named(tool), args, ours.path());
        assert_eq!(
            (own.status.signal(), own.status.code()),
            (original.status.signal(), original.status.code()),
            "{tool} {args:?}"
        );
        assert_eq!(
            String::from_utf8_lossy(&own.stderr),
            String::from_utf8_lossy(&original.stderr),
            "{tool} {args:?}"
        );
        for name in ["a", "d/a", "d/x"] {
            let stands = |home: &TempDir| home.path().join(name).exists();
            assert_eq!(stands(&ours), stands(&theirs), "{tool} {args:?}: {name}");
        }
    }
}

/// Earlier versions printed `error writing '/dev/stdout': Broken pipe`, and exited with status 1.
#[test]
fn a_copy_into_a_closed_pipe_ends_as_gnu() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("large"), noise(1 << 20)).unwrap();
    let mut own = Command::new(HAUL);
    own.arg("cp");
    let by_signal = (Some(Signal::PIPE.as_raw()), None);
    let commands = [(Command::new("cp"), by_signal), (named("cp"), by_signal), (own, (None, Some(141)))];
    for (mut command, expected) in commands {
        let (mut reader, writer) = std::io::pipe().unwrap();
        command.args(["large", "/dev/stdout"]).current_dir(home.path()).env("LC_ALL", "C");
        let child = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        // The command value holds the write end. It is dropped so that only the child has one.
        drop(command);
        // The data exceeds the capacity of a pipe: the copy is in progress when the reader closes.
        reader.read_exact(&mut [0; 10]).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        let status = (output.status.signal(), output.status.code());
        assert_eq!((status, output.stderr.as_slice()), (expected, &b""[..]));
    }
}

/// GNU tools end at the first line that cannot be written, and leave the rest of their work undone.
#[test]
fn closed_output_does_not_stop_the_remaining_work() {
    for (tool, gone) in [("cp", false), ("mv", true), ("install", false)] {
        let home = a_few_files();
        let own = unread(named(tool), &["-v", "a", "b", "c", "d"], home.path());
        assert_eq!(
            (own.status.signal(), own.stderr.as_slice()),
            (Some(Signal::PIPE.as_raw()), &b""[..]),
            "{tool}"
        );
        for name in ["a", "b", "c"] {
            assert_eq!(fs::read_to_string(home.path().join("d").join(name)).unwrap(), name, "{tool}");
            assert_eq!(home.path().join(name).exists(), !gone, "{tool}");
        }
        let home = a_few_files();
        let mut haul = Command::new(HAUL);
        haul.arg(tool);
        let own = unread(haul, &["-v", "a", "b", "c", "d"], home.path());
        assert_eq!((own.status.code(), own.stderr.as_slice()), (Some(141), &b""[..]), "haul {tool}");
        for name in ["a", "b", "c"] {
            assert_eq!(fs::read_to_string(home.path().join("d").join(name)).unwrap(), name, "haul {tool}");
        }
    }
}

/// In earlier versions `haul fetch --help | head` panicked, the other commands printed `write
/// error: Broken pipe`, and `haul bench` succeeded.
#[test]
fn closed_output_ends_every_haul_command_silently_with_141() {
    let home = a_few_files();
    let prepared = Command::new(HAUL)
        .args(["sum", "--waybill", "bill", "a", "b", "c"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{prepared:?}");
    fs::write(home.path().join("list"), prepared.stdout).unwrap();
    fs::write(home.path().join("c"), "damaged").unwrap();
    let help = [
        "cp", "mv", "install", "send", "fetch", "list", "serve", "sum", "check", "verify", "repair",
        "waybill", "jobs", "bench",
    ];
    let mut asked: Vec<Vec<&str>> = help.iter().map(|&command| vec![command, "--help"]).collect();
    asked.extend([
        vec!["--help"],
        vec!["--version"],
        vec!["cp", "-v", "a", "d"],
        vec!["cp", "--json", "a", "d/x"],
        vec!["mv", "-v", "b", "d"],
        vec!["sum", "a"],
        vec!["check", "list"],
        vec!["verify", "-v", "bill", "."],
        vec!["verify", "--json", "bill", "."],
        vec!["repair", "bill", ".", "--from", "d"],
        vec!["repair", "--json", "bill", ".", "--from", "d"],
        vec!["waybill", "show", "bill"],
        vec!["waybill", "export", "bill"],
        vec!["bench", "--quick", "--no-io", "--runs=1", "-a", "crc32"],
    ]);
    for words in asked {
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" \"$@\"; exit $?", HAUL]).env("XDG_STATE_HOME", home.path().join("state"));
        let ended = unread(shell, &words, home.path());
        assert_eq!(
            (ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()),
            (Some(141), ""),
            "haul {words:?}"
        );
    }
}
