//! Sinks and sources that cause errors: a sink that is full, read-only, treats two names as one, or
//! stores a changed name, and a source that changes.
//!
//! The side that started the job names each failed file, and the other files arrive.

use super::resumed::{files_beneath, is_temporary};
use super::stopped::{remote_processes, wait_until};
use super::{Fixture, RunResult, assert_alike, assert_ended, assert_no_strays};
use haul_lab::faults::FaultFs;
use haul_lab::mounts::{Access, Mounted};
use haul_lab::needs::{Need, met_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

/// Direction of a job, seen from the side that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Send,
    Fetch,
}

pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Send, Direction::Fetch];

/// Transfers `data` into the directory `into`; `direction` selects which of them is remote.
pub(super) fn transfer(
    fixture: &Fixture,
    direction: Direction,
    options: &[&str],
    data: &Path,
    into: &Path,
) -> RunResult {
    let [data, into] = [data, into].map(|path| path.to_str().unwrap().to_owned());
    match direction {
        Direction::Send => {
            fixture.over_ssh("send", &[options, &[&data, &format!("localhost:{into}")]].concat())
        }
        Direction::Fetch => {
            fixture.over_ssh("fetch", &[options, &[&format!("localhost:{data}"), &into]].concat())
        }
    }
}

/// Creates sixteen files of 1 MiB plus 0 to 15 bytes.
fn mebibytes(fixture: &Fixture) {
    (0..16).for_each(|number| fixture.file(&format!("data/f{number}"), MIB + number));
}

/// Earlier versions sent all remaining files to a full sink, with a line for each, and did not say
/// what they keep there.
#[test]
fn a_full_sink_ends_the_job_with_one_line_and_can_be_completed() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for direction in DIRECTIONS {
        let fixture = Fixture::new();
        mebibytes(&fixture);
        let small = Mounted::tmpfs(8).unwrap();
        let (data, into) = (fixture.path("data"), small.path().join("in"));
        let ended = transfer(&fixture, direction, &["--object-size=64K"], &data, &into);
        assert_ended(&ended, 1);
        let is_there = |number: &u64| into.join(format!("data/f{number}")).exists();
        let arrived: Vec<u64> = (0..16).filter(is_there).collect();
        for number in &arrived {
            let name = format!("f{number}");
            assert!(fs::read(into.join("data").join(&name)).unwrap() == fs::read(data.join(&name)).unwrap());
        }
        assert!(arrived.len() < 9, "{direction:?}: {arrived:?}");
        let lines: Vec<&str> = ended.err.lines().filter(|line| line.contains("no space left")).collect();
        let [line] = lines[..] else { panic!("{direction:?}: {ended:#?}") };
        assert!(line.contains("files failed") && line.contains("; to resume: "), "{direction:?}: {line}");
        let mut kept = fs::read_dir(into.join("data")).unwrap().map(|entry| entry.unwrap().file_name());
        let is_kept = kept.any(|name| name.as_encoded_bytes().starts_with(b".haul-"));
        // An open directory keeps the file system busy.
        drop(kept);
        assert_eq!(line.contains("of incomplete files are kept"), is_kept, "{direction:?}: {line}");
        assert_eq!(line.contains("haul jobs forget "), is_kept, "{direction:?}: {line}");
        let roomy =
            Command::new("mount").args(["-o", "remount,size=64m"]).arg(small.path()).status().unwrap();
        assert!(roomy.success());
        assert_ended(&transfer(&fixture, direction, &["--object-size=64K"], &data, &into), 0);
        assert_alike(&data, &into.join("data"));
        assert_no_strays(&into);
        let there = fixture.path("there").canonicalize().unwrap();
        wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
        small.close().unwrap();
    }
}

