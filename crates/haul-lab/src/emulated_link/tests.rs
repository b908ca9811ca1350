//! Links between two namespaces with real sockets at both ends.

use super::*;
use crate::needs::{Need, met_or_skip};
use crate::random::Random;
use crate::{TEST_TIMEOUT, wait_until};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn share(value: f64) -> Probability {
    Probability::new(value).expect("from 0 to 1")
}

/// Makes a link with a name of its own.
fn link(settings: impl Into<LinkSettings>) -> EmulatedLink {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("haul-lab-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    EmulatedLink::make(&name, settings).expect("a link")
}

/// Runs `work` in the namespace of an end. A socket stays in the namespace in which it is created.
fn at<T: Send>(link: &EmulatedLink, end: End, work: impl FnOnce() -> T + Send) -> T {
    let inside = File::open(link.file(end)).expect("the namespace is there");
    let done = thread::scope(|scope| {
        let there = scope.spawn(|| {
            rustix::thread::move_into_link_name_space(inside.as_fd(), None).expect("root may");
            work()
        });
        there.join()
    });
    done.expect("no panic")
}

/// Returns a connection, its near end first.
fn connect(link: &EmulatedLink) -> [TcpStream; 2] {
    let listener = at(link, End::Far, || TcpListener::bind((End::Far.address(), 0)).expect("a port"));
    let address = listener.local_addr().expect("an address");
    let near = at(link, End::Near, || TcpStream::connect(address).expect("connects"));
    let (far, peer) = listener.accept().expect("accepts");
    assert_eq!(peer.ip().to_string(), End::Near.address());
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    }
    [near, far]
}

/// Sends bytes across the link. Returns the bytes sent and received, and the shortest round-trip
/// time that the kernel measured.
fn cross(link: &EmulatedLink, count: u32) -> (Vec<u8>, Vec<u8>, Duration) {
    let [mut near, mut far] = connect(link);
    let sent: Vec<u8> = (0..count).map(|at| (at / 7) as u8).collect();
    let mut got = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            near.write_all(&sent).expect("writes");
            near.shutdown(Shutdown::Write).expect("ends");
        });
        far.read_to_end(&mut got).expect("reads");
    });
    let facts = haul_sys::socket::tcp_facts(&near).expect("TCP");
    (sent, got, facts.shortest_round_trip)
}

#[track_caller]
fn assert_crosses(link: &EmulatedLink, count: u32) -> Duration {
    let (sent, got, round_trip) = cross(link, count);
    assert!(got == sent, "{} bytes came of {}", got.len(), sent.len());
    round_trip
}

/// Returns UDP sockets of both ends, connected to each other.
fn datagram_sockets(link: &EmulatedLink) -> [UdpSocket; 2] {
    let [near, far] =
        End::BOTH.map(|end| at(link, end, || UdpSocket::bind((end.address(), 0)).expect("a port")));
    near.connect(far.local_addr().expect("an address")).expect("connects");
    far.connect(near.local_addr().expect("an address")).expect("connects");
    far.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    // Room for every datagram of a test: the link hands over bursts.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&far, 16 << 20).expect("root may");
    [near, far]
}

/// Returns datagram `number` of `bytes` bytes: its number, and bytes that follow from it.
fn datagram(number: u32, bytes: usize) -> Vec<u8> {
    let mut made = vec![0; bytes];
    Random::from_seed(u64::from(number)).fill(&mut made);
    made[..4].copy_from_slice(&number.to_be_bytes());
    made
}

/// Result of [`exchange`].
struct Arrived {
    datagrams: Vec<(Vec<u8>, Instant)>,
    counters: Counters,
    begun: Instant,
}

impl Arrived {
    fn numbers(&self) -> Vec<u32> {
        let number = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.datagrams.iter().map(|(bytes, _)| number(bytes)).collect()
    }

    /// Returns the number of datagrams with other bytes than those sent.
    fn damaged(&self, sent: &[Vec<u8>]) -> u64 {
        self.datagrams.iter().filter(|(bytes, _)| !sent.contains(bytes)).count() as u64
    }
}

