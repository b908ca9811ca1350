//! Verifications of a tree on a storage in memory, of which each call fails once: no entry is
//! intact that was not read, and no damage is overlooked.

use super::tests::{OBJECT, RecordingObserver, all_of, keep_by, leaf, object};
use super::*;
use haul_digest::{Algorithm, digest};
use haul_lab::random::noise;
use haul_log::waybill::{Content, Job, Moment, RelPath, Writer};
use haul_model::{ByteOffset, ByteRange};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Metadata, Missing, Name, Node, Times, Timespec};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;

/// Paths and lengths of the files, in the order of the waybill.
const FILES: [(&str, u64); 5] = [("a", 0), ("b", 100), ("d/f", 5 * OBJECT + 7), ("d/g", 3), ("z", 70_000)];

/// Path of a file that the waybill does not list.
const EXTRA: &str = "d/x";

const MTIME: i64 = 1_000_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Creates a file, and its directory if it is missing.
fn put(storage: &MemoryStorage, path: &str, bytes: &[u8]) {
    let (mut dir, mut file) = (storage.root(), path);
    if let Some((above, name_in_it)) = path.split_once('/') {
        dir = dir.dir(&name(above), Follow::No, Missing::Create { mode: 0o700 }).unwrap();
        file = name_in_it;
    }
    let sink = dir.sink(&name(file), Create::New { mode: 0o644 }).unwrap();
    sink.write_at(0, bytes).unwrap();
    let times = Times { atime: None, mtime: Some(Timespec { sec: MTIME, nsec: 0 }) };
    sink.finish(bytes.len() as u64, &Metadata { times, ..Metadata::default() }).unwrap();
}

fn write_waybill(path: &Path) {
    let mut writer = Writer::new(File::create(path).unwrap(), &Job::default()).unwrap();
    let mtime = Moment { sec: MTIME, nsec: 0 };
    let mut entry = |path: &str, mode, kind| {
        let path = RelPath::new(path.as_bytes()).unwrap();
        writer.entry(&Entry { path, kind, mode, mtime }).unwrap();
    };
    for (path, len) in FILES {
        let digests = vec![digest(Algorithm::Blake3, &noise(len, len))];
        let content = Content { size: len, digests, way: None, level: None, objects: None };
        entry(path, 0o644, Kind::File(content));
    }
    entry("d", 0o700, Kind::Directory);
    entry("link", 0o777, Kind::Link { target: b"b".to_vec() });
    writer.close().unwrap();
}

/// Verifies the storage. Returns the verdicts, or the error that ended the verification.
fn verified(storage: &MemoryStorage, settings: &VerifySettings) -> Result<Vec<Verdict>, VerifyError> {
    let (mut ear, counters, stop) = (RecordingObserver::default(), Counters::new(), AtomicBool::new(false));
    verify_beneath(&storage.root(), settings, &mut ear, &counters, &stop)?;
    assert!(ear.flaws.is_empty());
    Ok(ear.verdicts)
}

/// Lets each call fail once, until a verification ends before its fault. Passes the kind of the
/// call and the results with a fault to `check`. Returns the number of faults.
fn each_fault(
    storage: impl Fn() -> MemoryStorage,
    settings: &VerifySettings,
    mut check: impl FnMut(Call, &str, Result<Vec<Verdict>, VerifyError>),
) -> usize {
    let right = verified(&storage(), settings).unwrap();
    let mut faults = 0;
    for call in Call::ALL {
        for nth in 1.. {
            let storage = storage();
            let before = storage.count(call);
            storage.fail(call, nth, 5);
            let found = verified(&storage, settings);
            if storage.count(call) - before < nth {
                assert_eq!(found.unwrap(), right, "without a fault");
                break;
            }
            check(call, &format!("{call:?} {nth} fails"), found);
            faults += 1;
        }
    }
    faults
}

