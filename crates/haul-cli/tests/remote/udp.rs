//! Transfers over UDP.

use super::quic::QUIC;
use super::resumed::bytes_beneath;
use super::stopped::wait_until;
use super::{Fixture, assert_alike, assert_ended, assert_no_strays};
use std::fs;
use std::process::Stdio;

const UDP: &str = "--transport=udp";

#[test]
fn a_tree_arrives_over_udp_in_both_directions() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there"]);
    let sent = fixture.run(&["send", UDP, "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains(" UDP datagrams sent"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let fetched = fixture.run(&["fetch", UDP, "--json", "--ticket-file", "ticket", ":in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert!(fetched.out.contains("\"datagrams\":{"), "{fetched:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("back"));
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn a_tree_arrives_over_udp_beside_ssh() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &[UDP, "--rate=50M", "--streams=2", "data", "localhost:in"]);
    assert_ended(&sent, 0);
    assert!(sent.err.contains(" UDP datagrams sent"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let fetched = fixture.over_ssh("fetch", &[UDP, "--chunk-size=1000", "localhost:in/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("back"));
    let inside = fixture.over_ssh("send", &[UDP, "--inside-ssh", "data", "localhost:never"]);
    assert_ended(&inside, 2);
    assert!(inside.err.contains("no UDP inside ssh"), "{inside:#?}");
    assert!(!fixture.path("there/never").exists());
}

#[test]
fn packet_checks_without_encryption_need_both_ends() {
    let fixture = Fixture::new();
    fixture.tree("data");
    for check in ["crc32c", "crc16", "none"] {
        let option = format!("--packet-check={check}");
        let server = fixture.serve(&["--root", "there", &option]);
        let sent = fixture.run(&["send", UDP, &option, "--ticket-file", "ticket", "data", ":in"]);
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
        let other = if check == "none" { "crc16" } else { "none" };
        let option = format!("--packet-check={other}");
        let refused = fixture.run(&["send", UDP, &option, "--ticket-file", "ticket", "data", ":never"]);
        assert_ended(&refused, 2);
        assert!(refused.err.contains("does not allow this packet check"), "{refused:#?}");
        drop(server);
        fs::remove_dir_all(fixture.path("there/in")).unwrap();
        fs::remove_file(fixture.path("ticket")).unwrap();
    }
    let _server = fixture.serve(&["--root", "there"]);
    let refused =
        fixture.run(&["send", UDP, "--packet-check=crc32c", "--ticket-file", "ticket", "data", ":never"]);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("does not allow this packet check"), "{refused:#?}");
    assert!(!fixture.path("there/never").exists());
}

#[test]
fn plain_text_over_udp_needs_a_check_without_encryption() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--plain", "--packet-check=crc32c"]);
    let job = ["send", UDP, "--plain", "--ticket-file", "ticket", "data", ":in"];
    let refused = fixture.run(&job);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("omit --plain"), "{refused:#?}");
    let sent = fixture.run(&[&job[..], &["--packet-check=crc32c"]].concat());
    assert_ended(&sent, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
}

#[test]
fn chunks_of_each_size_arrive() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--udp-ports=47300-47399"]);
    for chunk in ["200", "1400", "4000", "65000"] {
        let option = format!("--chunk-size={chunk}");
        let to = format!(":in{chunk}");
        assert_ended(&fixture.run(&["send", UDP, &option, "--ticket-file", "ticket", "data", &to]), 0);
        assert_alike(&fixture.path("data"), &fixture.path(&format!("there/in{chunk}/data")));
    }
}

/// The two ends may differ.
#[test]
fn jobs_succeed_with_the_smallest_and_the_largest_buffers() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("data/large", 4 << 20);
    let _server = fixture.serve(&["--root", "there", "--udp-buffers=1G"]);
    for size in ["1M", "1G"] {
        let to = format!(":in{size}");
        let option = format!("--udp-buffers={size}");
        assert_ended(&fixture.run(&["send", UDP, &option, "--ticket-file", "ticket", "data", &to]), 0);
        assert_alike(&fixture.path("data"), &fixture.path(&format!("there/in{size}/data")));
    }
    let fetched = fixture.over_ssh("fetch", &[UDP, "--udp-buffers=1M", "localhost:in1M/data/", "back"]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("back"));
}

#[test]
fn a_server_without_udp_refuses_it_with_the_reason() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there", "--transport=tcp"]);
    let refused = fixture.run(&["send", UDP, "--ticket-file", "ticket", "data", ":in"]);
    assert_ended(&refused, 2);
    assert!(refused.err.contains("the server does not use UDP"), "{refused:#?}");
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":in"]), 0);
}

