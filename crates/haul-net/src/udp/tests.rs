//! Lanes over UDP whose datagrams stop passing at any moment.

use super::fallback::{Bounds, Fallback};
use super::socket::Socket;
use super::wire::Terms;
use super::{UdpError, UdpWire};
use crate::lane::{Kind, LaneControl as _, LaneError, SocketWire, StreamLane, StreamReader, StreamWriter};
use crate::lane::{WaitTimeout, Wire as _};
use crate::socket::SocketFacts;
use haul_udp::{Association, Chunk, Config, Crc32c, Role};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout, longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

/// Bounds that a test reaches soon. On a loaded machine ends leave without a reason too.
const SOON: Bounds = Bounds {
    first: Duration::from_millis(60),
    silence: Duration::from_millis(60),
    judgement: Duration::from_secs(3600),
};

/// Bounds that a test never reaches.
const NEVER: Bounds = Bounds { first: LONG, silence: LONG, judgement: LONG };

const SEEDS: u64 = 200;

/// Seeded random numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.draw() % bound).expect("a small number")
    }
}

/// Returns both ends of a TCP connection.
fn connection() -> [StreamLane; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let (far, _) = listener.accept().expect("accepts");
    [near, far].map(|stream| {
        let peer = stream.peer_addr().expect("connected");
        let wire = Box::new(SocketWire::new(stream.into()));
        StreamLane::unauthenticated(wire, None, peer, SocketFacts::default(), Instant::now() + LONG)
            .authenticated(None, None, None)
    })
}

fn sockets(passes: [usize; 2]) -> [Socket; 2] {
    passes.map(|passes| {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Socket::open(local, None, Chunk::Found { max: 1472 }).expect("a socket");
        socket.passes.store(passes, Ordering::Relaxed);
        socket
    })
}

/// Returns an end over `control`; a client if there is an address of the server.
fn end(control: StreamLane, socket: Socket, server: Option<SocketAddr>, bounds: Bounds) -> StreamLane {
    end_since(Instant::now(), control, socket, server, bounds)
}

/// Returns an end like [`end`] whose time began at `clock`.
fn end_since(
    clock: Instant,
    control: StreamLane,
    socket: Socket,
    server: Option<SocketAddr>,
    bounds: Bounds,
) -> StreamLane {
    let peer = control.control().peer();
    let wire = Box::new(wire(clock, control, socket, server, bounds));
    StreamLane::over_udp(wire, Kind::Udp, "none", peer).authenticated(Some(LONG), None, None)
}

fn wire(
    clock: Instant,
    control: StreamLane,
    socket: Socket,
    server: Option<SocketAddr>,
    bounds: Bounds,
) -> UdpWire<Association<SocketAddr>> {
    let (role, local, remote) = match server {
        Some(server) => (Role::Initiator(server), 1, 2),
        None => (Role::Acceptor, 2, 1),
    };
    let config =
        Config { receive_buffer: 1 << 20, remote_buffer: 1 << 20, ..Config::new(role, local, remote, 7) };
    let seals = (Box::new(Crc32c) as Box<_>, Box::new(Crc32c) as Box<_>);
    let terms = Terms { is_client: server.is_some(), bounds: Some(bounds), round_trip: Duration::ZERO };
    let association = Association::new(config, seals.0, seals.1, 0);
    UdpWire::start(control, socket, association, clock, terms).expect("starts")
}

/// Returns both ends of a lane, of which each can send the given numbers of batches of datagrams.
fn lane(passes: [usize; 2], bounds: Bounds) -> [StreamLane; 2] {
    let ([near, far], [client, server]) = (connection(), sockets(passes));
    let at = SocketAddr::from(([127, 0, 0, 1], server.port().expect("a port")));
    [end(near, client, Some(at), bounds), end(far, server, None, bounds)]
}

