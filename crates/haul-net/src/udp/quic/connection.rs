//! One end of a QUIC connection, as a carrier.

use super::found::FoundRate;
use super::stripes::Place;
use super::{PROOF_BYTES, Proof, QuicSettings, STREAMS, endpoint};
use crate::pace::Pacer;
use crate::udp::carrier::Carrier;
use crate::udp::link::nanos;
use aws_lc_rs::constant_time;
use bytes::{Bytes, BytesMut};
use haul_udp::{Failure, Read, Reason, State, Stats, Time, Transmit};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, Incoming, ReadError,
    StreamEvent, StreamId, VarInt, WriteError,
};
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes that one call of sendmsg(2) segments on Linux, and maximum number of
/// segments.
const BATCH_BYTES: usize = 65_000;
const SEGMENTS_MAX: usize = 64;

/// Time at a fixed rate that one call sends.
const BURST: Duration = Duration::from_millis(1);

/// Bytes that wait to be sent for the first time, beside those in flight.
const UNSENT_BYTES: u64 = 256 << 10;

/// Time at a fixed rate whose bytes are accepted from users, beside two round trips.
const UNSENT_TIME: Duration = Duration::from_millis(100);

/// Code of a close after a wrong proof.
pub(super) const CODE_UNPROVEN: u32 = 4;

/// First code of a transport error that carries an alert of TLS (RFC 9001 section 4.8).
const TLS_ERRORS: u64 = 0x100;