/// Several connections of TCP are faster on one host; encryption by TLS is optional there too.
#[test]
fn auto_uses_tcp_on_one_host_and_for_plain_jobs() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let server = fixture.serve(&["--root", "there"]);
    let job = ["send", "--transport=auto", "--json", "--ticket-file", "ticket", "data", ":in"];
    let sent = fixture.run(&job);
    assert_ended(&sent, 0);
    assert!(
        sent.out.contains("\"transport\":\"tcp\"") && sent.out.contains("\"fallback\":null"),
        "{sent:#?}"
    );
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    drop(server);
    fs::remove_file(fixture.path("ticket")).unwrap();
    let _server = fixture.serve(&["--root", "there", "--plain"]);
    assert_ended(&fixture.run(&[&job[..], &["--plain"]].concat()), 0);
    let fetched = fixture.over_ssh("fetch", &["--transport=auto", "localhost:in/data/", "back"]);
    assert_ended(&fetched, 0);
    let inside =
        fixture.over_ssh("fetch", &["--transport=auto", "--inside-ssh", "localhost:in/data/", "back"]);
    assert_ended(&inside, 0);
}

#[test]
fn transport_options_are_checked() {
    let fixture = Fixture::new();
    fixture.tree("data");
    for (options, says) in [
        (&["--transport=dccp"][..], "--transport: must be tcp, udp, quic, auto or sctp, not 'dccp'"),
        (&["--packet-check=crc16"], "--packet-check applies to UDP; add --transport=udp"),
        (&["--chunk-size=1000"], "--chunk-size applies to UDP; add --transport=udp"),
        (&["--stats-csv=f"], "--stats-csv applies to UDP; add --transport=udp"),
        (&["--plot=f"], "--plot applies to UDP; add --transport=udp"),
        (&[UDP, "--packet-check=md5"], "--packet-check: must be aead, crc32c, crc16 or none"),
        (&[UDP, "--chunk-size=199"], "--chunk-size: must be from 200 to 65000 bytes"),
        (&["--udp-buffers=1M"], "--udp-buffers applies to UDP; add --transport=udp"),
        (&[UDP, "--udp-buffers=1023K"], "--udp-buffers: must be from 1M to 1G"),
        (&[UDP, "--udp-buffers=2G"], "--udp-buffers: must be from 1M to 1G"),
        (&[UDP, "--chunk-size=65001"], "--chunk-size: must be from 200 to 65000 bytes"),
    ] {
        let job = [&["send"], options, &["--ticket-file", "ticket", "data", ":in"]].concat();
        let refused = fixture.run(&job);
        assert_ended(&refused, 2);
        assert!(refused.err.contains(says), "{refused:#?}");
    }
    for (options, says) in [
        (&["--transport=tcp", "--udp-ports=1-2"][..], "--udp-ports and --udp-buffers apply to UDP"),
        (&["--udp-ports=9-1"], "--udp-ports: '9-1' is not a range of ports"),
    ] {
        let refused = fixture.run(&[&["serve", "--root", "there"], options].concat());
        assert_ended(&refused, 2);
        assert!(refused.err.contains(says), "{refused:#?}");
    }
}

/// Sums up a column of a CSV file.
fn sum(csv: &str, name: &str) -> u64 {
    let mut rows = csv.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let at = header.iter().position(|column| *column == name).unwrap();
    rows.inspect(|row| assert_eq!(row.len(), header.len())).map(|row| row[at].parse::<u64>().unwrap()).sum()
}

