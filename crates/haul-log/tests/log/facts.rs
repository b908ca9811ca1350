//! Property tests: random facts of all kinds are the same after writing and reading.

use crate::{flaws, read, write};
use haul_digest::{Algebra, Algorithm, Digest, PartHasher, PartPlace, digest};
use haul_log::waybill::{
    Content, CopyMethod, Entry, Job, Kind, LEAVES_PER_LINE, LeafRun, Moment, ObjectDigests, Objects,
    PATH_BYTES_MAX, Proven, Reader, Record, RelPath, Special,
};
use haul_model::{ByteOffset, ByteRange, LeafSize, Level, Object, ObjectSize};
use proptest::prelude::*;
use proptest::sample::select;

/// Returns the digest of a part as a waybill stores it.
pub(crate) fn part_digest(algorithm: Algorithm, bytes: &[u8], offset: u64, whole: bool) -> Digest {
    if algorithm.algebra() == Algebra::Serial {
        return digest(algorithm, bytes);
    }
    let mut hasher = PartHasher::new(algorithm, PartPlace { offset: ByteOffset(offset), whole });
    hasher.update(bytes);
    hasher.finish().digest()
}

/// Returns the record of a file with these bytes and with every optional field.
pub(crate) fn file(
    path: &str,
    bytes: &[u8],
    algorithms: &[Algorithm],
    objects: Option<Objects>,
) -> Vec<Record> {
    let content = Content {
        size: bytes.len() as u64,
        digests: algorithms.iter().map(|&algorithm| digest(algorithm, bytes)).collect(),
        way: Some(CopyMethod::ReadWrite),
        level: Some(Level::Received),
        objects,
    };
    let (path, mtime) = (RelPath::new(path.as_bytes()).unwrap(), Moment { sec: 1_763_721_805, nsec: 7 });
    let mut records =
        vec![Record::Entry(Entry { path, kind: Kind::File(content.clone()), mode: 0o644, mtime })];
    let Some((geometry, objects)) = content.geometry().zip(content.objects.as_ref()) else { return records };
    for object in geometry.objects() {
        let part = &bytes[object.range.start.0 as usize..object.range.end.0 as usize];
        let whole = geometry.count() == 1;
        if !whole {
            let each = |&algorithm: &Algorithm| part_digest(algorithm, part, object.range.start.0, false);
            let digests = objects.algorithms.iter().map(each).collect();
            records.push(Record::Object(ObjectDigests { index: object.index, digests }));
        }
        records.extend(leaves(objects, object, part, whole).into_iter().map(Record::Leaves));
    }
    records
}

fn leaves(objects: &Objects, object: Object, part: &[u8], whole: bool) -> Vec<LeafRun> {
    let count = objects.leaves_of(object.range.len());
    let digests: Vec<Digest> = (0..count)
        .map(|number| {
            let range = objects.leaf_range(object.range, number).unwrap();
            let first = (range.start.0 - object.range.start.0) as usize;
            let bytes = &part[first..first + range.len() as usize];
            part_digest(objects.algorithms[0], bytes, range.start.0, whole && count == 1)
        })
        .collect();
    let runs = digests.chunks(LEAVES_PER_LINE as usize).enumerate();
    runs.map(|(run, digests)| LeafRun {
        object: object.index,
        first: run as u64 * LEAVES_PER_LINE,
        digests: digests.to_vec(),
    })
    .collect()
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn path() -> impl Strategy<Value = RelPath> {
    let part = prop_oneof![
        "[a-z0-9 %=.]{1,8}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 1..20),
        "\\PC{1,6}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(part, 1..5)
        .prop_map(|parts| parts.join(&b'/'))
        .prop_filter_map("a path that a waybill takes", |bytes| RelPath::clean(&bytes).ok())
}

fn moment() -> impl Strategy<Value = Moment> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(sec, nsec)| Moment { sec, nsec })
}

pub(crate) fn job() -> impl Strategy<Value = Job> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    (bytes(), "\\PC{0,12}", -62_167_219_200i64..=253_402_300_799, bytes())
        .prop_map(|(run, program, at, root)| Job { run, program, at, root })
}

fn plain_entry() -> impl Strategy<Value = Vec<Record>> {
    let target = proptest::collection::vec(1u8..=255, 1..60);
    let kind = prop_oneof![
        Just(Kind::Directory),
        path().prop_map(|first| Kind::Same { first }),
        target.prop_map(|target| Kind::Link { target }),
        Just(Kind::Special(Special::Fifo)),
        Just(Kind::Special(Special::Socket)),
        any::<u64>().prop_map(|device| Kind::Special(Special::CharDevice(device))),
        any::<u64>().prop_map(|device| Kind::Special(Special::BlockDevice(device))),
    ];
    (path(), kind, 0u32..0o10000, moment())
        .prop_map(|(path, kind, mode, mtime)| vec![Record::Entry(Entry { path, kind, mode, mtime })])
}

