//! Limits on unauthenticated connections, in total and per peer.

use super::{Crowd, Limits};
use crate::address::peer_group;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of peers whose wrong proofs are counted. For a new peer, the oldest one is
/// removed.
const REMEMBERED_MAX: usize = 4096;

/// Minimum time between two reports of connections that were closed without a handshake.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Admission control for unauthenticated connections. Its limits bound its memory for any input.
#[derive(Debug)]
pub(super) struct Gate {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inside: usize,
    peers: HashMap<IpAddr, Peer>,
    /// Connections that were closed without a handshake since the last report.
    untold: u64,
    told: Option<Instant>,
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
pub(super) struct Place {
    gate: Arc<Gate>,
    group: IpAddr,
}

impl Gate {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Reserves a slot for an unauthenticated connection from `ip`.
    pub(super) fn enter(self: &Arc<Self>, ip: IpAddr, now: Instant) -> Result<Place, Crowd> {
        let group = peer_group(ip);
        let mut state = self.lock();
        if state.inside >= self.limits.strangers {
            return Err(Crowd::Strangers);
        }
        let peer = state.peers.entry(group).or_insert(Peer { inside: 0, failures: 0, since: now });
        if now.saturating_duration_since(peer.since) >= self.limits.failure_window {
            peer.failures = 0;
        }
        if peer.failures >= self.limits.failures {
            return Err(Crowd::WrongProofs);
        }
        if peer.inside >= self.limits.strangers_per_peer {
            return Err(Crowd::OfPeer);
        }
        peer.inside += 1;
        state.inside += 1;
        Ok(Place { gate: self.clone(), group })
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
    pub(super) fn unheard(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        state.untold += 1;
        if state.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY) {
            return None;
        }
        state.told = Some(now);
        Some(std::mem::take(&mut state.untold))
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

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
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

    fn gate() -> Arc<Gate> {
        let limits = Limits {
            strangers: 3,
            strangers_per_peer: 2,
            failures: 2,
            failure_window: Duration::from_secs(60),
            ..Limits::default()
        };
        Arc::new(Gate::new(limits))
    }

    fn ip(last: u32) -> IpAddr {
        IpAddr::from(last.to_be_bytes())
    }

    #[test]
    fn places_are_counted_in_all_and_for_each_peer() {
        let (gate, now) = (gate(), Instant::now());
        let one = gate.enter(ip(1), now).expect("room");
        let two = gate.enter(ip(1), now).expect("room");
        assert_eq!(gate.enter(ip(1), now).expect_err("a third of one peer"), Crowd::OfPeer);
        let three = gate.enter(ip(2), now).expect("room");
        assert_eq!(gate.enter(ip(3), now).expect_err("a fourth"), Crowd::Strangers);
        drop(one);
        drop(gate.enter(ip(3), now).expect("room again"));
        drop((two, three));
        assert!(gate.lock().peers.is_empty() && gate.lock().inside == 0, "nothing is remembered");
    }

    #[test]
    fn wrong_proofs_shut_a_peer_out_for_a_while() {
        let (gate, now) = (gate(), Instant::now());
        gate.failed(ip(1), now);
        drop(gate.enter(ip(1), now).expect("one may slip"));
        gate.failed(ip(1), now + Duration::from_secs(1));
        assert_eq!(gate.enter(ip(1), now).expect_err("two may not"), Crowd::WrongProofs);
        drop(gate.enter(ip(2), now).expect("others may"));
        drop(gate.enter(ip(1), now + Duration::from_secs(60)).expect("it passes"));
        assert!(gate.lock().peers.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (gate, now) = (gate(), Instant::now());
        let guest = gate.enter(ip(0), now).expect("room");
        for peer in 0..2 * REMEMBERED_MAX as u32 {
            gate.failed(ip(peer), now + Duration::from_millis(peer.into()));
        }
        assert_eq!(gate.lock().peers.len(), REMEMBERED_MAX);
        assert!(gate.lock().peers.contains_key(&ip(0)), "who is inside is not forgotten");
        assert!(!gate.lock().peers.contains_key(&ip(1)), "the oldest is");
        drop(guest);
    }

    #[test]
    fn a_flood_is_told_once_a_second() {
        let (gate, now) = (gate(), Instant::now());
        assert_eq!(gate.unheard(now), Some(1));
        assert_eq!(gate.unheard(now), None);
        assert_eq!(gate.unheard(now), None);
        assert_eq!(gate.unheard(now + TELL_EVERY), Some(3));
    }
}