/// Returns a client whose datagrams never pass, and the TCP connection at the other end.
fn client(bounds: Bounds) -> (StreamLane, StreamLane) {
    let ([near, far], [socket, _]) = (connection(), sockets([0, 0]));
    (end(near, socket, Some(SocketAddr::from(([127, 0, 0, 1], 9))), bounds), far)
}

fn byte(seed: u64, at: usize) -> u8 {
    (at as u64).wrapping_mul(seed | 1).to_be_bytes()[3] ^ at as u8
}

fn write(writer: &mut StreamWriter, seed: u64, len: usize) {
    let (mut numbers, mut at) = (Numbers(seed), 0);
    while at < len {
        let piece = (1 + numbers.below(100_000)).min(len - at);
        let bytes: Vec<u8> = (at..at + piece).map(|at| byte(seed, at)).collect();
        let (head, tail) = bytes.split_at(numbers.below(piece as u64 + 1));
        writer.write_all_vectored(&[head, tail]).expect("writes");
        at += piece;
        if numbers.below(8) == 0 {
            thread::sleep(Duration::from_millis(numbers.draw() % 20));
        }
    }
    writer.finish().expect("finishes");
}

fn read(reader: &mut StreamReader, seed: u64, len: usize) {
    let (mut numbers, mut at) = (Numbers(!seed), 0);
    let mut buffer = vec![0; 100_000];
    loop {
        let asked = 1 + numbers.below(buffer.len() as u64);
        let count = reader.read_some(&mut buffer[..asked]).expect("reads");
        if count == 0 {
            break;
        }
        for (place, found) in buffer[..count].iter().enumerate() {
            assert_eq!(*found, byte(seed, at + place), "byte {}", at + place);
        }
        at += count;
    }
    assert_eq!(at, len, "the length of the stream");
}

/// Property: every byte arrives once and in order in both directions, wherever datagrams stop.
#[test]
fn streams_survive_the_end_of_datagrams_at_any_moment() {
    let (next, fallen) = (AtomicU64::new(0), AtomicUsize::new(0));
    let reasons = Mutex::new(Vec::new());
    let run = || {
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < SEEDS
        {
            let mut numbers = Numbers(seed);
            let mut draw = |bounds: [u64; 4]| {
                let bound = bounds[numbers.below(4)];
                numbers.below(bound)
            };
            let passes = [(); 2].map(|()| draw([1, 8, 60, 400]));
            let lens = [(); 2].map(|()| draw([1, 2000, 200_000, 3 << 20]));
            let ends = lane(passes, SOON);
            let controls = [ends[0].control(), ends[1].control()];
            let [(mut near_in, mut near_out), (mut far_in, mut far_out)] = ends.map(StreamLane::split);
            thread::scope(|scope| {
                scope.spawn(|| write(&mut near_out, seed, lens[0]));
                scope.spawn(|| write(&mut far_out, !seed, lens[1]));
                scope.spawn(|| read(&mut near_in, !seed, lens[1]));
                scope.spawn(|| read(&mut far_in, seed, lens[0]));
            });
            let why = controls.each_ref().map(|control| control.fallback());
            fallen.fetch_add(usize::from(why.iter().all(Option::is_some)), Ordering::Relaxed);
            reasons.lock().extend(why.into_iter().flatten());
        }
    };
    thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(run))));
    assert!(fallen.into_inner() > SEEDS as usize / 2);
    let reasons = reasons.into_inner();
    for why in [Fallback::Blocked, Fallback::Silent] {
        assert!(reasons.contains(&why), "{why:?}");
    }
}

#[test]
fn lanes_with_datagrams_do_not_fall_back() {
    let [mut near, mut far] = lane([usize::MAX; 2], Bounds::DEFAULT);
    near.write_all(b"there").expect("writes");
    far.read_exact(&mut [0; 5]).expect("reads");
    let (control, packets) = (far.control(), near.control());
    assert_eq!((control.fallback(), control.fills_path()), (None, true));
    assert!(packets.packets().expect("datagrams").packets_sent > 0);
}

