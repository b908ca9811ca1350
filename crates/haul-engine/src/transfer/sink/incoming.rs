//! State of a regular file at the sink, from its announcement to its end.

use super::dirs::SinkDirs;
use super::metadata::MetadataWriter;
use super::partial_file::PartialFile;
use crate::pipeline::{BlockFault, read_blocks};
use crate::transfer::hashing::RootHash;
use crate::transfer::reason::reason;
use haul_digest::{Digest, ObjectDigest, ObjectSums};
use haul_log::objects::FileKey;
use haul_model::{ByteOffset, ByteRange, Level, Object, RelPath};
use haul_proto::{Close, FileKind, NewFile, Outcome, Reason, Runs, Why, sink::Unfinished};
use haul_storage::{Follow, Inode, Metadata, SourceFile, Stat, Tag};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A regular file that the sink receives.
#[derive(Debug)]
pub(super) struct IncomingFile {
    pub(super) facts: Arc<NewFile>,
    pub(super) path: RelPath,
    tag: Tag,
    in_place: bool,
    /// Number of bytes to receive, if only a part of the file was requested.
    part: Option<u64>,
    /// True if the space of the file is reserved before it is written.
    reserves: bool,
    /// Open file of each attempt. The first is created when the first bytes arrive, or at the end.
    attempts: Mutex<Attempts>,
    /// Local file that holds equal bytes.
    base: Mutex<Option<Base>>,
    /// Temporary file of an earlier run, if samples are compared with it. All other objects are
    /// then compared with the existing file.
    sample_file: Mutex<Option<Arc<dyn SourceFile>>>,
    /// Objects of a comparison: those that are present and not compared, and the samples that must
    /// match.
    compared: Mutex<(Runs, Runs)>,
    /// True if the file has objects from which a later run of the job can resume.
    is_kept: AtomicBool,
    /// Number of bytes of the file counted as done.
    counted: AtomicU64,
    /// True if this side lacks a resource, so that a later run may complete the file.
    lacks_resource: AtomicBool,
    /// True if that resource is space.
    lacks_space: AtomicBool,
    /// True if its temporary name is derived from the job and the path, so that a later run finds
    /// it.
    pub(super) is_claimed: bool,
    /// Digests of the whole file, over the objects received or hashed locally so far.
    pub(super) root: Mutex<RootHash>,
    /// Digest of the existing file for the waybill, if the complete file is compared.
    pub(super) existing_digest: Mutex<Option<Digest>>,
}

/// Open files of all attempts to transfer a file, the latest last.
#[derive(Debug, Default)]
struct Attempts {
    files: Vec<(u16, Arc<PartialFile>)>,
    /// Current attempt.
    attempt: u16,
    /// True if the file has ended. No further file is created for it.
    has_ended: bool,
}

/// A local file that holds bytes of the source.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) file: Arc<dyn SourceFile>,
    /// True if the base is the file that is written: equal bytes stay in place.
    pub(super) is_partial_file: bool,
}

impl IncomingFile {
    pub(super) fn new(
        facts: Arc<NewFile>,
        path: RelPath,
        tag: Tag,
        is_claimed: bool,
        in_place: bool,
        root: RootHash,
    ) -> IncomingFile {
        IncomingFile {
            facts,
            path,
            tag,
            in_place,
            part: None,
            reserves: true,
            attempts: Mutex::default(),
            base: Mutex::default(),
            sample_file: Mutex::default(),
            compared: Mutex::default(),
            is_kept: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            lacks_resource: AtomicBool::new(false),
            lacks_space: AtomicBool::new(false),
            is_claimed,
            root: Mutex::new(root),
            existing_digest: Mutex::default(),
        }
    }

    /// Sets the number of bytes to receive, if only a part of the file was requested.
    pub(super) fn with_part_bytes(self, part: Option<u64>) -> IncomingFile {
        IncomingFile { part, ..self }
    }

    /// Sets if the space of the file is reserved.
    pub(super) fn with_reserve(self, reserves: bool) -> IncomingFile {
        IncomingFile { reserves, ..self }
    }

    /// Returns the number of bytes to receive.
    pub(super) fn requested_bytes(&self) -> u64 {
        self.part.unwrap_or_else(|| self.facts.size())
    }

