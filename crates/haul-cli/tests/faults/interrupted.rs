//! Signals in the middle of a copy.

use super::fixture::{
    FaultFixture, HAUL, HOLD, Running, assert_same_file, assert_same_tree, assert_unfinished, deliver, haul,
    noise, pasted, start, write_old,
};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Number of small files in the tree, in addition to its `victim`.
const OTHERS: usize = 40;

/// Creates a tree with forty small files and the large `victim`. Returns their paths beneath the
/// view, the victim last.
fn tree_of_many(fixture: &FaultFixture) -> Vec<PathBuf> {
    fs::create_dir(fixture.path("store/tree")).unwrap();
    let mut names: Vec<String> = (0..OTHERS).map(|number| format!("f{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        write_old(&fixture.path("store/tree").join(name), &noise(1000 * number));
    }
    write_old(&fixture.path("store/tree/victim"), &noise(16 * MIB));
    names.push("victim".to_owned());
    names.iter().map(|name| fixture.path("view/tree").join(name)).collect()
}

/// Starts a copy of the tree, which is held after the first mebibyte of `victim`.
fn held_in_the_middle(fixture: &FaultFixture, way: &[&str]) -> (Running, PathBuf) {
    tree_of_many(fixture);
    let sink = fixture.path("sink");
    let options = ["cp", "-aT"].iter().chain(way).map(Path::new);
    let running = start(options.chain([&*fixture.path("view/tree"), &*sink]));
    assert_eq!(fixture.held(), Path::new("tree/victim"));
    (running, sink)
}

/// Asserts that each file with the time of its source is complete. Returns the number of these
/// files.
#[track_caller]
fn finished_files_are_whole(source: &Path, sink: &Path) -> usize {
    let mtime = |path: &Path| fs::metadata(path).map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap();
    let made = fs::read_dir(sink).unwrap().map(|entry| entry.unwrap().path());
    let finished = made.filter(|path| mtime(path) == mtime(&source.join(path.file_name().unwrap())));
    finished.inspect(|path| assert_same_file(&source.join(path.file_name().unwrap()), path)).count()
}

fn hold_the_victim() -> String {
    format!("tree/victim read 1048576.. delay {HOLD} times 1")
}

/// Asserts that a second run with `--update` completes the copy.
#[track_caller]
fn update_completes(fixture: &FaultFixture, sink: &Path) {
    fixture.rules("");
    haul(["cp", "-aT", "--update"].map(Path::new).into_iter().chain([&*fixture.path("view/tree"), sink]))
        .is_fine();
    assert_same_tree(&fixture.path("store/tree"), sink);
}

fn stopped_by(signal: Signal, way: &[&str]) {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    // One thread copies the operands in order: all other files are finished when it starts the
    // victim.
    let (operands, sink) = (tree_of_many(&fixture), fixture.path("sink"));
    fs::create_dir(&sink).unwrap();
    let options = ["cp", "-a", "--threads=1"].iter().chain(way).map(PathBuf::from);
    let running = start(options.chain(operands).chain([sink.clone()]));
    assert_eq!(fixture.held(), Path::new("tree/victim"));
    running.deliver(signal);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
    for words in ["sink/victim' is incomplete", "interrupted: to copy the files again, run: haul cp -a "] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    assert!(!sink.join("victim").exists(), "a new file that was interrupted is removed");
    assert_eq!(finished_files_are_whole(&fixture.path("store/tree"), &sink), OTHERS, "{ended:?}");
    update_completes(&fixture, &sink);
}

#[test]
fn sigint_keeps_complete_files_and_suggests_how_to_continue() {
    stopped_by(Signal::INT, &[]);
}

#[test]
fn sigterm_keeps_complete_files_and_suggests_how_to_continue() {
    stopped_by(Signal::TERM, &["--print-hash", "--hash-type=md5"]);
}

#[test]
fn sighup_keeps_complete_files_and_suggests_how_to_continue() {
    stopped_by(Signal::HUP, &[]);
}

/// Files of holes that are too long to be read, or to be counted object by object.
#[test]
fn signal_ends_work_on_exabytes_of_holes() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| memory.path().join(name);
    let [source, logged, sink] = ["source", "logged", "sink"].map(path);
    File::create(&source).unwrap().set_len(7 << 60).unwrap();
    // A log takes 2^32 objects of a file.
    File::create(&logged).unwrap().set_len(8 << 50).unwrap();
    let waybill = format!("--waybill={}", path("waybill").display());
    let state = format!("--state-dir={}", path("state").display());
    let copies = [
        &["cp", "--print-hash"][..],
        &["cp", "--print-hash", "--hash-type=md5"],
        &["cp", "--verify=stream"],
        &["cp", "--verify=reread"],
        &["cp", "--threads=1", &waybill],
        &["cp", &waybill],
        &["cp", "--resume", &state],
        &["sum", "-a", "blake3"],
        &["sum", "-a", "sha256"],
        &["sum", "-a", "crc32c"],
        &["sum", &waybill],
    ];
    for words in copies {
        for signal in [Signal::INT, Signal::TERM] {
            let sink = (words[0] == "cp").then_some(&*sink);
            let source = if words.contains(&"--resume") { &logged } else { &source };
            let args = words.iter().map(Path::new).chain([&**source]).chain(sink);
            let running = start(args);
            running.is_ready(signal, Some(source));
            running.deliver(signal);
            let ended = running.end();
            assert_eq!(ended.code, Some(128 + signal.as_raw()), "{words:?}: {ended:?}");
        }
    }
}

