//! Unauthenticated peers of `haul serve`: the server logs each of them with a reason, and they
//! affect neither its sessions nor its memory.

use super::stopped::wait_until;
use super::{Fixture, Server, TEST_TIMEOUT, assert_alike, assert_ended, own_port};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

/// Default maximum number of unauthenticated connections of one peer.
const OF_ONE_PEER: usize = 64;

/// Starts a server at a port of this host and returns its address.
fn server(fixture: &Fixture, more: &[&str]) -> (Server, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()));
    (fixture.serve_at(&address.to_string(), &[&["--root", "there"], more].concat()), address)
}

/// Waits until each element of `words` has occurred in a log line of its own. Elements that match
/// more lines must come before those that match fewer.
#[track_caller]
fn assert_logs_all(server: &Server, words: &[&str]) {
    let (mut missing, mut heard) = (words.to_vec(), Vec::new());
    while !missing.is_empty() {
        let Ok(line) = server.log.recv_timeout(TEST_TIMEOUT) else {
            panic!("{missing:?} were not said: {heard:#?}");
        };
        if let Some(at) = missing.iter().rposition(|words| line.contains(words)) {
            missing.remove(at);
        }
        heard.push(line);
    }
}

/// Sends `bytes` and nothing more, and waits until the server closes the connection.
fn send_bytes(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may close the connection before it has read all bytes.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Opens a connection from another address of this host.
fn from(own: Ipv4Addr, to: SocketAddr) -> OwnedFd {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((own, 0))).unwrap();
    connect(&stream, &to).unwrap();
    stream
}

/// Returns the value of a field in the status of the server process.
fn status(server: &Server, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Bytes that an unauthenticated peer sends, and the text that the server logs.
type Probe<'a> = (&'a [u8], &'static str);

#[test]
fn unauthenticated_peers_are_logged_with_a_reason() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let greeted = |hello: &[u8]| [b"HAULPLN1", &[7; 32][..], hello].concat();
    let record_of = |kind: u8, len: u16| [&[kind, 3, 1][..], &len.to_be_bytes(), &[1; 600]].concat();
    let strangers: [(&[&str], &[Probe<'_>]); 2] = [
        (
            &[],
            &[
                (b"", "cannot open a session with"),
                (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "cannot open a session with"),
                (b"HAULPLN1", "cannot open a session with"),
                (&record_of(22, 600), "cannot open a session with"),
                (&record_of(22, u16::MAX), "cannot open a session with"),
                (&record_of(23, 600), "cannot open a session with"),
                (&[0xff; 100_000], "cannot open a session with"),
            ],
        ),
        (
            &["--plain"],
            &[
                (b"", "cannot open a session with"),
                (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "cannot open a session with"),
                (&record_of(22, 600), "cannot open a session with"),
                (&greeted(&[9; 64]), "does not use haul without encryption"),
                (&greeted(&[b"HAUL\x09\x01", &[9; 58][..]].concat()), "refused "),
                (&greeted(&[b"HAUL\x01\x01", &[9; 58][..]].concat()), "invalid ticket"),
            ],
        ),
    ];
    for (mode, strangers) in strangers {
        let (server, address) = server(&fixture, mode);
        // The server disconnects a peer that sends nothing after a timeout. Such a peer blocks no
        // other client.
        let mut silent = TcpStream::connect(address).unwrap();
        let mut words: Vec<&str> = strangers.iter().map(|(_, words)| *words).collect();
        for (bytes, _) in strangers {
            send_bytes(address, bytes);
        }
        let to = if mode.is_empty() { ":tls" } else { ":plain" };
        let sent = fixture.run(&[&["send", "--ticket-file=ticket"][..], mode, &["data", to]].concat());
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path("there").join(&to[1..]).join("data"));
        let _ = silent.read(&mut [0]);
        words.push("timeout: no data");
        assert_logs_all(&server, &words);
        assert!(status(&server, "RssAnon") < 64 << 10, "{} KiB", status(&server, "RssAnon"));
    }
}

#[test]
fn a_connection_flood_does_not_lock_out_other_peers() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let (server, address) = server(&fixture, &[]);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "data", ":before"]), 0);
    let (memory, threads) = (status(&server, "RssAnon"), status(&server, "Threads"));
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let flood: Vec<OwnedFd> = (0..400).map(|_| from(other, address)).collect();
    assert_logs_all(
        &server,
        &[
            "connections without an answer, the last from 127.0.0.2: too many unauthenticated connections from this address",
        ],
    );
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "data", ":meanwhile"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/meanwhile/data"));
    let most = threads + OF_ONE_PEER as u64 + 20;
    assert!(status(&server, "Threads") <= most, "{} threads, {threads} before", status(&server, "Threads"));
    let grown = status(&server, "RssAnon").saturating_sub(memory);
    assert!(grown < 32 << 10, "{grown} KiB more than before");
    drop(flood);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "data", ":after"]), 0);
}

/// Earlier versions refused all peers while the addresses of one network used all slots.
#[test]
fn a_flood_from_one_network_leaves_slots_to_others() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let (server, address) = server(&fixture, &[]);
    let networks = (1..=5).map(|host| Ipv4Addr::new(127, 0, 9, host));
    let flood: Vec<OwnedFd> =
        networks.flat_map(|own| (0..OF_ONE_PEER).map(move |_| from(own, address))).collect();
    assert_logs_all(&server, &["too many unauthenticated connections"]);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "data", ":meanwhile"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/meanwhile/data"));
    assert_logs_all(&server, &["ended in favour of another network, because all slots are in use"]);
    drop(flood);
}

/// Earlier versions could not accept a connection while silent peers held all descriptors.
#[test]
fn a_server_without_descriptors_closes_new_connections_and_recovers() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let (server, address) = server(&fixture, &[]);
    let limit = Rlimit { current: Some(40), maximum: Some(4096) };
    prlimit(Pid::from_raw(server.child.id() as i32), Resource::Nofile, limit).unwrap();
    let silent: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_logs_all(
        &server,
        &["connections without an answer, the last from 127.0.0.1: no file descriptor is left"],
    );
    // The last one is closed without an answer.
    let _ = (&silent[59]).read(&mut [0]);
    drop(silent);
    wait_until("a free descriptor", || {
        fixture.run(&["send", "--ticket-file=ticket", "--streams=1", "data", ":after"]).status == Some(0)
    });
    assert_alike(&fixture.path("data"), &fixture.path("there/after/data"));
}
