//! Lanes of clients that another front end of the server has authenticated, such as a web server.

use super::admit::Acceptor;
use super::{AdmissionLimit, AdmissionSlot, ListenerEvent};
use crate::hello::Verdict;
use crate::lane::StreamLane;
use crate::secret::{SessionId, TicketId};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Handle that adds lanes to the sessions of a [`Listener`](super::Listener). The tickets and the
/// limits of the listener apply.
#[derive(Clone)]
pub struct Gateway {
    acceptor: Arc<Acceptor>,
}

impl Gateway {
    pub(super) fn new(acceptor: Arc<Acceptor>) -> Gateway {
        Gateway { acceptor }
    }

    /// Adds a lane of `session`, as if its client had proved `ticket` over a connection from
    /// `peer`. The first lane of a session opens the session.
    ///
    /// `socket` is one end of a connected pair of stream sockets. The caller exchanges the bytes of
    /// the other end with the client over HTTPS. The end of a direction means that the client, or
    /// the session, writes no more; it does not prove that the stream is complete. The caller must
    /// choose `session` so that no other client can guess or repeat it.
    ///
    /// # Errors
    /// Returns the [`Verdict`] if the ticket is unknown or expired, if a limit is reached, or if
    /// the listener is stopped.
    pub fn admit(
        &self,
        socket: OwnedFd,
        ticket: TicketId,
        session: SessionId,
        peer: SocketAddr,
    ) -> Result<(), Verdict> {
        self.deliver(StreamLane::over_https(socket, peer), ticket, session, peer)
    }

    /// Opens a lane of `session` for a client in this process, as if it had proved `ticket`. The
    /// session appears as one of `peer`, for which the client works.
    ///
    /// # Errors
    /// Same as [`admit`](Self::admit).
    pub fn connect(
        &self,
        ticket: TicketId,
        session: SessionId,
        peer: SocketAddr,
    ) -> Result<StreamLane, Verdict> {
        let (near, far) = StreamLane::pair();
        self.deliver(far, ticket, session, peer).map(|()| near)
    }

    /// Reserves a slot for a connection of a client that this front end has not authenticated yet.
    /// The slots are those of the listener. `has_sessions` is true if the front end has a session
    /// of a client at this address: others who share the address do not shut it out, because its
    /// oldest connection makes way for a new one. `end` is called if the connection must make way.
    ///
    /// # Errors
    /// Returns the [`AdmissionLimit`] that is reached.
    pub fn reserve(
        &self,
        peer: IpAddr,
        has_sessions: bool,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<AdmissionSlot, AdmissionLimit> {
        let Acceptor { registry, admission, .. } = &*self.acceptor;
        let has_sessions = has_sessions || registry.has_session_of(peer);
        if has_sessions && admission.is_full_for(peer) {
            admission.shed_own(peer);
        }
        admission.reserve(peer, has_sessions, Box::new(end), Instant::now())
    }

    fn deliver(
        &self,
        lane: StreamLane,
        ticket: TicketId,
        session: SessionId,
        peer: SocketAddr,
    ) -> Result<(), Verdict> {
        let Acceptor { registry, settings, .. } = &*self.acceptor;
        let role = registry.role_of(ticket).ok_or(Verdict::Unproven)?;
        let slot = registry.reserve_slot(ticket, session, peer.ip(), SystemTime::now())?;
        let key = slot.key();
        let lane = lane.authenticated(settings.stall, settings.pacer.clone(), Some(Box::new(slot)));
        // Lanes of a session differ by their JOIN; the number here is only for logs.
        if registry.deliver(key, 0, lane, role, peer) {
            self.acceptor.report(&ListenerEvent::Arrived { session, ticket, peer });
        }
        Ok(())
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}
