//! State machine of the side that receives.
//! ```text
//! lane --frames--> worker of the lane --handle--> [Sink] --commands--> the same worker: open,
//! write, drop, finish ^                           | +------- next(lane) --------+  FILE_ID,
//! COMPARED, BLOCK_SYNC, BLOCK_REJECT, FILE_DONE
//! ```
//!
//! The engine keeps one [`Sink`] behind a lock. Each lane has a worker that reads frames and passes
//! them to [`Sink::handle`]. The worker executes the resulting commands before it reads on.
//! Messages to the source are fetched by [`Sink::next`], so that one message can report many
//! objects. The source is treated as hostile: a protocol violation ends the session, and an error
//! of one file ends that file.

mod blocks;
mod comparing;
mod events;
mod file;
mod files;
mod react;
mod sweep;

pub use events::{Command, Event, Outgoing, Settings, Unfinished, Verdict};

use crate::limits::{RUNS_HELD_MAX, STATE_ENTRIES_MAX};
use crate::{
    BlockSync, Bye, CONTROL, End, FileDone, FileNumber, LaneId, Message, Outcome, Reason, Runs, Summary,
    Unit, Verify, Why,
};
use file::File;
use haul_model::{Level, ObjectIndex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Description of a protocol violation by the source.
type Violation = &'static str;

/// State machine of the sink. Its memory depends on the window, not on the number of files.
#[derive(Debug)]
pub struct Sink {
    settings: Settings,
    lanes: BTreeMap<LaneId, Lane>,
    files: BTreeMap<FileNumber, File>,
    /// Size in bytes of the metadata of `files`.
    facts: u64,
    /// Number of entries in the sets of `files`: at most [`STATE_ENTRIES_MAX`].
    entries: usize,
    /// One past the highest announced number.
    announced: u64,
    /// Most recent results of files, for a source that lost the lane on which it would have
    /// received them.
    ends: VecDeque<(FileNumber, Outcome)>,
    /// Numbers of all finished files, as runs. There are as many runs as gaps, which are files in
    /// progress.
    ended: Runs,
    /// Files with objects to report, by the lane of the report.
    syncs: BTreeSet<(LaneId, FileNumber)>,
    sweep: sweep::Sweeping,
    /// Limit on `charged`; `None` for no limit.
    quota: Option<u64>,
    /// Bytes that were transferred, or that files in progress may still transfer, with the charges
    /// for their entries.
    charged: u64,
    phase: Phase,
    summary: Summary,
}

#[derive(Debug)]
struct Lane {
    last_received: Duration,
    sent: Duration,
    outbox: VecDeque<Message>,
    /// Path of the last announced entry, if a quota counts directories.
    last_path: Box<[u8]>,
    receiving: Option<Receiving>,
}

/// The object that a lane is receiving.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    file: FileNumber,
    attempt: u16,
    object: ObjectIndex,
    /// File offset at which its next block starts.
    at: u64,
    /// True if the object is written; otherwise it is discarded.
    is_wanted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Files arrive.
    Running,
    /// WALK_END arrived: names that the source lacks are found and deleted.
    Sweeping,
    /// BYE was sent; the sink waits for that of the source.
    Leaving,
    /// The session is over.
    Over,
}