/// Asserts that a job that was started with a signal ignored continues on this signal.
fn goes_on_under(words: &str, signal: Signal) {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    fixture.tree(16 * MIB);
    let line = format!("trap '' {words}; exec \"$0\" cp -aT \"$1\" \"$2\"");
    let args = [Path::new(super::fixture::HAUL), &fixture.path("view/tree"), &fixture.path("sink")]
        .map(Path::to_owned);
    let running = Running::new(Command::new("sh").args(["-c", &line]).args(args));
    fixture.held();
    running.deliver(signal);
    fixture.release();
    running.end().is_fine();
    assert_same_tree(&fixture.path("store/tree"), &fixture.path("sink"));
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    goes_on_under("INT", Signal::INT);
    goes_on_under("HUP", Signal::HUP);
    goes_on_under("TERM", Signal::TERM);
}

#[test]
fn an_interrupted_file_of_many_objects_is_removed() {
    stopped_by(Signal::INT, &["--split-size=1M", "--verify"]);
}

#[test]
fn sigint_leaves_an_overwritten_file_marked_incomplete() {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    fs::create_dir(fixture.path("sink")).unwrap();
    write_old(&fixture.path("sink/victim"), b"what was there");
    let (running, sink) = held_in_the_middle(&fixture, &[]);
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_unfinished(&sink.join("victim"));
    update_completes(&fixture, &sink);
}

#[test]
fn sigint_between_files_leaves_no_incomplete_file() {
    let Some(fixture) = FaultFixture::new(&format!("tree/* open .. delay {HOLD} after 3 times 1")) else {
        return;
    };
    fs::create_dir(fixture.path("store/tree")).unwrap();
    for number in 0..300 {
        write_old(&fixture.path(&format!("store/tree/f{number}")), &noise(number));
    }
    let sink = fixture.path("sink");
    let running = start(
        ["cp", "-aT", "--threads=1"].map(Path::new).into_iter().chain([&*fixture.path("view/tree"), &*sink]),
    );
    fixture.held();
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let made = fs::read_dir(&sink).unwrap().count();
    assert!(made < 300, "it stopped");
    assert_eq!(finished_files_are_whole(&fixture.path("store/tree"), &sink), made);
    haul(["cp", "-aTu"].map(Path::new).into_iter().chain([&*fixture.path("view/tree"), &*sink])).is_fine();
    assert_same_tree(&fixture.path("store/tree"), &sink);
}

/// Interrupts a copy when a rule holds it, and then runs the command that it suggests.
#[track_caller]
fn interrupted_and_completed(fixture: &FaultFixture, copy: &mut Command) {
    let running = Running::new(copy);
    fixture.held();
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let (_, advice) = ended.stderr.split_once(", run: ").unwrap();
    pasted(fixture.path(""), advice);
}

/// The command that was suggested before had `--update`, which left out the files that the
/// interrupted copy had not reached.
#[test]
fn the_command_suggested_after_an_interrupt_replaces_older_contents() {
    for (options, target) in [("-aT", "there/tree"), ("-a", "there")] {
        let rule = format!("tree/a read .. delay {HOLD} times 1");
        let Some(fixture) = FaultFixture::new(&rule) else { return };
        fixture.tree(3 << 20);
        let there = fixture.path("there/tree");
        fs::create_dir_all(&there).unwrap();
        for name in ["a", "b", "z", "victim"] {
            // They are newer than the files of the source.
            fs::write(there.join(name), "other contents").unwrap();
        }
        let mut first = Command::new(HAUL);
        first.args(["cp", "--threads=1", options, "view/tree", target]).current_dir(fixture.path(""));
        interrupted_and_completed(&fixture, &mut first);
        assert_same_tree(&fixture.path("store/tree"), &there);
    }
}

