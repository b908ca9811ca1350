//! Leftovers of interrupted in-place repairs: they are found, and recovered before anything else.

use super::claim::Claim;
use super::inplace::{self, Disk, Recovered};
use super::places::{Spot, split};
use super::{Done, Repair, RepairReport, Why};
use crate::verify::{Change, Verdict, VerdictKind};
use haul_log::waybill::{Kind, Moment, RelPath};
use haul_sys::beneath::open_root;
use haul_sys::stat::stat_fd;
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;

/// State of a file after the recovery of an earlier repair.
pub(super) enum Judged {
    /// Nothing remains to be done.
    Done(Done),
    /// The file must be repaired according to this verdict.
    Anew(Verdict),
}

/// Search for files that in-place repairs left. Caches the directory of the last file, because the
/// next file is usually in the same directory.
pub(super) struct Leftovers<'r> {
    root: &'r OwnedFd,
    last: Option<(Vec<u8>, Spot)>,
}

impl<'r> Leftovers<'r> {
    pub(super) fn of(root: &'r OwnedFd) -> Leftovers<'r> {
        Leftovers { root, last: None }
    }

    pub(super) fn stand_beside(&mut self, path: &RelPath) -> bool {
        let (dir, name) = split(path.as_bytes());
        if self.last.as_ref().is_none_or(|(last, _)| last != dir) {
            self.last = Spot::of(self.root, path).ok().map(|spot| (dir.to_vec(), spot));
        }
        let Some((_, spot)) = &mut self.last else { return false };
        let Ok(name) = CString::new(name) else { return false };
        spot.name = name;
        inplace::was_cut_off(spot)
    }
}

/// Returns true if an in-place repair of this file below a root was interrupted, so that the file
/// may be partially repaired.
pub fn was_cut_off(root: &OsStr, path: &RelPath) -> bool {
    let spot = open_root(root).and_then(|root| Spot::of(&root, path));
    spot.is_ok_and(|spot| inplace::was_cut_off(&spot))
}

impl Repair<'_> {
    /// Finishes or undoes an interrupted in-place repair, and returns the state of the file
    /// afterwards.
    pub(super) fn recover(
        &self,
        claim: &Claim,
        verdict: &Verdict,
        report: &mut dyn RepairReport,
    ) -> Result<Judged, Why> {
        let as_before = || Ok(Judged::Anew(verdict.clone()));
        let path = &claim.entry.path;
        if !matches!(claim.entry.kind, Kind::File(_)) || verdict.kind == VerdictKind::Missing {
            return as_before();
        }
        // The repair itself reports a path that cannot be resolved.
        let Some(spot) = Spot::of(self.root, path).ok().filter(inplace::was_cut_off) else {
            return as_before();
        };
        if self.settings.dry_run {
            return Err(Why::CutOff);
        }
        let (file, _) = spot.open().map_err(Why::io("open the file"))?;
        let became = inplace::recover(&Disk::hold(&spot, &file, claim, self.stop)?)?;
        let Some(became) = became else { return as_before() };
        report.recovered(path, became);
        if became == Recovered::Finished {
            return Ok(Judged::Done(Done::Finished));
        }
        let facts = stat_fd(&file).map_err(Why::io("check the file"))?;
        let Moment { sec, nsec } = claim.entry.mtime;
        let kind = if facts.size != claim.size() {
            VerdictKind::Modified(Change::Size { was: claim.size(), is: facts.size })
        } else if (facts.mtime.sec, facts.mtime.nsec) != (sec, nsec) {
            VerdictKind::Modified(Change::Bytes)
        } else {
            VerdictKind::Rotted
        };
        Ok(Judged::Anew(Verdict { path: path.clone(), kind, damage: Vec::new(), located: None }))
    }
}
