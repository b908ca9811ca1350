//! The sink of a transfer: the worker of each lane writes the received data, and the state machine
//! decides about it.

mod comparing;
mod deleting;
mod destination;
mod dirs;
mod ending;
mod expected;
mod incoming;
mod lane_receiver;
mod leftovers;
mod metadata;
mod names;
mod object_log;
mod partial_file;
mod policy;
mod resumed;
mod session_lock;
mod settling;
mod tasks;
mod update;

use super::hashing::HashPlan;
use super::monitor::{Reply, WaitKey};
use super::reason::reason;
use super::report::{Failure, RunContext};
use super::session::{self, Serve, Session};
use super::{Joined, More, Outcome};
use crate::hybrid::HybridThreshold;
use crate::settle::DeviceSyncs;
use deleting::Sweeping;
pub(super) use destination::Destination;
use haul_digest::DigestKey;
use haul_model::{ByteLen, Geometry, Level, RelPath, format_size};
use haul_net::{FrameError, FrameReader, FrameWriter, LaneError};
use haul_proto::sink::{Command, Event, Outgoing, Settings, Unfinished, Verdict};
use haul_proto::{
    Close, FileKind, FileNumber, JobOptions, LaneId, Message, NewFile, Outcome as Ended, Reason, Role, Runs,
    Sink, Update, Verify, Why,
};
use haul_storage::{Stat, Tag};
use incoming::IncomingFile;
use lane_receiver::LaneReceiver;
pub use leftovers::forget;
use metadata::MetadataWriter;
pub(super) use object_log::{SinkLog, SinkLogConfig};
use parking_lot::{Mutex, MutexGuard};
pub use policy::SinkPolicy;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope};
use std::time::Instant;
use tasks::{Compare, Settle, Tasks};
use update::{Decision, decide};

/// Maximum number of messages that are taken together to be sent.
const SEND_BATCH_MAX: usize = 128;

/// State that all threads of the sink share.
pub(super) struct SinkContext<'a> {
    session: Session<'a, Sink>,
    destination: Destination,
    metadata_writer: MetadataWriter,
    files: Mutex<HashMap<FileNumber, Arc<IncomingFile>>>,
    /// Size in bytes of the files that ended incomplete and are kept for the next run.
    kept_bytes: AtomicU64,
    /// First failure of a file for which there is no space, and the number of these failures.
    shortage: Mutex<Option<(Failure, u64)>>,
    tasks: Tasks,
    options: JobOptions,
    hash_plan: HashPlan,
    hybrid: HybridThreshold,
    /// True once the warning about read-back from the page cache was reported.
    cache_warning_printed: AtomicBool,
    device_syncs: DeviceSyncs,
    /// Directories whose sync failed, by device and inode, with the reason.
    dir_failures: Mutex<HashMap<(u64, u64), Reason>>,
    /// Object log, if the job is resumable.
    log: Option<SinkLog>,
}

/// Receives all data of these lanes into `destination`. Returns the outcome.
pub(super) fn run(
    settings: Settings,
    key: DigestKey,
    joined: Vec<Joined>,
    more: More<'_>,
    destination: Destination,
    log: Option<SinkLog>,
    run_context: &RunContext<'_>,
) -> Outcome {
    let mut options = settings.options.clone();
    // A part of a file under its final name would count as an existing file in the next run.
    options.in_place &= !matches!(options.update, Update::Missing | Update::Newer);
    let context = SinkContext {
        session: Session::new(Sink::new(settings).with_quota(destination.quota), run_context),
        metadata_writer: MetadataWriter::new(options.keep, destination.policy),
        destination,
        files: Mutex::default(),
        kept_bytes: AtomicU64::new(0),
        shortage: Mutex::default(),
        tasks: Tasks::default(),
        hash_plan: HashPlan::of(&options, key, run_context.receipt.is_some()),
        hybrid: HybridThreshold::default(),
        cache_warning_printed: AtomicBool::new(false),
        device_syncs: DeviceSyncs::default(),
        dir_failures: Mutex::default(),
        log,
        options,
    };
    serve(&context, joined, more);
    let outcome = Outcome::of(Role::Sink, &context.session);
    if !outcome.broken.as_ref().is_some_and(|reason| reason.why.is_shortage()) {
        context.report_shortage();
    }
    let is_finished = outcome.broken.is_none();
    let SinkContext { session, destination, log, .. } = context;
    let log = log.filter(|_| session.failure().is_none());
    if let Some(Err(error)) = log.map(|log| log.end(&destination, is_finished)) {
        session.report.note(&error.to_string());
    }
    outcome
}

