//! One end of an association.

mod incoming;
mod leaving;
mod outgoing;
mod timers;

use crate::arrivals::Arrivals;
use crate::check::Seal;
use crate::chunk::ChunkSearch;
use crate::config::{Chunk, Config, Failure, Role, State, Stats, nanos};
use crate::flight::{Flight, Outcome, RECORD_BYTES, RECORDS_MIN};
use crate::pace::Pacer;
use crate::packet::{COMPLETE, HEADER_LEN, STREAM_LEN, VIOLATION};
use crate::rate::Control;
use crate::receive::ReceiveBuffer;
use crate::rtt::Rtt;
use crate::send::SendBuffer;
use crate::time::{MILLI, Time, bytes_in};
use crate::train::{Arrival, Trains};
use std::fmt;

/// Result of [`Association::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This number of bytes, above 0, was copied.
    Bytes(usize),
    /// Nothing has arrived yet.
    Pending,
    /// The stream has ended and all bytes are read.
    End,
}

/// Datagrams of [`Association::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<A> {
    /// Address of the peer.
    pub to: A,
    /// Length of each datagram in bytes. The last datagram may be shorter.
    pub segment: usize,
}

/// Maximum number of datagrams of one call of [`Association::transmit`], and maximum number of
/// bytes of more than one datagram: limits of segmentation offload on Linux.
pub(crate) const SEGMENTS_MAX: usize = 64;
pub(crate) const BATCH_MAX: usize = 65_000;

/// Maximum number of bytes that wait to be sent for the first time: this number, and those of this
/// time at the rate. A writer must write again within that time.
const UNSENT_BYTES: u64 = 256 << 10;
const UNSENT_TIME: Time = 50 * MILLI;

/// Data packets at the start of an association that leave without pacing.
const UNPACED: usize = 32;

/// Acknowledgement that this end owes to the peer.
#[derive(Clone, Copy, Debug, Default)]
struct OwedAck {
    /// Moment at which the acknowledgement has to leave.
    due: Option<Time>,
    /// Packets and bytes since the last acknowledgement.
    packets: u64,
    bytes: u64,
    last: Time,
    /// Arrival of the packet with the highest number.
    largest_at: Time,
    /// Credit of the last acknowledgement.
    credit: u64,
}

/// Closing of the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Closing {
    code: u32,
    /// Number of CLOSE frames that are still sent.
    left: u32,
    next: Time,
}

/// One end of a reliable byte stream in each direction. `A` is the type of addresses.
///
/// After each call of [`Association::receive`], [`Association::write`], [`Association::read`],
/// [`Association::finish`] or [`Association::close`], and at [`Association::next_time`], call
/// [`Association::transmit`] until it returns `None`.
pub struct Association<A> {
    config: Config<A>,
    seal: Box<dyn Seal>,
    open: Box<dyn Seal>,
    state: State,
    start: Time,
    /// Address of the peer, if known.
    peer: Option<A>,
    /// Arrival of the last authentic packet.
    heard: Option<Time>,
    /// The peer has proved that it receives at its address.
    is_proven: bool,
    stream: SendBuffer,
    received: ReceiveBuffer,
    /// Position up to which the peer accepts bytes.
    credit: u64,
    arrivals: Arrivals,
    owed: OwedAck,
    flight: Flight,
    rtt: Rtt,
    control: Control,
    pacer: Pacer,
    chunk: ChunkSearch,
    /// Round-trip time that the peer measured, in nanoseconds.
    peer_rtt: Option<u64>,
    /// Time and value of the last RTT frame.
    rtt_sent: Option<(Time, u64)>,
    pong: Option<u64>,
    is_ping_due: bool,
    /// Packets sent since the last one that requires an acknowledgement.
    quiet: u64,
    /// Trains that this end sends, and the last one that it received.
    trains: Trains,
    /// Data packets that still leave without pacing: the messages of a start.
    unpaced: usize,
    train: Arrival,
    /// Probe timeouts in a row, and the moment from which the next is counted.
    timeouts: u32,
    progress: Time,
    /// Data packets that may leave regardless of rate and window.
    forced: usize,
    /// Highest number that the peer acknowledged.
    acked_number: u64,
    closing: Option<Closing>,
    runs: Vec<u8>,
    stats: Stats,
}

impl<A: fmt::Debug> fmt::Debug for Association<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Association")
            .field("state", &self.state)
            .field("peer", &self.peer)
            .field("stats", &self.stats)
            .field("closing", &self.closing)
            .field("owed", &self.owed)
            .field("timeouts", &self.timeouts)
            .field("forced", &self.forced)
            .field("pacer", &self.pacer)
            .field("chunk", &self.chunk)
            .field("control", &self.control)
            .finish_non_exhaustive()
    }
}

