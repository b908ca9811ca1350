//! Tests of relays of any shape, compared with the digest of the whole file, and of early ends.

use super::super::order::{Source, Task};
use super::super::settings::{Form, Recipe, Settings};
use super::*;
use haul_digest::{Algorithm, Digest, digest};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_model::{ByteLen, ByteOffset};
use proptest::prelude::*;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Serial digests alone, and together with one that combines.
fn any_recipe() -> impl Strategy<Value = Recipe> {
    let serial = vec![Algorithm::Md5, Algorithm::Sha256, Algorithm::Xxh64, Algorithm::Xxh3_128];
    let algorithms = proptest::sample::subsequence(serial, 1..3).prop_flat_map(|serial| {
        any::<bool>().prop_map(move |mixed| {
            let more = mixed.then_some(Algorithm::Crc32);
            serial.iter().copied().chain(more).collect()
        })
    });
    algorithms.prop_map(|algorithms| Recipe { algorithms, form: Form::Plain })
}

fn bytes_of(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn relay_over(path: &Path, recipe: &Recipe, block: usize, offset: usize) -> Relay {
    let task = Task {
        source: Source::Path(path.as_os_str().to_owned()),
        recipe: Arc::new(recipe.clone()),
        offset: ByteOffset(offset as u64),
        length: None,
    };
    Relay::new(
        Opened::open(&task, &Settings::new(), &AtomicBool::new(false)).unwrap(),
        RunningDigests::new(recipe, None),
        block,
    )
}

/// Test worker. A helper takes some blocks, leaves and returns, like one that finds other work.
struct TestTeam<'a> {
    guest: bool,
    /// Number of calls of `stays()`.
    asked: AtomicU64,
    stop: &'a AtomicBool,
    on_baton: &'a (dyn Fn() + Sync),
}

