//! Tests with waybills that contain leaves, written by the sum job, and with damage located by
//! these leaves.

use super::*;
use crate::sum::{Form, Listed, Outcome, Recipe, Walk, WalkTag};
use crate::waybill::{FileFacts, Root, WaybillWriter, file_entry};
use haul_digest::{Algorithm, PartHasher, PartPlace, digest};
use haul_lab::random::Random;
use haul_log::waybill::{
    Content, Job, Kind, LEAVES_PER_LINE, LeafRun, Moment, ObjectDigests, Objects, RelPath, Writer,
};
use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, LeafSize, ObjectSize};
use proptest::prelude::*;
use std::fs::{self, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) const OBJECT: u64 = 64 << 10;

pub(super) fn object() -> ObjectSize {
    ObjectSize::new(OBJECT).unwrap()
}

pub(super) fn leaf(bytes: u64) -> LeafSize {
    LeafSize::new(bytes, object()).unwrap()
}

/// Writes a waybill of the files in `root` like `haul sum --waybill --leaf`.
fn keep(root: &Path, waybill: &Path, leaf: Option<LeafSize>, others: &[Algorithm], workers: usize) {
    let algorithms = [&[Algorithm::Blake3], others].concat();
    let recipe = Recipe { algorithms, form: Form::Objects { size: object(), sample: None } };
    let waybill_writer = WaybillWriter::begin(waybill.as_os_str(), &Job::default()).unwrap();
    let leaves = leaf.map(|leaf| waybill_writer.leaf_store(leaf, object()).unwrap());
    let settings = Settings { leaves, block_bytes: 16 << 10, ..Settings::for_workers(workers) };
    let operands = Listed::new(vec![root.as_os_str().to_owned()], ByteOffset(0), None);
    let walk = Walk::new(operands, Arc::new(recipe), true);
    let base = Root::new(root.as_os_str().to_owned());
    sum::run(&settings, walk, &Counters::new(), &AtomicBool::new(false), |ticket, outcome| {
        let (WalkTag::File(path), Outcome::Done(sums)) = (ticket, outcome) else {
            panic!("a file that is read")
        };
        let (objects, leaves) = (sums.objects.as_ref(), sums.leaf_sums.as_deref());
        let size = sums.range.len();
        let facts = FileFacts { size, digests: &sums.digests, objects, leaves, way: None, level: None };
        let entry = file_entry(base.path_of(&path).unwrap(), &sums.facts.unwrap(), &facts);
        waybill_writer.add(&entry, objects, leaves);
    });
    waybill_writer.close().unwrap();
}

/// Writes a waybill of one file `f` whose objects and leaves have digests of any algorithm.
pub(super) fn keep_by(algorithm: Algorithm, bytes: &[u8], leaf: LeafSize, mtime: Moment, waybill: &Path) {
    let part = |range: ByteRange, whole| {
        let bytes = &bytes[range.start.0 as usize..range.end.0 as usize];
        if !algorithm.digests_join() {
            return digest(algorithm, bytes);
        }
        let mut hasher = PartHasher::new(algorithm, PartPlace { offset: range.start, whole });
        hasher.update(bytes);
        hasher.finish().digest()
    };
    let objects = Objects { size: object(), algorithms: vec![algorithm], leaf: Some(leaf) };
    let size = bytes.len() as u64;
    let digests = vec![digest(algorithm, bytes)];
    let content = Content { size, digests, way: None, level: None, objects: Some(objects.clone()) };
    let lines = content.object_lines();
    let path = RelPath::new(b"f").unwrap();
    let mut writer = Writer::new(fs::File::create(waybill).unwrap(), &Job::default()).unwrap();
    writer.entry(&Entry { path, kind: Kind::File(content), mode: 0o644, mtime }).unwrap();
    for object in Geometry::new(ByteLen(size), object()).objects() {
        if lines > 0 {
            let digests = vec![part(object.range, false)];
            writer.object(&ObjectDigests { index: object.index, digests }).unwrap();
        }
        let count = objects.leaves_of(object.range.len());
        for first in (0..count).step_by(LEAVES_PER_LINE as usize) {
            let numbers = first..count.min(first + LEAVES_PER_LINE);
            let value =
                |number| part(objects.leaf_range(object.range, number).unwrap(), lines == 0 && count == 1);
            let run = LeafRun { object: object.index, first, digests: numbers.map(value).collect() };
            writer.leaves(&run).unwrap();
        }
    }
    writer.close().unwrap();
}

