//! Limits on unauthenticated connections, in total and per peer.
//!
//! If all slots are in use, the network with the most connections loses its oldest one to a
//! newcomer from a network with fewer, and within the network of the newcomer the address with the
//! most connections does. A flood from one network or address therefore leaves slots to others.
//! Some slots are only for peers with running sessions, so that a flood from many networks leaves
//! these.

use super::{AdmissionLimit, Limits};
use crate::address::{peer_group, peer_network};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Part of the slots that only peers with running sessions get: one of this number.
const KEPT_PART: usize = 8;

/// Ends a connection; called by the thread of another connection.
pub(super) type End = Box<dyn FnOnce() + Send>;

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
struct Pending {
    ip: IpAddr,
    /// True if its peer has running sessions. Such a connection does not make way for others.
    has_sessions: bool,
    end: End,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("ip", &self.ip).finish_non_exhaustive()
    }
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
pub struct AdmissionSlot {
    admission: Arc<Admission>,
    serial: u64,
    /// True once the connection is authenticated.
    has_left: AtomicBool,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Returns true if connections from `ip` are refused for its wrong proofs.
    pub(super) fn is_blocked(&self, ip: IpAddr, now: Instant) -> bool {
        let mut state = self.lock();
        let Some(peer) = state.peers.get_mut(&peer_group(ip)) else { return false };
        if now.saturating_duration_since(peer.since) >= self.limits.failure_window {
            peer.failures = 0;
        }
        peer.failures >= self.limits.failures
    }

    /// Reserves a slot for an unauthenticated connection from `ip`, which `end` ends. A peer with
    /// running sessions (`has_sessions`) also gets the slots that are kept.
    pub(super) fn reserve(
        self: &Arc<Self>,
        ip: IpAddr,
        has_sessions: bool,
        end: End,
        now: Instant,
    ) -> Result<AdmissionSlot, AdmissionLimit> {
        let mut state = self.lock();
        let of_peer = state.peer(ip, now).inside;
        let kept = if has_sessions { 0 } else { self.limits.unauthenticated / KEPT_PART };
        let limit = if of_peer >= self.limits.unauthenticated_per_peer {
            Some(AdmissionLimit::UnauthenticatedOfPeer)
        } else if state.pending.len() >= self.limits.unauthenticated - kept && !state.shed_for(ip) {
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
        state.pending.insert(serial, Pending { ip, has_sessions, end });
        Ok(AdmissionSlot { admission: self.clone(), serial, has_left: AtomicBool::new(false) })
    }

    /// Returns true if `ip` has its maximum number of connections.
    pub(super) fn is_full_for(&self, ip: IpAddr) -> bool {
        let state = self.lock();
        let of_peer = state.peers.get(&peer_group(ip)).map_or(0, |peer| peer.inside);
        of_peer >= self.limits.unauthenticated_per_peer
    }

    /// Ends the oldest connection from `ip`. Returns true if there was one.
    pub(super) fn shed_own(&self, ip: IpAddr) -> bool {
        self.lock().shed(|pending| peer_group(pending.ip) == peer_group(ip))
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
        self.state.lock()
    }
}

impl State {
    fn peer(&mut self, ip: IpAddr, now: Instant) -> &mut Peer {
        let new = Peer { inside: 0, failures: 0, since: now };
        self.peers.entry(peer_group(ip)).or_insert(new)
    }

    /// Ends the oldest connection of the network with the most connections, if `ip` is from a
    /// network with at least two fewer, or else the same for addresses within its network. Returns
    /// true if a slot became free.
    fn shed_for(&mut self, ip: IpAddr) -> bool {
        let largest = |newcomer: IpAddr, parts: &mut dyn Iterator<Item = IpAddr>| {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            parts.for_each(|part| *counts.entry(part).or_default() += 1);
            let (part, most) = counts.iter().max_by_key(|(_, count)| **count)?;
            let own = counts.get(&newcomer).copied().unwrap_or(0);
            (own + 2 <= *most).then_some(*part)
        };
        let network = peer_network(ip);
        let strangers = self.pending.values().filter(|pending| !pending.has_sessions);
        let ips = strangers.map(|pending| pending.ip);
        if let Some(largest) = largest(network, &mut ips.clone().map(peer_network)) {
            return self.shed(|pending| !pending.has_sessions && peer_network(pending.ip) == largest);
        }
        let neighbours = ips.filter(|ip| peer_network(*ip) == network);
        match largest(peer_group(ip), &mut neighbours.map(peer_group)) {
            Some(largest) => self.shed(|pending| !pending.has_sessions && peer_group(pending.ip) == largest),
            None => false,
        }
    }

