//! Target of the sink's state machine: a source that sends anything, and an engine whose answers
//! are chosen by the input too.
//!
//! ```text
//!  way | options | digest | 9 x 4 bytes of choices | frames as in `targets::frames`
//! ```
//!
//! The choices of each kind of answer are used in turn. A frame of a kind above [`CONTROLS`] is an
//! event of the engine instead: a lane is lost or opened, time passes, or the job stops.

use super::{comes_back, message_of};
use haul_digest::{Algorithm, Digest, KEYED_DIGEST_BYTES, KeyedDigest, digest};
use haul_model::{Level, ObjectSize};
use haul_proto::limits::{RUNS_HELD_MAX, STATE_ENTRIES_MAX};
use haul_proto::sink::{Command, Event, Outgoing, Settings, Unfinished, Verdict};
use haul_proto::{
    Answer, CONTROL, End, FileNumber, JobOptions, LaneId, Message, Outcome, Reason, Runs, Sink, Stated,
    Timing, Unit, Update, Verify, Why, Window,
};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes before the frames: the options, then the choices.
pub const HEAD_BYTES: usize = 3 + KINDS * CHOICES;

/// Number of kinds of choices, and of choices of each kind.
pub const KINDS: usize = 9;
pub const CHOICES: usize = 4;

/// First kind of the frames that are events of the engine.
pub const CONTROLS: u8 = 0xf0;

/// Maximum number of files in progress that the window grants.
const FILES: u32 = 8;

/// Combinations of verification that a session accepts.
pub const WAYS: [(Verify, Unit, Level, bool); 12] = [
    (Verify::None, Unit::Object, Level::Received, false),
    (Verify::None, Unit::Object, Level::Durable, false),
    (Verify::Stream, Unit::Object, Level::Verified, false),
    (Verify::Stream, Unit::Object, Level::Durable, false),
    (Verify::Stream, Unit::File, Level::Verified, true),
    (Verify::Reread, Unit::Object, Level::Reread, false),
    (Verify::Hybrid, Unit::Object, Level::Verified, false),
    (Verify::Sequential, Unit::File, Level::Verified, false),
    (Verify::FilePipeline, Unit::File, Level::Durable, false),
    (Verify::FilePipeline, Unit::File, Level::Verified, true),
    (Verify::BlockPipeline, Unit::Object, Level::Verified, false),
    (Verify::BlockPipeline, Unit::Object, Level::Durable, false),
];

const UPDATES: [Update; 6] =
    [Update::Always, Update::SizeTime, Update::Digest, Update::Object, Update::Newer, Update::Missing];

const ALGORITHMS: [Algorithm; 4] = [Algorithm::Blake3, Algorithm::Md5, Algorithm::Crc32c, Algorithm::Sha256];

/// Kind of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Decision about a file, and with it the digest of the sink's own file.
    Open,
    /// Result of an entry without bytes.
    Make,
    /// Result of bringing an object to its level.
    Settle,
    /// Digest of a second read.
    Rehash,
    /// Result of a complete file.
    Finish,
    /// Result of a comparison.
    Compare,
    /// Digest of the received bytes, or a failed write.
    Arrive,
    /// Even: the engine answers before the next message. Odd: later.
    Delay,
    /// Even: the source reads before its next message.
    Read,
}

/// States that the runs of the target must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Differing,
    DigestsStated,
    Compared,
    WholeDigestAsked,
    WholeDigestSame,
    ObjectRehashed,
    FileRehashed,
    Settled,
    SettleFailed,
    FinishDiffers,
    ObjectRejected,
    Restarted,
    Done,
    Same,
    Failed,
    Listed,
    Removed,
    LaneLost,
    FinishedWell,
    BrokenOff,
}

impl State {
    pub const ALL: [State; 20] = [
        State::Differing,
        State::DigestsStated,
        State::Compared,
        State::WholeDigestAsked,
        State::WholeDigestSame,
        State::ObjectRehashed,
        State::FileRehashed,
        State::Settled,
        State::SettleFailed,
        State::FinishDiffers,
        State::ObjectRejected,
        State::Restarted,
        State::Done,
        State::Same,
        State::Failed,
        State::Listed,
        State::Removed,
        State::LaneLost,
        State::FinishedWell,
        State::BrokenOff,
    ];
}

