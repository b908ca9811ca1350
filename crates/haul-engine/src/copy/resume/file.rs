//! The meaning of an earlier run for each object of a file whose objects are logged.

use super::logged::Logged;
use super::{JobLog, sample, writeback};
use crate::copy::error::CopyError;
use crate::copy::file::{CopySink, FileJob, SinkState};
use crate::copy::report::JobObserver;
use crate::log::{LogError, ResumeCheck};
use haul_log::objects::{FileKey, Identity, ObjectSet, SourceVersion, Subject};
use haul_model::{ByteRange, Moment, Object, RelPath};
use haul_plan::{Plan, Route};
use haul_storage::{FileKind, Stat};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
        observer: &JobObserver<'_>,
        file: &FileJob<'_>,
        plan: &Plan,
    ) -> Result<Option<Arc<Logged>>, CopyError> {
        let is_resumed = file.sink_state == SinkState::Resumed;
        let CopySink::File(open) = &file.sink else { return Ok(None) };
        if plan.geometry().count() <= 1
            || file.source_stat.kind != FileKind::Regular
            || plan.route() == Route::Stream
        {
            return Ok(None);
        }
        let unready = |source| CopyError::Cannot { action: "resume", path: file.sink_path(), source };
        let sink = open.stat().map_err(unready)?;
        let subject = subject(file, &sink);
        let opened = subject.as_ref().map(|subject| self.log_writer.file(subject));
        let (key, known) = match opened {
            Some(Ok(opened)) => opened,
            Some(Err(LogError::TooManyObjects(error))) => {
                self.unwritten(observer, error.into());
                return self.unlogged(file);
            }
            Some(Err(source)) => {
                return Err(CopyError::NotRevoked { path: file.sink_path(), source: Box::new(source) });
            }
            None => return self.unlogged(file),
        };
        let known = self.trusted(file, &sink, key, plan, known)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Some(Arc::new(Logged {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            sink: Arc::clone(open),
            again: self.sync.syncs().then(|| writeback::open_again(&**open)).flatten(),
            dev: sink.dev,
            path: file.sink_path(),
            source_stat: file.source_stat,
            known,
            existing_bytes: if is_resumed { sink.size } else { 0 },
            may_lack: self.may_lack(&sink, &file.source_stat),
            was_claimed: self.claims_finished(&sink, &file.source_stat),
            keeps_some: AtomicBool::new(false),
            durability: Mutex::default(),
        })))
    }

    /// Empties the sink of a file that cannot be logged: its present contents are useless.
    fn unlogged(&self, file: &FileJob<'_>) -> Result<Option<Arc<Logged>>, CopyError> {
        if file.sink_state == SinkState::Resumed {
            file.touch()?;
            let failed = |source| CopyError::Cannot { action: "resume", path: file.sink_path(), source };
            file.sink.file().and_then(|sink| sink.set_len(0)).map_err(failed)?;
        }
        Ok(None)
    }

    /// Returns the logged objects that are trusted without a check. None is trusted if the sink
    /// cannot be the logged file. This is the case if the sink is new or too short. It is also the
    /// case if its file system has no birth times, because another file may have its inode number
    /// now. Entries that are not trusted are revoked.
    fn trusted(
        &self,
        file: &FileJob<'_>,
        sink: &Stat,
        key: FileKey,
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

    fn revoke(&self, key: FileKey, file: &FileJob<'_>) -> Result<(), CopyError> {
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
        observer: &JobObserver<'_>,
        file: &FileJob<'_>,
        logged: &Logged,
        object_action: ObjectAction,
    ) -> Result<(), CopyError> {
        if matches!(object_action, ObjectAction::Prove | ObjectAction::Sample(_)) {
            self.distrust(observer, file.sink_path());
            self.revoke(logged.key, file)?;
            if logged.keeps_some.load(Ordering::SeqCst) {
                return Err(CopyError::LogFalse { path: file.sink_path() });
            }
        } else if logged.was_claimed {
            self.distrust(observer, file.sink_path());
        }
        Ok(())
    }
}

/// Returns the identity of a file in the log, or `None` if its name is longer than any log can
/// store.
fn subject(file: &FileJob<'_>, sink: &Stat) -> Option<Subject> {
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
