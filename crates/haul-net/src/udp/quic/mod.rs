//! Lanes over QUIC (RFC 9000): one connection on a socket of its own, with several streams in each
//! direction that carry the blocks of the lane in turn.
//!
//! The protocol is that of `quinn-proto`. A QUIC connection is another [`Carrier`] of the same
//! link: one thread carries its datagrams, and the TCP connection of the lane stays open beside it.
//!
//! Both ends derive a connection ID and a proof from the TLS connection of the lane. The server
//! accepts one connection: to the ID, and only if its first stream starts with the proof. QUIC's
//! own TLS handshake uses the certificate of the server, which the client identifies by the
//! fingerprint in its ticket.

mod connection;
mod fixed;
mod found;
mod stripes;

pub(super) use connection::{QuicConnection, QuicRole};
pub use found::quinn_controllers;

use crate::lane::{LaneControl as _, LaneError, StreamLane};
use crate::pace::Pacer;
use crate::tls;
use fixed::FixedRate;
use found::FoundRate;
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ConnectionId, EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig,
    ValidationTokenConfig, VarInt,
};
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Label of the exporter value with the connection ID and the proof (RFC 8446 section 7.5).
const EXPORTER: &[u8] = b"EXPORTER-haul-quic-1";

/// Length in bytes of the connection ID of a client's first datagrams, and of the proof.
const ID_BYTES: usize = 20;
const PROOF_BYTES: usize = 32;

/// The only version of QUIC in use: 1 (RFC 9000).
const VERSION: u32 = 1;

/// Maximum payload in bytes of a received datagram. Larger ones stall quinn-proto's start.
const DATAGRAM_MAX: u16 = 9000;

/// Streams of a lane in each direction. `quinn-proto` ends a connection if the received part of one
/// stream behind its first gap has more than 1,024 pieces. With this number, the window of each
/// stream has at most some 750 datagrams of 1,400 bytes.
const STREAMS: u32 = 32;

/// Interval of datagrams that keep an idle connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Shortest round trip that the handshake assumes. Until it has measured the path, the threads of
/// both ends may start late.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(20);

/// Datagrams for each acknowledgement (draft-ietf-quic-ack-frequency).
const DATAGRAMS_PER_ACK: u32 = 20;

/// Maximum receive buffer of a lane in bytes: a job over QUIC has several.
pub(super) const QUIC_BUFFER_MAX: u64 = 32 << 20;

/// Congestion control of both ends of a lane over QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// BBR of quinn-proto, which measures the bandwidth and the round trip.
    Bbr,
    /// CUBIC (RFC 9438), which backs off at each loss.
    Cubic,
    /// The controller of haul's own datagrams.
    #[default]
    Haul,
}

impl Congestion {
    /// All algorithms, by their number in a request.
    pub const ALL: [Self; 3] = [Self::Bbr, Self::Cubic, Self::Haul];

    /// Returns the name of the algorithm in options.
    pub fn name(self) -> &'static str {
        ["bbr", "cubic", "haul"][self as usize]
    }
}

/// Values that both ends of a lane derive from its TLS connection.
#[derive(Clone, Copy)]
pub(super) struct Proof {
    pub(super) id: ConnectionId,
    pub(super) bytes: [u8; PROOF_BYTES],
}

impl Proof {
    /// Derives the values of `lane` for a request and its answer, which are `context`.
    pub(super) fn of(lane: &StreamLane, context: &[u8]) -> Result<Self, LaneError> {
        Ok(Self::split(&lane.export(EXPORTER, context)?))
    }

    fn split(exported: &[u8; ID_BYTES + PROOF_BYTES]) -> Self {
        let (id, proof) = exported.split_at(ID_BYTES);
        let mut bytes = [0; PROOF_BYTES];
        bytes.copy_from_slice(proof);
        Self { id: ConnectionId::new(id), bytes }
    }
}

