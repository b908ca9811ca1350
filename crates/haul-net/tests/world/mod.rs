//! Fixture: a server and its clients in one process.

use haul_net::{
    Congestion, DialError, DialSettings, Dialer, Encryption, Grant, Identity, Kind, Limits, ListenSettings,
    Listener, ListenerEvent, Role, Session, SessionId, SocketSettings, StreamLane, Ticket, TicketTable,
    UdpSettings, Uses,
};
use rustix::net::{self, AddressFamily, SocketType};
use std::iter;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Timeout, longer than any step takes on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Returns the default limits with a handshake deadline that a loaded machine meets too.
pub(crate) fn limits() -> Limits {
    Limits { handshake: LONG, ..Limits::default() }
}

/// Returns an address without a listener. The system gives the address to no other process while
/// the socket exists.
pub(crate) fn dead() -> (OwnedFd, SocketAddr) {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = net::getsockname(&socket).expect("its address").try_into().expect("one of IP");
    (socket, address)
}

/// A server and its events.
pub(crate) struct World {
    pub(crate) listener: Listener,
    pub(crate) tickets: Arc<TicketTable>,
    pub(crate) identity: Option<Identity>,
    events: Mutex<Receiver<String>>,
}

impl World {
    pub(crate) fn new(encryption: Encryption) -> Self {
        // Answers to wrong proofs come soon here; the delay itself is tested at the gate.
        Self::with(encryption, Limits { wrong_delay: Duration::from_millis(1), ..limits() })
    }

    pub(crate) fn with(encryption: Encryption, limits: Limits) -> Self {
        Self::over(encryption, limits, SocketSettings::default())
    }

    /// Creates a server whose sockets are of a protocol with this number, in place of SCTP's.
    pub(crate) fn in_place_of_sctp(sctp: Option<NonZeroU32>) -> Self {
        Self::over(Encryption::Tls, limits(), SocketSettings { sctp, ..SocketSettings::default() })
    }