#[derive(Default)]
pub(super) struct RecordingObserver {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) flaws: Vec<String>,
}

impl VerifyObserver for RecordingObserver {
    fn judged(&mut self, verdict: &Verdict) {
        self.verdicts.push(verdict.clone());
    }

    fn flawed(&mut self, flaw: &ReadError) {
        self.flaws.push(flaw.to_string());
    }
}

fn verified(waybill: &Path, root: &Path, workers: usize, direct: bool) -> RecordingObserver {
    verified_and_counted(waybill, root, workers, direct).0
}

fn verified_and_counted(
    waybill: &Path,
    root: &Path,
    workers: usize,
    direct: bool,
) -> (RecordingObserver, Counters) {
    let mut reading = Settings::for_workers(workers);
    (reading.direct, reading.drop_before) = (direct, direct);
    verified_as(&VerifySettings { reading, ..all_of(waybill, root) })
}

fn verified_as(settings: &VerifySettings) -> (RecordingObserver, Counters) {
    let (mut ear, counters) = (RecordingObserver::default(), Counters::new());
    verify(settings, &mut ear, &counters, &AtomicBool::new(false)).unwrap();
    (ear, counters)
}

/// Returns settings that verify every object.
pub(super) fn all_of(waybill: &Path, root: &Path) -> VerifySettings {
    VerifySettings {
        waybill: waybill.as_os_str().to_owned(),
        root: root.as_os_str().to_owned(),
        reading: Settings::for_workers(1),
        sample: None,
        extra: false,
        locate: true,
        resume: None,
        any_seed: false,
    }
}

/// Regression test: with the same seed for all files, one-object files were either all selected or
/// all left out.
#[test]
fn sample_selects_independently_per_file() {
    let dir = tempfile::tempdir().unwrap();
    let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
    fs::create_dir(&root).unwrap();
    (0..40).for_each(|number| fs::write(root.join(format!("{number}")), [number]).unwrap());
    keep(&root, &waybill, None, &[], 1);
    let (ear, _) = verified_as(&VerifySettings { sample: Some((0.5, 7)), ..all_of(&waybill, &root) });
    let passed = ear.verdicts.iter().filter(|verdict| verdict.kind == VerdictKind::Passed).count();
    assert!((10..30).contains(&passed), "{passed} of {}", ear.verdicts.len());
}

/// Changes bytes without a change of size or time.
fn hurt(path: &Path, places: impl IntoIterator<Item = u64>) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    for at in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
    }
    file.set_times(FileTimes::new().set_modified(before)).unwrap();
}

/// Returns the leaves that contain these offsets, joined.
fn leaves_around(places: &[u64], leaf: u64, len: u64) -> Vec<ByteRange> {
    let mut numbers: Vec<u64> = places.iter().map(|at| at / leaf).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut ranges = Vec::new();
    for number in numbers {
        judge::join(&mut ranges, ByteRange::between(number * leaf, ((number + 1) * leaf).min(len)));
    }
    ranges
}

