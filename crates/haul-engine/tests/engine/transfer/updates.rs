//! Tests of update rules in combination with everything else that decides about a file.

use super::pair::Pair;
use super::small_objects;
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use haul_model::Level;
use haul_proto::{JobOptions, Unit, Update, Verify};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub(super) const RULES: [Update; 6] =
    [Update::Always, Update::Missing, Update::Newer, Update::SizeTime, Update::Digest, Update::Object];

pub(super) const WAYS: [(Verify, Unit, Level); 9] = [
    (Verify::None, Unit::Object, Level::Received),
    (Verify::Stream, Unit::Object, Level::Verified),
    (Verify::Stream, Unit::Object, Level::Durable),
    (Verify::Stream, Unit::File, Level::Verified),
    (Verify::Reread, Unit::Object, Level::Reread),
    (Verify::Hybrid, Unit::Object, Level::Verified),
    (Verify::Sequential, Unit::File, Level::Verified),
    (Verify::FilePipeline, Unit::File, Level::Verified),
    (Verify::BlockPipeline, Unit::Object, Level::Verified),
];

/// Regression: `--verify=block-pipeline --update=object` never ended. The source sent the digest of
/// an object that is the same, and the sink waited for the digest of a second read.
#[test]
fn every_verification_completes_with_every_update_rule() {
    let mut bytes = vec![0; 300 << 10];
    Random::from_seed(7).fill(&mut bytes);
    let mut other = bytes.clone();
    other[100 << 10] ^= 1;
    for (verify, unit, settle) in WAYS {
        for update in RULES {
            for in_place in [false, true] {
                let pair = Pair::new();
                for name in ["same", "differs", "shorter", "longer", "absent"] {
                    fs::write(pair.source().join(name), &bytes).unwrap();
                }
                for root in [pair.source(), pair.sink()] {
                    fs::write(root.join("empty"), "").unwrap();
                }
                fs::write(pair.sink().join("same"), &bytes).unwrap();
                fs::write(pair.sink().join("differs"), &other).unwrap();
                fs::write(pair.sink().join("shorter"), &bytes[..150 << 10]).unwrap();
                fs::write(pair.sink().join("longer"), [&bytes[..], &other].concat()).unwrap();
                let in_order = unit == Unit::File && verify == Verify::Stream;
                let options =
                    JobOptions { verify, unit, settle, update, in_place, in_order, ..small_objects() };
                let names = ["same", "differs", "shorter", "longer", "absent", "empty"];
                let told = pair.send(&names, &options, 2);
                told.is_fine();
                if matches!(update, Update::Always | Update::Digest | Update::Object) {
                    for name in &names[..5] {
                        let is_right = fs::read(pair.sink().join(name)).unwrap() == bytes;
                        assert!(is_right, "{name} {verify:?} {update:?} in place: {in_place}");
                    }
                }
                pair.nothing_is_left_over();
            }
        }
    }
}

fn write(path: &Path, bytes: impl AsRef<[u8]>, seconds: u64) {
    fs::write(path, bytes).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

fn is_one(one: &Path, other: &Path) -> bool {
    fs::metadata(one).unwrap().ino() == fs::metadata(other).unwrap().ino()
}

/// Regression: a sink that stores whole seconds never had the time of the source, and received
/// everything again in each run.
#[test]
fn times_are_compared_as_precisely_as_the_sink_stores_them() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for step in [10, 1000, 2000] {
        for update in [Update::SizeTime, Update::Newer] {
            let (pair, store) = (Pair::new(), tempfile::tempdir().unwrap());
            let rules = format!("* stat .. coarse {step}").parse().unwrap();
            let faults = FaultFs::mount(store.path(), &pair.sink(), rules).unwrap();
            let at = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_001, 123_456_789);
            let set = |at| {
                for name in ["x", "y"] {
                    let file = fs::File::options().write(true).open(pair.source().join(name));
                    file.unwrap().set_modified(at).unwrap();
                }
            };
            for name in ["x", "y"] {
                fs::write(pair.source().join(name), name).unwrap();
            }
            set(at);
            let options = JobOptions { update, ..small_objects() };
            let later = at + Duration::from_secs(2);
            for (at, done) in [(at, 2), (at, 0), (later, 2), (later, 0)] {
                set(at);
                let told = pair.send(&["x", "y"], &options, 1);
                told.is_fine();
                assert_eq!(told.summary().done, done, "{step} ms, {update:?}");
            }
            faults.close();
        }
    }
}

