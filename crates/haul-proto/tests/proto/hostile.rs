//! Tests with a peer that sends any message at any time. The state machines never panic, never
//! request bytes outside a file, and respect their windows.

use crate::world::dice::Dice;
use haul_digest::{Algorithm, Digest, KeyedDigest};
use haul_model::{ByteRange, Level, Moment, ObjectIndex, ObjectSize};
use haul_proto::sink::{self, Unfinished, Verdict};
use haul_proto::source::{self, Work};
use haul_proto::{
    Answer, BlockDigest, BlockReject, BlockSync, Bye, Close, Compared, Delete, Encoding, Fate, FileClose,
    FileDone, FileId, FileKind, FileNumber, JobOptions, LaneId, List, Message, NewBlock, NewFile,
    ObjectDigests, Outcome, Runs, Sink, Source, Stated, Summary, Timing, Unit, Unread, Update, Verify,
    WalkEnd, Why, Window,
};
use std::collections::BTreeMap;
use std::time::Duration;

const OBJECT: u64 = 64 << 10;

fn options(dice: &mut Dice) -> JobOptions {
    JobOptions {
        object: ObjectSize::new(OBJECT).unwrap(),
        unit: dice.pick(&[Unit::Object, Unit::Object, Unit::File]),
        verify: dice.pick(&[Verify::Stream, Verify::None, Verify::Sequential, Verify::BlockPipeline]),
        settle: dice.pick(&[Level::Received, Level::Verified, Level::Durable]),
        update: dice.pick(&[Update::Always, Update::Object, Update::Digest]),
        in_order: dice.once_in(3),
        delete: dice.once_in(2),
        ..JobOptions::default()
    }
}

const WINDOW: Window = Window { files: 12, facts: 1 << 20, bytes: 3 * OBJECT };

fn digest(dice: &mut Dice) -> Digest {
    Digest::from_bytes(Algorithm::Blake3, &[dice.below(2) as u8; 32]).unwrap()
}

fn keyed(dice: &mut Dice) -> KeyedDigest {
    KeyedDigest::from_bytes([dice.below(2) as u8; 32])
}

/// Returns OBJECT_DIGESTS with any contents.
fn digests(dice: &mut Dice, number: FileNumber, attempt: u16, first: Option<ObjectIndex>) -> Message {
    let count = if first.is_none() { 1 } else { dice.pick(&[1, 1, 2, 4, 1024]) };
    let digests = (0..count).map(|_| keyed(dice)).collect();
    Message::ObjectDigests(Box::new(ObjectDigests { number, attempt, first, digests }))
}

fn number(dice: &mut Dice) -> FileNumber {
    FileNumber(if dice.once_in(100) { u64::MAX } else { dice.below(5) })
}

fn object(dice: &mut Dice) -> ObjectIndex {
    ObjectIndex(if dice.once_in(60) { u64::MAX - 1 } else { dice.below(4) })
}

fn runs(dice: &mut Dice) -> Runs {
    let start = if dice.once_in(40) { 1 << 60 } else { dice.below(4) };
    Runs::of(start, start + dice.below(4))
}

fn new_file(dice: &mut Dice) -> NewFile {
    let paths: [&[u8]; 6] = [b"a", b"d/b", b"../out", b"/etc/passwd", b"a\0", b""];
    let size = dice.pick(&[0, 1, OBJECT, 3 * OBJECT + 5, (1 << 63) - 1]);
    let holes = if dice.once_in(5) { runs(dice) } else { Runs::default() };
    let kind = match dice.below(6) {
        0 => FileKind::Directory,
        1 => FileKind::HardLink { first: Box::from(dice.pick(&paths)) },
        _ => FileKind::File { size, holes },
    };
    NewFile {
        number: number(dice),
        whole: dice.once_in(2),
        again: dice.once_in(3),
        mode: 0o4777,
        ..NewFile::new(dice.pick(&paths), kind)
    }
}

