//! The memory storage passes the conformance suite, and the suite finds each defect in it.

use crate::conformance::{Faults, Feature, Subject, all, run};
use crate::defects::{Defect, defective};
use haul_model::ByteRange;
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Dir, DropRetries, Follow, Metadata, Name, Node, Replace, SyncWhat, Tag};
use std::collections::HashSet;
use std::sync::{Arc, Barrier, Mutex};

/// Space of the storage in bytes.
const CAPACITY: u64 = 256 << 20;

/// A memory storage under test, with a defect if a test wants one.
struct Memory {
    storage: MemoryStorage,
    elsewhere: MemoryStorage,
    defect: Option<Defect>,
}

impl Memory {
    fn new(defect: Option<Defect>) -> Memory {
        let storage = MemoryStorage::new(1);
        storage.set_capacity(CAPACITY);
        Memory { storage, elsewhere: MemoryStorage::new(2), defect }
    }

    fn wrapped(&self, root: Arc<dyn Dir>) -> Arc<dyn Dir> {
        match self.defect {
            Some(defect) => defective(root, defect),
            None => root,
        }
    }
}

impl Subject for Memory {
    fn root(&self) -> Arc<dyn Dir> {
        self.wrapped(self.storage.root())
    }

    fn lacks(&self) -> Vec<Feature> {
        vec![Feature::FoldsCase]
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    fn elsewhere(&self) -> Option<Arc<dyn Dir>> {
        Some(self.wrapped(self.elsewhere.root()))
    }
}

impl Faults for Memory {
    fn fail(&self, call: Call, nth: u64, errno: i32) {
        self.storage.fail(call, nth, errno);
    }

    fn write_back(&self) {
        self.storage.write_back();
    }

    fn set_capacity(&self, bytes: u64) {
        self.storage.set_capacity(bytes);
    }

    fn after_power_cut(&self, seed: u64) -> Box<dyn Subject> {
        let storage = self.storage.after_power_cut(seed);
        Box::new(Memory { storage, elsewhere: self.elsewhere.clone(), defect: self.defect })
    }
}

#[test]
fn memory_storage_conforms() {
    let cases = all();
    let names: HashSet<&str> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");
    println!("{} cases", cases.len());
    let (failed, skipped) = run(&cases, &|| Box::new(Memory::new(None)));
    assert_eq!(failed, [""; 0]);
    let of_spellings = cases.iter().filter(|case| case.needs.contains(&Feature::FoldsCase));
    assert_eq!(skipped, of_spellings.map(|case| case.name).collect::<Vec<_>>());
}

#[test]
fn each_defect_fails_a_case() {
    let cases = all();
    let mut missed = Vec::new();
    for &defect in Defect::ALL {
        let (failed, _) = run(&cases, &|| Box::new(Memory::new(Some(defect))));
        println!("{defect:?}: {failed:?}");
        if failed.is_empty() {
            missed.push(defect);
        }
    }
    assert_eq!(missed, []);
}

#[test]
fn killed_process_loses_its_locks_and_no_bytes() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    let name = Name::new("f").unwrap();
    let sink = root.sink(&name, Create::New { mode: 0o600 }).unwrap();
    sink.lock().unwrap();
    sink.write_at(0, b"bytes").unwrap();
    let left = storage.after_kill();
    sink.write_at(0, b"later").unwrap();
    let file = left.root().source(&name, Follow::No).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), 5);
    assert_eq!(&bytes[..5], b"bytes");
    assert!(file.lock().unwrap());
    assert!(root.source(&name, Follow::No).unwrap().lock().is_err());
    // A power cut can still lose what the kill left.
    let is_lost = |seed| left.after_power_cut(seed).root().source(&name, Follow::No).is_err();
    assert!((0..20).any(is_lost) && !(0..20).all(is_lost));
}

