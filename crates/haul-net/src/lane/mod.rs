//! A lane: one connection to the other end, known and authenticated, that a worker owns.

mod error;
mod meter;
mod reader;
mod slices;
mod wire;
mod writer;

pub use error::{Doing, LaneError};
pub use meter::LaneStats;
pub use reader::LaneReader;
pub use writer::LaneWriter;

pub(crate) use meter::{Meter, Part};
pub(crate) use slices::Slices;
pub(crate) use wire::{Patience, Wire};

use crate::pace::Pacer;
use crate::socket::{self, SocketFacts, SocketSettings};
use crate::tls::{Channel, Inlet};
use haul_sys::socket::{TcpFacts, tcp_facts, unacknowledged_bytes};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A connection to the other end, blocking, in two directions. A lane that is dropped is cut off, and the other end
/// sees that; to end one well, [`close`](Self::close) it.
#[derive(Debug)]
pub struct Lane {
    reader: LaneReader,
    writer: LaneWriter,
}

/// What a lane runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TLS 1.3 over TCP.
    Tls,
    /// Bare TCP: nothing is encrypted, and that nobody on the way changes it is not known. An end that dies looks the same
    /// as one that finishes: the protocol above must say when it is done.
    Plain,
    /// Two pipes of a process that encrypts and knows the other end, as ssh does.
    Pipes,
    /// Another lane of this process.
    Local,
}

/// Ends a lane and tells about it from any thread.
#[derive(Clone)]
pub struct LaneControl(Arc<Shared>);

/// What both halves of a lane hold.
pub(crate) struct Shared {
    pub(crate) wire: Wire,
    pub(crate) channel: Option<Channel>,
    pub(crate) meter: Meter,
    kind: Kind,
    peer: Option<SocketAddr>,
    facts: SocketFacts,
}

/// What a lane holds in someone else's books, and gives back when both its halves are gone.
pub(crate) type Pass = Box<dyn std::any::Any + Send + Sync>;

/// Held by the two halves. When both are gone the connection ends, whoever still looks at the lane from outside.
pub(crate) struct Halves {
    pub(crate) shared: Arc<Shared>,
    pass: OnceLock<Pass>,
}

impl Drop for Halves {
    fn drop(&mut self) {
        // A lane that was closed has ended already; one that was not is cut off, which the other end sees.
        let _ = self.shared.wire.finish();
        self.shared.wire.abort();
    }
}

impl Lane {
    /// A lane in two pipes, such as a remote shell's standard input and output. The process that holds the other ends of
    /// the pipes encrypts and authenticates; here nothing is added. One such lane takes all that one ssh can carry, so
    /// there is no more than one in a pair of pipes.
    ///
    /// Writing to a pipe that nobody reads raises SIGPIPE; a program that wants an error instead ignores that signal,
    /// as Rust's do unless told otherwise.
    ///
    /// # Errors
    /// What eventfd(2) reports.
    pub fn over_pipes(input: OwnedFd, output: OwnedFd, stall: Option<Duration>) -> io::Result<Self> {
        let shared = Shared {
            wire: Wire::pipes(input, output)?,
            channel: None,
            meter: Meter::default(),
            kind: Kind::Pipes,
            peer: None,
            facts: SocketFacts::default(),
        };
        Ok(Self::new(shared, None).proven(stall, None, None))
    }

