//! File systems with unusual properties, as source and as sink of each command that copies. Every
//! file arrives with its bytes and status 0, and a second run changes nothing.

use super::{Fixture, RunResult, bytes};
use crate::faults::fixture::Running;
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use haul_sys::metadata::{Place, get_xattr, set_xattr};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Name and rules of each file system.
const ODD: [(&str, &str); 9] = [
    ("names decomposed", "* name .. decompose"),
    ("names decomposed, case ignored", "* name .. decompose\n* name .. fold"),
    ("trailing dots dropped, case ignored", "* name .. fold\n* name .. trim"),
    ("whole seconds", "* stat .. coarse 1000"),
    ("two seconds", "* stat .. coarse 2000"),
    ("inode numbers change with each listing", "* list .. renumber"),
    ("false holes", "* seek .. hole"),
    ("no ftruncate beyond the end", "* extend .. errno EPERM"),
    ("no space is reserved", "* allocate .. errno ENOTSUP\n* seek .. errno ENOSYS"),
];

/// Files of the tree that is copied, with their lengths.
const FILES: [(&str, usize); 7] = [
    ("caf\u{e9}", 100),
    ("\u{c4}rger/na\u{ef}ve", 70_000),
    ("\u{c4}rger/plain", 65_536),
    ("empty", 0),
    ("large", 700_000),
    ("sub/x y", 5000),
    ("sub/UPPER", 10),
];

/// Returns the bytes of each file beneath a directory by its path in composed form.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            let composed = [("e\u{301}", "\u{e9}"), ("A\u{308}", "\u{c4}"), ("i\u{308}", "\u{ef}")];
            let name = composed.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
            assert!(found.insert(name, fs::read(&path).unwrap()).is_none(), "{}", path.display());
        }
    }
    found
}

fn build(root: &Path) {
    for (name, len) in FILES {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(len, len as u64 + 1)).unwrap();
    }
}

/// Runs a command that copies the directory `from` of the fixture to `to/tree`.
fn run(fixture: &Fixture, command: &str, from: &str, to: &str) -> RunResult {
    let (beneath, home) = (format!("{to}/tree"), fixture.path("").display().to_string());
    match command {
        "cp" => fixture.run(&["cp", "-aT", from, &beneath]),
        "mv" => fixture.run(&["mv", "-T", from, &beneath]),
        "send" => fixture.over_ssh("send", &["--delete", from, &format!("localhost:{home}{to}")]),
        _ => fixture.over_ssh("fetch", &["--delete", &format!("localhost:{home}{from}"), to]),
    }
}

/// Copies from or to a file system with these rules, `runs` times. Returns what is wrong.
fn copies(command: &str, is_sink: bool, (name, rules): (&str, &str), runs: u32) -> Result<(), String> {
    let fixture = Fixture::new();
    let store = tempfile::tempdir().unwrap();
    fs::create_dir(fixture.path("view")).unwrap();
    fs::create_dir(fixture.path("plain")).unwrap();
    let faults = FaultFs::mount(store.path(), &fixture.path("view"), rules.parse().unwrap()).unwrap();
    let (from, to) = if is_sink { ("plain", "view") } else { ("view", "plain") };
    build(&fixture.path(&format!("{from}/tree")));
    let expected = contents(&fixture.path(&format!("{from}/tree")));
    assert_eq!(
        expected.values().map(Vec::len).sum::<usize>(),
        FILES.iter().map(|(_, len)| len).sum::<usize>()
    );
    for number in 0..runs {
        let ended = run(&fixture, command, &format!("{from}/tree"), to);
        let tree = fixture.path(&format!("{to}/tree"));
        let arrived = tree.exists().then(|| contents(&tree));
        if ended.status != Some(0) || arrived.as_ref() != Some(&expected) {
            let names = arrived.map(|files| files.into_keys().collect::<Vec<_>>());
            return Err(format!("{command} {from} {name}, run {number}: {ended:#?} {names:?}"));
        }
    }
    faults.close();
    Ok(())
}

/// Returns what is wrong with the copies by commands, each with its number of runs, from and to
/// each of these file systems.
fn wrong_of(odd: &[(&str, &str)], commands: &[(&str, u32)]) -> Vec<String> {
    let each = odd.iter().flat_map(|odd| commands.iter().map(move |command| (*odd, *command)));
    let copied = each
        .flat_map(|(odd, (command, runs))| [true, false].map(|is_sink| copies(command, is_sink, odd, runs)));
    copied.filter_map(Result::err).collect()
}

