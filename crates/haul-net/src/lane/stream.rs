//! Lane over a byte stream: a wire, and TLS on it if the ends encrypt.

use super::frames::{StreamFrameReader, StreamFrameWriter};
use super::wire::{MemoryWire, PipeWire, SocketWire};
use super::{
    FrameReader, FrameWriter, Kind, Lane, LaneControl, LaneError, LaneStats, Meter, StreamReader,
    StreamWriter, Wire,
};
use crate::pace::Pacer;
use crate::socket::{self, SocketFacts, SocketSettings};
use crate::tls::{Channel, Inlet};
use crate::udp::Fallback;
use haul_sys::socket::{TcpFacts, tcp_facts, unacknowledged_bytes};
use haul_udp::Stats as PacketStats;
use rustix::net::getsockname;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A blocking, bidirectional byte stream to the peer. Dropping a lane disconnects it, and the peer
/// detects that as an error. To end a lane cleanly, call [`close`](Self::close).
#[derive(Debug)]
pub struct StreamLane {
    reader: StreamReader,
    writer: StreamWriter,
}

/// Handle that aborts a lane and reports its state from any thread.
#[derive(Clone)]
pub struct StreamControl(Arc<Shared>);

/// State shared by both halves of a lane.
pub(crate) struct Shared {
    pub(crate) wire: Box<dyn Wire>,
    pub(crate) channel: Option<Channel>,
    /// Cipher of the wire itself, or `none`.
    cipher: &'static str,
    pub(crate) meter: Meter,
    kind: Kind,
    peer: Option<SocketAddr>,
    facts: SocketFacts,
    /// Reason why the lane uses TCP from its start although UDP was requested.
    fallback: OnceLock<Fallback>,
}

/// Resource that a lane holds on behalf of its owner, released when both halves are dropped.
pub(crate) type Resource = Box<dyn std::any::Any + Send + Sync>;

/// Owned by the two halves. When both are dropped the connection ends, even if a [`LaneControl`]
/// still exists.
pub(crate) struct Halves {
    pub(crate) shared: Arc<Shared>,
    pub(super) resource: OnceLock<Resource>,
}

impl Drop for Halves {
    fn drop(&mut self) {
        // A closed lane has ended already; other lanes are disconnected, which the peer detects.
        self.shared.wire.disconnect();
    }
}

impl StreamLane {
    /// Creates a lane over two pipes, such as the standard input and output of a remote shell.
    ///
    /// The process at the other ends of the pipes encrypts and authenticates; nothing is added
    /// here. One such lane uses all of the throughput of one ssh, so there is only one lane in a
    /// pair of pipes.
    ///
    /// Writing to a pipe without a reader raises SIGPIPE. A program that wants an error instead
    /// must ignore that signal, as Rust programs do by default.
    ///
    /// # Errors
    /// Returns the error of eventfd(2).
    pub fn over_pipes(input: OwnedFd, output: OwnedFd, stall: Option<Duration>) -> io::Result<Self> {
        let shared = Shared {
            wire: Box::new(PipeWire::new(input, output)?),
            channel: None,
            cipher: "none",
            meter: Meter::default(),
            kind: Kind::Pipes,
            peer: None,
            facts: SocketFacts::default(),
            fallback: OnceLock::new(),
        };
        Ok(Self::new(shared, None).authenticated(stall, None, None))
    }

    /// Creates both ends of a lane within this process, for programs that send to themselves, and
    /// for tests. Each direction holds at most 256 KiB of unread bytes.
    pub fn pair() -> (Self, Self) {
        let (one, two) = MemoryWire::pair();
        let lane = |wire: MemoryWire| {
            let shared = Shared {
                wire: Box::new(wire),
                channel: None,
                cipher: "none",
                meter: Meter::default(),
                kind: Kind::Local,
                peer: None,
                facts: SocketFacts::default(),
                fallback: OnceLock::new(),
            };
            Self::new(shared, None).authenticated(None, None, None)
        };
        (lane(one), lane(two))
    }