    /// Ends the oldest connection that `is_one` names. Returns true if there was one.
    fn shed(&mut self, is_one: impl Fn(&Pending) -> bool) -> bool {
        let oldest = self.pending.iter().find(|(_, pending)| is_one(pending)).map(|(serial, _)| *serial);
        let shed = oldest.and_then(|serial| self.remove(serial));
        shed.map(|pending| (pending.end)()).is_some()
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
    /// Releases the slot of an authenticated connection, so that it is not ended in favour of
    /// others. Returns false if it was ended already.
    pub fn leave(&self) -> bool {
        let has_left = self.admission.lock().remove(self.serial).is_some();
        self.has_left.store(has_left, Ordering::Release);
        has_left
    }

    /// Returns true if the connection was ended in favour of another network.
    pub(super) fn was_shed(&self) -> bool {
        !self.has_left.load(Ordering::Acquire) && !self.admission.lock().pending.contains_key(&self.serial)
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
        admission.reserve(ip, false, Box::new(|| {}), now)
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
        assert_eq!(reserve(&admission, ip(2), now).expect_err("a fourth"), AdmissionLimit::Unauthenticated);
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
        assert!(!admission.is_blocked(ip(1), now), "one may slip");
        admission.failed(ip(1), now + Duration::from_secs(1));
        assert!(admission.is_blocked(ip(1), now), "two may not");
        assert!(!admission.is_blocked(ip(2), now), "others may");
        let later = now + Duration::from_secs(60);
        assert!(!admission.is_blocked(ip(1), later), "it passes");
        drop(reserve(&admission, ip(1), later).expect("room"));
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

    /// Regression: 128 silent connections of two addresses shut out a third one, and floods from
    /// many networks the peers with running sessions.
    #[test]
    fn some_slots_are_kept_for_peers_with_sessions() {
        let limits = Limits { unauthenticated: 16, unauthenticated_per_peer: 2, ..Limits::default() };
        let (admission, now) = (Arc::new(Admission::new(limits)), Instant::now());
        let flood: Vec<_> =
            (1..16).filter_map(|network| reserve(&admission, ip(network << 8), now).ok()).collect();
        assert_eq!(flood.len(), 14, "an eighth is kept");
        let with_sessions = || admission.reserve(ip(1), true, Box::new(|| {}), now);
        let kept = [with_sessions().expect("a kept slot"), with_sessions().expect("a kept slot")];
        assert!(reserve(&admission, ip(99 << 8), now).is_err());
        assert_eq!(with_sessions().expect_err("two at most"), AdmissionLimit::UnauthenticatedOfPeer);
        assert!(admission.shed_own(ip(1)));
        let third = with_sessions().expect("a slot of its oldest connection");
        assert_eq!([kept[0].was_shed(), kept[1].was_shed(), third.was_shed()], [true, false, false]);
        assert!(flood.iter().all(|slot| !slot.was_shed()));
    }

    #[test]
    fn full_slots_are_shared_fairly_between_addresses_of_a_network() {
        let limits = Limits { unauthenticated: 4, unauthenticated_per_peer: 2, ..Limits::default() };
        let (admission, now) = (Arc::new(Admission::new(limits)), Instant::now());
        let flood: Vec<_> =
            [1, 1, 2, 2].map(|host| reserve(&admission, ip(host), now).expect("a slot")).into();
        let third = reserve(&admission, ip(3), now).expect("a slot of an address with two");
        assert_eq!(flood.iter().filter(|slot| slot.was_shed()).count(), 1);
        assert!(third.leave());
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
