//! `cp -a` of a tree from one storage in memory to another, of which each call fails once.

use crate::bed::{Told, archive, onto, run};
use haul_coreutils::cp::{CopySettings, Place};
use haul_engine::copy::{Moving, Verify, Workers};
use haul_lab::random::noise;
use haul_model::ObjectSize;
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Dir, FileKind, Follow, Inode, Missing, Name, Node, Stat, Times, Timespec};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Size of an object, in bytes. One file of the tree has several.
const OBJECT: u64 = 64 << 10;

fn n(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// Sets both times to `sec` seconds after 1970.
fn set_times(inode: &dyn Inode, sec: i64) {
    let time = Some(Timespec { sec, nsec: 5 });
    inode.set_times(Times { atime: time, mtime: time }).unwrap();
}

fn write(dir: &dyn Dir, name: &str, bytes: &[u8], mode: u32, sec: i64) {
    let file = dir.sink(&n(name), Create::New { mode: 0o600 }).unwrap();
    file.write_at(0, bytes).unwrap();
    file.set_owner(Some(1000), Some(1001)).unwrap();
    file.set_attribute(c"user.note", name.as_bytes()).unwrap();
    file.set_mode(mode).unwrap();
    set_times(&*file, sec);
}

/// Creates the tree `tree`: files of each size, a hole, names of one file, links, a pipe and
/// directories with modes of their own.
fn plant(storage: &MemoryStorage) {
    let made = |dir: &dyn Dir, name| dir.dir(&n(name), Follow::No, Missing::Create { mode: 0o755 }).unwrap();
    let tree = made(&*storage.root(), "tree");
    let deep = made(&*made(&*tree, "d"), "e");
    write(&*tree, "empty", b"", 0o644, 1001);
    write(&*tree, "small", b"a few bytes", 0o4755, 1002);
    write(&*deep, "read-only", &noise(5000, 1), 0o400, 1003);
    write(&*tree, "large", &noise(3 * OBJECT + 777, 2), 0o640, 1004);
    let sparse = tree.sink(&n("sparse"), Create::New { mode: 0o600 }).unwrap();
    sparse.write_at(2 * OBJECT, &noise(100, 3)).unwrap();
    set_times(&*sparse, 1005);
    tree.link(&n("small"), Follow::No, &*deep, &n("other-name")).unwrap();
    tree.make(&n("link"), &Node::Link { target: b"d/e/nowhere" }).unwrap();
    set_times(&*tree.hold(&n("link")).unwrap(), 1006);
    tree.make(&n("pipe"), &Node::Special { kind: FileKind::Fifo, mode: 0o620, rdev: 0 }).unwrap();
    set_times(&*tree.hold(&n("pipe")).unwrap(), 1007);
    for (dir, mode, sec) in [(&deep, 0o500, 1008), (&tree, 0o2750, 1009)] {
        dir.set_owner(Some(1002), Some(1003)).unwrap();
        dir.set_mode(mode).unwrap();
        set_times(&**dir, sec);
    }
}

/// Entry of a tree, without the properties that a copy cannot have in common with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    mtime: Timespec,
    bytes: Vec<u8>,
    attributes: Vec<Vec<u8>>,
    /// First path of the same inode.
    same_as: String,
}

type Tree = BTreeMap<String, Found>;

fn look(dir: &dyn Dir, above: &str, seen: &mut BTreeMap<u64, String>, tree: &mut Tree) {
    let mut entries = Vec::new();
    let mut listing = dir.list().unwrap();
    while listing.next(100, &mut entries).unwrap() {}
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let path = format!("{above}/{}", String::from_utf8_lossy(entry.name.as_bytes()));
        let held = dir.hold(&entry.name).unwrap();
        let Stat { kind, mode, uid, gid, mtime, ino, .. } = held.stat().unwrap();
        let bytes = match kind {
            FileKind::Symlink => held.read_link().unwrap(),
            FileKind::Regular => dir.source(&entry.name, Follow::No).unwrap().read_all(1 << 20).unwrap(),
            _ => Vec::new(),
        };
        let mut attributes = held.attributes().unwrap();
        attributes.sort();
        let attributes =
            attributes.iter().map(|name| held.attribute(name).unwrap().unwrap_or_default()).collect();
        let same_as = seen.entry(ino).or_insert_with(|| path.clone()).clone();
        let found = Found { kind, mode, owner: (uid, gid), mtime, bytes, attributes, same_as };
        tree.insert(path.clone(), found);
        if kind == FileKind::Directory {
            look(&*dir.dir(&entry.name, Follow::No, Missing::Fail).unwrap(), &path, seen, tree);
        }
    }
}

/// Returns all entries beneath the root of a storage.
fn tree_of(storage: &MemoryStorage) -> Tree {
    let mut tree = Tree::new();
    look(&*storage.root(), "", &mut BTreeMap::new(), &mut tree);
    tree
}

