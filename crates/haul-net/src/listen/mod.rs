//! The server's side of meeting: who comes to the door, who is let in, and the sessions that come of it.

mod admit;
mod gate;
mod hall;
mod ticketed;

pub use hall::Session;
pub use ticketed::TicketedError;

use crate::book::TicketBook;
use crate::hello::Verdict;
use crate::pace::Pacer;
use crate::secret::{NoRandomness, SessionId, TicketId};
use crate::socket::{self, SocketError, SocketSettings};
use crate::tls::{self, Identity};
use admit::Door;
use crossbeam_channel::Receiver;
use gate::Gate;
use hall::Hall;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long accepting rests after a failure that does not pass by itself, such as a lack of descriptors.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// The stack of a thread that receives one stranger; the handshake's greatest frames need a fifth of it.
const DOOR_STACK_BYTES: usize = 512 << 10;

/// Accepts lanes until it is stopped or dropped, and gives the sessions that they make up. What a stranger does ends
/// nothing but his own connection.
pub struct Listener {
    hall: Arc<Hall>,
    sessions: Receiver<Session>,
    addresses: Vec<SocketAddr>,
    notes: Vec<String>,
    /// Becomes readable when the listener is to end.
    stop: Arc<OwnedFd>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// How lanes are accepted.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// What is asked of the sockets.
    pub socket: SocketSettings,
    /// How much of each thing there may be.
    pub limits: Limits,
    /// How long an open lane waits for a byte to move; `None` is for ever.
    pub stall: Option<Duration>,
    /// The rate that all lanes of this server keep together.
    pub pacer: Option<Arc<Pacer>>,
}

/// How much of each thing a server takes. A peer is an address of IPv4 or a network of 64 bits of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have proved nothing yet.
    pub strangers: usize,
    /// The same of one peer: at least as many as one session opens lanes at once.
    pub strangers_per_peer: usize,
    /// How long a stranger has to prove himself.
    pub handshake: Duration,
    /// How long a wrong proof waits for its answer, keeping its place among the strangers.
    pub wrong_delay: Duration,
    /// Wrong proofs that a peer may make within [`failure_window`](Self::failure_window); after them nothing of his is
    /// accepted until it is over. His open sessions go on.
    pub failures: usize,
    /// How long a wrong proof counts.
    pub failure_window: Duration,
    /// Sessions at once.
    pub sessions: usize,
    /// Sessions of one peer at once.
    pub sessions_per_peer: usize,
    /// Lanes of one session at once.
    pub lanes: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            strangers: 256,
            strangers_per_peer: 64,
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
        }
    }
}

/// What happened at the door, for a log. Printed, it holds no secret and no character that a peer chose.
#[derive(Debug)]
pub enum DoorEvent {
    /// A session began.
    Arrived {
        /// Its name.
        session: SessionId,
        /// The ticket that opened it.
        ticket: TicketId,
        /// From where.
        peer: SocketAddr,
    },
    /// A client was refused.
    Refused {
        /// From where.
        peer: SocketAddr,
        /// Why.
        verdict: Verdict,
    },
    /// A connection ended before it proved anything.
    Failed {
        /// From where.
        peer: SocketAddr,
        /// Why.
        why: String,
    },
    /// Connections were closed unheard. Told at most once a second.
    Crowded {
        /// Whose was the last.
        peer: IpAddr,
        /// How many since this was last told.
        count: u64,
        /// Why.
        why: Crowd,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// The system's answer.
        source: io::Error,
    },
}

/// Why a connection is closed unheard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// As many strangers as there may be.
    Strangers,
    /// As many strangers of this peer as there may be.
    OfPeer,
    /// This peer made too many wrong proofs.
    WrongProofs,
    /// No thread could be started.
    NoThread,
}

