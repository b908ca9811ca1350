//! Confinement of the receiving side by the kernel, its user, and the protection of its secrets.

use super::endless::{come, come_with};
use super::{Fixture, assert_alike, assert_ended};
use haul_digest::{Algorithm, digest};
use haul_lab::misbehaving_peer::{MisbehavingPeer, block, block_digest, file_close, new_file, plain, read};
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use haul_net::Ticket;
use haul_proto::{FileKind, FileNumber, JobOptions, Message, Outcome, Stated};
use haul_sys::{sandbox, users};
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

/// User and group without rights.
const NOBODY: u32 = 65534;

fn name_of_nobody() -> String {
    users::user_name(NOBODY).unwrap().unwrap().into_string().unwrap()
}

fn has_landlock() -> bool {
    shown_or_skip(sandbox::version().is_some(), "a kernel with Landlock")
}

/// Sends the file `path` and returns its outcome.
fn sent(peer: &mut MisbehavingPeer, number: u64, path: &str) -> Outcome {
    let bytes = b"data";
    peer.say(&Message::NewFile(Box::new(new_file(number, path.as_bytes(), plain(4)))), &[]);
    peer.say(&Message::NewBlock(block(number, bytes)), bytes);
    peer.say(&block_digest(number, 0, Stated::Digest(digest(Algorithm::Blake3, bytes))), &[]);
    peer.say(&file_close(number, read(4)), &[]);
    outcome(peer, number)
}

fn outcome(peer: &mut MisbehavingPeer, number: u64) -> Outcome {
    match peer.hear() {
        Message::FileDone(done) if done.number == FileNumber(number) => done.outcome,
        other => panic!("{other:?} instead of the end of {number}"),
    }
}

/// Sends a file into a directory that the receiver keeps open, moves that directory out of the
/// root, and sends another file. No check of a path notices the move. Returns the outcome of the
/// second file.
fn sent_into_moved_directory(fixture: &Fixture, peer: &mut MisbehavingPeer) -> Outcome {
    peer.say(&Message::NewFile(Box::new(new_file(0, b"d", FileKind::Directory))), &[]);
    assert!(matches!(outcome(peer, 0), Outcome::Done(_)));
    assert!(matches!(sent(peer, 1, "d/one"), Outcome::Done(_)));
    fs::create_dir(fixture.path("outside")).unwrap();
    fs::rename(fixture.path("there/d"), fixture.path("outside/d")).unwrap();
    sent(peer, 2, "d/two")
}

#[track_caller]
fn assert_refused(fixture: &Fixture, outcome: &Outcome) {
    let Outcome::Failed(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.to_string().contains("Permission denied"), "{reason}");
    assert!(!fixture.path("outside/d/two").exists());
}

#[test]
fn the_kernel_refuses_a_server_session_to_write_outside_its_root() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.serve(&["--root", "there", "--sandbox=require"]);
    server.wait_for_log("the kernel confines each session to its directory");
    let mut peer = come(&fixture, &JobOptions::default());
    let second = sent_into_moved_directory(&fixture, &mut peer);
    assert_refused(&fixture, &second);
    peer.part(3);
    // One session does not confine another, nor the server.
    let other = sent(&mut come(&fixture, &JobOptions::default()), 0, "f");
    assert!(matches!(other, Outcome::Done(_)), "{other:?}");
}

#[test]
fn without_the_sandbox_only_the_checks_of_paths_hold() {
    let fixture = Fixture::new();
    let server = fixture.serve(&["--root", "there", "--sandbox=off"]);
    server.wait_for_log("does not confine");
    let mut peer = come(&fixture, &JobOptions::default());
    let second = sent_into_moved_directory(&fixture, &mut peer);
    assert!(matches!(second, Outcome::Done(_)), "{second:?}");
    assert!(fixture.path("outside/d/two").exists());
}

/// A `haul meet` that runs as ssh would start it, ended with the value.
struct Met {
    child: Child,
    ticket: Ticket,
}