/// Runs the sink's part of a session.
fn serve(context: &SinkContext<'_>, joined: Vec<Joined>, more: More<'_>) {
    thread::scope(|scope| {
        let begin = |lane: Joined| session::begin(context, scope, lane);
        joined.into_iter().for_each(&begin);
        context.session.spawn(scope, move || context.run_settling(scope));
        let workers: [fn(&SinkContext<'_>); 2] =
            [|context| context.run_comparing(), |context| context.run_sweeping()];
        for run in workers {
            context.session.spawn(scope, move || context.session.spent.cpu_wait.count(|| run(context)));
        }
        if let Some(log) = &context.log {
            context.session.spawn(scope, move || context.run_log(scope, log));
        }
        let tick = |stop: Option<Reason>| context.handle(stop.map_or(Event::Tick, Event::Stop));
        let hear = |lane: LaneId| context.handle(Event::Progress(lane));
        context.session.guard(|| context.session.run_timer(more, begin, hear, tick));
        context.tasks.end();
        if let Some(log) = &context.log {
            log.finish();
        }
    });
    let left: Vec<Arc<IncomingFile>> = context.files().drain().map(|(_, file)| file).collect();
    match context.session.failure() {
        None => left.iter().for_each(|file| context.end_incomplete(file, true)),
        // The log may have panicked. Keep its files, as after a kill.
        Some(_) => left.iter().for_each(|file| file.end_incomplete(context.log.is_some() && file.was_kept())),
    }
}

impl SinkContext<'_> {
    /// Commits groups of the log as they become due, until the session ends. Starts another worker
    /// when none is left for further devices.
    fn run_log<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, log: &'scope SinkLog) {
        let another = move || self.session.guard(|| self.run_log(scope, log));
        let start = || thread::Builder::new().spawn_scoped(scope, another).is_ok();
        log.run(self.session.report, start, |(file, attempt), object, reason| {
            self.report_unsettled(file, attempt, [object], reason);
        });
    }
}

impl Serve for SinkContext<'_> {
    type Machine = Sink;

    fn session(&self) -> &Session<'_, Sink> {
        &self.session
    }

    fn lane_begins(&self, lane: LaneId) {
        self.handle(Event::LaneUp(lane));
    }

    fn lane_ended(&self, lane: LaneId) {
        self.handle(Event::LaneLost(lane));
    }

    fn write(&self, lane: LaneId, mut outbox: Box<dyn FrameWriter>) -> Result<(), LaneError> {
        loop {
            let is_idle = outbox.is_empty();
            // Take all pending messages together, so that they share a write.
            let mut said = Vec::new();
            let rest = self.session.monitor.ask(|machine, now| {
                while said.len() < SEND_BATCH_MAX {
                    match machine.next(lane, now) {
                        Outgoing::Send(message) => said.push(message),
                        Outgoing::Wait { until } if is_idle && said.is_empty() => {
                            return Reply::Wait(WaitKey::Lane(lane), until);
                        }
                        rest => return Reply::Ready(Some(rest)),
                    }
                }
                Reply::Ready(None)
            });
            for message in &mut said {
                match message {
                    Message::Bye(bye) if bye.reason.is_none() => {
                        self.log.iter().for_each(SinkLog::remove_session_lock);
                    }
                    Message::FileDone(done) => self.add_kept_bytes(&mut done.outcome),
                    _ => {}
                }
                self.session.prepare_send(message);
                outbox.push(message)?;
            }
            match rest {
                Some(Outgoing::Done) => return outbox.finish(),
                Some(_) => outbox.flush()?,
                None => {}
            }
        }
    }

    fn read(&self, lane: LaneId, frames: Box<dyn FrameReader>) -> Result<(), FrameError> {
        self.session.spent.cpu_wait.count(|| LaneReceiver::new(self, lane, frames).run())
    }
}

