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

#[cfg(test)]
mod faulty_storage;
mod inplace;
mod keep;
mod keys;
mod leftovers;
mod names;
mod parallel;
mod places;
mod rebuild;
mod repair_target;
mod report;
mod rounds;
mod shared;
mod staging;
mod survey;
#[cfg(test)]
mod tests;
mod times;
mod why;

pub use leftovers::InterruptedRepairs;
pub use report::{Done, Outcome, Recovered, RepairObserver, RepairTally, RepairedRange};
pub use rounds::{Remotes, ReplicaAt, ReplicaRequest, ReplicaResponse};
pub use why::{JournalDistrust, JournalWarning, LeftReason, RepairError};

use crate::sum::{Counters, Settings};
use crate::verify::{
    Change, Resumption, StateFile, Verdict, VerdictKind, VerifyObserver, VerifySettings, verify_and_keep,
};
use haul_digest::DigestKey;
use haul_log::waybill::{Kind, ReadError, Reader};
use haul_model::ByteRange;
use haul_storage::SourceFile;
use inplace::{InPlaceFile, Replicas};
use keep::DamageArchive;
use keys::JournalKeys;
use leftovers::RecoveredState;
use parking_lot::Mutex;
use places::{NameAt, Replica, Root, may_be_made, name_at_with_parents};
use rebuild::Rebuild;
use repair_target::RepairTarget;
use rounds::Wanted;
use shared::Shared;
use staging::Staging;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::PathBuf;
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
    /// True if bytes of a replica are accepted although their only digests are not cryptographic.
    pub trust_replica: bool,
    /// Directory that keeps the replaced bytes.
    pub keep: Option<OsString>,
    /// True if nothing is repaired. Only the state of [`RepairSettings::resume`] is written.
    pub dry_run: bool,
    /// State directory with the key of this user's journals; `None` if no state directory is known.
    pub state: Option<PathBuf>,
    /// State file with the progress of the repair; an interrupted run resumes from it. Intact files
    /// that did not change since are not read again. Damaged files are checked again like in a
    /// first run.
    pub resume: Option<StateFile>,
}

/// Repairs the entries of a waybill; `remotes` reaches the replicas on other hosts. `counters` can
/// be read meanwhile. When `stop` turns true, returns soon; the file in progress stays unchanged.
///
/// # Errors
/// Returns a [`RepairError`] if nothing could be repaired, or if the repair is incomplete.
pub fn repair(
    settings: &RepairSettings,
    remotes: &dyn Remotes,
    report: &mut dyn RepairObserver,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<RepairTally, RepairError> {
    let here =
        settings.replicas.iter().map(|at| opened(at, &settings.waybill)).collect::<Result<Vec<_>, _>>()?;
    let root =
        Root::open(&settings.root).map_err(|source| RepairError::Root(settings.root.clone(), source))?;
    let mut finding =
        Finding { wanted: Wanted::new(), intact: 0, flaws: 0, again: false, root: root.clone(), report };
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
            damage_archive: damage_archive_of(settings)?,
            keys: JournalKeys::new(settings.state.clone()),
            progress: Mutex::default(),
            has_own_replicas: settings.has_own_replicas(),
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
    /// Returns true if no replica on this host is in the root, and the root is in none. Returns
    /// false if that cannot be determined.
    fn has_own_replicas(&self) -> bool {
        let Ok(root) = fs::canonicalize(&self.root) else { return false };
        self.replicas.iter().all(|at| match at {
            ReplicaAt::There(_) => true,
            ReplicaAt::Here(name) => fs::canonicalize(name)
                .is_ok_and(|replica| !replica.starts_with(&root) && !root.starts_with(&replica)),
        })
    }

    /// Opens the waybill at its start.
    fn reader(&self) -> Result<Reader<BufReader<File>>, ReadError> {
        Ok(Reader::new(BufReader::with_capacity(1 << 20, File::open(&self.waybill)?)))
    }
}

/// Opens a replica on this host; returns `None` for one on another host, which has no data yet.
fn opened(at: &ReplicaAt, waybill: &OsStr) -> Result<Option<Replica>, RepairError> {
    let ReplicaAt::Here(name) = at else { return Ok(None) };
    Replica::open(name, waybill).map(Some).map_err(|source| RepairError::Replica(name.clone(), source))
}

/// Opens the directory that keeps the replaced bytes.
fn damage_archive_of(settings: &RepairSettings) -> Result<Option<DamageArchive>, RepairError> {
    let path = settings.keep.as_ref().filter(|_| !settings.dry_run);
    let opened =
        |path: &OsString| DamageArchive::open(path).map_err(|source| RepairError::Keep(path.clone(), source));
    path.map(opened).transpose()
}

/// Collector of the entries that do not match the waybill.
struct Finding<'r> {
    wanted: Wanted,
    intact: u64,
    flaws: u64,
    /// True if the last entry was intact, but an earlier repair left files next to it.
    again: bool,
    root: Root,
    report: &'r mut dyn RepairObserver,
}

