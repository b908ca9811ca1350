//! Jobs over a link that loses, delays, corrupts, reorders and duplicates packets.

use super::resumed::bytes_beneath;
use super::stopped::wait_until;
use super::{Fixture, Server, assert_alike, assert_no_strays, inside};
use haul_lab::emulated_link::{
    BurstLoss, Conditions, Counters, CrossTraffic, Discipline, EmulatedLink, End, Probability,
};
use haul_lab::needs::{Need, met_or_skip};
use serde_json::Value;
use std::process::Output;
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
