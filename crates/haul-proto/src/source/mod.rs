//! State machine of the side that has the files.
//! ```text
//!  walk --offer--> [window] --next(lane)--> worker of the lane --frames--> sink
//!                     ^                        | WholeSent, ObjectSent, ...
//!                     +------- handle ---------+------- Message(lane, ...) from the lane's reader
//! ```
//!
//! The engine keeps one [`Source`] behind a lock. The code that walks the tree
//! [`offers`](Source::offer) files while there is [`capacity`](Source::room). Each lane has a
//! worker that requests work by [`Source::next`], does it, and reports by [`Source::handle`]. Each
//! lane also has a reader that passes on the messages of the sink. After each call, waiting threads
//! may have new work.

mod comparing;
mod events;
mod file;
mod pick;
mod react;

pub use events::{Availability, Check, Command, Event, Settings, Work};

use crate::limits::{RUNS_HELD_MAX, UNREAD_AHEAD};
use crate::{
    CONTROL, Close, End, FileKind, FileNumber, Flaw, LaneId, Message, NewFile, Outcome, Reason, Runs,
    Summary, Unread, Update, WalkEnd, Why,
};
use file::{Closing, File, Stage};
use haul_model::{Level, PATH_BYTES_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a path in the reason for the end of a session, in bytes. A longer one is cut.
const SHOWN_PATH_BYTES_MAX: usize = 256;

/// State machine of the source. Its memory depends on the window, not on the number of files.
#[derive(Debug)]
pub struct Source {
    settings: Settings,
    lanes: BTreeMap<LaneId, Lane>,
    files: BTreeMap<FileNumber, File>,
    next_number: u64,
    /// Size in bytes of the metadata of `files`.
    facts: u64,
    /// Size in bytes of the objects that are given out and not settled.
    bytes_in_flight: u64,
    queues: Queues,
    /// Files that failed, or that the update rule left at the sink without a check of their bytes.
    /// No additional name is sent as a link to them.
    left: Runs,
    /// Successor of each left file, by its number: the additional name that was sent as a file
    /// instead. The remaining names link to it.
    successors: BTreeMap<u64, (FileNumber, Box<[u8]>)>,
    phase: Phase,
    walk: Walk,
    /// Number of LISTs that the engine is checking.
    lists_in_check: u32,
    /// Last failure of a file for which the sink has no space, and the number of these files.
    shortage: Option<(Reason, u64)>,
    summary: Summary,
}

/// Files by the event that they wait for. A file that has left the state is skipped at its turn.
#[derive(Debug, Default)]
struct Queues {
    /// To be announced.
    fresh: VecDeque<FileNumber>,
    /// With objects to be sent again.
    again: BTreeSet<FileNumber>,
    /// To be hashed, so that the sink can compare them.
    compare: BTreeSet<FileNumber>,
    /// Sending objects now, in turn.
    active: VecDeque<FileNumber>,
    /// Ready to send objects once a lane is free.
    ready: VecDeque<FileNumber>,
    /// To be closed.
    close: BTreeSet<FileNumber>,
    /// To be read again.
    checks: VecDeque<Check>,
}

#[derive(Debug)]
struct Lane {
    last_received: Duration,
    sent: Duration,
    outbox: VecDeque<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Files are sent.
    Running,
    /// WALK_END was sent. The sink may delete names, and then sends BYE.
    Ending,
    /// The session is over.
    Over,
}

#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    is_ended: bool,
    errors: u64,
    offered: u64,
    /// Number of offered files that failed before they were announced.
    unannounced: u64,
    /// True if names stay because nothing was sent beneath their operand.
    is_guarded: bool,
}

impl Source {
    /// Creates a source without lanes and files.
    pub fn new(settings: Settings) -> Source {
        Source {
            settings,
            lanes: BTreeMap::new(),
            files: BTreeMap::new(),
            next_number: 0,
            facts: 0,
            bytes_in_flight: 0,
            queues: Queues::default(),
            left: Runs::default(),
            successors: BTreeMap::new(),
            phase: Phase::Running,
            walk: Walk::default(),
            lists_in_check: 0,
            shortage: None,
            summary: Summary::default(),
        }
    }

    /// Returns the number of files that can be offered now. It is 0 while the window is full; the
    /// walk waits then. It stays 0 once the sink has no space: the session ends with the files in
    /// progress.
    pub fn capacity(&self) -> usize {
        if self.shortage.is_some() || self.phase != Phase::Running || self.facts >= self.settings.window.facts
        {
            return 0;
        }
        (self.settings.window.files as usize).saturating_sub(self.files.len())
    }

