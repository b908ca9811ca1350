//! Comparison of the whole job with a simple reference, which hashes each file in one call.

use super::*;
use haul_digest::{Algorithm, Digest, PartHasher, PartPlace, digest};
use haul_lab::needs::{Need, met_or_skip};
use haul_model::{ByteLen, ByteOffset, ByteRange, Geometry, Object, ObjectSize};
use proptest::prelude::*;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a walk over `operands` and returns its results.
fn sums_of(
    settings: &Settings,
    recipe: &Recipe,
    operands: Vec<OsString>,
    range: (u64, Option<u64>),
) -> Vec<(String, Result<Sums, String>)> {
    let listed = Listed::new(operands, ByteOffset(range.0), range.1.map(ByteLen));
    let walk = Walk::new(listed, Arc::new(recipe.clone()), true);
    let (counters, stop, mut found) = (Counters::new(), AtomicBool::new(false), Vec::new());
    run(settings, walk, &counters, &stop, |ticket, outcome| {
        let result = match outcome {
            // The metadata does not affect the digests.
            Outcome::Done(sums) => Ok(Sums { facts: None, ..sums }),
            Outcome::Failed(error) => Err(error.to_string()),
            Outcome::Nothing => return,
        };
        found.push((ticket.path().to_str().unwrap().to_owned(), result));
    });
    assert!(counters.walked());
    let hashed = found.iter().filter(|(_, result)| result.is_ok()).count() as u64;
    assert!(counters.files_done() >= hashed && counters.files_done() <= counters.files_found());
    found
}

/// Computes the tree by its definition: the left child covers the largest power of two of leaves
/// below the node's number of leaves.
fn tree_by_definition(algorithm: Algorithm, bytes: &[u8], leaf: usize) -> Digest {
    let leaves = bytes.len().div_ceil(leaf);
    if leaves <= 1 {
        return digest(algorithm, bytes);
    }
    let left = (leaves.next_power_of_two() / 2) * leaf;
    let children = [&bytes[..left], &bytes[left..]].map(|part| tree_by_definition(algorithm, part, leaf));
    digest(algorithm, &[children[0].as_bytes(), children[1].as_bytes()].concat())
}

fn naive(recipe: &Recipe, bytes: &[u8], size: usize, start: usize) -> Sums {
    let root = |algorithm: &Algorithm, bytes: &[u8]| match recipe.form {
        Form::Plain | Form::Objects { .. } => digest(*algorithm, bytes),
        Form::Tree { leaf, .. } => tree_by_definition(*algorithm, bytes, leaf.0 as usize),
    };
    let parts = |algorithm: &Algorithm, size: usize| match bytes {
        [] => vec![digest(*algorithm, &[])],
        _ => bytes.chunks(size).map(|part| root(algorithm, part)).collect(),
    };
    let leaves = match recipe.form {
        Form::Plain | Form::Objects { .. } => 1,
        Form::Tree { leaf, .. } => (bytes.len() as u64).div_ceil(leaf.0).max(1),
    };
    let subtrees = match recipe.form {
        Form::Tree { subtree: Some(size), .. } => {
            recipe.algorithms.iter().map(|algorithm| parts(algorithm, size.0 as usize)).collect()
        }
        _ => Vec::new(),
    };
    let range = ByteRange::between(start as u64, (start + bytes.len()) as u64);
    let digests = recipe.algorithms.iter().map(|algorithm| root(algorithm, bytes)).collect();
    Sums {
        range,
        partial: bytes.len() != size,
        digests,
        leaves,
        subtrees,
        objects: None,
        leaf_sums: None,
        facts: None,
    }
}

