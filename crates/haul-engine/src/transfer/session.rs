//! Parts of a session that both sides share: lanes, clock and shutdown.

use super::monitor::{Machine, Monitor, Reply, WaitKey};
use super::receipt::Receipt;
use super::report::{Report, RunContext, Tally};
use super::time_stats::{Clocks, Datagrams, TimeBreakdown, Traffic, TransferTimeBreakdown};
use super::{Joined, More};
use haul_net::{
    Fallback, FrameError, FrameReader, FrameWriter, Kind, LaneControl, LaneError, LaneStats, Operation,
};
use haul_proto::{End, LaneId, Message, Reason, Role, Times, Why};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Interval of ticks of the machine.
const TICK: Duration = Duration::from_millis(250);

/// Polling interval for additional lanes, and the time during which it applies. Such lanes arrive
/// early or hardly ever.
const LANE_POLL_INTERVAL: Duration = Duration::from_millis(5);
const LANE_POLL_TIME: Duration = Duration::from_secs(10);

/// Maximum time for the peer to close its ends after the session is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Work of a side on its lanes.
pub(super) trait Serve: Sync {
    /// State machine of the side.
    type Machine: Machine + Send;

    /// Returns the state that does not depend on the side.
    fn session(&self) -> &Session<'_, Self::Machine>;

    /// Handles a new lane.
    fn lane_begins(&self, lane: LaneId);

    /// Handles a lane whose reading or writing has ended.
    fn lane_ended(&self, lane: LaneId);

    /// Writes on a lane until the machine has nothing more for it.
    ///
    /// # Errors
    /// Returns the error of the lane.
    fn write(&self, lane: LaneId, outbox: Box<dyn FrameWriter>) -> Result<(), LaneError>;

    /// Processes received messages until the end of the lane.
    ///
    /// # Errors
    /// Returns the error of the lane, or an error if received data is invalid.
    fn read(&self, lane: LaneId, frames: Box<dyn FrameReader>) -> Result<(), FrameError>;
}

/// Starts the two workers of a lane: one writes, one reads.
pub(super) fn begin<'scope, S: Serve>(side: &'scope S, scope: &'scope Scope<'scope, '_>, lane: Joined) {
    let session = side.session();
    session.lanes().insert(lane.id, lane.control.clone());
    let [writes, reads] = [(); 2].map(|()| LaneWorker::new(session));
    let Joined { id, frames, outbox, .. } = lane;
    side.lane_begins(id);
    session.spawn(scope, move || {
        let _counted = writes;
        if let Err(error) = side.write(id, outbox) {
            side.session().lost(id, Operation::Writing, &error);
            side.session().abort(id);
            side.lane_ended(id);
        }
    });
    session.spawn(scope, move || {
        let _counted = reads;
        if let Err(error) = side.read(id, frames) {
            // After an abort, the error of the other worker says why.
            let is_aborted = matches!(error, FrameError::Lane(LaneError::Aborted));
            let doing = if is_aborted { Operation::Writing } else { Operation::Reading };
            side.session().lost(id, doing, &error);
            side.session().abort(id);
        }
        side.lane_ended(id);
    });
}

/// Counts a worker of a lane until it ends, also on panic.
struct LaneWorker<'s, 'a, M: Machine>(&'s Session<'a, M>);

impl<'s, 'a, M: Machine> LaneWorker<'s, 'a, M> {
    fn new(session: &'s Session<'a, M>) -> LaneWorker<'s, 'a, M> {
        session.workers.fetch_add(1, Ordering::Relaxed);
        LaneWorker(session)
    }
}

impl<M: Machine> Drop for LaneWorker<'_, '_, M> {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, Ordering::Relaxed);
        self.0.monitor.notify_key(WaitKey::Close);
    }
}

/// A lane that was lost.
struct Lost {
    lane: LaneId,
    why: String,
    /// True if a tick has passed since.
    is_due: bool,
}