    /// Counts additional bytes of the file. Returns how many of them to add to the total: bytes
    /// that arrive again were counted before.
    pub(super) fn count(&self, bytes: u64) -> u64 {
        let most = self.requested_bytes();
        let then = |before: u64| Some(before.saturating_add(bytes).min(most));
        let before = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, then);
        bytes.min(most.saturating_sub(before.unwrap_or_else(|same| same)))
    }

    /// Opens the existing regular file with the name. Returns `None` if the name does not exist or
    /// belongs to an entry of another kind.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::source`](haul_storage::Dir::source) for a regular file.
    pub(super) fn existing(&self, dirs: &SinkDirs) -> io::Result<Option<Arc<dyn SourceFile>>> {
        let found = dirs.entry(self.path.as_bytes()).and_then(|at| at.dir.source(&at.name, Follow::No));
        let file = match found {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // An entry of another kind cannot be opened: the file replaces it.
            Err(error) => {
                return match self.stat_existing(dirs)? {
                    Some(existing) if existing.kind == haul_storage::FileKind::Regular => Err(error),
                    _ => Ok(None),
                };
            }
        };
        // Same condition as in [`PartialFile::in_place`].
        let is_partial_file = self.in_place && file.opened().nlink == 1;
        *self.base.lock() = Some(Base { file: Arc::clone(&file), is_partial_file });
        Ok(Some(file))
    }

    /// Returns the metadata of the existing entry with the name, of any kind, or `None` if there is
    /// none.
    ///
    /// # Errors
    /// Same as [`SinkDirs::stat`].
    pub(super) fn stat_existing(&self, dirs: &SinkDirs) -> io::Result<Option<Stat>> {
        dirs.stat(self.path.as_bytes())
    }

    /// Returns the length of the file that objects are compared with: the temporary file of an
    /// earlier run, or the existing file.
    pub(super) fn compared_len(&self, dirs: &SinkDirs) -> Option<u64> {
        let base = self.base.lock().clone();
        if let Some(base) = base.filter(|base| base.is_partial_file) {
            return base.file.stat().ok().map(|now| now.size);
        }
        self.existing(dirs).ok().flatten().map(|file| file.opened().size)
    }

    /// Compares objects with the existing file instead of the file that [`IncomingFile::reopen`]
    /// opened. Only samples are still compared with the latter.
    pub(super) fn compare_with_existing(&self) {
        let sample_file = self.base.lock().take_if(|base| base.is_partial_file);
        *self.sample_file.lock() = sample_file.map(|sample_file| sample_file.file);
    }

    /// Returns the length of the file that samples are compared with, if samples have a file of
    /// their own.
    pub(super) fn sampled_len(&self) -> Option<u64> {
        let sample_file = self.sample_file.lock().clone().filter(|_| !self.compared.lock().1.is_empty())?;
        sample_file.stat().ok().map(|now| now.size)
    }

    /// Returns the objects that a comparison skips, and the samples that must match.
    pub(super) fn comparison(&self) -> (Runs, Runs) {
        self.compared.lock().clone()
    }

    /// Lets a comparison skip the objects `have`, and requires that `samples` match.
    pub(super) fn set_comparison(&self, have: Runs, samples: Runs) {
        *self.compared.lock() = (have, samples);
    }

    /// Opens the temporary file that an earlier run left, to resume from it. Returns its metadata
    /// as found, or `None` if there is no such file.
    ///
    /// # Errors
    /// Returns the error of the failed system call, and `Interrupted` once `over` is true.
    pub(super) fn reopen(&self, dirs: &SinkDirs, over: &AtomicBool) -> io::Result<Option<Stat>> {
        let at = match dirs.entry(self.path.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let (len, room) = (self.facts.size(), self.reserve_bytes());
        let reopened = PartialFile::reopen_temporary(&at, self.tag, len, room)?;
        let Some((partial_file, found)) = reopened else { return Ok(None) };
        self.clear_holes(&partial_file, over)?;
        let file = partial_file.file.reader()?;
        *self.base.lock() = Some(Base { file, is_partial_file: true });
        self.attempts.lock().files = vec![(0, Arc::new(partial_file))];
        Ok(Some(found))
    }

    /// Removes the file that [`IncomingFile::reopen`] opened, because it is of no use.
    pub(super) fn forget(&self) {
        *self.base.lock() = None;
        if let Some((_, partial_file)) = self.attempts.lock().files.pop() {
            partial_file.abandon();
        }
    }

    /// Makes the file that [`IncomingFile::reopen`] opened accessible only to this user again.
    ///
    /// # Errors
    /// Same as [`PartialFile::make_private`].
    pub(super) fn make_private(&self) -> io::Result<()> {
        self.last().map_or(Ok(()), |partial_file| partial_file.make_private())
    }

    /// Sets the log key of the file that [`IncomingFile::reopen`] opened.
    pub(super) fn set_log_key(&self, key: FileKey) {
        if let Some((_, partial_file)) = self.attempts.lock().files.last() {
            partial_file.logged.get_or_init(|| key);
        }
    }

    /// Records that the file has objects from which a later run can resume.
    pub(super) fn mark_kept(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Records that the file failed at this side for this reason.
    pub(super) fn record_failure(&self, reason: &Reason) {
        let lacks_resource = matches!(reason.why, Why::NoSpace | Why::Quota | Why::Io | Why::ReadOnly);
        self.lacks_resource.fetch_or(lacks_resource, Ordering::Relaxed);
        self.lacks_space.fetch_or(reason.why.is_shortage(), Ordering::Relaxed);
    }

    /// Returns true if a later run may complete the file, although this run continues without it.
    pub(super) fn may_complete_later(&self) -> bool {
        self.lacks_resource.load(Ordering::Relaxed)
    }

    /// Returns true if the file failed because this side has no space for it.
    pub(super) fn lacks_space(&self) -> bool {
        self.lacks_space.load(Ordering::Relaxed)
    }

    /// Returns true after [`IncomingFile::mark_kept`].
    pub(super) fn was_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// Returns the space that a later run finds of the file, in bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        let kept = self.last().filter(|partial_file| self.was_kept() && partial_file.may_be_kept());
        let facts = kept.and_then(|partial_file| partial_file.file.stat().ok());
        facts.map_or(0, |facts| facts.blocks.saturating_mul(512))
    }

    /// Returns the file of the latest attempt that has one.
    pub(super) fn last(&self) -> Option<Arc<PartialFile>> {
        self.attempts.lock().files.last().map(|(_, partial_file)| Arc::clone(partial_file))
    }

    /// Returns the file that receives the bytes of `attempt`, if that is the current attempt and
    /// the file is open.
    pub(super) fn open_attempt(&self, attempt: u16) -> Option<Arc<PartialFile>> {
        let attempts = self.attempts.lock();
        let made = attempts.files.iter().rev().find(|(of, _)| *of <= attempt);
        made.filter(|_| attempt == attempts.attempt).map(|(_, partial_file)| Arc::clone(partial_file))
    }

    /// Returns the file that receives the bytes of an attempt. Creates it if necessary.
    ///
    /// # Errors
    /// Returns [`Why::Stopped`] if the file has ended or `over` is true, and the error of the
    /// system call if the file cannot be created.
    pub(super) fn partial_file_for(
        &self,
        dirs: &SinkDirs,
        attempt: u16,
        over: &AtomicBool,
    ) -> Result<Arc<PartialFile>, Reason> {
        let mut attempts = self.attempts.lock();
        attempts.attempt = attempts.attempt.max(attempt);
        // A late writer of an earlier attempt keeps its file, and its result is ignored.
        if let Some((of, partial_file)) = attempts.files.iter().rev().find(|(of, _)| *of <= attempt) {
            let (of, partial_file) = (*of, Arc::clone(partial_file));
            if of == attempt || attempt < attempts.attempt {
                return Ok(partial_file);
            }
            // Never overwrite objects that are logged or are about to be, because their log entries
            // could outlive them.
            if !self.was_kept() || self.in_place {
                attempts.files.push((attempt, Arc::clone(&partial_file)));
                return Ok(partial_file);
            }
        }
        if attempts.has_ended {
            return Err(Why::Stopped.into());
        }
        let made = dirs.new_entry(self.path.as_bytes()).and_then(|at| {
            let room = self.reserve_bytes();
            if self.in_place
                && let Some(partial_file) = PartialFile::in_place(&at, self.facts.size(), room)?
            {
                self.clear_holes(&partial_file, over)?;
                return Ok(partial_file);
            }
            PartialFile::create_temporary(&at, self.tag, room)
        });
        let made = Arc::new(made.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted if over.load(Ordering::Relaxed) => Why::Stopped.into(),
            _ => reason("cannot create", &error),
        })?);
        self.is_kept.store(false, Ordering::Relaxed);
        attempts.files.push((attempt, Arc::clone(&made)));
        Ok(made)
    }

    /// Same as [`IncomingFile::partial_file_for`], for the current attempt.
    ///
    /// # Errors
    /// Same as [`IncomingFile::partial_file_for`].
    pub(super) fn partial_file(
        &self,
        dirs: &SinkDirs,
        over: &AtomicBool,
    ) -> Result<Arc<PartialFile>, Reason> {
        let attempt = self.attempts.lock().attempt;
        self.partial_file_for(dirs, attempt, over)
    }

    /// Returns the number of bytes to reserve for the file.
    fn reserve_bytes(&self) -> u64 {
        // A file with holes can be far longer than the disk, and so can a file of which only a part
        // is requested.
        let has_holes =
            matches!(&self.facts.kind, haul_proto::FileKind::File { holes, .. } if !holes.is_empty());
        if has_holes || self.part.is_some() || !self.reserves { 0 } else { self.facts.size() }
    }

    /// Clears the source's holes in an existing file, because no data arrives for holes. Ends with
    /// `Interrupted` once `over` is true.
    fn clear_holes(&self, partial_file: &PartialFile, over: &AtomicBool) -> io::Result<()> {
        let FileKind::File { holes, .. } = &self.facts.kind else { return Ok(()) };
        let geometry = self.root.lock().geometry();
        let byte = |index: u64| index.saturating_mul(geometry.object_size().bytes()).min(geometry.len());
        let end = partial_file.file.stat()?.size;
        for (first, past) in holes.iter() {
            let (from, to) = (byte(first), byte(past).min(end));
            if from < to {
                partial_file.file.clear(ByteRange::between(from, to), over)?;
            }
        }
        Ok(())
    }

    /// Takes over a range from the local file that holds its bytes. Returns true if they stay where
    /// they are, and `None` if they cannot be read.
    ///
    /// # Errors
    /// Returns the error of the system call that writes, and [`Why::Stopped`] once `over` is true.
    pub(super) fn take_equal_range(
        &self,
        base: &Base,
        partial_file: &PartialFile,
        range: ByteRange,
        block: &mut [u8],
        over: &AtomicBool,
        mut see: impl FnMut(&[u8]),
    ) -> Result<Option<bool>, Reason> {
        let Base { file: base, is_partial_file } = base;
        let identity = |file: &dyn Inode| file.stat().map(|now| now.identity()).ok();
        // If the file has got a second name since it was opened, it is not written in place.
        let is_partial_file = *is_partial_file && identity(&**base) == identity(&*partial_file.file);
        let read = read_blocks(&**base, range, block, over, |at, bytes| {
            see(bytes);
            if is_partial_file {
                return Ok(());
            }
            partial_file.file.write_at(at, bytes).map_err(|error| reason("cannot write", &error))
        });
        match read {
            Ok(()) => Ok(Some(is_partial_file)),
            Err(BlockFault::Read(..) | BlockFault::Ended(..)) => Ok(None),
            Err(BlockFault::Stopped) => Err(Why::Stopped.into()),
            Err(BlockFault::Receiver(reason)) => Err(reason),
        }
    }

    /// Returns the local file that holds the object at this offset.
    pub(super) fn base_at(&self, at: ByteOffset) -> Option<Base> {
        let index = at.0 / self.root.lock().geometry().object_size().bytes();
        let sample_file = self.sample_file.lock().clone().filter(|_| self.compared.lock().1.contains(index));
        match sample_file {
            Some(file) => Some(Base { file, is_partial_file: true }),
            None => self.base.lock().clone(),
        }
    }

    /// Discards the bytes received before this attempt.
    pub(super) fn restart(&self, attempt: u16) {
        let mut attempts = self.attempts.lock();
        attempts.attempt = attempts.attempt.max(attempt);
        drop(attempts);
        self.base.lock().take_if(|base| base.is_partial_file && !self.in_place);
        *self.sample_file.lock() = None;
        self.root.lock().set_attempt(attempt);
    }

    /// Returns true if the file has at most one object.
    pub(super) fn is_one_object(&self) -> bool {
        self.root.lock().geometry().count() <= 1
    }

    /// Returns true if objects that count for the digests were not transferred.
    pub(super) fn is_incomplete(&self, close: Option<&Close>) -> bool {
        matches!(close, Some(Close::Read { .. })) && self.missing(0).is_some()
    }

    /// Returns true while another thread syncs the file.
    pub(super) fn is_syncing(&self) -> bool {
        self.last().is_some_and(|partial_file| partial_file.file.is_syncing())
    }

    /// Starts to hash an object.
    pub(super) fn begin(&self, attempt: u16, object: Object) -> ObjectDigest {
        self.root.lock().begin(attempt, object)
    }

    /// Returns the next object, from index `from` on, that was not transferred.
    pub(super) fn missing(&self, from: u64) -> Option<Object> {
        self.root.lock().missing(from)
    }

    /// Adds the digest of such an object, hashed from the local file.
    pub(super) fn add_late(&self, object: Object, sums: ObjectSums) {
        self.root.lock().add_late(object, sums);
    }

    /// Returns the current metadata of the file: the received file, or otherwise the local file
    /// with equal bytes.
    pub(super) fn stat(&self) -> Option<Stat> {
        if let Some((_, partial_file)) = self.attempts.lock().files.last() {
            return partial_file.file.stat().ok();
        }
        self.base.lock().as_ref().and_then(|base| base.file.stat().ok())
    }

    /// Sets the metadata of the file and renames it to its final name. Without `close`, only sets
    /// the metadata of the existing file. Does not sync.
    ///
    /// # Errors
    /// Returns [`Unfinished::Differs`] if the digest differs. Returns [`Unfinished::Failed`] if the
    /// file failed at the source, has another size or no digest, or if a system call fails.
    pub(super) fn finish(
        &self,
        dirs: &SinkDirs,
        over: &AtomicBool,
        metadata_writer: &MetadataWriter,
        close: Option<&Close>,
        settle: Level,
    ) -> Result<Outcome, Unfinished> {
        let Some(partial_file) = self.prepare(dirs, over, metadata_writer, close)? else {
            return Ok(Outcome::Same);
        };
        partial_file.commit().map_err(Unfinished::Failed)?;
        Ok(Outcome::Done(settle))
    }

    /// Sets the metadata of the file but does not rename it. Returns `None` if the existing file is
    /// the same and keeps its name.
    ///
    /// # Errors
    /// Same as [`IncomingFile::finish`]. The received data is then removed with the file.
    pub(super) fn prepare(
        &self,
        dirs: &SinkDirs,
        over: &AtomicBool,
        metadata_writer: &MetadataWriter,
        close: Option<&Close>,
    ) -> Result<Option<Arc<PartialFile>>, Unfinished> {
        let (size, stated) = match close {
            Some(Close::Read { size, root, .. }) => (*size, *root),
            None => {
                let found = self.existing(dirs).map_err(failed("cannot open"))?;
                let file = found.ok_or_else(|| Unfinished::Failed(Why::NotFound.into()))?;
                metadata_writer.apply(&*file, &self.facts).map_err(Unfinished::Failed)?;
                return Ok(None);
            }
            Some(Close::Failed(reason)) => return Err(Unfinished::Failed(reason.clone())),
        };
        if size != self.facts.size() {
            return Err(Unfinished::Failed(Why::Changed.into()));
        }
        self.compare(stated, size)?;
        let partial_file = self.partial_file(dirs, over).map_err(Unfinished::Failed)?;
        if self.part.is_some() {
            // Only this user reads the file.
            metadata_writer.give_owner(&*partial_file.file, &self.facts);
            let ended = partial_file.file.finish(size, &Metadata::default());
            ended.map_err(|unset| Unfinished::Failed(reason(&unset.to_string(), &unset.error)))?;
        } else {
            metadata_writer.finish(&*partial_file.file, &self.facts).map_err(Unfinished::Failed)?;
        }
        Ok(Some(partial_file))
    }

    /// Compares the digest of the received bytes with the source's, if the job compares whole
    /// files. The file fails if either digest is missing.
    fn compare(&self, stated: Option<Digest>, size: u64) -> Result<(), Unfinished> {
        let root = self.root.lock();
        if !root.is_compared() {
            return Ok(());
        }
        let untold = || Reason::new(Why::Protocol, "the sender sent no digest of the whole file");
        let stated = stated.ok_or_else(|| Unfinished::Failed(untold()))?;
        let found = root.finish(size).ok_or_else(|| Unfinished::Failed(Why::Internal.into()))?;
        if found == stated { Ok(()) } else { Err(Unfinished::Differs) }
    }

    /// Ends the file. Removes the received data unless `keeps` is true, so that a later run can
    /// resume.
    pub(super) fn end_incomplete(&self, keeps: bool) {
        let mut attempts = self.attempts.lock();
        attempts.has_ended = true;
        let last = attempts.files.pop();
        let Some((attempt, partial_file)) = last else { return };
        // The file of an earlier attempt was never logged, or is gone.
        if !keeps || attempt < attempts.attempt {
            partial_file.abandon();
        }
    }
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> Unfinished {
    move |error| Unfinished::Failed(reason(doing, &error))
}