    /// Returns the number of files that can be offered when none is in progress.
    pub fn capacity_max(&self) -> usize {
        self.settings.window.files as usize
    }

    /// Offers a file and returns its number. The machine sets the number and the flags.
    ///
    /// A directory is offered after everything in it is done ([`Command::FileDone`]), so that its
    /// times are kept. For a hard link, `first` is the file of which it is an additional name. The
    /// link is sent when that file has arrived. If that file fails, or the update rule keeps the
    /// existing file of the sink, the name is sent as a file of its own. The caller does not offer
    /// an additional name of a file that [is left](Source::is_left).
    ///
    /// # Errors
    /// Returns [`Flaw::TooLong`] if the names or attributes of the file exceed the limits of the
    /// wire. The file is not sent and counts as unread.
    ///
    /// # Panics
    /// Panics without [`Source::capacity`], or after [`Event::WalkEnded`], which are caller errors.
    pub fn offer(&mut self, mut facts: NewFile, first: Option<FileNumber>) -> Result<FileNumber, Flaw> {
        assert!(!self.walk.is_ended, "nothing is offered after the walk's end");
        let number = FileNumber(self.next_number);
        facts.number = number;
        facts.again = false;
        facts.whole = self.goes_whole(&facts);
        let message = Message::NewFile(Box::new(facts));
        if let Err(flaw) = message.check() {
            if let Message::NewFile(facts) = message {
                self.unread(facts.path, Reason::new(Why::TooLarge, &flaw.to_string()));
            }
            return Err(flaw);
        }
        let Message::NewFile(facts) = message else { unreachable!("the message was created above") };
        assert!(
            self.capacity() > 0 || self.phase == Phase::Over,
            "files are offered while the window has space"
        );
        self.next_number += 1;
        self.walk.offered += 1;
        self.facts += facts.facts_len();
        let mut file = File::new(*facts, self.settings.options.object);
        match first.and_then(|first| self.files.get_mut(&first)) {
            Some(first) => {
                first.links.push(number);
                file.stage = Stage::Linked;
            }
            None => self.queues.fresh.push_back(number),
        }
        self.files.insert(number, file);
        Ok(number)
    }

    /// Returns true if this file failed, or if the update rule kept the existing file of the sink
    /// without a comparison.
    /// An additional name of such a file is sent as a file of its own, because the existing file
    /// may be a different one.
    pub fn is_left(&self, number: FileNumber) -> bool {
        self.left.contains(number.0)
    }

    /// Returns the file that replaces a [left](Source::is_left) file for its additional names.
    ///
    /// # Errors
    /// Returns the last file in the chain of successors if that file is left too and has no
    /// successor.
    pub fn successor(&self, left: FileNumber) -> Result<(FileNumber, &[u8]), FileNumber> {
        let mut last = left;
        while let Some((number, path)) = self.successors.get(&last.0) {
            if !self.is_left(*number) {
                return Ok((*number, path));
            }
            last = *number;
        }
        Err(last)
    }

    /// Records that the additional name `path` is sent as file `number`, in place of a
    /// [left](Source::is_left) file.
    pub fn succeed(&mut self, left: FileNumber, number: FileNumber, path: &[u8]) {
        if self.successors.len() >= RUNS_HELD_MAX {
            // Additional names of the removed file are sent as files of their own. This costs bytes
            // but no data.
            self.successors.pop_first();
        }
        self.successors.insert(left.0, (number, path.into()));
    }

    /// Counts an entry that cannot be listed or read, and reports it to the sink.
    fn unread(&mut self, path: Box<[u8]>, reason: Reason) {
        self.walk.errors += 1;
        self.summary.unread += 1;
        self.report_unread(path, reason);
    }

    /// Fails a file that could not be opened before it was announced, and reports it to the sink.
    fn fail_unannounced(&mut self, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        if let Some(file) = self.files.get(&number) {
            let path = file.facts.path.clone();
            self.walk.unannounced += 1;
            self.report_unread(path, reason.clone());
        }
        self.finish(number, Outcome::Failed(reason), true, out);
    }

    /// Reports an entry that is not announced to the sink, unless too many messages wait on the
    /// control lane. WALK_END counts it in any case.
    fn report_unread(&mut self, mut path: Box<[u8]>, reason: Reason) {
        if path.len() > PATH_BYTES_MAX {
            path = path[..PATH_BYTES_MAX].into();
        }
        let is_behind = self.lanes.get(&CONTROL).is_none_or(|lane| lane.outbox.len() >= UNREAD_AHEAD);
        if self.phase == Phase::Running && !is_behind {
            self.post(CONTROL, Message::Unread(Box::new(Unread { path, reason })));
        }
    }

