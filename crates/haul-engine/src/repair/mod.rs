//! Repair with a waybill: restores damage that [`crate::verify`] finds from replicas, and changes
//! nothing else.
//!
//! A piece is an object, or a leaf if the waybill contains leaves. A replica can provide every
//! piece whose bytes there match the waybill, regardless of damage elsewhere ([`survey`]).
//!
//! The repaired file is created next to the damaged one, read back past the page cache, and renamed
//! over it ([`rebuild`]). If the file must keep its identity, it is overwritten under a journal of
//! its old contents ([`inplace`]). If any step fails, the damaged file stays unchanged.
//!
//! All names are resolved below the root and the replicas ([`places`]). Replicas on other hosts
//! receive requests for missing pieces ([`rounds`]), and the received data stays in a separate
//! directory until it is verified ([`staging`]).

mod claim;
mod inplace;
mod keep;
mod leftovers;
mod names;
mod places;
mod rebuild;
mod rounds;
mod shared;
mod staging;
mod survey;
#[cfg(test)]
mod tests;
mod times;
mod why;

pub use inplace::Recovered;
pub use leftovers::was_cut_off;
pub use rounds::{Answered, Asked, Remotes, ReplicaAt};
pub use why::{RepairError, Why};

use crate::sum::{Counters, Settings};
use crate::verify::{
    Change, Resumption, StateFile, Verdict, VerdictKind, VerifyReport, VerifySettings, verify_and_keep,
};
use claim::Claim;
use haul_log::waybill::{Kind, ReadError, Reader, RelPath};
use haul_model::ByteRange;
use haul_sys::Stat;
use haul_sys::beneath::open_root;
use inplace::{Disk, Replicas};
use keep::Keeper;
use leftovers::{Judged, Leftovers};
use places::{Replica, Spot, may_be_made, spot_made};
use rebuild::Rebuild;
use rounds::Wanted;
use shared::Shared;
use staging::Staging;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use survey::{Sources, survey};

/// Settings of a repair.
#[derive(Clone, Debug)]
pub struct RepairSettings {
    /// Path of the waybill: a regular file, because it is read more than once.
    pub waybill: OsString,
    /// Directory that the paths of the waybill are relative to. No path leads outside: the repair
    /// writes no data file outside, and reads data outside only from the replicas.
    pub root: OsString,
    /// Replicas that may have intact bytes, in the order of their use.
    pub replicas: Vec<ReplicaAt>,
    /// Parent directory for data that other hosts send; `None` means the root.
    pub staging: Option<OsString>,
    /// Read settings of the search for damage.
    pub reading: Settings,
    /// True if files with visible changes (size or time) are restored as well.
    pub modified: bool,
    /// True if files are repaired in place, without a second file. A damaged file with several
    /// names is always repaired in place. A file that is also another entry, with different
    /// contents, never is.
    pub in_place: bool,
    /// Directory that keeps the replaced bytes.
    pub keep: Option<OsString>,
    /// True if nothing is written.
    pub dry_run: bool,
    /// State file with the progress of the repair; an interrupted run resumes from it. Intact files
    /// that did not change since are not read again. Damaged files are checked again like in a
    /// first run.
    pub resume: Option<StateFile>,
}

/// Bytes that came from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mended {
    /// Range of the bytes.
    pub range: ByteRange,
    /// Number of the replica, counted from 0 in the order of the settings.
    pub replica: usize,
}

/// Result for one name that did not match the waybill.
#[derive(Debug)]
pub struct Outcome {
    /// Path below the root.
    pub path: RelPath,
    /// Action of the repair; in a dry run, the action that it would take.
    pub done: Done,
    /// Replaced ranges with their replicas; empty for an entry without contents.
    pub mended: Vec<Mended>,
}