/// State of the sink before a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A directory with other entries under some of the names.
    Other,
}

struct Case {
    name: &'static str,
    settings: fn(CopySettings) -> CopySettings,
    before: Before,
}

const CASES: [Case; 7] = [
    Case { name: "-a", settings: |settings| settings, before: Before::Nothing },
    Case { name: "-a over others", settings: |settings| settings, before: Before::Other },
    Case {
        name: "-a --verify",
        settings: |mut settings| {
            settings.moving.verify = Verify::ReadBack;
            settings
        },
        before: Before::Nothing,
    },
    Case {
        name: "-a --verify=reread",
        settings: |mut settings| {
            settings.moving.verify = Verify::Reread;
            settings
        },
        before: Before::Other,
    },
    Case {
        name: "-a --verify=reread by two workers",
        settings: |mut settings| {
            settings.moving.verify = Verify::Reread;
            settings.moving.workers = Workers::exactly(2);
            settings
        },
        before: Before::Nothing,
    },
    Case {
        name: "-a --preserve=all",
        settings: |mut settings| {
            settings.rules.preserve.require_xattr = true;
            settings.rules.preserve.reduce_diagnostics = false;
            settings
        },
        before: Before::Nothing,
    },
    Case {
        name: "-a --fsync --remove-destination",
        settings: |mut settings| {
            settings.moving.sync_each = true;
            settings.rules.remove_destination = true;
            settings
        },
        before: Before::Other,
    },
];

/// Returns the two storages before a copy.
fn storages(before: Before) -> [MemoryStorage; 2] {
    let [from, to] = [1, 2].map(MemoryStorage::new);
    plant(&from);
    if before == Before::Other {
        let tree = to.root().dir(&n("tree"), Follow::No, Missing::Create { mode: 0o700 }).unwrap();
        write(&*tree, "large", &noise(4 * OBJECT, 9), 0o606, 77);
        write(&*tree, "link", b"not a link", 0o600, 78);
        tree.dir(&n("d"), Follow::No, Missing::Create { mode: 0o711 }).unwrap();
    }
    [from, to]
}

fn copied(case: &Case, [from, to]: &[MemoryStorage; 2]) -> Told {
    let moving = Moving { object: ObjectSize::new(OBJECT).unwrap(), ..Moving::with(Workers::exactly(1)) };
    let settings = (case.settings)(onto(Path::new("tree"), Path::new("tree"), archive(), &moving));
    let [source, place] = [from, to].map(|storage| Some(Place::within(storage.root())));
    run(&CopySettings { source, place, ..settings })
}

/// Returns the trees without what GNU's `-a` does not report if it cannot be preserved.
fn without_attributes(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    tree.values_mut().for_each(|found| found.attributes.clear());
    tree
}

/// Checks what a copy left. One that reports no failure and no warning is complete. A file that
/// looks finished has the bytes of its source in any case.
fn check(report: &Told, expected: &Tree, to: &MemoryStorage, attributes: bool, what: &str) {
    let found = tree_of(to);
    if report.failed.is_empty() && report.warned.is_empty() {
        assert_eq!(report.outcome.failures, 0, "{what}: failures without a message");
        let shown = |tree: &Tree| if attributes { tree.clone() } else { without_attributes(tree) };
        let (found, expected) = (shown(&found), shown(expected));
        for (path, entry) in &expected {
            assert!(found.get(path) == Some(entry), "{what}: {path} differs without a message: {report:?}");
        }
        assert_eq!(found.len(), expected.len(), "{what}: {:?}", found.keys());
        return;
    }
    for (path, source) in expected.iter().filter(|(_, source)| source.kind == FileKind::Regular) {
        if let Some(sink) = found.get(path).filter(|sink| sink.kind == FileKind::Regular) {
            let looks_finished = (sink.bytes.len(), sink.mtime) == (source.bytes.len(), source.mtime);
            assert!(!looks_finished || sink.bytes == source.bytes, "{what}: {path} looks finished");
        }
    }
}

