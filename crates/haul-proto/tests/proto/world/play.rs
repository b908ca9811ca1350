//! Scheduler of the simulated world: one small, randomly chosen step after another.

use super::dice::Dice;
use super::sink_side::{Lies, SinkSide};
use super::source_side::{Seen, SourceSide};
use super::tree::{self, Ill, SinkFile, file_of};
use super::{Faults, Plan};
use haul_model::{ByteRange, Level};
use haul_proto::{
    CONTROL, End, HEADER_LEN, Header, LaneId, Message, Outcome, Runs, Update, Verify,
    sink::Event as SinkEvent, source::Event as SourceEvent,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A frame in flight: its bytes, the cells of its payload, and its time of arrival.
type Flying = (Vec<u8>, Vec<u64>, Duration);

/// Maximum number of frames in flight per direction of a lane; a writer blocks beyond it.
const LANE_HOLDS: usize = 6;

/// Number of steps after which a world that has not ended counts as stuck.
const STEPS_MOST: u64 = 400_000;

#[derive(Default)]
struct Link {
    there: VecDeque<Flying>,
    back: VecDeque<Flying>,
    /// True after a cut. Each end detects the cut at its own time; until then its writes are lost.
    is_cut: bool,
    source_knows: bool,
    sink_knows: bool,
}

pub(crate) struct World {
    plan: Plan,
    dice: Dice,
    now: Duration,
    next_tick: Duration,
    pub(crate) source: SourceSide,
    pub(crate) sink: SinkSide,
    links: BTreeMap<LaneId, Link>,
    next_lane: u32,
    source_dead: bool,
    sink_dead: bool,
    damaged: bool,
    cuts: u32,
    steps: u64,
    /// Objects that were reported to the source as durable, by file.
    durable: BTreeMap<usize, Runs>,
}

/// Result of a world.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) source: Option<End>,
}

impl World {
    /// Creates a world with these files at the source and an empty sink.
    pub(crate) fn new(plan: Plan, mut dice: Dice, files: Vec<tree::SourceFile>, lies: Lies) -> World {
        let source = SourceSide::new(plan.source(), files, plan.faults.walk_errors);
        let mut sink = SinkSide::new(plan.sink(), Dice::new(dice.next()));
        sink.lies = lies;
        sink.rot = plan.faults.rot;
        sink.full = plan.faults.full;
        let mut world = World {
            dice,
            now: Duration::from_secs(1000),
            next_tick: Duration::ZERO,
            source,
            sink,
            links: BTreeMap::new(),
            next_lane: 0,
            source_dead: false,
            sink_dead: false,
            damaged: false,
            cuts: 0,
            steps: 0,
            durable: BTreeMap::new(),
            plan,
        };
        for _ in 0..world.plan.lanes {
            world.add_lane();
        }
        world
    }

    /// Starts another session of the same job, after both sides lost their memory contents.
    pub(crate) fn resume(mut self, faults: Faults) -> World {
        self.sink.crash();
        let plan = Plan { faults, resumes: self.dice.once_in(2), ..self.plan.clone() };
        let mut files = std::mem::take(&mut self.source.files);
        if faults.ill == 0 {
            files.iter_mut().for_each(|file| file.ill = Ill::Well);
        }
        let mut next = World::new(plan, self.dice.clone(), files, self.sink.lies);
        next.sink.tree = self.sink.tree;
        next.sink.others = self.sink.others;
        next.sink.partials = self.sink.partials;
        next.sink.resumes = next.plan.resumes;
        next
    }

