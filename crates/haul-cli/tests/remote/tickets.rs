//! Tickets: the operations that they permit, and the tickets that a server refuses.

use super::{Fixture, TEST_TIMEOUT, assert_alike, assert_ended, assert_no_strays, own_port};
use haul_lab::fault_proxy::FaultProxy;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn send_and_fetch_work_with_a_ticket() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let server = fixture.serve(&["--root", "there"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&sent, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    assert!(server.wait_for_log("transferred").contains("session "));
    let fetched = fixture.run(&["fetch", "--ticket-file", "ticket", ":in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("back"));
    let fetched = fixture.run(&["fetch", "--ticket-file", "ticket", ":in/data/big", ":in/data/sub", "some"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data/sub"), &fixture.path("some/sub"));
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn a_missing_remote_source_is_reported_and_fails_the_fetch() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    let _server = fixture.serve(&["--root", "there"]);
    let fetched =
        fixture.run(&["fetch", "--json", "--ticket-file", "ticket", ":data/big", ":nowhere", "back"]);
    assert_ended(&fetched, 1);
    assert_eq!(
        fs::read(fixture.path("back/big")).unwrap(),
        fs::read(fixture.path("there/data/big")).unwrap()
    );
    assert!(
        fetched.err.contains("nowhere: ") && fetched.err.contains("(on the remote host)"),
        "{fetched:#?}"
    );
    assert!(fetched.out.contains("\"unread\":1"), "{fetched:#?}");
}

#[test]
fn a_short_job_prints_no_connection_warnings() {
    let fixture = Fixture::new();
    fixture.file("there/small", 10);
    let _server = fixture.serve(&["--root", "there"]);
    for round in 0..10 {
        let to = format!("back{round}");
        let fetched = fixture.run(&["fetch", "--streams=8", "--ticket-file", "ticket", ":small", &to]);
        assert_ended(&fetched, 0);
        assert!(!fetched.err.contains("connection"), "{fetched:#?}");
    }
}

#[test]
fn a_ticket_is_read_from_standard_input_and_not_from_arguments() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there"]);
    let line = fs::read_to_string(fixture.path("ticket")).unwrap();
    let mut child = fixture
        .haul(&["send", "--ticket-file", "-", "data", ":"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    for args in [&["send", "data", line.trim()], &["fetch", line.trim(), "back"]] {
        let ended = fixture.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains("--ticket-file") && !ended.err.contains(line.trim()), "{ended:#?}");
    }
}

#[test]
fn a_one_time_ticket_ends_its_server_and_cannot_be_reused() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let server = fixture.serve(&["--root", "there", "--once"]);
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
    assert_eq!(server.status(), Some(0));
    let again = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&again, 2);
    assert!(again.err.contains("cannot connect to any address"), "{again:#?}");
}

#[test]
fn a_ticket_of_another_server_is_refused_by_both_sides() {
    let fixture = Fixture::new();
    fixture.tree("data");
    // Two servers run in turn at one port, and a third has the certificate of the second.
    let port = own_port();
    let at = format!("127.0.0.1:{port}");
    for identity in ["id1", "id2"] {
        let server = fixture.serve_at(&at, &["--root", "there", "--identity", identity]);
        fixture
            .secret(&format!("ticket of {identity}"), &fs::read_to_string(fixture.path("ticket")).unwrap());
        drop(server);
    }
    let server = fixture.serve_at(&at, &["--root", "there", "--identity", "id2"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket of id1", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("fingerprint"), "{sent:#?}");
    // The certificate is right, but this process never issued the secret.
    let sent = fixture.run(&["send", "--ticket-file", "ticket of id2", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("refused by the server"), "{sent:#?}");
    server.wait_for_log("refused");
    assert_eq!(fs::read_dir(fixture.path("there")).unwrap().count(), 0);
}

#[test]
fn an_expired_ticket_is_refused() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let server = fixture.serve(&["--root", "there", "--expires", "1s"]);
    server.wait_for_log("all tickets have expired");
    assert_eq!(server.status(), Some(0));
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert_eq!(fs::read_dir(fixture.path("there")).unwrap().count(), 0);
}

#[test]
fn read_only_and_write_only_tickets_allow_one_direction() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.tree("there/old");
    let reading = fixture.serve(&["--root", "there", "--read-only"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("sending files to this host"), "{sent:#?}");
    assert_ended(&fixture.run(&["fetch", "--ticket-file", "ticket", ":old", "back"]), 0);
    drop(reading);
    let _writing = fixture.serve(&["--root", "there", "--write-only"]);
    let fetched = fixture.run(&["fetch", "--ticket-file", "ticket", ":old", "stolen"]);
    assert_ended(&fetched, 2);
    assert!(fetched.err.contains("fetching files from this host"), "{fetched:#?}");
    let deleting = fixture.run(&["send", "--delete", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&deleting, 2);
    assert!(deleting.err.contains("cannot delete here"), "{deleting:#?}");
    assert!(fixture.path("there/old").exists(), "{deleting:#?}");
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
}

#[test]
fn no_path_outside_the_root_is_opened() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("secret", 100);
    std::os::unix::fs::symlink(fixture.path(""), fixture.path("there/up")).unwrap();
    let _server = fixture.serve(&["--root", "there"]);
    for path in [":../secret", ":up/secret", ":a/../../secret"] {
        let fetched = fixture.run(&["fetch", "--ticket-file", "ticket", path, "back"]);
        assert_ended(&fetched, 2);
        assert!(!fixture.path("back/secret").exists(), "{path}: {fetched:#?}");
    }
    for path in [":..", ":up", ":../outside"] {
        let sent = fixture.run(&["send", "--ticket-file", "ticket", "data/small", path]);
        assert_ended(&sent, 2);
        assert!(!fixture.path("small").exists() && !fixture.path("outside").exists(), "{path}: {sent:#?}");
    }
}

#[test]
fn a_file_above_the_quota_is_refused() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--quota", "600K"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("quota exceeded"), "{sent:#?}");
    assert!(!fixture.path("there/data/big").exists());
}

#[test]
fn plain_text_must_be_requested_by_both_sides() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let plain = fixture.serve(&["--root", "there", "--plain"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("without encryption"), "{sent:#?}");
    assert_ended(&fixture.run(&["send", "--plain", "--ticket-file", "ticket", "data", ":"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(plain);
    let _server = fixture.serve(&["--root", "there"]);
    assert_ended(&fixture.run(&["send", "--plain", "--ticket-file", "ticket", "data", ":"]), 2);
}

/// An observer of the connection sees neither names nor bytes, unless both sides request plain
/// text.
#[test]
fn transferred_data_is_readable_only_with_plain_text() {
    let fixture = Fixture::new();
    let text = "do not read this in transit\n".repeat(3000);
    fs::create_dir(fixture.path("data")).unwrap();
    fs::write(fixture.path("data/confidential"), &text).unwrap();
    for (to, plain) in [(":hidden", &[][..]), (":open", &["--plain"])] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = format!("--address={}", listener.local_addr().unwrap());
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()));
        let _server =
            fixture.serve_at(&server.to_string(), &[&["--root", "there", &told][..], plain].concat());
        let line = FaultProxy::between(listener, server, Vec::new()).unwrap();
        let sent = fixture.run(&[&["send", "--ticket-file=ticket"][..], plain, &["data", to]].concat());
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path("there").join(&to[1..]).join("data"));
        let bytes_to_server = line.bytes_to_server();
        assert!(bytes_to_server.len() > text.len(), "all went by the line: {} bytes", bytes_to_server.len());
        for words in [&b"do not read this"[..], b"confidential"] {
            let is_seen = bytes_to_server.windows(words.len()).any(|bytes| bytes == words);
            assert_eq!(is_seen, !plain.is_empty(), "{to}: {}", words.escape_ascii());
        }
    }
}

/// Another host chooses the names. No output that contains them moves a cursor or looks like a
/// separate message.
#[test]
fn control_characters_in_names_are_escaped_on_both_sides() {
    const NAME: &str = "\u{1b}[2J\nhaul: all is well";
    #[track_caller]
    fn assert_tame(told: &str) {
        assert!(told.contains("well"), "it is named: {told:?}");
        assert!(!told.contains(|sign: char| sign.is_control() && sign != '\n'), "{told:?}");
        assert!(!told.lines().any(|line| line.starts_with("haul: all is well")), "{told}");
    }
    let fixture = Fixture::new();
    fixture.file(&format!("data/{NAME}"), 100);
    fixture.file(&format!("there/in/data/{NAME}/in the way"), 1);
    fixture.file(&format!("back/data/old {NAME}"), 1);
    let server = fixture.serve(&["--root", "there"]);
    let by_ticket = |command: &str, options: &[&str], operands: &[&str]| {
        fixture.run(&[&[command, "--ticket-file=ticket"], options, operands].concat())
    };
    let sent = by_ticket("send", &["-v"], &["data", ":new"]);
    assert_ended(&sent, 0);
    assert_tame(&sent.out);
    let refused = by_ticket("send", &[], &["data", ":in"]);
    assert_ended(&refused, 1);
    assert_tame(&refused.err);
    let fetched = by_ticket("fetch", &["-v", "--delete"], &[":new/data", "back"]);
    assert_ended(&fetched, 0);
    assert!(fetched.out.contains("deleted"), "{fetched:#?}");
    assert_tame(&fetched.out);
    let missing = by_ticket("fetch", &[], &[":new/data", &format!(":{NAME}"), "back"]);
    assert_ended(&missing, 1);
    assert_tame(&missing.err);
    let jobs = fixture.run(&["jobs"]);
    assert_tame(&jobs.out);
    let mut log = String::new();
    while !log.contains("1 failed") {
        log += &server.log.recv_timeout(TEST_TIMEOUT).expect("the server logs each session");
        log.push('\n');
    }
    assert_tame(&log);
}

#[test]
fn a_ticket_file_readable_by_others_is_refused() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there"]);
    fs::set_permissions(fixture.path("ticket"), fs::Permissions::from_mode(0o644)).unwrap();
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("chmod 600"), "{sent:#?}");
}
