//! Connections that ssh establishes: lanes beside ssh, a lane inside ssh, and failures.

use super::{Bed, assert_alike, assert_ended, assert_no_strays, inside};
use haul_lab::link::{End, Link, Way};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_tree_is_sent_and_fetched_beside_ssh() {
    let bed = Bed::new();
    bed.tree("data");
    let sent = bed.over_ssh("send", &["--object-size=64K", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert!(sent.err.contains("transferred"), "{sent:#?}");
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    let fetched = bed.over_ssh("fetch", &["localhost:in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&bed.path("data"), &bed.path("back"));
    assert_no_strays(&bed.path("there"));
}

#[test]
fn where_no_port_can_be_reached_all_goes_inside_ssh() {
    let bed = Bed::new();
    bed.tree("data");
    let sent = bed.over_ssh("send", &["data", "nowhere.invalid:"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains("through ssh over one connection"), "the reason is printed: {sent:#?}");
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    let fetched = bed.over_ssh("fetch", &["--inside-ssh", "me@nowhere.invalid:data", "back"]);
    assert_ended(&fetched, 0);
    assert!(!fetched.err.contains("through ssh"), "the requested connection is not reported: {fetched:#?}");
    assert_alike(&bed.path("data"), &bed.path("back/data"));
    let argv = fs::read_to_string(bed.path("argv")).unwrap();
    assert!(argv.starts_with("nowhere.invalid\n") && argv.contains("me@nowhere.invalid\n"), "{argv}");
}

/// The host is reachable, but not its port: the connection is refused, or its packets are dropped.
#[test]
fn where_a_wall_refuses_or_swallows_what_goes_beside_ssh_all_goes_inside() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let way = Way { delay: Duration::ZERO, rate: None, queue: 16 << 20 };
    let link = Link::make(&format!("haul-walls-{}", std::process::id()), way).unwrap();
    let bed = Bed::new();
    bed.tree("data");
    let script = fs::read_to_string(bed.path("fake-ssh")).unwrap();
    let far = format!("exec ip netns exec {} sh", link.namespace(End::Far));
    fs::write(bed.path("fake-ssh"), script.replace("exec sh", &far)).unwrap();
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let send = |host: End, to: &str| {
        let target = format!("{}:{to}", host.address());
        let args = ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "data", &target];
        let ended = inside(&link.namespace(End::Near), &bed.haul(&args)).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success(), "{told}");
        assert_alike(&bed.path("data"), &bed.path("there").join(to).join("data"));
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
    assert_no_strays(&bed.path("there"));
    link.close().unwrap();
}

#[test]
fn ssh_is_given_no_secret_and_no_path() {
    let bed = Bed::new();
    bed.tree("data");
    assert_ended(&bed.over_ssh("send", &["data", "localhost:box with 'quotes' $HOME `id`"]), 0);
    assert_alike(&bed.path("data"), &bed.path("there/box with 'quotes' $HOME `id`/data"));
    let argv = fs::read_to_string(bed.path("argv")).unwrap();
    assert_eq!(argv, format!("localhost\n{} meet\n", env!("CARGO_BIN_EXE_haul")));
}

#[test]
fn ports_and_plain_text_are_as_asked_for() {
    let bed = Bed::new();
    bed.tree("data");
    let sent = bed.over_ssh(
        "send",
        &["--plain", "--ports=47100-47199", "--streams=2", "--rate=1G", "data", "localhost:in"],
    );
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
}

#[test]
fn congestion_control_and_multipath_are_as_asked_for_or_told() {
    let bed = Bed::new();
    bed.tree("data");
    let sent = bed.over_ssh("send", &["--cc=reno", "--mptcp", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(!sent.err.contains("through ssh"), "{sent:#?}");
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    let has_multipath =
        fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
    assert_eq!(sent.err.contains("no MPTCP: "), !has_multipath, "{sent:#?}");
    // The server was not started with this option. haul uses one path and reports that.
    let _server = bed.serve(&["--root", "there"]);
    let sent = bed.run(&["send", "--mptcp", "--ticket-file", "ticket", "data", ":alone"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains("no MPTCP: "), "{sent:#?}");
    let sent = bed.run(&["send", "--cc=nosuch", "--ticket-file", "ticket", "data", ":never"]);
    assert_ended(&sent, 2);
    assert!(
        sent.err.contains("'nosuch'") && sent.err.contains("reno"),
        "the available algorithms are named: {sent:#?}"
    );
    assert!(!bed.path("there/never").exists());
}

#[test]
fn what_the_login_prints_is_passed_over() {
    let bed = Bed::new();
    bed.tree("data");
    let script = fs::read_to_string(bed.path("fake-ssh")).unwrap();
    fs::write(bed.path("fake-ssh"), script.replace("exec", "echo 'Welcome to this host'\nexec")).unwrap();
    assert_ended(&bed.over_ssh("send", &["--inside-ssh", "data", "host:"]), 0);
    assert_alike(&bed.path("data"), &bed.path("there/data"));
}

#[test]
fn who_does_not_meet_says_why_and_what_next() {
    let bed = Bed::new();
    bed.tree("data");
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
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
        let ended = bed.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
    let ended = bed.over_ssh("fetch", &["host:no/such", "back"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("no/such") && ended.err.contains("host: "), "{ended:#?}");
    assert!(!bed.path("back").exists(), "no job was started");
}

/// scp could once be made to write other files than the requested ones, into a directory from which
/// a shell reads its start-up files.
#[test]
fn another_path_than_the_one_that_was_asked_for_is_not_taken() {
    let bed = Bed::new();
    bed.tree("there/data");
    // The remote side opens another name. Both names are encoded as in a request.
    let lies = "#!/bin/sh\nshift\ncd \"${0%/*}/there\" || exit 255\nsed -u '1s#ZGF0YS9zbWFsbA==#ZGF0YS9iaWc=#' | sh -c \"$*\"\n";
    fs::write(bed.path("fake-ssh"), lies).unwrap();
    let fetched = bed.over_ssh("fetch", &["localhost:data/one", "back"]);
    assert_ended(&fetched, 0);
    for way in [&[][..], &["--inside-ssh"]] {
        let fetched = bed.over_ssh("fetch", &[way, &["localhost:data/small", "back"]].concat());
        assert_ended(&fetched, 2);
        assert!(fetched.err.contains("answered with a different path"), "{fetched:#?}");
    }
    assert_eq!(fs::read_dir(bed.path("back")).unwrap().count(), 1, "only the files of the first fetch exist");
}

#[test]
fn the_hidden_command_is_of_no_use_by_itself() {
    let bed = Bed::new();
    let ended = bed.run(&["meet"]);
    assert_ended(&ended, 1);
    assert!(!bed.run(&["--help"]).out.contains("meet"));
}
