//! Group commit: objects written by the workers are synced together and then logged.

use super::kept::DueSync;
use super::logged::Logged;
use super::writeback::{self, FILE_BYTES_MIN};
use super::{JobLog, progress};
use crate::copy::age::unfinished;
use crate::copy::error::CopyError;
use crate::copy::file::{CopySink, FileJob};
use crate::copy::report::JobObserver;
use crate::log::{GROUP_BYTES, GROUP_TIME, LogError, SyncPolicy};
use haul_model::{ByteRange, ObjectIndex};
use haul_storage::{FileKind, Inode, Stat, SyncWhat};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Objects and files collected since the last commit.
#[derive(Debug, Default)]
pub(super) struct PendingGroup {
    /// Written objects, by file.
    written: BTreeMap<u64, (Arc<Logged>, Vec<ObjectIndex>)>,
    /// Finished files.
    ended: Vec<Arc<Logged>>,
    /// Number of bytes of the objects and of the finished files.
    bytes: u64,
    /// Time at which the first item was added.
    since: Option<Instant>,
    /// True if no more items will follow, because all workers have ended.
    is_over: bool,
}

/// Maximum number of files that a group keeps open; it needs twice as many descriptors.
const FILES_MAX: usize = 32;

impl PendingGroup {
    /// Returns true if the group holds [`FILES_MAX`] files. The worker that added the last one
    /// commits them.
    fn is_full(&self) -> bool {
        self.written.len().max(self.ended.len()) >= FILES_MAX
    }

    fn note(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.since.get_or_insert_with(Instant::now);
    }

    fn is_due(&self) -> bool {
        self.bytes >= GROUP_BYTES || self.since.is_some_and(|since| since.elapsed() >= GROUP_TIME)
    }

    /// Takes the items to commit and starts a new group.
    fn take(&mut self) -> PendingGroup {
        let is_over = self.is_over;
        std::mem::replace(self, PendingGroup { is_over, ..PendingGroup::default() })
    }
}

/// Stops the committing thread, also on panic. Otherwise the scope would wait for the thread
/// forever.
struct CommitterGuard<'a>(&'a JobLog);

impl Drop for CommitterGuard<'_> {
    fn drop(&mut self) {
        self.0.group().is_over = true;
        self.0.wake.notify_all();
    }
}

impl JobLog {
    /// Runs `work` and commits groups in parallel. When this returns, all its work is committed.
    pub fn beside<T>(&self, observer: &JobObserver<'_>, work: impl FnOnce() -> T) -> T {
        self.group().is_over = false;
        let done = thread::scope(|scope| {
            // If no thread can be started, everything is one group.
            let _committing = thread::Builder::new().spawn_scoped(scope, || {
                while let Some(group) = self.next_group(observer) {
                    self.commit(observer, group);
                }
            });
            let _end = CommitterGuard(self);
            work()
        });
        let rest = self.group().take();
        self.commit(observer, rest);
        done
    }

    /// Records an object that reached the sink, in this range of the sink.
    ///
    /// # Errors
    /// With `--sync=object`, returns an error if the object cannot be synced.
    pub(crate) fn add_object(
        &self,
        observer: &JobObserver<'_>,
        file: &Arc<Logged>,
        object: ObjectIndex,
        range: ByteRange,
    ) -> Result<(), CopyError> {
        if self.sync == SyncPolicy::Object {
            file.sink.sync(SyncWhat::Data).map_err(|source| {
                file.mark_failed();
                self.mark_unsynced(observer);
                file.sync_failed(source)
            })?;
            let logged = file.unless_failed(|| self.log_writer.durable(file.key, object, range.len()));
            self.report_log(observer, logged.unwrap_or(Ok(())));
            return Ok(());
        }
        let mut group = self.group();
        group.note(range.len());
        let (_, objects) = group.written.entry(file.number).or_insert_with(|| (Arc::clone(file), Vec::new()));
        objects.push(object);
        self.pass(observer, group);
        if let Some(again) = &file.again {
            self.writeback.give(&*file.sink, again, range);
        }
        Ok(())
    }