#[test]
fn no_failed_call_of_a_copied_tree_is_silent() {
    let (mut copies, mut reported) = (0, 0);
    for case in &CASES {
        let storages_of = || storages(case.before);
        let whole = storages_of();
        let expected = tree_of(&whole[0]);
        let before = Call::ALL.map(|call| whole.each_ref().map(|storage| storage.count(call)));
        let report = copied(case, &whole);
        report.is_fine();
        let after = Call::ALL.map(|call| whole.each_ref().map(|storage| storage.count(call)));
        check(&report, &expected, &whole[1], true, case.name);
        for ((call, before), after) in Call::ALL.into_iter().zip(before).zip(after) {
            for end in 0..2 {
                for nth in 1..=after[end] - before[end] {
                    for errno in [EIO, ENOSPC] {
                        let storages = storages_of();
                        storages[end].fail(call, nth, errno);
                        let report = copied(case, &storages);
                        let side = ["source", "sink"][end];
                        let what = format!("{}: {side}: {call:?} {nth}: {errno}", case.name);
                        let attributes = !matches!(call, Call::Attribute | Call::SetAttribute);
                        check(&report, &expected, &storages[1], attributes, &what);
                        copies += 1;
                        reported += usize::from(!(report.failed.is_empty() && report.warned.is_empty()));
                    }
                }
            }
        }
    }
    // The others are retried, or are of attributes that `-a` need not preserve.
    assert!(copies > 1000 && reported * 2 > copies, "{reported} of {copies}");
}

/// Regression: the workers waited for each sync of `--verify=reread`. The first syncs of the sink
/// wait here until more files were created than two workers hold.
#[test]
fn workers_copy_while_the_sink_syncs() {
    const FILES: u64 = 400;
    let [from, to] = [1, 2].map(MemoryStorage::new);
    let many = from.root().dir(&n("many"), Follow::No, Missing::Create { mode: 0o755 }).unwrap();
    (0..FILES).for_each(|number| write(&*many, &format!("{number:03}"), b"bytes", 0o644, 1001));
    let (created, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let is_late = Arc::clone(&late);
    to.observe(move |call, _| match call {
        Call::OpenSink => _ = created.fetch_add(1, Ordering::Relaxed),
        Call::SyncDevice | Call::WriteBack | Call::Flush => {
            let begin = Instant::now();
            while created.load(Ordering::Relaxed) <= 2 * 64 && !is_late.load(Ordering::Relaxed) {
                if begin.elapsed() > Duration::from_secs(10) {
                    return is_late.store(true, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        _ => {}
    });
    let moving = Moving { verify: Verify::Reread, ..Moving::with(Workers::exactly(2)) };
    let settings = onto(Path::new("many"), Path::new("many"), archive(), &moving);
    let [source, place] = [&from, &to].map(|storage| Some(Place::within(storage.root())));
    run(&CopySettings { source, place, ..settings }).is_fine();
    assert!(!late.load(Ordering::Relaxed), "the workers wait for the sink");
    assert_eq!(tree_of(&to), tree_of(&from));
}

/// Regression: workers spread over the open files in turn, and all but one of them waited for a
/// device that stalled. Four workers open three files of the slow device and one of the other. Each
/// write to the slow device waits here until two workers write to the other at the same time.
#[test]
fn a_device_that_stalls_leaves_half_of_the_workers_to_another_one() {
    const WAIT_MAX: Duration = Duration::from_secs(10);
    let [from, to, slow] = [1, 2, 3].map(MemoryStorage::new);
    let made = |dir: &dyn Dir, name| dir.dir(&n(name), Follow::No, Missing::Create { mode: 0o755 }).unwrap();
    let tree = made(&*from.root(), "tree");
    write(&*made(&*tree, "fast"), "file", &noise(64 * OBJECT, 1), 0o644, 1001);
    let stalling = made(&*tree, "slow");
    for name in ["1", "2", "3"] {
        write(&*made(&*stalling, name), "file", &noise(4 * OBJECT, 2), 0o644, 1002);
    }
    to.mount(&*made(&*made(&*to.root(), "tree"), "slow"), &slow).unwrap();
    let (late, together) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_late, is_together, fast) = (Arc::clone(&late), Arc::clone(&together), to.clone());
    let before = to.count(Call::Write);
    slow.observe(move |call, _| {
        let may_go_on = || match call {
            // The other device has an open file before the slow one has three.
            Call::OpenSink => fast.count(Call::Write) > before,
            Call::Write => is_together.load(Ordering::SeqCst),
            _ => true,
        };
        let begin = Instant::now();
        while !may_go_on() && !is_late.load(Ordering::SeqCst) {
            is_late.store(begin.elapsed() > WAIT_MAX, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
    });
    let writers = AtomicU64::new(0);
    let is_together = Arc::clone(&together);
    to.observe(move |call, _| {
        if call == Call::Write && !is_together.load(Ordering::SeqCst) {
            is_together.fetch_or(writers.fetch_add(1, Ordering::SeqCst) > 0, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(30));
            writers.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let object = ObjectSize::new(OBJECT).unwrap();
    let moving = Moving { object, ..Moving::with(Workers::exactly(4)) };
    let settings = onto(Path::new("tree"), Path::new("tree"), archive(), &moving);
    let [source, place] = [&from, &to].map(|storage| Some(Place::within(storage.root())));
    run(&CopySettings { source, place, ..settings }).is_fine();
    assert!(!late.load(Ordering::SeqCst), "the workers wait for the slow device");
}
