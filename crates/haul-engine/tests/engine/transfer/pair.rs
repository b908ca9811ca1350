//! Fixture: two sides of a transfer in one process, each with its folder.

use haul_engine::log::{ResumeCheck, Settings, SyncPolicy};
use haul_engine::transfer::{
    BoxError, CheckSpace, Dial, Failure, FetchJob, Filter, Logs, Offer, Outcome, Receipt, Report, Resume,
    Rule, RunContext, SendJob, SinkPolicy, Tally, Traffic, TransferError, answer, fetch, send,
};
use haul_log::objects::Style;
use haul_log::waybill::Job;
use haul_model::Level;
use haul_net::{LaneControl as _, Pacer, StreamControl, StreamLane};
use haul_proto::{JobOptions, Keep, Outcome as Ended, Reason, Summary};
use haul_storage::local::LocalStorage;
use haul_storage::memory::MemoryStorage;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timeout, longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(300);

/// Returns all attributes that a transfer can preserve.
pub(super) fn keep_all() -> Keep {
    [
        Keep::TIMES,
        Keep::OWNER,
        Keep::XATTRS,
        Keep::ACLS,
        Keep::LINKS,
        Keep::HARD_LINKS,
        Keep::SPECIALS,
        Keep::HOLES,
        Keep::SETUID,
    ]
    .into_iter()
    .fold(Keep::MODE, Keep::with)
}

/// Returns an offer of `root` that allows everything.
pub(super) fn offer(root: &Path) -> Offer {
    Offer {
        root: root.into(),
        storage: Arc::new(LocalStorage),
        may_read: true,
        may_list: true,
        may_write: true,
        lanes: 8,
        buffers: 64 << 20,
        sessions: 1,
        quota: None,
        keep: keep_all(),
        policy: SinkPolicy::ALL,
        logs: Logs::None,
    }
}

/// A folder for each side.
pub(super) struct Pair {
    folder: tempfile::TempDir,
    /// True if both sides write waybills.
    writes_waybills: bool,
    /// `None` if jobs are not resumed; otherwise the comparison of existing data on resume.
    resume: Option<Option<ResumeCheck>>,
    sync: SyncPolicy,
}

/// Reports of one side.
#[derive(Default)]
struct Heard {
    failures: Mutex<Vec<String>>,
    lost: AtomicU64,
    /// Number of names that ended at this side without failing.
    ended: AtomicU64,
    /// Names that arrived, with their levels.
    arrived: Mutex<Vec<(Vec<u8>, Level)>>,
}

/// Course of a session.
#[derive(Clone, Copy)]
enum Course {
    ToItsEnd,
    /// The starting side sends. It is stopped after this many of its names have ended.
    SourceStops(u64),
    /// The starting side fetches, and is stopped.
    SinkStops,
    /// The starting side aborts the lane of this number once this many of its names have ended.
    LaneCut(usize, u64),
}

/// Parameters of one transfer.
pub(super) struct Transfer<'a> {
    pub(super) names: &'a [&'a str],
    pub(super) options: &'a JobOptions,
    pub(super) lanes: u32,
    pub(super) is_fetch: bool,
    /// Exclusion pattern.
    pub(super) exclude: Option<&'a str>,
    /// The lane that the starting side aborts, and the number of names that end before.
    pub(super) cut: Option<(usize, u64)>,
}

/// Number of bytes that one of the sides has reported as done before a session is stopped.
const STOPPED_AT: u64 = 4 << 20;

/// Number of done bytes from which on no file ends for the source of a session that is to be
/// stopped. However late the stop arrives, the walk is then not over.
const HELD_AT: u64 = 24 << 20;

/// Rates in bytes per second before and after the stop. A session checks the stop flag every
/// quarter of a second, and some work must remain.
const PACES: [u64; 2] = [40 << 20, 2 << 20];

