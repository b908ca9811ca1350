//! `haul serve --web-peers`: another server by its ticket, for browsers.

use super::web::{events, serve};
use super::{Fixture, assert_alike};
use haul_lab::browser::Browser;
use haul_lab::misbehaving_peer::{MisbehavingPeer, frame};
use haul_model::Moment;
use haul_net::{Grant, Listener, Role, Ticket, Uses};
use haul_proto::{Entries, EntryKind, ListedEntry, Message};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::thread;
use std::time::Duration;

/// Returns the page of a listing.
fn tree(browser: &Browser, ticket: &str, path: &str, after: &str) -> Value {
    let body = json!({ "ticket": ticket, "path": path, "after": after });
    browser.post("/peer/tree", &body.to_string()).json()
}

fn names(page: &Value) -> Vec<&str> {
    page["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn directories_of_another_server_are_listed_in_the_sandbox() {
    let fixture = Fixture::new();
    fixture.tree("far/data");
    fixture.file("far/<img src=x onerror=alert(1)>", 5);
    fixture.file("far/.haul-0-1", 5);
    symlink("/etc", fixture.path("far/etc")).unwrap();
    let _far = fixture.serve(&["--root", "far", "--read-only"]);
    let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
    let (server, link) = serve(&fixture, &["--sandbox=auto", "--web-peers"]);
    let browser = Browser::signed_in(&link);
    let page = tree(&browser, ticket.trim(), "", "");
    assert_eq!(names(&page), ["<img src=x onerror=alert(1)>", "data", "etc"], "{page}");
    let kinds: Vec<&Value> = page["entries"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["file", "directory", "link"]);
    assert_eq!(names(&tree(&browser, ticket.trim(), "data", "one")), ["small", "sub"]);
    for (path, why) in [("etc", "cannot list"), ("..", "invalid name"), ("none", "does not exist")] {
        let refused = tree(&browser, ticket.trim(), path, "");
        assert!(refused["error"].as_str().is_some_and(|error| error.contains(why)), "{refused}");
    }
    fs::create_dir(fixture.path("inbox")).unwrap();
    let _inbox = fixture.serve(&["--root", "inbox", "--write-only"]);
    let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
    let refused = tree(&browser, ticket.trim(), "", "");
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("not allowed")), "{refused}");
    drop(server);
}

/// A server that sends names without an end, until the client leaves.
fn endless(listener: &Listener) {
    let session = listener.next_session_within(Duration::from_secs(60)).expect("a session");
    let (_, lane) = session.next_lane(Duration::from_secs(60)).expect("a lane");
    let mut peer = MisbehavingPeer::at(lane);
    assert!(matches!(peer.hear(), Message::Connect(_)));
    for number in 0_u64.. {
        let name = format!("{number:020}").into_bytes().into();
        let (kind, mtime) = (EntryKind::File, Moment { sec: i64::MAX, nsec: 0 });
        let entry = ListedEntry { name, kind, size: u64::MAX, mtime, mode: u32::MAX };
        let message = Message::Entries(Box::new(Entries { last: false, entries: vec![entry] }));
        if peer.writer.write_all(&frame(&message)).is_err() {
            return;
        }
    }
}

#[test]
fn a_listing_without_an_end_is_cut_and_its_lane_ends() {
    let fixture = Fixture::new();
    let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
    let (listener, ticket): (Listener, Ticket) =
        Listener::with_ticket(&["127.0.0.1:0".parse().unwrap()], grant).unwrap();
    let (_server, link) = serve(&fixture, &["--web-peers"]);
    let browser = Browser::signed_in(&link);
    thread::scope(|scope| {
        let ended = scope.spawn(|| endless(&listener));
        let page = tree(&browser, &ticket.to_line(), "", "");
        let names = names(&page);
        assert_eq!(names.len(), 5000);
        assert_eq!(page["next"], names[4999]);
        ended.join().unwrap();
    });
}

/// Regression: copies to another server sent all files again.
#[test]
fn repeated_copies_to_another_server_leave_equal_files() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    for (access, is_left) in [(&[][..], true), (&["--write-only"], false)] {
        let far = format!("far {is_left}");
        fs::create_dir(fixture.path(&far)).unwrap();
        let _far = fixture.serve(&[&["--root", &far], access].concat());
        let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
        let (_server, link) = serve(&fixture, &["--web-peers"]);
        let browser = Browser::signed_in(&link);
        let body = json!({ "ticket": ticket.trim(), "path": "", "names": ["data"], "to": "" }).to_string();
        let inode = || fs::metadata(fixture.path(&far).join("data/big")).unwrap().ino();
        let first = events(&browser, "/copy", &body).pop().unwrap();
        assert_eq!((&first["whole"], &first["same"]), (&true.into(), &0.into()), "{first}");
        let before = inode();
        let again = events(&browser, "/copy", &body).pop().unwrap();
        assert_eq!(again["whole"], true, "{again}");
        assert_eq!((again["same"].as_u64() > Some(0), inode() == before), (is_left, is_left), "{again}");
        assert_alike(&fixture.path("there/data"), &fixture.path(&far).join("data"));
    }
}
