//! Transfers from a storage in memory, of which each call fails once, to another one.

use super::memory_faults::contents;
use super::pair::{Pair, Told, keep_all};
use super::small_objects;
use haul_digest::Algorithm;
use haul_model::{Level, RelPath};
use haul_proto::{JobOptions, Verify};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Dir, FileKind, Follow, Inode, Missing, Name, Node, Stat, Times, Timespec};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

const EIO: i32 = 5;

/// Number of bytes of an object.
const OBJECT: u64 = 64 << 10;

/// An entry, as far as a transfer preserves it.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    mtime: Timespec,
    nlink: u64,
    attributes: Vec<(CString, Option<Vec<u8>>)>,
    /// Bytes of a file, or target of a link.
    contents: Option<Vec<u8>>,
}

fn n(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// Sets metadata that differs from that of a new entry. `number` is the number of the entry.
fn set_metadata(inode: &dyn Inode, number: u32) {
    inode.set_owner(Some(1000 + number), Some(2000 + number)).unwrap();
    let kind = inode.stat().unwrap().kind;
    if kind != FileKind::Symlink {
        inode.set_mode(0o700 + number).unwrap();
    }
    if matches!(kind, FileKind::Regular | FileKind::Directory) {
        inode.set_attribute(c"user.number", number.to_string().as_bytes()).unwrap();
    }
    let time = Some(Timespec { sec: 1_000_000_000 + i64::from(number), nsec: 7 });
    inode.set_times(Times { atime: time, mtime: time }).unwrap();
}

/// Creates a tree: files of one and of several objects, one with holes, an empty file and an empty
/// directory, a pipe, a link, and an additional name.
fn planted() -> MemoryStorage {
    let storage = MemoryStorage::new(1);
    let make = Missing::Create { mode: 0o755 };
    let top = storage.root().dir(&n("top"), Follow::No, make).unwrap();
    let [sub, bare] = ["sub", "bare"].map(|name| top.dir(&n(name), Follow::No, make).unwrap());
    let bytes = |len: usize| (0..len).map(|at| ((at * 7) >> 4) as u8 | 1).collect::<Vec<u8>>();
    let write = |dir: &Arc<dyn Dir>, name: &str, at: u64, bytes: &[u8]| {
        let sink = dir.sink(&n(name), Create::InPlace { missing: make, follow: Follow::No }).unwrap();
        sink.write_at(at, bytes).unwrap();
        sink
    };
    write(&top, "one", 0, &bytes(5000));
    write(&top, "several", 0, &bytes(200_000));
    write(&sub, "empty", 0, &[]);
    write(&sub, "holes", 2 * OBJECT, &bytes(70_000));
    write(&sub, "holes", 5 * OBJECT, &bytes(100)).set_len(7 * OBJECT + 1).unwrap();
    top.link(&n("one"), Follow::No, &*sub, &n("second")).unwrap();
    top.make(&n("link"), &Node::Link { target: b"one" }).unwrap();
    top.make(&n("pipe"), &Node::Special { kind: FileKind::Fifo, mode: 0o600, rdev: 0 }).unwrap();
    let held = ["one", "several", "link", "pipe"].map(|name| top.hold(&n(name)).unwrap());
    let held = held.into_iter().chain(["empty", "holes"].map(|name| sub.hold(&n(name)).unwrap()));
    for (inode, number) in held.zip(1..) {
        set_metadata(&*inode, number);
    }
    for (dir, number) in [bare, sub, top].into_iter().zip(10..) {
        set_metadata(&*dir, number);
    }
    storage
}

/// Returns everything beneath the root, by path.
fn tree(storage: &MemoryStorage) -> BTreeMap<String, Kept> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(String::new(), storage.root())];
    while let Some((path, dir)) = dirs.pop() {
        let mut entries = Vec::new();
        let mut listing = dir.list().unwrap();
        while listing.next(64, &mut entries).unwrap() {}
        for entry in entries {
            let path = format!("{path}{}", entry.name);
            let inode = dir.hold(&entry.name).unwrap();
            let Stat { kind, mode, uid, gid, mtime, nlink, .. } = inode.stat().unwrap();
            let mut attributes: Vec<_> = inode.attributes().unwrap();
            attributes.sort();
            if kind == FileKind::Directory {
                let below = dir.dir(&entry.name, Follow::No, Missing::Fail).unwrap();
                dirs.push((format!("{path}/"), below));
            }
            let kept = Kept {
                kind,
                mode,
                owner: (uid, gid),
                mtime,
                nlink,
                attributes: attributes
                    .into_iter()
                    .map(|name| (name.clone(), inode.attribute(&name).unwrap()))
                    .collect(),
                contents: inode.read_link().ok().or_else(|| contents(storage, &path)),
            };
            found.insert(path, kept);
        }
    }
    found
}

