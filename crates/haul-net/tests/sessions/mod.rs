//! Tests of session setup: accepted and refused clients.

use crate::world::{LONG, World, dead, dialer, limits, refusal};
use haul_net::{
    DialError, DialSettings, Dialer, Encryption, Grant, Identity, Kind, LaneControl as _, LaneError, Limits,
    PacketCheck, Role, SessionId, SocketSettings, Ticket, UdpSettings, Uses, Verdict,
};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, SystemTime};

const BOTH: [Encryption; 2] = [Encryption::Tls, Encryption::Plain];

#[track_caller]
fn assert_refused(error: &DialError, verdict: Verdict) {
    assert!(matches!(error, DialError::Refused { verdict: got, .. } if *got == verdict), "{error:?}");
}

#[test]
fn lanes_of_a_session_are_joined() {
    for encryption in BOTH {
        let world = World::new(encryption);
        let ticket = Ticket::parse(&world.ticket(Uses::Once).to_line()).expect("its own line");
        let dialer = dialer(&ticket);
        let near = thread::scope(|scope| {
            let lanes: Vec<_> = (0..8)
                .map(|index| {
                    scope.spawn({
                        let dialer = &dialer;
                        move || dialer.lane(index).expect("welcome")
                    })
                })
                .collect();
            lanes.into_iter().map(|lane| lane.join().expect("no panic")).collect::<Vec<_>>()
        });
        let session = world.session();
        assert_eq!(
            (session.id(), session.ticket(), session.role()),
            (dialer.session(), ticket.id(), Role::Both)
        );
        let far: Vec<_> = (0..8).map(|_| session.next_lane(LONG).expect("a lane")).collect();
        let indices: BTreeSet<u16> = far.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, (0..8).collect());
        // Each lane is the one of its number.
        for (index, mut lane) in far {
            lane.write_all(&index.to_le_bytes()).expect("writes");
        }
        for (index, mut lane) in near.into_iter().enumerate() {
            let mut bytes = [0; 2];
            lane.read_exact(&mut bytes).expect("reads");
            assert_eq!(usize::from(u16::from_le_bytes(bytes)), index);
            let kind = if encryption == Encryption::Tls { Kind::Tls } else { Kind::Plain };
            assert_eq!(lane.kind(), kind);
            assert_eq!(lane.control().cipher() != "none", kind == Kind::Tls);
        }
        assert!(session.try_next_lane().is_none());
        world.said("session");
    }
}

#[test]
fn sessions_are_kept_separate() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let clients: Vec<_> = (0..6).map(|_| dialer(&ticket)).collect();
    let mut near: Vec<_> = clients.iter().map(|dialer| dialer.lane(3).expect("welcome")).collect();
    let sessions: Vec<_> = clients.iter().map(|_| world.session()).collect();
    for session in &sessions {
        let (_, mut lane) = session.next_lane(LONG).expect("its lane");
        let at = clients.iter().position(|dialer| dialer.session() == session.id()).expect("a client's");
        lane.write_all(&[at as u8]).expect("writes");
        let mut byte = [0];
        near[at].read_exact(&mut byte).expect("reads");
        assert_eq!(usize::from(byte[0]), at);
    }
}

#[test]
fn a_wrong_secret_and_an_unknown_ticket_get_the_same_answer() {
    for encryption in BOTH {
        let world = World::new(encryption);
        let (_dialer, _session, mut near, mut far) = world.meet(&world.ticket(Uses::Lasting));
        assert_refused(&refusal(&world.strange_ticket(Uses::Lasting, None)), Verdict::Unproven);
        world.said("invalid ticket");
        // A known name with another secret. The name is in bytes 1 to 9 of a ticket, before the
        // secret.
        let wrong = with_another_secret(&world.ticket(Uses::Lasting));
        assert_refused(&refusal(&wrong), Verdict::Unproven);
        // Running sessions are not affected.
        near.write_all(b"still here").expect("writes");
        far.read_exact(&mut [0; 10]).expect("reads");
    }
}

