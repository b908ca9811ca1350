//! Sums of a tree on a storage in memory, of which each call fails once: no digest is wrong, and no
//! file is left out without a reason.

use super::*;
use haul_digest::{Algorithm, Digest, digest};
use haul_lab::random::noise;
use haul_model::{ByteLen, ByteOffset, ObjectSize};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Follow, Missing, Name};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Object size, the smallest one.
const OBJECT: u64 = 64 << 10;

/// Paths and lengths of the files, in the order of the walk.
const FILES: [(&str, u64); 6] =
    [("/a", 0), ("/b", 100), ("/d/e/f", 5 * OBJECT + 7), ("/d/g", 3), ("/h", 70_000), ("/i", 4096)];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn bytes_of(len: u64) -> Vec<u8> {
    noise(len, len)
}

fn storage() -> MemoryStorage {
    let storage = MemoryStorage::new(1);
    for (path, len) in FILES {
        let mut dir = storage.root();
        let (dirs, file) = path[1..].rsplit_once('/').unwrap_or(("", &path[1..]));
        for part in dirs.split('/').filter(|part| !part.is_empty()) {
            dir = dir.dir(&name(part), Follow::No, Missing::Create { mode: 0o700 }).unwrap();
        }
        let sink = dir.sink(&name(file), Create::New { mode: 0o600 }).unwrap();
        sink.write_at(0, &bytes_of(len)).unwrap();
    }
    storage
}

/// Result for one path: the digests of the whole file, or the message.
type Found = (OsString, Result<Vec<Digest>, String>);

fn sums_of(storage: &MemoryStorage, settings: &Settings, recipe: &Recipe) -> Vec<Found> {
    let operands = Listed::new(vec!["/".into()], ByteOffset(0), None);
    let walk = Walk::new(operands, Arc::new(recipe.clone()), true).on(storage.clone());
    let mut found = Vec::new();
    run(settings, walk, &Counters::new(), &AtomicBool::new(false), |ticket, outcome| {
        let result = match outcome {
            Outcome::Done(sums) => Ok([sums.digests, sums.subtrees.concat()].concat()),
            Outcome::Failed(error) => Err(error.to_string()),
            Outcome::Nothing => return,
        };
        found.push((ticket.path().to_owned(), result));
    });
    found
}

/// Ways in which files are hashed: by objects, in lanes and in turn, by leaves.
fn recipes() -> Vec<Recipe> {
    let tree = Form::Tree { leaf: ByteLen(5000), subtree: Some(ByteLen(10_000)) };
    let objects = Form::Objects { size: ObjectSize::new(OBJECT).unwrap(), sample: None };
    let plain = Form::Plain;
    vec![
        Recipe { algorithms: vec![Algorithm::Blake3], form: plain },
        Recipe { algorithms: vec![Algorithm::Blake3, Algorithm::Crc32], form: objects },
        Recipe { algorithms: vec![Algorithm::Sha256], form: plain },
        Recipe { algorithms: vec![Algorithm::Xxh64, Algorithm::Md5], form: plain },
        Recipe { algorithms: vec![Algorithm::Sha256], form: tree },
        Recipe { algorithms: vec![Algorithm::Xxh64], form: tree },
    ]
}

#[test]
fn digests_of_a_storage_in_memory_are_right() {
    for recipe in recipes().into_iter().filter(|recipe| !matches!(recipe.form, Form::Tree { .. })) {
        let found = sums_of(&storage(), &Settings::for_workers(2), &recipe);
        let right = FILES.map(|(path, len)| {
            let digests = recipe.algorithms.iter().map(|&algorithm| digest(algorithm, &bytes_of(len)));
            (OsString::from(path), Ok(digests.collect()))
        });
        assert_eq!(found, right);
    }
}

#[test]
fn each_call_that_fails_is_reported_and_no_digest_is_wrong() {
    for (recipe, workers) in recipes().into_iter().flat_map(|recipe| [(recipe.clone(), 1), (recipe, 3)]) {
        let object = ObjectSize::new(OBJECT).unwrap();
        let settings = Settings { object, block_bytes: 16 << 10, ..Settings::for_workers(workers) };
        let right = sums_of(&storage(), &settings, &recipe);
        assert!(right.len() == FILES.len() && right.iter().all(|(_, result)| result.is_ok()), "{right:?}");
        let mut failures = 0;
        for call in Call::ALL {
            for nth in 1.. {
                let storage = storage();
                let before = storage.count(call);
                storage.fail(call, nth, 5);
                let found = sums_of(&storage, &settings, &recipe);
                if storage.count(call) - before < nth {
                    assert_eq!(found, right, "without a fault");
                    break;
                }
                let what = format!("{call:?} {nth} fails, {recipe:?}, {workers} workers: {found:?}");
                let failed: Vec<&Found> = found.iter().filter(|(_, result)| result.is_err()).collect();
                assert_eq!(failed.len(), 1, "{what}");
                assert_eq!(failed[0].1, Err("Input/output error".to_owned()), "{what}");
                // The others are right; those in a directory that cannot be read are missing.
                let of_failed = failed[0].0.to_str().unwrap();
                let is_reported = |path: &str| path.starts_with(of_failed);
                let expected = right.iter().filter(|(path, _)| !is_reported(path.to_str().unwrap()));
                let done = found.iter().filter(|(_, result)| result.is_ok());
                assert!(done.eq(expected), "{what}");
                failures += 1;
            }
        }
        // Each of the files is opened, read and examined.
        assert!(failures >= 3 * FILES.len(), "{failures}");
    }
}