impl fmt::Display for DoorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { session, ticket, peer } => {
                write!(f, "session {session} from {peer} by ticket {ticket}")
            }
            Self::Refused { peer, verdict } => write!(f, "refused {peer}: {verdict}"),
            Self::Failed { peer, why } => write!(f, "no session with {peer}: {why}"),
            Self::Crowded { peer, count, why } => {
                write!(f, "closed {count} connections unheard, the last of {peer}: {why}")
            }
            Self::AcceptFailed { source } => write!(f, "a connection could not be accepted: {source}"),
        }
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strangers => "too many that have not proved themselves",
            Self::OfPeer => "too many from there that have not proved themselves",
            Self::WrongProofs => "too many wrong proofs from there",
            Self::NoThread => "no thread could be started",
        })
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// At one of its addresses.
    #[error("cannot listen at {address}: {source}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: SocketError,
    },
    /// Its certificate and key don't serve.
    #[error("the certificate cannot be used: {0}")]
    Identity(#[source] rustls::Error),
    /// A descriptor or a thread.
    #[error("cannot listen: {0}")]
    Io(#[from] io::Error),
    /// The generator failed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl Listener {
    /// Listens at `addresses` for holders of the tickets in `book`, encrypted under `identity`, or not at all where that is
    /// `None`. `on_event` is called from several threads.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn start(
        addresses: &[SocketAddr],
        identity: Option<&Identity>,
        book: Arc<TicketBook>,
        settings: ListenSettings,
        on_event: impl Fn(&DoorEvent) + Send + Sync + 'static,
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
        let (hall, sessions) = Hall::new(book, settings.limits);
        let gate = Arc::new(Gate::new(settings.limits));
        let door = Arc::new(Door { hall: hall.clone(), gate, tls, settings, on_event: Box::new(on_event) });
        let stopped = stop.clone();
        let accepting = thread::Builder::new()
            .name("haul-accept".into())
            .spawn(move || accept(&door, &sockets, &stopped))?;
        let accepting = Mutex::new(Some(accepting));
        Ok(Self { hall, sessions, addresses: local, notes, stop, accepting })
    }

    /// Where it listens, with the ports that the system chose.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What was asked of the sockets and not given.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The next session, waiting for it; `None` once the listener is stopped. Several threads may wait.
    pub fn next_session(&self) -> Option<Session> {
        self.sessions.recv().ok()
    }

    /// The next session if one comes within `timeout`; `None` otherwise, and once the listener is stopped.
    pub fn next_session_within(&self, timeout: Duration) -> Option<Session> {
        self.sessions.recv_timeout(timeout).ok()
    }

    /// Closes the door: the ports are free when this returns, no further session or lane comes, and those that wait for one
    /// are told. Sessions that began go on. A second call does nothing.
    pub fn stop(&self) {
        self.hall.close();
        // Fails only where 2^64 - 1 wakes are waiting to be seen already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = accepting {
            // A panic over there was printed; here there is nothing to undo.
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

/// Accepts connections until `stop` is readable.
fn accept(door: &Arc<Door>, sockets: &[TcpListener], stop: &OwnedFd) {
    loop {
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        fds.push(PollFd::new(stop, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => {
                door.tell(&DoorEvent::AcceptFailed { source: errno.into() });
                thread::sleep(REST_AFTER_FAILURE);
                continue;
            }
        }
        if !fds[sockets.len()].revents().is_empty() {
            return;
        }
        for (socket, fd) in sockets.iter().zip(&fds) {
            if !fd.revents().is_empty() {
                accept_one(door, socket);
            }
        }
    }
}

fn accept_one(door: &Arc<Door>, socket: &TcpListener) {
    match socket.accept() {
        Ok((stream, peer)) => receive(door, stream, peer),
        Err(error) => match error.kind() {
            // It went away again.
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
            _ => {
                door.tell(&DoorEvent::AcceptFailed { source: error });
                thread::sleep(REST_AFTER_FAILURE);
            }
        },
    }
}

/// Gives a stranger a thread, if there is room for him; else closes his connection.
fn receive(door: &Arc<Door>, stream: TcpStream, peer: SocketAddr) {
    let now = Instant::now();
    let place = match door.gate.enter(peer.ip(), now) {
        Ok(place) => place,
        Err(why) => return door.crowded(peer, why, now),
    };
    let inside = door.clone();
    let spawned =
        thread::Builder::new().name("haul-door".into()).stack_size(DOOR_STACK_BYTES).spawn(move || {
            inside.receive(stream, peer);
            drop(place);
        });
    if spawned.is_err() {
        door.crowded(peer, Crowd::NoThread, now);
    }
}