/// Returns the same ticket with another secret, forged through its text form.
fn with_another_secret(ticket: &Ticket) -> Ticket {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let line = ticket.to_line();
    let value = |c: u8| LETTERS.iter().position(|l| *l == c).expect("base32") as u64;
    let bits: Vec<bool> =
        line.bytes().skip(5).flat_map(|c| (0..5).rev().map(move |b| value(c) >> b & 1 == 1)).collect();
    let mut bytes: Vec<u8> = bits
        .chunks_exact(8)
        .map(|byte| byte.iter().fold(0, |value, bit| value << 1 | u8::from(*bit)))
        .collect();
    bytes.truncate(bytes.len() - 4);
    bytes[12] ^= 1;
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let bits: Vec<bool> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |b| byte >> b & 1 == 1)).collect();
    let text: String = bits
        .chunks(5)
        .map(|five| {
            let value = five.iter().fold(0, |value, bit| value << 1 | usize::from(*bit)) << (5 - five.len());
            char::from(LETTERS[value])
        })
        .collect();
    let forged = Ticket::parse(&format!("haul1{text}")).expect("well-formed");
    assert_eq!(forged.id(), ticket.id());
    assert_ne!(&forged, ticket);
    forged
}

#[test]
fn wrong_proofs_block_a_peer_without_sessions() {
    let limits = Limits { failures: 2, wrong_delay: Duration::from_millis(1), ..limits() };
    let world = World::with(Encryption::Tls, limits);
    let ticket = world.ticket(Uses::Lasting);
    let (dialer, session, mut near, mut far) = world.meet(&ticket);
    let strange = world.strange_ticket(Uses::Lasting, None);
    for _ in 0..2 {
        assert_refused(&refusal(&strange), Verdict::Unproven);
        world.said("refused");
    }
    near.write_all(b"x").expect("writes");
    far.read_exact(&mut [0]).expect("reads");
    // Earlier versions refused further lanes of the session.
    let lanes = (dialer.lane(1).expect("a lane"), session.next_lane(LONG).expect("the same"));
    drop((lanes, near, far, session));
    let error = refusal(&ticket);
    assert!(matches!(error, DialError::Handshake(_)), "{error:?}");
    world.said("too many failed authentications");
}

#[test]
fn one_time_ticket_cannot_be_reused() {
    for encryption in BOTH {
        let world = World::new(encryption);
        let ticket = world.ticket(Uses::Once);
        let (first, session, _near, _far) = world.meet(&ticket);
        assert!(world.tickets.is_used(ticket.id()));
        assert_refused(&refusal(&ticket), Verdict::Used);
        let second = first.lane(1).expect("its own session may have more lanes");
        assert_eq!(session.next_lane(LONG).expect("the lane").0, 1);
        drop((session, second));
        let error = first.lane(2).expect_err("the session has ended");
        assert_refused(&error, Verdict::Used);
        world.said("allowed one session");
    }
}

#[test]
fn an_expired_ticket_opens_nothing() {
    for encryption in BOTH {
        let world = World::new(encryption);
        let past = SystemTime::now() - Duration::from_secs(10);
        assert_refused(&refusal(&world.ticket_until(Uses::Lasting, Some(past))), Verdict::Expired);
        world.said("expired");
        let future = SystemTime::now() + Duration::from_secs(10_000);
        world.meet(&world.ticket_until(Uses::Lasting, Some(future)));
    }
}

#[test]
fn withdrawn_ticket_opens_nothing_and_its_sessions_continue() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let (dialer, _session, mut near, mut far) = world.meet(&ticket);
    assert!(world.tickets.revoke(ticket.id()));
    assert_refused(&dialer.lane(1).expect_err("withdrawn"), Verdict::Unproven);
    near.write_all(b"x").expect("writes");
    far.read_exact(&mut [0]).expect("reads");
}