    /// Creates a lane over one end of a connected pair of sockets. A web server of this process
    /// holds the other end, and exchanges its bytes with `peer` over HTTPS.
    pub(crate) fn over_https(socket: OwnedFd, peer: SocketAddr) -> Self {
        let (facts, meter, fallback) = Default::default();
        let (wire, peer) = (Box::new(SocketWire::new(socket)), Some(peer));
        let kind = Kind::Https;
        Self::new(Shared { wire, channel: None, cipher: "https", meter, kind, peer, facts, fallback }, None)
    }

    /// Creates a lane of `kind` over UDP, whose datagrams `cipher` protects.
    pub(crate) fn over_udp(
        wire: Box<dyn Wire>,
        kind: Kind,
        cipher: &'static str,
        peer: Option<SocketAddr>,
    ) -> Self {
        let (facts, meter, fallback) = Default::default();
        Self::new(Shared { wire, channel: None, cipher, meter, kind, peer, facts, fallback }, None)
    }

    /// Returns the address of this end of a TCP connection.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        let control = self.control();
        let socket = control.0.wire.as_socket().ok_or(io::ErrorKind::NotConnected)?;
        Ok(getsockname(socket)?.try_into()?)
    }

    /// Returns a secret that both ends of a lane with TLS derive from `label` and `context`.
    pub(crate) fn export<const N: usize>(&self, label: &[u8], context: &[u8]) -> Result<[u8; N], LaneError> {
        let control = self.control();
        let channel = control.0.channel.as_ref().ok_or(LaneError::Unexpected)?;
        channel.export(label, context)
    }

    /// Creates a lane over TCP whose peer is not authenticated yet. With `tls`, the TLS handshake
    /// is done.
    pub(crate) fn unauthenticated(
        wire: Box<dyn Wire>,
        tls: Option<(Channel, Inlet)>,
        peer: SocketAddr,
        facts: SocketFacts,
        deadline: Instant,
    ) -> Self {
        let kind = if tls.is_some() { Kind::Tls } else { Kind::Plain };
        let (channel, inlet) = tls.unzip();
        let (meter, fallback) = Default::default();
        let shared = Shared { wire, channel, cipher: "none", meter, kind, peer: Some(peer), facts, fallback };
        let mut lane = Self::new(shared, inlet);
        lane.reader.set_deadline(deadline);
        lane.writer.set_deadline(deadline);
        lane
    }

    /// Requests socket options for the path, which the handshake has measured.
    pub(crate) fn tune_for_path(&self, settings: &SocketSettings) {
        let control = self.control();
        if let (Some(socket), Some(tcp)) = (control.0.wire.as_socket(), control.tcp()) {
            socket::tune_for_path(socket, settings, tcp.shortest_round_trip);
        }
    }

    /// Returns the same lane, prepared for work after the peer is authenticated.
    pub(crate) fn authenticated(
        mut self,
        stall: Option<Duration>,
        pacer: Option<Arc<Pacer>>,
        resource: Option<Resource>,
    ) -> Self {
        if let Some(resource) = resource {
            self.reader.keep(resource);
        }
        self.reader.begin();
        self.writer.set_pacer(pacer);
        self.set_stall(stall);
        self
    }

    fn new(shared: Shared, inlet: Option<Inlet>) -> Self {
        let halves = Arc::new(Halves { shared: Arc::new(shared), resource: OnceLock::new() });
        Self { reader: StreamReader::new(halves.clone(), inlet), writer: StreamWriter::new(halves) }
    }

    /// Returns the two halves, for two threads. They never wait for each other.
    pub fn split(self) -> (StreamReader, StreamWriter) {
        (self.reader, self.writer)
    }

    /// Same as [`StreamReader::read_exact`].
    ///
    /// # Errors
    /// Same as [`StreamReader::read_exact`].
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), LaneError> {
        self.reader.read_exact(buffer)
    }

    /// Same as [`StreamReader::read_exact_or_end`].
    ///
    /// # Errors
    /// Same as [`StreamReader::read_exact_or_end`].
    pub fn read_exact_or_end(&mut self, buffer: &mut [u8]) -> Result<bool, LaneError> {
        self.reader.read_exact_or_end(buffer)
    }

    /// Same as [`StreamWriter::write_all`].
    ///
    /// # Errors
    /// Same as [`StreamWriter::write_all`].
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        self.writer.write_all(bytes)
    }

    /// Same as [`StreamWriter::write_all_vectored`].
    ///
    /// # Errors
    /// Same as [`StreamWriter::write_all_vectored`].
    pub fn write_all_vectored(&mut self, parts: &[&[u8]]) -> Result<(), LaneError> {
        self.writer.write_all_vectored(parts)
    }

    /// Same as [`StreamWriter::finish`]; the other direction stays open.
    ///
    /// # Errors
    /// Same as [`StreamWriter::finish`].
    pub fn finish(&mut self) -> Result<(), LaneError> {
        self.writer.finish()
    }

    /// Limits the rate of all later writes of this end to that of `pacer`; `None` removes the
    /// limit.
    pub fn set_pacer(&mut self, pacer: Option<Arc<Pacer>>) {
        self.writer.set_pacer(pacer);
    }

    /// Sets the time that either half waits for a byte before [`LaneError::Stalled`]; `None` waits
    /// indefinitely.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.reader.set_stall(stall);
        self.writer.set_stall(stall);
    }

    /// Finishes this direction, and waits at most `within` until the peer has finished too. Only
    /// then it is certain that the last bytes were not lost: closing a socket with unread bytes
    /// resets the connection.
    ///
    /// # Errors
    /// Returns [`LaneError::Unexpected`] if the peer sends more bytes. Otherwise fails like
    /// [`StreamWriter::finish`], or like [`StreamReader::read_some`] during the wait.
    pub fn close(mut self, within: Duration) -> Result<LaneStats, LaneError> {
        let deadline = Instant::now() + within;
        self.writer.set_deadline(deadline);
        self.reader.set_deadline(deadline);
        self.writer.finish()?;
        self.reader.expect_end()?;
        Ok(self.control().stats())
    }

    /// Returns a handle that aborts the lane and reports its state from any thread.
    pub fn control(&self) -> StreamControl {
        self.reader.control()
    }

    /// Returns the transport of the lane.
    pub fn kind(&self) -> Kind {
        self.control().kind()
    }
}

