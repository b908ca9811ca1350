//! Sinks and sources that cause errors: a sink that is full, read-only, treats two names as one, or
//! stores a changed name, and a source that changes.
//!
//! The side that started the job names each failed file, and the other files arrive.

use super::stopped::{far_sides, wait_until};
use super::{Bed, Ended, assert_alike, assert_ended, assert_no_strays};
use haul_lab::faults::FaultFs;
use haul_lab::mounts::{Access, Mounted};
use haul_lab::needs::{Need, met_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

/// Direction of a job, seen from the side that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Send,
    Fetch,
}

pub(super) const WAYS: [Way; 2] = [Way::Send, Way::Fetch];

/// Transfers `data` into the directory `into`; `way` selects which of them is remote.
pub(super) fn bring(bed: &Bed, way: Way, options: &[&str], data: &Path, into: &Path) -> Ended {
    let [data, into] = [data, into].map(|path| path.to_str().unwrap().to_owned());
    match way {
        Way::Send => bed.over_ssh("send", &[options, &[&data, &format!("localhost:{into}")]].concat()),
        Way::Fetch => bed.over_ssh("fetch", &[options, &[&format!("localhost:{data}"), &into]].concat()),
    }
}

/// Creates sixteen files of 1 MiB plus 0 to 15 bytes.
fn mebibytes(bed: &Bed) {
    (0..16).for_each(|number| bed.file(&format!("data/f{number}"), MIB + number));
}

/// Earlier versions of fetch printed the number of failed files, but not their names.
#[test]
fn a_sink_that_is_full_names_each_file_it_lacks_and_is_filled_once_there_is_room() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for way in WAYS {
        let bed = Bed::new();
        mebibytes(&bed);
        let small = Mounted::tmpfs(8).unwrap();
        let (data, into) = (bed.path("data"), small.path().join("in"));
        let ended = bring(&bed, way, &["--object-size=64K"], &data, &into);
        assert_ended(&ended, 1);
        let mut lacking = 0;
        for number in 0..16 {
            let (name, path) = (format!("f{number}"), into.join(format!("data/f{number}")));
            let told = ended.err.lines().filter(|line| line.contains(&format!("{name}: ")));
            match told.count() {
                0 => assert!(fs::read(&path).unwrap() == fs::read(data.join(&name)).unwrap(), "{name}"),
                1 => {
                    assert!(!path.exists(), "{name}");
                    lacking += 1;
                }
                many => panic!("{name} is reported {many} times: {ended:#?}"),
            }
        }
        assert!((9..=16).contains(&lacking), "{way:?}: {lacking} of 16 files lack: {ended:#?}");
        assert!(
            ended.err.contains("no space left") && ended.err.contains(&format!("{lacking} failed")),
            "{ended:#?}"
        );
        if way == Way::Fetch {
            // A fetch reports each incomplete file that it keeps for the next run by name.
            let kept = fs::read_dir(into.join("data")).unwrap().map(|entry| entry.unwrap().file_name());
            let kept = kept.filter_map(|name| {
                Some(name.into_string().unwrap()).filter(|name| name.starts_with(".haul-"))
            });
            let lines = ended.err.lines().filter(|line| line.contains("or remove its partial data"));
            let reported: Vec<&str> = lines.collect();
            let kept: Vec<String> = kept.collect();
            assert!(
                kept.iter().all(|name| reported.iter().any(|line| line.contains(name))),
                "{kept:?}: {ended:#?}"
            );
            assert_eq!(kept.len(), reported.len(), "{kept:?}: {ended:#?}");
        }
        let roomy =
            Command::new("mount").args(["-o", "remount,size=64m"]).arg(small.path()).status().unwrap();
        assert!(roomy.success());
        assert_ended(&bring(&bed, way, &["--object-size=64K"], &data, &into), 0);
        assert_alike(&data, &into.join("data"));
        assert_no_strays(&into);
        small.close().unwrap();
    }
}

#[test]
fn a_sink_that_is_read_only_says_so_and_stays_as_it_is() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    for way in WAYS {
        let bed = Bed::new();
        bed.tree("data");
        bed.file("store/data/small", 7);
        let locked = Mounted::bind(&bed.path("store"), Access::ReadOnly).unwrap();
        let ended = bring(&bed, way, &[], &bed.path("data"), &locked.path());
        assert_ended(&ended, 1);
        for name in ["data/big: ", "data/one: ", "data/small: ", "data/empty: ", "data/sub/x"] {
            let line = ended.err.lines().find(|line| line.contains(name));
            assert!(line.is_some_and(|line| line.contains("read-only")), "{way:?} {name}: {ended:#?}");
        }
        locked.close().unwrap();
        assert_eq!(fs::read_dir(bed.path("store/data")).unwrap().count(), 1);
        assert_eq!(fs::metadata(bed.path("store/data/small")).unwrap().len(), 7);
    }
}