/// Regression: a process that was stopped for longer than the bounds left UDP although datagrams
/// were queued.
#[test]
fn queued_datagrams_count_before_a_lane_falls_back() {
    let ([near, far], [client, server]) = (connection(), sockets([usize::MAX; 2]));
    let at = SocketAddr::from(([127, 0, 0, 1], server.port().expect("a port")));
    let mut near = end(near, client, Some(at), NEVER);
    near.write_all(b"there").expect("writes");
    poll(&mut [PollFd::new(&server, PollFlags::IN)], None).expect("waits for a datagram");
    let begin = Instant::now().checked_sub(LONG + LONG).expect("a time");
    let mut far = end_since(begin, far, server, None, NEVER);
    far.read_exact(&mut [0; 5]).expect("reads");
    assert_eq!(far.control().fallback(), None);
}

#[test]
fn a_lane_falls_back_where_most_datagrams_are_lost() {
    let ([near, far], [client, server]) = (connection(), sockets([usize::MAX; 2]));
    client.one_of.store(3, Ordering::Relaxed);
    let at = SocketAddr::from(([127, 0, 0, 1], server.port().expect("a port")));
    let bounds = Bounds { judgement: Duration::from_secs(1), ..NEVER };
    let (mut near, far) = (end(near, client, Some(at), bounds), end(far, server, None, bounds));
    let control = near.control();
    let (mut far_in, mut far_out) = far.split();
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                near.write_all(&[7; 10_000]).expect("writes");
            }
            near.finish().expect("finishes");
            near.close(LONG).expect("closes");
        });
        let mut bytes = vec![0; 100_000];
        while control.fallback().is_none() {
            let count = far_in.read_some(&mut bytes).expect("reads");
            assert!(count > 0 && bytes[..count].iter().all(|byte| *byte == 7));
        }
        done.store(true, Ordering::Relaxed);
        while far_in.read_some(&mut bytes).expect("reads") > 0 {}
        far_out.finish().expect("finishes");
    });
    assert_eq!(control.fallback(), Some(Fallback::Lossy));
}

fn departure(received: u64) -> Vec<u8> {
    [&b"HAULTCP\x01"[..], &received.to_le_bytes()].concat()
}

#[test]
fn departures_with_impossible_contents_fail_the_lane() {
    let cut = &departure(0)[..15];
    let unknown = [&b"HAULTCP\x05"[..], &[0; 8]].concat();
    // One byte was written, which may have left.
    for message in [&departure(2)[..], &departure(u64::MAX), &unknown, &[0; 16], cut, &[]] {
        let (mut client, mut tcp) = client(NEVER);
        client.write_all(b"x").expect("buffered");
        tcp.write_all(message).expect("writes");
        tcp.finish().expect("finishes");
        let error = client.read_exact(&mut [0]).expect_err("no lane");
        let expected = if message.len() < 16 { UdpError::Disconnected } else { UdpError::BadDeparture };
        assert!(matches!(&error, LaneError::Udp(found) if *found == expected), "{message:?}: {error}");
    }
}

/// Regression: the answer of this end failed, and its error took the place of the reason.
#[test]
fn an_impossible_departure_is_the_reason_although_the_peer_has_reset_the_connection() {
    for message in [departure(2), [&b"HAULTCP\x05"[..], &[0; 8]].concat()] {
        let ([near, mut tcp], [socket, _]) = (connection(), sockets([0, 0]));
        tcp.write_all(&message).expect("writes");
        let control = tcp.control();
        let fd = control.wire().as_socket().expect("a socket");
        sockopt::set_socket_linger(fd, Some(Duration::ZERO)).expect("an option");
        drop(tcp);
        drop(control);
        let mut client = end(near, socket, Some(SocketAddr::from(([127, 0, 0, 1], 9))), NEVER);
        let error = client.read_exact(&mut [0]).expect_err("no lane");
        assert!(matches!(&error, LaneError::Udp(UdpError::BadDeparture)), "{message:?}: {error}");
    }
}