/// Regression: one inode of the sink got the bytes of two files of the source, and both were
/// reported as arrived.
#[test]
fn two_files_are_never_written_into_one_inode() {
    for update in RULES {
        for len in [100, 300 << 10] {
            let pair = Pair::new();
            write(&pair.source().join("x"), vec![1; len], 2000);
            write(&pair.source().join("y"), vec![2; len], 2000);
            write(&pair.sink().join("x"), vec![3; len], 1000);
            fs::hard_link(pair.sink().join("x"), pair.sink().join("y")).unwrap();
            let options = JobOptions { in_place: true, update, ..small_objects() };
            pair.send(&["x", "y"], &options, 2).is_fine();
            if update == Update::Missing {
                continue;
            }
            for (name, byte) in [("x", 1), ("y", 2)] {
                let is_right = fs::read(pair.sink().join(name)).unwrap() == vec![byte; len];
                assert!(is_right, "{update:?}, {len} bytes: {name}");
            }
        }
    }
}

/// Regression: both files were found to be the same as one inode, which got the time and the mode
/// of the last one.
#[test]
fn two_files_are_never_matched_with_one_inode() {
    for update in [Update::Digest, Update::Object] {
        for in_place in [false, true] {
            for len in [0, 100, 300 << 10] {
                let pair = Pair::new();
                for (name, seconds) in [("x", 2000), ("y", 3000)] {
                    write(&pair.source().join(name), vec![1; len], seconds);
                }
                write(&pair.sink().join("x"), vec![1; len], 1000);
                fs::hard_link(pair.sink().join("x"), pair.sink().join("y")).unwrap();
                let options = JobOptions { in_place, update, ..small_objects() };
                // In the second round they are two files at the sink, too.
                for _ in 0..2 {
                    pair.send(&["x", "y"], &options, 2).is_fine();
                    let before = Snapshot::take(&pair.source()).unwrap();
                    let facets = Facets { dir_mtime: false, ..Facets::ARCHIVE };
                    before.assert_same(&Snapshot::take(&pair.sink()).unwrap(), facets);
                }
            }
        }
    }
}

/// Regression: by the rule, `y` is the same and `x`, the same inode at the sink, is not. Writing
/// `x` in place changed `y`.
#[test]
fn file_kept_by_the_rule_is_not_changed_by_another_name() {
    let pair = Pair::new();
    write(&pair.source().join("x"), [1; 100], 2000);
    write(&pair.source().join("y"), [3; 100], 1000);
    write(&pair.sink().join("x"), [3; 100], 1000);
    fs::hard_link(pair.sink().join("x"), pair.sink().join("y")).unwrap();
    let options = JobOptions { in_place: true, update: Update::SizeTime, ..small_objects() };
    pair.send(&["x", "y"], &options, 1).is_fine();
    assert_eq!(fs::read(pair.sink().join("x")).unwrap(), [1; 100]);
    assert_eq!(fs::read(pair.sink().join("y")).unwrap(), [3; 100]);
}

