//! Tests on a simulated machine that loses power or the process at any step, chosen by a seed.
//! After the next run the file is unchanged or complete.

use super::recover::recover as search;
use super::{JournalFile, Privileges, Recovery, RepairIo, ReplacementSource, Take, mend};
use crate::repair::{LeftReason, Recovered};
use haul_digest::DigestKey;
use haul_lab::random::Random;
use haul_log::journal::{CHUNK_BYTES_MAX, Head, SECTOR_BYTES, Shape};
use haul_log::waybill::Moment;
use haul_model::ByteRange;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::io::{self, Cursor, Write};
use std::rc::Rc;

/// State of a file that can be lost.
#[derive(Clone, Debug, PartialEq)]
struct File {
    bytes: Vec<u8>,
    mode: u32,
    mtime: i64,
}

/// Existence of a draft, and existence of a journal.
type Names = (bool, bool);

/// Event that stops the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The process is killed; its writes stay.
    Kill,
    /// The power fails; any part of the unsynced data is lost.
    Power,
}

struct World {
    random: Random,
    /// Steps until the stop.
    fuel: usize,
    steps: usize,
    file: File,
    durable: File,
    /// The only journal or draft: written bytes, and the durable part of them.
    log: (Vec<u8>, Option<Vec<u8>>),
    names: Names,
    /// Directory states that a power failure may leave; the durable one is first.
    name_states: Vec<Names>,
    expected: Vec<u8>,
    /// Number of the write that fails, counted from 0.
    full_at: Option<usize>,
    writes: usize,
    /// Offset of a byte of which each write flips a bit.
    lies_at: Option<usize>,
    /// Number of journals that were set aside.
    set_aside: usize,
}

/// World with shared mutable access, and its key.
#[derive(Clone)]
struct Sim(Rc<RefCell<World>>, DigestKey);

fn recover(sim: &Sim) -> Result<Option<Recovered>, LeftReason> {
    match search(sim)? {
        Recovery::None => Ok(None),
        Recovery::Done { became, .. } => Ok(Some(became)),
        Recovery::Distrusted { why, .. } => panic!("an own journal is trusted: {why}"),
    }
}

impl World {
    fn step(&mut self) -> io::Result<()> {
        if self.fuel == 0 {
            return Err(io::Error::other("the end"));
        }
        self.fuel -= 1;
        self.steps += 1;
        Ok(())
    }

    fn rename(&mut self, names: Names) {
        self.names = names;
        self.name_states.push(names);
    }

    fn sync_names(&mut self) {
        self.name_states = vec![self.names];
    }

    /// Restarts the machine after a stop.
    fn restart(&mut self, end: End) {
        self.fuel = usize::MAX;
        if end == End::Kill {
            return;
        }
        let now = self.file.clone();
        let was = self.durable.clone();
        let coin = |random: &mut Random| random.below(2) == 0;
        let random = &mut self.random;
        let len = if coin(random) { now.bytes.len() } else { was.bytes.len() };
        let mut bytes = vec![0; len];
        for (number, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
            let from = if coin(random) { &now.bytes } else { &was.bytes };
            let rest = from.get(number * SECTOR_BYTES..).unwrap_or_default();
            let taken = rest.len().min(sector.len());
            sector[..taken].copy_from_slice(&rest[..taken]);
        }
        let facts = if coin(random) { &now } else { &was };
        self.file = File { bytes, ..facts.clone() };
        self.durable = self.file.clone();
        let index = random.index(self.name_states.len());
        self.names = self.name_states[index];
        self.name_states = vec![self.names];
        let lost = |random: &mut Random, mut bytes: Vec<u8>| {
            bytes.truncate(random.index(bytes.len() + 1));
            bytes.chunks_mut(SECTOR_BYTES).filter(|_| coin(random)).for_each(|sector| sector.fill(0));
            bytes
        };
        let kept = self.log.1.clone().unwrap_or_else(|| lost(random, self.log.0.clone()));
        self.log = (kept.clone(), Some(kept));
    }
}