impl Sink {
    /// Creates a sink without lanes and files.
    pub fn new(settings: Settings) -> Sink {
        Sink {
            settings,
            lanes: BTreeMap::new(),
            files: BTreeMap::new(),
            facts: 0,
            entries: 0,
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

    /// Limits the number of bytes that files may transfer. Each entry that is created or replaced
    /// also counts [`ENTRY_CHARGE`](crate::limits::ENTRY_CHARGE) bytes and its metadata.
    ///
    /// Once the engine has decided about a file, the file is charged for the bytes that it may
    /// transfer. At its end the file returns the charge for bytes that did not arrive. A file that
    /// exceeds the limit fails with [`Why::Quota`](crate::Why::Quota).
    pub fn with_quota(mut self, bytes: Option<u64>) -> Sink {
        self.quota = bytes;
        self
    }

    /// Returns the next output for this lane. An unknown or removed lane gets [`Outgoing::Done`].
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
        if let Some(report) = self.next_report(lane) {
            self.sent_on(lane, now);
            return Outgoing::Send(report);
        }
        if due <= now {
            self.sent_on(lane, now);
            return Outgoing::Send(Message::KeepAlive);
        }
        Outgoing::Wait { until: due }
    }

    /// Returns true if [`Sink::next`] has output for this lane now, apart from a KEEPALIVE. The
    /// engine uses this to select the threads to wake.
    pub fn has_next(&mut self, lane: LaneId) -> bool {
        let Some(state) = self.lanes.get(&lane) else { return true };
        !state.outbox.is_empty() || self.phase == Phase::Over || self.first_report(lane).is_some()
    }

    /// Returns the totals so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the number of files in progress: announced and not done. It is at most twice that of
    /// the window, because some files may have arrived late on lanes that the source has closed.
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Returns the number of entries in the sets of the files in progress, which determine the
    /// memory of the machine besides [`Sink::open_files`]. It is at most
    /// [`STATE_ENTRIES_MAX`](crate::limits::STATE_ENTRIES_MAX).
    pub fn state_entries(&self) -> usize {
        self.entries
    }

    /// Returns the number of bytes that the session has used of its quota, with those that files in
    /// progress may still use.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns true if a file is in progress.
    pub fn is_open(&self, number: FileNumber) -> bool {
        self.files.contains_key(&number)
    }

    /// Returns true if the session is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn sent_on(&mut self, lane: LaneId, now: Duration) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.sent = now;
        }
    }

    /// Returns the level from which an object need not be sent again.
    fn flight_level(&self) -> Level {
        if self.compares_objects() { Level::Verified } else { Level::Received }
    }

    fn compares_objects(&self) -> bool {
        let options = &self.settings.options;
        options.unit == Unit::Object && options.verify != Verify::None
    }

    /// Returns the level above which objects are settled one by one ([`File::settles_objects`]).
    ///
    /// If only complete files are compared, nothing is known about an object before its file is
    /// complete. No higher level may be claimed then.
    fn settles_above(&self) -> Level {
        if self.settings.options.unit == Unit::Object { self.flight_level() } else { Level::Reread }
    }

    /// Returns true if a second read hashes the complete file.
    fn rehashes_files(&self) -> bool {
        let options = &self.settings.options;
        options.unit == Unit::File && options.verify.reads_twice()
    }

    /// Returns true if the sink hashes the bytes of a file in order, as they arrive.
    fn hashes_in_order(&self) -> bool {
        let options = &self.settings.options;
        options.in_order && options.unit == Unit::File && options.verify == Verify::Stream
    }

    /// Returns the next report about objects on this lane: one file, one level. The source knows
    /// from COMPARED which objects BLOCK_SYNC can name without having been sent.
    fn next_report(&mut self, lane: LaneId) -> Option<Message> {
        let number = self.first_report(lane)?;
        let file = self.files.get_mut(&number)?;
        let attempt = file.attempt;
        let report = file.next_compared(number).or_else(|| {
            let (level, mut objects) = file.syncs.pop_first()?;
            objects.truncate(crate::limits::RUNS_MAX);
            Some(Message::BlockSync(Box::new(BlockSync { number, attempt, level, objects })))
        });
        self.count_entries(number);
        report
    }

    /// Returns the first file with objects to report on this lane.
    fn first_report(&mut self, lane: LaneId) -> Option<FileNumber> {
        loop {
            let first = (lane, FileNumber(0));
            let (_, number) = self.syncs.range(first..).next().copied().filter(|(on, _)| *on == lane)?;
            if self.files.get(&number).is_some_and(File::has_report) {
                return Some(number);
            }
            self.syncs.remove(&(lane, number));
        }
    }

    /// Queues a message on the lane, if the lane is open.
    fn post(&mut self, lane: LaneId, message: Message) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.outbox.push_back(message);
        }
    }

    /// Removes a file and reports its result to the source.
    fn finish(&mut self, number: FileNumber, outcome: Outcome) {
        let Some(file) = self.files.remove(&number) else { return };
        self.facts -= file.facts_len;
        self.entries -= file.counted_entries;
        let unused = file.charged.saturating_sub(file.transferred);
        // A failed entry may have left directories.
        let is_unchanged = matches!(outcome, Outcome::Same | Outcome::DryRun);
        let unused = unused + if is_unchanged { file.entry_charge } else { 0 };
        self.charged = self.charged.saturating_sub(unused);
        match &outcome {
            Outcome::Done(_) => {
                self.summary.done += 1;
                // A file that consists only of holes can claim the maximum size.
                self.summary.bytes = self.summary.bytes.saturating_add(file.geometry.len());
            }
            Outcome::Same => self.summary.same += 1,
            Outcome::DryRun => self.summary.would += 1,
            Outcome::Failed(_) => self.summary.failed += 1,
        }
        self.syncs.remove(&(file.home, number));
        self.send_result(file.home, number, outcome);
    }

    fn send_result(&mut self, lane: LaneId, number: FileNumber, outcome: Outcome) {
        if self.ends.len() > 2 * self.settings.window.files as usize {
            self.ends.pop_front();
        }
        self.ends.push_back((number, outcome.clone()));
        self.ended.insert(number.0);
        if self.ended.pieces() > RUNS_HELD_MAX {
            // Numbers that were never announced, because their files failed at the source, leave
            // gaps. Close the oldest gap.
            let gap = self.ended.first_gap(0);
            let next = self.ended.iter().map(|run| run.0).find(|start| *start > gap).unwrap_or(gap);
            self.ended.unite(&Runs::of(gap, next));
        }
        self.post(lane, Message::FileDone(Box::new(FileDone { number, outcome })));
    }

    /// Marks a file as failed at the sink. Informs the source; data that still arrives for the file
    /// is discarded.
    fn fail(&mut self, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        self.fail_from(false, number, reason, out);
    }

    /// Marks a file as failed, at the sink or because the source reports it.
    fn fail_from(&mut self, by_source: bool, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        if self.files.contains_key(&number) {
            self.finish(number, Outcome::Failed(reason.clone()));
            out.push(Command::Failed { file: number, reason, by_source });
            out.push(Command::Abandon { file: number });
        }
    }

    /// Ends the session before its work is done. Informs the source if `tell` is set.
    fn end_early(&mut self, reason: Reason, tell: bool, out: &mut Vec<Command>) {
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

    fn clear_files(&mut self) {
        self.files.clear();
        (self.facts, self.entries) = (0, 0);
        self.syncs.clear();
    }

    /// Counts the entries of a file. Returns their number.
    fn count_entries(&mut self, number: FileNumber) -> usize {
        let Some(file) = self.files.get_mut(&number) else { return 0 };
        let entries = file.entries();
        self.entries = self.entries - file.counted_entries + entries;
        file.counted_entries = entries;
        entries
    }

    /// Fails the file of an event if it, or all files together, have too many entries.
    fn bound_entries(&mut self, number: FileNumber, out: &mut Vec<Command>) {
        if self.count_entries(number) > STATE_ENTRIES_MAX / 4 || self.entries > STATE_ENTRIES_MAX {
            self.fail(number, Reason::new(Why::Protocol, "too many of its objects are incomplete"), out);
        }
    }

    fn over(&mut self) {
        self.phase = Phase::Over;
        self.clear_files();
        self.ends.clear();
        for lane in self.lanes.values_mut() {
            lane.outbox.clear();
            lane.receiving = None;
        }
    }
}
