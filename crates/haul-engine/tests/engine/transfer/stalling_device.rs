//! Uploads into a tree with two devices, of which one stalls.

use super::memory_faults::contents;
use super::pair::{Pair, keep_all};
use super::small_objects;
use haul_engine::log::SyncPolicy;
use haul_model::Level;
use haul_proto::{JobOptions, Verify};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Dir, Follow, Missing, Name};
use parking_lot::Mutex;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time that the device stalls if the other files do not arrive meanwhile.
const STALL_MAX: Duration = Duration::from_secs(60);

/// Waits until `is_there` returns true, for a limited time. Returns its last result.
fn wait_until(is_there: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < STALL_MAX {
        if is_there() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    is_there()
}

/// Returns a storage with the directory `top`, and another one that is mounted on its directory
/// `top/NAME`.
fn two_devices(name: &str) -> (MemoryStorage, MemoryStorage) {
    let (storage, other) = (MemoryStorage::new(1), MemoryStorage::new(2));
    let make = |dir: &dyn Dir, name: &str| {
        dir.dir(&Name::new(name).unwrap(), Follow::No, Missing::Create { mode: 0o755 }).unwrap()
    };
    let mount_point = make(&*make(&*storage.root(), "top"), name);
    storage.mount(&*mount_point, &other).unwrap();
    (storage, other)
}

/// The first sync of the slow device for the log waits until objects of the other device were
/// synced for the log meanwhile. Files of the other device are not written before.
#[test]
fn a_device_that_stalls_delays_no_log_of_another_device() {
    let pair = Pair::resuming(None).syncing(SyncPolicy::Object);
    for directory in ["a-slow", "b-fast"] {
        let directory = pair.source().join("top").join(directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("f"), vec![7; 4 << 20]).unwrap();
    }
    let (storage, slow) = two_devices("a-slow");
    let stalls = Arc::new(AtomicBool::new(false));
    let (stalling, fast) = (Arc::clone(&stalls), storage.clone());
    let was_logged = Arc::new(AtomicBool::new(true));
    let logged = Arc::clone(&was_logged);
    slow.observe(move |call, _| {
        if call == Call::Flush && !stalling.swap(true, Ordering::SeqCst) {
            let before = fast.count(Call::Flush);
            logged.store(wait_until(|| fast.count(Call::Flush) > before), Ordering::SeqCst);
        }
    });
    storage.observe(move |call, _| {
        if call == Call::Write {
            assert!(wait_until(|| stalls.load(Ordering::SeqCst)), "the slow device is synced");
        }
    });
    let told = pair.send_to(&["top"], &small_objects(), |offer| {
        offer.root = "/".into();
        offer.storage = Arc::new(storage.clone());
    });
    told.is_fine();
    assert!(was_logged.load(Ordering::SeqCst), "the log of the other device waited");
}

/// Each first sync of the slow device waits until all files of the other device have their names.
#[test]
fn a_device_that_stalls_delays_no_file_of_another_device() {
    let pair = Pair::new();
    let bytes = |len: usize| (0..len).map(|at| ((at * 7) >> 4) as u8).collect::<Vec<u8>>();
    let fast: Vec<String> = (0..20).map(|at| format!("top/fast/{at}")).collect();
    for directory in ["top/fast", "top/slow"] {
        fs::create_dir_all(pair.source().join(directory)).unwrap();
    }
    for (at, path) in fast.iter().enumerate() {
        fs::write(pair.source().join(path), bytes(at * 20_000 + 1)).unwrap();
    }
    for at in 0..20 {
        fs::write(pair.source().join(format!("top/slow/{at}")), bytes(100_000)).unwrap();
    }
    let durable = JobOptions { settle: Level::Durable, keep: keep_all(), ..small_objects() };
    let reread = JobOptions { verify: Verify::Reread, settle: Level::Reread, ..durable.clone() };
    for options in [durable, reread] {
        let (storage, slow) = two_devices("slow");
        let was_waited_for = Arc::new(AtomicBool::new(true));
        let stalled = Mutex::new(false);
        let (observed, waited, names) = (storage.clone(), Arc::clone(&was_waited_for), fast.clone());
        slow.observe(move |call, _| {
            if call != Call::Flush || *stalled.lock() {
                return;
            }
            let is_there = |path: &String| contents(&observed, path).is_some();
            waited.fetch_and(wait_until(|| names.iter().all(is_there)), Ordering::SeqCst);
            *stalled.lock() = true;
        });
        let told = pair.send_to(&["top"], &options, |offer| {
            offer.root = "/".into();
            offer.storage = Arc::new(storage.clone());
        });
        told.is_fine();
        assert!(was_waited_for.load(Ordering::SeqCst), "{}: the other device waited", options.settle);
        assert!(slow.count(Call::Flush) > 0, "the files of the slow device were synced");
        assert_eq!(told.arrived().iter().filter(|(_, level)| *level == options.settle).count(), 40);
    }
}
