//! `haul list`: names of a directory of another host.

use super::{Fixture, RunResult, assert_ended};
use haul_lab::misbehaving_peer::MisbehavingPeer;
use haul_net::{DialSettings, Dialer, Ticket};
use haul_proto::{Connect, Features, JobOptions, Message, PeerText, Role, Why};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

const TICKET: &str = "--ticket-file=ticket";

/// Creates names of each kind in `there/data`.
fn names(fixture: &Fixture) {
    fixture.tree("there/data");
    fixture.file("there/data/<b>a\nb", 3);
    fixture.file("there/data/.haul-0-1", 3);
    symlink("sub", fixture.path("there/data/within")).unwrap();
    symlink("../../outside", fixture.path("there/data/out")).unwrap();
    fixture.file("outside/secret", 3);
    let big = fs::File::options().write(true).open(fixture.path("there/data/big")).unwrap();
    big.set_modified(UNIX_EPOCH + Duration::from_secs(1_764_225_276)).unwrap();
    big.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
}

#[track_caller]
fn assert_lists(listed: &RunResult) {
    assert_ended(listed, 0);
    assert_eq!(listed.out, "'<b>a'$'\\n''b'\nbig\nempty\none\nout\nsmall\nsub\nwithin\n", "{listed:#?}");
}

#[test]
fn names_are_listed_over_every_transport() {
    let fixture = Fixture::new();
    names(&fixture);
    let _server = fixture.serve(&["--root", "there"]);
    for transport in ["tcp", "udp", "quic", "auto"] {
        assert_lists(&fixture.run(&["list", "--transport", transport, TICKET, ":data"]));
    }
    assert_lists(&fixture.over_ssh("list", &["localhost:data"]));
    assert_lists(&fixture.over_ssh("list", &["--ports=48500-48599", "localhost:data"]));
    assert_lists(&fixture.over_ssh("list", &["--inside-ssh", "localhost:data/"]));
    let _plain = fixture.serve(&["--root", "there", "--plain"]);
    assert_lists(&fixture.run(&["list", "--plain", TICKET, ":data/"]));
}

#[test]
fn long_null_and_json_listings_have_the_metadata() {
    let fixture = Fixture::new();
    names(&fixture);
    let _server = fixture.serve(&["--root", "there", "--read-only"]);
    let long = fixture.run(&["list", "-l", TICKET, ":data"]);
    assert_ended(&long, 0);
    assert!(long.out.contains("\n- 0640          700000 2025-11-27T06:34:36Z big\n"), "{long:#?}");
    assert!(long.out.contains("\nd 0755 ") && long.out.contains("\nl 0777 "), "{long:#?}");
    let zero = fixture.run(&["list", "-0", TICKET, ":data"]);
    assert_eq!(zero.out, "<b>a\nb\0big\0empty\0one\0out\0small\0sub\0within\0");
    let json = fixture.run(&["list", "--json", TICKET, ":data"]);
    let lines: Vec<Value> = json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    assert_eq!((&lines[0]["name"], &lines[0]["kind"]), (&"<b>a\nb".into(), &"file".into()));
    assert_eq!((&lines[1]["size"], &lines[1]["mtime"]), (&700_000.into(), &1_764_225_276.into()));
    assert_eq!((&lines[6]["kind"], &lines[7]["kind"]), (&"directory".into(), &"link".into()));
    let root = fixture.run(&["list", TICKET, ":"]);
    assert_eq!((root.status, root.out.as_str()), (Some(0), "data\n"));
}

/// Regression: JSON permits U+009B, which starts a command of some terminals.
#[test]
fn json_listings_have_no_control_characters() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("there")).unwrap();
    fs::write(fixture.path("there/\u{9b}2J\u{7f}ä"), "").unwrap();
    let _server = fixture.serve(&["--root", "there"]);
    let listed = fixture.run(&["list", "--json", TICKET, ":"]);
    assert!(!listed.out.trim_end().contains(char::is_control), "{listed:#?}");
    let line: Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(line["name"], "\u{9b}2J\u{7f}ä");
}

#[test]
fn listings_stay_beneath_the_root_and_say_why_they_fail() {
    let fixture = Fixture::new();
    names(&fixture);
    let server = fixture.serve(&["--root", "there"]);
    let within = fixture.run(&["list", TICKET, ":data/within"]);
    assert_eq!((within.status, within.out.as_str()), (Some(0), "'x y'\n"));
    server.wait_for_log("listed a directory; names: 1");
    for (path, why) in [
        (":data/out", "cannot list the directory"),
        (":data/../../outside", "invalid name"),
        (":none", "does not exist"),
        (":data/big", "a different file exists"),
    ] {
        let refused = fixture.run(&["list", TICKET, path]);
        assert_ended(&refused, 2);
        assert!(refused.err.contains(why) && !refused.err.contains("secret"), "{refused:#?}");
    }
    let local = fixture.run(&["list", "data"]);
    assert_ended(&local, 2);
    assert!(local.err.contains("HOST:PATH"), "{local:#?}");
}

#[test]
fn a_ticket_that_may_not_fetch_may_not_list() {
    let fixture = Fixture::new();
    names(&fixture);
    let server = fixture.serve(&["--root", "there", "--write-only", "--once"]);
    let refused = fixture.run(&["list", TICKET, ":data"]);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("not allowed: fetching files from this host"), "{refused:#?}");
    // A listing is a session: it uses up a one-time ticket.
    assert_eq!(server.status(), Some(1));
}

/// A client that requests what no client of haul requests.
#[test]
fn invalid_requests_for_a_listing_are_refused() {
    let fixture = Fixture::new();
    names(&fixture);
    let _server = fixture.serve(&["--root", "there"]);
    let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
    let long = [b'x'; 256];
    for (role, operands, why) in [
        (Role::Source, &[&b"data"[..]][..], Why::Protocol),
        (Role::Sink, &[], Why::Protocol),
        (Role::Sink, &[b"data", b"a", b"b"], Why::Protocol),
        (Role::Sink, &[b"data", &long], Why::Name),
        (Role::Sink, &[b"/etc"], Why::Name),
        (Role::Sink, &[b"a\0b"], Why::Name),
    ] {
        let ticket = Ticket::parse(ticket.trim()).unwrap();
        let lane = Dialer::new(ticket, DialSettings::default()).unwrap().lane(0).unwrap();
        let mut peer = MisbehavingPeer::at(lane);
        let connect = Connect {
            needs: Features::LISTING,
            operands: operands.iter().map(|operand| (*operand).into()).collect(),
            ..Connect::new(role, JobOptions::default(), PeerText::new("liar"))
        };
        peer.say(&Message::Connect(Box::new(connect)), &[]);
        let Message::Refuse(reason) = peer.hear() else { panic!("it is refused: {operands:?}") };
        assert_eq!(reason.why, why, "{operands:?}");
    }
}
