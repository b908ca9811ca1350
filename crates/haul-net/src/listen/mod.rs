//! Server side of session setup: accepts connections, admits clients, and provides their sessions.

mod admission;
mod admit;
mod gateway;
mod registry;
mod ticketed;

pub use admission::AdmissionSlot;
pub use gateway::Gateway;
pub use registry::Session;
pub use ticketed::TicketedError;

use crate::hello::Verdict;
use crate::pace::Pacer;
use crate::secret::{NoRandomness, SessionId, TicketId};
use crate::socket::{self, SocketError, SocketSettings};
use crate::tickets::TicketTable;
use crate::tls::{self, Identity};
use crate::udp::UdpSettings;
use admission::Admission;
use admit::Acceptor;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use registry::SessionRegistry;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Delay before the next accept after a persistent failure, such as a lack of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Stack size of a thread that handles one unauthenticated connection. The largest frames of the
/// handshake need a fifth of it.
const HANDSHAKE_STACK_BYTES: usize = 512 << 10;

/// Accepts lanes until it is stopped or dropped, and provides the sessions that they form. An error
/// of an unauthenticated peer ends only its own connection.
pub struct Listener {
    registry: Arc<SessionRegistry>,
    acceptor: Arc<Acceptor>,
    sessions: Receiver<Session>,
    addresses: Vec<SocketAddr>,
    notes: Vec<String>,
    /// Becomes readable when the listener must stop.
    stop: Arc<OwnedFd>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// Settings for accepting lanes.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Requested socket options.
    pub socket: SocketSettings,
    /// Limits on connections, sessions and lanes.
    pub limits: Limits,
    /// Time for which an open lane waits for a byte to move; `None` waits indefinitely.
    pub stall: Option<Duration>,
    /// Rate limit that all lanes of this server share.
    pub pacer: Option<Arc<Pacer>>,
    /// Settings of lanes over UDP; `None` to refuse them. A client then uses TCP or fails.
    pub udp: Option<UdpSettings>,
}

/// Limits of a server. A peer is an IPv4 address or a 64-bit IPv6 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unauthenticated connections.
    pub unauthenticated: usize,
    /// The same for one peer: at least the number of lanes that one session opens concurrently.
    pub unauthenticated_per_peer: usize,
    /// Time limit for the handshake of an unauthenticated connection.
    pub handshake: Duration,
    /// Delay of the answer to a wrong proof. The connection keeps its slot meanwhile.
    pub wrong_delay: Duration,
    /// Number of wrong proofs of one peer within [`failure_window`](Self::failure_window) after
    /// which its connections are refused until the window ends. Its open sessions continue.
    pub failures: usize,
    /// Time for which a wrong proof counts.
    pub failure_window: Duration,
    /// Maximum number of concurrent sessions.
    pub sessions: usize,
    /// Maximum number of concurrent sessions of one peer.
    pub sessions_per_peer: usize,
    /// Maximum number of concurrent lanes of one session.
    pub lanes: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unauthenticated: 256,
            unauthenticated_per_peer: 64,
            handshake: Duration::from_secs(10),
            wrong_delay: Duration::from_secs(1),
            failures: 5,
            failure_window: Duration::from_secs(60),
            sessions: 64,
            sessions_per_peer: 16,
            lanes: 64,
        }
    }
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            socket: SocketSettings::default(),
            limits: Limits::default(),
            stall: Some(Duration::from_secs(60)),
            pacer: None,
            udp: Some(UdpSettings::default()),
        }
    }
}

/// An event of the listener, for a log. Its text contains no secret and no character that a peer
/// chose.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A session started.
    Arrived {
        /// ID of the session.
        session: SessionId,
        /// Ticket that opened the session.
        ticket: TicketId,
        /// Source address.
        peer: SocketAddr,
    },
    /// A client was refused.
    Refused {
        /// Source address.
        peer: SocketAddr,
        /// Reason for the refusal.
        verdict: Verdict,
    },
    /// A connection ended before it proved anything.
    Failed {
        /// Source address.
        peer: SocketAddr,
        /// Reason for the failure.
        why: String,
    },
    /// Further connections were refused or ended, of which no event tells.
    LeftOut {
        /// Number of connections.
        count: u64,
    },
    /// Connections were closed without a handshake. Reported at most once a second.
    LimitReached {
        /// Peer of the last connection.
        peer: IpAddr,
        /// Number of connections since the last report.
        count: u64,
        /// Limit that was reached for the last connection.
        why: AdmissionLimit,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// Error of the system.
        source: io::Error,
    },
}

