//! Leftovers of interrupted in-place repairs: they are found, and recovered before anything else.

use super::inplace::{self, InPlaceFile, Recovery};
use super::places::{NameAt, Root};
use super::repair_target::RepairTarget;
use super::{Done, JournalWarning, LeftReason, Recovered, Repair, RepairObserver};
use crate::verify::{Change, Verdict, VerdictKind};
use haul_log::waybill::{Kind, Moment, RelPath};
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};

/// State of a file after the recovery of an earlier repair.
pub(super) enum RecoveredState {
    /// Nothing remains to be done.
    Done(Done),
    /// The file must be repaired according to this verdict.
    Anew(Verdict),
}

/// Returns true if an in-place repair left files beside the file at a path.
pub(super) fn stand_beside(root: &Root, path: &RelPath) -> bool {
    NameAt::of(root, path).is_ok_and(|name_at| inplace::was_cut_off(&name_at))
}

/// Search for in-place repairs that were interrupted. Opens the root at the first search.
#[derive(Debug)]
pub struct InterruptedRepairs {
    path: OsString,
    /// `None` if the root cannot be opened.
    root: OnceCell<Option<Root>>,
}

impl InterruptedRepairs {
    /// Creates a search in files below a root.
    pub fn below(root: &OsStr) -> InterruptedRepairs {
        InterruptedRepairs { path: root.to_owned(), root: OnceCell::new() }
    }

    /// Returns true if an in-place repair of the file at a path was interrupted, so that the file
    /// may be partially repaired.
    pub fn include(&self, path: &RelPath) -> bool {
        let root = self.root.get_or_init(|| Root::open(&self.path).ok());
        root.as_ref().is_some_and(|root| stand_beside(root, path))
    }
}

impl Repair<'_> {
    /// Finishes or undoes an interrupted in-place repair, and returns the state of the file
    /// afterwards.
    pub(super) fn recover(
        &self,
        repair_target: &RepairTarget,
        verdict: &Verdict,
        report: &mut dyn RepairObserver,
    ) -> Result<RecoveredState, LeftReason> {
        let as_before = || Ok(RecoveredState::Anew(verdict.clone()));
        let path = &repair_target.entry.path;
        if !matches!(repair_target.entry.kind, Kind::File(_)) || verdict.kind == VerdictKind::Missing {
            return as_before();
        }
        // The repair itself reports a path that cannot be resolved.
        let Some(name_at) = NameAt::of(self.root, path).ok().filter(inplace::was_cut_off) else {
            return as_before();
        };
        if self.settings.dry_run {
            return Err(LeftReason::CutOff);
        }
        let file = name_at.open().map_err(LeftReason::io("open the file"))?;
        let key = self.keys.known(report);
        let mut held = InPlaceFile::hold(&name_at, &*file, repair_target, key, self.stop)?;
        let became = match inplace::recover(&mut held)? {
            Recovery::None => return as_before(),
            // Every byte is checked against the waybill, as in a file without a journal.
            Recovery::Distrusted { why, aside } => {
                report.journal_warning(Some(path), JournalWarning::Distrusted { why, aside });
                return as_before();
            }
            Recovery::Done { became, has_lost_capability } => {
                report.recovered(path, became);
                if has_lost_capability {
                    report.journal_warning(Some(path), JournalWarning::LostCapability);
                }
                became
            }
        };
        if became == Recovered::Finished {
            return Ok(RecoveredState::Done(Done::Finished));
        }
        let facts = file.stat().map_err(LeftReason::io("check the file"))?;
        let Moment { sec, nsec } = repair_target.entry.mtime;
        let kind = if facts.size != repair_target.size() {
            VerdictKind::Modified(Change::Size { was: repair_target.size(), is: facts.size })
        } else if (facts.mtime.sec, facts.mtime.nsec) != (sec, nsec) {
            VerdictKind::Modified(Change::Bytes)
        } else {
            VerdictKind::Rotted
        };
        Ok(RecoveredState::Anew(Verdict { kind, damage: Vec::new(), located: None, ..verdict.clone() }))
    }
}
