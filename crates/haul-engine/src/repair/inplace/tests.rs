//! Tests on a storage in memory that loses power or the process at any call, chosen by a seed.
//! After the next run the file is unchanged or complete.

use super::recover::recover as search;
use super::{InPlaceFile, Recovery, ReplacementSource, Take, mend};
use crate::repair::places::NameAt;
use crate::repair::repair_target::RepairTarget;
use crate::repair::{LeftReason, Recovered};
use haul_digest::DigestKey;
use haul_lab::random::Random;
use haul_log::journal::{CHUNK_BYTES_MAX, SECTOR_BYTES};
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{
    Create, Follow, Metadata, Missing, Name, Remove, SinkFile, SourceFile, SyncWhat, Times, Timespec,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// User who repairs: a write takes setuid from a program, as root's does not.
const USER: u32 = 1000;

/// Mode of the file.
const MODE: u32 = 0o4755;

/// `errno` of a full device.
const ENOSPC: i32 = 28;

/// State of the file.
#[derive(Clone, Debug, PartialEq)]
struct File {
    bytes: Vec<u8>,
    mode: u32,
    mtime: i64,
}

/// Event that stops the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The process is killed; its writes stay.
    Kill,
    /// The power fails; any part of the unsynced data is lost.
    Power,
}

impl End {
    /// Returns the storage after the event.
    fn of(self, storage: &MemoryStorage, seed: u64) -> MemoryStorage {
        match self {
            End::Kill => storage.after_kill(),
            End::Power => storage.after_power_cut(seed),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Returns the name of the journal of the file that is repaired.
fn journal() -> String {
    super::file::journal_names(&name("f")).unwrap()[0].to_string()
}

fn key() -> DigestKey {
    DigestKey::of_journals(&[1; 32])
}

fn source(storage: &MemoryStorage, text: &str) -> Arc<dyn SourceFile> {
    storage.root().source(&name(text), Follow::No).unwrap()
}

/// Returns all bytes of a file.
fn bytes_of(storage: &MemoryStorage, text: &str) -> Vec<u8> {
    let file = source(storage, text);
    let mut bytes = vec![0; file.opened().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Returns the file that is repaired.
fn file(storage: &MemoryStorage) -> File {
    let found = *source(storage, "f").opened();
    File { bytes: bytes_of(storage, "f"), mode: found.mode, mtime: found.mtime.sec }
}

/// Returns the names beside the file, sorted.
fn others(storage: &MemoryStorage) -> Vec<String> {
    let mut entries = Vec::new();
    storage.root().list().unwrap().next(100, &mut entries).unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
    names.retain(|name| name != "f");
    names.sort();
    names
}

/// Opens the file as another program does.
fn in_place(storage: &MemoryStorage) -> Arc<dyn SinkFile> {
    let create = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
    storage.root().sink(&name("f"), create).unwrap()
}

/// Runs `act`, and returns the storage as each event would leave it before each call that `wants`
/// selects by its number, and at the end.
fn stops(
    storage: &MemoryStorage,
    ends: &[End],
    seed: u64,
    wants: impl Fn(usize) -> bool + Send + Sync + 'static,
    act: impl FnOnce(),
) -> Vec<(End, MemoryStorage)> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let of = move |storage: &MemoryStorage, ends: &[End], number: usize| -> Vec<_> {
        ends.iter().map(|end| (*end, end.of(storage, seed.wrapping_add(number as u64)))).collect()
    };
    let (inner, seen, calls) = (storage.clone(), Arc::clone(&found), AtomicUsize::new(0));
    let wanted = ends.to_vec();
    storage.observe(move |_, _| {
        let number = calls.fetch_add(1, Ordering::Relaxed);
        if wants(number) {
            seen.lock().unwrap().extend(of(&inner, &wanted, number));
        }
    });
    act();
    storage.observe(|_, _| ());
    let mut found = std::mem::take(&mut *found.lock().unwrap());
    found.extend(of(storage, ends, usize::MAX));
    found
}

/// Repair of one file that tests run repeatedly.
struct Case {
    old: Vec<u8>,
    new: Vec<u8>,
    pieces: Vec<ByteRange>,
    /// Number of further checks before a stop.
    checks: Cell<usize>,
}

impl ReplacementSource for Case {
    fn each(&self, take: &mut Take<'_>) -> Result<(), LeftReason> {
        for piece in &self.pieces {
            let bytes = &self.new[piece.start.0 as usize..piece.end.0 as usize];
            for (number, block) in bytes.chunks(CHUNK_BYTES_MAX).enumerate() {
                take(piece.start.0 + (number * CHUNK_BYTES_MAX) as u64, block)?;
            }
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), LeftReason> {
        let left = self.checks.get().checked_sub(1);
        self.checks.set(left.unwrap_or_default());
        left.map(drop).ok_or(LeftReason::Stopped)
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), LeftReason> {
        buffer.copy_from_slice(&self.new[at as usize..][..buffer.len()]);
        Ok(())
    }
}

impl Case {
    /// Creates a file of three chunks with damage in two places.
    fn rotten() -> Case {
        let mut new = vec![0; 75_001];
        Random::from_seed(3).fill(&mut new);
        let mut old = new.clone();
        old[600..900].fill(0);
        old[2100..75_001].fill(1);
        let pieces = vec![ByteRange::between(512, 1024), ByteRange::between(2048, 75_001)];
        Case { old, new, pieces, checks: Cell::new(usize::MAX) }
    }

    fn files(&self) -> [File; 2] {
        let file = |bytes: &Vec<u8>, mtime| File { bytes: bytes.clone(), mode: MODE, mtime };
        [file(&self.old, 100), file(&self.new, 200)]
    }

    /// Returns a storage with the old file.
    fn storage(&self) -> MemoryStorage {
        let storage = MemoryStorage::new(1);
        storage.set_user(USER);
        let root = storage.root();
        let sink = root.sink(&name("f"), Create::New { mode: 0o600 }).unwrap();
        sink.write_at(0, &self.old).unwrap();
        let time = |sec| Some(Timespec { sec, nsec: 0 });
        let times = Times { atime: time(1), mtime: time(100) };
        let metadata = Metadata { mode: Some(MODE), times, ..Metadata::default() };
        sink.finish(self.old.len() as u64, &metadata).unwrap();
        sink.sync(SyncWhat::All).unwrap();
        root.sync().unwrap();
        storage
    }

    /// Runs `act` on the file, which is held for a repair.
    fn hold<T>(
        &self,
        storage: &MemoryStorage,
        key: DigestKey,
        act: impl FnOnce(&mut InPlaceFile<'_>, &dyn SourceFile) -> Result<T, LeftReason>,
    ) -> Result<T, LeftReason> {
        let name_at = NameAt { dir: storage.root(), name: name("f") };
        let open = name_at.open().map_err(LeftReason::io("open the file"))?;
        let target = RepairTarget::of_bytes(b"f", &self.new, MODE, Moment { sec: 200, nsec: 0 });
        let stop = AtomicBool::new(false);
        let mut file = InPlaceFile::hold(&name_at, &*open, &target, Some(key), &stop)?;
        act(&mut file, &*open)
    }

    fn run(&self, storage: &MemoryStorage) -> Result<(), LeftReason> {
        self.hold(storage, key(), |file, open| {
            let head = file.head(open)?;
            mend(file, &head, self)
        })
    }

    fn recover(&self, storage: &MemoryStorage) -> Result<Option<Recovered>, LeftReason> {
        match self.hold(storage, key(), |file, _| search(file))? {
            Recovery::None => Ok(None),
            Recovery::Done { became, .. } => Ok(Some(became)),
            Recovery::Distrusted { why, .. } => panic!("an own journal is trusted: {why}"),
        }
    }

    /// Stops the repair before each call, in both ways. Returns the number of calls.
    fn survives_all(&self, seed: u64) -> usize {
        let storage = self.storage();
        let ends = [End::Kill, End::Power];
        let found = stops(&storage, &ends, seed, |_| true, || self.run(&storage).unwrap());
        assert_eq!(file(&storage), self.files()[1]);
        let calls = found.len() / 2 - 1;
        for (number, (end, stopped)) in found.into_iter().enumerate() {
            let what = format!("seed {seed}, {end:?} before call {}", number / 2);
            self.survives(stopped, end, seed.wrapping_add(number as u64), number / 2 == calls, &what);
        }
        calls
    }

    /// Recovers the stopped repair. Two recoveries stop at random calls. The remaining file must be
    /// one of the two files.
    fn survives(&self, mut storage: MemoryStorage, end: End, seed: u64, is_done: bool, what: &str) {
        let mut random = Random::from_seed(seed);
        for _ in 0..2 {
            let last = random.index(120);
            let recover = || drop(self.recover(&storage));
            let found = stops(&storage, &[end], random.next_u64(), move |number| number == last, recover);
            storage = found.into_iter().next().expect("the end is there").1;
        }
        let became = self.recover(&storage).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(others(&storage).is_empty(), "{what}: the journal stays");
        let [old, new] = self.files();
        let now = file(&storage);
        // The result is durable now. A kill between the removal of the journal and its sync lets a
        // power failure bring the journal back. That undoes a repair that only added zeros.
        let left = storage.after_power_cut(seed);
        let has_returned = !others(&left).is_empty();
        self.recover(&left).unwrap_or_else(|why| panic!("{what}, again: {why}"));
        let later = file(&left);
        let is_same = later == now || (has_returned && later == old);
        assert!(is_same && others(&left).is_empty(), "{what}: the result is not durable");
        assert!(!(is_done && has_returned), "{what}: the journal of a finished repair returns");
        let is_new = now == new;
        assert!(is_new || now == old, "{what}: a mixture");
        assert!(is_new || !is_done, "{what}: a finished repair is undone");
        match became {
            Some(Recovered::Finished) => assert!(is_new, "{what}"),
            Some(Recovered::Undone) => assert!(!is_new, "{what}"),
            None => {}
        }
    }

    /// Returns a storage whose repair was killed while it overwrote the file.
    fn half_done(&self) -> MemoryStorage {
        let storage = self.storage();
        let found = stops(&storage, &[End::Kill], 1, |_| true, || self.run(&storage).unwrap());
        let is_half = |storage: &MemoryStorage| {
            let bytes = bytes_of(storage, "f");
            others(storage) == [journal()] && bytes != self.old && bytes != self.new
        };
        found.into_iter().map(|(_, storage)| storage).find(is_half).expect("two chunks are overwritten")
    }
}

#[test]
fn interrupted_repair_is_undone_or_completed_by_the_next_run() {
    for seed in 0..24 {
        let calls = Case::rotten().survives_all(seed << 32);
        assert!(calls > 40, "{calls}");
    }
}

#[test]
fn journal_names_match_the_format_description() {
    let names = super::file::journal_names(&name("big")).unwrap();
    let expected = [".haul-journal-efafabd15957271d", ".haul-journal-efafabd15957271d.new"];
    assert_eq!(names.map(|name| name.to_string()), expected);
}

#[test]
fn failed_write_is_undone_immediately() {
    let case = Case::rotten();
    let storage = case.storage();
    let before = storage.count(Call::Write);
    case.run(&storage).unwrap();
    let writes = storage.count(Call::Write) - before;
    assert!(writes >= 3, "{writes}");
    for nth in 1..=writes {
        let storage = case.storage();
        storage.fail(Call::Write, nth, ENOSPC);
        let why = case.run(&storage).unwrap_err().to_string();
        assert!(why.contains("No space left"), "{why}");
        for left in [storage.after_kill(), storage.after_power_cut(nth)] {
            assert!(file(&left) == case.files()[0] && others(&left).is_empty(), "write {nth}");
        }
    }
}

/// Regression test: a repair read and wrote everything behind the end of the file, whatever signal
/// came.
#[test]
fn repair_of_a_file_that_is_too_long_stops_at_each_chunk() {
    let case = |checks| {
        let pieces = vec![ByteRange::between(0, 1000)];
        let checks = Cell::new(checks);
        Case { old: vec![1; 1000 + 9 * CHUNK_BYTES_MAX], new: vec![2; 1000], pieces, checks }
    };
    let all = case(usize::MAX);
    all.run(&all.storage()).unwrap();
    let checks = usize::MAX - all.checks.get();
    assert!(checks >= 3 * 9, "the bytes are recorded, checked and truncated: {checks}");
    for stop in 0..checks {
        let case = case(stop);
        let storage = case.storage();
        let why = case.run(&storage).unwrap_err();
        assert!(matches!(why, LeftReason::Stopped), "{stop}: {why}");
        assert!(file(&storage) == case.files()[0] && others(&storage).is_empty(), "{stop}");
    }
}

#[test]
fn writes_lost_by_storage_stay_in_the_journal() {
    let case = Case::rotten();
    assert!(case.new[700] != 1 && case.old[700] == 0);
    let storage = case.storage();
    let (ino, device) = (source(&storage, "f").opened().ino, storage.clone());
    // Each time the device stores bytes, one of them differs.
    storage.observe(move |call, _| {
        if call == Call::Flush {
            device.damage(ino, 700);
        }
    });
    let why = case.run(&storage).unwrap_err();
    assert!(matches!(why, LeftReason::HalfDone(..)), "{why}");
    assert_eq!(others(&storage), [journal()]);
    // A byte that is neither old nor new may be another user's change.
    storage.observe(|_, _| ());
    assert!(matches!(case.recover(&storage), Err(LeftReason::Foreign)));
}

/// A failed sync counts for all of an open file, so that the old bytes are restored by another one.
#[test]
fn bytes_lost_by_a_sync_are_restored() {
    let case = Case::rotten();
    let storage = case.storage();
    let before = [Call::WriteBack, Call::Flush].map(|call| storage.count(call));
    case.run(&storage).unwrap();
    for (call, before) in [Call::WriteBack, Call::Flush].into_iter().zip(before) {
        let count = storage.count(call) - before;
        assert!(count >= 2, "{count}");
        for nth in 1..=count {
            let storage = case.storage();
            storage.fail(call, nth, 5);
            let why = case.run(&storage).unwrap_err();
            assert!(!matches!(why, LeftReason::HalfDone(..)), "{call:?} {nth}: {why}");
            let left = storage.after_power_cut(nth);
            assert!(file(&left) == case.files()[0] && others(&left).is_empty(), "{call:?} {nth}");
        }
    }
}

#[test]
fn foreign_changes_since_the_interruption_are_kept() {
    let case = Case::rotten();
    let half = case.half_done();
    for (at, bytes) in [(600, &[77][..]), (74_000, &[77]), (75_001, &[1; 10])] {
        let storage = half.after_kill();
        in_place(&storage).write_at(at, bytes).unwrap();
        let changed = file(&storage);
        assert!(matches!(case.recover(&storage), Err(LeftReason::Foreign)), "{at}");
        assert!(file(&storage) == changed && others(&storage) == [journal()], "nothing was done to the file");
    }
    assert_eq!(case.recover(&half).unwrap(), Some(Recovered::Undone));
}

/// Every flipped bit, every truncation and another key, after a repair that was interrupted: the
/// recovery does not touch the file, and does not stop.
#[test]
fn untrusted_journals_are_set_aside_and_change_nothing() {
    let case = Case::rotten();
    let half = case.half_done();
    let (before, bytes) = (file(&half), bytes_of(&half, &journal()));
    let refused = |bytes: &[u8], key: DigestKey| {
        let storage = half.after_kill();
        let root = storage.root();
        root.remove(&name(&journal()), Remove::File).unwrap();
        root.sink(&name(&journal()), Create::New { mode: 0o600 }).unwrap().write_at(0, bytes).unwrap();
        let found = case.hold(&storage, key, |file, _| search(file)).unwrap();
        assert!(matches!(&found, Recovery::Distrusted { aside: Ok(_), .. }), "{found:?}");
        assert!(file(&storage) == before && others(&storage) == [format!("{}.untrusted", journal())]);
    };
    for at in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let mut hurt = bytes.clone();
        hurt[at] ^= 1 << (at % 8);
        refused(&hurt, key());
        refused(&bytes[..at], key());
    }
    refused(&bytes, DigestKey::of_journals(&[2; 32]));
    assert_eq!(case.recover(&half).unwrap(), Some(Recovered::Undone));
}

#[test]
fn lengths_that_differ_by_one_byte_are_corrected() {
    for len in [1, SECTOR_BYTES - 1, SECTOR_BYTES, SECTOR_BYTES + 1] {
        for (old, new) in [(len + 1, len), (len, len + 1)] {
            let pieces = vec![ByteRange::between(0, new as u64)];
            Case { old: vec![1; old], new: vec![1; new], pieces, ..Case::rotten() }.survives_all(len as u64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn growing_and_shrinking_repairs_survive_interruption(
        old_len in 0_usize..3000,
        new_len in 0_usize..3000,
        step in 1_usize..4,
        zeros in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut random = Random::from_seed(seed);
        let [mut old, mut new] = [vec![0; old_len], vec![0; new_len]];
        random.fill(&mut old);
        if !zeros {
            random.fill(&mut new);
        }
        let step = step * SECTOR_BYTES;
        let pieces = (0..new_len).step_by(step);
        let pieces = pieces.map(|at| ByteRange::between(at as u64, (at + step).min(new_len) as u64)).collect();
        let case = Case { old, new, pieces, ..Case::rotten() };
        prop_assume!(case.old != case.new);
        case.survives_all(seed);
    }
}
