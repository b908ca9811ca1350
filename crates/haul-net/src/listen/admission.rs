//! Limits on unauthenticated connections, in total and per peer.
//!
//! If all slots are in use, the network with the most connections loses its oldest one to a
//! newcomer from a network with fewer. A flood from one network therefore leaves slots to others.

use super::{AdmissionLimit, Limits};
use crate::address::{peer_group, peer_network};
use rustix::net::{Shutdown, shutdown};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of peers whose wrong proofs are counted. For a new peer, the oldest one is
/// removed.
const REMEMBERED_MAX: usize = 4096;

/// Minimum time between two reports of connections that were closed without a handshake.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of failed connections that are reported one by one within [`REPORT_PERIOD`]. The
/// others are counted.
const REPORTS_MAX: u32 = 100;

/// Period to which [`REPORTS_MAX`] applies.
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Admission control for unauthenticated connections. Its limits bound its memory for any input.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Unauthenticated connections, by ascending age.
    pending: BTreeMap<u64, Pending>,
    serial: u64,
    peers: HashMap<IpAddr, Peer>,
    /// Connections that were closed without a handshake since the last report.
    unreported: u64,
    last_report: Option<Instant>,
    failures: FailureReports,
}

/// An unauthenticated connection.
#[derive(Debug)]
struct Pending {
    ip: IpAddr,
    /// Second descriptor of the connection, to end it.
    stream: Option<TcpStream>,
}

#[derive(Debug)]
struct Peer {
    inside: usize,
    failures: usize,
    /// Start of the current count of failures.
    since: Instant,
}

/// Reports of failed connections in the current period.
#[derive(Debug, Default)]
struct FailureReports {
    since: Option<Instant>,
    reported: u32,
    left_out: u64,
}

/// Slot of an unauthenticated connection, released on drop.
#[derive(Debug)]
pub(super) struct AdmissionSlot {
    admission: Arc<Admission>,
    serial: u64,
    /// True once the connection is authenticated.
    has_left: Cell<bool>,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Reserves a slot for an unauthenticated connection from `ip`. `stream` is a second descriptor
    /// of the connection. A peer with running sessions (`has_sessions`) is not refused for wrong
    /// proofs of others who share its address.
    pub(super) fn reserve(
        self: &Arc<Self>,
        ip: IpAddr,
        stream: Option<TcpStream>,
        has_sessions: bool,
        now: Instant,
    ) -> Result<AdmissionSlot, AdmissionLimit> {
        let mut state = self.lock();
        let peer = state.peer(ip, now);
        if now.saturating_duration_since(peer.since) >= self.limits.failure_window {
            peer.failures = 0;
        }
        let limit = if peer.failures >= self.limits.failures && !has_sessions {
            Some(AdmissionLimit::WrongProofs)
        } else if peer.inside >= self.limits.unauthenticated_per_peer {
            Some(AdmissionLimit::UnauthenticatedOfPeer)
        } else if state.pending.len() >= self.limits.unauthenticated && !state.shed_for(ip) {
            Some(AdmissionLimit::Unauthenticated)
        } else {
            None
        };
        if let Some(limit) = limit {
            state.forget_idle(ip);
            return Err(limit);
        }
        state.peer(ip, now).inside += 1;
        state.serial += 1;
        let serial = state.serial;
        state.pending.insert(serial, Pending { ip, stream });
        Ok(AdmissionSlot { admission: self.clone(), serial, has_left: Cell::new(false) })
    }

    /// Counts a wrong proof from `ip`.
    pub(super) fn failed(&self, ip: IpAddr, now: Instant) {
        let mut state = self.lock();
        let peer = state.peer(ip, now);
        if peer.failures == 0 {
            peer.since = now;
        }
        peer.failures += 1;
        state.forget_oldest();
    }

    /// Counts a connection that was closed without a handshake. Returns the number to report if a
    /// report is due.
    pub(super) fn count_refused(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        state.unreported += 1;
        if state
            .last_report
            .is_some_and(|last_report| now.saturating_duration_since(last_report) < REPORT_INTERVAL)
        {
            return None;
        }
        state.last_report = Some(now);
        Some(std::mem::take(&mut state.unreported))
    }

