//! Layer 3: lanes to another host, session setup between two hosts, and admission control.
//!
//! A [`Lane`] is one authenticated connection that a worker owns. The worker moves frames over it
//! by blocking calls. A lane runs over TCP with TLS 1.3, over plain TCP if both ends request that,
//! over UDP or QUIC, inside two pipes (of a remote shell), or within the process. Two threads can
//! use its halves concurrently.
//!
//! A server creates an [`Identity`] and a [`Ticket`], opens a [`Listener`] and accepts the
//! [`Session`]s that arrive. A client parses the ticket and opens the lanes of a session by a
//! [`Dialer`]. Only a small decoder of fixed lengths reads the input of an unauthenticated peer,
//! under a deadline and a limit on connections.
//!
//! Lanes move frames; `haul-proto` defines them, and other crates act on them.

pub mod address;
pub mod dial;
pub mod hello;
pub mod lane;
pub mod listen;
pub mod pace;
pub mod secret;
pub mod socket;
pub mod ticket;
pub mod tickets;
pub mod tls;
mod udp;

pub use address::{Address, Host};
pub use dial::{DialError, DialSettings, Dialer};
pub use haul_udp::{CHUNK_MAX, CHUNK_MIN, Chunk, Rate, Stats as PacketStats};
pub use hello::Verdict;
pub use lane::{
    FrameError, FrameReader, FrameWriter, Kind, Lane, LaneControl, LaneError, LaneStats, Operation,
    StreamControl, StreamLane, StreamReader, StreamWriter,
};
pub use listen::{
    AdmissionLimit, AdmissionSlot, Gateway, Limits, ListenError, ListenSettings, Listener, ListenerEvent,
    Session, TicketedError,
};
pub use pace::Pacer;
pub use secret::{Secret, SessionId, TicketId};
pub use socket::{Buffers, Keepalive, SocketFacts, SocketSettings};
pub use ticket::{Grant, Role, Ticket, TicketError, Uses};
pub use tickets::TicketTable;
pub use tls::{Fingerprint, Identity, IdentityError};

pub use udp::{
    BUFFER_MAX as UDP_BUFFER_MAX, BUFFER_MIN as UDP_BUFFER_MIN, BadUpgrade, CHUNK_FOUND_MAX, Congestion,
    Fallback, PacketCheck, UdpError, UdpRefusal, UdpSettings, describe_departure, describe_upgrade,
    quinn_controllers,
};

/// Encryption of the connection. Both ends must request the same: neither falls back to the choice
/// of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// TLS 1.3.
    #[default]
    Tls,
    /// None. Both ends still prove that they know the secret, but anyone on the network path can
    /// read and change the rest.
    Plain,
}
