//! Tests of sources whose metadata is not true: files that report another length than they have,
//! and holes where data is.

use super::pair::{Pair, Told, keep_all};
use super::small_objects;
use haul_digest::Algorithm;
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::noise;
use haul_model::Level;
use haul_proto::{JobOptions, Unit, Update, Verify};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Ways to verify, with the level that they settle at.
const WAYS: [(Verify, Unit, Level); 6] = [
    (Verify::None, Unit::Object, Level::Received),
    (Verify::Stream, Unit::Object, Level::Verified),
    (Verify::Stream, Unit::File, Level::Verified),
    (Verify::Reread, Unit::Object, Level::Reread),
    (Verify::FilePipeline, Unit::File, Level::Verified),
    (Verify::BlockPipeline, Unit::Object, Level::Verified),
];

fn each_way() -> impl Iterator<Item = JobOptions> {
    WAYS.into_iter().flat_map(|(verify, unit, settle)| {
        [Algorithm::Blake3, Algorithm::Md5].map(|algorithm| {
            let in_order = unit == Unit::File && verify == Verify::Stream;
            JobOptions { verify, unit, settle, algorithm, in_order, ..small_objects() }
        })
    })
}

/// Files of proc report no byte, and those of sysfs a page.
const COMPUTED: [&str; 4] =
    ["/proc/version", "/proc/filesystems", "/sys/kernel/fscaps", "/sys/kernel/profiling"];

/// Regression: a file that reports no byte arrived empty, and one that has less than it reports
/// failed.
#[test]
fn files_that_report_another_length_arrive_with_their_bytes() {
    let paths: Vec<&str> = COMPUTED.into_iter().filter(|path| Path::new(path).exists()).collect();
    assert!(paths.iter().any(|path| path.starts_with("/proc")));
    for options in each_way() {
        let pair = Pair::with_waybills();
        let reported = pair.send(&paths, &options, 2);
        reported.is_fine();
        assert_eq!(reported.summary().done, paths.len() as u64, "{options:?}");
        for path in &paths {
            let (name, is) = (Path::new(path).file_name().unwrap(), fs::read(path).unwrap());
            assert!(!is.is_empty() && fs::metadata(path).unwrap().len() != is.len() as u64, "{path}");
            assert_eq!(fs::read(pair.sink().join(name)).unwrap(), is, "{path} {options:?}");
        }
        for started in [true, false] {
            let waybill = fs::read_to_string(pair.waybill(started)).unwrap();
            let line = format!("file path=version size={} ", fs::read("/proc/version").unwrap().len());
            assert!(waybill.contains(&line), "{line:?} in {waybill}");
        }
    }
}

/// Returns a pair whose source is a view of a folder of its own under these rules.
fn pair_with_view(rules: &str) -> Option<(Pair, FaultFs, PathBuf)> {
    if !met_or_skip(&[Need::Fuse]) {
        return None;
    }
    let pair = Pair::new();
    let store = pair.source().with_file_name("store");
    fs::create_dir(&store).unwrap();
    let view = FaultFs::mount(&store, &pair.source(), rules.parse().unwrap()).unwrap();
    Some((pair, view, store))
}

/// Regression: a file that is one hole by SEEK_DATA, and has data by its allocated space, arrived
/// as zeros.
#[test]
fn false_holes_arrive_with_their_bytes() {
    let Some((pair, view, store)) = pair_with_view("* seek .. hole") else { return };
    let mut bytes = noise(300_000, 5);
    fs::write(store.join("f"), &bytes).unwrap();
    File::options().write(true).open(store.join("f")).unwrap().set_len(16 << 20).unwrap();
    bytes.resize(16 << 20, 0);
    for options in each_way() {
        let reported = [pair.send(&["f"], &options, 2), pair.fetch(&["f"], &options, 1)];
        reported.iter().for_each(Told::is_fine);
        assert!(fs::read(pair.sink().join("f")).unwrap() == bytes, "{options:?}");
        let allocated = fs::metadata(pair.sink().join("f")).unwrap().blocks() * 512;
        assert!(allocated < 1 << 20, "zeros take no space: {allocated} {options:?}");
        fs::remove_file(pair.sink().join("f")).unwrap();
    }
    view.close();
}

/// Documents that FUSE generates report no byte. Longer ones than fit into memory fail, and never
/// arrive as empty files.
#[test]
fn documents_without_a_length_arrive_or_fail() {
    let Some((pair, view, store)) = pair_with_view("* stat .. empty") else { return };
    let docs = [("a", 1), ("b", 65_536), ("c", 300_000), ("d", 16 << 20), ("none", 0)];
    for (name, len) in docs {
        fs::write(store.join(name), noise(len, 7)).unwrap();
    }
    let long = File::create(store.join("long")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    assert_eq!(fs::metadata(pair.source().join("c")).unwrap().len(), 0, "the length is hidden");
    for options in each_way().step_by(3) {
        let reported = pair.send(&["a", "b", "c", "d", "none", "long"], &options, 2);
        assert_eq!(
            (reported.summary().done, reported.summary().unread),
            (docs.len() as u64, 1),
            "{options:?}: {reported}"
        );
        assert!(reported.failures() > 0 && reported.to_string().contains("/long: "), "{reported}");
        for (name, len) in docs {
            assert!(fs::read(pair.sink().join(name)).unwrap() == noise(len, 7), "{name} {options:?}");
            fs::remove_file(pair.sink().join(name)).unwrap();
        }
        assert!(!pair.sink().join("long").exists());
    }
    view.close();
}

/// A rule that compares lengths compares the length of the bytes.
#[test]
fn unchanged_file_without_a_length_is_not_sent_again() {
    let pair = Pair::new();
    let options = JobOptions { update: Update::Digest, keep: keep_all(), ..small_objects() };
    pair.send(&["/proc/version"], &options, 1).is_fine();
    let reported = pair.send(&["/proc/version"], &options, 1);
    reported.is_fine();
    assert_eq!((reported.summary().done, reported.summary().same), (0, 1));
    assert_eq!(fs::read(pair.sink().join("version")).unwrap(), fs::read("/proc/version").unwrap());
}
