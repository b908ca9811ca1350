//! A long-running server: its configuration, its persistent files, and many clients.

use super::stopped::wait_until;
use super::{Fixture, Server, TEST_TIMEOUT, assert_alike, assert_ended, assert_no_strays, own_port};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

/// Writes a configuration with two shares: clients write to `in` and read from `out`.
fn configured(fixture: &Fixture, port: u16) {
    fs::create_dir_all(fixture.path("in")).unwrap();
    fixture.tree("out/data");
    let text = format!(
        "listen = ['127.0.0.1:{port}']\nidentity = 'identity.pem'\nsessions = 8\n\
         [[share]]\nroot = 'in'\nticket = 'in.ticket'\naccess = 'write'\nquota = '1G'\n\
         [[share]]\nroot = 'out'\nticket = 'out.ticket'\naccess = 'read'\n"
    );
    fs::write(fixture.path("serve.toml"), text).unwrap();
}

#[test]
fn identity_and_tickets_survive_a_restart() {
    let fixture = Fixture::new();
    fixture.tree("data");
    configured(&fixture, own_port());
    for run in ["first", "second"] {
        let server = fixture.serve_config("serve.toml");
        server.wait_for_log("listening on");
        server.wait_for_log("'out'");
        for secret in ["identity.pem", "in.ticket", "out.ticket"] {
            assert_eq!(fs::metadata(fixture.path(secret)).unwrap().mode() & 0o777, 0o600, "{secret}");
        }
        let target = format!(":{run}");
        // The tickets of the first run are valid in the second.
        assert_ended(&fixture.run(&["send", "--ticket-file", "in.ticket", "data", &target]), 0);
        assert_alike(&fixture.path("data"), &fixture.path("in").join(run).join("data"));
        assert_ended(&fixture.run(&["fetch", "--ticket-file", "out.ticket", ":data", run]), 0);
        assert_alike(&fixture.path("out/data"), &fixture.path(run).join("data"));
        assert_ended(&fixture.run(&["fetch", "--ticket-file", "in.ticket", ":", "x"]), 2);
        assert_ended(&fixture.run(&["send", "--ticket-file", "out.ticket", "data", ":"]), 2);
        server.signal(Signal::TERM);
        assert_eq!(server.status(), Some(0), "to be ended is how a server ends");
    }
}