/// Regression: the rules decided only about regular files. A link, a pipe, or a further name of the
/// source replaced an entry that the rules keep.
#[test]
fn update_rules_apply_to_every_kind_of_entry() {
    const KINDS: [&str; 5] = ["file", "link", "pipe", "socket", "name"];
    for (update, seconds, stays) in [
        (Update::Missing, 1, true),
        (Update::Newer, 9_000_000_000, true),
        (Update::Newer, 1, false),
        (Update::SizeTime, 1, false),
        (Update::Digest, 1, false),
        (Update::Object, 1, false),
        (Update::Always, 1, false),
    ] {
        for in_place in [false, true] {
            let pair = Pair::new();
            let here = |name: &str| pair.source().join(name);
            write(&here("file"), "of the source", 5000);
            write(&here("first"), "first", 5000);
            symlink("target", here("link")).unwrap();
            rustix::fs::mknodat(
                rustix::fs::CWD,
                here("pipe"),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
            drop(UnixListener::bind(here("socket")).unwrap());
            fs::hard_link(here("first"), here("name")).unwrap();
            for name in KINDS {
                write(&pair.sink().join(name), "of the sink", seconds);
            }
            let options = JobOptions { update, in_place, ..small_objects() };
            let all: Vec<&str> = std::iter::once("first").chain(KINDS).collect();
            pair.send(&all, &options, 1).is_fine();
            for name in KINDS {
                let there = pair.sink().join(name);
                let is_kept = fs::symlink_metadata(&there).unwrap().is_file()
                    && fs::read(&there).unwrap() == b"of the sink";
                assert_eq!(is_kept, stays, "{update:?}, in place: {in_place}: {name}");
            }
            if !stays {
                let kind = |name: &str| fs::symlink_metadata(pair.sink().join(name)).unwrap().file_type();
                assert!(kind("link").is_symlink() && kind("pipe").is_fifo() && kind("socket").is_socket());
                assert!(is_one(&pair.sink().join("first"), &pair.sink().join("name")));
            }
        }
    }
}

/// Regression: a link, a pipe or a socket at the sink in place of a file made every rule and
/// `--inplace` fail.
#[test]
fn non_file_is_replaced_unless_the_rule_keeps_it() {
    for update in RULES {
        for (in_place, dry_run) in [(false, false), (true, false), (true, true)] {
            let pair = Pair::new();
            for (name, len) in [("link", 100), ("dangling", 300 << 10), ("socket", 100)] {
                write(&pair.source().join(name), vec![1; len], 9_000_000_000);
            }
            fs::write(pair.sink().join("target"), "untouched").unwrap();
            symlink("target", pair.sink().join("link")).unwrap();
            symlink("nowhere", pair.sink().join("dangling")).unwrap();
            drop(UnixListener::bind(pair.sink().join("socket")).unwrap());
            let options = JobOptions { update, in_place, dry_run, ..small_objects() };
            pair.send(&["link", "dangling", "socket"], &options, 1).is_fine();
            let stays = update == Update::Missing || dry_run;
            for name in ["link", "dangling", "socket"] {
                let is_file = fs::symlink_metadata(pair.sink().join(name)).unwrap().is_file();
                assert_eq!(is_file, !stays, "{update:?}, in place: {in_place}: {name}");
            }
            assert_eq!(fs::read(pair.sink().join("target")).unwrap(), b"untouched");
            assert!(!pair.sink().join("nowhere").exists());
        }
    }
}

/// Regression: the rule kept an unrelated file of the sink under the first name. The other names of
/// the source's file became links to that file, and were reported as sent and verified.
#[test]
fn additional_name_is_not_linked_to_a_kept_file() {
    for (update, seconds) in [(Update::Missing, 1), (Update::Newer, 9_000_000_000)] {
        for len in [0, 100, 300 << 10] {
            // Some names wait for the end of the first one; others are met long after it.
            for between in [0, 200] {
                let pair = Pair::with_waybills();
                let here = |name: &str| pair.source().join("d").join(name);
                let there = |name: &str| pair.sink().join("d").join(name);
                [here(""), there("")].iter().for_each(|dir| fs::create_dir(dir).unwrap());
                write(&here("a"), vec![7; len], 5000);
                (0..between).for_each(|name| fs::write(here(&format!("b{name}")), "").unwrap());
                let names = ["c1", "c2", "c3"];
                names.iter().for_each(|name| fs::hard_link(here("a"), here(name)).unwrap());
                write(&there("a"), "of the sink", seconds);
                pair.send(&["d"], &JobOptions { update, ..small_objects() }, 2).is_fine();
                // The existing file stays.
                assert_eq!(fs::read(there("a")).unwrap(), b"of the sink", "{update:?}");
                for name in names {
                    let is_right = fs::read(there(name)).unwrap() == vec![7; len];
                    assert!(is_right, "{update:?}, {len} bytes, {between} between: {name}");
                    assert!(!is_one(&there("a"), &there(name)));
                    let facts = fs::metadata(there(name)).unwrap();
                    assert_eq!(facts.mtime(), 5000, "{name}");
                }
                let of_the_rest = Snapshot::take(&pair.source()).unwrap();
                fs::write(there("a"), vec![7; len]).unwrap();
                of_the_rest.assert_same(&Snapshot::take(&pair.sink()).unwrap(), Facets::CONTENT);
            }
        }
    }
}

/// Regression: the sink has a directory with the first name. A fetch neither created nor reported
/// the other names.
#[test]
fn additional_names_of_a_failed_file_arrive() {
    for fetched in [false, true] {
        for len in [100, 300 << 10] {
            let pair = Pair::new();
            let here = |name: &str| pair.source().join("d").join(name);
            let there = |name: &str| pair.sink().join("d").join(name);
            fs::create_dir(here("")).unwrap();
            fs::create_dir_all(there("a/in the way")).unwrap();
            fs::write(here("a"), vec![7; len]).unwrap();
            ["b", "c"].iter().for_each(|name| fs::hard_link(here("a"), here(name)).unwrap());
            // The walk meets the names in directory order.
            let first = fs::read_dir(here("")).unwrap().next().unwrap().unwrap().file_name();
            if first != "a" {
                fs::rename(there("a"), there(first.to_str().unwrap())).unwrap();
            }
            let told = match fetched {
                true => pair.fetch(&["d"], &small_objects(), 2),
                false => pair.send(&["d"], &small_objects(), 2),
            };
            assert!(told.failures() > 0);
            assert_eq!(told.summary().failed, 1);
            let rest: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| first != *name).collect();
            for name in &rest {
                assert_eq!(fs::read(there(name)).unwrap(), vec![7; len], "{name}");
            }
            assert!(is_one(&there(rest[0]), &there(rest[1])), "they are names of one file as before");
        }
    }
}