/// Earlier versions deleted only the state on this host; the incomplete files stayed at the sink.
#[test]
fn forgetting_a_job_deletes_what_it_keeps_at_the_sink() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for direction in DIRECTIONS {
        let fixture = Fixture::new();
        fixture.file("data/first/a", 6 * MIB);
        fixture.file("data/second/b", 6 * MIB);
        let small = Mounted::tmpfs(8).unwrap();
        let (data, into) = (fixture.path("data"), small.path().join("in"));
        // Holes are not reserved, so both files begin to arrive.
        for name in ["first/a", "second/b"] {
            let file = File::options().write(true).open(data.join(name)).unwrap();
            file.set_len(7 << 20).unwrap();
        }
        let options = ["--object-size=64K", "--sync=object"];
        let ended = transfer(&fixture, direction, &options, &data, &into);
        assert_ended(&ended, 1);
        let strays = || files_beneath(&into).into_iter().filter(|path| is_temporary(path)).count();
        assert!(strays() > 0 && ended.err.contains("are kept at the receiver"), "{direction:?}: {ended:#?}");
        let id = ended.err.split("haul jobs forget ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let id = id.unwrap_or_else(|| panic!("{direction:?}: {ended:#?}"));
        assert_ended(&fixture.run(&["jobs", "forget", id]), 0);
        assert_eq!(strays(), 0, "{direction:?}");
        assert_ended(&fixture.run(&["jobs", "show", id]), 1);
        let there = fixture.path("there").canonicalize().unwrap();
        wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
        small.close().unwrap();
    }
}

#[test]
fn a_read_only_sink_is_reported_and_unchanged() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for direction in DIRECTIONS {
        let fixture = Fixture::new();
        fixture.tree("data");
        fixture.file("store/data/small", 7);
        let locked = Mounted::bind(&fixture.path("store"), Access::ReadOnly).unwrap();
        let ended = transfer(&fixture, direction, &[], &fixture.path("data"), &locked.path());
        assert_ended(&ended, 1);
        for name in ["data/big: ", "data/one: ", "data/small: ", "data/empty: ", "data/sub/x"] {
            let line = ended.err.lines().find(|line| line.contains(name));
            assert!(line.is_some_and(|line| line.contains("read-only")), "{direction:?} {name}: {ended:#?}");
        }
        locked.close().unwrap();
        assert_eq!(fs::read_dir(fixture.path("store/data")).unwrap().count(), 1);
        assert_eq!(fs::metadata(fixture.path("store/data/small")).unwrap().len(), 7);
    }
}

