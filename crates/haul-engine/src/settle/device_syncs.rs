//! Syncs that several files share: one sync of their device instead of one of each file.

use haul_storage::{Inode, SinkFile};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of small files from which one sync of the device costs less than one of each file.
pub(crate) const FILES_MIN: usize = 8;

/// Syncs of devices by one job. After one that failed, each file is synced apart, which shows the
/// file that failed.
#[derive(Debug, Default)]
pub(crate) struct DeviceSyncs {
    has_failed: AtomicBool,
}

impl DeviceSyncs {
    /// Syncs the device of an inode. Returns true if that made all files on it durable that report
    /// no error of their own.
    pub(crate) fn sync_device(&self, inode: &dyn Inode) -> bool {
        if self.has_failed.load(Ordering::Relaxed) || !inode.device().capabilities.syncs_as_a_whole {
            return false;
        }
        let is_synced = inode.sync_device().is_ok();
        self.has_failed.fetch_or(!is_synced, Ordering::Relaxed);
        is_synced
    }

    /// Makes files durable. Returns a result for each file, in the same order. Those for which the
    /// second value is true share a sync of the device of `inode` if [`FILES_MIN`] of them are on
    /// it; `check` then reports what the file itself has lost. `sync` syncs another file.
    ///
    /// `inode` should have been open before the first write: of the write-back that failed earlier,
    /// the sync reports only what no other process has seen.
    pub(crate) fn sync_files(
        &self,
        inode: &dyn Inode,
        files: &[(&dyn SinkFile, bool)],
        sync: impl Fn(&dyn SinkFile) -> io::Result<()>,
        check: impl Fn(&dyn SinkFile) -> io::Result<()>,
    ) -> Vec<io::Result<()>> {
        let may_share = |file: &&(&dyn SinkFile, bool)| file.1 && file.0.device().id == inode.device().id;
        let is_synced = files.iter().filter(may_share).count() >= FILES_MIN && self.sync_device(inode);
        files
            .iter()
            .map(|file| if is_synced && may_share(&file) { check(file.0) } else { sync(file.0) })
            .collect()
    }
}
