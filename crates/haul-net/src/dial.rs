//! Client side of session setup: from a ticket to lanes.

mod attempts;

use crate::Encryption;
use crate::address::{Address, Host};
use crate::hello::{ANSWER_BYTES, BadAnswer, GreetingError, Hello, Verdict, decode_answer, exchange_nonces};
use crate::lane::{Kind, LaneControl as _, LaneError, SocketWire, StreamControl, StreamLane, WaitTimeout};
use crate::pace::Pacer;
use crate::secret::{Binding, NoRandomness, SessionId};
use crate::socket::{self, Buffers, SocketError, SocketFacts, SocketSettings};
use crate::ticket::Ticket;
use crate::tls::{self, Fingerprint, WrongFingerprint};
use crate::udp::{self, BadUpgrade, Fallback, UdpRefusal, UdpSettings};
use attempts::{Attempt, Attempts};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Opens the lanes of one session with the server of a ticket. Several threads can open lanes
/// concurrently.
#[derive(Debug)]
pub struct Dialer {
    ticket: Ticket,
    session: SessionId,
    settings: DialSettings,
    tls: Option<Arc<ClientConfig>>,
    /// Address of the last successful connection.
    known: Mutex<Option<SocketAddr>>,
    attempts: Attempts,
    /// Round trip of the first lane that was opened.
    round_trip: OnceLock<Duration>,
    /// The first lane that was opened.
    first: OnceLock<StreamControl>,
}

/// An established connection.
struct Connected<'a> {
    socket: OwnedFd,
    facts: SocketFacts,
    peer: SocketAddr,
    attempt: Attempt<'a>,
}

/// Settings for opening lanes.
#[derive(Clone, Debug)]
pub struct DialSettings {
    /// Encryption that this end requests; the ticket must have the same.
    pub encryption: Encryption,
    /// Requested socket options.
    pub socket: SocketSettings,
    /// Timeout of a name lookup by the system. A name server that is down costs 5 seconds before
    /// the next is asked.
    pub lookup: Duration,
    /// Timeout of the connection to one address.
    pub connect: Duration,
    /// Time limit for the server to admit the lane, from the connection on.
    pub handshake: Duration,
    /// Time for which an open lane waits for a byte to move; `None` waits indefinitely.
    pub stall: Option<Duration>,
    /// Rate limit that all lanes over TCP or QUIC share.
    pub pacer: Option<Arc<Pacer>>,
    /// Settings of lanes over UDP; `None` for lanes over TCP.
    pub udp: Option<UdpSettings>,
    /// Desired rate of one lane in bytes per second, if known. The first lane measures the path.
    /// From the second lane on, socket buffers hold the bytes in flight at that rate
    /// ([`Buffers::Path`]), unless `socket` requests other buffers.
    pub lane_rate: Option<u64>,
}

impl Default for DialSettings {
    fn default() -> Self {
        Self {
            encryption: Encryption::Tls,
            socket: SocketSettings::default(),
            lookup: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            handshake: Duration::from_secs(15),
            stall: Some(Duration::from_secs(60)),
            pacer: None,
            udp: None,
            lane_rate: None,
        }
    }
}

impl Dialer {
    /// Creates a session with the server of `ticket`; nothing is sent yet.
    ///
    /// # Errors
    /// Returns [`DialError::TicketIsPlain`] or [`DialError::TicketIsTls`] if the two ends request
    /// different encryption. Returns [`DialError::Handshake`] if TLS cannot be configured, and
    /// [`DialError::NoRandomness`] if there are no random numbers.
    pub fn new(ticket: Ticket, settings: DialSettings) -> Result<Self, DialError> {
        match (settings.encryption, ticket.encryption()) {
            (Encryption::Tls, Encryption::Plain) => return Err(DialError::TicketIsPlain),
            (Encryption::Plain, Encryption::Tls) => return Err(DialError::TicketIsTls),
            _ => {}
        }
        let tls = ticket.fingerprint.map(tls::client_config).transpose();
        let tls = tls.map_err(|error| DialError::Handshake(LaneError::Tls(error)))?;
        let session = SessionId::generate()?;
        Ok(Self {
            ticket,
            session,
            settings,
            tls,
            known: Mutex::default(),
            attempts: Attempts::default(),
            round_trip: OnceLock::new(),
            first: OnceLock::new(),
        })
    }

    /// Returns the ID of the session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Returns the ticket.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Opens the lane with number `index` of the session.
    ///
    /// # Errors
    /// Returns a [`DialError`] if the lane cannot be opened. After [`DialError::Unreachable`]
    /// another transport can work; all other errors say why a retry is useless.
    pub fn lane(&self, index: u16) -> Result<StreamLane, DialError> {
        let opened = self.open(index);
        // After cancellation, treat other errors as its result, and discard a lane that was just
        // opened.
        if self.attempts.are_given_up() { Err(DialError::GivenUp) } else { opened }
    }