fn some_file() -> impl Strategy<Value = Vec<Record>> {
    let algorithms = proptest::sample::subsequence(Algorithm::ALL.to_vec(), 0..5);
    let kept = proptest::sample::subsequence(Algorithm::ALL.to_vec(), 1..3);
    let leaf = proptest::option::of(select(vec![1024u64, 4096, 65536]));
    let levels = vec![Level::Received, Level::Verified, Level::Durable, Level::Reread];
    let ways = vec![CopyMethod::ReadWrite, CopyMethod::Reflink, CopyMethod::ServerCopy];
    let proof = (
        proptest::option::of(select(ways)),
        proptest::option::of(select(levels.clone())),
        proptest::collection::vec((0.0f64..1.0, 0.0f64..1.0, select(levels)), 0..3),
    );
    let len = prop_oneof![0usize..3000, 60_000usize..250_000];
    ((path(), len, any::<u8>(), moment()), algorithms, proptest::option::of((kept, leaf)), proof).prop_map(
        |((path, len, seed, mtime), algorithms, objects, (way, level, ranges))| {
            let objects = objects.map(|(algorithms, leaf)| {
                let size = ObjectSize::round_up(0);
                let leaf = leaf.map(|bytes| LeafSize::new(bytes, size).unwrap());
                Objects { size, algorithms, leaf }
            });
            let mut records = file("x", &pattern(len, seed), &algorithms, objects);
            if let Record::Entry(entry) = &mut records[0] {
                (entry.path, entry.mtime) = (path, mtime);
                if let Kind::File(content) = &mut entry.kind {
                    (content.way, content.level) = (way, level);
                }
            }
            for (start, rest, level) in ranges {
                let first = (start * len as f64) as u64;
                let end = first + (rest * (len as u64 - first) as f64) as u64;
                if first < end {
                    records.push(Record::Proven(Proven { range: ByteRange::between(first, end), level }));
                }
            }
            records
        },
    )
}

pub(crate) fn sections() -> impl Strategy<Value = Vec<(Job, Vec<Record>)>> {
    let entries = proptest::collection::vec(prop_oneof![plain_entry(), some_file()], 0..6);
    proptest::collection::vec((job(), entries.prop_map(|entries| entries.concat())), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_records_round_trip(sections in sections()) {
        let (bytes, expected) = write(&sections);
        prop_assert!(std::str::from_utf8(&bytes).unwrap().chars().all(|c| c == '\n' || !c.is_control()));
        prop_assert_eq!(read(&bytes), expected);
    }

    /// A reader that starts at the mark of any entry returns the same records from there, without a
    /// flaw.
    #[test]
    fn reader_resumes_at_the_mark_of_any_entry(sections in sections()) {
        let (bytes, expected) = write(&sections);
        let (mut reader, mut at) = (Reader::new(&bytes[..]), 0);
        while let Some(record) = reader.next() {
            if matches!(record, Ok(Record::Entry(_))) {
                let mark = reader.mark();
                let again = Reader::resume(&bytes[mark.offset() as usize..], mark);
                // The totals of a section that is read from its middle are unknown, so its end is
                // not returned.
                let rest: Vec<Record> =
                    expected[at..].iter().take_while(|record| !matches!(record, Record::End(_))).cloned().collect();
                let again: Vec<Record> = again.take(rest.len()).map(Result::unwrap).collect();
                prop_assert_eq!(again, rest);
            }
            at += 1;
        }
    }
}

#[test]
fn longest_paths_round_trip() {
    let long = |byte: &str| format!("{}x", format!("{}/", byte.repeat(255)).repeat(PATH_BYTES_MAX / 256 - 1));
    let (path, first) = (long("\u{1}"), long("\u{2}"));
    let rel = |text: &str| RelPath::new(text.as_bytes()).unwrap();
    let kind = Kind::Same { first: rel(&first) };
    let entry = Entry { path: rel(&path), kind, mode: 0, mtime: Moment::default() };
    let (bytes, expected) = write(&[(Job::default(), vec![Record::Entry(entry)])]);
    assert_eq!(read(&bytes), expected);
}

#[test]
fn long_command_lines_are_truncated() {
    let words = vec![b"word".as_slice(); 10_000];
    let run = Job::run_of(words);
    assert!(run.len() <= haul_log::waybill::RUN_BYTES_MAX && run.ends_with(b" ..."));
    let (bytes, expected) = write(&[(Job { run, ..Job::default() }, Vec::new())]);
    assert_eq!(read(&bytes), expected);
    assert_eq!(Job::run_of([b"haul".as_slice(), b"cp"]), b"haul cp");
}

/// With 4 MiB objects, the waybill of 8 GiB takes less than 1/65536 of the data, with BLAKE3 per
/// object and two more digests of the file.
#[test]
fn waybill_of_8_gib_takes_less_than_128_kib() {
    let size = 8u64 << 30;
    let some = |algorithm: Algorithm| digest(algorithm, b"stands for any");
    let algorithms = [Algorithm::Blake3, Algorithm::Crc64Nvme, Algorithm::Adler32];
    let objects = Objects { size: ObjectSize::DEFAULT, algorithms: vec![Algorithm::Blake3], leaf: None };
    let content = Content {
        size,
        digests: algorithms.map(some).to_vec(),
        way: Some(CopyMethod::ReadWrite),
        level: Some(Level::Verified),
        objects: Some(objects),
    };
    let geometry = content.geometry().unwrap();
    let path = RelPath::new(b"p").unwrap();
    let mut records =
        vec![Record::Entry(Entry { path, kind: Kind::File(content), mode: 0o644, mtime: Moment::default() })];
    for object in geometry.objects() {
        records.push(Record::Object(ObjectDigests {
            index: object.index,
            digests: vec![some(Algorithm::Blake3)],
        }));
    }
    let (bytes, _) = write(&[(Job::default(), records)]);
    assert!((bytes.len() as u64) < size / 65536, "{} bytes for {size}", bytes.len());
    // The digests are invented, which the reader detects.
    let found = flaws(&bytes);
    assert!(
        found.len() == 1 && found[0].1.contains("does not match the digests of its objects"),
        "{found:?}"
    );
}
