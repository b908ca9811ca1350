//! The side that receives.
//!
//! ```text
//!  lane --frames--> worker of the lane --handle--> [Sink] --commands--> the same worker: open, write, drop, finish
//!                        ^                           |
//!                        +------- next(lane) --------+  FILE_ID, BLOCK_SYNC, BLOCK_REJECT, FILE_DONE
//! ```
//!
//! The engine keeps one [`Sink`] behind a lock. Each lane has a worker that reads frames, hands them over by
//! [`Sink::handle`], and does the commands that come of them before it reads on. What the source is to be told is asked for by
//! [`Sink::next`], so that many objects are told of at once. The source is taken for hostile: what it may not do ends the session, what
//! concerns one file ends that file.

mod blocks;
mod file;
mod files;
mod react;
mod sweep;
mod words;

pub use words::{Command, Event, Outgoing, Settings, Unfinished, Verdict};

use crate::limits::RUNS_HELD_MAX;
use crate::{
    BlockSync, Bye, CONTROL, End, FileDone, FileNumber, LaneId, Message, Outcome, Reason, Runs, Summary,
    Unit, Verify,
};
use file::File;
use haul_model::{Level, ObjectIndex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What the source may not do.
type Breach = &'static str;

/// The sink's machine. Its memory follows the window, not the number of files.
#[derive(Debug)]
pub struct Sink {
    settings: Settings,
    lanes: BTreeMap<LaneId, Lane>,
    files: BTreeMap<FileNumber, File>,
    /// Bytes of the facts of `files`.
    facts: u64,
    /// One past the highest number announced.
    announced: u64,
    /// The last ends of files, for a source that lost the lane on which it would have heard of them.
    ends: VecDeque<(FileNumber, Outcome)>,
    /// The numbers of all files that ended, as runs: as many as there are gaps, which are files under way.
    ended: Runs,
    /// Files that have objects to be told of, by the lane on which.
    syncs: BTreeSet<(LaneId, FileNumber)>,
    sweep: sweep::Sweeping,
    /// Bytes that files may bring; `None` for any number.
    quota: Option<u64>,
    /// Bytes that were brought, or that files under way may still bring.
    charged: u64,
    phase: Phase,
    summary: Summary,
}

#[derive(Debug)]
struct Lane {
    heard: Duration,
    sent: Duration,
    outbox: VecDeque<Message>,
    receiving: Option<Receiving>,
}

/// The object that a lane is bringing.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    file: FileNumber,
    attempt: u16,
    object: ObjectIndex,
    /// Where its next block begins.
    at: u64,
    /// Whether it is written; otherwise it is dropped.
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Files come.
    Running,
    /// WALK_END came: what is not in the source is looked for and deleted.
    Sweeping,
    /// BYE was said; the source's is awaited.
    Leaving,
    /// The end.
    Over,
}

impl Sink {
    /// A sink without lanes and files.
    pub fn new(settings: Settings) -> Sink {
        Sink {
            settings,
            lanes: BTreeMap::new(),
            files: BTreeMap::new(),
            facts: 0,
            announced: 0,
            ends: VecDeque::new(),
            ended: Runs::default(),
            syncs: BTreeSet::new(),
            sweep: sweep::Sweeping::default(),
            quota: None,
            charged: 0,
            phase: Phase::Running,
            summary: Summary::default(),
        }
    }

    /// Limits the bytes that files may bring. A file is charged for the bytes that it may bring once the engine has decided about
    /// it, and gives back at its end those that did not come. A file that exceeds the limit fails with [`Why::Quota`](crate::Why::Quota).
    pub fn with_quota(mut self, bytes: Option<u64>) -> Sink {
        self.quota = bytes;
        self
    }

    /// What to write on this lane next. A lane that is not known, or not any more, gets [`Outgoing::Done`].
    pub fn next(&mut self, lane: LaneId, now: Duration) -> Outgoing {
        let keep_alive = self.settings.timing.keep_alive;
        let Some(state) = self.lanes.get_mut(&lane) else { return Outgoing::Done };
        if let Some(message) = state.outbox.pop_front() {
            state.sent = now;
            return Outgoing::Send(message);
        }
        if self.phase == Phase::Over {
            return Outgoing::Done;
        }
        let due = state.sent + keep_alive;
        if let Some(sync) = self.next_sync(lane) {
            self.sent_on(lane, now);
            return Outgoing::Send(Message::BlockSync(Box::new(sync)));
        }
        if due <= now {
            self.sent_on(lane, now);
            return Outgoing::Send(Message::KeepAlive);
        }
        Outgoing::Wait { until: due }
    }

    /// Whether [`Sink::next`] has something for this lane now, but for a KEEPALIVE. So an engine knows whom to wake.
    pub fn has_next(&mut self, lane: LaneId) -> bool {
        let Some(state) = self.lanes.get(&lane) else { return true };
        !state.outbox.is_empty() || self.phase == Phase::Over || self.first_sync(lane).is_some()
    }

