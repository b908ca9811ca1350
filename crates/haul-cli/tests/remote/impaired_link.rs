//! Jobs over a link that loses, delays, corrupts, reorders and duplicates packets.

use super::resumed::bytes_beneath;
use super::stopped::wait_until;
use super::{Fixture, Server, assert_alike, assert_no_strays, inside};
use haul_lab::emulated_link::{
    BurstLoss, Conditions, Counters, CrossTraffic, Discipline, EmulatedLink, End, Probability,
};
use haul_lab::needs::{Need, met_or_skip};
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

const PORT: u16 = 7433;

fn percent(value: f64) -> Probability {
    Probability::new(value / 100.0).unwrap()
}

fn link(name: &str, conditions: Conditions) -> EmulatedLink {
    EmulatedLink::make(&format!("haul-{name}-{}", std::process::id()), conditions).unwrap()
}

/// Sends `data` from the near end to `there` at the far end.
fn send(link: &EmulatedLink, fixture: &Fixture, words: &[&str]) -> Output {
    let common = ["send", "--json", "--ticket-file=ticket", "--object-size=64K"];
    let job = fixture.haul(&[&common, words, &["data", ":"]].concat());
    inside(&link.namespace(End::Near), &job).output().unwrap()
}

/// Starts a server at the far end of a link.
fn serve(link: &EmulatedLink, fixture: &Fixture, words: &[&str]) -> Server {
    let listen = format!("{}:{PORT}", End::Far.address());
    let serve = fixture.haul(&[&["serve", "--root", "there", "--listen", &listen], words].concat());
    fixture.serve_by(inside(&link.namespace(End::Far), &serve))
}

#[test]
fn files_arrive_over_a_link_with_every_fault() {
    files_arrive_with_every_fault("faults", &[], Probability::ZERO);
}

/// Unlike TCP without encryption, sealed datagrams detect damage with a valid checksum.
#[test]
fn files_arrive_over_udp_on_a_link_with_every_fault() {
    files_arrive_with_every_fault("udpfaults", &["--transport=udp"], percent(1.0));
}

#[test]
fn files_arrive_over_quic_on_a_link_with_every_fault() {
    files_arrive_with_every_fault("quicfaults", &["--transport=quic"], percent(1.0));
}

fn files_arrive_with_every_fault(name: &str, words: &[&str], corrupt_silently: Probability) {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let conditions = Conditions {
        corrupt_silently,
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(3),
        jitter_reorders: true,
        rate: Some(200_000_000),
        queue: 256 << 10,
        discipline: Discipline::CODEL,
        loss: percent(0.5),
        burst_loss: Some(BurstLoss { share: percent(1.0), length: 4.0, within: percent(80.0) }),
        corrupt: percent(1.0),
        reorder: percent(2.0),
        duplicate: percent(2.0),
        cross: Some(CrossTraffic::of_rate(50_000_000)),
        ..Conditions::default()
    };
    let link = link(name, conditions);
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("data/large", 4 << 20);
    let server = serve(&link, &fixture, &[]);
    let ended = send(&link, &fixture, words);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    assert_no_strays(&fixture.path("there"));
    let Counters { lost, lost_in_bursts, corrupted, reordered, duplicated, cross_passed, .. } =
        link.counters(End::Near).unwrap();
    let faults = [lost, lost_in_bursts, corrupted, reordered, duplicated, cross_passed];
    assert!(faults.iter().all(|count| *count > 0), "{faults:?}");
    drop(server);
    link.close().unwrap();
}

/// The checksums of TCP do not find these errors, and plain lanes have no others than haul's own.
#[test]
fn silent_corruption_on_plain_connections_is_detected() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("silent", Conditions { delay: Duration::from_millis(1), ..Conditions::default() });
    let fixture = Fixture::new();
    for at in 0..4 {
        fixture.file(&format!("data/{at}"), (2 << 20) + at);
    }
    let server = serve(&link, &fixture, &["--plain"]);
    link.change(End::Near, |conditions| conditions.corrupt_silently = percent(0.3)).unwrap();
    let mut sent_again = 0;
    for _ in 0..3 {
        let ended = send(&link, &fixture, &["--plain"]);
        let out = String::from_utf8(ended.stdout).unwrap();
        let summary = out.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        sent_again += summary.and_then(|summary| summary["objects_sent_again"].as_u64()).unwrap_or(0);
        // A damaged frame header ends its connection, and with the first one the job.
        if ended.status.success() {
            break;
        }
    }
    assert!(sent_again > 0, "{:?}", link.counters(End::Near).unwrap());
    link.change(End::Near, |conditions| conditions.corrupt_silently = Probability::ZERO).unwrap();
    let ended = send(&link, &fixture, &["--plain"]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    assert_no_strays(&fixture.path("there"));
    drop(server);
    link.close().unwrap();
}

