//! Settings, errors and figures of an association.

use crate::time::{MILLI, SECOND};
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// Minimum of [`Chunk::Fixed`] in bytes.
pub const CHUNK_MIN: usize = 200;
/// Maximum of [`Chunk::Fixed`] in bytes.
pub const CHUNK_MAX: usize = 65_000;

/// Role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role<A> {
    /// Sends the first datagram, to this address.
    Initiator(A),
    /// Takes the address of the peer from the first authentic datagram, and sends at most three
    /// times the bytes that it received until the peer has proved that it receives at this address.
    Acceptor,
}

/// Size of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Each full datagram carries this number of bytes of the stream, [`CHUNK_MIN`] to
    /// [`CHUNK_MAX`]. IP fragments datagrams that exceed the MTU.
    Fixed(usize),
    /// Find the largest datagram that passes, from 1,200 bytes of UDP payload to `max`. The shell
    /// has to prohibit fragmentation.
    Found {
        /// Maximum bytes of UDP payload, 1,200 to 65,507.
        max: usize,
    },
}

/// Rate of sending. The bytes of datagrams with data (UDP payload) count, retransmissions included;
/// acknowledgements do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Hold this rate in bytes per second, above 0, whatever is lost. No congestion control: the
    /// user is responsible.
    Fixed(u64),
    /// Find the rate by delivery rate, delay and loss.
    Found {
        /// Maximum rate in bytes per second.
        max: Option<u64>,
        /// Rate to begin with in bytes per second, if a previous association to this peer found it.
        start: Option<u64>,
    },
}

/// Settings of one end of an association. Both ends agree on them outside of the association.
#[derive(Clone, Debug)]
pub struct Config<A> {
    /// Role of this end.
    pub role: Role<A>,
    /// Identifier in datagrams to this end.
    pub local_id: u32,
    /// Identifier in datagrams to the peer.
    pub remote_id: u32,
    /// A random number that no one else can predict, fresh for each association.
    pub token: u64,
    /// Size of datagrams that this end sends.
    pub chunk: Chunk,
    /// Rate at which this end sends.
    pub rate: Rate,
    /// Maximum duration of a burst at the rate. A burst has at least one datagram.
    pub burst: Duration,
    /// The association fails if nothing arrived for this time.
    pub idle: Duration,
    /// Maximum number of bytes that were written and not acknowledged, together with the records of
    /// the packets that carry them: 70 bytes for each packet beyond the first 1,024. At 5 % loss, a
    /// full rate needs about four times rate × round-trip time. Records of packets that only
    /// acknowledge may take another 5 MiB.
    pub send_buffer: usize,
    /// Maximum number of bytes that arrived and were not read. Needs the same size.
    pub receive_buffer: usize,
    /// Receive buffer of the peer in bytes: the credit at the start.
    pub remote_buffer: u64,
    /// Round-trip time of the handshake, if known.
    pub rtt: Option<Duration>,
}

