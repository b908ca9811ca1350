//! Tests of the waybills of both sides: they agree, and they describe each file as it is at both
//! sides.

use super::pair::Pair;
use super::{any_options, small_objects};
use haul_digest::{Algorithm, Digest};
use haul_lab::random_tree::RandomTree;
use haul_log::waybill::{Content, Entry, Kind, ObjectDigests, Proven, Reader, Record};
use haul_model::Level;
use haul_proto::{JobOptions, Unit, Update, Verify};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The records of one name in a waybill.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    entry: Entry,
    objects: Vec<ObjectDigests>,
    proven: Vec<Proven>,
}

impl Said {
    fn content(&self) -> &Content {
        match &self.entry.kind {
            Kind::File(content) => content,
            other => panic!("a file, not {other:?}"),
        }
    }
}

/// Returns the records of a waybill by path. Checks that it has no flaw and each path once.
fn read(path: &Path) -> BTreeMap<String, Said> {
    let mut said: BTreeMap<String, Said> = BTreeMap::new();
    let mut last = String::new();
    for record in Reader::new(&fs::read(path).unwrap()[..]) {
        match record.unwrap() {
            Record::Entry(entry) => {
                last = entry.path.to_string();
                let new = Said { entry, objects: Vec::new(), proven: Vec::new() };
                assert!(said.insert(last.clone(), new).is_none(), "{last} is listed twice");
            }
            Record::Object(object) => said.get_mut(&last).unwrap().objects.push(object),
            Record::Proven(proven) => said.get_mut(&last).unwrap().proven.push(proven),
            _ => {}
        }
    }
    said
}

fn blake3(bytes: &[u8]) -> Digest {
    haul_digest::digest(Algorithm::Blake3, bytes)
}

/// Returns the contents of both waybills, which must be equal.
fn agreed(pair: &Pair) -> BTreeMap<String, Said> {
    let [started, answered] = [true, false].map(|started| read(&pair.waybill(started)));
    assert_eq!(started, answered);
    started
}

/// Returns the number of names in a directory and below it, including the directory.
fn names(dir: &Path) -> usize {
    let beneath = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() { names(&entry.path()) } else { 1 }
    });
    1 + beneath.sum::<usize>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, max_shrink_iters: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_write_equal_waybills_for_any_job(
        seed in any::<u64>(),
        options in any_options(),
        lanes in 1u32..4,
        fetched in any::<bool>(),
    ) {
        let pair = Pair::with_waybills();
        let tree = RandomTree {
            entries: 30,
            file_bytes_max: 200 << 10,
            edges: vec![0, 1, 4096, 64 << 10, 128 << 10],
            ..RandomTree::default()
        };
        tree.build(&pair.source().join("tree"), seed).unwrap();
        let told = if fetched { pair.fetch(&["tree"], &options, lanes) } else { pair.send(&["tree"], &options, lanes) };
        told.is_fine();
        let said = agreed(&pair);
        prop_assert_eq!(said.len(), names(&pair.source().join("tree")));
        for said in said.values().filter(|said| matches!(said.entry.kind, Kind::File(_))) {
            let (content, path) = (said.content(), std::ffi::OsStr::from_encoded(said));
            for end in [pair.source(), pair.sink()] {
                prop_assert_eq!(content.digest(Algorithm::Blake3), Some(blake3(&fs::read(end.join(path)).unwrap())));
            }
            let count = content.size.div_ceil(64 << 10) as usize;
            prop_assert_eq!(said.objects.len(), if count > 1 { count } else { 0 });
            let reached = said.proven.iter().map(|proven| proven.level).chain(content.level).max();
            prop_assert!(content.size == 0 || reached == Some(options.settle) || reached == Some(Level::Received));
        }
    }
}

/// Conversion of a path in a waybill to the bytes in the file system.
trait FromEncoded {
    fn from_encoded(said: &Said) -> &Self;
}

impl FromEncoded for std::ffi::OsStr {
    fn from_encoded(said: &Said) -> &Self {
        std::os::unix::ffi::OsStrExt::from_bytes(said.entry.path.as_bytes())
    }
}

#[test]
fn holes_hash_as_zeros_and_stay_at_level_received_unless_they_are_read_back() {
    let ways = [
        (Verify::Stream, Unit::Object, Level::Verified),
        (Verify::Stream, Unit::File, Level::Verified),
        (Verify::Reread, Unit::Object, Level::Reread),
    ];
    for (verify, unit, settle) in ways {
        let pair = Pair::with_waybills();
        let file = fs::File::create(pair.source().join("sparse")).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 5 << 16).unwrap();
        file.set_len((9 << 16) + 17).unwrap();
        let options = JobOptions { verify, unit, settle, ..small_objects() };
        pair.send(&["sparse"], &options, 2).is_fine();
        let said = &agreed(&pair)["sparse"];
        assert_eq!(
            said.content().digest(Algorithm::Blake3),
            Some(blake3(&fs::read(pair.sink().join("sparse")).unwrap()))
        );
        // For a read-back, the source reads its holes too, and the sink reads all of its copy.
        let level = if verify == Verify::Reread { Level::Reread } else { Level::Received };
        assert_eq!((said.content().level, said.objects.len()), (Some(level), 10));
        let ranges: Vec<_> = said
            .proven
            .iter()
            .map(|proven| (proven.range.start.0, proven.range.end.0, proven.level))
            .collect();
        let expected = [(0, 1 << 16, settle), (5 << 16, 6 << 16, settle)];
        assert_eq!(ranges, if verify == Verify::Reread { &[][..] } else { &expected });
    }
}