/// Returns the options that the first three bytes select.
pub fn job_options([way, flags, algorithm]: [u8; 3]) -> JobOptions {
    let (verify, unit, settle, in_order) = WAYS[usize::from(way) % WAYS.len()];
    let options = JobOptions {
        object: ObjectSize::new(64 << 10).expect("a power of two"),
        algorithm: ALGORITHMS[usize::from(algorithm) % ALGORITHMS.len()],
        verify,
        unit,
        settle,
        in_order,
        update: UPDATES[usize::from(flags & 7) % UPDATES.len()],
        delete: flags & 8 != 0,
        in_place: flags & 16 != 0,
        dry_run: flags & 32 != 0,
        ..JobOptions::default()
    };
    assert_eq!(options.contradiction(), None);
    options
}

/// Keyed digest of the sink's own bytes.
pub fn own_digest() -> KeyedDigest {
    KeyedDigest::from_bytes([9; KEYED_DIGEST_BYTES])
}

/// Digest of the bytes that arrive.
pub fn arrived_digest(algorithm: Algorithm) -> Digest {
    digest(algorithm, b"x")
}

/// Feeds messages to a sink: it answers or ends the session.
pub fn sink_machine(data: &[u8]) {
    states_of(data);
}

/// Does the same, and returns the states that were reached.
pub fn states_of(data: &[u8]) -> BTreeSet<State> {
    let Some((head, mut rest)) = data.split_first_chunk::<HEAD_BYTES>() else { return BTreeSet::new() };
    let options = job_options([head[0], head[1], head[2]]);
    let window = Window { files: FILES, facts: 1 << 16, bytes: 1 << 24 };
    let (timing, retries) = (Timing::default(), 2);
    let settings = Settings { options: options.clone(), window, timing, retries, short_blocks: true };
    let mut engine = Engine {
        options,
        choices: head[3..].try_into().expect("the rest of the head"),
        used: [0; KINDS],
        machine: Sink::new(settings).with_quota((head[1] & 64 != 0).then_some(1 << 20)),
        now: Duration::ZERO,
        files: BTreeSet::new(),
        writing: [None; 2],
        lane: 0,
        later: VecDeque::new(),
        reached: BTreeSet::new(),
    };
    for lane in [CONTROL, LaneId(1)] {
        engine.handle(Event::LaneUp(lane));
    }
    let mut lane = 0;
    while let Some((frame, after)) = rest.split_first_chunk::<5>() {
        let len = usize::from(u16::from_le_bytes([frame[2], frame[3]])).min(after.len());
        let (body, after) = after.split_at(len);
        rest = after;
        if frame[0] >= CONTROLS {
            lane = usize::from(frame[1] & 1);
            engine.control(frame[0], LaneId(lane as u32));
        } else if let Some(message) = message_of(frame, body) {
            engine.receive(lane, message);
        }
        engine.step();
    }
    while engine.answer_one() {}
    engine.read();
    engine.reached
}

/// Engine without files.
struct Engine {
    options: JobOptions,
    choices: [u8; KINDS * CHOICES],
    used: [usize; KINDS],
    machine: Sink,
    now: Duration,
    /// Files that were opened.
    files: BTreeSet<FileNumber>,
    /// File whose object each lane writes.
    writing: [Option<FileNumber>; 2],
    /// Lane of the current message.
    lane: usize,
    /// Commands that other workers execute.
    later: VecDeque<Command>,
    reached: BTreeSet<State>,
}

impl Engine {
    /// Takes the next choice of a kind, below `count`.
    fn choose(&mut self, kind: Choice, count: u8) -> u8 {
        let used = &mut self.used[kind as usize];
        let at = kind as usize * CHOICES + *used % CHOICES;
        *used += 1;
        self.choices[at] % count
    }

    fn reach(&mut self, state: State) {
        self.reached.insert(state);
    }

    fn handle(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(event, self.now, &mut out);
        assert!(self.machine.open_files() <= 2 * FILES as usize, "a source exceeds the window");
        assert!(self.machine.state_entries() <= STATE_ENTRIES_MAX);
        out.into_iter().for_each(|command| self.obey(command));
    }

