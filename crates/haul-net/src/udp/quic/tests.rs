//! Tests of pairs of connections in simulated time.

use super::connection::CODE_UNPROVEN;
use super::*;
use crate::tls::{Fingerprint, Identity};
use crate::udp::carrier::Carrier;
use haul_udp::{Failure, Read, State, Time};
use std::net::SocketAddr;

/// Delay of each datagram in nanoseconds.
const DELAY: Time = 5_000_000;

const MILLISECOND: Time = 1_000_000;

/// A client, a server, and the datagrams between them.
struct Pair {
    ends: [QuicConnection; 2],
    /// Arrival, receiver, datagram.
    path: Vec<(Time, usize, Vec<u8>)>,
    now: Time,
    /// Datagrams that each end sent, and their bytes.
    sent: [(u64, u64); 2],
    /// Each datagram whose number this divides is lost; 0 for none.
    loses: u64,
    /// Bytes per second and bytes of the queue of the path to the server; and the moment at which
    /// the queue is empty.
    bottleneck: Option<(u64, u64)>,
    empty_at: Time,
    /// Datagrams that found the queue full.
    dropped: u64,
}

/// Differences between the two ends.
struct Ends<'a> {
    /// Fingerprint that the client expects; `None` for that of the server.
    expects: Option<Fingerprint>,
    /// Values that the client exported.
    client: [u8; ID_BYTES + PROOF_BYTES],
    pacer: Option<Arc<Pacer>>,
    tls: Option<(&'a ClientConfig, &'a ServerConfig)>,
    buffer: u64,
    datagram_max: u16,
}

const SAME: Ends<'_> = Ends {
    expects: None,
    client: [7; ID_BYTES + PROOF_BYTES],
    pacer: None,
    tls: None,
    buffer: 4 << 20,
    datagram_max: 8972,
};

fn addresses() -> [SocketAddr; 2] {
    [([127, 0, 0, 1], 1001).into(), ([127, 0, 0, 1], 1002).into()]
}

fn tls(expects: Option<Fingerprint>) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let identity = Identity::generate().expect("a certificate");
    let client = tls::client_config(expects.unwrap_or(identity.fingerprint())).expect("a configuration");
    (client, tls::server_config(&identity).expect("a configuration"))
}

fn settings(ends: &Ends<'_>) -> QuicSettings {
    QuicSettings {
        congestion: Congestion::default(),
        pacer: ends.pacer.clone(),
        buffer: ends.buffer,
        datagram_max: ends.datagram_max,
        round_trip: Duration::from_nanos(2 * DELAY),
        idle: Duration::from_secs(30),
    }
}

impl Pair {
    fn new(ends: &Ends<'_>) -> Self {
        let made = tls(ends.expects);
        let (client, server) = ends.tls.unwrap_or((&made.0, &made.1));
        let clock = Instant::now();
        let (client, server) = (QuicRole::Client(addresses()[1], client), QuicRole::Server(server));
        let here = Proof::split(&ends.client);
        let there = Proof::split(&[7; ID_BYTES + PROOF_BYTES]);
        let unpaced = Ends { pacer: None, ..*ends };
        let ends = [
            QuicConnection::new(&client, settings(ends), here, clock).expect("a client"),
            QuicConnection::new(&server, settings(&unpaced), there, clock).expect("a server"),
        ];
        Self {
            ends,
            path: Vec::new(),
            now: 0,
            sent: [(0, 0); 2],
            loses: 0,
            bottleneck: None,
            empty_at: 0,
            dropped: 0,
        }
    }

    /// Takes a datagram of an end. Returns the moment of its arrival, unless it is lost.
    fn arrival(&mut self, at: usize, len: u64) -> Option<Time> {
        let (count, bytes) = &mut self.sent[at];
        (*count, *bytes) = (*count + 1, *bytes + len);
        if self.loses != 0 && *count % self.loses == 0 {
            return None;
        }
        let Some((rate, queue)) = self.bottleneck.filter(|_| at == 0) else {
            return Some(self.now + DELAY);
        };
        let waits = self.empty_at.saturating_sub(self.now);
        if waits / 1000 * rate / 1_000_000 > queue {
            self.dropped += 1;
            return None;
        }
        self.empty_at = self.empty_at.max(self.now) + len * 1_000_000_000 / rate;
        Some(self.empty_at + DELAY)
    }