fn bytes_of(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn any_form() -> impl Strategy<Value = Form> {
    let tree = (0u32..9, proptest::option::of(0u32..4)).prop_map(|(shift, up)| {
        let leaf = 1000 << shift;
        Form::Tree { leaf: ByteLen(leaf), subtree: up.map(|up| ByteLen(leaf << up)) }
    });
    prop_oneof![Just(Form::Plain), tree]
}

/// One digest with lanes, one that combines, or any set of digests.
fn any_algorithms() -> impl Strategy<Value = Vec<Algorithm>> {
    let lane = [Algorithm::Md5, Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512];
    prop_oneof![
        proptest::sample::select(lane.to_vec()).prop_map(|algorithm| vec![algorithm]),
        Just(vec![Algorithm::Blake3]),
        proptest::sample::subsequence(Algorithm::ALL.to_vec(), 1..5),
    ]
}

fn any_len() -> impl Strategy<Value = usize> {
    let object = 1usize << 16;
    let edges = [0, 1, object - 1, object, object + 1, 3 * object, 5 * object + 7];
    prop_oneof![4 => 0usize..3000, 2 => 0usize..400_000, 2 => proptest::sample::select(edges.to_vec())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn digests_match_the_naive_ones_in_order_for_any_workers(
        lens in proptest::collection::vec(any_len(), 0..24),
        algorithms in any_algorithms(),
        form in any_form(),
        workers in 1usize..6,
        range in prop_oneof![Just((0u64, None)), (0u64..5000, proptest::option::of(0u64..200_000))],
        direct in any::<bool>(),
        block in proptest::sample::select(vec![4096usize, 65536, 131_072]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let recipe = Recipe { algorithms, form };
        let object = ObjectSize::new(1 << 16).unwrap();
        let settings = Settings { workers, block_bytes: block, object, direct, drop_behind: !direct, ..Settings::new() };
        let mut expected = Vec::new();
        for (number, &len) in lens.iter().enumerate() {
            // Some files are in subdirectories, and the names sort like the numbers.
            let name = format!("{:03}{}", number, if number % 5 == 3 { "/below" } else { "" });
            let path = dir.path().join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let bytes = bytes_of(len, number as u64);
            fs::write(&path, &bytes).unwrap();
            let start = if len == 0 { 0 } else { len.min(range.0 as usize) };
            let end = range.1.map_or(len, |most| len.min(start + most as usize));
            let mut sums = naive(&recipe, &bytes[start..end], len, start);
            if len == 0 {
                // A file without a size is read as a stream, and is partial if a part was
                // requested.
                sums.partial = range != (0, None);
            }
            expected.push((path.to_str().unwrap().to_owned(), Ok(sums)));
        }
        let found = sums_of(&settings, &recipe, vec![dir.path().as_os_str().to_owned()], range);
        prop_assert_eq!(found, expected);
    }
}

fn md5() -> Recipe {
    Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain }
}

fn blake3() -> Recipe {
    Recipe { algorithms: vec![Algorithm::Blake3], form: Form::Plain }
}

fn path(dir: &Path, name: &str) -> OsString {
    dir.join(name).into_os_string()
}

#[test]
fn failures_are_reported_in_order_and_the_rest_continues() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    for recipe in [md5(), blake3()] {
        let names = ["a", "nope", "d", "loop", "a", "a/x"];
        let operands =
            Listed::new(names.iter().map(|name| path(dir.path(), name)).collect(), ByteOffset(0), None);
        let walk = Walk::new(operands, Arc::new(recipe), false);
        let mut found = Vec::new();
        run(&Settings::new(), walk, &Counters::new(), &AtomicBool::new(false), |_, outcome| {
            found.push(match outcome {
                Outcome::Done(_) => "done".to_owned(),
                Outcome::Failed(error) => error.to_string(),
                Outcome::Nothing => "nothing".to_owned(),
            });
        });
        let missing = "No such file or directory";
        let too_many = "Too many levels of symbolic links";
        assert_eq!(found, ["done", missing, "Is a directory", too_many, "done", "Not a directory"]);
    }
}

/// A sink that blocks, such as a terminal that does not read, stops no other worker.
#[test]
fn blocked_sink_does_not_stop_the_other_workers() {
    const FILES: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..FILES).map(|number| format!("{number:02}")).collect();
    names.iter().for_each(|name| fs::write(dir.path().join(name), name).unwrap());
    let operands = names.iter().map(|name| path(dir.path(), name)).collect();
    let walk = Walk::new(Listed::new(operands, ByteOffset(0), None), Arc::new(blake3()), true);
    let (counters, stop, mut found) = (Counters::new(), AtomicBool::new(false), 0);
    run(&Settings::for_workers(2), walk, &counters, &stop, |_, _| {
        // All files but those of this worker's batch are hashed while the first result waits.
        while found == 0 && counters.files_done() < FILES - ENTRIES_PER_TURN as u64 {
            std::thread::yield_now();
        }
        found += 1;
    });
    assert_eq!(found, FILES);
}

#[test]
fn walk_skips_entries_other_than_regular_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b"), "b").unwrap();
    fs::create_dir_all(dir.path().join("a/deep/er")).unwrap();
    fs::write(dir.path().join("a/deep/er/f"), "f").unwrap();
    symlink("b", dir.path().join("link")).unwrap();
    symlink(".", dir.path().join("a/up")).unwrap();
    let found = sums_of(&Settings::new(), &md5(), vec![path(dir.path(), "")], (0, None));
    let names: Vec<&str> = found.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["f", "b"]);
}

#[test]
fn files_of_proc_and_sys_are_read_to_their_end() {
    for (file, recipe) in
        [("/proc/version", md5()), ("/sys/kernel/mm/transparent_hugepage/enabled", blake3())]
    {
        if !met_or_skip(&[Need::Path(file)]) {
            continue;
        }
        let bytes = fs::read(file).unwrap();
        let found = sums_of(&Settings::new(), &recipe, vec![file.into()], (0, None));
        let sums = found[0].1.as_ref().unwrap();
        assert_eq!(sums.digests, [digest(recipe.algorithms[0], &bytes)], "{file}");
    }
}