#[test]
fn entry_is_intact_only_if_its_file_was_read() {
    let home = tempfile::tempdir().unwrap();
    let waybill = home.path().join("w");
    write_waybill(&waybill);
    for (damaged, workers) in [(None, 1), (Some("d/f"), 1), (Some("b"), 3)] {
        let storage = || {
            let storage = MemoryStorage::new(1);
            for (path, len) in FILES {
                let mut bytes = noise(len, len);
                if damaged == Some(path) {
                    bytes[len as usize / 2] ^= 1;
                }
                put(&storage, path, &bytes);
            }
            put(&storage, EXTRA, b"extra");
            storage.root().make(&name("link"), &Node::Link { target: b"b" }).unwrap();
            storage
        };
        let right = |path: &str| match path {
            EXTRA => VerdictKind::Extra,
            path if damaged == Some(path) => VerdictKind::Rotted,
            _ => VerdictKind::Intact { touched: false },
        };
        let reading = Settings { object: object(), block_bytes: 16 << 10, ..Settings::for_workers(workers) };
        let settings = VerifySettings { reading, extra: true, ..all_of(&waybill, Path::new("/")) };
        let all = verified(&storage(), &settings).unwrap();
        assert_eq!(all.len(), FILES.len() + 3);
        assert!(all.iter().all(|verdict| verdict.kind == right(&verdict.path.to_string())), "{all:?}");
        let mut ignored = BTreeSet::new();
        let faults = each_fault(storage, &settings, |call, what, found| {
            let Ok(found) = found else { return };
            if found == all {
                ignored.insert(call);
                return;
            }
            let unread = |verdict: &&Verdict| matches!(&verdict.kind, VerdictKind::Unreadable(why) if why.starts_with("Input/output error"));
            // An extraneous file that cannot be compared with the waybill is reported.
            assert_eq!(found.iter().filter(unread).count(), 1, "{what}: {found:?}");
            let others = found.iter().filter(|verdict| !unread(verdict));
            for Verdict { path, kind, .. } in others {
                assert_eq!(*kind, right(&path.to_string()), "{what}: {path}");
            }
            // A directory that cannot be listed can hide the extraneous file, and nothing else.
            let is_judged = |path: &str| found.iter().any(|verdict| verdict.path.to_string() == path);
            assert!(FILES.iter().all(|(path, _)| is_judged(path)) && is_judged("link"), "{what}: {found:?}");
        });
        // Whether an extraneous file is the waybill itself: if that is unknown, it is reported.
        assert_eq!(ignored, BTreeSet::from([Call::Stat]), "{damaged:?}");
        assert!(faults > 4 * FILES.len(), "{faults}");
    }
}

/// Leaf of the second object that [`damaged`] contains.
const LEAF: ByteRange = ByteRange { start: ByteOffset(OBJECT + 8192), end: ByteOffset(OBJECT + 12_288) };

/// Writes the waybill of a file with leaves. Returns the settings of its verification, and the
/// bytes of the file with a damaged leaf.
fn damaged(waybill: &Path) -> (VerifySettings, Vec<u8>) {
    let mut bytes = noise(3 * OBJECT + 1000, 1);
    let mtime = Moment { sec: MTIME, nsec: 0 };
    keep_by(Algorithm::Blake3, &bytes, leaf(4096), mtime, waybill);
    bytes[LEAF.start.0 as usize] ^= 1;
    let reading = Settings { block_bytes: 16 << 10, ..Settings::for_workers(1) };
    (VerifySettings { reading, ..all_of(waybill, Path::new("/")) }, bytes)
}

/// Regression test: the ranges of leaves stayed, although they may come from other contents than
/// the damage.
#[test]
fn damage_in_a_file_whose_change_time_moves_is_not_narrowed() {
    let home = tempfile::tempdir().unwrap();
    let (settings, bytes) = damaged(&home.path().join("w"));
    let storage = MemoryStorage::new(1);
    put(&storage, "f", &bytes);
    let (file, opened) = (storage.root().hold(&name("f")).unwrap(), AtomicU32::new(0));
    storage.observe(move |call, _| match call {
        Call::OpenSource => _ = opened.fetch_add(1, Ordering::Relaxed),
        // The second open is that of the locator. A writer that sets the modification time back
        // moves the change time too.
        Call::Read if opened.load(Ordering::Relaxed) == 2 => {
            file.set_mode(0o600).unwrap();
        }
        _ => {}
    });
    let [Verdict { kind, damage, located, .. }] = &verified(&storage, &settings).unwrap()[..] else {
        panic!("one file")
    };
    assert_eq!((kind, &damage[..]), (&VerdictKind::Rotted, &[ByteRange::between(OBJECT, 2 * OBJECT)][..]));
    let whole = located.as_ref().and_then(|located| located.whole.as_ref());
    assert_eq!(whole, Some(&WholeObjectReason::Changed));
}

#[test]
fn damage_is_located_or_a_reason_is_given() {
    let home = tempfile::tempdir().unwrap();
    let (settings, bytes) = damaged(&home.path().join("w"));
    let leaf = LEAF;
    let storage = || {
        let storage = MemoryStorage::new(1);
        put(&storage, "f", &bytes);
        storage
    };
    let all = verified(&storage(), &settings).unwrap();
    assert_eq!((&all[0].kind, &all[0].damage[..]), (&VerdictKind::Rotted, &[leaf][..]));
    let faults = each_fault(storage, &settings, |_, what, found| {
        let [Verdict { kind, damage, located, .. }] = &found.unwrap()[..] else { panic!("{what}") };
        let is_unread = matches!(kind, VerdictKind::Unreadable(_));
        let object = ByteRange::between(OBJECT, 2 * OBJECT);
        let is_whole = *damage == [object] && located.as_ref().is_some_and(|found| found.whole.is_some());
        let is_located = is_whole || *damage == [leaf];
        assert!(is_unread || (*kind == VerdictKind::Rotted && is_located), "{what}: {kind:?} {damage:?}");
    });
    assert!(faults > 10, "{faults}");
}
