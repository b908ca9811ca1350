//! A peer that sends the largest possible numbers: lengths, offsets and counts of 2^64 - 1, and
//! files longer than any process could read.
//!
//! The server refuses each number with a reason in its log, or the number ends with its session.
//! The server then accepts the next client as usual.

use super::stopped::wait_until;
use super::{Fixture, Server, assert_alike};
use haul_digest::{Algorithm, digest};
use haul_lab::misbehaving_peer::{
    MisbehavingPeer, block, block_digest, connect, file_close, frame, new_file, read,
};
use haul_lab::mounts::{Format, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_model::{ByteRange, Moment, ObjectIndex, ObjectSize};
use haul_net::{DialSettings, Dialer, Ticket};
use haul_proto::{
    Bye, Close, Connect, FileKind, FileNumber, HEADER_LEN, JobOptions, LaneId, LaneTimes, Message, NewBlock,
    Runs, Stated, Summary, Times, Unit, WalkEnd, Window,
};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Largest valid size of a file in bytes.
const LONGEST: u64 = (1 << 63) - 1;

/// Connects a misbehaving source with the ticket of `fixture` and sends CONNECT, which the server
/// accepts.
pub(super) fn come(fixture: &Fixture, options: &JobOptions) -> MisbehavingPeer {
    let ticket = Ticket::parse(fs::read_to_string(fixture.path("ticket")).unwrap().trim()).unwrap();
    come_with(ticket, options)
}

/// Connects a misbehaving source with a ticket and sends CONNECT, which the receiver accepts.
pub(super) fn come_with(ticket: Ticket, options: &JobOptions) -> MisbehavingPeer {
    let mut peer =
        MisbehavingPeer::at(Dialer::new(ticket, DialSettings::default()).unwrap().lane(0).unwrap());
    let window = Window { files: u32::MAX, facts: u64::MAX, bytes: u64::MAX };
    peer.say(&Message::Connect(Box::new(Connect { window, ..connect(options) })), &[]);
    assert!(matches!(peer.hear(), Message::Accept(_)));
    peer
}

/// Receives messages until FILE_DONE for the file `number`.
fn hear_end_of(peer: &mut MisbehavingPeer, number: u64) {
    while !matches!(peer.hear(), Message::FileDone(done) if done.number == FileNumber(number)) {}
}

/// Returns the frame of a message with the 64-bit values at these offsets of its body replaced. The
/// checksums of the frame are valid.
fn bent(told: &Message, changes: &[(usize, u64)]) -> Vec<u8> {
    let mut frame = frame(told);
    for (at, value) in changes {
        let at = HEADER_LEN + at;
        frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let crc = |bytes: &[u8]| {
        let digest = digest(Algorithm::Crc32, bytes);
        u32::from_be_bytes(digest.as_bytes().try_into().unwrap())
    };
    let body = crc(&frame[HEADER_LEN..]);
    frame[12..16].copy_from_slice(&body.to_le_bytes());
    let check = crc(&[&frame[..2], &frame[4..HEADER_LEN]].concat());
    frame[2..4].copy_from_slice(&((check >> 16) as u16 ^ check as u16).to_le_bytes());
    frame
}

fn file(number: u64, path: &str, size: u64, holes: Runs) -> Message {
    Message::NewFile(Box::new(new_file(number, path.as_bytes(), FileKind::File { size, holes })))
}

/// Returns the frames of each misbehaving peer, with the text that the server logs.
fn invalid_messages() -> Vec<(Vec<Vec<u8>>, &'static str)> {
    const MAX: u64 = u64::MAX;
    // Offset of the first run in the body of NEW_FILE: see docs/formats/wire.md.
    const RUN: usize = 58;
    let holes = Runs::of(0, 1);
    let small = || frame(&file(0, "f", 100, Runs::default()));
    let digest = |number, object| frame(&block_digest(number, object, Stated::Nothing));
    let close = |number, close| frame(&file_close(number, close));
    let raw = Message::NewBlock(block(0, b"bytes"));
    let with_bytes = |frame: Vec<u8>| [&frame[..], b"bytes"].concat();
    vec![
        (
            vec![frame(&file(0, "f", MAX, Runs::default()))],
            "size: 18446744073709551615 is more than 9223372036854775807",
        ),
        (vec![frame(&file(MAX, "f", 5, Runs::default()))], "a file's number out of range"),
        (vec![bent(&file(0, "f", 5, holes.clone()), &[(RUN, MAX)])], "invalid holes in a frame"),
        (vec![bent(&file(0, "f", 5, holes), &[(RUN + 8, MAX)])], "holes past the end of a file"),
        // Overwrites the number of runs and half of the first run.
        (
            vec![bent(&file(0, "f", 5, Runs::of(0, 1)), &[(RUN - 4, MAX)])],
            "holes: 4294967295 is more than 4096",
        ),
        (vec![small(), with_bytes(bent(&raw, &[(16, MAX)]))], "invalid length in a frame"),
        (vec![small(), with_bytes(bent(&raw, &[(16, LONGEST)]))], "invalid length in a frame"),
        (vec![small(), with_bytes(bent(&raw, &[(24, MAX)]))], "invalid length in a frame"),
        (vec![small(), with_bytes(bent(&raw, &[(8, MAX)]))], "an object past the end of its file"),
        (vec![small(), with_bytes(bent(&raw, &[(0, MAX)]))], "a block of a file that was never announced"),
        (vec![small(), digest(MAX, 0)], "a digest of a file that was never announced"),
        (vec![small(), with_bytes(frame(&raw)), digest(0, MAX)], "the end of another object"),
        (
            vec![small(), close(0, read(MAX))],
            "f: changed while it was read: its size differs from the announced one",
        ),
        (vec![small(), close(MAX, read(5))], "the end of a file that was never announced"),
    ]
}

/// Returns the anonymous memory of the server in KiB. The announced sizes allocate no memory.
fn memory(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Asserts that an honest client can send to the server as usual.
#[track_caller]
fn assert_server_works(fixture: &Fixture, root: &Path) {
    fixture.tree("data");
    wait_until("a place for the next client", || {
        fixture.run(&["send", "--ticket-file=ticket", "data", ":"]).status == Some(0)
    });
    assert_alike(&fixture.path("data"), &root.join("data"));
}

#[test]
fn maximal_numbers_are_refused_with_a_reason() {
    let fixture = Fixture::new();
    let server = fixture.serve(&["--root", "there"]);
    for (frames, words) in invalid_messages() {
        let mut peer = come(&fixture, &JobOptions::default());
        // The server stops reading after an error, so that writes may fail.
        frames.iter().for_each(|frame| drop(peer.writer.write_all(frame)));
        // A frame that does not end its session has no effect after the disconnect.
        drop(peer);
        server.wait_for_log(words);
        wait_until("an empty folder", || fs::read_dir(fixture.path("there")).unwrap().count() == 0);
    }
    assert!(memory(&server) < 64 << 10, "{} KiB", memory(&server));
    assert_server_works(&fixture, &fixture.path("there"));
}

/// A file that cannot be stored fails by its name and does not end its session.
#[test]
fn a_file_longer_than_any_disk_fails_alone() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    let fixture = Fixture::new();
    let disk = SmallFs::new(16).unwrap();
    let root = disk.path().join("root");
    fs::create_dir(&root).unwrap();
    let server = fixture.serve(&["--root", root.to_str().unwrap()]);
    let mut peer = come(&fixture, &JobOptions::default());
    peer.say(&file(0, "f", LONGEST, Runs::default()), &[]);
    // The last object of the file, at an offset that no disk can store.
    let object = JobOptions::default().object.bytes();
    let (index, start) = (LONGEST / object, LONGEST / object * object);
    let range = ByteRange::between(start, start + 5);
    let last = NewBlock { object: ObjectIndex(index), range, ..block(0, b"bytes") };
    peer.say(&Message::NewBlock(last), b"bytes");
    hear_end_of(&mut peer, 0);
    peer.say(&file(1, "empty", 0, Runs::default()), &[]);
    peer.say(&file_close(1, read(0)), &[]);
    hear_end_of(&mut peer, 1);
    drop(peer);
    server.wait_for_log(": f: ");
    assert_eq!(fs::metadata(root.join("empty")).unwrap().len(), 0);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    assert_server_works(&fixture, &root);
    drop(server);
    disk.close().unwrap();
}

/// Earlier versions added up the counts at the end of a session. The sizes of three such files
/// overflowed 64 bits.
#[test]
fn maximal_byte_counts_do_not_overflow() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let fixture = Fixture::new();
    let memory_disk = Mounted::tmpfs(8).unwrap();
    let root = memory_disk.path();
    let server = fixture.serve(&["--root", root.to_str().unwrap()]);
    let object = ObjectSize::new(1 << 30).unwrap();
    let mut peer = come(&fixture, &JobOptions { object, ..JobOptions::default() });
    let objects = LONGEST.div_ceil(object.bytes());
    for number in 0..3 {
        peer.say(&file(number, &format!("hole{number}"), LONGEST, Runs::of(0, objects)), &[]);
        peer.say(&file_close(number, read(LONGEST)), &[]);
    }
    peer.say(&file(3, "../out", 1, Runs::default()), &[]);
    hear_end_of(&mut peer, 3);
    let max = u64::MAX;
    peer.say(&Message::WalkEnd(WalkEnd { files: max, errors: max, unread: max, delete: true }), &[]);
    while !matches!(peer.hear(), Message::Bye(_)) {}
    let longest = Duration::from_micros(max);
    let lane = |lane| LaneTimes { lane: LaneId(lane), sending: longest, receiving: longest };
    let times = Times {
        storage: longest,
        hashing: longest,
        packing: longest,
        crypto: longest,
        run_delay: longest,
        lanes: (0..200).map(lane).collect(),
    };
    let summary = Summary { done: max, failed: max, bytes: max, again: max, ..Summary::default() };
    peer.say(&Message::Bye(Box::new(Bye { reason: None, summary, times: Some(times) })), &[]);
    peer.writer.finish().unwrap();
    let told = server.wait_for_log("transferred");
    assert!(told.contains("3 transferred, 1 failed, 18446744073709551615 could not be read"), "{told}");
    for number in 0..3 {
        let path = root.join(format!("hole{number}"));
        assert_eq!(fs::metadata(&path).unwrap().len(), LONGEST);
        fs::remove_file(path).unwrap();
    }
    assert_server_works(&fixture, &root);
    drop(server);
    memory_disk.close().unwrap();
}

/// Earlier versions read such a file on after the peer had disconnected, and kept its session slot
/// in the server.
#[test]
fn reading_an_endless_file_ends_with_its_session() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let fixture = Fixture::new();
    let memory_disk = Mounted::tmpfs(8).unwrap();
    let root = memory_disk.path();
    let server = fixture.serve(&["--root", root.to_str().unwrap(), "--sessions=1"]);
    let options = JobOptions { unit: Unit::File, ..JobOptions::default() };
    let mut peer = come(&fixture, &options);
    let objects = LONGEST.div_ceil(options.object.bytes());
    peer.say(&file(0, "hole", LONGEST, Runs::of(0, objects)), &[]);
    let stated = digest(Algorithm::Blake3, b"who knows");
    let close = Close::Read { size: LONGEST, mtime: Moment::default(), root: Some(stated) };
    peer.say(&file_close(0, close), &[]);
    let is_long = |entry: fs::DirEntry| entry.metadata().is_ok_and(|facts| facts.len() == LONGEST);
    wait_until("the reading", || fs::read_dir(&root).unwrap().flatten().any(is_long));
    drop(peer);
    server.wait_for_log("incomplete");
    assert_server_works(&fixture, &root);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "nothing of it is left");
    drop(server);
    memory_disk.close().unwrap();
}