    /// Returns true if a file is sent immediately, without an answer: it has no bytes, or one
    /// object that the sink wants in any case.
    fn goes_whole(&self, facts: &NewFile) -> bool {
        let options = &self.settings.options;
        let geometry = haul_model::Geometry::new(haul_model::ByteLen(facts.size()), options.object);
        let has_holes = matches!(&facts.kind, FileKind::File { holes, .. } if !holes.is_empty());
        let is_wanted = options.update == Update::Always && !options.dry_run;
        let is_small = geometry.count() <= 1 && facts.size() <= self.settings.window.bytes;
        let is_new = is_wanted && !self.settings.awaits_answers;
        !facts.is_regular() || (is_new && is_small && !has_holes && !options.verify.reads_twice())
    }

    /// Returns the totals so far, as reported by the sink.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Returns the number of bytes that the sink has reported as present: those of finished files,
    /// and those of objects that need not be sent again. The number decreases if the sink requests
    /// an object again.
    pub fn settled_bytes(&self) -> u64 {
        self.summary.bytes + self.files.values().map(|file| file.bytes_of(&file.settled)).sum::<u64>()
    }

    /// Returns the number of files in progress: offered and not done. The window limits it.
    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// Returns true if the session is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns the level from which an object need not be sent again.
    fn flight_level(&self) -> Level {
        let options = &self.settings.options;
        let by_object = options.unit == crate::Unit::Object && options.verify != crate::Verify::None;
        if by_object { Level::Verified } else { Level::Received }
    }

