//! Repair by a waybill: what [`crate::verify`] finds damaged is mended from replicas, and nothing else is touched.
//!
//! A replica gives every piece (an object, or a leaf where the waybill keeps those) whose bytes there are what the
//! waybill says, however damaged the replica is elsewhere ([`survey`]). The repaired file is made beside the damaged one,
//! read back past the page cache, and renamed over it ([`rebuild`]); or, where it has to stay the same file, it is written
//! into under a journal of what stood there ([`inplace`]). If anything fails the damaged file stays as it was. All names are
//! resolved beneath the root and the replicas ([`places`]). Replicas of other hosts are asked for what is lacking ([`rounds`]), and what they
//! send stands apart until it is proven ([`staging`]).

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

/// What is repaired, from what, and how.
#[derive(Clone, Debug)]
pub struct RepairSettings {
    /// The waybill: a regular file, which is read more than once.
    pub waybill: OsString,
    /// The directory its paths lie beneath. Nothing outside is written, nor read but in the replicas.
    pub root: OsString,
    /// Where right bytes may be, in the order in which they are asked for.
    pub replicas: Vec<ReplicaAt>,
    /// Beneath what directory it stands for the time being what other hosts send; beneath the root without this.
    pub staging: Option<OsString>,
    /// How damage is looked for.
    pub reading: Settings,
    /// Files that do not hide that they were changed are put back as well.
    pub modified: bool,
    /// Files are written into, and none is made beside them. Damaged files of several names always are, but none that is another entry of
    /// other bytes as well.
    pub in_place: bool,
    /// Where what is replaced is kept.
    pub keep: Option<OsString>,
    /// Nothing is written.
    pub dry_run: bool,
    /// Where it is kept how far the repair came, and from where one that was ended goes on: what was found intact and was not touched since is not
    /// read again; what was damaged is looked at as if for the first time.
    pub resume: Option<StateFile>,
}

/// Bytes that came from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mended {
    /// Which.
    pub range: ByteRange,
    /// The number of the replica, counted from 0 as they were given.
    pub replica: usize,
}

/// What became of one name that was not as the waybill says.
#[derive(Debug)]
pub struct Outcome {
    /// The name, beneath the root.
    pub path: RelPath,
    /// What became of it; in a dry run, what would.
    pub done: Done,
    /// What came from where; empty for what has no bytes.
    pub mended: Vec<Mended>,
}

/// What a repair did with a name.
#[derive(Debug)]
pub enum Done {
    /// Damaged bytes were replaced: the name leads to another file now.
    Repaired,
    /// Damaged bytes were replaced in the file.
    RepairedInPlace,
    /// A repair in place that was cut off is finished.
    Finished,
    /// The name was missing and was made.
    Made,
    /// A second look found every byte right.
    Right,
    /// It stayed as it was, and why.
    Left(Why),
}

/// The ear of a repair.
pub trait RepairReport: Send {
    /// What became of a name that was not intact.
    fn settled(&mut self, outcome: &Outcome);
    /// The waybill has a flaw.
    fn flawed(&mut self, flaw: &ReadError);
    /// What is to be said about going on with an earlier run.
    fn resumption(&mut self, _told: &Resumption) {}
    /// What became of a repair in place that was cut off. The name is told of once more if it is not intact.
    fn recovered(&mut self, _path: &RelPath, _became: Recovered) {}
    /// A replica of another host is asked for so many bytes of so many files.
    fn asks(&mut self, _replica: usize, _files: usize, _bytes: u64) {}
    /// Something that a replica of another host was asked for did not come.
    fn heard(&mut self, _replica: usize, _note: &str) {}
    /// A replica of another host could not be asked, or not to the end. The others are.
    fn unreached(&mut self, _replica: usize, _why: &str) {}
    /// A directory in which something was repaired did not get its modification time back.
    fn time_not_kept(&mut self, _path: &RelPath, _why: &io::Error) {}
    /// What other hosts sent could not be removed when it was needed no more.
    fn not_tidied(&mut self, _why: &io::Error) {}
}