    /// Cancels all lanes that are being opened: they fail immediately with [`DialError::GivenUp`].
    /// Open lanes continue.
    pub fn give_up(&self) {
        self.attempts.give_up();
    }

    fn open(&self, index: u16) -> Result<StreamLane, DialError> {
        let udp = self.settings.udp.as_ref().filter(|udp| !udp.falls_back || self.may_use_udp());
        let lane = match self.open_over(index, udp) {
            // A server that does not know the request ends the connection without an answer.
            Err(DialError::NoAnswerToUdp(_)) if udp.is_some_and(|udp| udp.falls_back) => {
                let lane = self.open_over(index, None)?;
                lane.control().set_fallback(Fallback::OlderServer);
                lane
            }
            opened => opened?,
        };
        self.first.get_or_init(|| lane.control());
        Ok(lane)
    }

    /// Returns true if the first lane uses UDP, or if there is none yet.
    fn may_use_udp(&self) -> bool {
        self.first
            .get()
            .is_none_or(|first| matches!(first.kind(), Kind::Udp | Kind::Quic) && first.fallback().is_none())
    }

    fn open_over(&self, index: u16, udp: Option<&UdpSettings>) -> Result<StreamLane, DialError> {
        let Connected { socket, facts, peer, attempt: _under_way } = self.reach()?;
        let deadline = Instant::now() + self.settings.handshake;
        let (mut lane, binding) = self.begin(socket, facts, peer, deadline)?;
        let udp = udp.filter(|settings| udp::is_wanted(&lane, settings));
        let udp = udp.map(|settings| Ok((settings, udp::request(&lane, settings)?)));
        let udp = udp.transpose().map_err(DialError::Handshake)?;
        let hello = Hello {
            encryption: self.settings.encryption,
            udp: udp.is_some(),
            lane: index,
            ticket: self.ticket.id,
            session: self.session,
        };
        let hello = hello.encode(&self.ticket.secret, &binding);
        let request = udp.as_ref().map(|(_, request)| request.encode());
        let parts = [&hello[..], request.as_ref().map_or(&[], |request| request)];
        lane.write_all_vectored(&parts).map_err(DialError::Handshake)?;
        let mut answer = [0; ANSWER_BYTES];
        lane.read_exact(&mut answer).map_err(|error| match error {
            LaneError::Ended
            | LaneError::EndedInside { .. }
            | LaneError::Truncated
            | LaneError::Io { .. }
                if udp.is_some() =>
            {
                DialError::NoAnswerToUdp(error)
            }
            error => DialError::Handshake(error),
        })?;
        match decode_answer(&answer, &hello, &self.ticket.secret, &binding)? {
            (Verdict::Welcome, _) => {
                if let Some(tcp) = lane.control().tcp() {
                    self.round_trip.get_or_init(|| tcp.shortest_round_trip);
                }
                let (lane, pacer) = match udp {
                    Some((settings, request)) => self.move_to_udp(lane, settings, request)?,
                    None => {
                        lane.tune_for_path(&self.settings.socket);
                        (lane, self.settings.pacer.clone())
                    }
                };
                Ok(lane.authenticated(self.settings.stall, pacer, None))
            }
            (verdict, lanes_max) => Err(DialError::Refused { verdict, lanes_max }),
        }
    }

