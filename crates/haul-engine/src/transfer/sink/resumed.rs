//! What an earlier run of the job left of a file, and what is done with it.

use super::Side;
use super::arriving::Arriving;
use super::incoming::Incoming;
use super::keeping::{Keeping, Said};
use super::places::Missing;
use super::tasks::Compare;
use crate::copy::quote;
use crate::log::{LogError, Recheck, SAMPLE_OBJECTS_MAX, SAMPLE_ONE_IN};
use haul_log::objects::ObjectSet;
use haul_model::{ByteLen, Geometry, Level, Object, ObjectIndex, RelPath, format_size};
use haul_proto::sink::Verdict;
use haul_proto::{FileNumber, Outcome, Runs, Update};
use haul_sys::metadata::Place;
use haul_sys::{Stat, Timespec, stat};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a digest that bytes are taken for the same by, whatever they are: in a shorter one unwritten bytes would match by chance now
/// and then.
const DIGEST_BYTES_MIN: usize = 8;

impl Side<'_> {
    /// Decides about a file that replaces any existing file but one of this job. Returns `None` if a background task will decide.
    pub(super) fn always(&self, incoming: &Arc<Incoming>) -> Option<Verdict> {
        let log = self.log_of(incoming).filter(|log| log.resumes());
        let Some(log) = log else { return self.take(incoming) };
        // What can't be looked at is sent anew, and that says what is wrong.
        let standing = incoming.standing(&self.store.places).ok().flatten();
        let Some((file, stat)) = standing else { return self.take(incoming) };
        let facts = &incoming.facts;
        let mtime = |time: Timespec| (time.sec, time.nsec);
        if stat.size != facts.size() || mtime(stat.mtime) != (facts.mtime.sec, facts.mtime.nsec) {
            return self.take(incoming);
        }
        // One that is written in place has its times before its last bytes are durable.
        let is_durable = self.options.settle >= Level::Durable && !self.options.in_place;
        match log.is_of_job(&stat, self.options.in_place, is_durable) {
            Some(true) => self.finished_before(incoming, &file, log),
            Some(false) => {
                self.tasks.comparing.push(Compare::Whole { file: facts.number });
                None
            }
            None => self.take(incoming),
        }
    }

    /// A file that an earlier run brought to its end: it gets what its source has beside its bytes by now.
    fn finished_before(&self, incoming: &Incoming, file: &OwnedFd, log: &Keeping) -> Option<Verdict> {
        log.meet(&incoming.path);
        Some(match self.keeper.apply(Place::file(file), &incoming.facts, None) {
            Ok(()) => {
                self.session.spared.fetch_add(incoming.facts.size(), Ordering::Relaxed);
                Verdict::Same
            }
            Err(reason) => Verdict::Refused(reason),
        })
    }

    /// A file that is to be sent, but for what is there of it.
    pub(super) fn take(&self, incoming: &Arc<Incoming>) -> Option<Verdict> {
        let all = || Some(Verdict::Take { have: Runs::default() });
        let Some(log) = self.log_of(incoming) else { return all() };
        log.meet(&incoming.path);
        if !log.goes_on_within_files() || incoming.facts.size() <= self.options.object.bytes() {
            return all();
        }
        if self.options.in_place {
            let is_there = incoming.standing(&self.store.places).is_ok_and(|found| found.is_some());
            return if log.resumes() && is_there { self.compare(incoming) } else { all() };
        }
        // Where it can't be opened again, it can't be made either, and that says why.
        let left = incoming.reopen(&self.store.places).ok().flatten();
        let gone_on_with = left.and_then(|stat| self.go_on(incoming, log, &stat));
        gone_on_with.unwrap_or_else(|| {
            incoming.forget();
            let forgotten = log.begin_anew(&incoming.path);
            forgotten.unwrap_or_else(|error| log.trouble(self.session.report, &error));
            all()
        })
    }

    /// What becomes of a file that was opened again; `None` where it is of no use.
    fn go_on(&self, incoming: &Arc<Incoming>, log: &Keeping, stat: &Stat) -> Option<Option<Verdict>> {
        let (key, objects) = match log.said_of(incoming, stat) {
            Said::Logged(key, objects) => (key, objects),
            Said::Nothing if self.may_compare(log, stat) => {
                let ready = incoming.take_back().map_err(LogError::sink);
                let forgotten = ready.and_then(|()| log.begin_anew(&incoming.path));
                forgotten.inspect_err(|error| log.trouble(self.session.report, error)).ok()?;
                return Some(self.compare(incoming));
            }
            Said::Nothing | Said::OtherVersion => return None,
        };
        incoming.is_logged_as(key);
        let recheck = if self.is_as_logged(incoming, stat, &objects) { log.recheck } else { Recheck::All };
        Some(match recheck {
            Recheck::None => {
                let have = runs(objects.iter());
                self.spare(incoming, &have);
                Some(Verdict::Take { have })
            }
            Recheck::Sample => self.sample(incoming, &objects),
            Recheck::All => {
                let revoked = incoming.take_back().map_err(LogError::sink).and_then(|()| log.revoke(key));
                revoked.inspect_err(|error| log.trouble(self.session.report, error)).ok()?;
                self.compare(incoming)
            }
        })
    }

    /// Whether a file that was opened again can be the one that was logged. It can't where others may have written into it, nor where it ends too
    /// soon; and where its file system tells no birth, another file may have got its number since.
    fn is_as_logged(&self, incoming: &Incoming, stat: &Stat, objects: &ObjectSet) -> bool {
        let geometry = Geometry::new(ByteLen(incoming.facts.size()), self.options.object);
        let last = objects.iter().last().and_then(|last| geometry.object(last));
        let holds_last = last.is_none_or(|last| last.range.end.0 <= stat.size);
        Arriving::is_ours_alone(stat) && stat.btime.is_some() && holds_last
    }

    /// What stands in a file whose log is lost may be held against the source, if it was this user who made it.
    fn may_compare(&self, log: &Keeping, stat: &Stat) -> bool {
        let is_ours = Arriving::is_ours(stat) && stat.size > 0;
        is_ours && log.compares && self.options.algorithm.digest_len() >= DIGEST_BYTES_MIN
    }

    /// All that is there is compared with the source, object by object, and only what differs is sent.
    fn compare(&self, incoming: &Arc<Incoming>) -> Option<Verdict> {
        incoming.compare_by(Runs::default(), Runs::default());
        self.tasks.comparing.push(Compare::Objects { file: incoming.facts.number });
        None
    }

    /// Some of what is logged is compared, the rest counts if they agree.
    fn sample(&self, incoming: &Arc<Incoming>, objects: &ObjectSet) -> Option<Verdict> {
        let (have, samples) = sampled(objects);
        // Where a sample differs, what is logged is not written over.
        incoming.keep_for_later();
        self.spare(incoming, &have);
        incoming.compare_by(have, samples);
        self.tasks.comparing.push(Compare::Objects { file: incoming.facts.number });
        None
    }

    /// A file whose objects are compared with what stands under its name: objects that an earlier run took need not be, but for a sample, which is
    /// compared where it lies.
    pub(super) fn go_on_beside(&self, incoming: &Arc<Incoming>) {
        let is_small = incoming.facts.size() <= self.options.object.bytes();
        let goes_on = |log: &&Keeping| !is_small && !self.options.in_place && log.goes_on_within_files();
        let Some(log) = self.log_of(incoming).filter(goes_on) else { return };
        log.meet(&incoming.path);
        let Ok(Some(stat)) = incoming.reopen(&self.store.places) else { return };
        match log.said_of(incoming, &stat) {
            Said::Logged(key, objects)
                if log.recheck != Recheck::All && self.is_as_logged(incoming, &stat, &objects) =>
            {
                incoming.is_logged_as(key);
                // Where a sample differs, what is logged is not written over.
                incoming.keep_for_later();
                let (have, samples) = match log.recheck {
                    Recheck::Sample => sampled(&objects),
                    _ => (runs(objects.iter()), Runs::default()),
                };
                self.spare(incoming, &have);
                incoming.compare_by(have, samples);
            }
            _ => {
                incoming.forget();
                let forgotten = log.begin_anew(&incoming.path);
                forgotten.unwrap_or_else(|error| log.trouble(self.session.report, &error));
            }
        }
        // What stands under the name is looked at, and not what came beside it.
        incoming.compare_with_standing();
    }

    /// Whether what is the same is so because an earlier run of the job brought it.
    pub(super) fn goes_on(&self) -> bool {
        self.options.update == Update::Always && self.log.as_ref().is_some_and(Keeping::resumes)
    }

    /// A file is at its end and did not fail.
    pub(super) fn arrived(&self, incoming: &Incoming, outcome: &Outcome) {
        if *outcome == Outcome::Same {
            // A temporary file may have been made for its bytes.
            incoming.let_go(false);
        }
        let Some(log) = self.log_of(incoming) else { return };
        log.release(&incoming.path);
        match outcome {
            Outcome::Done(_) => log.complete(incoming.last().as_deref()),
            Outcome::Same if self.goes_on() => {
                self.session.spared.fetch_add(incoming.facts.size(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// These objects need not be sent.
    pub(super) fn spare(&self, incoming: &Incoming, have: &Runs) {
        if !have.is_empty() {
            incoming.keep_for_later();
        }
        let (object, size) = (self.options.object.bytes(), incoming.facts.size());
        let at = |index: u64| index.saturating_mul(object).min(size);
        let bytes = have.iter().map(|(first, past)| at(past) - at(first)).sum();
        self.session.spared.fetch_add(bytes, Ordering::Relaxed);
        self.session.tally.settled(incoming.count(bytes));
    }

    /// The log, where a file has its place in it.
    fn log_of(&self, incoming: &Incoming) -> Option<&Keeping> {
        self.log.as_ref().filter(|_| incoming.is_claimed)
    }

    /// A file is under way no more.
    pub(super) fn release(&self, incoming: &Incoming) {
        if let Some(log) = self.log_of(incoming) {
            log.release(&incoming.path);
        }
    }

    /// The end of a file that did not arrive: what there is of it stays if the next run can go on with it, and `may_come_later`.
    pub(super) fn let_go(&self, incoming: &Incoming, may_come_later: bool) {
        let Some(log) = self.log_of(incoming) else { return incoming.let_go(false) };
        let keeps = may_come_later && incoming.is_kept_for_later() && log.keeps_one();
        if !keeps {
            log.forget(incoming.last().as_deref());
        } else if incoming.may_come_later()
            && let Some(kept) = incoming.last()
            && let Some(name) = kept.temporary_name()
        {
            let blocks = stat::stat_fd(kept.fd()).map_or(0, |facts| facts.blocks);
            self.session.report.note(&format!(
                "{}: the same command completes this file; until then {} stay beside it in {}, which may be removed to free them",
                quote(OsStr::from_bytes(incoming.path.as_bytes())),
                format_size(blocks.saturating_mul(512)),
                name.to_string_lossy()
            ));
        }
        incoming.let_go(keeps);
        if !keeps {
            log.release(&incoming.path);
        }
    }

    /// All files of a directory have been met: what earlier runs left of others goes.
    pub(super) fn sweep_left(&self, path: &RelPath) {
        let Some(log) = self.log.as_ref().filter(|log| log.was_begun()) else { return };
        // Best effort: it has names of its own, and is in nobody's way.
        let _ = self
            .store
            .places
            .open(path.as_bytes(), Missing::Fails)
            .and_then(|place| log.sweep(&place, path.as_bytes()));
    }

    /// An object arrived and is right.
    pub(super) fn proved(&self, file: FileNumber, attempt: u16, object: Object) {
        let Some(incoming) = self.incoming(file) else { return };
        self.session.tally.settled(incoming.count(object.range.len()));
        let is_logged = |log: &&Keeping| !self.options.in_place && log.goes_on_within_files();
        let Some(log) = self.log_of(&incoming).filter(is_logged) else { return };
        if let Some(arriving) = incoming.open_for(attempt) {
            log.proved(file, attempt, object, (incoming, arriving));
        }
    }
}

/// What is logged of a file, without a sample of it and that sample: its first object is always in it.
fn sampled(objects: &ObjectSet) -> (Runs, Runs) {
    let (mut have, mut samples) = (Runs::default(), Runs::default());
    let one_in = objects.len().div_ceil(SAMPLE_OBJECTS_MAX).max(SAMPLE_ONE_IN);
    for (at, object) in (0..).zip(objects.iter()) {
        let is_sample = u64::is_multiple_of(at, one_in);
        if is_sample { &mut samples } else { &mut have }.insert(object.0);
    }
    (have, samples)
}

fn runs(objects: impl Iterator<Item = ObjectIndex>) -> Runs {
    let mut runs = Runs::default();
    for object in objects {
        runs.insert(object.0);
    }
    runs
}