/// Starts a job that takes seconds and stops the reading process when the sink has some bytes. Then
/// changes the source file `victim` and lets the job continue.
///
/// Returns `None` if the process had read the complete file before the change.
fn changed_midway(bed: &Bed, way: Way, change: Change) -> Option<Ended> {
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let haul = env!("CARGO_BIN_EXE_haul");
    // Over ssh the sending side enforces the rate.
    let common = ["-e", &ssh, "--remote-haul", haul, "--object-size=64K", "--streams=1"];
    let (command, operands) = match way {
        Way::Send => ("send", ["--rate=1M", "data", "localhost:in"]),
        Way::Fetch => ("fetch", ["--rate=1M", "localhost:data", "in"]),
    };
    let (source, sink) = match way {
        Way::Send => ("data", "there/in/data"),
        Way::Fetch => ("there/data", "in/data"),
    };
    let args = [&[command][..], &common, &operands].concat();
    let child =
        bed.haul(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_there = || {
        let found = fs::read_dir(bed.path(sink)).into_iter().flatten().flatten();
        found.filter_map(|entry| entry.metadata().ok()).any(|facts| facts.len() > 0)
    };
    wait_until("some bytes", is_there);
    let reader = match way {
        Way::Send => Some(Pid::from_child(&child)),
        Way::Fetch => far_sides(&bed.path("there").canonicalize().unwrap()).first().copied(),
    };
    // A process that has exited has read the complete file.
    let is_halted = reader.is_some_and(|pid| kill_process(pid, Signal::STOP).is_ok());
    let victim = fs::File::options().write(true).open(bed.path(source).join("victim")).unwrap();
    change(&victim);
    let is_over = bed.path(sink).join("victim").exists();
    if let Some(pid) = reader.filter(|_| is_halted) {
        kill_process(pid, Signal::CONT).unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = Ended { status: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) };
    // The source had read the complete file, and its last bytes were in transit.
    let was_read = ended.status == Some(0);
    (is_halted && !is_over && !was_read).then_some(ended)
}

/// Modification of a source file during the transfer.
type Change = fn(&fs::File);

#[test]
fn a_source_file_that_changes_is_named_and_not_given_its_name() {
    named_and_not_given_its_name(|victim| victim.write_all_at(b"changed", 3).unwrap());
}

#[test]
fn a_source_file_that_grows_is_named_and_not_given_its_name() {
    named_and_not_given_its_name(|victim| victim.write_all_at(b"more", 4 * MIB as u64).unwrap());
}

#[test]
fn a_source_file_that_shrinks_is_named_and_not_given_its_name() {
    named_and_not_given_its_name(|victim| victim.set_len(3 * MIB as u64 + 5).unwrap());
}

#[test]
fn a_source_file_that_is_emptied_is_named_and_not_given_its_name() {
    named_and_not_given_its_name(|victim| victim.set_len(0).unwrap());
}

/// Asserts in both directions that a job names a changed file of 4 MiB and gives it no final name.
#[track_caller]
fn named_and_not_given_its_name(change: Change) {
    for way in WAYS {
        let (source, sink) = match way {
            Way::Send => ("data", "there/in/data"),
            Way::Fetch => ("there/data", "in/data"),
        };
        let tried = (0..5).find_map(|_| {
            let bed = Bed::new();
            bed.file(&format!("{source}/victim"), 4 * MIB);
            changed_midway(&bed, way, change).map(|ended| (bed, ended))
        });
        let (bed, ended) = tried.expect("one of five is halted in time");
        assert_ended(&ended, 1);
        let line = ended.err.lines().find(|line| line.contains("victim: "));
        assert!(line.is_some_and(|line| line.contains("changed")), "{way:?}: {ended:#?}");
        assert!(!bed.path(sink).join("victim").exists());
        // A rerun of the same command transfers the current contents.
        let again = match way {
            Way::Send => bed.over_ssh("send", &["data", "localhost:in"]),
            Way::Fetch => bed.over_ssh("fetch", &["localhost:data", "in"]),
        };
        assert_ended(&again, 0);
        assert_alike(&bed.path(source), &bed.path(sink));
        assert_no_strays(&bed.path(sink));
    }
}

/// If no byte of an object could be read, earlier versions still sent the end of the object. The
/// sink then ended the session, and no other file arrived.
#[test]
fn a_source_file_that_can_not_be_read_on_fails_alone_wherever_that_is() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    // Reads fail from the first byte of the file, from the first byte of an object, or from a byte
    // within an object. A small file fails, too.
    for (at, from) in [0, 65_536 * 7, 65_536 * 7 + 20_000].into_iter().enumerate() {
        let way = WAYS[at % 2];
        let bed = Bed::new();
        bed.tree("data");
        bed.file("data/victim", 20 * 65_536);
        bed.file("data/little victim", 5000);
        fs::create_dir(bed.path("view")).unwrap();
        let rules = format!("victim read {from}.. errno EIO\nlittle?victim read .. errno EIO");
        let view = FaultFs::mount(&bed.path("data"), &bed.path("view"), rules.parse().unwrap()).unwrap();
        let into = bed.path("in");
        let ended = bring(&bed, way, &["--object-size=64K"], &bed.path("view"), &into);
        assert_ended(&ended, 1);
        for name in ["view/victim: ", "view/little%20victim: "] {
            let line = ended.err.lines().find(|line| line.contains(name));
            assert!(
                line.is_some_and(|line| line.contains("input/output error")),
                "{way:?} {name}: {ended:#?}"
            );
        }
        assert!(ended.err.contains(" 2 failed"), "{way:?}: {ended:#?}");
        view.close();
        for name in ["victim", "little victim"] {
            fs::remove_file(bed.path("data").join(name)).unwrap();
        }
        assert_alike(&bed.path("data"), &into.join("view"));
        assert_no_strays(&into);
    }
}

