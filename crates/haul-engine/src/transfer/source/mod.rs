//! The side that has the files: a walk offers them, and the worker of each lane sends what the machine says.

mod facts;
mod filter;
mod held;
mod sending;
mod tree;
mod walk;

pub use filter::{Filter, FilterError, Rule};
pub(super) use tree::{Operand, Tree};

use tree::Root;

use super::frames::{FrameError, Frames, Outbox};
use super::hashing::Recipe;
use super::meeting::{Asked, Meeting};
use super::reason::reason;
use super::report::{Failure, Report, Tally, Watch};
use super::spent::Clocks;
use super::{Joined, More, Outcome};
use haul_digest::{Digest, Hasher};
use haul_model::{Object, RelPath};
use haul_net::LaneControl;
use haul_proto::source::{Command, Event, Settings};
use haul_proto::{End, FileNumber, JobOptions, LaneId, Outcome as Ended, Reason, Source, Why};
use haul_sys::transfer;
use held::Held;
use sending::Sender;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use walk::{Directories, Offering};

/// Bytes that a second look reads at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// What all threads of the source share.
pub(super) struct Side<'a> {
    meeting: Meeting<Source>,
    files: Mutex<HashMap<FileNumber, Arc<Held>>>,
    directories: Mutex<Directories>,
    /// How to give each lane up.
    lanes: Mutex<HashMap<LaneId, LaneControl>>,
    options: JobOptions,
    recipe: Recipe,
    /// Whether digests follow when the bytes were read again.
    states_later: bool,
    spent: Clocks,
    walk_errors: AtomicU64,
    stop: &'a AtomicBool,
    tally: &'a Tally,
    report: &'a dyn Report,
    /// Where the names of a LIST are looked up.
    roots: Vec<Root>,
    /// What is left out is not deleted either.
    filter: Filter,
    end: Mutex<Option<End>>,
    threads: AtomicU64,
}

/// Sends all that `tree` meets by these lanes, and tells how it ended.
pub(super) fn run(settings: Settings, joined: Vec<Joined>, more: More<'_>, tree: Tree, watch: &Watch<'_>) -> Outcome {
    let options = settings.options.clone();
    let side = Side {
        meeting: Meeting::new(Source::new(settings)),
        files: Mutex::default(),
        directories: Mutex::default(),
        lanes: Mutex::default(),
        recipe: Recipe::of(&options),
        states_later: options.verify == haul_proto::Verify::BlockPipeline,
        options,
        spent: Clocks::default(),
        walk_errors: AtomicU64::new(0),
        stop: watch.stop,
        tally: watch.tally,
        report: watch.report,
        roots: tree.roots(),
        filter: tree.filter().clone(),
        end: Mutex::default(),
        threads: AtomicU64::new(0),
    };
    let side = &side;
    std::thread::scope(|scope| {
        let begin = |lane: Joined| {
            side.lanes().insert(lane.id, lane.control.clone());
            side.handle(Event::LaneUp(lane.id));
            side.threads.fetch_add(2, Ordering::Relaxed);
            let Joined { id, frames, outbox, .. } = lane;
            scope.spawn(move || {
                side.write(id, outbox);
                side.thread_ended();
            });
            scope.spawn(move || {
                side.read(id, frames);
                side.thread_ended();
            });
        };
        joined.into_iter().for_each(&begin);
        if side.options.verify.reads_twice() {
            scope.spawn(|| side.check());
        }
        scope.spawn(|| Offering::new(side, tree).run());
        side.keep_time(more, begin);
    });
    for control in side.lanes().values() {
        side.spent.add_lane(&control.stats());
    }
    let end = side.end.lock().unwrap_or_else(PoisonError::into_inner).take();
    Outcome::of(end, side.walk_errors.load(Ordering::Relaxed), side.spent.spent())
}