/// Part of this end in the connection.
pub(in crate::udp) enum QuicRole<'a> {
    /// Connects to a server.
    Client(SocketAddr, &'a ClientConfig),
    /// Accepts the connection of the client.
    Server(&'a ServerConfig),
}

/// One end of a connection.
pub(in crate::udp) struct QuicConnection {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    /// Start of [`Time`].
    clock: Instant,
    proof: Proof,
    /// Received bytes of the proof, while it is incomplete.
    unproven: Option<Vec<u8>>,
    /// True once users may read and write.
    is_ready: bool,
    /// Places of the next byte to read and to write.
    reads_at: Place,
    writes_at: Place,
    /// True if the lane may have bytes, or room for bytes.
    is_readable: bool,
    is_writable: bool,
    /// True if the incoming direction has ended and all bytes are read.
    is_at_end: bool,
    /// True if the user ended the outgoing direction; and number of its streams whose end the peer
    /// knows.
    is_finished: bool,
    finishes_known: u32,
    /// Reason of the end.
    failure: Option<Failure>,
    has_heard: bool,
    /// True if there may be something to send.
    is_dirty: bool,
    pacer: Option<Arc<Pacer>>,
    /// Time before which the pacer lets nothing leave.
    paced_until: Time,
    /// Controller that finds the rate, and the time of its next decision if data wait for it.
    found: Option<FoundRate>,
    decides_at: Option<Time>,
    buffer: u64,
    /// Buffer for datagrams of the endpoint, which are not sent.
    scratch: Vec<u8>,
}

impl QuicConnection {
    /// Creates the end of a connection, whose time begins at `clock`.
    ///
    /// # Errors
    /// Returns a message if QUIC cannot be configured or the address is none.
    pub(in crate::udp) fn new(
        role: &QuicRole<'_>,
        settings: QuicSettings,
        proof: Proof,
        clock: Instant,
    ) -> Result<Self, String> {
        let (mut accepts, mut connects) = (None, None);
        let found = settings.found(clock);
        match role {
            QuicRole::Client(peer, tls) => {
                connects = Some((*peer, settings.client(tls, proof.id, found.as_ref())));
            }
            QuicRole::Server(tls) => accepts = Some(settings.server(tls, found.as_ref())),
        }
        let accepts = accepts.transpose().map_err(|error| error.to_string())?.map(Arc::new);
        let mut endpoint = Endpoint::new(endpoint(), accepts, true, None);
        let connection = connects.map(|(peer, config)| {
            let config = config.map_err(|error| error.to_string())?;
            endpoint.connect(clock, config, peer, "haul.invalid").map_err(|error| error.to_string())
        });
        Ok(Self {
            endpoint,
            connection: connection.transpose()?,
            clock,
            proof,
            unproven: None,
            is_ready: false,
            reads_at: Place::START,
            writes_at: Place::START,
            is_readable: false,
            is_writable: false,
            is_at_end: false,
            is_finished: false,
            finishes_known: 0,
            failure: None,
            has_heard: false,
            is_dirty: true,
            pacer: settings.pacer,
            paced_until: 0,
            found,
            decides_at: None,
            buffer: settings.buffer,
            scratch: Vec::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref().map(|(_, connection)| connection)
    }

    #[cfg(test)]
    pub(super) fn open_connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    fn instant(&self, now: Time) -> Instant {
        self.clock + Duration::from_nanos(now)
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Passes messages between the connection and its endpoint, and takes the events.
    fn process(&mut self, now: Time) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.as_mut().and_then(|(_, connection)| connection.poll()) {
            match event {
                Event::Connected => self.connected(),
                // The first bytes of a stream open it.
                Event::Stream(StreamEvent::Readable { .. } | StreamEvent::Opened { .. }) => {
                    self.is_readable = true;
                }
                Event::Stream(StreamEvent::Writable { .. }) => self.is_writable = true,
                Event::Stream(StreamEvent::Finished { .. }) => self.finishes_known += 1,
                Event::Stream(StreamEvent::Stopped { .. }) => {
                    self.fail(Failure::Violation("it stopped the stream"));
                }
                Event::ConnectionLost { reason } => {
                    let failure = failure(&reason);
                    self.fail(failure);
                }
                _ => {}
            }
        }
        if self.unproven.is_some() && self.is_readable {
            self.check_proof(now);
        }
    }

    /// Starts the first stream of a client with the proof. A server waits for it.
    fn connected(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        if connection.side().is_server() {
            self.unproven = Some(Vec::with_capacity(PROOF_BYTES));
            self.is_readable = true;
            return;
        }
        let proof = self.proof.bytes;
        if self.open_streams() && self.write_stream(0, &proof) == PROOF_BYTES {
            self.start();
        } else {
            self.fail(Failure::Violation("it admits too few streams"));
        }
    }

    /// Opens the outgoing streams. Returns false if the peer admits too few.
    fn open_streams(&mut self) -> bool {
        let Some((_, connection)) = &mut self.connection else { return false };
        (0..STREAMS).all(|_| connection.streams().open(Dir::Uni).is_some())
    }

    /// Lets users read and write.
    fn start(&mut self) {
        self.is_ready = true;
        self.is_writable = true;
        self.is_dirty = true;
        if self.is_finished {
            self.finish_streams();
        }
    }

    /// Reads the start of the first stream, and closes the connection if it is not the proof.
    fn check_proof(&mut self, now: Time) {
        let Some(mut received) = self.unproven.take() else { return };
        let mut rest = [0; PROOF_BYTES];
        match self.read_stream(0, &mut rest[received.len()..]) {
            Read::Bytes(bytes) => {
                let from = received.len();
                received.extend_from_slice(&rest[from..from + bytes]);
            }
            Read::Pending => {}
            Read::End => received.resize(PROOF_BYTES, 0),
        }
        if received.len() < PROOF_BYTES {
            self.unproven = Some(received);
        } else if constant_time::verify_slices_are_equal(&received, &self.proof.bytes).is_err() {
            self.fail(Failure::Violation("its proof is that of another connection"));
            self.close(now, CODE_UNPROVEN);
        } else if self.open_streams() {
            self.start();
        } else {
            self.fail(Failure::Violation("it admits too few streams"));
        }
    }

    /// Reads the incoming stream of this index.
    fn read_stream(&mut self, index: u64, target: &mut [u8]) -> Read {
        let Some((_, connection)) = &mut self.connection else { return Read::Pending };
        let id = StreamId::new(!connection.side(), Dir::Uni, index);
        let mut stream = connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Read::Pending };
        let mut filled = 0;
        let mut failure = None;
        while filled < target.len() {
            match chunks.next(target.len() - filled) {
                Ok(Some(chunk)) => {
                    target[filled..filled + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                    filled += chunk.bytes.len();
                }
                Ok(None) => {
                    self.is_at_end = true;
                    break;
                }
                Err(ReadError::Blocked) => {
                    self.is_readable = false;
                    break;
                }
                Err(ReadError::Reset(_)) => {
                    failure = Some(Failure::Violation("it reset the stream"));
                    break;
                }
            }
        }
        self.is_dirty |= chunks.finalize().should_transmit();
        if let Some(failure) = failure {
            self.fail(failure);
        }
        match filled {
            0 if self.is_at_end => Read::End,
            0 => Read::Pending,
            bytes => Read::Bytes(bytes),
        }
    }

    /// Writes to the outgoing stream of this index. Returns the number of bytes.
    fn write_stream(&mut self, index: u64, bytes: &[u8]) -> usize {
        let Some((_, connection)) = &mut self.connection else { return 0 };
        let id = StreamId::new(connection.side(), Dir::Uni, index);
        match connection.send_stream(id).write(bytes) {
            Ok(written) => {
                self.is_dirty |= written > 0;
                written
            }
            Err(WriteError::Blocked) => {
                self.is_writable = false;
                0
            }
            Err(_) => 0,
        }
    }

    fn finish_streams(&mut self) {
        let Some((_, connection)) = self.connection.as_mut().filter(|_| self.is_ready) else { return };
        for index in 0..STREAMS {
            let id = StreamId::new(connection.side(), Dir::Uni, u64::from(index));
            // An error means that the connection has ended.
            let _ = connection.send_stream(id).finish();
        }
        self.is_dirty = true;
    }

    /// Accepts the connection of the client if its first datagram has the connection ID that only
    /// this client knows. Other datagrams get no answer.
    fn accept(&mut self, incoming: Incoming, now: Instant) {
        let is_expected = constant_time::verify_slices_are_equal(incoming.orig_dst_cid(), &self.proof.id);
        if self.connection.is_some() || self.failure.is_some() || is_expected.is_err() {
            return self.endpoint.ignore(incoming);
        }
        self.scratch.clear();
        match self.endpoint.accept(incoming, now, &mut self.scratch, None) {
            Ok(accepted) => {
                self.connection = Some(accepted);
                self.has_heard = true;
            }
            Err(error) => self.fail(failure(&error.cause)),
        }
    }

    /// Lets users write what the path takes soon. More would only delay what is written later.
    fn limit_unsent(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        let wanted = match (&self.pacer, &self.found) {
            (None, None) => 2 * connection.congestion_state().window(),
            (None, Some(found)) => 2 * found.window(),
            (Some(pacer), _) => bytes_in(2 * connection.rtt() + UNSENT_TIME, pacer.rate()),
        };
        connection.set_send_window(wanted.saturating_add(UNSENT_BYTES).min(self.buffer));
    }
}

impl Carrier for QuicConnection {
    fn read(&mut self, target: &mut [u8]) -> Read {
        let mut filled = 0;
        while self.is_ready && !self.is_at_end && filled < target.len() {
            let (stream, len) = self.reads_at.next(target.len() - filled);
            let Read::Bytes(bytes) = self.read_stream(stream, &mut target[filled..filled + len]) else {
                break;
            };
            self.reads_at.advance(bytes);
            filled += bytes;
            if bytes < len {
                break;
            }
        }
        match filled {
            0 if self.is_at_end => Read::End,
            0 => Read::Pending,
            bytes => Read::Bytes(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while self.is_ready && !self.is_finished && self.failure.is_none() && written < bytes.len() {
            let (stream, len) = self.writes_at.next(bytes.len() - written);
            let count = self.write_stream(stream, &bytes[written..written + len]);
            self.writes_at.advance(count);
            written += count;
            if count < len {
                break;
            }
        }
        written
    }

    fn finish(&mut self) {
        if !self.is_finished {
            self.is_finished = true;
            self.finish_streams();
        }
    }

    fn is_readable(&self) -> bool {
        self.is_ready && (self.is_readable || self.is_at_end)
    }

    fn is_writable(&self) -> bool {
        self.is_ready && self.is_writable
    }

    fn is_flushed(&mut self) -> bool {
        let Some((_, connection)) = self.connection.as_mut().filter(|_| self.is_ready) else {
            return self.failure.is_some();
        };
        if self.is_finished {
            return self.finishes_known == STREAMS;
        }
        let (index, _) = self.writes_at.next(1);
        let id = StreamId::new(connection.side(), Dir::Uni, index);
        // With a window of one byte, a write is possible if no byte is unacknowledged.
        connection.set_send_window(1);
        let is_flushed = connection.send_stream(id).write(&[]).is_ok();
        self.limit_unsent();
        is_flushed
    }

    fn close(&mut self, now: Time, code: u32) {
        let now = self.instant(now);
        if let Some((_, connection)) = &mut self.connection
            && !connection.is_closed()
        {
            connection.close(now, VarInt::from_u32(code), Bytes::new());
            self.is_dirty = true;
        }
        self.fail(Failure::Aborted(code));
    }

    fn state(&self) -> State {
        self.failure.map_or(State::Open, State::Failed)
    }

    fn has_heard(&self) -> bool {
        self.has_heard
    }

    fn next_time(&mut self) -> Option<Time> {
        let timer = match &mut self.connection {
            _ if self.failure.is_some() => None,
            Some((_, connection)) => connection.poll_timeout(),
            None => return Some(Time::MAX),
        };
        let timer = timer.map(|timer| nanos(timer.saturating_duration_since(self.clock)));
        let due = (self.is_dirty && self.connection.is_some()).then_some(self.paced_until);
        let next = [timer, due, self.decides_at].into_iter().flatten().min();
        next.or(self.failure.is_none().then_some(Time::MAX))
    }

    fn transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        buffer.clear();
        let instant = self.instant(now);
        let (_, connection) = self.connection.as_mut()?;
        if connection.poll_timeout().is_some_and(|due| due <= instant) {
            connection.handle_timeout(instant);
            self.is_dirty = true;
            self.process(now);
        }
        self.is_dirty |= self.decides_at.take_if(|at| *at <= now).is_some();
        if !self.is_dirty || now < self.paced_until {
            return None;
        }
        let decision = self.found.as_ref().map(|found| found.decide(instant));
        let (_, connection) = self.connection.as_mut()?;
        let mtu = usize::from(connection.current_mtu());
        let batch = match (&self.pacer, decision) {
            (Some(pacer), _) => usize::try_from(bytes_in(BURST, pacer.rate())).unwrap_or(BATCH_BYTES),
            (None, Some((room, _))) => usize::try_from(room).unwrap_or(BATCH_BYTES),
            (None, None) => BATCH_BYTES,
        };
        let segments = (batch.min(BATCH_BYTES) / mtu).clamp(1, SEGMENTS_MAX);
        let frames = connection.stats().frame_tx.stream;
        let transmit = connection.poll_transmit(instant, segments, buffer);
        let has_data = connection.stats().frame_tx.stream > frames;
        let Some(transmit) = transmit else {
            self.is_dirty = false;
            if let (Some(found), Some((room, due))) = (&self.found, decision) {
                self.decides_at = due.map(|due| nanos(due.saturating_duration_since(self.clock)));
                if room > 0 {
                    found.idle(instant);
                }
            }
            self.process(now);
            return None;
        };
        if let Some(pacer) = &self.pacer {
            self.paced_until = now.saturating_add(nanos(pacer.reserve(transmit.size, instant)));
        }
        if let Some(found) = self.found.as_ref().filter(|_| has_data) {
            found.sent(instant, transmit.size as u64);
        }
        buffer.truncate(transmit.size);
        Some(Transmit { to: transmit.destination, segment: transmit.segment_size.unwrap_or(transmit.size) })
    }

    fn receive(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        let instant = self.instant(now);
        self.scratch.clear();
        let data = BytesMut::from(&*datagram);
        match self.endpoint.handle(instant, from, None, None, data, &mut self.scratch) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                    self.has_heard = true;
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(incoming, instant),
            // Nothing is sent without a connection.
            Some(DatagramEvent::Response(_)) | None => return,
        }
        self.is_dirty = true;
        self.limit_unsent();
        self.process(now);
    }

    fn stats(&self) -> Stats {
        let Some((_, connection)) = &self.connection else { return Stats::default() };
        let stats = connection.stats();
        let is_measured = !connection.is_handshaking();
        Stats {
            packets_sent: stats.udp_tx.datagrams,
            packets_received: stats.udp_rx.datagrams,
            packets_lost: stats.path.lost_packets,
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            rtt_min: if is_measured { nanos(stats.path.min_rtt) } else { 0 },
            rtt_smoothed: if is_measured { nanos(stats.path.rtt) } else { 0 },
            datagram: usize::from(stats.path.current_mtu),
            ..Stats::default()
        }
    }
}

impl fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicConnection")
            .field("is_ready", &self.is_ready)
            .field("reads_at", &self.reads_at)
            .field("writes_at", &self.writes_at)
            .field("failure", &self.failure)
            .finish()
    }
}

/// Returns the bytes that `rate` bytes per second send in `time`.
fn bytes_in(time: Duration, rate: u64) -> u64 {
    u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
}

/// Returns the reason of the end of a connection.
pub(super) fn failure(reason: &ConnectionError) -> Failure {
    let tls = Failure::Violation("the TLS handshake of QUIC failed; check the server for tampering");
    match reason {
        ConnectionError::TimedOut => Failure::Died,
        ConnectionError::ApplicationClosed(close) => {
            Failure::Closed(u32::try_from(close.error_code.into_inner()).unwrap_or(u32::MAX))
        }
        ConnectionError::Reset => Failure::Closed(crate::udp::wire::CODE_ABORTED),
        ConnectionError::TransportError(error) if u64::from(error.code) >= TLS_ERRORS => tls,
        ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) >= TLS_ERRORS => tls,
        ConnectionError::ConnectionClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason);
            Failure::Quic(Reason::new(&format!("by the peer: {:?} {reason}", close.error_code)))
        }
        ConnectionError::TransportError(error) => {
            Failure::Quic(Reason::new(&format!("{:?} {}", error.code, error.reason)))
        }
        ConnectionError::VersionMismatch => Failure::Violation("it uses another version of QUIC"),
        ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => {
            Failure::Quic(Reason::new(&reason.to_string()))
        }
    }
}