/// Starts a job that takes seconds and stops the reading process when the sink has some bytes. Then
/// changes the source file `victim` and lets the job continue.
///
/// Returns `None` if the process had read the complete file before the change.
fn changed_midway(fixture: &Fixture, direction: Direction, change: Change) -> Option<RunResult> {
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let haul = env!("CARGO_BIN_EXE_haul");
    // Over ssh the sending side enforces the rate.
    let common = ["-e", &ssh, "--remote-haul", haul, "--object-size=64K", "--streams=1"];
    let (command, operands) = match direction {
        Direction::Send => ("send", ["--rate=1M", "data", "localhost:in"]),
        Direction::Fetch => ("fetch", ["--rate=1M", "localhost:data", "in"]),
    };
    let (source, sink) = match direction {
        Direction::Send => ("data", "there/in/data"),
        Direction::Fetch => ("there/data", "in/data"),
    };
    let args = [&[command][..], &common, &operands].concat();
    let child = fixture
        .haul(&args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_there = || {
        let found = fs::read_dir(fixture.path(sink)).into_iter().flatten().flatten();
        found.filter_map(|entry| entry.metadata().ok()).any(|facts| facts.len() > 0)
    };
    wait_until("some bytes", is_there);
    let reader = match direction {
        Direction::Send => Some(Pid::from_child(&child)),
        Direction::Fetch => remote_processes(&fixture.path("there").canonicalize().unwrap()).first().copied(),
    };
    // A process that has exited has read the complete file.
    let is_halted = reader.is_some_and(|pid| kill_process(pid, Signal::STOP).is_ok());
    let victim = fs::File::options().write(true).open(fixture.path(source).join("victim")).unwrap();
    change(&victim);
    let is_over = fixture.path(sink).join("victim").exists();
    if let Some(pid) = reader.filter(|_| is_halted) {
        kill_process(pid, Signal::CONT).unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = RunResult { status: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) };
    // The source had read the complete file, and its last bytes were in transit.
    let was_read = ended.status == Some(0);
    (is_halted && !is_over && !was_read).then_some(ended)
}

/// Modification of a source file during the transfer.
type Change = fn(&fs::File);

#[test]
fn a_source_file_that_changes_is_reported_and_not_renamed() {
    named_and_not_given_its_name(|victim| victim.write_all_at(b"changed", 3).unwrap());
}

#[test]
fn a_source_file_that_grows_is_reported_and_not_renamed() {
    named_and_not_given_its_name(|victim| victim.write_all_at(b"more", 4 * MIB as u64).unwrap());
}

#[test]
fn a_source_file_that_shrinks_is_reported_and_not_renamed() {
    named_and_not_given_its_name(|victim| victim.set_len(3 * MIB as u64 + 5).unwrap());
}

#[test]
fn a_source_file_that_is_emptied_is_reported_and_not_renamed() {
    named_and_not_given_its_name(|victim| victim.set_len(0).unwrap());
}

/// Asserts in both directions that a job names a changed file of 4 MiB and gives it no final name.
#[track_caller]
fn named_and_not_given_its_name(change: Change) {
    for direction in DIRECTIONS {
        let (source, sink) = match direction {
            Direction::Send => ("data", "there/in/data"),
            Direction::Fetch => ("there/data", "in/data"),
        };
        let tried = (0..5).find_map(|_| {
            let fixture = Fixture::new();
            fixture.file(&format!("{source}/victim"), 4 * MIB);
            changed_midway(&fixture, direction, change).map(|ended| (fixture, ended))
        });
        let (fixture, ended) = tried.expect("one of five is halted in time");
        assert_ended(&ended, 1);
        let line = ended.err.lines().find(|line| line.contains("victim: "));
        assert!(line.is_some_and(|line| line.contains("changed")), "{direction:?}: {ended:#?}");
        assert!(!fixture.path(sink).join("victim").exists());
        // A rerun of the same command transfers the current contents.
        let again = match direction {
            Direction::Send => fixture.over_ssh("send", &["data", "localhost:in"]),
            Direction::Fetch => fixture.over_ssh("fetch", &["localhost:data", "in"]),
        };
        assert_ended(&again, 0);
        assert_alike(&fixture.path(source), &fixture.path(sink));
        assert_no_strays(&fixture.path(sink));
    }
}

/// If no byte of an object could be read, earlier versions still sent the end of the object. The
/// sink then ended the session, and no other file arrived.
#[test]
fn a_read_error_at_any_offset_fails_only_its_file() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    // Reads fail from the first byte of the file, from the first byte of an object, or from a byte
    // within an object. A small file fails, too.
    for (at, from) in [0, 65_536 * 7, 65_536 * 7 + 20_000].into_iter().enumerate() {
        let direction = DIRECTIONS[at % 2];
        let fixture = Fixture::new();
        fixture.tree("data");
        fixture.file("data/victim", 20 * 65_536);
        fixture.file("data/little victim", 5000);
        fs::create_dir(fixture.path("view")).unwrap();
        let rules = format!("victim read {from}.. errno EIO\nlittle?victim read .. errno EIO");
        let view =
            FaultFs::mount(&fixture.path("data"), &fixture.path("view"), rules.parse().unwrap()).unwrap();
        let into = fixture.path("in");
        let ended = transfer(&fixture, direction, &["--object-size=64K"], &fixture.path("view"), &into);
        assert_ended(&ended, 1);
        for name in ["view/victim: ", "view/little victim': "] {
            let line = ended.err.lines().find(|line| line.contains(name));
            assert!(
                line.is_some_and(|line| line.contains("input/output error")),
                "{direction:?} {name}: {ended:#?}"
            );
        }
        assert!(ended.err.contains(" 2 failed"), "{direction:?}: {ended:#?}");
        view.close();
        for name in ["victim", "little victim"] {
            fs::remove_file(fixture.path("data").join(name)).unwrap();
        }
        assert_alike(&fixture.path("data"), &into.join("view"));
        assert_no_strays(&into);
    }
}

/// Regression: the file had bytes of both jobs, and both ended with status 0.
#[test]
fn two_jobs_do_not_write_one_file_in_place() {
    let fixture = Fixture::new();
    for (name, len) in [("one/file", 3 << 20), ("two/file", 3 << 20), ("two/other", 100)] {
        fixture.file(name, len);
    }
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let common = ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--inplace"];
    let slowly = [&common[..], &["--rate=1M", "one/", "localhost:in"]].concat();
    let first = fixture.haul(&slowly).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let file = fixture.path("there/in/file");
    wait_until("the file", || fs::metadata(&file).is_ok_and(|facts| facts.len() > 0));
    // The receiver of a stopped sender keeps the file.
    let pid = Pid::from_child(&first);
    kill_process(pid, Signal::STOP).unwrap();
    let second = fixture.run(&[&common[..], &["two/", "localhost:in"]].concat());
    kill_process(pid, Signal::CONT).unwrap();
    assert_ended(&second, 1);
    assert!(
        second.err.contains("file: busy: cannot create: another job writes this file in place"),
        "{second:#?}"
    );
    assert!(first.wait_with_output().unwrap().status.success());
    assert!(fs::read(&file).unwrap() == fs::read(fixture.path("one/file")).unwrap());
    assert_eq!(fs::metadata(fixture.path("there/in/other")).unwrap().len(), 100);
    // After the end of the first job, the second may replace the file.
    assert_ended(&fixture.run(&[&common[..], &["two/", "localhost:in"]].concat()), 0);
    assert!(fs::read(&file).unwrap() == fs::read(fixture.path("two/file")).unwrap());
}

