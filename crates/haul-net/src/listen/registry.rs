//! Sessions of a server: the lanes that belong together, and the limits on both.

use super::Limits;
use crate::address::peer_group;
use crate::hello::{HELLO_BYTES, Hello, Verdict};
use crate::lane::StreamLane;
use crate::secret::{Binding, Secret, SessionId, TicketId};
use crate::ticket::Role;
use crate::tickets::TicketTable;
use crate::udp::{BUFFER_MIN, buffer_in_session};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Lanes of one client with the same session ID. Dropping it ends the session: it accepts no more
/// lanes, and its one-time ticket stays used.
#[derive(Debug)]
pub struct Session {
    registry: Arc<SessionRegistry>,
    key: Key,
    ticket: TicketId,
    role: Role,
    peer: SocketAddr,
    lanes: Receiver<(u16, StreamLane)>,
}

/// ID of a session, with a serial number. The number distinguishes sessions whose client uses the
/// same ID again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    id: SessionId,
    serial: u64,
}

/// Registry of sessions, which assigns lanes to sessions.
#[derive(Debug)]
pub(super) struct SessionRegistry {
    tickets: Arc<TicketTable>,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: HashMap<SessionId, Entry>,
    /// `None` once the listener is closed.
    arrivals: Option<Sender<Session>>,
    serial: u64,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    ticket: TicketId,
    group: IpAddr,
    /// Lanes that are admitted and still open.
    lanes: usize,
    /// Bytes that the buffers of its lanes over UDP have together.
    udp_bytes: u64,
    sender: Sender<(u16, StreamLane)>,
    /// Kept until the first lane is admitted: the session is then reported.
    waiting: Option<Receiver<(u16, StreamLane)>>,
}

/// Result of a valid proof.
pub(super) struct Admitted {
    pub(super) slot: LaneSlot,
    pub(super) secret: Secret,
    pub(super) role: Role,
}

/// A refusal. `secret` is set if the client has proved that it knows the secret of the ticket.
pub(super) struct Refusal {
    pub(super) verdict: Verdict,
    pub(super) secret: Option<Secret>,
}

/// Slot of a lane in its session, released on drop.
#[derive(Debug)]
pub(super) struct LaneSlot {
    registry: Arc<SessionRegistry>,
    key: Key,
    /// Bytes of its buffer, if the lane uses UDP.
    udp_bytes: u64,
}

impl SessionRegistry {
    pub(super) fn new(tickets: Arc<TicketTable>, limits: Limits) -> (Arc<Self>, Receiver<Session>) {
        let (arrivals, sessions) = unbounded();
        let state = State { sessions: HashMap::new(), arrivals: Some(arrivals), serial: 0 };
        (Arc::new(Self { tickets, limits, state: Mutex::new(state) }), sessions)
    }

    /// Checks a hello. Nothing changes before its proof is verified.
    pub(super) fn check_hello(
        self: &Arc<Self>,
        hello: &Hello,
        bytes: &[u8; HELLO_BYTES],
        binding: &Binding,
        peer: IpAddr,
        now: SystemTime,
    ) -> Result<Admitted, Refusal> {
        let Some((secret, role)) = self.tickets.prove(hello, bytes, binding) else {
            return Err(Refusal { verdict: Verdict::Unproven, secret: None });
        };
        match self.reserve_slot(hello.ticket, hello.session, peer, now) {
            Ok(slot) => Ok(Admitted { slot, secret, role }),
            Err(verdict) => Err(Refusal { verdict, secret: Some(secret) }),
        }
    }

    /// Returns true if a session of this peer is running.
    pub(super) fn has_session_of(&self, peer: IpAddr) -> bool {
        let group = peer_group(peer);
        self.lock().sessions.values().any(|entry| entry.group == group)
    }

    /// Reserves the slot of a lane of `session`, whose client may use `ticket`. The first lane
    /// opens the session.
    pub(super) fn reserve_slot(
        self: &Arc<Self>,
        ticket: TicketId,
        session: SessionId,
        peer: IpAddr,
        now: SystemTime,
    ) -> Result<LaneSlot, Verdict> {
        let group = peer_group(peer);
        let mut state = self.lock();
        if state.arrivals.is_none() {
            return Err(Verdict::Closing);
        }
        if let Some(entry) = state.sessions.get_mut(&session) {
            if entry.ticket != ticket {
                return Err(Verdict::Unproven);
            }
            if entry.lanes >= usize::from(self.limits.lanes) {
                return Err(Verdict::TooManyLanes);
            }
            entry.lanes += 1;
            return Ok(LaneSlot {
                registry: self.clone(),
                key: Key { id: session, serial: entry.serial },
                udp_bytes: 0,
            });
        }
        let of_peer = state.sessions.values().filter(|entry| entry.group == group).count();
        if state.sessions.len() >= self.limits.sessions || of_peer >= self.limits.sessions_per_peer {
            return Err(Verdict::Full);
        }
        self.tickets.claim(ticket, session, now)?;
        state.serial += 1;
        let serial = state.serial;
        let (sender, lanes) = bounded(self.limits.lanes.into());
        let entry = Entry { serial, ticket, group, lanes: 1, udp_bytes: 0, sender, waiting: Some(lanes) };
        state.sessions.insert(session, entry);
        Ok(LaneSlot { registry: self.clone(), key: Key { id: session, serial }, udp_bytes: 0 })
    }

