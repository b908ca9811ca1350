//! Tests of structure-aware mutations of valid messages, with corrected checksums, and of state
//! machines that receive the results. `HAUL_PROTO_CASES=N` runs N cases of each, for overnight
//! runs.

use crate::any::message;
use crate::codec::{cases, decoded, encoded, forged};
use haul_digest::{Algorithm, Digest};
use haul_model::{Level, ObjectSize};
use haul_proto::limits::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use haul_proto::sink::{self, Verdict};
use haul_proto::source::{self, Work};
use haul_proto::{
    FileKind, FileNumber, HEADER_LEN, JobOptions, LaneId, Message, NewFile, Outcome, Runs, Sink, Source,
    Timing, Window,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;

/// Returns numbers at which lengths, counts, indices and offsets tend to go wrong.
fn extreme() -> impl Strategy<Value = u64> {
    let around = |value: u64| (0u64..3).prop_map(move |add| value.wrapping_add(add).wrapping_sub(1));
    prop_oneof![
        around(0),
        around(u64::MAX),
        around(1 << 63),
        around(u64::from(u32::MAX)),
        around(1 << 31),
        around(u64::from(u16::MAX)),
        around(BODY_BYTES_MAX as u64),
        around(u64::from(PAYLOAD_BYTES_MAX)),
        around(4096),
        around(32_768),
    ]
}

/// A mutation of a body.
#[derive(Clone, Debug)]
enum Change {
    /// Overwrites `width` bytes with a little-endian number. Some position hits each field of each
    /// message.
    Number { at: Index, width: usize, value: u64 },
    /// Inserts bytes.
    Insert { at: Index, bytes: Vec<u8> },
    /// Removes bytes.
    Remove { at: Index, len: usize },
    /// Duplicates a range, like a list that repeats an element.
    Double { at: Index, len: usize },
    /// Takes the end from another message's body.
    Splice { at: Index, from: Index },
}

fn change() -> impl Strategy<Value = Change> {
    let width = prop_oneof![Just(1usize), Just(2), Just(4), Just(8)];
    prop_oneof![
        4 => (any::<Index>(), width, extreme()).prop_map(|(at, width, value)| Change::Number { at, width, value }),
        1 => (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Change::Insert { at, bytes }),
        1 => (any::<Index>(), 1usize..20).prop_map(|(at, len)| Change::Remove { at, len }),
        1 => (any::<Index>(), 1usize..40).prop_map(|(at, len)| Change::Double { at, len }),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(at, from)| Change::Splice { at, from }),
    ]
}

