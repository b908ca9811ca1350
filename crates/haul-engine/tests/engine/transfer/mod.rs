//! Transfers between two sides in one process, through the engine's public API. The tests compare
//! the result with the source.

mod deletions;
mod enumerated;
mod examples;
mod faulty_storage;
mod generated;
mod hostile;
mod joins;
mod lanes;
mod listings;
mod memory_faults;
mod memory_sources;
mod merged;
mod misbehaving_peer;
mod odd_sources;
mod operand_lists;
mod packed;
mod pair;
mod panics;
mod resumed;
mod secrets;
mod sink_requests;
mod slow;
mod stalling_device;
mod updates;
mod waybills;

use haul_digest::{Algebra, Algorithm};
use haul_engine::transfer::{Filter, Rule};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use haul_lab::random_tree::{RandomTree, every_byte_in_names};
use haul_lab::snapshot::{Facets, Snapshot};
use haul_model::{Level, ObjectSize};
use haul_proto::{JobOptions, Keep, Unit, Update, Verify, Why};
use pair::{Pair, keep_all};
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

fn small_objects() -> JobOptions {
    JobOptions { object: ObjectSize::new(64 << 10).unwrap(), keep: keep_all(), ..JobOptions::default() }
}

fn any_options() -> impl Strategy<Value = JobOptions> {
    use haul_digest::Algorithm::{Blake3, Crc32c, Md5, Sha256};
    let ways = prop_oneof![
        Just((Verify::None, Unit::Object, Level::Received)),
        Just((Verify::Stream, Unit::Object, Level::Verified)),
        Just((Verify::Stream, Unit::Object, Level::Durable)),
        Just((Verify::Stream, Unit::File, Level::Verified)),
        Just((Verify::Reread, Unit::Object, Level::Reread)),
        Just((Verify::Hybrid, Unit::Object, Level::Verified)),
        Just((Verify::Sequential, Unit::File, Level::Verified)),
        Just((Verify::FilePipeline, Unit::File, Level::Verified)),
        Just((Verify::BlockPipeline, Unit::Object, Level::Verified)),
    ];
    let algorithms = prop_oneof![Just(Blake3), Just(Crc32c), Just(Md5), Just(Sha256)];
    (ways, algorithms, any::<bool>()).prop_map(|((verify, unit, settle), algorithm, in_place)| JobOptions {
        verify,
        unit,
        settle,
        algorithm,
        in_place,
        in_order: unit == Unit::File && verify == Verify::Stream,
        ..small_objects()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_reproduced_by_send_and_fetch(
        seed in any::<u64>(),
        options in any_options(),
        lanes in 1u32..4,
        fetched in any::<bool>(),
    ) {
        let pair = Pair::new();
        let tree = RandomTree {
            entries: 30,
            file_bytes_max: 200 << 10,
            edges: vec![0, 1, 4096, 64 << 10, 128 << 10],
            ..RandomTree::default()
        };
        tree.build(&pair.source().join("tree"), seed).unwrap();
        let told = if fetched { pair.fetch(&["tree"], &options, lanes) } else { pair.send(&["tree"], &options, lanes) };
        told.is_fine();
        let before = Snapshot::take(&pair.source().join("tree")).unwrap();
        let after = Snapshot::take(&pair.sink().join("tree")).unwrap();
        before.assert_same(&after, Facets::ARCHIVE);
        pair.nothing_is_left_over();
    }
}

#[test]
fn names_with_every_byte_arrive() {
    let pair = Pair::new();
    every_byte_in_names(&pair.source().join("names")).unwrap();
    let told = pair.send(&["names"], &small_objects(), 2);
    told.is_fine();
    let before = Snapshot::take(&pair.source().join("names")).unwrap();
    before.assert_same(&Snapshot::take(&pair.sink().join("names")).unwrap(), Facets::ARCHIVE);
}

#[test]
fn sparse_file_longer_than_the_disk_arrives_with_its_holes() {
    let pair = Pair::new();
    let file = fs::File::create(pair.source().join("sparse")).unwrap();
    // Longer than any disk here, with few enough objects to process in a moment.
    file.set_len(8 << 40).unwrap();
    file.write_all_at(b"deep inside", (3 << 40) + 12_345).unwrap();
    let options = JobOptions { object: ObjectSize::new(1 << 30).unwrap(), ..small_objects() };
    pair.send(&["sparse"], &options, 2).is_fine();
    let arrived = fs::File::open(pair.sink().join("sparse")).unwrap();
    assert_eq!(arrived.metadata().unwrap().len(), 8 << 40);
    let mut bytes = [0; 11];
    arrived.read_exact_at(&mut bytes, (3 << 40) + 12_345).unwrap();
    assert_eq!(&bytes, b"deep inside");
    assert!(arrived.metadata().unwrap().blocks() < 2048, "a few blocks are taken, not a GiB");
}

#[test]
fn holes_are_not_sent_and_stay_holes() {
    let pair = Pair::new();
    let file = fs::File::create(pair.source().join("sparse")).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", 1 << 30).unwrap();
    drop(file);
    let told = pair.send(&["sparse"], &small_objects(), 2);
    told.is_fine();
    let [before, after] = [pair.source(), pair.sink()].map(|root| fs::metadata(root.join("sparse")).unwrap());
    assert_eq!(before.len(), after.len());
    assert!(after.blocks() <= before.blocks() + 256, "{} blocks became {}", before.blocks(), after.blocks());
    assert!(told.bytes_out < 1 << 20, "{} bytes went over the lanes", told.bytes_out);
    assert!(fs::read(pair.source().join("sparse")).unwrap() == fs::read(pair.sink().join("sparse")).unwrap());
}

#[test]
fn unreadable_source_fails_alone_and_prevents_deletion() {
    let pair = Pair::new();
    fs::create_dir(pair.source().join("d")).unwrap();
    fs::write(pair.source().join("d/good"), "good").unwrap();
    symlink("loop", pair.source().join("d/loop")).unwrap();
    pair.send(&["d"], &small_objects(), 1).is_fine();
    fs::write(pair.sink().join("d/stranger"), "of the sink").unwrap();
    let options = JobOptions { delete: true, ..small_objects() };
    // An operand that does not exist cannot be read.
    let told = pair.send(&["d", "missing"], &options, 1);
    assert!(told.failed_to_begin() || told.failures() > 0);
    assert!(pair.sink().join("d/stranger").exists(), "nothing is deleted when the source could not be read");
    let told = pair.send(&["d"], &options, 1);
    told.is_fine();
    assert_eq!(told.summary().deleted, 1);
    assert!(!pair.sink().join("d/stranger").exists() && pair.sink().join("d/good").exists());
}

/// Regression: the list of names waited for deletions that were queued behind it on the same
/// thread. Nine directories were enough.
#[test]
fn extraneous_names_in_many_directories_are_deleted() {
    let pair = Pair::new();
    fs::create_dir(pair.source().join("d")).unwrap();
    for directory in 0..40 {
        let there = pair.sink().join(format!("d/{directory}"));
        fs::create_dir_all(&there).unwrap();
        fs::create_dir_all(pair.source().join(format!("d/{directory}"))).unwrap();
        // One directory has more names than the pending lists may have.
        let names = if directory == 20 { 3000 } else { 2 };
        (0..names).for_each(|name| fs::write(there.join(name.to_string()), "").unwrap());
        fs::create_dir(there.join("deep")).unwrap();
        fs::write(there.join("deep/file"), "").unwrap();
    }
    let told = pair.send(&["d"], &JobOptions { delete: true, ..small_objects() }, 2);
    told.is_fine();
    assert_eq!(told.summary().deleted, 39 * 4 + 3002);
    let before = Snapshot::take(&pair.source().join("d")).unwrap();
    before.assert_same(&Snapshot::take(&pair.sink().join("d")).unwrap(), Facets::CONTENT);
}

/// Regression: the source looked up the names of the sink's directory `d/link` through its own link
/// of that name and did not find them. The sink then deleted them. The link itself failed, because
/// a directory has its name.
#[test]
fn sink_directory_named_like_a_source_symlink_keeps_its_contents() {
    for target in ["elsewhere", "nowhere"] {
        let pair = Pair::new();
        fs::create_dir_all(pair.source().join("d/elsewhere")).unwrap();
        symlink(target, pair.source().join("d/link")).unwrap();
        fs::create_dir_all(pair.sink().join("d/link/deep")).unwrap();
        for name in ["d/link/file", "d/link/deep/file"] {
            fs::write(pair.sink().join(name), name).unwrap();
        }
        for update in [Update::Always, Update::Missing] {
            let options = JobOptions { delete: true, update, ..small_objects() };
            let told = pair.send(&["d"], &options, 1);
            assert_eq!(told.summary().deleted, 0);
            assert_eq!(told.summary().failed, u64::from(update == Update::Always));
            for name in ["d/link/file", "d/link/deep/file"] {
                assert_eq!(fs::read(pair.sink().join(name)).unwrap(), name.as_bytes());
            }
        }
    }
}

#[test]
fn excluded_files_are_neither_sent_nor_deleted() {
    let pair = Pair::new();
    fs::create_dir_all(pair.source().join("d/cache")).unwrap();
    fs::create_dir_all(pair.sink().join("d/cache")).unwrap();
    for name in ["d/a.c", "d/a.o", "d/cache/x"] {
        fs::write(pair.source().join(name), name).unwrap();
    }
    fs::write(pair.sink().join("d/cache/own"), "").unwrap();
    fs::write(pair.sink().join("d/old.o"), "").unwrap();
    fs::write(pair.sink().join("d/old.c"), "").unwrap();
    let filter = Filter::new(&[Rule::Exclude("*.o".into()), Rule::Exclude("cache/".into())]).unwrap();
    let options = JobOptions { delete: true, ..small_objects() };
    pair.send_filtered(&["d"], &options, filter).is_fine();
    let there = |name: &str| pair.sink().join(name).exists();
    assert!(there("d/a.c") && !there("d/a.o") && !there("d/cache/x"));
    assert!(there("d/cache/own") && there("d/old.o") && !there("d/old.c"));
}

/// Regression: a directory that the source lacks was deleted with all its contents, including
/// entries excluded from the job.
#[test]
fn excluded_files_stay_in_directories_that_the_source_lacks() {
    let pair = Pair::new();
    fs::create_dir(pair.source().join("d")).unwrap();
    for name in ["old/deep/keep.o", "old/deep/gone.c", "old/gone", "older/gone", "older/link/gone"] {
        let there = pair.sink().join("d").join(name);
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        fs::write(there, "").unwrap();
    }
    let filter = || Filter::new(&[Rule::Exclude("*.o".into())]).unwrap();
    let options = JobOptions { delete: true, delete_all: true, ..small_objects() };
    let dry = JobOptions { dry_run: true, ..options.clone() };
    pair.send_filtered(&["d"], &dry, filter()).is_fine();
    let there = |name: &str| pair.sink().join("d").join(name).exists();
    assert!(there("old/deep/gone.c") && there("older/link/gone"));
    let told = pair.send_filtered(&["d"], &options, filter());
    told.is_fine();
    assert!(there("old/deep/keep.o") && !there("old/deep/gone.c") && !there("old/gone") && !there("older"));
    assert_eq!(told.summary().deleted, 6);
}

/// Regression: deleting entries in a directory set its time to the current time.
#[test]
fn directories_keep_their_times_after_deletions() {
    let pair = Pair::new();
    fs::create_dir_all(pair.source().join("d/sub")).unwrap();
    fs::create_dir_all(pair.sink().join("d/sub/extra")).unwrap();
    fs::write(pair.sink().join("d/file"), "").unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    for name in ["d/sub", "d"] {
        fs::File::open(pair.source().join(name)).unwrap().set_modified(at).unwrap();
    }
    pair.send(&["d"], &JobOptions { delete: true, ..small_objects() }, 1).is_fine();
    assert!(!pair.sink().join("d/sub/extra").exists() && !pair.sink().join("d/file").exists());
    for name in ["d/sub", "d"] {
        assert_eq!(fs::metadata(pair.sink().join(name)).unwrap().modified().unwrap(), at, "{name}");
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let pair = Pair::new();
    RandomTree::default().build(&pair.source().join("tree"), 7).unwrap();
    fs::write(pair.sink().join("there"), "before").unwrap();
    let before = Snapshot::take(&pair.sink()).unwrap();
    let told = pair.send(&["tree"], &JobOptions { dry_run: true, delete: true, ..small_objects() }, 2);
    told.is_fine();
    assert!(told.summary().would > 0 && told.summary().done == 0);
    before.assert_same(&Snapshot::take(&pair.sink()).unwrap(), Facets::ALL);
}

#[test]
fn each_update_rule_skips_and_sends_the_expected_files() {
    let pair = Pair::new();
    let bytes = |fill: u8| vec![fill; 300 << 10];
    fs::write(pair.source().join("f"), bytes(1)).unwrap();
    pair.send(&["f"], &small_objects(), 1).is_fine();
    for update in [Update::SizeTime, Update::Digest, Update::Newer, Update::Missing] {
        let told = pair.send(&["f"], &JobOptions { update, ..small_objects() }, 1);
        told.is_fine();
        assert_eq!((told.summary().same, told.summary().done), (1, 0), "{update:?}");
    }
    // The same size and time, and one other byte: only digests detect this.
    let stamp = fs::metadata(pair.source().join("f")).unwrap().modified().unwrap();
    let mut changed = bytes(1);
    changed[200 << 10] = 2;
    fs::write(pair.source().join("f"), &changed).unwrap();
    fs::File::options().write(true).open(pair.source().join("f")).unwrap().set_modified(stamp).unwrap();
    let told = pair.send(&["f"], &JobOptions { update: Update::SizeTime, ..small_objects() }, 1);
    assert_eq!(told.summary().same, 1);
    let told = pair.send(&["f"], &JobOptions { update: Update::Object, ..small_objects() }, 1);
    told.is_fine();
    assert!(told.bytes_out < 150 << 10, "one object of 64 KiB differs, {} bytes went", told.bytes_out);
    assert_eq!(fs::read(pair.sink().join("f")).unwrap(), changed);
}

/// Existing entries at the sink are compared by name, time, length and bytes, as the rule requires,
/// and kept or replaced.
#[test]
fn each_update_rule_keeps_or_replaces_entire_files() {
    const LEN: usize = 100 << 10;
    const NAMES: [&str; 5] = ["older", "newer", "same", "shorter", "absent"];
    let write = |path: PathBuf, bytes: &[u8], seconds: u64| {
        fs::write(&path, bytes).unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    for (update, sent) in [
        (Update::Always, &NAMES[..]),
        (Update::SizeTime, &["older", "newer", "shorter", "absent"]),
        (Update::Newer, &["older", "absent"]),
        (Update::Missing, &["absent"]),
        (Update::Digest, &NAMES),
        (Update::Object, &NAMES),
    ] {
        let pair = Pair::new();
        NAMES.iter().for_each(|name| write(pair.source().join(name), &vec![1; LEN], 1000));
        for (name, seconds, len) in
            [("older", 999, LEN), ("newer", 1001, LEN), ("same", 1000, LEN), ("shorter", 1000, LEN - 1)]
        {
            write(pair.sink().join(name), &vec![2; len], seconds);
        }
        pair.send(&NAMES, &JobOptions { update, ..small_objects() }, 2).is_fine();
        for name in NAMES {
            let [here, there] = [pair.source(), pair.sink()].map(|root| fs::read(root.join(name)).unwrap());
            let is_as_it_was = there.iter().all(|byte| *byte == 2);
            assert!(is_as_it_was || there == here, "{update:?}: a mixture in {name}");
            assert_eq!(!is_as_it_was, sent.contains(&name), "{update:?}: {name}");
        }
    }
}

/// Each digest of `haul sum`, serial or not, over objects and over whole files: both sides compute
/// the same value.
#[test]
fn every_digest_verifies_objects_and_files() {
    let pair = Pair::new();
    let mut bytes = vec![0; 200_000];
    Random::from_seed(27).fill(&mut bytes);
    fs::write(pair.source().join("f"), &bytes).unwrap();
    fs::write(pair.source().join("small"), b"bytes").unwrap();
    for &algorithm in Algorithm::ALL {
        for unit in [Unit::Object, Unit::File] {
            let in_order = unit == Unit::File && algorithm.algebra() == Algebra::Serial;
            let told =
                pair.send(&["f", "small"], &JobOptions { algorithm, unit, in_order, ..small_objects() }, 2);
            told.is_fine();
            assert_eq!((told.summary().done, told.summary().again), (2, 0), "{algorithm:?}, {unit:?}");
            assert!(fs::read(pair.sink().join("f")).unwrap() == bytes, "{algorithm:?}, {unit:?}");
        }
    }
}

#[test]
fn setuid_bits_are_set_only_if_the_job_keeps_them() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let pair = Pair::new();
    fs::write(pair.source().join("tool"), "#!").unwrap();
    fs::set_permissions(pair.source().join("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    pair.send(&["tool"], &JobOptions { keep: Keep(keep_all().0 & !Keep::SETUID.0), ..small_objects() }, 1)
        .is_fine();
    assert_eq!(fs::metadata(pair.sink().join("tool")).unwrap().mode() & 0o7777, 0o755);
    pair.send(&["tool"], &small_objects(), 1).is_fine();
    assert_eq!(fs::metadata(pair.sink().join("tool")).unwrap().mode() & 0o7777, 0o6755);
}

#[test]
fn symlinks_do_not_lead_out_of_the_root() {
    let pair = Pair::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), pair.sink().join("d")).unwrap();
    fs::create_dir(pair.source().join("d")).unwrap();
    fs::write(pair.source().join("d/f"), "bytes").unwrap();
    let told = pair.send(&["d"], &small_objects(), 1);
    assert!(told.failures() > 0);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    // A path that leads outside is not served either.
    symlink(outside.path(), pair.source().join("out")).unwrap();
    fs::write(outside.path().join("secret"), "").unwrap();
    for path in ["out/secret", "../secret", "/etc/passwd"] {
        let told = pair.fetch(&[path], &small_objects(), 1);
        assert!(told.refusal().is_some(), "{path}");
    }
}

#[test]
fn jobs_beyond_the_offer_are_refused() {
    let pair = Pair::new();
    fs::write(pair.source().join("f"), "bytes").unwrap();
    let reported = pair.send_to(&["f"], &small_objects(), |offer| offer.may_write = false);
    assert_eq!(reported.refusal().map(|reason| reason.why), Some(Why::Denied));
    // A whole file cannot be read back in this mode, so its level could not be reported truthfully.
    for (verify, settle) in [(Verify::Hybrid, Level::Verified), (Verify::Reread, Level::Reread)] {
        let by_file = JobOptions { verify, settle, unit: Unit::File, ..small_objects() };
        let reported = pair.send_to(&["f"], &by_file, |_| {});
        assert_eq!(reported.refusal().map(|reason| reason.why), Some(Why::Unsupported));
    }
    let reported = pair.send_to(&["f"], &small_objects(), |offer| offer.quota = Some(3));
    assert!(
        reported.was_stopped() && reported.to_string().contains("why: Quota, text: PeerText(f; "),
        "{reported}"
    );
    assert!(!pair.sink().join("f").exists());
}

#[test]
fn stopped_job_is_reported_and_leaves_no_partial_file() {
    let pair = Pair::new();
    fs::File::create(pair.source().join("large")).unwrap().set_len(0).unwrap();
    fs::write(pair.source().join("large"), vec![7; 64 << 20]).unwrap();
    let told = pair.send_stopped(&["large"], &small_objects(), 0);
    assert!(told.was_stopped());
    assert!(!pair.sink().join("large").exists());
    pair.nothing_is_left_over();
}

/// Many files share one sync. A failing file fails alone, and leaves nothing behind.
#[test]
fn small_files_in_one_sync_fail_independently() {
    for (verify, settle) in [(Verify::Stream, Level::Durable), (Verify::Reread, Level::Reread)] {
        let pair = Pair::new();
        let names: Vec<String> = (0..300).map(|number| format!("{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            fs::write(pair.source().join(name), vec![number as u8; number * 7]).unwrap();
        }
        let in_the_way: Vec<&String> = names.iter().step_by(50).collect();
        for name in &in_the_way {
            fs::create_dir(pair.sink().join(name)).unwrap();
        }
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let told = pair.send(&all, &JobOptions { verify, settle, ..small_objects() }, 3);
        assert_eq!(told.summary().failed, in_the_way.len() as u64);
        assert_eq!(told.summary().done, (names.len() - in_the_way.len()) as u64);
        for (number, name) in names.iter().enumerate() {
            let there = pair.sink().join(name);
            if number % 50 == 0 {
                assert!(there.is_dir(), "{name} stays what it was");
            } else {
                assert_eq!(fs::read(there).unwrap(), vec![number as u8; number * 7]);
            }
        }
        assert_eq!(fs::read_dir(pair.sink()).unwrap().count(), names.len(), "no temporary name is left");
    }
}