impl Drop for Met {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `haul meet` for a session that sends to the working directory; as this user, if given.
fn met(fixture: &Fixture, user: Option<u32>) -> Met {
    let mut command = fixture.haul(&["meet"]);
    command.current_dir(fixture.path("there")).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut child = command.spawn().unwrap();
    let request = "{\"meet\":2,\"way\":\"send\",\"paths\":[\"\"],\"ports\":null,\"lanes\":1,\"buffers\":1000000,\
                   \"rate\":null,\"congestion\":null,\"multipath\":false,\"plain\":false,\"waybill\":null}\n";
    child.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let (_, ticket) = line.split_once("\"ticket\":\"").unwrap_or_else(|| panic!("no ticket in {line}"));
    let ticket = Ticket::parse(ticket.split_once('"').unwrap().0).unwrap();
    let here = format!("127.0.0.1:{}", ticket.addresses()[0].port).parse().unwrap();
    Met { child, ticket: ticket.with_addresses(vec![here]).unwrap() }
}

#[test]
fn the_kernel_refuses_the_receiver_over_ssh_to_write_outside_its_root() {
    if !has_landlock() {
        return;
    }
    let fixture = Fixture::new();
    let met = met(&fixture, None);
    let mut peer = come_with(met.ticket.clone(), &JobOptions::default());
    let second = sent_into_moved_directory(&fixture, &mut peer);
    assert_refused(&fixture, &second);
    peer.part(3);
}

/// Returns the owner of the files that show the memory of a process: root if it is protected.
fn owner_of_memory(child: &Child) -> u32 {
    fs::metadata(format!("/proc/{}/mem", child.id())).unwrap().uid()
}

fn open_to_all(fixture: &Fixture) {
    fs::set_permissions(fixture.home.path(), Permissions::from_mode(0o755)).unwrap();
    chown(fixture.path("there"), Some(NOBODY), Some(NOBODY)).unwrap();
}

fn line_of_status(child: &Child, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

#[test]
fn the_memory_of_processes_with_a_ticket_is_closed_to_their_user() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    open_to_all(&fixture);
    let met = met(&fixture, Some(NOBODY));
    assert_eq!(line_of_status(&met.child, "Uid:").split_whitespace().next(), Some("65534"));
    assert_eq!(owner_of_memory(&met.child), 0);
    // A client that waits for its server has read the ticket.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ticket = met.ticket.clone().with_addresses(vec![listener.local_addr().unwrap().into()]).unwrap();
    fixture.secret("ticket", &ticket.to_line());
    chown(fixture.path("ticket"), Some(NOBODY), Some(NOBODY)).unwrap();
    fixture.tree("data");
    let mut send = fixture.haul(&["send", "--ticket-file", "ticket", "data", ":"]);
    let mut sender = send.uid(NOBODY).gid(NOBODY).stderr(Stdio::null()).spawn().unwrap();
    let (connection, _) = listener.accept().unwrap();
    assert_eq!(owner_of_memory(&sender), 0);
    sender.kill().unwrap();
    sender.wait().unwrap();
    drop(connection);
}

/// With memory closed to its user, haul must still reach its own descriptors through /proc.
#[test]
fn transfers_work_for_an_ordinary_user() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    open_to_all(&fixture);
    fixture.tree("data");
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    chown(fixture.home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    for (command, from, to) in [("send", "data", "localhost:in"), ("fetch", "localhost:in/data", "back")] {
        let words = ["-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--verify=reread", from, to];
        let mut command = fixture.haul(&[&[command], &words[..]].concat());
        let ended = command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    assert_alike(&fixture.path("data"), &fixture.path("back/data"));
}

#[test]
fn a_server_started_by_root_changes_to_its_user() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    open_to_all(&fixture);
    fixture.tree("data");
    fs::create_dir(fixture.path("lib")).unwrap();
    fs::create_dir(fixture.path("state")).unwrap();
    chown(fixture.path("state"), Some(NOBODY), Some(NOBODY)).unwrap();
    let user = name_of_nobody();
    let config = format!(
        "listen = ['127.0.0.1:0']\nuser = '{user}'\nsandbox = 'auto'\nidentity = 'lib/identity.pem'\nstate-dir = 'state'\n\
                  [[share]]\nroot = 'there'\nticket = 'lib/ticket'\n"
    );
    fs::write(fixture.path("serve.toml"), config).unwrap();
    let server = fixture.serve_config("serve.toml");
    server.wait_for_log("listening on");
    for name in ["Uid:", "Gid:"] {
        assert_eq!(line_of_status(&server.child, name), ["65534"; 4].join("\t"), "{name}");
    }
    assert!(!line_of_status(&server.child, "Groups:").split_whitespace().any(|group| group == "0"));
    assert_eq!(u64::from_str_radix(&line_of_status(&server.child, "CapPrm:"), 16), Ok(0));
    assert_eq!(owner_of_memory(&server.child), 0);
    for secret in ["lib/identity.pem", "lib/ticket"] {
        assert_eq!(fs::metadata(fixture.path(secret)).unwrap().uid(), 0, "{secret}");
    }
    assert_ended(&fixture.run(&["send", "--ticket-file", "lib/ticket", "data", ":in"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    assert_eq!(fs::metadata(fixture.path("there/in/data/big")).unwrap().uid(), NOBODY);
}

#[test]
fn users_that_a_server_cannot_change_to_are_reported() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--ticket-file", "ticket"];
    let user = name_of_nobody();
    let ended = |args: &[&str]| fixture.run(&[&serve[..], args].concat());
    let unknown = ended(&["--root", "there", "--user", "no-such-user"]);
    assert_ended(&unknown, 2);
    assert!(unknown.err.contains("there is no such user"), "{unknown:#?}");
    // The test directory belongs to root alone.
    let closed = ended(&["--root", "there", "--user", &user]);
    assert_ended(&closed, 2);
    assert!(closed.err.contains("cannot serve 'there' as user"), "{closed:#?}");
    open_to_all(&fixture);
    fs::create_dir(fixture.path("own")).unwrap();
    fs::set_permissions(fixture.path("own"), Permissions::from_mode(0o700)).unwrap();
    let state = ended(&["--root", "there", "--user", &user, "--state-dir", "own"]);
    assert_ended(&state, 2);
    assert!(state.err.contains("own/serve"), "{state:#?}");
    let mut other = fixture.haul(&[&serve[..], &["--root", "there", "--user", "root"]].concat());
    let other = other.uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(String::from_utf8_lossy(&other.stderr).contains("only root may"), "{other:?}");
}

/// A service whose output is the journal must not print its ticket: the journal keeps it, and more
/// users read it.
#[test]
fn no_ticket_is_printed_to_the_journal() {
    let fixture = Fixture::new();
    let journal = File::create(fixture.path("journal")).unwrap();
    let facts = journal.metadata().unwrap();
    let mut command = fixture.haul(&["serve", "--listen", "127.0.0.1:0", "--root", "there", "--once"]);
    command.env("JOURNAL_STREAM", format!("{}:{}", facts.dev(), facts.ino()));
    let ended = command.stdout(journal).output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{reported}");
    assert!(reported.contains("--ticket-file"), "{reported}");
    assert_eq!(fs::read(fixture.path("journal")).unwrap(), b"");
    // A service can have another output, which is not the journal.
    let mut command = fixture.haul(&["serve", "--listen", "127.0.0.1:0", "--root", "there"]);
    command.env("JOURNAL_STREAM", "1:1");
    let server = fixture.serve_by(command);
    server.wait_for_log("listening on");
    assert!(!fs::read_to_string(fixture.path("ticket")).unwrap().is_empty());
}

#[test]
fn the_unit_file_is_valid_and_hardened() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/haul-serve.service");
    let unit = fs::read_to_string(unit).unwrap();
    for line in
        ["SystemCallFilter=@system-service", "RestrictSUIDSGID=true", "LimitCORE=0", "NoNewPrivileges=true"]
    {
        assert!(unit.lines().any(|found| found.starts_with(line)), "{line}");
    }
    if !met_or_skip(&[Need::Program("systemd-analyze")]) {
        return;
    }
    let fixture = Fixture::new();
    // The check looks for the program and for the user.
    let unit = unit
        .replace("/usr/local/bin/haul", env!("CARGO_BIN_EXE_haul"))
        .replace("User=haul", "User=root")
        .replace("Group=haul", "Group=root");
    let path = fixture.path("haul-serve.service");
    fs::write(&path, unit).unwrap();
    let ended = std::process::Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr);
    let ours = reported.lines().filter(|line| line.contains("haul-serve"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(ended.status.success(), "{reported}");
}
