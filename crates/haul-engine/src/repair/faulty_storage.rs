//! Repairs of a file on a storage in memory, of which each call fails once: the file is the old one
//! or the repaired one, also after a power cut, and the next repair completes it.

use super::tests::waybill;
use super::*;
use haul_log::waybill::{Moment, RelPath};
use haul_model::ObjectSize;
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Dir, Follow, Metadata, Missing, Name, SyncWhat, Times, Timespec};
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

/// `errno` of a defective and of a full device.
const ERRORS: [i32; 2] = [5, 28];

/// Attribute that a repair keeps.
/// User who repairs.
const USER: u32 = 1000;

const NOTE: &CStr = c"user.note";

/// Object size, the smallest one, and the number of bytes of the file.
const OBJECT: u64 = 64 << 10;
const LEN: u64 = 3 * OBJECT + 1000;

/// Way in which the file gets right.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Rebuild,
    InPlace,
    Make,
}

/// State of a file: bytes, mode, modification time and attribute.
type State = (Vec<u8>, u32, i64, Option<Vec<u8>>);

/// Repair that runs again and again.
struct Case {
    way: Way,
    target: RepairTarget,
    settings: RepairSettings,
    old: Option<State>,
    new: State,
}

#[derive(Default)]
struct Ear;

impl RepairObserver for Ear {
    fn settled(&mut self, _: &Outcome) {}

    fn flawed(&mut self, flaw: &ReadError) {
        panic!("{flaw}");
    }

