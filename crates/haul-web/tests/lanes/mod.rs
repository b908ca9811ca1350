//! Transfers over lanes of HTTP requests, with the client code of the engine.

use crate::world::{WebDial, World, limits};
use haul_engine::transfer::{self, FetchJob, SendJob, SimpleObserver};
use haul_lab::random::Random;
use haul_lab::wait_until;
use haul_net::Role;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Creates files of several objects, of none, and in directories.
pub(crate) fn tree(world: &World, name: &str) {
    world.write(&format!("{name}/large"), &bytes(20 << 20, 1));
    world.write(&format!("{name}/empty"), b"");
    world.write(&format!("{name}/sub/odd \u{1f980} <b>"), &bytes(70_000, 2));
    for number in 0..40 {
        world.write(&format!("{name}/many/{number}"), &bytes(1000 + number as usize, number));
    }
}

/// Compares two directories.
#[track_caller]
pub(crate) fn assert_alike(one: &Path, other: &Path) {
    let ended = Command::new("diff").arg("-r").args([one, other]).output().expect("diff runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

#[test]
fn a_tree_is_uploaded_and_downloaded_over_several_lanes() {
    let world = World::new(Role::Both, limits());
    tree(&world, "data");
    let dial = WebDial { browser: world.browser(), transfer: "up", cut_after: None };
    let job = SendJob { lanes: Some(3), ..SendJob::new(vec![world.path("data").into()]) };
    let observer = SimpleObserver::default();
    let sent = transfer::send(&dial, &job, &observer.run_context()).expect("a session");
    assert!(sent.is_whole(), "{sent:?} {:?}", observer.failures());
    assert!(sent.split.is_some(), "both sides ended in order");
    assert_alike(&world.path("data"), &world.path("root/data"));
    // Without a name the lane is the only one of its transfer.
    let dial = WebDial { browser: world.browser(), transfer: "down", cut_after: None };
    fs::create_dir(world.path("back")).expect("made");
    let job = FetchJob { lanes: Some(2), ..FetchJob::new(vec![b"data".to_vec()], world.path("back").into()) };
    let fetched = transfer::fetch(&dial, &job, &observer.run_context()).expect("a session");
    assert!(fetched.is_whole(), "{fetched:?} {:?}", observer.failures());
    assert_alike(&world.path("data"), &world.path("back/data"));
}

#[test]
fn roots_that_only_read_or_only_write_refuse_the_other_direction() {
    for role in [Role::Read, Role::Write] {
        let world = World::new(role, limits());
        world.write("root/there", b"there");
        world.write("file", b"file");
        let observer = SimpleObserver::default();
        let dial = || WebDial { browser: world.browser(), transfer: "job", cut_after: None };
        let job = SendJob { lanes: Some(1), ..SendJob::new(vec![world.path("file").into()]) };
        let sent = transfer::send(&dial(), &job, &observer.run_context());
        let job =
            FetchJob { lanes: Some(1), ..FetchJob::new(vec![b"there".to_vec()], world.path("back").into()) };
        let fetched = transfer::fetch(&dial(), &job, &observer.run_context());
        let (allowed, refused) = if role == Role::Read { (fetched, sent) } else { (sent, fetched) };
        assert!(allowed.expect("a session").is_whole());
        refused.expect_err("this direction is refused");
        assert_eq!(world.path("root/file").exists(), role == Role::Write);
    }
}

#[test]
fn the_number_of_lanes_of_a_session_is_limited_and_others_cannot_use_them() {
    let world = World::new(Role::Both, haul_web::WebLimits { lanes: 3, ..limits() });
    let (browser, other) = (world.browser(), world.browser());
    let open = || browser.post("/lane", "{\"transfer\":\"one\"}");
    let lanes: Vec<String> =
        (0..3).map(|_| open().json()["lane"].as_str().expect("an ID").to_owned()).collect();
    assert_eq!(open().status, 429);
    let path = format!("/lane/{}/0", lanes[0]);
    for answer in [other.get(&path), other.send("PUT", &path, &[], b"x"), other.get("/lane/0/0")] {
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    let delete = |browser: &haul_lab::browser::Browser| {
        browser.send("DELETE", &format!("/lane/{}", lanes[0]), &[], b"").status
    };
    assert_eq!((delete(&other), delete(&browser), delete(&browser)), (404, 204, 404));
    assert_eq!(open().status, 201);
    // The end of the session ends its lanes.
    assert_eq!(browser.send("DELETE", "/session", &[], b"").status, 204);
    assert_eq!(browser.get(&format!("/lane/{}/0", lanes[1])).status, 401);
}

#[test]
fn a_lane_without_requests_is_aborted() {
    let brief = haul_web::WebLimits { lane_idle: Duration::from_millis(50), lanes: 1, ..limits() };
    let world = World::new(Role::Both, brief);
    let browser = world.browser();
    let open = || browser.post("/lane", "");
    let lane = open().json()["lane"].as_str().expect("an ID").to_owned();
    wait_until("space for another lane", || open().status == 201);
    assert_eq!(browser.get(&format!("/lane/{lane}/0")).status, 404);
}

#[test]
fn bytes_that_are_not_messages_end_the_lane() {
    let world = World::new(Role::Both, limits());
    let browser = world.browser();
    let lane = browser.post("/lane", "{}").json()["lane"].as_str().expect("an ID").to_owned();
    assert_eq!(browser.send("PUT", &format!("/lane/{lane}/0"), &[], &[0xff; 4096]).status, 204);
    let mut number = 0;
    wait_until("the end of the lane", || {
        let piece = browser.get(&format!("/lane/{lane}/{number}"));
        assert!(matches!(piece.status, 200 | 204), "{piece:?}");
        number += u64::from(piece.status == 200);
        piece.header("x-haul-end").is_some()
    });
}