#[test]
fn another_certificate_is_refused_by_the_client() {
    let world = World::new(Encryption::Tls);
    let grant = Grant { role: Role::Read, uses: Uses::Lasting, expires: None };
    let other = Identity::generate().expect("a certificate").fingerprint();
    let ticket = Ticket::issue(grant, vec![world.address().into()], Some(other)).expect("a ticket");
    world.tickets.insert(ticket.clone());
    match refusal(&ticket) {
        DialError::WrongFingerprint { expected, found, peer } => {
            assert_eq!(expected, other);
            assert_eq!(Some(found), world.identity.as_ref().map(Identity::fingerprint));
            assert_eq!(peer, world.address());
        }
        error => panic!("{error:?}"),
    }
    world.said("cannot open a session");
}

#[test]
fn peers_with_different_encryption_cannot_connect() {
    let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
    // The ticket and the user disagree.
    let world = World::new(Encryption::Tls);
    let settings = |encryption| DialSettings { encryption, ..DialSettings::default() };
    let error = Dialer::new(world.ticket(Uses::Lasting), settings(Encryption::Plain)).expect_err("differ");
    assert!(matches!(error, DialError::TicketIsTls), "{error:?}");
    let plain = Ticket::issue(grant, vec![world.address().into()], None).expect("a ticket");
    let error = Dialer::new(plain.clone(), settings(Encryption::Tls)).expect_err("differ");
    assert!(matches!(error, DialError::TicketIsPlain), "{error:?}");
    // The ticket and the server disagree.
    world.tickets.insert(plain.clone());
    assert!(matches!(refusal(&plain), DialError::NotPlain));
    world.said("cannot open a session");
    let plain_world = World::new(Encryption::Plain);
    let fingerprint = world.identity.as_ref().map(Identity::fingerprint);
    let tls = Ticket::issue(grant, vec![plain_world.address().into()], fingerprint).expect("a ticket");
    plain_world.tickets.insert(tls.clone());
    assert!(matches!(refusal(&tls), DialError::NotTls { .. }));
    plain_world.said("does not use haul without encryption");
}

#[test]
fn sessions_and_lanes_are_limited_and_slots_are_freed() {
    let limits = Limits { sessions: 2, lanes: 2, ..limits() };
    let world = World::with(Encryption::Tls, limits);
    let ticket = world.ticket(Uses::Lasting);
    let (first, session, near, far) = world.meet(&ticket);
    let (_d, _s, _n, _f) = world.meet(&ticket);
    assert_refused(&refusal(&ticket), Verdict::Full);
    let second = first.lane(1).expect("two lanes");
    let error = first.lane(2).expect_err("not three");
    assert!(
        matches!(error, DialError::Refused { verdict: Verdict::TooManyLanes, lanes_max: 2 }),
        "{error:?}"
    );
    // The slot of a lane is free once the server has released the lane.
    drop((near, far));
    let third = first.lane(2).expect("a place");
    drop((session, second, third));
    world.meet(&ticket);
}

#[test]
fn sessions_per_peer_are_limited() {
    let world = World::with(Encryption::Tls, Limits { sessions_per_peer: 1, ..limits() });
    let ticket = world.ticket(Uses::Lasting);
    let _first = world.meet(&ticket);
    assert_refused(&refusal(&ticket), Verdict::Full);
}

#[test]
fn stopped_listener_refuses_clients_and_keeps_sessions() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let (dialer, _session, mut near, mut far) = world.meet(&ticket);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| world.listener.next_session().is_none());
        world.listener.stop();
        assert!(waiting.join().expect("no panic"), "the waiting thread is notified");
    });
    world.listener.stop();
    let error = dialer.lane(1).expect_err("closed");
    assert!(matches!(error, DialError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&world.address().to_string()), "{error}");
    near.write_all(b"x").expect("writes");
    far.read_exact(&mut [0]).expect("reads");
    near.finish().expect("finishes");
    assert!(matches!(far.read_exact(&mut [0]), Err(LaneError::Ended)));
}

