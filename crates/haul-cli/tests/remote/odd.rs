//! File systems with unusual properties, as source and as sink of each command that copies. Every
//! file arrives with its bytes and status 0, and a second run changes nothing.

use super::{Fixture, RunResult, bytes};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Name and rules of each file system.
const ODD: [(&str, &str); 8] = [
    ("names decomposed", "* name .. decompose"),
    ("names decomposed, case ignored", "* name .. decompose\n* name .. fold"),
    ("trailing dots dropped, case ignored", "* name .. fold\n* name .. trim"),
    ("whole seconds", "* stat .. coarse 1000"),
    ("two seconds", "* stat .. coarse 2000"),
    ("inode numbers change with each listing", "* list .. renumber"),
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

#[test]
fn every_command_copies_from_and_to_odd_file_systems() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let mut wrong = Vec::new();
    for (name, rules) in ODD {
        for command in ["cp", "send", "fetch", "mv"] {
            for is_sink in [true, false] {
                let fixture = Fixture::new();
                let store = tempfile::tempdir().unwrap();
                fs::create_dir(fixture.path("view")).unwrap();
                fs::create_dir(fixture.path("plain")).unwrap();
                let view = fixture.path("view");
                let faults = FaultFs::mount(store.path(), &view, rules.parse().unwrap()).unwrap();
                let (from, to) = if is_sink { ("plain", "view") } else { ("view", "plain") };
                build(&fixture.path(&format!("{from}/tree")));
                let expected = contents(&fixture.path(&format!("{from}/tree")));
                let runs = if command == "mv" { 1 } else { 2 };
                for number in 0..runs {
                    let ended = run(&fixture, command, &format!("{from}/tree"), to);
                    let tree = fixture.path(&format!("{to}/tree"));
                    let arrived = tree.exists().then(|| contents(&tree));
                    if ended.status != Some(0) || arrived.as_ref() != Some(&expected) {
                        let names = arrived.map(|files| files.into_keys().collect::<Vec<_>>());
                        wrong.push(format!("{command} {from} {name}, run {number}: {ended:#?} {names:?}"));
                        break;
                    }
                }
                faults.close();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
