//! Lanes over UDP: an association of `haul-udp`, or a QUIC connection. The two ends agree on keys
//! and limits over the authenticated TCP connection of the lane.
//!
//! The TCP connection stays open beside the association. Its end tells that the peer's process has
//! ended, which UDP cannot tell. A lane that may fall back continues over it where datagrams do not
//! pass.

mod carrier;
mod fallback;
mod keys;
mod link;
mod quic;
mod socket;
#[cfg(test)]
mod tests;
mod upgrade;
mod wire;

pub use fallback::{Fallback, describe_departure};
pub use quic::{Congestion, quinn_controllers};
pub use upgrade::{BUFFER_MAX, BUFFER_MIN, BadUpgrade, UdpRefusal, describe_upgrade};
pub(crate) use upgrade::{Request, UPGRADE_BYTES, decode_answer};
use wire::{Terms, UdpWire};

use crate::lane::{Kind, LaneControl as _, LaneError, Operation, StreamLane};
use crate::pace::Pacer;
use crate::secret::random;
use carrier::Carrier;
use fallback::Bounds;
use haul_udp::{Association, Chunk, Config, Crc16, Crc32c, Failure, Rate, Role, Seal, Unchecked};
use keys::{Cipher, Keys, SECRET_BYTES};
use quic::{Proof, QUIC_BUFFER_MAX, QuicConnection, QuicRole, QuicSettings};
use rustls::{ClientConfig, ServerConfig};
use socket::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use upgrade::Accepted;

/// Label of the exporter value from which the keys of a lane are derived (RFC 8446 section 7.5).
const EXPORTER: &[u8] = b"EXPORTER-haul-udp-1";

/// Time without any datagram from the peer after which UDP counts as blocked, and the same after
/// datagrams had arrived. The path may be down for a while in the second case.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(3);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Size of a buffer in bytes without a round trip, and bytes to add for each second of it: the
/// amount in flight at 10 Gbit/s. Loss of 5 % needs four times the amount in flight.
const BUFFER_BYTES: u64 = 4 << 20;
const BUFFER_RATE: u64 = 1_250_000_000;

/// Check that each datagram carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketCheck {
    /// Encryption and authentication: AES-128-GCM or ChaCha20-Poly1305. Needs a lane with TLS.
    #[default]
    Aead,
    /// CRC-32C (RFC 3385): detects damage, but anyone on the path can read and modify the data.
    Crc32c,
    /// CRC-16 of ISO 3309: detects most damage; one damaged datagram in 65,536 passes.
    Crc16,
    /// Only the checksum of UDP, which misses much damage.
    None,
}

impl PacketCheck {
    /// All checks, by their number in a request.
    pub const ALL: [Self; 4] = [Self::Aead, Self::Crc32c, Self::Crc16, Self::None];

    /// Returns the name of the check in options and reports.
    pub fn name(self) -> &'static str {
        ["aead", "crc32c", "crc16", "none"][self as usize]
    }
}

/// Settings of one end for lanes over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSettings {
    /// Client: the requested check. Server: a check that it consents to beside
    /// [`PacketCheck::Aead`].
    pub check: PacketCheck,
    /// Size of the datagrams that this end sends.
    pub chunk: Chunk,
    /// Rate at which each lane of this end sends.
    pub rate: Rate,
    /// First and last port of the server's UDP sockets; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// Maximum number of bytes that a lane of this end keeps in each direction, [`BUFFER_MIN`] to
    /// [`BUFFER_MAX`]. All lanes of a session at a server keep about four times as much together.
    pub buffer_max: u64,
    /// Client: true if a lane may use TCP instead, from its start or later, where UDP is refused or
    /// does not pass.
    pub falls_back: bool,
    /// Client: round trip below which a lane that may fall back does not request UDP.
    pub round_trip_min: Duration,
    /// Client: congestion control of both ends of a QUIC connection that carries the lane; `None`
    /// for the datagrams of haul. Servers accept both.
    pub quic: Option<Congestion>,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            check: PacketCheck::Aead,
            chunk: Chunk::Found { max: CHUNK_FOUND_MAX },
            rate: Rate::Found { max: None, start: None },
            ports: None,
            buffer_max: BUFFER_DEFAULT,
            falls_back: false,
            round_trip_min: Duration::ZERO,
            quic: None,
        }
    }
}

