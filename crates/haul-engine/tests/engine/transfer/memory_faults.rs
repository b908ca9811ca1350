//! Uploads into a storage in memory, of which each call fails once.

use super::pair::{Pair, Told, keep_all};
use super::small_objects;
use haul_model::{Level, RelPath};
use haul_proto::{JobOptions, Verify};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Dir, FileKind, Follow, Name};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Regular files of the job, with their bytes.
type Files = BTreeMap<&'static str, Vec<u8>>;

/// Creates the files, and entries of other kinds, in a directory. Returns the files.
fn plant(source: &Path) -> Files {
    let bytes = |len: usize| (0..len).map(|at| ((at * 7) >> 4) as u8).collect::<Vec<u8>>();
    let mut holed = bytes(200_000);
    holed[64 << 10..128 << 10].fill(0);
    let files = [("top/one", bytes(5000)), ("top/several", holed), ("top/sub/empty", Vec::new())];
    fs::create_dir_all(source.join("top/sub")).unwrap();
    for (path, bytes) in &files {
        fs::write(source.join(path), bytes).unwrap();
    }
    fs::hard_link(source.join("top/one"), source.join("top/sub/second")).unwrap();
    symlink("one", source.join("top/link")).unwrap();
    let second = ("top/sub/second", files[0].1.clone());
    files.into_iter().chain([second]).collect()
}

/// Options under which the calls are enumerated.
fn cases() -> Vec<(&'static str, JobOptions)> {
    let options = JobOptions { keep: keep_all(), ..small_objects() };
    let durable = JobOptions { settle: Level::Durable, ..options.clone() };
    let reread = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..options.clone() };
    let in_place = JobOptions { in_place: true, ..durable.clone() };
    vec![("verified", options), ("durable", durable), ("re-read", reread), ("in place", in_place)]
}

/// Sends the tree into the storage.
fn send(pair: &Pair, options: &JobOptions, storage: &MemoryStorage) -> Told {
    pair.send_to(&["top"], options, |offer| {
        offer.root = "/".into();
        offer.storage = Arc::new(storage.clone());
    })
}

/// Returns the bytes of the regular file at a path, or `None` if there is none.
pub(super) fn contents(storage: &MemoryStorage, path: &str) -> Option<Vec<u8>> {
    let file = storage.root().source_beneath(&RelPath::new(path.as_bytes()).unwrap()).ok()?;
    let mut bytes = vec![0; usize::try_from(file.opened().size).unwrap()];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

/// Returns all names beneath a directory.
fn names(dir: &Arc<dyn Dir>) -> Vec<Name> {
    let mut entries = Vec::new();
    let mut listing = dir.list().unwrap();
    while listing.next(64, &mut entries).unwrap() {}
    let mut names = Vec::new();
    for entry in entries {
        if entry.kind == Some(FileKind::Directory) {
            names.extend(names_beneath(dir, &entry.name));
        }
        names.push(entry.name);
    }
    names
}

fn names_beneath(dir: &Arc<dyn Dir>, name: &Name) -> Vec<Name> {
    names(&dir.dir(name, Follow::No, haul_storage::Missing::Fail).unwrap())
}

/// Checks what a session left: what was reported as arrived is there, and lasts if it was reported
/// as durable. A name belongs to a complete file, also of one that was not reported.
fn check(told: &Told, storage: &MemoryStorage, files: &Files, in_place: bool, case: &str) {
    for (path, level) in told.arrived() {
        let path = String::from_utf8(path).unwrap();
        let Some(sent) = files.get(&*path) else { continue };
        assert!(contents(storage, &path).as_ref() == Some(sent), "{case}: {path} is {level}");
        // A hard link has no data of its own to be synced.
        for seed in (0..4).filter(|_| level >= Level::Durable) {
            let after = storage.after_power_cut(seed);
            assert!(contents(&after, &path).as_ref() == Some(sent), "{case}: {path} is {level}, seed {seed}");
        }
    }
    for (path, sent) in files.iter().filter(|_| !in_place) {
        let found = contents(storage, path);
        assert!(found.is_none() || found.as_ref() == Some(sent), "{case}: {path} is torn");
    }
    if told.is_whole() {
        let left = names(&storage.root()).into_iter().filter(|name| name.as_bytes().starts_with(b".haul-"));
        assert_eq!(left.collect::<Vec<_>>(), [], "{case}");
        assert!(files.keys().all(|path| contents(storage, path).is_some()), "{case}");
    }
}

#[test]
fn no_failed_call_of_the_sink_loses_or_falsifies_a_file() {
    let pair = Pair::new();
    let files = plant(&pair.source());
    let mut sessions = 0;
    for (case, options) in cases() {
        let storage = MemoryStorage::new(1);
        let told = send(&pair, &options, &storage);
        told.is_fine();
        check(&told, &storage, &files, options.in_place, case);
        for (call, errno) in Call::ALL.map(|call| (call, EIO)).into_iter().chain([(Call::Write, ENOSPC)]) {
            let mut reported = 0;
            let count = storage.count(call);
            for nth in 1..=count {
                let faulty = MemoryStorage::new(1);
                faulty.fail(call, nth, errno);
                let told = send(&pair, &options, &faulty);
                let case = format!("{case}, {call:?} {nth} of {count} fails with {errno}");
                // A fault that this order of the calls did not meet must not fail the check.
                check(&told, &faulty.after_kill(), &files, options.in_place, &case);
                reported += u32::from(!told.is_whole());
                sessions += 1;
            }
            let must_be_reported =
                matches!(call, Call::OpenSink | Call::Make | Call::Rename | Call::Write | Call::SetTimes);
            let syncs = matches!(call, Call::Flush | Call::SyncNames) && options.settle >= Level::Durable;
            assert!(count == 0 || reported > 0 || !(must_be_reported || syncs), "{case}: {call:?}");
        }
    }
    assert!(sessions > 400, "the sink makes calls of the storage: {sessions}");
}