impl<A: Copy + Eq> Association<A> {
    /// Creates an end. `seal` protects the packets that this end sends and `open` those of the
    /// peer; the two have different keys.
    ///
    /// # Panics
    /// Panics if a fixed chunk is not [`crate::CHUNK_MIN`] to [`crate::CHUNK_MAX`] bytes, or if the
    /// overhead of `seal` exceeds [`crate::OVERHEAD_MAX`].
    pub fn new(config: Config<A>, seal: Box<dyn Seal>, open: Box<dyn Seal>, now: Time) -> Self {
        let around = HEADER_LEN + STREAM_LEN + seal.overhead();
        assert!(seal.overhead() <= crate::OVERHEAD_MAX, "an overhead of a seal");
        let chunk = match config.chunk {
            Chunk::Fixed(chunk) => {
                assert!((crate::CHUNK_MIN..=crate::CHUNK_MAX).contains(&chunk), "a chunk within its limits");
                ChunkSearch::fixed(chunk + around, now)
            }
            Chunk::Found { max } => ChunkSearch::found(max, now),
        };
        let rtt = Rtt::new(now, config.rtt.map(nanos));
        let control = Control::new(config.rate, now, &rtt, config.token);
        let unpaced = if control.is_held() { 0 } else { UNPACED };
        let peer = match config.role {
            Role::Initiator(to) => Some(to),
            Role::Acceptor => None,
        };
        let pacer = Pacer::new(now, control.is_held(), nanos(config.burst));
        let received = ReceiveBuffer::new(config.receive_buffer);
        let owed = OwedAck { credit: received.credit(), ..OwedAck::default() };
        Self {
            seal,
            open,
            state: State::Open,
            start: now,
            peer,
            heard: None,
            is_proven: peer.is_some(),
            stream: SendBuffer::new(config.send_buffer),
            received,
            credit: config.remote_buffer,
            arrivals: Arrivals::new(),
            owed,
            flight: Flight::new(now, u32::try_from(crate::DATAGRAM_MIN).unwrap_or(u32::MAX)),
            rtt,
            control,
            pacer,
            chunk,
            peer_rtt: config.rtt.map(nanos),
            rtt_sent: None,
            pong: None,
            is_ping_due: peer.is_some(),
            quiet: 0,
            trains: Trains::new(),
            unpaced,
            train: Arrival::default(),
            timeouts: 0,
            progress: now,
            forced: 0,
            acked_number: 0,
            closing: None,
            runs: Vec::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Copies bytes to the end of the outgoing stream and returns their number, which is below the
    /// length of `bytes` if the buffer is full, and 0 after [`Association::finish`].
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let (unsent, len) = (self.unsent_max(), bytes.len().min(self.writable()));
        self.stream.write(&bytes[..len], unsent)
    }

    /// Number of bytes that [`Association::write`] accepts now.
    pub fn writable(&self) -> usize {
        if self.state != State::Open {
            return 0;
        }
        let room = usize::try_from(self.buffer_room()).unwrap_or(usize::MAX);
        self.stream.writable(self.unsent_max()).min(room)
    }

    /// Number of bytes for which the send buffer has room besides the records of packets: those
    /// that exist, and those that the bytes in the buffer will need.
    fn buffer_room(&self) -> u64 {
        let (capacity, chunk) = (self.config.send_buffer as u64, self.chunk.size as u64);
        let most = u128::from(capacity) * u128::from(chunk) / u128::from(chunk + RECORD_BYTES as u64);
        let spare = self.flight.records().saturating_sub(RECORDS_MIN) * RECORD_BYTES;
        let most = u64::try_from(most).unwrap_or(u64::MAX).min(capacity.saturating_sub(spare as u64));
        most.saturating_sub(self.stream.buffered())
    }

    /// Maximum number of records of packets besides the bytes in the send buffer.
    fn records_max(&self) -> usize {
        let room = (self.config.send_buffer as u64).saturating_sub(self.stream.buffered());
        usize::try_from(room / RECORD_BYTES as u64).unwrap_or(usize::MAX).max(RECORDS_MIN)
    }

    /// Maximum number of bytes that wait to be sent for the first time. More would only delay what
    /// is written later, such as the end of an interrupted job.
    fn unsent_max(&self) -> u64 {
        let least = if self.control.wants_train() { self.trains.bytes(self.chunk.size) } else { 0 };
        (UNSENT_BYTES + bytes_in(UNSENT_TIME, self.control.rate())).max(least)
    }

    /// Ends the outgoing stream after the bytes written so far.
    pub fn finish(&mut self) {
        self.stream.finish();
    }

    /// Copies bytes of the incoming stream. Bytes that arrived before a failure can be read after
    /// it.
    pub fn read(&mut self, target: &mut [u8]) -> Read {
        if self.received.is_at_end() {
            return Read::End;
        }
        match self.received.read(target) {
            0 => Read::Pending,
            count => {
                self.stats.payload_read += count as u64;
                Read::Bytes(count)
            }
        }
    }

    /// Number of bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.received.readable()
    }