/// Maximum size in bytes of a datagram whose size is found: 9,000 bytes of a jumbo frame without
/// the headers of IPv4 and UDP.
pub const CHUNK_FOUND_MAX: usize = 8972;

/// Default of [`UdpSettings::buffer_max`] in bytes: 64 MiB carry 1 Gbit/s over a round trip of half
/// a second.
pub(crate) const BUFFER_DEFAULT: u64 = 64 << 20;

/// Returns the receive buffer of the next lane of a session at a server. The lane wants `wanted`
/// bytes, of at most `max`; `used` bytes belong to the session's other lanes. The sum is at most
/// four times `max` and [`BUFFER_MIN`] for each lane.
pub(crate) fn buffer_in_session(wanted: u64, max: u64, used: u64) -> u64 {
    wanted.min((4 * max).saturating_sub(used) / 2).max(BUFFER_MIN)
}

/// Reason why a lane over UDP ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UdpError {
    /// No datagram of the peer arrived in the first 3 seconds.
    #[error("no datagram from the peer arrived within 3 s: UDP is blocked on the path; use --transport=tcp")]
    Blocked,
    /// Datagrams of a fixed size do not pass.
    #[error("{0}; use a smaller --chunk-size")]
    TooLarge(#[source] Failure),
    /// The association failed.
    #[error("{0}")]
    Failure(#[source] Failure),
    /// The peer's message about the continuation over TCP is invalid.
    #[error("the peer sent an invalid message about its change to TCP")]
    BadDeparture,
    /// A thread of this process panicked while it changed the association.
    #[error("internal error: a thread of the lane panicked; report this")]
    Panicked,
    /// The peer ended the lane, or the TCP connection beside it ended.
    #[error("the peer disconnected")]
    Disconnected,
}

impl From<Failure> for UdpError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::ChunkTooLarge { .. } => Self::TooLarge(failure),
            Failure::NeverAnswered => Self::Blocked,
            Failure::Closed(wire::CODE_ABORTED) => Self::Disconnected,
            _ => Self::Failure(failure),
        }
    }
}

/// Returns the receive buffer for the path of `lane`.
fn buffer_for(lane: &StreamLane, settings: &UdpSettings) -> u64 {
    let round_trip = lane.control().round_trip().unwrap_or_default();
    let rate = match settings.rate {
        Rate::Fixed(rate) => rate.saturating_mul(4),
        Rate::Found { .. } => BUFFER_RATE,
    };
    let bytes = u128::from(rate) * round_trip.as_micros() / 1_000_000;
    let wanted = u64::try_from(bytes).unwrap_or(BUFFER_MAX).saturating_add(BUFFER_BYTES);
    wanted.min(settings.buffer_max).clamp(BUFFER_MIN, BUFFER_MAX)
}

/// Returns the receive buffer for `lane`, over QUIC or not.
fn buffer_of(lane: &StreamLane, settings: &UdpSettings, quic: Option<Congestion>) -> u64 {
    let buffer = buffer_for(lane, settings);
    if quic.is_some() { buffer.min(QUIC_BUFFER_MAX) } else { buffer }
}

/// Parts of the control connection's end that a QUIC connection shares.
pub(crate) struct QuicShared<T> {
    /// Configuration of TLS; `None` without encryption.
    pub(crate) tls: Option<Arc<T>>,
    /// Rate limit that the lanes over QUIC of this end share.
    pub(crate) pacer: Option<Arc<Pacer>>,
}

