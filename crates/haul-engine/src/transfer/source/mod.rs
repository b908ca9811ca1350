//! The source of a transfer: a walk offers the files, and the worker of each lane sends what the
//! state machine selects.

mod ahead;
mod details;
mod facts;
mod fates;
mod filter;
mod lane_sender;
mod offered_file;
mod tree;
mod walk;

pub(crate) use filter::any_rules;
pub use filter::{Filter, FilterError, Rule};
pub(super) use tree::{Operand, Tree, WalkStep, directories};

use details::WantedDetails;
pub(super) use facts::moment;
use fates::Fates;
use tree::Roots;

use super::file_hasher::FileHasher;
use super::hashing::{HashPlan, SentDigests};
use super::monitor::{Reply, WaitKey};
use super::reason::reason;
use super::report::{Failure, RunContext};
use super::session::{self, Serve, Session};
use super::{Joined, More, Outcome};
use crate::copy::quote;
use haul_digest::DigestKey;
use haul_net::{FrameError, FrameReader, FrameWriter, LaneError};
use haul_proto::source::{Command, Event, Settings};
use haul_proto::{
    FileKind, FileNumber, JobOptions, LaneId, Outcome as Ended, Reason, Role, Source, Update, Why,
};
use lane_sender::LaneSender;
use offered_file::{OfferedFile, OpenFile};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use walk::{Directories, Walker};

/// Limit on second reads of a file whose change time moves.
const REREADS_MAX: u32 = 3;

/// Maximum number of messages of a lane that are processed together.
const RECEIVE_BATCH_MAX: usize = 128;

/// State that all threads of the source share.
pub(super) struct SourceContext<'a> {
    session: Session<'a, Source>,
    files: Mutex<HashMap<FileNumber, Arc<OfferedFile>>>,
    directories: Mutex<Directories>,
    options: JobOptions,
    hash_plan: HashPlan,
    /// True if digests follow after the bytes were read again.
    sends_digests_later: bool,
    /// Operands in which the names of a LIST are looked up.
    roots: Roots,
    /// Answers to the sink's questions about what to delete.
    fates: Fates,
    /// Filter of the job. Excluded names are not deleted at the sink either.
    filter: Filter,
    /// True if the sink resumes an earlier run.
    resumes: bool,
}

/// Sends everything in `tree` over these lanes. Returns the outcome.
pub(super) fn run(
    settings: Settings,
    key: DigestKey,
    joined: Vec<Joined>,
    more: More<'_>,
    tree: Tree,
    run_context: &RunContext<'_>,
) -> Outcome {
    let (options, resumes) = (settings.options.clone(), settings.awaits_answers);
    // Without `--delete` the sink requests no look-ups.
    let roots = if options.delete { tree.roots() } else { Roots::default() };
    let context = &SourceContext {
        session: Session::new(Source::new(settings), run_context),
        files: Mutex::default(),
        directories: Mutex::default(),
        hash_plan: HashPlan::of(&options, key, run_context.receipt.is_some()),
        sends_digests_later: options.verify == haul_proto::Verify::BlockPipeline,
        options,
        roots,
        fates: Fates::default(),
        filter: tree.filter().clone(),
        resumes,
    };
    let (options, hash_plan) = (context.options.clone(), context.hash_plan.clone());
    let tree = tree.with_details(WantedDetails { options, hash_plan });
    std::thread::scope(|scope| {
        let begin = |lane: Joined| session::begin(context, scope, lane);
        joined.into_iter().for_each(&begin);
        if context.options.verify.reads_twice() {
            context.session.spawn(scope, || context.session.spent.cpu_wait.count(|| context.check()));
        }
        context
            .session
            .spawn(scope, || context.session.spent.cpu_wait.count(|| Walker::new(context, tree).run()));
        let tick = |stop: Option<Reason>| context.handle(stop.map_or(Event::Tick, Event::Stop));
        let hear = |lane: LaneId| context.handle(Event::Progress(lane));
        context.session.guard(|| context.session.run_timer(more, begin, hear, tick));
    });
    Outcome::of(Role::Source, &context.session)
}

