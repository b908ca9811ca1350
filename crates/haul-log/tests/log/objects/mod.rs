//! Tests of the object log: synced data is read back, and nothing that was not logged, whatever
//! happens to its files.

mod bytes;
mod crash;
mod damage;
mod medium;
mod space;

use haul_log::objects::{
    Encoding, Facts, FileKey, Identity, Job, Log, Mechanism, OBJECTS_MAX, Replay, SourceVersion, Style,
    Subject, replay,
};
use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
use medium::Medium;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

/// Object size of the tests.
const OBJECT: u64 = 64 << 10;

/// Simple model of the facts in a log.
type Plain = BTreeMap<Subject, BTreeSet<u64>>;

fn job() -> Job {
    Job { id: Identity::of(b"a job"), object: ObjectSize::new(OBJECT).unwrap() }
}

/// Returns all 18 combinations; transactions have two files.
fn styles() -> impl Iterator<Item = Style> {
    let two = NonZeroU32::new(2).unwrap();
    [Mechanism::File, Mechanism::Transaction(two), Mechanism::Universal]
        .into_iter()
        .flat_map(|mechanism| Encoding::ALL.map(|encoding| Style { mechanism, encoding }))
}

/// Returns a file with `objects` objects, the last one short. Versions differ by their time.
fn subject(path: &str, objects: u64, version: i64) -> Subject {
    Subject {
        path: RelPath::new(path.as_bytes()).unwrap(),
        source: SourceVersion {
            size: objects * OBJECT - 1,
            mtime: Moment { sec: 1_700_000_000 + version, nsec: 5 },
            identity: Identity::of(path.as_bytes()),
        },
        sink: Identity::of(b"a sink"),
    }
}

fn plain(facts: &Facts) -> Plain {
    facts
        .iter()
        .map(|(subject, set)| (subject.clone(), set.iter().map(|object| object.0).collect()))
        .collect()
}

fn is_within(some: &Plain, all: &Plain) -> bool {
    some.iter().all(|(subject, set)| all.get(subject).is_some_and(|all| set.is_subset(all)))
}

/// Decodes the files of a medium.
fn read(medium: &Medium) -> Replay {
    replay(&job(), &medium.files)
}

fn mark(log: &mut Log, key: FileKey, objects: impl IntoIterator<Item = u64>) {
    objects.into_iter().for_each(|object| log.done(key, ObjectIndex(object)));
}

/// Returns a log with a history: files of one, several and many objects, some of them complete, in
/// four commits.
fn sample(style: Style) -> (Medium, Log) {
    let (mut medium, mut log) = (Medium::default(), Log::new(job(), style, 7));
    let key = |log: &mut Log, path, objects| log.open(&subject(path, objects, 0)).unwrap();
    let (a, b, c) = (key(&mut log, "a", 20), key(&mut log, "dir/b", 9000), key(&mut log, "c", 3));
    mark(&mut log, a, [3, 17]);
    mark(&mut log, b, (0..300).chain([8999]));
    medium.perform(&log.commit());
    mark(&mut log, c, [1]);
    mark(&mut log, b, 5000..5100);
    medium.perform(&log.commit());
    log.complete(c);
    mark(&mut log, a, [0, 19]);
    medium.perform(&log.commit());
    mark(&mut log, b, [4095, 4096]);
    medium.perform(&log.commit());
    (medium, log)
}

#[test]
fn logged_objects_are_read_back_in_every_style() {
    for style in styles() {
        let (medium, log) = sample(style);
        let found = read(&medium);
        assert_eq!(found.flaws, [], "{style:?}");
        assert_eq!(found.facts, log.facts(), "{style:?}");
        let [(_, a), (b, _)] = found.facts.iter().collect::<Vec<_>>()[..] else {
            panic!("two files: {style:?}")
        };
        assert_eq!((a.len(), b.path.as_bytes()), (4, &b"dir/b"[..]));
        assert_eq!(found.facts.versions(&b.path).collect::<Vec<_>>(), [b]);
    }
}