/// Returns a message of a source. Most messages fit the earlier ones; otherwise a protocol error
/// would end every session at once.
fn of_a_source(dice: &mut Dice, said: &mut Said) -> Message {
    let attempt = if dice.once_in(20) { dice.below(3) as u16 } else { 0 };
    if dice.once_in(40) {
        return nonsense(dice, attempt);
    }
    if let Some(block) = said.object.take() {
        // The object continues, or ends.
        let end = (block.object.0 + 1).saturating_mul(OBJECT).min(said.size);
        if block.range.end.0 >= end || dice.once_in(8) {
            let stated = if dice.once_in(8) { Stated::Abandoned } else { Stated::Digest(digest(dice)) };
            let (number, attempt, object) = (block.number, block.attempt, block.object);
            return Message::BlockDigest(Box::new(BlockDigest { number, attempt, object, stated }));
        }
        let range = ByteRange::between(block.range.end.0, end);
        let next = NewBlock { range, encoding: Encoding::Zeros, payload: 0, ..block };
        said.object = Some(next);
        return Message::NewBlock(next);
    }
    let number = FileNumber(said.files.saturating_sub(1 + dice.below(3)));
    if let Some((number, first)) = said.asked.take() {
        return digests(dice, number, attempt, first);
    }
    match dice.below(60) {
        0 => digests(dice, number, attempt, None),
        1 => {
            let first = Some(ObjectIndex(dice.below(4)));
            digests(dice, number, attempt, first)
        }
        2..=22 => {
            let mut file = new_file(dice);
            file.number = FileNumber(said.files);
            said.files += 1;
            said.size = 3 * OBJECT + 5;
            if dice.once_in(2) {
                file.path = Box::from(&b"a"[..]);
                file.kind = FileKind::File { size: said.size, holes: Runs::default() };
            }
            Message::NewFile(Box::new(file))
        }
        23..=50 => {
            let object = ObjectIndex(dice.below(4));
            let start = object.0 * OBJECT;
            let range = ByteRange::between(start, (start + 5).min(said.size.max(start + 1)));
            let payload = range.len() as u32;
            let block = NewBlock { number, attempt, object, range, encoding: Encoding::Raw, payload };
            said.object = Some(block);
            Message::NewBlock(block)
        }
        _ => {
            let close = Close::Read { size: said.size, mtime: Moment::default(), root: Some(digest(dice)) };
            Message::FileClose(Box::new(FileClose { number, attempt, close }))
        }
    }
}

/// State of a hostile source.
#[derive(Default)]
struct Said {
    files: u64,
    size: u64,
    object: Option<NewBlock>,
    /// Digests that the sink waits for.
    asked: Option<(FileNumber, Option<ObjectIndex>)>,
}

fn nonsense(dice: &mut Dice, attempt: u16) -> Message {
    match dice.below(22) {
        0..=3 => Message::NewFile(Box::new(new_file(dice))),
        4..=9 => {
            let object = object(dice);
            let start = if dice.once_in(10) {
                dice.below(5 * OBJECT)
            } else {
                object.0.wrapping_mul(OBJECT) >> 1 << 1
            };
            let start = start.min(1 << 62);
            let len = dice.pick(&[5, OBJECT / 2, OBJECT, OBJECT, 1 << 40]);
            let encoding = dice.pick(&[Encoding::Raw, Encoding::Zeros, Encoding::Hole]);
            let payload = if encoding == Encoding::Raw { len.min(OBJECT) as u32 } else { 0 };
            let range = ByteRange::between(start, start + len);
            Message::NewBlock(NewBlock { number: number(dice), attempt, object, range, encoding, payload })
        }
        10..=13 => {
            let stated = match dice.below(5) {
                0 => Stated::Nothing,
                1 => Stated::Later,
                2 => Stated::Abandoned,
                _ => Stated::Digest(digest(dice)),
            };
            Message::BlockDigest(Box::new(BlockDigest {
                number: number(dice),
                attempt,
                object: object(dice),
                stated,
            }))
        }
        14..=16 => {
            let size = dice.pick(&[0, 1, OBJECT, 3 * OBJECT + 5]);
            let close = match dice.below(4) {
                1 => Close::Failed(Why::Io.into()),
                _ => Close::Read { size, mtime: Moment::default(), root: Some(digest(dice)) },
            };
            Message::FileClose(Box::new(FileClose { number: number(dice), attempt, close }))
        }
        17 => {
            Message::WalkEnd(WalkEnd { files: 1, errors: dice.below(2), unread: dice.below(2), delete: true })
        }
        18 => Message::Delete(Box::new(Delete {
            batch: dice.below(2) as u32,
            fates: vec![Fate::Gone; dice.below(3) as usize],
        })),
        20 => {
            let (number, first) = (number(dice), if dice.once_in(3) { None } else { Some(object(dice)) });
            digests(dice, number, attempt, first)
        }
        19 => {
            Message::Unread(Box::new(Unread { path: b"../../x".as_slice().into(), reason: Why::Io.into() }))
        }
        _ => Message::KeepAlive,
    }
}