impl<A> Config<A> {
    /// Returns settings with defaults: found chunk up to 8,972 bytes and found rate, bursts of 1
    /// ms, failure after 30 s, and buffers of 64 MiB at both ends.
    pub fn new(role: Role<A>, local_id: u32, remote_id: u32, token: u64) -> Self {
        Self {
            role,
            local_id,
            remote_id,
            token,
            chunk: Chunk::Found { max: 8972 },
            rate: Rate::Found { max: None, start: None },
            burst: Duration::from_millis(1),
            idle: Duration::from_secs(30),
            send_buffer: 64 << 20,
            receive_buffer: 64 << 20,
            remote_buffer: 64 << 20,
            rtt: None,
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(1_000_000 * SECOND)
}

/// Maximum time between two keepalive packets, and between two probes of a silent path.
pub(crate) const PROBE_INTERVAL_MAX: u64 = 1000 * MILLI;

/// State of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Packets travel.
    Open,
    /// Both streams are complete and acknowledged, and the peer knows. No packet is needed any
    /// more.
    Finished,
    /// The association ended early.
    Failed(Failure),
}

/// Reason for the early end of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No datagram of the peer arrived since the start.
    #[error("no datagram from the peer arrived; UDP may be blocked")]
    NeverAnswered,
    /// Datagrams arrived before, and then none for [`Config::idle`].
    #[error("datagrams from the peer stopped arriving")]
    Died,
    /// Datagrams of the fixed size do not pass.
    #[error("datagrams of {chunk} bytes do not arrive; {works} bytes do")]
    ChunkTooLarge {
        /// UDP payload of the datagrams that are lost, in bytes.
        chunk: usize,
        /// Largest UDP payload that arrived, in bytes.
        works: usize,
    },
    /// The peer closed the association with this code.
    #[error("the peer closed the association with code {0}")]
    Closed(u32),
    /// This end called `close` with this code.
    #[error("this end closed the association with code {0}")]
    Aborted(u32),
    /// QUIC, in the place of an association, ended for this reason.
    #[error("QUIC failed: {0}")]
    Quic(Reason),
    /// The peer violated the protocol in an authentic packet.
    #[error("the peer violated the protocol: {0}")]
    Violation(&'static str),
    /// This end called `leave`.
    #[error("this end continues over another connection")]
    Left,
    /// All packet numbers are used.
    #[error("all packet numbers of the association are used")]
    Exhausted,
}

/// Maximum length of a [`Reason`] in bytes. Errors hold it in place.
const REASON_BYTES: usize = 63;

/// A short text of printable ASCII, also if a peer chose it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    bytes: [u8; REASON_BYTES],
    len: u8,
}

impl Reason {
    /// Keeps the start of `text`, with `?` in place of what is not printable ASCII.
    pub fn new(text: &str) -> Self {
        let mut reason = Self { bytes: [0; REASON_BYTES], len: 0 };
        for (place, character) in reason.bytes.iter_mut().zip(text.chars()) {
            let byte = u8::try_from(character).ok().filter(|byte| (b' '..=b'~').contains(byte));
            *place = byte.unwrap_or(b'?');
            reason.len += 1;
        }
        reason
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.bytes[..usize::from(self.len)];
        f.write_str(std::str::from_utf8(bytes).unwrap_or_default())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Figures of one end of an association. Times are in nanoseconds and sizes in bytes; bytes of
/// datagrams are bytes of UDP payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams sent.
    pub packets_sent: u64,
    /// Authentic new datagrams received.
    pub packets_received: u64,
    /// Datagrams declared lost, without probes of the datagram size.
    pub packets_lost: u64,
    /// Datagrams that carried bytes of the stream again.
    pub packets_retransmitted: u64,
    /// Datagrams that were declared lost and arrived later.
    pub losses_spurious: u64,
    /// Received datagrams that were damaged, truncated or forged.
    pub packets_damaged: u64,
    /// Received datagrams that arrived before or are too old.
    pub packets_duplicate: u64,
    /// Received datagrams of another association or from another address.
    pub packets_foreign: u64,
    /// Bytes of datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of authentic new datagrams received.
    pub bytes_received: u64,
    /// Bytes of the stream that the peer acknowledged, from its start on.
    pub payload_acked: u64,
    /// Bytes of the stream received and read.
    pub payload_read: u64,
    /// Minimum round-trip time of the last 10 s.
    pub rtt_min: u64,
    /// Smoothed round-trip time.
    pub rtt_smoothed: u64,
    /// Rate of sending now, in bytes of datagrams per second.
    pub rate: u64,
    /// Delivery rate that the controller found, in bytes of datagrams per second.
    pub delivery_rate: u64,
    /// Delay of the standing queue on the path: how much the round-trip time stays above its
    /// minimum.
    pub queue: u64,
    /// Bytes of datagrams in flight.
    pub in_flight: u64,
    /// Size of full datagrams.
    pub datagram: usize,
    /// Memory of the buffers.
    pub memory: usize,
}