    /// Puts files at the sink before the session: old versions, identical files, and unrelated
    /// ones.
    pub(crate) fn furnish(&mut self) {
        for file in &self.source.files {
            if file.first.is_some() || !facts_have_bytes(file) || self.dice.once_in(2) {
                continue;
            }
            let mut cells: Vec<u64> =
                tree::cells(ByteRange::between(0, file.size())).map(|c| file.cell(c)).collect();
            let mut mtime = file.mtime;
            if self.dice.once_in(2) {
                cells.iter_mut().filter(|_| self.dice.once_in(4)).for_each(|cell| *cell ^= 2);
                mtime = file.mtime + self.dice.below(3) as i64 - 1;
                // By the rule that compares only size and time, a file with both equal counts as
                // the same.
                if mtime == file.mtime {
                    mtime -= 5;
                }
            }
            let here = SinkFile { size: file.size(), cells, mtime, is_durable: true };
            self.sink.tree.insert(file.path.clone(), here);
        }
        for stray in 0..self.dice.below(4) {
            let here = SinkFile { size: 0, cells: Vec::new(), mtime: 0, is_durable: true };
            self.sink.tree.insert(format!("d{}/stray{stray}", stray % 4).into_bytes(), here);
        }
    }

    fn add_lane(&mut self) {
        let lane = LaneId(self.next_lane);
        self.next_lane += 1;
        self.links.insert(lane, Link::default());
        self.see(|world| world.source.handle(SourceEvent::LaneUp(lane), world.now));
        self.sink_handles(SinkEvent::LaneUp(lane), &[]);
    }

    /// Runs until both sides have ended or stopped. Checks every claim on the way.
    pub(crate) fn play(&mut self) -> Report {
        while !self.is_over() {
            self.steps += 1;
            assert!(self.steps < STEPS_MOST, "the session never ends: {:?}", self.stuck());
            self.fault();
            self.step();
        }
        self.verdict();
        Report { source: self.source.end.clone() }
    }

    fn stuck(&self) -> String {
        format!("{:?} {:?} {:?}", self.source.machine, self.sink.machine, self.plan)
    }

    fn is_over(&self) -> bool {
        let source = self.source_dead || self.source.end.is_some();
        let sink = self.sink_dead || self.sink.end.is_some();
        source && sink
    }

    /// Runs one step of a random party that can make one; if there is none, advances the clock.
    fn step(&mut self) {
        self.now += Duration::from_micros(self.dice.below(3000));
        let mut moves: Vec<(u8, LaneId)> = Vec::new();
        for (lane, link) in &self.links {
            let may_work = !self.source_dead && !link.source_knows && link.there.len() < LANE_HOLDS;
            let waits = self.source.is_waiting.get(lane).is_some_and(|until| *until > self.now);
            if may_work && !waits {
                moves.push((0, *lane));
            }
            let arrived = |queue: &VecDeque<Flying>| queue.front().is_some_and(|flying| flying.2 <= self.now);
            if !self.sink_dead && !link.sink_knows && arrived(&link.there) {
                moves.push((1, *lane));
            }
            if !self.source_dead && !link.source_knows && arrived(&link.back) {
                moves.push((2, *lane));
            }
            if !self.sink_dead && !link.sink_knows && link.back.len() < LANE_HOLDS {
                moves.push((3, *lane));
            }
            if link.is_cut && !link.source_knows && !self.source_dead {
                moves.push((4, *lane));
            }
            if link.is_cut && !link.sink_knows && !self.sink_dead {
                moves.push((5, *lane));
            }
        }
        let alone = [
            (6, !self.source_dead && self.source.may_walk()),
            (7, !self.sink_dead && self.sink.has_later()),
            (11, !self.sink_dead && self.sink.has_proved()),
            (12, !self.sink_dead && self.sink.may_compare()),
            (8, !self.source_dead && !self.source.checks.is_empty()),
            (9, !self.source_dead && !self.source.judging.is_empty()),
            (10, !self.sink_dead && self.sink.sweep.is_some() && self.sink.machine.may_ask()),
            (10, !self.sink_dead && self.sink.has_swept()),
        ];
        moves.extend(alone.into_iter().filter(|(_, can)| *can).map(|(what, _)| (what, CONTROL)));
        let is_idle = moves.iter().all(|(what, _)| *what == 3);
        if is_idle {
            let flying =
                self.links.values().flat_map(|link| link.there.front().into_iter().chain(link.back.front()));
            let next = flying.map(|flying| flying.2).filter(|at| *at > self.now).min();
            self.now = next.unwrap_or(self.next_tick).min(self.next_tick).max(self.now);
        }
        if self.now >= self.next_tick {
            self.next_tick = self.now + Duration::from_secs(1);
            if !self.source_dead {
                self.see(|world| world.source.handle(SourceEvent::Tick, world.now));
            }
            if !self.sink_dead {
                self.sink_handles(SinkEvent::Tick, &[]);
            }
            self.source.is_waiting.clear();
            return;
        }
        if moves.is_empty() {
            return;
        }
        let (what, lane) = moves[self.dice.below(moves.len() as u64) as usize];
        self.make(what, lane);
    }

