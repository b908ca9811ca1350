//! Test of a sink with slow storage: sent bytes are in buffers, and bytes that are reported as done
//! are at the sink.

use super::pair::offer;
use super::small_objects;
use haul_engine::transfer::{BoxError, SendJob, SimpleObserver, answer, send};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_net::{LaneControl as _, StreamControl, StreamLane};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Returns the only file of a folder, under any name, if there is one. If the file is renamed at
/// this moment, looks again.
fn only_file(store: &Path) -> Option<File> {
    loop {
        let entry = fs::read_dir(store).unwrap().next()?.unwrap();
        if let Ok(file) = File::open(entry.path()) {
            return Some(file);
        }
    }
}

#[test]
fn progress_never_runs_ahead_of_a_slow_sink() {
    const SIZE: usize = 6 << 20;
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let [source, store, sink] = ["source", "store", "sink"].map(|name| home.path().join(name));
    for dir in [&source, &store, &sink] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(source.join("f"), vec![7; SIZE]).unwrap();
    // Without preallocation, a file is as long as the bytes written so far.
    let rules = "* write .. delay 5\n* allocate .. errno ENOTSUP".parse().unwrap();
    let view = FaultFs::mount(&store, &sink, rules).unwrap();
    let (ours, theirs) = StreamLane::pair();
    let control: StreamControl = ours.control();
    let ours = Mutex::new(Some(ours));
    let dial =
        |_: u32| -> Result<StreamLane, BoxError> { ours.lock().unwrap().take().ok_or("one lane".into()) };
    let job =
        SendJob { options: small_objects(), lanes: Some(1), ..SendJob::new(vec![source.join("f").into()]) };
    let ends = [SimpleObserver::default(), SimpleObserver::default()];
    let (offer, there, here) = (&offer(&sink), &ends[1], &ends[0]);
    // The length is read through an open file: a lookup by name may fail during the final rename.
    let (mut ahead, mut arriving, mut unverified) = (0, None, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || answer(theirs.into(), &mut || None, offer, &there.run_context()).unwrap());
        let sending = scope.spawn(|| send(&dial, &job, &here.run_context()).unwrap());
        while !sending.is_finished() {
            // The values are read in this order, because each of them only grows.
            let done = here.tally().bytes_done.load(Ordering::Relaxed);
            let sent = control.stats().bytes_out;
            // The objects of the file arrive in order.
            arriving = arriving.or_else(|| only_file(&store));
            let arrived = arriving.as_ref().map_or(0, |file| file.metadata().unwrap().len());
            assert!(done <= arrived, "{done} bytes are reported as done, and {arrived} exist");
            ahead = ahead.max(sent.saturating_sub(arrived));
            unverified = unverified.max(there.tally().unverified.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(sending.join().unwrap().is_whole());
    });
    assert!(
        ahead > 64 << 10,
        "no more than {ahead} bytes were ever sent and not there yet: nothing was shown"
    );
    // One lane receives one object at a time.
    assert!((1..=small_objects().object.bytes()).contains(&unverified), "{unverified}");
    assert_eq!(there.tally().unverified.load(Ordering::Relaxed), 0);
    assert_eq!(here.tally().bytes_done.load(Ordering::Relaxed), SIZE as u64);
    assert!(fs::read(store.join("f")).unwrap() == vec![7; SIZE]);
    view.close();
}
