//! Key that authenticates the journals of in-place repairs.

use super::{JournalWarning, LeftReason, RepairObserver};
use crate::log::{LogError, journal_key, new_journal_key, passing_key};
use haul_digest::DigestKey;
use std::cell::{Cell, OnceCell};
use std::path::PathBuf;

/// Key of this user, read or created at its first use.
pub(super) struct JournalKeys {
    /// State directory; `None` if no state directory is known.
    state: Option<PathBuf>,
    key: OnceCell<DigestKey>,
    was_reported: Cell<bool>,
}

impl JournalKeys {
    pub(super) fn new(state: Option<PathBuf>) -> JournalKeys {
        JournalKeys { state, key: OnceCell::new(), was_reported: Cell::new(false) }
    }

    /// Returns the key if the user has one. A key that cannot be read is reported once.
    pub(super) fn known(&self, report: &mut dyn RepairObserver) -> Option<DigestKey> {
        if let Some(key) = self.key.get() {
            return Some(*key);
        }
        let found = self.state.as_deref().and_then(|state| journal_key(state).transpose())?;
        let key = found.map_err(|error| self.report(error, report)).ok()?;
        Some(*self.key.get_or_init(|| key))
    }

    /// Returns the key of a new journal. If there can be no key that the next run finds, returns a
    /// random key: this run can still undo the repair, but no later run. Reports an unusable state
    /// directory once.
    pub(super) fn create(&self, report: &mut dyn RepairObserver) -> Result<DigestKey, LeftReason> {
        if let Some(key) = self.key.get() {
            return Ok(*key);
        }
        let created = self.state.as_deref().map(new_journal_key).transpose();
        let created = created.unwrap_or_else(|error| {
            self.report(error, report);
            None
        });
        let key = match created {
            Some(key) => key,
            None => passing_key().map_err(LeftReason::io("create the key of the journal"))?,
        };
        Ok(*self.key.get_or_init(|| key))
    }

    fn report(&self, error: LogError, report: &mut dyn RepairObserver) {
        if !self.was_reported.replace(true) {
            report.journal_warning(None, &JournalWarning::NoKey(error));
        }
    }
}