/// State of one side of a session, in so far as it is the same for both sides.
pub(super) struct Session<'a, M> {
    pub(super) monitor: Monitor<M>,
    /// Controls for aborting the lanes.
    lanes: Mutex<HashMap<LaneId, Arc<dyn LaneControl>>>,
    end: Mutex<Option<End>>,
    /// True once the session is over. Threads that read or hash for long check it.
    pub(super) over: AtomicBool,
    /// Lost lanes that are not reported yet.
    lost: Mutex<Vec<Lost>>,
    /// Number of workers of lanes that have not ended.
    workers: AtomicU64,
    /// Reason of a failure of this side: one of its threads panicked, or could not be started.
    failure: Mutex<Option<Reason>>,
    pub(super) spent: Clocks,
    /// Time statistics of the peer, from its BYE.
    peer_times: Mutex<Option<Times>>,
    /// Number of bytes that an earlier run of the job transferred and that were not sent again.
    pub(super) reused_bytes: AtomicU64,
    /// True once this process is asked to stop.
    pub(super) stop: &'a AtomicBool,
    pub(super) tally: &'a Tally,
    pub(super) report: &'a dyn Report,
    pub(super) receipt: Option<&'a Receipt>,
}

impl<'a, M: Machine> Session<'a, M> {
    /// Creates a session without lanes.
    pub(super) fn new(machine: M, run_context: &RunContext<'a>) -> Session<'a, M> {
        Session {
            monitor: Monitor::new(machine),
            lanes: Mutex::default(),
            end: Mutex::default(),
            over: AtomicBool::new(false),
            lost: Mutex::default(),
            workers: AtomicU64::new(0),
            failure: Mutex::default(),
            spent: Clocks::default(),
            peer_times: Mutex::default(),
            reused_bytes: AtomicU64::new(0),
            stop: run_context.stop,
            tally: run_context.tally,
            report: run_context.report,
            receipt: run_context.receipt,
        }
    }

    /// Starts a thread of this side. If the thread panics, or cannot be started, the session fails.
    pub(super) fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() + Send + 'scope,
    ) where
        M: Send,
    {
        let started = thread::Builder::new().spawn_scoped(scope, move || self.guard(work));
        if let Err(error) = started {
            self.fail(Reason::new(Why::Internal, &format!("cannot start a thread: {error}")));
        }
    }