    fn make(&mut self, what: u8, lane: LaneId) {
        match what {
            0 => {
                let mut written = None;
                self.see(|world| {
                    let (frame, seen) = world.source.work(lane, world.now, &mut world.dice);
                    written = frame;
                    seen
                });
                if let Some((message, payload)) = written {
                    self.fly(lane, &message, payload, true);
                }
            }
            1 => {
                let link = self.links.get_mut(&lane).expect("a lane that was chosen");
                let (bytes, payload, _) = link.there.pop_front().expect("a frame that arrived");
                self.arrive(lane, decoded(&bytes), &payload);
            }
            2 => {
                let link = self.links.get_mut(&lane).expect("a lane that was chosen");
                let (bytes, _, _) = link.back.pop_front().expect("a frame that arrived");
                let message = decoded(&bytes);
                self.see(|world| world.source.handle(SourceEvent::Message(lane, message), world.now));
            }
            3 => {
                if let Some(message) = self.sink.next(lane, self.now) {
                    self.fly(lane, &message, Vec::new(), false);
                }
            }
            4 => self.source_loses(lane),
            5 => self.sink_loses(lane),
            6 => self.see(|world| world.source.walk(world.now)),
            7 => {
                let dropped = self.sink.do_later(self.now);
                self.drop_at_sink(dropped);
            }
            8 => {
                let at = self.dice.below(self.source.checks.len() as u64) as usize;
                self.see(|world| world.source.check(at, world.now));
            }
            9 => {
                let judged = self.source.judging.remove(0);
                self.see(|world| world.source.handle(judged, world.now));
            }
            11 => self.sink.log_group(),
            12 => {
                let dropped = self.sink.compare(self.now);
                self.drop_at_sink(dropped);
            }
            _ => {
                let dropped = self.sink.list(self.now);
                self.drop_at_sink(dropped);
            }
        }
    }

