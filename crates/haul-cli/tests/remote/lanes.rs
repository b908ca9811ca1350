//! Number of connections of a job, as the kernel counts them: the requested number, or the number
//! that the path needs.

use super::resumed::bytes_beneath;
use super::stopped::wait_until;
use super::{Fixture, Server, assert_alike, inside, own_port};
use haul_engine::transfer::{DEFAULT_LANES_MAX, DEFAULT_LANES_MIN};
use haul_lab::emulated_link::{EmulatedLink, End, LinkProfile};
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Rate limit of a job that has to run while the test checks it: 2 MiB take more than half a
/// minute.
const SLOWLY: &str = "--rate=50K";

/// Returns the number of established connections at a port, in the network namespace of a process.
fn standing(pid: u32, port: u16) -> usize {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_there = fields.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        // Skips the remote address and reads the state.
        is_there && fields.nth(1) == Some("01")
    };
    table.lines().skip(1).filter(is_one).count()
}

/// Kills a job that has not finished, and waits until the server has no connections left.
fn end(mut client: Child, server: &Server, port: u16) {
    client.kill().unwrap();
    client.wait().unwrap();
    wait_until("the end of the session", || standing(server.child.id(), port) == 0);
}

/// Waits until the server has a number of connections for the job that `is_wanted` accepts. Checks
/// the number again after more bytes have arrived, when the job has opened all connections. Then
/// ends the job.
///
/// A connection attempt that another one overtook may exist for a moment.
fn settled(server: &Server, port: u16, (mut job, sink): (Command, &Path), is_wanted: impl Fn(usize) -> bool) {
    let mut client = job.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let connections = || standing(server.child.id(), port);
    wait_until("all connections", || is_wanted(connections()));
    let before = bytes_beneath(sink);
    wait_until("more bytes", || bytes_beneath(sink) > before);
    wait_until("the same connections", || is_wanted(connections()));
    assert_eq!(client.try_wait().unwrap(), None, "it was to run until now");
    end(client, server, port);
}

#[test]
fn a_job_opens_the_requested_number_of_connections() {
    let fixture = Fixture::new();
    fixture.file("data/f", 2 << 20);
    let port = own_port();
    let address = format!("127.0.0.1:{port}");
    let server = fixture.serve_at(&address, &["--root", "there"]);
    let send = |streams: &[&str], to: &str, is_wanted: &dyn Fn(usize) -> bool| {
        let common = ["send", "--ticket-file=ticket", "--object-size=64K"];
        let job = |more: &[&str]| fixture.haul(&[&common, streams, more, &["data", to]].concat());
        let sink = fixture.path("there").join(&to[1..]);
        settled(&server, port, (job(&[SLOWLY]), &sink), is_wanted);
        assert!(job(&[]).stdin(Stdio::null()).output().unwrap().status.success());
        assert_alike(&fixture.path("data"), &sink.join("data"));
    };
    for (at, wanted) in [1, 3, 9].into_iter().enumerate() {
        send(&[&format!("--streams={wanted}")], &format!(":{at}"), &|count| count == wanted);
    }
    // The number of additional connections depends on the measured round trip time, which is longer
    // on a busy machine.
    send(&[], ":unasked", &|count| {
        (DEFAULT_LANES_MIN as usize..=DEFAULT_LANES_MAX as usize).contains(&count)
    });
    drop(server);
    // The limit of the server takes precedence.
    let port = own_port();
    let server = fixture.serve_at(&format!("127.0.0.1:{port}"), &["--root", "there", "--streams=2"]);
    let args =
        ["send", "--ticket-file=ticket", SLOWLY, "--object-size=64K", "--streams=9", "data", ":limited"];
    settled(&server, port, (fixture.haul(&args), &fixture.path("there/limited")), |count| count == 2);
}