    /// Counts a failed connection. Returns `None` if it is not to be reported, and otherwise the
    /// number of earlier ones that were not reported.
    pub(super) fn count_failure(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        let reports = &mut state.failures;
        if reports.since.is_none_or(|since| now.saturating_duration_since(since) >= REPORT_PERIOD) {
            (reports.since, reports.reported) = (Some(now), 0);
        }
        if reports.reported >= REPORTS_MAX {
            reports.left_out += 1;
            return None;
        }
        reports.reported += 1;
        Some(std::mem::take(&mut reports.left_out))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn peer(&mut self, ip: IpAddr, now: Instant) -> &mut Peer {
        let new = Peer { inside: 0, failures: 0, since: now };
        self.peers.entry(peer_group(ip)).or_insert(new)
    }

    /// Ends the oldest connection of the network with the most connections, if `ip` is from a
    /// network with at least two fewer. Returns true if a slot became free.
    fn shed_for(&mut self, ip: IpAddr) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        self.pending.values().for_each(|pending| *counts.entry(peer_network(pending.ip)).or_default() += 1);
        let Some((&network, &most)) = counts.iter().max_by_key(|(_, count)| **count) else { return false };
        if counts.get(&peer_network(ip)).copied().unwrap_or(0) + 2 > most {
            return false;
        }
        let oldest = self.pending.iter().find(|(_, pending)| peer_network(pending.ip) == network);
        let Some(serial) = oldest.map(|(serial, _)| *serial) else { return false };
        if let Some(stream) = self.remove(serial).and_then(|pending| pending.stream) {
            // The thread of the connection then reads its end. An error means that it has ended.
            let _ = shutdown(stream, Shutdown::Both);
        }
        true
    }

    fn remove(&mut self, serial: u64) -> Option<Pending> {
        let pending = self.pending.remove(&serial)?;
        if let Some(peer) = self.peers.get_mut(&peer_group(pending.ip)) {
            peer.inside -= 1;
        }
        self.forget_idle(pending.ip);
        Some(pending)
    }

    fn forget_idle(&mut self, ip: IpAddr) {
        let group = peer_group(ip);
        if self.peers.get(&group).is_some_and(|peer| peer.inside == 0 && peer.failures == 0) {
            self.peers.remove(&group);
        }
    }

    fn forget_oldest(&mut self) {
        if self.peers.len() <= REMEMBERED_MAX {
            return;
        }
        let idle = self.peers.iter().filter(|(_, peer)| peer.inside == 0);
        if let Some(oldest) = idle.min_by_key(|(_, peer)| peer.since).map(|(group, _)| *group) {
            self.peers.remove(&oldest);
        }
    }
}

impl AdmissionSlot {
    /// Releases the slot of a connection that is authenticated, so that it is not ended in favour
    /// of others. Returns false if it was ended already.
    pub(super) fn leave(&self) -> bool {
        self.has_left.set(self.admission.lock().remove(self.serial).is_some());
        self.has_left.get()
    }