impl Serve for SourceContext<'_> {
    type Machine = Source;

    fn session(&self) -> &Session<'_, Source> {
        &self.session
    }

    fn lane_begins(&self, lane: LaneId) {
        self.handle(Event::LaneUp(lane));
    }

    fn lane_ended(&self, lane: LaneId) {
        self.handle(Event::LaneLost(lane));
    }

    fn write(&self, lane: LaneId, outbox: Box<dyn FrameWriter>) -> Result<(), LaneError> {
        self.session.spent.cpu_wait.count(|| LaneSender::new(self, lane, outbox).run())
    }

    fn read(&self, lane: LaneId, mut frames: Box<dyn FrameReader>) -> Result<(), FrameError> {
        loop {
            // Process messages that arrived together in one step.
            let mut heard = Vec::new();
            let next = loop {
                match frames.next() {
                    Ok(Some(message)) => {
                        self.session.record_received(&message);
                        heard.push(Event::Message(lane, message));
                    }
                    end => break end.map(|_| false),
                }
                if heard.len() == RECEIVE_BATCH_MAX || !frames.has_next() {
                    break Ok(true);
                }
            };
            self.handle_all(heard);
            if !next? {
                return Ok(());
            }
        }
    }
}

impl SourceContext<'_> {
    /// Passes an event to the machine and executes its commands.
    fn handle(&self, event: Event) {
        self.handle_all([event]);
    }

    /// Passes several consecutive events to the machine and executes its commands.
    fn handle_all(&self, events: impl IntoIterator<Item = Event>) {
        let mut commands = Vec::new();
        self.session.monitor.update(|machine, now| {
            events.into_iter().for_each(|event| machine.handle(event, now, &mut commands));
        });
        for command in commands {
            self.execute(command);
        }
    }

    fn execute(&self, command: Command) {
        match command {
            Command::Synced { file, level, objects } => {
                if let Some(offered_file) = self.offered_file(file) {
                    let mut counted = offered_file.counted.lock();
                    // An object is counted when it reaches its first level.
                    if *counted.1.get_or_insert(level) == level {
                        let bytes = self
                            .bytes_of(&offered_file, &objects)
                            .min(offered_file.item.facts.size - counted.0);
                        counted.0 += bytes;
                        self.session.tally.settled(bytes);
                    }
                }
            }
            Command::AlreadyPresent { file, objects } => self.count_present(file, &objects),
            Command::Same { file, objects } => {
                if let Some(offered_file) = self.offered_file(file) {
                    self.count_reused(self.bytes_of(&offered_file, &objects));
                }
            }
            Command::FileDone { file, outcome, here } => self.file_done(file, &outcome, here),
            Command::FindMissing { batch, directory, names } => {
                let fates = names.iter().map(|name| self.fate(&directory, name)).collect();
                self.handle(Event::MissingFound { batch, fates });
            }
            Command::FindNames { batch, directory, from } => {
                let named = self.names_from(batch, &directory, from);
                self.handle(Event::NamesFound(named));
            }
            Command::DropLane { lane } => self.session.abort(lane),
            Command::Ended(end) => self.session.ended(end),
        }
    }

    /// Counts objects that an earlier run transferred and that need not be sent.
    fn count_present(&self, file: FileNumber, objects: &haul_proto::Runs) {
        let Some(offered_file) = self.offered_file(file) else { return };
        let mut counted = offered_file.counted.lock();
        // Objects reported after a lane was lost were transferred by this run.
        if *counted == (0, None) {
            counted.0 = self.bytes_of(&offered_file, objects);
            self.session.reused_bytes.fetch_add(counted.0, Ordering::Relaxed);
            self.session.tally.settled(counted.0);
        }
    }

    /// Counts the bytes of an object or file that is the same at the sink.
    fn count_reused(&self, bytes: u64) {
        if self.resumes && self.options.update == Update::Always {
            self.session.reused_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn bytes_of(&self, offered_file: &OfferedFile, objects: &haul_proto::Runs) -> u64 {
        let (object, size) = (self.options.object.bytes(), offered_file.item.facts.size);
        objects
            .iter()
            .map(|(start, end)| end.saturating_mul(object).min(size) - start.saturating_mul(object).min(size))
            .sum()
    }

    fn file_done(&self, number: FileNumber, outcome: &Ended, here: bool) {
        let offered_file = self.files.lock().remove(&number);
        let Some(offered_file) = offered_file else { return };
        match outcome {
            // The reason for the end of the session counts these files.
            Ended::Failed(reason) if !here && reason.why.is_shortage() => {}
            Ended::Failed(reason) => {
                let path = if here {
                    offered_file.item.shown.as_bytes().to_vec()
                } else {
                    offered_file.item.path.clone()
                };
                self.session.report.failed(&Failure { path, here, reason: reason.clone() });
            }
            outcome => {
                let counted = offered_file.counted.lock().0;
                if offered_file.item.facts.kind == haul_storage::FileKind::Regular {
                    if *outcome == Ended::Same {
                        self.count_reused(offered_file.item.facts.size);
                    }
                    self.session
                        .tally
                        .settled(offered_file.found.load(Ordering::Relaxed).saturating_sub(counted));
                }
                self.record_in_waybill(&offered_file, outcome);
                self.session.report.ended(&offered_file.item.path, outcome);
            }
        }
        self.session.tally.ended();
        let has_ended = self.directories().entry_ended(offered_file.parent);
        if has_ended {
            self.session.monitor.notify_key(WaitKey::Ends);
        }
    }

    /// Writes the waybill entry of a name that arrived.
    fn record_in_waybill(&self, offered_file: &OfferedFile, outcome: &Ended) {
        let Some(receipt) = self.session.receipt else { return };
        let kind = offered_file.kind.lock();
        let Some(kind) = &*kind else { return };
        let (path, stat) = (&offered_file.item.path, &offered_file.item.facts);
        match (outcome, kind) {
            (Ended::Done(level), FileKind::File { holes, .. }) => {
                let hash = offered_file.root.lock();
                receipt.file(path, stat, holes, *level, &hash, self.session.stop);
            }
            (Ended::Same, FileKind::File { .. }) => {
                if let Some(digest) = *offered_file.same.lock() {
                    receipt.same_digest(path, stat, digest);
                }
            }
            (Ended::Done(_), FileKind::HardLink { first }) => receipt.additional_name(path, stat, first),
            (Ended::Done(_), FileKind::Symlink { target }) => {
                receipt.name(path, stat, Some(OsStr::from_bytes(target).to_owned()));
            }
            (Ended::Done(_), _) => receipt.name(path, stat, None),
            _ => {}
        }
    }

    /// Hashes the parts of a file that were not sent but count for the waybill or the digest of the
    /// file. Calls `alive` periodically meanwhile.
    fn complete<E>(
        &self,
        offered_file: &OfferedFile,
        file: &OpenFile,
        file_hasher: &mut FileHasher<'_>,
        mut alive: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<(), Reason>, E> {
        let mut next = 0;
        loop {
            let missing = offered_file.root.lock().missing(next);
            let Some(object) = missing else { return Ok(Ok(())) };
            match file_hasher.late(file, object, offered_file.item.facts.size) {
                Ok(passed) => {
                    offered_file.root.lock().add_late(object, passed);
                }
                Err(reason) => return Ok(Err(reason)),
            }
            next = object.index.0 + 1;
            alive()?;
        }
    }

    /// Checks that the bytes that were sent of a file are one state of it. That is the case if the
    /// file is unchanged. If only the change time moved, the file is read again and must have the
    /// same bytes. Calls `alive` periodically meanwhile.
    fn unchanged<E>(
        &self,
        offered_file: &OfferedFile,
        file: &OpenFile,
        file_hasher: &mut FileHasher<'_>,
        mut alive: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<(), Reason>, E> {
        let OpenFile::Stored(stored) = file else { return Ok(Ok(())) };
        let storage = &self.session.spent.storage;
        let mut version = offered_file.version();
        for round in 0..=REREADS_MAX {
            match storage.time(|| file.is_unchanged(&version)) {
                // Bytes that are read again after sending are compared by their digest.
                Ok(is_unchanged) if is_unchanged || self.hash_plan.reads_twice() => return Ok(Ok(())),
                Ok(_) => {}
                Err(reason) => return Ok(Err(reason)),
            }
            if round == 0 && !offered_file.has_its_name() {
                let shown = quote(&offered_file.item.shown);
                self.session.report.note(&format!(
                    "{shown} was replaced or removed since it was sent: the receiver has the contents of the previous file"
                ));
            }
            // The next round detects each change that follows this call.
            match storage.time(|| stored.stat()) {
                Ok(now) => version.ctime = now.ctime,
                Err(error) => return Ok(Err(reason("cannot stat", &error))),
            }
            match self.is_as_sent(offered_file, file, file_hasher, &mut alive)? {
                Ok(true) => {}
                Ok(false) => return Ok(Err(Why::Changed.into())),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Err(Why::Changed.into()))
    }

    /// Reads a file again and compares it with the bytes that were sent.
    fn is_as_sent<E>(
        &self,
        offered_file: &OfferedFile,
        file: &OpenFile,
        file_hasher: &mut FileHasher<'_>,
        mut alive: impl FnMut() -> Result<(), E>,
    ) -> Result<Result<bool, Reason>, E> {
        let size = offered_file.item.facts.size;
        let root = offered_file.root.lock().clone();
        if root.is_serial() {
            return Ok(file_hasher.whole(file, size).map(|digest| Some(digest) == root.finish(size)));
        }
        let (mut sent, mut told) = (SentDigests::default(), SentDigests::default());
        for object in root.geometry().objects() {
            if root.sent().has(object.index) {
                match file_hasher.object(file, object, size) {
                    Ok(digest) => sent.add(object.index, Some(digest.as_bytes())),
                    Err(reason) => return Ok(Err(reason)),
                }
            } else if !root.told().has(object.index) {
                return Ok(Ok(false));
            }
            if root.told().has(object.index) {
                match file_hasher.keyed(file, object.range, |_| ()) {
                    Ok(digest) => told.add(object.index, Some(digest.as_bytes())),
                    Err(reason) => return Ok(Err(reason)),
                }
            }
            alive()?;
        }
        Ok(Ok(root.sent().is_same(&sent) && root.told().is_same(&told)))
    }

    /// Reads and hashes data again after sending, for the verification modes that do so.
    fn check(&self) {
        let mut file_hasher = self.file_hasher();
        loop {
            let next = self.session.monitor.ask(|machine, now| match machine.next_check() {
                Some(check) => Reply::Ready(Some(check)),
                None if machine.is_over() => Reply::Ready(None),
                None => Reply::Wait(WaitKey::Checks, now + Duration::from_secs(1)),
            });
            let Some(check) = next else { return };
            let size = check.facts.size();
            let digest = self.open(&check.facts).and_then(|(_, file)| match check.object {
                Some(object) => file_hasher.object(&file, object, size),
                None => file_hasher.whole(&file, size),
            });
            self.handle(Event::Checked { check, digest });
        }
    }

    fn file_hasher(&self) -> FileHasher<'_> {
        FileHasher::new(self.hash_plan.clone(), &self.session.spent, &self.session.over)
    }

    fn offered_file(&self, number: FileNumber) -> Option<Arc<OfferedFile>> {
        self.files.lock().get(&number).map(Arc::clone)
    }

    fn directories(&self) -> MutexGuard<'_, Directories> {
        self.directories.lock()
    }
}