#[test]
fn statistics_of_datagrams_add_up_to_the_totals() {
    let fixture = Fixture::new();
    fixture.file("data/f", 6 << 20);
    fixture.file("out.csv", 9999);
    let _server = fixture.serve(&["--root", "there"]);
    let files = ["--stats-csv=out.csv", "--plot=out.svg", "--json", "--ticket-file", "ticket"];
    let send = [&["send", UDP, "--rate=3M"], &files[..], &["data", ":in"]].concat();
    let fetch = [&["fetch", UDP], &files[..], &[":in/data/", "back"]].concat();
    for (job, rows, axis) in [(send, 2, "Rate sent ("), (fetch, 1, "Rate received (")] {
        let ended = fixture.run(&job);
        assert_ended(&ended, 0);
        // On a slow machine a warning follows: the rate was not reached.
        let mut events =
            ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let summary = events.rfind(|event| event["event"] == "summary").unwrap();
        let csv = fs::read_to_string(fixture.path("out.csv")).unwrap();
        assert!(csv.lines().count() > rows, "{csv}");
        for column in ["sent", "received", "retransmitted", "damaged", "duplicate"] {
            assert_eq!(summary["datagrams"][column], sum(&csv, column), "{column}: {csv}");
        }
        let lost = summary["datagrams"]["lost"].as_u64().unwrap();
        assert!(sum(&csv, "lost") >= lost, "{csv}");
        let plot = fs::read_to_string(fixture.path("out.svg")).unwrap();
        assert!(plot.starts_with("<svg ") && plot.trim_end().ends_with("</svg>"), "{plot}");
        assert!(plot.contains(axis) && plot.contains("<polyline "), "{plot}");
    }
}

#[test]
fn statistics_files_that_cannot_be_created_stop_the_transfer_and_full_ones_do_not() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let _server = fixture.serve(&["--root", "there"]);
    let send = |option| fixture.run(&["send", UDP, option, "--ticket-file", "ticket", "data", ":in"]);
    for option in ["--stats-csv=no/f", "--plot=no/f"] {
        let refused = send(option);
        assert_ended(&refused, 2);
        assert!(refused.err.contains("cannot create 'no/f': No such file or directory"), "{refused:#?}");
    }
    assert!(!fixture.path("there/in").exists());
    let sent = send("--plot=/dev/full");
    assert_ended(&sent, 1);
    assert!(sent.err.contains("cannot write '/dev/full': No space left on device"), "{sent:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
}

/// UDP does not report the end of a process, and QUIC does so late; the TCP connection beside it
/// reports it at once.
#[test]
fn a_job_over_udp_or_quic_ends_soon_after_its_server() {
    for transport in [UDP, QUIC] {
        let fixture = Fixture::new();
        fixture.file("data/f", 8 << 20);
        let server = fixture.serve(&["--root", "there"]);
        let options = [transport, "--rate=1M", "--object-size=64K", "--ticket-file", "ticket"];
        let job = [&["send"], &options[..], &["data", ":in"]].concat();
        let client = fixture.haul(&job).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the first bytes", || bytes_beneath(&fixture.path("there")) > 256 << 10);
        drop(server);
        let ended = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("UDP: the peer "), "{said}");
    }
}

#[test]
fn a_job_that_began_over_udp_or_quic_resumes_over_tcp() {
    for transport in [UDP, QUIC] {
        let fixture = Fixture::new();
        fixture.file("data/f", 8 << 20);
        let _server = fixture.serve(&["--root", "there"]);
        let job = ["send", "--object-size=64K", "--ticket-file", "ticket", "data", ":in"];
        let slowly = [&job[..], &[transport, "--rate=1M"]].concat();
        let mut client = fixture.haul(&slowly).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the first bytes", || bytes_beneath(&fixture.path("there")) > 1 << 20);
        client.kill().unwrap();
        client.wait().unwrap();
        let sent = fixture.run(&job);
        assert_ended(&sent, 0);
        assert!(sent.err.contains("already transferred by an earlier run"), "{sent:#?}");
        assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    }
}