#[test]
fn next_address_is_tried_if_one_is_dead() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let (_held, dead) = dead();
    let addresses = vec![dead.into(), world.address().into()];
    let dialer = dialer(&ticket.with_addresses(addresses).expect("two"));
    for index in 0..2 {
        let lane = dialer.lane(index).expect("by the second");
        assert_eq!(lane.control().peer(), Some(world.address()));
    }
}

/// Returns a ticket for a socket at `listener` that is not a server.
fn ticket_for(listener: &TcpListener, encryption: Encryption) -> Ticket {
    let identity = (encryption == Encryption::Tls).then(|| Identity::generate().expect("a certificate"));
    let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
    let addresses = vec![listener.local_addr().expect("an address").into()];
    Ticket::issue(grant, addresses, identity.as_ref().map(Identity::fingerprint)).expect("a ticket")
}

/// Gives up a lane that is being opened and that nothing else can end. Returns the resulting
/// errors.
fn given_up(ticket: Ticket, is_under_way: impl FnOnce()) -> [DialError; 2] {
    let settings = DialSettings {
        encryption: ticket.encryption(),
        connect: LONG,
        handshake: LONG,
        ..DialSettings::default()
    };
    let dialer = Dialer::new(ticket, settings).expect("they ask for the same");
    let ended = thread::scope(|scope| {
        let dialing = scope.spawn(|| dialer.lane(1).expect_err("no server answers"));
        is_under_way();
        dialer.give_up();
        dialing.join().expect("no panic")
    });
    [ended, dialer.lane(2).expect_err("no more are wanted")]
}

/// Regression: a finished job waited for lanes whose server did not answer.
#[test]
fn unanswered_lanes_can_be_given_up() {
    for encryption in BOTH {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut silent = None;
        let errors = given_up(ticket_for(&listener, encryption), || {
            silent = Some(listener.accept().expect("a client"));
        });
        assert!(errors.iter().all(|error| matches!(error, DialError::GivenUp)), "{errors:?}");
    }
}

#[test]
fn unaccepted_connections_can_be_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    // One connection waits to be accepted, so the kernel answers no other.
    rustix::net::listen(&listener, 0).expect("a shorter queue");
    let address = listener.local_addr().expect("an address");
    let _waits = TcpStream::connect(address).expect("the kernel takes it");
    // Form of /proc/net/tcp for "to that port of 127.0.0.1, SYN_SENT".
    let line = format!(":{:04X} 02 ", address.port());
    let errors = given_up(ticket_for(&listener, Encryption::Tls), || {
        while !std::fs::read_to_string("/proc/self/net/tcp").expect("Linux").contains(&line) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(errors.iter().all(|error| matches!(error, DialError::GivenUp)), "{errors:?}");
}

#[test]
fn open_lanes_survive_giving_up() {
    let world = World::new(Encryption::Tls);
    let (dialer, _session, mut near, mut far) = world.meet(&world.ticket(Uses::Lasting));
    dialer.give_up();
    near.write_all(b"x").expect("writes");
    far.read_exact(&mut [0]).expect("reads");
}

#[test]
fn reusable_tickets_survive_a_server_restart() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let identity = world.identity.as_ref().expect("one");
    let stored = Identity::from_pem(&identity.to_pem()).expect("the same");
    let tickets = world.tickets.clone();
    drop(world);
    let anywhere = ["127.0.0.1:0".parse().expect("an address")];
    let listener = haul_net::Listener::start(&anywhere, Some(&stored), tickets, Default::default(), |_| ());
    let listener = listener.expect("listens");
    let moved = ticket.with_addresses(vec![listener.local_addresses()[0].into()]).expect("one");
    dialer(&moved).lane(0).expect("welcome");
}

