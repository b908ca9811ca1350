//! Tickets: the operations that they permit, and the tickets that a server refuses.

use super::{Bed, PATIENCE, assert_alike, assert_ended, assert_no_strays, own_port};
use haul_lab::line::Line;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn a_ticket_sends_and_fetches() {
    let bed = Bed::new();
    bed.tree("data");
    let server = bed.serve(&["--root", "there"]);
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&sent, 0);
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    assert!(server.says("transferred").contains("session "));
    let fetched = bed.run(&["fetch", "--ticket-file", "ticket", ":in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&bed.path("data"), &bed.path("back"));
    let fetched = bed.run(&["fetch", "--ticket-file", "ticket", ":in/data/big", ":in/data/sub", "some"]);
    assert_ended(&fetched, 0);
    assert_alike(&bed.path("data/sub"), &bed.path("some/sub"));
    assert_no_strays(&bed.path("there"));
}

#[test]
fn what_a_fetch_asks_for_and_the_other_side_lacks_is_named_and_fails_the_job() {
    let bed = Bed::new();
    bed.tree("there/data");
    let _server = bed.serve(&["--root", "there"]);
    let fetched = bed.run(&["fetch", "--json", "--ticket-file", "ticket", ":data/big", ":nowhere", "back"]);
    assert_ended(&fetched, 1);
    assert_eq!(fs::read(bed.path("back/big")).unwrap(), fs::read(bed.path("there/data/big")).unwrap());
    assert!(
        fetched.err.contains("nowhere: ") && fetched.err.contains("(on the remote host)"),
        "{fetched:#?}"
    );
    assert!(fetched.out.contains("\"unread\":1"), "{fetched:#?}");
}

#[test]
fn a_short_job_ends_without_a_word_of_connections() {
    let bed = Bed::new();
    bed.file("there/small", 10);
    let _server = bed.serve(&["--root", "there"]);
    for round in 0..10 {
        let to = format!("back{round}");
        let fetched = bed.run(&["fetch", "--streams=8", "--ticket-file", "ticket", ":small", &to]);
        assert_ended(&fetched, 0);
        assert!(!fetched.err.contains("connection"), "{fetched:#?}");
    }
}

#[test]
fn a_ticket_comes_by_standard_input_and_never_by_an_argument() {
    let bed = Bed::new();
    bed.tree("data");
    let _server = bed.serve(&["--root", "there"]);
    let line = fs::read_to_string(bed.path("ticket")).unwrap();
    let mut child = bed
        .haul(&["send", "--ticket-file", "-", "data", ":"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    for args in [&["send", "data", line.trim()], &["fetch", line.trim(), "back"]] {
        let ended = bed.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains("--ticket-file") && !ended.err.contains(line.trim()), "{ended:#?}");
    }
}

#[test]
fn a_one_time_ticket_ends_its_server_and_opens_nothing_again() {
    let bed = Bed::new();
    bed.tree("data");
    let server = bed.serve(&["--root", "there", "--once"]);
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
    assert_eq!(server.status(), Some(0));
    let again = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&again, 2);
    assert!(again.err.contains("cannot connect to any address"), "{again:#?}");
}

#[test]
fn a_ticket_of_another_server_is_refused_by_both_sides() {
    let bed = Bed::new();
    bed.tree("data");
    // Two servers run in turn at one port, and a third has the certificate of the second.
    let port = own_port();
    let at = format!("127.0.0.1:{port}");
    for identity in ["id1", "id2"] {
        let server = bed.serve_at(&at, &["--root", "there", "--identity", identity]);
        bed.secret(&format!("ticket of {identity}"), &fs::read_to_string(bed.path("ticket")).unwrap());
        drop(server);
    }
    let server = bed.serve_at(&at, &["--root", "there", "--identity", "id2"]);
    let sent = bed.run(&["send", "--ticket-file", "ticket of id1", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("fingerprint"), "{sent:#?}");
    // The certificate is right, but this process never issued the secret.
    let sent = bed.run(&["send", "--ticket-file", "ticket of id2", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("refused by the server"), "{sent:#?}");
    server.says("refused");
    assert_eq!(fs::read_dir(bed.path("there")).unwrap().count(), 0);
}

#[test]
fn an_expired_ticket_opens_nothing() {
    let bed = Bed::new();
    bed.tree("data");
    let server = bed.serve(&["--root", "there", "--expires", "1s"]);
    server.says("all tickets have expired");
    assert_eq!(server.status(), Some(0));
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert_eq!(fs::read_dir(bed.path("there")).unwrap().count(), 0);
}

#[test]
fn tickets_of_one_way_go_one_way() {
    let bed = Bed::new();
    bed.tree("data");
    bed.tree("there/old");
    let reading = bed.serve(&["--root", "there", "--read-only"]);
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("sending files to this host"), "{sent:#?}");
    assert_ended(&bed.run(&["fetch", "--ticket-file", "ticket", ":old", "back"]), 0);
    drop(reading);
    let _writing = bed.serve(&["--root", "there", "--write-only"]);
    let fetched = bed.run(&["fetch", "--ticket-file", "ticket", ":old", "stolen"]);
    assert_ended(&fetched, 2);
    assert!(fetched.err.contains("fetching files from this host"), "{fetched:#?}");
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
}

#[test]
fn nothing_outside_the_root_is_opened() {
    let bed = Bed::new();
    bed.tree("data");
    bed.file("secret", 100);
    std::os::unix::fs::symlink(bed.path(""), bed.path("there/up")).unwrap();
    let _server = bed.serve(&["--root", "there"]);
    for path in [":../secret", ":up/secret", ":a/../../secret"] {
        let fetched = bed.run(&["fetch", "--ticket-file", "ticket", path, "back"]);
        assert_ended(&fetched, 2);
        assert!(!bed.path("back/secret").exists(), "{path}: {fetched:#?}");
    }
    for path in [":..", ":up", ":../outside"] {
        let sent = bed.run(&["send", "--ticket-file", "ticket", "data/small", path]);
        assert_ended(&sent, 2);
        assert!(!bed.path("small").exists() && !bed.path("outside").exists(), "{path}: {sent:#?}");
    }
}

#[test]
fn a_quota_is_kept() {
    let bed = Bed::new();
    bed.tree("data");
    let _server = bed.serve(&["--root", "there", "--quota", "600K"]);
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("quota exceeded"), "{sent:#?}");
    assert!(!bed.path("there/data/big").exists());
}

#[test]
fn plain_text_is_asked_for_by_both_or_refused() {
    let bed = Bed::new();
    bed.tree("data");
    let plain = bed.serve(&["--root", "there", "--plain"]);
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("without encryption"), "{sent:#?}");
    assert_ended(&bed.run(&["send", "--plain", "--ticket-file", "ticket", "data", ":"]), 0);
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    drop(plain);
    let _server = bed.serve(&["--root", "there"]);
    assert_ended(&bed.run(&["send", "--plain", "--ticket-file", "ticket", "data", ":"]), 2);
}