impl Write for Sim {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.log.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RepairIo for Sim {
    type Draft = Sim;

    fn is_for(&self, head: &Head) -> bool {
        head.inode == 7
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.borrow().file.bytes.len() as u64)
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let world = self.0.borrow();
        let rest = world.file.bytes.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn reserve(&self, _: ByteRange) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.file.mtime = 1_000_000;
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let world = &mut *self.0.borrow_mut();
        let at = at as usize;
        let end = world.step();
        let mut taken = bytes.len();
        if end.is_err() {
            // The stop interrupts the write between two sectors.
            let sectors = bytes.len().div_ceil(SECTOR_BYTES);
            let last = (at / SECTOR_BYTES + world.random.index(sectors + 1)) * SECTOR_BYTES;
            taken = last.saturating_sub(at).min(bytes.len());
        } else if world.full_at == Some(world.writes) {
            world.full_at = None;
            return Err(io::Error::from_raw_os_error(28));
        }
        world.writes += 1;
        if taken > 0 {
            let len = world.file.bytes.len().max(at + taken);
            world.file.bytes.resize(len, 0);
            world.file.bytes[at..at + taken].copy_from_slice(&bytes[..taken]);
            (world.file.mtime, world.file.mode) = (1_000_000, 0o755);
        }
        if let Some(lie) = world.lies_at.filter(|lie| (at..at + taken).contains(lie)) {
            world.file.bytes[lie] ^= 1;
        }
        end
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.file.bytes.resize(len as usize, 0);
        world.file.mtime = 1_000_000;
        Ok(())
    }

    fn privileges_after(&self, head: &Head) -> io::Result<Privileges> {
        Ok(Privileges { mode: head.mode, capability: Vec::new(), has_lost_capability: false })
    }