#[test]
fn blocked_udp_ends_the_job_with_the_reason() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("blocked", Conditions { blocks_udp: true, ..Conditions::default() });
    let fixture = Fixture::new();
    fixture.file("data/f", 1000);
    let server = serve(&link, &fixture, &[]);
    for transport in ["--transport=udp", "--transport=quic"] {
        let ended = send(&link, &fixture, &[transport]);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            !ended.status.success() && said.contains("UDP is blocked on the path; use --transport=tcp"),
            "{said}"
        );
    }
    let ended = send(&link, &fixture, &[]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    drop(server);
    link.close().unwrap();
}

#[test]
fn chunks_above_the_mtu_are_named_where_fragments_are_dropped() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let conditions = Conditions { delay: Duration::from_millis(1), ..Conditions::default() };
    let link = link("fragments", conditions);
    let fixture = Fixture::new();
    fixture.file("data/f", 300_000);
    let server = serve(&link, &fixture, &[]);
    let words = ["--transport=udp", "--chunk-size=4000"];
    let ended = send(&link, &fixture, &words);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    for end in End::BOTH {
        link.change(end, |conditions| conditions.drops_fragments = true).unwrap();
    }
    fixture.file("data/g", 300_000);
    let ended = send(&link, &fixture, &words);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("bytes do not arrive;") && said.contains("use a smaller --chunk-size"), "{said}");
    drop(server);
    link.close().unwrap();
}

/// Returns the summary of a job that succeeded.
#[track_caller]
fn summary(ended: &Output) -> Value {
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let out = String::from_utf8_lossy(&ended.stdout);
    serde_json::from_str(out.lines().last().expect("a summary")).expect("JSON")
}

/// Asserts that a job with `--transport=auto` continued over TCP for a reason with these words.
#[track_caller]
fn assert_fell_back(ended: &Output, why: &str) {
    let summary = summary(ended);
    let fallback = summary["fallback"].as_str().unwrap_or_default();
    assert!(summary["transport"] == "tcp" && fallback.contains(why), "{summary}");
}

/// A path on which `--transport=auto` requests UDP.
fn far_away() -> Conditions {
    Conditions { delay: Duration::from_millis(2), rate: Some(20_000_000), ..Conditions::default() }
}

/// Returns the lines of a waybill about entries, without the checksum that continues from line to
/// line.
fn entries(fixture: &Fixture, name: &str) -> Vec<String> {
    let text = fs::read_to_string(fixture.path(name)).unwrap();
    let is_entry = |line: &&str| line.starts_with("file ") || line.starts_with("dir ");
    let entries = text.lines().filter(is_entry).filter_map(|line| line.rsplit_once(' '));
    let mut lines: Vec<String> = entries.map(|(entry, _)| entry.to_owned()).collect();
    lines.sort();
    lines
}

const AUTO: &str = "--transport=auto";

#[test]
fn auto_uses_udp_where_it_passes_and_tcp_where_the_server_refuses_it() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("auto", far_away());
    let fixture = Fixture::new();
    fixture.file("data/f", 1 << 20);
    let server = serve(&link, &fixture, &[]);
    let found = summary(&send(&link, &fixture, &[AUTO]));
    assert!(found["transport"] == "udp" && found["fallback"].is_null(), "{found}");
    assert!(found["datagrams"]["sent"].as_u64() > Some(500), "{found}");
    drop(server);
    fs::remove_dir_all(fixture.path("there/data")).unwrap();
    fs::remove_file(fixture.path("ticket")).unwrap();
    let server = serve(&link, &fixture, &["--transport=tcp"]);
    assert_fell_back(&send(&link, &fixture, &[AUTO]), "the server does not use UDP");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}

/// The log and the waybill of such a job do not depend on the transport.
#[test]
fn auto_continues_over_tcp_where_udp_is_blocked() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("autoblocked", Conditions { blocks_udp: true, ..far_away() });
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("data/f", 1 << 20);
    let server = serve(&link, &fixture, &[]);
    let sent = send(&link, &fixture, &[AUTO, "--waybill=auto"]);
    assert_fell_back(&sent, "UDP is blocked");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    fs::remove_dir_all(fixture.path("there/data")).unwrap();
    summary(&send(&link, &fixture, &["--waybill=tcp"]));
    let found = entries(&fixture, "auto");
    assert!(found.len() > 2 && found == entries(&fixture, "tcp"), "{found:#?}");
    // A run over TCP resumes the job that fell back.
    fs::remove_dir_all(fixture.path("there/data")).unwrap();
    fixture.file("data/large", 8 << 20);
    let job = ["send", AUTO, "--rate=2M", "--ticket-file=ticket", "--object-size=64K", "data", ":"];
    let job = fixture.haul(&job);
    let mut client = inside(&link.namespace(End::Near), &job).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the first bytes", || bytes_beneath(&fixture.path("there")) > 5 << 20);
    client.kill().unwrap();
    client.wait().unwrap();
    let resumed = summary(&send(&link, &fixture, &[]));
    assert!(resumed["bytes_of_earlier_runs"].as_u64() > Some(0), "{resumed}");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}