impl<T> QuicShared<T> {
    /// Returns the pacer of a rate that the user asked to hold. A server's limit for all clients is
    /// no such rate: it takes the place of no congestion control.
    fn held(&self, rate: Rate) -> Option<Arc<Pacer>> {
        self.pacer.clone().filter(|_| matches!(rate, Rate::Fixed(_)))
    }
}

/// Returns the pacer of a lane that leaves UDP. If the lanes share a rate that the user asked to
/// hold, this lane keeps its part: the others may still hold theirs over UDP.
pub(crate) fn pacer_without_udp(rate: Rate, shared: Option<Arc<Pacer>>) -> Option<Arc<Pacer>> {
    match rate {
        Rate::Fixed(rate) => Some(Arc::new(Pacer::new(rate))),
        Rate::Found { .. } => shared,
    }
}

/// Returns true if a client requests UDP for `lane`.
pub(crate) fn is_wanted(lane: &StreamLane, settings: &UdpSettings) -> bool {
    let round_trip = lane.control().round_trip().unwrap_or_default();
    !settings.falls_back || fallback::is_worth_udp(round_trip, settings.round_trip_min)
}

/// Returns the request of a client for `lane`.
pub(crate) fn request(lane: &StreamLane, settings: &UdpSettings) -> Result<Request, LaneError> {
    let id = random().map_err(|_| Operation::Writing.failed(io::ErrorKind::Other.into()))?;
    let UdpSettings { quic, check, falls_back, .. } = *settings;
    let buffer = buffer_of(lane, settings, quic);
    Ok(Request { quic, check, falls_back, id: u32::from_le_bytes(id), buffer })
}

/// Moves the lane of a client to UDP after the server's acceptance.
pub(crate) fn connect(
    lane: StreamLane,
    settings: &UdpSettings,
    request: Request,
    accepted: Accepted,
    shared: QuicShared<ClientConfig>,
) -> Result<StreamLane, LaneError> {
    let peer = lane.control().peer().ok_or(LaneError::Unexpected)?;
    let local = lane.local_address().map_err(|error| Operation::Writing.failed(error))?;
    let socket = Socket::open(local, None, settings.chunk);
    let socket = socket.map_err(|error| Operation::Writing.failed(error))?;
    let to = SocketAddr::new(peer.ip(), accepted.port);
    let to = with_scope(to, peer);
    if let Some(congestion) = request.quic {
        let tls = shared.tls.clone().ok_or(LaneError::Unexpected)?;
        let quic = QuicSettings::new(&lane, congestion, shared.held(settings.rate), request.buffer);
        return start_quic(lane, socket, &QuicRole::Client(to, &tls), quic, request, accepted);
    }
    let ends = Ends { role: Role::Initiator(to), request, accepted, is_client: true };
    start(lane, settings, socket, ends)
}

/// Acceptance of a client's request, and the socket for it.
pub(crate) struct Agreed<'s> {
    settings: &'s UdpSettings,
    request: Request,
    accepted: Accepted,
    socket: Socket,
}

/// Decides on the request of a client, and opens the socket for it. `reserve` returns the granted
/// size of the receive buffer for the wanted size and the maximum.
pub(crate) fn decide<'s>(
    lane: &StreamLane,
    settings: Option<&'s UdpSettings>,
    request: Result<Request, UdpRefusal>,
    reserve: impl FnOnce(u64, u64) -> u64,
) -> Result<Agreed<'s>, UdpRefusal> {
    let (settings, request) = (settings.ok_or(UdpRefusal::NotOffered)?, request?);
    if request.check != PacketCheck::Aead && request.check != settings.check {
        return Err(UdpRefusal::Check);
    }
    if (request.quic.is_some() || request.check == PacketCheck::Aead) && lane.kind() != Kind::Tls {
        return Err(UdpRefusal::NoKeys);
    }
    let local = lane.local_address().map_err(|_| UdpRefusal::NoSocket)?;
    let socket = Socket::open(local, settings.ports, settings.chunk).map_err(|_| UdpRefusal::NoSocket)?;
    let port = socket.port().map_err(|_| UdpRefusal::NoSocket)?;
    let id = u32::from_le_bytes(random().map_err(|_| UdpRefusal::NoSocket)?);
    let Request { quic, check, falls_back, .. } = request;
    let buffer = reserve(buffer_of(lane, settings, quic), settings.buffer_max);
    let accepted = Accepted { check, falls_back, port, id, buffer };
    Ok(Agreed { settings, request, accepted, socket })
}

