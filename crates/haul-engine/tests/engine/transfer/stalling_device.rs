//! Uploads into a tree with two devices, of which one stalls.

use super::memory_faults::contents;
use super::pair::{Pair, keep_all};
use super::small_objects;
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
        let (storage, slow) = (MemoryStorage::new(1), MemoryStorage::new(2));
        let make = |dir: &dyn Dir, name: &str| {
            dir.dir(&Name::new(name).unwrap(), Follow::No, Missing::Create { mode: 0o755 }).unwrap()
        };
        let mount_point = make(&*make(&*storage.root(), "top"), "slow");
        storage.mount(&*mount_point, &slow).unwrap();
        let was_waited_for = Arc::new(AtomicBool::new(true));
        let stalled: Mutex<Option<Duration>> = Mutex::new(None);
        let (observed, waited, names) = (storage.clone(), Arc::clone(&was_waited_for), fast.clone());
        slow.observe(move |call, _| {
            if call != Call::Flush || stalled.lock().is_some() {
                return;
            }
            let begin = Instant::now();
            let is_there = |path: &String| contents(&observed, path).is_some();
            while !names.iter().all(is_there) && begin.elapsed() < STALL_MAX {
                thread::sleep(Duration::from_millis(5));
            }
            waited.fetch_and(begin.elapsed() < STALL_MAX, Ordering::SeqCst);
            *stalled.lock() = Some(begin.elapsed());
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