    fn journal_warning(&mut self, _: Option<&RelPath>, warning: JournalWarning) {
        panic!("{warning}");
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn dir(storage: &MemoryStorage, text: &str) -> Arc<dyn Dir> {
    storage.root().dir(&name(text), Follow::No, Missing::Create { mode: 0o700 }).unwrap()
}

/// Creates the file `f`, durably.
fn put(storage: &MemoryStorage, place: &str, (bytes, mode, mtime, note): &State) {
    let dir = dir(storage, place);
    let sink = dir.sink(&name("f"), Create::New { mode: 0o600 }).unwrap();
    sink.write_at(0, bytes).unwrap();
    let note = note.iter().map(|note| (NOTE.to_owned(), note.clone())).collect::<Vec<_>>();
    let times = Times { atime: None, mtime: Some(Timespec { sec: *mtime, nsec: 0 }) };
    let metadata = Metadata { attributes: note.into(), mode: Some(*mode), times, ..Metadata::default() };
    sink.finish(bytes.len() as u64, &metadata).unwrap();
    sink.sync(SyncWhat::All).unwrap();
    dir.sync().unwrap();
    storage.root().sync().unwrap();
}

/// Returns the state of the repaired file.
fn state(storage: &MemoryStorage) -> Option<State> {
    let file = dir(storage, "root").source(&name("f"), Follow::No).ok()?;
    let mut bytes = vec![0; file.opened().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    Some((bytes, file.opened().mode, file.opened().mtime.sec, file.attribute(NOTE).unwrap()))
}

/// Returns the names beside the file.
fn others(storage: &MemoryStorage) -> Vec<String> {
    let mut entries = Vec::new();
    dir(storage, "root").list().unwrap().next(100, &mut entries).unwrap();
    entries.iter().map(|entry| entry.name.to_string()).filter(|name| name != "f").collect()
}

fn counts(storage: &MemoryStorage) -> Vec<u64> {
    Call::ALL.iter().map(|call| storage.count(*call)).collect()
}

impl Case {
    fn new(way: Way, home: &Path) -> Case {
        let right = haul_lab::random::noise(LEN, 1);
        let mut damaged = right.clone();
        damaged[OBJECT as usize + 5000..][..1000].fill(7);
        let moment = Moment { sec: 1_000_000, nsec: 0 };
        let text = waybill(&right, ObjectSize::round_up(OBJECT), None, moment);
        let path = RelPath::new(b"f").unwrap();
        let wanted = Wanted::from([(b"f".to_vec(), Verdict::new(path, VerdictKind::Rotted))]);
        let mut target = None;
        repair_target::each(|| Ok(Reader::new(&text[..])), &wanted, |found| target = Some(found)).unwrap();
        let none = OsString::from("none");
        let settings = RepairSettings {
            waybill: none.clone(),
            root: none.clone(),
            replicas: vec![ReplicaAt::Here(none)],
            staging: None,
            reading: Settings::new(),
            modified: false,
            in_place: way == Way::InPlace,
            trust_replica: false,
            state: Some(home.join("state")),
            keep: None,
            dry_run: false,
            resume: None,
        };
        let (old, new) = match way {
            Way::Make => (None, (right, 0o644, 1_000_000, None)),
            _ => {
                let with = |bytes| (bytes, 0o640, 1_000_000, Some(b"a note".to_vec()));
                (Some(with(damaged)), with(right))
            }
        };
        Case { way, target: target.expect("the entry"), settings, old, new }
    }

    /// Returns a storage with the damaged file and a replica.
    fn storage(&self) -> MemoryStorage {
        let storage = MemoryStorage::new(1);
        storage.set_user(USER);
        dir(&storage, "root").sync().unwrap();
        put(&storage, "replica", &(self.new.0.clone(), 0o600, 5, None));
        self.old.iter().for_each(|old| put(&storage, "root", old));
        storage
    }

    /// Repairs the file. Calls `begin` when all directories are open.
    fn run(&self, storage: &MemoryStorage, begin: impl FnOnce()) -> Done {
        let root = Root::new(dir(storage, "root"));
        let kind = if state(storage).is_some() { VerdictKind::Rotted } else { VerdictKind::Missing };
        let (counters, stop) = (Counters::new(), AtomicBool::new(false));
        let repair = Repair {
            settings: &self.settings,
            root: &root,
            replicas: vec![Some(Replica::fetched(dir(storage, "replica")))],
            is_last_round: true,
            is_final: true,
            damage_archive: Some(DamageArchive::new(Root::new(dir(storage, "kept")))),
            keys: JournalKeys::new(self.settings.state.clone()),
            progress: Default::default(),
            shared: Shared::new(),
            has_own_replicas: true,
            remotes: &(),
            counters: &counters,
            stop: &stop,
        };
        let verdict = Verdict::new(RelPath::new(b"f").unwrap(), kind);
        begin();
        repair.settle(&self.target, &verdict, &mut Ear).0.done
    }

    /// Checks that the file is the old one or the repaired one.
    fn check(&self, storage: &MemoryStorage, what: &str) {
        let now = state(storage);
        assert!(now == self.old || now.as_ref() == Some(&self.new), "{what}: neither old nor repaired");
    }

    /// Repairs the file again, without faults, and checks that this completes it.
    fn complete(&self, storage: &MemoryStorage, what: &str) {
        let done = self.run(storage, || ());
        assert!(!matches!(done, Done::Left(_)), "{what}, again: {done:?}");
        for left in [storage.after_kill(), storage.after_power_cut(1)] {
            // A file that was right before may have a name that no sync made durable.
            match done {
                Done::Right => self.check(&left, what),
                _ => assert!(state(&left).as_ref() == Some(&self.new), "{what}, again"),
            }
            // A repair that was killed while it removed its journal: the journal can return.
            assert!(
                others(&left).is_empty() || self.way == Way::InPlace,
                "{what}, again: {:?}",
                others(&left)
            );
        }
    }

    /// Lets one call fail. Before some calls, and at the end, checks the result of a power cut.
    fn survives(&self, call: Call, nth: u64, errno: i32) {
        let what = format!("{:?}, {call:?} {nth} fails with {errno}", self.way);
        let storage = self.storage();
        let left = Arc::new(Mutex::new(Vec::new()));
        let (seen, disk, number) = (Arc::clone(&left), storage.clone(), AtomicUsize::new(nth as usize));
        let every = if self.way == Way::InPlace { 23 } else { 1 };
        let done = self.run(&storage, || {
            storage.observe(move |_, _| {
                let number = number.fetch_add(1, Ordering::Relaxed);
                if number.is_multiple_of(every) {
                    seen.lock().unwrap().push(disk.after_power_cut(number as u64));
                }
            });
            storage.fail(call, nth, errno);
        });
        storage.observe(|_, _| ());
        // Without the fault, if the repair ended before it.
        let now = storage.after_kill();
        let is_half_done = matches!(done, Done::Left(LeftReason::HalfDone(..)));
        if !is_half_done {
            self.check(&now, &what);
        }
        let ends = (0..6).map(|seed| storage.after_power_cut(seed));
        match done {
            Done::Left(_) => {
                assert!(self.way == Way::InPlace || others(&now).is_empty(), "{what}: a file is left");
                left.lock().unwrap().extend(ends.take(2));
                left.lock().unwrap().push(now);
            }
            _ => ends.for_each(|end| {
                assert!(state(&end).as_ref() == Some(&self.new), "{what}: success is not durable");
                assert!(others(&end).is_empty(), "{what}: {:?} is left", others(&end));
            }),
        }
        let left = std::mem::take(&mut *left.lock().unwrap());
        for (number, end) in left.iter().enumerate() {
            if self.way != Way::InPlace {
                self.check(end, &what);
            }
            // A repair takes longer than a check, so that only some ends get one.
            if self.way == Way::InPlace || number.is_multiple_of(17) || number + 3 >= left.len() {
                self.complete(end, &what);
            }
        }
    }

    /// Lets each call of the repair fail. Returns the number of calls.
    fn survives_all(&self) -> u64 {
        let storage = self.storage();
        let mut before = Vec::new();
        let done = self.run(&storage, || before = counts(&storage));
        let expected = match self.way {
            Way::Rebuild => matches!(done, Done::Repaired),
            Way::InPlace => matches!(done, Done::RepairedInPlace),
            Way::Make => matches!(done, Done::Made),
        };
        assert!(expected && state(&storage).as_ref() == Some(&self.new), "{done:?}");
        let calls = counts(&storage).into_iter().zip(before).map(|(after, before)| after - before);
        let mut all = 0;
        for (call, count) in Call::ALL.into_iter().zip(calls) {
            println!("{:?}: {count} of {call:?}", self.way);
            all += count;
            for (nth, errno) in (1..=count).flat_map(|nth| ERRORS.map(|errno| (nth, errno))) {
                self.survives(call, nth, errno);
            }
        }
        all
    }
}

/// A file reports a lost write once, and keeps the lost bytes in the page cache then.
#[test]
fn damage_is_found_on_the_device_after_a_lost_write() {
    let home = tempfile::tempdir().unwrap();
    let case = Case::new(Way::Rebuild, home.path());
    let storage = case.storage();
    let root = dir(&storage, "root");
    let file = root.source(&name("f"), Follow::No).unwrap();
    let in_place = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
    let sink = root.sink(&name("f"), in_place).unwrap();
    sink.write_at(5000, &case.new.0[5000..6000]).unwrap();
    assert!(storage.damage(file.opened().ino, 5000));
    storage.fail(Call::WriteBack, 1, ERRORS[0]);
    storage.write_back();
    let old = case.old.as_ref().map(|old| &old.0);
    assert!(state(&storage).map(|now| now.0).as_ref() == old, "the cache has the right byte");
    let replicas = [Some(Replica::fetched(dir(&storage, "replica")))];
    let mut sources = Sources::of(&case.target, &replicas);
    let stop = AtomicBool::new(false);
    let found = survey(&case.target, Some(&*file), &[], &mut sources, &stop).unwrap();
    let expected = RepairedRange { range: ByteRange::between(0, 2 * OBJECT), replica: 0 };
    assert_eq!(found.mended(), [expected]);
}

#[test]
fn file_that_the_device_corrupts_gets_no_name() {
    let home = tempfile::tempdir().unwrap();
    for way in [Way::Rebuild, Way::Make] {
        let case = Case::new(way, home.path());
        let storage = case.storage();
        let device = storage.clone();
        let done = case.run(&storage, || {
            storage.observe(move |call, _| {
                // The device changes a byte of each file that it stores.
                for ino in 0..100 {
                    let _ = call == Call::Flush && device.damage(ino, OBJECT + 5000);
                }
            });
        });
        storage.observe(|_, _| ());
        assert!(matches!(done, Done::Left(LeftReason::StillWrong(_))), "{way:?}: {done:?}");
        assert!(state(&storage).as_ref() != Some(&case.new) && others(&storage).is_empty(), "{way:?}");
    }
}

#[test]
fn rebuilt_file_is_old_or_right_whichever_call_fails() {
    let home = tempfile::tempdir().unwrap();
    let calls = Case::new(Way::Rebuild, home.path()).survives_all();
    assert!(calls > 30, "{calls}");
}

#[test]
fn file_repaired_in_place_is_old_or_right_whichever_call_fails() {
    let home = tempfile::tempdir().unwrap();
    let calls = Case::new(Way::InPlace, home.path()).survives_all();
    assert!(calls > 50, "{calls}");
}

#[test]
fn missing_file_is_missing_or_right_whichever_call_fails() {
    let home = tempfile::tempdir().unwrap();
    let calls = Case::new(Way::Make, home.path()).survives_all();
    assert!(calls > 20, "{calls}");
}