fn length() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        1023,
        1024,
        1025,
        2048,
        4095,
        4097,
        OBJECT - 1,
        OBJECT,
        OBJECT + 1,
        OBJECT + 1024,
        OBJECT + 1025,
        3 * OBJECT,
    ];
    prop_oneof![proptest::sample::select(edges.to_vec()), 0..400_000_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For any length, hole and flipped bytes, exactly the leaves that contain flipped bytes are
    /// reported.
    #[test]
    fn damage_is_located_to_its_leaves(
        len in length(),
        leaf_bytes in proptest::sample::select(vec![1024_u64, 2048, 16_384, OBJECT]),
        hole in proptest::option::of((0.0..1.0_f64, 0.0..1.0_f64)),
        places in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        serial in any::<bool>(),
        workers in 1_usize..4,
        direct in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
        fs::create_dir(&root).unwrap();
        let mut bytes = vec![0; len as usize];
        Random::from_seed(seed).fill(&mut bytes);
        let file = fs::File::create(root.join("f")).unwrap();
        file.set_len(len).unwrap();
        // Write everything except the hole.
        let (from, to) = hole.map_or((0, 0), |(at, share)| {
            let from = (at * len as f64) as usize;
            (from, from + (share * (len as usize - from) as f64) as usize)
        });
        bytes[from..to].fill(0);
        file.write_all_at(&bytes[..from], 0).unwrap();
        file.write_all_at(&bytes[to..], to as u64).unwrap();
        drop(file);
        let others: &[Algorithm] = if serial { &[Algorithm::Md5] } else { &[Algorithm::Crc32c] };
        keep(&root, &waybill, Some(leaf(leaf_bytes)), others, workers);
        let intact = verified(&waybill, &root, workers, direct);
        prop_assert_eq!(&intact.flaws, &Vec::<String>::new());
        prop_assert_eq!(&intact.verdicts[0].kind, &VerdictKind::Intact { touched: false });
        if len == 0 {
            return Ok(());
        }
        let places: Vec<u64> = places.iter().map(|place| place.index(len as usize) as u64).collect();
        let mut places = places;
        places.sort_unstable();
        places.dedup();
        hurt(&root.join("f"), places.iter().copied());
        let told = verified(&waybill, &root, workers, direct);
        let Verdict { kind, damage, located, .. } = &told.verdicts[0];
        prop_assert_eq!(kind, &VerdictKind::Rotted);
        if len > leaf_bytes {
            prop_assert_eq!(damage, &leaves_around(&places, leaf_bytes, len));
            prop_assert_eq!(located, &Some(Located { leaf: Some(leaf(leaf_bytes)), whole: None }));
        } else {
            // One leaf covers the whole file, and there is no finer one.
            prop_assert_eq!(damage, &vec![ByteRange::between(0, len)]);
            let whole = (len > 1024).then_some(WholeObjectReason::NoLeaves);
            prop_assert_eq!(located, &Some(Located { leaf: None, whole }));
        }
    }

    /// Leaves of any algorithm: digests of each leaf alone, joined if the algorithm allows it.
    #[test]
    fn leaves_of_any_algorithm_locate_damage(
        len in 1_u64..200_000,
        algorithm in proptest::sample::select(vec![
            Algorithm::Blake3, Algorithm::Crc64Nvme, Algorithm::Adler32, Algorithm::Sha256, Algorithm::Md5, Algorithm::Xxh3_128,
        ]),
        place in any::<prop::sample::Index>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
        fs::create_dir(&root).unwrap();
        let mut bytes = vec![0; len as usize];
        Random::from_seed(len).fill(&mut bytes);
        fs::write(root.join("f"), &bytes).unwrap();
        let since = fs::metadata(root.join("f")).unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        let mtime = Moment { sec: since.as_secs() as i64, nsec: since.subsec_nanos() };
        keep_by(algorithm, &bytes, leaf(1024), mtime, &waybill);
        let at = place.index(len as usize) as u64;
        hurt(&root.join("f"), [at]);
        let told = verified(&waybill, &root, 1, false);
        prop_assert_eq!(&told.flaws, &Vec::<String>::new());
        prop_assert_eq!(&told.verdicts[0].damage, &leaves_around(&[at], 1024, len), "{}", algorithm);
        prop_assert_eq!(&told.verdicts[0].located, &Some(Located { leaf: Some(leaf(1024)), whole: None }));
    }

    /// A change of any byte in a waybill with leaves is detected, and the reported ranges contain
    /// the damage of the data.
    #[test]
    fn damaged_leaves_are_detected_and_data_damage_is_still_located(at in any::<prop::sample::Index>(), place in 0..180_000_u64, bit in 0_u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
        fs::create_dir(&root).unwrap();
        let mut bytes = vec![0; 180_000];
        Random::from_seed(7).fill(&mut bytes);
        fs::write(root.join("f"), &bytes).unwrap();
        keep(&root, &waybill, Some(leaf(1024)), &[], 1);
        hurt(&root.join("f"), [place]);
        let mut text = fs::read(&waybill).unwrap();
        let lines: Vec<usize> = (0..text.len()).filter(|&at| text[at] == b'\n').collect();
        // After the line of the file, before the closing line.
        let (first, last) = (lines[1] + 1, lines[lines.len() - 2]);
        let at = first + at.index(last - first);
        text[at] ^= 1 << bit;
        fs::write(&waybill, &text).unwrap();
        let told = verified(&waybill, &root, 2, false);
        prop_assert!(!told.flaws.is_empty());
        let verdict = &told.verdicts[0];
        prop_assert_eq!(&verdict.kind, &VerdictKind::Rotted);
        let holds = verdict.damage.iter().any(|range| (range.start.0..range.end.0).contains(&place));
        prop_assert!(holds, "{:?} of a byte at {}", verdict.damage, place);
    }
}

