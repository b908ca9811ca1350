//! Use of the replicas in the given order. Replicas on this host are read directly. A replica on
//! another host receives a request for the bytes that all replicas before it lack. The received
//! data is stored in a separate directory ([`super::staging`]) and serves as one more replica: the
//! waybill decides which bytes are intact.

use super::parallel::{Ended, ParallelRepairs};
use super::places::{NameAt, Replica};
use super::repair_target::RepairTarget;
use super::staging::Staging;
use super::{Done, LeftReason, Repair, RepairError, RepairObserver, RepairTally, repair_target};
use crate::copy::quote;
use crate::sum::{Counters, reason};
use crate::transfer::{Parts, Tally};
use crate::verify::{Verdict, VerdictKind, component_of};
use crate::{files_left, workers_within};
use haul_log::waybill::{Kind, RelPath};
use haul_model::{ByteRange, ObjectSize, limits};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Interval between two updates of the counters for a transfer from another host.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// Location of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaAt {
    /// Directory on this host with the same relative paths. It is only read.
    Here(OsString),
    /// Directory on another host, which [`Remotes`] reaches. The bytes identify the replica.
    There(Vec<u8>),
}

/// Request to another host.
#[derive(Debug)]
pub struct ReplicaRequest<'a> {
    /// Missing ranges, by paths below the replica.
    pub parts: Arc<Parts>,
    /// Object size of the transfer; each object is sent as a whole or not at all.
    pub object: ObjectSize,
    /// Destination directory, in the form that
    /// [`FetchJob::of_parts`](crate::transfer::FetchJob::of_parts) takes.
    pub into: &'a OsStr,
    /// Counters of the transfer.
    pub tally: &'a Tally,
}

/// Response to a request. It says nothing about the correctness of the bytes, which the waybill
/// decides.
#[derive(Clone, Debug, Default)]
pub struct ReplicaResponse {
    /// Messages to the user about data that was not received.
    pub notes: Vec<String>,
    /// Reason why the replica could not be reached, or failed before its end.
    pub broken: Option<String>,
    /// Bytes received over the network for the request.
    pub received: u64,
}

/// Access to replicas on other hosts.
pub trait Remotes: Sync {
    /// Makes the replica of this number send the requested data. Returns soon after a stop of the
    /// repair.
    fn fetch(&self, replica: usize, asked: &ReplicaRequest<'_>) -> ReplicaResponse;
}

/// Reaches no host.
impl Remotes for () {
    fn fetch(&self, _: usize, _: &ReplicaRequest<'_>) -> ReplicaResponse {
        ReplicaResponse { broken: Some("cannot reach other hosts".to_owned()), ..ReplicaResponse::default() }
    }
}

/// Names that do not match the waybill.
pub(super) type Wanted = HashMap<Vec<u8>, Verdict>;

/// Work that a round leaves to the next rounds.
struct DeferredWork {
    wanted: Wanted,
    /// Bytes that no replica had so far.
    parts: Parts,
    /// The smallest object size of their files, to limit the transfer of unneeded bytes.
    object: ObjectSize,
}

impl DeferredWork {
    fn new() -> DeferredWork {
        DeferredWork { wanted: Wanted::new(), parts: Parts::default(), object: ObjectSize::DEFAULT }
    }

    fn leave(&mut self, path: &RelPath, verdict: Verdict) {
        self.wanted.insert(path.as_bytes().to_vec(), verdict);
    }

    fn add(&mut self, repair_target: &RepairTarget, lost: &[ByteRange], verdict: Verdict) {
        let path = &repair_target.entry.path;
        self.parts.add(path, lost);
        self.leave(path, verdict);
        self.object = self.object.min(repair_target.object());
    }
}

impl Repair<'_> {
    /// Repairs entries from all replicas; `here` contains those on this host.
    pub(super) fn rounds(
        &mut self,
        mut wanted: Wanted,
        mut here: Vec<Option<Replica>>,
        staging: &mut Option<Staging>,
        tally: &mut RepairTally,
        report: &mut dyn RepairObserver,
    ) -> Result<(), RepairError> {
        let settings = self.settings;
        let given = &settings.replicas[..];
        let mut at = 0;
        loop {
            // A dry run asks no other host.
            while at < given.len() && (settings.dry_run || matches!(given[at], ReplicaAt::Here(_))) {
                self.replicas[at] = here[at].take();
                at += 1;
            }
            self.is_last_round = at == given.len();
            let later = self.round(&wanted, tally, report)?;
            if later.wanted.is_empty() || self.is_stopped() {
                return Ok(());
            }
            if self.is_last_round {
                self.is_final = true;
                return self.round(&later.wanted, tally, report).map(drop);
            }
            match given.get(at) {
                Some(ReplicaAt::There(id)) if !later.parts.is_empty() => {
                    wanted = self.ask(at, &id[..], later, staging, tally, report)?;
                    at += 1;
                }
                // No bytes are missing: only names without contents are left.
                _ => (wanted, at) = (later.wanted, given.len()),
            }
        }
    }

