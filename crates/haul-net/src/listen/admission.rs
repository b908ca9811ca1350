//! Limits on unauthenticated connections, in total and per peer.

use super::{AdmissionLimit, Limits};
use crate::address::peer_group;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of peers whose wrong proofs are counted. For a new peer, the oldest one is
/// removed.
const REMEMBERED_MAX: usize = 4096;

/// Minimum time between two reports of connections that were closed without a handshake.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Admission control for unauthenticated connections. Its limits bound its memory for any input.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inside: usize,
    peers: HashMap<IpAddr, Peer>,
    /// Connections that were closed without a handshake since the last report.
    unreported: u64,
    last_report: Option<Instant>,
}

#[derive(Debug)]
struct Peer {
    inside: usize,
    failures: usize,
    /// Start of the current count of failures.
    since: Instant,
}

/// Slot of an unauthenticated connection, released on drop.
#[derive(Debug)]
pub(super) struct AdmissionSlot {
    admission: Arc<Admission>,
    group: IpAddr,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Reserves a slot for an unauthenticated connection from `ip`.
    pub(super) fn reserve(
        self: &Arc<Self>,
        ip: IpAddr,
        now: Instant,
    ) -> Result<AdmissionSlot, AdmissionLimit> {
        let group = peer_group(ip);
        let mut state = self.lock();
        if state.inside >= self.limits.unauthenticated {
            return Err(AdmissionLimit::Unauthenticated);
        }
        let peer = state.peers.entry(group).or_insert(Peer { inside: 0, failures: 0, since: now });
        if now.saturating_duration_since(peer.since) >= self.limits.failure_window {
            peer.failures = 0;
        }
        if peer.failures >= self.limits.failures {
            return Err(AdmissionLimit::WrongProofs);
        }
        if peer.inside >= self.limits.unauthenticated_per_peer {
            return Err(AdmissionLimit::UnauthenticatedOfPeer);
        }
        peer.inside += 1;
        state.inside += 1;
        Ok(AdmissionSlot { admission: self.clone(), group })
    }

    /// Counts a wrong proof from `ip`.
    pub(super) fn failed(&self, ip: IpAddr, now: Instant) {
        let group = peer_group(ip);
        let mut state = self.lock();
        let peer = state.peers.entry(group).or_insert(Peer { inside: 0, failures: 0, since: now });
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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

impl Drop for AdmissionSlot {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.inside -= 1;
        if let Some(peer) = state.peers.get_mut(&self.group) {
            peer.inside -= 1;
            if peer.inside == 0 && peer.failures == 0 {
                state.peers.remove(&self.group);
            }
        }
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

    fn ip(last: u32) -> IpAddr {
        IpAddr::from(last.to_be_bytes())
    }

    #[test]
    fn connections_are_limited_in_total_and_per_peer() {
        let (admission, now) = (admission(), Instant::now());
        let one = admission.reserve(ip(1), now).expect("room");
        let two = admission.reserve(ip(1), now).expect("room");
        assert_eq!(
            admission.reserve(ip(1), now).expect_err("a third of one peer"),
            AdmissionLimit::UnauthenticatedOfPeer
        );
        let three = admission.reserve(ip(2), now).expect("room");
        assert_eq!(admission.reserve(ip(3), now).expect_err("a fourth"), AdmissionLimit::Unauthenticated);
        drop(one);
        drop(admission.reserve(ip(3), now).expect("room again"));
        drop((two, three));
        assert!(admission.lock().peers.is_empty() && admission.lock().inside == 0, "nothing is remembered");
    }

    #[test]
    fn wrong_proofs_block_a_peer_temporarily() {
        let (admission, now) = (admission(), Instant::now());
        admission.failed(ip(1), now);
        drop(admission.reserve(ip(1), now).expect("one may slip"));
        admission.failed(ip(1), now + Duration::from_secs(1));
        assert_eq!(admission.reserve(ip(1), now).expect_err("two may not"), AdmissionLimit::WrongProofs);
        drop(admission.reserve(ip(2), now).expect("others may"));
        drop(admission.reserve(ip(1), now + Duration::from_secs(60)).expect("it passes"));
        assert!(admission.lock().peers.is_empty());
    }

    #[test]
    fn peer_records_are_bounded() {
        let (admission, now) = (admission(), Instant::now());
        let guest = admission.reserve(ip(0), now).expect("room");
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
}
