//! Floor 3: lanes to another host, how two hosts meet, and who may come in.
//!
//! A [`Lane`] is one authenticated connection that a worker owns and moves bytes over, by blocking calls. It runs over
//! TCP with TLS 1.3, over bare TCP where both ends ask for that, or inside two pipes (a remote shell's). Its halves may
//! be used by two threads at once.
//!
//! A server makes an [`Identity`] and a [`Ticket`], opens a [`Listener`] and takes the [`Session`]s that arrive. A
//! client parses the ticket and opens the lanes of a session by a [`Dialer`]. What an unauthenticated peer sends meets
//! a small decoder of fixed lengths, a deadline and counted places, and nothing else.
//!
//! Lanes move bytes: what they mean stands elsewhere.

pub mod address;
pub mod book;
pub mod dial;
pub mod hello;
pub mod lane;
pub mod listen;
pub mod pace;
pub mod secret;
pub mod socket;
pub mod ticket;
pub mod tls;

pub use address::{Address, Host};
pub use book::TicketBook;
pub use dial::{DialError, DialSettings, Dialer};
pub use hello::Verdict;
pub use lane::{Kind, Lane, LaneControl, LaneError, LaneReader, LaneStats, LaneWriter};
pub use listen::{DoorEvent, Limits, ListenError, ListenSettings, Listener, Session, TicketedError};
pub use pace::Pacer;
pub use secret::{Secret, SessionId, TicketId};
pub use socket::{Buffers, Keepalive, SocketFacts, SocketSettings};
pub use ticket::{Grant, Role, Ticket, TicketError, Uses};
pub use tls::{Fingerprint, Identity, IdentityError};

/// Whether what travels is encrypted. The two ends must ask for the same: neither falls back to the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// TLS 1.3.
    #[default]
    Tls,
    /// None: both ends still prove that they know the secret, but anyone on the way can read, and change, the rest.
    Plain,
}