    /// Prepares the sync of a file. Must be called before the first write to the file.
    ///
    /// # Errors
    /// Returns an error if the file system cannot be opened.
    pub(crate) fn begins(&self, file: &FileJob<'_>) -> Result<(), CopyError> {
        let CopySink::File(sink) = &file.sink else { return Ok(()) };
        let begun = self.kept().begins(sink.device().id, || file.finish.open_device(file));
        begun.map(drop).map_err(|source| file_sync_failed(file.sink_path(), source))
    }

    /// Records a finished file of `bytes` bytes, whose times are set. Files that were not logged
    /// object by object are recorded too.
    pub fn finished(&self, observer: &JobObserver<'_>, file: &FileJob<'_>, bytes: u64) {
        self.heartbeat(observer);
        let CopySink::File(sink) = &file.sink else { return };
        match sink.stat() {
            Ok(found) => {
                let recorded = self.changed(observer, &found, || file.finish.open_device(file));
                recorded.unwrap_or_else(|source| observer.fail(&file_sync_failed(file.sink_path(), source)));
            }
            // The file is not recorded as finished, and the next run compares it.
            Err(source) => observer.warn(&file_sync_failed(file.sink_path(), source)),
        }
        let mut group = self.group();
        // The bytes of logged objects were already counted.
        group.note(if file.logged.is_some() { 0 } else { bytes });
        group.ended.extend(file.logged.clone());
        self.pass(observer, group);
        if file.logged.is_none()
            && bytes >= FILE_BYTES_MIN
            && self.sync.syncs()
            && let Some(again) = writeback::open_again(&**sink)
        {
            self.writeback.give(&**sink, &again, ByteRange::between(0, bytes));
        }
    }

    /// Records that the sink of this source got another name, which changed its change time. `sink`
    /// is its metadata now, and `open` opens its device as [`Finish::open_device`] does.
    ///
    /// [`Finish::open_device`]: crate::copy::Finish::open_device
    pub fn linked(
        &self,
        observer: &JobObserver<'_>,
        source: &Stat,
        sink: impl FnOnce() -> io::Result<Stat>,
        open: impl FnOnce() -> io::Result<Arc<dyn Inode>>,
        path: impl FnOnce() -> OsString,
    ) {
        if source.kind != FileKind::Regular {
            return;
        }
        // If the file is gone, the next run copies it.
        let Ok(sink) = sink() else { return };
        let failed = |source| observer.fail(&file_sync_failed(path(), source));
        self.changed(observer, &sink, open).unwrap_or_else(failed);
    }

    /// Records the change time of a file. `open` opens its file system, if it is not open yet.
    ///
    /// # Errors
    /// Returns the error of `open`: the file will not be synced.
    fn changed(
        &self,
        observer: &JobObserver<'_>,
        sink: &Stat,
        open: impl FnOnce() -> io::Result<Arc<dyn Inode>>,
    ) -> io::Result<()> {
        let went_back = {
            let mut kept = self.kept();
            kept.begins(sink.dev, open)?;
            kept.finished(sink)
        };
        if went_back {
            self.keep(observer);
        }
        Ok(())
    }

    /// Releases the group after an addition. If the group is full, commits it here. If it is due,
    /// wakes the committing thread.
    fn pass(&self, observer: &JobObserver<'_>, mut group: MutexGuard<'_, PendingGroup>) {
        if group.is_full() {
            let full = group.take();
            drop(group);
            return self.commit(observer, full);
        }
        if group.is_due() {
            self.wake.notify_all();
        }
    }

    /// Syncs a file individually if its file system cannot be synced as a whole.
    ///
    /// # Errors
    /// Returns an error if the sync fails.
    pub fn sync_alone(&self, observer: &JobObserver<'_>, file: &FileJob<'_>) -> Result<(), CopyError> {
        let CopySink::File(sink) = &file.sink else { return Ok(()) };
        if !self.sync.syncs() || self.kept().syncs_as_a_whole(sink.device().id) {
            return Ok(());
        }
        sink.sync(SyncWhat::All).map_err(|source| {
            self.sync_failed(observer);
            file.sync_failed();
            file_sync_failed(file.sink_path(), source)
        })
    }

