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

use super::frames::{Frames, Outbox};
use super::hashing::Recipe;
use super::meeting::Asked;
use super::reason::reason;
use super::report::{Failure, Watch};
use super::session::Session;
use super::{Joined, More, Outcome};
use haul_digest::{Digest, Hasher};
use haul_model::{Object, RelPath};
use haul_proto::source::{Command, Event, Settings};
use haul_proto::{FileNumber, JobOptions, LaneId, Outcome as Ended, Reason, Source, Why};
use haul_sys::transfer;
use held::Held;
use sending::Sender;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use walk::{Directories, Offering};

/// Bytes that a second look reads at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// What all threads of the source share.
pub(super) struct Side<'a> {
    session: Session<'a, Source>,
    files: Mutex<HashMap<FileNumber, Arc<Held>>>,
    directories: Mutex<Directories>,
    options: JobOptions,
    recipe: Recipe,
    /// Whether digests follow when the bytes were read again.
    states_later: bool,
    walk_errors: AtomicU64,
    /// Where the names of a LIST are looked up.
    roots: Vec<Root>,
    /// What is left out is not deleted either.
    filter: Filter,
}

/// Sends all that `tree` meets by these lanes, and tells how it ended.
pub(super) fn run(
    settings: Settings,
    joined: Vec<Joined>,
    more: More<'_>,
    tree: Tree,
    watch: &Watch<'_>,
) -> Outcome {
    let options = settings.options.clone();
    let side = &Side {
        session: Session::new(Source::new(settings), watch),
        files: Mutex::default(),
        directories: Mutex::default(),
        recipe: Recipe::of(&options),
        states_later: options.verify == haul_proto::Verify::BlockPipeline,
        options,
        walk_errors: AtomicU64::new(0),
        roots: tree.roots(),
        filter: tree.filter().clone(),
    };
    std::thread::scope(|scope| {
        let begin = |lane: Joined| {
            side.session.lane_begins(&lane);
            side.handle(Event::LaneUp(lane.id));
            let Joined { id, frames, outbox, .. } = lane;
            scope.spawn(move || side.write(id, outbox));
            scope.spawn(move || side.read(id, frames));
        };
        joined.into_iter().for_each(&begin);
        if side.options.verify.reads_twice() {
            scope.spawn(|| side.check());
        }
        scope.spawn(|| Offering::new(side, tree).run());
        side.session.keep_time(more, begin, |stop| side.handle(stop.map_or(Event::Tick, Event::Stop)));
    });
    let (end, spent) = side.session.close();
    let traffic = side.session.spent.traffic();
    Outcome::of(end, side.walk_errors.load(Ordering::Relaxed), spent, traffic)
}

impl Side<'_> {
    /// Tells the machine what happened, and does what it says.
    fn handle(&self, event: Event) {
        let mut commands = Vec::new();
        self.session.meeting.with(|machine, now| machine.handle(event, now, &mut commands));
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
                        self.session.tally.settled(bytes);
                    }
                }
            }
            Command::Had { .. } => {}
            Command::FileDone { file, outcome, here } => self.file_done(file, &outcome, here),
            Command::Judge { batch, directory, names } => {
                let gone = names.iter().map(|name| self.is_gone(&directory, name)).collect();
                self.handle(Event::Judged { batch, gone });
            }
            Command::DropLane { lane } => self.session.abort(lane),
            Command::Ended(end) => self.session.ended(end),
        }
    }

    fn bytes_of(&self, held: &Held, objects: &haul_proto::Runs) -> u64 {
        let (object, size) = (self.options.object.bytes(), held.item.facts.size);
        objects
            .iter()
            .map(|(start, end)| end.saturating_mul(object).min(size) - start.saturating_mul(object).min(size))
            .sum()
    }

    fn file_done(&self, number: FileNumber, outcome: &Ended, here: bool) {
        let held = self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let Some(held) = held else { return };
        match outcome {
            Ended::Failed(reason) => {
                let path = if here { held.item.shown.as_bytes().to_vec() } else { held.item.path.clone() };
                self.session.report.failed(&Failure { path, here, reason: reason.clone() });
            }
            outcome => {
                let counted = held.counted.lock().unwrap_or_else(PoisonError::into_inner).0;
                if held.item.facts.kind == haul_sys::FileKind::Regular {
                    self.session.tally.settled(held.item.facts.size.saturating_sub(counted));
                }
                self.session.report.ended(&held.item.path, outcome);
            }
        }
        self.session.tally.ended();
        self.directories().one_ended(held.within);
        self.session.meeting.wake();
    }

    /// Writes on a lane until the machine has nothing more for it.
    fn write(&self, lane: LaneId, outbox: Outbox) {
        if Sender::new(self, lane, outbox).run().is_err() {
            self.session.abort(lane);
            self.handle(Event::LaneLost(lane));
        }
        self.session.worker_ended();
    }

    /// Reads a lane until its end.
    fn read(&self, lane: LaneId, mut frames: Frames) {
        loop {
            match frames.next() {
                Ok(Some(message)) => self.handle(Event::Message(lane, message)),
                Ok(None) => break,
                Err(error) => {
                    self.session.tell_lost(lane, &error);
                    self.session.abort(lane);
                    break;
                }
            }
        }
        self.handle(Event::LaneLost(lane));
        self.session.worker_ended();
    }

    /// Reads again what the rival modes hash after sending.
    fn check(&self) {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let next = self.session.meeting.ask(|machine, now| match machine.next_check() {
                Some(check) => Asked::Answer(Some(check)),
                None if machine.is_over() => Asked::Answer(None),
                None => Asked::Wait(now + Duration::from_secs(1)),
            });
            let Some(check) = next else { return };
            let size = check.facts.size();
            let opened =
                self.held(check.facts.number).ok_or(Reason::from(Why::Stopped)).and_then(|held| held.open());
            let digest = opened.and_then(|file| match check.object {
                Some(object) => self.hash_object(&file, object, size, &mut block),
                None => self.hash_file(&file, size, &mut block),
            });
            self.handle(Event::Checked { check, digest });
        }
    }

    /// The digest of an object as the file has it now.
    fn hash_object(
        &self,
        file: &OwnedFd,
        object: Object,
        size: u64,
        block: &mut [u8],
    ) -> Result<Digest, Reason> {
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
            self.session.spent.storage.add(begin.elapsed());
            let got = got.map_err(|error| reason(&format!("cannot read at byte {at}"), &error))?;
            if got < len {
                return Err(Why::Changed.into());
            }
            let begin = Instant::now();
            each(&block[..len]);
            self.session.spent.hashing.add(begin.elapsed());
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

    fn held(&self, number: FileNumber) -> Option<Arc<Held>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).get(&number).map(Arc::clone)
    }

    fn directories(&self) -> MutexGuard<'_, Directories> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
