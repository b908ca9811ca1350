//! Connections that ssh establishes: lanes beside ssh, a lane inside ssh, and failures.

use super::{Fixture, assert_alike, assert_ended, assert_no_strays, inside};
use crate::extremes::chain;
use haul_lab::emulated_link::{EmulatedLink, End, LinkProfile};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_tree_is_sent_and_fetched_over_direct_connections() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &["--object-size=64K", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert!(sent.err.contains("transferred"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let fetched = fixture.over_ssh("fetch", &["localhost:in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("back"));
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn unreachable_ports_fall_back_to_the_ssh_connection() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &["data", "nowhere.invalid:"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains("through ssh over one connection"), "the reason is printed: {sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    let fetched = fixture.over_ssh("fetch", &["--inside-ssh", "me@nowhere.invalid:data", "back"]);
    assert_ended(&fetched, 0);
    assert!(!fetched.err.contains("through ssh"), "the requested connection is not reported: {fetched:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("back/data"));
    let argv = fs::read_to_string(fixture.path("argv")).unwrap();
    assert!(argv.starts_with("nowhere.invalid\n") && argv.contains("me@nowhere.invalid\n"), "{argv}");
}

/// The host is reachable, but not its port: the connection is refused, or its packets are dropped.
#[test]
fn blocked_ports_fall_back_to_the_ssh_connection() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let profile = LinkProfile { delay: Duration::ZERO, rate: None, queue: 16 << 20 };
    let link = EmulatedLink::make(&format!("haul-walls-{}", std::process::id()), profile).unwrap();
    let fixture = Fixture::new();
    fixture.tree("data");
    let script = fs::read_to_string(fixture.path("fake-ssh")).unwrap();
    let far = format!("exec ip netns exec {} sh", link.namespace(End::Far));
    fs::write(fixture.path("fake-ssh"), script.replace("exec sh", &far)).unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let send = |host: End, to: &str| {
        let target = format!("{}:{to}", host.address());
        let args = ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "data", &target];
        let ended = inside(&link.namespace(End::Near), &fixture.haul(&args)).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{told}");
        assert_alike(&fixture.path("data"), &fixture.path("there").join(to).join("data"));
        told
    };
    assert!(!send(End::Far, "beside").contains("through ssh"));
    // No process listens at the address of this side.
    assert!(send(End::Near, "refused").contains("through ssh over one connection"));
    let (namespace, near) = (link.namespace(End::Far), End::Near.address());
    let walled =
        Command::new("ip").args(["-n", &namespace, "route", "replace", "blackhole", near]).status().unwrap();
    assert!(walled.success());
    assert!(send(End::Far, "swallowed").contains("through ssh over one connection"));
    assert_no_strays(&fixture.path("there"));
    link.close().unwrap();
}

#[test]
fn ssh_arguments_contain_no_secret_and_no_path() {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:box with 'quotes' $HOME `id`"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/box with 'quotes' $HOME `id`/data"));
    let argv = fs::read_to_string(fixture.path("argv")).unwrap();
    assert_eq!(argv, format!("localhost\n{} meet\n", env!("CARGO_BIN_EXE_haul")));
}

/// Regression test: the rules for links started at the parent of a destination that did not exist.
#[test]
fn a_new_destination_refuses_links_that_lead_out_of_it() {
    let fixture = Fixture::new();
    fixture.tree("data");
    std::os::unix::fs::symlink("../../beside", fixture.path("data/out")).unwrap();
    std::os::unix::fs::symlink("small", fixture.path("data/in")).unwrap();
    fs::create_dir(fixture.path("there/box")).unwrap();
    let send = |to: &str| fixture.over_ssh("send", &["data", &format!("localhost:{to}")]);
    let [existing, new] = ["box", "new"].map(send);
    assert_ended(&existing, 1);
    assert_eq!((new.status, new.err.lines().count()), (Some(1), existing.err.lines().count()), "{new:#?}");
    for to in ["box", "new"] {
        assert!(fs::symlink_metadata(fixture.path(&format!("there/{to}/data/out"))).is_err(), "{to}");
        assert_eq!(fs::read_link(fixture.path(&format!("there/{to}/data/in"))).unwrap(), Path::new("small"));
    }
    // What would be sent is not created, and so is its destination.
    assert_ended(&fixture.over_ssh("send", &["--dry-run", "data/small", "localhost:dry"]), 0);
    assert!(!fixture.path("there/dry").exists());
}

/// Regression test: the time for a chain of directories grows with the square of its depth. What is
/// deeper is named once, and the rest arrives.
#[test]
fn a_tree_deeper_than_any_path_is_reported_and_the_rest_arrives() {
    let fixture = Fixture::new();
    let depth = haul_model::PATH_PARTS_MAX;
    chain::make(&fixture.path("data"), depth + 20, "d", |_, _| ());
    fixture.file("data/small", 100);
    let sent = fixture.over_ssh("send", &["data/", "localhost:in"]);
    assert_ended(&sent, 1);
    let line = sent.err.lines().find(|line| line.contains(&"d/".repeat(depth))).unwrap();
    assert!(line.ends_with(&format!("cannot read: it has more than {depth} components")), "{sent:#?}");
    assert_eq!(sent.err.lines().count(), 2, "one line, and the summary: {sent:#?}");
    assert!(fixture.path("there/in/small").exists());
    assert_eq!(chain::walk(&fixture.path("there/in"), "d", |_, _| ()), depth - 1);
    // The standard library needs a descriptor for each level.
    assert!(
        Command::new("rm")
            .arg("-rf")
            .args([fixture.path("data"), fixture.path("there")])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn transfer_with_requested_ports_and_plain_text_succeeds() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh(
        "send",
        &["--plain", "--ports=47100-47199", "--streams=2", "--rate=1G", "data", "localhost:in"],
    );
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
}

#[test]
fn unsupported_congestion_control_and_multipath_are_reported() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &["--cc=reno", "--mptcp", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let has_multipath =
        fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
    assert_eq!(sent.err.contains("no MPTCP: "), !has_multipath, "{sent:#?}");
    // The server was not started with this option. haul uses one path and reports that.
    let _server = fixture.serve(&["--root", "there"]);
    let sent = fixture.run(&["send", "--mptcp", "--ticket-file", "ticket", "data", ":alone"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains("no MPTCP: "), "{sent:#?}");
    let sent = fixture.run(&["send", "--cc=nosuch", "--ticket-file", "ticket", "data", ":never"]);
    assert_ended(&sent, 2);
    assert!(
        sent.err.contains("'nosuch'") && sent.err.contains("reno"),
        "the available algorithms are named: {sent:#?}"
    );
    assert!(!fixture.path("there/never").exists());
}

#[test]
fn login_output_is_skipped() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let script = fs::read_to_string(fixture.path("fake-ssh")).unwrap();
    // A terminal title has no newline.
    for (to, output) in [("line", "echo 'Welcome to this host'"), ("title", r"printf '\033]0;user@host\007'")]
    {
        fs::write(fixture.path("fake-ssh"), script.replace("exec", &format!("{output}\nexec"))).unwrap();
        assert_ended(&fixture.over_ssh("send", &["--inside-ssh", "data", &format!("host:{to}")]), 0);
        assert_alike(&fixture.path("data"), &fixture.path("there").join(to).join("data"));
    }
}

#[test]
fn failed_ssh_connections_report_the_reason_and_a_hint() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    for (args, words) in [
        (&["send", "-e", "no-such-command", "data", "host:"][..], "specify another ssh command with --ssh"),
        (
            &["send", "-e", &ssh, "--remote-haul", "no-such-haul", "data", "host:"],
            "specify its path with --remote-haul",
        ),
        (&["send", "-e", &ssh, "--remote-haul", "echo", "data", "host:"], "no answer from haul on host"),
        (&["send", "-e", "sh -c 'exit 255'", "data", "host:"], "cannot log in to host with ssh"),
        (&["send", "-e", "yes", "data", "host:"], "unexpected answer from host"),
    ] {
        let ended = fixture.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
    let ended = fixture.over_ssh("fetch", &["host:no/such", "back"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("no/such") && ended.err.contains("host: "), "{ended:#?}");
    assert!(!fixture.path("back").exists(), "no job was started");
}

/// scp could once be made to write other files than the requested ones, into a directory from which
/// a shell reads its start-up files.
#[test]
fn a_path_that_was_not_requested_is_refused() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    // The remote side opens another name. Both names are encoded as in a request.
    let lies = "#!/bin/sh\nshift\ncd \"${0%/*}/there\" || exit 255\nsed -u '1s#ZGF0YS9zbWFsbA==#ZGF0YS9iaWc=#' | sh -c \"$*\"\n";
    fs::write(fixture.path("fake-ssh"), lies).unwrap();
    let fetched = fixture.over_ssh("fetch", &["localhost:data/one", "back"]);
    assert_ended(&fetched, 0);
    for profile in [&[][..], &["--inside-ssh"]] {
        let fetched = fixture.over_ssh("fetch", &[profile, &["localhost:data/small", "back"]].concat());
        assert_ended(&fetched, 2);
        assert!(fetched.err.contains("answered with a different path"), "{fetched:#?}");
    }
    assert_eq!(
        fs::read_dir(fixture.path("back")).unwrap().count(),
        1,
        "only the files of the first fetch exist"
    );
}

#[test]
fn the_hidden_meet_command_fails_if_run_directly() {
    let fixture = Fixture::new();
    let ended = fixture.run(&["meet"]);
    assert_ended(&ended, 1);
    assert!(!fixture.run(&["--help"]).out.contains("meet"));
}
