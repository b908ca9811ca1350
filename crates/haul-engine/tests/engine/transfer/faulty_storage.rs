//! Tests of a sink whose storage keeps other bytes than were written. Only reading back detects
//! bytes that arrived correctly and were stored wrong.

use super::pair::Pair;
use super::small_objects;
use haul_lab::faults::FaultFs;
use haul_lab::mounts::Mounted;
use haul_lab::needs::{Need, met_or_skip};
use haul_model::Level;
use haul_proto::{JobOptions, Verify, limits};
use std::fs;
use std::path::PathBuf;

/// Returns a pair whose sink is a fault view of a folder of its own.
fn pair_with_view() -> Option<(Pair, FaultFs, PathBuf)> {
    if !met_or_skip(&[Need::Fuse]) {
        return None;
    }
    let pair = Pair::with_waybills();
    let store = pair.sink().with_file_name("store");
    fs::create_dir(&store).unwrap();
    let faults = FaultFs::mount(&store, &pair.sink(), "".parse().unwrap()).unwrap();
    Some((pair, faults, store))
}

/// Sizes of files with one object, whose level is decided only at the end of the file, and of files
/// with several.
const SIZES: [usize; 3] = [5000, 64 << 10, 200_000];

#[test]
fn read_back_finds_write_damage_that_stream_verification_misses() {
    let Some((pair, faults, store)) = pair_with_view() else { return };
    for (verify, settle) in [(Verify::Stream, Level::Durable), (Verify::Reread, Level::Reread)] {
        for size in SIZES {
            let name = format!("{size}-{settle}");
            fs::write(pair.source().join(&name), vec![7; size]).unwrap();
            faults.set_rules("* write .. flip 4500.1 times 1".parse().unwrap());
            let before = faults.fired().len();
            let told = pair.send(&[&name], &JobOptions { verify, settle, ..small_objects() }, 2);
            told.is_fine();
            assert_eq!(faults.fired().len() - before, 1, "{name}: the fault is real");
            let is_mended = fs::read(store.join(&name)).unwrap() == vec![7; size];
            assert_eq!(is_mended, verify == Verify::Reread, "{name}");
            assert_eq!(told.summary().again, u64::from(is_mended), "{name}");
        }
    }
    faults.close();
}

/// Regression: data was reported as re-read even if it was still in the page cache.
#[test]
fn data_reread_from_memory_is_reported_as_durable_only() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let memory = Mounted::tmpfs(4).unwrap();
    for size in SIZES {
        let pair = Pair::with_waybills();
        fs::write(pair.source().join("f"), vec![7; size]).unwrap();
        let options = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..small_objects() };
        pair.send_to(&["f"], &options, |offer| offer.root = memory.path().into()).is_fine();
        assert!(fs::read(memory.path().join("f")).unwrap() == vec![7; size]);
        for started in [true, false] {
            let waybill = fs::read_to_string(pair.waybill(started)).unwrap();
            assert!(waybill.contains(" level=durable ") && !waybill.contains("re-read"), "{size}: {waybill}");
        }
    }
    memory.close().unwrap();
}

#[test]
fn file_that_never_reads_back_right_fails_and_is_in_no_waybill() {
    let Some((pair, faults, store)) = pair_with_view() else { return };
    faults.set_rules("* write .. flip 4500.1".parse().unwrap());
    for size in SIZES {
        let name = size.to_string();
        fs::write(pair.source().join(&name), vec![7; size]).unwrap();
        let options = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..small_objects() };
        assert!(pair.send(&[&name], &options, 2).failures() > 0, "{name} is reported");
        assert!(!store.join(&name).exists());
        for started in [true, false] {
            assert!(!fs::read_to_string(pair.waybill(started)).unwrap().contains("\nfile "), "{name}");
        }
    }
    faults.close();
}

/// Regression: during a slow sync, the source received the report that the object had arrived, and
/// both sides reset its attempts. The object was sent without end.
#[test]
fn object_that_never_reads_back_right_fails_its_file() {
    let Some((pair, faults, store)) = pair_with_view() else { return };
    faults.set_rules("* write .. flip 4500.1\n* fsync .. delay 100".parse().unwrap());
    fs::write(pair.source().join("f"), vec![7; 200_000]).unwrap();
    let options = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..small_objects() };
    let told = pair.send(&["f"], &options, 2);
    assert_eq!((told.summary().failed, told.summary().again), (1, u64::from(limits::RETRIES_MAX)));
    assert!(told.failures() > 0 && !store.join("f").exists());
    faults.close();
}