/// In earlier versions the second of two names that differ only in case replaced the first. Haul
/// reported both files as arrived.
#[test]
fn names_differing_only_in_case_are_refused_by_a_folding_sink() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (at, options) in [&[][..], &["--inplace"], &["--verify=reread"]].into_iter().enumerate() {
        let fixture = Fixture::new();
        for (name, len) in
            [("data/read", 100), ("data/READ", 200), ("data/Dir/x", 300), ("data/dir/x", 400), ("data/z", 9)]
        {
            fixture.file(name, len);
        }
        std::os::unix::fs::symlink("z", fixture.path("data/Z")).unwrap();
        for name in ["store", "view"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        let folding = "* name .. fold".parse().unwrap();
        let view = FaultFs::mount(&fixture.path("store"), &fixture.path("view"), folding).unwrap();
        let into = fixture.path("view/in");
        for run in 0..2 {
            let ended = transfer(
                &fixture,
                [Direction::Send, Direction::Fetch][at % 2],
                options,
                &fixture.path("data"),
                &into,
            );
            assert_ended(&ended, 1);
            // One name of each pair arrives; haul refuses the other by its name.
            for (one, other) in [("read", "READ"), ("Dir/x", "dir/x"), ("z", "Z")] {
                let refused = [one, other].map(|name| ended.err.contains(&format!("data/{name}: ")));
                assert!(refused[0] != refused[1], "{options:?}, run {run}, {one}: {ended:#?}");
                let arrived = if refused[0] { other } else { one };
                let [there, here] = ["store/in/data", "data"].map(|dir| fixture.path(dir).join(arrived));
                let target = fs::read_link(&here).ok();
                assert_eq!(fs::read_link(&there).ok(), target, "{options:?}, run {run}");
                assert!(target.is_some() || fs::read(there).unwrap() == fs::read(here).unwrap(), "run {run}");
            }
            assert!(ended.err.contains("differs only in case"), "{ended:#?}");
        }
        view.close();
        assert_no_strays(&fixture.path("store"));
    }
}

/// vfat and exFAT drop the dots at the end of a name. In earlier versions `name` replaced `name.`,
/// which haul had already reported as arrived.
#[test]
fn names_with_trailing_dots_are_refused_by_a_dot_stripping_sink() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (at, options) in [&[][..], &["--inplace"], &["--verify=reread"]].into_iter().enumerate() {
        let fixture = Fixture::new();
        let dotted = ["data/a.", "data/only..", "data/1.", "data/d./x"];
        let plain = ["data/a", "data/1", "data/d/x", "data/.dot"];
        for (len, name) in dotted.iter().chain(&plain).enumerate() {
            fixture.file(name, 100 + len);
        }
        std::os::unix::fs::symlink("a", fixture.path("data/link.")).unwrap();
        for name in ["store", "view"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        let trimming = "* name .. fold\n* name .. trim".parse().unwrap();
        let view = FaultFs::mount(&fixture.path("store"), &fixture.path("view"), trimming).unwrap();
        let into = fixture.path("view/in");
        for run in 0..2 {
            let ended = transfer(
                &fixture,
                [Direction::Send, Direction::Fetch][at % 2],
                options,
                &fixture.path("data"),
                &into,
            );
            assert_ended(&ended, 1);
            for name in dotted.iter().chain(&["data/link.", "data/d."]) {
                let line = ended.err.lines().find(|line| line.contains(&format!("{name}: ")));
                let is_told = line.is_some_and(|line| line.contains("drops dots"));
                assert!(is_told, "{options:?}, run {run}, {name}: {ended:#?}");
            }
            let mut stands = Vec::new();
            for name in ["", "d"] {
                let list = fs::read_dir(fixture.path("store/in/data").join(name)).unwrap();
                stands.extend(list.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
            }
            stands.sort();
            assert_eq!(stands, [".dot", "1", "a", "d", "x"], "{options:?}, run {run}");
            for name in plain {
                assert!(
                    fs::read(fixture.path("store/in").join(name)).unwrap()
                        == fs::read(fixture.path(name)).unwrap()
                );
            }
        }
        view.close();
        assert_no_strays(&fixture.path("store"));
    }
}
