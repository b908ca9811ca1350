//! Layer 2, pure: reliable byte streams over datagrams.
//!
//! An [`Association`] is one end of a pair of byte streams, one in each direction, between two
//! addresses. The caller passes in datagrams and the time, and takes datagrams out. The handshake
//! happens elsewhere: both ends start with keys ([`Seal`]), identifiers and limits ([`Config`]).
//! `docs/formats/udp.md` describes every byte.
//!
//! ```text
//!   write -> SendBuffer -> transmit -> datagrams -> receive -> ReceiveBuffer -> read
//!               ^  Flight (losses) <- ACK <- Arrivals (replay window) |
//!               |  Control, Pacer (rate), ChunkSearch (datagram size) |
//! ```
//!
//! This crate uses no clock, socket, thread or randomness.

mod arrivals;
mod association;
mod check;
mod chunk;
mod config;
mod controller;
mod finder;
mod flight;
mod pace;
pub mod packet;
mod ranges;
mod rate;
mod receive;
mod rtt;
mod send;
mod store;
mod time;
mod train;

pub use association::{Association, Read, Transmit};
pub use check::{Crc16, Crc32c, OVERHEAD_MAX, PACKETS_PER_EPOCH, Seal, Unchecked};
pub use chunk::{DATAGRAM_MAX, DATAGRAM_MIN};
pub use config::{CHUNK_MAX, CHUNK_MIN, Chunk, Config, Failure, Rate, Reason, Role, State, Stats};
pub use controller::Controller;
pub use time::Time;
