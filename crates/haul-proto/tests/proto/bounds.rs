//! Tests with a source that tries to fill the sink's memory: each set has a limit. A file that
//! exceeds it fails, and other files continue.

use haul_digest::{Algorithm, Digest};
use haul_model::{ByteRange, ObjectIndex, ObjectSize};
use haul_proto::limits::{STATE_ENTRIES_MAX, ZERO_BYTES_MAX};
use haul_proto::sink::{Command, Event, Outgoing, Settings, Verdict};
use haul_proto::{
    BlockDigest, CONTROL, Encoding, FileKind, FileNumber, JobOptions, LaneId, Message, NewBlock, NewFile,
    Reason, Runs, Sink, Stated, Timing, Unit, Verify, Why, Window,
};
use std::time::Duration;

const OBJECT: u64 = 64 << 10;

/// A sink whose engine accepts all files, and a source that says anything.
struct World {
    sink: Sink,
    /// Reasons of failed files.
    failed: Vec<(FileNumber, Reason)>,
    is_over: bool,
}

impl World {
    fn new(verify: Verify) -> World {
        World::with(verify, OBJECT, true)
    }

    fn with(verify: Verify, object: u64, short_blocks: bool) -> World {
        let options = JobOptions {
            object: ObjectSize::new(object).unwrap(),
            unit: Unit::Object,
            verify,
            ..JobOptions::default()
        };
        let (timing, window) = (Timing::default(), Window::default());
        let sink = Sink::new(Settings { options, window, timing, retries: 3, short_blocks });
        let mut world = World { sink, failed: Vec::new(), is_over: false };
        (0..4).for_each(|lane| world.handle(Event::LaneUp(LaneId(lane))));
        world
    }

    fn handle(&mut self, event: Event) {
        let mut out = Vec::new();
        self.sink.handle(event, Duration::ZERO, &mut out);
        assert!(self.sink.state_entries() <= STATE_ENTRIES_MAX, "{} entries", self.sink.state_entries());
        for command in out {
            match command {
                Command::Open { facts, .. } => {
                    let verdict = Verdict::Take { have: Runs::default() };
                    self.handle(Event::Opened { file: facts.number, verdict, rereads: false });
                }
                Command::Failed { file, reason, .. } => self.failed.push((file, reason)),
                Command::Ended(_) => self.is_over = true,
                _ => {}
            }
        }
    }

    fn say(&mut self, message: Message) {
        self.handle(Event::Message(CONTROL, message));
    }

    /// Announces a file of the maximum size.
    fn announce(&mut self, number: u64, holes: Runs) {
        let kind = FileKind::File { size: (1 << 63) - 1, holes };
        let facts =
            NewFile { number: FileNumber(number), ..NewFile::new(format!("f{number}").into_bytes(), kind) };
        self.say(Message::NewFile(Box::new(facts)));
    }

    /// Sends an object of zeros, which takes no payload.
    fn object(&mut self, number: u64, object: u64, stated: Stated) {
        let (number, object) = (FileNumber(number), ObjectIndex(object));
        let range = ByteRange::between(object.0 * OBJECT, (object.0 + 1) * OBJECT);
        let encoding = Encoding::Zeros;
        let block = NewBlock { number, attempt: 0, object, range, encoding, payload: 0 };
        self.say(Message::NewBlock(block));
        let end = BlockDigest { number, attempt: 0, object, stated };
        self.handle(Event::ObjectEnd { lane: CONTROL, end, found: Some(digest(1)) });
    }

    /// Receives all messages.
    fn hear(&mut self) {
        for lane in 0..4 {
            while let Outgoing::Send(_) = self.sink.next(LaneId(lane), Duration::ZERO) {}
        }
    }

    /// Repeats `lie` with rising numbers until the file fails, and checks the reason.
    fn repeat_until_failed(&mut self, file: u64, mut lie: impl FnMut(&mut World, u64)) {
        for turn in 0.. {
            lie(self, turn);
            assert!(!self.is_over, "the session continues");
            if self.failed.iter().any(|(number, _)| number.0 == file) {
                break;
            }
            assert!(turn <= STATE_ENTRIES_MAX as u64, "the file has no limit");
        }
        let (_, reason) = &self.failed[0];
        assert_eq!(reason.why, Why::Protocol, "{reason}");
        // Other files can still be announced.
        self.announce(1 << 40, Runs::default());
        assert!(self.sink.is_open(FileNumber(1 << 40)));
    }
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes(Algorithm::Blake3, &[byte; 32]).unwrap()
}

