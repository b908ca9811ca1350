//! Host names that no name server resolves: the query leaves, and no answer arrives.

use super::stopped::wait_until;
use super::{Fixture, assert_alike, inside};
use haul_lab::emulated_link::{EmulatedLink, End, LinkProfile};
use haul_lab::needs::{Need, met_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Address of a name server that does not exist. Its packets go to a host that neither forwards nor
/// answers them.
const SILENT: &str = "10.78.0.1";

/// The same address and the port of name servers, in the format of /proc/net/udp.
const SILENT_IN_PROC: &str = "01004E0A:0035";

/// Returns a network without a name server, and a test directory with a `resolv.conf` for it. With
/// these settings the system alone would wait for minutes.
fn unresponsive_host(name: &str) -> (Fixture, EmulatedLink) {
    let profile = LinkProfile { delay: Duration::ZERO, rate: None, queue: 1 << 20 };
    let link = EmulatedLink::make(&format!("haul-{name}-{}", std::process::id()), profile).unwrap();
    let routed = Command::new("ip")
        .args(["-n", &link.namespace(End::Near), "route", "add", SILENT, "via", End::Far.address()])
        .status()
        .unwrap();
    assert!(routed.success());
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::write(fixture.path("resolv.conf"), format!("nameserver {SILENT}\noptions timeout:30 attempts:5\n"))
        .unwrap();
    (fixture, link)
}

/// Returns the command `haul ARGS` in that network.
fn haul(fixture: &Fixture, link: &EmulatedLink, args: &[&str]) -> Command {
    let haul = fixture.haul(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "mount --bind resolv.conf /etc/resolv.conf && exec \"$0\" \"$@\""]);
    shell.arg(haul.get_program()).args(haul.get_args()).current_dir(fixture.home.path());
    for (name, value) in haul.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut there = inside(&link.namespace(End::Near), &shell);
    there.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    there
}

/// Creates a ticket that contains the host name of its server.
fn named_ticket(fixture: &Fixture) {
    drop(fixture.serve(&["--root", "there", "--address=far.example:7433"]));
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Earlier versions waited as long as the system: two and a half minutes for each name with these
/// settings.
#[test]
fn an_unanswered_name_lookup_times_out() {
    if !met_or_skip(&[Need::Links, Need::Mount]) {
        return;
    }
    let (fixture, link) = unresponsive_host("deaf");
    named_ticket(&fixture);
    let by_ticket = haul(&fixture, &link, &["send", "--ticket-file=ticket", "data", ":"]).spawn().unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let over_ssh =
        ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "data", "far.example:in"];
    let over_ssh = haul(&fixture, &link, &over_ssh).spawn().unwrap();
    let by_ticket = by_ticket.wait_with_output().unwrap();
    assert_eq!(by_ticket.status.code(), Some(2), "{by_ticket:?}");
    let why = "far.example:7433: name lookup timed out after 10 seconds";
    assert!(told(&by_ticket).contains(why), "{by_ticket:?}");
    // ssh can reach the host by that name, so that haul runs its lane inside ssh.
    let over_ssh = over_ssh.wait_with_output().unwrap();
    assert_eq!(over_ssh.status.code(), Some(0), "{over_ssh:?}");
    assert!(told(&over_ssh).contains("name lookup timed out"), "{over_ssh:?}");
    assert!(told(&over_ssh).contains("through ssh over one connection"), "{over_ssh:?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    link.close().unwrap();
}

/// Earlier versions did not check for a stop request during a name lookup.
#[test]
fn sigint_ends_an_unanswered_name_lookup() {
    if !met_or_skip(&[Need::Links, Need::Mount]) {
        return;
    }
    let (fixture, link) = unresponsive_host("mute");
    named_ticket(&fixture);
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let over_ssh =
        ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "data", "far.example:in"];
    for args in [&["send", "--ticket-file=ticket", "data", ":"][..], &over_ssh] {
        let child = haul(&fixture, &link, args).spawn().unwrap();
        let asked = || fs::read_to_string(format!("/proc/{}/net/udp", child.id())).unwrap_or_default();
        wait_until("the question", || asked().contains(SILENT_IN_PROC));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        assert!(told(&ended).contains("interrupted before the remote host answered"), "{ended:?}");
        assert!(!told(&ended).contains("name lookup"), "{ended:?}");
    }
    link.close().unwrap();
}