impl SinkContext<'_> {
    /// Passes an event to the machine. Returns its commands.
    fn dispatch(&self, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        self.session.monitor.update(|machine, now| machine.handle(event, now, &mut commands));
        commands
    }

    /// Passes an event to the machine and executes its commands.
    fn handle(&self, event: Event) {
        for command in self.dispatch(event) {
            if let Some(event) = self.execute(command) {
                self.handle(event);
            }
        }
    }

    /// Executes a command that any thread may execute. Returns the event to pass to the machine, if
    /// any. Commands about the data of a lane are executed by its worker.
    fn execute(&self, command: Command) -> Option<Event> {
        match command {
            Command::Unread(unread) => self.failed(&unread.path, false, &unread.reason),
            Command::Refused { path, reason } => self.failed(&path, true, &reason),
            Command::Failed { file, reason, by_source } => {
                // A failure that this side found was reported already, and the file was removed.
                if let Some(incoming) = self.incoming(file) {
                    self.session.tally.ended();
                    self.failed(&incoming.facts.path, !by_source, &reason);
                }
            }
            Command::Open { facts, path }
                if !self.destination.expected.has(path.as_bytes(), haul_storage::FileKind::Regular) =>
            {
                return Some(self.refused(&facts, not_requested()));
            }
            Command::Open { facts, path } => return self.open(facts, path),
            Command::Make { facts, path, first } => {
                let result = self.make(&facts, &path, first.as_ref());
                return Some(Event::Finished { file: facts.number, result });
            }
            Command::Write { .. } | Command::Discard { .. } => {
                unreachable!("the state machine reports this to the worker whose lane received the bytes")
            }
            Command::ObjectVerified { file, attempt, object } => self.object_verified(file, attempt, object),
            Command::Settle { file, attempt, object, to, digest } => {
                self.settle_later(file, Settle::Object { file, attempt, object, to, digest });
            }
            Command::Rehash { file, attempt, object } => {
                self.settle_later(file, Settle::Rehash { file, attempt, object });
            }
            Command::Restart { file, attempt } => {
                if let Some(incoming) = self.incoming(file) {
                    incoming.restart(attempt);
                }
            }
            Command::Finish { file, close, settle } => {
                // If data must be read or synced, do not block the lane.
                let takes_long = settle >= Level::Durable
                    || self.incoming(file).is_some_and(|incoming| {
                        incoming.is_incomplete(close.as_ref()) || incoming.is_syncing()
                    });
                if !takes_long {
                    return Some(self.finish(file, close.as_ref(), settle));
                }
                self.settle_later(file, Settle::Finish { file, close, settle });
            }
            Command::Abandon { file } => {
                let incoming = self.files().remove(&file);
                self.tasks.comparing.remove(file);
                if let Some(incoming) = incoming {
                    let is_over = || self.session.monitor.ask(|machine, _| Reply::Ready(machine.is_over()));
                    if self.options.dry_run && !is_over() {
                        self.session.report.ended(&incoming.facts.path, &Ended::DryRun);
                    }
                    self.end_incomplete(&incoming, incoming.may_complete_later() || is_over());
                }
            }
            Command::Sweep => self.tasks.sweeping.push(Sweeping::Begin),
            Command::Judged { batch, fates } => self.tasks.sweeping.push(Sweeping::Judged { batch, fates }),
            Command::Named { batch, names, certain, last } => {
                self.tasks.sweeping.push(Sweeping::Named { batch, names, certain, last });
            }
            Command::DropLane { lane } => self.session.abort(lane),
            Command::Ended(end) => self.session.ended(end),
        }
        None
    }

    /// Finishes a file.
    fn finish(&self, file: FileNumber, close: Option<&Close>, settle: Level) -> Event {
        let storage = &self.session.spent.storage;
        let result = match self.incoming(file) {
            Some(incoming) => {
                let (dirs, over) = (&self.destination.dirs, &self.session.over);
                storage.time(|| incoming.finish(dirs, over, &self.metadata_writer, close, settle))
            }
            None => Err(Unfinished::Failed(Why::Stopped.into())),
        };
        self.finished(file, &result);
        Event::Finished { file, result }
    }

    /// Decides about an announced file. Returns `None` if a background task decides.
    fn open(&self, facts: Arc<NewFile>, path: RelPath) -> Option<Event> {
        let number = facts.number;
        let size = facts.size();
        let geometry = Geometry::new(ByteLen(size), self.options.object);
        let mut part = None;
        if let Some(parts) = &self.destination.parts {
            part = parts.unwanted(path.as_bytes(), geometry);
            if part.is_none() {
                // No object of the file was requested. The verdict `Same` prevents that any is
                // sent.
                return Some(Event::Opened { file: number, verdict: Verdict::Same, rereads: false });
            }
        }
        if self.is_receipt(&path) {
            return Some(self.refused(&facts, would_replace_waybill()));
        }
        let tag = Tag { session: self.destination.session, number: number.0 };
        let log = self.log.as_ref().filter(|log| log.claim(&path));
        let (tag, is_claimed) = (log.map_or(tag, |log| log.tag(&path)), log.is_some());
        let part_bytes = part.as_ref().map(|have| size - bytes_of(have, geometry));
        let root = self.hash_plan.root(size);
        let incoming = IncomingFile::new(facts, path, tag, is_claimed, self.options.in_place, root)
            .with_part_bytes(part_bytes)
            // A compared file counts against the quota only as its bytes arrive.
            .with_reserve(self.destination.quota.is_none());
        let incoming = Arc::new(incoming);
        self.session.tally.found(incoming.requested_bytes());
        self.files().insert(number, Arc::clone(&incoming));
        let take = || self.take(&incoming);
        let begin = Instant::now();
        let verdict = match (part, self.options.update) {
            (Some(have), _) => Some(Verdict::Take { have }),
            (None, Update::Always) => self.decide_always(&incoming),
            (None, _) => match incoming.stat_existing(&self.destination.dirs) {
                Err(error) => Some(Verdict::Refused(reason("cannot stat the existing file", &error))),
                Ok(None) => take(),
                Ok(Some(existing)) => match decide(&self.options, &incoming.facts, &existing) {
                    Decision::CompareWhole | Decision::CompareObjects
                        if !self.destination.may_compare(&existing) || self.hides_partial_objects() =>
                    {
                        take()
                    }
                    Decision::Replace => take(),
                    Decision::Keep => Some(self.keep(&incoming, existing)),
                    Decision::CompareWhole => Some(self.compare_whole(&incoming)),
                    Decision::CompareObjects => {
                        self.resume_from_existing(&incoming);
                        self.tasks.comparing.push(Compare::Objects { file: number });
                        None
                    }
                },
            },
        };
        self.session.spent.storage.add(begin.elapsed());
        if let Some(Verdict::Refused(reason)) = &verdict {
            self.failed(&incoming.facts.path, true, reason);
        }
        if verdict == Some(Verdict::Same) {
            self.session.report.ended(&incoming.facts.path, &Ended::Same);
        }
        if matches!(verdict, Some(Verdict::Same | Verdict::Refused(_))) {
            if verdict == Some(Verdict::Same) {
                self.session.tally.settled(incoming.count(u64::MAX));
            }
            let incoming = self.files().remove(&number);
            incoming.iter().for_each(|incoming| self.release(incoming));
            self.session.tally.ended();
        }
        verdict.map(|verdict| self.opened(number, verdict, size))
    }

    /// Returns true if a comparison could show parts of an object to a source without the right to
    /// read: it can overwrite the other parts in place.
    fn hides_partial_objects(&self) -> bool {
        self.destination.is_hidden && self.options.in_place
    }

    /// Refuses a file of which nothing was recorded yet.
    fn refused(&self, facts: &NewFile, reason: Reason) -> Event {
        self.failed(&facts.path, true, &reason);
        Event::Opened { file: facts.number, verdict: Verdict::Refused(reason), rereads: false }
    }

    /// Adds the size of the incomplete files that are kept to the failure of a file for which there
    /// is no space.
    fn add_kept_bytes(&self, outcome: &mut Ended) {
        let Ended::Failed(reason) = outcome else { return };
        if !reason.why.is_shortage() || self.log.is_none() {
            return;
        }
        let files = self.files();
        let in_progress: u64 = files.values().map(|incoming| incoming.kept_bytes()).sum();
        let bytes = in_progress + self.kept_bytes.load(Ordering::Relaxed);
        drop(files);
        if bytes > 0 {
            let size = format_size(bytes);
            reason.append(&format!("{size} of incomplete files are kept at the receiver (.haul-*)"));
        }
    }

    /// Reports a failure to the user of this side. Of files for which there is no space, the reason
    /// for the end of the session counts all, or [`SinkContext::report_shortage`].
    fn failed(&self, path: &[u8], here: bool, reason: &Reason) {
        let failure = || Failure { path: path.to_vec(), here, reason: reason.clone() };
        if here && reason.why.is_shortage() {
            self.shortage.lock().get_or_insert((failure(), 0)).1 += 1;
        } else {
            self.session.report.failed(&failure());
        }
    }

    /// Reports the files for which there was no space, if the source did not end the session for
    /// this reason.
    fn report_shortage(&self) {
        let shortage = self.shortage.lock().take();
        if let Some((mut failure, count)) = shortage {
            failure.reason.append(&format!("{count} files failed"));
            self.session.report.failed(&failure);
        }
    }

    /// Returns the event with the decision about a file of `size` bytes. `rereads` is set if the
    /// job leaves the read-back to this side and the file is to be read back.
    fn opened(&self, file: FileNumber, verdict: Verdict, size: u64) -> Event {
        let rereads = self.options.verify == Verify::Hybrid && !self.hybrid.holds(size);
        Event::Opened { file, verdict, rereads }
    }

    fn make(&self, facts: &NewFile, path: &RelPath, first: Option<&RelPath>) -> Result<Ended, Unfinished> {
        self.session.tally.found(0);
        self.session.tally.ended();
        let is_directory = facts.kind == FileKind::Directory;
        let kind =
            if is_directory { haul_storage::FileKind::Directory } else { haul_storage::FileKind::Regular };
        let is_expected = |path: &RelPath| self.destination.expected.has(path.as_bytes(), kind);
        let is_expected = is_expected(path) && first.is_none_or(is_expected);
        if !is_directory && is_expected && self.keeps_existing(facts, path) {
            self.session.report.ended(path.as_bytes(), &Ended::Same);
            return Ok(Ended::Same);
        }
        let accepted = self.destination.policy.check(facts, path, self.destination.depth);
        if self.options.dry_run && accepted.is_ok() {
            self.session.report.ended(path.as_bytes(), &Ended::DryRun);
            return Ok(Ended::DryRun);
        }
        if self.destination.parts.is_some() {
            // Directories are created when a part needs them. No other entry without data was
            // requested.
            return Ok(Ended::Same);
        }
        if is_directory {
            // Remove leftovers before the directory gets its times.
            self.sweep_leftovers(path);
        }
        // Use a temporary name that is derived from the job, so that a later run finds the
        // leftovers.
        let log = self.log.as_ref().filter(|log| !is_directory && log.claim(path));
        let tag = Tag { session: self.destination.session, number: facts.number.0 };
        let tag = log.map_or(tag, |log| log.tag(path));
        let made = match is_expected {
            false => Err(not_requested()),
            true if self.is_receipt(path) => Err(would_replace_waybill()),
            true => accepted,
        };
        let storage = &self.session.spent.storage;
        let make = || names::make(&self.destination, &self.metadata_writer, tag, facts, path, first);
        let made = made.and_then(|()| storage.time(make));
        log.iter().for_each(|log| log.release(path));
        match made {
            Ok(()) => {
                self.destination.allow_links_to(facts, || self.stat_entry(path));
                self.record_name_in_waybill(facts, path, first);
                // Entries without data are not synced.
                let done = Ended::Done(self.options.settle.min(Level::Verified));
                self.session.report.ended(path.as_bytes(), &done);
                Ok(done)
            }
            Err(reason) => {
                self.failed(path.as_bytes(), true, &reason);
                Err(Unfinished::Failed(reason))
            }
        }
    }

    /// Returns true if the update rule keeps the existing entry with the name of an entry without
    /// data.
    fn keeps_existing(&self, facts: &NewFile, path: &RelPath) -> bool {
        let existing = self.stat_entry(path);
        existing.is_some_and(|existing| decide(&self.options, facts, &existing) == Decision::Keep)
    }

    fn finished(&self, number: FileNumber, result: &Result<Ended, Unfinished>) {
        if matches!(result, Err(Unfinished::Differs)) {
            return;
        }
        let Some(incoming) = self.files().remove(&number) else { return };
        self.session.tally.ended();
        let path = &incoming.facts.path;
        match result {
            Ok(outcome) => {
                self.destination.allow_links_to(&incoming.facts, || incoming.stat());
                self.arrived(&incoming, outcome);
                self.session.tally.settled(incoming.count(u64::MAX));
                self.record_in_waybill(&incoming, outcome);
                self.session.report.ended(path, outcome);
            }
            Err(Unfinished::Failed(reason)) => {
                incoming.record_failure(reason);
                self.end_incomplete(&incoming, incoming.may_complete_later());
                self.failed(path, true, reason);
            }
            Err(Unfinished::Differs) => {}
        }
    }

    /// Writes the waybill entry of a file that arrived or whose digest was found to be the same.
    fn record_in_waybill(&self, incoming: &IncomingFile, outcome: &Ended) {
        let Some(receipt) = self.session.receipt else { return };
        let Some(stat) = incoming.stat() else { return };
        let path = &incoming.facts.path;
        match outcome {
            Ended::Done(level) => {
                let none = Runs::default();
                let holes = match &incoming.facts.kind {
                    FileKind::File { holes, .. } => holes,
                    _ => &none,
                };
                let hash = incoming.root.lock();
                receipt.file(path, &stat, holes, *level, &hash, self.session.stop);
            }
            Ended::Same => {
                let digest = incoming.existing_digest.lock();
                if let Some(digest) = *digest {
                    receipt.same_digest(path, &stat, digest);
                }
            }
            Ended::DryRun | Ended::Failed(_) => {}
        }
    }

    /// Writes the waybill entry of an entry without data.
    fn record_name_in_waybill(&self, facts: &NewFile, path: &RelPath, first: Option<&RelPath>) {
        let Some(receipt) = self.session.receipt else { return };
        let Some(stat) = self.stat_entry(path) else { return };
        match (&facts.kind, first) {
            (_, Some(first)) => receipt.additional_name(path.as_bytes(), &stat, first.as_bytes()),
            (FileKind::Symlink { target }, _) => {
                receipt.name(path.as_bytes(), &stat, Some(OsStr::from_bytes(target).to_owned()));
            }
            _ => receipt.name(path.as_bytes(), &stat, None),
        }
    }

    /// Returns true if the path is the waybill of this job.
    fn is_receipt(&self, path: &RelPath) -> bool {
        let Some(receipt) = self.session.receipt else { return false };
        self.stat_entry(path).is_some_and(|stat| receipt.is(stat.identity()))
    }

    /// Returns the metadata of the entry at a path.
    fn stat_entry(&self, path: &RelPath) -> Option<Stat> {
        self.destination.dirs.stat(path.as_bytes()).ok().flatten()
    }

    fn incoming(&self, number: FileNumber) -> Option<Arc<IncomingFile>> {
        self.files().get(&number).map(Arc::clone)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileNumber, Arc<IncomingFile>>> {
        self.files.lock()
    }
}

/// Returns the number of bytes in these objects of a file.
fn bytes_of(objects: &Runs, geometry: Geometry) -> u64 {
    let at = |index: u64| index.saturating_mul(geometry.object_size().bytes()).min(geometry.len());
    objects.iter().map(|(first, past)| at(past) - at(first)).sum()
}

/// Reason for rejecting a name that the fetch did not request.
fn not_requested() -> Reason {
    Reason::new(Why::Denied, "this name was not requested")
}

/// Reason for refusing to replace the waybill.
fn would_replace_waybill() -> Reason {
    Reason::new(Why::InTheWay, "the waybill of this job has this name")
}