/// An observer of the connection sees neither names nor bytes, unless both sides request plain
/// text.
#[test]
fn what_travels_is_seen_on_the_way_only_where_plain_text_was_asked_for() {
    let bed = Bed::new();
    let text = "do not read this in transit\n".repeat(3000);
    fs::create_dir(bed.path("data")).unwrap();
    fs::write(bed.path("data/confidential"), &text).unwrap();
    for (to, plain) in [(":hidden", &[][..]), (":open", &["--plain"])] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = format!("--address={}", listener.local_addr().unwrap());
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()));
        let _server = bed.serve_at(&server.to_string(), &[&["--root", "there", &told][..], plain].concat());
        let line = Line::between(listener, server, Vec::new()).unwrap();
        let sent = bed.run(&[&["send", "--ticket-file=ticket"][..], plain, &["data", to]].concat());
        assert_ended(&sent, 0);
        assert_alike(&bed.path("data"), &bed.path("there").join(&to[1..]).join("data"));
        let heard = line.heard();
        assert!(heard.len() > text.len(), "all went by the line: {} bytes", heard.len());
        for words in [&b"do not read this"[..], b"confidential"] {
            let is_seen = heard.windows(words.len()).any(|bytes| bytes == words);
            assert_eq!(is_seen, !plain.is_empty(), "{to}: {}", words.escape_ascii());
        }
    }
}

/// Another host chooses the names. No output that contains them moves a cursor or looks like a
/// separate message.
#[test]
fn no_name_steers_a_terminal_at_either_side() {
    const NAME: &str = "\u{1b}[2J\nhaul: all is well";
    #[track_caller]
    fn assert_tame(told: &str) {
        assert!(told.contains("well"), "it is named: {told:?}");
        assert!(!told.contains(|sign: char| sign.is_control() && sign != '\n'), "{told:?}");
        assert!(!told.lines().any(|line| line.starts_with("haul: all is well")), "{told}");
    }
    let bed = Bed::new();
    bed.file(&format!("data/{NAME}"), 100);
    bed.file(&format!("there/in/data/{NAME}/in the way"), 1);
    bed.file(&format!("back/data/old {NAME}"), 1);
    let server = bed.serve(&["--root", "there"]);
    let by_ticket = |command: &str, options: &[&str], operands: &[&str]| {
        bed.run(&[&[command, "--ticket-file=ticket"], options, operands].concat())
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
    let jobs = bed.run(&["jobs"]);
    assert_tame(&jobs.out);
    let mut log = String::new();
    while !log.contains("1 failed") {
        log += &server.log.recv_timeout(PATIENCE).expect("the server logs each session");
        log.push('\n');
    }
    assert_tame(&log);
}

#[test]
fn a_ticket_that_others_may_read_is_not_used() {
    let bed = Bed::new();
    bed.tree("data");
    let _server = bed.serve(&["--root", "there"]);
    fs::set_permissions(bed.path("ticket"), fs::Permissions::from_mode(0o644)).unwrap();
    let sent = bed.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("chmod 600"), "{sent:#?}");
}
