//! Repair of several files at the same time. Their results are passed on in the order of the
//! waybill.

use super::repair_target::RepairTarget;
use super::{Done, JournalWarning, Outcome, Recovered, Repair, RepairObserver};
use crate::verify::Verdict;
use haul_log::waybill::{ReadError, RelPath};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::iter;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

/// Maximum number of files for each worker that are being repaired or wait for their turn.
const FILES_PER_WORKER: usize = 2;

/// Maximum number of bytes in memory of the digests of these files. One more file may exceed it.
const DIGEST_BYTES_MAX: u64 = 64 << 20;

/// A name whose repair has ended.
pub(super) struct Ended {
    pub(super) repair_target: RepairTarget,
    /// Verdict that the repair is based on.
    pub(super) verdict: Verdict,
    pub(super) outcome: Outcome,
    /// Events from before its end.
    events: Vec<Event>,
    /// Bytes in memory of the digests that the repair needed.
    digest_bytes: u64,
}

/// Event of a repair that is reported with its result.
enum Event {
    Recovered(RelPath, Recovered),
    JournalWarning(Option<RelPath>, JournalWarning),
}

/// Events of one file, in order.
#[derive(Default)]
struct Events(Vec<Event>);

impl RepairObserver for Events {
    fn settled(&mut self, _: &Outcome) {}

    fn flawed(&mut self, _: &ReadError) {}

    fn recovered(&mut self, path: &RelPath, became: Recovered) {
        self.0.push(Event::Recovered(path.clone(), became));
    }

    fn journal_warning(&mut self, path: Option<&RelPath>, warning: JournalWarning) {
        self.0.push(Event::JournalWarning(path.cloned(), warning));
    }
}

impl Ended {
    /// Repairs one name.
    pub(super) fn of(repair: &Repair<'_>, repair_target: RepairTarget, verdict: &Verdict) -> Ended {
        let mut events = Events::default();
        let (outcome, verdict) = repair.settle(&repair_target, verdict, &mut events);
        let digest_bytes = repair_target.digest_bytes();
        let mut ended = Ended { repair_target, verdict, outcome, events: events.0, digest_bytes };
        if !ended.needs_room() {
            ended.repair_target.forget_digests();
        }
        ended
    }

    /// Returns true if there was no space for the repair.
    fn needs_room(&self) -> bool {
        matches!(&self.outcome.done, Done::Left(why) if why.is_shortage())
    }

    /// Repairs the name again.
    fn again(self, repair: &Repair<'_>) -> Ended {
        let mut again = Ended::of(repair, self.repair_target, &self.verdict);
        again.events.splice(0..0, self.events);
        again
    }

    /// Reports the events from before the end.
    pub(super) fn report_events(&mut self, report: &mut dyn RepairObserver) {
        for event in self.events.drain(..) {
            match event {
                Event::Recovered(path, became) => report.recovered(&path, became),
                Event::JournalWarning(path, warning) => report.journal_warning(path.as_ref(), warning),
            }
        }
    }
}

/// Files that workers repair, numbered in the order of the waybill.
pub(super) struct ParallelRepairs {
    /// `None` if no worker could be started.
    files: Option<Sender<(u64, RepairTarget, Verdict)>>,
    results: Receiver<(u64, thread::Result<Ended>)>,
    /// Results that arrived before those of earlier files.
    early: BTreeMap<u64, Ended>,
    given: u64,
    passed_on: u64,
    /// Bytes of the digests of files that are given and not passed on.
    digest_bytes: u64,
    /// Maximum number of files that are given and not passed on.
    most: u64,
}

impl ParallelRepairs {
    /// Starts at most `workers` workers. With one, everything is left to the caller.
    pub(super) fn start<'scope, 'env: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        repair: &'env Repair<'_>,
        workers: usize,
    ) -> ParallelRepairs {
        let (files, given) = channel::<(u64, RepairTarget, Verdict)>();
        let (pass_on, results) = channel();
        let given = Arc::new(Mutex::new(given));
        let start = |_: &usize| {
            let (given, pass_on) = (Arc::clone(&given), pass_on.clone());
            let work = move || {
                loop {
                    let next = given.lock().recv();
                    let Ok((number, repair_target, verdict)) = next else { return };
                    let ended =
                        panic::catch_unwind(AssertUnwindSafe(|| Ended::of(repair, repair_target, &verdict)));
                    if pass_on.send((number, ended)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, work).is_ok()
        };
        let started = if workers > 1 { (0..workers).take_while(start).count() } else { 0 };
        ParallelRepairs {
            files: (started > 0).then_some(files),
            results,
            early: BTreeMap::new(),
            given: 0,
            passed_on: 0,
            digest_bytes: 0,
            most: (started * FILES_PER_WORKER) as u64,
        }
    }

    /// Returns true if files can be given.
    pub(super) fn has_workers(&self) -> bool {
        self.files.is_some()
    }

    /// Gives a file to the workers. The caller calls [`ParallelRepairs::pass_on`] before.
    pub(super) fn give(&mut self, repair_target: RepairTarget, verdict: Verdict) {
        if let Some(files) = &self.files {
            self.digest_bytes += repair_target.digest_bytes();
            // The workers take files as long as the results can be received.
            let _ = files.send((self.given, repair_target, verdict));
            self.given += 1;
        }
    }

    /// Passes results to `take`: as many as are needed until a file may be given, or, with `all`,
    /// those of all files. A file for which there was no space is repaired again when no other file
    /// takes any.
    pub(super) fn pass_on(&mut self, all: bool, repair: &Repair<'_>, mut take: impl FnMut(Ended)) {
        while let Some(ended) = self.next(all) {
            if !ended.needs_room() {
                take(ended);
                continue;
            }
            let rest: Vec<Ended> = iter::once(ended).chain(iter::from_fn(|| self.next(true))).collect();
            for ended in rest {
                take(if ended.needs_room() { ended.again(repair) } else { ended });
            }
        }
    }

    /// Returns the result of the first file whose result was not passed on, if it is there. Waits
    /// for it with `all`, or if no other file may be given before. Panics if its worker panicked.
    fn next(&mut self, all: bool) -> Option<Ended> {
        let waiting = self.given - self.passed_on;
        let may_give = waiting < self.most && self.digest_bytes < DIGEST_BYTES_MAX;
        if waiting == 0 || (!all && may_give && !self.early.contains_key(&self.passed_on)) {
            return None;
        }
        loop {
            if let Some(ended) = self.early.remove(&self.passed_on) {
                self.passed_on += 1;
                self.digest_bytes -= ended.digest_bytes;
                return Some(ended);
            }
            let (number, ended) = self.results.recv().ok()?;
            self.early.insert(number, ended.unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
    }
}
