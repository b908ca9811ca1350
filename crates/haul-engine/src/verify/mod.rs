//! Verification of data against a waybill: files are read again and compared with the recorded
//! digests.
//!
//! The module [`crate::sum`] does the reading, with many workers and large files shared by objects.
//! Here the lines of a waybill become its orders ([`orders`]), and its results become verdicts
//! ([`judge`]).
//!
//! A waybill of any length is read as a stream. Some checks need all paths together: later sections
//! that replace an entry, and names that no section lists. For these checks the module keeps hashes
//! of a bounded share of the paths at a time ([`index`]).
//!
//! - [`stored`] verifies against digests that are stored with the files instead of a waybill.
//! - [`disk`] reads small files in the order of their positions on the disk.
//! - [`locate`] narrows damage down to leaves, if the waybill contains leaves.

mod disk;
mod extraneous;
#[cfg(test)]
mod faulty_storage;
mod index;
mod judge;
mod locate;
mod orders;
mod resume;
mod root;
mod stored;
#[cfg(test)]
mod tests;

pub use judge::{Change, Verdict, VerdictKind};
pub use locate::{Located, WholeObjectReason};
pub(crate) use resume::{Log, any_state};
pub use resume::{Resumption, StateFile};
pub(crate) use root::component_of;
pub use root::{RootError, recorded_root, resolve_root};
pub use stored::{StoredSettings, verify_stored};

use crate::log::{Stamp, Stamped};
use crate::sum::{self, Counters, Settings};
use disk::{ByPlace, InOrder};
use haul_digest::Digest;
use haul_log::waybill::{Entry, Kind, ReadError, Reader, Record};
use haul_storage::{Dir, Follow, local};
use index::Index;
use orders::Waybill;
use resume::EntryResult;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Settings of a verification.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// Path of the waybill: a regular file, because it is read more than once.
    pub waybill: OsString,
    /// Directory that the paths of the waybill are relative to. Nothing outside is opened, whatever
    /// the waybill or links say.
    pub root: OsString,
    /// Settings for reading the data.
    pub reading: Settings,
    /// Share of the objects that is read, from 0 to 1, and the seed of their random selection;
    /// `None` for all objects.
    pub sample: Option<(f64, u64)>,
    /// True if names below the root that the waybill does not list are reported as well.
    pub extra: bool,
    /// True if damaged objects are read again to find the damaged leaves. This needs a waybill with
    /// leaves.
    pub locate: bool,
    /// State file with the progress of the verification; an interrupted run resumes from it.
    pub resume: Option<StateFile>,
    /// True if the sample may have another seed: a resumed run keeps its own seed.
    pub any_seed: bool,
}

/// Receiver of the events of a verification.
///
/// Calls are serialized: no two threads call it at the same time.
pub trait VerifyObserver: Send {
    /// Receives the verdict on one entry of the waybill or on an extraneous name.
    fn judged(&mut self, verdict: &Verdict);
    /// Receives a flaw of the waybill itself; the verification continues with the rest.
    fn flawed(&mut self, flaw: &ReadError);
    /// Receives a message about resuming an earlier run.
    fn resumption(&mut self, _told: &Resumption) {}
    /// Flushes the output: the state file is about to record the reported verdicts as reported.
    fn keep(&mut self) {}
    /// Returns true if a resumed run checks an entry again even if it was intact.
    fn rechecks(&mut self, _verdict: &Verdict) -> bool {
        false
    }
}

/// Totals of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyTotals {
    /// Entries that match the waybill.
    pub intact: u64,
    /// Intact entries that an earlier run verified and that did not change since.
    pub before: u64,
    /// Files with different contents and another modification time or size, and names of another
    /// file type.
    pub modified: u64,
    /// Files with different contents but the same modification time and size.
    pub rotted: u64,
    /// Names that no longer exist.
    pub missing: u64,
    /// Names that the waybill does not list.
    pub extra: u64,
    /// Entries that could not be read, or for which the waybill has no digest.
    pub unproven: u64,
    /// Entries that the sample left out.
    pub passed: u64,
    /// Flaws of the waybill itself.
    pub flaws: u64,
    /// Bytes read and compared, including earlier runs that this run resumes.
    pub bytes: u64,
    /// Bytes that the earlier runs read.
    pub bytes_before: u64,
}

