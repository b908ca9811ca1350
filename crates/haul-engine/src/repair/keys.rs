//! Key that authenticates the journals of in-place repairs.

use super::{JournalWarning, LeftReason, RepairObserver};
use crate::log::{LogError, journal_key, new_journal_key, passing_key};
use haul_digest::DigestKey;
use parking_lot::Mutex;
use std::path::PathBuf;

/// Key of this user, read or created at its first use.
pub(super) struct JournalKeys {
    /// State directory; `None` if no state directory is known.
    state: Option<PathBuf>,
    /// Locked while the key is read or created: two workers would create two keys.
    key: Mutex<KnownKey>,
}

#[derive(Default)]
struct KnownKey {
    key: Option<DigestKey>,
    was_reported: bool,
}

impl JournalKeys {
    pub(super) fn new(state: Option<PathBuf>) -> JournalKeys {
        JournalKeys { state, key: Mutex::default() }
    }

    /// Returns the key if the user has one. A key that cannot be read is reported once.
    pub(super) fn known(&self, report: &mut dyn RepairObserver) -> Option<DigestKey> {
        let mut known = self.key.lock();
        if known.key.is_none()
            && let Some(found) = self.state.as_deref().and_then(|state| journal_key(state).transpose())
        {
            known.key = found.map_err(|error| known.report(error, report)).ok();
        }
        known.key
    }

    /// Returns the key of a new journal. If there can be no key that the next run finds, returns a
    /// random key: this run can still undo the repair, but no later run. Reports an unusable state
    /// directory once.
    pub(super) fn create(&self, report: &mut dyn RepairObserver) -> Result<DigestKey, LeftReason> {
        let mut known = self.key.lock();
        if let Some(key) = known.key {
            return Ok(key);
        }
        let created = self.state.as_deref().map(new_journal_key).transpose();
        let created = created.unwrap_or_else(|error| {
            known.report(error, report);
            None
        });
        let key = match created {
            Some(key) => key,
            None => passing_key().map_err(LeftReason::io("create the key of the journal"))?,
        };
        known.key = Some(key);
        Ok(key)
    }
}

impl KnownKey {
    fn report(&mut self, error: LogError, report: &mut dyn RepairObserver) {
        if !std::mem::replace(&mut self.was_reported, true) {
            report.journal_warning(None, JournalWarning::NoKey(error));
        }
    }
}