    fn over(encryption: Encryption, limits: Limits, socket: SocketSettings) -> Self {
        let identity = match encryption {
            Encryption::Tls => Some(Identity::generate().expect("a certificate")),
            Encryption::Plain => None,
        };
        let tickets = Arc::new(TicketTable::default());
        let (tell, events) = channel();
        let settings = ListenSettings { limits, socket, stall: Some(LONG), ..ListenSettings::default() };
        let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let on_event = move |event: &ListenerEvent| drop(tell.send(event.to_string()));
        let listener = Listener::start(&[anywhere], identity.as_ref(), tickets.clone(), settings, on_event);
        let listener = listener.expect("listens");
        Self { listener, tickets, identity, events: Mutex::new(events) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addresses()[0]
    }

    /// Returns a ticket that the server accepts.
    pub(crate) fn ticket(&self, uses: Uses) -> Ticket {
        self.ticket_until(uses, None)
    }

    pub(crate) fn ticket_until(&self, uses: Uses, expires: Option<SystemTime>) -> Ticket {
        let ticket = self.strange_ticket(uses, expires);
        self.tickets.insert(ticket.clone());
        ticket
    }

    /// Returns a ticket for this server that the server does not know.
    pub(crate) fn strange_ticket(&self, uses: Uses, expires: Option<SystemTime>) -> Ticket {
        let grant = Grant { role: Role::Both, uses, expires };
        let fingerprint = self.identity.as_ref().map(Identity::fingerprint);
        Ticket::issue(grant, vec![self.address().into()], fingerprint).expect("a ticket")
    }

    /// Returns both ends of a new session.
    pub(crate) fn meet(&self, ticket: &Ticket) -> (Dialer, Session, StreamLane, StreamLane) {
        let dialer = dialer(ticket);
        let near = dialer.lane(0).expect("welcome");
        let session = self.session();
        let (index, far) = session.next_lane(LONG).expect("the lane");
        assert_eq!(index, 0);
        (dialer, session, near, far)
    }

    /// Returns both ends of a lane over sockets of a protocol with this number.
    pub(crate) fn lane_in_place_of_sctp(&self, sctp: Option<NonZeroU32>) -> (StreamLane, StreamLane) {
        let ticket = self.ticket(Uses::Lasting);
        let socket = SocketSettings { sctp, ..SocketSettings::default() };
        let settings = DialSettings { socket, ..settings(&ticket) };
        let near = Dialer::new(ticket, settings).expect("they ask for the same").lane(0).expect("welcome");
        let (_, far) = self.session().next_lane(LONG).expect("the lane");
        (near, far)
    }

    /// Does the same as [`World::meet`] with a short deadline of the server: repeats a handshake
    /// for which a loaded machine was too slow.
    pub(crate) fn meets_at_last(&self) -> (Dialer, Session, StreamLane, StreamLane) {
        let begun = Instant::now();
        loop {
            let dialer = dialer(&self.ticket(Uses::Lasting));
            match dialer.lane(0) {
                Ok(near) => {
                    let session =
                        iter::repeat_with(|| self.session()).find(|one| one.id() == dialer.session());
                    let session = session.expect("it never ends");
                    let (_, far) = session.next_lane(LONG).expect("the lane");
                    return (dialer, session, near, far);
                }
                Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
            }
        }
    }

    pub(crate) fn session(&self) -> Session {
        self.listener.next_session_within(LONG).expect("a session")
    }

    /// Waits until the server has reported an event that contains `text`.
    #[track_caller]
    pub(crate) fn said(&self, text: &str) -> String {
        let events = self.events.lock().expect("no test panicked with it");
        let mut heard = Vec::new();
        while let Ok(event) = events.recv_timeout(LONG) {
            if event.contains(text) {
                return event;
            }
            heard.push(event);
        }
        panic!("nothing said of '{text}', but {heard:?}");
    }
}

pub(crate) fn dialer(ticket: &Ticket) -> Dialer {
    Dialer::new(ticket.clone(), settings(ticket)).expect("they ask for the same")
}

fn settings(ticket: &Ticket) -> DialSettings {
    DialSettings { encryption: ticket.encryption(), handshake: LONG, ..DialSettings::default() }
}

/// Returns the error of opening a lane.
#[track_caller]
pub(crate) fn refusal(ticket: &Ticket) -> DialError {
    dialer(ticket).lane(0).expect_err("no lane")
}

/// Returns both ends of a lane of a kind, and the values that must live as long.
pub(crate) fn lane(kind: Kind) -> (StreamLane, StreamLane, Option<(World, Dialer, Session)>) {
    match kind {
        Kind::Local => {
            let (near, far) = StreamLane::pair();
            (near, far, None)
        }
        Kind::Pipes => {
            let (here, there) = (pipe(), pipe());
            let near = StreamLane::over_pipes(there.0, here.1, None).expect("a lane");
            let far = StreamLane::over_pipes(here.0, there.1, None).expect("a lane");
            (near, far, None)
        }
        Kind::Https => {
            // A web server holds one of these sockets; here, both are lanes of sessions.
            let world = World::new(Encryption::Tls);
            let ticket = world.ticket(Uses::Lasting);
            let (one, two) = UnixStream::pair().expect("a pair");
            let peer = "127.0.0.1:1".parse().expect("an address");
            let mut ends = [one, two].into_iter().zip([1, 2]).map(|(socket, number)| {
                let gateway = world.listener.gateway();
                gateway.admit(socket.into(), ticket.id(), SessionId([number; 16]), peer).expect("admitted");
                let session = world.session();
                assert_eq!((session.ticket(), session.peer()), (ticket.id(), peer));
                (session.next_lane(LONG).expect("the lane").1, session)
            });
            let ((near, _), (far, session)) = ends.next().zip(ends.next()).expect("two ends");
            drop(ends);
            let dialer = dialer(&ticket);
            (near, far, Some((world, dialer, session)))
        }
        Kind::Udp | Kind::Quic => {
            let world = World::new(Encryption::Tls);
            let ticket = world.ticket(Uses::Lasting);
            let quic = (kind == Kind::Quic).then(Congestion::default);
            let udp = UdpSettings { quic, ..UdpSettings::default() };
            let settings = DialSettings { udp: Some(udp), ..settings(&ticket) };
            let dialer = Dialer::new(ticket, settings).expect("they ask for the same");
            let near = dialer.lane(0).expect("welcome");
            let session = world.session();
            let (_, far) = session.next_lane(LONG).expect("the lane");
            (near, far, Some((world, dialer, session)))
        }
        Kind::Tls | Kind::Plain => {
            let world = World::new(if kind == Kind::Tls { Encryption::Tls } else { Encryption::Plain });
            let (dialer, session, near, far) = world.meet(&world.ticket(Uses::Lasting));
            (near, far, Some((world, dialer, session)))
        }
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (reader.into(), writer.into())
}

pub(crate) const KINDS: [Kind; 7] =
    [Kind::Tls, Kind::Plain, Kind::Pipes, Kind::Local, Kind::Udp, Kind::Quic, Kind::Https];

/// Seeded random numbers (SplitMix64): both ends of a lane draw the same.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns a length: most are small, some are large, and some are boundary values.
    pub(crate) fn length(&mut self) -> usize {
        let r = self.draw();
        let r16 = (r >> 8) as usize & 0xffff;
        match r % 8 {
            0 => 0,
            1..=3 => r16 % 200,
            4 | 5 => r16,
            6 => [16383, 16384, 16385, 65535, 65536, 65537, 262_144][r16 % 7],
            _ => r16 * 6,
        }
    }
}