/// Reason why nothing could be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The waybill cannot be opened.
    #[error("cannot open the waybill {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    Waybill(OsString, #[source] io::Error),
    /// The file is not a waybill, or has a later version.
    #[error("{}: {source}", crate::copy::quote(path))]
    Refused {
        /// Path of the waybill.
        path: OsString,
        /// Reason for the refusal.
        source: ReadError,
    },
    /// The waybill has no entries, as that of a job which failed: it proves nothing.
    #[error("{}: the waybill has no entries, so that it proves nothing", crate::copy::quote(.0))]
    Empty(OsString),
    /// The directory cannot be opened.
    #[error("cannot open {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    Root(OsString, #[source] io::Error),
    /// The state of an earlier run cannot be read.
    #[error("cannot resume from {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    State(OsString, #[source] io::Error),
    /// The root cannot be listed.
    #[error("cannot list {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    List(OsString, #[source] io::Error),
}

/// Verifies the entries of a waybill. `counters` can be read meanwhile. When `stop` turns true,
/// returns soon; entries that were not reached are not counted.
///
/// # Errors
/// Returns a [`VerifyError`] if nothing could be verified, or if the verification is incomplete.
pub fn verify(
    settings: &VerifySettings,
    report: &mut dyn VerifyObserver,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<VerifyTotals, VerifyError> {
    let (totals, log) = verify_and_keep(settings, report, counters, stop)?;
    if let Some(log) = log.filter(|_| !stop.load(Ordering::Relaxed)) {
        log.finish(report);
    }
    Ok(totals)
}

/// Same as [`verify`], but keeps the state for a caller that has more work to do.
pub(crate) fn verify_and_keep(
    settings: &VerifySettings,
    report: &mut dyn VerifyObserver,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<(VerifyTotals, Option<Log>), VerifyError> {
    let root = local::open(Path::new(&settings.root), Follow::Yes)
        .map_err(|source| VerifyError::Root(settings.root.clone(), source))?;
    verify_beneath(&root, settings, report, counters, stop)
}

/// Same as [`verify_and_keep`], for an open root.
fn verify_beneath(
    root: &Arc<dyn Dir>,
    settings: &VerifySettings,
    report: &mut dyn VerifyObserver,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<(VerifyTotals, Option<Log>), VerifyError> {
    let refused = |source| VerifyError::Refused { path: settings.waybill.clone(), source };
    let stamped = Stamped::now();
    let mut totals = VerifyTotals::default();
    let summary = look_through(&settings.waybill, report, &mut totals)?;
    if summary.entries == 0 && totals.flaws == 0 {
        return Err(VerifyError::Empty(settings.waybill.clone()));
    }
    let needs_index = summary.sections > 1 || settings.extra;
    let shares = if needs_index { index::shares(summary.entries) } else { 1 };
    // If several sections list a file, only the last one is read, so the total is unknown until
    // then.
    if settings.sample.is_none() && summary.sections == 1 {
        counters.announce(summary.files, summary.bytes);
    }
    let receipt = extraneous::ReceiptFiles::at(&settings.waybill);
    let mut log = open_log(settings, &summary, &totals, shares, report)?;
    totals.bytes_before = log.as_ref().map_or(0, Log::bytes_before);
    let sample =
        settings.sample.map(|(share, seed)| (share, log.as_ref().and_then(Log::seed).unwrap_or(seed)));
    for share in 0..shares {
        let index = needs_index
            .then(|| Index::of(read(&settings.waybill)?, share, shares))
            .transpose()
            .map_err(refused)?
            .map(Arc::new);
        let earlier = log.as_ref().map(Log::earlier).transpose();
        let earlier = earlier.map_err(|source| VerifyError::State(state_name(settings), source))?;
        let reader = read(&settings.waybill).map_err(refused)?;
        let orders = Waybill::new(reader, Arc::clone(root), sample, index.clone(), share, earlier);
        let locator = settings.locate.then(|| locate::Locator::new(settings, Arc::clone(root), stop));
        let mut in_order = InOrder::new();
        let orders = ByPlace::new(orders, &settings.reading);
        let keeps = log.is_some();
        sum::run(&settings.reading, orders, counters, stop, |ticket, outcome| {
            let verdict = |expected: judge::Expected| {
                let place = (expected.number, expected.mark);
                if let (Some(VerdictKind::Before), Kind::File(content)) =
                    (&expected.early, &expected.entry.kind)
                {
                    counters.was_done_before(content.size);
                }
                let content = locator.as_ref().map(|_| expected.entry.clone());
                let stamp = if keeps { stamp_of(stamped, &expected, &outcome) } else { Stamp::default() };
                (place, content, stamp, judge::judge(expected, outcome))
            };
            in_order.take(ticket, verdict, |((entry, mark), content, stamp, mut verdict)| {
                if let Some(verdict) = &mut verdict {
                    if let Some((locator, content)) = locator.as_ref().zip(content) {
                        locator.narrow(mark, &content, verdict);
                    }
                    totals.count(verdict);
                    if verdict.kind != VerdictKind::Before {
                        report.judged(verdict);
                    }
                }
                if let Some(log) = &mut log {
                    let again = verdict.as_ref().is_some_and(|verdict| report.rechecks(verdict));
                    let kind = verdict.as_ref().map(|verdict| &verdict.kind);
                    log.note(EntryResult { share, entry, kind, again, stamp });
                    log.save(counters.bytes_done(), false, report);
                }
            });
        });
        if let Some(index) = index.filter(|_| settings.extra && !stop.load(Ordering::Relaxed)) {
            let tell = &mut |verdict: Verdict| {
                totals.count(&verdict);
                report.judged(&verdict);
            };
            let (index, receipt) = (&*index, &receipt);
            let extraneous = extraneous::ExtraneousWalk { root, index, receipt, stop, tell };
            extraneous.find().map_err(|source| VerifyError::List(settings.root.clone(), source))?;
        }
    }
    totals.bytes = totals.bytes_before + counters.bytes_done();
    if let Some(log) = &mut log {
        log.save(counters.bytes_done(), true, report);
    }
    Ok((totals, log))
}

/// Returns the path of the state file, for messages.
fn state_name(settings: &VerifySettings) -> OsString {
    settings.resume.as_ref().map(StateFile::name).unwrap_or_default()
}

/// Returns the stamp that the file of an entry had before it was read.
fn stamp_of(stamped: Stamped, expected: &judge::Expected, outcome: &sum::Outcome) -> Stamp {
    let sum::Outcome::Done(sums) = outcome else { return Stamp::default() };
    let facts = sums.facts.as_ref();
    facts.map_or_else(Stamp::default, |facts| stamped.stamp(expected.entry.path.as_bytes(), facts))
}

/// Opens the state of the job, if one is kept. The state is bound to the waybill, the root and the
/// settings.
fn open_log(
    settings: &VerifySettings,
    summary: &Summary,
    totals: &VerifyTotals,
    shares: u64,
    report: &mut dyn VerifyObserver,
) -> Result<Option<Log>, VerifyError> {
    let Some(file) = &settings.resume else { return Ok(None) };
    let Some(closing) = summary.closing.filter(|_| totals.flaws == 0) else {
        if file.is_there() {
            report.resumption(&Resumption::Anew(
                "the waybill has flaws; every entry is verified and no state is kept",
            ));
        }
        return Ok(None);
    };
    let failed = |source| VerifyError::State(state_name(settings), source);
    let root = std::fs::canonicalize(&settings.root).map_err(failed)?;
    let bound_seed = |seed| (!settings.any_seed).then_some(seed);
    let sample = settings.sample.map(|(share, seed)| (share.to_bits(), bound_seed(seed)));
    let how = (sample, settings.reading.direct, shares);
    let bound = format!("{closing} {root:?} {how:?}");
    let seed = settings.sample.map(|(_, seed)| seed);
    Log::open(file.clone(), bound.as_bytes(), seed, report).map(Some).map_err(failed)
}

/// Calls `visit` for each entry of a waybill that no later section replaces, judging each line by
/// itself. Reports each flaw to `report` once.
///
/// # Errors
/// Returns a [`VerifyError`] if the file cannot be read or is not a waybill.
pub fn each_current<R: VerifyObserver>(
    waybill: &OsStr,
    report: &mut R,
    visit: &mut dyn FnMut(&mut R, Entry),
) -> Result<VerifyTotals, VerifyError> {
    let refused = |source| VerifyError::Refused { path: waybill.to_owned(), source };
    let mut totals = VerifyTotals::default();
    let summary = look_through(waybill, report, &mut totals)?;
    let shares = if summary.sections > 1 { index::shares(summary.entries) } else { 1 };
    for share in 0..shares {
        let index = (summary.sections > 1)
            .then(|| Index::of(read(waybill)?, share, shares))
            .transpose()
            .map_err(refused)?;
        let mut section = 0;
        for record in read(waybill).map_err(refused)?.filter_map(Result::ok) {
            match record {
                Record::Section(_) => section += 1,
                Record::Entry(entry)
                    if index.as_ref().is_none_or(|index| index.is_current(&entry.path, section)) =>
                {
                    visit(report, entry);
                }
                _ => {}
            }
        }
    }
    Ok(totals)
}

/// Result of the first pass through the whole waybill.
struct Summary {
    sections: u64,
    entries: u64,
    /// Number of regular files in all sections.
    files: u64,
    bytes: u64,
    /// Digest of the last closing line, which covers everything before it.
    closing: Option<Digest>,
}

/// Reads the waybill once before any data, so that its own flaws are reported first and only once.
fn look_through(
    path: &OsStr,
    report: &mut dyn VerifyObserver,
    totals: &mut VerifyTotals,
) -> Result<Summary, VerifyError> {
    let mut summary = Summary { sections: 0, entries: 0, files: 0, bytes: 0, closing: None };
    for record in read(path).map_err(|error| match error {
        ReadError::Io(source) => VerifyError::Waybill(path.to_owned(), source),
        source => VerifyError::Refused { path: path.to_owned(), source },
    })? {
        match record {
            Ok(Record::Section(_)) => summary.sections += 1,
            Ok(Record::Entry(_)) => summary.entries += 1,
            Ok(Record::End(end)) => {
                summary.closing = Some(end.digest);
                summary.files += end.files;
                summary.bytes = summary.bytes.saturating_add(end.bytes);
            }
            Ok(_) => {}
            Err(flaw @ ReadError::Flaw(_)) => {
                totals.flaws += 1;
                report.flawed(&flaw);
            }
            Err(source) => return Err(VerifyError::Refused { path: path.to_owned(), source }),
        }
    }
    Ok(summary)
}

/// Opens a reader at the start of a waybill. Rejects a pipe: a pipe can be read only once, so the
/// second pass would find no entries and thus no damage.
fn read(path: &OsStr) -> Result<Reader<BufReader<File>>, ReadError> {
    if !std::fs::metadata(path)?.is_file() {
        let why =
            "not a regular file, but a waybill is read more than once; save the waybill to a file first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    Ok(Reader::new(BufReader::with_capacity(1 << 20, File::open(path)?)))
}

impl VerifyTotals {
    /// Returns true if every name was looked up and none exists; usually the user named the wrong
    /// directory.
    pub fn found_none(&self) -> bool {
        self.missing > 0 && self.intact + self.modified + self.rotted + self.unproven + self.passed == 0
    }

    fn count(&mut self, verdict: &Verdict) {
        let place = match &verdict.kind {
            VerdictKind::Intact { .. } => &mut self.intact,
            VerdictKind::Before => {
                self.before += 1;
                &mut self.intact
            }
            VerdictKind::Modified(_) => &mut self.modified,
            VerdictKind::Rotted => &mut self.rotted,
            VerdictKind::Missing => &mut self.missing,
            VerdictKind::Extra => &mut self.extra,
            VerdictKind::Unreadable(_) | VerdictKind::NoDigest => &mut self.unproven,
            VerdictKind::Passed => &mut self.passed,
        };
        *place += 1;
    }

    /// Returns true if data differs from the waybill.
    pub fn has_damage(&self) -> bool {
        self.modified + self.rotted + self.missing + self.extra > 0
    }

    /// Returns true if something could not be checked.
    pub fn has_trouble(&self) -> bool {
        self.unproven + self.flaws > 0
    }
}