/// Action of a repair on a name.
#[derive(Debug)]
pub enum Done {
    /// Damaged bytes were replaced; the name now refers to another file.
    Repaired,
    /// Damaged bytes were replaced in the file.
    RepairedInPlace,
    /// An interrupted in-place repair was finished.
    Finished,
    /// The name was missing and was created.
    Made,
    /// A second check found every byte intact.
    Right,
    /// The name stayed unchanged, for this reason.
    Left(Why),
}

/// Receiver of the events of a repair.
pub trait RepairReport: Send {
    /// Receives the result for a name that was not intact.
    fn settled(&mut self, outcome: &Outcome);
    /// Receives a flaw of the waybill.
    fn flawed(&mut self, flaw: &ReadError);
    /// Receives a message about resuming an earlier run.
    fn resumption(&mut self, _told: &Resumption) {}
    /// Receives the result of recovering an interrupted in-place repair. If the name is not intact,
    /// [`RepairReport::settled`] follows.
    fn recovered(&mut self, _path: &RelPath, _became: Recovered) {}
    /// Receives the size of a request to a replica on another host, as the number of files and
    /// bytes.
    fn asks(&mut self, _replica: usize, _files: usize, _bytes: u64) {}
    /// Receives a note about requested data that a replica on another host did not send.
    fn heard(&mut self, _replica: usize, _note: &str) {}
    /// Receives the reason why a replica on another host could not be reached, or failed before its
    /// end. The other replicas are still used.
    fn unreached(&mut self, _replica: usize, _why: &str) {}
    /// Receives the error if a directory with repaired names did not get its modification time
    /// back.
    fn time_not_kept(&mut self, _path: &RelPath, _why: &io::Error) {}
    /// Receives the error if data from other hosts could not be removed after its use.
    fn not_tidied(&mut self, _why: &io::Error) {}
}

/// Totals of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairTally {
    /// Entries that matched the waybill.
    pub intact: u64,
    /// Intact entries that an earlier run verified and that did not change since.
    pub before: u64,
    /// Files with replaced bytes.
    pub repaired: u64,
    /// Missing names that were created.
    pub made: u64,
    /// Names that stayed unchanged and do not match the waybill.
    pub left: u64,
    /// Bytes taken from replicas.
    pub bytes: u64,
    /// Bytes received over the network for the repair.
    pub received: u64,
    /// Replicas on other hosts that could not be reached, or that failed before their end.
    pub unreached: u64,
    /// Bytes that this run read in the search for damage.
    pub bytes_read: u64,
}