/// A frame of 75 bytes can represent a terabyte of zeros, which the sink has to hash.
#[test]
fn long_block_of_zeros_ends_a_session_of_peers_that_cut_them() {
    for (len, short_blocks, is_over) in
        [(ZERO_BYTES_MAX, true, false), (ZERO_BYTES_MAX + 1, true, true), (1 << 40, false, false)]
    {
        for encoding in [Encoding::Zeros, Encoding::Hole] {
            let mut world = World::with(Verify::Stream, 1 << 40, short_blocks);
            world.announce(0, Runs::default());
            let (number, object, range) = (FileNumber(0), ObjectIndex(0), ByteRange::between(0, len));
            let block = NewBlock { number, attempt: 0, object, range, encoding, payload: 0 };
            world.say(Message::NewBlock(block));
            world.hear();
            assert_eq!(world.sink.is_over(), is_over, "{len} {encoding:?} {short_blocks}");
        }
    }
}

/// Once, the digests of a second read were awaited for any number of objects.
#[test]
fn objects_whose_digest_never_comes_are_limited() {
    let mut world = World::new(Verify::BlockPipeline);
    world.announce(0, Runs::default());
    world.repeat_until_failed(0, |world, turn| world.object(0, turn, Stated::Later));
}

/// Once, the sink counted the arrivals of any number of damaged objects.
#[test]
fn damaged_objects_are_limited() {
    let mut world = World::new(Verify::Stream);
    world.announce(0, Runs::default());
    world.repeat_until_failed(0, |world, turn| {
        world.object(0, turn, Stated::Digest(digest(2)));
        world.hear();
    });
}

/// Once, a source that sent present objects and read no report made the set of reports grow.
#[test]
fn unread_reports_are_limited() {
    let mut world = World::new(Verify::Stream);
    world.announce(0, Runs::of(0, 1 << 30));
    world.repeat_until_failed(0, |world, turn| world.object(0, 2 * turn, Stated::Digest(digest(1))));
}

#[test]
fn objects_in_many_ranges_are_limited() {
    let mut world = World::new(Verify::Stream);
    world.announce(0, Runs::default());
    world.repeat_until_failed(0, |world, turn| {
        world.object(0, 2 * turn, Stated::Digest(digest(1)));
        world.hear();
    });
}

/// The limit for all files together: no file exceeds its own.
#[test]
fn many_files_share_one_limit() {
    let mut world = World::new(Verify::BlockPipeline);
    let files = 64;
    (0..files).for_each(|number| world.announce(number, Runs::default()));
    for turn in 0..=STATE_ENTRIES_MAX as u64 / files {
        (0..files).for_each(|number| world.object(number, turn, Stated::Later));
    }
    assert!(!world.is_over && !world.failed.is_empty());
    assert!(world.sink.state_entries() > STATE_ENTRIES_MAX / 2, "the other files continue");
}

/// Once, each of the lanes could hold as many unread messages as a session needs.
#[test]
fn unread_messages_are_limited_over_all_lanes() {
    let mut world = World::new(Verify::Stream);
    let mut turn = 0;
    while !world.is_over {
        assert!(turn < 100_000, "unread messages have no limit");
        let facts = NewFile { number: FileNumber(turn), ..NewFile::new(*b"../x", FileKind::Directory) };
        let lane = LaneId((turn % 4) as u32);
        world.handle(Event::Message(lane, Message::NewFile(Box::new(facts))));
        turn += 1;
    }
    let limit = 4 * u64::from(Window::default().files) + 16_384;
    assert_eq!(turn, limit + 1);
}

/// Once, each repeated announcement queued another answer with up to 4,096 ranges.
#[test]
fn a_file_announced_again_has_one_pending_answer() {
    let mut world = World::new(Verify::Stream);
    world.announce(0, Runs::of(0, 5));
    for turn in 0..1000 {
        let kind = FileKind::File { size: (1 << 63) - 1, holes: Runs::of(0, 5) };
        let facts = NewFile { again: true, ..NewFile::new(*b"f0", kind) };
        world.handle(Event::Message(LaneId(turn % 4), Message::NewFile(Box::new(facts))));
    }
    let mut answers = 0;
    for lane in 0..4 {
        while let Outgoing::Send(message) = world.sink.next(LaneId(lane), Duration::ZERO) {
            answers += u32::from(matches!(message, Message::FileId(_)));
        }
    }
    assert_eq!(answers, 1);
}