#[test]
fn write_takes_privileges_from_a_program() {
    const CAPABILITY: &std::ffi::CStr = c"security.capability";
    for (user, mode, expected) in [(0, 0o6755, 0o6755), (7, 0o6755, 0o755), (7, 0o6745, 0o2745)] {
        let storage = MemoryStorage::new(1);
        storage.set_user(user);
        let sink = storage.root().sink(&Name::new("f").unwrap(), Create::New { mode: 0o600 }).unwrap();
        sink.set_attribute(CAPABILITY, b"value").unwrap();
        sink.set_mode(mode).unwrap();
        let found = sink.stat().unwrap();
        assert_eq!((found.uid, found.mode & 0o7777), (user, mode));
        assert!(sink.attribute(CAPABILITY).unwrap().is_some());
        sink.write_at(0, b"bytes").unwrap();
        assert_eq!(sink.stat().unwrap().mode & 0o7777, expected);
        assert_eq!(sink.attribute(CAPABILITY).unwrap(), None);
    }
}

/// A slow device is an observer that blocks, or one that counts the time that calls take.
#[test]
fn observer_sees_each_call_with_its_bytes_before_its_effect() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (calls, inner) = (Arc::clone(&seen), storage.clone());
    storage.observe(move |call, bytes| {
        // The storage is not locked meanwhile.
        calls.lock().unwrap().push((call, bytes, inner.count(call)));
    });
    let name = Name::new("f").unwrap();
    let sink = root.sink(&name, Create::New { mode: 0o600 }).unwrap();
    sink.write_at(0, b"bytes").unwrap();
    sink.write_at(5, b"more").unwrap();
    sink.sync(SyncWhat::Data).unwrap();
    sink.reader().unwrap().read_at(0, &mut [0; 100]).unwrap();
    let expected = [
        (Call::OpenSink, 0, 0),
        (Call::Write, 5, 0),
        (Call::Write, 4, 1),
        (Call::WriteBack, u64::MAX, 0),
        (Call::Flush, 0, 0),
        (Call::OpenSource, 0, 0),
        (Call::Read, 100, 0),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// While one thread is blocked in a sync, others write, read and ask for the state of the file.
#[test]
fn blocked_sync_blocks_no_other_call() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    let sink = root.sink(&Name::new("f").unwrap(), Create::New { mode: 0o600 }).unwrap();
    sink.write_at(0, b"bytes").unwrap();
    let [started, may_end] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let barriers = [Arc::clone(&started), Arc::clone(&may_end)];
    storage.observe(move |call, _| {
        if call == Call::Flush {
            for barrier in &barriers {
                barrier.wait();
            }
        }
    });
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| sink.sync(SyncWhat::All));
        started.wait();
        assert!(sink.is_syncing());
        sink.write_at(5, b"more").unwrap();
        assert_eq!(sink.reader().unwrap().read_at(0, &mut [0; 100]).unwrap(), 9);
        may_end.wait();
        syncing.join().unwrap().unwrap();
    });
    assert!(!sink.is_syncing());
}

#[test]
fn same_calls_give_the_same_times_and_numbers() {
    let [first, second] = [(); 2].map(|()| {
        let root = MemoryStorage::new(1).root();
        for name in ["a", "b", "c"] {
            let sink = root.sink(&Name::new(name).unwrap(), Create::New { mode: 0o600 }).unwrap();
            sink.write_at(0, name.as_bytes()).unwrap();
        }
        let mut entries = Vec::new();
        root.list().unwrap().next(10, &mut entries).unwrap();
        let stat = |entry: &haul_storage::Entry| root.stat_at(&entry.name, Follow::No).unwrap();
        entries.iter().map(|entry| (entry.clone(), stat(entry))).collect::<Vec<_>>()
    });
    assert_eq!(first, second);
}

