//! How many connections carry a job: as many as are asked for, or as many as the path wants, as the kernel counts them.

use super::stopped::wait_until;
use super::{Bed, Server, assert_alike, inside, own_port};
use haul_engine::transfer::{LANES_UNASKED_MAX, LANES_UNASKED_MIN};
use haul_lab::link::{End, Link, Way};
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Connections that stand at a port of the network that a process lives in.
fn standing(pid: u32, port: u16) -> usize {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        let is_there = fields.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        // The state; between them stands the other end.
        is_there && fields.nth(1) == Some("01")
    };
    table.lines().skip(1).filter(is_one).count()
}

/// The most connections that the server had at once while this job ran, which it does until it has arrived.
fn most(server: &Server, port: u16, mut job: Command) -> usize {
    let mut client = job.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    while client.try_wait().unwrap().is_none() {
        most = standing(server.child.id(), port).max(most);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = client.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    wait_until("the end of the session", || standing(server.child.id(), port) == 0);
    most
}

#[test]
fn a_job_has_as_many_connections_as_are_asked_for() {
    let bed = Bed::new();
    bed.file("data/f", 2 << 20);
    let port = own_port();
    let address = format!("127.0.0.1:{port}");
    let server = bed.serve_at(&address, &["--root", "there"]);
    let send = |streams: &[&str], to: &str| {
        let common = ["send", "--ticket-file=ticket", "--rate=4M", "--object-size=64K"];
        let job = bed.haul(&[&common, streams, &["data", to]].concat());
        let most = most(&server, port, job);
        assert_alike(&bed.path("data"), &bed.path("there").join(&to[1..]).join("data"));
        most
    };
    for (at, count) in [1, 3, 9].into_iter().enumerate() {
        assert_eq!(send(&[&format!("--streams={count}")], &format!(":{at}")), count);
    }
    assert_eq!(send(&[], ":unasked"), LANES_UNASKED_MIN as usize, "the path is short");
    drop(server);
    // A server's own limit is kept to.
    let port = own_port();
    let server = bed.serve_at(&format!("127.0.0.1:{port}"), &["--root", "there", "--streams=2"]);
    let args = ["send", "--ticket-file=ticket", "--rate=4M", "--object-size=64K", "--streams=9"];
    assert_eq!(most(&server, port, bed.haul(&[&args[..], &["data", ":limited"]].concat())), 2);
}

/// A lane for each 10 ms of the round trip that the first one measured.
#[test]
fn a_long_path_gets_more_connections_unasked() {
    const PORT: u16 = 7433;
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let way = Way { delay: Duration::from_millis(60), rate: None, queue: 16 << 20 };
    let link = Link::make(&format!("haul-lanes-{}", std::process::id()), way).unwrap();
    let bed = Bed::new();
    bed.file("data/f", 4 << 20);
    let listen = format!("{}:{PORT}", End::Far.address());
    let serve = bed.haul(&["serve", "--root", "there", "--listen", &listen]);
    let server = bed.serve_by(inside(&link.namespace(End::Far), &serve));
    let job = bed.haul(&["send", "--ticket-file=ticket", "--rate=2M", "--object-size=64K", "data", ":"]);
    let most = most(&server, PORT, inside(&link.namespace(End::Near), &job));
    assert!((12..=LANES_UNASKED_MAX as usize).contains(&most), "{most} connections over 120 ms");
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    drop(server);
    link.close().unwrap();
}

/// What the kernel says of connections to or from a port: a line for each, its words with the name of its congestion control among them.
fn told_of(which: &str, port: u16) -> Vec<String> {
    let words = ["-HtinO", "state", "established", which, "=", &format!(":{port}")];
    let listed = Command::new("ss").args(words).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Whoever sends has it, whichever side was asked.
#[test]
fn connections_have_the_congestion_control_that_was_asked_for() {
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
    let bed = Bed::new();
    bed.file("data/f", 2 << 20);
    bed.file("there/data/f", 2 << 20);
    let common = ["--ticket-file=ticket", "--object-size=64K", "--streams=3"];
    for (serve, job, operands, which) in [
        (vec![], vec!["send", "--rate=1M", &asked], ["data", ":in"], "dport"),
        (vec!["--rate=1M", &asked], vec!["fetch"], [":data", "back"], "sport"),
    ] {
        let port = own_port();
        let args = [&["--root", "there"][..], &serve].concat();
        let _server = bed.serve_at(&format!("127.0.0.1:{port}"), &args);
        let mut job = bed.haul(&[&job[..], &common, &operands].concat());
        let mut client = job.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = Vec::new();
        wait_until("three connections", || {
            lines = told_of(which, port);
            lines.len() == 3
        });
        let has_it = |line: &String| line.split_whitespace().any(|word| Some(word) == other);
        assert!(lines.iter().all(has_it), "{asked}, {which}: {lines:#?}");
        assert!(client.wait().unwrap().success());
    }
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    assert_alike(&bed.path("there/data"), &bed.path("back/data"));
}
