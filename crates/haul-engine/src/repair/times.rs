//! Modification times of directories in which a repair created or replaced names: they match the
//! waybill again.

use super::places::{NameAt, split};
use super::{Done, Outcome, Repair, RepairError, RepairObserver};
use haul_log::waybill::{Kind, Record};
use haul_storage::{FileKind, Times, Timespec};

impl Repair<'_> {
    /// Records the directory of a name that the repair created or replaced. In a dry run, records a
    /// name that it would create.
    pub(super) fn note_directory(&self, outcome: &Outcome) {
        if self.settings.dry_run {
            // As if it were there, for its further names.
            let made = matches!(outcome.done, Done::Made).then(|| outcome.path.as_bytes().to_vec());
            self.progress.lock().made.extend(made);
        } else if !matches!(outcome.done, Done::Right | Done::Left(_)) {
            self.progress.lock().changed.insert(split(outcome.path.as_bytes()).0.to_vec());
        }
    }

    /// Restores the recorded modification times of these directories. If several sections list a
    /// directory, the last one counts.
    ///
    /// # Errors
    /// Returns [`RepairError::Refused`] if the waybill can no longer be read.
    pub(super) fn restore_times(&self, report: &mut dyn RepairObserver) -> Result<(), RepairError> {
        let changed = std::mem::take(&mut self.progress.lock().changed);
        if changed.is_empty() {
            return Ok(());
        }
        let refused = |source| RepairError::Refused(self.settings.waybill.clone(), source);
        for record in self.settings.reader().map_err(refused)? {
            let Record::Entry(entry) = record.map_err(refused)? else { continue };
            if entry.kind != Kind::Directory || !changed.contains(entry.path.as_bytes()) {
                continue;
            }
            let mtime = Timespec { sec: entry.mtime.sec, nsec: entry.mtime.nsec };
            let times = Times { atime: None, mtime: Some(mtime) };
            let set = NameAt::of(self.root, &entry.path).and_then(|name_at| {
                // A link in the place of a directory is not what the waybill means.
                let held = name_at.dir.hold(&name_at.name)?;
                match held.stat()?.kind {
                    FileKind::Directory => held.set_times(times),
                    _ => Ok(()),
                }
            });
            if let Err(why) = set {
                report.time_not_kept(&entry.path, &why);
            }
        }
        Ok(())
    }
}
