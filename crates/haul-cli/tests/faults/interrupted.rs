//! Signals in the middle of a copy.

use super::bed::{
    FaultBed, HAUL, HOLD, Running, assert_same_file, assert_same_tree, assert_unfinished, haul, hears, noise,
    pasted, start, write_old,
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
fn tree_of_many(bed: &FaultBed) -> Vec<PathBuf> {
    fs::create_dir(bed.path("store/tree")).unwrap();
    let mut names: Vec<String> = (0..OTHERS).map(|number| format!("f{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        write_old(&bed.path("store/tree").join(name), &noise(1000 * number));
    }
    write_old(&bed.path("store/tree/victim"), &noise(16 * MIB));
    names.push("victim".to_owned());
    names.iter().map(|name| bed.path("view/tree").join(name)).collect()
}

/// Starts a copy of the tree, which is held after the first mebibyte of `victim`.
fn held_in_the_middle(bed: &FaultBed, way: &[&str]) -> (Running, PathBuf) {
    tree_of_many(bed);
    let sink = bed.path("sink");
    let options = ["cp", "-aT"].iter().chain(way).map(Path::new);
    let running = start(options.chain([&*bed.path("view/tree"), &*sink]));
    assert_eq!(bed.held(), Path::new("tree/victim"));
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
fn update_completes(bed: &FaultBed, sink: &Path) {
    bed.rules("");
    haul(["cp", "-aT", "--update"].map(Path::new).into_iter().chain([&*bed.path("view/tree"), sink]))
        .is_fine();
    assert_same_tree(&bed.path("store/tree"), sink);
}

fn stopped_by(signal: Signal, way: &[&str]) {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    // One thread copies the operands in order: all other files are finished when it starts the
    // victim.
    let (operands, sink) = (tree_of_many(&bed), bed.path("sink"));
    fs::create_dir(&sink).unwrap();
    let options = ["cp", "-a", "--threads=1"].iter().chain(way).map(PathBuf::from);
    let running = start(options.chain(operands).chain([sink.clone()]));
    assert_eq!(bed.held(), Path::new("tree/victim"));
    running.hears(signal);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + signal.as_raw()), "{ended:?}");
    for words in ["sink/victim' is incomplete", "--update"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
    assert!(!sink.join("victim").exists(), "a new file that was interrupted is removed");
    assert_eq!(finished_files_are_whole(&bed.path("store/tree"), &sink), OTHERS, "{ended:?}");
    update_completes(&bed, &sink);
}

#[test]
fn ctrl_c_keeps_finished_files_removes_the_one_cut_off_and_says_how_to_go_on() {
    stopped_by(Signal::INT, &[]);
}

#[test]
fn a_request_to_terminate_does_the_same() {
    stopped_by(Signal::TERM, &["--print-hash", "--hash-type=md5"]);
}

#[test]
fn a_terminal_that_goes_away_does_the_same() {
    stopped_by(Signal::HUP, &[]);
}

/// Asserts that a job that was started with a signal ignored continues on this signal.
fn goes_on_under(words: &str, signal: Signal) {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    bed.tree(16 * MIB);
    let line = format!("trap '' {words}; exec \"$0\" cp -aT \"$1\" \"$2\"");
    let args = [Path::new(super::bed::HAUL), &bed.path("view/tree"), &bed.path("sink")].map(Path::to_owned);
    let running = Running::new(Command::new("sh").args(["-c", &line]).args(args));
    bed.held();
    running.hears(signal);
    bed.let_go();
    running.end().is_fine();
    assert_same_tree(&bed.path("store/tree"), &bed.path("sink"));
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    goes_on_under("INT", Signal::INT);
    goes_on_under("HUP", Signal::HUP);
    goes_on_under("TERM", Signal::TERM);
}

#[test]
fn a_file_of_many_objects_is_cut_off_as_a_whole() {
    stopped_by(Signal::INT, &["--split-size=1M", "--verify"]);
}

#[test]
fn ctrl_c_leaves_an_overwritten_file_marked_as_not_complete() {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    fs::create_dir(bed.path("sink")).unwrap();
    write_old(&bed.path("sink/victim"), b"what was there");
    let (running, sink) = held_in_the_middle(&bed, &[]);
    running.hears(Signal::INT);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_unfinished(&sink.join("victim"));
    update_completes(&bed, &sink);
}

#[test]
fn ctrl_c_between_files_leaves_no_half_made_one() {
    let Some(bed) = FaultBed::new(&format!("tree/* open .. delay {HOLD} after 3 times 1")) else { return };
    fs::create_dir(bed.path("store/tree")).unwrap();
    for number in 0..300 {
        write_old(&bed.path(&format!("store/tree/f{number}")), &noise(number));
    }
    let sink = bed.path("sink");
    let running = start(
        ["cp", "-aT", "--threads=1"].map(Path::new).into_iter().chain([&*bed.path("view/tree"), &*sink]),
    );
    bed.held();
    running.hears(Signal::INT);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let made = fs::read_dir(&sink).unwrap().count();
    assert!(made < 300, "it stopped");
    assert_eq!(finished_files_are_whole(&bed.path("store/tree"), &sink), made);
    haul(["cp", "-aTu"].map(Path::new).into_iter().chain([&*bed.path("view/tree"), &*sink])).is_fine();
    assert_same_tree(&bed.path("store/tree"), &sink);
}

/// In earlier versions the advice for a tree with a new name created a second copy within the first
/// one, and left the first one incomplete.
#[test]
fn the_command_that_an_interrupted_copy_advises_completes_it() {
    // The options, the target, true if the target exists before, and the location of the copy.
    let shapes: [(&[&str], &str, bool, &str); 5] = [
        (&["-a"], "new name", false, "new name"),
        (&["-a"], "there", true, "there/tree"),
        (&["-aT"], "it's", true, "it's"),
        (&["-r", "--preserve=timestamps", "--"], "-odd", false, "-odd"),
        (&["-a", "--resume", "--sync=none"], "job", false, "job"),
    ];
    for (options, target, exists, copy) in shapes {
        let Some(bed) = FaultBed::new(&format!("*victim read .. delay {HOLD} times 1")) else { return };
        bed.tree(3 << 20);
        if exists {
            fs::create_dir(bed.path(target)).unwrap();
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(bed.path("")).env("XDG_STATE_HOME", bed.path("state"));
            command
        };
        let mut first = command(Path::new(HAUL));
        first.args(["cp", "--threads=1"]).args(options).args([Path::new("view/tree"), Path::new(target)]);
        let running = Running::new(&mut first);
        bed.held();
        running.hears(Signal::INT);
        bed.let_go();
        let ended = running.end();
        assert_eq!(ended.code, Some(130), "{ended:?}");
        let (_, advice) = ended.stderr.split_once(", run: ").unwrap();
        pasted(bed.path(""), advice);
        assert_same_tree(&bed.path("store/tree"), &bed.path(copy));
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
    assert!(
        ended.stderr.contains("interrupted: to copy the missing files, run: haul cp --update "),
        "{ended:?}"
    );
}

fn a_fifo(home: &Path) -> PathBuf {
    let fifo = home.join("fifo");
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    fifo
}

#[test]
fn ctrl_c_stops_a_copy_whose_pipe_falls_silent() {
    let (home, writer, running) = waiting_for_a_pipe();
    running.signal(Signal::INT);
    ends_in_order(running);
    assert!(!home.path().join("sink").exists(), "a new file that was interrupted is removed");
    drop(writer);
}

#[test]
fn ctrl_c_stops_a_copy_whose_pipe_has_no_writer_and_leaves_the_sink_alone() {
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
fn a_ctrl_c_that_comes_while_its_answers_are_set_up_is_not_lost() {
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
fn ctrl_c_stops_a_copy_into_a_pipe_without_a_reader() {
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
fn ctrl_c_answers_a_question_with_no() {
    let home = tempfile::tempdir().unwrap();
    let [source, sink] = ["source", "sink"].map(|name| home.path().join(name));
    fs::write(&source, "new").unwrap();
    fs::write(&sink, "as it was").unwrap();
    let (answers, mut user) = std::io::pipe().unwrap();
    // Half an answer: the line never ends.
    user.write_all(b"y").unwrap();
    let mut command = Command::new(super::bed::HAUL);
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
fn a_second_ctrl_c_ends_a_copy_that_storage_holds_at_once() {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    // The held thread is not the first one, which takes the signals.
    let (running, _) = held_in_the_middle(&bed, &["--threads=2"]);
    // Two pending signals of one kind count as one.
    running.hears(Signal::INT);
    running.signal(Signal::INT);
    running.is_over();
    bed.let_go();
    assert_eq!(running.end().code, Some(130));
}

#[test]
fn ctrl_c_stops_a_stream_that_goes_on() {
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
fn a_pipe_whose_reader_sleeps_can_be_left_by_ctrl_c() {
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
fn a_copy_that_was_killed_is_not_left_looking_finished() {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    let (running, sink) = held_in_the_middle(&bed, &[]);
    running.signal(Signal::KILL);
    bed.let_go();
    assert_eq!(running.end().code, None);
    finished_files_are_whole(&bed.path("store/tree"), &sink);
    let mtime = |path: PathBuf| fs::metadata(path).map(|meta| meta.mtime()).ok();
    assert_ne!(mtime(sink.join("victim")), mtime(bed.path("store/tree/victim")));
    bed.rules("");
    haul(["cp", "-aT"].map(Path::new).into_iter().chain([&*bed.path("view/tree"), &*sink])).is_fine();
    assert_same_tree(&bed.path("store/tree"), &sink);
}

#[test]
fn an_interrupted_job_says_so_in_json_too() {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    let (running, _) = held_in_the_middle(&bed, &["--json"]);
    running.hears(Signal::INT);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let last: serde_json::Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["interrupted"]), (&"summary".into(), &true.into()), "{last}");
}

#[test]
fn a_shell_sees_that_a_job_was_interrupted() {
    let Some(bed) = FaultBed::new(&hold_the_victim()) else { return };
    bed.tree(16 * MIB);
    let line = format!(
        "'{}' cp -aT '{}' '{}' & echo $! > '{}'; wait $!; echo $?",
        super::bed::HAUL,
        bed.path("view/tree").display(),
        bed.path("sink").display(),
        bed.path("pid").display(),
    );
    // A shell without job control starts background jobs with SIGINT ignored, but not with SIGTERM
    // ignored.
    let running = Running::new(Command::new("sh").args(["-c", &line]));
    bed.held();
    // The job may reach this point before the shell has written the process ID.
    let told = || fs::read_to_string(bed.path("pid")).unwrap_or_default();
    wait_until("the number of the job", || told().ends_with('\n'));
    let pid: i32 = told().trim().parse().unwrap();
    hears(Pid::from_raw(pid).unwrap(), Signal::TERM);
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.stdout.trim(), "143", "{ended:?}");
}