    fn control(&mut self, kind: u8, lane: LaneId) {
        match kind & 3 {
            0 => {
                self.reach(State::LaneLost);
                self.writing[lane.0 as usize] = None;
                self.handle(Event::LaneLost(lane));
            }
            1 => self.handle(Event::LaneUp(lane)),
            2 => {
                self.now += Duration::from_secs(u64::from(kind));
                self.handle(Event::Tick);
            }
            _ if kind == 0xff => self.handle(Event::Stop(Why::Internal.into())),
            _ => {}
        }
    }

    fn receive(&mut self, lane: usize, message: Message) {
        self.now += Duration::from_millis(1);
        self.lane = lane;
        let on = LaneId(lane as u32);
        match message {
            Message::BlockDigest(end) => {
                let was_written = self.writing[lane].take();
                let found = was_written.map(|_| match (self.choose(Choice::Arrive, 4), end.stated) {
                    (0 | 1, Stated::Digest(stated)) => stated,
                    (2, _) => digest(self.options.algorithm, b"damaged"),
                    _ => arrived_digest(self.options.algorithm),
                });
                self.handle(Event::ObjectEnd { lane: on, end: *end, found });
            }
            message => self.handle(Event::Message(on, message)),
        }
    }

    /// Executes what follows a message: comparisons, answers of other workers, and the source.
    fn step(&mut self) {
        for number in self.files.clone() {
            if self.machine.has_stated(number) && self.choose(Choice::Delay, 2) == 0 {
                self.compare(number);
            }
        }
        while self.choose(Choice::Delay, 2) == 0 && self.answer_one() {}
        if self.choose(Choice::Read, 2) == 0 {
            self.read();
        }
    }

    fn compare(&mut self, file: FileNumber) {
        while let Some((attempt, object, stated)) = self.machine.next_stated(file) {
            self.reach(State::DigestsStated);
            let same = match self.choose(Choice::Compare, 3) {
                0 if stated == own_digest() => Some(Some(arrived_digest(self.options.algorithm))),
                1 => Some(None),
                _ => None,
            };
            // The engine states the object's digest if the job compares objects.
            let compares = self.options.unit == Unit::Object && self.options.verify != Verify::None;
            let same = same.map(|digest| digest.filter(|_| compares));
            self.handle(Event::Compared { file, attempt, object: object.index, same });
        }
    }

    fn read(&mut self) {
        let mut messages = 0;
        for lane in [CONTROL, LaneId(1)] {
            while let Outgoing::Send(message) = self.machine.next(lane, self.now) {
                messages += 1;
                self.sent(&message);
                comes_back(&message);
            }
        }
        let most = 4 * FILES as usize + RUNS_HELD_MAX + 2 * 2 * FILES as usize * 8;
        assert!(messages <= most, "{messages} messages wait for a source that does not read");
    }

    fn sent(&mut self, message: &Message) {
        match message {
            Message::FileId(id) => match &id.answer {
                Answer::Differing { .. } => self.reach(State::Differing),
                Answer::UnlessDigest => self.reach(State::WholeDigestAsked),
                Answer::Take { .. } => {}
            },
            Message::Compared(_) => self.reach(State::Compared),
            Message::BlockReject(reject) if reject.object.is_some() => self.reach(State::ObjectRejected),
            Message::FileDone(done) => self.reach(match done.outcome {
                Outcome::Done(_) | Outcome::DryRun => State::Done,
                Outcome::Same => State::Same,
                Outcome::Failed(_) => State::Failed,
            }),
            _ => {}
        }
    }

    /// Executes a command that needs no other worker, and queues the others.
    fn obey(&mut self, command: Command) {
        match command {
            Command::Open { facts, .. } => self.open(facts.number),
            Command::Write { file, .. } => {
                self.writing[self.lane] = Some(file);
                if self.choose(Choice::Arrive, 16) == 15 {
                    self.handle(Event::WriteFailed { file, reason: Why::Io.into() });
                }
            }
            Command::Restart { .. } => self.reach(State::Restarted),
            Command::DropLane { lane } => self.writing[lane.0 as usize & 1] = None,
            Command::Ended(End::Finished { .. }) => self.reach(State::FinishedWell),
            Command::Ended(End::Broken { .. }) => self.reach(State::BrokenOff),
            command => self.later.push_back(command),
        }
    }