/// Settings of one end of a connection.
pub(super) struct QuicSettings {
    pub(super) congestion: Congestion,
    /// Rate that all lanes with this pacer hold together; `None` for congestion control.
    pub(super) pacer: Option<Arc<Pacer>>,
    /// Maximum number of unread and of unacknowledged bytes.
    pub(super) buffer: u64,
    /// Maximum payload of a datagram in bytes.
    pub(super) datagram_max: u16,
    /// Round trip of the path, as TCP measured it.
    pub(super) round_trip: Duration,
    /// Time without any datagram after which the connection ends.
    pub(super) idle: Duration,
}

impl QuicSettings {
    /// Returns the settings of `lane` with a buffer of this number of bytes.
    pub(super) fn new(
        lane: &StreamLane,
        congestion: Congestion,
        pacer: Option<Arc<Pacer>>,
        buffer: u64,
    ) -> Self {
        // A jumbo frame of 9,000 bytes without the headers of IP and UDP.
        let is_v4 = lane.control().peer().is_some_and(|peer| peer.ip().to_canonical().is_ipv4());
        Self {
            congestion,
            pacer,
            buffer,
            datagram_max: if is_v4 { 8972 } else { 8952 },
            round_trip: lane.control().round_trip().unwrap_or_default(),
            idle: super::SILENCE_TIMEOUT,
        }
    }

    fn transport(&self, found: Option<&FoundRate>) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let window = VarInt::from_u64(self.buffer / u64::from(STREAMS)).unwrap_or(VarInt::MAX);
        let mut ack_frequency = AckFrequencyConfig::default();
        ack_frequency.ack_eliciting_threshold(VarInt::from_u32(DATAGRAMS_PER_ACK));
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.datagram_max);
        let congestion: Arc<dyn ControllerFactory + Send + Sync> = match (found, self.congestion) {
            (Some(found), _) => Arc::new(found.clone()),
            (None, _) if self.pacer.is_some() => Arc::new(FixedRate),
            (None, Congestion::Cubic) => Arc::new(CubicConfig::default()),
            (None, Congestion::Bbr | Congestion::Haul) => Arc::new(BbrConfig::default()),
        };
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(IdleTimeout::try_from(self.idle).ok())
            .keep_alive_interval(Some(KEEP_ALIVE))
            .initial_rtt((2 * self.round_trip).max(ROUND_TRIP_MIN))
            .stream_receive_window(window)
            // The windows of the streams are the limit.
            .receive_window(VarInt::MAX)
            .send_window(self.buffer)
            .ack_frequency_config(Some(ack_frequency))
            .mtu_discovery_config(Some(discovery))
            .congestion_controller_factory(congestion)
            .allow_spin(false);
        transport
    }

    /// Returns the controller that finds the rate, if it is to be found by haul.
    fn found(&self, clock: Instant) -> Option<FoundRate> {
        let is_found = self.pacer.is_none() && self.congestion == Congestion::Haul;
        is_found.then(|| FoundRate::new(clock, self.round_trip))
    }

    fn client(
        &self,
        tls: &ClientConfig,
        id: ConnectionId,
        found: Option<&FoundRate>,
    ) -> Result<quinn_proto::ClientConfig, NoInitialCipherSuite> {
        let tls: QuicClientConfig = tls::quic_client_config(tls).try_into()?;
        let mut config = quinn_proto::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(self.transport(found))).version(VERSION);
        config.initial_dst_cid_provider(Arc::new(move || id));
        Ok(config)
    }

    fn server(
        &self,
        tls: &ServerConfig,
        found: Option<&FoundRate>,
    ) -> Result<quinn_proto::ServerConfig, NoInitialCipherSuite> {
        let tls: QuicServerConfig = tls::quic_server_config(tls).try_into()?;
        let mut config = quinn_proto::ServerConfig::with_crypto(Arc::new(tls));
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(0);
        config.transport_config(Arc::new(self.transport(found))).validation_token_config(tokens);
        // Datagrams from other addresses change nothing.
        config.migration(false).max_incoming(1);
        Ok(config)
    }
}

/// Returns the settings of the endpoint of a connection.
fn endpoint() -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::default();
    config.supported_versions(vec![VERSION]);
    config.max_udp_payload_size(DATAGRAM_MAX).expect("it exceeds the minimum, 1,200");
    Arc::new(config)
}

#[cfg(test)]
mod tests;