/// An engine that executes the commands and checks them against its own state.
struct Obedient {
    sink: Sink,
    open: BTreeMap<FileNumber, (u64, u16)>,
    later: Vec<sink::Event>,
    /// Files whose objects are compared.
    compared: Vec<FileNumber>,
    is_over: bool,
}

impl Obedient {
    fn handle(&mut self, event: sink::Event, dice: &mut Dice) {
        use sink::Event;
        let mut out = Vec::new();
        self.sink.handle(event, Duration::ZERO, &mut out);
        assert!(self.sink.open_files() <= 2 * WINDOW.files as usize);
        assert!(self.sink.open_files() > 0 || self.sink.state_entries() == 0);
        for command in out {
            self.obey(command, dice);
        }
        for file in self.compared.clone() {
            while let Some((attempt, object, _)) = self.sink.next_stated(file) {
                assert!(object.range.end.0 <= self.open[&file].0);
                let same = dice.once_in(2).then(|| Some(digest(dice)));
                self.later.push(Event::Compared { file, attempt, object: object.index, same });
            }
        }
    }

    fn obey(&mut self, command: sink::Command, dice: &mut Dice) {
        use sink::{Command, Event};
        match command {
            Command::Open { facts, path } => {
                assert!([&b"a"[..], b"d/b"].contains(&path.as_bytes()), "{path:?} leads out");
                let file = facts.number;
                self.open.insert(file, (facts.size(), 0));
                let verdict = match dice.below(8) {
                    0 => Verdict::Same,
                    1 => Verdict::Refused(Why::NoSpace.into()),
                    2 => {
                        self.compared.push(file);
                        Verdict::Differing { have: runs(dice), end: dice.below(6), samples: runs(dice) }
                    }
                    3 => {
                        let digest = if dice.once_in(4) { None } else { Some(keyed(dice)) };
                        self.later.push(Event::OwnDigest { file, digest });
                        Verdict::UnlessDigest
                    }
                    _ => Verdict::Take { have: Runs::default() },
                };
                let rereads = dice.once_in(2);
                self.handle(Event::Opened { file, verdict, rereads }, dice);
            }
            Command::Make { facts, path, first } => {
                let paths = [Some(path), first];
                assert!(paths.iter().flatten().all(|p| [&b"a"[..], b"d/b"].contains(&p.as_bytes())));
                self.later
                    .push(Event::Finished { file: facts.number, result: Ok(Outcome::Done(Level::Received)) });
            }
            Command::Write { file, attempt, object, range, payload, .. } => {
                let (size, tried) = self.open[&file];
                assert!(tried == attempt && range.end.0 <= size && range.end <= object.range.end);
                assert!(range.start >= object.range.start && u64::from(payload) <= range.len());
                if dice.once_in(50) {
                    self.handle(Event::WriteFailed { file, reason: Why::NoSpace.into() }, dice);
                }
            }
            Command::Settle { file, attempt, object, to, .. } => {
                let objects = Runs::of(object.index.0, object.index.0 + 1);
                self.later.push(match dice.below(4) {
                    0 => Event::SettleFailed { file, attempt, object: object.index, reason: None },
                    _ => Event::Settled { file, attempt, level: to, objects },
                });
            }
            Command::Rehash { file, attempt, object } => {
                let (digest, object) = (Ok(digest(dice)), object.map(|object| object.index));
                self.later.push(Event::Rehashed { file, attempt, object, digest });
            }
            Command::Restart { file, attempt } => self.open.get_mut(&file).expect("it is open").1 = attempt,
            Command::Finish { file, settle, .. } => {
                let result = match dice.below(4) {
                    0 => Err(Unfinished::Differs),
                    1 => Err(Unfinished::Failed(Why::Io.into())),
                    _ => Ok(Outcome::Done(settle)),
                };
                self.later.push(Event::Finished { file, result });
            }
            Command::Sweep => self.later.push(Event::Swept),
            Command::Judged { .. } => {
                self.later.push(Event::Removed { deleted: 1, failed: 0, over_limit: 0 });
            }
            Command::Ended(_) => self.is_over = true,
            Command::Unread(_)
            | Command::ObjectVerified { .. }
            | Command::Discard { .. }
            | Command::Refused { .. }
            | Command::Failed { .. }
            | Command::Abandon { .. }
            | Command::Named { .. }
            | Command::DropLane { .. } => {}
        }
    }
}