#[test]
fn holes_are_read_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.set_len((9 << 20) + 5).unwrap();
    let expected = digest(Algorithm::Blake3, &vec![0; (9 << 20) + 5]);
    let found = sums_of(&Settings::new(), &blake3(), vec![path(dir.path(), "sparse")], (0, None));
    assert_eq!(found[0].1.as_ref().unwrap().digests, [expected]);
}

/// Maximum number of attempts to make a change coincide with a read.
const TRIES: u32 = 500;

#[test]
fn file_that_grows_during_the_read_has_no_digest() {
    let dir = tempfile::tempdir().unwrap();
    let before = vec![7; 32 << 20];
    for recipe in [blake3(), md5(), Recipe { algorithms: vec![Algorithm::Xxh64], form: Form::Plain }] {
        // On a busy machine the append may come after the read; the digest is then that of the old
        // contents.
        let noticed = (0..TRIES).any(|_| {
            let grows = path(dir.path(), "grows");
            fs::write(&grows, &before).unwrap();
            match sum_while_appending(&grows, &recipe) {
                Outcome::Failed(SumError::Changed) => true,
                Outcome::Done(sums) => {
                    assert_eq!(sums.digests, [digest(recipe.algorithms[0], &before)]);
                    false
                }
                other => panic!("{other:?}"),
            }
        });
        assert!(noticed, "{recipe:?}");
    }
}

#[test]
fn file_that_shrinks_during_the_read_has_no_digest() {
    let dir = tempfile::tempdir().unwrap();
    let before = vec![7; 32 << 20];
    for recipe in [blake3(), md5(), Recipe { algorithms: vec![Algorithm::Xxh64], form: Form::Plain }] {
        for workers in [1, 3] {
            let noticed = (0..TRIES).any(|_| {
                let shrinks = path(dir.path(), "shrinks");
                fs::write(&shrinks, &before).unwrap();
                let settings = Settings { block_bytes: 65_536, workers, ..Settings::new() };
                let cut =
                    || fs::OpenOptions::new().write(true).open(&shrinks).unwrap().set_len(20 << 20).unwrap();
                match sum_while(&shrinks, &recipe, &settings, cut) {
                    Outcome::Failed(SumError::Changed) => true,
                    Outcome::Done(sums) => {
                        assert_eq!(sums.digests, [digest(recipe.algorithms[0], &before)]);
                        false
                    }
                    other => panic!("{other:?}"),
                }
            });
            assert!(noticed, "{recipe:?}, {workers} workers");
        }
    }
}

#[test]
fn read_error_yields_no_digest_and_the_next_file_is_hashed() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (store, view) = (home.path().join("store"), home.path().join("view"));
    fs::create_dir(&store).unwrap();
    fs::create_dir(&view).unwrap();
    let bytes = bytes_of(900_000, 1);
    for name in ["bad", "good"] {
        fs::write(store.join(name), &bytes).unwrap();
    }
    let rules = "bad read 300000..300001 errno EIO";
    let faults = haul_lab::faults::FaultFs::mount(&store, &view, rules.parse().unwrap()).unwrap();
    let tree = Form::Tree { leaf: ByteLen(1000), subtree: Some(ByteLen(4000)) };
    for (algorithm, form) in [
        (Algorithm::Blake3, Form::Plain),
        (Algorithm::Crc32, Form::Plain),
        (Algorithm::Md5, tree),
        (Algorithm::Xxh64, tree),
        (Algorithm::Md5, Form::Plain),
    ] {
        for workers in [1, 2, 4] {
            let object = ObjectSize::new(1 << 16).unwrap();
            let settings = Settings { block_bytes: 65_536, workers, object, ..Settings::new() };
            let recipe = Recipe { algorithms: vec![algorithm], form };
            let names = vec![path(&view, "bad"), path(&view, "good")];
            let found = sums_of(&settings, &recipe, names, (0, None));
            assert_eq!(found[0].1, Err("Input/output error".to_owned()), "{algorithm} {form:?} {workers}");
            assert_eq!(
                found[1].1,
                Ok(naive(&recipe, &bytes, bytes.len(), 0)),
                "{algorithm} {form:?} {workers}"
            );
        }
    }
    faults.close();
}

/// Hashes a file, and appends to it after its first bytes were read.
fn sum_while_appending(file: &OsString, recipe: &Recipe) -> Outcome {
    // Small blocks make the read take longer.
    let settings = Settings { block_bytes: 4096, workers: 1, ..Settings::new() };
    let append = || fs::OpenOptions::new().append(true).open(file).unwrap().write_all(b"more").unwrap();
    sum_while(file, recipe, &settings, append)
}