    fn set_facts(&self, privileges: &Privileges, shape: &Shape) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.file.mode = privileges.mode;
        world.step()?;
        world.file.mtime = shape.mtime.sec;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.durable = world.file.clone();
        Ok(())
    }

    fn forget(&self) -> io::Result<()> {
        self.0.borrow_mut().step()
    }

    fn prove(&self) -> Result<(), LeftReason> {
        let mut world = self.0.borrow_mut();
        world.step().map_err(LeftReason::io("read"))?;
        let is_right = world.durable.bytes == world.expected;
        if is_right { Ok(()) } else { Err(LeftReason::StillWrong(ByteRange::between(0, 1))) }
    }

    fn draft(&self) -> io::Result<Sim> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.log = (Vec::new(), None);
        let journal = world.names.1;
        world.rename((true, journal));
        Ok(self.clone())
    }

    fn seal(&self, _: Sim) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.log.1 = Some(world.log.0.clone());
        world.step()?;
        world.rename((false, true));
        world.step()?;
        world.sync_names();
        Ok(())
    }

    fn key(&self) -> Option<&DigestKey> {
        Some(&self.1)
    }

    fn journal(&self) -> io::Result<JournalFile<'_>> {
        let world = self.0.borrow();
        if !world.names.1 {
            return Ok(JournalFile::Missing);
        }
        Ok(JournalFile::Own(Box::new(Cursor::new(world.log.0.clone()))))
    }

    fn set_aside(&self) -> io::Result<String> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        let draft = world.names.0;
        world.rename((draft, false));
        world.sync_names();
        world.set_aside += 1;
        Ok("aside".to_owned())
    }

    fn remove_journal(&self) -> io::Result<()> {
        let mut world = self.0.borrow_mut();
        world.step()?;
        world.rename((false, false));
        world.step()?;
        world.sync_names();
        Ok(())
    }
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
        let file = |bytes: &Vec<u8>, mtime| File { bytes: bytes.clone(), mode: 0o4755, mtime };
        [file(&self.old, 100), file(&self.new, 200)]
    }

    fn world(&self, seed: u64) -> Sim {
        let [old, _] = self.files();
        let world = Rc::new(RefCell::new(World {
            random: Random::from_seed(seed),
            fuel: usize::MAX,
            steps: 0,
            file: old.clone(),
            durable: old,
            log: (Vec::new(), None),
            names: (false, false),
            name_states: vec![(false, false)],
            expected: self.new.clone(),
            full_at: None,
            writes: 0,
            lies_at: None,
            set_aside: 0,
        }));
        Sim(world, DigestKey::of_journals(&[1; 32]))
    }

    fn run(&self, sim: &Sim) -> Result<(), LeftReason> {
        let time = |sec| Moment { sec, nsec: 0 };
        let shape =
            |bytes: &Vec<u8>, mtime| Shape { size: bytes.len() as u64, mtime: time(mtime), atime: time(1) };
        let head = Head {
            inode: 7,
            birth: None,
            name: b"f".to_vec(),
            mode: 0o4755,
            capability: Vec::new(),
            before: shape(&self.old, 100),
            after: shape(&self.new, 200),
        };
        mend(sim, &head, self)
    }

    /// Stops the repair after each number of steps, in both ways. Returns the number of steps.
    fn survives_all(&self, seed: u64) -> usize {
        let sim = self.world(seed);
        self.run(&sim).unwrap();
        assert_eq!(sim.0.borrow().file, self.files()[1]);
        let steps = sim.0.borrow().steps;
        for fuel in 0..=steps {
            for end in [End::Kill, End::Power] {
                self.survives(seed, fuel, end);
            }
        }
        steps
    }

    /// Stops the repair after `fuel` steps, and the next recoveries at random steps. The remaining
    /// file must be one of the two files.
    fn survives(&self, seed: u64, fuel: usize, end: End) {
        let sim = self.world(seed);
        let what = format!("seed {seed}, {end:?} after {fuel} steps");
        sim.0.borrow_mut().fuel = fuel;
        let is_done = self.run(&sim).is_ok();
        let [old, new] = self.files();
        let mut became = None;
        for again in (0..3).rev() {
            sim.0.borrow_mut().restart(end);
            let lasts = if again == 0 { usize::MAX } else { sim.0.borrow_mut().random.index(30) };
            sim.0.borrow_mut().fuel = lasts;
            became = recover(&sim).unwrap_or_else(|why| {
                assert!(again > 0, "{what}: {why}");
                None
            });
        }
        // The result is durable now.
        sim.0.borrow_mut().restart(End::Power);
        let world = sim.0.borrow();
        assert_eq!(world.names, (false, false), "{what}: the journal stays");
        let is_new = world.file == new;
        assert!(is_new || world.file == old, "{what}: a mixture");
        assert!(is_new || !is_done, "{what}: a finished repair is undone");
        match became {
            Some(Recovered::Finished) => assert!(is_new, "{what}"),
            Some(Recovered::Undone) => assert!(!is_new, "{what}"),
            None => {}
        }
    }
}

#[test]
fn interrupted_repair_is_undone_or_completed_by_the_next_run() {
    for seed in 0..24 {
        let steps = Case::rotten().survives_all(seed);
        assert!(steps > 20, "{steps}");
    }
}

#[test]
fn journal_names_match_the_format_description() {
    let names = super::disk::journal_names(c"big");
    assert_eq!(names, [".haul-journal-efafabd15957271d", ".haul-journal-efafabd15957271d.new"]);
}