    /// Processes all wanted entries once. A round that is not the last leaves files with missing
    /// bytes to later rounds. It also leaves entries without contents: a directory gets its time
    /// only after all missing names in it exist.
    ///
    /// Two kinds of entries are left to the final round: a file that is also another entry, because
    /// a replica may have its bytes under the other name, and a further name, because a later
    /// section may have the first one.
    ///
    /// Files that no other entry can refer to are repaired at the same time, as far as no name
    /// without contents is between them.
    fn round(
        &self,
        wanted: &Wanted,
        tally: &mut RepairTally,
        report: &mut dyn RepairObserver,
    ) -> Result<DeferredWork, RepairError> {
        let (mut later, mut names) = (DeferredWork::new(), Vec::new());
        let gone_through = thread::scope(|scope| {
            let open_files = files_left() / self.settings.replicas.len().max(1) as u64;
            let workers = workers_within(self.settings.reading.workers, open_files);
            let mut files = ParallelRepairs::start(scope, self, workers.min(wanted.len()));
            let mut pass_on = |ended| self.ended(ended, &mut later, tally, report);
            let gone_through = repair_target::each(
                || self.settings.reader(),
                wanted,
                |repair_target| {
                    if self.is_stopped() {
                        return;
                    }
                    let path = &repair_target.entry.path;
                    let Some(verdict) = wanted.get(path.as_bytes()) else { return };
                    if is_name(&repair_target, verdict) && !self.is_last_round {
                        names.push((path.clone(), verdict.clone()));
                        return;
                    }
                    let can_wait = files.has_workers() && self.is_apart(&repair_target, verdict);
                    files.pass_on(!can_wait, self, &mut pass_on);
                    if can_wait {
                        return files.give(repair_target, verdict.clone());
                    }
                    pass_on(Ended::of(self, repair_target, verdict));
                },
            );
            files.pass_on(true, self, &mut pass_on);
            gone_through
        });
        gone_through.map_err(|source| RepairError::Refused(self.settings.waybill.clone(), source))?;
        names.into_iter().for_each(|(path, verdict)| later.leave(&path, verdict));
        Ok(later)
    }

    /// Returns true if a file may be repaired while others are: no other wanted name leads to it,
    /// and no replica. Two missing names can lead to one place; as in any order, the second one is
    /// then not created.
    fn is_apart(&self, repair_target: &RepairTarget, verdict: &Verdict) -> bool {
        let is_file = matches!(repair_target.entry.kind, Kind::File(_));
        if self.settings.dry_run || !self.has_own_replicas || !is_file {
            return false;
        }
        if verdict.kind == VerdictKind::Missing {
            return true;
        }
        let found = NameAt::of(self.root, &repair_target.entry.path).and_then(|name_at| name_at.stat());
        found.is_ok_and(|found| found.nlink == 1 && !self.shared.contains_key(&found.identity()))
    }

    /// Reports the end of a name, or leaves the name to a later round.
    fn ended(
        &self,
        mut ended: Ended,
        later: &mut DeferredWork,
        tally: &mut RepairTally,
        report: &mut dyn RepairObserver,
    ) {
        ended.report_events(report);
        let Ended { repair_target, verdict, outcome, .. } = ended;
        let path = &repair_target.entry.path;
        match &outcome.done {
            Done::Left(LeftReason::Stopped) => return,
            Done::Left(LeftReason::NoSource { lost, .. }) if !self.is_last_round => {
                return later.add(&repair_target, lost, verdict);
            }
            Done::Left(LeftReason::NoSource { .. } | LeftReason::NotAsked(_))
                if !self.is_final && self.is_several_entries(path) =>
            {
                return later.leave(path, verdict);
            }
            Done::Left(_) if !self.is_final && is_name(&repair_target, &verdict) => {
                return later.leave(path, verdict);
            }
            Done::Left(_) => {}
            _ => self.replicas.iter().flatten().for_each(|replica| replica.forget(path)),
        }
        self.note_directory(&outcome);
        tally.count(&outcome);
        report.settled(&outcome);
    }