impl RelayJob for TestTeam<'_> {
    fn stays(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        !self.guest || asked % 4 != 3
    }

    fn holds_hasher_state(&self) {
        (self.on_baton)();
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs an owner and helpers until all finish. Returns their results and the number of panics.
fn results_of(
    relay: &Relay,
    runners: usize,
    stop: &AtomicBool,
    on_baton: &(dyn Fn() + Sync),
) -> (Vec<Result<Vec<Digest>, String>>, usize) {
    let (results, counters) = (Mutex::new(Vec::new()), Counters::new());
    let (panicked, block) = (AtomicUsize::new(0), relay.block as usize);
    std::thread::scope(|scope| {
        for number in 0..runners {
            let (results, counters, panicked) = (&results, &counters, &panicked);
            scope.spawn(move || {
                let team = TestTeam { guest: number > 0, asked: AtomicU64::new(0), stop, on_baton };
                let mut buffer = vec![0; block];
                for _visit in 0..3 {
                    let ended = catch_unwind(AssertUnwindSafe(|| relay.run(&mut buffer, counters, &team)));
                    match ended {
                        Ok(Some(result)) => results
                            .lock()
                            .push(result.map(|sums| sums.digests).map_err(|error| error.to_string())),
                        Ok(None) => {}
                        Err(_) => {
                            panicked.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(
        relay.runners.load(Ordering::Relaxed),
        panicked.load(Ordering::Relaxed),
        "finished workers are counted"
    );
    (results.into_inner(), panicked.into_inner())
}

/// Returns a hook that acts on call number `at`.
fn once_at(at: usize, act: impl Fn() + Sync) -> impl Fn() + Sync {
    let calls = AtomicUsize::new(0);
    move || {
        if calls.fetch_add(1, Ordering::Relaxed) == at {
            act();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn relay_gives_the_digests_once_for_any_blocks_and_workers(
        len in 1usize..200_000,
        block in 1000usize..70_000,
        runners in 1usize..6,
        recipe in any_recipe(),
        offset in 0usize..5000,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = bytes_of(len);
        fs::write(file.path(), &bytes).unwrap();
        let offset = offset.min(len - 1);
        let relay = relay_over(file.path(), &recipe, block, offset);
        let expected = recipe.algorithms.iter().map(|&alg| digest(alg, &bytes[offset..])).collect();
        let found = results_of(&relay, runners, &AtomicBool::new(false), &|| {});
        prop_assert_eq!(found, (vec![Ok(expected)], 0));
    }

    #[test]
    fn file_that_shrinks_during_the_relay_has_no_digest(
        blocks in 1usize..40,
        at in any::<prop::sample::Index>(),
        left in any::<prop::sample::Index>(),
        runners in 1usize..6,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let len = blocks * 4096;
        fs::write(file.path(), bytes_of(len)).unwrap();
        let recipe = Recipe { algorithms: vec![Algorithm::Xxh64], form: Form::Plain };
        let relay = relay_over(file.path(), &recipe, 4096, 0);
        let cut = || File::options().write(true).open(file.path()).unwrap().set_len(left.index(len) as u64).unwrap();
        let hook = once_at(at.index(blocks), cut);
        let (found, panicked) = results_of(&relay, runners, &AtomicBool::new(false), &hook);
        prop_assert_eq!(found, vec![Err(SumError::Changed.to_string())]);
        prop_assert_eq!(panicked, 0);
    }

    #[test]
    fn stopped_relay_ends_once_within_one_block_per_worker(
        blocks in 1usize..40,
        at in any::<prop::sample::Index>(),
        runners in 1usize..6,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = bytes_of(blocks * 4096);
        fs::write(file.path(), &bytes).unwrap();
        let recipe = Recipe { algorithms: vec![Algorithm::Xxh3_128], form: Form::Plain };
        let relay = relay_over(file.path(), &recipe, 4096, 0);
        let (stop, at, fed) = (AtomicBool::new(false), at.index(blocks), AtomicUsize::new(0));
        let stopping = once_at(at, || stop.store(true, Ordering::SeqCst));
        let hook = || { fed.fetch_add(1, Ordering::Relaxed); stopping(); };
        let (found, panicked) = results_of(&relay, runners, &stop, &hook);
        let stopped = Err(SumError::Stopped.to_string());
        let whole = Ok(vec![digest(Algorithm::Xxh3_128, &bytes)]);
        prop_assert_eq!((found.len(), panicked), (1, 0));
        // Blocks that other workers have already read may still be hashed.
        prop_assert!(found[0] == stopped || (found[0] == whole && at + runners >= blocks), "{found:?}");
        prop_assert!(fed.into_inner() <= at + runners);
    }

    #[test]
    fn panicking_worker_leaves_no_worker_blocked(blocks in 1usize..20, at in any::<prop::sample::Index>(), runners in 1usize..6) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes_of(blocks * 4096)).unwrap();
        let recipe = Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain };
        let relay = relay_over(file.path(), &recipe, 4096, 0);
        let hook = once_at(at.index(blocks), || std::panic::resume_unwind(Box::new("on purpose")));
        let found = results_of(&relay, runners, &AtomicBool::new(false), &hook);
        prop_assert_eq!(found, (vec![], 1));
    }
}

#[test]
fn file_shorter_than_its_size_is_hashed_to_its_end() {
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !met_or_skip(&[Need::Path(file)]) {
        return;
    }
    let path = Path::new(file);
    let bytes = fs::read(path).unwrap();
    let recipe = Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain };
    for block in [16, bytes.len(), 4096] {
        for runners in 1..4 {
            let relay = relay_over(path, &recipe, block, 0);
            let found = results_of(&relay, runners, &AtomicBool::new(false), &|| {});
            assert_eq!(found, (vec![Ok(vec![digest(Algorithm::Md5, &bytes)])], 0), "{block} {runners}");
        }
    }
}

#[test]
fn abandoned_relay_ends_for_all_workers_and_is_reported_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes_of(9 * 4096)).unwrap();
    let recipe = Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain };
    let relay = relay_over(file.path(), &recipe, 4096, 0);
    assert!(relay.abandon() && !relay.abandon());
    assert_eq!(results_of(&relay, 3, &AtomicBool::new(false), &|| {}), (vec![], 0));
}

/// Creates a file that is unreadable from offset 40,000 on, through a file system with faults.
fn with_a_bad_block(check: impl FnOnce(&Path)) {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (store, view) = (home.path().join("store"), home.path().join("view"));
    fs::create_dir(&store).unwrap();
    fs::create_dir(&view).unwrap();
    fs::write(store.join("f"), bytes_of(25 * 4096)).unwrap();
    let faults = FaultFs::mount(&store, &view, "f read 40000.. errno EIO".parse().unwrap()).unwrap();
    check(&view.join("f"));
    faults.close();
}

#[test]
fn read_error_in_any_block_ends_the_relay_without_a_digest() {
    with_a_bad_block(|path| {
        for algorithms in [vec![Algorithm::Md5], vec![Algorithm::Xxh64, Algorithm::Crc32]] {
            let recipe = Recipe { algorithms, form: Form::Plain };
            for runners in 1..5 {
                let relay = relay_over(path, &recipe, 4096, 0);
                let found = results_of(&relay, runners, &AtomicBool::new(false), &|| {});
                assert_eq!(found, (vec![Err("Input/output error".to_owned())], 0), "{runners} workers");
            }
        }
    });
}

#[test]
fn only_long_files_with_spare_workers_use_a_relay() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let task = Task {
        source: Source::Path(file.path().as_os_str().to_owned()),
        recipe: Arc::new(Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain }),
        offset: ByteOffset(0),
        length: Some(ByteLen(1 << 20)),
    };
    let opened = Opened::open(&task, &Settings::new(), &AtomicBool::new(false)).unwrap();
    let pays = |block, workers| Relay::pays(&opened, block, workers);
    assert!(pays(256 << 10, 2) && pays(BLOCK_BYTES_MIN, 9));
    assert!(!pays(512 << 10, 2) && !pays(256 << 10, 1) && !pays(BLOCK_BYTES_MIN - 4096, 2));
}