    /// True if the incoming stream has ended and all bytes are read.
    pub fn is_at_end(&self) -> bool {
        self.received.is_at_end()
    }

    /// True if every byte and the end of the outgoing stream are acknowledged, and every byte and
    /// the end of the incoming stream have arrived. [`State::Finished`] follows when the peer knows
    /// this.
    pub fn is_complete(&self) -> bool {
        self.stream.is_done() && self.received.is_complete()
    }

    /// True if the peer has not acknowledged all that was written, or not the end.
    pub fn is_flushing(&self) -> bool {
        self.stream.is_pending()
    }

    /// Ends the association with a code above 2, which the peer receives if the path permits. A
    /// complete association finishes without waiting until the peer knows it.
    pub fn close(&mut self, now: Time, code: u32) {
        if self.state == State::Open && self.is_complete() {
            self.state = State::Finished;
            self.closing = Some(Closing { code: COMPLETE, left: 3, next: now });
        }
        self.fail(now, Failure::Aborted(code), Some(code.max(VIOLATION + 1)));
    }

    /// State of the association.
    pub fn state(&self) -> State {
        self.state
    }

    /// Address of the peer, if known.
    pub fn peer(&self) -> Option<A> {
        self.peer
    }

    /// Time in nanoseconds since the last authentic packet of the peer, or since the start.
    pub fn silent_for(&self, now: Time) -> u64 {
        now.saturating_sub(self.heard.unwrap_or(self.start))
    }

    /// True if an authentic packet of the peer has arrived.
    pub fn has_heard(&self) -> bool {
        self.heard.is_some()
    }

    /// Figures so far.
    pub fn stats(&self) -> Stats {
        Stats {
            payload_acked: self.stream.start(),
            rtt_min: self.rtt.min.unwrap_or(0),
            rtt_smoothed: if self.rtt.has_sample() { self.rtt.smoothed() } else { 0 },
            rate: self.control.rate(),
            delivery_rate: self.control.delivery_rate(),
            queue: self.control.queue(),
            in_flight: self.flight.in_flight,
            datagram: self.chunk.size,
            memory: self.stream.memory() + self.received.memory() + self.flight.memory(),
            ..self.stats
        }
    }

    /// Ends the association, with CLOSE frames if there is a code.
    fn fail(&mut self, now: Time, failure: Failure, code: Option<u32>) {
        if self.state != State::Open {
            return;
        }
        self.state = State::Failed(failure);
        self.closing = code.map(|code| Closing { code, left: 3, next: now });
    }

    /// Takes the effects of an acknowledgement or a timer. `is_congestion` is false if a probe
    /// timeout declared packets lost only to send them again.
    fn take_outcome(&mut self, now: Time, outcome: &Outcome, is_congestion: bool) {
        self.stats.packets_lost += outcome.lost_packets;
        self.stats.losses_spurious += outcome.spurious;
        for size in &outcome.probes_acked {
            self.chunk.arrived(now, *size as usize, true);
        }
        if outcome.largest_acked > 0 {
            self.chunk.arrived(now, outcome.largest_acked as usize, false);
        }
        for size in &outcome.probes_lost {
            self.chunk.probe_lost(now, *size as usize);
        }
        if let Err(works) = self.chunk.large_lost(now, outcome.large_lost, self.rtt.smoothed()) {
            self.fail(now, Failure::ChunkTooLarge { chunk: self.chunk.size, works }, Some(VIOLATION));
        }
        if is_congestion {
            let (in_flight, delivered) = (self.flight.in_flight, self.flight.delivered);
            let old = self.control.rate();
            self.control.on_outcome(now, outcome, &self.rtt, in_flight, delivered);
            self.pacer.change_rate(now, old, self.control.rate());
        }
    }
}
