//! Lanes: the connections of a session.
//!
//! A [`Lane`] carries frames. Code above a lane uses this trait only, so it works the same over
//! every transport. [`StreamLane`] implements it over a byte stream: a wire (a TCP connection, two
//! pipes, or memory), with TLS on it if the ends encrypt.

mod error;
mod frames;
mod meter;
mod slices;
mod stream;
mod stream_reader;
mod stream_writer;
mod wire;

pub use error::{FrameError, LaneError, Operation};
pub use meter::LaneStats;
pub use stream::{StreamControl, StreamLane};
pub use stream_reader::StreamReader;
pub use stream_writer::StreamWriter;

pub(crate) use meter::{Meter, Part};
pub(crate) use slices::Slices;
pub(crate) use stream::{Halves, Resource, Shared};
pub(crate) use wire::{SocketWire, WaitTimeout, Wire};

use crate::udp::Fallback;
use haul_proto::Message;
use haul_udp::Stats as PacketStats;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One connection of a session: frames in, frames out, shutdown and facts. Dropping both halves
/// disconnects the lane, which the peer detects as an error.
pub trait Lane: Send {
    /// Returns the two halves, for two threads. They never wait for each other.
    fn split(self: Box<Self>) -> (Box<dyn FrameReader>, Box<dyn FrameWriter>);

    /// Returns a handle that aborts the lane and reports its state from any thread.
    fn control(&self) -> Arc<dyn LaneControl>;
}

/// Reading half of a lane. After any error, the lane is unusable.
pub trait FrameReader: Send {
    /// Returns the next message, or `None` if the peer finished the lane. The payload of a
    /// NEW_BLOCK must be taken next.
    ///
    /// # Errors
    /// Returns a [`FrameError`] if the lane fails, or if the received data is not a frame.
    fn next(&mut self) -> Result<Option<Message>, FrameError>;

    /// Returns true if [`next`](Self::next) would not wait for the peer. Ignores the payload of the
    /// next message.
    fn has_next(&self) -> bool;

    /// Takes payload.
    ///
    /// # Errors
    /// Same as [`next`](Self::next).
    fn payload(&mut self, into: &mut [u8]) -> Result<(), FrameError>;

    /// Returns true if `len` bytes of payload can be taken without waiting for the peer.
    fn has_payload(&self, len: usize) -> bool;

    /// Discards `len` bytes of payload.
    ///
    /// # Errors
    /// Same as [`next`](Self::next).
    fn skip(&mut self, len: u64) -> Result<(), FrameError>;

    /// Sets the maximum time without received data; `None` for no limit. Removes a deadline.
    fn set_stall(&mut self, stall: Option<Duration>);

    /// Sets a deadline for all waits together, even if data arrives.
    fn set_deadline(&mut self, deadline: Instant);
}

/// Writing half of a lane. Small frames are gathered until [`flush`](Self::flush) or until a larger
/// one is sent.
pub trait FrameWriter: Send {
    /// Adds a message.
    ///
    /// # Errors
    /// Returns a [`LaneError`] if the lane fails; it is unusable then.
    fn push(&mut self, message: &Message) -> Result<(), LaneError>;

    /// Adds payload. Large payload is sent immediately.
    ///
    /// # Errors
    /// Same as [`push`](Self::push).
    fn payload(&mut self, bytes: &[u8]) -> Result<(), LaneError>;

    /// Sends the gathered frames.
    ///
    /// # Errors
    /// Same as [`push`](Self::push).
    fn flush(&mut self) -> Result<(), LaneError>;

    /// Returns true if no frame is gathered.
    fn is_empty(&self) -> bool;

    /// Returns the total time that writes to the lane took, including encryption and rate limit.
    fn waited(&self) -> Duration;

    /// Sends the gathered frames and finishes this direction of the lane.
    ///
    /// # Errors
    /// Same as [`push`](Self::push).
    fn finish(self: Box<Self>) -> Result<(), LaneError>;
}

/// Handle that aborts a lane and reports its state from any thread.
pub trait LaneControl: Send + Sync + fmt::Debug {
    /// Aborts the lane: both halves fail with [`LaneError::Aborted`], immediately if they wait. The
    /// peer detects a disconnected connection.
    fn abort(&self);

    /// Returns the statistics of the lane so far.
    fn stats(&self) -> LaneStats;

    /// Returns the transport of the lane.
    fn kind(&self) -> Kind;

    /// Returns the address of the peer, or `None` if it has none.
    fn peer(&self) -> Option<SocketAddr>;

    /// Returns the name of the cipher, or `none`.
    fn cipher(&self) -> &'static str;

    /// Returns the shortest round trip that was measured, if the transport measures it.
    fn round_trip(&self) -> Option<Duration>;

    /// Returns true if one such lane fills the path, so that more of them only share it.
    fn fills_path(&self) -> bool {
        matches!(self.kind(), Kind::Udp | Kind::Quic) && self.fallback().is_none()
    }

    /// Returns the statistics of the datagrams, if the lane sends datagrams itself, or did before
    /// it fell back to TCP.
    fn packets(&self) -> Option<PacketStats>;

    /// Returns the reason why the lane uses TCP although UDP was requested.
    fn fallback(&self) -> Option<Fallback> {
        None
    }
}

/// Transport of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TLS 1.3 over TCP.
    Tls,
    /// Plain TCP, without encryption. Changes on the network path are not detected. A peer that
    /// dies looks like a peer that finishes, so the protocol above must signal its end.
    Plain,
    /// Two pipes of a process that encrypts and authenticates the peer, such as ssh.
    Pipes,
    /// Another lane of this process.
    Local,
    /// Datagrams of UDP.
    Udp,
    /// A stream of a QUIC connection (RFC 9000).
    Quic,
    /// Requests over HTTPS, which a web server of this process joins into a stream.
    Https,
}