impl VerifyObserver for Finding<'_> {
    fn judged(&mut self, verdict: &Verdict) {
        let is_intact = matches!(verdict.kind, VerdictKind::Intact { .. });
        self.again = is_intact && leftovers::stand_beside(&self.root, &verdict.path);
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

    fn rechecks(&mut self, _verdict: &Verdict) -> bool {
        std::mem::take(&mut self.again)
    }
}

/// Repair in progress.
struct Repair<'a> {
    settings: &'a RepairSettings,
    root: &'a Root,
    /// Replicas that are available by now, each at its number.
    replicas: Vec<Option<Replica>>,
    /// True if no other replica will be asked.
    is_last_round: bool,
    /// Nothing is left for later, not even for what the repair of another name may bring.
    is_final: bool,
    damage_archive: Option<DamageArchive>,
    keys: JournalKeys,
    /// Locked until a new directory is durable: a file in it counts on that.
    progress: Mutex<RepairProgress>,
    /// Files that are more than one entry.
    shared: Shared,
    /// True if no replica on this host is in the root, or the root in it: then the repair of a name
    /// does not change a replica.
    has_own_replicas: bool,
    remotes: &'a dyn Remotes,
    counters: &'a Counters,
    stop: &'a AtomicBool,
}

/// Changes by a repair that later names depend on.
#[derive(Default)]
struct RepairProgress {
    /// Files that were written into, or would be in a dry run.
    written: HashSet<(u64, u64)>,
    /// Directories that were created as parents of missing names. In a dry run, names that would be
    /// created.
    made: HashSet<Vec<u8>>,
    /// Directories in which names were created or replaced.
    changed: HashSet<Vec<u8>>,
    /// Names whose replaced bytes are in the archive, while they are not repaired.
    kept: HashSet<Vec<u8>>,
}

