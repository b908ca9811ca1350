//! Engine around the sink's state machine, with storage that loses unsynced data.

use super::dice::Dice;
use super::tree::{Partial, SinkFile, cells, digest_of, keyed};
use haul_digest::{Digest, KeyedDigest};
use haul_model::{ByteLen, ByteRange, Geometry, Level, Object};
use haul_proto::sink::{Command, Event, Outgoing, Settings, Unfinished, Verdict};
use haul_proto::{
    BlockDigest, Close, Encoding, End, Fate, FileKind, FileNumber, LaneId, Message, NewFile, Outcome, Reason,
    Runs, Sink, Unit, Update, Verify, Why,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Defects of this engine, to show that the world detects them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lies {
    /// True if it reports unsynced data as durable.
    pub(crate) durable: bool,
    /// True if it accepts every digest.
    pub(crate) digests: bool,
}

struct Open {
    facts: Arc<NewFile>,
    path: Vec<u8>,
    partial: Partial,
    /// Offset that the running hash of a file in order has reached.
    hashed_to: u64,
    attempt: u16,
    /// Objects reported as present; they are not sent during this attempt of the file.
    had: Runs,
    /// True if the data that an earlier session left is compared, and not the file under the final
    /// name.
    compares_partial: bool,
    /// True if the file is read back. Nothing else detects damage on the way to the device.
    rereads: bool,
}

pub(crate) struct SinkSide {
    pub(crate) machine: Sink,
    settings: Settings,
    pub(crate) tree: BTreeMap<Vec<u8>, SinkFile>,
    /// Names that are not regular files.
    pub(crate) others: BTreeSet<Vec<u8>>,
    pub(crate) partials: BTreeMap<Vec<u8>, Partial>,
    open: BTreeMap<FileNumber, Open>,
    /// Events of the lane's worker before it reads on, and of work that runs elsewhere.
    later: VecDeque<Event>,
    /// Files whose objects are compared, and the object that is compared now.
    compared: Vec<FileNumber>,
    comparing: Option<(FileNumber, u16, Object, KeyedDigest)>,
    /// Objects that may be logged once they are durable.
    proved: Vec<(FileNumber, u16, Object)>,
    /// True if this is a later session of a job, so that a file equal by size and time comes from
    /// an earlier one.
    pub(crate) resumes: bool,
    pub(crate) end: Option<End>,
    pub(crate) sweep: Option<VecDeque<Vec<u8>>>,
    pub(crate) is_sweeping: bool,
    /// Questions to the source by their numbers.
    asked: BTreeMap<u32, Question>,
    next_batch: u32,
    pub(crate) lies: Lies,
    /// Probability 1/N per write that the device stores other bytes (`rot`) or that the write fails
    /// (`full`).
    pub(crate) rot: u64,
    pub(crate) full: u64,
    pub(crate) device_failed: bool,
    dice: Dice,
}

/// A question of the sink about what to delete: a directory and its names here, or the names of the
/// source in a directory from a position on.
enum Question {
    Fates(Box<[u8]>, Vec<Box<[u8]>>),
    Names(Box<[u8]>, u64),
}

impl SinkSide {
    pub(crate) fn new(settings: Settings, dice: Dice) -> SinkSide {
        SinkSide {
            machine: Sink::new(settings.clone()),
            settings,
            tree: BTreeMap::new(),
            others: BTreeSet::new(),
            partials: BTreeMap::new(),
            open: BTreeMap::new(),
            later: VecDeque::new(),
            compared: Vec::new(),
            comparing: None,
            proved: Vec::new(),
            resumes: false,
            end: None,
            sweep: None,
            is_sweeping: false,
            asked: BTreeMap::new(),
            next_batch: 0,
            lies: Lies::default(),
            rot: 0,
            full: 0,
            device_failed: false,
            dice,
        }
    }

    pub(crate) fn handle(&mut self, event: Event, payload: &[u64], now: Duration) -> Vec<LaneId> {
        let mut out = Vec::new();
        self.machine.handle(event, now, &mut out);
        assert!(self.machine.open_files() <= 2 * self.settings.window.files as usize, "the window holds");
        let mut dropped = Vec::new();
        for command in out {
            match command {
                Command::DropLane { lane } => dropped.push(lane),
                command => dropped.extend(self.obey(command, payload, now)),
            }
        }
        dropped
    }

    fn obey(&mut self, command: Command, payload: &[u64], now: Duration) -> Vec<LaneId> {
        match command {
            Command::Open { facts, path } => {
                let file = facts.number;
                let verdict = self.decide(&facts, path.as_bytes());
                let is_wanted = !matches!(verdict, Verdict::Same | Verdict::Refused(_));
                match verdict {
                    Verdict::Differing { .. } => self.compared.push(file),
                    Verdict::UnlessDigest => {
                        let here = &self.tree[path.as_bytes()];
                        let digest = Some(keyed(here.digest(ByteRange::between(0, here.size))));
                        let digest = digest.filter(|_| !self.dice.once_in(20));
                        self.later.push_back(Event::OwnDigest { file, digest });
                    }
                    _ => {}
                }
                // The memory of the simulated sink is full half of the time.
                let rereads = self.dice.once_in(2);
                if is_wanted {
                    self.begin(&facts, path.as_bytes(), &verdict, rereads);
                }
                return self.handle(Event::Opened { file, verdict, rereads }, &[], now);
            }
            Command::Make { facts, path, first } => {
                let result = self.make(&facts, path.as_bytes(), first.as_ref().map(|first| first.as_bytes()));
                self.later.push_back(Event::Finished { file: facts.number, result });
            }
            Command::Write { file, object, range, encoding, .. } => {
                if self.dice.once_in(self.full) {
                    self.device_failed = true;
                    return self.handle(Event::WriteFailed { file, reason: Why::NoSpace.into() }, &[], now);
                }
                self.write(file, object, range, encoding, payload);
            }
            Command::Discard { .. }
            | Command::Unread(_)
            | Command::Refused { .. }
            | Command::Failed { .. } => {}
            Command::Settle { file, attempt, object, to, digest } => {
                let event = self.settle(file, attempt, object, to, digest);
                self.later.extend(event);
            }
            Command::Rehash { file, attempt, object } => {
                let open = &self.open[&file];
                let range = object.map_or(ByteRange::between(0, open.facts.size()), |object| object.range);
                let digest = Ok(open.partial.digest(range));
                let object = object.map(|object| object.index);
                self.later.push_back(Event::Rehashed { file, attempt, object, digest });
            }
            Command::ObjectVerified { file, attempt, object } => self.proved.push((file, attempt, object)),
            Command::Restart { file, attempt } => {
                let open = self.open.get_mut(&file).expect("a file that is open");
                open.partial.cells.clear();
                open.partial.log = Runs::default();
                open.partial.device.clear();
                open.hashed_to = 0;
                open.attempt = attempt;
                open.had = Runs::default();
            }
            Command::Finish { file, close, settle } => {
                let result = self.finish(file, close.as_ref(), settle);
                self.later.push_back(Event::Finished { file, result });
            }
            Command::Abandon { file } => {
                if let Some(open) = self.open.remove(&file) {
                    self.partials.insert(open.path, open.partial);
                }
            }
            Command::Sweep => {
                self.is_sweeping = true;
                let tops: BTreeSet<Vec<u8>> = self.names().map(|name| name[..2].to_vec()).collect();
                let mut lists = VecDeque::from([Vec::new()]);
                lists.extend(tops);
                self.sweep = Some(lists);
            }
            Command::Judged { batch, fates } => {
                let Some(Question::Fates(directory, names)) = self.asked.remove(&batch) else {
                    panic!("an answer to no question")
                };
                let mut deleted = 0;
                for (name, _) in names.iter().zip(fates).filter(|(_, fate)| *fate == Fate::Gone) {
                    let path = if directory.is_empty() {
                        name.to_vec()
                    } else {
                        [&directory[..], b"/", name].concat()
                    };
                    let within = [&path[..], b"/"].concat();
                    let goes = |name: &Vec<u8>| *name == path || name.starts_with(&within);
                    self.tree.retain(|name, _| !goes(name));
                    self.others.retain(|name| !goes(name));
                    deleted += 1;
                }
                return self.handle(Event::Removed { deleted, failed: 0, over_limit: 0 }, &[], now);
            }
            Command::Named { batch, names, certain, last } => {
                let Some(Question::Names(directory, from)) = self.asked.remove(&batch) else {
                    panic!("an answer to no question")
                };
                assert!(certain && (last || !names.is_empty()));
                if !last {
                    // The answer has made room for a question.
                    return self.names_wanted(directory, from + names.len() as u64, now);
                }
            }
            Command::DropLane { .. } => unreachable!("the caller takes those"),
            Command::Ended(end) => assert!(self.end.replace(end).is_none(), "a session ends once"),
        }
        Vec::new()
    }

    fn names(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.tree.keys().chain(&self.others)
    }

    fn decide(&mut self, facts: &NewFile, path: &[u8]) -> Verdict {
        let here = self.tree.get(path);
        let is_same = here.is_some_and(|here| here.size == facts.size() && here.mtime == facts.mtime.sec);
        match (self.settings.options.update, here) {
            (Update::SizeTime, _) if is_same => return Verdict::Same,
            (Update::Missing, Some(_)) => return Verdict::Same,
            (Update::Newer, Some(here)) if here.mtime >= facts.mtime.sec => return Verdict::Same,
            (Update::Digest, Some(here)) if here.size == facts.size() => {
                return Verdict::UnlessDigest;
            }
            (Update::Object, Some(here)) => {
                let end = here.size.div_ceil(self.settings.options.object.bytes());
                return Verdict::Differing { have: Runs::default(), end, samples: Runs::default() };
            }
            (Update::Always, _) if is_same && self.resumes && facts.is_regular() => return Verdict::Same,
            _ => {}
        }
        let earlier =
            self.partials.get(path).filter(|p| p.size == facts.size() && p.mtime == facts.mtime.sec);
        let have = earlier.map(|partial| partial.log.clone()).unwrap_or_default();
        // A whole file's hash covers all bytes, and a small file is not worth comparing.
        let resumes = self.settings.options.unit == Unit::Object && !facts.whole;
        // With a second read, nothing is reported as the same on the way.
        let compares = resumes && earlier.is_some() && self.settings.options.verify != Verify::BlockPipeline;
        match self.dice.below(3) {
            // The log was lost.
            0 if compares => {
                Verdict::Differing { have: Runs::default(), end: u64::MAX, samples: Runs::default() }
            }
            1 if compares => {
                let (mut trusted, mut samples) = (have.clone(), Runs::default());
                for object in have.numbers().filter(|_| self.dice.once_in(3)) {
                    trusted.remove(object);
                    samples.insert(object);
                }
                Verdict::Differing { have: trusted, end: u64::MAX, samples }
            }
            _ => Verdict::Take { have: if resumes { have } else { Runs::default() } },
        }
    }

    fn begin(&mut self, facts: &Arc<NewFile>, path: &[u8], verdict: &Verdict, rereads: bool) {
        let verify = self.settings.options.verify;
        let rereads = verify == Verify::Reread || (verify == Verify::Hybrid && rereads);
        let compares_partial = matches!(verdict, Verdict::Differing { .. })
            && (self.settings.options.update != Update::Object || !self.tree.contains_key(path));
        let had = match verdict {
            Verdict::Take { have } | Verdict::Differing { have, .. } => have.clone(),
            _ => Runs::default(),
        };
        let mut partial = match verdict {
            Verdict::Take { have } if !have.is_empty() => self.partials.remove(path).unwrap_or_default(),
            Verdict::Differing { .. } if compares_partial => self.partials.remove(path).unwrap_or_default(),
            _ => Partial::default(),
        };
        if matches!(verdict, Verdict::Differing { samples, .. } if samples.is_empty() && had.is_empty()) {
            partial.log = Runs::default();
        }
        partial.size = facts.size();
        partial.mtime = facts.mtime.sec;
        let (facts, path) = (facts.clone(), path.to_vec());
        let open = Open { facts, path, partial, hashed_to: 0, attempt: 0, had, compares_partial, rereads };
        let number = open.facts.number;
        assert!(self.open.insert(number, open).is_none(), "a file is opened once");
    }

    /// Returns true if an object can be compared.
    pub(crate) fn may_compare(&self) -> bool {
        self.comparing.is_some() || self.compared.iter().any(|file| self.machine.has_stated(*file))
    }

    /// Takes the next object to compare, or ends the comparison of the last one.
    pub(crate) fn compare(&mut self, now: Duration) -> Vec<LaneId> {
        let Some((file, attempt, object, stated)) = self.comparing.take() else {
            let file = self.compared.iter().copied().find(|file| self.machine.has_stated(*file));
            let file = file.expect("the caller asked");
            let taken = self.machine.next_stated(file);
            self.comparing = taken.map(|(attempt, object, stated)| (file, attempt, object, stated));
            return Vec::new();
        };
        let Some(open) = self.open.get_mut(&file).filter(|open| open.attempt == attempt) else {
            return self.handle(
                Event::Compared { file, attempt, object: object.index, same: None },
                &[],
                now,
            );
        };
        let own = self.tree.get(&open.path).filter(|_| !open.compares_partial);
        let found = match own {
            Some(own) => (object.range.end.0 <= own.size).then(|| own.digest(object.range)),
            None => open.partial.has(object.range).then(|| open.partial.digest(object.range)),
        };
        let same = found.filter(|found| keyed(*found) == stated);
        if let (Some(own), Some(_)) = (own, same) {
            for cell in cells(object.range) {
                open.partial.cells.insert(cell, own.cells[cell as usize]);
                open.partial.device.remove(&cell);
            }
        }
        self.handle(Event::Compared { file, attempt, object: object.index, same: same.map(Some) }, &[], now)
    }

    fn write(
        &mut self,
        file: FileNumber,
        object: Object,
        range: ByteRange,
        encoding: Encoding,
        payload: &[u64],
    ) {
        let options = &self.settings.options;
        let in_order =
            options.in_order && options.unit == Unit::File && options.verify == haul_proto::Verify::Stream;
        let open = self.open.get_mut(&file).expect("a file that is open is written");
        assert!(range.start >= object.range.start && range.end <= object.range.end, "within its object");
        assert!(!open.had.contains(object.index.0), "what is there is not sent again");
        if in_order {
            assert_eq!(open.hashed_to, range.start.0, "a file in order is hashed in order");
            open.hashed_to = range.end.0;
        }
        for (place, cell) in cells(range).enumerate() {
            let value = match encoding {
                Encoding::Raw => payload[place],
                _ => 0,
            };
            open.partial.cells.insert(cell, value);
            open.partial.device.remove(&cell);
        }
    }

    /// Returns the digest of the received bytes, as the worker's running hash gives it.
    pub(crate) fn found(&self, end: &BlockDigest) -> Option<Digest> {
        if let (true, haul_proto::Stated::Digest(digest)) = (self.lies.digests, end.stated) {
            return Some(digest);
        }
        let open = self.open.get(&end.number)?;
        let geometry = Geometry::new(ByteLen(open.facts.size()), self.settings.options.object);
        let object = geometry.object(end.object)?;
        Some(open.partial.digest(object.range))
    }

    /// Syncs bytes to the device.
    fn sync(&mut self, file: FileNumber, range: ByteRange) {
        if self.lies.durable {
            return;
        }
        let open = self.open.get_mut(&file).expect("a file that is open is synced");
        let rot = if open.rereads { self.rot } else { 0 };
        for cell in cells(range) {
            let value = open.partial.cells.get(&cell).or_else(|| open.partial.device.get(&cell));
            let Some(value) = value.copied() else { continue };
            let value = if self.dice.once_in(rot) { value ^ 1 } else { value };
            open.partial.device.insert(cell, value);
        }
    }

    fn settle(
        &mut self,
        file: FileNumber,
        attempt: u16,
        object: Object,
        to: Level,
        digest: Option<Digest>,
    ) -> Option<Event> {
        self.open.get(&file)?;
        self.sync(file, object.range);
        let open = self.open.get_mut(&file)?;
        let index = object.index;
        if to == Level::Reread && Some(open.partial.device_digest(object.range)) != digest {
            return Some(Event::SettleFailed { file, attempt, object: index, reason: None });
        }
        let objects = Runs::of(index.0, index.0 + 1);
        Some(Event::Settled { file, attempt, level: to, objects })
    }

    fn finish(
        &mut self,
        file: FileNumber,
        close: Option<&Close>,
        settle: Level,
    ) -> Result<Outcome, Unfinished> {
        let size = self.open[&file].facts.size();
        let all = ByteRange::between(0, size);
        let Some(Close::Read { root, .. }) = close else {
            let open = self.open.remove(&file).expect("it was there above");
            let here = self.tree.get_mut(&open.path).expect("a file that is the same is there");
            here.mtime = open.facts.mtime.sec;
            return Ok(Outcome::Same);
        };
        let is_one = size <= self.settings.options.object.bytes();
        // If objects are compared, those of larger files and those that are read back were settled
        // one by one.
        let is_one = is_one && settle != Level::Reread;
        if settle >= Level::Durable && (is_one || self.settings.options.unit == Unit::File) {
            self.sync(file, all);
        }
        let open = &self.open[&file];
        if self.settings.options.unit == Unit::File
            && !self.settings.options.verify.reads_twice()
            && self.settings.options.verify != haul_proto::Verify::None
            && !self.lies.digests
        {
            let Some(root) = root else {
                return Err(Unfinished::Failed(Reason::new(Why::Protocol, "no digest of the whole")));
            };
            if open.partial.digest(all) != *root {
                return Err(Unfinished::Differs);
            }
        }
        if settle == Level::Reread && size > 0 {
            let (device, cache) = (open.partial.device_digest(all), open.partial.digest(all));
            assert!(self.lies.durable || device == cache, "every object was read back and compared before");
        }
        let open = self.open.remove(&file).expect("it was there above");
        let is_durable = settle >= Level::Durable;
        let values = cells(all).map(|cell| {
            if is_durable && !self.lies.durable {
                open.partial.device[&cell]
            } else {
                // Data that an earlier session synced, and that this one need not prove again, is
                // only on the device.
                open.partial.cells.get(&cell).copied().unwrap_or_else(|| open.partial.device[&cell])
            }
        });
        let done = SinkFile { size, cells: values.collect(), mtime: open.facts.mtime.sec, is_durable };
        self.tree.insert(open.path, done);
        Ok(Outcome::Done(settle))
    }

    fn make(&mut self, facts: &NewFile, path: &[u8], first: Option<&[u8]>) -> Result<Outcome, Unfinished> {
        if self.settings.options.dry_run {
            return Ok(Outcome::DryRun);
        }
        let here = self.tree.get(path);
        let is_there = here.is_some() || self.others.contains(path);
        let is_newer = here.is_some_and(|here| here.mtime >= facts.mtime.sec);
        match self.settings.options.update {
            Update::Missing if is_there && facts.kind != FileKind::Directory => return Ok(Outcome::Same),
            Update::Newer if is_newer => return Ok(Outcome::Same),
            _ => {}
        }
        if let (FileKind::HardLink { .. }, Some(first)) = (&facts.kind, first) {
            let Some(file) = self.tree.get(first).cloned() else {
                return Err(Unfinished::Failed(Why::NotFound.into()));
            };
            self.tree.insert(path.to_vec(), file);
        } else {
            self.others.insert(path.to_vec());
        }
        Ok(Outcome::Done(Level::Received))
    }

    pub(crate) fn has_proved(&self) -> bool {
        !self.proved.is_empty()
    }

    /// Runs a group commit: syncs the proven objects, and then logs them.
    pub(crate) fn log_group(&mut self) {
        for (file, attempt, object) in std::mem::take(&mut self.proved) {
            let Some(open) = self.open.get_mut(&file).filter(|open| open.attempt == attempt) else {
                continue;
            };
            if !self.lies.durable {
                for cell in cells(object.range) {
                    if let (None, Some(value)) =
                        (open.partial.device.get(&cell), open.partial.cells.get(&cell))
                    {
                        open.partial.device.insert(cell, *value);
                    }
                }
            }
            open.partial.log.insert(object.index.0);
        }
    }

    pub(crate) fn has_later(&self) -> bool {
        !self.later.is_empty()
    }

    /// Completes a random deferred task.
    pub(crate) fn do_later(&mut self, now: Duration) -> Vec<LaneId> {
        let at = self.dice.below(self.later.len() as u64) as usize;
        let event = self.later.remove(at).expect("the caller asked");
        self.handle(event, &[], now)
    }

    /// Returns true if everything was listed and answered.
    pub(crate) fn has_swept(&self) -> bool {
        self.sweep.as_ref().is_some_and(VecDeque::is_empty) && self.asked.is_empty()
    }

    /// Lists one more directory of the engine, or asks for the names in it.
    pub(crate) fn list(&mut self, now: Duration) -> Vec<LaneId> {
        if self.has_swept() {
            self.sweep = None;
            return self.handle(Event::Swept, &[], now);
        }
        let Some(directory) = self.sweep.as_mut().and_then(VecDeque::pop_front) else { return Vec::new() };
        let within = if directory.is_empty() { Vec::new() } else { [&directory[..], b"/"].concat() };
        let names: BTreeSet<Box<[u8]>> = self
            .names()
            .filter_map(|name| name.strip_prefix(&within[..]))
            .map(|rest| Box::from(rest.split(|byte| *byte == b'/').next().unwrap_or(rest)))
            .collect();
        let names: Vec<_> = names.into_iter().collect();
        let directory: Box<[u8]> = directory.into();
        let question = Question::Fates(directory.clone(), names.clone());
        let mut dropped = self.ask(question, Event::Listed { directory: directory.clone(), names }, now);
        if self.machine.may_ask() && self.dice.once_in(2) {
            dropped.extend(self.names_wanted(directory, 0, now));
        }
        dropped
    }

    fn names_wanted(&mut self, directory: Box<[u8]>, from: u64, now: Duration) -> Vec<LaneId> {
        let question = Question::Names(directory.clone(), from);
        self.ask(question, Event::NamesWanted { directory, from }, now)
    }

    fn ask(&mut self, question: Question, event: Event, now: Duration) -> Vec<LaneId> {
        self.asked.insert(self.next_batch, question);
        self.next_batch += 1;
        self.handle(event, &[], now)
    }

    pub(crate) fn next(&mut self, lane: LaneId, now: Duration) -> Option<Message> {
        let has_next = self.machine.has_next(lane);
        let outgoing = self.machine.next(lane, now);
        let is_idle = matches!(outgoing, Outgoing::Wait { .. } | Outgoing::Send(Message::KeepAlive));
        assert_eq!(has_next, !is_idle, "a lane that would find {outgoing:?} is woken, and no other");
        match outgoing {
            Outgoing::Send(message) => Some(message),
            Outgoing::Wait { .. } | Outgoing::Done => None,
        }
    }

    /// Checks the bytes of an object that the sink reported as verified (or higher).
    pub(crate) fn holds(
        &self,
        path: &[u8],
        range: ByteRange,
        level: Level,
        value: impl Fn(u64) -> u64,
    ) -> bool {
        let open = self.open.values().find(|open| open.path == path).map(|open| &open.partial);
        let partial = open.or_else(|| self.partials.get(path));
        let done = self.tree.get(path);
        cells(range).all(|cell| {
            let wanted = Some(value(cell));
            let in_partial = partial.is_some_and(|partial| {
                let durable = partial.device.get(&cell).copied();
                if level >= Level::Durable {
                    durable == wanted
                } else {
                    partial.cells.get(&cell).copied().or(durable) == wanted
                }
            });
            in_partial || done.is_some_and(|done| done.cells.get(cell as usize).copied() == wanted)
        })
    }

    /// Simulates a power loss: unsynced data is lost.
    pub(crate) fn crash(&mut self) {
        for open in std::mem::take(&mut self.open).into_values() {
            self.partials.insert(open.path, open.partial);
        }
        for partial in self.partials.values_mut() {
            partial.cells.clear();
        }
        self.tree.retain(|_, file| file.is_durable);
    }
}

impl Partial {
    /// Returns true if there is data in all of a range.
    fn has(&self, range: ByteRange) -> bool {
        cells(range).all(|cell| self.cells.contains_key(&cell) || self.device.contains_key(&cell))
    }

    fn digest(&self, range: ByteRange) -> Digest {
        let value =
            |cell| self.cells.get(&cell).or_else(|| self.device.get(&cell)).copied().unwrap_or(u64::MAX);
        digest_of(cells(range).map(value))
    }

    fn device_digest(&self, range: ByteRange) -> Digest {
        digest_of(cells(range).map(|cell| self.device.get(&cell).copied().unwrap_or(u64::MAX)))
    }
}