/// Sends datagrams from the near to the far end under conditions of their own, and returns what has
/// arrived when all have crossed the link.
fn exchange(settings: impl Into<LinkSettings>, datagrams: &[Vec<u8>]) -> Arrived {
    let settings = LinkSettings { is_changeable: true, ..settings.into() };
    let link = link(settings);
    let [near, far] = datagram_sockets(&link);
    let begun = Instant::now();
    let (arrived, counters) = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut room = vec![0; 65_536];
            let next = || {
                let length = far.recv(&mut room).expect("a datagram");
                (length > 0).then(|| (room[..length].to_vec(), Instant::now()))
            };
            std::iter::from_fn(next).collect()
        });
        for bytes in datagrams {
            near.send(bytes).expect("sends");
        }
        // Each packet of 1,500 bytes carries 1,480 of a datagram and its header.
        let least = datagrams.iter().map(|bytes| (bytes.len() + 8).div_ceil(1480) as u64).sum();
        let counters = || link.counters(End::Near).expect("counters");
        wait_until("the last packet", || {
            let counters = counters();
            let all = counters.packets + counters.duplicated;
            counters.packets >= least && counters.delivered + counters.gone() == all
        });
        let counters = counters();
        // An empty datagram on a clean link ends the exchange.
        link.change(End::Near, |conditions| *conditions = Conditions::default()).expect("changes");
        near.send(&[]).expect("sends");
        (receiver.join().expect("no panic"), counters)
    });
    link.close().expect("closes");
    Arrived { datagrams: arrived, counters, begun }
}

/// Returns datagrams of 200 bytes.
fn datagrams(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| datagram(number, 200)).collect()
}

#[test]
fn link_adds_its_delay_and_keeps_the_data() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let profile = LinkProfile { delay: millis(20), rate: Some(200_000_000), queue: 1 << 20 };
    let link = link(profile);
    let round_trip = assert_crosses(&link, 300_000);
    assert!(round_trip >= 2 * profile.delay, "{round_trip:?}");
    let namespace = link.file(End::Far);
    link.close().expect("closes");
    assert!(!namespace.exists());
}

#[test]
fn link_without_delay_needs_no_carrier() {
    if !met_or_skip(&[Need::Links, Need::Program("tc")]) {
        return;
    }
    let profile = LinkProfile { delay: Duration::ZERO, rate: Some(1_000_000_000), queue: 4 << 20 };
    let link = link(profile);
    assert!(link.carrier.is_none());
    assert_crosses(&link, 300_000);
    assert!(EmulatedLink::make(&link.name, profile).is_err(), "of one name there is one at a time");
    assert!(matches!(link.counters(End::Near), Err(LinkError::InKernel)));
    assert!(matches!(link.change(End::Near, |_| ()), Err(LinkError::InKernel)));
    link.close().expect("closes");
}

#[test]
fn an_idle_link_carries_no_packets_of_the_kernel() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let sent = datagrams(1);
    let arrived = exchange(Conditions { delay: millis(1), ..Conditions::default() }, &sent);
    assert_eq!((arrived.counters.packets, arrived.counters.bytes), (1, 228));
}

#[test]
fn lost_datagrams_do_not_arrive() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let sent = datagrams(2000);
    let burst_loss = Some(BurstLoss { share: share(0.1), length: 5.0, within: share(0.9) });
    let arrived = exchange(Conditions { loss: share(0.2), burst_loss, ..Conditions::default() }, &sent);
    let Counters { lost, lost_in_bursts, delivered, .. } = arrived.counters;
    assert!((328..472).contains(&lost), "20 % of 2,000, within four standard deviations: {lost}");
    assert!((80..250).contains(&lost_in_bursts), "{lost_in_bursts}");
    assert_eq!(arrived.datagrams.len() as u64, delivered);
    assert_eq!(delivered, 2000 - lost - lost_in_bursts);
    assert_eq!(arrived.damaged(&sent), 0);
    // The other direction has no faults, and the same seed loses the same packets.
    let again = exchange(Conditions { loss: share(0.2), burst_loss, ..Conditions::default() }, &sent);
    assert_eq!(arrived.numbers(), again.numbers());
}