    /// Lets time pass until `is_done`, at most 20 s. Returns true if it is.
    fn until(&mut self, mut is_done: impl FnMut(&mut [QuicConnection; 2]) -> bool) -> bool {
        let end = self.now + 20_000 * MILLISECOND;
        let mut out = Vec::new();
        while self.now < end {
            for at in 0..2 {
                while let Some(transmit) = self.ends[at].transmit(self.now, &mut out) {
                    for datagram in out.chunks(transmit.segment) {
                        if let Some(arrival) = self.arrival(at, datagram.len() as u64) {
                            self.path.push((arrival, 1 - at, datagram.to_vec()));
                        }
                    }
                }
            }
            if is_done(&mut self.ends) {
                return true;
            }
            let arrival = self.path.iter().map(|(time, ..)| *time).min();
            let due = self.ends.iter_mut().filter_map(Carrier::next_time).min();
            let next = arrival.into_iter().chain(due).min().unwrap_or(end);
            self.now = next.max(self.now).min(end);
            let now = self.now;
            let (arrived, path) = self.path.drain(..).partition(|(time, ..)| *time <= now);
            self.path = path;
            let arrived: Vec<(Time, usize, Vec<u8>)> = arrived;
            for (_, at, mut datagram) in arrived {
                self.ends[at].receive(now, addresses()[1 - at], &mut datagram);
            }
        }
        false
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }
}

