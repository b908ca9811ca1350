//! Tests of listings: large directories, and responders that break the protocol.

use super::misbehaving_peer::Nobody;
use super::pair::offer;
use haul_engine::transfer::{BoxError, RunContext, Tally, TransferError, answer, list};
use haul_lab::misbehaving_peer::{MisbehavingPeer, frame};
use haul_net::{FrameReader, FrameWriter, Lane, LaneControl, LaneError, StreamLane};
use haul_proto::{Entries, EntryKind, Features, ListedEntry, Message, Reason, WalkEnd, Why};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Listed = (Vec<Vec<u8>>, Result<bool, TransferError>);

/// Lists over a lane to `responder` at most `max` names behind `after`.
fn listed(after: &[u8], max: usize, responder: impl FnOnce(StreamLane) + Send) -> Listed {
    let (ours, theirs) = StreamLane::pair();
    let ours = Mutex::new(Some(ours));
    let dial =
        |_: u32| -> Result<StreamLane, BoxError> { Ok(ours.lock().unwrap().take().expect("one lane")) };
    std::thread::scope(|scope| {
        scope.spawn(move || responder(theirs));
        let mut names = Vec::new();
        let ended = list(&dial, b"d", after, &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < max
        });
        (names, ended)
    })
}

/// Answers a listing of `root`, which may not fail.
fn serve(root: &Path) -> impl FnOnce(StreamLane) + Send + '_ {
    |lane| serve_on(lane.into(), root)
}

fn serve_on(lane: Box<dyn Lane>, root: &Path) {
    let (stop, tally) = (AtomicBool::new(false), Tally::default());
    let run_context = RunContext { stop: &stop, tally: &tally, report: &Nobody, receipt: None };
    let outcome = answer(lane, &mut || None, &offer(root), &run_context).unwrap();
    assert!(outcome.is_whole() && outcome.listed.is_some());
}

/// More names than a responder holds in memory. They are links to one file, because inodes are slow
/// to create.
#[test]
fn names_of_large_directories_are_complete_and_sorted() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    fs::create_dir(root.join("d")).unwrap();
    let name = |number: usize| format!("{:05}", number * 7919 % 70_000);
    let mut first = root.join("first");
    fs::write(&first, "x").unwrap();
    for number in 0..70_000 {
        // ext4 permits 65,000 links of a file.
        if number == 35_000 {
            first = root.join("second");
            fs::write(&first, "x").unwrap();
        }
        fs::hard_link(&first, root.join("d").join(name(number))).unwrap();
    }
    let (names, ended) = listed(b"", usize::MAX, serve(root));
    assert!(matches!(ended, Ok(false)), "{ended:?}");
    assert_eq!(names.len(), 70_000);
    assert!(names.iter().enumerate().all(|(number, name)| *name == format!("{number:05}").into_bytes()));
    let (names, ended) = listed(b"69997", usize::MAX, serve(root));
    assert!(matches!(ended, Ok(false)), "{ended:?}");
    assert_eq!(names, [b"69998", b"69999"]);
    // A client that has enough ends the lane, which is no failure of the responder.
    let (names, ended) = listed(b"", 3, serve(root));
    assert!(matches!(ended, Ok(true)), "{ended:?}");
    assert_eq!(names, [b"00000", b"00001", b"00002"]);
}

#[test]
fn empty_directory_has_an_empty_listing() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("d")).unwrap();
    let (names, ended) = listed(b"", 9, serve(home.path()));
    assert!(names.is_empty() && matches!(ended, Ok(false)), "{ended:?}");
}

/// A lane whose peer leaves before this end finishes it.
struct Left(StreamLane);

impl Lane for Left {
    fn split(self: Box<Self>) -> (Box<dyn FrameReader>, Box<dyn FrameWriter>) {
        let (frames, outbox) = Box::<dyn Lane>::from(self.0).split();
        (frames, Box::new(LeftWriter(outbox)))
    }

    fn control(&self) -> Arc<dyn LaneControl> {
        Lane::control(&self.0)
    }
}