#[test]
fn corruption_is_found_by_checksums_unless_it_is_silent() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let sent = datagrams(1000);
    let found = exchange(Conditions { corrupt: share(0.2), ..Conditions::default() }, &sent);
    let Counters { corrupted, delivered, .. } = found.counters;
    assert!((149..251).contains(&corrupted), "{corrupted}");
    assert_eq!(delivered, 1000);
    assert_eq!(found.datagrams.len() as u64, 1000 - corrupted, "the kernel drops them");
    assert_eq!(found.damaged(&sent), 0);
    let silent = exchange(Conditions { corrupt_silently: share(0.2), ..Conditions::default() }, &sent);
    let hidden = silent.counters.corrupted_silently;
    assert!((149..251).contains(&hidden), "{hidden}");
    assert_eq!((silent.datagrams.len(), silent.damaged(&sent)), (1000, hidden));
}

#[test]
fn datagrams_are_duplicated_and_reordered() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let sent = datagrams(1000);
    let ordered: Vec<u32> = (0..1000).collect();
    let twice = exchange(Conditions { duplicate: share(0.2), ..Conditions::default() }, &sent);
    let mut numbers = twice.numbers();
    assert_eq!(numbers.len() as u64, 1000 + twice.counters.duplicated);
    assert!((149..251).contains(&twice.counters.duplicated));
    numbers.dedup();
    assert_eq!(numbers, ordered);
    let conditions = Conditions { reorder: share(0.2), delay: millis(2), ..Conditions::default() };
    let late = exchange(conditions, &sent);
    let mut numbers = late.numbers();
    assert_ne!(numbers, ordered);
    assert!((149..251).contains(&late.counters.reordered));
    numbers.sort_unstable();
    assert_eq!(numbers, ordered);
}

#[test]
fn jitter_delays_and_reorders_only_on_request() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let sent = datagrams(300);
    let ordered: Vec<u32> = (0..300).collect();
    for jitter_reorders in [false, true] {
        let jitter = millis(10);
        let conditions = Conditions { delay: millis(30), jitter, jitter_reorders, ..Conditions::default() };
        let arrived = exchange(conditions, &sent);
        assert!(arrived.datagrams.iter().all(|(_, at)| *at - arrived.begun >= millis(20)));
        let mut numbers = arrived.numbers();
        assert_eq!(numbers != ordered, jitter_reorders);
        numbers.sort_unstable();
        assert_eq!(numbers, ordered);
    }
}

#[test]
fn mtu_fragments_udp_and_path_stop_datagrams() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    // Of 500 and 700 bytes with IP and UDP headers.
    let sent: Vec<_> = (0..100).map(|number| datagram(number, 472 + 200 * (number as usize % 2))).collect();
    let arrived = exchange(Conditions { mtu: Some(699), ..Conditions::default() }, &sent);
    assert_eq!(arrived.numbers(), (0..100).filter(|number| number % 2 == 0).collect::<Vec<_>>());
    assert_eq!(arrived.counters.dropped_by_mtu, 50);
    let none = exchange(Conditions { blocks_udp: true, ..Conditions::default() }, &sent);
    assert_eq!((none.datagrams.len(), none.counters.dropped_udp), (0, 100));
    let none = exchange(Conditions { is_down: true, ..Conditions::default() }, &sent);
    assert_eq!((none.datagrams.len(), none.counters.dropped_while_down), (0, 100));
    let outage = Some(Duration::ZERO..Duration::from_secs(3600));
    let none = exchange(Conditions { outage, ..Conditions::default() }, &sent);
    assert_eq!((none.datagrams.len(), none.counters.dropped_while_down), (0, 100));
    // UDP datagrams of 2,000 bytes in two fragments.
    let large: Vec<_> = (0..10).map(|number| datagram(number, 200 + 1800 * (number as usize % 2))).collect();
    let whole = exchange(Conditions { delay: millis(1), ..Conditions::default() }, &large);
    assert_eq!((whole.damaged(&large), whole.datagrams.len(), whole.counters.packets), (0, 10, 15));
    let cut = exchange(Conditions { drops_fragments: true, ..Conditions::default() }, &large);
    assert_eq!((cut.numbers(), cut.counters.dropped_fragments), (vec![0, 2, 4, 6, 8], 10));
}

