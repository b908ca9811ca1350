//! A file whose objects are logged, and the meaning of an earlier run for each object.

use super::{JobLog, sample, writeback};
use crate::copy::error::CopyError;
use crate::copy::file::{FileMove, SinkState};
use crate::copy::job::Job;
use crate::log::{LogError, ResumeCheck};
use haul_log::objects::{FileKey, Identity, ObjectSet, SourceVersion, Subject};
use haul_model::{ByteRange, Moment, Object, ObjectIndex, RelPath};
use haul_plan::{Plan, Route};
use haul_sys::cache::{self, Advice};
use haul_sys::{FileKind, Stat, sparse, stat};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file in progress whose objects are logged.
#[derive(Debug)]
pub(crate) struct Logged {
    /// Number of the file in this run.
    pub(super) number: u64,
    pub(super) key: FileKey,
    /// The sink, kept open until all of its objects are durable.
    pub(super) sink: OwnedFd,
    /// Device number of its file system.
    pub(super) dev: u64,
    /// The sink, opened a second time to wait for its write-back.
    pub(super) again: Option<Arc<OwnedFd>>,
    path: OsString,
    pub(super) source_stat: Stat,
    /// Objects that an earlier run logged.
    known: ObjectSet,
    /// Size of the existing sink. Objects behind it need no comparison.
    existing_bytes: u64,
    /// True if the device may lack existing bytes that are not logged.
    may_lack: bool,
    /// True if the record says that the file was finished.
    was_claimed: bool,
    /// True if the log was trusted for an object without a check.
    keeps_some: AtomicBool,
    /// True if a comparison found an object at the sink.
    pub(crate) compared_some: AtomicBool,
    durability: Mutex<Durability>,
}

/// State of a file with regard to its syncs.
#[derive(Debug, Default)]
struct Durability {
    /// Error that prevented an object from becoming durable; the code that reports it takes it.
    failure: Option<io::Error>,
    /// True if a sync failed. The kernel reports a lost write once, so no sync proves anything
    /// about the file from then on, not even one that runs at the same time.
    has_failed: bool,
    /// True if all objects of the finished file are durable, unless another sync still fails.
    has_ended: bool,
}

/// Action for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectAction {
    /// The object is copied.
    Copy,
    /// The object may exist, but perhaps only in the page cache: it is copied over it.
    Replace,
    /// The object exists and is durable.
    Keep,
    /// Like [`ObjectAction::Keep`], if this piece of the object equals the source.
    Sample(ByteRange),
    /// The log says that the object exists, and the object is compared to check that.
    Prove,
    /// The object may exist: it is compared, and copied if it differs.
    Compare,
}