/// Answers the greetings of clients without encryption, and ends each connection after its hello.
/// Returns the flags of the hellos.
fn older_server(listener: &TcpListener, connections: usize) -> Vec<u8> {
    (0..connections)
        .map(|_| {
            let (mut stream, _) = listener.accept().expect("a client");
            let (mut greeting, mut hello) = ([0; 40], [0; 64]);
            stream.read_exact(&mut greeting).expect("a greeting");
            stream.write_all(&greeting).expect("writes");
            stream.read_exact(&mut hello).expect("a hello");
            hello[5]
        })
        .collect()
}

#[test]
fn a_server_that_does_not_know_udp_is_named_or_asked_for_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
    let ticket = Ticket::issue(grant, vec![address.into()], None).expect("a ticket");
    for (falls_back, flags) in [(false, &[3][..]), (true, &[3, 1])] {
        let udp = UdpSettings { check: PacketCheck::Crc32c, falls_back, ..UdpSettings::default() };
        let settings =
            DialSettings { encryption: Encryption::Plain, udp: Some(udp), ..DialSettings::default() };
        let dialer = Dialer::new(ticket.clone(), settings).expect("they ask for the same");
        thread::scope(|scope| {
            let server = scope.spawn(|| older_server(&listener, flags.len()));
            let error = dialer.lane(0).expect_err("no answer");
            assert_eq!(server.join().expect("no panic"), flags);
            let is_named = matches!(error, DialError::NoAnswerToUdp(_));
            assert_eq!(is_named, !falls_back, "{error}");
        });
    }
}

#[test]
fn the_kernel_paces_admitted_lanes() {
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting);
    let socket = SocketSettings { pace: Some(100), ..SocketSettings::default() };
    let settings = DialSettings { socket, handshake: LONG, ..DialSettings::default() };
    let dialer = Dialer::new(ticket, settings).expect("they ask for the same");
    let lane = dialer.lane(0).expect("welcome");
    assert_eq!(lane.control().tcp().expect("TCP").pacing_limit, Some(100));
}

/// Tickets and limits apply to lanes of another front end as to connections.
#[test]
fn gateway_admits_lanes_by_ticket_and_within_the_limits() {
    let world = World::with(Encryption::Tls, Limits { lanes: 2, sessions: 1, ..limits() });
    let gateway = world.listener.gateway();
    let peer = "127.0.0.1:1".parse().expect("an address");
    let mut kept = Vec::new();
    let mut admit = |ticket: &Ticket, session: u8| {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        kept.push(ours);
        gateway.admit(theirs.into(), ticket.id(), SessionId([session; 16]), peer)
    };
    let now = SystemTime::now();
    let unknown = world.strange_ticket(Uses::Lasting, None);
    assert_eq!(admit(&unknown, 1), Err(Verdict::Unproven));
    assert_eq!(admit(&world.ticket_until(Uses::Lasting, Some(now)), 1), Err(Verdict::Expired));
    let (ticket, other) = (world.ticket(Uses::Lasting), world.ticket(Uses::Lasting));
    assert_eq!((admit(&ticket, 1), admit(&ticket, 1)), (Ok(()), Ok(())));
    assert_eq!(admit(&ticket, 1), Err(Verdict::TooManyLanes));
    assert_eq!(admit(&other, 1), Err(Verdict::Unproven), "the session is of another ticket");
    assert_eq!(admit(&ticket, 2), Err(Verdict::Full));
    let session = world.session();
    assert_eq!(
        (session.id(), session.ticket(), session.role()),
        (SessionId([1; 16]), ticket.id(), Role::Both)
    );
    let (_, lane) = session.next_lane(LONG).expect("the first lane");
    assert_eq!((lane.kind(), lane.control().cipher()), (Kind::Https, "https"));
    world.said("session");
    drop(lane);
    assert_eq!(admit(&ticket, 1), Ok(()), "a lane that has ended frees its slot");
    world.listener.stop();
    assert_eq!(admit(&ticket, 1), Err(Verdict::Closing));
}