#[test]
fn every_command_copies_from_and_to_odd_file_systems() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let wrong = wrong_of(&ODD, &[("cp", 2), ("send", 2), ("fetch", 2), ("mv", 1)]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `mv` keeps such a source: its length is not that of the copy.
#[test]
fn files_without_a_length_are_copied_from_and_to_their_file_system() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let odd = ("length 0 reported", "* stat .. empty");
    let wrong = wrong_of(&[odd], &[("cp", 2), ("send", 2), ("fetch", 2)]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file whose attribute does not fit fails, and nothing looks like a complete file of its name.
/// All others arrive, and a later run without the limit completes the job.
#[test]
fn attributes_that_do_not_fit_fail_their_file_alone() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (errno, command) in ["ENOSPC", "EDQUOT", "E2BIG", "ERANGE"]
        .map(|errno| ["send", "fetch"].map(|command| (errno, command)))
        .concat()
    {
        let fixture = Fixture::new();
        let store = tempfile::tempdir().unwrap();
        fs::create_dir(fixture.path("view")).unwrap();
        let rules = format!("* setxattr 1000.. errno {errno}");
        let faults = FaultFs::mount(store.path(), &fixture.path("view"), rules.parse().unwrap()).unwrap();
        let tree = fixture.path("plain/tree");
        build(&tree);
        let attribute = |path: &Path, len: usize| {
            let file = fs::File::open(path).unwrap();
            set_xattr(Place::file(&file), c"user.note", &vec![b'n'; len]).unwrap();
        };
        for (name, _) in FILES {
            attribute(&tree.join(name), 10);
        }
        for name in ["large", "empty"] {
            attribute(&tree.join(name), 1500);
        }
        let mut expected = contents(&tree);
        let all = expected.clone();
        let ended = run(&fixture, command, "plain/tree", "view");
        assert_eq!(ended.status, Some(1), "{errno} {command}: {ended:?}");
        for name in ["large", "empty"] {
            let said = |line: &str| {
                line.contains(&format!("tree/{name}: "))
                    && line.contains("cannot set the attribute user.note")
            };
            assert!(ended.err.lines().any(said), "{errno} {command}: {ended:?}");
            expected.remove(name);
        }
        let arrived = fixture.path("view/tree");
        assert!(contents(&arrived) == expected, "{errno} {command}: {:?}", contents(&arrived).into_keys());
        faults.set_rules("".parse().unwrap());
        let again = run(&fixture, command, "plain/tree", "view");
        assert_eq!(again.status, Some(0), "{errno} {command}: {again:?}");
        assert!(contents(&arrived) == all, "{errno} {command}");
        for (name, _) in FILES {
            let file = fs::File::open(store.path().join("tree").join(name)).unwrap();
            let len = if ["large", "empty"].contains(&name) { 1500 } else { 10 };
            let value = get_xattr(Place::file(&file), c"user.note").unwrap();
            assert_eq!(value.map(|value| value.len()), Some(len), "{errno} {command} {name}");
        }
        faults.close();
    }
}

/// Starts a fetch into `to` and kills it when its session lock exists.
fn kill_with_lock(fixture: &Fixture, args: &[&str], to: &Path) {
    let mut child = fixture.haul(args).stderr(Stdio::null()).spawn().unwrap();
    let is_lock = |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with("-begun");
    wait_until("the session lock", || fs::read_dir(to).unwrap().flatten().any(is_lock));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A lock that a killed session left is removed by its inode number. Where each lookup gives
/// another one, the next session works without a log, and says so. Regression: a signal did not end
/// the attempts to lock.
#[test]
fn a_session_lock_with_unstable_inode_numbers_ends_the_attempts() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::new();
    let store = tempfile::tempdir().unwrap();
    fs::create_dir(fixture.path("view")).unwrap();
    build(&fixture.path("plain/tree"));
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let source = format!("localhost:{}", fixture.path("plain/tree").display());
    let fetch = ["fetch", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), &source, "view"];
    let slow = [&fetch[..], &["--rate", "100K"]].concat();
    let faults = FaultFs::mount(store.path(), &fixture.path("view"), "".parse().unwrap()).unwrap();
    // Without a lock of an earlier session there is nothing to compare.
    faults.set_rules("* stat .. renumber".parse().unwrap());
    assert_eq!(fixture.run(&fetch).status, Some(0));
    fs::remove_dir_all(store.path().join("tree")).unwrap();

    faults.set_rules("".parse().unwrap());
    kill_with_lock(&fixture, &slow, store.path());
    faults.set_rules("*-begun stat .. renumber".parse().unwrap());
    let ended = fixture.run(&fetch);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let why = "reports another inode number for the same file each time; this job cannot be resumed";
    assert!(ended.err.contains(why), "{ended:?}");
    assert!(contents(&store.path().join("tree")) == contents(&fixture.path("plain/tree")));

    // All attempts would take longer than a test may.
    faults.set_rules("*-begun stat .. delay 2000\n*-begun stat .. renumber".parse().unwrap());
    let mut command = fixture.haul(&fetch);
    let running = Running::new(&mut command);
    wait_until("a lookup of the lock", || !faults.fired().is_empty());
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_ne!(ended.code, Some(0), "{ended:?}");

    faults.set_rules("".parse().unwrap());
    assert_eq!(fixture.run(&fetch).status, Some(0));
    assert!(contents(&store.path().join("tree")) == contents(&fixture.path("plain/tree")));
    faults.close();
}