/// In earlier versions the second of two names that differ only in case replaced the first. Haul
/// reported both files as arrived.
#[test]
fn names_that_a_sink_takes_for_the_same_are_refused_and_replace_nothing() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (at, options) in [&[][..], &["--inplace"], &["--verify=reread"]].into_iter().enumerate() {
        let bed = Bed::new();
        for (name, len) in
            [("data/read", 100), ("data/READ", 200), ("data/Dir/x", 300), ("data/dir/x", 400), ("data/z", 9)]
        {
            bed.file(name, len);
        }
        std::os::unix::fs::symlink("z", bed.path("data/Z")).unwrap();
        for name in ["store", "view"] {
            fs::create_dir(bed.path(name)).unwrap();
        }
        let folding = "* name .. fold".parse().unwrap();
        let view = FaultFs::mount(&bed.path("store"), &bed.path("view"), folding).unwrap();
        let into = bed.path("view/in");
        for run in 0..2 {
            let ended = bring(&bed, [Way::Send, Way::Fetch][at % 2], options, &bed.path("data"), &into);
            assert_ended(&ended, 1);
            // One name of each pair arrives; haul refuses the other by its name.
            for (one, other) in [("read", "READ"), ("Dir/x", "dir/x"), ("z", "Z")] {
                let refused = [one, other].map(|name| ended.err.contains(&format!("data/{name}: ")));
                assert!(refused[0] != refused[1], "{options:?}, run {run}, {one}: {ended:#?}");
                let arrived = if refused[0] { other } else { one };
                let [there, here] = ["store/in/data", "data"].map(|dir| bed.path(dir).join(arrived));
                let target = fs::read_link(&here).ok();
                assert_eq!(fs::read_link(&there).ok(), target, "{options:?}, run {run}");
                assert!(target.is_some() || fs::read(there).unwrap() == fs::read(here).unwrap(), "run {run}");
            }
            assert!(ended.err.contains("differs only in case"), "{ended:#?}");
        }
        view.close();
        assert_no_strays(&bed.path("store"));
    }
}

/// vfat and exFAT drop the dots at the end of a name. In earlier versions `name` replaced `name.`,
/// which haul had already reported as arrived.
#[test]
fn names_that_a_sink_would_keep_without_their_dots_are_refused_and_replace_nothing() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (at, options) in [&[][..], &["--inplace"], &["--verify=reread"]].into_iter().enumerate() {
        let bed = Bed::new();
        let dotted = ["data/a.", "data/only..", "data/1.", "data/d./x"];
        let plain = ["data/a", "data/1", "data/d/x", "data/.dot"];
        for (len, name) in dotted.iter().chain(&plain).enumerate() {
            bed.file(name, 100 + len);
        }
        std::os::unix::fs::symlink("a", bed.path("data/link.")).unwrap();
        for name in ["store", "view"] {
            fs::create_dir(bed.path(name)).unwrap();
        }
        let trimming = "* name .. fold\n* name .. trim".parse().unwrap();
        let view = FaultFs::mount(&bed.path("store"), &bed.path("view"), trimming).unwrap();
        let into = bed.path("view/in");
        for run in 0..2 {
            let ended = bring(&bed, [Way::Send, Way::Fetch][at % 2], options, &bed.path("data"), &into);
            assert_ended(&ended, 1);
            for name in dotted.iter().chain(&["data/link.", "data/d."]) {
                let line = ended.err.lines().find(|line| line.contains(&format!("{name}: ")));
                let is_told = line.is_some_and(|line| line.contains("drops dots"));
                assert!(is_told, "{options:?}, run {run}, {name}: {ended:#?}");
            }
            let mut stands = Vec::new();
            for name in ["", "d"] {
                let list = fs::read_dir(bed.path("store/in/data").join(name)).unwrap();
                stands.extend(list.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
            }
            stands.sort();
            assert_eq!(stands, [".dot", "1", "a", "d", "x"], "{options:?}, run {run}");
            for name in plain {
                assert!(
                    fs::read(bed.path("store/in").join(name)).unwrap() == fs::read(bed.path(name)).unwrap()
                );
            }
        }
        view.close();
        assert_no_strays(&bed.path("store"));
    }
}
