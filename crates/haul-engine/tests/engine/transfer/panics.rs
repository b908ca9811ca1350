//! Tests that a panic of a thread ends the session on both sides.

use super::pair::{Pair, offer};
use super::small_objects;
use haul_engine::transfer::{BoxError, Failure, Filter, Report, RunContext, SendJob, Tally, answer, send};
use haul_model::Level;
use haul_net::StreamLane;
use haul_proto::{JobOptions, Outcome, Why};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

/// Observer that panics when the first file ends.
struct Panics(bool);

impl Report for Panics {
    fn failed(&self, _: &Failure) {}

    fn ended(&self, _: &[u8], _: &Outcome) {
        assert!(!self.0, "a worker panics, as this test wants it");
    }
}

/// Regression: the session waited for the timeout of a silent peer.
#[test]
fn a_worker_that_panics_ends_the_session() {
    // A lane worker, a background worker, and a worker of the source.
    for (source_panics, settle) in
        [(false, Level::Verified), (false, Level::Durable), (true, Level::Verified)]
    {
        let pair = Pair::new();
        // More than a lane holds: the first file ends long before the last one is sent.
        let names: Vec<String> = (0..40).map(|number| format!("file {number}")).collect();
        for name in &names {
            fs::write(pair.source().join(name), vec![1; 300 << 10]).unwrap();
        }
        let options = JobOptions { settle, ..small_objects() };
        let sources = names.iter().map(|name| pair.source().join(name).into()).collect();
        let job = SendJob { filter: Filter::default(), options, lanes: Some(1), ..SendJob::new(sources) };
        let (ours, theirs) = StreamLane::pair();
        let (give, take) = channel::<StreamLane>();
        give.send(ours).unwrap();
        let take = Mutex::new(take);
        let (started, answered) = std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                let (stop, tally, report) =
                    (AtomicBool::new(false), Tally::default(), Panics(!source_panics));
                let run_context = RunContext { stop: &stop, tally: &tally, report: &report, receipt: None };
                answer(theirs.into(), &mut || None, &offer(&pair.sink()), &run_context).unwrap()
            });
            let dial = |_: u32| -> Result<StreamLane, BoxError> { Ok(take.lock().unwrap().try_recv()?) };
            let (stop, tally, report) = (AtomicBool::new(false), Tally::default(), Panics(source_panics));
            let run_context = RunContext { stop: &stop, tally: &tally, report: &report, receipt: None };
            (send(&dial, &job, &run_context).unwrap(), answering.join().unwrap())
        });
        let [panicked, other] = if source_panics { [&started, &answered] } else { [&answered, &started] };
        let why = |outcome: &haul_engine::transfer::Outcome| outcome.broken.clone().map(|reason| reason.why);
        assert_eq!(why(panicked), Some(Why::Internal));
        assert!(why(other).is_some(), "the peer ends as well: {other:?}");
    }
}
