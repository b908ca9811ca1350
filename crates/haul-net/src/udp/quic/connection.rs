//! One end of a QUIC connection with one stream, as a carrier.

use super::{PROOF_BYTES, Proof, QuicSettings, endpoint};
use crate::pace::Pacer;
use crate::udp::carrier::Carrier;
use crate::udp::link::nanos;
use aws_lc_rs::constant_time;
use bytes::{Bytes, BytesMut};
use haul_udp::{Failure, Read, State, Stats, Time, Transmit};
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
    /// The stream while its start is not proven.
    unproven: Option<(StreamId, Vec<u8>)>,
    /// The stream once users may read and write it.
    stream: Option<StreamId>,
    /// True if the stream may have bytes, or room for bytes.
    is_readable: bool,
    is_writable: bool,
    /// True if the stream has ended and all bytes are read.
    is_at_end: bool,
    /// True if the user ended the outgoing stream; and if the peer knows.
    is_finished: bool,
    is_finish_known: bool,
    /// Reason of the end.
    failure: Option<Failure>,
    has_heard: bool,
    /// True if there may be something to send.
    is_dirty: bool,
    pacer: Option<Arc<Pacer>>,
    /// Time before which the pacer lets nothing leave.
    paced_until: Time,
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
        match role {
            QuicRole::Client(peer, tls) => connects = Some((*peer, settings.client(tls, proof.id))),
            QuicRole::Server(tls) => accepts = Some(settings.server(tls)),
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
            stream: None,
            is_readable: false,
            is_writable: false,
            is_at_end: false,
            is_finished: false,
            is_finish_known: false,
            failure: None,
            has_heard: false,
            is_dirty: true,
            pacer: settings.pacer,
            paced_until: 0,
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
                Event::Connected => self.open_stream(),
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => self.accept_stream(),
                Event::Stream(StreamEvent::Readable { .. }) => self.is_readable = true,
                Event::Stream(StreamEvent::Writable { .. }) => self.is_writable = true,
                Event::Stream(StreamEvent::Finished { .. }) => self.is_finish_known = true,
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

    /// Opens the stream of a client, which starts with the proof.
    fn open_stream(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        if !connection.side().is_client() {
            return;
        }
        let proof = self.proof.bytes;
        let opened = connection.streams().open(Dir::Bi);
        let proven = opened.filter(|id| connection.send_stream(*id).write(&proof) == Ok(PROOF_BYTES));
        match proven {
            Some(id) => self.use_stream(id),
            None => self.fail(Failure::Violation("it admits no stream")),
        }
    }

    /// Takes the stream that the client opened; its start must be the proof.
    fn accept_stream(&mut self) {
        let Some((_, connection)) = &mut self.connection else { return };
        if let Some(id) = connection.streams().accept(Dir::Bi) {
            self.unproven = Some((id, Vec::with_capacity(PROOF_BYTES)));
            self.is_readable = true;
        }
    }

    fn use_stream(&mut self, id: StreamId) {
        self.stream = Some(id);
        self.is_writable = true;
        self.is_dirty = true;
        if self.is_finished {
            self.finish_stream();
        }
    }

    /// Reads the start of the stream, and closes the connection if it is not the proof.
    fn check_proof(&mut self, now: Time) {
        let Some((id, mut received)) = self.unproven.take() else { return };
        let mut rest = [0; PROOF_BYTES];
        match self.read_stream(id, &mut rest[received.len()..]) {
            Read::Bytes(bytes) => {
                let from = received.len();
                received.extend_from_slice(&rest[from..from + bytes]);
            }
            Read::Pending => {}
            Read::End => received.resize(PROOF_BYTES, 0),
        }
        if received.len() < PROOF_BYTES {
            self.unproven = Some((id, received));
        } else if constant_time::verify_slices_are_equal(&received, &self.proof.bytes).is_ok() {
            self.use_stream(id);
        } else {
            self.fail(Failure::Violation("its proof is that of another connection"));
            self.close(now, CODE_UNPROVEN);
        }
    }

    fn read_stream(&mut self, id: StreamId, target: &mut [u8]) -> Read {
        let Some((_, connection)) = &mut self.connection else { return Read::Pending };
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

    fn finish_stream(&mut self) {
        let (Some(id), Some((_, connection))) = (self.stream, &mut self.connection) else { return };
        // An error means that the connection has ended.
        let _ = connection.send_stream(id).finish();
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
        let wanted = match &self.pacer {
            None => 2 * connection.congestion_state().window(),
            Some(pacer) => bytes_in(2 * connection.rtt() + UNSENT_TIME, pacer.rate()),
        };
        connection.set_send_window(wanted.saturating_add(UNSENT_BYTES).min(self.buffer));
    }
}

impl Carrier for QuicConnection {
    fn read(&mut self, target: &mut [u8]) -> Read {
        match self.stream {
            _ if self.is_at_end => Read::End,
            Some(id) => self.read_stream(id, target),
            None => Read::Pending,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let (Some(id), Some((_, connection))) = (self.stream, &mut self.connection) else { return 0 };
        if self.is_finished || self.failure.is_some() {
            return 0;
        }
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

    fn finish(&mut self) {
        if !self.is_finished {
            self.is_finished = true;
            self.finish_stream();
        }
    }

    fn is_readable(&self) -> bool {
        self.stream.is_some() && (self.is_readable || self.is_at_end)
    }

    fn is_writable(&self) -> bool {
        self.stream.is_some() && self.is_writable
    }

    fn is_flushed(&mut self) -> bool {
        let (Some(id), Some((_, connection))) = (self.stream, &mut self.connection) else {
            return self.failure.is_some();
        };
        if self.is_finished {
            return self.is_finish_known;
        }
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
        let next = [timer, due].into_iter().flatten().min();
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
        if !self.is_dirty || now < self.paced_until {
            return None;
        }
        let (_, connection) = self.connection.as_mut()?;
        let mtu = usize::from(connection.current_mtu());
        let batch = self.pacer.as_ref().map_or(BATCH_BYTES, |pacer| {
            usize::try_from(bytes_in(BURST, pacer.rate())).unwrap_or(usize::MAX).min(BATCH_BYTES)
        });
        let transmit = connection.poll_transmit(instant, (batch / mtu).clamp(1, SEGMENTS_MAX), buffer);
        let Some(transmit) = transmit else {
            self.is_dirty = false;
            self.process(now);
            return None;
        };
        if let Some(pacer) = &self.pacer {
            self.paced_until = now.saturating_add(nanos(pacer.reserve(transmit.size, instant)));
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
            .field("stream", &self.stream)
            .field("failure", &self.failure)
            .finish()
    }
}

/// Returns the bytes that `rate` bytes per second send in `time`.
fn bytes_in(time: Duration, rate: u64) -> u64 {
    u64::try_from(u128::from(rate) * time.as_micros() / 1_000_000).unwrap_or(u64::MAX)
}

/// Returns the reason of the end of a connection.
fn failure(reason: &ConnectionError) -> Failure {
    let tls = |code: u64| {
        if code >= TLS_ERRORS {
            Failure::Violation("the TLS handshake of QUIC failed; check the server for tampering")
        } else {
            Failure::Violation("QUIC failed")
        }
    };
    match reason {
        ConnectionError::TimedOut => Failure::Died,
        ConnectionError::ApplicationClosed(close) => {
            Failure::Closed(u32::try_from(close.error_code.into_inner()).unwrap_or(u32::MAX))
        }
        ConnectionError::Reset => Failure::Closed(crate::udp::wire::CODE_ABORTED),
        ConnectionError::TransportError(error) => tls(error.code.into()),
        ConnectionError::ConnectionClosed(close) => tls(close.error_code.into()),
        ConnectionError::VersionMismatch => Failure::Violation("it uses another version of QUIC"),
        ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => Failure::Violation("QUIC failed"),
    }
}