/// A power cut at each call of a replacement, by each of several seeds.
#[test]
fn replaced_file_is_whole_after_a_power_cut_at_any_call() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    let name = Name::new("f").unwrap();
    let tag = Tag { session: 1, number: 1 };
    let put = |byte: u8, seen: &dyn Fn()| {
        let sink = root.sink(&name, Create::Temporary(tag)).unwrap();
        for block in 0..5 {
            sink.write_at(block * 5000, &[byte; 5000]).unwrap();
        }
        sink.finish(25_000, &Metadata { mode: Some(0o640), ..Metadata::default() }).unwrap();
        sink.sync(SyncWhat::All).unwrap();
        sink.commit(Replace::Yes).unwrap();
        root.sync().unwrap();
        seen();
    };
    put(1, &|| ());
    let found = Arc::new(Mutex::new(Vec::new()));
    let (found_at, disk, looked_up) = (Arc::clone(&found), storage.clone(), name.clone());
    storage.observe(move |call, _| {
        for seed in 0..20 {
            let left = disk.after_power_cut(seed).root();
            let file = left.source(&looked_up, Follow::No).unwrap();
            let mut bytes = [0; 30_000];
            assert_eq!(file.read_at(0, &mut bytes).unwrap(), 25_000, "before {call:?}, seed {seed}");
            assert!(bytes[..25_000].iter().all(|byte| *byte == bytes[0]), "before {call:?}, seed {seed}");
            assert_eq!(file.opened().mode, 0o640);
            found_at.lock().unwrap().push(bytes[0]);
        }
    });
    put(2, &|| {
        let mut found = found.lock().unwrap();
        assert!(found.starts_with(&[1; 200]), "the old file stays until the commit");
        found.clear();
    });
    root.stat_at(&name, Follow::No).unwrap();
    assert!(found.lock().unwrap().iter().all(|byte| *byte == 2), "the new file stays");
}

#[test]
fn hundred_thousand_names_are_lost_in_part_or_synced() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    for number in 0..100_000 {
        let name = Name::new(format!("{number}")).unwrap();
        root.make(&name, &Node::Link { target: b"target" }).unwrap();
    }
    let count = |storage: &MemoryStorage| {
        let mut entries = Vec::new();
        storage.root().list().unwrap().next(usize::MAX, &mut entries).unwrap();
        entries.len()
    };
    let left = count(&storage.after_power_cut(1));
    assert!((40_000..60_000).contains(&left), "{left} names");
    root.sync().unwrap();
    assert_eq!(count(&storage.after_power_cut(1)), 100_000);
}

/// The page cache hides damage of the device, so only a read after an eviction finds it.
#[test]
fn damaged_byte_is_read_once_its_page_is_evicted() {
    let storage = MemoryStorage::new(1);
    let root = storage.root();
    let sink = root.sink(&Name::new("f").unwrap(), Create::New { mode: 0o600 }).unwrap();
    sink.write_at(0, &[6; 10_000]).unwrap();
    let ino = sink.stat().unwrap().ino;
    assert!(!storage.damage(ino, 5000), "the device does not have the byte yet");
    sink.sync(SyncWhat::All).unwrap();
    root.sync().unwrap();
    assert!(storage.damage(ino, 5000));
    assert!(!storage.damage(ino, 1 << 20) && !storage.damage(99, 0));
    let reader = sink.reader().unwrap();
    let read = || {
        let mut bytes = vec![0; 10_000];
        reader.read_at(0, &mut bytes).unwrap();
        bytes
    };
    assert!(read() == [6; 10_000]);
    reader.evict(ByteRange::between(4096, 8192), DropRetries::Some).unwrap();
    let mut damaged = vec![6; 10_000];
    damaged[5000] = 7;
    assert!(read() == damaged);
    // The next write of the byte mends it.
    sink.write_at(5000, &[6]).unwrap();
    sink.sync(SyncWhat::Data).unwrap();
    reader.evict(ByteRange::between(0, 10_000), DropRetries::Some).unwrap();
    assert!(read() == [6; 10_000]);
}