/// Reason for closing a connection without a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionLimit {
    /// The maximum number of unauthenticated connections is reached.
    Unauthenticated,
    /// The maximum number of unauthenticated connections of this peer is reached.
    UnauthenticatedOfPeer,
    /// This peer sent too many wrong proofs.
    WrongProofs,
    /// No thread could be started.
    NoThread,
    /// The process or the system has no file descriptor left.
    NoDescriptor,
}

impl fmt::Display for ListenerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { session, ticket, peer } => {
                write!(f, "session {session} from {peer} with ticket {ticket}")
            }
            Self::Refused { peer, verdict } => write!(f, "refused {peer}: {verdict}"),
            Self::Failed { peer, why } => write!(f, "cannot open a session with {peer}: {why}"),
            Self::LeftOut { count } => write!(f, "cannot open a session with {count} more peers"),
            Self::LimitReached { peer, count, why } => {
                write!(f, "closed {count} connections without an answer, the last from {peer}: {why}")
            }
            Self::AcceptFailed { source } => write!(f, "cannot accept a connection: {source}"),
        }
    }
}

impl fmt::Display for AdmissionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unauthenticated => "too many unauthenticated connections",
            Self::UnauthenticatedOfPeer => "too many unauthenticated connections from this address",
            Self::WrongProofs => "too many failed authentications from this address",
            Self::NoThread => "cannot start a thread",
            Self::NoDescriptor => "no file descriptor is left; raise the limit of open files",
        })
    }
}