#[test]
fn sink_sends_only_valid_messages_to_a_hostile_source() {
    let mut written = 0;
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let settings = sink::Settings {
            options: options(&mut dice),
            window: WINDOW,
            timing: Timing::default(),
            retries: 3,
            short_blocks: true,
        };
        let mut engine = Obedient {
            sink: Sink::new(settings),
            open: BTreeMap::new(),
            later: Vec::new(),
            compared: Vec::new(),
            is_over: false,
        };
        for lane in 0..2 {
            engine.handle(sink::Event::LaneUp(LaneId(lane)), &mut dice);
        }
        let mut said = [Said::default(), Said { files: 1000, ..Said::default() }];
        for _ in 0..150 {
            if !engine.later.is_empty() && dice.once_in(2) {
                let at = dice.below(engine.later.len() as u64) as usize;
                let event = engine.later.swap_remove(at);
                engine.handle(event, &mut dice);
            }
            let lane = LaneId(dice.below(2) as u32);
            let event = match of_a_source(&mut dice, &mut said[lane.0 as usize]) {
                Message::BlockDigest(end) => {
                    sink::Event::ObjectEnd { lane, end: *end, found: Some(digest(&mut dice)) }
                }
                _ if dice.once_in(80) => sink::Event::LaneLost(LaneId(1)),
                message => sink::Event::Message(lane, message),
            };
            engine.handle(event, &mut dice);
            while let sink::Outgoing::Send(message) = engine.sink.next(lane, Duration::ZERO) {
                assert_eq!(message.check(), Ok(()));
                written += 1;
                if let Message::FileId(id) = &message {
                    said[lane.0 as usize].asked = match &id.answer {
                        Answer::Take { .. } => None,
                        Answer::UnlessDigest => Some((id.number, None)),
                        Answer::Differing { have, .. } => {
                            Some((id.number, Some(ObjectIndex(have.first_gap(0)))))
                        }
                    };
                }
            }
            if engine.is_over {
                break;
            }
        }
    }
    assert!(written > 5000, "the sink had something to say: {written}");
}

/// Returns a message of a sink, with numbers that often match.
fn of_a_sink(dice: &mut Dice) -> Message {
    let attempt = if dice.once_in(5) { dice.below(3) as u16 } else { 0 };
    let number = number(dice);
    match dice.below(16) {
        0..=3 => {
            let answer = match dice.below(4) {
                0 => Answer::Differing {
                    have: if dice.once_in(3) { runs(dice) } else { Runs::default() },
                    end: dice.below(5),
                },
                1 => Answer::UnlessDigest,
                _ => Answer::Take { have: if dice.once_in(3) { runs(dice) } else { Runs::default() } },
            };
            Message::FileId(Box::new(FileId { number, attempt, answer }))
        }
        4..=7 => {
            let level = dice.pick(&[Level::Received, Level::Verified, Level::Durable]);
            Message::BlockSync(Box::new(BlockSync { number, attempt, level, objects: runs(dice) }))
        }
        8 | 9 => {
            let object = if dice.once_in(3) { None } else { Some(object(dice)) };
            Message::BlockReject(BlockReject { number, attempt, object, reason: Why::Differs.into() })
        }
        10 | 11 => {
            let (wanted, end) = (runs(dice), dice.below(5));
            let end = end.max(wanted.end());
            Message::Compared(Box::new(Compared { number, attempt, end, wanted }))
        }
        12 | 13 => {
            let outcome = match dice.below(4) {
                0 => Outcome::Done(Level::Durable),
                1 => Outcome::Same,
                2 => Outcome::DryRun,
                _ => Outcome::Failed(Why::NoSpace.into()),
            };
            Message::FileDone(Box::new(FileDone { number, outcome }))
        }
        14 => Message::List(Box::new(List {
            batch: 0,
            directory: Box::default(),
            names: vec![Box::from(&b"x"[..])],
        })),
        _ => Message::Bye(Box::new(Bye { reason: None, summary: Summary::default(), times: None })),
    }
}

