//! Property tests of power losses at any order of any commit: everything that was synced is read
//! back, and nothing that was not logged.

use super::medium::{Dice, Medium};
use super::{Plain, is_within, job, mark, plain, read, sample, styles, subject};
use haul_log::objects::{FileKey, Log, Order, Style, Subject};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// Object counts of the files: less than a word, words, and several pages.
const OBJECTS: [u64; 5] = [1, 7, 70, 4097, 9000];

/// A step of the engine.
#[derive(Clone, Debug)]
enum Step {
    /// `count` objects of a file become durable: from `first` on, `apart` objects apart.
    Done {
        file: usize,
        first: u64,
        apart: u64,
        count: u64,
    },
    Complete(usize),
    Revoke(usize),
    /// The source has a new version of the file.
    Change(usize),
    Commit,
    /// A commit in which an order fails.
    Fail {
        before: usize,
        seed: u64,
    },
    /// A power loss within a commit, after which the job resumes in some style.
    Crash {
        before: usize,
        seed: u64,
        style: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..OBJECTS.len();
    prop_oneof![
        6 => (file.clone(), any::<u64>(), 1_u64..40, 1_u64..60)
            .prop_map(|(file, first, apart, count)| Step::Done { file, first, apart, count }),
        2 => file.clone().prop_map(Step::Complete),
        1 => file.clone().prop_map(Step::Revoke),
        1 => file.prop_map(Step::Change),
        5 => Just(Step::Commit),
        1 => (0_usize..6, any::<u64>()).prop_map(|(before, seed)| Step::Fail { before, seed }),
        1 => (0_usize..6, any::<u64>(), 0_usize..18)
            .prop_map(|(before, seed, style)| Step::Crash { before, seed, style }),
    ]
}

/// A job, its medium, and the expected contents.
struct World {
    medium: Medium,
    log: Log,
    versions: [i64; OBJECTS.len()],
    keys: BTreeMap<usize, FileKey>,
    /// Objects that may be read back.
    upper: Plain,
    /// Objects that must be read back.
    lower: Plain,
    /// Revoked objects, which may be read back until a commit completes.
    revoked: Plain,
    lives: u64,
    /// True if every possible state after a power loss is tried; otherwise two random ones are
    /// tried. `tried` counts them.
    tries_all: bool,
    tried: Cell<usize>,
}

impl World {
    fn new(style: Style) -> World {
        let log = Log::new(job(), style, 1000);
        let (upper, lower, revoked) = Default::default();
        World {
            medium: Medium::default(),
            log,
            versions: [0; 5],
            keys: BTreeMap::new(),
            upper,
            lower,
            revoked,
            lives: 1,
            tries_all: false,
            tried: Cell::new(0),
        }
    }

    fn subject(&self, file: usize) -> Subject {
        subject(&format!("file {file}"), OBJECTS[file], self.versions[file])
    }

    fn key(&mut self, file: usize) -> FileKey {
        let subject = self.subject(file);
        *self.keys.entry(file).or_insert_with(|| self.log.open(&subject).unwrap())
    }

    /// Revokes the objects of a file.
    fn withdraw(&mut self, file: usize) {
        let subject = self.subject(file);
        self.lower.remove(&subject);
        if let Some(set) = self.upper.remove(&subject) {
            self.revoked.entry(subject).or_default().extend(set);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Done { file, first, apart, count } => {
                let key = self.key(file);
                let objects: Vec<u64> =
                    (0..count).map(|n| (first % OBJECTS[file] + n * apart) % OBJECTS[file]).collect();
                self.upper.entry(self.subject(file)).or_default().extend(&objects);
                mark(&mut self.log, key, objects);
            }
            Step::Complete(file) => {
                if let Some(key) = self.keys.remove(&file) {
                    self.log.complete(key);
                    self.lower.remove(&self.subject(file));
                }
            }
            Step::Revoke(file) => {
                let key = self.key(file);
                self.log.revoke(key);
                self.withdraw(file);
            }
            Step::Change(file) => {
                let was_open = self.keys.remove(&file).is_some();
                if was_open {
                    self.withdraw(file);
                } else {
                    self.lower.remove(&self.subject(file));
                }
                self.versions[file] += 1;
                self.key(file);
            }
            Step::Commit => self.commit(usize::MAX, 5),
            Step::Fail { before, seed } => self.commit(before, seed),
            Step::Crash { before, seed, style } => self.crash(before, seed, style),
        }
    }

    /// Executes a commit, and checks a simulated power loss after each order. Stops after `before`
    /// orders if the commit has more.
    fn commit(&mut self, before: usize, seed: u64) {
        let orders = self.log.commit();
        let mut dice = Dice::new(seed);
        let (there, mut made) = (self.medium.names(), BTreeSet::new());
        for (number, order) in orders.iter().enumerate() {
            if let Order::Write { name, .. } = order
                && !there.contains(name)
            {
                made.insert(name.clone());
            }
            if number == before {
                if let Order::Write { name, at, bytes } = order {
                    let bytes = bytes[..dice.below(bytes.len())].to_vec();
                    self.medium.order(&Order::Write { name: name.clone(), at: *at, bytes });
                }
                self.check(&mut dice);
                // Like the engine: files that nothing reads are removed, which need not be durable,
                // and files that do not exist are forgotten.
                made.into_iter().for_each(|name| self.medium.order(&Order::Remove { name }));
                self.check(&mut dice);
                let there = self.medium.names();
                self.log.start_over();
                self.log.keep_names(|name| there.contains(name));
                return;
            }
            self.medium.order(order);
            if matches!(order, Order::Sync | Order::Replace { .. }) {
                let rest = &orders[number + 1..];
                made.retain(|name| rest.iter().any(|order| order.names(name)));
            }
            self.check(&mut dice);
        }
        self.lower = plain(&self.log.facts());
        self.revoked.clear();
        self.check(&mut dice);
    }