    /// Establishes the connection up to the hello. Returns the lane and the binding of its proof.
    fn begin(
        &self,
        socket: OwnedFd,
        facts: SocketFacts,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(StreamLane, Binding), DialError> {
        let wire = SocketWire::of_connection(socket, self.settings.socket.sctp.is_some());
        let Some(config) = &self.tls else {
            let mut lane = StreamLane::unauthenticated(Box::new(wire), None, peer, facts, deadline);
            let binding = exchange_nonces(&mut lane, true)?;
            return Ok((lane, binding));
        };
        let name = ServerName::try_from("haul.invalid").expect("a well-formed name");
        let connection = ClientConnection::new(config.clone(), name)
            .map_err(|error| DialError::Handshake(LaneError::Tls(error)))?;
        let (channel, inlet) = tls::handshake(connection.into(), &wire, WaitTimeout::until(deadline))
            .map_err(|error| DialError::in_handshake(error, peer))?;
        if !channel.is_haul() {
            return Err(DialError::NotHaul { peer });
        }
        let binding = channel.binding().map_err(DialError::Handshake)?;
        Ok((
            StreamLane::unauthenticated(Box::new(wire), Some((channel, inlet)), peer, facts, deadline),
            binding,
        ))
    }

    /// Receives the answer to the request for UDP, and moves the lane. Returns the lane and its
    /// pacer: an association paces itself.
    fn move_to_udp(
        &self,
        mut lane: StreamLane,
        settings: &UdpSettings,
        request: udp::Request,
    ) -> Result<(StreamLane, Option<Arc<Pacer>>), DialError> {
        let mut answer = [0; udp::UPGRADE_BYTES];
        lane.read_exact(&mut answer).map_err(DialError::Handshake)?;
        lane.tune_for_path(&self.settings.socket);
        let pacer = udp::pacer_without_udp(settings.rate, self.settings.pacer.clone());
        match udp::decode_answer(&answer, (request.check, request.falls_back))? {
            Ok(accepted) => {
                let control = lane.authenticated(None, pacer, None);
                let shared = udp::QuicShared { tls: self.tls.clone(), pacer: self.settings.pacer.clone() };
                let lane = udp::connect(control, settings, request, accepted, shared)
                    .map_err(DialError::Handshake)?;
                Ok((lane, None))
            }
            Err(refusal) if settings.falls_back => {
                lane.control().set_fallback(Fallback::Refused(refusal));
                Ok((lane, pacer))
            }
            Err(refusal) => Err(DialError::UdpRefused(refusal)),
        }
    }

    /// Connects to the first address that accepts. The address of the last success is tried first.
    fn reach(&self) -> Result<Connected<'_>, DialError> {
        let mut tried = Vec::new();
        let known = *self.known.lock();
        if let Some(address) = known
            && let Some(reached) = self.try_one(address, &mut tried)?
        {
            return Ok(reached);
        }
        for address in &self.ticket.addresses {
            let resolved = match self.look_up(address) {
                Ok(resolved) => resolved,
                Err(error) => {
                    tried.push((address.clone(), error));
                    continue;
                }
            };
            for resolved in resolved.into_iter().filter(|resolved| Some(*resolved) != known) {
                if let Some(reached) = self.try_one(resolved, &mut tried)? {
                    *self.known.lock() = Some(resolved);
                    return Ok(reached);
                }
            }
        }
        Err(DialError::Unreachable { tried: FailedAddresses(tried) })
    }

    /// Returns the current addresses of a host.
    fn look_up(&self, address: &Address) -> io::Result<Vec<SocketAddr>> {
        match address.host {
            Host::Ip(_) => address.resolve(),
            Host::Name(_) => {
                let address = address.clone();
                self.attempts.look_up(self.settings.lookup, move || address.resolve())
            }
        }
    }

    /// Returns the options to request for the next socket.
    fn socket_settings(&self) -> SocketSettings {
        let mut settings = self.settings.socket.clone();
        if let (Buffers::Kernel, Some(bytes_per_second), Some(&round_trip)) =
            (settings.buffers, self.settings.lane_rate, self.round_trip.get())
        {
            settings.buffers = Buffers::Path { bytes_per_second, round_trip };
        }
        settings
    }

    fn try_one(
        &self,
        address: SocketAddr,
        tried: &mut Vec<(Address, io::Error)>,
    ) -> Result<Option<Connected<'_>>, DialError> {
        let deadline = Instant::now() + self.settings.connect;
        let settings = self.socket_settings();
        let connected = socket::connect(address, &settings).and_then(|connecting| {
            let attempt = self.attempts.begin(connecting.socket());
            let attempt = attempt.map_err(|source| SocketError::Io { doing: "cannot connect", source })?;
            let (socket, facts) = connecting.wait(&settings, deadline)?;
            Ok(Connected { socket, facts, peer: address, attempt })
        });
        match connected {
            Ok(reached) => Ok(Some(reached)),
            Err(_) if self.attempts.are_given_up() => Err(DialError::GivenUp),
            Err(SocketError::Io { source, .. } | SocketError::Listen(source)) => {
                tried.push((address.into(), source));
                Ok(None)
            }
            Err(error @ (SocketError::Congestion { .. } | SocketError::NoSctp)) => {
                Err(DialError::Socket(error))
            }
        }
    }
}