/// Regression: with `--inplace`, a range that is a hole at the source kept its old bytes at the
/// sink.
#[test]
fn holes_overwrite_old_bytes_of_an_in_place_file() {
    for unit in [Unit::Object, Unit::File] {
        let pair = Pair::with_waybills();
        let file = fs::File::create(pair.source().join("sparse")).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.set_len(4 << 16).unwrap();
        fs::write(pair.sink().join("sparse"), vec![7; 3 << 16]).unwrap();
        let options = JobOptions { in_place: true, unit, ..small_objects() };
        pair.send(&["sparse"], &options, 1).is_fine();
        assert!(
            fs::read(pair.source().join("sparse")).unwrap() == fs::read(pair.sink().join("sparse")).unwrap()
        );
        agreed(&pair);
    }
}

#[test]
fn unread_files_have_no_entry_and_compared_files_have_digests() {
    let rules = [
        (Update::SizeTime, &["new"][..]),
        (Update::Missing, &["new"]),
        (Update::Newer, &["new"]),
        (Update::Digest, &["new", "old"]),
        (Update::Object, &["new", "old"]),
    ];
    for (update, expected) in rules {
        let pair = Pair::with_waybills();
        fs::create_dir(pair.source().join("d")).unwrap();
        fs::write(pair.source().join("d/old"), vec![3; 200_000]).unwrap();
        pair.send(&["d"], &small_objects(), 1).is_fine();
        for started in [true, false] {
            fs::remove_file(pair.waybill(started)).unwrap();
        }
        fs::write(pair.source().join("d/new"), vec![4; 100_000]).unwrap();
        pair.send(&["d"], &JobOptions { update, ..small_objects() }, 2).is_fine();
        let said = agreed(&pair);
        let files: Vec<_> = said.keys().filter(|name| *name != "d").map(|name| &name[2..]).collect();
        assert_eq!(files, expected, "{update:?}");
        if let Some(old) = said.get("d/old") {
            assert_eq!(old.content().digest(Algorithm::Blake3), Some(blake3(&vec![3; 200_000])));
            let is_moved = update == Update::Object;
            assert_eq!(
                (old.content().level.is_some(), old.objects.len()),
                (is_moved, if is_moved { 4 } else { 0 })
            );
        }
    }
}

#[test]
fn a_dry_run_and_a_refused_session_leave_no_waybill() {
    let pair = Pair::with_waybills();
    fs::write(pair.source().join("f"), "bytes").unwrap();
    pair.send(&["f"], &JobOptions { dry_run: true, ..small_objects() }, 1).is_fine();
    assert!(!pair.waybill(true).exists() && !pair.waybill(false).exists());
    let told = pair.send_to(&["f"], &small_objects(), |offer| offer.may_write = false);
    assert!(told.refusal().is_some());
    assert!(!pair.waybill(false).exists(), "who was refused leaves nothing there");
}

/// If a session is stopped midway, the files that arrived are whole, and there are no others.
#[test]
fn stopped_job_leaves_waybills_of_the_arrived_files() {
    let pair = Pair::with_waybills();
    fs::create_dir(pair.source().join("d")).unwrap();
    for number in 0..400_u32 {
        fs::write(pair.source().join(format!("d/{number:03}")), vec![number as u8; 200_000]).unwrap();
    }
    assert!(pair.send_stopped(&["d"], &small_objects(), 1).was_stopped());
    let [source, sink] = [true, false].map(|started| read(&pair.waybill(started)));
    assert!(!source.is_empty() && sink.len() < 401, "it was stopped in the middle: {}", sink.len());
    for (name, said) in &source {
        assert_eq!(sink.get(name), Some(said), "the sink has each entry reported to the source");
    }
    for (name, said) in &sink {
        let bytes = fs::read(pair.sink().join(name)).unwrap();
        assert_eq!(said.content().digest(Algorithm::Blake3), Some(blake3(&bytes)), "{name}");
    }
}

#[test]
fn a_later_job_appends_its_section() {
    let pair = Pair::with_waybills();
    for name in ["one", "two"] {
        fs::write(pair.source().join(name), name).unwrap();
        pair.send(&[name], &small_objects(), 1).is_fine();
    }
    assert_eq!(agreed(&pair).keys().collect::<Vec<_>>(), ["one", "two"]);
}

/// The waybill of this job may be inside the tree that is sent, and inside the destination.
#[test]
fn waybills_are_neither_sent_nor_overwritten() {
    let pair = Pair::with_waybills();
    fs::write(pair.source().join("f"), "bytes").unwrap();
    fs::hard_link(pair.source().join("f"), pair.source().join("answered.waybill")).unwrap();
    // The folder above both: the sink's waybill has the name of a source file, and the walk meets
    // the source's waybill.
    let sink = pair.sink();
    let told = pair.send_to(&["f", "answered.waybill", "../started.waybill"], &small_objects(), |offer| {
        offer.root = sink.parent().unwrap().into();
    });
    assert_eq!(told.failures(), 2, "both ends tell of the one that is in the way");
    let root = sink.parent().unwrap();
    assert_eq!(fs::read(root.join("f")).unwrap(), b"bytes");
    assert!(read(&pair.waybill(true)).keys().eq(["f"]) && read(&pair.waybill(false)).keys().eq(["f"]));
    assert_eq!(fs::metadata(root.join("f")).unwrap().nlink(), 1);
}