/// In earlier versions the advice for a tree with a new name created a second copy within the first
/// one, and left the first one incomplete.
#[test]
fn the_command_suggested_after_an_interrupt_completes_the_copy() {
    // The options, the target, true if the target exists before, and the location of the copy.
    let shapes: [(&[&str], &str, bool, &str); 5] = [
        (&["-a"], "new name", false, "new name"),
        (&["-a"], "there", true, "there/tree"),
        (&["-aT"], "it's", true, "it's"),
        (&["-r", "--preserve=timestamps", "--"], "-odd", false, "-odd"),
        (&["-a", "--resume", "--sync=none"], "job", false, "job"),
    ];
    for (options, target, exists, copy) in shapes {
        let Some(fixture) = FaultFixture::new(&format!("*victim read .. delay {HOLD} times 1")) else {
            return;
        };
        fixture.tree(3 << 20);
        if exists {
            fs::create_dir(fixture.path(target)).unwrap();
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(fixture.path("")).env("XDG_STATE_HOME", fixture.path("state"));
            command
        };
        let mut first = command(Path::new(HAUL));
        first.args(["cp", "--threads=1"]).args(options).args([Path::new("view/tree"), Path::new(target)]);
        interrupted_and_completed(&fixture, &mut first);
        assert_same_tree(&fixture.path("store/tree"), &fixture.path(copy));
    }
}

/// Starts a copy from a pipe whose writer keeps the pipe open and sends too little.
fn waiting_for_a_pipe() -> (tempfile::TempDir, File, Running) {
    let home = tempfile::tempdir().unwrap();
    let (fifo, sink) = (a_fifo(home.path()), home.path().join("sink"));
    let running = start([Path::new("cp"), &fifo, &sink]);
    let mut writer = File::options().write(true).open(&fifo).unwrap();
    writer.write_all(b"some").unwrap();
    wait_until("the sink", || sink.exists());
    (home, writer, running)
}

/// Asserts that an interrupted job exits with 130 and prints a command to continue.
#[track_caller]
fn ends_in_order(running: Running) {
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let (_, advice) = ended.stderr.split_once("interrupted: to copy the ").unwrap_or_default();
    assert!(advice.contains("files") && advice.contains(", run: haul cp "), "{ended:?}");
}

fn a_fifo(home: &Path) -> PathBuf {
    let fifo = home.join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    fifo
}

#[test]
fn sigint_stops_a_copy_from_an_idle_pipe() {
    let (home, writer, running) = waiting_for_a_pipe();
    running.signal(Signal::INT);
    ends_in_order(running);
    assert!(!home.path().join("sink").exists(), "a new file that was interrupted is removed");
    drop(writer);
}

#[test]
fn sigint_before_a_pipe_has_a_writer_leaves_the_sink_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let (fifo, sink) = (a_fifo(home.path()), home.path().join("sink"));
    fs::write(&sink, "as it was").unwrap();
    let running = start([Path::new("cp"), &fifo, &sink]);
    running.is_ready(Signal::INT, Some(&fifo));
    running.signal(Signal::INT);
    ends_in_order(running);
    assert_eq!(fs::read_to_string(&sink).unwrap(), "as it was");
}

/// In earlier versions a signal between the first and the last installed handler had no effect, and
/// the copy continued to wait.
#[test]
fn sigint_during_handler_installation_is_not_lost() {
    if !met_or_skip(&[Need::Program("strace")]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (fifo, log) = (a_fifo(home.path()), home.path().join("log"));
    let traced = |inject: &str, operands: [&Path; 2]| {
        let mut command = Command::new("strace");
        command.args(["-qq", "-e", "trace=rt_sigaction", inject, "-o"]).arg(&log);
        Running::new(command.args([HAUL, "cp"]).args(operands)).end()
    };
    traced("-f", [home.path(), home.path()]);
    let calls = fs::read_to_string(&log).unwrap();
    let is_set = |line: &str| line.contains("rt_sigaction(SIGINT, {sa_handler=0x");
    let set = calls.lines().position(is_set).expect("a handler is set");
    let sink = home.path().join("sink");
    let ended = traced(&format!("--inject=rt_sigaction:signal=INT:when={}", set + 1), [&fifo, &sink]);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!sink.exists());
}

#[test]
fn sigint_stops_a_copy_into_a_pipe_without_a_reader() {
    let home = tempfile::tempdir().unwrap();
    let (fifo, source) = (a_fifo(home.path()), home.path().join("source"));
    fs::write(&source, noise(MIB)).unwrap();
    let running = start([Path::new("cp"), &source, &fifo]);
    running.is_ready(Signal::INT, Some(&source));
    running.signal(Signal::INT);
    ends_in_order(running);
}