    /// Runs `work` on this thread. If it panics, the session fails.
    pub(super) fn guard(&self, work: impl FnOnce()) {
        if panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.fail(Reason::new(Why::Internal, "a thread panicked"));
        }
    }

    /// Fails the session: aborts all lanes and wakes all threads that wait for the machine, so that
    /// no thread keeps waiting.
    fn fail(&self, reason: Reason) {
        self.failure.lock().get_or_insert(reason);
        self.over.store(true, Ordering::Relaxed);
        self.lanes().values().for_each(|lane| lane.abort());
        self.monitor.notify_all();
    }

    /// Returns the reason if this side has failed.
    pub(super) fn failure(&self) -> Option<Reason> {
        self.failure.lock().clone()
    }

    /// Aborts a lane.
    pub(super) fn abort(&self, lane: LaneId) {
        if let Some(control) = self.lanes().get(&lane) {
            control.abort();
        }
    }

    /// Records a lost lane. It is reported a little later: the peer may just have left because it
    /// learned first that the session is over. The error of the reading worker replaces that of the
    /// writing one, also if the latter has ended the session.
    fn lost(&self, lane: LaneId, doing: Operation, error: &dyn Error) {
        let (why, mut lost) = (error.to_string(), self.lost_lanes());
        match lost.iter_mut().find(|known| known.lane == lane) {
            Some(known) if doing == Operation::Reading => known.why = why,
            Some(_) => {}
            None if !self.is_ended() => lost.push(Lost { lane, why, is_due: false }),
            None => {}
        }
    }

    /// Reports the lanes that were lost before the previous call.
    fn report_lost(&self) {
        let told: Vec<Lost> =
            self.lost_lanes().extract_if(.., |lost| std::mem::replace(&mut lost.is_due, true)).collect();
        told.iter().for_each(|lost| self.report.lane_lost(lost.lane.0, &lost.why));
    }

    /// Reports all lost lanes, unless the session finished its work. In that case their loss is
    /// irrelevant.
    fn report_lost_at_end(&self) {
        let rest = std::mem::take(&mut *self.lost_lanes());
        if !self.is_finished() {
            rest.iter().for_each(|lost| self.report.lane_lost(lost.lane.0, &lost.why));
        }
    }

    /// Records the end that the machine reported.
    pub(super) fn ended(&self, end: End) {
        *self.end.lock() = Some(end);
        self.over.store(true, Ordering::Relaxed);
        self.monitor.notify_key(WaitKey::Close);
    }

    /// Returns true if the machine has reported its end.
    pub(super) fn is_ended(&self) -> bool {
        self.end.lock().is_some()
    }

    /// Returns true if the session finished its work.
    fn is_finished(&self) -> bool {
        let end = self.end.lock();
        matches!(*end, Some(End::Finished { .. }))
    }

    /// Returns true if the job is to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Passes ticks to the machine and accepts additional lanes until the session is over. `tick`
    /// receives a reason once if the job is to stop, and `hear` each lane on which a byte arrived
    /// since the last tick: a slow lane is not a silent one.
    pub(super) fn run_timer(
        &self,
        mut more: More<'_>,
        begin: impl Fn(Joined),
        hear: impl Fn(LaneId),
        tick: impl Fn(Option<Reason>),
    ) {
        let mut received = HashMap::new();
        let mut is_stopped = false;
        let begun = Instant::now();
        let mut ticked = begun;
        let looks = more.is_some();
        let pause = |begun: Instant| {
            if looks && begun.elapsed() < LANE_POLL_TIME { LANE_POLL_INTERVAL } else { TICK }
        };
        while !self.wait(pause(begun), &|| self.is_ended()) {
            if let Some(failure) = self.failure() {
                // If the machine itself panicked, this call unwinds, as in all other threads.
                tick(Some(failure));
                continue;
            }
            while let Some(lane) = more.as_mut().and_then(|more| more()) {
                begin(lane);
            }
            if ticked.elapsed() < TICK {
                continue;
            }
            ticked = Instant::now();
            self.report_lost();
            if let Some(datagrams) = self.datagrams() {
                self.report.datagrams(&datagrams);
            }
            for (lane, stats) in self.stats() {
                if received.insert(lane, stats.bytes_in).unwrap_or(0) != stats.bytes_in {
                    hear(lane);
                }
            }
            let stops = self.is_stopping() && !is_stopped;
            is_stopped |= stops;
            tick(stops.then(|| Reason::new(Why::Stopped, self.report.stop_reason())));
        }
        self.report_lost_at_end();
        // The peer closes its ends as well. If it does not, abort the lanes.
        if !self.wait(CLOSE_TIMEOUT, &|| self.workers.load(Ordering::Relaxed) == 0) {
            self.lanes().values().for_each(|lane| lane.abort());
        }
    }

    /// Waits at most `time` until the machine is over and `holds` returns true. Returns true if
    /// that is the case.
    fn wait(&self, time: Duration, holds: &dyn Fn() -> bool) -> bool {
        let mut until = None;
        self.monitor.ask(move |machine, now| {
            let until = *until.get_or_insert(now + time);
            let holds = machine.is_over() && holds();
            let has_failed = !machine.is_over() && self.failure().is_some();
            if holds || has_failed || now >= until {
                Reply::Ready(holds)
            } else {
                Reply::Wait(WaitKey::Close, until)
            }
        })
    }

    /// Handles a message to be sent: adds the time statistics of this side to a BYE.
    pub(super) fn prepare_send(&self, message: &mut Message) {
        if let Message::Bye(bye) = message {
            bye.times = Some(self.times());
        }
    }

    /// Handles a received message: takes the time statistics of the peer from a BYE.
    pub(super) fn record_received(&self, message: &Message) {
        if let Message::Bye(bye) = message {
            (*self.peer_times.lock()).clone_from(&bye.times);
        }
    }

    /// Takes the end of the session.
    pub(super) fn end(&self) -> Option<End> {
        self.end.lock().take()
    }

    /// Returns the time statistics of this side, and those of both sides if the peer has sent its
    /// own. `role` is the role of this side.
    pub(super) fn spent(&self, role: Role) -> (TimeBreakdown, Option<TransferTimeBreakdown>) {
        let ours = self.times();
        let peer_times = self.peer_times.lock();
        let split = peer_times.as_ref().map(|peer_times| match role {
            Role::Source => TransferTimeBreakdown::of(&ours, peer_times),
            Role::Sink => TransferTimeBreakdown::of(peer_times, &ours),
        });
        (TimeBreakdown::of(&ours, role), split)
    }

    /// Returns the traffic of the lanes so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.spent.traffic(&self.stats())
    }

    /// Returns the datagrams of the lanes so far.
    pub(super) fn datagrams(&self) -> Option<Datagrams> {
        Datagrams::sum(self.lanes().values().filter_map(|lane| lane.packets()))
    }

    /// Returns the transport of the first lane, and the reason if it is not UDP as requested.
    pub(super) fn transport(&self) -> Option<(Kind, Option<Fallback>)> {
        let lanes = self.lanes();
        let first = lanes.iter().min_by_key(|(id, _)| **id);
        first.map(|(_, lane)| (lane.kind(), lane.fallback()))
    }

    fn times(&self) -> Times {
        self.spent.times(&self.stats())
    }

    fn stats(&self) -> Vec<(LaneId, LaneStats)> {
        self.lanes().iter().map(|(lane, control)| (*lane, control.stats())).collect()
    }

    fn lost_lanes(&self) -> MutexGuard<'_, Vec<Lost>> {
        self.lost.lock()
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<LaneId, Arc<dyn LaneControl>>> {
        self.lanes.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimpleObserver;
    use super::*;
    use haul_net::PacketStats;
    use haul_proto::Summary;
    use haul_proto::source::Availability;
    use std::net::SocketAddr;

    /// A machine that is over when the test says so.
    struct Waiting(Arc<AtomicBool>);

    impl Machine for Waiting {
        fn is_over(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn readiness(&mut self, _key: WaitKey) -> Availability {
            Availability::Nothing
        }
    }

    /// A lane on which this number of bytes arrives between two ticks.
    #[derive(Debug)]
    struct Trickle {
        bytes: u64,
        arrived: AtomicU64,
    }

    impl LaneControl for Trickle {
        fn abort(&self) {}

        fn stats(&self) -> LaneStats {
            let arrived = self.arrived.fetch_add(self.bytes, Ordering::Relaxed);
            LaneStats { bytes_in: arrived + self.bytes, ..LaneStats::default() }
        }

        fn kind(&self) -> Kind {
            Kind::Local
        }

        fn peer(&self) -> Option<SocketAddr> {
            None
        }

        fn cipher(&self) -> &'static str {
            "none"
        }

        fn round_trip(&self) -> Option<Duration> {
            None
        }

        fn packets(&self) -> Option<PacketStats> {
            None
        }
    }

    /// Regression: a lane that needed a minute for a block counted as silent.
    #[test]
    fn a_lane_on_which_a_byte_arrives_is_not_silent() {
        let (over, observer) = (Arc::new(AtomicBool::new(false)), SimpleObserver::default());
        let session = Session::new(Waiting(over.clone()), &observer.run_context());
        for (lane, bytes) in [(0, 1), (1, 0)] {
            let control = Arc::new(Trickle { bytes, arrived: AtomicU64::new(0) });
            session.lanes().insert(LaneId(lane), control);
        }
        let heard = Mutex::new(Vec::new());
        let hear = |lane: LaneId| {
            let mut heard = heard.lock();
            heard.push(lane);
            if heard.len() == 3 {
                over.store(true, Ordering::Relaxed);
                session.ended(End::Broken { reason: Why::Stopped.into(), summary: Summary::default() });
            }
        };
        session.run_timer(None, |_| {}, hear, |_| {});
        assert_eq!(*heard.lock(), [LaneId(0); 3]);
    }
}