    /// The two ends of a lane within this process: for programs that send to themselves, and for tests.
    ///
    /// # Errors
    /// What socketpair(2) reports.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, two) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let lane = |end: OwnedFd| {
            let shared = Shared {
                wire: Wire::socket(end),
                channel: None,
                meter: Meter::default(),
                kind: Kind::Local,
                peer: None,
                facts: SocketFacts::default(),
            };
            Self::new(shared, None).proven(None, None, None)
        };
        Ok((lane(one), lane(two)))
    }

    /// A lane over TCP whose other end has proved nothing yet. With `tls`, the handshake is done.
    pub(crate) fn unproven(
        wire: Wire,
        tls: Option<(Channel, Inlet)>,
        peer: SocketAddr,
        facts: SocketFacts,
        deadline: Instant,
    ) -> Self {
        let kind = if tls.is_some() { Kind::Tls } else { Kind::Plain };
        let (channel, inlet) = tls.unzip();
        let meter = Meter::default();
        let shared = Shared { wire, channel, meter, kind, peer: Some(peer), facts };
        let mut lane = Self::new(shared, inlet);
        lane.reader.set_deadline(deadline);
        lane.writer.set_deadline(deadline);
        lane
    }

    /// Asks the kernel for what suits the path, which the handshake has measured.
    pub(crate) fn suit_path(&self, settings: &SocketSettings) {
        let control = self.control();
        if let (Some(socket), Some(tcp)) = (control.0.wire.as_socket(), control.tcp()) {
            socket::suit_path(socket, settings, tcp.shortest_round_trip);
        }
    }

    /// The same lane for work: the other end is known.
    pub(crate) fn proven(
        mut self,
        stall: Option<Duration>,
        pacer: Option<Arc<Pacer>>,
        pass: Option<Pass>,
    ) -> Self {
        if let Some(pass) = pass {
            self.reader.keep(pass);
        }
        self.reader.begin();
        self.writer.set_pacer(pacer);
        self.set_stall(stall);
        self
    }

    fn new(shared: Shared, inlet: Option<Inlet>) -> Self {
        let halves = Arc::new(Halves { shared: Arc::new(shared), pass: OnceLock::new() });
        Self { reader: LaneReader::new(halves.clone(), inlet), writer: LaneWriter::new(halves) }
    }

    /// The two halves, for two threads. They never wait for each other.
    pub fn split(self) -> (LaneReader, LaneWriter) {
        (self.reader, self.writer)
    }

    /// As [`LaneReader::read_exact`].
    ///
    /// # Errors
    /// As there.
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), LaneError> {
        self.reader.read_exact(buffer)
    }

    /// As [`LaneReader::read_exact_or_end`].
    ///
    /// # Errors
    /// As there.
    pub fn read_exact_or_end(&mut self, buffer: &mut [u8]) -> Result<bool, LaneError> {
        self.reader.read_exact_or_end(buffer)
    }

    /// As [`LaneWriter::write_all`].
    ///
    /// # Errors
    /// As there.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        self.writer.write_all(bytes)
    }

    /// As [`LaneWriter::write_all_vectored`].
    ///
    /// # Errors
    /// As there.
    pub fn write_all_vectored(&mut self, parts: &[&[u8]]) -> Result<(), LaneError> {
        self.writer.write_all_vectored(parts)
    }

    /// As [`LaneWriter::finish`]; the other direction stays open.
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self) -> Result<(), LaneError> {
        self.writer.finish()
    }

    /// Holds the rate of `pacer` in what this end writes from now on, or none.
    pub fn set_pacer(&mut self, pacer: Option<Arc<Pacer>>) {
        self.writer.set_pacer(pacer);
    }

    /// How long either half waits for a byte to move before it gives [`LaneError::Stalled`]; `None` is for ever.
    pub fn set_stall(&mut self, stall: Option<Duration>) {
        self.reader.set_stall(stall);
        self.writer.set_stall(stall);
    }

    /// Finishes, and waits until the other end has finished too, at most `within`. Only then is it known that the last
    /// bytes were not lost: a socket that is closed with bytes unread resets the connection.
    ///
    /// # Errors
    /// [`LaneError::Unexpected`] if the other end sends more, and as [`LaneWriter::finish`].
    pub fn close(mut self, within: Duration) -> Result<LaneStats, LaneError> {
        let deadline = Instant::now() + within;
        self.writer.set_deadline(deadline);
        self.reader.set_deadline(deadline);
        self.writer.finish()?;
        self.reader.expect_end()?;
        Ok(self.control().stats())
    }

    /// Ends it and tells about it from any thread.
    pub fn control(&self) -> LaneControl {
        self.reader.control()
    }

    /// What it runs over.
    pub fn kind(&self) -> Kind {
        self.control().kind()
    }
}

impl LaneControl {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Gives the lane up: both halves fail with [`LaneError::Aborted`], at once if they wait. The other end sees the
    /// connection cut off.
    pub fn abort(&self) {
        self.0.wire.abort();
    }

    /// What the lane did so far.
    pub fn stats(&self) -> LaneStats {
        self.0.meter.stats()
    }

    /// What the lane runs over.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The other end's address, where it has one.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.peer
    }

    /// What the socket was given of what was asked for.
    pub fn facts(&self) -> &SocketFacts {
        &self.0.facts
    }

    /// The cipher, or `none`.
    pub fn cipher(&self) -> &'static str {
        self.0.channel.as_ref().map_or("none", Channel::cipher)
    }

    /// Bytes that the other end's kernel has not acknowledged: a slow peer acknowledges some from time to time, a dead one
    /// does not. `None` where it is no socket.
    pub fn unacknowledged(&self) -> Option<u32> {
        self.0.wire.as_socket().and_then(|fd| unacknowledged_bytes(fd).ok())
    }

    /// The connection's state in the kernel, where it is TCP.
    pub fn tcp(&self) -> Option<TcpFacts> {
        self.0.wire.as_socket().and_then(|fd| tcp_facts(fd).ok())
    }
}

impl fmt::Debug for LaneControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("kind", &self.0.kind).field("peer", &self.0.peer).finish()
    }
}