    /// Returns true if the connection was ended in favour of another network.
    pub(super) fn was_shed(&self) -> bool {
        !self.has_left.get() && !self.admission.lock().pending.contains_key(&self.serial)
    }
}

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        self.admission.lock().remove(self.serial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Arc<Admission> {
        let limits = Limits {
            unauthenticated: 3,
            unauthenticated_per_peer: 2,
            failures: 2,
            failure_window: Duration::from_secs(60),
            ..Limits::default()
        };
        Arc::new(Admission::new(limits))
    }

    fn reserve(
        admission: &Arc<Admission>,
        ip: IpAddr,
        now: Instant,
    ) -> Result<AdmissionSlot, AdmissionLimit> {
        admission.reserve(ip, None, false, now)
    }

    fn ip(last: u32) -> IpAddr {
        IpAddr::from(last.to_be_bytes())
    }

    #[test]
    fn connections_are_limited_in_total_and_per_peer() {
        let (admission, now) = (admission(), Instant::now());
        let one = reserve(&admission, ip(1), now).expect("room");
        let two = reserve(&admission, ip(1), now).expect("room");
        assert_eq!(
            reserve(&admission, ip(1), now).expect_err("a third of one peer"),
            AdmissionLimit::UnauthenticatedOfPeer
        );
        let three = reserve(&admission, ip(2), now).expect("room");
        assert_eq!(reserve(&admission, ip(3), now).expect_err("a fourth"), AdmissionLimit::Unauthenticated);
        drop(one);
        drop(reserve(&admission, ip(3), now).expect("room again"));
        drop((two, three));
        assert!(
            admission.lock().peers.is_empty() && admission.lock().pending.is_empty(),
            "nothing is remembered"
        );
    }

    #[test]
    fn wrong_proofs_block_a_peer_temporarily() {
        let (admission, now) = (admission(), Instant::now());
        admission.failed(ip(1), now);
        drop(reserve(&admission, ip(1), now).expect("one may slip"));
        admission.failed(ip(1), now + Duration::from_secs(1));
        assert_eq!(reserve(&admission, ip(1), now).expect_err("two may not"), AdmissionLimit::WrongProofs);
        drop(reserve(&admission, ip(2), now).expect("others may"));
        drop(reserve(&admission, ip(1), now + Duration::from_secs(60)).expect("it passes"));
        assert!(admission.lock().peers.is_empty());
    }

    #[test]
    fn peer_records_are_bounded() {
        let (admission, now) = (admission(), Instant::now());
        let guest = reserve(&admission, ip(0), now).expect("room");
        for peer in 0..2 * REMEMBERED_MAX as u32 {
            admission.failed(ip(peer), now + Duration::from_millis(peer.into()));
        }
        assert_eq!(admission.lock().peers.len(), REMEMBERED_MAX);
        assert!(admission.lock().peers.contains_key(&ip(0)), "who is inside is not forgotten");
        assert!(!admission.lock().peers.contains_key(&ip(1)), "the oldest is");
        drop(guest);
    }

    #[test]
    fn refused_connections_are_reported_once_a_second() {
        let (admission, now) = (admission(), Instant::now());
        assert_eq!(admission.count_refused(now), Some(1));
        assert_eq!(admission.count_refused(now), None);
        assert_eq!(admission.count_refused(now), None);
        assert_eq!(admission.count_refused(now + REPORT_INTERVAL), Some(3));
    }

    /// Earlier versions refused the lanes of running sessions too.
    #[test]
    fn wrong_proofs_do_not_block_a_peer_with_sessions() {
        let (admission, now) = (admission(), Instant::now());
        (0..5).for_each(|_| admission.failed(ip(1), now));
        assert_eq!(reserve(&admission, ip(1), now).expect_err("blocked"), AdmissionLimit::WrongProofs);
        drop(admission.reserve(ip(1), None, true, now).expect("a lane of a session"));
    }

    #[test]
    fn full_slots_are_shared_fairly_between_networks() {
        let limits = Limits { unauthenticated: 6, unauthenticated_per_peer: 6, ..Limits::default() };
        let (admission, now) = (Arc::new(Admission::new(limits)), Instant::now());
        let of = |network: u32| move |host: u32| IpAddr::from((network << 8 | host).to_be_bytes());
        let flood: Vec<AdmissionSlot> =
            (0..6).map(|host| reserve(&admission, of(1)(host), now).expect("a slot")).collect();
        assert!(reserve(&admission, of(1)(9), now).is_err(), "the flood gets no further slot");
        let others: Vec<AdmissionSlot> =
            (2..5).map(|network| reserve(&admission, of(network)(1), now).expect("a slot")).collect();
        let count = |network: u32| {
            let state = admission.lock();
            state.pending.values().filter(|pending| peer_network(pending.ip) == of(network)(0)).count()
        };
        assert_eq!([1, 2, 3, 4].map(count), [3, 1, 1, 1]);
        // The oldest connections of the flood were ended, and their slots are gone.
        let shed: Vec<bool> = flood.iter().map(AdmissionSlot::was_shed).collect();
        assert_eq!(shed, [true, true, true, false, false, false]);
        let left: Vec<bool> = flood.iter().map(AdmissionSlot::leave).collect();
        assert_eq!(left, [false, false, false, true, true, true]);
        assert!(others.iter().all(|slot| slot.leave() && !slot.was_shed()));
        drop((flood, others));
        assert!(admission.lock().peers.is_empty() && admission.lock().pending.is_empty());
    }

    #[test]
    fn failures_are_reported_one_by_one_up_to_a_limit() {
        let (admission, now) = (admission(), Instant::now());
        let reported = |now| (0..1000).filter_map(|_| admission.count_failure(now)).collect::<Vec<_>>();
        assert_eq!(reported(now), vec![0; 100]);
        let next = reported(now + REPORT_PERIOD);
        assert_eq!((next.len(), next[0], next[1]), (100, 900, 0));
    }
}