    /// Waits for a group that is due. Returns `None` when the copy is over.
    fn next_group(&self, observer: &JobObserver<'_>) -> Option<PendingGroup> {
        loop {
            let mut group = self.group();
            if group.is_over {
                return None;
            }
            if group.is_due() {
                return Some(group.take());
            }
            self.wake.wait_for(&mut group, GROUP_TIME / 4);
            // No worker waits during the following write.
            drop(group);
            self.heartbeat(observer);
            // Commits report a log that cannot be written; this is only the progress that `haul
            // jobs` prints.
            let _ = self.record_writer.progress(progress(observer.tally));
        }
    }

    /// Syncs a group and then records it: finished files in the record, other files in the log. A
    /// file that is finished within one group therefore never enters the log.
    fn commit(&self, observer: &JobObserver<'_>, group: PendingGroup) {
        let mut due = self.kept().take_due();
        // File systems are synced first. For single files, only a check for write errors is then
        // left. Each sync is a commit of the file system's journal, and writers wait for it.
        due.retain(|due| self.make_durable(observer, due));
        let mut durable = Vec::new();
        for (file, objects) in group.written.into_values() {
            let synced = match self.sync.syncs() {
                true if due.iter().any(|due| due.covers(file.dev)) => file.sink.check(),
                true => file.sink.sync(SyncWhat::Data),
                false => Ok(()),
            };
            match synced {
                Ok(()) => durable.push((file, objects)),
                Err(source) => {
                    // The file may have its source's time by now, so times prove nothing from here
                    // on.
                    self.sync_failed(observer);
                    if let Some(error) = file.fail(source) {
                        observer.fail(&error);
                        mark_unfinished(&file);
                    }
                    self.revoke_failed(observer, &file);
                }
            }
        }
        due.iter().for_each(|due| self.kept().synced(due));
        // After the last group, no worker finishes another file.
        let has_grown = group.is_over && self.kept().ended();
        // If the record cannot cover the finished files, their log entries stay.
        let is_frozen = self.kept().is_frozen();
        let is_kept = ((due.is_empty() && !has_grown) || self.keep(observer)) && !is_frozen;
        for file in group.ended {
            if !file.end() {
                if let Some(error) = file.take_failure() {
                    observer.fail(&error);
                }
                mark_unfinished(&file);
            } else if is_kept {
                self.log_writer.complete(file.key);
            }
        }
        for (file, objects) in durable {
            file.unless_failed(|| self.log_writer.durable_together(file.key, objects));
        }
        self.report_log(observer, self.log_writer.commit());
    }

    /// Syncs the finished files of a file system, with their names and metadata. Returns true on
    /// success.
    fn make_durable(&self, observer: &JobObserver<'_>, due: &DueSync) -> bool {
        if !self.sync.syncs() || !due.is_whole() {
            return true;
        }
        let synced = due.handle.sync_device();
        if let Err(source) = synced {
            // Any finished file may be lost, and the next sync does not report that.
            self.sync_failed(observer);
            observer.fail(&CopyError::Unsynced(source));
            return false;
        }
        true
    }

    /// Records that files are lost that no change time identifies.
    fn sync_failed(&self, observer: &JobObserver<'_>) {
        self.kept().freeze();
        self.mark_unsynced(observer);
    }

    /// Records the finished files that are durable. Returns true on success.
    fn keep(&self, observer: &JobObserver<'_>) -> bool {
        let known = self.kept().known();
        let done = self.record_writer.keep(&known, self.sync.syncs());
        let is_kept = done.is_ok();
        self.report_log(observer, done);
        is_kept
    }

    /// Revokes the log entries of a file after a sync of it failed: another sync that ran at the
    /// same time may have succeeded, although the device lacks its objects.
    pub fn revoke_failed(&self, observer: &JobObserver<'_>, file: &Logged) {
        self.report_log(observer, self.log_writer.revoke(file.key));
    }

    fn report_log(&self, observer: &JobObserver<'_>, done: Result<(), LogError>) {
        if let Err(error) = done {
            self.unwritten(observer, error);
        }
    }
}

/// Marks a file that has its source's time by now and is not complete. An error is ignored, because
/// the file is reported in any case.
fn mark_unfinished(file: &Logged) {
    let _ = file.sink.set_times(unfinished(&file.source_stat));
}

fn file_sync_failed(path: OsString, source: io::Error) -> CopyError {
    CopyError::Failed { doing: "error syncing", path, source }
}
