//! Decides how the files that an earlier run of the job left are resumed.

use super::SinkContext;
use super::incoming::IncomingFile;
use super::object_log::{LogEntry, SinkLog};
use super::partial_file::PartialFile;
use super::tasks::Compare;
use super::update::timespec;
use crate::copy::has_time;
use crate::log::{LogError, ResumeCheck, SAMPLE_OBJECTS_MAX, SAMPLE_ONE_IN};
use haul_log::objects::ObjectSet;
use haul_model::{ByteLen, Geometry, Level, ObjectIndex, RelPath};
use haul_proto::sink::Verdict;
use haul_proto::{Runs, Update};
use haul_storage::{SourceFile, Stat};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Minimum digest length, in bytes, for comparing arbitrary bytes. With a shorter digest, unwritten
/// bytes would occasionally match by chance.
const DIGEST_BYTES_MIN: usize = 8;

impl SinkContext<'_> {
    /// Decides about a file that replaces any existing file, except a file that this job received.
    /// Returns `None` if a background task decides.
    pub(super) fn decide_always(&self, incoming: &Arc<IncomingFile>) -> Option<Verdict> {
        let log = self.log_for(incoming).filter(|log| log.resumes());
        let Some(log) = log else { return self.take(incoming) };
        // A file that cannot be examined is sent again. That attempt then reports the error.
        let existing = incoming.existing(&self.destination.dirs).ok().flatten();
        let Some(file) = existing else { return self.take(incoming) };
        match self.received_earlier(incoming, log, file.opened()) {
            Some(true) => self.accept_finished(incoming, &*file, log),
            Some(false) => Some(self.compare_whole(incoming)),
            None => self.take(incoming),
        }
    }

    /// Checks if an earlier run of the job received the existing file `stat`, as
    /// [`SinkLog::received_by_earlier_run`] does.
    fn received_earlier(&self, incoming: &IncomingFile, log: &SinkLog, stat: &Stat) -> Option<bool> {
        let facts = &incoming.facts;
        if stat.size != facts.size() || !has_time(stat, timespec(facts.mtime)) {
            return None;
        }
        // A file that is written in place gets its times before its last bytes are durable.
        let is_durable = self.options.settle >= Level::Durable && !self.options.in_place;
        log.received_by_earlier_run(stat, self.options.in_place, is_durable)
    }

    /// Decides about a file that the update rule keeps.
    ///
    /// A rule that looks only at names and times may keep the file of an earlier run of the job.
    /// Further names of the file become links to it, after a comparison.
    pub(super) fn keep(&self, incoming: &Arc<IncomingFile>, existing: Stat) -> Verdict {
        let facts = &incoming.facts;
        let log = self.log_for(incoming).filter(|_| facts.is_linked && !self.options.dry_run);
        if self.options.update == Update::SizeTime {
            self.destination.allow_links_to(facts, || Some(existing));
        } else if log.is_some_and(|log| self.received_earlier(incoming, log, &existing).is_some()) {
            return self.compare_whole(incoming);
        }
        Verdict::Same
    }

    /// Compares the existing file with the digest of the source.
    pub(super) fn compare_whole(&self, incoming: &IncomingFile) -> Verdict {
        self.tasks.comparing.push(Compare::Whole { file: incoming.facts.number });
        Verdict::UnlessDigest
    }

    /// Handles a file that an earlier run completed: sets the current metadata of its source.
    fn accept_finished(
        &self,
        incoming: &IncomingFile,
        file: &dyn SourceFile,
        log: &SinkLog,
    ) -> Option<Verdict> {
        log.mark_seen(&incoming.path);
        Some(match self.metadata_writer.apply(file, &incoming.facts) {
            Ok(()) => {
                self.session.reused_bytes.fetch_add(incoming.facts.size(), Ordering::Relaxed);
                self.destination.allow_links_to(&incoming.facts, || file.stat().ok());
                Verdict::Same
            }
            Err(reason) => Verdict::Refused(reason),
        })
    }

    /// Requests a file, except objects of it that are already present.
    pub(super) fn take(&self, incoming: &Arc<IncomingFile>) -> Option<Verdict> {
        let all = || Some(Verdict::Take { have: Runs::default() });
        let Some(log) = self.log_for(incoming) else { return all() };
        log.mark_seen(&incoming.path);
        if !log.resumes_within_files() || incoming.facts.size() <= self.options.object.bytes() {
            return all();
        }
        if self.options.in_place {
            let is_there = incoming.existing(&self.destination.dirs).is_ok_and(|found| found.is_some());
            let may_compare = log.resumes() && is_there && !self.hides_partial_objects();
            return if may_compare { self.compare(incoming) } else { all() };
        }
        // If the file cannot be opened, it cannot be created either. That attempt then reports the
        // error.
        let left = incoming.reopen(&self.destination.dirs, &self.session.over).ok().flatten();
        let gone_on_with = left.and_then(|stat| self.decide_resume(incoming, log, &stat));
        gone_on_with.unwrap_or_else(|| {
            incoming.forget();
            let forgotten = log.discard_entries(&incoming.path);
            forgotten.unwrap_or_else(|error| log.report_once(self.session.report, &error));
            all()
        })
    }

    /// Decides how to resume a reopened file. Returns `None` if the file is of no use.
    fn decide_resume(
        &self,
        incoming: &Arc<IncomingFile>,
        log: &SinkLog,
        stat: &Stat,
    ) -> Option<Option<Verdict>> {
        let (key, objects) = match log.entry_for(incoming, stat) {
            LogEntry::Logged(key, objects) => (key, objects),
            LogEntry::NoEntry if self.may_compare(log, stat) => {
                let ready = incoming.make_private().map_err(LogError::sink);
                let forgotten = ready.and_then(|()| log.discard_entries(&incoming.path));
                forgotten.inspect_err(|error| log.report_once(self.session.report, error)).ok()?;
                return Some(self.compare(incoming));
            }
            LogEntry::NoEntry | LogEntry::OtherVersion => return None,
        };
        incoming.set_log_key(key);
        let recheck =
            if self.may_be_logged_file(incoming, stat, &objects) { log.recheck } else { ResumeCheck::All };
        Some(match recheck {
            ResumeCheck::None => {
                let have = runs(objects.iter());
                self.count_reused(incoming, &have);
                Some(Verdict::Take { have })
            }
            ResumeCheck::Sample => self.sample(incoming, &objects),
            ResumeCheck::All => {
                let revoked = incoming.make_private().map_err(LogError::sink).and_then(|()| log.revoke(key));
                revoked.inspect_err(|error| log.report_once(self.session.report, error)).ok()?;
                self.compare(incoming)
            }
        })
    }

    /// Returns true if a reopened file can be the logged file. It cannot be if other users may have
    /// written to it, or if it ends too soon. If the file system has no birth times, another file
    /// may have got the same inode number since.
    fn may_be_logged_file(&self, incoming: &IncomingFile, stat: &Stat, objects: &ObjectSet) -> bool {
        let geometry = Geometry::new(ByteLen(incoming.facts.size()), self.options.object);
        let last = objects.iter().last().and_then(|last| geometry.object(last));
        let holds_last = last.is_none_or(|last| last.range.end.0 <= stat.size);
        PartialFile::is_private(stat) && stat.btime.is_some() && holds_last
    }

    /// Returns true if a file without a log entry may be compared with the source: this user
    /// created it, and the digest is long enough.
    fn may_compare(&self, log: &SinkLog, stat: &Stat) -> bool {
        let is_owned = PartialFile::is_owned(stat) && stat.size > 0;
        is_owned && log.compares && self.options.algorithm.digest_len() >= DIGEST_BYTES_MIN
    }

    /// Compares all objects of the file with the source. The source sends only those that differ.
    fn compare(&self, incoming: &Arc<IncomingFile>) -> Option<Verdict> {
        incoming.set_comparison(Runs::default(), Runs::default());
        self.tasks.comparing.push(Compare::Objects { file: incoming.facts.number });
        None
    }

    /// Compares a sample of the logged objects. The other objects count if the sample matches.
    fn sample(&self, incoming: &Arc<IncomingFile>, objects: &ObjectSet) -> Option<Verdict> {
        let (have, samples) = sampled(objects);
        // If a sample differs, the logged objects are not overwritten.
        incoming.mark_kept();
        self.count_reused(incoming, &have);
        incoming.set_comparison(have, samples);
        self.tasks.comparing.push(Compare::Objects { file: incoming.facts.number });
        None
    }

    /// Prepares the comparison of objects with the existing file. Objects that an earlier run
    /// received are skipped, except for a sample, which is compared with the temporary file.
    pub(super) fn resume_from_existing(&self, incoming: &Arc<IncomingFile>) {
        let is_small = incoming.facts.size() <= self.options.object.bytes();
        let may_resume = |log: &&SinkLog| !is_small && !self.options.in_place && log.resumes_within_files();
        let Some(log) = self.log_for(incoming).filter(may_resume) else { return };
        log.mark_seen(&incoming.path);
        let Ok(Some(stat)) = incoming.reopen(&self.destination.dirs, &self.session.over) else { return };
        match log.entry_for(incoming, &stat) {
            LogEntry::Logged(key, objects)
                if log.recheck != ResumeCheck::All && self.may_be_logged_file(incoming, &stat, &objects) =>
            {
                incoming.set_log_key(key);
                // If a sample differs, the logged objects are not overwritten.
                incoming.mark_kept();
                let (have, samples) = match log.recheck {
                    ResumeCheck::Sample => sampled(&objects),
                    _ => (runs(objects.iter()), Runs::default()),
                };
                self.count_reused(incoming, &have);
                incoming.set_comparison(have, samples);
            }
            _ => {
                incoming.forget();
                let forgotten = log.discard_entries(&incoming.path);
                forgotten.unwrap_or_else(|error| log.report_once(self.session.report, &error));
            }
        }
        // Compare with the existing file instead of the temporary file.
        incoming.compare_with_existing();
    }

    /// Returns true if equal content counts as received by an earlier run of the job.
    pub(super) fn counts_as_received(&self) -> bool {
        self.options.update == Update::Always && self.log.as_ref().is_some_and(SinkLog::resumes)
    }

    /// Counts objects that need not be sent.
    pub(super) fn count_reused(&self, incoming: &IncomingFile, have: &Runs) {
        if !have.is_empty() {
            incoming.mark_kept();
        }
        let (object, size) = (self.options.object.bytes(), incoming.facts.size());
        let at = |index: u64| index.saturating_mul(object).min(size);
        let bytes = have.iter().map(|(first, past)| at(past) - at(first)).sum();
        self.session.reused_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.session.tally.settled(incoming.count(bytes));
    }

    /// Removes the temporary files that earlier runs left in a directory, after the source has
    /// offered all files in it, or does not have it.
    pub(super) fn sweep_leftovers(&self, path: &RelPath) {
        let Some(log) = self.log.as_ref().filter(|log| log.has_earlier_run()) else { return };
        // Ignore an error: the temporary names are unique, so they conflict with no other file.
        let _ = self.destination.dirs.open(path.as_bytes()).and_then(|dir| log.sweep(&*dir, path.as_bytes()));
    }
}

/// Splits the logged objects of a file into those that count without a comparison and a sample. The
/// first object is always in the sample.
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
