//! Verifying data against a waybill: files are read again, and what is found is held against what was written down.
//!
//! The reading is [`crate::sum`]'s: many workers, large files shared by objects. Here the lines of a waybill become its
//! orders ([`orders`]), and its results verdicts ([`judge`]). A waybill of any length is read as a stream; what has to be
//! known of all its paths at once (a later section that speaks of the same name, names that no section speaks of) is
//! kept by hashes, for a bounded share of the paths at a time ([`index`]). Digests that are kept with the files themselves
//! take a waybill's place in [`stored`]. Small files are read in the order of their places on the disk ([`disk`]); where
//! the waybill keeps leaves, damage is narrowed down to those ([`locate`]).

mod disk;
mod index;
mod judge;
mod locate;
mod orders;
mod resume;
mod root;
mod stored;
mod strays;
#[cfg(test)]
mod tests;

pub use judge::{Change, Verdict, VerdictKind};
pub use locate::{Located, WhyWhole};
pub(crate) use resume::Log;
pub use resume::{Resumption, StateFile};
pub use root::{RootError, meant_root, recorded_root};
pub use stored::{StoredSettings, verify_stored};

use crate::log::{Stamp, Stamped};
use crate::sum::{self, Counters, Settings};
use disk::{ByPlace, InOrder};
use haul_digest::Digest;
use haul_log::waybill::{Entry, Kind, ReadError, Reader, Record};
use haul_sys::beneath;
use index::Index;
use orders::Waybill;
use resume::Noted;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// What is verified, and how.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// The waybill: a regular file, which is read more than once.
    pub waybill: OsString,
    /// The directory its paths lie beneath. Nothing outside is opened, whatever the waybill or links there say.
    pub root: OsString,
    /// How the data is read.
    pub reading: Settings,
    /// The share of the objects that is read, from 0 to 1, picked by chance from this seed; `None` for all of them.
    pub sample: Option<(f64, u64)>,
    /// Names beneath the root that the waybill does not speak of are told as well.
    pub extra: bool,
    /// Damaged objects are read once more, and told down to the leaves that differ where the waybill keeps leaves.
    pub locate: bool,
    /// Where it is kept how far the verification came, and from where one that was ended goes on.
    pub resume: Option<StateFile>,
    /// The sample's seed may be another one: a run that is gone on with keeps to its own.
    pub any_seed: bool,
}

/// The ear of a verification. Called by one thread at a time.
pub trait VerifyReport: Send {
    /// What became of one entry of the waybill, or of a stray name.
    fn judged(&mut self, verdict: &Verdict);
    /// The waybill itself has a flaw; the verification goes on with the rest of it.
    fn flawed(&mut self, flaw: &ReadError);
    /// What is to be said about going on with an earlier run.
    fn resumption(&mut self, _told: &Resumption) {}
    /// What was told is about to be written down as told: it must be out.
    fn keep(&mut self) {}
    /// Whether a run that goes on with this one looks at an entry again even if it was intact.
    fn looks_again(&mut self, _verdict: &Verdict) -> bool {
        false
    }
}

/// What a verification came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// Entries that are as the waybill says.
    pub intact: u64,
    /// Those among them that an earlier run found intact, and nobody touched since.
    pub before: u64,
    /// Files with other bytes under another time or of another size, and names that became something else.
    pub modified: u64,
    /// Files with other bytes under the same time and size.
    pub rotted: u64,
    /// Names that are gone.
    pub missing: u64,
    /// Names the waybill does not speak of.
    pub extra: u64,
    /// Entries that could not be read, or for which the waybill has no digest.
    pub unproven: u64,
    /// Entries left out by the sample.
    pub passed: u64,
    /// Flaws of the waybill itself.
    pub flaws: u64,
    /// Bytes read and compared, by earlier runs that this one goes on with as well.
    pub bytes: u64,
    /// Those among them that earlier runs read.
    pub bytes_before: u64,
}

/// Why nothing could be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The waybill can't be opened.
    #[error("cannot open the waybill {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    Waybill(OsString, #[source] io::Error),
    /// It is no waybill, or one of a later version.
    #[error("{}: {source}", crate::copy::quote(path))]
    Refused {
        /// The waybill.
        path: OsString,
        /// What is wrong with it.
        source: ReadError,
    },
    /// The directory can't be opened.
    #[error("cannot open {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    Root(OsString, #[source] io::Error),
    /// The state of an earlier run can't be read.
    #[error("going on: {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    State(OsString, #[source] io::Error),
    /// The root can't be listed.
    #[error("cannot list {}: {}", crate::copy::quote(.0), sum::reason(.1))]
    List(OsString, #[source] io::Error),
}