/// Each lane over QUIC has a TCP connection beside it. Several lanes would compete for one path.
#[test]
fn a_job_over_quic_opens_one_connection_unless_more_are_requested() {
    let fixture = Fixture::new();
    fixture.file("data/f", 2 << 20);
    let port = own_port();
    let server = fixture.serve_at(&format!("127.0.0.1:{port}"), &["--root", "there"]);
    for (to, streams, wanted) in [(":two", "--streams=2", 2), (":usual", "--cc=bbr", 1)] {
        let common = ["send", "--transport=quic", "--ticket-file=ticket", "--object-size=64K", SLOWLY];
        let job = fixture.haul(&[&common[..], &[streams, "data", to]].concat());
        settled(&server, port, (job, &fixture.path("there").join(&to[1..])), |count| count == wanted);
    }
}

/// haul opens a lane for each 10 ms of the round trip time that the first lane measured.
#[test]
fn a_long_round_trip_time_opens_more_connections_by_default() {
    const PORT: u16 = 7433;
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let profile = LinkProfile { delay: Duration::from_millis(60), rate: None, queue: 16 << 20 };
    let link = EmulatedLink::make(&format!("haul-lanes-{}", std::process::id()), profile).unwrap();
    let fixture = Fixture::new();
    fixture.file("data/f", 2 << 20);
    let listen = format!("{}:{PORT}", End::Far.address());
    let serve = fixture.haul(&["serve", "--root", "there", "--listen", &listen]);
    let server = fixture.serve_by(inside(&link.namespace(End::Far), &serve));
    let words = ["send", "--ticket-file=ticket", "--object-size=64K", "data", ":"];
    let job = |more: &[&str]| inside(&link.namespace(End::Near), &fixture.haul(&[&words[..], more].concat()));
    let is_wanted = |count| (12..=DEFAULT_LANES_MAX as usize).contains(&count);
    settled(&server, PORT, (job(&[SLOWLY]), &fixture.path("there")), is_wanted);
    assert!(job(&[]).stdin(Stdio::null()).output().unwrap().status.success());
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}

/// Returns the output of ss(8) for established connections to or from a port: one line for each
/// connection. The words of a line include the name of the congestion control.
fn told_of(which: &str, port: u16) -> Vec<String> {
    let words = ["-HtinO", "state", "established", which, "=", &format!(":{port}")];
    let listed = Command::new("ss").args(words).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// `--cc` takes effect on the sending side: the client of a send, the server of a fetch.
#[test]
fn connections_use_the_requested_congestion_control() {
    if !met_or_skip(&[Need::Program("ss")]) {
        return;
    }
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap();
    let usual = setting("congestion_control");
    let all = setting("available_congestion_control");
    let other = all.split_whitespace().find(|name| *name != usual.trim());
    if !shown_or_skip(other.is_some(), "a second congestion control") {
        return;
    }
    let asked = format!("--cc={}", other.unwrap());
    let fixture = Fixture::new();
    fixture.file("data/f", 2 << 20);
    fixture.file("there/data/f", 2 << 20);
    let common = ["--ticket-file=ticket", "--object-size=64K", "--streams=3"];
    for (serve, job, operands, which) in [
        (vec![], vec!["send", SLOWLY, &asked], ["data", ":in"], "dport"),
        (vec![SLOWLY, &asked], vec!["fetch"], [":data", "back"], "sport"),
    ] {
        let port = own_port();
        let args = [&["--root", "there"][..], &serve].concat();
        let server = fixture.serve_at(&format!("127.0.0.1:{port}"), &args);
        let mut job = fixture.haul(&[&job[..], &common, &operands].concat());
        let client = job.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = Vec::new();
        wait_until("three connections", || {
            lines = told_of(which, port);
            lines.len() == 3
        });
        let has_it = |line: &String| line.split_whitespace().any(|word| Some(word) == other);
        assert!(lines.iter().all(has_it), "{asked}, {which}: {lines:#?}");
        end(client, &server, port);
    }
}