    fn open(&mut self, file: FileNumber) {
        self.files.insert(file);
        let choice = self.choose(Choice::Open, 32);
        let verdict = match choice & 7 {
            0 => Verdict::Take { have: Runs::default() },
            1 => Verdict::Take { have: Runs::of(0, 1) },
            2 => Verdict::Same,
            3 | 4 => Verdict::UnlessDigest,
            5 => Verdict::Differing { have: Runs::default(), end: 2, samples: Runs::default() },
            6 => Verdict::Differing { have: Runs::of(1, 2), end: 3, samples: Runs::of(0, 1) },
            _ => Verdict::Refused(Why::Denied.into()),
        };
        let own = (verdict == Verdict::UnlessDigest)
            .then(|| Event::OwnDigest { file, digest: (choice & 7 == 3).then(own_digest) });
        let opened = Event::Opened { file, verdict, rereads: choice & 8 != 0 };
        // The digest can arrive before the decision.
        let (first, second) = if choice & 16 == 0 { (Some(opened), own) } else { (own, Some(opened)) };
        [first, second].into_iter().flatten().for_each(|event| self.handle(event));
    }

    /// Answers the oldest command. Returns false if there is none.
    fn answer_one(&mut self) -> bool {
        let Some(command) = self.later.pop_front() else { return false };
        let algorithm = self.options.algorithm;
        let event = match command {
            Command::Make { facts, .. } => {
                let result = match self.choose(Choice::Make, 3) {
                    0 => Ok(Outcome::Done(Level::Durable)),
                    1 => Ok(Outcome::Same),
                    _ => Err(Unfinished::Failed(Why::Denied.into())),
                };
                Event::Finished { file: facts.number, result }
            }
            Command::Settle { file, attempt, object, to, .. } => match self.choose(Choice::Settle, 4) {
                0 | 1 => {
                    self.reach(State::Settled);
                    let objects = Runs::of(object.index.0, object.index.0 + 1);
                    let level = if self.used[Choice::Settle as usize].is_multiple_of(2) {
                        to
                    } else {
                        Level::Verified
                    };
                    Event::Settled { file, attempt, level: level.min(to), objects }
                }
                choice => {
                    self.reach(State::SettleFailed);
                    let reason = (choice == 3).then(|| Reason::from(Why::Io));
                    Event::SettleFailed { file, attempt, object: object.index, reason }
                }
            },
            Command::Rehash { file, attempt, object } => {
                self.reach(if object.is_some() { State::ObjectRehashed } else { State::FileRehashed });
                let digest = match self.choose(Choice::Rehash, 4) {
                    0 | 1 => Ok(arrived_digest(algorithm)),
                    2 => Ok(digest(algorithm, b"damaged")),
                    _ => Err(Why::Io.into()),
                };
                Event::Rehashed { file, attempt, object: object.map(|object| object.index), digest }
            }
            Command::Finish { file, close, settle } => {
                if close.is_none() {
                    self.reach(State::WholeDigestSame);
                }
                let result = match (self.choose(Choice::Finish, 4), close) {
                    (2, Some(_)) => {
                        self.reach(State::FinishDiffers);
                        Err(Unfinished::Differs)
                    }
                    (3, _) => Err(Unfinished::Failed(Why::Io.into())),
                    (_, None) => Ok(Outcome::Same),
                    (_, Some(_)) => Ok(Outcome::Done(settle)),
                };
                Event::Finished { file, result }
            }
            Command::Sweep => {
                let mut number = 0_u8;
                while self.machine.may_ask() && number < 3 {
                    self.reach(State::Listed);
                    let names = vec![b"n".as_slice().into(), vec![b'm', number].into()];
                    self.handle(Event::Listed { directory: b"d".as_slice().into(), names });
                    number += 1;
                }
                Event::Swept
            }
            Command::Judged { fates, .. } => {
                self.reach(State::Removed);
                Event::Removed { deleted: fates.len() as u64, failed: 0, over_limit: 0 }
            }
            Command::Failed { .. } | Command::Abandon { .. } | Command::Refused { .. } => return true,
            _ => return true,
        };
        self.handle(event);
        true
    }
}