    /// What was done so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Files under way: announced and not done. At most twice the window's: some may have come late by lanes that the
    /// source has given up.
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Whether a file is under way.
    pub fn is_open(&self, number: FileNumber) -> bool {
        self.files.contains_key(&number)
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn sent_on(&mut self, lane: LaneId, now: Duration) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.sent = now;
        }
    }

    /// The level at which an object needs not be sent again.
    fn flight_level(&self) -> Level {
        if self.compares_objects() { Level::Verified } else { Level::Received }
    }

    fn compares_objects(&self) -> bool {
        let options = &self.settings.options;
        options.unit == Unit::Object && options.verify != Verify::None
    }

    /// The level above which objects are brought one by one ([`File::settles_objects`]). Where only whole files are compared,
    /// nothing is known of an object before its file is whole, and no higher level may be claimed.
    fn settles_above(&self) -> Level {
        if self.settings.options.unit == Unit::Object { self.flight_level() } else { Level::Reread }
    }

    /// Whether the whole file is hashed by a second read.
    fn rehashes_files(&self) -> bool {
        let options = &self.settings.options;
        options.unit == Unit::File && options.verify.reads_twice()
    }

    /// Whether the sink hashes a file's bytes in their order, as they come.
    fn hashes_in_order(&self) -> bool {
        let options = &self.settings.options;
        options.in_order && options.unit == Unit::File && options.verify == Verify::Stream
    }

    /// The next thing to be told of objects on this lane: one file, one level.
    fn next_sync(&mut self, lane: LaneId) -> Option<BlockSync> {
        let number = self.first_sync(lane)?;
        let file = self.files.get_mut(&number)?;
        let (level, mut objects) = file.syncs.pop_first()?;
        objects.truncate(crate::limits::RUNS_MAX);
        Some(BlockSync { number, attempt: file.attempt, level, objects })
    }

    /// The first file that has objects to be told of on this lane.
    fn first_sync(&mut self, lane: LaneId) -> Option<FileNumber> {
        loop {
            let first = (lane, FileNumber(0));
            let (_, number) = self.syncs.range(first..).next().copied().filter(|(on, _)| *on == lane)?;
            if self.files.get(&number).is_some_and(|file| !file.syncs.is_empty()) {
                return Some(number);
            }
            self.syncs.remove(&(lane, number));
        }
    }

    /// Puts a message on the lane, if it stands.
    fn post(&mut self, lane: LaneId, message: Message) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.outbox.push_back(message);
        }
    }

    /// Takes a file off and tells the source.
    fn finish(&mut self, number: FileNumber, outcome: Outcome) {
        let Some(file) = self.files.remove(&number) else { return };
        self.facts -= file.facts_len;
        self.charged -= file.charged.saturating_sub(file.brought);
        match &outcome {
            Outcome::Done(_) => {
                self.summary.done += 1;
                // Files of nothing but holes may say that they are as long as can be.
                self.summary.bytes = self.summary.bytes.saturating_add(file.geometry.len());
            }
            Outcome::Same => self.summary.same += 1,
            Outcome::Would => self.summary.would += 1,
            Outcome::Failed(_) => self.summary.failed += 1,
        }
        self.syncs.remove(&(file.home, number));
        self.tell_end(file.home, number, outcome);
    }

    fn tell_end(&mut self, lane: LaneId, number: FileNumber, outcome: Outcome) {
        if self.ends.len() > 2 * self.settings.window.files as usize {
            self.ends.pop_front();
        }
        self.ends.push_back((number, outcome.clone()));
        self.ended.insert(number.0);
        if self.ended.pieces() > RUNS_HELD_MAX {
            // Numbers that were never announced, because their files failed at the source, leave gaps: the oldest closes.
            let gap = self.ended.first_gap(0);
            let next = self.ended.iter().map(|run| run.0).find(|start| *start > gap).unwrap_or(gap);
            self.ended.unite(&Runs::of(gap, next));
        }
        self.post(lane, Message::FileDone(Box::new(FileDone { number, outcome })));
    }

    /// A file fails at the sink: the source is told, and what else comes of it is dropped.
    fn fail(&mut self, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        self.fails_by(false, number, reason, out);
    }

    /// A file fails, at the sink or because the source says so.
    fn fails_by(&mut self, by_source: bool, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        if self.files.contains_key(&number) {
            self.finish(number, Outcome::Failed(reason.clone()));
            out.push(Command::Failed { file: number, reason, by_source });
            out.push(Command::Abandon { file: number });
        }
    }

    /// Ends the session before its work is done; the source is told if it can be.
    fn break_off(&mut self, reason: Reason, tell: bool, out: &mut Vec<Command>) {
        if self.phase == Phase::Over {
            return;
        }
        let numbers: Vec<FileNumber> = self.files.keys().copied().collect();
        out.extend(numbers.into_iter().map(|file| Command::Abandon { file }));
        self.over();
        if tell {
            self.post(
                CONTROL,
                Message::Bye(Box::new(Bye {
                    reason: Some(reason.clone()),
                    summary: self.summary,
                    times: None,
                })),
            );
        }
        out.push(Command::Ended(End::Broken { reason, summary: self.summary }));
    }

    fn over(&mut self) {
        self.phase = Phase::Over;
        self.files.clear();
        self.facts = 0;
        self.ends.clear();
        self.syncs.clear();
        for lane in self.lanes.values_mut() {
            lane.outbox.clear();
            lane.receiving = None;
        }
    }
}