impl Change {
    fn apply(&self, body: &mut Vec<u8>, other: &[u8]) {
        let place = |index: &Index, len: usize| index.index(len + 1);
        match self {
            Change::Number { at, width, value } => {
                let at = place(at, body.len().saturating_sub(*width));
                let end = (at + width).min(body.len());
                body[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            Change::Insert { at, bytes } => {
                let at = place(at, body.len());
                body.splice(at..at, bytes.iter().copied());
            }
            Change::Remove { at, len } => {
                let at = place(at, body.len());
                let end = (at + len).min(body.len());
                body.drain(at..end);
            }
            Change::Double { at, len } => {
                let at = place(at, body.len());
                let part = body[at..(at + len).min(body.len())].to_vec();
                body.splice(at..at, part);
            }
            Change::Splice { at, from } => {
                body.truncate(place(at, body.len()));
                body.extend_from_slice(&other[place(from, other.len())..]);
            }
        }
    }
}

/// Returns the message that a hostile peer could make of `one`, if it still decodes.
fn bent(one: &Message, other: &Message, changes: &[Change], payload: u32) -> Option<Message> {
    let bytes = encoded(one);
    let mut body = bytes[HEADER_LEN..].to_vec();
    let tail = encoded(other);
    for change in changes {
        change.apply(&mut body, &tail[HEADER_LEN..]);
    }
    body.truncate(BODY_BYTES_MAX);
    let payload = if one.payload_len() > 0 { payload } else { 0 };
    decoded(&forged(bytes[0], 0, payload, &body)).ok().flatten()
}

fn messages(most: usize) -> impl Strategy<Value = Vec<Message>> {
    let one = (message(), message(), vec(change(), 0..3), 0..PAYLOAD_BYTES_MAX);
    vec(one, 1..most).prop_map(|all| {
        let bent = |(one, other, changes, payload): &(Message, Message, Vec<Change>, u32)| {
            bent(one, other, changes, *payload).unwrap_or_else(|| one.clone())
        };
        all.iter().map(bent).collect()
    })
}

const WINDOW: Window = Window { files: 8, facts: 1 << 20, bytes: 1 << 20 };

fn options() -> JobOptions {
    JobOptions { object: ObjectSize::new(64 << 10).unwrap(), delete: true, ..JobOptions::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// A mutated message that still decodes is within all bounds: it encodes into a frame that
    /// decodes to the same message.
    #[test]
    fn mutated_messages_are_refused_or_round_trip(
        one in message(),
        other in message(),
        changes in vec(change(), 1..4),
        payload in 0..PAYLOAD_BYTES_MAX,
    ) {
        if let Some(message) = bent(&one, &other, &changes, payload) {
            prop_assert_eq!(message.check(), Ok(()));
            let bytes = encoded(&message);
            prop_assert!(bytes.len() <= HEADER_LEN + BODY_BYTES_MAX);
            prop_assert_eq!(decoded(&bytes), Ok(Some(message)));
        }
    }

    /// A sink with two lanes, whose engine executes its commands.
    #[test]
    fn sink_survives_mutated_messages(all in messages(40)) {
        let settings = sink::Settings {
            options: options(),
            window: WINDOW,
            timing: Timing::default(),
            retries: 2,
            short_blocks: true,
        };
        let mut sink = Sink::new(settings);
        let mut out = Vec::new();
        for lane in 0..2 {
            sink.handle(sink::Event::LaneUp(LaneId(lane)), Duration::ZERO, &mut out);
        }
        let mut announced = 0;
        for (at, message) in all.into_iter().enumerate() {
            let lane = LaneId((at % 2) as u32);
            let Some(message) = as_a_source(message, &mut announced) else { continue };
            let event = match message {
                Message::BlockDigest(end) => sink::Event::ObjectEnd { lane, end: *end, found: None },
                message => sink::Event::Message(lane, message),
            };
            sink.handle(event, Duration::ZERO, &mut out);
            obey(&mut sink, &mut out);
            prop_assert!(sink.open_files() <= 2 * WINDOW.files as usize);
            while let sink::Outgoing::Send(message) = sink.next(lane, Duration::ZERO) {
                prop_assert_eq!(message.check(), Ok(()));
            }
        }
    }

    /// A source with a few files in flight.
    #[test]
    fn source_survives_mutated_messages(all in messages(40)) {
        let settings =
            source::Settings {
                options: options(),
                window: WINDOW,
                timing: Timing::default(),
                retries: 2,
                awaits_answers: false,
            };
        let mut source = Source::new(settings);
        let mut out = Vec::new();
        for lane in 0..2 {
            source.handle(source::Event::LaneUp(LaneId(lane)), Duration::ZERO, &mut out);
        }
        let mut ending = Vec::new();
        for size in [0, 5, 300_000, 300_000] {
            source.offer(file(size), None).unwrap();
        }
        for (at, message) in all.into_iter().enumerate() {
            let lane = LaneId((at % 2) as u32);
            match source.next(lane, Duration::ZERO) {
                Work::Object { facts, attempt, object, .. } => {
                    let (file, object) = (facts.number, object.index);
                    let sent = source::Event::ObjectSent { lane, file, attempt, object };
                    source.handle(sent, Duration::ZERO, &mut out);
                }
                // The worker may have reported the end of the file's bytes, but not yet that it
                // sent FILE_CLOSE.
                Work::Whole { facts, .. } | Work::Close { facts, .. } => ending.push(facts.number),
                _ => {}
            }
            let Some(message) = as_a_sink(message) else { continue };
            source.handle(source::Event::Message(lane, message), Duration::ZERO, &mut out);
            for command in out.drain(..) {
                if let source::Command::FileDone { file, outcome: Outcome::Done(_), .. } = command {
                    prop_assert!(ending.contains(&file), "{file:?} was never closed, and is called done");
                }
            }
            prop_assert!(source.open_files() <= 4);
        }
    }
}

fn file(size: u64) -> NewFile {
    NewFile::new(&b"a"[..], FileKind::File { size, holes: Runs::default() })
}

/// Executes the sink's commands and reports the results.
fn obey(sink: &mut Sink, out: &mut Vec<sink::Command>) {
    use sink::{Command, Event};
    let zeros = || Digest::from_bytes(Algorithm::Blake3, &[0; 32]).unwrap();
    while !out.is_empty() {
        for command in std::mem::take(out) {
            let event = match command {
                Command::Open { facts, path } => {
                    assert!(!path.as_bytes().split(|&byte| byte == b'/').any(|part| part == b".."));
                    Event::Opened {
                        file: facts.number,
                        verdict: Verdict::Take { have: Runs::default() },
                        rereads: false,
                    }
                }
                Command::Make { facts, .. } => {
                    Event::Finished { file: facts.number, result: Ok(Outcome::Done(Level::Verified)) }
                }
                Command::Finish { file, settle, .. } => {
                    Event::Finished { file, result: Ok(Outcome::Done(settle)) }
                }
                Command::Write { object, range, payload, .. } => {
                    assert!(object.range.start <= range.start && range.end <= object.range.end);
                    assert!(u64::from(payload) <= range.len());
                    continue;
                }
                Command::Settle { file, attempt, object, to, .. } => {
                    let objects = Runs::of(object.index.0, object.index.0 + 1);
                    Event::Settled { file, attempt, level: to, objects }
                }
                Command::Rehash { file, attempt, object } => {
                    let object = object.map(|object| object.index);
                    Event::Rehashed { file, attempt, object, digest: Ok(zeros()) }
                }
                Command::Sweep => Event::Swept,
                Command::Judged { .. } => Event::Removed { deleted: 0, failed: 0, over_limit: 0 },
                Command::Unread(_)
                | Command::ObjectVerified { .. }
                | Command::Restart { .. }
                | Command::Ended(_)
                | Command::Discard { .. }
                | Command::Refused { .. }
                | Command::Failed { .. }
                | Command::Abandon { .. }
                | Command::Named { .. }
                | Command::DropLane { .. } => continue,
            };
            sink.handle(event, Duration::ZERO, out);
        }
    }
}

/// Converts a message to one of a source, about announced files only. A message about another file
/// ends the session at once, and the rest would never be processed. Returns `None` for the messages
/// of a sink and, for the same reason, for a BYE.
fn as_a_source(message: Message, announced: &mut u64) -> Option<Message> {
    let known = |number: FileNumber| FileNumber(number.0 % (*announced).max(1));
    Some(match message {
        Message::NewFile(mut file) => {
            file.number = FileNumber(*announced);
            file.again = false;
            *announced += 1;
            if file.path.len() > 3 {
                file.path = Box::from(&b"a"[..]);
            }
            Message::NewFile(file)
        }
        Message::NewBlock(mut block) => {
            block.number = known(block.number);
            (block.attempt, block.object.0) = (0, block.object.0 % 3);
            Message::NewBlock(block)
        }
        Message::BlockDigest(mut end) => {
            end.number = known(end.number);
            (end.attempt, end.object.0) = (0, end.object.0 % 3);
            Message::BlockDigest(end)
        }
        Message::ObjectDigests(mut digests) => {
            (digests.number, digests.attempt) = (known(digests.number), 0);
            Message::ObjectDigests(digests)
        }
        Message::FileClose(mut close) => {
            (close.number, close.attempt) = (known(close.number), 0);
            Message::FileClose(close)
        }
        Message::WalkEnd(mut end) => {
            end.files = *announced;
            Message::WalkEnd(end)
        }
        Message::Delete(_) | Message::Named(_) | Message::KeepAlive => message,
        _ => return None,
    })
}

/// Converts a message to one of a sink, about the four existing files.
fn as_a_sink(message: Message) -> Option<Message> {
    let known = |number: FileNumber| FileNumber(number.0 % 4);
    Some(match message {
        Message::FileId(mut id) => {
            (id.number, id.attempt) = (known(id.number), id.attempt % 2);
            Message::FileId(id)
        }
        Message::BlockSync(mut sync) => {
            (sync.number, sync.attempt) = (known(sync.number), sync.attempt % 2);
            sync.objects = Runs::of(sync.objects.end() % 3, sync.objects.end() % 3 + 1);
            Message::BlockSync(sync)
        }
        Message::BlockReject(mut reject) => {
            (reject.number, reject.attempt) = (known(reject.number), reject.attempt % 2);
            reject.object = reject.object.map(|object| haul_model::ObjectIndex(object.0 % 3));
            Message::BlockReject(reject)
        }
        Message::Compared(mut compared) => {
            (compared.number, compared.attempt) = (known(compared.number), compared.attempt % 2);
            compared.end %= 4;
            compared.wanted = Runs::of(compared.end / 2, compared.end);
            Message::Compared(compared)
        }
        Message::FileDone(mut done) => {
            done.number = known(done.number);
            Message::FileDone(done)
        }
        Message::KeepAlive => message,
        _ => return None,
    })
}