impl Agreed<'_> {
    /// Returns the acceptance for the client.
    pub(crate) fn encode(&self) -> [u8; UPGRADE_BYTES] {
        self.accepted.encode()
    }

    /// Moves the lane to UDP after the acceptance was sent.
    pub(crate) fn start(
        self,
        lane: StreamLane,
        shared: QuicShared<ServerConfig>,
    ) -> Result<StreamLane, LaneError> {
        let Self { settings, request, accepted, socket } = self;
        if let Some(congestion) = request.quic {
            let tls = shared.tls.clone().ok_or(LaneError::Unexpected)?;
            let quic = QuicSettings::new(&lane, congestion, shared.held(settings.rate), accepted.buffer);
            return start_quic(lane, socket, &QuicRole::Server(&tls), quic, request, accepted);
        }
        start(lane, settings, socket, Ends { role: Role::Acceptor, request, accepted, is_client: false })
    }
}

/// Agreement of the two ends, and this end's part in it.
struct Ends {
    role: Role<SocketAddr>,
    request: Request,
    accepted: Accepted,
    is_client: bool,
}

fn start(
    lane: StreamLane,
    settings: &UdpSettings,
    socket: Socket,
    ends: Ends,
) -> Result<StreamLane, LaneError> {
    let Ends { role, request, accepted, is_client } = ends;
    let (seal, open, cipher) = seals(&lane, &request, &accepted, is_client)?;
    let (local, remote) = if is_client { (request.id, accepted.id) } else { (accepted.id, request.id) };
    let (own_buffer, remote_buffer) =
        if is_client { (request.buffer, accepted.buffer) } else { (accepted.buffer, request.buffer) };
    let token = random().map_err(|_| Operation::Writing.failed(io::ErrorKind::Other.into()))?;
    let round_trip = lane.control().round_trip().filter(|time| !time.is_zero());
    let config = Config {
        chunk: settings.chunk,
        rate: settings.rate,
        idle: SILENCE_TIMEOUT,
        // A peer must not make this end keep more than its user permits, and a server no more than
        // it reserved for the session.
        send_buffer: usize::try_from(remote_buffer.min(if is_client {
            settings.buffer_max
        } else {
            accepted.buffer
        }))
        .unwrap_or(usize::MAX),
        receive_buffer: usize::try_from(own_buffer).unwrap_or(usize::MAX),
        remote_buffer,
        rtt: round_trip,
        ..Config::new(role, local, remote, u64::from_le_bytes(token))
    };
    let terms = Terms { is_client, bounds: accepted.falls_back.then_some(Bounds::DEFAULT), ..terms(&lane) };
    let clock = Instant::now();
    let association = Association::new(config, seal, open, 0);
    over(lane, socket, association, clock, terms, Kind::Udp, cipher)
}

/// Returns the terms of a client without a fallback.
fn terms(lane: &StreamLane) -> Terms {
    let round_trip = lane.control().round_trip().unwrap_or_default();
    Terms { is_client: true, bounds: None, round_trip }
}

/// Moves the lane to a QUIC connection.
fn start_quic(
    lane: StreamLane,
    socket: Socket,
    role: &QuicRole<'_>,
    settings: QuicSettings,
    request: Request,
    accepted: Accepted,
) -> Result<StreamLane, LaneError> {
    let proof = Proof::of(&lane, &[request.encode(), accepted.encode()].concat())?;
    let clock = Instant::now();
    let connection = QuicConnection::new(role, settings, proof, clock);
    let connection = connection.map_err(|error| Operation::Writing.failed(io::Error::other(error)))?;
    // Both connections have the same ends with the same preferences.
    let cipher = lane.control().cipher();
    let terms = Terms { is_client: matches!(role, QuicRole::Client(..)), ..terms(&lane) };
    over(lane, socket, connection, clock, terms, Kind::Quic, cipher)
}