impl Repair<'_> {
    /// Repairs the entries that do not match the waybill; `here` contains the replicas on this
    /// host.
    fn mend_all(
        mut self,
        wanted: Wanted,
        here: Vec<Option<Replica>>,
        tally: &mut RepairTally,
        report: &mut dyn RepairObserver,
    ) -> Result<(), RepairError> {
        let mut staging = None;
        let ended = self.rounds(wanted, here, &mut staging, tally, report);
        let ended = ended.and_then(|()| self.restore_times(report));
        if let Some(Err(error)) = staging.map(Staging::remove) {
            report.cleanup_failed(&error);
        }
        ended
    }

    /// Repairs one name. Returns the result and the verdict that it is based on. The verdict is a
    /// new one if an interrupted in-place repair was undone first.
    fn settle(
        &self,
        repair_target: &RepairTarget,
        verdict: &Verdict,
        report: &mut dyn RepairObserver,
    ) -> (Outcome, Verdict) {
        let mut mended = Vec::new();
        let mut verdict = verdict.clone();
        let done = match self.recover(repair_target, &verdict, report) {
            Ok(RecoveredState::Done(done)) => Ok(done),
            Ok(RecoveredState::Anew(anew)) => {
                verdict = anew;
                self.mend(repair_target, &verdict, &mut mended, report)
            }
            Err(why) => Err(why),
        };
        let done = done.unwrap_or_else(Done::Left);
        if matches!(done, Done::Left(_)) {
            mended.clear();
        }
        (Outcome { path: repair_target.entry.path.clone(), done, mended }, verdict)
    }

    fn mend(
        &self,
        repair_target: &RepairTarget,
        verdict: &Verdict,
        mended: &mut Vec<RepairedRange>,
        report: &mut dyn RepairObserver,
    ) -> Result<Done, LeftReason> {
        let is_file = matches!(repair_target.entry.kind, Kind::File(_));
        match &verdict.kind {
            VerdictKind::Rotted | VerdictKind::Unreadable(_) if is_file => {}
            VerdictKind::Modified(Change::Size { .. } | Change::Bytes | Change::WhileRead)
                if is_file && self.settings.modified => {}
            VerdictKind::Modified(change) => return Err(LeftReason::Modified(*change)),
            VerdictKind::NoDigest => return Err(LeftReason::NoDigest),
            VerdictKind::Missing if is_file => return self.make_file(repair_target, mended),
            VerdictKind::Missing => return self.make_name(repair_target),
            VerdictKind::Unreadable(reason) => return Err(LeftReason::Unreadable(reason.clone())),
            _ => return Ok(Done::Right),
        }
        let name_at = NameAt::of(self.root, &repair_target.entry.path).map_err(LeftReason::place)?;
        let old = name_at.open().map_err(LeftReason::io("open the file"))?;
        let facts = old.opened();
        if self.settings.dry_run && self.progress.lock().written.contains(&facts.identity()) {
            return Ok(Done::Right);
        }
        let mut sources = Sources::of(repair_target, &self.replicas);
        let found = self.survey(repair_target, Some(&*old), &verdict.damage, &mut sources)?;
        *mended = found.mended();
        if mended.is_empty() && facts.size == repair_target.size() {
            return Ok(Done::Right);
        }
        let was_modified = matches!(verdict.kind, VerdictKind::Modified(_));
        let is_another = self.is_another(&repair_target.entry, &name_at, facts)?;
        // Damage is unintended under every name, so every name may get the repaired bytes.
        let in_place = !is_another && (self.settings.in_place || (facts.nlink > 1 && !was_modified));
        if facts.nlink > 1 && !in_place && !is_another {
            return Err(LeftReason::Names(facts.nlink));
        }
        let done = if in_place { Done::RepairedInPlace } else { Done::Repaired };
        if self.settings.dry_run {
            self.progress.lock().written.extend(in_place.then(|| facts.identity()));
            return Ok(done);
        }
        if let Some(damage_archive) = &self.damage_archive {
            let ranges = if was_modified {
                // The file may be a user's work: keep all of it.
                vec![ByteRange::between(0, facts.size)]
            } else {
                mended.iter().map(|mended| mended.range).collect()
            };
            // Unless a first attempt has done so, for which there was no space otherwise.
            let path = repair_target.entry.path.as_bytes();
            if !self.progress.lock().kept.contains(path) {
                damage_archive.keep(&repair_target.entry.path, &*old, &ranges)?;
                self.progress.lock().kept.insert(path.to_vec());
            }
        }
        if in_place {
            let key = self.keys.create(report)?;
            self.write_into(repair_target, key, &name_at, &*old, &found, &sources)?;
        } else {
            self.rebuild(repair_target, &name_at, Some(&*old), &found, &sources)?;
            if is_another {
                self.link_again(&repair_target.entry, &name_at, facts)?;
            }
        }
        self.progress.lock().kept.remove(repair_target.entry.path.as_bytes());
        Ok(done)
    }

    /// Creates a missing file from the bytes of replicas.
    fn make_file(
        &self,
        repair_target: &RepairTarget,
        mended: &mut Vec<RepairedRange>,
    ) -> Result<Done, LeftReason> {
        let mut sources = Sources::of(repair_target, &self.replicas);
        let found = self.survey(repair_target, None, &[], &mut sources)?;
        *mended = found.mended();
        if self.settings.dry_run {
            may_be_made(self.root, &repair_target.entry.path)?;
        } else {
            let name_at =
                name_at_with_parents(self.root, &repair_target.entry.path, &mut self.progress.lock().made)?;
            self.rebuild(repair_target, &name_at, None, &found, &sources)?;
        }
        Ok(Done::Made)
    }

    /// Returns the survey of a file if replicas have all missing bytes.
    fn survey(
        &self,
        repair_target: &RepairTarget,
        old: Option<&dyn SourceFile>,
        suspect: &[ByteRange],
        sources: &mut Sources,
    ) -> Result<survey::Survey, LeftReason> {
        let known: u64 = repair_target.pieces().iter().map(|piece| piece.range.len()).sum();
        if known != repair_target.size() || repair_target.pieces().is_empty() {
            return Err(LeftReason::NoDigest);
        }
        let found = survey(repair_target, old, suspect, sources, self.stop)?;
        if let Some(algorithm) = found.unproven.filter(|_| !self.settings.trust_replica) {
            return Err(LeftReason::Unproven(algorithm));
        }
        let asks = |at: &ReplicaAt| matches!(at, ReplicaAt::There(_));
        match found.lost.is_empty() {
            true => Ok(found),
            false if self.settings.dry_run && self.settings.replicas.iter().any(asks) => {
                Err(LeftReason::NotAsked(found.lost))
            }
            false => {
                let here = |number: usize| match &self.settings.replicas[number] {
                    ReplicaAt::Here(name) => Some(name.clone()),
                    ReplicaAt::There(_) => None,
                };
                let named = |(number, error): (usize, io::Error)| Some((here(number)?, error));
                Err(LeftReason::NoSource {
                    lost: found.lost,
                    unread: sources.take_unread().filter_map(named).collect(),
                    absent: sources.absent().filter_map(here).collect(),
                })
            }
        }
    }

    fn write_into(
        &self,
        repair_target: &RepairTarget,
        key: DigestKey,
        name_at: &NameAt,
        old: &dyn SourceFile,
        survey: &survey::Survey,
        sources: &Sources,
    ) -> Result<(), LeftReason> {
        self.count(survey);
        let mut file = InPlaceFile::hold(name_at, old, repair_target, Some(key), self.stop)?;
        let head = file.head(old)?;
        let replicas = Replicas { survey, sources, counters: self.counters, stop: self.stop };
        inplace::mend(&mut file, &head, &replicas)
    }

    fn rebuild(
        &self,
        repair_target: &RepairTarget,
        name_at: &NameAt,
        old: Option<&dyn SourceFile>,
        survey: &survey::Survey,
        sources: &Sources,
    ) -> Result<(), LeftReason> {
        self.count(survey);
        let (counters, stop) = (self.counters, self.stop);
        Rebuild { repair_target, name_at, old, survey, sources, counters, stop }.run()
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