    /// Queues a message on the lane, if the lane is open.
    fn post(&mut self, lane: LaneId, message: Message) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.outbox.push_back(message);
        }
    }

    /// Removes a file and reports its result. Links that waited for the file are announced. If the
    /// file failed or was left, the first of them is sent as a file of its own.
    fn finish(&mut self, number: FileNumber, outcome: Outcome, here: bool, out: &mut Vec<Command>) {
        let Some(file) = self.files.remove(&number) else { return };
        self.facts -= file.facts.facts_len();
        self.bytes_in_flight -= file.bytes_in_flight();
        self.queues.again.remove(&number);
        self.queues.close.remove(&number);
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
        self.walk.errors += u64::from(here);
        let is_lost = matches!(outcome, Outcome::Failed(_));
        let is_left = outcome == Outcome::Same && self.leaves_unseen() && !file.has_told;
        out.push(Command::FileDone { file: number, outcome, here });
        if is_left || is_lost {
            self.leave(number);
            return self.separate(&file.facts, &file.links);
        }
        for link in file.links {
            if let Some(waiting) = self.files.get_mut(&link) {
                waiting.stage = Stage::Fresh;
                self.queues.fresh.push_back(link);
            }
        }
    }

    /// Returns true if the update rule keeps files by names and times alone. The sink compares the
    /// digest of a file that it received in an earlier run of the job.
    fn leaves_unseen(&self) -> bool {
        matches!(self.settings.options.update, Update::Missing | Update::Newer)
    }

    fn leave(&mut self, number: FileNumber) {
        self.left.insert(number.0);
        if self.left.pieces() > RUNS_HELD_MAX {
            // The files in the gap count as left too, and their additional names are sent as files.
            // This costs bytes but no data.
            let first = self.left.iter().next().map_or(0, |run| run.1);
            let next = self.left.iter().nth(1).map_or(first, |run| run.0);
            self.left.unite(&Runs::of(first, next));
        }
    }

    /// Sends the additional names of a file that failed or was left at the sink. The first name is
    /// sent as a file, the others as links to it.
    fn separate(&mut self, left: &NewFile, links: &[FileNumber]) {
        let Some((&first, rest)) = links.split_first() else { return };
        let Some(link) = self.files.remove(&first) else { return };
        let path = link.facts.path.clone();
        self.succeed(left.number, first, &path);
        self.facts -= link.facts.facts_len();
        let mut facts = NewFile { number: first, path: path.clone(), again: false, ..left.clone() };
        facts.whole = self.goes_whole(&facts);
        self.facts += facts.facts_len();
        let mut file = File::new(facts, self.settings.options.object);
        file.links = rest.to_vec();
        self.files.insert(first, file);
        self.queues.fresh.push_back(first);
        for number in rest {
            let Some(link) = self.files.get_mut(number) else { continue };
            self.facts -= link.facts.facts_len();
            let kind = FileKind::HardLink { first: path.clone() };
            link.facts = Arc::new(NewFile { kind, ..NewFile::clone(&link.facts) });
            self.facts += link.facts.facts_len();
        }
    }

    /// Marks a file as failed at the source. From then on only a FILE_CLOSE with the reason is sent
    /// for it.
    fn fail(&mut self, number: FileNumber, reason: Reason) {
        let Some(file) = self.files.get_mut(&number) else { return };
        if file.failure.is_none() {
            file.failure = Some(reason);
            file.again = Runs::default();
        }
        self.queues.again.remove(&number);
        self.requeue(number);
    }

    /// Puts a file into the queues of its new state after a change.
    fn requeue(&mut self, number: FileNumber) {
        let by_file_twice = self.reads_files_twice();
        let Some(file) = self.files.get_mut(&number) else { return };
        if file.next_again().is_some() {
            self.queues.again.insert(number);
        }
        if file.next_hashed().is_some() {
            self.queues.compare.insert(number);
        }
        if !file.is_all_sent() {
            return;
        }
        if let Some(reason) = &file.failure {
            let said =
                matches!(&file.closing, Closing::Sent(Close::Failed(_)) | Closing::Ready(Close::Failed(_)));
            if !said {
                file.closing = Closing::Ready(Close::Failed(reason.clone()));
            }
        }
        match &file.closing {
            Closing::Open if by_file_twice && file.root.is_none() => {
                file.closing = Closing::Checking;
                let check = Check { facts: file.facts.clone(), attempt: file.attempt, object: None };
                self.queues.checks.push_back(check);
            }
            Closing::Open | Closing::Ready(_) => {
                self.queues.close.insert(number);
            }
            Closing::Checking | Closing::Taken(_) | Closing::Sent(_) => {}
        }
    }

    fn reads_files_twice(&self) -> bool {
        let options = &self.settings.options;
        options.verify.reads_twice() && options.unit == crate::Unit::File
    }

    /// Handles a file for which the sink has no space. Files that were not announced fail with it.
    fn run_short(&mut self, number: FileNumber, reason: Reason, out: &mut Vec<Command>) {
        let path = self.files.get(&number).map(|file| file.facts.path.clone()).unwrap_or_default();
        let reason = reason.of_file(&path[..path.len().min(SHOWN_PATH_BYTES_MAX)]);
        self.finish(number, Outcome::Failed(reason.clone()), false, out);
        let is_waiting = |file: &File| matches!(file.stage, Stage::Fresh | Stage::Linked);
        let waiting: Vec<FileNumber> =
            self.files.iter().filter(|(_, file)| is_waiting(file)).map(|(number, _)| *number).collect();
        let (_, count) = self.shortage.get_or_insert((reason.clone(), 0));
        *count += 1 + waiting.len() as u64;
        let count = *count;
        self.shortage = Some((reason.clone(), count));
        for number in waiting {
            self.finish(number, Outcome::Failed(reason.clone()), false, out);
        }
    }

    /// Ends the session after a shortage, once no file is in progress.
    fn end_if_short(&mut self, out: &mut Vec<Command>) {
        if self.phase != Phase::Running || !self.files.is_empty() {
            return;
        }
        if let Some((mut reason, count)) = self.shortage.take() {
            reason.append(&match count {
                1 => "1 file failed".to_owned(),
                count => format!("{count} files failed"),
            });
            self.end_early(reason, true, out);
        }
    }

    /// Sends WALK_END when every file was announced and answered.
    fn end_if_done(&mut self) {
        if self.phase != Phase::Running || !self.walk.is_ended || !self.files.is_empty() {
            return;
        }
        self.phase = Phase::Ending;
        let Walk { errors, offered, unannounced, .. } = self.walk;
        let unread = self.summary.unread + unannounced;
        let delete = self.settings.options.delete && errors == 0;
        self.post(CONTROL, Message::WalkEnd(WalkEnd { files: offered, errors, unread, delete }));
    }

    /// Ends the session before its work is done. Informs the sink if `tell` is set.
    fn end_early(&mut self, reason: Reason, tell: bool, out: &mut Vec<Command>) {
        if self.phase == Phase::Over {
            return;
        }
        self.over();
        if tell {
            let bye = crate::Bye { reason: Some(reason.clone()), summary: self.summary, times: None };
            self.post(CONTROL, Message::Bye(Box::new(bye)));
        }
        out.push(Command::Ended(End::Broken { reason, summary: self.summary }));
    }

    fn over(&mut self) {
        self.phase = Phase::Over;
        self.files.clear();
        self.queues = Queues::default();
        self.facts = 0;
        self.bytes_in_flight = 0;
        self.lanes.values_mut().for_each(|lane| lane.outbox.clear());
    }
}