    /// Passes a lane that was admitted to its session. Returns true if it is the first lane of the
    /// session.
    pub(super) fn deliver(
        self: &Arc<Self>,
        key: LaneSlotKey,
        index: u16,
        lane: StreamLane,
        role: Role,
        peer: SocketAddr,
    ) -> bool {
        let LaneSlotKey(key) = key;
        let mut state = self.lock();
        let Some(entry) = state.sessions.get_mut(&key.id).filter(|entry| entry.serial == key.serial) else {
            // The session ended meanwhile. Drop the lane after the lock is released, because the
            // lane releases its slot.
            drop(state);
            drop(lane);
            return false;
        };
        let (sender, waiting, ticket) = (entry.sender.clone(), entry.waiting.take(), entry.ticket);
        let arrivals = state.arrivals.clone();
        drop(state);
        // The queue has space: a queued lane holds a slot, and the number of slots is limited.
        let kept = sender.try_send((index, lane));
        debug_assert!(!matches!(kept, Err(crossbeam_channel::TrySendError::Full(_))));
        let (Some(lanes), Some(arrivals)) = (waiting, arrivals) else { return false };
        let session = Session { registry: self.clone(), key, ticket, role, peer, lanes };
        arrivals.send(session).is_ok()
    }

    /// Refuses all further sessions and lanes.
    pub(super) fn close(&self) {
        let arrivals = self.lock().arrivals.take();
        drop(arrivals);
    }

    /// Returns the role that a valid ticket grants.
    pub(super) fn role_of(&self, ticket: TicketId) -> Option<Role> {
        self.tickets.role_of(ticket)
    }

    pub(super) fn lanes_max(&self) -> u16 {
        self.limits.lanes
    }

    fn end(&self, key: Key) {
        let mut state = self.lock();
        let ended = match state.sessions.get(&key.id) {
            Some(entry) if entry.serial == key.serial => state.sessions.remove(&key.id),
            _ => None,
        };
        drop(state);
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Identifies the slot of a lane for code that no longer owns the slot: the lane owns it.
pub(super) struct LaneSlotKey(Key);

impl LaneSlot {
    pub(super) fn key(&self) -> LaneSlotKey {
        LaneSlotKey(self.key)
    }

    pub(super) fn session(&self) -> SessionId {
        self.key.id
    }

    /// Reserves the buffer of a lane over UDP that wants `wanted` bytes, of at most `max`. Returns
    /// its size.
    pub(super) fn reserve_buffer(&mut self, wanted: u64, max: u64) -> u64 {
        let mut state = self.registry.lock();
        let entry = state.sessions.get_mut(&self.key.id).filter(|entry| entry.serial == self.key.serial);
        let Some(entry) = entry else { return BUFFER_MIN };
        let granted = buffer_in_session(wanted, max, entry.udp_bytes);
        entry.udp_bytes += granted;
        self.udp_bytes += granted;
        granted
    }
}

impl Drop for LaneSlot {
    fn drop(&mut self) {
        let Key { id, serial } = self.key;
        let mut state = self.registry.lock();
        let Some(entry) = state.sessions.get_mut(&id).filter(|entry| entry.serial == serial) else { return };
        entry.lanes -= 1;
        entry.udp_bytes -= self.udp_bytes;
        if entry.lanes > 0 || entry.waiting.is_none() {
            return;
        }
        // The client never learned that it was admitted, so it can come again with the same ticket.
        let lost = state.sessions.remove(&id);
        drop(state);
        if let Some(entry) = &lost {
            self.registry.tickets.release(entry.ticket, id);
        }
    }
}

impl Session {
    /// Returns the ID of the session, which the client generated.
    pub fn id(&self) -> SessionId {
        self.key.id
    }

    /// Returns the ticket that opened the session.
    pub fn ticket(&self) -> TicketId {
        self.ticket
    }

    /// Returns the permitted direction of transfer.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the source address of the first lane.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the next lane with the number that the client gave it, and waits at most `timeout`.
    /// Lanes can arrive at any time, for example in place of a lost lane, and in any order. Two
    /// lanes can have the same number.
    pub fn next_lane(&self, timeout: Duration) -> Option<(u16, StreamLane)> {
        self.lanes.recv_timeout(timeout).ok()
    }

    /// Returns the next lane if one is queued.
    pub fn try_next_lane(&self) -> Option<(u16, StreamLane)> {
        self.lanes.try_recv().ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.registry.end(self.key);
    }
}

#[cfg(test)]
mod tests;