    /// Asks a replica on another host for the missing bytes. Returns the entries that are still
    /// wanted. First uses data that an earlier run left.
    fn ask(
        &mut self,
        number: usize,
        id: &[u8],
        mut later: DeferredWork,
        staging: &mut Option<Staging>,
        tally: &mut RepairTally,
        report: &mut dyn RepairObserver,
    ) -> Result<Wanted, RepairError> {
        let settings = self.settings;
        let base = settings.staging.as_ref().unwrap_or(&settings.root);
        let staged = match staging.take() {
            Some(staging) => Ok(staging),
            None => Staging::open(base),
        };
        let place = staged.and_then(|staged| staging.insert(staged).place(id));
        let place = match place {
            Ok(place) => place,
            Err(error) => {
                let reason = reason(&error);
                let why =
                    format!("cannot store received data in {}: {reason}; use --staging DIR", quote(base));
                report.unreached(number, &why);
                tally.unreached += 1;
                return Ok(later.wanted);
            }
        };
        let component = component_of(&settings.waybill, None);
        self.replicas[number] = Some(place.replica.standing_for(component.clone()));
        if place.was_there {
            later = self.round(&later.wanted, tally, report)?;
        }
        let DeferredWork { wanted, parts, object } = later;
        if parts.is_empty() || self.is_stopped() {
            return Ok(wanted);
        }
        report.asks(number, parts.files(), parts.bytes());
        // If the replica has none of the names, it may stand for their first component.
        let shorter = component.map(|component| parts.beneath(&component)).filter(|parts| !parts.is_empty());
        for parts in std::iter::once(parts).chain(shorter) {
            let counts = Tally::default();
            let asked = ReplicaRequest { parts: Arc::new(parts), object, into: &place.path, tally: &counts };
            let answered = counted(&counts, self.counters, || self.remotes.fetch(number, &asked));
            tally.received += answered.received;
            answered.notes.iter().for_each(|note| report.replica_note(number, note));
            if let Some(why) = answered.broken.filter(|_| !self.is_stopped()) {
                report.unreached(number, &why);
                tally.unreached += 1;
                return Ok(wanted);
            }
            if self.is_stopped() || self.has_any(number, &wanted) {
                return Ok(wanted);
            }
        }
        report.replica_note(number, "it has none of the names that were requested");
        Ok(wanted)
    }

    /// Returns true if a replica has one of the files.
    fn has_any(&self, number: usize, wanted: &Wanted) -> bool {
        let Some(replica) = &self.replicas[number] else { return false };
        let has =
            |path: &Vec<u8>| RelPath::new(path).is_ok_and(|path| matches!(replica.file(&path), Ok(Some(_))));
        wanted.keys().any(has)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Returns true for a missing name without contents of its own.
fn is_name(repair_target: &RepairTarget, verdict: &Verdict) -> bool {
    verdict.kind == VerdictKind::Missing && !matches!(repair_target.entry.kind, Kind::File(_))
}

impl RepairTarget {
    /// Returns the object size for a transfer of the file: the recorded one, or the minimum if the
    /// waybill has leaves.
    fn object(&self) -> ObjectSize {
        let Kind::File(content) = &self.entry.kind else { return ObjectSize::DEFAULT };
        match &content.objects {
            Some(objects) if objects.leaf.is_some() => ObjectSize::round_up(limits::OBJECT_BYTES_MIN),
            Some(objects) => objects.size,
            None => ObjectSize::DEFAULT,
        }
    }
}

/// Runs `work`, and adds its counters to the counters of the repair.
fn counted<T>(tally: &Tally, counters: &Counters, work: impl FnOnce() -> T) -> T {
    let (done, over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut found, mut through) = (0, 0);
            loop {
                let is_over = over.recv_timeout(COUNT_EVERY) != Err(RecvTimeoutError::Timeout);
                let (found_now, through_now) =
                    (tally.bytes_found.load(Ordering::Relaxed), tally.bytes_done.load(Ordering::Relaxed));
                counters.found_bytes(found_now - found);
                counters.done_bytes(through_now - through);
                (found, through) = (found_now, through_now);
                if is_over {
                    return;
                }
            }
        });
        let ended = work();
        drop(done);
        ended
    })
}