/// Options under which the calls are enumerated.
fn cases() -> Vec<(&'static str, JobOptions)> {
    let options = JobOptions { keep: keep_all(), ..small_objects() };
    vec![
        ("verified", options.clone()),
        ("not verified", JobOptions { verify: Verify::None, settle: Level::Received, ..options.clone() }),
        ("re-read", JobOptions { verify: Verify::Reread, settle: Level::Reread, ..options.clone() }),
        ("hashed in lanes", JobOptions { algorithm: Algorithm::Md5, ..options }),
    ]
}

/// Checks what a session left: everything, or complete files and a failure that both ends report.
fn check(ended: &Told, sink: &MemoryStorage, expected: &BTreeMap<String, Kept>, case: &str) {
    let found = tree(sink);
    if ended.is_whole() {
        assert!(found == *expected, "{case}: {found:#?}");
        return;
    }
    assert!(ended.failed_to_begin() || ended.both_know_of_a_failure(), "{case}: {ended}");
    for (path, kept) in found.iter().filter(|(_, kept)| kept.kind == FileKind::Regular) {
        assert!(kept.contents == expected[path].contents, "{case}: {path} is torn");
    }
    for (path, _) in ended.arrived() {
        let path = String::from_utf8(path).unwrap();
        assert!(
            found.get(&path).map(|kept| &kept.contents) == Some(&expected[&path].contents),
            "{case}: {path}"
        );
    }
}

#[test]
fn no_failed_call_of_the_source_loses_or_falsifies_an_entry() {
    let pair = Pair::new();
    let expected = tree(&planted());
    assert_eq!(expected.len(), 10);
    let mut sessions = 0;
    for (case, options) in cases() {
        let (source, sink) = (planted(), MemoryStorage::new(2));
        let before = Call::ALL.map(|call| source.count(call));
        let ended = pair.send_between("top", &options, [&source, &sink]);
        ended.is_fine();
        check(&ended, &sink, &expected, case);
        let counts = Call::ALL.map(|call| source.count(call));
        let holes = sink.root().source_beneath(&RelPath::new(b"top/sub/holes").unwrap()).unwrap();
        assert!(holes.opened().is_sparse(), "{case}");
        for (call, (before, after)) in Call::ALL.into_iter().zip(before.into_iter().zip(counts)) {
            let (mut reported, count) = (0, after - before);
            for nth in 1..=count {
                let (source, sink) = (planted(), MemoryStorage::new(2));
                source.fail(call, nth, EIO);
                let ended = pair.send_between("top", &options, [&source, &sink]);
                // A fault that this order of the calls did not meet must not fail the check.
                check(&ended, &sink, &expected, &format!("{case}, {call:?} {nth} of {count} fails"));
                reported += u32::from(!ended.is_whole());
                sessions += 1;
            }
            // The bytes of a file whose holes are unknown are read.
            assert!(count == 0 || reported > 0 || call == Call::NextData, "{case}: {call:?}");
        }
    }
    assert!(sessions > 200, "the source makes calls of the storage: {sessions}");
}