impl JobLog {
    /// Opens the log of a file before its objects are copied. Returns `None` if they are not
    /// logged, because there is only one or the file is a stream.
    ///
    /// # Errors
    /// Returns an error if log entries of another version of the file cannot be revoked, or if the
    /// sink cannot be prepared. Nothing was written then.
    pub(crate) fn open(
        &self,
        job: &Job<'_>,
        file: &FileMove,
        plan: &Plan,
    ) -> Result<Option<Arc<Logged>>, CopyError> {
        let is_resumed = file.sink_state == SinkState::Resumed;
        if plan.geometry().count() <= 1
            || !file.sink_is_regular
            || file.source_stat.kind != FileKind::Regular
            || plan.route() == Route::Stream
        {
            return Ok(None);
        }
        let unready = |source| CopyError::Cannot { action: "resume", path: file.sink_path(), source };
        let sink = stat::stat_fd(&file.sink).map_err(unready)?;
        let subject = subject(file, &sink);
        let opened = subject.as_ref().map(|subject| self.log_writer.file(subject));
        let (key, known) = match opened {
            Some(Ok(opened)) => opened,
            Some(Err(LogError::TooManyObjects(error))) => {
                self.unwritten(job, error.into());
                return self.unlogged(file);
            }
            Some(Err(source)) => {
                return Err(CopyError::NotRevoked { path: file.sink_path(), source: Box::new(source) });
            }
            None => return self.unlogged(file),
        };
        let known = self.trusted(file, (&sink, key), plan, known)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Some(Arc::new(Logged {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            sink: file.sink.try_clone().map_err(unready)?,
            dev: sink.dev,
            again: self.sync.syncs().then(|| writeback::open_again(&file.sink)).flatten(),
            path: file.sink_path(),
            source_stat: file.source_stat,
            known,
            existing_bytes: if is_resumed { sink.size } else { 0 },
            may_lack: self.may_lack(&sink, &file.source_stat),
            was_claimed: self.claims_finished(&sink, &file.source_stat),
            keeps_some: AtomicBool::new(false),
            compared_some: AtomicBool::new(false),
            durability: Mutex::default(),
        })))
    }

    /// Empties the sink of a file that cannot be logged: its present contents are useless.
    fn unlogged(&self, file: &FileMove) -> Result<Option<Arc<Logged>>, CopyError> {
        if file.sink_state == SinkState::Resumed {
            file.touch()?;
            let failed = |source| CopyError::Cannot { action: "resume", path: file.sink_path(), source };
            sparse::set_len(&file.sink, 0).map_err(failed)?;
        }
        Ok(None)
    }

    /// Returns the logged objects that are trusted without a check. None is trusted if the sink
    /// cannot be the logged file. This is the case if the sink is new or too short. It is also the
    /// case if its file system has no birth times, because another file may have its inode number
    /// now. Entries that are not trusted are revoked.
    fn trusted(
        &self,
        file: &FileMove,
        (sink, key): (&Stat, FileKey),
        plan: &Plan,
        known: ObjectSet,
    ) -> Result<ObjectSet, CopyError> {
        if known.is_empty() {
            return Ok(known);
        }
        let last = known.iter().last().and_then(|last| plan.geometry().object(last));
        let holds_last = last.is_some_and(|last| plan.in_sink(last.range.end).0 <= sink.size);
        let may_be = file.sink_state == SinkState::Resumed && sink.btime.is_some() && holds_last;
        if may_be && !self.is_distrusted() {
            return Ok(known);
        }
        self.revoke(key, file)?;
        Ok(ObjectSet::default())
    }

    fn revoke(&self, key: FileKey, file: &FileMove) -> Result<(), CopyError> {
        self.log_writer
            .revoke(key)
            .map_err(|source| CopyError::NotRevoked { path: file.sink_path(), source: Box::new(source) })
    }

    /// Returns the action for an object.
    pub(crate) fn object_action(&self, file: &Logged, plan: &Plan, object: Object) -> ObjectAction {
        if !file.known.contains(object.index) {
            let may_be_there = plan.in_sink(object.range.start).0 < file.existing_bytes;
            return match (may_be_there, file.may_lack) {
                (false, _) => ObjectAction::Copy,
                (true, false) => ObjectAction::Compare,
                (true, true) => ObjectAction::Replace,
            };
        }
        match self.recheck {
            ResumeCheck::All => return ObjectAction::Prove,
            ResumeCheck::Sample if file.is_sampled(object.index) => {
                let number = sample::number_of(&file.source_stat, object.index.0);
                return ObjectAction::Sample(sample::piece_of(object.range, number));
            }
            ResumeCheck::Sample | ResumeCheck::None => {}
        }
        if self.trusts(file) { ObjectAction::Keep } else { ObjectAction::Prove }
    }

    /// Returns true if the log is trusted for an object of a file without a check. The caller must
    /// then trust it.
    pub(crate) fn trusts(&self, file: &Logged) -> bool {
        // The order matters: a worker that finds a false log entry first sets `is_distrusted` and
        // then reads this flag.
        file.keeps_some.store(true, Ordering::SeqCst);
        !self.is_distrusted()
    }

    /// Handles an object that differs from its log entry. The entries of its file are revoked
    /// before anything is overwritten.
    ///
    /// # Errors
    /// Returns [`CopyError::LogFalse`] if the log was already trusted for objects of the file. The
    /// file cannot become complete in this run then.
    pub(crate) fn differs(
        &self,
        job: &Job<'_>,
        (file, logged): (&FileMove, &Logged),
        object_action: ObjectAction,
    ) -> Result<(), CopyError> {
        if matches!(object_action, ObjectAction::Prove | ObjectAction::Sample(_)) {
            self.distrust(job, file.sink_path());
            self.revoke(logged.key, file)?;
            if logged.keeps_some.load(Ordering::SeqCst) {
                return Err(CopyError::LogFalse { path: file.sink_path() });
            }
        } else if logged.was_claimed {
            self.distrust(job, file.sink_path());
        }
        Ok(())
    }
}