/// Moves all of `bytes` from `from` to `to` while time passes, and then the end.
fn carry(pair: &mut Pair, from: usize, to: usize, bytes: &[u8]) {
    let (mut written, mut read) = (0, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    let done = pair.until(|ends| {
        written += ends[from].write(&bytes[written..]);
        if written == bytes.len() {
            ends[from].finish();
        }
        loop {
            // Users wait for it.
            if !ends[to].is_readable() {
                return false;
            }
            match ends[to].read(&mut buffer) {
                Read::Bytes(count) => read.extend_from_slice(&buffer[..count]),
                Read::Pending => return false,
                Read::End => return true,
            }
        }
    });
    assert!(done && read == bytes, "{:?}: {} of {}", pair.states(), read.len(), bytes.len());
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn bytes_and_ends_arrive_in_both_directions_despite_loss() {
    for loses in [0, 20, 7] {
        let mut pair = Pair::new(&SAME);
        pair.loses = loses;
        carry(&mut pair, 0, 1, &some_bytes(3 << 20));
        carry(&mut pair, 1, 0, &some_bytes(1 << 20));
        assert!(pair.until(|ends| ends[0].is_flushed() && ends[1].is_flushed()));
        assert_eq!(pair.states(), [State::Open; 2]);
        let stats = pair.ends[0].stats();
        assert!(stats.packets_sent > 100 && stats.rtt_min >= 2 * DELAY, "{stats:?}");
        assert_eq!(stats.packets_lost > 0, loses > 0, "{stats:?}");
    }
}

/// Jumbo frames pass here, so the datagrams grow to the limit, which quinn-proto handles.
#[test]
fn datagrams_grow_to_jumbo_frames() {
    let mut pair = Pair::new(&SAME);
    carry(&mut pair, 0, 1, &some_bytes(8 << 20));
    assert!(pair.ends[0].stats().datagram > 8900, "{:?}", pair.ends[0].stats());
}

/// The bytes of a user that leaves without an end arrive, and then the early end.
#[test]
fn end_without_finish_is_no_clean_end() {
    let mut pair = Pair::new(&SAME);
    let mut is_written = false;
    assert!(pair.until(|ends| {
        is_written = is_written || ends[0].write(b"early") == 5;
        is_written && ends[0].is_flushed()
    }));
    let now = pair.now;
    pair.ends[0].close(now, 3);
    assert!(pair.until(|ends| ends[1].state() != State::Open));
    let mut buffer = [0; 16];
    assert_eq!(pair.ends[1].read(&mut buffer), Read::Bytes(5));
    assert_eq!(pair.ends[1].read(&mut buffer), Read::Pending);
    assert_eq!(pair.states(), [State::Failed(Failure::Aborted(3)), State::Failed(Failure::Closed(3))]);
    // Both ends need no more datagrams.
    assert_eq!(pair.ends[0].next_time(), None);
    assert!(pair.until(|ends| ends[1].next_time().is_none()));
}

#[test]
fn connection_with_the_proof_of_another_lane_is_refused() {
    let mut exported = [7; ID_BYTES + PROOF_BYTES];
    exported[ID_BYTES + PROOF_BYTES - 1] ^= 1;
    let mut pair = Pair::new(&Ends { client: exported, ..SAME });
    let mut buffer = [0; 16];
    let mut is_written = false;
    assert!(pair.until(|ends| {
        is_written = is_written || ends[0].write(b"forged") > 0;
        assert_eq!(ends[1].read(&mut buffer), Read::Pending);
        assert_eq!(ends[1].write(b"secret"), 0);
        ends.iter().all(|end| end.state() != State::Open)
    }));
    let refusal = Failure::Violation("its proof is that of another connection");
    assert_eq!(
        pair.states(),
        [State::Failed(Failure::Closed(CODE_UNPROVEN)), State::Failed(refusal)],
        "{:?}",
        pair.ends
    );
    assert_eq!(pair.ends[1].read(&mut buffer), Read::Pending);
}

#[test]
fn connection_to_another_id_gets_no_answer() {
    let mut exported = [7; ID_BYTES + PROOF_BYTES];
    exported[0] ^= 1;
    let mut pair = Pair::new(&Ends { client: exported, ..SAME });
    assert!(!pair.until(|ends| ends[1].has_heard() || ends[0].has_heard()));
    assert!(pair.sent[0].0 > 1);
    assert_eq!(pair.sent[1], (0, 0));
}

/// Attackers know the port of a lane, but not its connection ID.
#[test]
fn ten_thousand_half_open_handshakes_leave_no_state() {
    let mut pair = Pair::new(&SAME);
    let (client, _) = tls(None);
    let mut out = Vec::new();
    for number in 0..10_000_u32 {
        let mut exported = [0; ID_BYTES + PROOF_BYTES];
        exported[..4].copy_from_slice(&number.to_le_bytes());
        let role = QuicRole::Client(addresses()[1], &client);
        let settings = settings(&SAME);
        let clock = Instant::now();
        let mut attacker =
            QuicConnection::new(&role, settings, Proof::split(&exported), clock).expect("a client");
        let from = SocketAddr::from((number.to_be_bytes(), 1001));
        while let Some(transmit) = attacker.transmit(0, &mut out) {
            for datagram in out.chunks_mut(transmit.segment) {
                pair.ends[1].receive(0, from, datagram);
            }
        }
        assert!(attacker.stats().packets_sent > 0);
        assert!(pair.ends[1].transmit(0, &mut out).is_none(), "an answer to {from}");
    }
    assert!(!pair.ends[1].has_heard() && pair.ends[1].connection().is_none());
    assert_eq!(pair.ends[1].open_connections(), 0);
    carry(&mut pair, 0, 1, &some_bytes(100_000));
}

#[test]
fn server_with_another_certificate_is_refused() {
    let other = Identity::generate().expect("a certificate").fingerprint();
    let mut pair = Pair::new(&Ends { expects: Some(other), ..SAME });
    assert!(pair.until(|ends| {
        assert_eq!(ends[0].write(b"secret"), 0);
        ends[0].state() != State::Open && ends[1].state() != State::Open
    }));
    for state in pair.states() {
        let is_tls =
            matches!(state, State::Failed(Failure::Violation(what)) if what.contains("TLS handshake"));
        assert!(is_tls, "{state:?}");
    }
}

/// No data leaves before the handshake of a second connection of the same two ends is complete.
#[test]
fn no_early_data_is_sent_or_accepted() {
    let (client, server) = tls(None);
    assert_eq!((server.max_early_data_size, server.send_tls13_tickets), (0, 0));
    assert!(!client.enable_early_data);
    for _ in 0..2 {
        let mut pair = Pair::new(&Ends { tls: Some((&client, &server)), ..SAME });
        let connection = |end: &QuicConnection| {
            end.connection().map_or((false, false), |one| (one.has_0rtt(), one.accepted_0rtt()))
        };
        assert_eq!(pair.ends[0].write(b"early"), 0);
        carry(&mut pair, 0, 1, b"late");
        assert!(pair.ends.iter().all(|end| connection(end) == (false, false)));
        assert!(pair.until(|ends| ends[0].is_flushed()));
    }
}

/// Regression: a receiver with more than 1,024 gaps in a stream ended the connection.
#[test]
fn connection_survives_the_loss_of_every_second_datagram_of_a_window() {
    let pacer = Some(Arc::new(Pacer::new(2_000_000_000)));
    let mut pair = Pair::new(&Ends { pacer, buffer: 32 << 20, datagram_max: 1472, ..SAME });
    assert!(pair.until(|ends| ends[0].is_writable() && ends[1].is_writable()));
    pair.loses = 2;
    carry(&mut pair, 0, 1, &some_bytes(40 << 20));
}

/// Regression: the sender filled the queue of the path until it overflowed, and half of the
/// datagrams were lost.
#[test]
fn found_rate_fills_a_path_and_spares_its_queue() {
    for (rate, queue, loses) in
        [(20_000_000, 160_000, 0), (20_000_000, 400_000, 0), (20_000_000, 200_000, 100)]
    {
        let mut pair = Pair::new(&Ends { datagram_max: 1472, ..SAME });
        (pair.bottleneck, pair.loses) = (Some((rate, queue)), loses);
        let bytes = some_bytes(40 << 20);
        carry(&mut pair, 0, 1, &bytes);
        let ideal = bytes.len() as f64 / rate as f64 * 1e9;
        let ratio = pair.now as f64 / ideal;
        let dropped = pair.dropped as f64 / pair.sent[0].0 as f64;
        assert!(
            ratio < 1.15 && dropped < 0.01,
            "{queue}, {loses}: {ratio:.3} of the time, {dropped:.4} dropped"
        );
    }
}

#[test]
fn reason_of_quic_is_named() {
    let close = quinn_proto::ConnectionClose {
        error_code: quinn_proto::TransportErrorCode::INTERNAL_ERROR,
        frame_type: None,
        reason: b"too many gaps in \x1b stream buffer"[..].into(),
    };
    let failure = super::connection::failure(&quinn_proto::ConnectionError::ConnectionClosed(close));
    let expected = "QUIC failed: by the peer: INTERNAL_ERROR too many gaps in ? stream buffer";
    assert_eq!(failure.to_string(), expected);
}

#[test]
fn fixed_rate_is_held_despite_loss() {
    let rate = 2_000_000;
    let mut pair = Pair::new(&Ends { pacer: Some(Arc::new(Pacer::new(rate))), ..SAME });
    pair.loses = 10;
    assert!(pair.until(|ends| ends[0].write(&[0; 1]) == 1));
    let (begin, before) = (pair.now, pair.sent[0].1);
    let block = some_bytes(64 << 10);
    let mut buffer = vec![0; 64 << 10];
    let mut rounds = 0;
    assert!(pair.until(|ends| {
        ends[0].write(&block);
        while let Read::Bytes(_) = ends[1].read(&mut buffer) {}
        rounds += 1;
        rounds > 5000
    }));
    let sent = (pair.sent[0].1 - before) as f64;
    let expected = rate as f64 * (pair.now - begin) as f64 / 1e9;
    assert!((sent / expected - 1.0).abs() < 0.02, "{sent} {expected}");
}