    fn crash(&mut self, before: usize, seed: u64, style: usize) {
        let orders = self.log.commit();
        orders.iter().take(before).for_each(|order| self.medium.order(order));
        self.medium = self.medium.crash(&mut Dice::new(seed));
        let found = read(&self.medium);
        self.hold(&plain(&found.facts));
        self.lives += 1;
        self.log = Log::resume(job(), styles().nth(style).unwrap(), self.lives * 1_000_000, &found);
        self.keys.clear();
        // Everything that was read back is known now, and the next crash must give it back,
        // whatever was complete.
        self.lower = plain(&found.facts);
        self.upper = self.lower.clone();
        self.revoked.clear();
        // The engine opens its files again; other versions are dropped.
        for file in 0..OBJECTS.len() {
            let subject = self.subject(file);
            let others: Vec<Subject> = self
                .lower
                .keys()
                .filter(|other| other.path == subject.path && **other != subject)
                .cloned()
                .collect();
            for other in others {
                let set = self.lower.remove(&other).unwrap();
                self.upper.remove(&other);
                self.revoked.insert(other, set);
            }
            let key = self.key(file);
            let known = self.log.known(key).unwrap().iter().map(|object| object.0);
            assert!(
                known.eq(self.lower.get(&subject).into_iter().flatten().copied()),
                "all is known of {subject:?}"
            );
        }
    }

    /// Checks several possible states after a power loss at this moment.
    fn check(&self, dice: &mut Dice) {
        if self.tries_all {
            let all = self.medium.every_crash();
            self.tried.set(self.tried.get() + all.len());
            return all.iter().for_each(|left| self.hold(&plain(&read(left).facts)));
        }
        for _ in 0..2 {
            self.hold(&plain(&read(&self.medium.crash(dice)).facts));
        }
    }

    #[track_caller]
    fn hold(&self, found: &Plain) {
        let mut most = self.upper.clone();
        self.revoked.iter().for_each(|(subject, set)| most.entry(subject.clone()).or_default().extend(set));
        assert!(is_within(found, &most), "found {found:?}, logged {most:?}");
        assert!(is_within(&self.lower, found), "found {found:?}, synced {:?}", self.lower);
    }
}

fn hold_style(style: Style, steps: &[Step]) {
    let mut world = World::new(style);
    steps.iter().for_each(|step| world.step(step));
    world.commit(usize::MAX, 9);
    let found = read(&world.medium);
    assert!(is_within(&world.lower, &plain(&found.facts)));
    world.medium.perform(&world.log.finish());
    assert!(world.medium.files.is_empty(), "{:?}", world.medium.files.keys());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn crash_loses_no_synced_and_adds_no_unlogged_objects(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        styles().for_each(|style| hold_style(style, &steps));
    }
}

/// Runs a short job. After each order of each commit, checks every set of unsynced writes, whole or
/// half, that the medium may have. Whatever the order in which the medium writes them, it passes
/// through one of these states.
#[test]
fn unsynced_write_subsets_lose_no_synced_and_add_no_unlogged_objects() {
    let done = |file, first, count| Step::Done { file, first, apart: 1, count };
    let steps = [
        done(1, 2, 3),
        Step::Commit,
        done(1, 0, 7),
        done(2, 9, 2),
        Step::Commit,
        done(3, 4094, 3),
        Step::Commit,
        Step::Change(2),
        done(2, 60, 5),
        Step::Complete(1),
        Step::Commit,
        Step::Revoke(3),
        done(3, 7, 1),
        Step::Commit,
        Step::Complete(2),
        done(0, 0, 1),
        Step::Commit,
    ];
    for style in styles() {
        let mut world = World { tries_all: true, ..World::new(style) };
        steps.iter().for_each(|step| world.step(step));
        assert!(world.tried.get() > 40, "{style:?}: only {} ways were tried", world.tried.get());
    }
}

/// Regression: while a disk was full, the names of all files that could not be written were
/// remembered. Each further commit ordered their removal.
#[test]
fn failed_commits_order_no_extra_removals() {
    for style in styles() {
        let (medium, mut log) = sample(style);
        let there = medium.names();
        let key = log.open(&subject("dir/b", 9000, 0)).unwrap();
        for object in 2000..2100 {
            mark(&mut log, key, [object]);
            let orders = log.commit();
            let removals = orders.iter().filter(|order| matches!(order, Order::Remove { .. })).count();
            assert!(removals <= there.len(), "{style:?}: {removals} removals where {there:?} are");
            log.start_over();
            log.keep_names(|name| there.contains(name));
        }
    }
}
