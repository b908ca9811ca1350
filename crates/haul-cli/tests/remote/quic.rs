//! Transfers over QUIC, and over SCTP where there is one.

use super::{Fixture, assert_alike, assert_ended, assert_no_strays};

pub(super) const QUIC: &str = "--transport=quic";

#[test]
fn a_tree_arrives_over_quic_in_both_directions() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--udp-ports=47400-47499"]);
    let sent = fixture.run(&["send", QUIC, "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains(" UDP datagrams sent"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    for cc in ["haul", "bbr", "cubic"] {
        let cc = format!("--cc={cc}");
        let fetch = ["fetch", QUIC, &cc, "--json", "--ticket-file", "ticket", ":in/data/", "back"];
        let fetched = fixture.run(&fetch);
        assert_ended(&fetched, 0);
        assert!(fetched.out.contains("\"datagrams\":{"), "{fetched:#?}");
        assert_alike(&fixture.path("data"), &fixture.path("back"));
    }
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn a_tree_arrives_over_quic_beside_ssh() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &[QUIC, "--rate=50M", "--streams=2", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains(" UDP datagrams sent"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let fetched = fixture.over_ssh("fetch", &[QUIC, "--rate=50M", "localhost:in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("back"));
    let inside = fixture.over_ssh("send", &[QUIC, "--inside-ssh", "data", "localhost:never"]);
    assert_ended(&inside, 2);
    assert!(inside.err.contains("no UDP inside ssh"), "{inside:#?}");
    assert!(!fixture.path("there/never").exists());
}

#[test]
fn options_that_quic_does_not_have_are_refused() {
    let fixture = Fixture::new();
    fixture.tree("data");
    for (options, says) in [
        (&["--plain"][..], "--transport=quic encrypts the data; omit --plain"),
        (&["--packet-check=crc16"], "--packet-check applies to --transport=udp"),
        (&["--chunk-size=1000"], "--chunk-size applies to --transport=udp"),
        (&["--cc=reno"], "--cc: must be haul, bbr or cubic with --transport=quic, not 'reno'"),
    ] {
        let job = [&["send", QUIC], options, &["--ticket-file", "ticket", "data", ":in"]].concat();
        let refused = fixture.run(&job);
        assert_ended(&refused, 2);
        assert!(refused.err.contains(says), "{refused:#?}");
    }
}

#[test]
fn a_server_without_udp_refuses_quic_with_the_reason() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--transport=tcp"]);
    let refused = fixture.run(&["send", QUIC, "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("the server does not use UDP"), "{refused:#?}");
    assert!(!fixture.path("there/in").exists());
}

/// Kernels without SCTP say so at both ends. Where there is SCTP, a tree arrives by it.
#[test]
fn missing_sctp_is_reported_at_both_ends() {
    let fixture = Fixture::new();
    fixture.tree("data");
    const SCTP: &str = "--transport=sctp";
    let has_sctp = std::fs::read_to_string("/proc/net/protocols").unwrap().contains("SCTP");
    let says = "cannot open an SCTP socket: this kernel does not support SCTP; use --transport=tcp";
    let options: &[&str] = if has_sctp { &["--root", "there", SCTP] } else { &["--root", "there"] };
    let _server = fixture.serve(options);
    let sent = fixture.run(&["send", SCTP, "--ticket-file", "ticket", "data", ":in"]);
    if has_sctp {
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    } else {
        assert_ended(&sent, 2);
        assert!(sent.err.contains(says), "{sent:#?}");
        let served = fixture.run(&["serve", SCTP, "--root", "there", "--listen", "127.0.0.1:0"]);
        assert_ne!(served.status, Some(0), "{served:#?}");
        assert!(served.err.contains(says), "{served:#?}");
    }
    let beside_ssh = fixture.over_ssh("send", &[SCTP, "data", "localhost:in"]);
    assert_ended(&beside_ssh, 2);
    assert!(beside_ssh.err.contains("--transport=sctp needs a ticket"), "{beside_ssh:#?}");
    let refused = fixture.run(&["serve", SCTP, "--plain", "--root", "there"]);
    assert!(refused.err.contains("needs encryption; omit --plain"), "{refused:#?}");
    let refused = fixture.run(&["send", SCTP, "--plain", "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("needs encryption; omit --plain"), "{refused:#?}");
}