/// A quota and an expiry apply to one share; the other shares stay available.
#[test]
fn each_share_has_its_own_quota_and_end() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let share = |name: &str, more: &str| {
        fs::create_dir(fixture.path(name)).unwrap();
        format!("[[share]]\nroot = '{name}'\nticket = '{name}.ticket'\naccess = 'both'\n{more}\n")
    };
    let shares = [share("small", "quota = '600K'"), share("brief", "expires = '2s'"), share("wide", "")];
    let text =
        format!("listen = ['127.0.0.1:{}']\nidentity = 'identity.pem'\n{}", own_port(), shares.concat());
    fs::write(fixture.path("serve.toml"), text).unwrap();
    let server = fixture.serve_config("serve.toml");
    server.wait_for_log("'wide'");
    let send = |ticket: &str, to: &str| fixture.run(&["send", "--ticket-file", ticket, "data", to]);
    let sent = fixture.run(&["send", "--ticket-file=small.ticket", "data/small", "data/big", ":in"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("quota exceeded: big; 1 file failed"), "{sent:#?}");
    // The session ends at the server after the client has heard of the quota.
    server.wait_for_log("incomplete: quota exceeded");
    // The file that was received before the quota was exceeded is complete.
    let arrived = fs::read_dir(fixture.path("small/in")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(arrived.collect::<Vec<_>>(), ["small"]);
    let mut runs = 0;
    wait_until("the end of a ticket", || {
        runs += 1;
        let sent = send("brief.ticket", &format!(":{runs}"));
        assert!(matches!(sent.status, Some(0 | 2)), "{sent:#?}");
        sent.status == Some(2)
    });
    assert!(!fixture.path("brief").join(runs.to_string()).exists(), "no job was started");
    assert_ended(&fixture.run(&["fetch", "--ticket-file=brief.ticket", ":", "out"]), 2);
    assert_ended(&send("wide.ticket", ":in"), 0);
    assert_alike(&fixture.path("data"), &fixture.path("wide/in/data"));
}

/// The command that systemd runs, with the example configuration of the unit file.
#[test]
fn the_command_and_example_of_the_unit_file_start_a_server() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/haul-serve.service");
    let unit = fs::read_to_string(unit).unwrap();
    let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/haul ")).unwrap();
    let command = started.strip_suffix(" /etc/haul/serve.toml").unwrap();
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir(fixture.path("lib")).unwrap();
    let example: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let example = example.join("\n").replace("/var/lib/haul", "lib").replace("/srv/haul", "there");
    fs::write(fixture.path("serve.toml"), format!("listen = ['127.0.0.1:0']\n{example}\n")).unwrap();
    let words: Vec<&str> = command.split(' ').chain(["serve.toml"]).collect();
    let server = Server::new(fixture.haul(&words).stderr(std::process::Stdio::piped()).spawn().unwrap());
    server.wait_for_log("listening on");
    let ended = fixture.run(&["send", "--ticket-file", "lib/srv.ticket", "data", ":in"]);
    assert_ended(&ended, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
}

#[test]
fn mismatches_with_the_configuration_are_reported() {
    let fixture = Fixture::new();
    configured(&fixture, 0);
    let server = fixture.serve_config("serve.toml");
    server.wait_for_log("'out'");
    drop(server);
    let text = fs::read_to_string(fixture.path("serve.toml")).unwrap();
    let expect = |text: &str, words: &str| {
        fs::write(fixture.path("changed.toml"), text).unwrap();
        let ended = fixture.run(&["serve", "--config", "changed.toml"]);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    };
    expect(&text.replace("access = 'write'", "access = 'both'"), "grants other rights");
    expect(&text.replace("sessions", "sesions"), "sesions");
    expect(&text.replace("root = 'in'", "root = 'nowhere'"), "nowhere");
    fs::set_permissions(fixture.path("identity.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    expect(&text, "chmod 600");
    fs::remove_file(fixture.path("identity.pem")).unwrap();
    expect(&text, "another server identity");
}

#[test]
fn many_clients_are_served_at_once() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let server = fixture.serve(&["--root", "there", "--sessions", "6", "--sessions-per-peer", "6"]);
    std::thread::scope(|scope| {
        for client in 0..6 {
            let fixture = &fixture;
            scope.spawn(move || {
                let target = format!(":{client}");
                assert_ended(
                    &fixture.run(&["send", "--streams=2", "--ticket-file", "ticket", "data", &target]),
                    0,
                );
                assert_alike(&fixture.path("data"), &fixture.path(&format!("there/{client}/data")));
            });
        }
    });
    drop(server);
}

/// Number of concurrent clients, and number of sessions that the server accepts.
const CROWD: usize = 40;
const LET_IN: usize = 10;

/// Maximum number of bytes in flight for each session.
const BUFFERS: u64 = 8 << 20;

/// Runs a client until the server accepts its session. Returns true if the client had to retry.
fn patient(fixture: &Fixture, args: &[&str]) -> bool {
    for tries in 0.. {
        let ended = fixture.run(args);
        if ended.status == Some(0) {
            return tries > 0;
        }
        assert!(ended.err.contains("reached its limit of sessions"), "{ended:#?}");
        assert_eq!(ended.status, Some(2), "no job was started: {ended:#?}");
        assert!(tries < 2000, "it never had a turn");
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!("the loop ends by itself")
}

/// Returns the peak memory use of the server in bytes.
fn memory_peak(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn many_clients_are_served_within_the_server_limits() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("data/more", 3 << 20);
    fixture.tree("there/kept");
    let places = LET_IN.to_string();
    let server = fixture.serve(&[
        "--root",
        "there",
        "--sessions",
        &places,
        "--sessions-per-peer",
        &places,
        "--buffers=8M",
    ]);
    let again = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CROWD)
            .map(|client| {
                let fixture = &fixture;
                scope.spawn(move || {
                    let own = format!("own-{client}");
                    let (words, one, other) = if client % 2 == 0 {
                        (
                            ["send", "data", &format!(":{own}")].map(str::to_owned),
                            "data",
                            format!("there/{own}/data"),
                        )
                    } else {
                        (["fetch", ":kept", &own].map(str::to_owned), "there/kept", format!("{own}/kept"))
                    };
                    let [command, from, to] = &words;
                    let came_again = patient(
                        fixture,
                        &[command, "-q", "--streams=2", "--ticket-file", "ticket", from, to],
                    );
                    assert_alike(&fixture.path(one), &fixture.path(&other));
                    came_again
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).filter(|again| *again).count()
    });
    assert!(again > 0, "{CROWD} clients never filled {LET_IN} places");
    let peak = memory_peak(&server);
    assert!(peak < LET_IN as u64 * (BUFFERS + (4 << 20)) + (48 << 20), "{} MiB", peak >> 20);
    assert_no_strays(&fixture.path("there"));
    let (mut open, mut most, mut ended) = (0_usize, 0, 0);
    while ended < CROWD {
        let line = server.log.recv_timeout(TEST_TIMEOUT).expect("the server logs each session");
        if line.contains(" opened by ") {
            open += 1;
            most = most.max(open);
        } else if line.contains(": session ") && !line.contains(" with ticket ") {
            open -= 1;
            ended += 1;
        }
    }
    assert!((2..=LET_IN).contains(&most), "{most} sessions at once");
}

#[test]
fn one_client_cannot_use_all_session_slots() {
    let fixture = Fixture::new();
    fixture.file("data", 4 << 20);
    let server = fixture.serve(&["--root", "there", "--sessions", "8", "--sessions-per-peer", "1"]);
    let mut slow = fixture
        .haul(&["send", "-q", "--rate=50K", "--ticket-file", "ticket", "data", ":slow"])
        .spawn()
        .unwrap();
    server.wait_for_log(" opened by ");
    let ended = fixture.run(&["send", "--ticket-file", "ticket", "data", ":second"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("reached its limit of sessions"), "{ended:#?}");
    slow.kill().unwrap();
    slow.wait().unwrap();
    // The slot of the client is free as soon as the server has noticed the disconnect.
    patient(&fixture, &["send", "-q", "--ticket-file", "ticket", "data", ":second"]);
    assert_alike(&fixture.path("data"), &fixture.path("there/second/data"));
}

#[test]
fn owners_and_setuid_bits_are_kept_only_if_the_server_allows() {
    let fixture = Fixture::new();
    fixture.file("data/tool", 100);
    fs::set_permissions(fixture.path("data/tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().mode() & 0o7777;
    let careful = fixture.serve(&["--root", "there"]);
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":one"]), 0);
    assert_eq!(mode("there/one/data/tool"), 0o755);
    drop(careful);
    // The bit may not be meant for the user who becomes the owner.
    let half = fixture.serve(&["--root", "there", "--keep-setuid"]);
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":two"]), 0);
    assert_eq!(mode("there/two/data/tool"), 0o755);
    drop(half);
    let _trusting = fixture.serve(&["--root", "there", "--keep-setuid", "--keep-owner"]);
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":three"]), 0);
    assert_eq!(mode("there/three/data/tool"), 0o4755);
}

#[test]
fn servers_that_cannot_start_report_the_reason() {
    let fixture = Fixture::new();
    fixture.file("file", 3);
    for (args, words) in [
        (&["serve"][..], "--root"),
        (&["serve", "--root", "nowhere"], "nowhere"),
        (&["serve", "--root", "file"], "is not a directory"),
        (&["serve", "--root", "there", "--expires", "soon"], "--expires"),
        (&["serve", "--root", "there", "--listen", "192.0.2.1:7433"], "192.0.2.1:7433"),
        (&["serve", "--root", "there", "--listen", "127.0.0.1:0", "--cc", "nosuch"], "nosuch"),
        (&["serve", "--root", "there", "--read-only", "--write-only"], "cannot be used with"),
        (&["serve", "--config", "nowhere.toml"], "nowhere.toml"),
    ] {
        let ended = fixture.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
        assert_eq!(ended.out, "", "no ticket is printed for what does not serve");
    }
}
