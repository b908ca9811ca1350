//! A file whose objects are logged, and what an earlier run means for each of them.

use super::{JobLog, behind, sample};
use crate::copy::error::CopyError;
use crate::copy::file::{FileMove, SinkState};
use crate::copy::job::Job;
use crate::log::{LogError, Recheck};
use haul_log::objects::{FileKey, Identity, ObjectSet, SourceVersion, Subject};
use haul_model::{ByteRange, Moment, Object, ObjectIndex, RelPath};
use haul_plan::{Plan, Route};
use haul_sys::{FileKind, Stat, sparse, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file under way whose objects are logged.
#[derive(Debug)]
pub(crate) struct Logged {
    /// Its number in this run.
    pub(super) number: u64,
    pub(super) key: FileKey,
    /// The sink, held for as long as something of it is to be made durable.
    pub(super) sink: OwnedFd,
    /// The device of its file system.
    pub(super) dev: u64,
    /// The sink again, to be waited for.
    pub(super) again: Option<Arc<OwnedFd>>,
    path: OsString,
    pub(super) source_stat: Stat,
    /// Objects that an earlier run logged.
    known: ObjectSet,
    /// What stood at the sink ends here; what lies behind need not be compared.
    stood: u64,
    /// The record said that it was finished.
    was_claimed: bool,
    /// An object was taken at the log's word.
    keeps_some: AtomicBool,
    /// An object was found to be there by a comparison.
    pub(crate) compared_some: AtomicBool,
    /// Why some of it can't be made durable; taken by whoever tells it.
    failure: Mutex<Option<io::Error>>,
    is_failed: AtomicBool,
}

/// What becomes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is copied.
    Copy,
    /// It is there, durable.
    Keep,
    /// As [`Fate::Keep`] if this piece of it is what the source has there.
    Sample(ByteRange),
    /// The log says that it is there, and is held to it.
    Prove,
    /// Something may be there: it is copied where it differs.
    Compare,
}

impl JobLog {
    /// A file's objects are about to be moved; `None` where they are not logged, because there is only one or they come as a stream.
    ///
    /// # Errors
    /// What the log says of another version of the file can't be taken back, or the sink can't be made ready: nothing was written then.
    pub(crate) fn open(
        &self,
        job: &Job<'_>,
        file: &FileMove,
        plan: &Plan,
    ) -> Result<Option<Arc<Logged>>, CopyError> {
        let goes_on = file.sink_state == SinkState::Resumed;
        if plan.geometry().count() <= 1
            || !file.sink_is_regular
            || file.source_stat.kind != FileKind::Regular
            || plan.route() == Route::Stream
        {
            return Ok(None);
        }
        let unready = |source| CopyError::Cannot { action: "go on with", path: file.sink_path(), source };
        let sink = stat::stat_fd(&file.sink).map_err(unready)?;
        let subject = subject(file, &sink);
        let opened = subject.as_ref().map(|subject| self.keeper.file(subject));
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
        let known = self.believed(file, (&sink, key), plan, known)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Ok(Some(Arc::new(Logged {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            key,
            sink: file.sink.try_clone().map_err(unready)?,
            dev: sink.dev,
            again: self.sync.syncs().then(|| behind::open_again(&file.sink)).flatten(),
            path: file.sink_path(),
            source_stat: file.source_stat,
            known,
            stood: if goes_on { sink.size } else { 0 },
            was_claimed: self.claims_finished(&sink, &file.source_stat),
            keeps_some: AtomicBool::new(false),
            compared_some: AtomicBool::new(false),
            failure: Mutex::new(None),
            is_failed: AtomicBool::new(false),
        })))
    }

    /// A file that has no place in the log: what stands there is of no use then.
    fn unlogged(&self, file: &FileMove) -> Result<Option<Arc<Logged>>, CopyError> {
        if file.sink_state == SinkState::Resumed {
            file.touch()?;
            let failed = |source| CopyError::Cannot { action: "go on with", path: file.sink_path(), source };
            sparse::set_len(&file.sink, 0).map_err(failed)?;
        }
        Ok(None)
    }

    /// What of a file's log is taken at its word. Nothing is where the sink can't be the file that was logged: it was made a moment ago, it
    /// is too short, or its file system can't tell it from another that has its number now. What is not taken is revoked.
    fn believed(
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
        self.keeper
            .revoke(key)
            .map_err(|source| CopyError::NotRevoked { path: file.sink_path(), source: Box::new(source) })
    }

    /// What becomes of an object.
    pub(crate) fn fate(&self, file: &Logged, plan: &Plan, object: Object) -> Fate {
        if !file.known.contains(object.index) {
            let may_be_there = plan.in_sink(object.range.start).0 < file.stood;
            return if may_be_there { Fate::Compare } else { Fate::Copy };
        }
        match self.recheck {
            Recheck::All => return Fate::Prove,
            Recheck::Sample if file.is_sampled(object.index) => {
                let number = sample::number_of(&file.source_stat, object.index.0);
                return Fate::Sample(sample::piece_of(object.range, number));
            }
            Recheck::Sample | Recheck::None => {}
        }
        if self.believes(file) { Fate::Keep } else { Fate::Prove }
    }

    /// Whether the log is taken at its word about an object of a file. Who asks, does so.
    pub(crate) fn believes(&self, file: &Logged) -> bool {
        // In this order: who finds that the log does not hold looks here after saying so.
        file.keeps_some.store(true, Ordering::SeqCst);
        !self.is_distrusted()
    }

    /// An object is not what was said of it. What is logged of its file is taken back before anything is written over it.
    ///
    /// # Errors
    /// [`CopyError::LogFalse`] where objects of the file were taken at the log's word already: the file can't become whole in this run.
    pub(crate) fn differs(
        &self,
        job: &Job<'_>,
        (file, logged): (&FileMove, &Logged),
        fate: Fate,
    ) -> Result<(), CopyError> {
        if matches!(fate, Fate::Prove | Fate::Sample(_)) {
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

    /// Some of it can't be made durable: it will not be left looking finished.
    pub(super) fn fail(&self, source: io::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(source);
        self.is_failed.store(true, Ordering::Release);
    }

    /// Whether some of it could not be made durable.
    pub(super) fn has_failed(&self) -> bool {
        self.is_failed.load(Ordering::Acquire)
    }

    /// Why some of it could not be made durable, for the first who asks.
    pub(crate) fn take_failure(&self) -> Option<CopyError> {
        let source = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(self.sync_failed(source))
    }

    pub(super) fn sync_failed(&self, source: io::Error) -> CopyError {
        CopyError::Failed { doing: "error syncing", path: self.path.clone(), source }
    }
}

/// What the log knows a file by; `None` where its name is longer than any log holds.
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

/// A sink's path without what leads out of anything: the log needs a name, and version and identity say which file it is.
fn beneath(path: &OsStr) -> Option<RelPath> {
    let parts = path.as_bytes().split(|&byte| byte == b'/');
    let kept: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b"." | b"..")).collect();
    RelPath::new(&kept.join(&b'/')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_knows_files_by_paths_that_lead_nowhere_else() {
        let name = |path: &str| beneath(OsStr::new(path)).map(|path| path.to_string());
        assert_eq!(name("../a//./b"), Some("a/b".to_owned()));
        assert_eq!(name("/x/y/"), Some("x/y".to_owned()));
        assert_eq!(name("/"), None);
        assert_eq!(name(&"n".repeat(2000)), None);
    }
}