/// Leaves that were changed and got a matching line checksum; they do not match the digest of the
/// object.
#[test]
fn leaves_that_contradict_their_object_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
    fs::create_dir(&root).unwrap();
    let bytes = vec![3; 3 * OBJECT as usize];
    fs::write(root.join("f"), &bytes).unwrap();
    keep(&root, &waybill, Some(leaf(1024)), &[], 1);
    let records: Vec<Record> = Reader::new(&fs::read(&waybill).unwrap()[..]).map(Result::unwrap).collect();
    let mut writer = Writer::new(fs::File::create(&waybill).unwrap(), &Job::default()).unwrap();
    for record in records {
        match record {
            Record::Entry(entry) => writer.entry(&entry).unwrap(),
            Record::Object(object) => writer.object(&object).unwrap(),
            Record::Leaves(mut run) => {
                if run.object.0 == 1 && run.first == 0 {
                    run.digests[5] = digest(Algorithm::Blake3, b"another");
                }
                writer.leaves(&run).unwrap();
            }
            _ => {}
        }
    }
    writer.close().unwrap();
    hurt(&root.join("f"), [OBJECT + 9000, 2 * OBJECT + 9000]);
    let told = verified(&waybill, &root, 1, false);
    assert_eq!(told.flaws.len(), 1);
    assert!(told.flaws[0].contains("does not match the digests of its leaves"), "{:?}", told.flaws);
    let verdict = &told.verdicts[0];
    // All bytes of the object with bad leaves, and the damaged leaf of the other object.
    let leaf_at = |at: u64| ByteRange::between(at / 1024 * 1024, at / 1024 * 1024 + 1024);
    assert_eq!(verdict.damage, [ByteRange::between(OBJECT, 2 * OBJECT), leaf_at(2 * OBJECT + 9000)]);
    assert_eq!(
        verdict.located,
        Some(Located { leaf: Some(leaf(1024)), whole: Some(WholeObjectReason::BadLeaves) })
    );
}

/// More entries than a batch, of all kinds, read in any order: the verdicts keep the order of the
/// waybill.
#[test]
fn verdicts_keep_the_order_of_the_waybill() {
    let dir = tempfile::tempdir().unwrap();
    let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
    fs::create_dir(&root).unwrap();
    let mut random = Random::from_seed(3);
    let mut numbers: Vec<usize> = (0..2500).collect();
    // Create the files in an order that differs from their names, so that positions differ from
    // names.
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    for number in &numbers {
        fs::write(root.join(format!("{number:04}")), vec![*number as u8; number % 3000]).unwrap();
    }
    keep(&root, &waybill, Some(leaf(1024)), &[], 2);
    hurt(&root.join("2200"), [7]);
    fs::remove_file(root.join("0100")).unwrap();
    for (workers, direct) in [(1, true), (3, true), (3, false)] {
        let told = verified(&waybill, &root, workers, direct);
        let names: Vec<String> = told.verdicts.iter().map(|verdict| verdict.path.to_string()).collect();
        let expected: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
        assert_eq!(names, expected);
        let odd: Vec<_> = told
            .verdicts
            .iter()
            .filter(|verdict| verdict.kind != VerdictKind::Intact { touched: false })
            .collect();
        let kinds: Vec<_> = odd.iter().map(|verdict| (verdict.path.to_string(), &verdict.kind)).collect();
        let expected =
            [("0100".to_owned(), &VerdictKind::Missing), ("2200".to_owned(), &VerdictKind::Rotted)];
        assert_eq!(kinds, expected);
        assert_eq!(odd[1].damage, [ByteRange::between(0, 1024)]);
    }
}

#[test]
fn files_in_two_sections_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let (root, waybill) = (dir.path().join("root"), dir.path().join("w"));
    fs::create_dir(&root).unwrap();
    for (name, len) in [("a", 10), ("b", 5), ("c", 0)] {
        fs::write(root.join(name), vec![7; len]).unwrap();
    }
    for sections in 1..=2 {
        keep(&root, &waybill, None, &[], 1);
        let (ear, counters) = verified_and_counted(&waybill, &root, 1, false);
        assert_eq!(ear.verdicts.len(), 3);
        assert_eq!((counters.through(), counters.known()), ((3, 15), (3, 15)), "{sections}");
    }
}