/// Hashes a file, and calls `change` after its first bytes were read.
fn sum_while(file: &OsString, recipe: &Recipe, settings: &Settings, change: impl Fn() + Sync) -> Outcome {
    let listed = Listed::new(vec![file.clone()], ByteOffset(0), None);
    let walk = Walk::new(listed, Arc::new(recipe.clone()), false);
    let (counters, stop, over) = (Counters::new(), AtomicBool::new(false), AtomicBool::new(false));
    let mut result = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while counters.bytes_done() == 0 && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            change();
        });
        run(settings, walk, &counters, &stop, |_, outcome| result = Some(outcome));
        over.store(true, Ordering::Relaxed);
    });
    result.unwrap()
}

#[test]
fn more_results_than_the_window_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), vec![1; 32 << 20]).unwrap();
    fs::write(dir.path().join("small"), "small").unwrap();
    let mut operands = vec![path(dir.path(), "small"); 3 * WINDOW as usize];
    operands[0] = path(dir.path(), "large");
    operands[5000] = path(dir.path(), "nope");
    for recipe in [md5(), blake3()] {
        let listed = Listed::new(operands.clone(), ByteOffset(0), None);
        let (mut count, mut failed) = (0, Vec::new());
        let settings = Settings { workers: 3, ..Settings::new() };
        let walk = Walk::new(listed, Arc::new(recipe), false);
        run(&settings, walk, &Counters::new(), &AtomicBool::new(false), |ticket, outcome| {
            assert_eq!(ticket.path(), operands[count]);
            if let Outcome::Failed(_) = outcome {
                failed.push(count);
            }
            count += 1;
        });
        assert_eq!((count, failed), (operands.len(), vec![5000]));
    }
}

#[test]
fn stopped_job_skips_the_remaining_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "f").unwrap();
    let listed = Listed::new(vec![path(dir.path(), "f"); 100_000], ByteOffset(0), None);
    let (stop, mut count) = (AtomicBool::new(false), 0);
    let walk = Walk::new(listed, Arc::new(md5()), false);
    run(&Settings::new(), walk, &Counters::new(), &stop, |_, _| {
        count += 1;
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(count, 1);
}

/// BLAKE3 digests of objects are kept together with any other digests, for parallel and for
/// sequential hashing.
#[test]
fn object_digests_are_kept_with_any_other_digests() {
    let dir = tempfile::tempdir().unwrap();
    let size = ObjectSize::new(1 << 17).unwrap();
    let lens = [0, 1, 1 << 17, (1 << 17) + 1, 700_000];
    for (number, len) in lens.into_iter().enumerate() {
        fs::write(dir.path().join(number.to_string()), bytes_of(len, 5)).unwrap();
    }
    for others in [vec![], vec![Algorithm::Crc32], vec![Algorithm::Md5, Algorithm::Adler32]] {
        let algorithms = [vec![Algorithm::Blake3], others].concat();
        let recipe = Recipe { algorithms: algorithms.clone(), form: Form::Objects { size, sample: None } };
        let settings = Settings { workers: 3, object: ObjectSize::new(1 << 16).unwrap(), ..Settings::new() };
        let found = sums_of(&settings, &recipe, vec![dir.path().as_os_str().to_owned()], (0, None));
        for (len, (_, sums)) in lens.into_iter().zip(found) {
            let (sums, bytes) = (sums.unwrap(), bytes_of(len, 5));
            let plain: Vec<_> = algorithms.iter().map(|&algorithm| digest(algorithm, &bytes)).collect();
            assert_eq!(sums.digests, plain);
            let geometry = Geometry::new(ByteLen(len as u64), size);
            let objects = geometry.objects().filter(|_| geometry.count() > 1);
            let expected: Vec<_> = objects
                .map(|Object { index, range }| {
                    let place = PartPlace { offset: range.start, whole: false };
                    let mut part = PartHasher::new(Algorithm::Blake3, place);
                    part.update(&bytes[range.start.0 as usize..range.end.0 as usize]);
                    (index, part.finish().digest())
                })
                .collect();
            let objects: Vec<_> = sums.objects.iter().flat_map(|objects| objects.iter()).collect();
            assert_eq!(objects, expected, "{len} bytes, {algorithms:?}");
        }
    }
}

#[test]
fn sample_size_matches_its_share_and_is_repeatable() {
    let picked = |share, seed| {
        (0..10_000).filter(move |&at| Sample { share, seed }.picks(haul_model::ObjectIndex(at)))
    };
    assert_eq!(picked(0.0, 1).count(), 0);
    assert_eq!(picked(1.0, 1).count(), 10_000);
    assert!((2_300..2_700).contains(&picked(0.25, 1).count()));
    assert!(picked(0.25, 1).eq(picked(0.25, 1)) && !picked(0.25, 1).eq(picked(0.25, 2)));
}