/// Observer of a side of a session that may be stopped.
struct Holding<'a> {
    heard: &'a Heard,
    tally: &'a Tally,
    /// Flag that the end of a file waits for, if any.
    until: Option<&'a AtomicBool>,
    /// The lane to abort, and the number of names that end before.
    cut: Option<(usize, u64)>,
    lanes: &'a Mutex<Vec<StreamControl>>,
}

impl Report for Holding<'_> {
    fn failed(&self, failure: &Failure) {
        self.heard.failures.lock().unwrap().push(failure.to_string());
    }

    fn ended(&self, path: &[u8], ended: &Ended) {
        if let Ended::Done(level) = ended {
            self.heard.arrived.lock().unwrap().push((path.to_vec(), *level));
        }
        let ended = self.heard.ended.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((lane, _)) = self.cut.filter(|(_, after)| *after == ended) {
            self.lanes.lock().unwrap().get(lane).iter().for_each(|lane| lane.abort());
        }
        let is_held = |until: &AtomicBool| !until.load(Ordering::Relaxed);
        while self.tally.bytes_done.load(Ordering::Relaxed) >= HELD_AT && self.until.is_some_and(is_held) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lane_lost(&self, _: u32, _: &str) {
        self.heard.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Results of both sides.
pub(super) struct Told {
    started: Result<Outcome, TransferError>,
    answered: Result<Outcome, TransferError>,
    heard: [Heard; 2],
    /// Number of bytes that the starting side sent over its lanes.
    pub(super) bytes_out: u64,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (end, (outcome, heard)) in
            ["started", "answered"].iter().zip([&self.started, &self.answered].iter().zip(&self.heard))
        {
            match outcome {
                Ok(Outcome { summary, broken, .. }) => writeln!(f, "{end}: {summary:?}, broken: {broken:?}")?,
                Err(error) => writeln!(f, "{end}: {error}")?,
            }
            heard.failures.lock().unwrap().iter().try_for_each(|failure| writeln!(f, "{end}: {failure}"))?;
        }
        Ok(())
    }
}

impl Told {
    /// Checks that both sides completed without failures.
    pub(super) fn is_fine(&self) {
        let heard: Vec<_> = self.heard.iter().map(|heard| heard.failures.lock().unwrap().clone()).collect();
        for outcome in [&self.started, &self.answered] {
            let outcome = outcome.as_ref().unwrap_or_else(|error| panic!("{error}, heard {heard:?}"));
            assert!(outcome.is_whole(), "{outcome:?}, heard {heard:?}");
        }
        assert_eq!(self.started.as_ref().unwrap().summary, self.answered.as_ref().unwrap().summary);
    }

    pub(super) fn summary(&self) -> Summary {
        self.started.as_ref().unwrap().summary
    }

    /// Returns the lane traffic as counted by the starting side and by the answering side.
    pub(super) fn traffic(&self) -> [Traffic; 2] {
        [&self.started, &self.answered].map(|outcome| outcome.as_ref().unwrap().traffic)
    }

    /// Returns the number of reported failures at both sides together.
    pub(super) fn failures(&self) -> usize {
        assert!(!self.started.as_ref().is_ok_and(Outcome::is_whole), "a failure shows in the outcome");
        self.heard.iter().map(|heard| heard.failures.lock().unwrap().len()).sum()
    }

    /// Returns the names that arrived for the starting side, with their levels.
    pub(super) fn arrived(&self) -> Vec<(Vec<u8>, Level)> {
        self.heard[0].arrived.lock().unwrap().clone()
    }

    pub(super) fn failed_to_begin(&self) -> bool {
        self.started.is_err()
    }

    pub(super) fn refusal(&self) -> Option<&Reason> {
        match &self.started {
            Err(TransferError::Refused(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Returns true if both sides completed without failures.
    pub(super) fn is_whole(&self) -> bool {
        [&self.started, &self.answered].iter().all(|end| end.as_ref().is_ok_and(Outcome::is_whole))
    }

    /// Returns true if each side ended, and knows that something failed.
    pub(super) fn both_know_of_a_failure(&self) -> bool {
        [&self.started, &self.answered].iter().all(|end| end.as_ref().is_ok_and(|end| !end.is_whole()))
    }

    /// Returns the number of bytes that were not sent again, as counted by each side.
    pub(super) fn reused_bytes(&self) -> [u64; 2] {
        [&self.started, &self.answered].map(|outcome| outcome.as_ref().unwrap().reused_bytes)
    }

    /// Returns true if the session ended before its work was done.
    pub(super) fn is_broken(&self) -> bool {
        [&self.started, &self.answered]
            .iter()
            .any(|outcome| outcome.as_ref().map_or(true, |outcome| outcome.broken.is_some()))
    }

    pub(super) fn was_stopped(&self) -> bool {
        self.started.as_ref().is_ok_and(|outcome| outcome.broken.is_some() && !outcome.is_whole())
    }
}

impl Pair {
    pub(super) fn new() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        for end in ["source", "sink"] {
            std::fs::create_dir(folder.path().join(end)).unwrap();
        }
        Pair { folder, writes_waybills: false, resume: None, sync: SyncPolicy::Group }
    }

    /// Returns a pair in which each side writes a waybill.
    pub(super) fn with_waybills() -> Pair {
        Pair { writes_waybills: true, ..Pair::new() }
    }

    /// Returns a pair that resumes jobs and compares existing data as `recheck` requests.
    pub(super) fn resuming(recheck: Option<ResumeCheck>) -> Pair {
        Pair { resume: Some(recheck), ..Pair::new() }
    }

    /// Returns this pair with a waybill at each side.
    pub(super) fn also_with_waybills(self) -> Pair {
        Pair { writes_waybills: true, ..self }
    }

    /// Returns this pair with a sync policy of its logs.
    pub(super) fn syncing(self, sync: SyncPolicy) -> Pair {
        Pair { sync, ..self }
    }

    /// Returns the folders of unfinished jobs.
    pub(super) fn jobs(&self) -> Vec<PathBuf> {
        let found = std::fs::read_dir(self.state().join("jobs")).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect()
    }

    /// Deletes the state of unfinished jobs.
    pub(super) fn forget_jobs(&self) {
        if self.state().exists() {
            std::fs::remove_dir_all(self.state()).unwrap();
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn resume(&self) -> Option<Resume> {
        let settings = Settings { style: Style::DEFAULT, sync: self.sync, wait: false };
        let recheck = self.resume?;
        Some(Resume {
            peer: b"the other end".to_vec(),
            state: self.state(),
            command: None,
            settings,
            recheck,
        })
    }

    /// Returns the waybill of the starting side or of the answering side.
    pub(super) fn waybill(&self, started: bool) -> PathBuf {
        self.folder.path().join(if started { "started.waybill" } else { "answered.waybill" })
    }

    pub(super) fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub(super) fn sink(&self) -> PathBuf {
        self.folder.path().join("sink")
    }

    /// Checks that no temporary name is left at the sink.
    pub(super) fn nothing_is_left_over(&self) {
        fn look(dir: &Path) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                assert!(!entry.file_name().as_encoded_bytes().starts_with(b".haul-"), "{:?}", entry.path());
                if entry.file_type().unwrap().is_dir() {
                    look(&entry.path());
                }
            }
        }
        look(&self.sink());
    }

    pub(super) fn send(&self, names: &[&str], options: &JobOptions, lanes: u32) -> Told {
        let job = SendJob { lanes: Some(lanes), ..self.send_job(names, options) };
        self.run(|_| {}, Course::ToItsEnd, |dial, run_context| send(dial, &job, run_context))
    }

    pub(super) fn send_filtered(&self, names: &[&str], options: &JobOptions, filter: Filter) -> Told {
        let job = SendJob { filter, ..self.send_job(names, options) };
        self.run(|_| {}, Course::ToItsEnd, |dial, run_context| send(dial, &job, run_context))
    }

    pub(super) fn send_to(
        &self,
        names: &[&str],
        options: &JobOptions,
        change: impl FnOnce(&mut Offer),
    ) -> Told {
        let job = self.send_job(names, options);
        self.run(change, Course::ToItsEnd, |dial, run_context| send(dial, &job, run_context))
    }

    /// Sends an entry of the root of one storage to the root of another one.
    pub(super) fn send_between(
        &self,
        name: &str,
        options: &JobOptions,
        storages: [&MemoryStorage; 2],
    ) -> Told {
        let [source, sink] = storages.map(|storage| Arc::new(storage.clone()));
        let sources = vec![OsString::from(format!("/{name}"))];
        let job = SendJob { storage: source, sources, ..self.send_job(&[], options) };
        let at_root = |offer: &mut Offer| {
            offer.root = "/".into();
            offer.storage = sink;
        };
        self.run(at_root, Course::ToItsEnd, |dial, run_context| send(dial, &job, run_context))
    }

    pub(super) fn transfer(&self, transfer: &Transfer<'_>) -> Told {
        let Transfer { names, options, lanes, is_fetch, exclude, cut } = *transfer;
        let course = cut.map_or(Course::ToItsEnd, |(lane, after)| Course::LaneCut(lane, after));
        if is_fetch {
            let mut job = self.fetch_job(names, options, lanes);
            job.rules.extend(exclude.map(|pattern| Rule::Exclude(pattern.to_owned())));
            let source = self.source();
            return self.run(
                |offer| offer.root = source.into(),
                course,
                |dial, run_context| fetch(dial, &job, run_context),
            );
        }
        let rules: Vec<Rule> = exclude.map(|pattern| Rule::Exclude(pattern.to_owned())).into_iter().collect();
        let filter = Filter::new(&rules).unwrap();
        let job = SendJob { lanes: Some(lanes), filter, ..self.send_job(names, options) };
        self.run(|_| {}, course, |dial, run_context| send(dial, &job, run_context))
    }

    pub(super) fn fetch_stopped(&self, names: &[&str], options: &JobOptions) -> Told {
        self.fetch_on(Course::SinkStops, names, options, 1)
    }

    /// Sends, and stops after `after` names have ended.
    pub(super) fn send_stopped(&self, names: &[&str], options: &JobOptions, after: u64) -> Told {
        let job = self.send_job(names, options);
        self.run(|_| {}, Course::SourceStops(after), |dial, run_context| send(dial, &job, run_context))
    }

    pub(super) fn fetch(&self, names: &[&str], options: &JobOptions, lanes: u32) -> Told {
        self.fetch_on(Course::ToItsEnd, names, options, lanes)
    }

    fn fetch_on(&self, course: Course, names: &[&str], options: &JobOptions, lanes: u32) -> Told {
        let job = self.fetch_job(names, options, lanes);
        let source = self.source();
        self.run(
            |offer| offer.root = source.into(),
            course,
            |dial, run_context| fetch(dial, &job, run_context),
        )
    }

    fn fetch_job(&self, names: &[&str], options: &JobOptions, lanes: u32) -> FetchJob {
        FetchJob {
            paths: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
            into: self.sink().into(),
            rules: Vec::new(),
            parts: None,
            options: options.clone(),
            policy: SinkPolicy::ALL,
            lanes: Some(lanes),
            buffers: 64 << 20,
            resume: self.resume(),
        }
    }

    fn send_job(&self, names: &[&str], options: &JobOptions) -> SendJob {
        SendJob {
            storage: Arc::new(LocalStorage),
            sources: names.iter().map(|name| OsString::from(self.source().join(name))).collect(),
            filter: Filter::default(),
            one_file_system: false,
            options: options.clone(),
            to: Vec::new(),
            lanes: Some(1),
            buffers: 64 << 20,
            resume: self.resume(),
            check_space: CheckSpace::default(),
            forgets: false,
        }
    }

    fn run(
        &self,
        change: impl FnOnce(&mut Offer),
        course: Course,
        start: impl FnOnce(&dyn Dial, &RunContext<'_>) -> Result<Outcome, TransferError>,
    ) -> Told {
        let mut offer = offer(&self.sink());
        offer.logs =
            self.resume.map_or(Logs::None, |_| Logs::Own { state: self.state(), style: Style::DEFAULT });
        change(&mut offer);
        let (give, take): (Sender<StreamLane>, Receiver<StreamLane>) = channel();
        let heard = [Heard::default(), Heard::default()];
        let tallies = [Tally::default(), Tally::default()];
        let [stop, never, is_over] = [const { AtomicBool::new(false) }; 3];
        let controls = Mutex::new(Vec::new());
        let receipts = [true, false].map(|started| {
            let job = Job { run: b"test".to_vec(), ..Job::default() };
            self.writes_waybills.then(|| Receipt::new(self.waybill(started).into(), job))
        });
        // The side that has the files, the flag that it waits for, and the number of names that
        // must end.
        let stops = match course {
            Course::ToItsEnd | Course::LaneCut(..) => None,
            Course::SourceStops(names) => Some((0, &stop, names)),
            Course::SinkStops => Some((1, &is_over, 0)),
        };
        let reports = [0, 1].map(|end| {
            let until = stops.and_then(|(source, until, _)| (source == end).then_some(until));
            let cut = match course {
                Course::LaneCut(lane, after) if end == 0 => Some((lane, after)),
                _ => None,
            };
            Holding { heard: &heard[end], tally: &tallies[end], until, cut, lanes: &controls }
        });
        // A session checks the stop flag every quarter of a second.
        let pacers = stops.map(|_| [0, 1].map(|_| Arc::new(Pacer::new(PACES[0]))));
        let (started, answered) = std::thread::scope(|scope| {
            let (tallies, heard, reports) = (&tallies, &heard, &reports);
            let (never, stop, is_over, receipts, pacers) = (&never, &stop, &is_over, &receipts, &pacers);
            let answering = scope.spawn(move || {
                let first = take.recv_timeout(LONG).expect("a first lane");
                let receipt = receipts[1].as_ref();
                let run_context =
                    RunContext { stop: never, tally: &tallies[1], report: &reports[1], receipt };
                answer(first.into(), &mut || take.try_recv().ok().map(Into::into), &offer, &run_context)
            });
            if let Some((source, _, names)) = stops {
                scope.spawn(move || {
                    let is_due = || {
                        // The source counts objects, the sink files.
                        let done = tallies.iter().map(|tally| tally.bytes_done.load(Ordering::Relaxed)).max();
                        done >= Some(STOPPED_AT) && heard[source].ended.load(Ordering::Relaxed) >= names
                    };
                    while !is_due() && !is_over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    pacers.iter().flatten().for_each(|pacer| pacer.set_rate(PACES[1]));
                    stop.store(true, Ordering::Relaxed);
                });
            }
            let dial = |_: u32| -> Result<StreamLane, BoxError> {
                let (mut ours, mut theirs) = StreamLane::pair();
                for (lane, pacer) in [&mut ours, &mut theirs].into_iter().zip(pacers.iter().flatten()) {
                    lane.set_pacer(Some(Arc::clone(pacer)));
                }
                controls.lock().unwrap().push(ours.control());
                give.send(theirs)?;
                Ok(ours)
            };
            let receipt = receipts[0].as_ref();
            let run_context = RunContext { stop, tally: &tallies[0], report: &reports[0], receipt };
            let started = start(&dial, &run_context);
            is_over.store(true, Ordering::Relaxed);
            if started.is_err() {
                // No lane was dialled, or the session never began. Closing the channel keeps the
                // other side from waiting.
                drop(give);
            }
            (started, answering.join())
        });
        for receipt in receipts.iter().flatten() {
            receipt.close().unwrap();
        }
        let controls = controls.into_inner().unwrap();
        let bytes_out = controls.iter().map(|control| control.stats().bytes_out).sum();
        let answered = answered.unwrap_or(Err(TransferError::NoRandomness));
        Told { started, answered, heard, bytes_out }
    }
}
