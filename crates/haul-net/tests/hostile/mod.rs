//! Tests of hostile peers and of networks that damage data.

use crate::world::{LONG, Numbers, World, dialer, refusal};
use haul_lab::fault_proxy::{Direction, FaultKind, FaultProxy};
use haul_lab::{TEST_TIMEOUT, wait_until};
use haul_net::{DialError, Encryption, Grant, LaneError, Limits, Role, Ticket, Uses, Verdict};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Returns limits that a test can reach. Their deadline is short for honest clients too: see
/// [`World::meets_at_last`].
fn tight() -> Limits {
    Limits {
        unauthenticated: 8,
        unauthenticated_per_peer: 8,
        handshake: Duration::from_millis(400),
        ..Limits::default()
    }
}

/// Returns the first TLS flight of haul's own client.
fn client_hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let world = World::new(Encryption::Tls);
    let ticket = world.ticket(Uses::Lasting).with_addresses(vec![address.into()]).expect("one");
    let dialing = thread::spawn(move || drop(dialer(&ticket).lane(0)));
    let (mut stream, _) = listener.accept().expect("a client");
    let mut bytes = vec![0; 4096];
    let read = stream.read(&mut bytes).expect("a hello");
    bytes.truncate(read);
    drop(stream);
    dialing.join().expect("no panic");
    assert!(bytes.len() > 100 && bytes[0] == 22, "a handshake record");
    bytes
}

/// Reads until the server closes; panics if it does not.
#[track_caller]
fn assert_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(LONG)).expect("sets");
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn truncated_handshake_ends_only_its_connection() {
    let hello = client_hello();
    let world = World::new(Encryption::Tls);
    for cut in [0, 1, 4, 5, 6, 50, hello.len() - 1] {
        let mut stream = TcpStream::connect(world.address()).expect("connects");
        stream.write_all(&hello[..cut]).expect("writes");
        stream.shutdown(Shutdown::Write).expect("finishes");
        assert_closed(stream);
        world.said("cannot open a session");
    }
    world.meet(&world.ticket(Uses::Once));
}

#[test]
fn garbage_ends_only_its_connection() {
    for encryption in [Encryption::Tls, Encryption::Plain] {
        let world = World::new(encryption);
        let mut numbers = Numbers(5);
        for round in 0..20 {
            let mut stream = TcpStream::connect(world.address()).expect("connects");
            let mut bytes = vec![0; numbers.length() % 3000 + 1];
            numbers.fill(&mut bytes);
            if round % 2 == 0 {
                // Begins like a connection of each kind.
                let begin: &[u8] =
                    if encryption == Encryption::Tls { &[22, 3, 1, 255, 255, 1] } else { b"HAULPLN1" };
                bytes.splice(0..0, begin.iter().copied());
            }
            // The server may have closed in the middle of this.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            assert_closed(stream);
            world.said("cannot open a session");
        }
        world.meet(&world.ticket(Uses::Once));
    }
}

#[test]
fn slow_handshake_times_out_and_frees_its_slot() {
    for encryption in [Encryption::Tls, Encryption::Plain] {
        let world =
            World::with(encryption, Limits { unauthenticated: 1, unauthenticated_per_peer: 1, ..tight() });
        let hello = if encryption == Encryption::Tls { client_hello() } else { b"HAULPLN1".repeat(30) };
        let mut stream = TcpStream::connect(world.address()).expect("connects");
        // With one byte at a time the connection is never silent; the deadline covers the whole
        // handshake.
        let mut sent = 0;
        for byte in &hello {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            sent += 1;
            thread::sleep(Duration::from_millis(100));
        }
        assert!(sent < hello.len(), "the server waited for all of it");
        assert_closed(stream);
        world.said("timeout: no data");
        world.meets_at_last();
    }
}

#[test]
fn silent_client_after_the_greeting_is_disconnected() {
    let world = World::with(Encryption::Plain, tight());
    let mut stream = TcpStream::connect(world.address()).expect("connects");
    stream.write_all(b"HAULPLN1").expect("writes");
    stream.write_all(&[9; 32]).expect("writes");
    assert_closed(stream);
    world.said("timeout: no data");
}

#[test]
fn unauthenticated_flood_is_bounded_and_service_continues() {
    // No deadline closes an unauthenticated connection within this test. Those above the limit are
    // closed because of the limit.
    let limits = Limits { handshake: 10 * TEST_TIMEOUT, ..tight() };
    let world = World::with(Encryption::Tls, limits);
    let (_dialer, _session, mut near, mut far) = world.meets_at_last();
    let mut flood: Vec<_> =
        (0..100).map(|_| TcpStream::connect(world.address()).expect("the kernel takes it")).collect();
    world.said("closed 1 connections without an answer");
    wait_until("all strangers above the limit are closed", || {
        flood.retain(is_open);
        flood.len() <= limits.unauthenticated
    });
    assert!(!flood.is_empty(), "strangers within the limit have their time");
    // A running session is not affected.
    near.write_all(b"x").expect("writes");
    far.read_exact(&mut [0]).expect("reads");
    drop(flood);
    world.meets_at_last();
}