#[test]
fn hostile_sink_cannot_complete_files_that_were_not_sent() {
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let settings = source::Settings {
            options: options(&mut dice),
            window: WINDOW,
            timing: Timing::default(),
            retries: 3,
            awaits_answers: dice.once_in(2),
        };
        let mut source = Source::new(settings);
        let mut out = Vec::new();
        let mut closed = BTreeMap::new();
        for lane in 0..2 {
            source.handle(source::Event::LaneUp(LaneId(lane)), Duration::ZERO, &mut out);
        }
        for _ in 0..120 {
            while source.capacity() > 0 && dice.once_in(2) {
                let mut file = new_file(&mut dice);
                file.kind =
                    FileKind::File { size: dice.pick(&[0, 1, 3 * OBJECT + 5]), holes: Runs::default() };
                source.offer(file, None).unwrap();
            }
            let lane = LaneId(dice.below(2) as u32);
            if let Some(event) = worked(source.next(lane, Duration::ZERO), lane, &mut dice, &mut closed) {
                source.handle(event, Duration::ZERO, &mut out);
            }
            while let Some(check) = source.next_check() {
                let digest = Ok(digest(&mut dice));
                source.handle(source::Event::Checked { check, digest }, Duration::ZERO, &mut out);
            }
            let message = of_a_sink(&mut dice);
            source.handle(source::Event::Message(lane, message), Duration::ZERO, &mut out);
            if dice.once_in(100) {
                source.handle(source::Event::LaneLost(LaneId(1)), Duration::ZERO, &mut out);
            }
            for command in out.drain(..) {
                if let source::Command::FileDone { file, outcome: Outcome::Done(_), .. } = command {
                    assert!(closed.contains_key(&file), "{file:?} was never closed and is called done");
                }
            }
            assert!(source.open_files() <= WINDOW.files as usize);
        }
    }
}

/// Returns the report of a worker, and records the files that were reported as completely read.
fn worked(
    work: Work,
    lane: LaneId,
    dice: &mut Dice,
    closed: &mut BTreeMap<FileNumber, ()>,
) -> Option<source::Event> {
    let read = |facts: &NewFile| Close::Read { size: facts.size(), mtime: facts.mtime, root: None };
    Some(match work {
        Work::Whole { facts, .. } => {
            closed.insert(facts.number, ());
            source::Event::WholeSent { lane, file: facts.number, close: read(&facts) }
        }
        Work::Object { facts, attempt, object, .. } => {
            let (file, object) = (facts.number, object.index);
            if dice.once_in(12) {
                source::Event::ObjectFailed { lane, file, attempt, object, reason: Why::Io.into() }
            } else {
                source::Event::ObjectSent { lane, file, attempt, object }
            }
        }
        Work::Compare { facts, attempt, objects } => {
            let count = objects.map_or(1, |objects| objects.len());
            let digests = if dice.once_in(9) {
                Err(Why::Io.into())
            } else {
                Ok((0..count).map(|_| keyed(dice)).collect())
            };
            source::Event::Compared { lane, file: facts.number, attempt, digests }
        }
        Work::Close { facts, attempt, .. } => {
            source::Event::Closed { lane, file: facts.number, attempt, close: read(&facts) }
        }
        Work::Send(Message::FileClose(close)) => {
            closed.insert(close.number, ());
            return None;
        }
        Work::Send(_) | Work::Wait { .. } | Work::Done => return None,
    })
}
