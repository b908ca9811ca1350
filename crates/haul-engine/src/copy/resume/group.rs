//! Group commit: objects written by the workers are synced together and then logged.

use super::kept::DueSync;
use super::logged::Logged;
use super::writeback::{self, FILE_BYTES_MIN};
use super::{JobLog, progress};
use crate::copy::age::unfinished;
use crate::copy::error::CopyError;
use crate::copy::file::{CopySink, FileJob};
use crate::copy::report::JobObserver;
use crate::log::{GROUP_TIME, GroupTimer, LogError, SyncPolicy};
use crate::settle::{DeviceWork, Due, NextWork};
use haul_model::{ByteRange, ObjectIndex};
use haul_storage::{FileKind, Inode, Stat, SyncWhat};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::thread::{self, Scope};

/// Objects and files of one device, collected since the last commit.
#[derive(Debug, Default)]
pub(super) struct PendingGroup {
    /// Written objects, by file.
    written: BTreeMap<u64, (Arc<Logged>, Vec<ObjectIndex>)>,
    /// Finished files.
    ended: Vec<Arc<Logged>>,
    /// Size, in bytes of the objects and of the finished files, and age.
    group_timer: GroupTimer,
}

/// Maximum number of files that the group of a device keeps open; it needs twice as many
/// descriptors.
const FILES_MAX: usize = 32;

impl DeviceWork for PendingGroup {
    type Batch = PendingGroup;

    fn due(&self) -> Due {
        self.group_timer.due()
    }

    fn take(&mut self) -> PendingGroup {
        std::mem::take(self)
    }

    /// Returns true if the group holds [`FILES_MAX`] files. The worker that added the last one
    /// commits them.
    fn is_full(&self, _: bool) -> bool {
        self.written.len().max(self.ended.len()) >= FILES_MAX
    }
}

/// Stops the committing threads, also on panic. Otherwise the scope would wait for them forever.
struct CommitterGuard<'a>(&'a JobLog);

impl Drop for CommitterGuard<'_> {
    fn drop(&mut self) {
        self.0.groups.stop();
    }
}

impl JobLog {
    /// Runs `work` and commits groups in parallel. When this returns, all its work is committed.
    pub fn beside<T>(&self, observer: &JobObserver<'_>, work: impl FnOnce() -> T) -> T {
        self.groups.begin();
        let done = thread::scope(|scope| {
            // If no thread can be started, everything is one group.
            let _committing =
                thread::Builder::new().spawn_scoped(scope, move || self.commit_due(observer, scope));
            let _end = CommitterGuard(self);
            work()
        });
        let due = self.kept().take_all_due();
        self.commit(observer, due, self.groups.take_all(), true);
        done
    }

    /// Commits groups as they become due, until the copy is over. Starts another thread when none
    /// is left for further devices. Each records the progress of the job, since others may stall.
    fn commit_due<'scope>(&'scope self, observer: &'scope JobObserver<'_>, scope: &'scope Scope<'scope, '_>) {
        let another = move || self.commit_due(observer, scope);
        loop {
            let next = self.groups.next(GROUP_TIME / 4);
            match next {
                NextWork::Run(mut taken) => {
                    let group = taken.batch(|| thread::Builder::new().spawn_scoped(scope, another).is_ok());
                    self.commit_device(observer, taken.device, group);
                }
                NextWork::Nothing => {}
                NextWork::Over => return,
            }
            self.heartbeat(observer);
            // Commits report a log that cannot be written; this is only the progress that `haul
            // jobs` prints.
            let _ = self.record_writer.progress(progress(observer.tally));
        }
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
        self.add(observer, file.dev, |group| {
            group.group_timer.add(range.len());
            let (_, objects) =
                group.written.entry(file.number).or_insert_with(|| (Arc::clone(file), Vec::new()));
            objects.push(object);
        });
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
        self.add(observer, sink.device().id, |group| {
            // The bytes of logged objects were already counted.
            group.group_timer.add(if file.logged.is_some() { 0 } else { bytes });
            group.ended.extend(file.logged.clone());
        });
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
        self.add(observer, sink.dev, |group| group.group_timer.add(0));
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

    /// Adds to the group of a device. If the group is then full, commits it here.
    fn add(&self, observer: &JobObserver<'_>, device: u64, add: impl FnOnce(&mut PendingGroup)) {
        let full = self.groups.add(device, |group| {
            add(group);
            group.is_full(false).then(|| group.take())
        });
        if full.is_some() {
            self.commit_device(observer, device, full);
        }
    }

    /// Commits a group, and the other finished files of its device.
    fn commit_device(&self, observer: &JobObserver<'_>, device: u64, group: Option<PendingGroup>) {
        let due = self.kept().take_due(device);
        self.commit(observer, due.into_iter().collect(), group.into_iter().collect(), false);
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

    /// Syncs groups and then records them: finished files in the record, other files in the log. A
    /// file that is finished within one group therefore never enters the log. `is_over` is true for
    /// the last groups.
    fn commit(
        &self,
        observer: &JobObserver<'_>,
        mut due: Vec<DueSync>,
        groups: Vec<PendingGroup>,
        is_over: bool,
    ) {
        // File systems are synced first. For single files, only a check for write errors is then
        // left. Each sync is a commit of the file system's journal, and writers wait for it.
        due.retain(|due| self.make_durable(observer, due));
        let (mut durable, mut ended) = (Vec::new(), Vec::new());
        let written = groups.into_iter().flat_map(|group| {
            ended.extend(group.ended);
            group.written.into_values()
        });
        for (file, objects) in written {
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
        let has_grown = is_over && self.kept().ended();
        // If the record cannot cover the finished files, their log entries stay.
        let is_frozen = self.kept().is_frozen();
        let is_kept = ((due.is_empty() && !has_grown) || self.keep(observer)) && !is_frozen;
        for file in ended {
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
        // Two devices are committed at the same time, and the later list replaces the earlier one.
        let _alone = self.keeping.lock();
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