#[test]
fn rate_queue_and_cross_traffic_limit_datagrams() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    // 1,000 bytes on the wire take 1 ms.
    let sent: Vec<_> = (0..200).map(|number| datagram(number, 1000 - 66)).collect();
    let limited = Conditions { rate: Some(8_000_000), queue: 1 << 20, ..Conditions::default() };
    let arrived = exchange(limited.clone(), &sent);
    let lasted = |arrived: &Arrived| arrived.datagrams[arrived.datagrams.len() - 1].1 - arrived.begun;
    assert_eq!(arrived.numbers(), (0..200).collect::<Vec<_>>());
    assert!(lasted(&arrived) >= millis(200), "{:?}", lasted(&arrived));
    let bucket = exchange(Conditions { burst: 100_000, ..limited.clone() }, &sent);
    assert!(lasted(&bucket) >= millis(100), "half of them wait");
    let short = exchange(Conditions { rate: Some(80_000), queue: 2000, ..limited.clone() }, &sent);
    let dropped = short.counters.dropped_by_queue;
    assert!(dropped > 0 && short.counters.queue_bytes_max <= 2000, "{:?}", short.counters);
    assert_eq!(short.datagrams.len() as u64, 200 - dropped);
    // Others send more than the link carries, so that the queue is full when ours arrive.
    let constant = CrossTraffic { sources: 1, off: Duration::ZERO, ..CrossTraffic::of_rate(100_000_000) };
    let shared = exchange(Conditions { queue: 20_000, cross: Some(constant), ..limited.clone() }, &sent);
    let Counters { dropped_by_queue, cross_passed, cross_dropped, .. } = shared.counters;
    assert!(dropped_by_queue > 150 && cross_passed > 0 && cross_dropped > 0, "{:?}", shared.counters);
    assert_eq!(shared.datagrams.len() as u64, 200 - dropped_by_queue);
    let discipline = Discipline::CoDel { target: millis(1), interval: millis(10) };
    let codel = exchange(Conditions { discipline, rate: Some(800_000), ..limited }, &sent[..50]);
    assert!(codel.counters.dropped_by_codel > 0, "{:?}", codel.counters);
    assert_eq!(codel.datagrams.len() as u64, 50 - codel.counters.dropped_by_codel);
}