impl Logged {
    fn is_sampled(&self, object: ObjectIndex) -> bool {
        let is_first = self.known.iter().next() == Some(object);
        is_first || sample::is_sampled(sample::number_of(&self.source_stat, object.0))
    }

    /// Records that a sync failed, and that the caller reports it.
    pub(crate) fn mark_failed(&self) {
        self.durability().has_failed = true;
        // The kernel may keep bytes that the device lacks in clean pages. Without them a later run
        // compares what the device has. An error is ignored, because the file fails anyway.
        let _ = cache::advise_all(&self.sink, Advice::DontNeed);
    }

    /// Records that a sync failed. The file will be marked as unfinished. Returns the error if the
    /// file has ended already, so that the caller reports it.
    pub(super) fn fail(&self, source: io::Error) -> Option<CopyError> {
        self.mark_failed();
        let mut durability = self.durability();
        durability.failure.get_or_insert(source);
        let source = if durability.has_ended { durability.failure.take() } else { None };
        source.map(|source| self.sync_failed(source))
    }

    /// Returns true if a sync failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.durability().has_failed
    }

    /// Calls `record` unless a sync failed, and before any failure is recorded.
    pub(super) fn unless_failed<T>(&self, record: impl FnOnce() -> T) -> Option<T> {
        let durability = self.durability();
        (!durability.has_failed).then(record)
    }

    /// Ends the file. Returns false if a sync failed.
    pub(super) fn end(&self) -> bool {
        let mut durability = self.durability();
        durability.has_ended = true;
        !durability.has_failed
    }

    /// Takes the error that prevented an object from becoming durable. Only the first call returns
    /// it.
    pub(crate) fn take_failure(&self) -> Option<CopyError> {
        let source = self.durability().failure.take()?;
        Some(self.sync_failed(source))
    }

    fn durability(&self) -> MutexGuard<'_, Durability> {
        self.durability.lock()
    }

    pub(super) fn sync_failed(&self, source: io::Error) -> CopyError {
        CopyError::Failed { doing: "error syncing", path: self.path.clone(), source }
    }
}

/// Returns the identity of a file in the log, or `None` if its name is longer than any log can
/// store.
fn subject(file: &FileMove, sink: &Stat) -> Option<Subject> {
    let source = &file.source_stat;
    let mut bytes = Vec::new();
    bytes.extend(source.dev.to_le_bytes());
    bytes.extend(source.ino.to_le_bytes());
    bytes.extend(source.ctime.sec.to_le_bytes());
    bytes.extend(source.ctime.nsec.to_le_bytes());
    let identity = Identity::of(&bytes);
    let mut bytes = Vec::new();
    bytes.extend(sink.dev.to_le_bytes());
    bytes.extend(sink.ino.to_le_bytes());
    let birth = sink.btime.unwrap_or_default();
    bytes.extend(birth.sec.to_le_bytes());
    bytes.extend(birth.nsec.to_le_bytes());
    let mtime = Moment { sec: source.mtime.sec, nsec: source.mtime.nsec };
    Some(Subject {
        path: beneath(&file.sink_path())?,
        source: SourceVersion { size: source.size, mtime, identity },
        sink: Identity::of(&bytes),
    })
}

/// Returns a sink's path without empty components, `.` and `..`. The log needs a name; version and
/// identity identify the file.
fn beneath(path: &OsStr) -> Option<RelPath> {
    let parts = path.as_bytes().split(|&byte| byte == b'/');
    let kept: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b"." | b"..")).collect();
    RelPath::new(&kept.join(&b'/')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_paths_are_normalized_without_parent_components() {
        let name = |path: &str| beneath(OsStr::new(path)).map(|path| path.to_string());
        assert_eq!(name("../a//./b"), Some("a/b".to_owned()));
        assert_eq!(name("/x/y/"), Some("x/y".to_owned()));
        assert_eq!(name("/"), None);
        assert_eq!(name(&"n".repeat(2000)), None);
    }
}
