//! Listings of other servers: their answers, limits and ends.

use crate::world::{World, limits};
use haul_lab::browser::Browser;
use haul_net::{Role, StreamLane};
use haul_proto::{EntryKind, ListedEntry};
use haul_web::limits::{NAMES_PER_PAGE_MAX, PEER_LISTINGS_MAX};
use haul_web::{PeerConnection, PeerListing, PeerPage, Peers};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const WAIT: &str = r#"{"ticket":"good","path":"wait"}"#;

/// Lists entries that tell what was requested. For the directory "wait" it waits for the other
/// server, which never answers.
fn list(listing: &PeerListing, log: &Mutex<Vec<String>>) -> Result<PeerPage, String> {
    if listing.path == b"wait" {
        let lane = (listing.lanes)(0)?;
        log.lock().expect("a log").push("a listing waits".into());
        let failed = lane.split().0.read_exact(&mut [0]).expect_err("it never answers");
        log.lock().expect("a log").push("a listing ended".into());
        return Err(failed.to_string());
    }
    if listing.path == b"none" {
        return Err("refused by the remote host: does not exist".into());
    }
    assert_eq!(listing.max, NAMES_PER_PAGE_MAX);
    let entry = |name: &[u8], kind| ListedEntry {
        name: name.into(),
        kind,
        size: 7,
        mtime: Default::default(),
        mode: 0o644,
    };
    let entries = vec![
        entry(&listing.path, EntryKind::Directory),
        entry(&listing.after, EntryKind::File),
        entry(b"<b>\xff", EntryKind::Symlink),
    ];
    Ok(PeerPage { entries, has_more: listing.after.is_empty() })
}

fn world() -> World {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::clone(&log);
    // The other ends of the lanes.
    let kept = Arc::<Mutex<Vec<StreamLane>>>::default();
    let connect = move |ticket: &str| {
        if !["good", "once"].contains(&ticket) {
            return Err("cannot use the ticket".to_owned());
        }
        let kept = Arc::clone(&kept);
        let lanes = Box::new(move |_| {
            let (near, far) = StreamLane::pair();
            kept.lock().expect("lanes").push(far);
            Ok(near)
        });
        Ok(PeerConnection { lanes, may_read: true, is_one_time: ticket == "once" })
    };
    let list = move |listing: &PeerListing| list(listing, &heard);
    World::with_peers(Peers { connect: Arc::new(connect), list: Arc::new(list) }, log)
}

#[test]
fn a_directory_of_another_server_is_listed_in_pages() {
    let world = world();
    let browser = world.browser();
    let page = browser.post("/peer/tree", r#"{"ticket":"good","path":{"base64":"L//8"}}"#);
    assert_eq!(page.status, 200);
    let page = page.json();
    assert_eq!(page["entries"][0]["name64"], "L//8");
    assert_eq!(page["entries"][1]["name"], "");
    let facts = ["kind", "size", "mtime", "mtime_ns", "mode"].map(|key| page["entries"][2][key].to_string());
    assert_eq!(facts, ["\"link\"", "7", "0", "0", "420"]);
    assert_eq!(page["next"], "%3Cb%3E%FF");
    let last =
        browser.post("/peer/tree", r#"{"ticket":"good","path":"","after":{"base64":"PGI+/w=="}}"#).json();
    assert_eq!((&last["entries"][1]["name64"], &last["next"]), (&"PGI+/w==".into(), &().into()));
}

#[test]
fn listings_of_other_servers_out_of_bounds_are_refused() {
    let world = world();
    let browser = world.browser();
    let long = "x".repeat(4097);
    for (body, status, why) in [
        (r#"{"ticket":"good","path":"none"}"#.to_owned(), 502, "refused by the remote host: does not exist"),
        (r#"{"ticket":"bad","path":""}"#.to_owned(), 400, "cannot use the ticket"),
        (r#"{"ticket":"once","path":""}"#.to_owned(), 409, "a listing would use it up"),
        (format!(r#"{{"ticket":"good","path":"{long}"}}"#), 400, "longer than 4096 bytes"),
        (format!(r#"{{"ticket":"good","path":"","after":"{long}"}}"#), 400, "longer than 4096 bytes"),
        (r#"{"path":""}"#.to_owned(), 400, "ticket"),
    ] {
        let refused = browser.post("/peer/tree", &body);
        let error = refused.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(refused.status == status && error.contains(why), "{body}: {refused:?}");
    }
    let closed = World::new(Role::Both, limits());
    let refused = closed.browser().post("/peer/tree", r#"{"ticket":"good","path":""}"#);
    assert!(
        refused.status == 403 && refused.json()["error"].to_string().contains("--web-peers"),
        "{refused:?}"
    );
    assert_eq!(world.stranger().post("/peer/tree", WAIT).status, 401);
}

/// Sends the request, and leaves when `leaves` returns.
fn request_and_leave(browser: &Browser, leaves: impl FnOnce()) {
    let mut connection = browser.connect().expect("connected");
    let head = browser.head("POST", "/peer/tree", &[], WAIT.len());
    connection.get_mut().write_all(&[head.as_bytes(), WAIT.as_bytes()].concat()).expect("sent");
    leaves();
}

#[test]
fn listings_of_other_servers_are_limited_and_end_with_their_client() {
    let world = world();
    let browser = world.browser();
    let wait = |words, count| world.wait_for_lines(words, count);
    thread::scope(|scope| {
        for _ in 0..PEER_LISTINGS_MAX {
            scope.spawn(|| request_and_leave(&browser, || wait("a listing waits", PEER_LISTINGS_MAX + 1)));
        }
        wait("a listing waits", PEER_LISTINGS_MAX);
        assert_eq!(browser.post("/peer/tree", r#"{"ticket":"good","path":""}"#).status, 503);
        world.log.lock().expect("a log").push("a listing waits: all clients leave".into());
        wait("a listing ended", PEER_LISTINGS_MAX);
        // Each permit is free a moment after its listing has ended.
        while browser.post("/peer/tree", r#"{"ticket":"good","path":""}"#).status == 503 {
            thread::sleep(Duration::from_millis(10));
        }
    });
}