/// The kernel leaves UDP data of one call to be segmented (UDP_SEGMENT) by the link.
#[test]
fn segments_of_one_call_are_lost_one_by_one() {
    if !met_or_skip(&[Need::Links, Need::Program("python3")]) {
        return;
    }
    for (loss, is_whole) in [(share(0.0), true), (share(0.1), false)] {
        let link =
            link(Conditions { loss, rate: Some(400_000_000), delay: millis(2), ..Conditions::default() });
        let [near, far] = datagram_sockets(&link);
        let receiver = thread::spawn(move || {
            let mut room = [0; 2000];
            let next = || {
                let length = far.recv(&mut room).expect("a datagram");
                (length > 0).then(|| room[..length].to_vec())
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        });
        let (from, to) = (near.local_addr().expect("its address"), near.peer_addr().expect("its peer"));
        drop(near);
        // 20 calls of 40 segments each.
        let program = "import socket, sys\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
            s.bind((sys.argv[1], int(sys.argv[2])))\n\
            s.connect((sys.argv[3], int(sys.argv[4])))\n\
            s.setsockopt(socket.IPPROTO_UDP, 103, 1400)\n\
            for n in range(20): s.send(b''.join(bytes([n, m]) * 700 for m in range(40)))";
        let mut python = Command::new("ip");
        python.args(["netns", "exec", &link.namespace(End::Near), "python3", "-c", program]);
        for address in [from, to] {
            python.args([address.ip().to_string(), address.port().to_string()]);
        }
        assert!(python.status().expect("runs").success());
        let counters = || link.counters(End::Near).expect("counters");
        wait_until("all segments", || {
            counters().packets >= 800 && counters().delivered + counters().gone() == counters().packets
        });
        let Counters { lost, bytes, .. } = counters();
        link.change(End::Near, |conditions| *conditions = Conditions::default()).expect("changes");
        let last = at(&link, End::Near, || UdpSocket::bind(from).expect("the port is free"));
        last.send_to(&[], to).expect("sends");
        let arrived = receiver.join().expect("no panic");
        assert_eq!(bytes, 800 * 1428, "with a header for each segment");
        assert_eq!((arrived.len() as u64, lost == 0), (800 - lost, is_whole));
        assert!(
            arrived.iter().all(|bytes| bytes.len() == 1400 && bytes.chunks(2).all(|two| two == &bytes[..2]))
        );
        assert!(arrived.windows(2).all(|two| two[0][..2] < two[1][..2]), "in order");
        link.close().expect("closes");
    }
}

#[test]
fn tcp_keeps_its_data_over_every_fault_but_silent_corruption() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let faults = Conditions {
        delay: millis(5),
        jitter: millis(2),
        jitter_reorders: true,
        rate: Some(100_000_000),
        discipline: Discipline::CODEL,
        loss: share(0.01),
        burst_loss: Some(BurstLoss { share: share(0.01), length: 3.0, within: Probability::ONE }),
        corrupt: share(0.02),
        reorder: share(0.02),
        duplicate: share(0.02),
        cross: Some(CrossTraffic::of_rate(20_000_000)),
        ..Conditions::default()
    };
    let link = link(LinkSettings { interface_mtu: 1280, ..faults.into() });
    assert_crosses(&link, 2_000_000);
    let Counters { lost, corrupted, reordered, duplicated, packets, bytes, .. } =
        link.counters(End::Near).expect("counters");
    assert!([lost, corrupted, reordered, duplicated].iter().all(|count| *count > 0));
    assert!(bytes / packets <= 1280, "{bytes} bytes in {packets} packets");
    let silently = |conditions: &mut Conditions| {
        *conditions = Conditions { corrupt_silently: share(0.05), ..Conditions::default() };
    };
    link.change(End::Near, silently).expect("changes");
    let (sent, got, _) = cross(&link, 2_000_000);
    let flipped: u64 = sent.iter().zip(&got).map(|(a, b)| u64::from((a ^ b).count_ones())).sum();
    assert_eq!(sent.len(), got.len());
    let hidden = link.counters(End::Near).expect("counters").corrupted_silently;
    // A packet that is sent again may replace one that was damaged.
    assert!(flipped > 0 && flipped <= hidden, "{flipped} bits, {hidden} packets");
    link.close().expect("closes");
}

#[test]
fn a_connection_continues_after_the_path_returns() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link(Conditions { delay: millis(2), ..Conditions::default() });
    let [mut near, mut far] = connect(&link);
    let mut byte = [0];
    near.write_all(b"1").expect("writes");
    far.read_exact(&mut byte).expect("reads");
    link.change(End::Near, |conditions| conditions.is_down = true).expect("changes");
    near.write_all(b"2").expect("writes");
    let dropped = || link.counters(End::Near).expect("counters").dropped_while_down;
    wait_until("a retransmission", || dropped() >= 2);
    link.change(End::Near, |conditions| conditions.is_down = false).expect("changes");
    far.read_exact(&mut byte).expect("reads");
    assert_eq!(byte, *b"2");
    link.close().expect("closes");
}

#[test]
fn congestion_control_and_buffers_are_set() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    for congestion in ["cubic", "reno"] {
        let both = LinkSettings::from(Conditions { delay: millis(1), ..Conditions::default() });
        let congestion = Some(congestion.to_owned());
        let link =
            link(LinkSettings { congestion: congestion.clone(), tcp_buffers: Some(50_000_000), ..both });
        for socket in connect(&link) {
            assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).ok(), congestion);
        }
        let sizes = at(&link, End::Far, || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem"));
        assert!(sizes.expect("readable").trim().ends_with("\t50000000"));
        link.close().expect("closes");
    }
}