/// Returns true if the server has not closed the connection. The connection must have no bytes to
/// read.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("sets");
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn bit_flip_in_transit_is_detected() {
    for at in [0, 3, 17, 1000, 70_000] {
        let world = World::new(Encryption::Tls);
        let line = FaultProxy::to(world.address(), Vec::new()).expect("a port");
        let ticket = world.ticket(Uses::Once).with_addresses(vec![line.address().into()]).expect("one");
        let (_dialer, _session, mut near, mut far) = world.meet(&ticket);
        far.write_all(&[1; 10]).expect("writes");
        near.read_exact(&mut [0; 10]).expect("reads");
        line.inject_ahead(Direction::ToClient, at, FaultKind::Flip);
        let sent: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        let bytes = sent.clone();
        let sending = thread::spawn(move || drop(far.write_all(&bytes)));
        let mut got = Vec::new();
        let error = loop {
            let mut piece = [0; 1000];
            match near.read_exact(&mut piece) {
                Ok(()) => got.extend_from_slice(&piece),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LaneError::Tls(_)), "{error:?}");
        assert!(got.len() < sent.len() && sent.starts_with(&got), "nothing false was handed on");
        drop(near);
        sending.join().expect("no panic");
    }
}

#[test]
fn connection_cut_in_transit_is_reported_as_truncated() {
    for at in [0, 1, 5000] {
        let world = World::new(Encryption::Tls);
        let line = FaultProxy::to(world.address(), Vec::new()).expect("a port");
        let ticket = world.ticket(Uses::Once).with_addresses(vec![line.address().into()]).expect("one");
        let (_dialer, _session, mut near, mut far) = world.meet(&ticket);
        far.write_all(&[1; 10]).expect("writes");
        near.read_exact(&mut [0; 10]).expect("reads");
        line.inject_ahead(Direction::ToClient, at, FaultKind::End);
        far.write_all(&[2; 100]).expect("writes");
        far.write_all(&[2; 10_000]).expect("writes");
        let mut got = 0;
        let error = loop {
            match near.read_exact_or_end(&mut [0]) {
                Ok(true) => got += 1,
                Ok(false) => panic!("it looks like a clean end"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LaneError::Truncated), "{error:?}");
        assert!(got <= 10_100);
    }
}

#[test]
fn replayed_hello_is_refused() {
    let world = World::new(Encryption::Plain);
    let line = FaultProxy::to(world.address(), Vec::new()).expect("a port");
    let ticket = world.ticket(Uses::Lasting).with_addresses(vec![line.address().into()]).expect("one");
    drop(world.meet(&ticket));
    let recorded = line.bytes_to_server();
    assert_eq!(recorded.len(), 40 + 64, "a greeting and a hello");
    let mut stream = TcpStream::connect(world.address()).expect("connects");
    stream.write_all(&recorded).expect("writes");
    world.said("invalid ticket");
    let mut said = Vec::new();
    stream.shutdown(Shutdown::Write).expect("finishes");
    stream.read_to_end(&mut said).expect("reads");
    // The server's greeting, then its answer: version 1, unproven, no proof.
    assert_eq!(said.len(), 40 + 40);
    assert_eq!(said[40..46], *b"HAUL\x01\x01");
    assert!(said[46..].iter().all(|byte| *byte == 0));
}

#[test]
fn server_without_the_secret_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
    let address = listener.local_addr().expect("an address");
    let ticket = Ticket::issue(grant, vec![address.into()], None).expect("a ticket");
    let impostor = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.read_exact(&mut [0; 40]).expect("a greeting");
        stream.write_all(b"HAULPLN1").expect("writes");
        stream.write_all(&[1; 32]).expect("writes");
        stream.read_exact(&mut [0; 64]).expect("a hello");
        stream.write_all(b"HAUL\x01\x00\x40\x00").expect("welcome");
        stream.write_all(&[2; 32]).expect("with any proof");
        let _ = stream.read(&mut [0]);
    });
    let error = refusal(&ticket);
    assert!(matches!(error, DialError::Answer(_)), "{error:?}");
    impostor.join().expect("no panic");
}

#[test]
fn other_versions_and_unknown_fields_are_reported() {
    let world = World::new(Encryption::Plain);
    let hear = |hello: &[u8]| {
        let mut stream = TcpStream::connect(world.address()).expect("connects");
        stream.write_all(b"HAULPLN1").expect("writes");
        stream.write_all(&[9; 32]).expect("writes");
        stream.read_exact(&mut [0; 40]).expect("a greeting");
        stream.write_all(hello).expect("writes");
        stream.shutdown(Shutdown::Write).expect("finishes");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).expect("reads");
        said
    };
    let mut hello = [0; 64];
    hello[..6].copy_from_slice(b"HAUL\x07\x01");
    let said = hear(&hello);
    assert_eq!((said.len(), said[5]), (40, Verdict::OtherVersion as u8));
    hello[..6].copy_from_slice(b"HAUL\x01\x00");
    let said = hear(&hello);
    assert_eq!((said.len(), said[5]), (40, Verdict::OtherEncryption as u8));
    hello[..6].copy_from_slice(b"HAUL\x01\x09");
    assert!(hear(&hello).is_empty());
    world.said("its encryption is 9");
    hello[..4].copy_from_slice(b"HTTP");
    assert!(hear(&hello).is_empty());
    world.said("it is not haul");
}