struct LeftWriter(Box<dyn FrameWriter>);

impl FrameWriter for LeftWriter {
    fn push(&mut self, message: &Message) -> Result<(), LaneError> {
        self.0.push(message)
    }

    fn payload(&mut self, bytes: &[u8]) -> Result<(), LaneError> {
        self.0.payload(bytes)
    }

    fn flush(&mut self) -> Result<(), LaneError> {
        self.0.flush()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn waited(&self) -> Duration {
        self.0.waited()
    }

    fn finish(self: Box<Self>) -> Result<(), LaneError> {
        self.0.finish().and(Err(LaneError::Ended))
    }
}

/// Regression: a connection that the peer has reset cannot be shut down, and the session counted as
/// failed.
#[test]
fn peer_that_leaves_after_the_last_name_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("d/e")).unwrap();
    let root = home.path();
    let (names, ended) = listed(b"", 9, |lane| serve_on(Box::new(Left(lane)), root));
    assert!(names == [b"e"] && matches!(ended, Ok(false)), "{ended:?}");
}

fn entry(name: &[u8]) -> ListedEntry {
    ListedEntry { name: name.into(), kind: EntryKind::File, size: 0, mtime: Default::default(), mode: 0 }
}

fn entries(names: &[&[u8]]) -> Message {
    let entries = names.iter().map(|name| entry(name)).collect();
    Message::Entries(Box::new(Entries { last: false, entries }))
}

/// Lists at a responder that sends these messages, and then ends the lane.
fn listed_by(after: &[u8], messages: &[Message]) -> Listed {
    listed(after, 100, |lane| {
        let mut peer = MisbehavingPeer::at(lane);
        let Message::Connect(connect) = peer.hear() else { panic!("it requests a listing") };
        assert_eq!(connect.needs, Features::LISTING);
        for message in messages {
            // The client leaves at the first invalid message.
            let _ = peer.writer.write_all(&frame(message));
        }
        let _ = peer.writer.finish();
    })
}

#[test]
fn invalid_listings_end_with_an_error_and_pass_on_no_invalid_name() {
    for name in [&b"a/b"[..], b"..", b".", b"", b"a\0b", b".haul-0", &[b'x'; 256]] {
        let (names, ended) = listed_by(b"", &[entries(&[b"!"]), entries(&[name])]);
        assert!(matches!(ended, Err(TransferError::NotUnderstood(_))), "{name:?}: {ended:?}");
        assert_eq!(names, [b"!"], "{name:?}");
    }
    for messages in [
        &[entries(&[b"b", b"a"])][..],
        &[entries(&[b"b", b"b"])],
        &[entries(&[b"b"]), entries(&[b"a"])],
        &[entries(&[])],
        &[Message::KeepAlive, Message::WalkEnd(WalkEnd::default())],
    ] {
        let (_, ended) = listed_by(b"", messages);
        assert!(matches!(ended, Err(TransferError::NotUnderstood(_))), "{messages:?}: {ended:?}");
    }
    let (names, ended) = listed_by(b"m", &[entries(&[b"a"])]);
    assert!(names.is_empty() && matches!(ended, Err(TransferError::NotUnderstood(_))), "{ended:?}");
    // The end of the lane is not the end of the listing.
    let (names, ended) = listed_by(b"", &[entries(&[b"a"])]);
    assert!(names == [b"a"] && matches!(ended, Err(TransferError::Lane(_))), "{ended:?}");
}

#[test]
fn refusals_are_reported_also_those_of_older_versions() {
    let refuse = |why| [Message::Refuse(Reason::new(why, "features 0x2"))];
    let (_, ended) = listed_by(b"", &refuse(Why::Feature));
    let Err(error) = ended else { panic!("an older version does not list") };
    assert!(error.to_string().contains("too old; update it"), "{error}");
    let (names, ended) = listed_by(b"", &[&[entries(&[b"a"])], &refuse(Why::Io)[..]].concat());
    assert!(names == [b"a"] && matches!(ended, Err(TransferError::Refused(_))), "{ended:?}");
}