fn over<C: Carrier>(
    lane: StreamLane,
    socket: Socket,
    carrier: C,
    clock: Instant,
    terms: Terms,
    kind: Kind,
    cipher: &'static str,
) -> Result<StreamLane, LaneError> {
    let peer = lane.control().peer();
    let wire = UdpWire::start(lane, socket, carrier, clock, terms)
        .map_err(|error| Operation::Writing.failed(error))?;
    Ok(StreamLane::over_udp(Box::new(wire), kind, cipher, peer))
}

type Seals = (Box<dyn Seal>, Box<dyn Seal>, &'static str);

/// Returns the protection of outgoing and of incoming datagrams, and its name.
fn seals(
    lane: &StreamLane,
    request: &Request,
    accepted: &Accepted,
    is_client: bool,
) -> Result<Seals, LaneError> {
    fn same<S: Seal + Copy + 'static>(seal: S) -> Seals {
        (Box::new(seal), Box::new(seal), "none")
    }
    Ok(match accepted.check {
        PacketCheck::Crc32c => same(Crc32c),
        PacketCheck::Crc16 => same(Crc16),
        PacketCheck::None => same(Unchecked),
        PacketCheck::Aead => {
            let context = [request.encode(), accepted.encode()].concat();
            let secrets: [u8; 2 * SECRET_BYTES] = lane.export(EXPORTER, &context)?;
            let cipher = Cipher::beside(lane.control().cipher());
            let keys = |at: usize| {
                let secret = secrets[at * SECRET_BYTES..].first_chunk().expect("two secrets");
                Box::new(Keys::new(cipher, secret))
            };
            let (own, peer) = if is_client { (0, 1) } else { (1, 0) };
            (keys(own), keys(peer), cipher.name())
        }
    })
}

/// Returns `address` with the interface of `peer`, which a link-local address needs.
fn with_scope(mut address: SocketAddr, peer: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(address), SocketAddr::V6(peer)) = (&mut address, peer) {
        address.set_scope_id(peer.scope_id());
    }
    address
}

#[cfg(test)]
mod buffers {
    use super::*;

    /// Regression: the limit of a server replaced the congestion control of QUIC.
    #[test]
    fn a_limit_for_all_clients_is_no_rate_to_hold() {
        let shared = QuicShared { tls: None::<Arc<()>>, pacer: Some(Arc::new(Pacer::new(1))) };
        assert!(shared.held(Rate::Fixed(1)).is_some());
        assert!(shared.held(Rate::Found { max: Some(1), start: None }).is_none());
    }

    /// Regression: of several lanes, one that left UDP sent at the rate of all lanes together.
    #[test]
    fn a_lane_without_udp_keeps_its_part_of_the_rate() {
        let shared = || Some(Arc::new(Pacer::new(400)));
        let rate = |rate| pacer_without_udp(rate, shared()).map(|pacer| pacer.rate());
        assert_eq!(rate(Rate::Fixed(100)), Some(100));
        assert_eq!(rate(Rate::Found { max: Some(400), start: None }), Some(400));
    }

    #[test]
    fn buffers_of_all_lanes_of_a_session_are_limited() {
        let max = BUFFER_DEFAULT;
        let mut used = 0;
        let granted: Vec<u64> = (0..64)
            .map(|_| {
                let granted = buffer_in_session(max, max, used);
                used += granted;
                granted
            })
            .collect();
        assert_eq!(granted[..3], [max; 3], "few lanes get what they want");
        assert!(granted.iter().all(|granted| (BUFFER_MIN..=max).contains(granted)));
        assert!(used <= 4 * max + 64 * BUFFER_MIN, "{used}");
    }
}