/// Error when a lane cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The server of the ticket does not encrypt.
    #[error("the ticket is for a server without encryption; use --plain here too, if this is intended")]
    TicketIsPlain,
    /// The server of the ticket encrypts.
    #[error("the ticket is for a server with encryption; omit --plain")]
    TicketIsTls,
    /// No address accepted a connection.
    #[error("cannot connect to any address of the ticket: {tried}")]
    Unreachable {
        /// Each address with its error.
        tried: FailedAddresses,
    },
    /// A socket with the requested options cannot be created.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The peer is another server, or an attacker in between.
    #[error(
        "{peer} is not the server of this ticket: the fingerprint of its certificate is {found}, not {expected}; check \
         the server for tampering, or ask for a new ticket"
    )]
    WrongFingerprint {
        /// Address of the peer.
        peer: SocketAddr,
        /// Fingerprint in the ticket.
        expected: Fingerprint,
        /// Fingerprint of the peer's certificate.
        found: Fingerprint,
    },
    /// The peer speaks TLS, but not the protocol of haul.
    #[error("the server at {peer} is not haul")]
    NotHaul {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The peer does not speak TLS.
    #[error("the server at {peer} does not use TLS; use --plain on both hosts or on neither")]
    NotTls {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The peer does not speak the unencrypted protocol of haul.
    #[error("the server does not use haul without encryption; use --plain on both hosts or on neither")]
    NotPlain,
    /// The server refuses the lane.
    #[error("refused by the server: {verdict}")]
    Refused {
        /// Reason for the refusal.
        verdict: Verdict,
        /// Maximum number of lanes of one session at that server; 0 if unknown.
        lanes_max: u16,
    },
    /// The received data is not an answer.
    #[error(transparent)]
    Answer(#[from] BadAnswer),
    /// The server admits the lane, but not over UDP.
    #[error("no UDP: {0}; or use --transport=tcp")]
    UdpRefused(UdpRefusal),
    /// The server ended the connection instead of an answer to the request for UDP.
    #[error(
        "no answer to the request for UDP: {0}; the server may run an older version of haul; update it, or use --transport=tcp"
    )]
    NoAnswerToUdp(#[source] LaneError),
    /// The received data is not an answer to the request for UDP.
    #[error(transparent)]
    UdpAnswer(#[from] BadUpgrade),
    /// The connection failed before the server admitted the lane.
    #[error("connection failed before the server accepted it: {0}")]
    Handshake(#[source] LaneError),
    /// The random number generator failed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// [`Dialer::give_up`] was called.
    #[error("no more connections are needed")]
    GivenUp,
}

impl DialError {
    fn in_handshake(error: LaneError, peer: SocketAddr) -> Self {
        let LaneError::Tls(tls) = &error else { return Self::Handshake(error) };
        if let Some(WrongFingerprint { expected, found }) = WrongFingerprint::in_error(tls) {
            return Self::WrongFingerprint { peer, expected, found };
        }
        match tls {
            rustls::Error::InvalidMessage(_) => Self::NotTls { peer },
            _ => Self::Handshake(error),
        }
    }
}

impl From<GreetingError> for DialError {
    fn from(error: GreetingError) -> Self {
        match error {
            // A server that expects TLS answers with an alert, which is shorter than a greeting.
            GreetingError::NotPlain
            | GreetingError::Lane(LaneError::Ended | LaneError::EndedInside { .. }) => Self::NotPlain,
            GreetingError::Lane(error) => Self::Handshake(error),
            GreetingError::NoRandomness(error) => Self::NoRandomness(error),
        }
    }
}

/// Addresses that were tried, each with its error.
#[derive(Debug)]
pub struct FailedAddresses(pub Vec<(Address, io::Error)>);

impl fmt::Display for FailedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (address, error)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "; " } else { "" };
            write!(f, "{comma}{address}: {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::{Grant, Role, Uses};

    #[test]
    fn buffers_use_the_round_trip_time_of_the_first_lane() {
        let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let ticket = Ticket::issue(grant, vec![address.into()], None).expect("a ticket");
        let dialer = |lane_rate, buffers| {
            let socket = SocketSettings { buffers, ..SocketSettings::default() };
            let settings =
                DialSettings { encryption: Encryption::Plain, socket, lane_rate, ..DialSettings::default() };
            Dialer::new(ticket.clone(), settings).expect("they ask for the same")
        };
        let found = |dialer: &Dialer| dialer.socket_settings().buffers;
        let round_trip = Duration::from_millis(89);
        let rated = dialer(Some(1 << 27), Buffers::Kernel);
        assert_eq!(found(&rated), Buffers::Kernel, "the first lane's path is not known yet");
        for (dialer, expected) in [
            (rated, Buffers::Path { bytes_per_second: 1 << 27, round_trip }),
            (dialer(None, Buffers::Kernel), Buffers::Kernel),
            (dialer(Some(1 << 27), Buffers::Bytes(1 << 20)), Buffers::Bytes(1 << 20)),
        ] {
            dialer.round_trip.get_or_init(|| round_trip);
            assert_eq!(found(&dialer), expected);
        }
    }
}