#[test]
fn a_departure_of_the_peer_moves_the_lane() {
    let (mut client, mut tcp) = client(NEVER);
    client.write_all(b"there").expect("buffered");
    client.finish().expect("nothing waits");
    tcp.write_all(&departure(0)).expect("writes");
    tcp.write_all(b"back").expect("writes");
    tcp.finish().expect("finishes");
    let mut back = [0; 4];
    client.read_exact(&mut back).expect("reads");
    assert_eq!(&back, b"back");
    let (mut answer, mut there) = ([0; 16], [0; 5]);
    tcp.read_exact(&mut answer).expect("the answer");
    assert_eq!(answer[..], departure(0));
    tcp.read_exact(&mut there).expect("reads");
    assert_eq!(&there, b"there");
    assert!(!tcp.read_exact_or_end(&mut [0]).expect("the end"));
    assert_eq!(client.control().fallback(), Some(Fallback::Blocked));
    assert!(!client.control().fills_path());
    client.close(LONG).expect("closes");
}

#[test]
fn the_end_of_the_peer_during_a_departure_ends_the_lane() {
    let (mut client, mut tcp) = client(SOON);
    tcp.read_exact(&mut [0; 16]).expect("its departure");
    drop(tcp);
    let error = client.read_exact(&mut [0]).expect_err("no peer");
    assert!(matches!(error, LaneError::Udp(UdpError::Disconnected)), "{error}");
    client.write_all(&[0; 1 << 20]).expect_err("no peer");
}

#[test]
fn abort_during_a_departure_wakes_both_halves() {
    let (lane, mut tcp) = client(SOON);
    tcp.read_exact(&mut [0; 16]).expect("its departure");
    let control = lane.control();
    let (mut reader, mut writer) = lane.split();
    thread::scope(|scope| {
        let reading = scope.spawn(move || reader.read_exact(&mut [0]));
        let writing = scope.spawn(move || writer.write_all(&[0; 1 << 20]));
        control.abort();
        for half in [reading, writing] {
            let ended = half.join().expect("no panic");
            assert!(matches!(ended, Err(LaneError::Aborted)), "{ended:?}");
        }
    });
}

/// The peer's users read late: the bytes that are sent again wait in TCP.
#[test]
fn drop_of_a_lane_that_falls_back_delivers_its_bytes() {
    let [mut near, mut far] = lane([0, 0], SOON);
    let bytes: Vec<u8> = (0..700_000).map(|at| byte(3, at)).collect();
    near.write_all(&bytes).expect("buffered");
    near.finish().expect("nothing waits");
    thread::scope(|scope| {
        scope.spawn(move || drop(near));
        let mut found = vec![0; bytes.len()];
        far.read_exact(&mut found).expect("reads");
        assert!(found == bytes && !far.read_exact_or_end(&mut [0]).expect("the end"));
    });
}

/// A half changed association could deliver wrong bytes.
#[test]
fn a_panic_during_a_change_ends_the_lane() {
    let ([near, _far], [client, _]) = (connection(), sockets([0, 0]));
    let wire = wire(Instant::now(), near, client, Some(SocketAddr::from(([127, 0, 0, 1], 9))), NEVER);
    let link = wire.link.clone();
    let panicked = thread::spawn(move || {
        let _inner = link.lock();
        panic!("as a bug would");
    });
    panicked.join().expect_err("a panic");
    let timeout = WaitTimeout::until(Instant::now() + LONG);
    let error = wire.read(&mut [0], timeout).expect_err("no association");
    assert!(matches!(error, LaneError::Udp(UdpError::Panicked)), "{error}");
    wire.write(&[IoSlice::new(b"x")], timeout).expect_err("no association");
}