/// Repairs the entries of a waybill; `remotes` reaches the replicas on other hosts. `counters` can
/// be read meanwhile. When `stop` turns true, returns soon; the file in progress stays unchanged.
///
/// # Errors
/// Returns a [`RepairError`] if nothing could be repaired, or if the repair is incomplete.
pub fn repair(
    settings: &RepairSettings,
    remotes: &dyn Remotes,
    report: &mut dyn RepairReport,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<RepairTally, RepairError> {
    let here = settings.replicas.iter().map(opened).collect::<Result<Vec<_>, _>>()?;
    let root =
        open_root(&settings.root).map_err(|source| RepairError::Root(settings.root.clone(), source))?;
    let mut finding = Finding {
        wanted: Wanted::new(),
        intact: 0,
        flaws: 0,
        again: false,
        leftovers: Leftovers::of(&root),
        report,
    };
    let how = VerifySettings {
        resume: settings.resume.clone(),
        any_seed: false,
        waybill: settings.waybill.clone(),
        root: settings.root.clone(),
        reading: settings.reading.clone(),
        sample: None,
        extra: false,
        locate: false,
    };
    // Damaged entries stay in the state until all are repaired: a resumed run checks only those.
    let (found, log) = verify_and_keep(&how, &mut finding, counters, stop)?;
    if finding.flaws > 0 {
        return Err(RepairError::Flawed(settings.waybill.clone(), finding.flaws));
    }
    // Create nothing below a wrong directory, where every name is missing.
    if found.found_none() && !stop.load(Ordering::Relaxed) {
        log.into_iter().for_each(|log| log.finish(&mut finding));
        return Err(RepairError::NoName(settings.root.clone()));
    }
    let intact = finding.intact + found.before;
    let bytes_read = found.bytes - found.bytes_before;
    let mut tally = RepairTally { intact, before: found.before, bytes_read, ..RepairTally::default() };
    let wanted = std::mem::take(&mut finding.wanted);
    if !wanted.is_empty() && !stop.load(Ordering::Relaxed) {
        let refused = |source| RepairError::Refused(settings.waybill.clone(), source);
        let job = Repair {
            settings,
            root: &root,
            replicas: here.iter().map(|_| None).collect(),
            is_last_round: true,
            is_final: false,
            written: HashSet::new(),
            keeper: keeper_of(settings)?,
            made: HashSet::new(),
            changed: HashSet::new(),
            shared: shared::find(settings.reader().map_err(refused)?, &root, &wanted).map_err(refused)?,
            remotes,
            counters,
            stop,
        };
        job.mend_all(wanted, here, &mut tally, finding.report)?;
    }
    if !settings.dry_run {
        [Some(&settings.root), settings.staging.as_ref()]
            .into_iter()
            .flatten()
            .for_each(|base| Staging::sweep(base));
    }
    if let Some(log) = log.filter(|_| !stop.load(Ordering::Relaxed)) {
        log.finish(&mut finding);
    }
    Ok(tally)
}

impl RepairSettings {
    /// Opens the waybill at its start.
    fn reader(&self) -> Result<Reader<BufReader<File>>, ReadError> {
        Ok(Reader::new(BufReader::with_capacity(1 << 20, File::open(&self.waybill)?)))
    }
}

/// Opens a replica on this host; returns `None` for one on another host, which has no data yet.
fn opened(at: &ReplicaAt) -> Result<Option<Replica>, RepairError> {
    let ReplicaAt::Here(name) = at else { return Ok(None) };
    Replica::open(name).map(Some).map_err(|source| RepairError::Replica(name.clone(), source))
}

/// Opens the directory that keeps the replaced bytes.
fn keeper_of(settings: &RepairSettings) -> Result<Option<Keeper>, RepairError> {
    let path = settings.keep.as_ref().filter(|_| !settings.dry_run);
    let opened =
        |path: &OsString| Keeper::open(path).map_err(|source| RepairError::Keep(path.clone(), source));
    path.map(opened).transpose()
}

/// Collector of the entries that do not match the waybill.
struct Finding<'r> {
    wanted: Wanted,
    intact: u64,
    flaws: u64,
    /// True if the last entry was intact, but an earlier repair left files next to it.
    again: bool,
    leftovers: Leftovers<'r>,
    report: &'r mut dyn RepairReport,
}

impl VerifyReport for Finding<'_> {
    fn judged(&mut self, verdict: &Verdict) {
        let is_intact = matches!(verdict.kind, VerdictKind::Intact { .. });
        self.again = is_intact && self.leftovers.stand_beside(&verdict.path);
        if is_intact && !self.again {
            self.intact += 1;
        } else {
            self.wanted.insert(verdict.path.as_bytes().to_vec(), verdict.clone());
        }
    }

    fn flawed(&mut self, flaw: &ReadError) {
        self.flaws += 1;
        self.report.flawed(flaw);
    }

    fn resumption(&mut self, told: &Resumption) {
        self.report.resumption(told);
    }

    fn looks_again(&mut self, _verdict: &Verdict) -> bool {
        std::mem::take(&mut self.again)
    }
}

/// Repair in progress.
struct Repair<'a> {
    settings: &'a RepairSettings,
    root: &'a OwnedFd,
    /// Replicas that are available by now, each at its number.
    replicas: Vec<Option<Replica>>,
    /// True if no other replica will be asked.
    is_last_round: bool,
    /// Nothing is left for later, not even for what the repair of another name may bring.
    is_final: bool,
    /// Files that were written into, or would be in a dry run.
    written: HashSet<(u64, u64)>,
    keeper: Option<Keeper>,
    /// Directories that were created as parents of missing names. In a dry run, names that would be
    /// created.
    made: HashSet<Vec<u8>>,
    /// Directories in which names were created or replaced.
    changed: HashSet<Vec<u8>>,
    /// Files that are more than one entry.
    shared: Shared,
    remotes: &'a dyn Remotes,
    counters: &'a Counters,
    stop: &'a AtomicBool,
}