/// Regression: names that were met after the rule had kept the first one were each sent as separate
/// files.
#[test]
fn additional_names_of_a_kept_file_share_one_file() {
    for (update, seconds) in [(Update::Missing, 1), (Update::Newer, 9_000_000_000)] {
        // Some names wait for the end of the first one; others are met long after it.
        for between in [0, 200] {
            let pair = Pair::new();
            let here = |name: &str| pair.source().join(name);
            let there = |name: &str| pair.sink().join(name);
            write(&here("a"), [7; 100], 5000);
            let fillers: Vec<String> = (0..between).map(|number| format!("b{number}")).collect();
            fillers.iter().for_each(|name| fs::write(here(name), "").unwrap());
            let names = ["c1", "c2", "c3", "c4"];
            names.iter().for_each(|name| fs::hard_link(here("a"), here(name)).unwrap());
            // The rule keeps the second name, too.
            ["a", "c1"].iter().for_each(|name| write(&there(name), "of the sink", seconds));
            let all = ["a"].into_iter().chain(fillers.iter().map(String::as_str)).chain(names);
            let all: Vec<&str> = all.collect();
            pair.send(&all, &JobOptions { update, ..small_objects() }, 2).is_fine();
            ["a", "c1"].iter().for_each(|name| assert_eq!(fs::read(there(name)).unwrap(), b"of the sink"));
            assert_eq!(fs::read(there("c2")).unwrap(), [7; 100]);
            for name in ["c3", "c4"] {
                assert!(is_one(&there("c2"), &there(name)), "{update:?}, {between} between: {name}");
            }
            assert!(!is_one(&there("a"), &there("c2")) && !is_one(&there("a"), &there("c1")));
        }
    }
}
