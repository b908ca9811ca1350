//! Transfers into a directory of which one call fails: each call of each kind in turn, with each
//! error.
//!
//! If a job reports success, all bytes are there, and durable if the job claims that. If it reports
//! a failure, no file with wrong bytes looks finished, and nothing is lost that was there before,
//! except the bytes of a file that the job overwrites in place. The same command then completes
//! the job.

use super::generated::watched;
use super::pair::{Pair, Transfer};
use super::small_objects;
use haul_engine::log::SyncPolicy;
use haul_lab::faults::Recorded;
use haul_lab::faults::enumeration::{FailingStorage, FuseStorage, NthFault, faults};
use haul_lab::needs::{Need, met_or_skip};
use haul_model::Level;
use haul_proto::{JobOptions, Verify};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Number of faults of each test in a usual run.
const CASES: usize = 60;

/// Contents of the source's files, by name.
fn new_files() -> BTreeMap<&'static str, Vec<u8>> {
    let several = (0..200_000_u32).map(|at| (at >> 7) as u8).collect();
    BTreeMap::from([
        ("empty", Vec::new()),
        ("one", vec![7; 3000]),
        ("several", several),
        ("sub/deep", vec![9; 70_000]),
    ])
}

/// Contents of the sink's files before the job.
fn old_files() -> BTreeMap<&'static str, Vec<u8>> {
    BTreeMap::from([("one", vec![1; 5000]), ("several", vec![2; 130_000]), ("unrelated", vec![3; 100])])
}

fn write_all(dir: &Path, files: &BTreeMap<&'static str, Vec<u8>>) {
    for (name, bytes) in files {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
}

/// Returns the names beneath a directory that are neither expected nor temporary.
fn strays(dir: &Path, temporary: bool) -> Vec<String> {
    let (mut found, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    let (new, old) = (new_files(), old_files());
    while let Some(place) = dirs.pop() {
        for entry in fs::read_dir(place).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let is_temporary = entry.file_name().as_encoded_bytes().starts_with(b".haul-");
            let is_known = new.contains_key(&*name)
                || old.contains_key(&*name)
                || ["sub", "link", "second"].contains(&&*name);
            if !(is_known || temporary && is_temporary) {
                found.push(name);
            } else if entry.file_type().unwrap().is_dir() {
                dirs.push(path);
            }
        }
    }
    found
}

/// Runs a job of this kind with each of its faults.
fn enumerate(options: &JobOptions, is_fetch: bool, most: usize) {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let pair = Pair::resuming(None).syncing(SyncPolicy::Object);
    let storage = FuseStorage::mount(&pair.sink()).unwrap();
    let source = pair.source().join("d");
    let (new, old) = (new_files(), old_files());
    write_all(&source, &new);
    symlink("one", source.join("link")).unwrap();
    fs::hard_link(source.join("several"), source.join("second")).unwrap();
    let transfer = Transfer { names: &["d"], options, lanes: 1, is_fetch, exclude: None, cut: None };
    let begin = || {
        for entry in fs::read_dir(storage.store()).unwrap().map(Result::unwrap) {
            fs::remove_dir_all(entry.path()).unwrap_or_else(|_| fs::remove_file(entry.path()).unwrap());
        }
        write_all(&storage.store().join("d"), &old);
        pair.forget_jobs();
    };
    let all = faults(&storage, most, &mut || {
        begin();
        pair.transfer(&transfer).is_fine();
    });
    let mut wrong = Vec::new();
    for fault in all {
        let case = || check(&pair, &storage, &transfer, fault, &begin);
        match watched(fault, case) {
            Ok(found) => wrong.extend(found.into_iter().map(|text| format!("{fault}: {text}"))),
            Err(_) => wrong.push(format!("{fault}: it panicked")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    storage.close();
}

/// Runs the job with one fault. Returns what is wrong.
fn check(
    pair: &Pair,
    storage: &FuseStorage,
    transfer: &Transfer<'_>,
    fault: NthFault,
    begin: &dyn Fn(),
) -> Vec<String> {
    let mut wrong = Vec::new();
    begin();
    storage.faults().begin_record();
    let mut reported = None;
    storage.fail(fault, &mut || reported = Some(pair.transfer(transfer)));
    let (reported, events) = (reported.unwrap(), storage.faults().end_record());
    let dir = storage.store().join("d");
    let is_whole = reported.is_whole();
    let source = pair.source().join("d");
    let (new, old) = (new_files(), old_files());
    for (name, bytes) in &new {
        let found = fs::read(dir.join(name)).ok();
        let before = old.get(name);
        let is_new = found.as_ref() == Some(bytes);
        let is_old = found.as_ref() == before;
        let time = |path: &Path| fs::metadata(path).map(|facts| (facts.mtime(), facts.mtime_nsec())).ok();
        let may_be_partial = transfer.options.in_place
            && (before.is_some() || found.as_ref().is_some_and(|found| found.len() < bytes.len()))
            && time(&dir.join(name)) != time(&source.join(name));
        if !is_new && (is_whole || !(is_old || may_be_partial)) {
            let len = found.map(|found| found.len());
            wrong.push(format!("whole: {is_whole}, {name} has wrong bytes, length {len:?}; {reported}"));
        }
    }
    if fs::read(dir.join("unrelated")).ok().as_ref() != old.get("unrelated") {
        wrong.push("the unrelated file is lost".to_owned());
    }
    let left = strays(&dir, !is_whole || fault.op == "remove");
    if !left.is_empty() {
        wrong.push(format!("whole: {is_whole}, strays: {left:?}; {reported}"));
    }
    if is_whole && transfer.options.settle >= Level::Durable {
        for (number, event) in events.iter().enumerate() {
            let Recorded::Write { path, .. } = event else { continue };
            let is_synced = events[number..]
                .iter()
                .any(|event| matches!(event, Recorded::Sync { path: synced } if synced == path));
            if !is_synced {
                wrong.push(format!("{} was not synced", path.display()));
            }
        }
    }
    let again = pair.transfer(transfer);
    if !again.is_whole() {
        wrong.push(format!("it cannot be completed; {again}; before: {reported}"));
    }
    for (name, bytes) in &new {
        if fs::read(dir.join(name)).ok().as_ref() != Some(bytes) {
            wrong.push(format!("completed, {name} has wrong bytes; {again}; before: {reported}"));
        }
    }
    let left = strays(&dir, false);
    if fault.op != "remove" && !left.is_empty() {
        wrong.push(format!("completed, strays: {left:?}; before: {reported}"));
    }
    wrong
}

#[test]
fn send_survives_each_fault_of_the_sink() {
    enumerate(&small_objects(), false, CASES);
}

#[test]
fn fetch_in_place_survives_each_fault_of_the_sink() {
    enumerate(&JobOptions { in_place: true, ..small_objects() }, true, CASES);
}

#[test]
fn durable_send_survives_each_fault_of_the_sink() {
    enumerate(&JobOptions { settle: Level::Durable, ..small_objects() }, false, CASES);
}

#[test]
fn reread_fetch_survives_each_fault_of_the_sink() {
    let options = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..small_objects() };
    enumerate(&options, true, CASES);
}
