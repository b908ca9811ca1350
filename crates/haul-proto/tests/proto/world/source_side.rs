//! Engine around the source's state machine, with one worker per lane.

use super::dice::Dice;
use super::tree::{Ill, SourceFile, cells, file_of, keyed};
use haul_model::{ByteRange, Object};
use haul_proto::source::{Availability, Check, Command, Event, Settings, Work};
use haul_proto::{
    BlockDigest, Close, Encoding, End, Fate, FileClose, FileNumber, LaneId, Message, Named, NewBlock,
    NewFile, Outcome, Reason, Source, Stated, Unit, Why,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A frame to send, with the cells of its payload, or a report to the state machine.
#[derive(Debug)]
pub(crate) enum Step {
    Frame(Message, Vec<u64>),
    Report(Event),
}

pub(crate) struct SourceSide {
    pub(crate) machine: Source,
    pub(crate) files: Vec<SourceFile>,
    settings: Settings,
    /// Pending steps of each lane's worker; none while the worker waits.
    pub(crate) hands: BTreeMap<LaneId, VecDeque<Step>>,
    pub(crate) is_waiting: BTreeMap<LaneId, Duration>,
    pub(crate) checks: Vec<Check>,
    offered: usize,
    is_walked: bool,
    pub(crate) numbers: BTreeMap<FileNumber, usize>,
    pub(crate) outcomes: BTreeMap<usize, Outcome>,
    pub(crate) judging: Vec<Event>,
    pub(crate) end: Option<End>,
    pub(crate) walk_errors: u64,
}

/// Action or check that the world performs after an event.
pub(crate) enum Seen {
    Synced { file: usize, level: haul_model::Level, objects: haul_proto::Runs },
    Done { file: usize, outcome: Outcome },
    Drop(LaneId),
}

impl SourceSide {
    pub(crate) fn new(settings: Settings, files: Vec<SourceFile>, walk_errors: u64) -> SourceSide {
        SourceSide {
            machine: Source::new(settings.clone()),
            files,
            settings,
            hands: BTreeMap::new(),
            is_waiting: BTreeMap::new(),
            checks: Vec::new(),
            offered: 0,
            is_walked: false,
            numbers: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            judging: Vec::new(),
            end: None,
            walk_errors,
        }
    }

    pub(crate) fn handle(&mut self, event: Event, now: Duration) -> Vec<Seen> {
        let mut out = Vec::new();
        self.machine.handle(event, now, &mut out);
        self.is_waiting.clear();
        assert!(self.machine.open_files() <= self.settings.window.files as usize, "the window holds");
        out.into_iter().filter_map(|command| self.obey(command)).collect()
    }

    fn obey(&mut self, command: Command) -> Option<Seen> {
        match command {
            Command::Synced { file, level, objects } => {
                Some(Seen::Synced { file: self.numbers[&file], level, objects })
            }
            Command::AlreadyPresent { .. } | Command::Same { .. } => None,
            Command::FileDone { file, outcome, .. } => {
                let at = self.numbers[&file];
                let before = self.outcomes.insert(at, outcome.clone());
                assert!(before.is_none(), "a file ends once: {at}");
                Some(Seen::Done { file: at, outcome })
            }
            Command::FindMissing { batch, directory, names } => {
                let has = |name: &[u8]| {
                    let path = [&directory[..], b"/", name].concat();
                    let within = [&path[..], b"/"].concat();
                    let is_top = directory.is_empty();
                    self.files.iter().any(|file| {
                        if is_top {
                            file.path.starts_with(name)
                        } else {
                            file.path == path || file.path.starts_with(&within)
                        }
                    })
                };
                let fate = |is_here| if is_here { Fate::Stays } else { Fate::Gone };
                let fates = names.iter().map(|name| fate(has(name))).collect();
                self.judging.push(Event::MissingFound { batch, fates });
                None
            }
            Command::FindNames { batch, directory, from } => {
                let within = if directory.is_empty() { Vec::new() } else { [&directory[..], b"/"].concat() };
                let inside = self.files.iter().filter_map(|file| file.path.strip_prefix(&within[..]));
                let names: BTreeSet<Box<[u8]>> = inside
                    .map(|rest| rest.split(|byte| *byte == b'/').next().unwrap_or(rest).into())
                    .collect();
                let names: Vec<_> = names.into_iter().skip(from as usize).collect();
                let last = names.len() <= 2;
                let names = names.into_iter().take(2).collect();
                self.judging.push(Event::NamesFound(Named { batch, certain: true, last, names }));
                None
            }
            Command::DropLane { lane } => Some(Seen::Drop(lane)),
            Command::Ended(end) => {
                assert!(self.end.replace(end).is_none(), "a session ends once");
                None
            }
        }
    }

    /// Returns true if the walk can continue.
    pub(crate) fn may_walk(&self) -> bool {
        !self.is_walked
            && self.end.is_none()
            && (self.offered == self.files.len() || self.machine.capacity() > 0)
    }

    pub(crate) fn walk(&mut self, now: Duration) -> Vec<Seen> {
        let mut seen = Vec::new();
        if self.offered < self.files.len() {
            let at = self.offered;
            self.offered += 1;
            let file = &self.files[at];
            let number_of =
                |wanted: usize| self.numbers.iter().find(|(_, at)| **at == wanted).map(|(n, _)| *n);
            let first = file.first.and_then(number_of);
            let number = if first.is_some_and(|first| self.machine.is_left(first)) {
                let facts = NewFile { path: file.path.clone().into(), ..file_of(&self.files, at).facts() };
                self.machine.offer(facts, None).unwrap()
            } else {
                self.machine.offer(file.facts(), first).unwrap()
            };
            self.numbers.insert(number, at);
            self.is_waiting.clear();
        } else {
            for _ in 0..self.walk_errors {
                seen.extend(self.handle(unread(), now));
            }
            self.is_walked = true;
            seen.extend(self.handle(Event::WalkEnded, now));
        }
        seen
    }

    /// Runs one step of the lane's worker. Returns the frame that it wrote.
    pub(crate) fn work(
        &mut self,
        lane: LaneId,
        now: Duration,
        dice: &mut Dice,
    ) -> (Option<(Message, Vec<u64>)>, Vec<Seen>) {
        let step = self.hands.entry(lane).or_default().pop_front();
        match step {
            Some(Step::Frame(message, payload)) => (Some((message, payload)), Vec::new()),
            Some(Step::Report(event)) => (None, self.handle(event, now)),
            None => {
                let has_next = self.machine.has_next(lane) != Availability::Nothing;
                let work = self.machine.next(lane, now);
                let is_idle = matches!(work, Work::Wait { .. } | Work::Send(Message::KeepAlive));
                assert_eq!(has_next, !is_idle, "a lane that would find {work:?} is woken, and no other");
                let steps = match work {
                    Work::Send(message) => vec![Step::Frame(message, Vec::new())],
                    Work::Whole { facts, object } => self.whole(lane, &facts, object, dice),
                    Work::Object { facts, attempt, object, again } => {
                        self.object(lane, &facts, attempt, object, again, dice)
                    }
                    Work::Compare { facts, attempt, objects } => {
                        let file = self.file(facts.number);
                        let all = ByteRange::between(0, file.size());
                        let ranges = objects.map_or_else(
                            || vec![all],
                            |objects| objects.iter().map(|object| object.range).collect(),
                        );
                        let digests = match file.ill {
                            Ill::CannotOpen => Err(Why::Permission.into()),
                            _ => Ok(ranges.into_iter().map(|range| keyed(file.digest(range))).collect()),
                        };
                        vec![Step::Report(Event::Compared { lane, file: facts.number, attempt, digests })]
                    }
                    Work::Close { facts, attempt, root } => {
                        let close = self.close(&facts, root);
                        vec![Step::Report(Event::Closed { lane, file: facts.number, attempt, close })]
                    }
                    Work::Wait { until } => {
                        self.is_waiting.insert(lane, until);
                        Vec::new()
                    }
                    Work::Done => {
                        self.is_waiting.insert(lane, Duration::MAX);
                        Vec::new()
                    }
                };
                while let Some(check) = self.machine.next_check() {
                    self.checks.push(check);
                }
                self.hands.insert(lane, steps.into());
                (None, Vec::new())
            }
        }
    }

    fn file(&self, number: FileNumber) -> &SourceFile {
        file_of(&self.files, self.numbers[&number])
    }

    fn close(&self, facts: &NewFile, root: Option<haul_digest::Digest>) -> Close {
        let file = self.file(facts.number);
        let by_stream =
            self.settings.options.unit == Unit::File && !self.settings.options.verify.reads_twice();
        match file.ill {
            Ill::Changes => Close::Failed(Why::Changed.into()),
            _ => Close::Read {
                size: file.size(),
                mtime: facts.mtime,
                root: root.or_else(|| by_stream.then(|| file.digest(ByteRange::between(0, file.size())))),
            },
        }
    }

    fn whole(
        &self,
        lane: LaneId,
        facts: &Arc<NewFile>,
        object: Option<Object>,
        dice: &mut Dice,
    ) -> Vec<Step> {
        let number = facts.number;
        let mut steps = vec![Step::Frame(Message::NewFile(Box::new((**facts).clone())), Vec::new())];
        let file = self.file(number);
        if facts.is_regular() && file.ill == Ill::CannotOpen {
            return vec![Step::Report(Event::WholeFailed {
                lane,
                file: number,
                reason: Why::Permission.into(),
            })];
        }
        let mut close = self.close(facts, None);
        if let Some(object) = object {
            if file.ill == Ill::CannotRead(0) {
                close = Close::Failed(Why::Io.into());
                steps.extend(self.blocks(facts, 0, object, true, dice));
            } else {
                steps.extend(self.blocks(facts, 0, object, false, dice));
            }
        }
        if facts.is_regular() {
            let message = FileClose { number, attempt: 0, close: close.clone() };
            steps.push(Step::Frame(Message::FileClose(Box::new(message)), Vec::new()));
        }
        steps.push(Step::Report(Event::WholeSent { lane, file: number, close }));
        steps
    }

    fn object(
        &self,
        lane: LaneId,
        facts: &Arc<NewFile>,
        attempt: u16,
        object: Object,
        again: bool,
        dice: &mut Dice,
    ) -> Vec<Step> {
        let file = self.file(facts.number);
        let (number, index) = (facts.number, object.index);
        let failed =
            |reason: Reason| Event::ObjectFailed { lane, file: number, attempt, object: index, reason };
        match file.ill {
            Ill::CannotOpen => return vec![Step::Report(failed(Why::Permission.into()))],
            Ill::Changes if again => return vec![Step::Report(failed(Why::Changed.into()))],
            Ill::CannotRead(from) if index.0 >= from => {
                let mut steps = self.blocks(facts, attempt, object, true, dice);
                steps.push(Step::Report(failed(Why::Io.into())));
                return steps;
            }
            _ => {}
        }
        let mut steps = self.blocks(facts, attempt, object, false, dice);
        steps.push(Step::Report(Event::ObjectSent { lane, file: number, attempt, object: index }));
        steps
    }

    /// Returns the blocks of an object and its end.
    fn blocks(
        &self,
        facts: &NewFile,
        attempt: u16,
        object: Object,
        is_abandoned: bool,
        dice: &mut Dice,
    ) -> Vec<Step> {
        let options = &self.settings.options;
        let (number, file) = (facts.number, self.file(facts.number));
        let digest = file.digest(object.range);
        let mut steps = Vec::new();
        let block = |range: ByteRange, encoding, payload| {
            Message::NewBlock(NewBlock { number, attempt, object: object.index, range, encoding, payload })
        };
        let (mut at, end) = (object.range.start.0, object.range.end.0);
        while at < end {
            let next = (at + super::tree::CELL * (1 + dice.below(4))).min(end);
            let range = ByteRange::between(at, next);
            let values: Vec<u64> = cells(range).map(|cell| file.cell(cell)).collect();
            if is_abandoned && dice.once_in(2) {
                break;
            }
            steps.push(if values.iter().all(|value| *value == 0) {
                let encoding = dice.pick(&[Encoding::Zeros, Encoding::Hole]);
                Step::Frame(block(range, encoding, 0), Vec::new())
            } else {
                Step::Frame(block(range, Encoding::Raw, u32::try_from(range.len()).unwrap()), values)
            });
            at = next;
        }
        if is_abandoned && steps.is_empty() {
            return steps;
        }
        let stated = match options.verify {
            _ if is_abandoned => Stated::Abandoned,
            haul_proto::Verify::BlockPipeline => Stated::Later,
            haul_proto::Verify::None => Stated::Nothing,
            _ if options.unit == Unit::File => Stated::Nothing,
            _ => Stated::Digest(digest),
        };
        let end = BlockDigest { number, attempt, object: object.index, stated };
        steps.push(Step::Frame(Message::BlockDigest(Box::new(end)), Vec::new()));
        steps
    }

    pub(crate) fn check(&mut self, at: usize, now: Duration) -> Vec<Seen> {
        let check = self.checks.swap_remove(at);
        let file = self.file(check.facts.number);
        let range = check.object.map_or(ByteRange::between(0, file.size()), |object| object.range);
        let digest = Ok(file.digest(range));
        self.handle(Event::Checked { check, digest }, now)
    }
}

fn unread() -> Event {
    Event::Unread { path: b"locked".as_slice().into(), reason: Why::Io.into() }
}
