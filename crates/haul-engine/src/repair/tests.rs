//! Comparison with a simple reference: exactly the damaged pieces are located and repaired, for any
//! object size and file.

use super::*;
use haul_digest::Algorithm;
use haul_log::waybill::RelPath;
use haul_log::waybill::{
    Content, Entry, Job, LEAVES_PER_LINE, LeafRun, Moment, ObjectDigests, Objects, Writer,
};
use haul_model::{ByteLen, ByteOffset, Geometry, LeafSize, ObjectSize};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// Test double that records the events.
#[derive(Default)]
struct RecordingObserver(Vec<(String, String, Vec<ByteRange>)>);

impl RepairObserver for RecordingObserver {
    fn settled(&mut self, outcome: &Outcome) {
        let ranges = outcome.mended.iter().map(|mended| mended.range).collect();
        self.0.push((outcome.path.to_string(), format!("{:?}", outcome.done), ranges));
    }

    fn flawed(&mut self, flaw: &ReadError) {
        panic!("{flaw}");
    }
}

/// Returns the BLAKE3 digest of a range of a file, in the form of a waybill.
fn value(bytes: &[u8], range: ByteRange) -> haul_digest::Digest {
    let whole = range.len() == bytes.len() as u64;
    let place = haul_digest::PartPlace { offset: range.start, whole };
    let mut hasher = haul_digest::PartHasher::new(Algorithm::Blake3, place);
    hasher.update(&bytes[range.start.0 as usize..range.end.0 as usize]);
    hasher.finish().digest()
}

/// Returns a waybill of one file `f`, with leaves of size `leaf` if given.
pub(super) fn waybill(bytes: &[u8], object: ObjectSize, leaf: Option<LeafSize>, stat: Moment) -> Vec<u8> {
    let objects = Objects { size: object, algorithms: vec![Algorithm::Blake3], leaf };
    let digests = vec![haul_digest::digest(Algorithm::Blake3, bytes)];
    let size = bytes.len() as u64;
    let content = Content { size, digests, way: None, level: None, objects: Some(objects.clone()) };
    let lines = content.object_lines();
    let entry =
        Entry { path: RelPath::new(b"f").unwrap(), kind: Kind::File(content), mode: 0o644, mtime: stat };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &Job::default()).unwrap();
    writer.entry(&entry).unwrap();
    for found in Geometry::new(ByteLen(size), object).objects() {
        if lines > 0 {
            let digests = vec![value(bytes, found.range)];
            writer.object(&ObjectDigests { index: found.index, digests }).unwrap();
        }
        let count = objects.leaves_of(found.range.len());
        for first in (0..count).step_by(LEAVES_PER_LINE as usize) {
            let numbers = first..count.min(first + LEAVES_PER_LINE);
            let range = |number| objects.leaf_range(found.range, number).unwrap();
            let digests = numbers.map(|number| value(bytes, range(number))).collect();
            writer.leaves(&LeafRun { object: found.index, first, digests }).unwrap();
        }
    }
    writer.close().unwrap();
    out
}

fn settings(dir: &Path) -> RepairSettings {
    let at = |name: &str| dir.join(name).into_os_string();
    RepairSettings {
        waybill: at("w"),
        root: at("root"),
        replicas: vec![ReplicaAt::Here(at("r0")), ReplicaAt::Here(at("r1"))],
        staging: None,
        reading: Settings::new(),
        modified: false,
        in_place: false,
        trust_replica: false,
        state: None,
        keep: None,
        dry_run: false,
        resume: None,
    }
}

fn set_time(path: &Path, moment: Moment) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let times = haul_sys::metadata::Times {
        atime: None,
        mtime: Some(haul_sys::Timespec { sec: moment.sec, nsec: moment.nsec }),
    };
    haul_sys::metadata::set_times_fd(&file, times).unwrap();
}