/// Reason for a failure to listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// One of the addresses cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Reason for the failure.
        source: SocketError,
    },
    /// The certificate and the key cannot be used.
    #[error("cannot use the certificate: {0}")]
    Identity(#[source] rustls::Error),
    /// A descriptor or a thread could not be created.
    #[error("cannot listen: {0}")]
    Io(#[from] io::Error),
    /// The random number generator failed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl Listener {
    /// Listens at `addresses` for holders of the tickets in `tickets`. The connections are
    /// encrypted under `identity`, or not encrypted if it is `None`. Several threads call
    /// `on_event`.
    ///
    /// # Errors
    /// Returns a [`ListenError`] if the identity is unusable, if an address cannot be used, or if a
    /// descriptor or the thread cannot be created.
    pub fn start(
        addresses: &[SocketAddr],
        identity: Option<&Identity>,
        tickets: Arc<TicketTable>,
        settings: ListenSettings,
        on_event: impl Fn(&ListenerEvent) + Send + Sync + 'static,
    ) -> Result<Self, ListenError> {
        let tls = identity.map(tls::server_config).transpose().map_err(ListenError::Identity)?;
        let (mut sockets, mut notes) = (Vec::new(), Vec::new());
        for &address in addresses {
            let (socket, more) = socket::listen(address, &settings.socket)
                .map_err(|source| ListenError::Address { address, source })?;
            sockets.push(socket);
            notes.extend(more);
        }
        let local = sockets.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let stop =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?);
        let (registry, sessions) = SessionRegistry::new(tickets, settings.limits);
        let admission = Arc::new(Admission::new(settings.limits));
        let acceptor = Arc::new(Acceptor {
            registry: registry.clone(),
            admission,
            tls,
            settings,
            on_event: Box::new(on_event),
        });
        let (stopped, accepts) = (stop.clone(), acceptor.clone());
        let accepting = thread::Builder::new()
            .name("haul-accept".into())
            .spawn(move || accept(&accepts, &sockets, &stopped))?;
        let accepting = Mutex::new(Some(accepting));
        Ok(Self { registry, acceptor, sessions, addresses: local, notes, stop, accepting })
    }

    /// Returns the addresses of the listener, with the ports that the system chose.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the requested socket options that the system did not provide.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Waits for the next session and returns it; `None` once the listener is stopped. Several
    /// threads can wait.
    pub fn next_session(&self) -> Option<Session> {
        self.sessions.recv().ok()
    }

    /// Returns the next session if one arrives within `timeout`. Returns `None` otherwise, and once
    /// the listener is stopped.
    pub fn next_session_within(&self, timeout: Duration) -> Option<Session> {
        self.sessions.recv_timeout(timeout).ok()
    }

    /// Returns a handle by which another front end of this server adds lanes of clients that it has
    /// authenticated itself.
    pub fn gateway(&self) -> Gateway {
        Gateway::new(self.acceptor.clone())
    }

    /// Stops listening. When this returns, the ports are free, and no further sessions or lanes are
    /// admitted. Threads that wait for a session return. Started sessions continue. A second call
    /// does nothing.
    pub fn stop(&self) {
        self.registry.close();
        // Fails only if 2^64 - 1 wake-ups are pending already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        let accepting = self.accepting.lock().take();
        if let Some(thread) = accepting {
            // The panic of the thread was printed; there is nothing to undo here.
            let _ = thread.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("addresses", &self.addresses).finish()
    }
}

/// A descriptor that is kept for refusing connections when no other is left. Without it, they would
/// wait until their peers lose patience, and `accept` would fail again and again.
struct SpareDescriptor(Option<OwnedFd>);

impl SpareDescriptor {
    fn new() -> SpareDescriptor {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        SpareDescriptor(eventfd(0, flags).ok())
    }

    /// Accepts a connection in place of the spare descriptor and closes it. Returns the address of
    /// its peer.
    fn refuse(&mut self, socket: &TcpListener) -> Option<SocketAddr> {
        drop(self.0.take());
        let refused = socket.accept();
        let peer = refused.as_ref().ok().map(|(_, peer)| *peer);
        drop(refused);
        *self = SpareDescriptor::new();
        peer
    }
}

/// Accepts connections until `stop` is readable.
fn accept(acceptor: &Arc<Acceptor>, sockets: &[TcpListener], stop: &OwnedFd) {
    let mut spare = SpareDescriptor::new();
    loop {
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        fds.push(PollFd::new(stop, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => {
                acceptor.report(&ListenerEvent::AcceptFailed { source: errno.into() });
                thread::sleep(ACCEPT_RETRY_DELAY);
                continue;
            }
        }
        if !fds[sockets.len()].revents().is_empty() {
            return;
        }
        for (socket, fd) in sockets.iter().zip(&fds) {
            if !fd.revents().is_empty() {
                accept_one(acceptor, socket, &mut spare);
            }
        }
    }
}

fn accept_one(acceptor: &Arc<Acceptor>, socket: &TcpListener, spare: &mut SpareDescriptor) {
    match socket.accept() {
        Ok((stream, peer)) => receive(acceptor, stream, peer),
        Err(error) => match error.kind() {
            // The peer disconnected before it was accepted.
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
            _ => {
                let errno = Errno::from_io_error(&error);
                if matches!(errno, Some(Errno::MFILE | Errno::NFILE))
                    && let Some(peer) = spare.refuse(socket)
                {
                    return acceptor.limit_reached(peer, AdmissionLimit::NoDescriptor, Instant::now());
                }
                acceptor.report(&ListenerEvent::AcceptFailed { source: error });
                thread::sleep(ACCEPT_RETRY_DELAY);
            }
        },
    }
}

/// Starts a thread for an unauthenticated connection if a slot is free; otherwise closes the
/// connection.
fn receive(acceptor: &Arc<Acceptor>, stream: TcpStream, peer: SocketAddr) {
    let now = Instant::now();
    // Without a second descriptor the connection is not ended in favour of others.
    let second = stream.try_clone().ok();
    let end = move || {
        // The thread of the connection then reads its end. An error means that it has ended.
        let _ = second.map(|stream| stream.shutdown(Shutdown::Both));
    };
    let has_sessions = acceptor.registry.has_session_of(peer.ip());
    // Wrong proofs of others who share its address do not refuse the lanes of a running session.
    let is_blocked = !has_sessions && acceptor.admission.is_blocked(peer.ip(), now);
    let reserved = match is_blocked {
        true => Err(AdmissionLimit::WrongProofs),
        false => acceptor.admission.reserve(peer.ip(), has_sessions, Box::new(end), now),
    };
    let slot = match reserved {
        Ok(slot) => slot,
        Err(why) => return acceptor.limit_reached(peer, why, now),
    };
    let inside = acceptor.clone();
    let spawned =
        thread::Builder::new().name("haul-door".into()).stack_size(HANDSHAKE_STACK_BYTES).spawn(move || {
            inside.receive(stream, peer, slot);
        });
    if spawned.is_err() {
        acceptor.limit_reached(peer, AdmissionLimit::NoThread, now);
    }
}