#[test]
fn failed_write_is_undone_immediately() {
    let case = Case::rotten();
    for full_at in 0..3 {
        let sim = case.world(1);
        sim.0.borrow_mut().full_at = Some(full_at);
        let why = case.run(&sim).unwrap_err().to_string();
        assert!(why.contains("No space left"), "{why}");
        let world = sim.0.borrow();
        assert!(
            world.file == case.files()[0] && world.durable == world.file && world.names == (false, false)
        );
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
    all.run(&all.world(1)).unwrap();
    let checks = usize::MAX - all.checks.get();
    assert!(checks >= 3 * 9, "the bytes are recorded, checked and truncated: {checks}");
    for stop in 0..checks {
        let case = case(stop);
        let sim = case.world(1);
        let why = case.run(&sim).unwrap_err();
        assert!(matches!(why, LeftReason::Stopped), "{stop}: {why}");
        assert!(sim.0.borrow().file == case.files()[0] && sim.0.borrow().names == (false, false), "{stop}");
    }
}

#[test]
fn writes_lost_by_storage_stay_in_the_journal() {
    let case = Case::rotten();
    let sim = case.world(1);
    sim.0.borrow_mut().lies_at = Some(700);
    let why = case.run(&sim).unwrap_err();
    assert!(matches!(why, LeftReason::HalfDone(..)), "{why}");
    assert_eq!(sim.0.borrow().names, (false, true));
    // A byte that is neither old nor new may be another user's change.
    sim.0.borrow_mut().lies_at = None;
    assert!(matches!(recover(&sim), Err(LeftReason::Foreign)));
}

#[test]
fn foreign_changes_since_the_interruption_are_kept() {
    let case = Case::rotten();
    let sim = case.world(1);
    sim.0.borrow_mut().fuel = 15;
    case.run(&sim).unwrap_err();
    sim.0.borrow_mut().restart(End::Kill);
    assert!(sim.0.borrow().names.1, "the journal exists");
    let steps = sim.0.borrow().steps;
    for (at, len) in [(600, 0), (74_000, 0), (0, 10)] {
        let before = sim.0.borrow().file.bytes.clone();
        if len == 0 {
            sim.0.borrow_mut().file.bytes[at] = 77;
        } else {
            sim.0.borrow_mut().file.bytes.extend([1; 10]);
        }
        assert!(matches!(recover(&sim), Err(LeftReason::Foreign)), "{at}");
        sim.0.borrow_mut().file.bytes = before;
    }
    assert_eq!(sim.0.borrow().steps, steps, "nothing was done to the file");
    assert_eq!(recover(&sim).unwrap(), Some(Recovered::Undone));
}

/// Every flipped bit, every truncation and another key, after a repair that was interrupted: the
/// recovery does not touch the file, and does not stop.
#[test]
fn untrusted_journals_are_set_aside_and_change_nothing() {
    let case = Case::rotten();
    let sim = case.world(1);
    sim.0.borrow_mut().fuel = 15;
    case.run(&sim).unwrap_err();
    sim.0.borrow_mut().restart(End::Kill);
    let (file, journal) = (sim.0.borrow().file.clone(), sim.0.borrow().log.0.clone());
    let mut expected = 0;
    let mut refused = |sim: &Sim, bytes: Vec<u8>| {
        expected += 1;
        sim.0.borrow_mut().log.0 = bytes;
        sim.0.borrow_mut().names = (false, true);
        let found = search(sim).unwrap();
        assert!(matches!(&found, Recovery::Distrusted { aside: Ok(_), .. }), "{found:?}");
        let world = sim.0.borrow();
        assert!(world.file == file && world.set_aside == expected && world.names == (false, false));
    };
    for at in (0..journal.len()).step_by(97).chain([journal.len() - 1]) {
        let mut hurt = journal.clone();
        hurt[at] ^= 1 << (at % 8);
        refused(&sim, hurt);
        refused(&sim, journal[..at].to_vec());
    }
    refused(&Sim(sim.0.clone(), DigestKey::of_journals(&[2; 32])), journal.clone());
    sim.0.borrow_mut().names = (false, true);
    sim.0.borrow_mut().log.0 = journal;
    assert_eq!(recover(&sim).unwrap(), Some(Recovered::Undone));
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