/// Returns the smallest pieces that contain the damaged bytes, joined; a slow reference.
fn expected(len: u64, unit: u64, hurt: &[u64]) -> Vec<ByteRange> {
    let mut ranges = Vec::new();
    for start in (0..len).step_by(unit as usize) {
        let range = ByteRange::from_len(ByteOffset(start), ByteLen(unit.min(len - start)));
        if hurt.iter().any(|&at| range.start.0 <= at && at < range.end.0) {
            survey::join(&mut ranges, range);
        }
    }
    ranges
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn only_damaged_pieces_are_repaired_from_complementary_replicas(
        len in 1_u64..700_000,
        leaves in any::<bool>(),
        hurt in prop::collection::vec(any::<prop::sample::Index>(), 1..6),
        seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut random = haul_lab::random::Random::from_seed(seed);
        let mut bytes = vec![0; len as usize];
        random.fill(&mut bytes);
        let object = ObjectSize::round_up(65_536);
        let leaf = leaves.then(|| LeafSize::new(1024, object).unwrap());
        let moment = Moment { sec: 1_700_000_000, nsec: 5 };
        fs::write(dir.path().join("w"), waybill(&bytes, object, leaf, moment)).unwrap();
        for name in ["root", "r0", "r1"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let hurt: Vec<u64> = hurt.iter().map(|index| index.index(len as usize) as u64).collect();
        let mut damaged = bytes.clone();
        hurt.iter().for_each(|&at| damaged[at as usize] = !bytes[at as usize]);
        // The two replicas complement each other: in each one every other piece is damaged.
        for (number, name) in ["r0", "r1"].iter().enumerate() {
            let unit = leaf.map_or(object.bytes(), LeafSize::bytes) as usize;
            let mut replica = bytes.clone();
            for (_, chunk) in replica.chunks_mut(unit).enumerate().filter(|(at, _)| at % 2 == number) {
                chunk[0] ^= 0x40;
            }
            fs::write(dir.path().join(name).join("f"), replica).unwrap();
        }
        let path = dir.path().join("root/f");
        fs::write(&path, &damaged).unwrap();
        set_time(&path, moment);
        let mut ear = RecordingObserver::default();
        let stop = AtomicBool::new(false);
        let tally = repair(&settings(dir.path()), &(), &mut ear, &Counters::new(), &stop).unwrap();
        prop_assert_eq!((tally.repaired, tally.left), (1, 0), "{:?}", ear.0);
        prop_assert!(fs::read(&path).unwrap() == bytes);
        let mut joined = Vec::new();
        ear.0[0].2.iter().for_each(|range| survey::join(&mut joined, *range));
        let unit = leaf.map_or(object.bytes(), LeafSize::bytes);
        prop_assert_eq!(joined, expected(len, unit, &hurt));
        let again = repair(&settings(dir.path()), &(), &mut ear, &Counters::new(), &stop).unwrap();
        prop_assert_eq!(again, RepairTally { intact: 1, bytes_read: len, ..RepairTally::default() });
    }
}

/// Writes a tree to `dir/w` as a waybill, and to the replica. Returns the files with their bytes.
fn plant(dir: &Path, random: &mut haul_lab::random::Random) -> Vec<(String, Vec<u8>)> {
    let moment = Moment { sec: 1_700_000_000, nsec: 5 };
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, &Job::default()).unwrap();
    let mut entry = |path: &str, kind, mode| {
        writer
            .entry(&Entry { path: RelPath::new(path.as_bytes()).unwrap(), kind, mode, mtime: moment })
            .unwrap();
    };
    let mut files = Vec::new();
    for directory in ["a", "b", "c"] {
        entry(directory, Kind::Directory, 0o755);
        fs::create_dir_all(dir.join("r0").join(directory)).unwrap();
        for number in 0..12 {
            let path = format!("{directory}/{number}");
            let mut bytes = vec![0; random.below(40_000) as usize + 1];
            random.fill(&mut bytes);
            let digests = vec![haul_digest::digest(Algorithm::Blake3, &bytes)];
            let size = bytes.len() as u64;
            entry(&path, Kind::File(Content { size, digests, way: None, level: None, objects: None }), 0o640);
            fs::write(dir.join("r0").join(&path), &bytes).unwrap();
            if number % 4 == 0 {
                let first = RelPath::new(path.as_bytes()).unwrap();
                entry(&format!("{path}-again"), Kind::Same { first }, 0o640);
            }
            entry(&format!("{path}-link"), Kind::Link { target: b"0".to_vec() }, 0o777);
            files.push((path, bytes));
        }
    }
    writer.close().unwrap();
    fs::write(dir.join("w"), out).unwrap();
    fs::create_dir_all(dir.join("r1")).unwrap();
    files
}

/// Writes the damaged tree: names are missing, bytes are wrong, or all is right.
fn damage(root: &Path, files: &[(String, Vec<u8>)], random: &mut haul_lab::random::Random) {
    let moment = Moment { sec: 1_700_000_000, nsec: 5 };
    for directory in ["a", "b"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (path, bytes) in files.iter().filter(|(path, _)| !path.starts_with('c')) {
        let at = root.join(path);
        let how = random.below(4);
        if how > 0 {
            let mut bytes = bytes.clone();
            bytes[0] ^= u8::from(how > 1);
            fs::write(&at, bytes).unwrap();
            fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
            let again = root.join(format!("{path}-again"));
            if path.ends_with('4') && how == 2 {
                fs::hard_link(&at, &again).unwrap();
            }
            set_time(&at, moment);
        }
        if random.below(2) == 0 {
            std::os::unix::fs::symlink("0", root.join(format!("{path}-link"))).unwrap();
        }
    }
}

#[test]
fn several_workers_repair_like_one_and_report_in_the_same_order() {
    for seed in 0..6 {
        let dir = tempfile::tempdir().unwrap();
        let files = plant(dir.path(), &mut haul_lab::random::Random::from_seed(seed));
        for in_place in [false, true] {
            let run = |workers: usize| {
                let root = dir.path().join("root");
                damage(&root, &files, &mut haul_lab::random::Random::from_seed(seed + 100));
                let mut settings = settings(dir.path());
                (settings.reading, settings.in_place) = (Settings::for_workers(workers), in_place);
                let (mut ear, stop) = (RecordingObserver::default(), AtomicBool::new(false));
                let tally = repair(&settings, &(), &mut ear, &Counters::new(), &stop).unwrap();
                for (path, bytes) in &files {
                    assert!(fs::read(root.join(path)).unwrap() == *bytes, "{path}, {workers} workers");
                }
                let times =
                    ["a", "b", "c"].map(|name| fs::metadata(root.join(name)).unwrap().modified().unwrap());
                let again =
                    repair(&settings, &(), &mut RecordingObserver::default(), &Counters::new(), &stop);
                let left = again.unwrap();
                fs::remove_dir_all(&root).unwrap();
                (ear.0, tally, times, (left.repaired, left.made, left.left))
            };
            let (one, several) = (run(1), run(4));
            assert_eq!(one, several, "seed {seed}, in place: {in_place}");
            assert!(one.1.repaired > 3 && one.1.made > 20, "{:?}", one.1);
        }
    }
}