/// Verifies what the waybill says. `counters` can be read meanwhile; when `stop` turns true it ends soon, and what was
/// not reached is not counted.
///
/// # Errors
/// [`VerifyError`]: then nothing, or not all, was verified.
pub fn verify(
    settings: &VerifySettings,
    report: &mut dyn VerifyReport,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<Tallied, VerifyError> {
    let (tallied, log) = verify_and_keep(settings, report, counters, stop)?;
    if let Some(log) = log.filter(|_| !stop.load(Ordering::Relaxed)) {
        log.finish(report);
    }
    Ok(tallied)
}

/// [`verify`], and the state is kept: for who has more to do before all is done.
pub(crate) fn verify_and_keep(
    settings: &VerifySettings,
    report: &mut dyn VerifyReport,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<(Tallied, Option<Log>), VerifyError> {
    let root = beneath::open_root(&settings.root)
        .map_err(|source| VerifyError::Root(settings.root.clone(), source))?;
    let root = Arc::new(root);
    let refused = |source| VerifyError::Refused { path: settings.waybill.clone(), source };
    let stamped = Stamped::now();
    let mut tallied = Tallied::default();
    let summary = look_through(&settings.waybill, report, &mut tallied)?;
    let needs_index = summary.sections > 1 || settings.extra;
    let shares = if needs_index { index::shares(summary.entries) } else { 1 };
    // Of a file told by several sections, the last is the one that is read: how many there are is not known before.
    if settings.sample.is_none() && summary.sections == 1 {
        counters.announce(summary.files, summary.bytes);
    }
    let receipt = strays::OfTheReceipt::at(&settings.waybill);
    let mut log = open_log(settings, &summary, &tallied, shares, report)?;
    tallied.bytes_before = log.as_ref().map_or(0, Log::bytes_before);
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
        let orders = Waybill::new(reader, Arc::clone(&root), sample, index.clone(), share, earlier);
        let locator = settings.locate.then(|| locate::Locator::new(settings, Arc::clone(&root), stop));
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
                    tallied.count(verdict);
                    if verdict.kind != VerdictKind::Before {
                        report.judged(verdict);
                    }
                }
                if let Some(log) = &mut log {
                    let again = verdict.as_ref().is_some_and(|verdict| report.looks_again(verdict));
                    let kind = verdict.as_ref().map(|verdict| &verdict.kind);
                    log.note(Noted { share, entry, kind, again, stamp });
                    log.save(counters.bytes_done(), false, report);
                }
            });
        });
        if let Some(index) = index.filter(|_| settings.extra && !stop.load(Ordering::Relaxed)) {
            let tell = &mut |verdict: Verdict| {
                tallied.count(&verdict);
                report.judged(&verdict);
            };
            let (root, index, receipt) = (&*root, &*index, &receipt);
            let strays = strays::Strays { root, index, receipt, stop, tell, open: Vec::new() };
            strays.find().map_err(|source| VerifyError::List(settings.root.clone(), source))?;
        }
    }
    tallied.bytes = tallied.bytes_before + counters.bytes_done();
    if let Some(log) = &mut log {
        log.save(counters.bytes_done(), true, report);
    }
    Ok((tallied, log))
}

/// The state's file, for messages.
fn state_name(settings: &VerifySettings) -> OsString {
    settings.resume.as_ref().map(StateFile::name).unwrap_or_default()
}

/// What the file of an entry looked like before it was read.
fn stamp_of(stamped: Stamped, expected: &judge::Expected, outcome: &sum::Outcome) -> Stamp {
    let sum::Outcome::Done(sums) = outcome else { return Stamp::default() };
    let facts = sums.facts.as_ref();
    facts.map_or_else(Stamp::default, |facts| stamped.stamp(expected.entry.path.as_bytes(), facts))
}

/// The state of the job, if one is kept. It is bound to what is verified, where, and how.
fn open_log(
    settings: &VerifySettings,
    summary: &Summary,
    tallied: &Tallied,
    shares: u64,
    report: &mut dyn VerifyReport,
) -> Result<Option<Log>, VerifyError> {
    let Some(file) = &settings.resume else { return Ok(None) };
    let Some(closing) = summary.closing.filter(|_| tallied.flaws == 0) else {
        if file.is_there() {
            report.resumption(&Resumption::Anew("the waybill has flaws, so nothing is passed over or kept"));
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

/// Brings each entry of a waybill that no later section replaces, as each of its lines stands by itself. Flaws are told
/// to `report`, once each.
///
/// # Errors
/// [`VerifyError`]: it can't be read, or is no waybill.
pub fn each_current<R: VerifyReport>(
    waybill: &OsStr,
    report: &mut R,
    visit: &mut dyn FnMut(&mut R, Entry),
) -> Result<Tallied, VerifyError> {
    let refused = |source| VerifyError::Refused { path: waybill.to_owned(), source };
    let mut tallied = Tallied::default();
    let summary = look_through(waybill, report, &mut tallied)?;
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
    Ok(tallied)
}

/// What a first look through the whole waybill finds.
struct Summary {
    sections: u64,
    entries: u64,
    /// Regular files and their bytes, of all sections.
    files: u64,
    bytes: u64,
    /// The digest of the last closing line, which binds all before it.
    closing: Option<Digest>,
}

/// Reads the waybill once, before any data: its own flaws are told first and once.
fn look_through(
    path: &OsStr,
    report: &mut dyn VerifyReport,
    tallied: &mut Tallied,
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
                tallied.flaws += 1;
                report.flawed(&flaw);
            }
            Err(source) => return Err(VerifyError::Refused { path: path.to_owned(), source }),
        }
    }
    Ok(summary)
}

/// A reader of a waybill from its start. One that comes through a pipe comes once: the second look would find nothing, and so nothing wrong.
fn read(path: &OsStr) -> Result<Reader<BufReader<File>>, ReadError> {
    if !std::fs::metadata(path)?.is_file() {
        let why = "it is no regular file, and a waybill is read more than once: save it as one first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    Ok(Reader::new(BufReader::with_capacity(1 << 20, File::open(path)?)))
}

impl Tallied {
    /// Whether every name was looked for and none of them was there: most often the wrong directory was named.
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

    /// Whether data differs from what the waybill says.
    pub fn has_damage(&self) -> bool {
        self.modified + self.rotted + self.missing + self.extra > 0
    }

    /// Whether something could not be found out.
    pub fn has_trouble(&self) -> bool {
        self.unproven + self.flaws > 0
    }
}