#[test]
fn log_files_exist_from_the_first_object_to_completion() {
    for style in styles() {
        let (mut medium, mut log) = (Medium::default(), Log::new(job(), style, 1));
        let keys: Vec<FileKey> =
            (0..4).map(|n| log.open(&subject(&format!("f{n}"), 2, 0)).unwrap()).collect();
        assert_eq!(log.commit(), [], "opening writes nothing");
        mark(&mut log, keys[0], [0, 1]);
        log.complete(keys[0]);
        assert_eq!(log.commit(), [], "a file that is complete by the commit writes nothing");
        keys[1..].iter().for_each(|&key| mark(&mut log, key, [0]));
        medium.perform(&log.commit());
        let count = match style.mechanism {
            Mechanism::File => 3,
            Mechanism::Transaction(_) => 4,
            Mechanism::Universal => 2,
        };
        assert_eq!(medium.files.len(), count, "{style:?}: {:?}", medium.files.keys());
        log.complete(keys[1]);
        log.complete(keys[2]);
        medium.perform(&log.commit());
        let left = if style.mechanism == Mechanism::File { 1 } else { 2 };
        assert_eq!(medium.files.len(), left, "{style:?}: {:?}", medium.files.keys());
        log.complete(keys[3]);
        medium.perform(&log.commit());
        medium.perform(&log.finish());
        assert!(medium.files.is_empty(), "{style:?}: {:?}", medium.files.keys());
    }
}

#[test]
fn log_size_does_not_grow_with_completed_files() {
    for style in styles() {
        let (mut medium, mut log) = (Medium::default(), Log::new(job(), style, 1));
        let stays = log.open(&subject("stays", 5000, 0)).unwrap();
        let mut most = 0;
        for n in 0..3000 {
            mark(&mut log, stays, [n]);
            let passes = log.open(&subject(&format!("passes {n}"), 2, 0)).unwrap();
            mark(&mut log, passes, [1]);
            medium.perform(&log.commit());
            log.complete(passes);
            most = most.max(medium.bytes());
        }
        assert!(read(&medium).facts.of(&subject("stays", 5000, 0)).is_some_and(|set| set.len() == 3000));
        // Twice the size of 3,000 integers in groups of one, and some data whose cleanup is not
        // worth the syncs.
        let bound = if style.encoding >= Encoding::Bit8 { 16 << 10 } else { 2 * 14 * 3000 + 8192 };
        assert!(most < bound, "{style:?}: {most} bytes");
    }
}

#[test]
fn other_versions_of_a_file_are_revoked_and_larger_files_refused() {
    for style in styles() {
        let (mut medium, mut log) = sample(style);
        let newer = subject("a", 20, 1);
        let key = log.open(&newer).unwrap();
        assert!(log.known(key).is_some_and(|set| set.is_empty()));
        medium.perform(&log.commit());
        let found = read(&medium).facts;
        assert!(found.versions(&newer.path).next().is_none(), "{style:?}");
        assert_eq!(found, log.facts());
        let most = style.encoding.objects_max();
        let mut largest = subject("largest", 1, 0);
        largest.source.size = u64::MAX;
        assert_eq!(log.open(&largest).is_ok(), most == OBJECTS_MAX);
        largest.source.size = (most - 1) * OBJECT + 1;
        assert!(log.open(&largest).is_ok());
        if most < OBJECTS_MAX {
            largest.source.size = most * OBJECT + 1;
            let error = log.open(&largest).unwrap_err();
            assert_eq!((error.objects, error.encoding), (most + 1, style.encoding));
            assert!(error.to_string().contains("use larger objects"));
        }
    }
}

#[test]
fn job_resumes_in_any_style() {
    for (old, new) in styles().flat_map(|old| styles().map(move |new| (old, new))) {
        let (mut medium, before) = sample(old);
        let found = read(&medium);
        // The same `life` on purpose: a keeper's random number may repeat.
        let mut log = Log::resume(job(), new, 7, &found);
        let key = log.open(&subject("a", 20, 0)).unwrap();
        assert_eq!(log.known(key).map(|set| set.len()), Some(4));
        medium.perform(&log.commit());
        assert_eq!(read(&medium), Replay { flaws: vec![], ..read(&medium) });
        assert_eq!(read(&medium).facts, before.facts(), "{old:?} to {new:?}");
        let of_old = medium.files.keys().filter(|name| found.names.contains(name));
        assert!(of_old.count() <= 2 && (old == new || medium.files.len() <= 2), "{:?}", medium.files.keys());
        medium.perform(&log.finish());
        assert!(medium.files.is_empty());
    }
}