impl StreamControl {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Returns the wire below the lane.
    pub(crate) fn wire(&self) -> &dyn Wire {
        &*self.0.wire
    }

    /// Records why the lane uses TCP although UDP was requested.
    pub(crate) fn set_fallback(&self, why: Fallback) {
        let _ = self.0.fallback.set(why);
    }

    /// Returns the options that the socket received.
    pub fn facts(&self) -> &SocketFacts {
        &self.0.facts
    }

    /// Returns the number of bytes that the kernel of the peer has not acknowledged. A slow peer
    /// acknowledges some from time to time; a dead one does not. `None` if the lane is not a
    /// socket.
    pub fn unacknowledged(&self) -> Option<u32> {
        self.0.wire.as_socket().and_then(|fd| unacknowledged_bytes(fd).ok())
    }

    /// Returns the state of the connection in the kernel, if it is TCP.
    pub fn tcp(&self) -> Option<TcpFacts> {
        self.0.wire.as_socket().and_then(|fd| tcp_facts(fd).ok())
    }
}

impl LaneControl for StreamControl {
    fn abort(&self) {
        self.0.wire.abort();
    }

    fn stats(&self) -> LaneStats {
        self.0.meter.stats()
    }

    fn kind(&self) -> Kind {
        self.0.kind
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    fn cipher(&self) -> &'static str {
        self.0.channel.as_ref().map_or(self.0.cipher, Channel::cipher)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.0.wire.round_trip()
    }

    fn packets(&self) -> Option<PacketStats> {
        self.0.wire.packets()
    }

    fn fallback(&self) -> Option<Fallback> {
        self.0.fallback.get().copied().or_else(|| self.0.wire.fallback())
    }
}

impl Lane for StreamLane {
    fn split(self: Box<Self>) -> (Box<dyn FrameReader>, Box<dyn FrameWriter>) {
        let (reader, writer) = StreamLane::split(*self);
        (Box::new(StreamFrameReader::new(reader)), Box::new(StreamFrameWriter::new(writer)))
    }

    fn control(&self) -> Arc<dyn LaneControl> {
        Arc::new(StreamLane::control(self))
    }
}

impl From<StreamLane> for Box<dyn Lane> {
    fn from(lane: StreamLane) -> Self {
        Box::new(lane)
    }
}

impl fmt::Debug for StreamControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("kind", &self.0.kind).field("peer", &self.0.peer).finish()
    }
}
