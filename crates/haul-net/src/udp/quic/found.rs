//! Congestion controller of `haul-udp` behind the interface of `quinn-proto`.

use crate::secret::random;
use crate::udp::link::nanos;
use haul_udp::{Controller as Rate, Time};
use parking_lot::{Mutex, MutexGuard};
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Window in bytes that never limits, and without which `quinn-proto` does not pace; and the one
/// with which only acknowledgements and probes leave.
const OPEN: u64 = 1 << 40;
const SHUT: u64 = 1;

/// Bursts of a second, and minimum number of datagrams of a burst. Smaller ones cost more calls
/// than they spare queue.
const BURSTS: u64 = 1000;
const BURST_DATAGRAMS: u64 = 10;

/// Controller of the rate of one connection.
#[derive(Clone, Debug)]
struct State {
    rate: Rate,
    /// Start of the time of `rate`.
    clock: Instant,
    datagram: u64,
    /// True if data may leave now, as the owner of the connection decided.
    is_open: bool,
}

impl State {
    fn new(clock: Instant, round_trip: Option<Duration>, datagram: u16) -> Self {
        // Without randomness, connections that began together probe in step.
        let seed = random().map_or(1, u64::from_le_bytes);
        let rate = Rate::new(round_trip.map(nanos), seed, 0);
        Self { rate, clock, datagram: u64::from(datagram), is_open: true }
    }

    fn time(&self, now: Instant) -> Time {
        nanos(now.saturating_duration_since(self.clock))
    }
}

/// Controller of a connection whose owner decides when data leave, and asks it.
#[derive(Clone, Debug)]
pub(super) struct FoundRate(Arc<Mutex<State>>);

impl FoundRate {
    pub(super) fn new(clock: Instant, round_trip: Duration) -> Self {
        let round_trip = Some(round_trip).filter(|time| !time.is_zero());
        Self(Arc::new(Mutex::new(State::new(clock, round_trip, 1200))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is numbers, each of which is possible.
        self.0.lock()
    }

    /// Decides for the next transmission. Returns the number of bytes that may leave at once, 0 for
    /// none, and the moment of the next decision if only the rate prevents one.
    pub(super) fn decide(&self, now: Instant) -> (u64, Option<Instant>) {
        let mut state = self.lock();
        let window = state.rate.window(state.datagram);
        let room = window.saturating_sub(state.rate.in_flight());
        let due = state.clock + Duration::from_nanos(state.rate.next());
        state.is_open = room > 0 && due <= now;
        let burst = (state.rate.rate() / BURSTS).max(BURST_DATAGRAMS * state.datagram);
        if state.is_open { (room.min(burst), None) } else { (0, (room > 0).then_some(due)) }
    }

    /// Records that data left.
    pub(super) fn sent(&self, now: Instant, bytes: u64) {
        let mut state = self.lock();
        let now = state.time(now);
        state.rate.on_sent(now, bytes);
    }

    /// Records that there was nothing to send.
    pub(super) fn idle(&self, now: Instant) {
        let mut state = self.lock();
        let now = state.time(now);
        state.rate.idle(now);
    }

    /// Returns the number of bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        let state = self.lock();
        state.rate.window(state.datagram)
    }
}

impl Controller for FoundRate {
    fn on_ack(&mut self, _now: Instant, sent: Instant, bytes: u64, _limited: bool, _rtt: &RttEstimator) {
        let mut state = self.lock();
        let sent = state.time(sent);
        state.rate.on_acked(sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest: Option<u64>) {
        let mut state = self.lock();
        let now = state.time(now);
        state.rate.on_acks_end(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, _sent: Instant, _is_persistent: bool, lost: u64) {
        let mut state = self.lock();
        let now = state.time(now);
        state.rate.on_lost(now, lost);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.lock().datagram = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.lock().is_open { OPEN } else { SHUT }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        OPEN
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Controller of a connection that paces by its window.
#[derive(Clone, Debug)]
struct Unpaced(State);

impl Controller for Unpaced {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last: u64) {
        let now = self.0.time(now);
        self.0.rate.on_sent(now, bytes);
    }

    fn on_ack(&mut self, _now: Instant, sent: Instant, bytes: u64, _limited: bool, _rtt: &RttEstimator) {
        let sent = self.0.time(sent);
        self.0.rate.on_acked(sent, bytes);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _largest: Option<u64>) {
        let now = self.0.time(now);
        self.0.rate.on_acks_end(now, in_flight, app_limited);
    }

    fn on_congestion_event(&mut self, now: Instant, _sent: Instant, _is_persistent: bool, lost: u64) {
        let now = self.0.time(now);
        self.0.rate.on_lost(now, lost);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.0.datagram = u64::from(new_mtu);
    }

    fn window(&self) -> u64 {
        self.0.rate.unpaced_window(self.0.datagram)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Creates a controller for each connection of an endpoint of `quinn`.
struct EachConnection;

impl ControllerFactory for EachConnection {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Unpaced(State::new(now, None, current_mtu)))
    }
}

/// Returns the factory of controllers for an endpoint of `quinn`, which paces by the window.
pub fn quinn_controllers() -> Arc<dyn ControllerFactory + Send + Sync> {
    Arc::new(EachConnection)
}

impl ControllerFactory for FoundRate {
    /// Returns the controller of the one connection that this factory is for.
    fn build(self: Arc<Self>, _now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        self.lock().datagram = u64::from(current_mtu);
        Box::new((*self).clone())
    }
}