/// Sends a file with `--transport=auto` and `words`. Runs `disturb` once the first bytes are there.
fn disturbed(
    link: &EmulatedLink,
    fixture: &Fixture,
    words: &[&str],
    disturb: impl FnOnce(&EmulatedLink),
) -> Output {
    std::thread::scope(|scope| {
        let job = scope.spawn(|| send(link, fixture, &[&[AUTO], words].concat()));
        wait_until("the first bytes", || bytes_beneath(&fixture.path("there")) > 1 << 20);
        disturb(link);
        job.join().unwrap()
    })
}

#[test]
fn auto_continues_over_tcp_where_datagrams_stop_in_the_middle_of_a_job() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("automiddle", far_away());
    let fixture = Fixture::new();
    fixture.file("data/f", 6 << 20);
    fixture.file("data/g", 2 << 20);
    let server = serve(&link, &fixture, &[]);
    let ended = disturbed(&link, &fixture, &[], |link| {
        for end in End::BOTH {
            link.change(end, |conditions| conditions.blocks_udp = true).unwrap();
        }
    });
    assert_fell_back(&ended, "datagrams stopped arriving");
    assert!(summary(&ended)["datagrams"]["sent"].as_u64() > Some(500), "{ended:?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    assert_no_strays(&fixture.path("there"));
    drop(server);
    link.close().unwrap();
}

#[test]
fn auto_continues_over_tcp_where_fragments_are_dropped() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("autofragments", Conditions { drops_fragments: true, ..far_away() });
    let fixture = Fixture::new();
    fixture.file("data/f", 300_000);
    let server = serve(&link, &fixture, &[]);
    let ended = send(&link, &fixture, &[AUTO, "--chunk-size=4000"]);
    assert_fell_back(&ended, "--chunk-size do not arrive");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}

/// TCP is interrupted too; after some seconds it carries the rest of the job.
#[test]
fn auto_survives_an_outage_of_the_whole_path() {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let link = link("autooutage", far_away());
    let fixture = Fixture::new();
    fixture.file("data/f", 6 << 20);
    let server = serve(&link, &fixture, &[]);
    let ended = disturbed(&link, &fixture, &[], |link| {
        let is_down = |is_down| {
            for end in End::BOTH {
                link.change(end, |conditions| conditions.is_down = is_down).unwrap();
            }
        };
        is_down(true);
        // Probes of UDP, then also segments of TCP, whose sizes differ.
        let lost = || link.counters(End::Near).unwrap().dropped_while_down;
        let before = lost();
        wait_until("lost packets", || lost() > before + 12);
        is_down(false);
    });
    summary(&ended);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}

#[test]
fn a_job_over_udp_survives_an_interruption_of_the_path() {
    job_survives_an_interruption("outage", "--transport=udp");
}

#[test]
fn a_job_over_quic_survives_an_interruption_of_the_path() {
    job_survives_an_interruption("quicoutage", "--transport=quic");
}

fn job_survives_an_interruption(name: &str, transport: &str) {
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let conditions =
        Conditions { delay: Duration::from_millis(1), rate: Some(20_000_000), ..Conditions::default() };
    let link = link(name, conditions);
    let fixture = Fixture::new();
    fixture.file("data/f", 6 << 20);
    let server = serve(&link, &fixture, &[]);
    let ended = std::thread::scope(|scope| {
        let job = scope.spawn(|| send(&link, &fixture, &[transport]));
        wait_until("the first bytes", || bytes_beneath(&fixture.path("there")) > 1 << 20);
        for is_down in [true, false] {
            let carried = link.counters(End::Near).unwrap().delivered;
            for end in End::BOTH {
                link.change(end, |conditions| conditions.is_down = is_down).unwrap();
            }
            if is_down {
                // Several probes of the sender get lost.
                let lost = || link.counters(End::Near).unwrap().dropped_while_down;
                let before = lost();
                wait_until("lost packets", || lost() > before + 5);
            } else {
                wait_until("more packets", || link.counters(End::Near).unwrap().delivered > carried);
            }
        }
        job.join().unwrap()
    });
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    link.close().unwrap();
}
