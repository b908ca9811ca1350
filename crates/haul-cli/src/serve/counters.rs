//! Counters of the sessions of a server: running ones by their tallies, ended ones by their sums.

use haul_engine::transfer::{Outcome, Tally};
use haul_web::{Metric, MetricKind};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of all sessions since the start of the server.
#[derive(Default)]
pub(super) struct SessionCounters {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Vec<Arc<Tally>>,
    ended: Sums,
}

/// Sums over sessions that have ended.
#[derive(Clone, Default)]
struct Sums {
    sessions: u64,
    incomplete: u64,
    files_done: u64,
    bytes_done: u64,
    files_failed: u64,
    objects_resent: u64,
    received: u64,
    sent: u64,
    unverified: u64,
}

/// A session that is counted as running until it is dropped.
pub(super) struct CountedSession<'a> {
    counters: &'a SessionCounters,
    tally: Arc<Tally>,
    /// Outcome of the session, unless it failed or panicked.
    outcome: Option<Outcome>,
}

impl SessionCounters {
    /// Counts a session with `tally` as running.
    pub(super) fn begin(&self, tally: &Arc<Tally>) -> CountedSession<'_> {
        self.lock().running.push(Arc::clone(tally));
        CountedSession { counters: self, tally: Arc::clone(tally), outcome: None }
    }

    /// Returns the counters for a scrape.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        use MetricKind::{Counter, Gauge};
        let (running, mut sums) = {
            let state = self.lock();
            let mut sums = state.ended.clone();
            for tally in &state.running {
                sums.add_tally(tally);
                add(&mut sums.unverified, tally.unverified.load(Ordering::Relaxed));
            }
            (state.running.len() as u64, sums)
        };
        sums.sessions += running;
        let single = Metric::single;
        let traffic = |name, help, value| single(Counter, name, help, value).in_unit("bytes");
        vec![
            single(Gauge, "haul_running_sessions", "Sessions of transfers that are running.", running),
            single(Counter, "haul_sessions", "Sessions of transfers, running ones included.", sums.sessions),
            single(
                Counter,
                "haul_incomplete_sessions",
                "Sessions that ended before everything had arrived.",
                sums.incomplete,
            ),
            single(Counter, "haul_files", "Names that have ended, failed ones included.", sums.files_done),
            single(
                Counter,
                "haul_failed_files",
                "Files that failed, in sessions that have ended.",
                sums.files_failed,
            ),
            traffic(
                "haul_settled_bytes",
                "Bytes of files that reached the level of their job, such as durable.",
                sums.bytes_done,
            ),
            Metric::single(
                Gauge,
                "haul_unverified_bytes",
                "Bytes that arrived in objects that are not compared yet.",
                sums.unverified,
            )
            .in_unit("bytes"),
            single(
                Counter,
                "haul_resent_objects",
                "Objects that arrived damaged and were sent again, in sessions that have ended.",
                sums.objects_resent,
            ),
            traffic(
                "haul_lane_received_bytes",
                "Bytes that lanes received, in sessions that have ended.",
                sums.received,
            ),
            traffic("haul_lane_sent_bytes", "Bytes that lanes sent, in sessions that have ended.", sums.sent),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Sums {
    fn add_tally(&mut self, tally: &Tally) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        add(&mut self.files_done, get(&tally.files_done));
        add(&mut self.bytes_done, get(&tally.bytes_done));
    }

    fn add_outcome(&mut self, outcome: &Outcome) {
        add(&mut self.files_failed, outcome.summary.failed);
        add(&mut self.objects_resent, outcome.summary.again);
        add(&mut self.received, outcome.traffic.received);
        add(&mut self.sent, outcome.traffic.sent);
    }
}

/// Adds to a sum without wrapping: some counts come from the peer.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

impl CountedSession<'_> {
    /// Records the outcome of the session.
    pub(super) fn end(&mut self, outcome: &Outcome) {
        self.outcome = Some(outcome.clone());
    }
}

impl Drop for CountedSession<'_> {
    fn drop(&mut self) {
        let mut state = self.counters.lock();
        state.running.retain(|tally| !Arc::ptr_eq(tally, &self.tally));
        let ended = &mut state.ended;
        ended.sessions += 1;
        ended.add_tally(&self.tally);
        if let Some(outcome) = &self.outcome {
            ended.add_outcome(outcome);
        }
        ended.incomplete += u64::from(!self.outcome.as_ref().is_some_and(Outcome::is_whole));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(counters: &SessionCounters, name: &str) -> u64 {
        let metrics = counters.metrics();
        metrics.iter().find(|metric| metric.name == name).expect("there").samples[0].1
    }

    #[test]
    fn running_and_ended_sessions_are_summed_once() {
        let counters = SessionCounters::default();
        let tallies = [(); 2].map(|()| Arc::new(Tally::default()));
        let sessions = tallies.each_ref().map(|tally| counters.begin(tally));
        tallies[0].bytes_done.store(7, Ordering::Relaxed);
        tallies[1].bytes_done.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(value(&counters, "haul_settled_bytes"), u64::MAX, "a peer cannot make it wrap");
        tallies[1].bytes_done.store(5, Ordering::Relaxed);
        tallies[1].files_done.store(3, Ordering::Relaxed);
        let all = |running| {
            assert_eq!(value(&counters, "haul_running_sessions"), running);
            assert_eq!(value(&counters, "haul_sessions"), 2);
            assert_eq!(value(&counters, "haul_settled_bytes"), 12);
            assert_eq!(value(&counters, "haul_files"), 3);
        };
        all(2);
        let [first, second] = sessions;
        drop(second);
        all(1);
        drop(first);
        all(0);
        assert_eq!(value(&counters, "haul_incomplete_sessions"), 2, "without an outcome");
    }
}