impl Side<'_> {
    /// Tells the machine what happened, and does what it says.
    fn handle(&self, event: Event) {
        let mut commands = Vec::new();
        self.meeting.with(|machine, now| machine.handle(event, now, &mut commands));
        for command in commands {
            self.obey(command);
        }
    }

    fn obey(&self, command: Command) {
        match command {
            Command::Synced { file, level, objects } => {
                if let Some(held) = self.held(file) {
                    let mut counted = held.counted.lock().unwrap_or_else(PoisonError::into_inner);
                    // An object is counted when it reaches its first level.
                    if *counted.1.get_or_insert(level) == level {
                        let bytes = self.bytes_of(&held, &objects).min(held.item.facts.size - counted.0);
                        counted.0 += bytes;
                        self.tally.settled(bytes);
                    }
                }
            }
            Command::Had { .. } => {}
            Command::FileDone { file, outcome, here } => self.file_done(file, &outcome, here),
            Command::Judge { batch, directory, names } => {
                let gone = names.iter().map(|name| self.is_gone(&directory, name)).collect();
                self.handle(Event::Judged { batch, gone });
            }
            Command::DropLane { lane } => {
                if let Some(control) = self.lanes().get(&lane) {
                    control.abort();
                }
            }
            Command::Ended(end) => {
                *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
                self.meeting.wake();
            }
        }
    }

    fn bytes_of(&self, held: &Held, objects: &haul_proto::Runs) -> u64 {
        let (object, size) = (self.options.object.bytes(), held.item.facts.size);
        objects.iter().map(|(start, end)| end.saturating_mul(object).min(size) - start.saturating_mul(object).min(size)).sum()
    }

    fn file_done(&self, number: FileNumber, outcome: &Ended, here: bool) {
        let held = self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let Some(held) = held else { return };
        match outcome {
            Ended::Failed(reason) => {
                let path = if here { held.item.shown.as_bytes().to_vec() } else { held.item.path.clone() };
                self.report.failed(&Failure { path, here, reason: reason.clone() });
            }
            outcome => {
                let counted = held.counted.lock().unwrap_or_else(PoisonError::into_inner).0;
                if held.item.facts.kind == haul_sys::FileKind::Regular {
                    self.tally.settled(held.item.facts.size.saturating_sub(counted));
                }
                self.report.ended(&held.item.path, outcome);
            }
        }
        self.tally.ended();
        self.directories().one_ended(held.within);
        self.meeting.wake();
    }

    /// Writes on a lane until the machine has nothing more for it.
    fn write(&self, lane: LaneId, outbox: Outbox) {
        if Sender::new(self, lane, outbox).run().is_err() {
            self.lost(lane);
        }
    }

    /// Reads a lane until its end.
    fn read(&self, lane: LaneId, mut frames: Frames) {
        loop {
            match frames.next() {
                Ok(Some(message)) => self.handle(Event::Message(lane, message)),
                Ok(None) => return self.handle(Event::LaneLost(lane)),
                Err(error) => {
                    self.tell_lost(lane, &error);
                    return self.lost(lane);
                }
            }
        }
    }

    fn tell_lost(&self, lane: LaneId, error: &FrameError) {
        if !self.is_ended() {
            let reason = Reason::new(Why::LanesLost, &error.to_string());
            self.report.failed(&Failure { path: format!("lane {}", lane.0).into_bytes(), here: true, reason });
        }
    }

    fn lost(&self, lane: LaneId) {
        if let Some(control) = self.lanes().get(&lane) {
            control.abort();
        }
        self.handle(Event::LaneLost(lane));
    }

    /// Reads again what the rival modes hash after sending.
    fn check(&self) {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let next = self.meeting.ask(|machine, now| match machine.next_check() {
                Some(check) => Asked::Answer(Some(check)),
                None if machine.is_over() => Asked::Answer(None),
                None => Asked::Wait(now + Duration::from_secs(1)),
            });
            let Some(check) = next else { return };
            let size = check.facts.size();
            let opened = self.held(check.facts.number).ok_or(Reason::from(Why::Stopped)).and_then(|held| held.open());
            let digest = opened.and_then(|file| match check.object {
                Some(object) => self.hash_object(&file, object, size, &mut block),
                None => self.hash_file(&file, size, &mut block),
            });
            self.handle(Event::Checked { check, digest });
        }
    }

    /// The digest of an object as the file has it now.
    fn hash_object(&self, file: &OwnedFd, object: Object, size: u64, block: &mut [u8]) -> Result<Digest, Reason> {
        let mut hash = self.recipe.object_again(object, size);
        self.each_block(file, (object.range.start.0, object.range.end.0), block, |bytes| hash.update(bytes))?;
        hash.finish().0.ok_or_else(|| Why::Internal.into())
    }

    /// The digest of a whole file as it is now.
    fn hash_file(&self, file: &OwnedFd, size: u64, block: &mut [u8]) -> Result<Digest, Reason> {
        let mut hasher = Hasher::new(self.recipe.algorithm());
        self.each_block(file, (0, size), block, |bytes| hasher.update(bytes))?;
        Ok(hasher.finish())
    }

    fn each_block(
        &self,
        file: &OwnedFd,
        (mut at, end): (u64, u64),
        block: &mut [u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Reason> {
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(block.len());
            let begin = Instant::now();
            let got = transfer::read_at(file, at, &mut block[..len]);
            self.spent.storage.add(begin.elapsed());
            let got = got.map_err(|error| reason(&format!("cannot read at byte {at}"), &error))?;
            if got < len {
                return Err(Why::Changed.into());
            }
            let begin = Instant::now();
            each(&block[..len]);
            self.spent.hashing.add(begin.elapsed());
            at += len as u64;
        }
        Ok(())
    }

    /// Whether the source does not have a name that the sink has. Only a clear answer is one.
    fn is_gone(&self, directory: &[u8], name: &[u8]) -> bool {
        let path = if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() };
        let Ok(path) = RelPath::new(&path) else { return false };
        let answers = || self.roots.iter().filter_map(|root| root.has(path.as_bytes()));
        !self.filter.may_leave_out(path.as_bytes()) && answers().next().is_some() && answers().all(|has| !has)
    }

    fn thread_ended(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
        self.meeting.wake();
    }

    /// Lets time pass for the machine, and takes further lanes, until the session is over.
    fn keep_time(&self, mut more: More<'_>, begin: impl Fn(Joined)) {
        let mut is_stopped = false;
        while !self.wait(TICK, &|| self.is_ended()) {
            while let Some(lane) = more.as_mut().and_then(|more| more()) {
                begin(lane);
            }
            if self.is_stopping() && !is_stopped {
                is_stopped = true;
                self.handle(Event::Stop(Reason::new(Why::Stopped, "the job was stopped")));
            } else {
                self.handle(Event::Tick);
            }
        }
        // The other side closes its ends as well; who does not is not waited for.
        let all_ended = || self.threads.load(Ordering::Relaxed) == 0;
        if !self.wait(PARTING, &all_ended) {
            self.lanes().values().for_each(LaneControl::abort);
        }
    }

    /// Waits until something holds, or for so long; says whether it holds.
    fn wait(&self, time: Duration, holds: &dyn Fn() -> bool) -> bool {
        let mut until = None;
        self.meeting.ask(move |machine, now| {
            let until = *until.get_or_insert(now + time);
            let holds = machine.is_over() && holds();
            if holds || now >= until { Asked::Answer(holds) } else { Asked::Wait(until) }
        })
    }

    fn held(&self, number: FileNumber) -> Option<Arc<Held>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).get(&number).map(Arc::clone)
    }

    fn directories(&self) -> MutexGuard<'_, Directories> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<LaneId, LaneControl>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_ended(&self) -> bool {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(250);

/// How long the other side has to close its ends when the session is over.
const PARTING: Duration = Duration::from_secs(5);