    fn fly(&mut self, lane: LaneId, message: &Message, mut payload: Vec<u64>, is_there: bool) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let is_damaged = !payload.is_empty() && self.dice.once_in(self.plan.faults.damage);
        if is_damaged {
            let at = self.dice.below(payload.len() as u64) as usize;
            payload[at] ^= 1 << self.dice.below(64);
            self.damaged = true;
        }
        let stall = if self.dice.once_in(self.plan.faults.stall) { 100_000 } else { 0 };
        let latency = Duration::from_millis(1 + self.dice.below(30) + self.dice.below(stall + 1));
        let link = self.links.get_mut(&lane).expect("a lane that was chosen");
        if link.is_cut {
            return;
        }
        let queue = if is_there { &mut link.there } else { &mut link.back };
        let arrives = queue.back().map_or(self.now, |last| last.2).max(self.now + latency);
        queue.push_back((bytes, payload, arrives));
    }

    fn arrive(&mut self, lane: LaneId, message: Message, payload: &[u64]) {
        let event = match message {
            Message::BlockDigest(end) => {
                let found = self.sink.found(&end);
                SinkEvent::ObjectEnd { lane, end: *end, found }
            }
            message => SinkEvent::Message(lane, message),
        };
        self.sink_handles(event, payload);
    }

    fn sink_handles(&mut self, event: SinkEvent, payload: &[u64]) {
        let dropped = self.sink.handle(event, payload, self.now);
        self.drop_at_sink(dropped);
    }

    fn drop_at_sink(&mut self, dropped: Vec<LaneId>) {
        for lane in dropped {
            let link = self.links.get_mut(&lane).expect("a lane that is known");
            link.is_cut = true;
            link.sink_knows = true;
            self.cuts += 1;
        }
    }

    fn source_loses(&mut self, lane: LaneId) {
        let link = self.links.get_mut(&lane).expect("a lane that was chosen");
        link.source_knows = true;
        link.back.clear();
        self.source.hands.remove(&lane);
        self.see(|world| world.source.handle(SourceEvent::LaneLost(lane), world.now));
    }

    fn sink_loses(&mut self, lane: LaneId) {
        let link = self.links.get_mut(&lane).expect("a lane that was chosen");
        link.sink_knows = true;
        link.there.clear();
        self.sink_handles(SinkEvent::LaneLost(lane), &[]);
    }

    fn fault(&mut self) {
        let faults = self.plan.faults;
        if self.dice.once_in(faults.cut) {
            let may = |lane: &LaneId| faults.cut_control || *lane != CONTROL;
            let lanes: Vec<LaneId> =
                self.links.iter().filter(|(l, k)| may(l) && !k.is_cut).map(|(l, _)| *l).collect();
            if !lanes.is_empty() {
                let lane = self.dice.pick(&lanes);
                self.links.get_mut(&lane).expect("it was listed").is_cut = true;
                self.cuts += 1;
                if self.dice.once_in(2) && self.next_lane < 40 {
                    self.add_lane();
                }
            }
        }
        if self.dice.once_in(faults.crash_sink) && !self.sink_dead && self.sink.end.is_none() {
            self.sink_dead = true;
            self.links.values_mut().for_each(|link| link.is_cut = true);
        }
        if self.dice.once_in(faults.crash_source) && !self.source_dead && self.source.end.is_none() {
            self.source_dead = true;
            self.links.values_mut().for_each(|link| link.is_cut = true);
        }
    }

    /// Compares the reports to the source with the real contents of the sink's storage.
    fn see(&mut self, act: impl FnOnce(&mut World) -> Vec<Seen>) {
        for seen in act(self) {
            match seen {
                Seen::Drop(lane) => {
                    let link = self.links.get_mut(&lane).expect("a lane that is known");
                    link.is_cut = true;
                    link.source_knows = true;
                    self.cuts += 1;
                    self.source.hands.remove(&lane);
                }
                Seen::Synced { file, level, objects } => {
                    for object in objects.numbers() {
                        self.claimed(file, object, level);
                    }
                    if level >= Level::Durable {
                        self.durable.entry(file).or_default().unite(&objects);
                    }
                }
                Seen::Done { file, outcome } => self.ended(file, &outcome),
            }
        }
    }

    /// Checks an object that was reported to have reached a level.
    fn claimed(&self, file: usize, object: u64, level: Level) {
        // An object that reads back wrong from the device was verified before, and may be being
        // rewritten.
        if level == Level::Received || (level == Level::Verified && self.plan.faults.rot > 0) {
            return;
        }
        let size = self.plan.options.object.bytes();
        let path = &self.source.files[file].path;
        let file = file_of(&self.source.files, file);
        let range = ByteRange::between(object * size, ((object + 1) * size).min(file.size()));
        let holds = self.sink.holds(path, range, level, |cell| file.cell(cell));
        assert!(
            holds,
            "object {object} of {file:?} is not {level} at the sink, as reported: {:?}",
            self.plan
        );
    }

    fn ended(&self, at: usize, outcome: &Outcome) {
        let path = &self.source.files[at].path;
        let file = file_of(&self.source.files, at);
        let first = self.source.files[at].first;
        // By size and time, and by the claims of an earlier session, other bytes may count as the
        // same. Further names of such a file are links.
        let is_same = |first: usize| matches!(self.source.outcomes.get(&first), Some(Outcome::Same));
        let is_link_to_same = first.is_some_and(is_same)
            && !matches!(self.plan.options.update, Update::Missing | Update::Newer);
        match outcome {
            Outcome::Done(_) if is_link_to_same => {}
            Outcome::Done(level) if facts_have_bytes(file) => {
                let here = self.sink.tree.get(path).expect("a file that is done is there");
                let range = ByteRange::between(0, file.size());
                let may_differ = self.plan.options.verify == Verify::None && self.damaged;
                let is_equal = here.size == file.size() && here.digest(range) == file.digest(range);
                assert!(is_equal || may_differ, "{file:?} was called done and differs");
                assert!(*level < Level::Durable || here.is_durable, "{file:?} was called durable and is not");
            }
            Outcome::Done(_) if first.is_none() => assert!(self.sink.others.contains(path)),
            _ => {}
        }
        let is_faultless =
            file.ill == Ill::Well && !self.sink.device_failed && self.cuts == 0 && !self.damaged;
        if let Outcome::Failed(reason) = outcome {
            // If damage is frequent, a file may fail permanently after many attempts.
            assert!(!is_faultless || self.plan.faults.rot > 0, "{file:?} failed: {reason}");
        }
    }

    /// Compares the source's result of the session with the two trees.
    fn verdict(&self) {
        match &self.source.end {
            Some(End::Finished { summary, withheld }) => {
                let files = &self.source.files;
                for (at, file) in files.iter().enumerate() {
                    assert!(self.source.outcomes.contains_key(&at), "file {at} has no end: {file:?}");
                }
                let told = summary.done + summary.same + summary.would + summary.failed;
                assert!(told <= files.len() as u64);
                let strays =
                    self.sink.tree.keys().filter(|name| name.windows(5).any(|part| part == b"stray"));
                let ills = self.source.outcomes.values().filter(|o| matches!(o, Outcome::Failed(_))).count();
                if self.plan.options.delete && withheld.is_none() {
                    assert_eq!(strays.count(), 0, "what the source does not have is deleted");
                    assert!(self.source.walk_errors == 0, "nothing is deleted after an error");
                } else if self.source.walk_errors > 0 || ills > 0 {
                    assert!(!self.sink.is_sweeping || self.source.walk_errors == 0);
                }
                assert_eq!(self.source.machine.open_files(), 0);
                // Regression test: the sink did not count a file that the source could not open.
                let lost = [&self.source.machine.summary(), &self.sink.machine.summary()]
                    .map(|summary| summary.failed + summary.unread);
                if matches!(self.sink.end, Some(End::Finished { .. })) {
                    assert_eq!(
                        lost[1],
                        lost[0],
                        "the sink counts each failure once, as the source does: {:?} {:?}",
                        self.sink.machine.summary(),
                        self.source.machine.summary()
                    );
                }
            }
            Some(End::Broken { reason, .. }) => {
                let is_full = self.sink.device_failed && reason.why.is_shortage();
                let has_cause = self.cuts > 0 || self.sink_dead || self.source_dead || is_full;
                assert!(has_cause, "nothing was wrong, and the session broke: {reason}");
                assert_ne!(reason.why, haul_proto::Why::Protocol, "{reason}");
            }
            None => assert!(self.source_dead),
        }
        if let Some(End::Broken { reason, .. }) = &self.sink.end {
            assert_ne!(reason.why, haul_proto::Why::Protocol, "{reason}");
        }
    }

    /// Checks after a crash that the device has everything that was reported as durable.
    pub(crate) fn check_durable(&self) {
        for (at, objects) in &self.durable {
            // A completed file has its final name.
            let is_done = matches!(self.source.outcomes.get(at), Some(Outcome::Done(_)));
            for object in objects.numbers().filter(|_| !is_done) {
                let size = self.plan.options.object.bytes();
                let path = &self.source.files[*at].path;
                let file = file_of(&self.source.files, *at);
                let range = ByteRange::between(object * size, ((object + 1) * size).min(file.size()));
                let holds = self.sink.holds(path, range, Level::Durable, |cell| file.cell(cell));
                let failed = matches!(self.source.outcomes.get(at), Some(Outcome::Failed(_)));
                assert!(holds || failed, "object {object} of {file:?} was durable and is gone");
            }
        }
    }
}

fn facts_have_bytes(file: &tree::SourceFile) -> bool {
    matches!(file.kind, haul_proto::FileKind::File { .. })
}

fn decoded(bytes: &[u8]) -> Message {
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&bytes[..HEADER_LEN]);
    let header = Header::decode(&header).unwrap();
    Message::decode(&header, &bytes[HEADER_LEN..]).unwrap().unwrap()
}
