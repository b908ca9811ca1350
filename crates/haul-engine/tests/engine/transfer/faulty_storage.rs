//! Tests of a sink whose storage keeps other bytes than were written. Only reading back detects
//! bytes that arrived correctly and were stored wrong.

use super::pair::{Pair, Transfer};
use super::small_objects;
use haul_engine::log::SyncPolicy;
use haul_lab::faults::{FaultFs, Op, Recorded};
use haul_lab::mounts::Mounted;
use haul_lab::needs::{Need, met_or_skip};
use haul_model::Level;
use haul_proto::{JobOptions, Verify, limits};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Returns a pair whose sink is a fault view of a folder of its own.
fn pair_with_view() -> Option<(Pair, FaultFs, PathBuf)> {
    with_view(Pair::with_waybills())
}

fn with_view(pair: Pair) -> Option<(Pair, FaultFs, PathBuf)> {
    if !met_or_skip(&[Need::Fuse]) {
        return None;
    }
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

/// Regression: the sink reported only that objects cannot be logged, and that the file had arrived.
/// The kernel reports a lost write to one sync of a file, so the others succeeded.
#[test]
fn file_that_cannot_be_synced_fails_at_both_ends_and_is_sent_again() {
    let pair = Pair::resuming(None).also_with_waybills().syncing(SyncPolicy::Object);
    let Some((pair, faults, store)) = with_view(pair) else { return };
    let bytes: Vec<u8> = (0..40 * (64 << 10)).map(|at| (at >> 8) as u8).collect();
    for (settle, is_fetch, after) in [
        (Level::Verified, false, 0),
        (Level::Verified, true, 1),
        (Level::Durable, false, 0),
        (Level::Durable, true, 1),
    ] {
        let name = format!("file-{settle}-{is_fetch}");
        fs::write(pair.source().join(&name), &bytes).unwrap();
        let options = JobOptions { settle, ..small_objects() };
        let transfer =
            Transfer { names: &[&name], options: &options, lanes: 1, is_fetch, exclude: None, cut: None };
        // The log syncs as soon as an object has arrived. The last objects arrive later than that.
        let rules =
            format!("* fsync .. errno EIO after {after} times 1\n* write 2500000.. delay 300 times 1");
        let has_failed = || {
            faults.set_rules("".parse().unwrap());
            for left in [store.join(&name), pair.waybill(true), pair.waybill(false)] {
                let _ = fs::remove_file(left);
            }
            faults.set_rules(rules.parse().unwrap());
            faults.begin_record();
            let fired = faults.fired().len();
            let reported = pair.transfer(&transfer);
            let has_fired = faults.fired()[fired..].iter().any(|fault| fault.op == Op::Fsync);
            if has_fired {
                assert!(reported.failures() > 0 && reported.both_know_of_a_failure(), "{name}: {reported}");
                assert!(!store.join(&name).exists(), "{name}");
                for started in [true, false] {
                    assert!(!fs::read_to_string(pair.waybill(started)).unwrap().contains(&name), "{name}");
                }
            }
            has_fired
        };
        assert!((0..100).any(|_| has_failed()), "{name}: a sync during the transfer");
        lose_unsynced(&store, &faults.end_record());
        faults.set_rules("".parse().unwrap());
        pair.transfer(&transfer).is_fine();
        assert!(fs::read(store.join(&name)).unwrap() == bytes, "{name}");
        pair.nothing_is_left_over();
        fs::remove_file(store.join(&name)).unwrap();
    }
    faults.close();
}

/// Sets the bytes to zero that were written to a file after its last sync, as if the device had
/// lost them.
fn lose_unsynced(store: &Path, events: &[Recorded]) {
    for (number, event) in events.iter().enumerate() {
        let Recorded::Write { path, at, bytes } = event else { continue };
        let is_sync = |later: &Recorded| matches!(later, Recorded::Sync { path: synced } if synced == path);
        if !events[number..].iter().any(is_sync)
            && let Ok(file) = fs::File::options().write(true).open(store.join(path))
        {
            file.write_all_at(&vec![0; bytes.len()], *at).unwrap();
        }
    }
}