#[test]
fn a_copy_into_a_pipe_waits_for_its_reader() {
    let home = tempfile::tempdir().unwrap();
    let (fifo, source) = (a_fifo(home.path()), home.path().join("source"));
    let bytes = noise(MIB);
    fs::write(&source, &bytes).unwrap();
    let running = start([Path::new("cp"), &source, &fifo]);
    running.is_ready(Signal::INT, Some(&source));
    assert!(fs::read(&fifo).unwrap() == bytes);
    running.end().is_fine();
}

#[test]
fn sigint_at_a_prompt_overwrites_nothing() {
    let home = tempfile::tempdir().unwrap();
    let [source, sink] = ["source", "sink"].map(|name| home.path().join(name));
    fs::write(&source, "new").unwrap();
    fs::write(&sink, "as it was").unwrap();
    let (answers, mut user) = std::io::pipe().unwrap();
    // Half an answer: the line never ends.
    user.write_all(b"y").unwrap();
    let mut command = Command::new(super::fixture::HAUL);
    let running =
        Running::answered_by(command.args([Path::new("cp"), Path::new("-i"), &source, &sink]), answers);
    running.is_ready(Signal::INT, None);
    // The prompt has read all bytes of the answer.
    wait_until("the question", || ioctl_fionread(&user).unwrap() == 0);
    running.signal(Signal::INT);
    ends_in_order(running);
    assert_eq!(fs::read_to_string(&sink).unwrap(), "as it was");
}

#[test]
fn a_second_sigint_ends_a_copy_blocked_in_io_at_once() {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    // The held thread is not the first one, which takes the signals.
    let (running, _) = held_in_the_middle(&fixture, &["--threads=2"]);
    // Two pending signals of one kind count as one.
    running.deliver(Signal::INT);
    running.signal(Signal::INT);
    running.is_over();
    fixture.release();
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn sigint_stops_a_copy_of_an_endless_stream() {
    let (home, mut writer, running) = waiting_for_a_pipe();
    running.signal(Signal::INT);
    // The stream has no end: only the exit of its reader stops it.
    let block = noise(MIB);
    wait_until("the end of the reader", || writer.write_all(&block).is_err());
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!home.path().join("sink").exists());
}

#[test]
fn sigint_stops_a_copy_into_a_pipe_with_an_idle_reader() {
    let home = tempfile::tempdir().unwrap();
    let (source, fifo) = (home.path().join("source"), a_fifo(home.path()));
    fs::write(&source, noise(MIB)).unwrap();
    let running = start([Path::new("cp"), &source, &fifo]);
    let mut reader = File::open(&fifo).unwrap();
    reader.read_exact(&mut [0; 10]).unwrap();
    running.signal(Signal::INT);
    ends_in_order(running);
}

#[test]
fn a_killed_copy_is_not_marked_complete() {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    let (running, sink) = held_in_the_middle(&fixture, &[]);
    running.signal(Signal::KILL);
    fixture.release();
    assert_eq!(running.end().code, None);
    finished_files_are_whole(&fixture.path("store/tree"), &sink);
    let mtime = |path: PathBuf| fs::metadata(path).map(|meta| meta.mtime()).ok();
    assert_ne!(mtime(sink.join("victim")), mtime(fixture.path("store/tree/victim")));
    fixture.rules("");
    haul(["cp", "-aT"].map(Path::new).into_iter().chain([&*fixture.path("view/tree"), &*sink])).is_fine();
    assert_same_tree(&fixture.path("store/tree"), &sink);
}

#[test]
fn json_summary_reports_an_interrupt() {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    let (running, _) = held_in_the_middle(&fixture, &["--json"]);
    running.deliver(Signal::INT);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let last: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["interrupted"]), (&"summary".into(), &true.into()), "{last}");
}

#[test]
fn a_shell_gets_the_exit_status_of_an_interrupted_job() {
    let Some(fixture) = FaultFixture::new(&hold_the_victim()) else { return };
    fixture.tree(16 * MIB);
    let line = format!(
        "'{}' cp -aT '{}' '{}' & echo $! > '{}'; wait $!; echo $?",
        super::fixture::HAUL,
        fixture.path("view/tree").display(),
        fixture.path("sink").display(),
        fixture.path("pid").display(),
    );
    // A shell without job control starts background jobs with SIGINT ignored, but not with SIGTERM
    // ignored.
    let running = Running::new(Command::new("sh").args(["-c", &line]));
    fixture.held();
    // The job may reach this point before the shell has written the process ID.
    let reported = || fs::read_to_string(fixture.path("pid")).unwrap_or_default();
    wait_until("the number of the job", || reported().ends_with('\n'));
    let pid: i32 = reported().trim().parse().unwrap();
    deliver(Pid::from_raw(pid).unwrap(), Signal::TERM);
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.stdout.trim(), "143", "{ended:?}");
}
