//! Verifications: where the waybill comes from, rights, limits and ends.

use crate::world::{World, limits};
use haul_net::Role;
use haul_web::WebLimits;
use haul_web::limits::{VERIFICATIONS_MAX, WAYBILL_BYTES_MAX};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::thread;
use std::time::Duration;

#[test]
fn the_waybill_is_the_body_or_a_file_beneath_the_root() {
    let world = World::new(Role::Read, limits());
    world.write("root/dir/file", b"");
    world.write("root/all.waybill", b"stored");
    world.write("outside", b"outside");
    symlink("../outside", world.path("root/link")).expect("made");
    let ino = |path: &str| std::fs::metadata(world.path(path)).expect("there").ino();
    let browser = world.browser();
    let sent = browser.post("/verify?path=dir", "sent");
    assert_eq!((sent.status, &sent.body), (200, &format!("sent {}\n", ino("root/dir")).into_bytes()));
    assert_eq!(sent.header("content-type"), Some("application/x-ndjson"));
    let stored = browser.post("/verify?path=&waybill=all.waybill", "");
    assert_eq!(stored.body, format!("stored {}\n", ino("root")).into_bytes());
    for (query, status) in [
        ("path=none", 404),
        ("path=..", 400),
        ("path=.haul-x", 400),
        ("path=link", 403),
        ("path=dir&waybill=link", 409),
        ("path=dir&waybill=dir", 409),
        ("path=dir&waybill=..%2Foutside", 400),
        ("root=1", 404),
    ] {
        assert_eq!(browser.post(&format!("/verify?{query}"), "").status, status, "{query}");
    }
    assert!(world.has_logged("started a verification in root"));
}

#[test]
fn a_directory_that_may_not_be_read_is_not_verified() {
    let world = World::new(Role::Write, limits());
    assert_eq!(world.browser().post("/verify", "x").status, 403);
}

#[test]
fn waybills_out_of_bounds_are_refused() {
    let world = World::new(Role::Both, limits());
    let browser = world.browser();
    let send = |len| browser.send("POST", "/verify", &[], &vec![b'x'; len]).status;
    assert_eq!((send(WAYBILL_BYTES_MAX), send(WAYBILL_BYTES_MAX + 1)), (200, 413));
}

/// Regression: a verification of some hours ended with its session, which had no other request.
#[test]
fn a_verification_keeps_its_session() {
    let world = World::new(Role::Both, WebLimits { session_idle: Duration::from_secs(2), ..limits() });
    let browser = world.browser();
    thread::scope(|scope| {
        scope.spawn(|| browser.try_send("POST", "/verify", &[], b"wait"));
        thread::sleep(Duration::from_secs(5));
        assert_eq!(browser.get("/session").status, 200);
        assert_eq!(browser.send("DELETE", "/session", &[], b"").status, 204);
    });
}

#[test]
fn verifications_are_limited_and_end_with_their_session() {
    let world = World::new(Role::Both, limits());
    let browser = world.browser();
    let wait = |words, count| world.wait_for_lines(words, count);
    thread::scope(|scope| {
        for _ in 0..VERIFICATIONS_MAX {
            scope.spawn(|| browser.try_send("POST", "/verify", &[], b"wait"));
        }
        wait("started a verification", VERIFICATIONS_MAX);
        let other = world.browser();
        assert_eq!(other.post("/verify", "x").status, 503);
        assert_eq!(browser.send("DELETE", "/session", &[], b"").status, 204);
        wait("a verification ended", VERIFICATIONS_MAX);
        // Each permit is free a moment after its verification has ended.
        while other.post("/verify", "x").status == 503 {
            thread::sleep(Duration::from_millis(10));
        }
    });
}