/// What a repair came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairTally {
    /// Entries that were as the waybill says.
    pub intact: u64,
    /// Those among them that an earlier run found so, and nobody touched since.
    pub before: u64,
    /// Files of which bytes were replaced.
    pub repaired: u64,
    /// Names that were missing and were made.
    pub made: u64,
    /// Names that stayed as they were and are not as the waybill says.
    pub left: u64,
    /// Bytes taken from replicas.
    pub bytes: u64,
    /// Bytes that came over the network for that.
    pub received: u64,
    /// Replicas of other hosts that could not be asked, or not to the end.
    pub unreached: u64,
    /// Bytes that were read to look for damage, by this run.
    pub bytes_read: u64,
}

/// Repairs what the waybill speaks of; `remotes` reach the replicas that are not of this host. `counters` can be read meanwhile; when
/// `stop` turns true it ends soon, and the file under way stays as it was.
///
/// # Errors
/// [`RepairError`]: then nothing, or not all, was repaired.
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
    // What was damaged stays in the state until all is mended: a run that goes on looks at that alone.
    let (found, log) = verify_and_keep(&how, &mut finding, counters, stop)?;
    if finding.flaws > 0 {
        return Err(RepairError::Flawed(settings.waybill.clone(), finding.flaws));
    }
    // Nothing is made beneath a wrong directory, where every name is missing.
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
    /// Reads the waybill from its beginning.
    fn reader(&self) -> Result<Reader<BufReader<File>>, ReadError> {
        Ok(Reader::new(BufReader::with_capacity(1 << 20, File::open(&self.waybill)?)))
    }
}

/// A replica of this host; `None` for one of another, which has nothing yet.
fn opened(at: &ReplicaAt) -> Result<Option<Replica>, RepairError> {
    let ReplicaAt::Here(name) = at else { return Ok(None) };
    Replica::open(name).map(Some).map_err(|source| RepairError::Replica(name.clone(), source))
}

/// Where what is replaced is kept.
fn keeper_of(settings: &RepairSettings) -> Result<Option<Keeper>, RepairError> {
    let path = settings.keep.as_ref().filter(|_| !settings.dry_run);
    let opened =
        |path: &OsString| Keeper::open(path).map_err(|source| RepairError::Keep(path.clone(), source));
    path.map(opened).transpose()
}

/// Gathers what is not as the waybill says.
struct Finding<'r> {
    wanted: Wanted,
    intact: u64,
    flaws: u64,
    /// The last entry was intact, and something that an earlier repair left stands beside it.
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

/// A repair under way.
struct Repair<'a> {
    settings: &'a RepairSettings,
    root: &'a OwnedFd,
    /// Those that bytes can be taken from by now, each at its number.
    replicas: Vec<Option<Replica>>,
    /// No further replica will be asked.
    is_last_round: bool,
    /// Nothing is left for later, not even for what the repair of another name may bring.
    is_final: bool,
    /// Files that were written into, or would be in a dry run.
    written: HashSet<(u64, u64)>,
    keeper: Option<Keeper>,
    /// Directories made on the way to what was missing. In a dry run, names that would be made.
    made: HashSet<Vec<u8>>,
    /// Directories in which names were made or replaced.
    changed: HashSet<Vec<u8>>,
    /// Files that are more than one entry.
    shared: Shared,
    remotes: &'a dyn Remotes,
    counters: &'a Counters,
    stop: &'a AtomicBool,
}

impl Repair<'_> {
    /// Mends what is not as the waybill says; `here` are the replicas of this host.
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

    /// Mends one name; gives what became of it, and what it was before, as far as an earlier repair left it otherwise than it was found.
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
        let old = spot.open().map_err(Why::io("open it"))?;
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
        // Nobody meant damage, under none of its names.
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
                // Somebody's work, perhaps: all of it.
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

    /// Makes a missing file of what replicas have.
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

    /// What is to be done, if replicas have all of it.
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