impl Repair<'_> {
    /// Repairs the entries that do not match the waybill; `here` contains the replicas on this
    /// host.
    fn mend_all(
        mut self,
        wanted: Wanted,
        here: Vec<Option<Replica>>,
        tally: &mut RepairTally,
        report: &mut dyn RepairReport,
    ) -> Result<(), RepairError> {
        let mut staging = None;
        let ended = self.rounds(wanted, here, &mut staging, tally, report);
        let ended = ended.and_then(|()| self.restore_times(report));
        if let Some(Err(error)) = staging.map(Staging::remove) {
            report.not_tidied(&error);
        }
        ended
    }

    /// Repairs one name. Returns the result and the verdict that it is based on. The verdict is a
    /// new one if an interrupted in-place repair was undone first.
    fn settle(
        &mut self,
        claim: &Claim,
        verdict: &Verdict,
        report: &mut dyn RepairReport,
    ) -> (Outcome, Verdict) {
        let mut mended = Vec::new();
        let mut verdict = verdict.clone();
        let done = match self.recover(claim, &verdict, report) {
            Ok(Judged::Done(done)) => Ok(done),
            Ok(Judged::Anew(anew)) => {
                verdict = anew;
                self.mend(claim, &verdict, &mut mended)
            }
            Err(why) => Err(why),
        };
        let done = done.unwrap_or_else(Done::Left);
        if matches!(done, Done::Left(_)) {
            mended.clear();
        }
        (Outcome { path: claim.entry.path.clone(), done, mended }, verdict)
    }

    fn mend(&mut self, claim: &Claim, verdict: &Verdict, mended: &mut Vec<Mended>) -> Result<Done, Why> {
        let is_file = matches!(claim.entry.kind, Kind::File(_));
        match &verdict.kind {
            VerdictKind::Rotted | VerdictKind::Unreadable(_) if is_file => {}
            VerdictKind::Modified(Change::Size { .. } | Change::Bytes | Change::WhileRead)
                if is_file && self.settings.modified => {}
            VerdictKind::Modified(change) => return Err(Why::Modified(*change)),
            VerdictKind::NoDigest => return Err(Why::NoDigest),
            VerdictKind::Missing if is_file => return self.make_file(claim, mended),
            VerdictKind::Missing => return self.make_name(claim),
            VerdictKind::Unreadable(reason) => return Err(Why::Unreadable(reason.clone())),
            _ => return Ok(Done::Right),
        }
        let spot = Spot::of(self.root, &claim.entry.path).map_err(Why::place)?;
        let old = spot.open().map_err(Why::io("open the file"))?;
        let (file, facts) = &old;
        if self.settings.dry_run && self.written.contains(&facts.identity()) {
            return Ok(Done::Right);
        }
        let mut sources = Sources::of(claim, &self.replicas);
        let found = self.survey(claim, Some(&old), &verdict.damage, &mut sources)?;
        *mended = found.mended();
        if mended.is_empty() && facts.size == claim.size() {
            return Ok(Done::Right);
        }
        let was_modified = matches!(verdict.kind, VerdictKind::Modified(_));
        let is_another = self.is_another(&claim.entry, &spot, facts)?;
        // Damage is unintended under every name, so every name may get the repaired bytes.
        let in_place = !is_another && (self.settings.in_place || (facts.nlink > 1 && !was_modified));
        if facts.nlink > 1 && !in_place && !is_another {
            return Err(Why::Names(facts.nlink));
        }
        let done = if in_place { Done::RepairedInPlace } else { Done::Repaired };
        if self.settings.dry_run {
            self.written.extend(in_place.then(|| facts.identity()));
            return Ok(done);
        }
        if let Some(keeper) = &self.keeper {
            let ranges = if was_modified {
                // The file may be a user's work: keep all of it.
                vec![ByteRange::between(0, facts.size)]
            } else {
                mended.iter().map(|mended| mended.range).collect()
            };
            keeper.keep(&claim.entry.path, file, &ranges)?;
        }
        if in_place {
            self.write_into(claim, &spot, &old, &found, &sources)?;
        } else {
            self.rebuild(claim, &spot, Some(&old), &found, &sources)?;
            if is_another {
                self.link_again(&claim.entry, &spot, facts)?;
            }
        }
        Ok(done)
    }

    /// Creates a missing file from the bytes of replicas.
    fn make_file(&mut self, claim: &Claim, mended: &mut Vec<Mended>) -> Result<Done, Why> {
        let mut sources = Sources::of(claim, &self.replicas);
        let found = self.survey(claim, None, &[], &mut sources)?;
        *mended = found.mended();
        if self.settings.dry_run {
            may_be_made(self.root, &claim.entry.path)?;
        } else {
            let spot = spot_made(self.root, &claim.entry.path, &self.replicas, &mut self.made)?;
            self.rebuild(claim, &spot, None, &found, &sources)?;
        }
        Ok(Done::Made)
    }

    /// Returns the survey of a file if replicas have all missing bytes.
    fn survey(
        &self,
        claim: &Claim,
        old: Option<&(OwnedFd, Stat)>,
        suspect: &[ByteRange],
        sources: &mut Sources,
    ) -> Result<survey::Survey, Why> {
        let known: u64 = claim.pieces().iter().map(|piece| piece.range.len()).sum();
        if known != claim.size() || claim.pieces().is_empty() {
            return Err(Why::NoDigest);
        }
        let found = survey(claim, old, suspect, sources, self.stop)?;
        let asks = |at: &ReplicaAt| matches!(at, ReplicaAt::There(_));
        match found.lost.is_empty() {
            true => Ok(found),
            false if self.settings.dry_run && self.settings.replicas.iter().any(asks) => {
                Err(Why::NotAsked(found.lost))
            }
            false => {
                let named = |(number, error): (usize, io::Error)| match &self.settings.replicas[number] {
                    ReplicaAt::Here(name) => Some((name.clone(), error)),
                    ReplicaAt::There(_) => None,
                };
                Err(Why::NoSource {
                    lost: found.lost,
                    unread: sources.take_unread().filter_map(named).collect(),
                })
            }
        }
    }

    fn write_into(
        &self,
        claim: &Claim,
        spot: &Spot,
        (file, then): &(OwnedFd, Stat),
        survey: &survey::Survey,
        sources: &Sources,
    ) -> Result<(), Why> {
        self.count(survey);
        let disk = Disk::hold(spot, file, claim, self.stop)?;
        let head = disk.head(then)?;
        inplace::mend(&disk, &head, &Replicas { survey, sources, counters: self.counters, stop: self.stop })
    }

    fn rebuild(
        &self,
        claim: &Claim,
        spot: &Spot,
        old: Option<&(OwnedFd, Stat)>,
        survey: &survey::Survey,
        sources: &Sources,
    ) -> Result<(), Why> {
        self.count(survey);
        let (counters, stop) = (self.counters, self.stop);
        Rebuild { claim, spot, old, survey, sources, counters, stop }.run()
    }

    fn count(&self, survey: &survey::Survey) {
        self.counters.found_bytes(survey.mended.iter().map(|(piece, _)| piece.range.len()).sum());
    }
}

impl RepairTally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.done {
            Done::Repaired | Done::RepairedInPlace | Done::Finished => self.repaired += 1,
            Done::Made => self.made += 1,
            Done::Right => self.intact += 1,
            Done::Left(_) => self.left += 1,
        }
        self.bytes += outcome.mended.iter().map(|mended| mended.range.len()).sum::<u64>();
    }
}
